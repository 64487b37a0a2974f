"""The primitive `parallel`: iterations on all cores."""

from __future__ import annotations

from tensorexpr.codegen.schedule.rewriting import mark
from tensorexpr.codegen.schedule.state import State


def parallel(state: State, name: str, loop: str) -> State:
    """rewrite: i: serial --> i: parallel: the iterations of the outermost data loop run on all cores.

    In any order, so they must touch different elements; each result has the same bits whatever the number of threads.

    >>> import tensorexpr as te
    >>> x = te.placeholder((10, 6), name="x")
    >>> s = te.schedule(te.compute((10, 6), lambda i, j: x[i, j] + 1, name="y"))
    >>> s["y"].parallel("i")
    >>> "for i in parallel(range(0, 10)):" in str(s)
    True
    """
    return mark(state, name, loop, "parallel")
