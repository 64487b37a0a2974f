"""The accumulators of reductions: what they start from, how a value is taken in, how lanes and rests are put together.

Sums and products of 16-bit floats are carried in float32. argmax and argmin carry the best value and its position, -1 while
nothing was seen, so that the first point that counts wins whatever its value. A user's combiner carries its tuple.
"""

from __future__ import annotations

from tensorexpr import dtypes
from tensorexpr.codegen.lowering.scope import ELEMENT, replaced
from tensorexpr.codegen.schedule.reductions import Member
from tensorexpr.dtypes import DType, accumulator
from tensorexpr.interpret import identity_of
from tensorexpr.ir import Cast, Const, Expr, Param, apply, const
from tensorexpr.records import record

COMBINE = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "all": "and", "any": "or"}
WINNERS = ("argmax", "argmin")


@record
class Carried:
    """One accumulator: a stem for its name, its dtype, what it starts from."""

    stem: str
    dtype: DType
    start: Expr


def is_winner(member: Member) -> bool:
    """Whether a member is argmax or argmin."""
    return member.combiner.is_builtin and member.combiner.name in WINNERS


def carried(member: Member) -> tuple[Carried, ...]:
    """The accumulators of a member, in order."""
    combiner = member.combiner
    if not combiner.is_builtin:
        return tuple(Carried(f"{combiner.name}_{i}", e.dtype, e) for i, e in enumerate(combiner.identity))
    dtype = member.values[0].dtype
    if is_winner(member):
        start = dtype.least if combiner.name == "argmax" else dtype.greatest
        return Carried(combiner.name, dtypes.int64, const(-1)), Carried(f"{combiner.name}_value", dtype, Const(start, dtype))
    kept = accumulator(dtype) if combiner.name in ("sum", "prod") else dtype
    return (Carried(combiner.name, kept, Const(identity_of(combiner.name, kept), kept)),)


def finals(member: Member) -> tuple[Expr | None, ...]:
    """What each result of the member is in terms of its accumulator; None where it is that."""
    combiner = member.combiner
    if not combiner.is_builtin:
        return tuple(None for _ in combiner.identity)
    if is_winner(member):
        return (apply("maximum", Param(ELEMENT, dtypes.int64), const(0)),)
    dtype = member.values[0].dtype
    kept = carried(member)[0].dtype
    return (None if kept is dtype else Cast(dtype, Param(ELEMENT, kept)),)


def taken_in(member: Member, old: tuple[Expr, ...], values: tuple[Expr, ...], position: Expr | None) -> tuple[Expr, ...]:
    """The accumulators after one more point: `values` there, for argmax and argmin at `position`."""
    combiner = member.combiner
    if not combiner.is_builtin:
        parameters = {p.name: e for p, e in zip(combiner.left, old, strict=True)}
        parameters |= {p.name: e for p, e in zip(combiner.right, values, strict=True)}
        return tuple(replaced(r, parameters) for r in combiner.results)
    (value,) = values
    if is_winner(member):
        assert position is not None
        found, best = old
        wins = apply("or", apply("lt", found, const(0)), _beats(member, value, best))
        return apply("where", wins, position, found), apply("where", wins, value, best)
    kept = carried(member)[0].dtype
    return (apply(COMBINE[combiner.name], old[0], value if value.dtype is kept else Cast(kept, value)),)


def _beats(member: Member, a: Expr, b: Expr) -> Expr:
    """Whether value `a` wins over `b` wherever they stand; a NaN does over everything but a NaN, for which comparisons are false."""
    wins = apply("gt" if member.combiner.name == "argmax" else "lt", a, b)
    if not a.dtype.is_float:
        return wins
    return apply("or", wins, apply("and", apply("isnan", a), apply("invert", apply("isnan", b))))


def merged(member: Member, a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Two states of a built-in combiner, of different points, as one. Of equal winners the one that comes first counts."""
    if not is_winner(member):
        return (apply(COMBINE[member.combiner.name], a[0], b[0]),)
    (here, best), (there, other) = a, b
    earlier = apply("and", apply("lt", there, here), apply("invert", _beats(member, best, other)))
    wins = apply("or", apply("lt", here, const(0)), apply("or", _beats(member, other, best), earlier))
    wins = apply("and", apply("ge", there, const(0)), wins)
    return apply("where", wins, there, here), apply("where", wins, other, best)
