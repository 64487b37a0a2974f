"""The primitives: each takes a state and gives another, or refuses with the reason.

Every primitive states its rewrite as the list of loops before and after. None changes a value, except that splitting,
reordering or vectorizing a reduction may combine its points in another, fixed, order (sum and prod of floats).
"""

from __future__ import annotations

from dataclasses import replace

from tensorexpr.codegen.schedule.bind import check_target
from tensorexpr.codegen.schedule.legality import check_stage, refuse, runs_whole
from tensorexpr.codegen.schedule.pipeline import check_pipelines
from tensorexpr.codegen.schedule.placement import check_placement
from tensorexpr.codegen.schedule.state import (
    SERIAL,
    TAILS,
    Fuse,
    Place,
    Split,
    Stage,
    State,
    all_definitions,
    definition_named,
    plain_order,
    plain_stages,
    program_facts,
)
from tensorexpr.codegen.schedule.tensorize import check_tensorized
from tensorexpr.errors import DefinitionError, ScheduleError
from tensorexpr.ir import Access, Define, Definition, Expr, Index, Program, Scan
from tensorexpr.simplify.inline import inline_definitions
from tensorexpr.traversal import bottom_up, free_names, fresh_name, map_expressions


def _loop(stage: Stage, loop: str) -> int:
    """The place of a loop in the list."""
    if loop not in stage.order:
        gone = next((r for r in stage.relations if loop in (getattr(r, "parent", None), r.outer, r.inner)), None)
        into = "" if gone is None else f", which was {'split' if isinstance(gone, Split) else 'fused'}"
        raise ScheduleError(f"expected a loop of {stage.name}, got {loop!r}{into}", hint=f"loops: {', '.join(stage.order)}")
    return stage.order.index(loop)


def _new_name(stage: Stage, stem: str) -> str:
    taken = set(stage.order) | set(stage.parents()) | {a.index for a in stage.parts.axes}
    taken |= {n for g in stage.parts.groups for n in g.indices}
    taken |= {r.parent for r in stage.relations if isinstance(r, Split)}
    return fresh_name(stem, taken)


def split(state: State, name: str, loop: str, factor: int, tail: str = "peel") -> tuple[State, tuple[str, str]]:
    """rewrite: [..., i, ...] --> [..., i_o, i_i, ...], i = i_o * factor + i_i; see `Split` for `tail` ("stride": [..., i_i, i_o, ...])."""
    stage = state.stage(name)
    at = _loop(stage, loop)
    if not isinstance(factor, int) or isinstance(factor, bool) or factor < 1:
        raise refuse(stage, f"expected a positive int as the factor, got {factor!r}", loop)
    if tail not in TAILS:
        raise refuse(stage, f"expected a tail among {', '.join(TAILS)}, got {tail!r}", loop)
    if stage.kind(loop) != SERIAL:
        raise refuse(stage, f"expected a serial loop to split, got {loop}, marked {stage.kind(loop)}", loop, "split first")
    if tail == "shift" and (stage.group_of(loop) is not None or not isinstance(definition_named(state.program, name), Define | Scan)):
        raise refuse(stage, f"expected a data loop of a plain definition for tail 'shift', got {loop}: points would count twice", loop)
    outer, inner = _new_name(stage, f"{loop}_o"), _new_name(stage, f"{loop}_i")
    changed = replace(
        stage,
        order=(*stage.order[:at], *((inner, outer) if tail == "stride" else (outer, inner)), *stage.order[at + 1 :]),
        relations=(*stage.relations, Split(loop, outer, inner, factor, tail)),
    )
    return _checked(state, changed), (outer, inner)


