"""Loops, points, counts and samples: the same points in every order, on random systems and known shapes."""

from __future__ import annotations

import math
import random
import time

import pytest

from tensorexpr.integers import Affine, Domain, eq, ge, le, lt
from tensorexpr.integers.counting.polygon import count_polygon, sum_of_floors
from tensorexpr.integers.sets.loops import visit
from tests.integers.oracles import box_points, random_affine, random_domain
from tests.seeds import share_of


def test_points_loops_counts_and_samples_agree_with_brute_force():
    slowest = (0.0, 0)
    for seed in share_of(range(1800)):
        rng = random.Random(f"points{seed}")
        dims, sizes = rng.choice([1, 2, 2, 3, 3, 4]), rng.randint(0, 2)
        domain = random_domain(
            rng, dims, sizes, rng.randint(0, 4), rng.choice([1, 2, 5, 50]), 3, 0.2, rng.random() < 0.4, rng.random() < 0.8
        )
        values = {name: rng.randint(-3, 3) for name in domain.sizes}
        expected = [point for point in box_points(domain.dims, -3, 3) if domain.contains({**values, **point})]
        start = time.perf_counter()
        assert list(domain.points(**values)) == expected, f"seed {seed}: {domain}, {values}"
        assert domain.count(**values) == len(expected), f"seed {seed}: {domain}, {values}"
        order = rng.sample(domain.dims, dims)
        nest = domain.loops(order)
        visited = [tuple(point[name] for name in order) for point in visit(nest, dict(values))]
        assert visited == sorted(tuple(point[name] for name in order) for point in expected), f"seed {seed}: {[str(one) for one in nest]}"
        for given in (values, {}):
            found = domain.sample(**given)
            assert (found is None) == (not expected if given or not sizes else domain.is_empty()), f"seed {seed}"
            assert found is None or (domain.contains(found) and given.items() <= found.items())
        slowest = max(slowest, (time.perf_counter() - start, seed))
    print(f"slowest system: {slowest[0] * 1e3:.0f} ms (seed {slowest[1]})")


def test_bounds_are_exact_for_the_last_name_and_hold_for_others():
    for seed in share_of(range(400)):
        rng = random.Random(f"bounds{seed}")
        domain = random_domain(rng, 3, 0, rng.randint(0, 3), 6, 3, 0.1, nonempty=True)
        points = list(domain.points())
        for name in domain.dims:
            own = domain.bounds(name)
            for point in points:
                values = own.range(point)
                assert point[name] in values
                assert all(domain.contains({**point, name: value}) for value in values), f"seed {seed}: {domain}, {own}"
            outer = domain.bounds(name, inner=[other for other in domain.dims if other != name])
            assert {point[name] for point in points} <= set(outer.range({})), f"seed {seed}: {outer}"


def test_context_shortens_loops():
    i, n = Affine.of("i"), Affine.of("n")
    domain = Domain(["i"], [ge(i, 0), lt(i, n), ge(n, 1), lt(2 * i, 3 * n)], ["n"])
    assert [str(one) for one in domain.loops()] == ["for i in range(0, n)"]
    strict = domain.constrain(ge("n", 5))
    assert [str(one) for one in strict.loops()] == ["for i in range(0, n) if n >= 5"]
    assert [str(one) for one in strict.loops(context=Domain([], [ge("n", 5)], ["n"]))] == ["for i in range(0, n)"]


def test_counts_of_large_domains_without_enumeration():
    oh, ow, kh, kw = (Affine.of(name) for name in ("oh", "ow", "kh", "kw"))
    box = Domain.box({"n": (0, 8), "co": (0, 32), "oh": (0, 28), "ow": (0, 28), "ci": (0, 32), "kh": (0, 3), "kw": (0, 3)})
    assert box.count() == 8 * 32 * 28 * 28 * 32 * 9
    padded = Domain([*box.dims, "h", "w"], box.constraints).constrain(
        eq("h", oh + kh - 1), eq("w", ow + kw - 1), ge("h", 0), lt("h", 28), ge("w", 0), lt("w", 28)
    )
    assert padded.count() == 8 * 32 * 32 * (3 * 28 - 2) ** 2
    i, j, k = (Affine.of(name) for name in "ijk")
    size = 10**9
    triangle = Domain(["i", "j"], [ge(i, 0), ge(j, i), lt(j, "n")], ["n"])
    assert triangle.count(n=size) == size * (size + 1) // 2
    assert triangle.constrain(eq((i + j) % 2, 0)).count(n=size) == sum(divmod((size // 2) * (size // 2 + 1) * 2, 2))
    tetrahedron = Domain(["i", "j", "k"], [ge(i, 0), ge(j, i), ge(k, j), lt(k, "n")], ["n"])
    assert tetrahedron.count(n=100) == math.comb(102, 3)
    assert Domain(["i"], [ge(i, 0), lt(i, "n"), eq(i % 7, 3)], ["n"]).count(n=10**12) == (10**12 - 4) // 7 + 1
    assert Domain([], [ge("n", 3)], ["n"]).count(n=3) == 1 and Domain([], [ge("n", 3)], ["n"]).count(n=2) == 0


def test_polygons_and_floor_sums():
    rng = random.Random(11)
    for _ in range(500):
        first, factor, constant, divisor = rng.randint(-9, 9), rng.randint(-30, 30), rng.randint(-50, 50), rng.randint(1, 20)
        last = first + rng.randint(-1, 30)
        expected = sum((factor * x + constant) // divisor for x in range(first, last + 1))
        assert sum_of_floors(first, last, factor, constant, divisor) == expected
    for _ in range(300):
        rows = [(rng.randint(0, 8), *sides) for sides in ((1, 0), (-1, 0), (rng.randint(-2, 2), 1), (rng.randint(-2, 2), -1))]
        rows += [row for row in ((rng.randint(-9, 30), rng.randint(-9, 9), rng.randint(-9, 9)) for _ in range(3)) if row[1] or row[2]]
        expected = sum(all(c + a * x + b * y >= 0 for c, a, b in rows) for x in range(-9, 10) for y in range(-30, 31))
        assert count_polygon(rows) == expected, rows


def test_samples_are_small():
    i, n = Affine.of("i"), Affine.of("n")
    assert Domain.box({"i": (2, n)}, ["n"]).sample() == {"n": 3, "i": 2}
    assert Domain(["i"], [le(i, -4)]).sample() == {"i": -4}
    assert Domain(["i"], [eq(3 * i, n + 2)], ["n"]).sample() == {"n": 1, "i": 1}
    assert Domain.box({"i": (0, n)}, ["n"]).sample(n=0) is None
    assert Domain(["i"], [eq(i, n), le(n, -2)], ["n"]).sample() == {"n": -2, "i": -2}


@pytest.mark.parametrize("largest", [2, 9])
def test_simplified_expressions_keep_their_value(largest):
    changed = 0
    for seed in share_of(range(300)):
        rng = random.Random(f"simplify{seed}")
        domain = random_domain(rng, 2, 0, rng.randint(0, 2), 3, 4, 0.1, nonempty=True)
        expr = random_affine(rng, domain.dims, largest) // rng.randint(2, 9) + random_affine(rng, domain.dims, largest, divisions=True)
        short = domain.simplify(expr)
        changed += short != expr
        assert all(short.evaluate(point) == expr.evaluate(point) for point in domain.points()), f"seed {seed}: {domain}, {expr}"
    assert changed > 2
