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

    >>> import tensorexpr as te
    >>> x = te.placeholder((10, 6), name="x")
    >>> s = te.schedule(te.compute((10, 6), lambda i, j: x[i, j] + 1, name="y"))
    >>> s["y"].bind("i", "block.x")
    Traceback (most recent call last):
        ...
    tensorexpr.errors.ScheduleError: expected a GPU as the target to bind i to block.x, got cpu
    ...
    >>> x = te.placeholder((10, 96), name="x")
    >>> s = te.schedule(te.compute((10,), lambda i: te.sum(lambda k: x[i, k], 96), name="y"), "cuda")
    >>> k_o, k_i = s["y"].split("k", 32)
    >>> s["y"].bind("i", "block.x")
    >>> s["y"].bind(k_i, "warp")
    >>> print("\\n".join(str(s).splitlines()[4:14]))
    def kernel_0() -> y:
        for i in block.x(range(0, 10)):
            y_sum: local(f32[()])
            y_sum_lanes: local(f32[32])
            y_sum[()] = 0.0
            for k_i in warp(range(0, 32)):
                y_sum_lanes[k_i] = 0.0
            for k_o in range(0, 3):
                for k_i in warp(range(0, 32)):
                    y_sum_lanes[k_i] = y_sum_lanes[k_i] + x[i, k_i + k_o * 32]
    """
    stage = state.stage(name)
    place_of(stage, loop)
    check_target(state, stage, loop, axis, refuse)
    return mark(state, name, loop, axis)
