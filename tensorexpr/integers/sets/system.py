"""A list of constraints as a matrix: one column for each name and one for each floor division.

A floor division ``q = e // d`` is an unknown of its own with ``0 <= e - d*q <= d - 1``, which determines it; solvers below
this file see integers only. Columns are numbered from 1, column 0 is the constant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensorexpr.integers.forms.affine import Affine, Atom, FloorDiv, Interval
from tensorexpr.integers.forms.constraint import Constraint
from tensorexpr.integers.solving.emptiness import has_integer_point
from tensorexpr.integers.solving.optimum import integer_range


class System:
    """Constraints over ordered columns; grows by `with_constraints`, never changes."""

    __slots__ = ("_empty", "_equalities", "_inequalities", "columns")

    def __init__(self, names: Sequence[str], constraints: Iterable[Constraint] = ()) -> None:
        self.columns: dict[Atom, int] = {name: at for at, name in enumerate(names, 1)}
        self._equalities: list[dict[int, int]] = []
        self._inequalities: list[dict[int, int]] = []
        self._empty: bool | None = None
        for constraint in constraints:
            self._add(constraint)

    def _add(self, constraint: Constraint) -> None:
        row = self.row(constraint.expr)
        (self._equalities if constraint.kind == "==" else self._inequalities).append(row)

    def row(self, expr: Affine) -> dict[int, int]:
        """`expr` as {column: coefficient}; floor divisions seen for the first time get columns and defining rows."""
        row = {0: expr.constant} if expr.constant else {}
        for atom, factor in expr.terms:
            row[self._column(atom)] = factor
        return row

    def _column(self, atom: Atom) -> int:
        column = self.columns.get(atom)
        if column is None:
            if isinstance(atom, str):
                raise KeyError(atom)
            numerator = self.row(atom.numerator)
            column = self.columns[atom] = len(self.columns) + 1
            lower = {**numerator, column: -atom.denominator}
            upper = {at: -factor for at, factor in lower.items()}
            upper[0] = upper.get(0, 0) + atom.denominator - 1
            self._inequalities += (lower, upper)
        return column

    def with_constraints(self, constraints: Iterable[Constraint]) -> System:
        """This system and `constraints`."""
        grown = System.__new__(System)
        grown.columns = dict(self.columns)
        grown._equalities = list(self._equalities)
        grown._inequalities = list(self._inequalities)
        grown._empty = None
        for constraint in constraints:
            grown._add(constraint)
        return grown

    def dense(self, row: dict[int, int]) -> tuple[int, ...]:
        """A row with an entry for every column."""
        return tuple([row.get(at, 0) for at in range(len(self.columns) + 1)])

    def rows(self) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        """``(equalities, inequalities)``, constant first."""
        return [self.dense(row) for row in self._equalities], [self.dense(row) for row in self._inequalities]

    def atoms(self) -> list[Atom]:
        """The atom of each column, from column 1 on."""
        return list(self.columns)

    def divisions(self) -> list[FloorDiv]:
        """The floor divisions that have a column."""
        return [atom for atom in self.columns if isinstance(atom, FloorDiv)]

    def is_empty(self) -> bool:
        """True when no integers satisfy the system."""
        if self._empty is None:
            self._empty = not has_integer_point(*self.rows())
        return self._empty

    def range(self, expr: Affine) -> Interval | None:
        """The exact ``(minimum, maximum)`` of `expr` (None for an unbounded side), None when the system is empty."""
        grown = self.with_constraints(())
        objective = grown.row(expr)
        equalities, inequalities = grown.rows()
        return integer_range(equalities, inequalities, grown.dense(objective))
