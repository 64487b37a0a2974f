"""Whether what a rewrite makes of int64 arithmetic stays within int64, operation by operation.

A normal form is right for whole numbers. Written down again it may multiply out what was divided (`a < b // 8` as `a * 8 < b - 7`), or
shift what stands under a remainder (`x % -3` as `(x - 1) % 3 - 2`): with integers of tensors, which may be anything of their dtype, or
with very large literals, that wraps around where the original did not. So a rewrite is taken back where its operations may leave int64.
Indices and sizes have their ranges here, or those that all of them have (`wrapping.MOST_SIZE`), as has a product of them.
"""

from __future__ import annotations

from tensorexpr import dtypes
from tensorexpr.bounds.wrapping import MOST_SIZE
from tensorexpr.ir import Apply, Cast, Const, Expr, Index, Reduce, Size
from tensorexpr.simplify.facts.context import CHAIN, Arithmetic, Context, combined

LEAST, GREATEST = int(dtypes.int64.least), int(dtypes.int64.greatest)
_SHIFTS = {"shift_left": "mul", "shift_right": "floordiv"}

Range = tuple[int, int]


def stays_within(expr: Expr, context: Context) -> bool:
    """Whether no operation of an int64 expression wraps around, as far as ranges say."""
    arithmetic = context.arithmetic
    if _reach(expr, arithmetic, None, arithmetic.reaches) is not None:
        return True
    return _reach(expr, arithmetic, context, {}) is not None


def _reach(expr: Expr, arithmetic: Arithmetic, context: Context | None, known: dict[Expr, Range | None]) -> Range | None:
    """The values of an expression, here or (without a context) anywhere; None where something in it may wrap around."""
    if isinstance(expr, Const):
        return (int(expr.value), int(expr.value)) if LEAST <= expr.value <= GREATEST else None
    if expr not in known:
        if isinstance(expr, Apply) and _is_followed(expr):
            parts = [_reach(arg, arithmetic, context, known) for arg in expr.args[expr.op.name == "where" :]]
            ranges = [part for part in parts if part is not None]
            known[expr] = _of_operation(expr, ranges, arithmetic) if len(ranges) == len(parts) else None
        else:
            known[expr] = _of_leaf(expr, arithmetic, context)
    return known[expr]


def _is_followed(expr: Apply) -> bool:
    name = expr.op.name
    return expr.dtype is dtypes.int64 and (name in (*CHAIN, "where") or (name in _SHIFTS and isinstance(expr.args[1], Const)))


def _of_operation(expr: Apply, ranges: list[Range], arithmetic: Arithmetic) -> Range | None:
    name = expr.op.name
    if name == "where":
        return min(low for low, _ in ranges), max(high for _, high in ranges)
    if name in _SHIFTS:
        by = ranges[1][0]
        if not 0 <= by < 63:
            return LEAST, GREATEST
        name, ranges = _SHIFTS[name], [ranges[0], (1 << by, 1 << by)]
    (low, high), (least, most) = ranges[0], ranges[-1]
    if name == "mod" and least > 0:
        return (low, high) if low >= 0 and high < least else (0, most - 1)
    if name == "floordiv" and least > 0:
        return min(low // least, low // most), max(high // least, high // most)
    low, high = combined(name, ranges)
    if name == "mul" and not any(isinstance(arg, Const) for arg in expr.args) and arithmetic.pure(expr):
        low, high = max(low, -MOST_SIZE), min(high, MOST_SIZE)  # of extents, and of indices that stay below them
    return (low, high) if low >= LEAST and high <= GREATEST else None


def _of_leaf(expr: Expr, arithmetic: Arithmetic, context: Context | None) -> Range:
    low, high = int(expr.dtype.least), int(expr.dtype.greatest)
    match expr:
        case Index() | Size():
            low, high = (0 if isinstance(expr, Size) else -MOST_SIZE), MOST_SIZE
        case Reduce() if expr.combiner.name in ("argmax", "argmin"):
            low, high = 0, MOST_SIZE
        case Cast() if expr.arg.dtype.is_bool:
            low, high = 0, 1
        case Cast() if expr.arg.dtype.is_integer and expr.arg.dtype is not dtypes.uint64:
            low, high = int(expr.arg.dtype.least), int(expr.arg.dtype.greatest)
    if context is not None:
        least, most = context.quick_range(arithmetic.form(expr))
        low, high = (low if least is None else max(low, least)), (high if most is None else min(high, most))
    return low, high
