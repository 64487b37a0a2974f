"""The nests of one group: its members computed in shared loops of the root, over single iterations or over blocks.

for j_o in range(0, n // 64):               lanes go along the blocks: what is read at neighbouring j lies side by side
    max, sum: of 64 neighbouring j
    y[:, 64 neighbouring j]

Siblings are merged with the root, loop by loop; producers are computed in the loops that result. `passes` has groups that take sums apart.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorexpr.codegen.auto.candidate import Candidate
from tensorexpr.codegen.auto.machine import Facts
from tensorexpr.codegen.auto.search.groups import Group, Member, extent_of, merged, outermost, with_producers
from tensorexpr.codegen.auto.search.passes import block_of, in_passes
from tensorexpr.codegen.auto.search.repeated import kept
from tensorexpr.codegen.lowering.context.arithmetic import constant, sub
from tensorexpr.codegen.nest import For
from tensorexpr.codegen.rewrites.names import fresh
from tensorexpr.codegen.rewrites.paths import walk_nest
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.errors import ScheduleError

BLOCK = 128
"""Iterations of a shared loop whose neighbours lie side by side, computed at once: of four bytes each they are a few registers, and eight
lines of each row, from which on fetching ahead pays."""


def fused(part: Candidate, group: Group, facts: Facts) -> Iterator[Candidate]:
    """The ways to compute a group in shared loops of its root."""
    if group.axis is not None:
        yield from in_passes(part, group, block_of(part.nest, group, facts))
        return
    shared, last = group.shared, _last_axis(group)
    if not shared:
        return
    if group.whole:
        yield from _in(part, group, shared, None)
        return
    rows = tuple(name for name in shared if name != last)
    if rows:
        yield from _in(part, group, rows, None)
    if last in shared:
        whole = next(constant(sub(loop.stop, loop.start)) for loop in group.root.loops if loop.index == last)
        if not rows or whole is None or whole > BLOCK:  # else one block is a row
            yield from _in(part, group, (*rows, last), BLOCK)
        if group.beside:
            yield from _in(part, group, (*rows, last), None)


def _last_axis(group: Group) -> str | None:
    """The loop of the root that goes along the last axis of what it stores."""
    for places in group.root.stored.values():
        if places and places[-1] is not None:
            return places[-1][0]
    return None


def _in(part: Candidate, group: Group, shared: tuple[str, ...], block: int | None) -> Iterator[Candidate]:
    try:
        made = outermost(part, tuple(loop.index for loop in group.root.loops), shared)
        host = shared
        for member in reversed(group.members[:-1]):
            if member.number in group.beside:
                made, host = _with_sibling(made, group, member, shared, host)
        at = host[-1]
        if block is not None:
            made, at = _in_blocks(made, at, block)
    except ScheduleError:
        return
    yield kept(with_producers(made, group, (at,)), at)


def _with_sibling(
    made: Candidate, group: Group, member: Member, shared: tuple[str, ...], host: tuple[str, ...]
) -> tuple[Candidate, tuple[str, ...]]:
    """The candidate with a sibling in the loops of a host, and the names of these loops."""
    own = tuple(group.along[member.number][name][0] for name in shared)
    made = outermost(made, tuple(loop.index for loop in member.loops), own)
    return merged(made, own, host), own


def _in_blocks(made: Candidate, loop: str, block: int) -> tuple[Candidate, str]:
    """The candidate with a loop in blocks, and the loop over these."""
    lengths = [extent_of(s) for _, s in walk_nest(made.nest) if isinstance(s, For) and s.index == loop]
    if not lengths or not max(lengths):
        raise refuse(f"expected iterations of {loop} to take in blocks", loop=loop)
    block = min(block, max(lengths))
    names = fresh(made.nest, f"{loop}_o", f"{loop}_i")
    return made.then("split", loop, block, "peel", names), names[0]
