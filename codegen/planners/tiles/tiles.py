"""The loops of a contraction: blocks outermost, the reduction, its tile innermost, and where its copies are made.

    for j_o in parallel: for i_o: for k: tile        P[j_o] = B[.., j_o]   at j_o, or all of P before the loops

Blocks follow from the caches: the panel of one block of lanes runs over as many rows as the second level holds. A copy that is large beside
what the contraction reads and writes is made in its loops, a panel or a few at a time, which each thread keeps in memory of its own
(`compute_at`): at the outermost data loop where that is little memory, as long as it is not made again and again there. A copy of a
constant always stands before the loops: no call makes it (`nest.early`).
"""

from __future__ import annotations

from itertools import takewhile
from math import ceil, prod
from typing import TYPE_CHECKING

from tensorexpr.codegen.planners.tiles.classes import split_classes
from tensorexpr.codegen.planners.tiles.loops import Tile
from tensorexpr.codegen.schedule.analysis.state import State
from tensorexpr.codegen.schedule.analysis.strides import Reach
from tensorexpr.codegen.schedule.legal.orders import plain_inside
from tensorexpr.codegen.schedule.legal.placement import part_of
from tensorexpr.codegen.schedule.schedule import Planned, StageHandle
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Const, Expr

if TYPE_CHECKING:
    from tensorexpr.codegen.planners.tiles.contraction import Model, Plan

LARGE = 16
"""Copies that take less than one of so many parts of what a contraction reads and writes are made before its loops."""
AGAIN = 1 / 12
"""Elements copied again, per vector of products, up to which that hardly shows."""
SLOTS = 2
"""Iterations for each core that have memory of their own (`lowering.slots`)."""
MOST_FAR = 8
"""Blocks that rows are taken in at most so that all cores have the same number of panels."""


