"""Emptiness and ranges: 6,000 random systems against isl, 1,500 against brute force, and systems known to be hard."""

from __future__ import annotations

import itertools
import random
import time

import pytest

from tensorexpr.integers import Affine, Constraint, Domain, eq, ge, le
from tensorexpr.integers.sets.elimination import irredundant
from tensorexpr.integers.solving.bisection import bisect
from tensorexpr.integers.solving.emptiness import has_integer_point
from tensorexpr.integers.solving.simplex import Polyhedron
from tests.integers.oracles import box_points, isl_expr, isl_set, random_affine, random_domain
from tests.seeds import share_of


def test_emptiness_agrees_with_isl():
    """Every second system has a point planted in it, which needs no oracle and may be larger."""
    isl = pytest.importorskip("islpy")
    slowest, empty = (0.0, 0), 0
    seeds = share_of(range(3000))
    for seed in seeds:
        rng, planted = random.Random(seed), seed % 2 == 1
        dims, sizes, largest = rng.randint(1, 6 if planted else 4), rng.randint(0, 2), rng.choice([1, 2, 5, 50, 50])
        constraints, box = rng.randint(2, dims + sizes + 5), rng.choice([None, None, 3, 20, 1000])
        domain = random_domain(rng, dims, sizes, constraints, largest, box, rng.choice([0, 0.1, 0.3]), rng.random() < 0.3, planted)
        start = time.perf_counter()
        found = domain.is_empty()
        slowest = max(slowest, (time.perf_counter() - start, seed))
        empty += found
        assert found == (not planted and isl_set(isl, domain).is_empty()), f"seed {seed}: {domain}"
    print(f"slowest system: {slowest[0] * 1e3:.0f} ms (seed {slowest[1]}); {empty} empty")
    assert 1 / 6 < empty / len(seeds) < 1 / 2


def test_thin_systems_agree_with_isl():
    """Equalities with a small slack and large coefficients: rational points are plenty, integer points few."""
    isl = pytest.importorskip("islpy")
    empty = 0
    seeds = share_of(range(3000))
    for seed in seeds:
        rng = random.Random(f"thin{seed}")
        dims = rng.randint(2, 4)
        domain = random_domain(rng, dims, 0, 0, 50, rng.choice([10, 30]))
        for _ in range(rng.randint(1, 2)):
            expr = random_affine(rng, domain.dims, 50, density=1.0)
            domain = domain.constrain(Constraint(expr, ">="), Constraint(rng.randint(0, 12) - expr, ">="))
        found = domain.is_empty()
        empty += found
        assert found == isl_set(isl, domain).is_empty(), f"seed {seed}: {domain}"
    assert 1 / 5 < empty / len(seeds) < 9 / 10


def test_ranges_agree_with_brute_force():
    rational = 0
    seeds = share_of(range(1500))
    for seed in seeds:
        rng = random.Random(f"range{seed}")
        dims = rng.randint(1, 3)
        domain = random_domain(rng, dims, 0, rng.randint(0, 3), rng.choice([3, 50]), 4, 0.15, rng.random() < 0.4, rng.random() < 0.7)
        expr = random_affine(rng, domain.dims, 9, divisions=True)
        values = [expr.evaluate(point) for point in box_points(domain.dims, -4, 4) if domain.contains(point)]
        expected = (min(values), max(values)) if values else (None, None)
        assert domain.range(expr) == expected, f"seed {seed}: {domain}, {expr}"
        assert domain.is_empty() == (not values)
        rational += bool(values)
    assert rational / len(seeds) > 1 / 2


def test_ranges_agree_with_isl_where_unbounded():
    isl = pytest.importorskip("islpy")
    for seed in range(150):
        rng = random.Random(f"unbounded{seed}")
        domain = random_domain(rng, rng.randint(1, 3), rng.randint(0, 1), rng.randint(1, 5), rng.choice([2, 5]), nonempty=True)
        expr = random_affine(rng, domain.names, 5)
        line = isl.Set(f"[{', '.join(domain.sizes)}] -> {{ [{', '.join((*domain.dims, 'value'))}] : value = {isl_expr(expr)} }}")
        values = isl_set(isl, domain).add_dims(isl.dim_type.set, 1).intersect(line)
        values = values.project_out(isl.dim_type.set, 0, len(domain.dims)).project_out(isl.dim_type.param, 0, len(domain.sizes))
        found = [values.dim_min_val(0), values.dim_max_val(0)]
        expected = tuple(value.to_python() if value.is_int() else None for value in found)
        assert domain.range(expr) == expected, f"seed {seed}: {domain}, {expr}"


