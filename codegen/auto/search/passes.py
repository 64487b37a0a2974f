"""One pass over what several kernels read: groups along an axis, in blocks, with the sums along it taken apart.

    for i_o in range(0, n // 32):                            a block of rows is near while all of them go through it
        dx: of 32 rows
        parts[i_o, :] = sum of 32 rows of h[i, :] * x[i, :]
    dw = sum of parts

The loops of the members over the rows of a block are one, whose iterations do the work of all of them, with a row of accumulators for each
sum; where they cannot be, the members follow each other in a block. The last block is shorter where blocks leave a rest: one loop has
tiles, several in a row have none. How many blocks there are follows from extents and from the machine's caches, not from its cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tensorexpr.codegen.auto.candidate import Candidate
from tensorexpr.codegen.auto.machine import Facts
from tensorexpr.codegen.auto.search.groups import Group, Member, extent_of, kernel_of, merged, outermost, with_producers
from tensorexpr.codegen.auto.search.repeated import kept
from tensorexpr.codegen.lowering.context.arithmetic import constant
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.rewrites.names import fresh
from tensorexpr.errors import ScheduleError
from tensorexpr.records import record

MOST_BLOCKS, LEAST_BLOCKS = 256, 32
"""Blocks of an axis: enough for cores of a large machine; parts of more are a sum of their own."""


@record
class _Run:
    """A member in blocks: the loop over them, that in one (None where a block is one iteration), and other loops of its own."""

    member: Member
    outer: str
    inner: str | None
    others: tuple[str, ...]


def in_passes(part: Candidate, group: Group, block: int) -> Iterator[Candidate]:
    """The ways to compute a group in blocks of so many iterations of its axis."""
    try:
        made, runs = _in_blocks(part, group, block)
        made = _one_loop(made, runs)
    except ScheduleError:
        return
    outer, inner = runs[0].outer, runs[0].inner
    if inner is not None:
        try:
            one = _one_inner_loop(made, runs)
        except ScheduleError:
            pass
        else:
            yield _dealt(kept(with_producers(one, group, (inner, outer)), inner), outer)
            return
    yield _dealt(kept(with_producers(made, group, (outer,)), outer), outer)


def _dealt(made: Candidate, outer: str) -> Candidate:
    """The candidate with its blocks on all cores, where that is legal: tiles are in them then, not across."""
    try:
        return made.then("parallel", outer)
    except ScheduleError:
        return made


def block_of(nest: LoopNest, group: Group, facts: Facts) -> int:
    """Iterations of a block: what they touch is near, half of the second cache, and there are blocks enough for cores."""
    assert group.axis is not None
    extent = extent_of(group.axis)
    touched = {name for member in group.members for name in (*member.reads, *member.stored)}
    buffers = [b for b in (*nest.parameters, *nest.workspace) if b.name in touched]
    whole = sum(prod(constant(e) or extent for e in b.shape) * b.dtype.itemsize for b in buffers)
    row = max(1, whole // extent)
    most = max(1, min(facts.caches[1] // 2 // row, extent // LEAST_BLOCKS))
    return 1 << (max(most, -(-extent // (MOST_BLOCKS << 4))).bit_length() - 1)


def _in_blocks(part: Candidate, group: Group, block: int) -> tuple[Candidate, list[_Run]]:
    """The candidate with every member but producers in blocks, and sums taken apart, what adds up their parts behind all others."""
    assert group.axis is not None
    made, runs = part, []
    for member in group.members:
        if member is not group.root and member.number not in group.beside:
            continue
        loop = group.along[member.number][group.axis.index][0]
        names = tuple(s.index for s in member.loops)
        if loop in names:
            made = outermost(made, names, (loop,))
        outer, inner = loop, None
        if block > 1:
            outer, inner = fresh(made.nest, f"{loop}_o", f"{loop}_i")
            made = made.then("split", loop, block, "guard", (outer, inner))
            if extent_of(group.axis) % block:
                made = made.then("partition", inner).then("simplify", *member.stored)
        others = tuple(name for name in names if name != loop)
        if member.number in group.sums:
            assert member.reduction is not None
            others = tuple(fresh(made.nest, *others)) if others else ()
            made = made.then("separate", member.reduction[1], outer)
        runs.append(_Run(member, outer, inner, others))
    for run in runs:
        if run.member.number in group.sums:
            (name,) = (n for n in run.member.stored if kernel_of(made.nest, n) is not None)
            number = kernel_of(made.nest, name)
            if number != len(made.nest.kernels) - 1:
                made = made.then("move_kernel", number, len(made.nest.kernels) - 1)
    return made, runs


def _one_loop(made: Candidate, runs: list[_Run]) -> Candidate:
    """The candidate with one loop over blocks; it has the name of the first one's."""
    host = runs[-1].outer
    for run in reversed(runs[:-1]):
        made, host = merged(made, (run.outer,), (host,)), run.outer
    return made


def _one_inner_loop(made: Candidate, runs: list[_Run]) -> Candidate:
    """The candidate with one loop over the rows of a block, and in it one over their elements where loops over these are alike."""
    for run in runs:
        if run.inner is not None and run.others:
            made = outermost(made, (*run.others, run.inner), (run.inner,))
    host = runs[-1]
    for run in reversed(runs[:-1]):
        assert run.inner is not None and host.inner is not None
        made = made.then("merge", run.inner, host.inner)
        for one, other in zip(run.others, host.others, strict=False):
            try:
                made = made.then("merge", one, other)
            except ScheduleError:
                break
        host = run
    return made
