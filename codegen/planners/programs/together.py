"""Definitions that follow each other and do not depend on each other, element by element or row by row: one parallel region for all.

The update of every variable of an optimizer is such a definition. One at a time, each would be handed to the cores (to a GPU) by itself,
and most are too short for that; together they are one range of work, whatever their shapes. Reductions are left out: they are long
enough by themselves, or what follows waits for them.
"""

from __future__ import annotations

from tensorexpr.codegen.schedule.analysis.state import definition_named
from tensorexpr.codegen.schedule.analysis.work import total_work
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Define
from tensorexpr.traversal import reads

MOST_ARRAYS = 480
"""Arrays of one region: a GPU takes 4,096 bytes of arguments."""


def run_together(s: Planned, parallel_work: int) -> None:
    """Runs neighbors side by side, in parallel where there is `parallel_work` of all of them."""
    program = s.state.program
    group: list[str] = []
    made: set[str] = set()
    constants = {c.name for c in program.constants}
    scalars: set[str] = set()
    arrays: set[str] = set()
    for definition in program.definitions:
        name = definition.results[0][0]
        stage = s.state.table.get(name)
        if stage is None or stage.place is not None:
            continue
        members = (name, *(m.name for m in s.state.placed_in(name)))
        read = {n for m in members for n in reads(definition_named(program, m))}
        early = read and constants.issuperset(read)  # no call makes what needs constants alone (`nest.early`), if it stands by itself
        able, waits = not early and _is_able(s, name), made & read
        if not stage.order:
            waits -= scalars  # those run one after the other
        if group and (not able or waits or (s.target.is_gpu and len(arrays | read | set(members)) > MOST_ARRAYS)):
            _joined(s, group, parallel_work)
            group, made, scalars, arrays = [], set(), set(), set()
        if able:
            group.append(name)
            made |= set(members)
            scalars |= set() if stage.order else {name}
            arrays |= read | set(members)
    _joined(s, group, parallel_work)


def _is_able(s: Planned, name: str) -> bool:
    """Whether a definition, with what is computed in its loops, can be run beside others; not one that runs in the loops of another."""
    for each in (s.state.stage(name), *s.state.placed_in(name)):
        definition = definition_named(s.state.program, each.name)
        if not isinstance(definition, Define) or each.parts.groups or each.scan is not None or each.alongside is not None:
            return False
        if each.cached or each.ahead:
            return False
    return True


def _joined(s: Planned, group: list[str], parallel_work: int) -> None:
    """Runs the definitions of a group side by side."""
    if len(group) < 2:
        return
    work = sum(total_work(m.parts) for name in group for m in (s.state.stage(name), *s.state.placed_in(name)))
    first, *rest = group
    many = s.target.is_gpu or work >= parallel_work  # also on one core: loops that are equal are one function then
    for name in rest:
        before = s.state
        try:
            if s.decisions.wanted(f"{name}: alongside {first}"):
                s[name].alongside(first)
        except ScheduleError:
            s.state = before
    for name in group if many else ():
        loops = s[name].loops
        if loops and s.state.stage(name).kind(loops[0]) == "serial":
            before = s.state
            try:
                s[name].parallel(loops[0])
            except ScheduleError:
                s.state = before
