"""The primitive `stream`: results written past the caches."""

from __future__ import annotations

from tensorexpr.codegen.schedule.legality import refuse
from tensorexpr.codegen.schedule.state import State, definition_named, program_facts
from tensorexpr.ir import Define, Scan
from tensorexpr.records import replace


def stream(state: State, name: str) -> State:
    """rewrite: C[...] = e, in the caches --> C[...] = e, past the caches: for an output that nothing reads again.

    Memory is not read before it is written then, and what the caches hold stays there.
    """
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
