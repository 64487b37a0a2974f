"""Kernels of a group as one: brought next to each other, and their loops merged from the outside in.

for i in range(0, n): a[i] = ...                for i in range(0, n):
for i_1 in range(0, n): b[i_1] = ...    -->         a[i] = ...
                                                    b[i] = ...
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorexpr.codegen.auto.candidate import Candidate
from tensorexpr.codegen.auto.search.groups import Group
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.nest.walks import stores_in
from tensorexpr.codegen.rewrites.paths import loop_paths
from tensorexpr.errors import ScheduleError


def outermost(made: Candidate, loops: tuple[str, ...], first: tuple[str, ...]) -> Candidate:
    """The candidate with some of the loops around a statement outside of the others."""
    order = (*first, *(name for name in loops if name not in first))
    return made if order == loops or len(order) < 2 else made.then("reorder", *order)


def merged(made: Candidate, loops: Sequence[str], others: Sequence[str]) -> Candidate:
    """The candidate with the loops of one kernel around those of one behind it, pair by pair. Raises `ScheduleError` where it cannot be."""
    first, second = (loop_paths(made.nest, names[0])[0][0] for names in (loops, others))
    if first < second - 1:
        made = made.then("move_kernel", first, second - 1)
    if first < second:
        made = made.then("merge_kernels", second - 1)
    for one, other in zip(loops, others, strict=True):
        made = made.then("merge", one, other)
    return made


def with_producers(made: Candidate, group: Group, loops: tuple[str, ...]) -> Candidate:
    """The candidate with what a group's members read alone computed in the first of some loops where that can be."""
    for member in reversed(group.members[:-1]):
        for name in member.stored if member.number not in group.beside else ():
            for at in loops if kernel_of(made.nest, name) is not None else ():
                try:
                    made = made.then("fuse_at", name, at)
                except ScheduleError:
                    continue
                break
    return made


def kernel_of(nest: LoopNest, buffer: str) -> int | None:
    """The number of the kernel that stores to a buffer of the whole program."""
    if not any(buffer == b.name for b in (*nest.workspace, *nest.parameters)):
        return None
    return next((n for n, kernel in enumerate(nest.kernels) if any(s.buffer == buffer for s in stores_in(kernel.body))), None)
