"""The primitive `pipeline`: what is computed in a loop for its iterations is computed iterations ahead.

A copy that stands at the start of an iteration and the work on it wait for each other. With two stages the copy for the next
iteration is made into a second buffer first, so that its loads are under way while this one is worked on:

    for i: { P = copy(i); work(P) }   -->   P[0] = copy(0); for i: { P[(i + 1) % 2] = copy(i + 1); work(P[i % 2]) }

On a CPU the loads of the copy overlap with the work, or prefetch what it needs; on a GPU copies run by themselves (`cp.async`).
Everything that is computed in the loop (`compute_at`) is computed ahead; values are the same to the last bit.
"""

from __future__ import annotations

from tensorexpr.codegen.schedule.analysis.state import SERIAL, Split, Stage, State
from tensorexpr.codegen.schedule.legal.fitting import fitted
from tensorexpr.codegen.schedule.legal.legality import refuse, stays_inside
from tensorexpr.codegen.schedule.legal.placement import parts_of
from tensorexpr.ir import Const
from tensorexpr.records import replace
from tensorexpr.text import print_expr

MOST_STAGES = 8
MOST_BYTES = 1 << 16
"""Bytes of all buffers of one definition that is computed ahead."""


def pipeline(state: State, name: str, loop: str, stages: int) -> State:
    """rewrite: i: {P; C} --> P of the first stages - 1; i: {P of i + stages - 1; C}: P is computed iterations before C uses it.

    `loop` is a serial loop of C in which other definitions are computed; each has as many buffers as there are stages.
    """
    stage = state.stage(name)
    if loop not in stage.order:
        raise refuse(stage, f"expected a loop of {name} to pipeline, got {loop!r}")
    if not isinstance(stages, int) or isinstance(stages, bool) or not 2 <= stages <= MOST_STAGES:
        raise refuse(stage, f"expected 2 to {MOST_STAGES} stages, got {stages!r}", loop)
    ahead = (*((x, n) for x, n in stage.ahead if x != loop), (loop, stages))
    changed = fitted(state.with_stage(replace(stage, ahead=ahead)), name)
    check_pipelines(changed, name)
    return changed


def check_pipelines(state: State, name: str) -> None:
    """Raises `ScheduleError` where a loop of a stage is pipelined that cannot be."""
    stage = state.stage(name)
    for loop, stages in stage.ahead:
        _check(state, stage, loop, stages)


def _check(state: State, stage: Stage, loop: str, stages: int) -> None:
    if loop not in stage.order or stage.kind(loop) != SERIAL:
        found = f"marked {stage.kind(loop)}" if loop in stage.order else "split or fused"
        raise refuse(stage, f"expected a serial loop to pipeline, got {loop}, {found}", loop)
    placed = [s.name for s in state.placed_in(stage.name) if s.place is not None and s.place.loop == loop]
    if not placed:
        raise refuse(stage, f"expected a loop in which something is computed to pipeline, got {loop}", loop, "compute_at first")
    for relation in stage.relations:
        if isinstance(relation, Split) and loop in (relation.outer, relation.inner) and not stays_inside(stage, relation):
            raise refuse(stage, f"expected a loop that runs in whole blocks to pipeline, got {loop} of a split of {relation.parent}", loop)
    parts = parts_of(state, stage.name)
    kept = [n for n in placed if parts[n].is_local]
    if not kept:
        raise refuse(stage, f"expected values that are kept for one iteration to compute ahead, got {placed[0]}, which is kept whole", loop)
    for name in kept:
        type_ = state.program.types[name]
        size = type_.dtype.itemsize * stages
        for extent in parts[name].extents(type_.shape):
            if not isinstance(extent, Const):
                found = f"{print_expr(extent)} of {name}"
                raise refuse(stage, f"expected a constant number of values to compute ahead, got {found}", loop, "split what is open first")
            size *= int(extent.value)
        if size > MOST_BYTES:
            raise refuse(stage, f"expected at most {MOST_BYTES} bytes for {stages} stages of {name}, got {size}", loop, "fewer stages")
