"""The primitive `clone`: a reader gets definitions of its own of what others read, too.

What two definitions read is made once and stored, in one order. Where it is large and they go through it along different axes, each may
better compute it for itself, near to where it is needed (`compute_at`), and it is stored nowhere.
"""

from __future__ import annotations

from tensorexpr.codegen.schedule.analysis.state import Stage, State, plain_order, plain_stages, program_facts
from tensorexpr.codegen.schedule.legal.anew import written_anew
from tensorexpr.codegen.schedule.legal.legality import refuse
from tensorexpr.codegen.schedule.legal.placement import check_placement
from tensorexpr.ir import Access, Define, Definition, Expr
from tensorexpr.records import replace
from tensorexpr.traversal import bottom_up, fresh_name, map_expressions


def clone(state: State, name: str, sources: tuple[str, ...]) -> tuple[State, tuple[str, ...]]:
    """rewrite: P = e; C = ... P ...; D = ... P ... --> P = e; C = ... P ...; P_again = e; D = ... P_again ...: D has a P of its own.

    Copies of several definitions that read each other read each other's copies. They stand in front of D, and all of them behind
    everything that does not read D. Gives the names of the copies, too.
    """
    reader = state.stage(name)
    facts = program_facts(state.program)
    wanted = sorted(dict.fromkeys(sources), key=lambda n: facts.numbers.get(n, 0))
    for stage in (reader, *map(state.stage, wanted)):
        definition = facts.definitions[stage.name]
        if stage.scan is not None or not isinstance(definition, Define):
            raise refuse(reader, f"expected plain definitions outside of scans to clone for {name}, got {stage.name}")
        if not _is_plain(state, stage):
            raise refuse(reader, f"expected plain loops of {stage.name} to clone it, got changed ones", hint="clone first")
    for source in wanted:
        readers = set(facts.readers.get(source, ()))
        if not readers & {name, *wanted}:
            raise refuse(reader, f"expected a definition that {name} or another clone reads, got {source}, which they do not")
        if readers <= {name, *wanted} and source not in state.program.outputs and readers & {name}:
            raise refuse(reader, f"expected a definition that others read, too, to clone it for {name}, got {source}")
    taken = {*facts.shapes, *facts.definitions, *state.program.sizes}
    copies: dict[str, str] = {}
    for source in wanted:
        copies[source] = fresh_name(f"{source}_again", taken)
        taken.add(copies[source])

    def visit(node: Expr) -> Expr:
        return replace(node, tensor=copies[node.tensor]) if isinstance(node, Access) and node.tensor in copies else node

    def anew(source: str) -> Define:
        made = map_expressions(facts.definitions[source], lambda e: bottom_up(e, visit))
        assert isinstance(made, Define)
        return replace(made, name=copies.get(source, source))

    moved = [anew(n) for n in (*wanted, name)]
    rest: list[Definition] = [d for d in state.program.definitions if d.results[0][0] != name]
    number = {n: k for k, d in enumerate(rest) for n, _ in d.results}
    at = min((number[r] for r in facts.readers.get(name, ())), default=len(rest))
    program = replace(state.program, definitions=(*rest[:at], *moved, *rest[at:]))
    fresh = {s.name: s for s in plain_stages(program, frozenset(d.name for d in moved))}
    known = {**state.table, **fresh}
    inner = {n: [s.name for s in state.stages if s.scan == n] for n in state.table}
    order = [n for d in program.definitions for n in (d.results[0][0], *inner.get(d.results[0][0], ())) if n in known]
    order += [n for n in known if n not in order]
    table = {n: known[n] for n in order}
    made = written_anew(state, replace(state, program=program, table=table), "clone")
    for stage in made.stages:
        if stage.place is not None:
            check_placement(made, stage.name)
    return made, tuple(copies[n] for n in wanted)


def _is_plain(state: State, stage: Stage) -> bool:
    """Whether a definition runs by itself, in plain loops."""
    if stage.relations or stage.kinds or stage.place or stage.skewed or stage.order != plain_order(stage.parts):
        return False
    return not state.placed_in(stage.name)
