"""The primitive `compute_at`: a definition in the loops of another (`placement` says which part of it)."""

from __future__ import annotations

from tensorexpr.codegen.schedule.analysis.state import Place, State, program_facts
from tensorexpr.codegen.schedule.loops.rewriting import checked
from tensorexpr.records import replace


def compute_at(state: State, name: str, consumer: str, loop: str) -> State:
    """rewrite: P: [...]; C: [..., l, ...] --> C: [..., l: {P: [...]}, ...]: P is computed in loop l of C, at what is read there.

    Where nothing there reads P (both read the same rows), it is computed at the same indices of the leading axes. In the outer loop of a
    split it is computed for a block of the axis, on a CPU; where the reads of an iteration lie near to each other, from the first to the
    last of them (a window, moved back into the tensor at its ends). What one iteration needs is kept in a local buffer, on the stack or,
    where that would be too small, in workspace of its own; in the tensor itself where others read it too, and then each element is made
    once.
    """
    host = state.stage(consumer)
    facts = program_facts(state.program)
    inside = {consumer, *(s.name for s in state.placed_in(consumer))}
    if (
        not inside & set(facts.readers.get(name, ()))
        and name not in host.guests
        and facts.numbers.get(name, len(facts.numbers)) < facts.numbers.get(consumer, 0)
    ):
        state = state.with_stage(replace(host, guests=(*host.guests, name)))
    return checked(state, replace(state.stage(name), place=Place(consumer, loop)))
