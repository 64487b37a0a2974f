"""Does an integer system have an integer point? Exact, always ends, and fast where it matters.

First `reduce_system` (equalities, one-sided variables, exact Fourier-Motzkin), which settles nearly every question that a
program asks; then a few bisections of its box. What is left goes to the rational polyhedron: it is empty, or its vertex is an
integer point, or

1. rows whose slack is unbounded on it are dropped: along the cone of unbounded directions all of them become true at once,
   so they never decide; what remains is bounded in the quotient by the directions it does not see;
2. the columns of the bounded rest, each row weighted by the inverse of its slack's range, are LLL-reduced: in the new
   variables a polytope without integer points is thin, so
3. branching on the thinnest variable needs few values, each of which leaves a system with one variable less.

This replaces the splinters of the Omega test, whose number grows with the coefficients.

Source: W. Pugh, The Omega test (1991); H. W. Lenstra, Integer programming with a fixed number of variables (1983);
B. Krishnamoorthy and G. Pataki, Column basis reduction and decomposable knapsack problems (2009).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor

from tensorexpr.integers.solving.bisection import bisect
from tensorexpr.integers.solving.effort import spend
from tensorexpr.integers.solving.linear_algebra import hermite_normal_form, lll_carrying, transpose
from tensorexpr.integers.solving.reduction import Rows, propagate, reduce_system
from tensorexpr.integers.solving.simplex import Polyhedron


def has_integer_point(equalities: Rows, inequalities: Rows) -> bool:
    """True when some integer point satisfies every row (constant first)."""
    spend(equalities, inequalities)
    return _has_point(tuple(map(tuple, equalities)), tuple(map(tuple, inequalities)))


@lru_cache(maxsize=1 << 15)
def _has_point(equalities: tuple[tuple[int, ...], ...], inequalities: tuple[tuple[int, ...], ...]) -> bool:
    reduced = reduce_system(equalities, inequalities)
    if reduced is None:
        return False
    rows = reduced[1]
    return not rows or _search(rows)


def _search(rows: Rows) -> bool:
    table, width = _without_zero_columns(rows)
    box = propagate(table, width + 1)
    if any(low is not None and high is not None and low > high for low, high in box):
        return False
    found = bisect(table, box)
    if found is not None:
        return found
    polyhedron = Polyhedron(table, width)
    if not polyhedron.feasible:
        return False
    if _nearest_satisfies(polyhedron, table):
        return True
    ranges = _slack_ranges(table, box)
    if ranges is not None and any(size is not None and size < 0 for size in ranges):
        return False
    if ranges is None:
        ranges = [polyhedron.maximum(row) for row in table]
    kept = [(row, size) for row, size in zip(table, ranges, strict=True) if size is not None]
    basis = _reduced_columns(kept)
    changed = [(row[0], *[column[at] for column in basis]) for at, (row, _) in enumerate(kept)]
    if len(kept) < len(table):
        return _has_point((), tuple(map(tuple, changed)))
    return _branch(changed, len(basis))


def _without_zero_columns(rows: Rows) -> tuple[list[tuple[int, ...]], int]:
    """The rows with the columns that occur, and how many unknowns that leaves."""
    used = [at for at, column in enumerate(zip(*rows, strict=True)) if at == 0 or any(column)]
    return [tuple([row[at] for at in used]) for row in rows], len(used) - 1


def _nearest_satisfies(polyhedron: Polyhedron, rows: Rows) -> bool:
    """True when the integer point nearest to the vertex is inside: the usual end for a set with room."""
    point = [round(entry) for entry in polyhedron.vertex()]
    return all(row[0] + sum([a * b for a, b in zip(row[1:], point, strict=True)]) >= 0 for row in rows)


def _slack_ranges(rows: Rows, box: Sequence[tuple[int | None, int | None]]) -> list[Fraction | None] | None:
    """The greatest slack of each row inside a finite box, None when the box is not finite."""
    ranges: list[Fraction | None] = []
    for row in rows:
        greatest = row[0]
        for entry, (low, high) in zip(row[1:], box[1:], strict=True):
            if low is None or high is None:
                return None
            greatest += max(entry * low, entry * high)
        ranges.append(Fraction(greatest))
    return ranges


def _reduced_columns(kept: list[tuple[tuple[int, ...], Fraction]]) -> list[list[int]]:
    """Columns of the rows' linear parts after a unimodular change of variables that makes them short and independent."""
    lattice, _ = hermite_normal_form(transpose([row[1:] for row, _ in kept]))
    independent = [line for line in lattice if any(line)]
    largest = max((floor(size) + 1 for _, size in kept), default=1)
    weights = [max(1, largest // (floor(size) + 1)) for _, size in kept]
    weighted = [[weight * entry for weight, entry in zip(weights, line, strict=True)] for line in independent]
    return lll_carrying(weighted, independent)[1]


def _branch(rows: list[tuple[int, ...]], width: int) -> bool:
    """A bounded system: the thinnest variable of a reduced basis takes each of its values."""
    spend(rows)
    polyhedron = Polyhedron(rows, width)
    if not polyhedron.feasible:
        return False
    if _nearest_satisfies(polyhedron, rows):
        return True
    thinnest: tuple[int, int, int, int] | None = None
    for column in range(width, 0, -1):  # the last columns of a reduced basis tend to be the thin ones
        unit = [0] * (width + 1)
        unit[column] = 1
        high = polyhedron.maximum(unit)
        unit[column] = -1
        low = polyhedron.maximum(unit)
        assert high is not None and low is not None
        first, last = ceil(-low), floor(high)
        if first > last:
            return False
        if thinnest is None or last - first < thinnest[0]:
            thinnest = (last - first, column, first, last)
            if last - first <= 1:
                break
    assert thinnest is not None
    _, column, first, last = thinnest
    for value in _from_the_middle(first, last):
        fixed = [(row[0] + value * row[column], *row[1:column], *row[column + 1 :]) for row in rows]
        reduced = reduce_system((), fixed)
        if reduced is not None and (not reduced[1] or _branch(*_without_zero_columns(reduced[1]))):
            return True
    return False


def _from_the_middle(first: int, last: int) -> Iterator[int]:
    """The integers of a range, those in the middle, where a point is likely, first."""
    middle = (first + last) // 2
    yield middle
    for distance in range(1, last - middle + 1):
        if middle - distance >= first:
            yield middle - distance
        yield middle + distance
