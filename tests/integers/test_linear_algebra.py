"""Normal forms, kernels, reduction and solutions, on random matrices against their definitions and sympy."""

from __future__ import annotations

import itertools
import random

import pytest

from tensorexpr.integers import Affine, hermite_normal_form, kernel_basis, lll, size_reduce, smith_normal_form, solve, solve_parametric
from tensorexpr.integers.solving.linear_algebra import apply, identity, lll_carrying, multiply, transpose


def random_matrix(rng, largest=50, most=6):
    height, width = rng.randint(1, most), rng.randint(1, most)
    sparse = rng.random()
    return [[rng.randint(-largest, largest) if rng.random() < sparse else 0 for _ in range(width)] for _ in range(height)]


def determinant(matrix):
    """Bareiss, as an independent check of unimodularity."""
    a = [list(row) for row in matrix]
    size, sign, last = len(a), 1, 1
    for k in range(size - 1):
        if not a[k][k]:
            swap = next((r for r in range(k + 1, size) if a[r][k]), None)
            if swap is None:
                return 0
            a[k], a[swap] = a[swap], a[k]
            sign = -sign
        for r in range(k + 1, size):
            for c in range(k + 1, size):
                a[r][c] = (a[r][c] * a[k][k] - a[r][k] * a[k][c]) // last
        last = a[k][k]
    return sign * a[-1][-1] if size else 1


def random_unimodular(rng, size):
    u = identity(size)
    for _ in range(3 * size):
        a, b = rng.randrange(size), rng.randrange(size)
        if a != b:
            factor = rng.randint(-3, 3)
            u[a] = [x + factor * y for x, y in zip(u[a], u[b], strict=True)]
    return u


def test_hermite_is_unimodular_echelon_and_unique():
    rng = random.Random(3)
    for _ in range(600):
        a = random_matrix(rng)
        h, u = hermite_normal_form(a)
        assert multiply(u, a) == h and abs(determinant(u)) == 1
        pivots = [next((c for c, entry in enumerate(row) if entry), None) for row in h]
        rank = sum(p is not None for p in pivots)
        assert all(p is None for p in pivots[rank:])
        assert pivots[:rank] == sorted(set(pivots[:rank]))
        for row, pivot in enumerate(pivots[:rank]):
            assert h[row][pivot] > 0
            assert all(0 <= h[above][pivot] < h[row][pivot] for above in range(row))
        assert hermite_normal_form(multiply(random_unimodular(rng, len(a)), a))[0] == h


def test_smith_is_diagonal_and_divides():
    rng = random.Random(4)
    for _ in range(500):
        a = random_matrix(rng, most=5)
        s, u, v = smith_normal_form(a)
        assert multiply(multiply(u, a), v) == s
        assert abs(determinant(u)) == abs(determinant(v)) == 1
        diagonal = [s[k][k] for k in range(min(len(s), len(s[0])))]
        assert all(entry == 0 for r, row in enumerate(s) for c, entry in enumerate(row) if r != c)
        assert all(entry >= 0 for entry in diagonal)
        assert all((b % a == 0) if a else b == 0 for a, b in itertools.pairwise(diagonal))


def test_smith_agrees_with_sympy():
    sympy = pytest.importorskip("sympy")
    normalforms = pytest.importorskip("sympy.matrices.normalforms")
    rng = random.Random(5)
    for _ in range(150):
        a = random_matrix(rng, largest=20, most=4)
        s, _, _ = smith_normal_form(a)
        theirs = normalforms.smith_normal_form(sympy.Matrix(a), domain=sympy.ZZ)
        size = min(len(a), len(a[0]))
        assert sorted(s[k][k] for k in range(size)) == sorted(abs(int(theirs[k, k])) for k in range(size))


