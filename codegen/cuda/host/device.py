"""This CPU in place of a GPU: its arrays are NumPy's, and kernels have run when their launch returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import Any

import numpy as np

from tensorexpr.codegen.auto.gpus import GpuFacts
from tensorexpr.codegen.cuda.emitter.source import Source
from tensorexpr.codegen.cuda.host import HostKernels
from tensorexpr.codegen.cuda.nvidia.nvrtc import Compiled
from tensorexpr.codegen.cuda.thread.packs import ALIGNMENT


class _Described:
    """Memory as NumPy's array interface describes it."""

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = {"version": 3, **interface}


class HostDevice:
    """This CPU; its arrays are NumPy's."""

    name = "host"
    arch: str | None = None
    facts: GpuFacts | None = None

    def load(self, source: Source, compiled: Compiled | None) -> HostKernels:
        return HostKernels(source)

    def array(self, value: object) -> Any:
        interface = getattr(value, "__cuda_array_interface__", None)
        if interface is not None:  # an array of a device that this CPU stands in for
            return np.asarray(_Described({name: interface[name] for name in ("shape", "typestr", "data", "strides") if name in interface}))
        return value if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray) else None

    def entered(self) -> AbstractContextManager[object]:
        return nullcontext()

    def place(self, array: Any) -> str:
        return self.name

    def contiguous(self, array: Any) -> Any:
        return np.ascontiguousarray(array).reshape(array.shape)

    def copy(self, array: Any) -> Any:
        made = self.empty(array.shape, array.dtype)
        made[...] = array
        return made

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        size = prod(shape) * dtype.itemsize
        block = np.empty(size + ALIGNMENT, np.uint8)
        start = -block.ctypes.data % ALIGNMENT
        return block[start : start + size].view(dtype).reshape(shape)

    def upload(self, array: np.ndarray) -> Any:
        return self.copy(array)

    def scalar(self, value: np.ndarray) -> Any:
        return self.copy(value)

    def capturing(self, stream: int) -> bool:
        return False

    def address(self, array: Any) -> int:
        return int(array.ctypes.data)

    def read(self, array: Any) -> np.ndarray:
        return np.array(array)

    def report(self, stream: int) -> _ReadAtOnce:
        return _ReadAtOnce()

    def poll(self, stream: int) -> None:
        pass

    def uses(self) -> _Unused:
        return _Unused()

    def keep(self, uses: object, held: object) -> None:
        pass

    def follow(self, values: Sequence[Any], stream: int, written: bool) -> None:
        pass

    def settle(self) -> None:
        pass

    def checked(self, array: Any, pending: object) -> Any:
        return array


class _Unused:
    """Who notes no use: what has run needs nothing."""

    def on(self, stream: int) -> None:
        pass


class _ReadAtOnce:
    """A report of kernels that have run when their launch returns."""

    def __init__(self) -> None:
        self._words = np.zeros(3, np.int64)
        self.address = int(self._words.ctypes.data)

    def sent(self, say: Callable[[int, int, int], Exception]) -> None:
        check, index, extent = (int(n) for n in self._words)
        if check:
            raise say(check - 1, index, extent)

    def dropped(self) -> None:
        pass
