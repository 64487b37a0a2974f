"""The loops of a scatter on a GPU: who adds, and in which order.

- In any order ("atomics"): a thread per point, each update in one piece.
- In the order of the text: sorted, where few threads could run side by side else (`sort`); or a thread per point of the axes along which no
  two points meet, which runs the others one after the other. Rows of places that follow each other, as those of a compressed matrix,
  have a thread each where the data keeps them apart (`own`).

Sums over the segments of a sort plan, which one thread would add up, however many points meet, are taken apart (`part`).
"""

from __future__ import annotations

from math import prod

from tensorexpr.codegen.schedule.analysis.independence import free_axes, is_atomic
from tensorexpr.codegen.schedule.analysis.work import lengths
from tensorexpr.codegen.schedule.scatters.own import rows_of
from tensorexpr.codegen.schedule.scatters.part import plans_of, segment_sum
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.ir import Access, Const, Define, Expr, Scatter, Segments, product
from tensorexpr.traversal import free_names, tensors_read

Shapes = dict[str, tuple[Expr, ...]]
LEAST_ROWS = 32
"""Rows from which on each is a thread's own."""
LEAST_POINTS = 1 << 9
"""Points of a scatter below which one thread adds them up as soon as many have sorted them."""
BUSY = 256
"""Threads per multiprocessor that are enough without a sort."""
PARTS = ((1 << 16, (64, 64)), (1 << 12, (64,)))
"""Points of a plan from which on its segments are taken apart, and the lengths of parts: chains of some hundred additions at most."""


def take_gpu_scatters_apart(s: Planned, shapes: Shapes) -> Shapes:
    """Gives scatters whose points would run one after the other another form; gives the shapes of all tensors behind that."""
    _sort(s)
    _own_rows(s)
    _part(s)
    return {**shapes, **{name: type_.shape for name, type_ in s.state.program.types.items()}}


def _sort(s: Planned) -> None:
    """Makes plans and gathers of scatters in the order of the text of which few threads could run side by side."""
    shapes = {name: type_.shape for name, type_ in s.state.program.types.items()}
    for definition in s.state.program.definitions:
        if not isinstance(definition, Scatter) or is_atomic(definition, s.target) or rows_of(definition, shapes) is not None:
            continue
        long = lengths(s.state.stage(definition.name).parts)
        free = prod(long[name] for name in free_axes(definition, s.target))
        points = prod(long[axis.index] for axis in definition.axes) // max(1, free)
        if s.decisions.wanted(f"{definition.name}: sort", points >= LEAST_POINTS and free < s.target.cores * BUSY):
            s.tried(s[definition.name].sort)


def _part(s: Planned) -> None:
    """Takes sums over the segments of large plans apart."""
    plans = plans_of(s.state)
    for definition in s.state.program.definitions if plans else ():
        if not isinstance(definition, Define) or definition.name not in s.state.table:
            continue
        found = segment_sum(definition.value, plans)
        if found is None or s.state.stage(definition.name).place is not None or s.state.placed_in(definition.name):
            continue
        points = product(tuple(axis.stop for axis in found.plan.axes))
        lengths = next((n for least, n in PARTS if not isinstance(points, Const) or int(points.value) >= least), ())
        if s.decisions.wanted(f"{definition.name}: segments in parts", bool(lengths)):
            s.tried(s[definition.name].part, _loop_of(s, definition.name, plans), *(lengths or PARTS[-1][1]))


def _loop_of(s: Planned, name: str, plans: dict[str, Segments]) -> str:
    """The loop over a segment of a plan."""
    for group in s.state.stage(name).parts.groups:
        for axis in group.axes:
            if isinstance(axis.start, Access) and axis.start.tensor in plans:
                return axis.index
    return ""


def _own_rows(s: Planned) -> None:
    """Gives every row of a scatter that may own its elements a block of its own."""
    shapes = {name: type_.shape for name, type_ in s.state.program.types.items()}
    for definition in s.state.program.definitions:
        if not isinstance(definition, Scatter) or is_atomic(definition, s.target) or rows_of(definition, shapes) is None:
            continue
        first = definition.axes[0].index
        extent = s.state.stage(definition.name).extent(first)
        if extent is None or extent >= LEAST_ROWS:
            s.tried(_own_each, s, definition.name, first)


def _own_each(s: Planned, name: str, axis: str) -> None:
    s[name].own(s[name].split(axis, 1)[0])


def plan_gpu_scatter(s: Planned, scatter: Scatter) -> None:
    """rewrite: [i, j, k...] --> [i_j: parallel, k...]: a thread per point of the axes that may run side by side."""
    stage = s.state.stage(scatter.name)
    free = free_axes(scatter, s.target) | set(stage.owners)
    inner = {axis.index for axis in scatter.axes}
    uneven = {a.index for a in scatter.axes if any(_hangs(e, inner) for e in (a.start, a.stop))}
    data = [x for x in stage.order if stage.group_of(x) is None]
    outer = [x for x in data if set(stage.axes_of(x)) <= free and not set(stage.axes_of(x)) & uneven]
    if not outer:
        return
    handle = s[scatter.name]
    handle.reorder(*outer, *(x for x in stage.order if x not in outer))
    loop = outer[0]
    for x in outer[1:]:
        loop = handle.fuse(loop, x)
    handle.parallel(loop)


def _hangs(bound: Expr, inner: set[str]) -> bool:
    """Whether a bound of an axis depends on other axes or on data."""
    return bool(tensors_read(bound)) or bool(inner & set(free_names(bound)))


def plan_gpu_segments(s: Planned, name: str) -> None:
    """rewrite: [b, i, j] --> [b_i_j]: the keys of a plan, a thread for each; how they are sorted is no matter of its loops."""
    stage = s.state.stage(name)
    if stage.parts.groups or not stage.order:
        return
    loop, *rest = stage.order
    for x in rest:
        loop = s[name].fuse(loop, x)
