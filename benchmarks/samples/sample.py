"""An operation and what it is given: the unit that every measure is about.

A sample can be traced as it is, at other shapes, or at open sizes; `draw` makes the arrays. Its tensors are told apart by position
in `givens`: an argument of the operation may be a tuple of tensors, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr.benchmarks.spec import Spec
from tensorexpr.errors import TensorExprError

Shape = tuple[int, ...]
KINDS = ("normal", "positive", "unit", "distinct", "ties", "bool")


@dataclass(frozen=True)
class Given:
    """A tensor that an operation takes: `shape`, and its values.

    "normal" (of two axes and more divided by the root of the last extent); "positive" (between 0.5 and 2); "unit" (between 0.05 and 0.95);
    "distinct" (a shuffled grid without ties);
    "ties" (few integers, as floats): float32. "bool". A pair (low, high): int64 in range(low, high). Or an array, repeated to the shape.
    """

    shape: Shape
    values: str | tuple[int, int] | np.ndarray = "normal"

    @property
    def dtype(self) -> str:
        """The name of the element type."""
        if isinstance(self.values, np.ndarray):
            return "float32" if self.values.dtype == np.float64 else self.values.dtype.name
        return "int64" if isinstance(self.values, tuple) else "bool" if self.values == "bool" else "float32"

    @property
    def is_float(self) -> bool:
        """Whether gradients by it are asked for."""
        return te.dtype(self.dtype).is_float

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """An array of the shape."""
        size = int(np.prod(self.shape))
        match self.values:
            case np.ndarray():
                found: Any = np.resize(self.values, self.shape)
            case (low, high):
                found = rng.integers(low, high, self.shape)
            case "positive":
                found = rng.random(self.shape, np.float32) * 1.5 + 0.5
            case "unit":
                found = rng.random(self.shape, np.float32) * 0.9 + 0.05
            case "distinct":
                found = (rng.permutation(size).reshape(self.shape) - size / 2 + 0.3) * (4 / max(size, 40))
            case "ties":
                found = rng.integers(-2, 3, self.shape)
            case "bool":
                found = rng.random(self.shape) < 0.6
            case _:
                found = rng.standard_normal(self.shape, np.float32)
                if len(self.shape) > 1:  # so that sums over rows, and steps of recurrences by such weights, are as large as values
                    found /= np.float32(max(1, self.shape[-1]) ** 0.5)
        return np.asarray(found, te.dtype(self.dtype).numpy, order="C")


@dataclass(frozen=True)
class Traced:
    """Placeholders and what is computed of them."""

    inputs: list[te.Tensor]
    outputs: list[te.Tensor]

    def with_gradient(self) -> Traced:
        """With a head for each floating output as inputs, and a gradient by each floating input as outputs, behind those there are."""
        floating, wrt = ([t for t in some if t.dtype.is_float] for some in (self.outputs, self.inputs))
        heads = [te.placeholder(t.shape, t.dtype.name, name=f"head{k}") for k, t in enumerate(floating)]
        return Traced([*self.inputs, *heads], [*self.outputs, *te.gradient(floating, wrt, heads)])


@dataclass(frozen=True)
class Sample:
    """An operation `op` of arguments `inputs` (`Given`s, tuples of them, None for what is left out) and `static` ones.

    `torch` is PyTorch's side as text (a lambda of the tensors that are given), None where there is none. `tolerance` is the largest
    difference between two candidates, relative to the largest element.
    """

    name: str
    op: te.Op
    inputs: tuple[Any, ...]
    static: dict[str, Any] = field(default_factory=dict)
    differentiable: bool = True
    torch: str | None = None
    tolerance: float = 1e-4

    @property
    def givens(self) -> list[Given]:
        """Its tensors, in order."""
        return list(_leaves(self.inputs))

    @property
    def shapes(self) -> list[Shape]:
        """Their shapes."""
        return [given.shape for given in self.givens]

    def at(self, shapes: Sequence[Shape]) -> Sample:
        """The same at other shapes. Indices that went below an extent of a tensor go below what it is now."""
        pairs = [pair for old, new in zip(self.shapes, shapes, strict=True) for pair in zip(old, new, strict=True)]
        moved = {old: min(new for before, new in pairs if before == old) for old, _ in pairs}

        def resized(given: Given, shape: Shape) -> Given:
            if isinstance(given.values, tuple):
                low, high = given.values
                return Given(shape, (low, moved.get(high, high)))
            return replace(given, shape=shape)

        rest = iter([resized(given, shape) for given, shape in zip(self.givens, shapes, strict=True)])
        return replace(self, inputs=_mapped(self.inputs, lambda _: next(rest)))

    def traced(self, extents: Sequence[tuple[Any, ...]] | None = None) -> Traced:
        """Its tensors, at its shapes or at `extents`, which may be open sizes. Raises what the operation raises for them."""
        rest = iter(self.shapes if extents is None else extents)
        placeholders: list[te.Tensor] = []

        def made(given: Given) -> te.Tensor:
            placeholders.append(te.placeholder(next(rest), given.dtype, name=f"x{len(placeholders)}"))
            return placeholders[-1]

        result = self.op(*_mapped(self.inputs, made), **self.static)
        return Traced(placeholders, list(result) if isinstance(result, tuple | list) else [result])

    def takes(self, shapes: Sequence[Shape]) -> bool:
        """Whether the operation takes these shapes."""
        try:
            self.traced(shapes)
        except (TensorExprError, ValueError):
            return False
        return True

    def draw(self, seed: int = 0) -> list[np.ndarray]:
        """Arrays for its tensors, the same for the same seed."""
        rng = np.random.default_rng(seed)
        return [given.draw(rng) for given in self.givens]


def sample_of(spec: Spec) -> Sample:
    """A workload of the benchmark's table as a sample."""

    def given(item: Any) -> Given:
        if isinstance(item, np.ndarray):
            return Given(item.shape, item)
        if len(item) == 2 and isinstance(item[0], tuple):
            return Given(item[0], (0, item[1]))
        return Given(item)

    return Sample(spec.name, spec.op, tuple(map(given, spec.arrays)), spec.static, spec.differentiable, None, spec.tolerance)


def _leaves(tree: Any) -> Iterator[Given]:
    if isinstance(tree, tuple):
        for item in tree:
            yield from _leaves(item)
    elif tree is not None:
        yield tree


def _mapped(tree: Any, function: Callable[[Given], Any]) -> Any:
    if isinstance(tree, tuple):
        return tuple(_mapped(item, function) for item in tree)
    return None if tree is None else function(tree)
