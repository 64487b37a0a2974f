"""Redundancy: which constraints say nothing that the others, or a known context, do not say already.

Every question is an exact emptiness question (the others and the negated constraint have no point in common), so floor
divisions and congruences are treated like everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tensorexpr.integers.forms.constraint import FALSE, Constraint
from tensorexpr.integers.sets.system import System


def implied(system: System, constraint: Constraint) -> bool:
    """True when every point of `system` satisfies `constraint`."""
    return constraint.is_true or all(system.with_constraints([negated]).is_empty() for negated in constraint.negate())


def gist(constraints: Iterable[Constraint], context: Sequence[Constraint], names: Sequence[str]) -> list[Constraint]:
    """The constraints still needed where `context` is known to hold; no one of them follows from the others.

    The most complicated ones are the first to go.
    """
    known = set(context)
    kept = [one for one in dict.fromkeys(constraints) if one not in known and not one.is_true]
    if not kept:
        return []
    base = System(names, context)
    if base.with_constraints(kept).is_empty():
        return [FALSE]
    for one in sorted(kept, key=complexity, reverse=True):
        others = [other for other in kept if other is not one]
        if implied(base.with_constraints(others), one):
            kept = others
    return kept


def complexity(constraint: Constraint) -> tuple[bool, int, int, tuple[Any, ...]]:
    """Orders constraints from simple to complicated: floor divisions, then terms, then size of the coefficients."""
    terms = constraint.expr.terms
    size = sum(abs(factor) for _, factor in terms)
    return (constraint.expr.has_division(), len(terms), size, constraint.sort_key())
