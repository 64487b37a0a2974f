"""The default schedule of a GPU: which loops are the grid, which the threads of a block, what a thread holds in registers.

The same steps as on a CPU come first (terms computed again, producers inlined, scans swept, rows shared); then every definition
gets one of three forms:

- points: all data axes are one loop of threads, each computing its points from beginning to end; neighbors along the last axis
  touch neighboring elements. Rows of an axis along which some operand stays the same are unrolled in the thread, as many as
  divide the extent, so that what it loads is used again;
- rows: a block per point of the outer axes, its threads the lanes of a long reduction (or of the last axis of what is computed
  row by row), combined in a fixed order. This is for reductions that are long where points are few, or whose elements lie side
  by side along the reduction, and for what shares the rows of its reader. Short rows, where there are enough, are a warp's each: several
  share a block, and none waits for a barrier;
- tiles: a block per tile of two axes of a contraction, its operands in shared memory, step by step (see `auto_blocks`; on tensor cores
  where they multiply what is to be multiplied, see `auto_mma`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tensorexpr.codegen.nest import GRID, IN_WARP
from tensorexpr.codegen.schedule.auto_blocks import operands_to_stage, plan_block, ranked_products, ranked_tiles, tiles_of
from tensorexpr.codegen.schedule.auto_gpu_scatters import plan_gpu_scatter, plan_gpu_segments, take_gpu_scatters_apart
from tensorexpr.codegen.schedule.auto_mma import plan_mma
from tensorexpr.codegen.schedule.auto_parts import even_block
from tensorexpr.codegen.schedule.legality import runs_in_lanes
from tensorexpr.codegen.schedule.reductions import Group
from tensorexpr.codegen.schedule.schedule import Schedule
from tensorexpr.codegen.schedule.state import Stage, definition_named
from tensorexpr.codegen.schedule.strides import reaches
from tensorexpr.codegen.schedule.work import group_work, lengths
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Define, Expr, Scan, Scatter, Segments
from tensorexpr.regions import affine_of
from tensorexpr.traversal import free_names, walk

Shapes = dict[str, tuple[Expr, ...]]
LONG = 128
"""Points of a reduction from which the threads of a block share them."""
WIDTHS = (32, 64, 128, 256)
"""Threads of a block that share a row."""
SHORT_ROW = 1024
"""Elements of a row up to which one warp takes it, where there are rows enough."""
WARPS = 8
"""Rows per multiprocessor from which on warps keep it busy."""
RESIDENT = 1024
"""Threads per multiprocessor that keep it busy."""
PACK = 16
"""Bytes that a thread accesses at once."""
ROWS = (8, 4, 2)
"""Rows that a thread computes at once."""
ONE = ("", 1)
PART = 16
"""Points of a reduction that a thread adds up at least where columns are taken apart."""
FEW_PARTS = 4
"""Parts of a column below which it is left whole."""


def plan_gpu(s: Schedule, shapes: Shapes, flat: frozenset[str]) -> None:
    """Gives every definition the loops of a GPU; those of `flat` have them, which become the grid."""
    shapes = take_gpu_scatters_apart(s, shapes)
    for name in s.stages:
        if name not in flat and s.state.stage(name).place is None and not s.state.placed_in(name):
            parts = _parts_of_columns(s, name, shapes)
            if parts is not None and s.decisions.wanted(f"{name}: columns in parts"):
                _done(s, _columns_in_parts, name, *parts)
    shapes = {**shapes, **{name: type_.shape for name, type_ in s.state.program.types.items()}}
    for name in s.stages:
        if name not in flat and s.state.stage(name).place is None:
            for tensor, order in operands_to_stage(s, name, shapes):
                if s.decisions.wanted(f"{name}: {tensor} staged"):
                    _done(s, _staged, name, tensor, order)
    shapes = {**shapes, **{name: type_.shape for name, type_ in s.state.program.types.items()}}
    for name in s.stages:
        if name not in s.state.table or s.state.stage(name).place is not None:
            continue
        if name in flat:
            s[name].parallel(s[name].loops[0])
            continue
        definition = definition_named(s.state.program, name)
        hosted = [m.name for m in s.state.placed_in(name)]
        match definition:
            case Define() if tiles_of(s, name, shapes) and s.decisions.wanted(f"{name}: tiles of blocks"):
                products = ranked_products(s, name, shapes)
                if products and not s.decisions.wanted(f"{name}: tensor cores"):
                    products = []
                tensor_cores = any(_done(s, plan_mma, name, tile) for tile in products)
                if not tensor_cores and not any(_done(s, plan_block, name, tile) for tile in ranked_tiles(s, name, shapes)):
                    _done(s, _points, name, shapes)
            case Define() if s.decisions.wanted(f"{name}: a block per point", bool(hosted) or _wants_rows(s, name, shapes)):
                if not _done(s, _rows, name, hosted, shapes):
                    _done(s, _points, name, shapes)
            case Define():
                _done(s, _points, name, shapes)
            case Scan():
                _done(s, _swept, name)
            case Scatter():
                _done(s, plan_gpu_scatter, definition)
            case Segments():
                _done(s, plan_gpu_segments, name)


def _done(s: Schedule, way: Callable[..., None], *arguments: object) -> bool:
    """Whether a way to give loops to a definition is legal; where it is not, nothing is changed."""
    before = s.state
    try:
        way(s, *arguments)
    except ScheduleError:
        s.state = before
        return False
    return True


def _staged(s: Schedule, name: str, tensor: str, order: tuple[int, ...]) -> None:
    s[name].stage(tensor, order)


def _main(stage: Stage) -> Group | None:
    """The group of reductions with most work, among those that stand in no other."""
    long = lengths(stage.parts)
    top = [g for g in stage.parts.groups if g.scope is None]
    return max(top, key=lambda g: group_work(stage.parts, g, long), default=None)


def _wants_rows(s: Schedule, name: str, shapes: Shapes) -> bool:
    """Whether a definition is better computed a block per point than a thread per point."""
    stage = s.state.stage(name)
    group = _main(stage)
    if group is None or not runs_in_lanes(group):
        return False
    long = lengths(stage.parts)
    last = group.indices[-1]
    if long[last] < LONG:
        return False
    points = prod(long[a.index] for a in stage.parts.axes)
    if points * 8 < s.target.cores * RESIDENT:
        return True
    if not stage.parts.axes:
        return True
    # Elements side by side along the reduction, and none of them shared by neighboring points.
    along, across = _side_by_side(stage, group, shapes)
    return along > 0 and across == 0


def _side_by_side(stage: Stage, group: Group, shapes: Shapes) -> tuple[int, int]:
    """How many reads of a reduction have neighbors along it, and how many have them along neighboring points, or share them there."""
    last, column = group.indices[-1], stage.parts.axes[-1].index
    read = [r for r in reaches(tuple(v for m in group.members for v in m.values), shapes) if r.strides]
    along = sum(1 for r in read if abs(r.stride(last)) == 1 and r.stride(column))
    across = sum(1 for r in read if not r.stride(column) or abs(r.stride(column)) == 1)
    return along, across


def _parts_of_columns(s: Schedule, name: str, shapes: Shapes) -> tuple[str, int] | None:
    """The axis of a reduction to take apart, and the length of a part, where points are few and their elements lie side by side."""
    stage = s.state.stage(name)
    group = _main(stage)
    if group is None or not stage.parts.axes or not isinstance(definition_named(s.state.program, name), Define):
        return None
    long = lengths(stage.parts)
    axis = max(group.indices, key=lambda a: long[a])
    along, across = _side_by_side(stage, group, shapes)
    # A warp reads a line of neighbors; fewer than these are not worth it.
    if along or not across or long[stage.parts.axes[-1].index] < WIDTHS[0] or long[axis] < LONG or tiles_of(s, name, shapes):
        return None
    points = prod(long[a.index] for a in stage.parts.axes)
    parts = min(long[axis] // PART, s.target.cores * RESIDENT // max(1, points))
    return (axis, even_block(long[axis], parts)) if parts >= FEW_PARTS else None


def _columns_in_parts(s: Schedule, name: str, axis: str, length: int) -> None:
    """rewrite: C[j] = sum(X[i, j] for i) --> P[p, j] = sum(X[p*b + i, j] for i in b); C[j] = sum(P[p, j] for p): threads take
    neighboring points of a part each."""
    outer, _ = s[name].split(axis, length)
    s[name].rfactor(outer)


def _data(stage: Stage) -> list[str]:
    return [x for x in stage.order if stage.group_of(x) is None]


def _fused(s: Schedule, name: str, loops: list[str]) -> str:
    """Loops that stand directly inside each other as one."""
    loop = loops[0]
    for inner in loops[1:]:
        loop = s[name].fuse(loop, inner)
    return loop


def _points(s: Schedule, name: str, shapes: Shapes) -> None:
    """rewrite: [i, j, k..., r...] --> [i_j_k: parallel, r..., rows: unroll]: a thread per point, or per few rows of them."""
    stage = s.state.stage(name)
    handle = s[name]
    inner: list[str] = []
    lanes = _neighbors(s, stage)
    if lanes > 1:
        _, lane = handle.split(stage.parts.axes[-1].index, lanes)
        handle.vectorize(lane)
        inner = [lane]
    axis, count = s.decisions.choose(
        f"{name}: rows of a thread",
        [_row_axis(s, stage, shapes) or ONE],
        others=lambda: [ONE, *((a.index, n) for a in stage.parts.axes[:-1] for n in ROWS if (stage.extent(a.index) or 1) % n == 0)],
        word=lambda rows: f"{rows[1]} {rows[0]}".strip(),
    )
    if count > 1:
        _, unrolled = handle.split(axis, count)
        handle.unroll(unrolled)
        inner = [unrolled, *inner]
    data = [x for x in _data(s.state.stage(name)) if x not in inner]
    if not data:
        return
    rest = [x for x in handle.loops if x not in data and x not in inner]
    handle.reorder(*data, *rest, *inner)
    handle.parallel(_fused(s, name, data))


def _neighbors(s: Schedule, stage: Stage) -> int:
    """How many neighboring points a thread computes where there is no reduction: sixteen bytes of the widest element."""
    if stage.parts.groups or not stage.parts.axes:
        return 1
    widest = max(n.dtype.itemsize for v in stage.parts.values for n in walk(v) if isinstance(n, Access) or n is v)
    lanes, extent = PACK // widest, stage.extent(stage.parts.axes[-1].index)
    points = prod(lengths(stage.parts)[a.index] for a in stage.parts.axes)
    fits = extent is not None and extent % lanes == 0 and points // lanes >= s.target.cores * RESIDENT
    return lanes if fits else 1


def _row_axis(s: Schedule, stage: Stage, shapes: Shapes) -> tuple[str, int] | None:
    """An axis along which operands of the main reduction stay where they are, so that rows of it share what is loaded, and how many."""
    group = _main(stage)
    if group is None or len(stage.parts.axes) < 2:
        return None
    long = lengths(stage.parts)
    points = prod(long[a.index] for a in stage.parts.axes)
    read = [r for r in reaches(tuple(v for m in group.members for v in m.values), shapes) if set(r.strides) & set(group.indices)]
    best: tuple[int, int, str] | None = None
    for axis in stage.parts.axes[:-1]:
        extent = stage.extent(axis.index)
        again = sum(1 for r in read if not r.stride(axis.index))
        # Rows that are not equally long have loops of their own each.
        uneven = any(axis.index in free_names(e) for a in group.axes for e in (a.start, a.stop))
        if extent is None or not again or axis.index not in group.depends or uneven:
            continue
        for count in ROWS:
            if extent % count == 0 and points // count >= s.target.cores * RESIDENT // 8:
                found = (again, count, axis.index)
                best = found if best is None or found > best else best
                break
    return None if best is None else (best[2], best[1])


def _rows(s: Schedule, name: str, hosted: list[str], shapes: Shapes) -> None:
    """rewrite: [i, j, r] --> [i_j: parallel, r_o, r_i: vectorize]: a block per point of the outer axes, its threads along the rest.

    What is computed in the loops of the definition runs over the same rows, its own reductions and axes in the same threads.
    """
    stage = s.state.stage(name)
    data = _data(stage)
    shared = [m.place.loop for m in s.state.placed_in(name) if m.place is not None]
    deepest = max((data.index(x) for x in shared if x in data), default=-1) + 1
    group = _main(stage)
    outer = data if not hosted and group is not None else data[:deepest]
    settled = {m: tuple(s.state.stage(m).order[: _settled(s, m)]) for m in hosted} | {name: tuple(outer)}
    longest = max(_points_of_row(s, m, settled[m]) for m in settled)
    enough = prod(stage.extent(x) or 1 for x in outer) >= WARPS * s.target.cores
    warps = s.decisions.wanted(f"{name}: a warp per row", longest <= (SHORT_ROW if enough else WIDTHS[0]))
    for member in settled:
        _lanes(s, member, settled[member], warps, shapes)
    outer = [x for x in outer if x in s.state.stage(name).order]
    if outer and s.state.stage(name).order[: len(outer)] == tuple(outer):
        if not hosted:
            s[name].parallel(_fused(s, name, outer))
        elif len(outer) == 1 or not _done(s, _grid_of, name, outer):
            s[name].parallel(outer[0])


def _grid_of(s: Schedule, name: str, outer: list[str]) -> None:
    """rewrite: [i, j, k, ...] --> [i: block.z, j: block.y, k: block.x, ...]: what is computed in them keeps them apart."""
    bound = outer[: len(GRID)]
    for loop, axis in zip(bound, reversed(GRID[: len(bound)]), strict=True):
        s[name].bind(loop, axis)


def _settled(s: Schedule, member: str) -> int:
    """How many leading axes of a definition are those of the loops that it is computed in."""
    place = s.state.stage(member).place
    assert place is not None
    host = s.state.stage(place.stage)
    return host.order.index(place.loop) + 1


def _points_of_row(s: Schedule, name: str, settled: tuple[str, ...]) -> int:
    """How many points a definition has in one iteration of the loops that are settled, those of its longest reduction at each of them; more
    than a warp takes where one of these is open."""
    stage = s.state.stage(name)
    free = prod(stage.extent(x) or SHORT_ROW + 1 for x in _data(stage) if x not in settled)
    return free * max((prod(stage.extent(a) or SHORT_ROW + 1 for a in g.indices) for g in stage.parts.groups), default=1)


def _along(s: Schedule, name: str, settled: tuple[str, ...]) -> str | None:
    """The axis of a definition that the lanes of its rows take: its last free one, or the last of its longest reduction."""
    stage = s.state.stage(name)
    free = [x for x in _data(stage) if x not in settled]
    group = _main(stage)
    if free and lengths(stage.parts).get(free[-1], 0) >= WIDTHS[0]:
        return free[-1]
    if group is not None and runs_in_lanes(group):
        return group.indices[-1]
    return free[-1] if free else None


def _lanes(s: Schedule, name: str, settled: tuple[str, ...], warps: bool, shapes: Shapes) -> None:
    """Threads of a block, or of a warp, along the longest reduction of a definition, or along its last free axis; those of a block take
    neighbors at once where these lie side by side."""
    stage = s.state.stage(name)
    handle = s[name]
    axis = _along(s, name, settled)
    if axis is None:
        return
    part, pack = "", 1 if warps else _pack(stage, axis, shapes)
    inner = axis in _data(stage)
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


def _pack(stage: Stage, axis: str, shapes: Shapes) -> int:
    """How many neighbors along an axis a thread takes at once: sixteen bytes of the widest element, where all that goes along the axis lies
    side by side there and begins at multiples of so many; else one."""
    extent = stage.extent(axis)
    inside = tuple(v for g in stage.parts.groups if axis in g.indices for m in g.members for v in m.values)
    last = bool(stage.parts.axes) and stage.parts.axes[-1].index == axis
    read = [r for r in reaches(inside or stage.parts.values, shapes) if r.stride(axis)]
    if extent is None or not read or not (inside or last):
        return 1
    pack = PACK // max([r.access.dtype.itemsize for r in read] + ([stage.parts.values[0].dtype.itemsize] if last else []))
    starts = [affine_of(r.access.indices[-1]) for r in read]
    even = all(r.stride(axis) == 1 and all(n % pack == 0 for x, n in r.strides.items() if x != axis) for r in read)
    whole = all(form is not None and form.constant % pack == 0 for form in starts)
    return pack if even and whole and extent % pack == 0 and extent >= WIDTHS[0] * pack else 1


def _swept(s: Schedule, name: str) -> None:
    """A scan whose points do not communicate: a thread per point, the steps in it."""
    stage = s.state.stage(name)
    if stage.sweep is None:
        return
    data = _data(stage)
    if not data:
        return
    rest = [x for x in stage.order if x not in data]
    s[name].reorder(*data, *rest)
    s[name].parallel(_fused(s, name, data))
