"""The primitive `vectorize`: iterations in the lanes of vectors."""

from __future__ import annotations

from tensorexpr.codegen.schedule.analysis.state import State
from tensorexpr.codegen.schedule.loops.rewriting import mark


def vectorize(state: State, name: str, loop: str) -> State:
    """rewrite: i: serial --> i: vectorize: the iterations of a loop of constant extent run in the lanes of vectors.

    Of a reduction: each lane has an accumulator of its own, and these are combined in a fixed order at the end. That is
    another order than the loop's; sums and products of floats may differ in their last bits (they are reassociated).
    """
    return mark(state, name, loop, "vectorize")
