"""Accumulators of an argmax or argmin: two buffers, where the best value stands and what it is, that change together.

    if found[()] < 0 or x[k] > best[()]:
        found[()] = k
        best[()] = x[k]

Of equal values the first one stays. So states of different points are combined by their positions, where these grow with time: a step
further in a loop goes past all that the loops inside of it go through.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensorexpr.codegen.facts.winners import beats, wins
from tensorexpr.codegen.nest import For, If, LoopNest, Stmt, Store
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.paths import Path
from tensorexpr.codegen.rewrites.touched.places import loops_around
from tensorexpr.ir import Access, Cast, Const, Expr, Index, apply
from tensorexpr.records import record
from tensorexpr.regions import affine_of

WINNERS = ("argmax", "argmin")


@record
class Winner:
    """The update of an argmax or argmin (`name`): the elements that have the position and the best value, and what they become."""

    name: str
    found: Access
    best: Access
    position: Expr
    value: Expr

    @property
    def buffers(self) -> tuple[str, str]:
        """The two buffers."""
        return self.found.tensor, self.best.tensor


def winner_of(s: Stmt) -> Winner | None:
    """The update that a statement is; None for any other statement."""
    if not isinstance(s, If) or s.otherwise or len(s.then) != 2:
        return None
    for one, other in (s.then, s.then[::-1]):
        if not isinstance(one, Store) or not isinstance(other, Store) or one.buffer == other.buffer:
            return None
        found = Access(one.buffer, one.indices, one.value.dtype)
        best = Access(other.buffer, other.indices, other.value.dtype)
        for name in WINNERS if found.dtype.is_integer else ():
            if wins(name, found, best, other.value) == s.condition:
                position = one.value.arg if isinstance(one.value, Cast) else one.value  # of `narrow`: it is within
                return Winner(name, found, best, position, other.value)
    return None


def grows(nest: LoopNest, at: Path, winner: Winner, depth: int) -> bool:
    """Whether the position of an update at a path grows with the iterations of the loops around it that update one element; but for those
    around the first steps of the path."""
    form = affine_of(winner.position)
    if form is None or form.has_division():
        return False
    fixed = {index.name for index in winner.found.indices if isinstance(index, Index)}
    reach = 0
    for end in range(len(at) - 1, depth - 1, -1):
        for loop in loops_around(nest, at[: end + 1], end):
            if loop.index in fixed:
                continue
            step, most = form.coefficient(loop.index), iterations(nest, at[:end], loop)
            if step <= reach or most is None:
                return False
            reach += step * max(0, most - 1)
    return True


def iterations(nest: LoopNest, at: Path, loop: For) -> int | None:
    """The most iterations of the loop at a path, where that is known."""
    facts = Facts.at(nest, at)
    start = facts.form(loop.start)
    most = min((max(facts.interval(high - start)[1] for high in bound) for bound in facts.bounds(loop.stop, True)), default=math.inf)
    return None if math.isinf(most) else int(most)


def is_ahead(name: str, first: Sequence[Access], second: Sequence[Access], later: bool) -> Expr:
    """Whether the second of two states (position and value each) wins over the first. It is of `later` points, or of any; then of two equal
    values the one that stands before the other counts."""
    (here, best), (there, other) = first, second
    ahead = wins(name, here, best, other)
    if not later:
        earlier = apply("and", apply("lt", there, here), apply("invert", beats(name, best, other)))
        ahead = apply("or", ahead, earlier)
    return apply("and", apply("ge", there, Const(0, there.dtype)), ahead)
