"""The primitive `recompute`: a definition computed again in the loops of everything that reads it, and stored nowhere.

It differs from `inline` where a reader asks for one element at many points (a weight of a pair of points, for every
coordinate of their difference): then the value is not computed at each of these, but as a reduction of its own over a
single point, for which the list of loops has a loop. What stands after that loop shares the value:

    [i, j, p, k]   for i: for j: { p = exp(-|x[i] - y[j]|^2); for k: acc[k] += p * (x[i, k] - y[j, k]) }

A product of one factor is that factor, to the last bit.
"""

from __future__ import annotations

from dataclasses import replace

from tensorexpr.codegen.schedule.primitives import inline
from tensorexpr.codegen.schedule.state import State, program_facts
from tensorexpr.ir import Axis, Cast, Combiner, Const, Define, Expr, Index, Reduce, const
from tensorexpr.simplify.definitions import with_definitions
from tensorexpr.traversal import bound_names, free_names, fresh_name

STEM = "p"
"""What the loop over the single point is called."""


def recompute(state: State, names: tuple[str, ...]) -> State:
    """rewrite: P[i, j] = e; C = ... P[a, b] ... --> C = ... prod(e[i := a, j := b] for p in range(1)) ..., stored nowhere.

    Refuses what `inline` refuses.
    """
    facts = program_facts(state.program)
    wanted = {name for name in names if isinstance(facts.definitions.get(name), Define)}
    changed = [_once(d) if isinstance(d, Define) and d.name in wanted else d for d in state.program.definitions]
    wrapped = replace(state, program=with_definitions(state.program, changed))
    return inline(wrapped, names)


def _once(definition: Define) -> Define:
    """The definition with its value as a product (of truth values: a conjunction) of one factor."""
    value = definition.value
    if is_plain(value):
        return definition
    taken = {a.index for a in definition.axes} | set(bound_names(value)) | set(free_names(value))
    axis = Axis(fresh_name(STEM, taken), const(0), const(1))
    return replace(definition, value=Reduce(Combiner("all" if value.dtype.is_bool else "prod"), (value,), (axis,)))


def is_plain(value: Expr) -> bool:
    """Whether a value is shared by itself, or costs nothing: a reduction, a literal, an index."""
    while isinstance(value, Cast):
        value = value.arg
    return isinstance(value, Reduce | Const | Index)
