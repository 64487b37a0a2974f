"""The loops of a scatter: owners of its elements run side by side, and what they add keeps its order.

Which form a scatter has is decided by what may collide and by how much there is of it, never by the number of cores:

1. rows of places that follow each other, as those of a compressed matrix, own their elements where the data keeps them apart (`own`);
2. where an axis is disjoint and long enough its iterations are the owners;
3. else, where more points are added than the result has elements, blocks of the outermost axis have results of their own, which
   are added up in their order (`rfactor`): all together have no more elements than there are points (an addition is an access to
   any place, filling parts and adding them up goes in a row), but at least two. Where four times fit, each part has up to four that take
   what is sent in turns: an addition then does not wait for the one before, also where all go to one element;
4. what is left runs in order: sorted by blocks of elements that have owners, which a user may write (`rewrites/sends`), every send is
   written and read once more, so that two cores took longer than one in order.

Iterations of a *disjoint* axis (`independence`) never touch one element, so its loop may stand anywhere. One such axis, whose
neighbours are neighbouring elements of the result, has the lanes; the others, or else the blocks of lanes, are the owners:
outermost, for all cores. Axes that may collide keep their order between them, so every element gets the same bits whatever
the number of owners. A sum in the value has its lanes along an axis that its reads follow. Short loops inside are copies, which
share what they compute of a place.
"""

from __future__ import annotations

from math import prod

from tensorexpr.codegen.planners.tiles.parts import WIDE, even_block
from tensorexpr.codegen.schedule.analysis.independence import disjoint_axes
from tensorexpr.codegen.schedule.analysis.reductions import Group
from tensorexpr.codegen.schedule.analysis.strides import reaches
from tensorexpr.codegen.schedule.analysis.work import UNKNOWN_EXTENT, lengths
from tensorexpr.codegen.schedule.legal.legality import runs_in_lanes
from tensorexpr.codegen.schedule.scatters.own import rows_of
from tensorexpr.codegen.schedule.schedule import Planned, schedule
from tensorexpr.dtypes import accumulator
from tensorexpr.ir import Access, Apply, Const, Expr, Program, Scatter, product
from tensorexpr.regions import Opaque, affine_of
from tensorexpr.traversal import free_names, tensors_read, walk

Shapes = dict[str, tuple[Expr, ...]]

LEAST_POINTS = 1 << 14
"""Points of a scatter below which it is left alone."""
MOST_PARTS = 16
TURNS = 4
"""Results of a part that take what is sent in turns: a core makes as many additions to memory while one waits for the one before."""
FEW_RESULTS, MANY_RESULTS = 16, 32
"""Results that pay where their elements are as many as the points, and where they are half as many; more have an eighth of them at most."""
OWNERS = 64
"""Blocks of rows that may own their elements, where the number of rows is known."""
POINTS_PER_BLOCK = 1 << 12
"""Points of a block of rows where it is not."""
ENOUGH_OWNERS = 4
MOST_COPIES = 8
"""Copies of what is sent that short loops inside become."""
FORMS = {
    "own": "rows own their elements where the data keeps them apart",
    "rfactor": "parts have results of their own, added up in their order",
}
"""What the primitives that take scatters apart make of them."""


def take_scatters_apart(s: Planned) -> None:
    """Gives every scatter with many points blocks that may run side by side."""
    for definition in s.state.program.definitions:
        if isinstance(definition, Scatter) and definition.name in s.state.table and definition.axes:
            s.tried(_take_apart, s, definition)


def form_of(program: Program) -> str:
    """What becomes of a program that is one scatter, in words."""
    s = schedule(program)
    take_scatters_apart(s)
    calls = s.as_python()
    found = next((meaning for word, meaning in FORMS.items() if f".{word}(" in calls), None)
    free = any(isinstance(d, Scatter) and disjoint_axes(d) for d in program.definitions)
    return found or ("owners of elements add in the order of the text" if free else "added in the order of the text")


