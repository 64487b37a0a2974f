"""Windows that rows of a tile share: which axis of a reduction goes over them, and is written out so that each element is loaded once.

A convolution reads `x[y + r]` at rows y of its tile: step r of row y reads what step r - 1 of row y + 1 does. With the steps of r written
out around the rows, what several of them read is one load. Where lanes run along the reduction, r may be a row and y the axis of the
reduction (gradients of weights); then some steps of y stand side by side.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tensorexpr.codegen.schedule.analysis.strides import Reach
from tensorexpr.codegen.schedule.legal.orders import SHORT
from tensorexpr.ir import Axis, Const

if TYPE_CHECKING:
    from tensorexpr.codegen.planners.tiles.loops import Planner, Tile

MOST_UNROLLED = 64
"""Multiplications that are written out one after the other."""
MOST_STEPS = 4
"""Steps of a reduction that stand side by side where rows of one read what those of another do."""


def written_out(planner: Planner, tile: Tile) -> str | None:
    """The axis of the reduction whose steps read, along the rows, what other steps read there, or, if it is the last one, what lies between
    the elements that lanes read, where all of them can be copied out."""
    axes = [] if planner.main is None else [a.index for a in planner.main.axes if a.index != tile.vector]
    products = prod(n for _, n in tile.rows) * tile.blocks * max(1, tile.lanes // planner.lane_count)
    if planner.main is None or not axes or axes[-1] != planner.main.axes[-1].index:
        return None
    few = [a for a in reversed(axes) if planner.lengths[a] * products <= MOST_UNROLLED]
    if not tile.rows:  # elements that lie between those of the lanes come with the same vectors
        moved = [(abs(r.stride(axes[-1])), abs(r.stride(tile.vector))) for r in planner.reads] if tile.vector is not None else []
        return axes[-1] if axes[-1] in few and any(0 < own < lanes <= 2 for own, lanes in moved) else None
    return next((a for a in few if any(_is_shared(r, a, tile.rows) for r in planner.reads)), None)


def side_by_side(planner: Planner, tile: Tile) -> tuple[str, int] | None:
    """The axis of the reduction, other than the lanes, whose steps read what others read for another row, with as many of them as are
    written out."""
    if planner.main is None or tile.vector not in {a.index for a in planner.main.axes}:
        return None
    most = MOST_UNROLLED // prod(n for _, n in tile.rows)
    for axis in reversed(planner.main.axes):
        constant = isinstance(axis.start, Const) and isinstance(axis.stop, Const)
        count = min(MOST_STEPS, most, planner.lengths[axis.index] // 2) if constant else 0
        if axis.index != tile.vector and count > 1 and any(_is_shared(r, axis.index, tile.rows) for r in planner.reads):
            return axis.index, count
    return None


def is_window(planner: Planner, axis: Axis, row: Axis) -> bool:
    """Whether a short axis of the reduction goes over elements that neighbors along a row share."""
    return planner.lengths[axis.index] <= SHORT and any(_is_shared(r, axis.index, ((row.index, 2),)) for r in planner.reads)


def _is_shared(r: Reach, step: str, rows: tuple[tuple[str, int], ...]) -> bool:
    """Whether a step along an axis gets to what is read for another row."""
    moved = r.stride(step)
    return moved != 0 and any(r.stride(a) and moved % r.stride(a) == 0 and abs(moved) < n * abs(r.stride(a)) for a, n in rows)
