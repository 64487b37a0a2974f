"""The primitive `inline`: a definition computed where it is read, and stored nowhere."""

from __future__ import annotations

from tensorexpr.codegen.schedule.analysis.state import State, all_definitions, plain_order, plain_stages
from tensorexpr.codegen.schedule.legal.anew import written_anew
from tensorexpr.codegen.schedule.legal.legality import refuse
from tensorexpr.errors import DefinitionError, ScheduleError
from tensorexpr.ir import Program
from tensorexpr.records import replace
from tensorexpr.simplify.passes.inline import inline_definitions


def inline(state: State, names: tuple[str, ...]) -> State:
    """rewrite: P[i] = e; C = ... P[f] ... --> C = ... e[i := f] ...: P is computed where it is read, and never stored.

    Its own stage goes away.
    """
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
    changed = with_program(state, program, names, "inline")
    return replace(changed, inlined=(*state.inlined, *names))


def with_program(state: State, program: Program, names: tuple[str, ...], word: str) -> State:
    """The state with definitions changed by the primitive `word`, whose loops must be plain and then are so again."""
    old = state.table
    before = {d.results[0][0]: d for d in all_definitions(state.program)}
    after = {d.results[0][0]: d for d in all_definitions(program)}
    changed = frozenset(n for n, d in after.items() if before[n] is not d)
    if any(not changed.isdisjoint((*one.names, *one.readers)) for one in state.sweeps):
        raise ScheduleError(f"expected definitions that no sweep reads to inline, got {', '.join(names)}", hint="inline first")
    for name in changed & set(old):
        known = old[name]
        if known.relations or known.kinds or known.place or known.skewed or known.order != plain_order(known.parts):
            raise refuse(known, f"expected plain loops of {name}, which reads what is inlined, got changed ones", hint="inline first")
    fresh = {s.name: s for s in plain_stages(program, changed)}
    table = {s.name: fresh.get(s.name, s) for s in state.stages if s.name in after}
    return written_anew(state, replace(state, program=program, table=table), word)
