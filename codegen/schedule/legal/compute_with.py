"""Definitions that run in the same loops as another: one pass over what both read, though none reads the other."""

from __future__ import annotations

from collections.abc import Callable

from tensorexpr.codegen.schedule.analysis.state import State, definition_named, program_facts
from tensorexpr.codegen.schedule.legal.alongside import depends_on
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Define
from tensorexpr.records import replace


def compute_with(state: State, name: str, other: str, refuse: Callable[..., ScheduleError]) -> State:
    """rewrite: for i: P[i] = e; for i: C[i] = f --> for i: { P[i] = e; C[i] = f }, and so on inside, as far as loops have the same bounds.

    For definitions that do not depend on each other any order of their iterations is right: what both read is near, and what both
    compute of it is computed once. Loops of the same bounds and kind become one, from the outermost inwards, those of data and of
    reductions alike; what stands beside them runs in order. A definition may read an earlier one, or what is computed in the loops of that,
    where each iteration has made what it reads; what nothing else reads is then stored nowhere. Where that is not so, where something
    between two definitions waits for one of them, or where no loops are alike, each keeps its own.
    """
    stage, host = state.stage(name), state.stage(other)
    if name == other:
        raise refuse(stage, f"expected another definition to compute {name} with, got itself")
    if state.target.is_gpu:
        raise refuse(stage, f"expected a CPU as the target to run {name} in the loops of {other}, got a GPU")
    for each in (stage, host):
        definition = definition_named(state.program, each.name)
        if not isinstance(definition, Define) or each.scan is not None or each.place is not None:
            raise refuse(stage, f"expected plain definitions with loops of their own to run in the same ones, got {each.name}")
    if host.joins is not None:
        raise refuse(stage, f"expected the first of those in the same loops, got {other}", hint=f"{other} runs in those of {host.joins}")
    if any(s.joins == name for s in state.stages):
        raise refuse(stage, f"expected a definition that nothing is computed with yet, got {name}")
    for member in (other, *(s.name for s in state.stages if s.joins == other and s.name != name)):
        if waits(state, name, member) or waits(state, member, name):
            raise refuse(stage, f"expected nothing between {name} and {member} that one waits for and that waits for the other, got some")
    return state.with_stage(replace(stage, joins=other))


def waits(state: State, name: str, other: str) -> bool:
    """Whether a definition depends on another through more than reading it, or what is computed in its loops."""
    if not depends_on(state, name, other):
        return False
    inside = {other, *(m.name for m in state.placed_in(other))}
    own = (name, *(m.name for m in state.placed_in(name)))
    producers = program_facts(state.program).producers
    read = {n for m in own for n in producers.get(m, ()) if n not in inside and n not in own}
    return any(n in producers and depends_on(state, n, other) for n in sorted(read))


def joined_groups(state: State) -> list[list[str]]:
    """The definitions that run in the same loops, in program order."""
    found: dict[str, list[str]] = {}
    for stage in state.stages:
        if stage.joins is not None:
            found.setdefault(stage.joins, []).append(stage.name)
    order = {name: k for k, name in enumerate(state.table)}
    return [sorted((n for n in (host, *names) if n in order), key=order.__getitem__) for host, names in found.items()]
