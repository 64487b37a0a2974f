"""The primitive `reorder`: loops in another order."""

from __future__ import annotations

from tensorexpr.codegen.schedule.analysis.state import State
from tensorexpr.codegen.schedule.legal.legality import refuse
from tensorexpr.codegen.schedule.loops.rewriting import checked, place_of
from tensorexpr.records import replace


def reorder(state: State, name: str, loops: tuple[str, ...]) -> State:
    """rewrite: [..., i, ..., j, ...] --> [..., j, ..., i, ...]: the named loops take the places they have now, in the order given.

    Data loops inside of a reduction are a tile: there is an accumulator for each of their points. A reduction that depends on the
    order of its points keeps it.
    """
    stage = state.stage(name)
    places = [place_of(stage, loop) for loop in loops]
    if len(set(loops)) != len(loops):
        raise refuse(stage, f"expected each loop once to reorder, got {', '.join(loops)}")
    order = list(stage.order)
    for place, loop in zip(sorted(places), loops, strict=True):
        order[place] = loop
    return checked(state, replace(stage, order=tuple(order)))
