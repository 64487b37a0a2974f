"""Rules for reductions: what they give over nothing, over literals, and where every point gives the same."""

from __future__ import annotations

from tensorexpr.dtypes import DType
from tensorexpr.ir import FALSE, TRUE, Apply, Axis, Cast, Const, Expr, Reduce, apply, const
from tensorexpr.ops import cast_value
from tensorexpr.records import replace
from tensorexpr.rewrite import on
from tensorexpr.simplify.rules.common import is_value, literal, operands_of
from tensorexpr.simplify.rules.floats import magnitude_of_opposites
from tensorexpr.simplify.rules.integers import wrapped
from tensorexpr.traversal import free_names

_EXACT_INTEGERS = {"float16": 1 << 24, "bfloat16": 1 << 24, "float32": 1 << 24, "float64": 1 << 53}
"""Whole numbers up to here are exact in the type that carries a sum (float32 for the 16-bit types)."""


def identity(reduction: Reduce) -> Const:
    """What the reduction gives over no points."""
    combiner, dtype = reduction.combiner, reduction.dtype
    match combiner.name if combiner.is_builtin else None:
        case None:
            neutral = combiner.identity[reduction.component]
            assert isinstance(neutral, Const)
            return neutral
        case "sum" | "any" | "argmax" | "argmin":
            return Const(0, dtype)
        case "prod" | "all":
            return Const(1, dtype)
        case "max":
            return Const(dtype.least, dtype)
    return Const(dtype.greatest, dtype)


def identity_value(combine: str, dtype: DType) -> Const:
    """The value that changes nothing when a built-in combiner meets it: 0, 1, the least, the greatest."""
    match combine:
        case "sum" | "any":
            return Const(0, dtype)
        case "prod" | "all":
            return Const(1, dtype)
        case "max":
            return Const(dtype.least, dtype)
    return Const(dtype.greatest, dtype)


def points(axes: tuple[Axis, ...]) -> int | None:
    """How many points literal bounds have, None where a bound is not a literal."""
    total = 1
    for axis in axes:
        if not isinstance(axis.start, Const) or not isinstance(axis.stop, Const):
            return None
        total *= max(0, int(axis.stop.value) - int(axis.start.value))
    return total


@on("reduce")
def reduce_nothing(expr: Expr) -> Expr | None:
    """sum(e for k in range(a, b)) -> 0, where b <= a are literals or the condition is False; other combiners: their identity"""
    assert isinstance(expr, Reduce)
    empty = expr.where == FALSE or any(points((axis,)) == 0 for axis in expr.axes)
    return identity(expr) if empty else None


@on("reduce")
def reduce_always(expr: Expr) -> Expr | None:
    """sum(e for k in range(n) if True) -> sum(e for k in range(n)), for every combiner"""
    assert isinstance(expr, Reduce)
    return replace(expr, where=None) if expr.where == TRUE else None


@on("reduce")
def reduce_identity(expr: Expr) -> Expr | None:
    """sum(0) -> 0;  prod(1) -> 1;  max(least) -> least;  min(greatest) -> greatest;  all(True) -> True;  any(False) -> False"""
    assert isinstance(expr, Reduce)
    if not expr.combiner.is_builtin or expr.combiner.name in ("argmax", "argmin"):
        return None
    neutral = identity_value(expr.combiner.name, expr.dtype)
    return neutral if expr.values[0] in (neutral, Const(-0.0, expr.dtype) if expr.combiner.name == "sum" else neutral) else None


@on("reduce")
def sum_of_literals(expr: Expr) -> Expr | None:
    """sum(c for k in range(a, b)) -> c * (b - a), with literal bounds: integers wrap around; floats where all sums are whole and exact"""
    assert isinstance(expr, Reduce)
    value = expr.values[0]
    if expr.combiner.name != "sum" or not expr.combiner.is_builtin or expr.where is not None or not isinstance(value, Const):
        return None
    count = points(expr.axes)
    if count is None:
        return None
    if value.dtype.is_integer:
        return wrapped(int(value.value) * count, value.dtype)
    if value.value != value.value or abs(value.value) == float("inf") or value.value != int(value.value):
        return None
    if abs(int(value.value)) * count > _EXACT_INTEGERS[value.dtype.name]:
        return None
    return literal(cast_value(float(int(value.value) * count), value.dtype), value.dtype)


