"""The primitive `bind`: the iterations of a loop are blocks or threads of a GPU, or lanes of a warp (`binding` says which may be)."""

from __future__ import annotations

from tensorexpr.codegen.schedule.analysis.state import State
from tensorexpr.codegen.schedule.legal.binding import check_target
from tensorexpr.codegen.schedule.legal.legality import refuse
from tensorexpr.codegen.schedule.loops.rewriting import mark, place_of


def bind(state: State, name: str, loop: str, axis: str) -> State:
    """rewrite: i: serial --> i: block.x | ... | thread.z | warp: the blocks of a GPU's grid, the threads of a block, the lanes of a warp.

    Blocks and threads run side by side, so their iterations must touch different elements. A CPU has neither: there it is refused.
    A warp has 32 lanes, which may share a reduction as the lanes of a vector do (another order of its points): they are combined by
    shuffles, without a barrier. Several warps are a block: those of a loop bound to "thread.y", or else iterations of the grid.
    """
    stage = state.stage(name)
    place_of(stage, loop)
    check_target(state, stage, loop, axis, refuse)
    return mark(state, name, loop, axis)