def fuse(state: State, name: str, outer: str, inner: str) -> tuple[State, str]:
    """rewrite: [..., i, j, ...] --> [..., i_j, ...], i = i_j // extent(j), j = i_j % extent(j)."""
    stage = state.stage(name)
    at = _loop(stage, outer)
    if _loop(stage, inner) != at + 1:
        raise refuse(stage, f"expected two loops directly inside each other to fuse, got {outer} and {inner}", outer, "reorder them first")
    if stage.group_of(outer) != stage.group_of(inner):
        raise refuse(stage, f"expected loops of one reduction, or data loops, to fuse, got {outer} and {inner}", outer)
    for loop in (outer, inner):
        if stage.kind(loop) != SERIAL:
            raise refuse(stage, f"expected serial loops to fuse, got {loop}, marked {stage.kind(loop)}", loop)
        for relation in stage.relations:
            if (
                isinstance(relation, Split)
                and {relation.outer, relation.inner} & set(stage.ancestry(loop))
                and not runs_whole(stage, relation)
            ):
                raise refuse(
                    stage, f"expected loops without a rest to fuse, got {loop} of a split of {relation.parent} by {relation.factor}", loop
                )
    depends = {n for a in stage.axes_of(inner) for e in (stage.axis(a).start, stage.axis(a).stop) for n in free_names(e)}
    if depends & set(stage.axes_of(outer)):
        raise refuse(stage, f"expected bounds of {inner} that do not depend on {outer} to fuse them, got ones that do", inner)
    fused = _new_name(stage, f"{outer}_{inner}")
    changed = replace(
        stage,
        order=(*stage.order[:at], fused, *stage.order[at + 2 :]),
        relations=(*stage.relations, Fuse(fused, outer, inner)),
    )
    return _checked(state, changed), fused


def reorder(state: State, name: str, loops: tuple[str, ...]) -> State:
    """rewrite: [..., i, ..., j, ...] --> [..., j, ..., i, ...]: the named loops take the places they have now, in the order given."""
    stage = state.stage(name)
    places = [_loop(stage, loop) for loop in loops]
    if len(set(loops)) != len(loops):
        raise refuse(stage, f"expected each loop once to reorder, got {', '.join(loops)}")
    order = list(stage.order)
    for place, loop in zip(sorted(places), loops, strict=True):
        order[place] = loop
    return _checked(state, replace(stage, order=tuple(order)))


def mark(state: State, name: str, loop: str, kind: str) -> State:
    """rewrite: i: serial --> i: parallel | vectorize | unroll (and back)."""
    stage = state.stage(name)
    _loop(stage, loop)
    kinds = tuple((x, k) for x, k in stage.kinds if x != loop)
    if kind != SERIAL:
        kinds = (*kinds, (loop, kind))
    return _checked(state, replace(stage, kinds=kinds))


def stream(state: State, name: str) -> State:
    """rewrite: C[...] = e, in the caches --> C[...] = e, past the caches: for an output that nothing reads again."""
    stage = state.stage(name)
    if not streamable(state, name):
        raise refuse(stage, f"expected an output that no definition reads to write past the caches, got {name}")
    return state.with_stage(replace(stage, streamed=True))


def streamable(state: State, name: str) -> tuple[str, ...]:
    """The outputs that the loops of a stage write and nothing reads."""
    stage = state.stage(name)
    program = state.program
    if stage.scan is not None or not isinstance(definition_named(program, name), Define | Scan):
        return ()
    made = definition_named(program, name).results if stage.sweep is None else ()
    names = [n for n, _ in made] + [t for m in (() if stage.sweep is None else stage.sweep.moments) for t, _ in m.stores]
    readers = program_facts(program).readers
    if isinstance(definition_named(program, name), Scan) and stage.sweep is None:
        return ()  # a step reads the one before
    own = {name, *(() if stage.sweep is None else stage.sweep.readers)}
    return tuple(dict.fromkeys(n for n in names if n in program.outputs and not set(readers.get(n, ())) - own))


def compute_at(state: State, name: str, consumer: str, loop: str) -> State:
    """rewrite: P: [...]; C: [..., l, ...] --> C: [..., l: {P: [...]}, ...]: P is computed in loop l of C, at what is read there.

    Where nothing there reads P (both read the same rows), it is computed at the same indices of the leading axes.
    """
    stage = state.stage(name)
    host = state.stage(consumer)
    facts = program_facts(state.program)
    inside = {consumer, *(s.name for s in state.placed_in(consumer))}
    if (
        not inside & set(facts.readers.get(name, ()))
        and name not in host.guests
        and facts.numbers.get(name, len(facts.numbers)) < facts.numbers.get(consumer, 0)
    ):
        state = state.with_stage(replace(host, guests=(*host.guests, name)))
    return _checked(state, replace(stage, place=Place(consumer, loop)))


def bind(state: State, name: str, loop: str, axis: str) -> State:
    """rewrite: i: serial --> i: block.x | ... | thread.z: the blocks of a GPU's grid, the threads of a block."""
    stage = state.stage(name)
    _loop(stage, loop)
    check_target(state, stage, loop, axis, refuse)
    return mark(state, name, loop, axis)


