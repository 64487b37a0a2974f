"""Definitions that run side by side: their outermost loops are one parallel region, though none reads the other."""

from __future__ import annotations

from collections.abc import Callable

from tensorexpr.codegen.schedule.analysis.state import State, definition_named, program_facts
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Define
from tensorexpr.records import replace


def alongside(state: State, name: str, other: str, refuse: Callable[..., ScheduleError]) -> State:
    """rewrite: kernel P: [i: parallel, ...]; kernel C: [j: parallel, ...] --> one kernel: the iterations of i and of j in any order.

    For definitions that do not depend on each other: all cores meet once for both, and a GPU is asked once. How long the loops are does not
    matter. Definitions without loops are one iteration, in order, so they may depend on each other; several can run alongside one. The
    region stands where the last of them stands; one that something before it waits for stays a kernel of its own.
    """
    stage, host = state.stage(name), state.stage(other)
    if name == other:
        raise refuse(stage, f"expected another definition to run {name} alongside, got itself")
    for each in (stage, host):
        definition = definition_named(state.program, each.name)
        if not isinstance(definition, Define) or each.scan is not None or each.place is not None:
            raise refuse(stage, f"expected plain definitions with loops of their own to run side by side, got {each.name}")
    if host.alongside is not None:
        raise refuse(
            stage, f"expected the first of those that run side by side, got {other}", hint=f"{other} runs alongside {host.alongside}"
        )
    if any(s.alongside == name for s in state.stages):
        raise refuse(stage, f"expected a definition that nothing runs alongside yet, got {name}")
    for member in (other, *(s.name for s in state.stages if s.alongside == other and s.name != name)):
        if not stage.order and not state.stage(member).order:
            continue
        if depends_on(state, name, member) or depends_on(state, member, name):
            raise refuse(stage, f"expected definitions that do not depend on each other, got {name} and {member}")
    return state.with_stage(replace(stage, alongside=other))


def depends_on(state: State, name: str, other: str) -> bool:
    """Whether a definition, or what is computed in its loops, reads another or what is computed there, itself or through others."""
    facts = program_facts(state.program)
    wanted = {other, *(m.name for m in state.placed_in(other))}
    first = min(facts.numbers.get(n, 0) for n in wanted)
    todo, seen = [name, *(m.name for m in state.placed_in(name))], set()
    while todo:
        current = todo.pop()
        for read in facts.producers.get(current, ()):
            if read in wanted:
                return True
            if read not in seen and facts.numbers.get(read, -1) > first:
                seen.add(read)
                todo.append(read)
    return False


def groups(state: State) -> list[list[str]]:
    """The definitions that run side by side, in program order."""
    found: dict[str, list[str]] = {}
    for stage in state.stages:
        if stage.alongside is not None:
            found.setdefault(stage.alongside, []).append(stage.name)
    order = {name: k for k, name in enumerate(state.table)}
    return [sorted((n for n in (host, *names) if n in order), key=order.__getitem__) for host, names in found.items()]
