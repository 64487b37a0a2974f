"""The primitive `compute_at`: a definition in the loops of another (`placement` says which part of it)."""

from __future__ import annotations

from tensorexpr.codegen.schedule.rewriting import checked
from tensorexpr.codegen.schedule.slide import without_slides
from tensorexpr.codegen.schedule.state import Place, State, program_facts
from tensorexpr.records import replace


def compute_at(state: State, name: str, consumer: str, loop: str) -> State:
    """rewrite: P: [...]; C: [..., l, ...] --> C: [..., l: {P: [...]}, ...]: P is computed in loop l of C, at what is read there.

    Where nothing there reads P (both read the same rows), it is computed at the same indices of the leading axes. In the outer loop of a
    split it is computed for a block of the axis, on a CPU; where the reads of an iteration lie near to each other, from the first to the
    last of them (a window, moved back into the tensor at its ends). What one iteration needs is kept in a local buffer, on the stack or,
    where that would be too small, in workspace of its own; in the tensor itself where others read it too, and then each element is made
    once.

    >>> import tensorexpr as te
    >>> x = te.placeholder((66, 8), name="x")
    >>> a = te.compute((66, 8), lambda i, j: te.exp(x[i, j]), name="a")
    >>> y = te.compute((64, 8), lambda i, j: a[i, j] + a[i + 1, j] + a[i + 2, 7 - j], name="y")
    >>> s = te.schedule(y)
    >>> i_o, i_i = s["y"].split("i", 16)
    >>> s["a"].compute_at("y", i_o)
    >>> print(s)
    main(x, y)
    x: parameter(f32[66, 8])
    y: parameter(f32[64, 8], written)
    <BLANKLINE>
    def kernel_0() -> y:
        for i_o in range(0, 4):
            a_1: local(f32[18, 8])
            for i in range(i_o * 16, i_o * 16 + 18):
                for j in range(0, 8):
                    a_1[i - i_o * 16, j] = exp(x[i, j])
            for i_i in range(0, 16):
                for j in range(0, 8):
                    y[i_i + i_o * 16, j] = a_1[i_i, j] + a_1[i_i + 1, j] + a_1[i_i + 2, 7 - j]
    <BLANKLINE>
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
    state = without_slides(state, name)
    return checked(state, replace(state.stage(name), place=Place(consumer, loop)))
