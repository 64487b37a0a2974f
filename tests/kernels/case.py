"""A row of the case table: an operation of the library on small inputs, with independent references.

A row says what the operation should equal, as a function of NumPy arrays and as PyTorch, and what its derivative may look like.
`test_laws` runs every law on every row; `tests/peers` compares value and gradients with PyTorch; `benchmarks/subjects/derivation.py`
times the derivation. This module imports no peer: PyTorch's side is text, evaluated where PyTorch is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tensorexpr as te


@dataclass(frozen=True)
class Data:
    """An input: `shape`, and how its values are drawn.

    "normal"; "positive" (between 0.5 and 2); "unit" (between 0.05 and 0.95); "distinct" (a shuffled grid without ties, at least
    0.1 apart); "ties" (few integers, as float64); an (low, high) pair (int64 in range(low, high)); "bool"; or an array as it is.
    """

    shape: tuple[int, ...]
    values: str | tuple[int, int] | np.ndarray = "normal"

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """An array of the input: float64, int64 or bool."""
        match self.values:
            case np.ndarray():
                return self.values
            case (low, high):
                return rng.integers(low, high, self.shape)
            case "normal":
                return rng.standard_normal(self.shape)
            case "positive":
                return rng.uniform(0.5, 2.0, self.shape)
            case "unit":
                return rng.uniform(0.05, 0.95, self.shape)
            case "distinct":
                size = int(np.prod(self.shape))
                return (rng.permutation(size).reshape(self.shape) - size / 2 + 0.3) * 0.1
            case "ties":
                return rng.integers(-2, 3, self.shape).astype(np.float64)
            case "bool":
                return rng.random(self.shape) < 0.6
        raise AssertionError(f"expected a known kind of values, got {self.values}")


@dataclass(frozen=True)
class Case:
    """One row.

    `inputs`: a `Data`, or a shape for normal values, or None for a tensor that is left out, per tensor argument of `op` (a
    tuple of `Data` for an argument that is a tuple). `static`: its keyword arguments. `numpy`: the value as a function of the
    arrays (None left out), written independently of the kernel; `torch`: text of a lambda over the tensors that are given, with
    `torch`, `F` (torch.nn.functional) and `math` in scope, compared in value and all gradients (of floating inputs) at relative
    1e-9; None where PyTorch has no such operation (then `numpy` must be there). `scatters`: reads that depend on data, so that
    their rows are "segments"; all other rows must be gathers with iterations == reads. `kinks`: the op has first derivatives
    that jump or are constant by pieces where finite differences would step over them; the rest of the laws still holds.
    `float32`: the relative accuracy expected of float32 against float64 (None: the op is not run in float32).
    """

    name: str
    op: te.Op
    inputs: tuple[Any, ...]
    torch: str | None = None
    numpy: Callable[..., Any] | None = None
    static: dict[str, Any] = field(default_factory=dict)
    scatters: bool = False
    kinks: bool = False
    differentiable: bool = True
    float32: float | None = 1e-4

    def __post_init__(self) -> None:
        assert self.torch is not None or self.numpy is not None, f"{self.name}: expected a reference, got none"

    def arrays(self, seed: int = 7) -> list[Any]:
        """The inputs, the same on every call: float64, int64 or bool arrays, None, or tuples of them."""
        rng = np.random.default_rng(seed)

        def draw(item: Any) -> Any:
            if item is None or isinstance(item, Data):
                return None if item is None else item.draw(rng)
            if isinstance(item, tuple) and item and not isinstance(item[0], int):
                return tuple(map(draw, item))
            return Data(item).draw(rng)

        return [draw(item) for item in self.inputs]


def flat(tree: Any) -> list[np.ndarray]:
    """The arrays of nested tuples, None left out."""
    if isinstance(tree, (tuple, list)):
        return [array for item in tree for array in flat(item)]
    return [] if tree is None else [np.asarray(tree)]


def as_float32(tree: Any) -> Any:
    """The tree with its float64 arrays in float32."""
    if isinstance(tree, tuple):
        return tuple(map(as_float32, tree))
    return tree.astype(np.float32) if tree is not None and tree.dtype == np.float64 else tree
