"""One small point of a domain, for examples in error messages: sizes first, each the least nonnegative one possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorexpr.integers.forms.affine import Affine
from tensorexpr.integers.forms.constraint import Constraint, eq, ge
from tensorexpr.integers.sets.system import System


def sample(constraints: Sequence[Constraint], names: Sequence[str], given: Mapping[str, int]) -> dict[str, int] | None:
    """Values of `names`, fixed one after the other nearest above zero, or else below it; None when there is no point.

    >>> sample([ge("i", 3), ge("n", Affine.of("i") + 1)], ["n", "i"], {})
    {'n': 4, 'i': 3}
    """
    system = System(names, [*constraints, *(eq(name, value) for name, value in given.items())])
    if system.is_empty():
        return None
    point: dict[str, int] = {}
    for name in names:
        if name in given:
            point[name] = given[name]
            continue
        above = system.with_constraints([ge(name, 0)]).range(Affine.of(name))
        if above is not None:
            value = above[0]
        else:
            below = system.range(Affine.of(name))
            assert below is not None
            value = below[1]
        assert value is not None  # bounded by zero on that side
        point[name] = value
        system = system.with_constraints([eq(name, value)])
    return point
