"""Formulas of numbers of points: against the exact count at many sizes, and written as one would write them."""

from __future__ import annotations

import itertools
import random

import pytest
import sympy

from tensorexpr.integers import Affine, Constraint, Domain, eq, ge, le, lt
from tensorexpr.integers.closed_form import closed_form
from tensorexpr.integers.counting.formulas import text, to_sympy
from tensorexpr.integers.counting.polynomial import Polynomial
from tests.integers.oracles import random_affine
from tests.seeds import share_of

I, J, K, N, M, H = (Affine.of(name) for name in ("i", "j", "k", "n", "m", "h"))


def agrees(domain: Domain, known: list[Constraint], largest: int) -> Polynomial | None:
    """The formula, which gives the exact count at all sizes up to `largest` at which what is known holds."""
    found = closed_form(domain, known)
    if found is not None:
        for values in itertools.product(range(largest + 1), repeat=len(domain.sizes)):
            sizes = dict(zip(domain.sizes, values, strict=True))
            if all(one.holds(sizes) for one in known):
                assert found.evaluate(sizes) == domain.count(**sizes), (str(domain), sizes, text(found))
    return found


@pytest.mark.parametrize(
    ("constraints", "sizes", "formula"),
    [
        ([ge(I, 0), lt(I, N), ge(J, 0), lt(J, M)], "nm", "m*n"),
        ([ge(I, 0), lt(I, N), ge(J, 0), le(J, I)], "n", "n*(n + 1)/2"),
        ([ge(I, 0), lt(I, N), ge(J, 0), lt(J, I)], "n", "n*(n - 1)/2"),
        ([ge(I, 0), lt(I, N), ge(J, 0), lt(J, I), ge(K, 0), lt(K, J)], "n", "n*(n - 2)*(n - 1)/6"),
        ([ge(I, 0), lt(I, N), ge(J, 0), le(J, I), ge(K, 0), lt(K, M)], "nm", "m*n*(n + 1)/2"),
        ([ge(I, 0), lt(I, N), ge(J, 0), le(J, I), lt(J, M)], "nm", "min(m, n)*(-min(m, n) + 2*n + 1)/2"),
        ([ge(I, 0), lt(I, N), ge(J, 0), lt(J, M), eq(I, J)], "nm", "min(m, n)"),
        ([ge(I, 0), lt(I, N), ge(N, 3)], "n", "(n >= 3)*n"),
        ([ge(I, 0), lt(I, N), eq(I % 3, 0)], "n", "(n + 2)//3"),
        ([ge(I, 0), lt(I, N), ge(J, 0), lt(2 * J, I)], "n", "(n//2)*(-(n//2) + n)"),
        ([ge(I, 0), le(I, (H - 3) // 2), ge(K, 0), lt(K, 3)], "h", "3*max((h + 1)//2 - 1, 0)"),
        # The same reads by the element that is read, of which each is read by up to two: what a gather visits.
        ([ge(J, 0), lt(J, H), ge(2 * I, J - 2), le(2 * I, J), ge(I, 0), le(I, (H - 3) // 2)], "h", "3*max((h + 1)//2 - 1, 0)"),
        # Padding of one on both sides.
        (
            [ge(I, 0), le(I, (H - 1) // 2), ge(K, 0), lt(K, 3), ge(2 * I + K, 1), le(2 * I + K, H)],
            "h",
            "((h + 1)//2) + (h//2) + max((h + 1)//2 - 1, 0)",
        ),
        ([ge(I, 0), lt(I, N), ge(J, 0), lt(J, N), ge(I - J, -2), le(I - J, 1)], "n", "2*max(n - 1, 0) + max(n - 2, 0) + n"),
    ],
)
def test_formulas(constraints, sizes, formula):
    dims = [name for name in "ijk" if any(name in one.names() for one in constraints)]
    found = agrees(Domain(dims, constraints, list(sizes)), [ge(name, 0) for name in sizes], 12)
    assert found is not None and text(found) == formula


def test_what_is_known_of_sizes_makes_a_formula_shorter():
    domain = Domain(["i", "k"], [ge(I, 0), le(I, (H - 3) // 2), ge(K, 0), lt(K, 3)], ["h"])
    assert text(agrees(domain, [ge(H, 3)], 20)) == "3*(((h + 1)//2) - 1)"


def test_coefficients_that_share_no_unit_go_by_residue_classes():
    domain = Domain(["i", "j"], [ge(I, 0), ge(J, 0), le(2 * I + 3 * J, N)], ["n"])
    assert agrees(domain, [ge(N, 0)], 40) is not None
    cube = Domain(["i", "j", "k"], [ge(I, 0), ge(J, 0), ge(K, 0), le(2 * I + 3 * J + 5 * K, N)], ["n"])
    found = agrees(cube, [ge(N, 0)], 30)
    assert found is None or found.evaluate({"n": 30}) == cube.count(n=30)


@pytest.mark.parametrize("seed", share_of(range(250)))
def test_random_systems_agree_with_the_count(seed):
    rng = random.Random(seed)
    dims, sizes = ["i", "j", "k"][: rng.randint(1, 3)], ["n", "m"][: rng.randint(1, 2)]
    constraints = []
    for name in dims:
        stop = Affine.of(rng.choice(sizes)) + rng.randint(-1, 2) if rng.random() < 0.8 else Affine.of(rng.randint(1, 5))
        constraints += [ge(name, rng.randint(-2, 1)), lt(name, stop // rng.choice((1, 1, 2, 3)))]
    for _ in range(rng.randint(0, 2)):
        expr = random_affine(rng, (*dims, *sizes), rng.choice((1, 2, 3)), divisions=True)
        constraints.append(Constraint(expr, "==" if rng.random() < 0.15 else ">="))
    agrees(Domain(dims, constraints, sizes), [ge(name, 0) for name in sizes], 9 if len(sizes) == 1 else 6)


def test_most_random_systems_have_a_formula():
    """The limits are there for the rest: all but a few of the systems above have a closed form."""
    found = 0
    for seed in range(60):
        rng = random.Random(seed)
        constraints = [one for name in "ij" for one in (ge(name, 0), lt(name, N + rng.randint(-1, 2)))]
        constraints.append(Constraint(random_affine(rng, ("i", "j", "n"), 2), ">="))
        found += closed_form(Domain(["i", "j"], constraints, ["n"]), [ge(N, 0)]) is not None
    assert found == 60


def test_infinitely_many_points_have_no_formula():
    assert closed_form(Domain(["i"], [ge(I, 0)], ["n"])) is None


def test_the_limits_end_the_search():
    names = [f"x{k}" for k in range(6)]
    total = sum((Affine.of(name) * (3 + k) for k, name in enumerate(names)), Affine.of(0))
    domain = Domain(names, [*(ge(name, 0) for name in names), le(total, N)], ["n"])
    assert closed_form(domain, [ge(N, 0)]) is None


def test_sympy_expressions():
    found = closed_form(Domain(["i", "j"], [ge(I, 0), lt(I, N), ge(J, 0), le(2 * J, I), lt(J, M)], ["n", "m"]), [ge(N, 0), ge(M, 0)])
    expression = to_sympy(found)
    n, m = (sympy.Symbol(name, integer=True, nonnegative=True) for name in "nm")
    assert expression.free_symbols == {n, m}
    assert all(expression.subs({n: a, m: b}) == found.evaluate({"n": a, "m": b}) for a in range(6) for b in range(6))
    guarded = to_sympy(closed_form(Domain(["i"], [ge(I, 0), lt(I, N), ge(N, 3)], ["n"]), [ge(N, 0)]))
    assert [guarded.subs({n: value}) for value in (2, 3, 4)] == [0, 3, 4]


def test_sums_of_powers():
    for power in range(6):
        below = Polynomial.of("n").power_sum_below(power)
        assert [below.evaluate({"n": n}) for n in range(8)] == [sum(x**power for x in range(n)) for n in range(8)]
