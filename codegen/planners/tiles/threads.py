"""Rows on a GPU: a block or a warp per point of the outer axes, its threads the lanes of a long reduction, or of the last axes of what is
computed row by row.

A row is as many of the innermost axes as make it long, run as one loop: the 56 x 56 elements of a channel are a row of 3,136, whose
threads read neighbors, as are the last axes of what is computed in its loops. Short rows, where there are enough, are a warp's each:
several share a block, and none waits for a barrier.
"""

from __future__ import annotations

from itertools import takewhile
from math import prod

from tensorexpr.codegen.nest import GRID, IN_WARP
from tensorexpr.codegen.schedule.analysis.reductions import Group
from tensorexpr.codegen.schedule.analysis.state import Stage
from tensorexpr.codegen.schedule.analysis.strides import reaches
from tensorexpr.codegen.schedule.analysis.work import group_work, lengths
from tensorexpr.codegen.schedule.legal.legality import is_ordered, runs_in_lanes
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Expr
from tensorexpr.regions import affine_of
from tensorexpr.traversal import free_names

Shapes = dict[str, tuple[Expr, ...]]
LONG = 128
"""Points of a reduction from which the threads of a block share them; where results are fewer than multiprocessors, as many as a warp has
are enough, but for steps of a scan: these are one block from the first to the last where states are small."""
WIDTHS = (32, 64, 128, 256)
"""Threads of a block that share a row."""
SHORT_ROW = 1024
"""Elements of a row up to which one warp takes it, where there are rows enough; and from which on it needs no further axis."""
WARPS = 8
"""Rows per multiprocessor from which on warps keep it busy."""
RESIDENT = 1024
"""Threads per multiprocessor that keep it busy."""
PACK = 16
"""Bytes that a thread accesses at once."""
PART_OF_ROW = 1 << 12
"""Points of a part of a row at least, where rows are few."""
BLOCKS = 1 << 10
"""Parts that all rows together are taken apart into at most."""
FEW_PARTS = 8
"""Parts of a row below which it is left whole."""


def main_group(stage: Stage) -> Group | None:
    """The group of reductions with most work, among those that stand in no other."""
    long = lengths(stage.parts)
    top = [g for g in stage.parts.groups if g.scope is None]
    return max(top, key=lambda g: group_work(stage.parts, g, long), default=None)


def data_loops(stage: Stage) -> list[str]:
    """The loops of a definition that are none of a reduction."""
    return [x for x in stage.order if stage.group_of(x) is None]


def fused(s: Planned, name: str, loops: list[str]) -> str:
    """Loops that stand directly inside each other as one."""
    loop = loops[0]
    for inner in loops[1:]:
        loop = s[name].fuse(loop, inner)
    return loop


def row_axes(stage: Stage, axes: tuple[str, ...]) -> tuple[str, ...]:
    """The innermost of some axes, as many as make a row long; one of open extent, or whose bounds depend on others, stays by itself."""
    found: tuple[str, ...] = ()
    points = 1
    for index in reversed(axes):
        extent = stage.extent(index)
        names = {n for x in found for e in (stage.axis(x).start, stage.axis(x).stop) for n in free_names(e)}
        if found and (extent is None or index in names or points >= SHORT_ROW):
            break
        found = (index, *found)
        points *= extent or SHORT_ROW
    return found


def wants_rows(s: Planned, name: str, shapes: Shapes) -> bool:
    """Whether a definition is better computed a block per point than a thread per point."""
    stage = s.state.stage(name)
    group = main_group(stage)
    if group is None or not runs_in_lanes(group):
        return False
    long = lengths(stage.parts)
    points = prod(long[a.index] for a in stage.parts.axes)
    in_steps = all(name not in dict(d.results) for d in s.state.program.definitions)
    if prod(long[a] for a in row_axes(stage, group.indices)) < (LONG if in_steps or points >= s.target.cores else WIDTHS[0]):
        return False
    if points * 8 < s.target.cores * RESIDENT:
        return True
    if not stage.parts.axes:
        return True
    # Elements side by side along the reduction, and none of them shared by neighboring points.
    along, across = side_by_side(stage, group, shapes)
    return along > 0 and across == 0


