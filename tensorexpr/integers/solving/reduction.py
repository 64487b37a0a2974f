"""Exact simplification of integer systems: tightening, equality substitution, eliminations that lose no integer point.

A system is a list of equality rows (``row . (1, x) == 0``) and of inequality rows (``>= 0``), constant first. `reduce_system`
removes every variable outside `keep` that can be removed exactly: by an equality (unimodular column operations make a
coefficient 1), because it is bounded on one side only, or by Fourier-Motzkin when every lower or every upper bound has
coefficient 1. What it returns has an integer point exactly where the input has one. Most queries of a compiler end here.
`propagate` bounds variables by interval arithmetic.

Source: W. Pugh, The Omega test (1991), sections 2.1 to 2.3.2.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import gcd

from tensorexpr.integers.solving.linear_algebra import nearest_quotient

Row = Sequence[int]
Rows = Sequence[Row]

_MOST_ROWS = 48  # Fourier-Motzkin stops being the cheap way beyond this


def tighten(rows: Rows) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]] | None:
    """``(inequalities, equalities)`` from inequality rows: each tight, one per direction, opposite pairs made equalities.

    None when two rows contradict each other or one never holds.
    """
    best: dict[tuple[int, ...], int] = {}
    for row in rows:
        direction = tuple(row[1:])
        common = gcd(*direction)
        if common == 0:
            if row[0] < 0:
                return None
            continue
        constant = row[0]
        if common != 1:
            direction = tuple([entry // common for entry in direction])
            constant //= common
        known = best.get(direction)
        if known is None or constant < known:
            best[direction] = constant
    equalities = []
    inequalities = []
    for direction, constant in best.items():
        opposite = best.get(tuple([-entry for entry in direction]))
        if opposite is not None:
            if constant + opposite < 0:
                return None
            if constant + opposite == 0:
                if direction > tuple([-entry for entry in direction]):
                    equalities.append((constant, *direction))
                continue
        inequalities.append((constant, *direction))
    return inequalities, equalities


def substitute_equalities(
    equalities: Rows, inequalities: Rows, keep: Collection[int] = (), pivots: set[int] | None = None
) -> tuple[list[list[int]], list[list[int]]] | None:
    """The system after using up equalities on columns outside `keep`; ``(equalities left, inequalities)``, None when empty.

    The columns that went are added to `pivots`.
    Equalities are left only when they concern kept columns alone, or the one other column in them has a coefficient that no
    unimodular change of the columns outside `keep` makes 1.
    """
    pending = [list(row) for row in equalities]
    rows = [list(row) for row in inequalities]
    left: list[list[int]] = []
    while pending:
        pending.sort(key=lambda row: sum(map(abs, row[1:])), reverse=True)
        row = pending.pop()
        common = gcd(*row[1:])
        if common == 0:
            if row[0]:
                return None
            continue
        if row[0] % common:
            return None
        if common != 1:
            row = [entry // common for entry in row]
        pivot = _unit_column(row, [*pending, *left, *rows], keep)
        if pivot is None:
            left.append(row)
            continue
        if pivots is not None:
            pivots.add(pivot)
        sign = row[pivot]
        for group in (pending, left, rows):
            for at, other in enumerate(group):
                factor = other[pivot] * sign
                if factor:
                    group[at] = [a - factor * b for a, b in zip(other, row, strict=True)]
    return left, rows


def _unit_column(row: list[int], others: list[list[int]], keep: Collection[int]) -> int | None:
    """A column outside `keep` in which `row` has coefficient 1 or -1, made by column operations on all rows if need be."""
    while True:
        columns = [at for at in range(1, len(row)) if row[at] and at not in keep]
        if not columns:
            return None
        pivot = min(columns, key=lambda at: abs(row[at]))
        if abs(row[pivot]) == 1:
            return pivot
        moved = False
        for at in range(1, len(row)):  # x_pivot := x_pivot - q*x_at leaves x_at itself as it is
            factor = nearest_quotient(row[at], row[pivot])
            if factor and at != pivot:
                moved = True
                row[at] -= factor * row[pivot]
                for other in others:
                    other[at] -= factor * other[pivot]
        if not moved and len(columns) == 1:
            return None


def reduce_system(equalities: Rows, inequalities: Rows, keep: Collection[int] = ()) -> tuple[list[list[int]], list[tuple[int, ...]]] | None:
    """The system with every column removed that can be removed exactly, columns in `keep` excepted; None when empty."""
    pending: Rows = equalities
    rows: Rows = inequalities
    while True:
        substituted = substitute_equalities(pending, rows, keep)
        if substituted is None:
            return None
        left, remaining = substituted[0], list(map(tuple, substituted[1]))
        while True:
            tightened = tighten(remaining)
            if tightened is None:
                return None
            tight, found = tightened
            if found:
                break
            smaller = _eliminate_exactly(tight, left, keep)
            if smaller is None:
                return left, tight
            remaining = smaller
        pending, rows = [*left, *found], tight


def _eliminate_exactly(rows: list[tuple[int, ...]], equalities: Rows, keep: Collection[int]) -> list[tuple[int, ...]] | None:
    """`rows` without one more variable, or without all rows of one-sided variables; None when nothing can be done cheaply."""
    best = None
    one_sided = []
    bound = [any(column) for column in zip(*equalities, strict=True)] if equalities else None
    for at, column in enumerate(zip(*rows, strict=True)):
        if at == 0 or at in keep or (bound is not None and bound[at]):
            continue
        lowest, highest = min(column), max(column)
        if lowest == 0 == highest:
            continue
        if lowest >= 0 or highest <= 0:
            one_sided.append(at)
        elif not one_sided and (highest == 1 or lowest == -1):
            lowers = sum(entry > 0 for entry in column)
            uppers = sum(entry < 0 for entry in column)
            growth = lowers * uppers - lowers - uppers
            if (best is None or growth < best[0]) and len(rows) + growth <= _MOST_ROWS:
                best = (growth, at)
    if one_sided:
        return [row for row in rows if not any(row[at] for at in one_sided)]
    if best is None:
        return None
    return combine(rows, best[1])


def combine(rows: Rows, column: int) -> list[tuple[int, ...]]:
    """Fourier-Motzkin: the inequality rows that follow without `column` (its real shadow)."""
    lowers = [row for row in rows if row[column] > 0]
    uppers = [row for row in rows if row[column] < 0]
    result = [tuple(row) for row in rows if not row[column]]
    for lower in lowers:
        a = lower[column]
        for upper in uppers:
            b = -upper[column]
            if a == b:
                result.append(tuple([x + y for x, y in zip(lower, upper, strict=True)]))
            else:
                result.append(tuple([b * x + a * y for x, y in zip(lower, upper, strict=True)]))
    return result


def propagate(rows: Rows, width: int) -> list[tuple[int | None, int | None]]:
    """Integer ranges of all columns by interval arithmetic, a few rounds; not all need to become finite."""
    low: list[int | None] = [None] * width
    high: list[int | None] = [None] * width
    for _ in range(4):
        changed = False
        for row in rows:
            used = [at for at in range(1, width) if row[at]]
            terms = []
            for at in used:
                bound = high[at] if row[at] > 0 else low[at]
                terms.append(None if bound is None else row[at] * bound)
            unknown = [place for place, term in enumerate(terms) if term is None]
            if len(unknown) > 1:
                continue
            total = row[0] + sum(term for term in terms if term is not None)
            for place in unknown or range(len(used)):
                at, factor = used[place], row[used[place]]
                room = total - (terms[place] or 0)  # factor * x >= -room
                if factor > 0:
                    bound = -(room // factor)
                    least = low[at]
                    if least is None or bound > least:
                        low[at], changed = bound, True
                else:
                    bound = room // -factor
                    most = high[at]
                    if most is None or bound < most:
                        high[at], changed = bound, True
        if not changed:
            break
    return list(zip(low, high, strict=True))
