"""Elementwise definitions that read a tensor across its lines, as a transposition does: a block turns a square around in shared memory.

    y[i, j] = x[j, i]   -->   [i_o_j_o: parallel, square, rows: unroll, threads: vectorize]    x cached at `square`

Results are written along their last axis, whole lines by each warp; the tensor is read along the axis on which its elements lie side by
side. Without that a warp reads a sector for each element. The square is as long as a line of either tensor has elements of 128 bytes.
"""

from __future__ import annotations

from math import prod

from tensorexpr.codegen.planners.gpu.views import Shapes, as_grid, blocks_of
from tensorexpr.codegen.schedule.analysis.state import Stage, accesses_of
from tensorexpr.codegen.schedule.analysis.strides import reaches
from tensorexpr.codegen.schedule.analysis.work import lengths
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.records import record
from tensorexpr.regions import affine_of

SIDES = {1: 64, 2: 64}
"""Points of a side of the square by bytes of the widest element; `SIDE` of others."""
SIDE = 32
TEAM = 256
"""Threads of a block."""
LEAST = 16
"""Points of an axis below which its elements are no line."""


@record
class Turn:
    """The axis along which a tensor lies, the side of the square, and the tensors that are read across the last axis."""

    axis: str
    side: int
    tensors: tuple[str, ...]


def turn_of(s: Planned, name: str, shapes: Shapes) -> Turn | None:
    """How a definition without reductions is turned around; None where it reads everything along its last axis, or across short ones."""
    stage = s.state.stage(name)
    if stage.parts.groups or len(stage.parts.axes) < 2 or stage.scan is not None or stage.parts.unproved or s.state.placed_in(name):
        return None
    long, last = lengths(stage.parts), stage.parts.axes[-1].index
    found: dict[str, list[str]] = {}
    for tensor in dict.fromkeys(a.tensor for a in accesses_of(s.state.program, name)):
        axis = _along(stage, name, s, tensor, shapes, last)
        if axis is not None:
            found.setdefault(axis, []).append(tensor)
    if not found or min(long[last], *(long[axis] for axis in found)) < LEAST:
        return None
    axis = max(found, key=lambda a: len(found[a]))
    points = prod(long[a.index] for a in stage.parts.axes)
    widest = max(shape_type.dtype.itemsize for shape_type in (s.state.program.types[t] for t in (*found[axis], name)))
    side = SIDES.get(widest, SIDE)
    return Turn(axis, side, tuple(found[axis])) if points >= side * side * s.target.cores else None


def _along(stage: Stage, name: str, s: Planned, tensor: str, shapes: Shapes, last: str) -> str | None:
    """The axis along which the elements of a tensor lie side by side, where the last axis goes across them in every read."""
    read = [r for r in reaches(stage.parts.values, shapes) if r.access.tensor == tensor]
    every = [a for a in accesses_of(s.state.program, name) if a.tensor == tensor]
    if len(read) != len(every) or any(affine_of(i) is None for a in every for i in a.indices):
        return None
    axes = {a.index for r in read for a in stage.parts.axes if r.stride(a.index) == 1}
    across = all(abs(r.stride(last)) > 1 for r in read)
    return axes.pop() if across and len(axes) == 1 else None


def plan_turned(s: Planned, name: str, turn: Turn) -> None:
    """rewrite: [..., i, ..., j] --> [..._i_o_j_o: parallel, square, i_r: unroll, i_t_j: vectorize], tensors cached at `square`."""
    handle, stage = s[name], s.state.stage(name)
    last = stage.parts.axes[-1].index
    others = [a.index for a in stage.parts.axes if a.index not in (turn.axis, last)]
    row_blocks, rows = blocks_of(s, name, turn.axis, turn.side)
    column_blocks, columns = blocks_of(s, name, last, turn.side)
    square, rows = handle.split(rows, turn.side)
    rows, of_team = handle.split(rows, TEAM // turn.side)
    grid = [*others, *row_blocks, *column_blocks]
    handle.reorder(*grid, square, rows, of_team, columns)
    threads = handle.fuse(of_team, columns)
    handle.unroll(rows)
    handle.vectorize(threads)
    as_grid(s, name, grid)
    for tensor in turn.tensors:
        handle.cache(tensor, square, tuple(range(len(s.state.program.types[tensor].shape))))
