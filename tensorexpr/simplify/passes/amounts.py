"""About how much work something is: points of loops, elements of tensors, the cost of a value. What passes weigh, never what they prove.

An extent that is known only at run time counts `OPEN`. A bound that depends on other indices counts at the middle of their ranges, and
data that a literal bounds at the literal. One that depends on data alone gives a single iteration: nothing is done for loops of which
nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np

from tensorexpr.bounds.enumeration import NotEnumerable, evaluate_on
from tensorexpr.ir import Access, Apply, Axis, Const, Expr, Index, Reduce, Size, conjunction
from tensorexpr.traversal import children, free_names, size_names

OPEN = 256
"""What a size counts that is bound at run time."""
GRID = 128
"""Places of each index at which the part is counted, and what an open size counts for."""


def amount(expr: Expr, middles: Mapping[str, float]) -> float | None:
    """About which number an index expression is; None where it depends on data."""
    match expr:
        case Const():
            return float(expr.value)
        case Size():
            return float(OPEN)
        case Index():
            return middles.get(expr.name)
        case Apply() if expr.op.name in _ARITHMETIC:
            found = [n for arg in expr.args if (n := amount(arg, middles)) is not None]
            if len(found) == len(expr.args):
                return _ARITHMETIC[expr.op.name](*found)
            return found[0] if found and expr.op.name in ("minimum", "maximum") else None
    return None


_ARITHMETIC: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "floordiv": lambda a, b: a // b if b else 0.0,
    "mod": lambda a, b: a % b if b else 0.0,
    "minimum": min,
    "maximum": max,
}


def lengths(axes: Sequence[Axis]) -> dict[str, float]:
    """About how many iterations each axis has, by the name of its index; later ones may depend on earlier ones."""
    middles: dict[str, float] = {}
    found: dict[str, float] = {}
    for axis in axes:
        start, stop = amount(axis.start, middles), amount(axis.stop, middles)
        if start is None or stop is None:
            found[axis.index] = 1.0
            continue
        found[axis.index] = max(stop - start, 0.0)
        middles[axis.index] = (start + stop) / 2
    return found


def points(axes: Sequence[Axis]) -> float:
    """About how many points axes have together."""
    return prod(lengths(axes).values())


def part_of(condition: tuple[Expr, ...], axes: Sequence[Axis]) -> float:
    """Which part of all points a mask over indices lets through, counted at some."""
    axes = [a for a in axes if any(a.index in free_names(c) for c in condition)]
    sizes = {name: np.int64(GRID) for c in (*condition, *(a.stop for a in axes)) for name in size_names(c)}
    try:
        extents = [max(int(evaluate_on(a.stop, sizes)), 0) for a in axes]  # sizes may be none that go together
        places = [np.unique(np.linspace(0, n - 1, min(n, GRID)).astype(np.int64)) for n in extents]
        if prod(map(len, places)) > GRID**3 or not all(map(len, places)):
            return 1.0
        grid = dict(zip((a.index for a in axes), np.meshgrid(*places, indexing="ij"), strict=True))
        holds = evaluate_on(conjunction(condition), {**grid, **{name: np.asarray(n) for name, n in sizes.items()}})
    except NotEnumerable:
        return 1.0
    return float(np.mean(np.asarray(holds, np.float64)))


def elements(shape: Sequence[Expr]) -> float:
    """About how many elements a tensor of this shape has."""
    return prod(max(amount(extent, {}) or 0.0, 0.0) for extent in shape)


def cost(expr: Expr) -> float:
    """What it costs to compute a value once, in additions (`Op.cost`): subscripts, conditions on indices and casts cost nothing."""
    return cost_over(expr, sum(map(cost, parts(expr))))


def parts(expr: Expr) -> tuple[Expr, ...]:
    """What is computed for a value: not subscripts, nor bounds and conditions of reductions."""
    return () if isinstance(expr, Access) else expr.values if isinstance(expr, Reduce) else children(expr)


def cost_over(expr: Expr, inside: float) -> float:
    """As `cost`, where its parts cost so much together."""
    if isinstance(expr, Reduce):
        return points(expr.axes) * (1.0 + inside)
    return inside + (expr.op.cost if isinstance(expr, Apply) and expr.args[-1].dtype.is_float else 0)
