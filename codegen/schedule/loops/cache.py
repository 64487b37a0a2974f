"""The primitive `cache`: what an iteration of a loop reads of a tensor is copied to a local buffer first.

    [i_o, j_o, k_o, k_i, i, j]   for k_o: { a_tile = a[its rows, its k]; b_tile = b[its k, its columns]; for k_i, i, j: ... }

A tile of a contraction reads each element many times. On a CPU the copy lies as the loops inside read it; on a GPU it is shared memory,
filled by all threads of a block, and what the next iteration needs is loaded before the work on this one. Which elements
these are follows from the loops inside (`lowering.caching`); values are the same to the last bit.
"""

from __future__ import annotations

from tensorexpr.codegen.schedule.analysis.state import SERIAL, State, accesses_of, definition_named
from tensorexpr.codegen.schedule.legal.legality import refuse
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Define
from tensorexpr.records import replace
from tensorexpr.regions import affine_of


def cache(state: State, name: str, tensor: str, loop: str, order: tuple[int, ...], across: bool = False) -> State:
    """rewrite: l: {C = ... T[f] ...} --> l: {L = T[the part that is read]; C = ... L[f - its start] ...}: a local copy per iteration.

    `loop` is a serial loop, often of a reduction; `order` gives the axes of the tensor in the order that the copy has them. A panel, which
    goes along loops in place of axes, has those of a reduction first where that is said (`across`). The part is a box of constant size;
    where the loops inside read no such box the tensor is read as before.
    """
    stage = state.stage(name)
    if loop not in stage.order:
        raise refuse(stage, f"expected a loop of {name} to cache {tensor} in, got {loop!r}")
    if not isinstance(definition_named(state.program, name), Define) or stage.scan is not None:
        raise refuse(stage, f"expected a plain definition outside of scans to cache a tensor for, got {name}")
    reads = [a for a in accesses_of(state.program, name) if a.tensor == tensor]
    if not reads:
        found = ", ".join(dict.fromkeys(a.tensor for a in accesses_of(state.program, name)))
        raise refuse(stage, f"expected a tensor that {name} reads to cache, got {tensor!r}", hint=f"it reads {found or 'none'}")
    if any(affine_of(i) is None for a in reads for i in a.indices):
        raise refuse(stage, f"expected reads of {tensor} with affine indices to cache it, got one that depends on data or is no sum", loop)
    rank = len(state.program.types[tensor].shape)
    if sorted(order) != list(range(rank)) or not rank:
        raise refuse(stage, f"expected each axis of {tensor} once in its copy, 0 to {rank - 1}, got {order}")
    cached = (*(c for c in stage.cached if c[1] != tensor), (loop, tensor, order, across))
    changed = state.with_stage(replace(stage, cached=cached))
    check_cached(changed, name)
    return changed


def check_cached(state: State, name: str) -> None:
    """Raises `ScheduleError` where a tensor is cached in what is no serial loop, or is computed in there itself."""
    stage = state.stage(name)
    for loop, tensor, *_ in stage.cached:
        if loop not in stage.order or stage.kind(loop) != SERIAL:
            found = f"marked {stage.kind(loop)}" if loop in stage.order else "split or fused"
            raise ScheduleError(f"expected a serial loop to cache {tensor} in, got {loop}, {found}", term=f"{stage.name}", at=loop)
        made = state.table.get(tensor)
        place = None if made is None else made.place
        if place is not None and place.stage == name and place.loop in stage.order[stage.order.index(loop) :]:
            raise refuse(
                stage, f"expected {tensor} to be there before the loop that it is cached in, got it computed in {place.loop}", loop
            )