def apply_plan(
    schedule: Planned,
    name: str,
    chosen: Plan,
    model: Model,
    copies: tuple[str, ...],
    rows: tuple[str, int] | None,
    outside: tuple[str, ...],
) -> None:
    """The loops of a plan: blocks outermost, the reduction, the tile innermost; its copies in them where they are large."""
    handle, planner, lengths = schedule[name], model.planner, model.lengths
    lanes = chosen.vectors * model.lanes
    counted = tuple((a, n) for a, n in planner.counts.items() if a == chosen.row or a in planner.tested)
    loop_of, around, _ = split_classes(handle, Tile(chosen.vector, lanes, ((chosen.row, chosen.rows),), classes=counted))
    front: list[str] = []
    if rows is not None:
        front = list(outside)
        length = schedule.state.stage(name).extent(rows[0])
        if length is None or length > rows[1]:
            block, loop_of[rows[0]] = handle.split(rows[0], rows[1], "peel" if length is None else "shift")
            front.append(block)
    vector, row = (loop_of.get(axis, axis) for axis in (chosen.vector, chosen.row))
    columns, lane = _blocks(handle, vector, lanes, chosen.vector in chosen.packed)
    blocks, copied = _blocks(handle, row, chosen.rows, chosen.row in chosen.packed)
    stage = schedule.state.stage(name)
    tile = [x for x in (copied, lane) if x is not None]
    rest = [x for x in stage.order if x not in (*front, *tile, *around, columns, blocks)]
    data = [x for x in rest if stage.group_of(x) is None]
    reduced = [x for x in rest if x not in data]
    if not chosen.near:
        reduced = [x for x in plain_inside(stage, rest, frozenset(a.index for a in planner.data), lengths) if x not in data]
    else:
        reduced.sort(key=lambda x: max((chosen.order.index(a) for a in stage.axes_of(x) if a in chosen.order), default=-1))
    lane_reads = [r for r in model.reads if r.stride(chosen.vector)]
    inside = rows is None and stage.place is None and None not in map(stage.extent, chosen.packed) and _are_large(chosen, model)
    inside = inside and schedule.decisions.wanted(f"{name}: copies in its loops", True)
    batch = [x for x in data if any(r.stride(a) for a in stage.axes_of(x) for r in lane_reads)]
    others = [x for x in data if x not in batch]
    whole = model.target.l2_bytes // 2
    operand = sum(_bytes(r, [chosen.vector, *model.reduction], lengths) for r in lane_reads)
    streamed = [r for r in model.reads if r.stride(chosen.row) and not r.stride(chosen.vector)]
    row_bytes = sum(_bytes(r, [*model.reduction], lengths) for r in streamed)
    panel = sum(_bytes(r, model.reduction, lengths) for r in lane_reads) * lanes
    total = 1 if blocks is None else stage.extent(blocks) or 1
    if inside and columns is not None and blocks is not None and not others and panel <= whole:
        panels = prod(stage.extent(x) or 1 for x in (*batch, columns))
        count = -(-total // _far_blocks(panels, total, model, chosen))
        outer: list[str | None] = [*batch, columns, blocks]
        if count < total:
            far, near = handle.split(blocks, count, "guard")
            outer = [*batch, far, columns, near]
    elif operand <= whole or columns is None:
        # All that lanes read stays in the second level: what rows read from memory goes by once, for all lanes.
        once = blocks is not None and not others and row_bytes * lengths[chosen.row] > model.target.last_level
        outer = [*batch, blocks, columns] if once else [*batch, *others, columns, blocks]
    elif blocks is not None and not others and row_bytes * lengths[chosen.row] > whole:
        count = max(1, whole // max(1, row_bytes * chosen.rows))
        count = min(count, max(1, total // (2 * model.target.cores)))
        count = -(-total // -(-total // count))
        outer = [*batch, blocks, columns]
        if 1 < count < total:
            far, near = handle.split(blocks, count, "guard")
            outer = [*batch, far, columns, near]
    else:
        rows_bytes = sum(_elements(model.shapes[r.access.tensor]) * r.access.dtype.itemsize for r in streamed)
        # Where all that rows read stays in the second level, what lanes read goes by once.
        outer = [*batch, columns, *others, blocks] if rows_bytes <= whole else [*batch, *others[:1], columns, *others[1:], blocks]
    order = [x for x in (*outer, *around, *reduced) if x is not None]
    handle.reorder(*front, *order, *tile)
    if copied is not None:
        handle.unroll(copied)
    if chosen.window is not None:
        handle.unroll(*(x for x in reduced[-1:] if chosen.window in stage.axes_of(x)))
    if lane is not None:
        handle.vectorize(lane)
    if inside:
        made = tuple(copy for copy, r in zip(copies, chosen.copied, strict=True) if r.access.tensor not in model.constants)
        _place_copies(schedule, name, made, model, sum(_sizes(model)) // LARGE)


def _sizes(model: Model) -> list[int]:
    """Bytes of the tensors that a contraction reads, each once, and of its result."""
    shapes = {r.access.tensor: (model.shapes[r.access.tensor], r.access.dtype) for r in model.reads}
    return [_elements(shape) * dtype.itemsize for shape, dtype in shapes.values()] + [model.all_points * model.planner.dtype.itemsize]


def _are_large(chosen: Plan, model: Model) -> bool:
    """Whether the copies of a plan that each call makes are large beside what the contraction reads and writes."""
    made = (r for r in chosen.copied if r.access.tensor not in model.constants)
    copied = sum(_elements(model.shapes[r.access.tensor]) * r.access.dtype.itemsize for r in made)
    return copied * LARGE > sum(_sizes(model))


def _elements(shape: tuple[Expr, ...]) -> int:
    return prod(int(e.value) for e in shape if isinstance(e, Const))


def _vectors(model: Model) -> float:
    """Vectors of products of a whole contraction."""
    return model.steps * model.all_points / model.lanes


def _far_blocks(panels: int, total: int, model: Model, chosen: Plan) -> int:
    """Blocks that the rows of tiles are taken in: so many that panels times blocks are shared out evenly, since a panel is copied again
    for each of them."""
    slots = SLOTS * model.target.cores if model.target.cores > 1 else 1
    again = sum(_elements(model.shapes[r.access.tensor]) for r in chosen.copied) / _vectors(model)

    def cost(count: int) -> float:
        rounds = ceil(panels * count / slots) * slots / (panels * count)
        return rounds * (-(-total // count) * count / total) + again * (count - 1)

    return min(range(1, min(MOST_FAR, total) + 1), key=cost)


def _place_copies(s: Planned, name: str, copies: tuple[str, ...], model: Model, enough: int) -> None:
    """Computes copies in the outermost data loop in which they take little memory (`enough` bytes), or the least, without being made
    again too often."""
    before, handle = s.state, s[name]
    loops = list(takewhile(lambda x: handle._stage.group_of(x) is None and handle._stage.kind(x) == "serial", handle.loops))
    slots = SLOTS * model.target.cores
    while len(loops) > 1 and (handle._stage.extent(loops[0]) or 0) < slots:
        loops = [handle.fuse(loops[0], loops[1]), *loops[2:]]
    found = False
    for copy in copies:
        whole = _elements(s.state.program.types[copy].shape)
        itemsize = s.state.program.types[copy].dtype.itemsize
        best: tuple[int, State] | None = None
        state, times = s.state, 1
        for loop in loops:
            times *= handle._stage.extent(loop) or 1
            s.state = state
            try:
                s[copy].compute_at(name, loop)
            except ScheduleError:
                continue
            part = part_of(s.state, copy)
            again = max(0, times * part.size // itemsize - whole)
            bytes_ = slots * part.size
            if part.is_local and again <= AGAIN * _vectors(model) and bytes_ < (whole * itemsize if best is None else best[0]):
                best = bytes_, s.state
                if bytes_ <= enough:
                    break
        s.state = state if best is None else best[1]
        found = found or best is not None
    if not found:
        s.state = before


def _blocks(handle: StageHandle, axis: str, count: int, packed: bool) -> tuple[str | None, str | None]:
    """The loop over blocks along an axis, and that inside one; None where there is one block, or blocks of one."""
    extent = handle._stage.extent(axis)
    if count == 1 and not packed:
        return axis, None
    if extent == count:
        return None, axis
    return handle.split(axis, count, "guard" if packed or (extent is not None and extent < count) else "shift")


def _bytes(r: Reach, axes: list[str], lengths: dict[str, int]) -> int:
    """The bytes that a read goes through along some axes."""
    return prod(lengths[a] for a in axes if r.stride(a)) * r.access.dtype.itemsize