@on("reduce")
def extremum_of_literals(expr: Expr) -> Expr | None:
    """max(c for k in range(n)) -> c, and likewise for min, all and any, where c is a literal and there is a point"""
    assert isinstance(expr, Reduce)
    if expr.combiner.name not in ("max", "min", "all", "any") or not expr.combiner.is_builtin or expr.where is not None:
        return None
    count = points(expr.axes)
    return expr.values[0] if isinstance(expr.values[0], Const) and count is not None and count > 0 else None


@on("reduce")
def extremum_of_extrema(expr: Expr) -> Expr | None:
    """max(max(e for k if c) for i) -> max(e for i for k if c), and likewise for min, all and any, where what is inside depends on each i"""
    assert isinstance(expr, Reduce)
    inner = expr.values[0]
    if expr.combiner.name not in ("max", "min", "all", "any") or not expr.combiner.is_builtin or expr.where is not None:
        return None
    if not isinstance(inner, Reduce) or inner.combiner != expr.combiner or not {a.index for a in expr.axes} <= set(free_names(inner)):
        return None
    return replace(inner, axes=(*expr.axes, *inner.axes))


@on("reduce")
def product_of_zeros(expr: Expr) -> Expr | None:
    """prod(0 for k in range(n)) -> 0 for integers, where there is a point"""
    assert isinstance(expr, Reduce)
    if expr.combiner.name != "prod" or not expr.combiner.is_builtin or expr.where is not None or not expr.dtype.is_integer:
        return None
    count = points(expr.axes)
    return Const(0, expr.dtype) if is_value(expr.values[0], 0) and count is not None and count > 0 else None


@on("reduce")
def winner_of_one(expr: Expr) -> Expr | None:
    """argmax(e for k in range(a, a + 1)) -> 0, with or without condition, where all bounds are literals"""
    assert isinstance(expr, Reduce)
    return const(0) if expr.combiner.name in ("argmax", "argmin") and points(expr.axes) == 1 else None


@on("cast")
def cast_of_sum(expr: Expr) -> Expr | None:
    """cast(sum(cast(e))) -> sum(e);  cast(prod(cast(e))) -> prod(e): integers as wide as e, which wrap around as the wider ones would"""
    assert isinstance(expr, Cast)
    total = expr.arg
    if not isinstance(total, Reduce) or total.combiner.name not in ("sum", "prod") or not total.combiner.is_builtin:
        return None
    (value,) = total.values
    if not isinstance(value, Cast) or value.arg.dtype is not expr.dtype or not expr.dtype.is_integer:
        return None
    return replace(total, values=(value.arg,)) if value.dtype.is_integer and value.dtype.bits >= expr.dtype.bits else None


@on("reduce")
def sum_of_distances(expr: Expr) -> Expr | None:
    """sum(maximum(x - y, y - x)) -> sum(abs(x - y));  sum(maximum(x, -x)) -> sum(abs(x)): a sum hides the sign of a zero"""
    assert isinstance(expr, Reduce)
    found = magnitude_of_opposites(expr.values[0])
    return replace(expr, values=(found,)) if found is not None and expr.combiner.name == "sum" and expr.combiner.is_builtin else None


@on("reduce")
def sum_of_sides(expr: Expr) -> Expr | None:
    """sum(where(x > y, x - y, y - x)) -> sum(abs(x - y)); where x == y the derivative of the one is that of a side, of the other 0"""
    assert isinstance(expr, Reduce)
    sides = operands_of(expr.values[0], "where")
    if sides is None or not isinstance(sides[0], Apply):
        return None
    name, compared = sides[0].op.name, sides[0].args
    greater = compared if name in ("gt", "ge") else compared[::-1] if name in ("lt", "le") else ()
    one, other = (operands_of(side, "sub") for side in sides[1:])
    if one is None or other is None or one != other[::-1] or one != tuple(greater) or not expr.dtype.is_float:
        return None
    return replace(expr, values=(apply("abs", sides[1]),)) if expr.combiner.name == "sum" and expr.combiner.is_builtin else None


SIDE_RULES = (sum_of_sides,)
"""Rules that keep every value and not every derivative."""
CAST_RULES = (cast_of_sum,)
"""Rules for casts of reductions to integers."""
REDUCE_RULES = (
    reduce_nothing,
    reduce_always,
    reduce_identity,
    sum_of_literals,
    extremum_of_literals,
    extremum_of_extrema,
    product_of_zeros,
    winner_of_one,
    sum_of_distances,
)