def test_hard_systems():
    x, y, z = (Affine.of(name) for name in "xyz")
    # Pugh's example: 27 <= 11x + 13y <= 45 and -10 <= 7x - 9y <= 4 has rational points and no integer one
    assert Domain("xy", [ge(11 * x + 13 * y, 27), le(11 * x + 13 * y, 45), ge(7 * x - 9 * y, -10), le(7 * x - 9 * y, 4)]).is_empty()
    # a knapsack with a huge right-hand side (Aardal, Hurkens and Lenstra): branching alone takes forever
    weights = [12223, 12224, 36674, 61119, 85569]
    names = ["a", "b", "c", "d", "e"]
    total = Affine(dict(zip(names, weights, strict=True)))
    positive = [ge(name, 0) for name in names]
    assert Domain(names, [*positive, eq(total, 89643481)]).is_empty()  # its Frobenius number
    found = Domain(names, [*positive, eq(total, 89643482)]).sample()
    assert found is not None and total.evaluate(found) == 89643482
    # a long thin strip that misses the lattice
    assert Domain("xy", [ge(50 * x - 49 * y, 1), le(50 * x - 49 * y, 1), ge(x, 2), le(x, 49)]).is_empty()
    assert not Domain("xy", [eq(50 * x - 49 * y, 1), ge(x, 2), le(x, 50)]).is_empty()
    # unbounded: the sizes can always be chosen
    assert not Domain("xyz", [ge(2 * x, 3 * y + 1), le(2 * x, 3 * y + z)]).is_empty()
    assert Domain("xy", [eq(2 * x, 4 * y + 1)]).is_empty()
    # a huge body: the number of values of a name must not matter
    huge = 10**30
    body = [ge(3 * x - 5 * y, 7 * z - huge), le(3 * x + 4 * y + 11 * z, huge), ge(5 * x - 2 * z, y), ge(6 * y + 7 * z, 2 * x - huge)]
    assert not Domain("xyz", [*body, eq((x + y + z) % 1000, 7)]).is_empty()
    assert Domain("xyz", [*body, ge(2 * x + 4 * y, 2 * huge + 1), le(x + 2 * y, huge)]).is_empty()


def test_linear_programs():
    triangle = Polyhedron([(0, 1, 0), (0, 0, 1), (7, -2, -2)], 2)
    assert triangle.feasible and triangle.maximum([0, 1, 1]) * 2 == 7
    assert triangle.maximum([0, -1, 0]) == 0
    assert not Polyhedron([(-1, 1), (0, -1)], 1).feasible
    assert Polyhedron([(0, 1, 0)], 2).maximum([0, 0, 1]) is None
    assert Polyhedron([(0, 1, -1)], 2).maximum([0, -1, 1]) == 0


def test_bisection_never_claims_what_is_false():
    rng = random.Random(5)
    settled = 0
    for _ in range(400):
        width = rng.randint(1, 3)
        rows = [(rng.randint(-9, 9), *(rng.randint(-4, 4) for _ in range(width))) for _ in range(rng.randint(1, 5))]
        box = [(0, 0), *((low, low + rng.randint(0, 6)) for low in (rng.randint(-5, 5) for _ in range(width)))]
        found = bisect(rows, box)
        points = itertools.product(*(range(low, high + 1) for low, high in box[1:]))
        expected = any(all(row[0] + sum(a * x for a, x in zip(row[1:], point, strict=True)) >= 0 for row in rows) for point in points)
        assert found is None or found == expected
        settled += found is not None
        if bisect(rows, [(None, high) if rng.random() < 0.5 else (low, None) for low, high in box]):  # only a point settles it
            assert has_integer_point((), rows)
    assert settled > 350


def test_irredundant_rows_are_those_that_the_others_do_not_imply():
    rng = random.Random(6)
    checked = 0
    for _ in range(300):
        width = rng.randint(1, 4)
        rows = [(rng.randint(-3, 9), *(rng.choice((0, 0, 1, -1, 2, -2, 3)) for _ in range(width))) for _ in range(rng.randint(2, 12))]
        rows = [row for row in dict.fromkeys(rows) if any(row[1:])]
        if not rows or not Polyhedron(rows, width).feasible:
            continue
        kept = list(rows)
        for row in rows:  # one polyhedron for each question
            others = [other for other in kept if other is not row]
            least = Polyhedron(others, width).maximum([-entry for entry in row])
            if least is not None and least <= 0:
                kept = others
        assert irredundant(rows) == kept
        checked += 1
    assert checked > 150