def test_kernel_is_complete_and_short():
    sympy = pytest.importorskip("sympy")
    rng = random.Random(6)
    for _ in range(300):
        a = random_matrix(rng)
        basis = kernel_basis(a)
        assert all(not any(apply(a, v)) for v in basis)
        assert len(basis) == len(a[0]) - sympy.Matrix(a).rank()
        assert all(next(entry for entry in v if entry) > 0 for v in basis)
        if basis:  # saturated: every integer kernel vector is an integer combination, so the Smith form is all ones
            s, _, _ = smith_normal_form(basis)
            assert all(s[k][k] == 1 for k in range(len(basis)))
    assert kernel_basis([[7, 1]]) == [[1, -7]]
    assert kernel_basis([], 2) == [[1, 0], [0, 1]]


def test_lll_keeps_the_lattice_and_reduces():
    rng = random.Random(7)
    for _ in range(200):
        size = rng.randint(1, 5)
        basis = [[rng.randint(-50, 50) for _ in range(size)] for _ in range(size)]
        if not determinant(basis):
            continue
        reduced, carried = lll_carrying(basis, identity(size))
        assert multiply(carried, basis) == reduced
        assert hermite_normal_form(reduced)[0] == hermite_normal_form(basis)[0]
        assert lll(basis) == reduced
        first = sum(entry * entry for entry in reduced[0])
        shortest = min(sum(entry * entry for entry in row) for row in basis)
        assert first <= 2 ** (size - 1) * shortest


def test_solve_finds_a_solution_when_there_is_one():
    rng = random.Random(8)
    solved = 0
    for _ in range(600):
        a = random_matrix(rng, most=4)
        hidden = [rng.randint(-9, 9) for _ in a[0]]
        b = apply(a, hidden) if rng.random() < 0.6 else [rng.randint(-20, 20) for _ in a]
        v = solve(a, b)
        if v is not None:
            solved += 1
            assert apply(a, v) == b
        else:  # no solution modulo some number: the Smith form says which
            s, u, _ = smith_normal_form(a)
            right = apply(u, b)
            entries = [s[k][k] if k < len(a[0]) else 0 for k in range(len(a))]
            assert any((value % entry if entry else value) for value, entry in zip(right, entries, strict=True))
    assert solved > 300
    assert size_reduce([100, -3], []) == [100, -3]


def test_parametric_solutions_are_exactly_the_solutions():
    rng = random.Random(9)
    for _ in range(400):
        a = random_matrix(rng, largest=6, most=3)
        right = [Affine({"x": rng.randint(-4, 4), "y": rng.randint(-4, 4)}, rng.randint(-4, 4)) for _ in a]
        answer = solve_parametric(a, right)
        for x, y in itertools.product(range(-4, 5), repeat=2):
            point = {"x": x, "y": y}
            b = [value.evaluate(point) for value in right]
            solvable = solve(a, b) is not None
            if answer is None:
                assert not solvable
                continue
            assert solvable == all(condition.holds(point) for condition in answer.congruences)
            if solvable:
                assert apply(a, [value.evaluate(point) for value in answer.particular]) == b
        if answer is not None:
            assert answer.kernel == kernel_basis(a)
            names = [f"t{at}" for at in range(len(answer.kernel))]
            assert len(answer.values(names)) == len(a[0])


def test_parametric_examples():
    window = solve_parametric([[2, 1]], ["x"])
    assert ([str(v) for v in window.particular], window.kernel, window.congruences) == (["0", "x"], [[1, -2]], [])
    stride = solve_parametric([[3]], ["x"])
    assert ([str(v) for v in stride.particular], [str(c) for c in stride.congruences]) == (["x//3"], ["x % 3 == 0"])
    diagonal = solve_parametric([[1], [1]], ["x", "y"])
    assert [str(c) for c in diagonal.congruences] in (["x == y"], ["y == x"])
    assert solve_parametric([[2], [2]], ["x", Affine.of("x") + 1]) is None
    assert solve_parametric([], [], 2).kernel == [[1, 0], [0, 1]]
    assert transpose([], 2) == [[], []]
