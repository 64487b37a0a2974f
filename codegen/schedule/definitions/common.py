"""The primitive `common`: what definitions compute alike, element by element, becomes a definition that all of them read.

A softmax takes each exponential twice, for the sum of a row and for the results. Where both run in one loop over rows, the values of a row
are computed once, into a buffer that stays in the first cache, and read again from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tensorexpr.codegen.schedule.analysis.state import Stage, State, all_definitions, plain_order, plain_stages, program_facts
from tensorexpr.codegen.schedule.definitions.recompute import DEAR
from tensorexpr.codegen.schedule.legal.anew import written_anew
from tensorexpr.codegen.schedule.legal.legality import refuse
from tensorexpr.ir import Access, Apply, Axis, Const, Define, Expr, Index, Program, Reduce, const
from tensorexpr.records import record, replace
from tensorexpr.simplify.passes.definitions import with_definitions
from tensorexpr.traversal import children, free_names, fresh_name, map_children, walk


@record
class Found:
    """A value in a definition, the axes that it depends on (those of the definition first), and the value under names that do not depend on
    what they are called there."""

    value: Expr
    axes: tuple[Axis, ...]
    form: tuple[Expr, tuple[Expr, ...]]


def common(state: State, name: str, others: tuple[str, ...]) -> tuple[State, tuple[str, ...]]:
    """rewrite: A[i] = sum_k f(e[i, k]); C[i, j] = g(e[i, j]) --> E[i, j] = e; A[i] = sum_k f(E[i, k]); C[i, j] = g(E[i, j]), e costly.

    Values are alike where they are the same but for the names of indices over equal extents; what they read, they read at these indices
    alone. The definition made has loops of its own: `compute_at` a row of them to keep no more than that.
    """
    stage = state.stage(name)
    for each in (name, *others):
        if not is_plain(state, each):
            raise refuse(stage, f"expected plain definitions with plain loops to have values in common, got {each}", hint="do this first")
    if name in others or not others:
        raise refuse(stage, f"expected other definitions to have values in common with {name}, got {', '.join(others) or 'none'}")
    program, made = state.program, []
    taken = {*program.types, *program.sizes, *(n for d in all_definitions(program) for n, _ in d.results)}
    for value in _alike(program, name, others):
        packed = fresh_name(f"{name}_{value.value.op.name}" if isinstance(value.value, Apply) else name, taken)
        taken.add(packed)
        program = _with(program, packed, value, (name, *others))
        made.append(packed)
    if not made:
        raise refuse(stage, f"expected costly values that {name} and {', '.join(others)} compute alike, element by element, got none")
    fresh = {s.name: s for s in plain_stages(program, frozenset((*made, name, *others)))}
    table: dict[str, Stage] = {}
    for definition in program.definitions:
        for result, _ in definition.results:
            if result in fresh:
                table[result] = fresh[result]
    order = [n for d in all_definitions(program) for n, _ in d.results]
    known = {**state.table, **table}
    changed = replace(state, program=program, table={n: known[n] for n in order if n in known})
    return written_anew(state, changed, "common"), tuple(made)


def is_plain(state: State, name: str) -> bool:
    """Whether a definition stands by itself, its loops as they were made."""
    stage = state.stage(name)
    changed = stage.relations or stage.kinds or stage.place or stage.joins or stage.guests or state.placed_in(name)
    plain = isinstance(program_facts(state.program).definitions[name], Define) and stage.scan is None
    return plain and not changed and stage.order == plain_order(stage.parts)


def _alike(program: Program, name: str, others: tuple[str, ...]) -> list[Found]:
    """The costly values of a definition that all of the others compute as well."""
    shapes = program_facts(program).shapes
    definitions = [program_facts(program).definitions[n] for n in (name, *others)]
    first, *rest = ([*values_of(d, shapes)] if isinstance(d, Define) else [] for d in definitions)
    kept: dict[tuple[Expr, tuple[Expr, ...]], Found] = {}
    for found in first:
        if all(any(found.form == other.form for other in values) for values in rest):
            kept.setdefault(found.form, found)
    return list(kept.values())


def values_of(definition: Define, shapes: Mapping[str, tuple[Expr, ...]]) -> Iterator[Found]:
    """The outermost costly values that are made of elements at indices alone."""

    def visit(node: Expr, axes: tuple[Axis, ...]) -> Iterator[Found]:
        found = _found(node, axes, shapes)
        if found is not None:
            yield found
            return
        inner = (*axes, *node.axes) if isinstance(node, Reduce) else axes
        for child in children(node):
            yield from visit(child, inner)

    return visit(definition.value, definition.axes)


def _found(node: Expr, axes: tuple[Axis, ...], shapes: Mapping[str, tuple[Expr, ...]]) -> Found | None:
    if not isinstance(node, Apply) or not node.dtype.is_float or node.op.cost < DEAR:
        return None
    free = set(free_names(node))
    used = tuple(a for a in axes if a.index in free)
    extents = {a.index: a.stop for a in used}
    if len(extents) != len(used) or any(a.start != const(0) or not isinstance(a.stop, Const) for a in used):
        return None
    at: set[str] = set()
    for inside in walk(node):
        if isinstance(inside, Reduce) or (isinstance(inside, Apply) and inside.op.name == "recompute"):
            return None
        if isinstance(inside, Access):
            # What reads whole axes at their indices reads nothing beyond them, under any condition.
            for index, extent in zip(inside.indices, shapes.get(inside.tensor, ()), strict=False):
                if not isinstance(index, Index) or extents.get(index.name) != extent:
                    return None
                at.add(index.name)
    if not at or at != set(extents):
        return None
    names: dict[str, Expr] = {a.index: Index(f"axis {k}") for k, a in enumerate(used)}
    return Found(node, used, (_renamed(node, names), tuple(a.stop for a in used)))


def _renamed(node: Expr, names: Mapping[str, Expr]) -> Expr:
    return names.get(node.name, node) if isinstance(node, Index) else map_children(node, lambda child: _renamed(child, names))


def _with(program: Program, packed: str, found: Found, names: tuple[str, ...]) -> Program:
    """The program with a definition of a value before the first of those that compute it, and read in them."""
    shapes = program_facts(program).shapes
    dtype = found.value.dtype
    definitions, made = [], False
    for definition in program.definitions:
        if not isinstance(definition, Define) or definition.name not in names:
            definitions.append(definition)
            continue
        if not made:
            definitions.append(Define(packed, found.axes, found.value))
            made = True
        places = {f.value: f.axes for f in values_of(definition, shapes) if f.form == found.form}

        def visit(node: Expr, places: Mapping[Expr, tuple[Axis, ...]] = places) -> Expr:
            axes = places.get(node)
            if axes is not None:
                return Access(packed, tuple(Index(a.index) for a in axes), dtype)
            return map_children(node, visit)

        definitions.append(replace(definition, value=visit(definition.value)))
    return with_definitions(program, definitions)
