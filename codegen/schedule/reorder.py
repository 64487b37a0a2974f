"""The primitive `reorder`: loops in another order."""

from __future__ import annotations

from tensorexpr.codegen.schedule.legality import refuse
from tensorexpr.codegen.schedule.rewriting import checked, place_of
from tensorexpr.codegen.schedule.state import State
from tensorexpr.records import replace


def reorder(state: State, name: str, loops: tuple[str, ...]) -> State:
    """rewrite: [..., i, ..., j, ...] --> [..., j, ..., i, ...]: the named loops take the places they have now, in the order given.

    Data loops inside of a reduction are a tile: there is an accumulator for each of their points. A reduction that depends on the
    order of its points keeps it.

    >>> import tensorexpr as te
    >>> a, b = te.placeholder((4, 8), name="a"), te.placeholder((8, 6), name="b")
    >>> s = te.schedule(te.compute((4, 6), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], 8), name="c"))
    >>> s["c"].reorder("i", "k", "j")
    >>> print(s)
    main(a, b, c)
    a: parameter(f32[4, 8])
    b: parameter(f32[8, 6])
    c: parameter(f32[4, 6], written)
    <BLANKLINE>
    def kernel_0() -> c:
        for i in range(0, 4):
            c_sum: local(f32[6])
            for j in range(0, 6):
                c_sum[j] = 0.0
            for k in range(0, 8):
                for j in range(0, 6):
                    c_sum[j] = c_sum[j] + a[i, k] * b[k, j]
            for j in range(0, 6):
                c[i, j] = c_sum[j]
    <BLANKLINE>
    """
    stage = state.stage(name)
    places = [place_of(stage, loop) for loop in loops]
    if len(set(loops)) != len(loops):
        raise refuse(stage, f"expected each loop once to reorder, got {', '.join(loops)}")
    order = list(stage.order)
    for place, loop in zip(sorted(places), loops, strict=True):
        order[place] = loop
    return checked(state, replace(stage, order=tuple(order)))
