"""The primitives `recompute` and `share`: a value computed in the loops of what needs it, once for many points, stored nowhere.

`recompute` differs from `inline` where a reader asks for one element at many points (a weight of a pair of points, for every
coordinate of their difference): then the value is not computed at each of these, but as a reduction of its own over a
single point, for which the list of loops has a loop. What stands after that loop shares the value:

    [i, j, p, k]   for i: for j: { p = exp(-|x[i] - y[j]|^2); for k: acc[k] += p * (x[i, k] - y[j, k]) }

A product of one factor is that factor, to the last bit. `share` does the same to what is written inside the reductions of one
definition already.
"""

from __future__ import annotations

from tensorexpr.codegen.schedule.analysis.state import State, plain_order, plain_stages, program_facts
from tensorexpr.codegen.schedule.definitions.inline import inline
from tensorexpr.codegen.schedule.legal.anew import written_anew
from tensorexpr.codegen.schedule.legal.legality import refuse
from tensorexpr.ir import Access, Apply, Axis, Cast, Combiner, Const, Define, Expr, Index, Reduce, const
from tensorexpr.records import replace
from tensorexpr.simplify.passes.definitions import with_definitions
from tensorexpr.traversal import bound_names, children, free_names, fresh_name, map_children

STEM = "p"
"""What the loop over the single point is called."""
DEAR = 6
"""Operations of at least this cost are worth sharing: roots and what is beyond."""


def recompute(state: State, names: tuple[str, ...]) -> State:
    """rewrite: P[i, j] = e; C = ... P[a, b] ... --> C = ... prod(e[i := a, j := b] for p in range(1)) ..., stored nowhere.

    Where a reader asks for one element at many points, its value is computed once for these. Refuses what `inline` refuses.
    """
    facts = program_facts(state.program)
    wanted = {name for name in names if isinstance(facts.definitions.get(name), Define)}
    changed = [_once(d) if isinstance(d, Define) and d.name in wanted else d for d in state.program.definitions]
    wrapped = replace(state, program=with_definitions(state.program, changed))
    return inline(wrapped, names)


def share(state: State, name: str) -> State:
    """rewrite: C[i, c] = sum_j g(e[i, j], c) --> C[i, c] = sum_j g(prod(e[i, j] for p in range(1)), c), for each costly `e`.

    What stands after the loop over the single point shares the value, once the loop stands outside of it.
    """
    stage = state.stage(name)
    definition = program_facts(state.program).definitions[name]
    if not isinstance(definition, Define) or stage.scan is not None:
        raise refuse(stage, f"expected a plain definition outside of scans to share values in, got {name}")
    if stage.relations or stage.kinds or stage.place or stage.order != plain_order(stage.parts) or state.placed_in(name):
        raise refuse(stage, f"expected plain loops of {name}, whose values are to be shared, got changed ones", hint="share first")
    found = {e for e, _ in repeated_values(definition)}
    if not found:
        raise refuse(stage, f"expected values in {name} that points of some data axis have in common, got none")
    taken = {a.index for a in definition.axes} | set(bound_names(definition.value)) | set(free_names(definition.value))

    def visit(node: Expr) -> Expr:
        return _product(node, taken) if node in found else map_children(node, visit)

    changed = replace(definition, value=visit(definition.value))
    program = with_definitions(state.program, [changed if d.results[0][0] == name else d for d in state.program.definitions])
    table = {**state.table, **{s.name: s for s in plain_stages(program, frozenset((name,)))}}
    return written_anew(state, replace(state, program=program, table=table), "share")


def repeated_values(definition: Define) -> list[tuple[Expr, tuple[Axis, ...]]]:
    """The costly values inside the outermost reductions of a definition that stay the same along some data axis that the reduction
    needs, or along all of its own; each with the axes of that reduction."""
    data = {a.index for a in definition.axes}
    found: dict[Expr, tuple[Axis, ...]] = {}

    def inside(node: Expr, reduction: Reduce, needed: set[str]) -> None:
        if isinstance(node, Access) or not node.dtype.is_float:
            return  # indices and conditions stay where bounds and proofs need them
        free = set(free_names(node))
        common = needed - free
        if common & {name for a in reduction.axes for bound in (a.start, a.stop) for name in free_names(bound)}:
            return  # lanes along such an axis visit different points
        if _is_costly(node) and (common or not free & {a.index for a in reduction.axes}):
            if not is_plain(node):
                found[node] = reduction.axes
            return
        if not isinstance(node, Reduce):
            for child in children(node):
                inside(child, reduction, needed)

    def visit(node: Expr) -> None:
        if isinstance(node, Reduce):
            for value in node.values:
                inside(value, node, data & set(free_names(node)))
            return
        for child in children(node):
            visit(child)

    visit(definition.value)
    return list(found.items())


def _is_costly(value: Expr) -> bool:
    """Whether computing a value costs much; its subscripts do not count."""
    if isinstance(value, Access) or not value.dtype.is_float:
        return False
    return isinstance(value, Reduce) or (isinstance(value, Apply) and value.op.cost >= DEAR) or any(map(_is_costly, children(value)))


def _once(definition: Define) -> Define:
    """The definition with its value as a product of one factor."""
    value = definition.value
    if is_plain(value):
        return definition
    taken = {a.index for a in definition.axes} | set(bound_names(value)) | set(free_names(value))
    return replace(definition, value=_product(value, taken))


def _product(value: Expr, taken: set[str]) -> Expr:
    """A value as a product (of truth values: a conjunction) of one factor."""
    axis = Axis(fresh_name(STEM, taken), const(0), const(1))
    return Reduce(Combiner("all" if value.dtype.is_bool else "prod"), (value,), (axis,))


def is_plain(value: Expr) -> bool:
    """Whether a value is shared by itself, or costs nothing: a reduction, a literal, an index."""
    while isinstance(value, Cast):
        value = value.arg
    return isinstance(value, Reduce | Const | Index)
