"""Kernels that do not wait for each other (`schedule.legal.together`) as one: their parallel loops are those of one parallel region.

    kernel a: for i in parallel(n): A      kernel b: for j in parallel(m): B
    -->  one kernel, in which the iterations of both loops run in any order

On a CPU all cores meet once for them, on a GPU they are one launch. Kernels that have no loops, a few statements each, are one iteration
together; kernels whose loops all are serial follow each other in one. The region stands where the last of them stood, so one that what
lies between waits for stays a kernel of its own. So does one that checks for those behind it: its checks come before their reads.

    for i in parallel(n): a[i] = f(x[i])    for i in parallel(n): b[i] = g(x[i])
    -->  for i in parallel(n): a[i] = f(x[i]); b[i] = g(x[i])

On a CPU those that go through one array in the same loops are one loop, which loads each element, and computes what they share of it, once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorexpr.codegen.lowering.context.arithmetic import ONE, ZERO
from tensorexpr.codegen.lowering.kernels.merging import in_one
from tensorexpr.codegen.nest import Block, Check, For, Kernel, Stmt, Store
from tensorexpr.codegen.nest.walks import elements_read, inside, loops_in, statements, touched_in, written
from tensorexpr.records import record

NAMED = 4
"""Kernels that the name of a region mentions."""
MOST_STREAMS = 16
"""Arrays that one loop goes through: beyond it their pages and cache lines drive each other out."""


@record
class _Member:
    """A kernel with what it touches and what it writes."""

    number: int
    kernel: Kernel
    touched: frozenset[str]
    written: frozenset[str]

    def waits(self, other: _Member) -> bool:
        """Whether one of the two writes what the other touches."""
        return not self.written.isdisjoint(other.touched) or not other.written.isdisjoint(self.touched)

    @property
    def is_loop(self) -> bool:
        """Whether it is one parallel loop."""
        (first, *rest) = self.kernel.body or (None,)
        return isinstance(first, For) and first.kind == "parallel" and not rest

    @property
    def is_serial(self) -> bool:
        return all(s.kind in ("serial", "vectorize", "unroll") for s in loops_in(self.kernel.body))

    @property
    def checks_ahead(self) -> bool:
        """Whether checks stand outside of its loops: what they are for may be read by kernels behind it."""
        return any(map(_checks, self.kernel.body))


def run_together(
    kernels: Sequence[Kernel], groups: Sequence[Sequence[int]], fresh: Callable[[str], str], marked: bool = False
) -> tuple[Kernel, ...]:
    """The kernels with each of some groups (by numbers, in order) as one, as far as they do not wait for each other; with `marked` what
    is one loop says so as well, for the search that makes threads of it."""
    found = [_Member(k, kernel, frozenset(touched_in(kernel.body)), frozenset(written(kernel.body))) for k, kernel in enumerate(kernels)]
    placed: dict[int, Kernel] = {}
    gone: set[int] = set()
    for group in groups:
        members = _members(found, [found[k] for k in group])
        if len(members) > 1:
            gone |= {m.number for m in members}
            placed[members[-1].number] = _region(members, fresh, marked)
    return tuple(placed.get(m.number, m.kernel) for m in found if m.number in placed or m.number not in gone)


def _members(kernels: Sequence[_Member], group: Sequence[_Member]) -> list[_Member]:
    """Those of a group that can run in one region at the place of its last."""
    able = [m for m in group if m.is_loop or (m.is_serial and not m.checks_ahead)]
    taken = able[-1:]
    for member in reversed(able[:-1]):
        numbers = {m.number for m in taken}
        between = (k for k in kernels[member.number + 1 : taken[0].number] if k.number not in numbers)
        # What runs in one iteration runs in order.
        beside = (m for m in taken if member.is_loop or m.is_loop)
        if not any(map(member.waits, between)) and not any(map(member.waits, beside)):
            taken.append(member)
    return sorted(taken, key=lambda m: m.number)


def _region(members: Sequence[_Member], fresh: Callable[[str], str], marked: bool) -> Kernel:
    names = [m.kernel.name for m in members]
    name = " ".join(names) if len(names) <= NAMED else f"{' '.join(names[:NAMED])} and {len(names) - NAMED} more"
    loops: list[Stmt] = _in_step([m.kernel.body[0] for m in members if m.is_loop])
    alone: Block = tuple(s for m in members if not m.is_loop for s in m.kernel.body)
    if not loops:
        return Kernel(name, alone)
    if alone:
        loops.append(For(fresh("once"), ZERO, ONE, alone, "parallel"))
    return Kernel(name, tuple(loops), together=marked or len(loops) > 1)


def _in_step(loops: Sequence[Stmt]) -> list[Stmt]:
    """Loops that wait for none of the others, with those that go through one array in step as one."""
    made: list[Stmt] = []
    for s in loops:
        for at, other in enumerate(made):
            if (one := _as_one(other, s)) is not None:
                made[at] = one
                break
        else:
            made.append(s)
    return made


def _as_one(a: Stmt, b: Stmt) -> Stmt | None:
    """Two loops as one, where all loops inside are pairs, nothing is summed up, and what both load of an array is the same elements."""
    found = in_one(a, b)
    if found is None or len(touched_in((found,))) > MOST_STREAMS:
        return None
    stores = [s for s in statements((found,)) if isinstance(s, Store)]
    if any(s.buffer == n.tensor for s in stores for n in elements_read((s,))):
        return None
    mine = written((a,))
    one, other = ({n for s in stores if (s.buffer in mine) == first for n in elements_read((s,)) if n.indices} for first in (True, False))
    return None if one.isdisjoint(other) else found


def _checks(s: Stmt) -> bool:
    return isinstance(s, Check) or (not isinstance(s, For) and any(map(_checks, inside(s))))
