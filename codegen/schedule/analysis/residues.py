"""Residue classes: axes whose indices a definition divides, and what it looks like along every so many of their points.

Where a condition, a bound or a subscript says `p % 3`, `p // 3` or `(p + 1) // 2`, it is simple along p = 3*q + rho for each
rho: the condition is decided or free of the division, the bound affine, the subscript consecutive. `classes` finds the
moduli, `in_class` writes the parts of a definition over q, for a planner that looks at strides and lengths.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import lcm, prod

from tensorexpr.codegen.schedule.analysis.reductions import Group, Parts
from tensorexpr.codegen.schedule.analysis.windows import compared
from tensorexpr.codegen.schedule.analysis.work import lengths
from tensorexpr.integers.forms.affine import period_of
from tensorexpr.ir import Access, Apply, Axis, Const, Expr, Index, apply, const
from tensorexpr.records import replace
from tensorexpr.regions import affine_of, alternatives
from tensorexpr.traversal import substitute, walk

MOST_RESIDUES = 6
"""Classes of one axis: each is a copy of what runs in it."""
MOST_CLASSES = 9
"""Classes of all axes together."""


def classes(parts: Parts) -> dict[str, int]:
    """The number of residue classes of each data axis that is to be split into them.

    Conditions and bounds that divide an index of an axis count for every axis, innermost first while there are few classes;
    subscripts for the last axis of a definition without reductions, whose elements are then loaded side by side.
    """
    deciding = [*_conditions(parts), *_bounds(parts)]
    chosen: dict[str, int] = {}
    for axis in reversed(parts.axes):
        count = lcm(*moduli(deciding, axis.index))
        if not parts.groups and axis is parts.axes[-1]:
            count = lcm(count, *moduli(_subscripts(parts), axis.index))
        if 1 < count <= MOST_RESIDUES and count * prod(chosen.values()) <= MOST_CLASSES and not _shorter(axis, 2 * count):
            chosen[axis.index] = count
    return chosen


def tested(parts: Parts) -> dict[str, None]:
    """The data axes that conditions divide: what holds in one residue class may not hold in another."""
    conditions = list(_conditions(parts))
    return dict.fromkeys(axis.index for axis in parts.axes if moduli(conditions, axis.index))


def is_class(parts: Parts, axis: str, count: int) -> bool:
    """Whether a loop over the places in blocks of `count` along an axis is one over residue classes: some division is gone in each."""
    exprs = [*_conditions(parts), *_bounds(parts), *_subscripts(parts)]
    return any(count % number == 0 for number in moduli(exprs, axis))


def moduli(exprs: Iterable[Expr], index: str) -> tuple[int, ...]:
    """The numbers m such that along every m-th value of an index no division of it is left in the expressions."""
    found: dict[int, None] = {}
    for expr in exprs:
        for node in walk(expr):
            form = affine_of(node) if isinstance(node, Apply) and node.op.name in ("floordiv", "mod") else None
            for atom in () if form is None else form.atoms():
                step = period_of(atom, index)
                if step > 1:
                    found[step] = None
    return tuple(number for number in found if not any(other != number and other % number == 0 for other in found))


def _conditions(parts: Parts) -> Iterator[Expr]:
    """What is tested: conditions of selections, reductions and their evaluation."""
    yield from parts.where
    for group in parts.groups:
        yield from group.where
        yield from group.guard
    for value in _values(parts):
        for node in walk(value):
            if isinstance(node, Apply) and node.op.name == "where":
                yield node.args[0]


def _bounds(parts: Parts) -> Iterator[Expr]:
    """Bounds of reductions, but for those that leave out little of constant ones and are conditions without a division."""
    ends = [e for g in parts.groups for a in g.axes for e in (a.start, a.stop)]
    if not any(_divides(e) for e in ends):
        return
    widths = lengths(parts)
    for group in parts.groups:
        for axis in group.axes:
            starts, stops = alternatives(axis.start, "maximum"), alternatives(axis.stop, "minimum")
            low = [int(e.value) for e in starts if isinstance(e, Const)]
            high = [int(e.value) for e in stops if isinstance(e, Const)]
            fixed = bool(low and high) and max(min(high) - max(low), 0) <= widths[axis.index]
            for op, exprs in (("ge", starts), ("lt", stops)):
                yield from (e for e in exprs if not fixed or _divides(compared(op, axis.index, e)))


def _divides(expr: Expr) -> bool:
    return any(isinstance(n, Apply) and n.op.name in ("floordiv", "mod") for n in walk(expr))


def _subscripts(parts: Parts) -> Iterator[Expr]:
    for value in _values(parts):
        for node in walk(value):
            if isinstance(node, Access):
                yield from node.indices


def _values(parts: Parts) -> Iterator[Expr]:
    yield from parts.values
    for group in parts.groups:
        for member in group.members:
            yield from member.values


def _shorter(axis: Axis, length: int) -> bool:
    return isinstance(axis.start, Const) and isinstance(axis.stop, Const) and int(axis.stop.value) - int(axis.start.value) < length


def in_class(parts: Parts, counts: dict[str, int]) -> Parts:
    """The parts along the first class of each axis in `counts`, its index counting the points of the class."""
    if not counts:
        return parts
    inside = {name: apply("mul", Index(name), const(count)) for name, count in counts.items()}

    def over(expr: Expr) -> Expr:
        return substitute(expr, inside)

    def axis_of(axis: Axis) -> Axis:
        count = counts.get(axis.index)
        if count is None:
            return Axis(axis.index, over(axis.start), over(axis.stop))
        return Axis(axis.index, axis.start, _rounded_up(axis.stop, count))

    def group_of(group: Group) -> Group:
        members = tuple(replace(m, values=tuple(map(over, m.values))) for m in group.members)
        axes = tuple(map(axis_of, group.axes))
        return replace(group, axes=axes, where=tuple(map(over, group.where)), guard=tuple(map(over, group.guard)), members=members)

    return replace(
        parts,
        axes=tuple(map(axis_of, parts.axes)),
        groups=tuple(map(group_of, parts.groups)),
        values=tuple(map(over, parts.values)),
        where=tuple(map(over, parts.where)),
    )


def _rounded_up(extent: Expr, count: int) -> Expr:
    if isinstance(extent, Const):
        return const(-(-int(extent.value) // count))
    return apply("floordiv", apply("add", extent, const(count - 1)), const(count))
