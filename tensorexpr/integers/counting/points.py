"""The exact number of integer points of a system, without enumerating them where it falls apart.

Equalities are used up by unimodular changes, which keep the number. Then variables that no constraint links multiply, the
last two variables of a group are a polygon, counted in closed form however large (`polygon`), and otherwise the variable
with the shortest range is fixed to each of its values; equal subproblems are counted once. A floor division is one more
variable, determined by the others, so congruences cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor

from tensorexpr.errors import DefinitionError
from tensorexpr.integers.counting.polygon import count_polygon
from tensorexpr.integers.solving.emptiness import has_integer_point
from tensorexpr.integers.solving.reduction import Rows, propagate, substitute_equalities, tighten
from tensorexpr.integers.solving.simplex import Polyhedron

_Row = tuple[int, ...]


def count_points(equalities: Rows, inequalities: Rows, width: int) -> int:
    """The number of integer points over `width` variables (rows have the constant first)."""
    if not has_integer_point(equalities, inequalities):
        return 0
    pivots: set[int] = set()
    substituted = substitute_equalities(equalities, inequalities, pivots=pivots)
    assert substituted is not None
    rows = [tuple(row) for row in substituted[1]]
    columns = [at for at in range(1, width + 1) if at not in pivots]
    ranges = propagate(rows, width + 1)
    if any(None in ranges[at] for at in columns):
        polyhedron = Polyhedron(rows, width)
        for at in columns:
            unit = [int(column == at) for column in range(width + 1)]
            if polyhedron.maximum(unit) is None or polyhedron.maximum([-entry for entry in unit]) is None:
                raise DefinitionError("expected a bounded domain to count, got infinitely many points")
    return _count(rows, {})


def _count(rows: Sequence[_Row], known: dict[tuple[_Row, ...], int]) -> int:
    while True:
        tightened = tighten(rows)
        if tightened is None:
            return 0
        rows, equalities = tightened
        if not equalities:
            break
        substituted = substitute_equalities(equalities, rows)
        if substituted is None:
            return 0
        rows = [tuple(row) for row in substituted[1]]
    if not rows:
        return 1
    key = tuple(sorted(rows))
    if key in known:
        return known[key]
    result = 1
    for group in _components(rows):
        result *= _count_component(group, known)
        if not result:
            break
    known[key] = result
    return result


def _components(rows: Sequence[_Row]) -> list[list[_Row]]:
    """Rows grouped so that different groups share no column; each group without its zero columns."""
    parents: dict[int, int] = {}

    def root(at: int) -> int:
        while parents[at] != at:
            at = parents[at]
        return at

    for row in rows:
        used = [at for at in range(1, len(row)) if row[at]]
        for at in used:
            parents.setdefault(at, at)
        for at in used[1:]:
            parents[root(at)] = root(used[0])
    groups: dict[int, list[_Row]] = {}
    for row in rows:
        groups.setdefault(root(next(at for at in range(1, len(row)) if row[at])), []).append(row)
    narrow = []
    for group in groups.values():
        used = [at for at, column in enumerate(zip(*group, strict=True)) if at == 0 or any(column)]
        narrow.append([tuple([row[at] for at in used]) for row in group])
    return narrow


def _count_component(rows: Sequence[_Row], known: dict[tuple[_Row, ...], int]) -> int:
    width = len(rows[0])
    ranges = propagate(rows, width)
    if width == 2:
        low, high = ranges[1]
        assert low is not None and high is not None
        return max(0, high - low + 1)
    if width == 3:
        return count_polygon(rows)
    if any(None in one for one in ranges[1:]):
        polyhedron = Polyhedron(rows, width - 1)
        if not polyhedron.feasible:
            return 0
        ranges = [(None, None)] + [_exact_range(polyhedron, width, at) for at in range(1, width)]
    at = min(range(1, width), key=lambda at: ranges[at][1] - ranges[at][0])  # type: ignore[operator]  # all but the first have bounds
    low, high = ranges[at]
    assert low is not None and high is not None
    return sum(_count([(row[0] + value * row[at], *row[1:at], *row[at + 1 :]) for row in rows], known) for value in range(low, high + 1))


def _exact_range(polyhedron: Polyhedron, width: int, at: int) -> tuple[int, int]:
    unit = [int(column == at) for column in range(width)]
    high = polyhedron.maximum(unit)
    low = polyhedron.maximum([-entry for entry in unit])
    assert high is not None and low is not None
    return ceil(-low), floor(high)
