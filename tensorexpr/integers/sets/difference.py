"""Set difference into disjoint pieces: A without B is, for B's constraints c1, c2, ... in order, the parts of A where c1
fails, where c1 holds and c2 fails, and so on. Constraints of B that follow from A and the rest of B cut nothing and are
dropped first, which keeps the pieces few."""

from __future__ import annotations

from collections.abc import Sequence

from tensorexpr.integers.forms.constraint import Constraint
from tensorexpr.integers.sets.gist import gist
from tensorexpr.integers.sets.system import System


def subtract(constraints: Sequence[Constraint], removed: Sequence[Constraint], names: Sequence[str]) -> list[list[Constraint]]:
    """Disjoint nonempty conjunctions whose union is `constraints` where not all of `removed` hold."""
    pieces: list[list[Constraint]] = []
    current = list(constraints)
    system = System(names, current)
    if system.is_empty():
        return []
    if system.with_constraints(removed).is_empty():
        return [current]  # nothing in common: no need to cut
    for one in gist(removed, constraints, names):
        for negated in one.negate():
            if not system.with_constraints([negated]).is_empty():
                pieces.append([*current, negated])
        current.append(one)
        system = system.with_constraints([one])
    return pieces