def side_by_side(stage: Stage, group: Group, shapes: Shapes) -> tuple[int, int]:
    """How many reads of a reduction have neighbors along it, and how many have them along neighboring points, or share them there."""
    last, column = group.indices[-1], stage.parts.axes[-1].index
    read = [r for r in reaches(tuple(v for m in group.members for v in m.values), shapes) if r.strides]
    along = sum(1 for r in read if abs(r.stride(last)) == 1 and r.stride(column))
    across = sum(1 for r in read if not r.stride(column) or abs(r.stride(column)) == 1)
    return along, across


def parts_of_rows(stage: Stage, group: Group, shapes: Shapes) -> int | None:
    """How many parts long rows are taken apart into, that all multiprocessors have some (0: they are left whole); None for what is no row:
    whose elements lie side by side along its results."""
    long = lengths(stage.parts)
    if stage.parts.axes:
        along, across = side_by_side(stage, group, shapes)
        if not along and across and long[stage.parts.axes[-1].index] >= WIDTHS[0]:
            return None
    results = max(1, prod(long[n] for n in group.depends if n in long))
    parts = min(prod(long[a] for a in group.indices) // PART_OF_ROW, BLOCKS // results)
    return parts if parts >= FEW_PARTS else 0


def plan_rows_of_gpu(s: Planned, name: str, hosted: list[str], shapes: Shapes) -> None:
    """rewrite: [i, j, q, r] --> [i_j: parallel, q_r_o, q_r_i: vectorize]: a block per point of the outer axes, its threads along the rest.

    What is computed in the loops of the definition runs over the same rows, its own reductions and axes in the same threads.
    """
    stage = s.state.stage(name)
    data = data_loops(stage)
    shared = [m.place.loop for m in s.state.placed_in(name) if m.place is not None]
    deepest = max((data.index(x) for x in shared if x in data), default=-1) + 1
    group = main_group(stage)
    outer = data if not hosted and group is not None else data[:deepest]
    settled = {m: tuple(s.state.stage(m).order[: _settled(s, m)]) for m in hosted} | {name: tuple(outer)}
    longest = max(_points_of_row(s, m, settled[m]) for m in settled)
    enough = prod(stage.extent(x) or 1 for x in outer) >= WARPS * s.target.cores
    warps = s.decisions.wanted(f"{name}: a warp per row", longest <= (SHORT_ROW if enough else WIDTHS[0]))
    for member in settled:
        _lanes(s, member, settled[member], warps, shapes)
    # A sum stands outside of loops that it has nothing to do with.
    outer = list(takewhile(set(outer).__contains__, s.state.stage(name).order))
    if outer:
        if not hosted:
            s[name].parallel(fused(s, name, outer))
        elif len(outer) == 1 or not s.tried(_grid_of, s, name, outer):
            s[name].parallel(outer[0])


def _grid_of(s: Planned, name: str, outer: list[str]) -> None:
    """rewrite: [i, j, k, ...] --> [i: block.z, j: block.y, k: block.x, ...]: what is computed in them keeps them apart."""
    bound = outer[: len(GRID)]
    for loop, axis in zip(bound, reversed(GRID[: len(bound)]), strict=True):
        s[name].bind(loop, axis)


def _settled(s: Planned, member: str) -> int:
    """How many leading axes of a definition are those of the loops that it is computed in."""
    place = s.state.stage(member).place
    assert place is not None
    host = s.state.stage(place.stage)
    return host.order.index(place.loop) + 1


def _points_of_row(s: Planned, name: str, settled: tuple[str, ...]) -> int:
    """How many points a definition has in one iteration of the loops that are settled, those of its longest reduction at each of them; more
    than a warp takes where one of these is open."""
    stage = s.state.stage(name)
    free = prod(stage.extent(x) or SHORT_ROW + 1 for x in data_loops(stage) if x not in settled)
    return free * max((prod(stage.extent(a) or SHORT_ROW + 1 for a in g.indices) for g in stage.parts.groups), default=1)


def _along(s: Planned, name: str, settled: tuple[str, ...]) -> tuple[str, ...]:
    """The axes of a definition that the lanes of its rows take: its last free ones, or the last of its longest reduction."""
    stage = s.state.stage(name)
    free = tuple(x for x in data_loops(stage) if x not in settled)
    group = main_group(stage)
    long, row = lengths(stage.parts), row_axes(stage, free)
    if free and prod(long.get(x, 0) for x in row) >= WIDTHS[0]:
        return row
    if group is not None and runs_in_lanes(group):
        return row_axes(stage, group.indices)
    return row


def _lanes(s: Planned, name: str, settled: tuple[str, ...], warps: bool, shapes: Shapes) -> None:
    """Threads of a block, or of a warp, along the longest reduction of a definition, or along its last free axes; those of a block take
    neighbors at once where these lie side by side."""
    stage = s.state.stage(name)
    handle = s[name]
    axes = _along(s, name, settled)
    if not axes:
        return
    inner = axes[-1] in data_loops(stage)
    # Neighbors of a thread come before those of the next: of what depends on the order of its points each lane takes one at a time.
    ordered = any(axes[-1] in g.indices and is_ordered(g) for g in stage.parts.groups)
    pack = 1 if warps or ordered else _pack(stage, axes, shapes)
    before, axis = s.state, axes[-1]
    try:
        axis = fused(s, name, list(axes))
    except ScheduleError:
        s.state = before
    part = ""
    if pack > 1 and s.decisions.wanted(f"{name}: neighbors of a thread"):
        axis, part = handle.split(axis, pack)
    stage = s.state.stage(name)
    extent = stage.extent(axis)
    # The rest of an open extent of a reduction would be a loop that every thread runs.
    tail = "guard" if extent is None or inner else "peel"
    if warps:
        width = WIDTHS[0]
    else:
        threads = s.target.lanes(stage.parts.values[0].dtype)
        width = threads if extent is None else min(threads, max(WIDTHS[0], 1 << max(0, extent - 1).bit_length()))
        width = s.decisions.choose(
            f"{name}: threads of a block", [width], others=lambda: [n for n in WIDTHS if extent is None or n < 2 * extent]
        )
    if extent == width or (warps and extent is not None and extent < width):
        loops: tuple[str, ...] = (axis,)
    else:
        loops = handle.split(axis, width, tail)
    lane = loops[-1]
    rest = [x for x in handle.loops if x not in (lane, part)]
    handle.reorder(*rest, *([part] if part else []), lane)
    if part:
        handle.unroll(part)
    if warps:
        handle.bind(lane, IN_WARP)
    else:
        handle.vectorize(lane)


def _pack(stage: Stage, axes: tuple[str, ...], shapes: Shapes) -> int:
    """How many neighbors along the last of some axes a thread takes at once: sixteen bytes of the widest element, where all that goes along
    the axis lies side by side there and begins at multiples of so many; else one."""
    axis = axes[-1]
    extent = stage.extent(axis)
    points = prod(stage.extent(x) or 1 for x in axes)
    inside = tuple(v for g in stage.parts.groups if axis in g.indices for m in g.members for v in m.values)
    last = bool(stage.parts.axes) and stage.parts.axes[-1].index == axis
    read = [r for r in reaches(inside or stage.parts.values, shapes) if r.stride(axis)]
    if extent is None or not read or not (inside or last):
        return 1
    pack = PACK // max([r.access.dtype.itemsize for r in read] + ([stage.parts.values[0].dtype.itemsize] if last else []))
    starts = [affine_of(r.access.indices[-1]) for r in read]
    even = all(r.stride(axis) == 1 and all(n % pack == 0 for x, n in r.strides.items() if x != axis) for r in read)
    whole = all(form is not None and form.constant % pack == 0 for form in starts)
    return pack if even and whole and extent % pack == 0 and points >= WIDTHS[0] * pack else 1