def inline(state: State, names: tuple[str, ...]) -> State:
    """rewrite: P[i] = e; C = ... P[f] ... --> C = ... e[i := f] ...: P is computed where it is read, and never stored."""
    for name in names:
        stage = state.stage(name)
        if name in state.program.outputs:
            raise refuse(stage, f"expected a definition between others to inline, got the output {name}")
        if stage.scan is not None:
            raise refuse(stage, f"expected a definition outside of scans to inline, got {name}")
        if stage.place is not None or state.placed_in(name):
            raise refuse(stage, f"expected a definition that shares no loops to inline, got {name}", hint="inline first")
    try:
        program = inline_definitions(state.program, names)
    except DefinitionError as error:
        raise ScheduleError(error.message, term=f"inline {', '.join(names)}", at=error.at) from error
    changed = _with_program(state, program, names)
    return replace(changed, inlined=(*state.inlined, *names))


def redirect(state: State, name: str, copy: str) -> State:
    """rewrite: R[i, t] = S[t, i]; Q = ... S[e, f] ... --> Q = ... R[f, e] ...: what comes after a copy R reads that instead of S."""
    facts = program_facts(state.program)
    made = facts.definitions.get(copy)
    order = _permutation(state, name, made)
    if order is None:
        raise ScheduleError(f"expected a definition that only permutes the axes of {name}, got {copy}", term=f"redirect {name}")

    def visit(node: Expr) -> Expr:
        if not isinstance(node, Access) or node.tensor != name:
            return node
        return replace(node, tensor=copy, indices=tuple(node.indices[axis] for axis in order))

    at = facts.numbers[copy] + 1
    later = tuple(map_expressions(d, lambda e: bottom_up(e, visit)) for d in state.program.definitions[at:])
    return _with_program(state, replace(state.program, definitions=(*state.program.definitions[:at], *later)), (name,))


def _permutation(state: State, name: str, copy: Definition | None) -> tuple[int, ...] | None:
    """For each axis of a copy the axis of the tensor that it is; None where it is no copy."""
    if not isinstance(copy, Define) or copy not in state.program.definitions or not isinstance(copy.value, Access):
        return None
    names, access = [a.index for a in copy.axes], copy.value
    found = [i.name for i in access.indices if isinstance(i, Index)]
    source = state.program.types.get(name)
    if access.tensor != name or source is None or len(found) != len(access.indices) or sorted(found) != sorted(names):
        return None
    order = tuple(found.index(n) for n in names)
    return order if tuple(source.shape[axis] for axis in order) == tuple(a.stop for a in copy.axes) else None


def _with_program(state: State, program: Program, names: tuple[str, ...]) -> State:
    """The state with definitions changed, whose loops must be plain and then are so again."""
    old = state.table
    before = {d.results[0][0]: d for d in all_definitions(state.program)}
    after = {d.results[0][0]: d for d in all_definitions(program)}
    changed = frozenset(n for n, d in after.items() if before[n] is not d)
    for stage in state.stages:
        if stage.sweep is not None and changed & {stage.name, *stage.sweep.readers}:
            raise refuse(stage, f"expected definitions that no sweep reads to inline, got {', '.join(names)}", hint="inline first")
    for name in changed & set(old):
        known = old[name]
        if known.relations or known.kinds or known.place or known.order != plain_order(known.parts):
            raise refuse(known, f"expected plain loops of {name}, which reads what is inlined, got changed ones", hint="inline first")
    fresh = {s.name: s for s in plain_stages(program, changed)}
    table = {s.name: fresh.get(s.name, s) for s in state.stages if s.name in after}
    return replace(state, program=program, table=table)


def _checked(state: State, stage: Stage) -> State:
    """The state with a stage changed, where that is legal for it and for what is computed in its loops."""
    changed = state.with_stage(check_stage(state, stage))
    for name in (*((stage.name,) if stage.place is not None else ()), *(s.name for s in changed.placed_in(stage.name))):
        check_placement(changed, name)
    places = (stage.place, state.stage(stage.name).place)
    for root in dict.fromkeys((stage.name, *(p.stage for p in places if p is not None))):
        check_pipelines(changed, root)
        check_tensorized(changed, changed.stage(root), refuse)
    return changed
