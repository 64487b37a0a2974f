"""Whether two schedules of a program add up in the same order: then results are the same, bit for bit, at any extents.

Sums and products of floating numbers depend on the order of their points; maxima, sums of integers and what an ordered combiner
makes do not, or keep their order in every schedule. A loop that was only split, with nothing of its reduction between the parts, meets its
points as before. Where definitions were written into one another differently, a product may be rounded in one and not in the
other, so those count as different.
"""

from __future__ import annotations

from tensorexpr.codegen.nest import LANES
from tensorexpr.codegen.schedule import Planned
from tensorexpr.codegen.schedule.analysis.reductions import Group
from tensorexpr.codegen.schedule.analysis.state import Split, Stage

_KEEPS_VALUES = (
    "split",
    "reorder",
    "fuse",
    "parallel",
    "vectorize",
    "unroll",
    "bind",
    "stage",
    "compute_at",
)
"""Primitives that leave alone what is computed at a point, besides the order in which it is added up."""


def same_order(a: Planned, b: Planned) -> bool:
    """Whether two schedules of one program add up in the same order, with the same definitions written into others."""
    return _rewrites(a) == _rewrites(b) and _sums(a) == _sums(b)


def adds_up_otherwise(a: Planned, b: Planned) -> bool:
    """Whether two schedules certainly add up in different orders: the same definitions, over loops in another order."""
    return _rewrites(a) == _rewrites(b) and _sums(a) != _sums(b)


def _rewrites(s: Planned) -> tuple[str, ...]:
    return tuple(sorted(call for call in s.state.calls if call.split("(", 1)[0].rsplit(".", 1)[-1] not in _KEEPS_VALUES))


def _sums(s: Planned) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for stage in s.state.stages:
        orders = tuple(_order(stage, group) for group in stage.parts.groups if _is_inexact(group))
        if orders:
            found[stage.name] = orders
    return found


def _is_inexact(group: Group) -> bool:
    return any(
        m.combiner.is_builtin and m.combiner.name in ("sum", "prod") and any(v.dtype.is_float for v in m.values) for m in group.members
    )


def _order(stage: Stage, group: Group) -> tuple[object, ...]:
    """The loops of a reduction, outermost first, those that were split and stand together again as one; lanes with their number."""
    loops: list[tuple[str, int]] = []
    for loop in stage.order:
        own = stage.group_of(loop)
        if own is not None and own.number == group.number:
            lanes = stage.extent(loop) if stage.kind(loop) in LANES else None
            loops.append((loop, 0 if lanes is None else lanes))
    splits = {(r.outer, r.inner): r.parent for r in stage.relations if isinstance(r, Split) and r.tail != "stride"}
    at = 0
    while at + 1 < len(loops):
        parent = splits.get((loops[at][0], loops[at + 1][0]))
        if parent is not None and not loops[at][1] and not loops[at + 1][1]:
            loops[at : at + 2] = [(parent, 0)]
            at = 0
        else:
            at += 1
    factors = tuple(sorted(repr(r) for r in stage.relations if any(set(stage.ancestry(x)) & {r.outer, r.inner} for x, _ in loops)))
    return tuple(loops), factors
