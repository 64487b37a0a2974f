"""Definitions that a primitive writes anew: what was said of their loops before is not lost, or the primitive is refused.

`inline`, `stage`, `rfactor` and their like change what a definition computes, and its loops are plain again. What depends on its loops
(what is computed in them, copied in them, runs as an instruction) would be lost, so it has to be said later.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorexpr.codegen.schedule.analysis.state import Stage, State
from tensorexpr.codegen.schedule.legal.legality import refuse


def written_anew(before: State, after: State, word: str) -> State:
    """The state `after` a primitive, called `word`, has made some stages anew.

    Raises `ScheduleError` where something was said before it of loops that are gone.
    """
    changed = [stage for name, stage in before.table.items() if after.table.get(name) is not stage]
    names = {stage.name for stage in changed}
    for guest in before.stages:
        if guest.place is not None and guest.place.stage in names:
            raise _said(before.stage(guest.place.stage), f"{guest.name} computed in {guest.place.loop}", word)
    for stage in changed:
        for found in _of_loops(stage) if stage.name in after.table else ():
            raise _said(stage, found, word)
    return after


def _said(stage: Stage, found: str, word: str) -> Exception:
    return refuse(
        stage, f"expected loops of {stage.name} that nothing depends on, for they are made anew, got {found}", hint=f"{word} first"
    )


def _of_loops(stage: Stage) -> Iterator[str]:
    """What was said of the loops of a stage, in words."""
    yield from (f"{tensor} copied in {loop}" for loop, tensor, *_ in stage.cached)
    yield from (f"elements owned along {axis}" for axis in stage.owners)
