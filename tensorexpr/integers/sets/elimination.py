"""Fourier-Motzkin elimination with integer tightening: the constraints that follow without some of the names.

The result holds wherever the eliminated names have integer values, and may hold at a few points more (it is the shadow of
the rational set, tightened); `projection` is the exact counterpart. Equalities go first, then the variable that adds the
fewest rows; redundant rows are removed by linear programming when they become many.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from tensorexpr.integers.forms.affine import Affine, Atom
from tensorexpr.integers.forms.constraint import FALSE, Constraint
from tensorexpr.integers.sets.system import System
from tensorexpr.integers.solving.effort import DomainTooComplex, spend
from tensorexpr.integers.solving.reduction import Rows, combine, reduce_system, tighten
from tensorexpr.integers.solving.simplex import Polyhedron

_MANY_ROWS = 14  # beyond this a redundancy check costs less than the rows it saves
_MOST_ROWS = 600


def hull(
    constraints: Iterable[Constraint], names: Sequence[str], removed: Collection[str], divided: Collection[str] = ()
) -> list[Constraint]:
    """Constraints without the names `removed`, and without floor divisions of those or of the names `divided`.

    >>> from tensorexpr.integers.forms.constraint import eq, ge, le
    >>> shadow = hull([eq("x", 7 * Affine.of("i") + "j"), ge("j", 0), le("j", 6)], ["x", "i", "j"], ["j"])
    >>> [str(c) for c in shadow]
    ['7*i <= x', 'x <= 7*i + 6']
    """
    system = System(names, constraints)
    gone = eliminated_columns(system, removed, divided)
    kept = [at for at in range(1, len(system.columns) + 1) if at not in gone]
    reduced = reduce_system(*system.rows(), keep=frozenset(kept))
    if reduced is None:
        return [FALSE]
    rows = eliminate(*reduced, [at for at in gone if at <= len(system.columns)])
    if rows is None:
        return [FALSE]
    return constraints_of(rows, system.atoms())


def eliminated_columns(system: System, removed: Collection[str], divided: Collection[str] = ()) -> dict[int, Atom]:
    """The columns of `system` that have to go: the names removed, and floor divisions that contain one of them."""
    hidden = {*removed, *divided}
    return {
        at: atom
        for atom, at in system.columns.items()
        if (atom in removed if isinstance(atom, str) else not hidden.isdisjoint(atom.numerator.names()))
    }


def constraints_of(rows: Rows, atoms: Sequence[Atom], kind: str = ">=") -> list[Constraint]:
    """Rows (constant first) as constraints, without those that hold by the meaning of their floor divisions."""
    made = [
        Constraint(Affine([(atom, factor) for atom, factor in zip(atoms, row[1:], strict=False) if factor], row[0]), kind) for row in rows
    ]
    return [constraint for constraint in dict.fromkeys(made) if not holds_always(constraint)]


def holds_always(constraint: Constraint) -> bool:
    """True for a constraint that every integer point satisfies, such as ``0 <= x - 3*(x//3)``."""
    if constraint.is_true:
        return True
    if not constraint.expr.has_division():
        return False
    names = constraint.names()
    return all(System(names, [negated]).is_empty() for negated in constraint.negate())


def eliminate(equalities: Rows, inequalities: Rows, columns: Collection[int]) -> list[tuple[int, ...]] | None:
    """Inequality rows that follow without `columns` (an equality becomes two); None when the system is seen to be empty."""
    rows: list[tuple[int, ...]] = [tuple(row) for row in inequalities]
    pending = [tuple(row) for row in equalities]
    while pending:
        row = pending.pop()
        pivot = min((at for at in columns if row[at]), key=lambda at: abs(row[at]), default=None)
        if pivot is None:
            rows += (row, tuple([-entry for entry in row]))
            continue
        substitute = _substitution(row, pivot)
        rows = [substitute(other) for other in rows]
        pending = [substitute(other) for other in pending]
    while True:
        tightened = tighten(rows)
        if tightened is None:
            return None
        rows, found = tightened
        for row in found:
            rows += (row, tuple([-entry for entry in row]))
        best = None
        for at in columns:
            lowers = sum(row[at] > 0 for row in rows)
            uppers = sum(row[at] < 0 for row in rows)
            growth = lowers * uppers - lowers - uppers
            if lowers + uppers and (best is None or growth < best[0]):
                best = (growth, at)
        if best is None:
            return rows
        if len(rows) + best[0] > _MANY_ROWS:
            rows = irredundant(rows)
        rows = combine(rows, best[1])
        spend(rows)
        if len(rows) > _MOST_ROWS:
            raise DomainTooComplex(
                f"expected at most {_MOST_ROWS} constraints in a projection, got {len(rows)}",
                hint="project out fewer names at a time, or give sizes as integers",
            )


def _substitution(row: Sequence[int], pivot: int) -> Callable[[Sequence[int]], tuple[int, ...]]:
    """Replaces the variable `pivot` by what the equality `row` says, times its coefficient."""
    size = abs(row[pivot])
    sign = 1 if row[pivot] > 0 else -1

    def substitute(other: Sequence[int]) -> tuple[int, ...]:
        factor = other[pivot]
        return tuple([size * a - sign * factor * b for a, b in zip(other, row, strict=True)]) if factor else tuple(other)

    return substitute


def irredundant(rows: Rows) -> list[tuple[int, ...]]:
    """The rows that the others do not imply over the rationals (each row compared with those still kept)."""
    used = [at for at, column in enumerate(zip(*rows, strict=True)) if at == 0 or any(column)]
    polyhedron = Polyhedron([[row[at] for at in used] for row in rows], len(used) - 1)
    return [tuple(rows[at]) for at in polyhedron.irredundant()] if polyhedron.feasible else list(map(tuple, rows))
