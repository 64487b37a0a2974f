"""Exact linear programming over polyhedra ``{x : a.x + c >= 0}`` with integer rows.

A dictionary (basic variables as affine functions of the others) is kept with one common denominator, so every entry stays
an integer and each division is exact (fraction-free pivoting). Unknowns are free; they are pivoted into the basis first,
which leaves slacks as the only bounded variables. Both phases choose by smallest index and therefore end.

Rows have the constant first: ``row[0] + row[1]*x_1 + ... >= 0``.

Source: R. G. Bland, New finite pivoting rules for the simplex method (1977); J. Edmonds and J.-F. Maurras (1997) on
pivoting with integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

Row = Sequence[int]


class Polyhedron:
    """The rational points that satisfy every row; ask `feasible`, `vertex()`, `maximum(row)` and `irredundant()`."""

    def __init__(self, rows: Sequence[Row], width: int) -> None:
        """`width` is the number of unknowns; row r's slack has number ``width + r``."""
        self._width = width
        self._table = [list(row) for row in rows]
        self._basic = [width + at for at in range(len(rows))]
        self._free: list[int] = list(range(width))  # number of the variable of column at + 1
        self._denominator = 1
        for column in range(1, width + 1):
            self._bring_in(column)
        self.feasible = self._repair()

    def _bring_in(self, column: int) -> None:
        candidates = [at for at, row in enumerate(self._table) if row[column] and self._basic[at] >= self._width]
        if candidates:
            self._pivot(min(candidates, key=lambda at: abs(self._table[at][column])), column)

    def _pivot(self, at: int, column: int) -> None:
        table, old = self._table, self._denominator
        source = table[at]
        pivot = source[column]
        sign = 1 if pivot > 0 else -1
        new = pivot * sign
        for index, row in enumerate(table):
            if index == at:
                continue
            factor = row[column]
            if factor:
                table[index] = row = [sign * (a * pivot - factor * b) // old for a, b in zip(row, source, strict=True)]
                row[column] = factor * sign
            elif new != old:
                table[index] = [a * new // old for a in row]
        table[at] = [-sign * a for a in source]
        table[at][column] = sign * old
        self._denominator = new
        self._basic[at], self._free[column - 1] = self._free[column - 1], self._basic[at]

    def _repair(self) -> bool:
        """The dual simplex method with a zero objective: True when the dictionary became feasible."""
        width, basic, free = self._width, self._basic, self._free
        while True:
            at = min((at for at, row in enumerate(self._table) if row[0] < 0 and basic[at] >= width), key=basic.__getitem__, default=None)
            if at is None:
                return True
            row = self._table[at]
            column = min(
                (column for column in range(1, width + 1) if row[column] > 0 and free[column - 1] >= width),
                key=lambda column: free[column - 1],
                default=None,
            )
            if column is None:
                return False
            self._pivot(at, column)

    def vertex(self) -> list[Fraction]:
        """The point of the current dictionary (a vertex when the polyhedron has one)."""
        point = [Fraction(0)] * self._width
        for number, row in zip(self._basic, self._table, strict=True):
            if number < self._width:
                point[number] = Fraction(row[0], self._denominator)
        return point

    def maximum(self, objective: Row) -> Fraction | None:
        """The greatest value of ``objective[0] + objective[1]*x_1 + ...`` on a feasible polyhedron, None when unbounded."""
        width = self._width
        goal = [objective[0] * self._denominator] + [0] * width
        for column, number in enumerate(self._free, 1):
            if number < width:
                goal[column] += objective[number + 1] * self._denominator
        for number, row in zip(self._basic, self._table, strict=True):
            if number < width and objective[number + 1]:
                factor = objective[number + 1]
                goal = [a + factor * b for a, b in zip(goal, row, strict=True)]
        self._table.append(goal)  # pivots with the others as the row of a variable that never leaves
        self._basic.append(-1)
        try:
            return self._climb()
        finally:
            self._table.pop()
            self._basic.pop()

    def irredundant(self) -> list[int]:
        """The rows of a feasible polyhedron, by number, less each that those still kept imply; nothing else may be asked afterwards.

        One dictionary serves all questions: to ask for a row is to move its slack below zero, from where the last answer was found.
        """
        kept = []
        for number in range(self._width, self._width + len(self._table)):
            if self._may_fail(number):
                kept.append(number - self._width)
            else:
                at = self._basic.index(number)
                del self._table[at], self._basic[at]
        return kept

    def _may_fail(self, number: int) -> bool:
        """Whether the slack called `number` is negative somewhere where the others are not; if it is not, it is basic afterwards."""
        width, table, basic, free = self._width, self._table, self._basic, self._free
        if number in free:
            column = free.index(number) + 1
            tight = [at for at, row in enumerate(table) if row[column] > 0 and not row[0] and basic[at] >= width]
            if not tight:
                return True
            self._pivot(min(tight, key=basic.__getitem__), column)
        own_at = basic.index(number)
        while True:
            own = table[own_at]
            column = min((column for column in range(1, width + 1) if own[column] < 0), key=lambda column: free[column - 1], default=0)
            if not column:
                return False
            leaving = self._leaving(column, own_at)
            if leaving is None:
                return True
            limit = table[leaving]
            if own[column] * limit[0] < own[0] * limit[column]:  # it is negative before that row is
                return True
            self._pivot(leaving, column)

    def _leaving(self, column: int, but: int = -1) -> int | None:
        """The slack, not in row `but`, that is the first to reach zero as the variable of a column grows; None where none does."""
        width, basic = self._width, self._basic
        leaving = None
        for at, row in enumerate(self._table):
            if row[column] >= 0 or basic[at] < width or at == but:
                continue
            if leaving is None:
                leaving = at
                continue
            best = self._table[leaving]
            difference = row[0] * best[column] - best[0] * row[column]  # sign of the two ratios' difference, negated
            if difference > 0 or (difference == 0 and basic[at] < basic[leaving]):
                leaving = at
        return leaving

    def _climb(self) -> Fraction | None:
        width, free = self._width, self._free
        while True:
            goal = self._table[-1]
            if any(goal[column] for column in range(1, width + 1) if free[column - 1] < width):
                return None
            column = min((column for column in range(1, width + 1) if goal[column] > 0), key=lambda column: free[column - 1], default=None)
            if column is None:
                return Fraction(goal[0], self._denominator)
            leaving = self._leaving(column)
            if leaving is None:
                return None
            self._pivot(leaving, column)
