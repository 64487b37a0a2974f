"""The primitive `unroll`: iterations copied out."""

from __future__ import annotations

from tensorexpr.codegen.schedule.rewriting import mark
from tensorexpr.codegen.schedule.state import State


def unroll(state: State, name: str, loop: str) -> State:
    """rewrite: i: serial --> i: unroll: the iterations of a loop of constant extent are copied out.

    Accumulators of loops inside of a reduction then are registers.

    >>> import tensorexpr as te
    >>> x = te.placeholder((10, 6), name="x")
    >>> s = te.schedule(te.compute((10, 6), lambda i, j: x[i, j] + 1, name="y"))
    >>> s["y"].unroll("j")
    >>> "for j in unroll(range(0, 6)):" in str(s)
    True
    """
    return mark(state, name, loop, "unroll")
