"""Sums of one kernel over one range that load the same are one loop, so that what they share is loaded, and computed, once.

for a in range(0, 5): s = s + exp(x[i + a])*x[i + a]        for a in range(0, 5):
for b in range(0, 5): t = t + exp(x[i + b])          -->        s = s + exp(x[i + a])*x[i + a]
                                                                t = t + exp(x[i + a])
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorexpr.codegen.auto.candidate import Candidate
from tensorexpr.codegen.nest import Block, For
from tensorexpr.codegen.nest.walks import behind_declarations, buffers_written, elements_read
from tensorexpr.codegen.rewrites.expressions import substituted
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Index


def in_one_pass(candidate: Candidate, kernel: int) -> Candidate:
    """The candidate with neighbouring loops of a kernel merged where they load the same and may be, from the outermost in."""
    refused: set[tuple[str, str]] = set()
    made = candidate
    while True:
        pairs = (pair for pair in _alike(made.nest.kernels[kernel].body) if pair not in refused)
        pair = next(pairs, None)
        if pair is None:
            break
        try:
            made = made.then("merge", *pair)
        except ScheduleError:
            refused.add(pair)
    if made is candidate:
        return candidate
    # In one form, so that equal terms are seen to be equal.
    return made.then("simplify", *sorted(buffers_written(made.nest.kernels[kernel].body)))


def _alike(block: Block) -> Iterator[tuple[str, str]]:
    """Loops of a block, with a later one over the same range that loads an element which they load."""
    loops = [s for s in behind_declarations(block) if isinstance(s, For)]
    for n, one in enumerate(loops):
        for other in loops[n + 1 :]:
            if other.index != one.index and _go_together(one, other):
                yield one.index, other.index
    for loop in loops:
        yield from _alike(loop.body)


def _go_together(one: For, other: For) -> bool:
    if one.start != other.start or one.stop != other.stop or one.kind != other.kind:
        return False
    return not _loaded(one.body).isdisjoint(_loaded(substituted(other.body, {other.index: Index(one.index)})))


def _loaded(block: Block, depth: int = 0) -> set[Access]:
    """The elements that a block loads, with the indices of loops inside by how deep these are."""
    found: set[Access] = set()
    for s in behind_declarations(block):
        if isinstance(s, For):
            found |= _loaded(substituted(s.body, {s.index: Index(str(depth))}), depth + 1)
        else:
            found.update(elements_read((s,)))
    return found
