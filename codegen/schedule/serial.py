"""The primitive `serial`: one iteration after the other again."""

from __future__ import annotations

from tensorexpr.codegen.schedule.rewriting import mark
from tensorexpr.codegen.schedule.state import SERIAL, State


def serial(state: State, name: str, loop: str) -> State:
    """rewrite: i: parallel | vectorize | unroll | block.x | ... --> i: serial: one iteration after the other."""
    return mark(state, name, loop, SERIAL)
