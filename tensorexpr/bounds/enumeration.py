"""All points of small loops at once, as NumPy arrays: the last resort of proofs about indices that are not affine."""

from __future__ import annotations

import numpy as np

from tensorexpr.ir import Apply, Axis, Cast, Const, Expr, Index, Size
from tensorexpr.ops import cast_value
from tensorexpr.records import record
from tensorexpr.traversal import walk

MAX_POINTS = 1 << 18


class NotEnumerable(Exception):
    """The loops have too many points, or depend on sizes or on data."""


@record
class Points:
    """The points of some loops in row-major order: one array of `count` values per index; `visited` were made for that."""

    count: int
    values: dict[str, np.ndarray]
    visited: int


def enumerate_points(axes: tuple[Axis, ...], guards: tuple[Expr, ...], early: bool = False, most: int = MAX_POINTS) -> Points:
    """The points of the axes at which the guards hold; where they are `early`, each is asked as soon as the indices in it are known, so
    that fewer points are made. Raises `NotEnumerable`, also for more than `most`."""
    values: dict[str, np.ndarray] = {}
    count, visited, left = 1, 0, list(guards)
    for axis in axes:
        start = each_of(axis.start, values, count)
        lengths = np.maximum(each_of(axis.stop, values, count) - start, 0)
        total = int(lengths.sum())
        if total > most:
            raise NotEnumerable
        values = {name: np.repeat(array, lengths) for name, array in values.items()}
        first = np.repeat(np.cumsum(lengths) - lengths, lengths)
        values[axis.index] = np.arange(total, dtype=np.int64) - first + np.repeat(start, lengths)
        count = total
        visited += total
        if early:
            ready = [guard for guard in left if values.keys() >= {node.name for node in walk(guard) if isinstance(node, Index)}]
            left = [guard for guard in left if guard not in ready]
            values, count = _where(ready, values, count)
    values, count = _where(left, values, count)
    return Points(count, values, visited)


def _where(guards: list[Expr], values: dict[str, np.ndarray], count: int) -> tuple[dict[str, np.ndarray], int]:
    """The points at which some guards hold."""
    for guard in guards:
        holds = each_of(guard, values, count)
        values = {name: array[holds] for name, array in values.items()}
        count = int(holds.sum())
    return values, count


def each_of(expr: Expr, values: dict[str, np.ndarray], count: int) -> np.ndarray:
    """An expression at each of so many points; see `evaluate_on`."""
    return np.broadcast_to(evaluate_on(expr, values), (count,))


def evaluate_on(expr: Expr, values: dict[str, np.ndarray] | dict[str, np.int64]) -> np.ndarray | np.generic:
    """An expression over indices and sizes alone at all points at once. Raises `NotEnumerable` where it reads a tensor."""
    match expr:
        case Const():
            literal: np.generic = expr.dtype.numpy.type(expr.value)
            return literal
        case Index() | Size() if expr.name in values:
            return values[expr.name]
        case Cast():
            cast: np.ndarray | np.generic = cast_value(evaluate_on(expr.arg, values), expr.dtype)
            return cast
        case Apply():
            args = [evaluate_on(arg, values) for arg in expr.args]
            with np.errstate(all="ignore"):
                return np.where(*args) if expr.op.name == "where" else expr.op.evaluate(*args)
    raise NotEnumerable
