"""Arrays as users have them: transposed, strided, reversed, offset, broadcast; and memory that ends where nothing may be touched."""

from __future__ import annotations

import random

import numpy as np

from tests.runtime.pages import GuardedArray, guarded_copy

LAYOUTS = ("plain", "transposed", "strided", "reversed", "offset", "broadcast")


def laid_out(array: np.ndarray, layout: str) -> np.ndarray:
    """An array with the same elements in another layout (`broadcast`: those of its first row in all of them)."""
    if array.ndim == 0 or layout == "plain":
        return array.copy()
    if layout == "transposed":
        return np.ascontiguousarray(array.T).T
    if layout == "broadcast":
        return np.broadcast_to(array[:1], array.shape) if array.shape[0] else array.copy()
    if layout == "reversed":
        return np.ascontiguousarray(array[(slice(None, None, -1),) * array.ndim])[(slice(None, None, -1),) * array.ndim]
    step = 2 if layout == "strided" else 1
    wide = np.empty(tuple(n * step + 3 for n in array.shape), array.dtype)
    view = wide[tuple(slice(1, 1 + n * step, step) for n in array.shape)]
    view[...] = array
    return view


class Target:
    """An array to be computed into, full of what it must not keep, in a larger one whose other elements must stay."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, layout: str) -> None:
        step = 2 if layout == "strided" else 1
        self.block = np.full(tuple(n * step + 4 for n in shape) if shape else (5,), 0x5A, np.uint8).repeat(dtype.itemsize, axis=-1)
        whole = self.block.view(dtype)
        if shape and layout in ("strided", "offset"):
            self.array = whole[tuple(slice(2, 2 + n * step, step) for n in shape)]
        else:  # in a row inside of one line
            size = int(np.prod(shape, dtype=np.int64))
            self.block = np.full((size + 16) * dtype.itemsize, 0x5A, np.uint8)
            self.array = self.block.view(dtype)[8 : 8 + size].reshape(shape)
            if layout == "transposed" and len(shape) > 1:
                self.array = self.block.view(dtype)[8 : 8 + size].reshape(shape[::-1]).T
            if layout == "reversed" and shape:
                self.array = self.array[::-1]

    def strayed(self) -> bool:
        """Whether anything around the array was written. Clears the array."""
        width = self.array.dtype.itemsize
        self.array.view(f"u{width}")[...] = int.from_bytes(b"\x5a" * width, "little")
        return bool(np.any(self.block != 0x5A))


def guarded_inputs(arrays: list[np.ndarray], rng: random.Random) -> list[np.ndarray]:
    """Copies of arrays that end, or begin, at a protected page."""
    at_end = rng.random() < 0.7
    return [guarded_copy(array, at_end) for array in arrays]


def guarded_memory(shape: tuple[int, ...], dtype: np.dtype, at_end: bool, fill: int) -> np.ndarray:
    """Memory at a protected page, every byte of it `fill`."""
    array = GuardedArray(shape, dtype, at_end).array
    array.reshape(-1).view(np.uint8)[:] = fill
    return array
