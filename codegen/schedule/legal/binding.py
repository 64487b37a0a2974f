"""What loops may be bound to: the blocks of a GPU's grid, the threads of a block, the lanes of a warp.

    [i_o: block.x, j_o: block.y, i_i: thread.x, k]   a block for each (i_o, j_o), a thread in it for each i_i, k in each thread
    [i_o: block.x, i_i: thread.y, k_o, k_i: warp]    a block for each i_o, a warp in it for each i_i, whose lanes share the sum over k

Blocks and threads run in any order and side by side, so their iterations must touch different elements; every kind gives what
running the loop serially gives. Blocks stand outside of all other loops, threads outside of reductions that depend on them: a
thread has its own accumulators. The loops of a definition that is computed in a block's loop may be bound to its threads
(a copy made by all of them). A CPU has neither: there it is refused.

A warp is 32 threads that go together. Its lanes take the iterations of data loops, or the points of reductions, each of which a lane has an
accumulator of its own for; these are combined by shuffles, in the order of halving. Where lanes of a warp are all that a block has, nothing
waits for a barrier of the block, and where no loop is bound to the other threads of a block, several iterations of the grid share one, a
warp each.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tensorexpr.codegen.nest import GRID, IN_WARP, MOST_BLOCKS, MOST_DEEP, MOST_THREADS, THREADS, WARP_LANES
from tensorexpr.codegen.schedule.analysis.independence import may_collide
from tensorexpr.codegen.schedule.analysis.state import Split, Stage, State, definition_named
from tensorexpr.errors import ScheduleError

Refuse = Callable[..., ScheduleError]


def check_target(state: State, stage: Stage, loop: str, axis: str, refuse: Refuse) -> None:
    """Raises `ScheduleError` where a target has no such axis."""
    if not state.target.is_gpu:
        raise refuse(stage, f"expected a GPU as the target to bind {loop} to {axis}, got {state.target.name}", loop, "on a CPU: parallel")


def check_bound(state: State, stage: Stage, loop: str, axis: str, refuse: Refuse) -> None:
    """Raises `ScheduleError` where a loop that is bound to an axis of a GPU would not compute the same there."""
    if stage.group_of(loop) is not None and axis != IN_WARP:
        raise refuse(
            stage, f"expected a data loop to bind to {axis}, got {loop} of a reduction", loop, "rfactor: its parts are a data loop"
        )
    if stage.scan is not None:
        raise refuse(stage, f"expected a definition outside of scans to bind to {axis}: the steps of a scan are serial", loop)
    if axis == IN_WARP:
        _check_warp(stage, loop, refuse)
        return
    bound = [x for x, kind in stage.kinds if kind == axis]
    if len(bound) > 1:
        raise refuse(stage, f"expected one loop for {axis}, got {' and '.join(bound)}", loop, "fuse them")
    at = stage.order.index(loop)
    for group in stage.parts.groups:
        inside = [x for a in group.indices for x in stage.loops_of(a) if stage.order.index(x) < at]
        if inside and set(stage.axes_of(loop)) & set(group.depends):
            raise refuse(
                stage, f"expected a loop outside of the reduction over {group.indices[0]} to bind to {axis}, got {loop} inside", loop
            )
    check_shifted(stage, loop, f"bind to {axis}", refuse)
    if may_collide(definition_named(state.program, stage.name), stage.axes_of(loop), state.target, stage.owners):
        raise refuse(stage, f"expected iterations that touch different elements to bind to {axis}, got {loop}: two may touch one", loop)
    (_check_block if axis in GRID else _check_thread)(stage, loop, axis, refuse)


def check_shifted(stage: Stage, loop: str, how: str, refuse: Refuse) -> None:
    """Raises `ScheduleError` where iterations that threads of a GPU are to take write elements twice: nothing orders these writes."""
    for split in stage.relations:
        extent = stage.extent(split.parent) if isinstance(split, Split) else None
        if isinstance(split, Split) and split.tail == "shift" and (extent is None or extent % split.factor):
            if set(stage.axes_of(loop)) & set(stage.axes_of(split.outer)):
                hint = f"split {split.parent} with tail 'guard' or 'peel'"
                raise refuse(stage, f"expected iterations that touch different elements to {how}, got blocks that overlap", loop, hint)


def _check_warp(stage: Stage, loop: str, refuse: Refuse) -> None:
    """What lanes of a warp ask for beyond what those of a vector do."""
    extent = stage.extent(loop)
    if extent is None or extent > WARP_LANES:
        found = "an extent known only when it runs" if extent is None else str(extent)
        hint = f"split {loop} by {WARP_LANES} first"
        raise refuse(stage, f"expected at most {WARP_LANES} iterations to bind to {IN_WARP}, got {found}", loop, hint)
    place = {x: k for k, x in enumerate(stage.order)}
    for other, kind in stage.kinds:
        if kind == THREADS[0]:
            hint = f"the lanes of a warp are the threads along {kind}"
            raise refuse(stage, f"expected no loop bound to {kind} beside one bound to {IN_WARP}, got {other} and {loop}", loop, hint)
        if kind in THREADS and place[other] > place[loop]:
            raise refuse(stage, f"expected the warps of a block outside of their lanes, got {other} inside {loop}", loop)
        if kind == IN_WARP and other != loop:
            outer, inner = sorted((loop, other), key=lambda x: place[x])
            if _within(stage, outer, inner):
                raise refuse(stage, f"expected one loop of a nest bound to {IN_WARP}, got {outer} and {inner}", loop)
    _check_count(stage, loop, refuse)
    check_shifted(stage, loop, f"bind to {IN_WARP}", refuse)


def _within(stage: Stage, outer: str, inner: str) -> bool:
    """Whether of two loops in order the second runs inside the first: all but a reduction that is done before."""
    around, own = stage.group_of(outer), stage.group_of(inner)
    if around is None:
        return own is None or bool(set(stage.axes_of(outer)) & set(own.depends))
    if own is None:
        return bool(set(stage.axes_of(inner)) & set(around.depends))
    return own.number == around.number or own.scope == around.number


def _check_block(stage: Stage, loop: str, axis: str, refuse: Refuse) -> None:
    if stage.place is not None:
        raise refuse(stage, f"expected a definition with loops of its own to bind to {axis}, got one inside {stage.place.stage}", loop)
    around = [x for x in stage.order[: stage.order.index(loop)] if stage.kind(x) not in GRID]
    if around:
        raise refuse(stage, f"expected blocks outside of all other loops, got {loop} inside {around[0]}", loop, "bind outer loops first")
    extent = stage.extent(loop)
    if axis != GRID[0] and (extent is None or extent > MOST_BLOCKS):
        found = "an extent known only when it runs" if extent is None else str(extent)
        raise refuse(stage, f"expected at most {MOST_BLOCKS} blocks along {axis}, got {found}", loop, f"there may be more along {GRID[0]}")


def _check_thread(stage: Stage, loop: str, axis: str, refuse: Refuse) -> None:
    threads = [x for x, kind in stage.kinds if kind in THREADS]
    extents = [stage.extent(x) for x in threads]
    if None in extents:
        raise refuse(
            stage, f"expected a constant number of threads along {axis}, got an extent known only when it runs", loop, "split first"
        )
    extent = stage.extent(loop)
    if axis == THREADS[-1] and extent is not None and extent > MOST_DEEP:
        raise refuse(stage, f"expected at most {MOST_DEEP} threads along {axis}, got {extent}", loop, f"split, or bind to {THREADS[0]}")
    _check_count(stage, loop, refuse)


def _check_count(stage: Stage, loop: str, refuse: Refuse) -> None:
    """Raises `ScheduleError` where a block would have more threads than there may be, those of warps included."""
    count = prod(stage.extent(x) or 1 for x, kind in stage.kinds if kind in THREADS)
    count *= WARP_LANES if any(kind == IN_WARP for _, kind in stage.kinds) else 1
    if count > MOST_THREADS:
        raise refuse(stage, f"expected at most {MOST_THREADS} threads in a block, got {count}", loop, "split first")
