"""Bounds of a reduction that depend on loops inside of it: the same points as a window of fixed width, and conditions.

Where a data loop q runs inside the loop over z, and z runs from max(0, q - 2) to min(26, q + 1), no iteration of z knows q.
One pair of bounds has a difference without q, here q - 2 and q + 1: z = q - 2 + u with u from 0 to 3 visits every point, and
what the other bounds say becomes a condition on each point. Lanes of a vector then differ in the condition alone.

Where there is no such pair, as in a triangle (z from 0 to q + 1), the loop runs from the least to the greatest of its bounds over
the block of q that stands inside (its hull), and what the bounds say is a condition on each point, which holds at most of them.
"""

from __future__ import annotations

from fractions import Fraction
from math import floor

from tensorexpr.integers import Affine, FloorDiv
from tensorexpr.ir import Apply, Axis, Expr, Index, apply, const
from tensorexpr.records import record
from tensorexpr.regions import affine_of, expression_of
from tensorexpr.traversal import free_names, size_names

MUCH = 2
"""How many times a constant width may be what another is at most before it is the narrower one."""


@record
class Window:
    """An axis as `axis`, whose index counts from `offset` (an expression over inner loops) where that is given, under `conditions`."""

    axis: Axis
    offset: Expr | None
    conditions: tuple[Expr, ...]


def alternatives(expr: Expr, op: str) -> tuple[Expr, ...]:
    """The expressions of which a bound is the `op` (maximum or minimum)."""
    if isinstance(expr, Apply) and expr.op.name == op:
        return tuple(e for arg in expr.args for e in alternatives(arg, op))
    return (expr,)


def window(axis: Axis, inner: frozenset[str]) -> Window | None:
    """The axis with bounds free of the indices `inner`; None where no two of its bounds have a difference free of them."""
    starts, stops = alternatives(axis.start, "maximum"), alternatives(axis.stop, "minimum")
    best: tuple[tuple[int, int, int, int, int, int], Expr, Expr] | None = None
    for i, start in enumerate(starts):
        for j, stop in enumerate(stops):
            low, high = affine_of(start), affine_of(stop)
            if low is None or high is None:
                continue
            width = high - low
            if set(width.names()) & inner:
                continue
            # A width that is not the same everywhere makes loops of unknown length: it must be much less than a constant one.
            # Of two of open length that which stays where it is has the fewer points: taps, not the places that they are moved over.
            most, varies = widest(width), not width.is_constant
            moves = most is None and not set(free_names(start)).isdisjoint(inner)
            rank = (most is None, (most or 0) * (MUCH if varies else 1), varies, moves, i, j)
            if best is None or rank < best[0]:
                best = rank, start, stop
    if best is None:
        return None
    _, start, stop = best
    others = [compared("ge", axis.index, e) for e in starts if e is not start]
    others += [compared("lt", axis.index, e) for e in stops if e is not stop]
    if not set(free_names(start)) & inner:
        return Window(Axis(axis.index, start, stop), None, tuple(others))
    width = _form(stop) - _form(start)
    sizes = (*size_names(start), *size_names(stop))
    return Window(Axis(axis.index, const(0), expression_of(width, sizes)), start, tuple(others))


def most_points(axis: Axis) -> int | None:
    """The most points that an axis has anywhere, where two of its bounds say so."""
    pairs = ((affine_of(a), affine_of(b)) for a in alternatives(axis.start, "maximum") for b in alternatives(axis.stop, "minimum"))
    found = [widest(high - low) for low, high in pairs if low is not None and high is not None]
    return min((most for most in found if most is not None), default=None)


def widest(width: Affine) -> int | None:
    """The most that a difference is anywhere, where what grows in it cancels but for the rounding of divisions."""
    slopes: dict[str, Fraction] = {}
    most = Fraction(width.constant)
    for atom, factor in width.terms:
        inner, divisor = (atom.numerator, atom.denominator) if isinstance(atom, FloorDiv) else (Affine.of(atom), 1)
        if inner.has_division():
            return None
        for name, own in inner.terms:
            slopes[str(name)] = slopes.get(str(name), Fraction(0)) + Fraction(factor * own, divisor)
        # a // d is at most a / d, and at least (a - d + 1) / d.
        most += Fraction(factor * (inner.constant + (0 if factor > 0 else 1 - divisor)), divisor)
    return floor(most) if not any(slopes.values()) else None


def has_hull(axis: Axis, inner: frozenset[str]) -> bool:
    """Whether the bounds of an axis grow or fall evenly with the indices `inner`, so that they are least and greatest at ends of these."""
    return _is_even(axis.start, inner) and _is_even(axis.stop, inner)


def _is_even(bound: Expr, inner: frozenset[str]) -> bool:
    if not set(free_names(bound)) & inner:
        return True
    if isinstance(bound, Apply) and bound.op.name in ("minimum", "maximum"):
        return all(_is_even(e, inner) for e in bound.args)
    form = affine_of(bound)
    return form is not None and not any(isinstance(atom, FloorDiv) and set(atom.numerator.names()) & inner for atom, _ in form.terms)


def hull_conditions(axis: Axis, inner: frozenset[str]) -> tuple[Expr, ...]:
    """What bounds that depend on `inner` say of a point between the least and the greatest of them."""
    starts = [compared("ge", axis.index, e) for e in alternatives(axis.start, "maximum") if set(free_names(e)) & inner]
    return (*starts, *(compared("lt", axis.index, e) for e in alternatives(axis.stop, "minimum") if set(free_names(e)) & inner))


def nonempty(axis: Axis) -> tuple[Expr, ...]:
    """What holds where an axis has a point, bound by bound, so that the bounds by sizes are known before those by other loops."""
    return tuple(apply("gt", stop, start) for stop in alternatives(axis.stop, "minimum") for start in alternatives(axis.start, "maximum"))


def compared(op: str, index: str, bound: Expr) -> Expr:
    """``index >= bound`` or ``index < bound``, without the division of m + f // d: 2*s < q + 4 for s < q // 2 + 2 (lanes count evenly)."""
    form = affine_of(bound)
    divided = [(atom, factor) for atom, factor in (() if form is None else form.terms) if isinstance(atom, FloorDiv)]
    if form is None or len(divided) != 1 or abs(divided[0][1]) != 1 or divided[0][0].numerator.has_division():
        return apply(op, Index(index), bound)
    ((atom, sign),) = divided
    rest = (Affine.of(index) - form + Affine.of(atom) * sign) * atom.denominator
    # x >= f // d is d*x + d - 1 >= f, and x >= -(f // d) is d*x >= -f; what is less is the opposite.
    left = rest + (atom.denominator - 1 if sign > 0 else 0)
    sizes = size_names(bound)
    return apply(op, expression_of(left, sizes), expression_of(atom.numerator * sign, sizes))


def _form(expr: Expr) -> Affine:
    form = affine_of(expr)
    assert form is not None
    return form
