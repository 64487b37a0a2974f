"""Residue classes as loops: an axis along which what is computed depends on the remainder is split, and its classes are copied out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorexpr.codegen.schedule.schedule import StageHandle

if TYPE_CHECKING:
    from tensorexpr.codegen.planners.tiles.loops import Tile


def split_classes(handle: StageHandle, tile: Tile) -> tuple[dict[str, str], list[str], list[str]]:
    """The loop along each axis that is split into residue classes, and the loops over classes: around reductions, and innermost.

    Where the classes differ in length, their loop stays outside of the axis, unless that would leave no loop for all cores.
    """
    stage = handle._stage
    loop_of: dict[str, str] = {}
    around: list[str] = []
    within: list[str] = []
    for axis, count in tile.classes:
        extent = stage.extent(axis)
        whole = extent is not None and extent % count == 0
        in_tile = axis == tile.vector or axis in dict(tile.rows)
        strided = in_tile and bool(stage.parts.groups) and not whole and stage.order[0] != axis
        tail = "stride" if strided else "peel" if whole or not stage.parts.groups else "guard"
        outer, loop = handle.split(axis, count, tail)
        handle.unroll(loop)
        if in_tile:
            loop_of[axis] = outer
            if not strided:
                (around if stage.parts.groups else within).append(loop)
    return loop_of, around, within
