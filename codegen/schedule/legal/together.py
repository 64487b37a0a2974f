"""Definitions that follow each other and do not depend on each other, element by element or row by row: one parallel region for all.

The update of every variable of an optimizer is such a definition. One at a time, each would be handed to the cores (to a GPU) by itself,
and most are too short for that; together they are one range of work, whatever their shapes. Reductions are left out: they are long
enough by themselves, or what follows waits for them.
"""

from __future__ import annotations

from tensorexpr.codegen.schedule.analysis.state import Stage, State, definition_named
from tensorexpr.ir import Define
from tensorexpr.traversal import reads

MOST_ARRAYS = 480
"""Arrays of one region: a GPU takes 4,096 bytes of arguments."""


def side_by_side(state: State) -> list[list[str]]:
    """The definitions whose loops are one parallel region, in program order."""
    found: list[list[str]] = [[]]
    made: set[str] = set()
    constants = {c.name for c in state.program.constants}
    scalars: set[str] = set()
    arrays: set[str] = set()
    for definition in state.program.definitions:
        name = definition.results[0][0]
        stage = state.table.get(name)
        if stage is None and made & set(reads(definition)):
            made |= {n for n, _ in definition.results}  # who reads these waits as well
        if stage is None or stage.place is not None:
            continue
        stages = (stage, *state.placed_in(name))
        members = {each.name for each in stages}
        read = {n for member in members for n in reads(definition_named(state.program, member))}
        early = read and constants.issuperset(read)  # no call makes what needs constants alone (`nest.early`), if it stands by itself
        able, waits = not early and all(_is_able(state, each) for each in stages), made & read
        if not stage.order:
            waits -= scalars  # those run one after the other
        if not able or waits or (state.target.is_gpu and len(arrays | read | members) > MOST_ARRAYS):
            found.append([])
            made, scalars, arrays = set(), set(), set()
        if able:
            found[-1].append(name)
            made |= members
            scalars |= set() if stage.order else {name}
            arrays |= read | members
    return [group for group in found if len(group) > 1]


def _is_able(state: State, stage: Stage) -> bool:
    """Whether a definition may run beside others."""
    plain = isinstance(definition_named(state.program, stage.name), Define) and stage.scan is None
    return plain and not (stage.parts.groups or stage.cached)