def _take_apart(s: Planned, scatter: Scatter) -> None:
    shapes = {name: type_.shape for name, type_ in s.state.program.types.items()}
    stage, first = s.state.stage(scatter.name), scatter.axes[0].index
    points = _points(s, scatter, shapes)
    extent = stage.extent(first)
    if points < LEAST_POINTS or extent == 1:
        return
    if rows_of(scatter, shapes) is not None:
        rows = UNKNOWN_EXTENT if extent is None else extent
        block = even_block(extent, OWNERS) if extent is not None else max(1, POINTS_PER_BLOCK * rows // points)
        s[scatter.name].own(s[scatter.name].split(first, max(2, block))[0])
        return
    known = lengths(stage.parts)
    neighbors = free_names(scatter.indices[-1]) if scatter.indices else ()
    owners = prod(-(-known[name] // WIDE) if name in neighbors else known[name] for name in disjoint_axes(scatter))
    elements = product(scatter.type.shape)
    if owners >= ENOUGH_OWNERS or extent is None or not isinstance(elements, Const):
        return
    parts, turns = _results(points, int(elements.value), bool(stage.parts.groups))
    if min(parts, extent) > 1:
        block = even_block(extent, min(parts, extent))
        (made,) = s[scatter.name].rfactor(s[scatter.name].split(first, block)[0], turns)
        if turns > 1:
            apart = disjoint_axes(scatter)
            last = next(axis.index for axis in reversed(scatter.axes) if axis.index not in apart)
            length = block if last == first else points // prod(known[axis.index] for axis in scatter.axes if axis.index != last)
            if length >= 2 * turns:  # nobody needs to compute then whose turn it is
                handle = s[made]
                handle.unroll(handle.split(next(x for x in reversed(handle.loops) if x not in apart), turns)[1])


def _results(points: int, elements: int, costly: bool) -> tuple[int, int]:
    """How many parts of a scatter have results of their own, if any, and how many each. What is `costly` waits for no addition."""
    if not 0 < elements <= points:
        return 0, 1
    times = points // elements
    if costly or times < 4:
        return min(MOST_PARTS, max(2, times)), 1
    room = min(times, MOST_PARTS * TURNS, max(FEW_RESULTS, min(MANY_RESULTS, times // 2), times // 8))
    turns = TURNS if room >= 2 * TURNS else 2
    return room // turns, turns


def _points(s: Planned, scatter: Scatter, shapes: Shapes) -> int:
    """About how many points a scatter has. Where data says how long a row is, a tensor that is read along the rows, from a place
    that data gives, is about as long as all of them; so is the result where they are sent to such places."""
    stage = s.state.stage(scatter.name)
    known = lengths(stage.parts)
    total = prod(known[axis.index] for axis in scatter.axes)
    for axis in scatter.axes:
        names = {n for e in (axis.start, axis.stop) for n in free_names(e)}
        if not any(map(tensors_read, (axis.start, axis.stop))):
            continue
        around = prod(known[other.index] for other in scatter.axes if other.index in (*names, axis.index))
        accesses = (node for e in (scatter.value, *scatter.indices) for node in walk(e) if isinstance(node, Access))
        places = [(scatter.indices, scatter.type.shape), *((a.indices, shapes.get(a.tensor, ())) for a in accesses)]
        for index, extent in (pair for indices, shape in places for pair in zip(indices, shape, strict=False)):
            opaque = Opaque()
            form = affine_of(_unclipped(index), opaque)
            if isinstance(extent, Const) and form is not None and opaque.names and form.coefficient(axis.index) == 1:
                return min(total, total // max(1, around) * int(extent.value))
    return total


def _unclipped(index: Expr) -> Expr:
    """An index without the bounds that hold it in its range."""
    while isinstance(index, Apply) and index.op.name in ("minimum", "maximum") and isinstance(index.args[1], Const):
        index = index.args[0]
    return index


def plan_scatter(schedule: Planned, scatter: Scatter, shapes: Shapes) -> None:
    """Gives a scatter its lanes and its owners; what turns out to be illegal is left out."""
    groups = schedule.state.stage(scatter.name).parts.groups
    for group in groups:
        if all(other.scope != group.number for other in groups):
            schedule.tried(_lanes_in_a_sum, schedule, scatter, group, shapes)
    if not groups:
        schedule.tried(_lanes_in_the_result, schedule, scatter, shapes)
    if schedule.target.cores > 1:
        schedule.tried(_owners_outside, schedule, scatter)
    schedule.tried(_short_loops_as_copies, schedule, scatter)


def _lanes_in_the_result(schedule: Planned, scatter: Scatter, shapes: Shapes) -> None:
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


def _lanes_in_a_sum(schedule: Planned, scatter: Scatter, group: Group, shapes: Shapes) -> None:
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


def _short_loops_as_copies(schedule: Planned, scatter: Scatter) -> None:
    """The innermost loops that have few iterations together are copies."""
    handle, stage = schedule[scatter.name], schedule.state.stage(scatter.name)
    copies = 1
    for loop in reversed(handle.loops[1:]):
        extent = stage.extent(loop)
        if stage.kind(loop) != "serial" or extent is None or copies * extent > MOST_COPIES:
            return
        if stage.group_of(loop) is not None:
            return
        copies *= extent
        handle.unroll(loop)


def _owners_outside(schedule: Planned, scatter: Scatter) -> None:
    """Loops over disjoint axes before all others, where no such loop is the first already; not those whose bounds need others of these."""
    handle, stage = schedule[scatter.name], schedule.state.stage(scatter.name)
    free = disjoint_axes(scatter) | set(stage.owners)
    data = [x for x in handle.loops if stage.group_of(x) is None and stage.kind(x) == "serial"]
    axes = {axis.index: axis for axis in scatter.axes}
    owners: list[str] = []
    for loop in data:
        mine = [axes[name] for name in stage.axes_of(loop)]
        needed = {n for axis in mine for e in (axis.start, axis.stop) for n in free_names(e)} & set(axes)
        if set(stage.axes_of(loop)) <= free and stage.extent(loop) != 1 and needed <= {a for x in owners for a in stage.axes_of(x)}:
            owners.append(loop)
    if owners and data[0] not in owners:
        handle.reorder(*owners, *(x for x in handle.loops if x not in owners))
