"""Exact integer linear algebra: normal forms, kernels, lattice reduction and linear systems over the integers.

Matrices are lists or tuples of rows of Python ints; results are lists of lists. Nothing rounds and nothing overflows.
Hermite's form is the row style: ``H = U A`` with U unimodular, H in row echelon form with positive pivots, and every entry
above a pivot in ``0 .. pivot - 1`` (so H is unique). Smith's form is ``S = U A V``, diagonal, each entry dividing the next.
Kernel bases are LLL-reduced, because skew bases make loops with loose bounds.

Source: H. Cohen, A Course in Computational Algebraic Number Theory (1993), algorithms 2.4.4 (Hermite), 2.4.14 (Smith) and
2.6.7 (integral LLL); A. K. Lenstra, H. W. Lenstra, L. Lovasz, Factoring polynomials with rational coefficients (1982).
"""

from __future__ import annotations

from collections.abc import Sequence

Vector = list[int]
Matrix = list[Vector]
Rows = Sequence[Sequence[int]]


def identity(size: int) -> Matrix:
    """The unit matrix."""
    return [[int(row == column) for column in range(size)] for row in range(size)]


def transpose(matrix: Rows, width: int = 0) -> Matrix:
    """Rows and columns exchanged; `width` is the number of columns of a matrix without rows."""
    return [list(column) for column in zip(*matrix, strict=True)] if matrix else [[] for _ in range(width)]


def multiply(left: Rows, right: Rows) -> Matrix:
    """The matrix product."""
    columns = list(zip(*right, strict=True))
    return [[sum(a * b for a, b in zip(row, column, strict=True)) for column in columns] for row in left]


