"""Definitions that a primitive writes anew: what was said of them before stays, or the primitive is refused.

`inline`, `stage`, `rfactor` and their like change what a definition computes, and its loops are plain again. What it runs beside is kept,
and checked again, for it may read something else now. What depends on its loops (what is computed in them, copied in them, runs as an
instruction) would be lost, so it has to be said later.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorexpr.codegen.schedule.analysis.state import Stage, State
from tensorexpr.codegen.schedule.legal.alongside import depends_on, groups
from tensorexpr.codegen.schedule.legal.legality import refuse
from tensorexpr.records import replace


def written_anew(before: State, after: State, word: str) -> State:
    """The state after a primitive, called `word`, has made some stages anew, with what was said of these before it.

    Raises `ScheduleError` where that says something of loops that are gone, or no longer holds.
    """
    changed = [stage for name, stage in before.table.items() if after.table.get(name) is not stage]
    names = {stage.name for stage in changed}
    table = dict(after.table)
    for guest in before.stages:
        if guest.place is not None and guest.place.stage in names:
            raise _said(before.stage(guest.place.stage), f"{guest.name} computed in {guest.place.loop}", word)
        if guest.alongside in names and guest.alongside not in table:
            raise _said(before.stage(guest.alongside), f"{guest.name} running beside them", word)
    for stage in changed:
        for found in _of_loops(stage) if stage.name in table else ():
            raise _said(stage, found, word)
    for stage in changed:
        fresh = table.get(stage.name)
        if fresh is not None:
            table[stage.name] = replace(fresh, alongside=stage.alongside)
    made = replace(after, table=table)
    _check_beside(made, names, word)
    return made


def _said(stage: Stage, found: str, word: str) -> Exception:
    return refuse(
        stage, f"expected loops of {stage.name} that nothing depends on, for they are made anew, got {found}", hint=f"{word} first"
    )


def _of_loops(stage: Stage) -> Iterator[str]:
    """What was said of the loops of a stage, in words."""
    yield from (f"{loop} pipelined" for loop, _ in stage.ahead)
    yield from (f"{tensor} copied in {loop}" for loop, tensor, _ in stage.cached)
    yield from (f"elements owned along {axis}" for axis in stage.owners)


def _check_beside(state: State, changed: set[str], word: str) -> None:
    """Raises where a definition that was changed depends on one that it runs beside."""
    for names in (names for names in groups(state) if changed & {*names}):
        for one in names:
            for other in names:
                if one != other and _hangs(state, one, other):
                    raise refuse(
                        state.stage(one), f"expected {one} not to wait for {other}, which it runs beside, got a read", hint=f"{word} first"
                    )


def _hangs(state: State, name: str, other: str) -> bool:
    """Whether a definition that runs alongside another depends on it; those without loops run in order."""
    return bool(state.stage(name).order or state.stage(other).order) and depends_on(state, name, other)
