"""The loops of a scatter: owners of its elements run side by side, and what they add keeps its order.

Iterations of a *disjoint* axis (`independence`) never touch one element, so its loop may stand anywhere. One such axis, whose
neighbours are neighbouring elements of the result, has the lanes; the others, or else the blocks of lanes, are the owners:
outermost, for all cores. Axes that may collide keep their order between them, so every element gets the same bits whatever
the number of owners. A sum in the value has its lanes along an axis that its reads follow.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tensorexpr.codegen.schedule.independence import disjoint_axes
from tensorexpr.codegen.schedule.legality import runs_in_lanes
from tensorexpr.codegen.schedule.reductions import Group
from tensorexpr.codegen.schedule.schedule import Schedule
from tensorexpr.codegen.schedule.strides import reaches
from tensorexpr.codegen.schedule.work import lengths
from tensorexpr.dtypes import accumulator
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Expr, Scatter
from tensorexpr.regions import affine_of
from tensorexpr.traversal import free_names

Shapes = dict[str, tuple[Expr, ...]]


def plan_scatter(schedule: Schedule, scatter: Scatter, shapes: Shapes) -> None:
    """Gives a scatter its lanes and its owners; what turns out to be illegal is left out."""
    groups = schedule.state.stage(scatter.name).parts.groups
    for group in groups:
        if all(other.scope != group.number for other in groups):
            _attempt(schedule, partial(_lanes_in_a_sum, schedule, scatter, group, shapes))
    if not groups:
        _attempt(schedule, partial(_lanes_in_the_result, schedule, scatter, shapes))
    if schedule.target.cores > 1:
        _attempt(schedule, partial(_owners_outside, schedule, scatter))


def _attempt(schedule: Schedule, change: Callable[[], None]) -> None:
    before = schedule.state
    try:
        change()
    except ScheduleError:
        schedule.state = before


def _lanes_in_the_result(schedule: Schedule, scatter: Scatter, shapes: Shapes) -> None:
    """The disjoint axis that moves to the next element, and along which most reads move so or not at all, innermost in lanes."""
    form = affine_of(scatter.indices[-1]) if scatter.indices else None
    parts = schedule.state.stage(scatter.name).parts
    checked = {n for access, number in parts.unproved for n in free_names(access.indices[number])}
    bounds = {n for axis in scatter.axes for e in (axis.start, axis.stop) for n in free_names(e)}
    free = [axis for axis in scatter.axes if axis.index in disjoint_axes(scatter) - checked - bounds]
    if form is None:
        return
    reads = reaches((scatter.value,), shapes)
    costs = {a.index: sum(r.stride(a.index) not in (0, 1) for r in reads) for a in free if form.coefficient(a.index) == 1}
    if costs:
        handle = schedule[scatter.name]
        _, lane = handle.split(min(costs, key=costs.__getitem__), schedule.target.lanes(accumulator(scatter.type.dtype)))
        handle.reorder(*(x for x in handle.loops if x != lane), lane)
        handle.vectorize(lane)


def _lanes_in_a_sum(schedule: Schedule, scatter: Scatter, group: Group, shapes: Shapes) -> None:
    """The longest axis of a reduction that no read crosses in steps, in lanes."""
    if not runs_in_lanes(group):
        return
    long = lengths(schedule.state.stage(scatter.name).parts)
    values = tuple(v for m in group.members for v in m.values)
    reads = reaches(values, shapes)
    count = min(schedule.target.lanes(accumulator(v.dtype)) for v in values)
    smooth = [a.index for a in group.axes if all(r.stride(a.index) in (0, 1) for r in reads) and long[a.index] >= count > 1]
    if smooth:
        handle = schedule[scatter.name]
        outer, lane = handle.split(max(smooth, key=long.__getitem__), count)
        handle.reorder(*(x for x in handle.loops if x not in (outer, lane)), outer, lane)
        handle.vectorize(lane)


def _owners_outside(schedule: Schedule, scatter: Scatter) -> None:
    """Loops over disjoint axes before all others, where no such loop is the first already."""
    handle, stage = schedule[scatter.name], schedule.state.stage(scatter.name)
    free = disjoint_axes(scatter)
    data = [x for x in handle.loops if stage.group_of(x) is None and stage.kind(x) == "serial"]
    owners = [x for x in data if set(stage.axes_of(x)) <= free and stage.extent(x) != 1]
    if owners and data[0] not in owners:
        handle.reorder(*owners, *(x for x in handle.loops if x not in owners))
