"""The primitive `serial`: one iteration after the other again."""

from __future__ import annotations

from tensorexpr.codegen.schedule.analysis.state import SERIAL, State
from tensorexpr.codegen.schedule.loops.rewriting import mark


def serial(state: State, name: str, loop: str) -> State:
    """rewrite: i: parallel | vectorize | unroll | block.x | ... --> i: serial: one iteration after the other."""
    return mark(state, name, loop, SERIAL)