def apply(matrix: Rows, vector: Sequence[int]) -> Vector:
    """The product of a matrix and a vector."""
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def hermite_normal_form(matrix: Rows) -> tuple[Matrix, Matrix]:
    """``(H, U)`` with ``H = U A``: row echelon, positive pivots, ``0 <= entry < pivot`` above each pivot, U unimodular.

    >>> hermite_normal_form([[2, 4], [3, 5]])
    ([[1, 1], [0, 2]], [[-1, 1], [3, -2]])
    """
    h = [list(row) for row in matrix]
    height = len(h)
    width = len(h[0]) if h else 0
    u = identity(height)
    top = 0
    for column in range(width):
        if top == height:
            break
        while True:  # Euclid on the column below `top`: the smallest entry divides the others until one is left
            rows = [row for row in range(top, height) if h[row][column]]
            if not rows:
                break
            pivot = min(rows, key=lambda row: abs(h[row][column]))
            h[top], h[pivot] = h[pivot], h[top]
            u[top], u[pivot] = u[pivot], u[top]
            if len(rows) == 1:
                break
            for row in range(top + 1, height):
                if h[row][column]:
                    _subtract(h, u, row, top, nearest_quotient(h[row][column], h[top][column]))
        if not h[top][column]:
            continue
        if h[top][column] < 0:
            h[top] = [-entry for entry in h[top]]
            u[top] = [-entry for entry in u[top]]
        for row in range(top):
            _subtract(h, u, row, top, h[row][column] // h[top][column])
        top += 1
    return h, u


def _subtract(h: Matrix, u: Matrix, row: int, source: int, factor: int) -> None:
    if factor:
        h[row] = [a - factor * b for a, b in zip(h[row], h[source], strict=True)]
        u[row] = [a - factor * b for a, b in zip(u[row], u[source], strict=True)]


def nearest_quotient(numerator: int, denominator: int) -> int:
    """The integer nearest to a quotient."""
    if denominator < 0:
        numerator, denominator = -numerator, -denominator
    return (2 * numerator + denominator) // (2 * denominator)


def smith_normal_form(matrix: Rows) -> tuple[Matrix, Matrix, Matrix]:
    """``(S, U, V)`` with ``S = U A V`` diagonal, nonnegative, each entry dividing the next; U and V unimodular.

    >>> smith_normal_form([[2, 4], [6, 8]])[0]
    [[2, 0], [0, 4]]
    """
    s = [list(row) for row in matrix]
    height = len(s)
    width = len(s[0]) if s else 0
    u, v = identity(height), identity(width)
    for at in range(min(height, width)):
        while True:
            entries = [(abs(s[row][column]), row, column) for row in range(at, height) for column in range(at, width) if s[row][column]]
            if not entries:
                return s, u, v
            _, row, column = min(entries)
            s[at], s[row] = s[row], s[at]
            u[at], u[row] = u[row], u[at]
            for line in (*s, *v):
                line[at], line[column] = line[column], line[at]
            pivot = s[at][at]
            for row in range(at + 1, height):
                _subtract(s, u, row, at, s[row][at] // pivot)
            for column in range(at + 1, width):
                factor = s[at][column] // pivot
                if factor:
                    for line in (*s, *v):
                        line[column] -= factor * line[at]
            if any(s[row][at] for row in range(at + 1, height)) or any(s[at][at + 1 :]):
                continue
            uneven = next((row for row in range(at + 1, height) if any(entry % pivot for entry in s[row])), None)
            if uneven is None:
                break
            _subtract(s, u, at, uneven, -1)  # brings an entry that the pivot does not divide into its row
        if s[at][at] < 0:
            s[at] = [-entry for entry in s[at]]
            u[at] = [-entry for entry in u[at]]
    return s, u, v


def lll(vectors: Rows) -> Matrix:
    """A reduced basis (Lovasz factor 3/4) of the lattice of independent integer `vectors`, in exact arithmetic.

    >>> lll([[1, 1, 1], [-1, 0, 2], [3, 5, 6]])
    [[0, 1, 0], [1, 0, 1], [-1, 0, 2]]
    """
    basis = [list(row) for row in vectors]
    _reduce_basis(basis, [basis])
    return basis


def lll_carrying(vectors: Rows, carried: Rows) -> tuple[Matrix, Matrix]:
    """A reduced basis of `vectors`, and `carried` after the same row operations."""
    basis = [list(row) for row in vectors]
    companion = [list(row) for row in carried]
    _reduce_basis(basis, [basis, companion])
    return basis, companion


def _reduce_basis(b: Matrix, followers: list[Matrix]) -> None:
    """Integral LLL in place: d[i] are the Gram determinants, ``lam[i][j] = d[j+1] * mu[i][j]``."""
    count = len(b)
    if count < 2:
        return
    d = [1] + [0] * count
    lam = [[0] * count for _ in range(count)]
    d[1] = _dot(b[0], b[0])
    known, k = 0, 1

    def reduce_by(row: int, by: int) -> None:
        if 2 * abs(lam[row][by]) <= d[by + 1]:
            return
        factor = nearest_quotient(lam[row][by], d[by + 1])
        for matrix in followers:
            matrix[row] = [x - factor * y for x, y in zip(matrix[row], matrix[by], strict=True)]
        lam[row][by] -= factor * d[by + 1]
        for column in range(by):
            lam[row][column] -= factor * lam[by][column]

    while k < count:
        if k > known:
            known = k
            for j in range(k + 1):
                value = _dot(b[k], b[j])
                for i in range(j):
                    value = (d[i + 1] * value - lam[k][i] * lam[j][i]) // d[i]
                if j < k:
                    lam[k][j] = value
                else:
                    d[k + 1] = value
        reduce_by(k, k - 1)
        if 4 * d[k + 1] * d[k - 1] < 3 * d[k] ** 2 - 4 * lam[k][k - 1] ** 2:
            for matrix in followers:
                matrix[k], matrix[k - 1] = matrix[k - 1], matrix[k]
            for j in range(k - 1):
                lam[k][j], lam[k - 1][j] = lam[k - 1][j], lam[k][j]
            factor = lam[k][k - 1]
            determinant = (d[k - 1] * d[k + 1] + factor * factor) // d[k]
            for i in range(k + 1, known + 1):
                old = lam[i][k]
                lam[i][k] = (d[k + 1] * lam[i][k - 1] - factor * old) // d[k]
                lam[i][k - 1] = (determinant * old + factor * lam[i][k]) // d[k + 1]
            d[k] = determinant
            k = max(1, k - 1)
        else:
            for by in range(k - 2, -1, -1):
                reduce_by(k, by)
            k += 1


def _dot(left: Sequence[int], right: Sequence[int]) -> int:
    return sum(a * b for a, b in zip(left, right, strict=True))


def kernel_basis(matrix: Rows, width: int = 0) -> Matrix:
    """A reduced basis of all integer vectors v with ``A v = 0`` (`width`: columns of a matrix without rows).

    The first nonzero entry of each vector is positive.

    >>> kernel_basis([[7, 1]]), kernel_basis([[2, 4, 6]])
    ([[1, -7]], [[1, 1, -1], [2, -1, 0]])
    """
    h, u = hermite_normal_form(transpose(matrix, width))
    basis = [row for line, row in zip(h, u, strict=True) if not any(line)]
    reduced = lll(basis)
    return [[-entry for entry in row] if next((entry for entry in row if entry), 1) < 0 else row for row in reduced]


def size_reduce(vector: Sequence[int], basis: Rows) -> Vector:
    """`vector` moved by lattice vectors until no basis vector shortens it (one Babai sweep after another).

    >>> size_reduce([10, 3], [[1, -7]])
    [10, 3]
    >>> size_reduce([3, -20], [[1, -7]])
    [0, 1]
    """
    reduced = list(vector)
    changed = True
    while changed:
        changed = False
        for row in basis:
            factor = nearest_quotient(_dot(reduced, row), _dot(row, row))
            if not factor:
                continue
            moved = [a - factor * b for a, b in zip(reduced, row, strict=True)]
            if _dot(moved, moved) < _dot(reduced, reduced):
                reduced, changed = moved, True
    return reduced


def solve(matrix: Rows, right: Sequence[int]) -> Vector | None:
    """A short integer solution v of ``A v = b``, or None when there is none.

    >>> solve([[6, 10, 15]], [1]), solve([[6, 10]], [1])
    ([1, 1, -1], None)
    """
    if not matrix:
        return []
    width = len(matrix[0])
    h, u = hermite_normal_form(transpose(matrix))
    rank = sum(any(line) for line in h)
    weights: Vector = []
    row = 0
    for column, wanted in enumerate(right):  # H transposed is a column echelon form: forward substitution
        missing = wanted - sum(weights[at] * h[at][column] for at in range(row))
        if row < rank and h[row][column]:
            if missing % h[row][column]:
                return None
            weights.append(missing // h[row][column])
            row += 1
        elif missing:
            return None
    solution = [sum(weights[at] * u[at][column] for at in range(rank)) for column in range(width)]
    return size_reduce(solution, lll(u[rank:]))
