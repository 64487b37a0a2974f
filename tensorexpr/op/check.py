"""`te.check_gradient`: the derivatives of an op against finite differences, along one random direction in float64.

Central differences on a ladder of steps, improved by Richardson's extrapolation: the step is chosen where what two steps
disagree by and what rounding can do together are least, and that sum says how well the differences are known. Forward
and reverse mode must be within ten times of it (or a relative 1e-6). The direction and the head are drawn from a fixed
seed, so a check gives the same numbers every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorexpr.dtypes import DType, dtype, float64
from tensorexpr.errors import DefinitionError, GradientCheckError, user_location
from tensorexpr.hints import checked
from tensorexpr.ir import Apply, Cast, Program, Reduce
from tensorexpr.markup import listing
from tensorexpr.op import Op
from tensorexpr.op.specs import argument_error
from tensorexpr.op.transforms import as_op, jvp, vjp
from tensorexpr.op.trees import leaves, map_tree
from tensorexpr.records import record
from tensorexpr.traversal import expressions, walk

_STEPS = tuple(10.0**-e for e in (2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0))
_COARSE_STEPS = tuple(10.0**-e for e in (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0))
_RELATIVE = 1e-6
_SAFETY = 10.0
_RESOLUTION = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


@record
class GradientCheck:
    """What a check found: the derivative along the direction by differences, forward and reverse mode, and what was allowed."""

    operation: str
    numeric: float
    forward: float
    reverse: float
    tolerance: float

    @property
    def forward_error(self) -> float:
        """Distance of forward mode from the differences."""
        return abs(self.forward - self.numeric)

    @property
    def reverse_error(self) -> float:
        """Distance of reverse mode from the differences."""
        return abs(self.reverse - self.numeric)

    def __str__(self) -> str:
        return (
            f"{self.operation}: the derivative along a random direction\n"
            f"  finite differences  {self.numeric:+.12e}   (within {self.tolerance:.1e} counts as equal)\n"
            f"  forward mode        {self.forward:+.12e}   off by {self.forward_error:.1e}\n"
            f"  reverse mode        {self.reverse:+.12e}   off by {self.reverse_error:.1e}"
        )

    def _repr_html_(self) -> str:
        return listing(str(self))


@checked()
def check_gradient(operation: Op, *arrays: Any, **keywords: Any) -> GradientCheck:
    """Compares the op's derivatives at these arrays with finite differences; gives what was found.

    Floating arrays are cast to float64, integer ones stay. An op with a gradient rule of its own is checked with it.
    Raises `GradientCheckError` with both numbers where they disagree, and where values are not finite.

    >>> square = te.op(lambda x: te.compute(x.shape, lambda i: x[i] * x[i]))
    >>> found = te.check_gradient(square, np.arange(3.0))
    >>> abs(found.reverse - found.numeric) < found.tolerance
    True
    """
    operation = as_op(operation, "check_gradient")
    if not arrays and not keywords and operation.parameters:
        raise argument_error(
            "te.check_gradient: expected arrays to differentiate at, got none",
            hint=f"te.check_gradient({operation.name}, {', '.join(operation.parameters)})",
        )
    trees, chosen = operation.arrays(arrays, keywords)
    try:
        check = Check(operation, [map_tree(_widen, tree) for tree in trees], chosen)
    except DefinitionError as error:
        if all(not dtype(array.dtype).is_float or array.dtype == np.float64 for array in leaves(trees)):
            raise
        raise GradientCheckError(
            f"{operation.name}: expected an operation that can be computed in float64, to compare with differences, got {error.message}",
            term=error.term,
            location=error.location,
            hint='a dtype that follows the arguments, te.cast(0, x.dtype), in place of "float32"',
        ) from error
    found = check.along(check.directions)
    for mode in ("reverse", "forward"):
        value = getattr(found, mode)
        # Written so that a NaN fails.
        if not abs(value - found.numeric) <= found.tolerance:
            raise check.error(mode, value, found)
    return found


def _widen(array: np.ndarray) -> np.ndarray:
    return np.array(array, np.float64) if dtype(array.dtype).is_float else np.array(array)


def _is_floating(array: np.ndarray) -> bool:
    return array.dtype == np.float64


class Check:
    """One op at one point, with a direction for every floating leaf and a head for every floating output."""

    def __init__(self, operation: Op, trees: Sequence[Any], static: dict[str, Any]) -> None:
        while trees and isinstance(trees[-1], tuple) and not trees[-1]:
            trees = trees[:-1]  # left out: by position a tuple may be an axis
        self.operation, self.trees, self.static = operation, trees, static
        rng = np.random.default_rng(0)
        self.directions = [map_tree(lambda a: _normal(rng, a.shape) if _is_floating(a) else None, tree) for tree in trees]
        result = operation(*trees, **static)
        self.several = isinstance(result, tuple)
        self.outputs = [y for y in leaves(result) if dtype(y.dtype).is_float]
        if not self.outputs:
            raise GradientCheckError(f"{operation.name}: expected a floating output to check, got none", location=user_location())
        if not any(direction is not None for direction in leaves(self.directions)):
            raise GradientCheckError(f"{operation.name}: expected a floating input to check, got none", location=user_location())
        self.heads = [_normal(rng, y.shape).astype(y.dtype) for y in self.outputs]
        self.program = operation.trace(*trees, **static)
        self.resolution = _resolution(self.program)

    def _run(self, step: float, directions: Sequence[Any]) -> list[np.ndarray]:
        """The floating outputs at the point moved by `step`."""
        moves = leaves(directions)
        moved = [map_tree(lambda a: _moved(a, next(moves), step), tree) for tree in self.trees]
        return [y for y in leaves(self.operation(*moved, **self.static)) if dtype(y.dtype).is_float]

    def _difference(self, step: float, directions: Sequence[Any]) -> float:
        ahead, behind = self._run(step, directions), self._run(-step, directions)
        with np.errstate(all="ignore"):
            return sum(
                float(np.sum(h.astype(np.float64) * (a.astype(np.float64) - b.astype(np.float64))))
                for h, a, b in zip(self.heads, ahead, behind, strict=True)
            ) / (2 * step)

    def numeric(self, directions: Sequence[Any]) -> tuple[float, float]:
        """The derivative by differences, and what it is known to."""
        with np.errstate(all="ignore"):
            size = sum(
                float(np.sum(np.abs(h.astype(np.float64) * y.astype(np.float64)))) for h, y in zip(self.heads, self.outputs, strict=True)
            )
        best = (float("nan"), float("inf"))
        previous: float | None = None
        for step in _STEPS if self.resolution < 1e-10 else _COARSE_STEPS:
            value = (4 * self._difference(step / 2, directions) - self._difference(step, directions)) / 3
            if previous is not None:
                uncertainty = abs(value - previous) + 4 * self.resolution * size / step
                if uncertainty < best[1]:
                    best = (value, uncertainty)
            previous = value
        return best

    def along(self, directions: Sequence[Any]) -> GradientCheck:
        """The three derivatives along a direction."""
        numeric, uncertainty = self.numeric(directions)
        if not np.isfinite(numeric):
            raise GradientCheckError(
                f"{self.operation.name}: expected finite values around these arrays, got {numeric}",
                location=user_location(),
                hint="choose arrays inside the domain of the function",
            )
        tangents = [_present(tree) for tree in directions if any(leaf is not None for leaf in leaves(tree))]
        pushed = list(leaves(jvp(self.operation)(*self.trees, *tangents, **self.static)))
        heads = tuple(self.heads) if self.several else self.heads[0]
        pulled = list(leaves(vjp(self.operation)(*self.trees, heads, **self.static)))
        forward = _inner(self.heads, pushed)
        reverse = _inner(list(leaves(tangents)), pulled)
        return GradientCheck(self.operation.name, numeric, forward, reverse, self.tolerance(uncertainty, numeric, forward, reverse))

    def tolerance(self, uncertainty: float, *derivatives: float) -> float:
        """How far apart derivatives may be where the differences are known to so much."""
        scale = max(map(abs, derivatives))
        return _SAFETY * uncertainty + (_RELATIVE * scale if np.isfinite(scale) else 0.0)

    def error(self, mode: str, value: float, found: GradientCheck) -> GradientCheckError:
        """The disagreement as an error that names the input at fault where a single one shows it."""
        return GradientCheckError(
            f"{self.operation.name}: expected the {mode} derivative along a random direction to be {found.numeric:.12g} "
            f"(finite differences), got {value:.12g} (off by {abs(value - found.numeric):.1e}, tolerance {found.tolerance:.1e})",
            location=user_location(),
            at=self._culprit(mode),
            hint=(
                "the op's own gradient rule is what disagrees"
                if self.operation.rule is not None
                else f"{_away_from_kinks(self.program)}this is a defect: please report it with the op"
            ),
        )

    def _culprit(self, mode: str) -> str | None:
        for position, tree in enumerate(self.directions):
            if all(leaf is None for leaf in leaves(tree)):
                continue
            only = [map_tree(_zeroed, other) if other is not tree else other for other in self.directions]
            found = self.along(only)
            value = getattr(found, mode)
            if not abs(value - found.numeric) <= found.tolerance:
                name = self.operation.argument_names(len(self.trees))[position]
                return f"the derivative by {name} alone is {found.numeric:.12g}, got {value:.12g}"
        return None


def _away_from_kinks(program: Program) -> str:
    """Where the operations of a program have no unique slope, as the beginning of a sentence; nothing where they all have one."""
    found: dict[str, None] = {}
    for node in (node for d in program.definitions for e in expressions(d) for node in walk(e)):
        match node:
            case Apply(op, args) if op.kink is not None and args[0].dtype.is_float:
                found[f"{op} where {op.kink}"] = None
            case Reduce() if node.combiner.name in ("max", "min", "argmax", "argmin"):
                found[f"{node.combiner.name} of equal values"] = None
            case Cast() if node.arg.dtype.is_float and not node.dtype.is_float:
                found["casts of whole numbers"] = None
    return f"away from kinks ({', '.join(found)}) " if found else ""


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(rng.standard_normal(shape))


def _moved(array: np.ndarray, direction: np.ndarray | None, step: float) -> np.ndarray:
    return array if direction is None else np.asarray(array + step * direction)


def _zeroed(direction: np.ndarray | None) -> np.ndarray | None:
    return None if direction is None else np.zeros_like(direction)


def _present(tree: Any) -> Any:
    """The tree without its None leaves."""
    return tuple(_present(item) for item in tree if item is not None) if isinstance(tree, tuple) else tree


def _inner(left: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> float:
    return sum(float(np.sum(a.astype(np.float64) * b.astype(np.float64))) for a, b in zip(left, right, strict=True))


def _resolution(program: Program) -> float:
    """The coarsest relative step between floating values that the program computes with."""
    found: set[DType] = {float64}
    for definition in program.definitions:
        found.update(type_.dtype for _, type_ in definition.results if type_.dtype.is_float)
        found.update(node.dtype for e in expressions(definition) for node in walk(e) if node.dtype.is_float)
    return max(_RESOLUTION[d.name] for d in found)
