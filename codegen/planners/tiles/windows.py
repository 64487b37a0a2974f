"""Windows that rows of a tile share: which axis of a reduction goes over them, and is written out so that each element is loaded once.

A convolution reads `x[y + r]` at rows y of its tile: step r of row y reads what step r - 1 of row y + 1 does. With the steps of r written
out around the rows, what several of them read is one load.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tensorexpr.codegen.schedule.analysis.strides import Reach
from tensorexpr.codegen.schedule.legal.orders import SHORT
from tensorexpr.ir import Axis

if TYPE_CHECKING:
    from tensorexpr.codegen.planners.tiles.loops import Planner, Tile

MOST_UNROLLED = 64
"""Multiplications that are written out one after the other."""


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


def is_window(planner: Planner, axis: Axis, row: Axis) -> bool:
    """Whether a short axis of the reduction goes over elements that neighbors along a row share."""
    return planner.lengths[axis.index] <= SHORT and any(_is_shared(r, axis.index, ((row.index, 2),)) for r in planner.reads)


def _is_shared(r: Reach, step: str, rows: tuple[tuple[str, int], ...]) -> bool:
    """Whether a step along an axis gets to what is read for another row."""
    moved = r.stride(step)
    return moved != 0 and any(r.stride(a) and moved % r.stride(a) == 0 and abs(moved) < n * abs(r.stride(a)) for a, n in rows)
