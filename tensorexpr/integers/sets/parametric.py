"""Linear systems ``A v = rhs`` whose right-hand sides are affine in outer names: scatter turned into gather.

Reading ``X[a(v)]`` for v in a domain adds, in the adjoint, at every ``x = a(v)``; the gather at x needs all such v. Smith's
form ``S = U A V`` answers with three parts: the conditions under which x is reached (congruences ``(U rhs)_i % s_i == 0``
and equalities where S has a zero row), one particular v as an affine function of x, and a reduced kernel basis along which
v runs freely.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorexpr.integers.forms.affine import Affine
from tensorexpr.integers.forms.constraint import AffineLike, Constraint, congruent
from tensorexpr.integers.solving.linear_algebra import Matrix, Rows, kernel_basis, size_reduce, smith_normal_form
from tensorexpr.records import record


@record
class Solution:
    """All v with ``A v = rhs``: ``particular + sum of t_k * kernel[k]`` over integers t, exactly where `congruences` hold.

    `particular` contains a floor division only where a congruence makes that division exact.
    """

    particular: list[Affine]
    kernel: list[list[int]]
    congruences: list[Constraint]

    def values(self, parameters: Sequence[str]) -> list[Affine]:
        """The solution with the free integers named `parameters`, one for each kernel vector."""
        result = list(self.particular)
        for name, vector in zip(parameters, self.kernel, strict=True):
            result = [entry + Affine.of(name) * step for entry, step in zip(result, vector, strict=True)]
        return result


def solve_parametric(matrix: Rows, right: Sequence[AffineLike], width: int = 0) -> Solution | None:
    """The integer solutions of ``A v = right`` for symbolic `right`, or None when it never has one.

    `width` is the number of unknowns when `matrix` has no rows.

    >>> answer = solve_parametric([[2, 1]], ["x"])          # x = 2*o + k
    >>> [str(v) for v in answer.particular], answer.kernel
    (['0', 'x'], [[1, -2]])
    >>> answer = solve_parametric([[3]], [Affine.of("x") - 1])
    >>> [str(v) for v in answer.particular], [str(c) for c in answer.congruences]
    (['(x + 2)//3 - 1'], ['x % 3 == 1'])
    """
    columns = len(matrix[0]) if matrix else width
    values = [Affine.of(entry) for entry in right]
    s, u, v = smith_normal_form(matrix)
    if not matrix:
        v = [[int(row == column) for column in range(columns)] for row in range(columns)]
    kernel = kernel_basis(matrix, columns)
    congruences: list[Constraint] = []
    weights: list[Affine] = []
    for row, combination in enumerate(u):
        wanted = sum((value * factor for value, factor in zip(values, combination, strict=True)), Affine())
        divisor = s[row][row] if row < columns else 0
        if divisor == 0:
            condition = Constraint(wanted, "==")
        else:
            condition = congruent(wanted, divisor)
            weights.append(wanted // divisor)
        if condition.is_false:
            return None
        if not condition.is_true:
            congruences.append(condition)
    particular = [sum((weight * v[row][at] for at, weight in enumerate(weights)), Affine()) for row in range(columns)]
    return Solution(_shortened(particular, kernel), kernel, list(dict.fromkeys(congruences)))


def _shortened(particular: list[Affine], kernel: Matrix) -> list[Affine]:
    """The particular solution moved along the kernel so that its coefficients are short, atom by atom."""
    if not kernel:
        return particular
    atoms = list(dict.fromkeys(atom for entry in particular for atom in entry.atoms()))
    columns = [size_reduce([entry.coefficient(atom) for entry in particular], kernel) for atom in atoms]
    constants = size_reduce([entry.constant for entry in particular], kernel)
    return [
        Affine([(atom, column[row]) for atom, column in zip(atoms, columns, strict=True)], constants[row]) for row in range(len(particular))
    ]
