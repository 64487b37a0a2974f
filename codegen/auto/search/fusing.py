"""The nests of one group: its members computed in shared loops of the root, over single iterations or over blocks.

for j_o in range(0, n // 64):               lanes go along the blocks: what is read at neighbouring j lies side by side
    max, sum: of 64 neighbouring j
    y[:, 64 neighbouring j]
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorexpr.codegen.auto.candidate import Candidate
from tensorexpr.codegen.auto.search.groups import Group, extent_of
from tensorexpr.codegen.auto.search.repeated import kept
from tensorexpr.codegen.nest import For
from tensorexpr.codegen.rewrites.names import fresh
from tensorexpr.codegen.rewrites.paths import walk_nest
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.errors import ScheduleError

BLOCK = 128
"""Iterations of a shared loop whose neighbours lie side by side, computed at once: of four bytes each they are a few registers, and eight
lines of each row, from which on fetching ahead pays."""


def fused(part: Candidate, group: Group) -> Iterator[Candidate]:
    """The ways to compute a group in shared loops of its root."""
    shared, last = group.shared, _last_axis(group)
    if not shared:
        return
    rows = tuple(name for name in shared if name != last)
    if rows:
        yield from _in(part, group, rows, None)
    if last in shared:
        yield from _in(part, group, (*rows, last), BLOCK)


def _last_axis(group: Group) -> str | None:
    """The loop of the root that goes along the last axis of what it stores."""
    for places in group.root.stored.values():
        if places and places[-1] is not None:
            return places[-1][0]
    return None


def _in(part: Candidate, group: Group, shared: tuple[str, ...], block: int | None) -> Iterator[Candidate]:
    try:
        made = outermost(part, tuple(loop.index for loop in group.root.loops), shared)
        at = shared[-1]
        if block is not None:
            made, at = _in_blocks(made, at, block)
    except ScheduleError:
        return
    for member in reversed(group.members[:-1]):
        for name in member.stored:
            if any(name == b.name for b in (*made.nest.workspace, *made.nest.parameters)):
                try:
                    made = made.then("fuse_at", name, at)
                except ScheduleError:
                    continue
    yield kept(made, at)


def outermost(made: Candidate, loops: tuple[str, ...], first: tuple[str, ...]) -> Candidate:
    """The candidate with some of the loops around a statement outside of the others."""
    order = (*first, *(name for name in loops if name not in first))
    return made if order == loops or len(order) < 2 else made.then("reorder", *order)


def _in_blocks(made: Candidate, loop: str, block: int) -> tuple[Candidate, str]:
    """The candidate with a loop in blocks, and the loop over these."""
    lengths = [extent_of(s) for _, s in walk_nest(made.nest) if isinstance(s, For) and s.index == loop]
    if not lengths or not max(lengths):
        raise refuse(f"expected iterations of {loop} to take in blocks", loop=loop)
    block = min(block, max(lengths))
    names = fresh(made.nest, f"{loop}_o", f"{loop}_i")
    return made.then("split", loop, block, "peel", names), names[0]
