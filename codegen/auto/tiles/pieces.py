"""Where a loop is worth more as several: a choice inside depends on its index alone, so that each piece computes one branch of it.

    for e in range(0, 64):                                      for e in range(0, 32):
        y[e] = where(e < 32, x[e] - x[e + 32], x[e - 32])  -->      y[e] = x[e] - x[e + 32]
                                                                for e in range(32, 64):
                                                                    y[e] = x[e - 32]

Lanes compute both branches, and what they read is no longer side by side. A piece has a vector of iterations at least, for borders are cut
later, between whole tiles (`making`); of a few iterations each is one, so that loops around have lanes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tensorexpr.codegen.auto.candidate import Candidate
from tensorexpr.codegen.auto.moves import move_of
from tensorexpr.codegen.lowering.context.arithmetic import constant, sub
from tensorexpr.codegen.nest import For, LoopNest
from tensorexpr.codegen.nest.walks import buffers_written, stores_in
from tensorexpr.codegen.rewrites.cuts import cuts_of, statements_of, tests_in
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.paths import walk_kernel
from tensorexpr.errors import ScheduleError
from tensorexpr.traversal import free_names

LEAST = 16
"""Iterations of a piece: a vector of the widest machines."""
FEW = 4
"""Iterations of a loop that is cut into all of them: components of points, colours and quaternions."""
MOST = 64
"""Statements of a kernel in pieces: those of a loop stand as often as it has pieces, and the search's time grows with them."""


def cut_up(candidate: Candidate, kernel: int) -> Candidate:
    """The candidate with the loops of a kernel cut at the choices inside, from the outermost in."""
    names = dict.fromkeys(s.index for _, s in walk_kernel(candidate.nest, kernel) if isinstance(s, For))
    made = candidate
    for name in names:
        at = _points(made.nest, name, kernel)
        if at:
            stored = sorted(buffers_written(made.nest.kernels[kernel].body))
            cut = _with_stores_behind(made, name, kernel).then("partition", name, at).then("simplify", *stored)
            if len(cut.nest.kernels) == len(made.nest.kernels) and statements_of(cut.nest.kernels[kernel].body) <= MOST:
                made = cut
    return made


def _with_stores_behind(made: Candidate, name: str, kernel: int) -> Candidate:
    """The candidate with a loop over residue classes taken apart, so that its pieces store side by side, behind what they compute."""
    loops = [s for _, s in walk_kernel(made.nest, kernel) if isinstance(s, For)]
    stores = [store.indices[-1] for s in loops if s.index == name for store in stores_in(s.body) if store.indices]
    steps = [move_of(index, {}).steps for index in stores]
    lengths = [constant(sub(s.stop, s.start)) for s in loops if s.index == name]
    if not any(own.get(name) == 1 and length in own.values() for own in steps for length in lengths if length and length > 1):
        return made
    try:
        return made.then("distribute", name)
    except ScheduleError:
        return made


def _points(nest: LoopNest, name: str, kernel: int) -> tuple[int, ...]:
    """Where all copies of a loop are cut; nowhere where one of them is not to be."""
    found: dict[int, None] = {}
    for start, stop, points in _cuts(nest, name, kernel):
        if start is None or stop is None:
            return ()
        least = 1 if stop - start <= FEW else LEAST
        inside = [n for n in points if start + least <= n <= stop - least]
        if any(b - a < least for a, b in pairwise(inside)):
            return ()
        found.update(dict.fromkeys(inside))
    return tuple(sorted(found))


def points_of(nest: LoopNest, name: str, kernel: int) -> tuple[int, ...]:
    """Where tests of a loop's index alone change: what is asked of others beside it stays."""
    return tuple(sorted({n for _, _, points in _cuts(nest, name, kernel) for n in points}))


def _cuts(nest: LoopNest, name: str, kernel: int) -> Iterator[tuple[int | None, int | None, list[int]]]:
    """The ends of each copy of a loop, where these are known, and the points between them at which tests of its index alone change."""
    for path, s in walk_kernel(nest, kernel):
        if isinstance(s, For) and s.index == name:
            start, stop, facts = constant(s.start), constant(s.stop), Facts.at(nest, path)
            own = (test for test, _, _ in tests_in(s.body, facts.loop(name, s.start, s.stop)) if free_names(test) == (name,))
            cuts = {n for cut in cuts_of(s, facts, frozenset(own))[0] if (n := constant(cut.point)) is not None}
            yield start, stop, sorted(n for n in cuts if (start is None or start < n) and (stop is None or n < stop))
