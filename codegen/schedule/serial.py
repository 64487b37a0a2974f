"""The primitive `serial`: one iteration after the other again."""

from __future__ import annotations

from tensorexpr.codegen.schedule.rewriting import mark
from tensorexpr.codegen.schedule.state import SERIAL, State


def serial(state: State, name: str, loop: str) -> State:
    """rewrite: i: parallel | vectorize | unroll | block.x | ... --> i: serial: one iteration after the other.

    >>> import tensorexpr as te
    >>> x = te.placeholder((10, 6), name="x")
    >>> s = te.schedule(te.compute((10, 6), lambda i, j: x[i, j] + 1, name="y"))
    >>> s["y"].unroll("j")
    >>> s["y"].serial("j")
    >>> "for j in range(0, 6):" in str(s)
    True
    """
    return mark(state, name, loop, SERIAL)
