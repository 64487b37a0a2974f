"""The order of the loops of a reduction around a tile: what conditions depend on goes outside, plain counting stays inside.

Where padding or a border of a convolution is tested, `y + r >= 1 and z + s < 57` does not change along the channels: with the
loop over these innermost, the masks of all lanes are computed once for many iterations, and rows without any work are left
out as a whole. Sums and products alone are put in another order (a reassociation), never what must meet its points in turn.
"""

from __future__ import annotations

from collections.abc import Mapping

from tensorexpr.codegen.schedule.analysis.reductions import Group, Parts
from tensorexpr.codegen.schedule.analysis.state import Stage
from tensorexpr.codegen.schedule.analysis.windows import window
from tensorexpr.codegen.schedule.legal.legality import is_ordered
from tensorexpr.ir import Apply, Expr, Index, apply, conjuncts
from tensorexpr.regions import affine_of
from tensorexpr.traversal import free_names, substitute, walk

SHORT = 8
"""Loops of up to so many iterations stand outside of longer ones."""


def tested_axes(group: Group, inner: frozenset[str]) -> frozenset[str]:
    """The axes of a reduction that conditions on the data axes `inner` mention, or whose bounds depend on these."""
    conditions = list(group.where)
    for member in group.members:
        for value in member.values:
            conditions += [n.args[0] for n in walk(value) if isinstance(n, Apply) and n.op.name == "where"]
    found: set[str] = set()
    for condition in conditions:
        for part in conjuncts(condition):
            names = set(free_names(part))
            found.update(names if names & inner else ())
    for axis in group.axes:
        names = {*free_names(axis.start), *free_names(axis.stop)}
        found.update((axis.index, *names) if names & inner else ())
    return frozenset(found & set(group.indices))


def plain_inside(stage: Stage, loops: list[str], inner: frozenset[str], lengths: Mapping[str, int]) -> list[str]:
    """The loops with those of each reduction in their places: axes that conditions on `inner` depend on, and short ones, outermost."""
    order = list(loops)
    for group in stage.parts.groups:
        mine = [x for x in loops if stage.reduces(x, group)]
        tested = tested_axes(group, inner)
        if is_ordered(group) or not tested or any(g.scope == group.number for g in stage.parts.groups):
            continue
        outside = [x for x in mine if set(stage.axes_of(x)) & tested or all(lengths[a] <= SHORT for a in stage.axes_of(x))]
        sorted_ = [*outside, *(x for x in mine if x not in outside)]
        for place, loop in zip([i for i, x in enumerate(order) if x in mine], sorted_, strict=True):
            order[place] = loop
    return order


def over_windows(parts: Parts, group: Group, exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """What a reduction combines, with axes that start at an expression over data axes counted from there.

    As loops of data inside of the reduction see it: with z from q to q + 2, `y[z] * w[q - z]` is `y[q + z] * w[-z]`.
    """
    data = frozenset(a.index for a in parts.axes)
    moved: dict[str, Expr] = {}
    for axis in group.axes:
        if data & {n for e in (axis.start, axis.stop) for n in free_names(e)}:
            found = window(axis, data)
            if found is not None and found.offset is not None and affine_of(found.offset) is not None:
                moved[axis.index] = apply("add", found.offset, Index(axis.index))
    return tuple(substitute(e, moved) for e in exprs) if moved else exprs
