"""The primitive `unroll`: iterations copied out."""

from __future__ import annotations

from tensorexpr.codegen.schedule.analysis.state import State
from tensorexpr.codegen.schedule.loops.rewriting import mark


def unroll(state: State, name: str, loop: str) -> State:
    """rewrite: i: serial --> i: unroll: the iterations of a loop of constant extent are copied out.

    Accumulators of loops inside of a reduction then are registers.
    """
    return mark(state, name, loop, "unroll")
