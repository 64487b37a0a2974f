"""The accumulators of reductions: what they start from, how a value is taken in, how lanes and rests are put together.

Sums and products of 16-bit floats are carried in float32. A user's combiner carries its tuple. argmax and argmin carry the best value
and its position: -1 while nothing better was seen than the value that they start from, so that the first of all points wins. Where
conditions may leave points out, the first that counts wins by a test. Positions among few points take no more room than values of 32 bits:
as many of them are in a vector.
"""

from __future__ import annotations

from tensorexpr import dtypes
from tensorexpr.codegen.lowering.context.scope import ELEMENT, replaced
from tensorexpr.codegen.schedule.analysis.reductions import Group, Member
from tensorexpr.dtypes import DType, accumulator
from tensorexpr.interpret import identity_of
from tensorexpr.ir import Apply, Cast, Const, Expr, Param, apply
from tensorexpr.records import record
from tensorexpr.simplify.rules.reduce import points

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


def carried(member: Member, group: Group) -> tuple[Carried, ...]:
    """The accumulators of a member of a group, in order."""
    combiner = member.combiner
    if not combiner.is_builtin:
        return tuple(Carried(f"{combiner.name}_{i}", e.dtype, e) for i, e in enumerate(combiner.identity))
    dtype = member.values[0].dtype
    if is_winner(member):
        start = dtype.least if combiner.name == "argmax" else dtype.greatest
        place = _place_type(dtype, group)
        return Carried(combiner.name, place, Const(-1, place)), Carried(f"{combiner.name}_value", dtype, Const(start, dtype))
    kept = accumulator(dtype) if combiner.name in ("sum", "prod") else dtype
    return (Carried(combiner.name, kept, Const(identity_of(combiner.name, kept), kept)),)


def _place_type(value: DType, group: Group) -> DType:
    """The type of positions in accumulators beside values of some type."""
    count = points(group.axes)
    few = count is not None and count <= int(dtypes.int32.greatest)
    return dtypes.int32 if few and value.itemsize <= dtypes.int32.itemsize else dtypes.int64


def finals(member: Member, group: Group) -> tuple[Expr | None, ...]:
    """What each result of a member of a group is in terms of its accumulator; None where it is that."""
    combiner = member.combiner
    if not combiner.is_builtin:
        return tuple(None for _ in combiner.identity)
    if is_winner(member):
        place = carried(member, group)[0].dtype
        found = apply("maximum", Param(ELEMENT, place), Const(0, place))
        return (found if place is dtypes.int64 else Cast(dtypes.int64, found),)
    dtype = member.values[0].dtype
    kept = carried(member, group)[0].dtype
    return (None if kept is dtype else Cast(dtype, Param(ELEMENT, kept)),)


def taken_in(member: Member, group: Group, old: tuple[Expr, ...], values: tuple[Expr, ...], position: Expr | None) -> tuple[Expr, ...]:
    """The accumulators of a member of a group after one more point: `values` there, for argmax and argmin at `position`."""
    combiner = member.combiner
    if not combiner.is_builtin:
        parameters = {p.name: e for p, e in zip(combiner.left, old, strict=True)}
        parameters |= {p.name: e for p, e in zip(combiner.right, values, strict=True)}
        return tuple(replaced(r, parameters) for r in combiner.results)
    (value,) = values
    if is_winner(member):
        assert position is not None
        found, best = old
        wins = _beats(member, value, best)
        if group.where:
            wins = apply("or", apply("lt", found, Const(0, found.dtype)), wins)
        return apply("where", wins, _narrow(position, found.dtype), found), apply("where", wins, value, best)
    kept = carried(member, group)[0].dtype
    return (apply(COMBINE[combiner.name], old[0], value if value.dtype is kept else Cast(kept, value)),)


def _beats(member: Member, a: Expr, b: Expr) -> Expr:
    """Whether value `a` wins over `b` wherever they stand; a NaN does over everything but a NaN, for which comparisons are false."""
    largest = member.combiner.name == "argmax"
    if not a.dtype.is_float:
        return apply("gt" if largest else "lt", a, b)
    return apply("and", apply("invert", apply("le" if largest else "ge", a, b)), apply("invert", apply("isnan", b)))


def _narrow(position: Expr, dtype: DType) -> Expr:
    """A position in a type that holds it, computed there: sums and products wrap around alike in all widths."""
    if position.dtype is dtype:
        return position
    if isinstance(position, Const):
        return Const(position.value, dtype)
    if isinstance(position, Apply) and position.op.name in ("add", "sub", "mul"):
        return apply(position.op.name, *(_narrow(a, dtype) for a in position.args))
    return Cast(dtype, position)


def merged(member: Member, a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Two states of a built-in combiner, of different points, as one. Of equal winners the one that comes first counts."""
    if not is_winner(member):
        return (apply(COMBINE[member.combiner.name], a[0], b[0]),)
    (here, best), (there, other) = a, b
    earlier = apply("and", apply("lt", there, here), apply("invert", _beats(member, best, other)))
    none = Const(0, here.dtype)
    wins = apply("or", apply("lt", here, none), apply("or", _beats(member, other, best), earlier))
    wins = apply("and", apply("ge", there, none), wins)
    return apply("where", wins, there, here), apply("where", wins, other, best)
