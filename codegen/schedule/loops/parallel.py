"""The primitive `parallel`: iterations on all cores."""

from __future__ import annotations

from tensorexpr.codegen.schedule.analysis.state import State
from tensorexpr.codegen.schedule.loops.rewriting import mark


def parallel(state: State, name: str, loop: str) -> State:
    """rewrite: i: serial --> i: parallel: the iterations of the outermost data loop run on all cores.

    In any order, so they must touch different elements; each result has the same bits whatever the number of threads.
    """
    return mark(state, name, loop, "parallel")
