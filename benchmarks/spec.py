"""What a workload is: an operation of the library, the arrays it gets, and the least that it has to compute and to move."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

import tensorexpr as te

GROUPS = ("contraction", "memory", "fused", "small")


@dataclass(frozen=True, slots=True)
class Spec:
    """One workload.

    `arrays` are shapes (normal, of `dtype`), pairs (shape, high) of int64 in range(high), or arrays. `op` with its `static` arguments
    is ours; `key` is the name of the same mathematics in the tables of the peers, which get the same `static` arguments.
    `operations` and `bytes` are the least that a perfect forward executes and moves. `group` says what bounds it: "contraction"
    (arithmetic), "memory", "fused" (what array frameworks must materialize), "small" (calls).
    `products` says of others than contractions that their operations are sums of products, too (the two of attention).
    `tolerance` is relative to the largest magnitude of a result: float32 values of candidates that add in different orders.
    """

    name: str
    group: str
    key: str
    op: te.Op
    arrays: tuple[Any, ...]
    operations: float
    bytes: float
    static: dict[str, Any] = field(default_factory=dict)
    differentiable: bool = True
    tolerance: float = 1e-4
    dtype: str = "float32"
    products: bool = False

    def draw(self) -> list[np.ndarray]:
        """The arrays, the same on every call."""
        rng = np.random.default_rng(0)
        made = []
        for item in self.arrays:
            if isinstance(item, np.ndarray):
                made.append(item)
            elif len(item) == 2 and isinstance(item[0], tuple):
                made.append(rng.integers(0, item[1], item[0]))
            else:
                made.append(_of_type(rng.standard_normal(item, np.float32), self.dtype))
        return made

    def shapes(self) -> list[tuple[tuple[int, ...], str]]:
        """Shape and type of each array, without drawing it."""
        described: list[tuple[tuple[int, ...], str]] = []
        for item in self.arrays:
            if isinstance(item, np.ndarray):
                described.append((item.shape, item.dtype.name))
            elif len(item) == 2 and isinstance(item[0], tuple):
                described.append((item[0], "int64"))
            else:
                described.append((item, self.dtype))
        return described

    def placeholders(self) -> list[te.Tensor]:
        """One input for each array."""
        return [te.placeholder(shape, dtype, name=f"x{k}") for k, (shape, dtype) in enumerate(self.shapes())]

    def output_shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return tuple(int(extent) for extent in self.op(*self.placeholders(), **self.static).shape)

    def head(self) -> np.ndarray:
        """What the gradient is given for the result, the same on every call."""
        return _of_type(np.random.default_rng(1).standard_normal(self.output_shape(), np.float32), self.dtype)

    def work(self, gradient: bool) -> float:
        """Floating-point operations; a gradient of sums of products has two more of their size, that of anything else as many again."""
        return self.operations * (1.0 if not gradient else 3.0 if self.products or self.group in ("contraction", "small") else 2.0)

    def moved(self, gradient: bool) -> float:
        """Bytes; with the gradient also the head, and a gradient of each floating input."""
        if not gradient:
            return self.bytes
        inputs = sum(te.dtype(dtype).bits // 8 * prod(shape) for shape, dtype in self.shapes() if te.dtype(dtype).is_float)
        return self.bytes + te.dtype(self.dtype).bits / 8 * prod(self.output_shape()) + inputs


def _of_type(array: np.ndarray, dtype: str) -> np.ndarray:
    return array if array.dtype.name == dtype else array.astype(te.dtype(dtype).numpy)
