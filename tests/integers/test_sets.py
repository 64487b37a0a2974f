"""Subset, difference, gist, union, projection, image and preimage on random systems, against isl and brute force."""

from __future__ import annotations

import itertools
import random
import time

import pytest

from tensorexpr.integers import Affine, Domain, Union, eq
from tests.integers.oracles import box_points, isl_set, random_affine, random_domain
from tests.seeds import share_of


def pair(seed):
    rng = random.Random(f"pair{seed}")
    dims, sizes, largest = rng.randint(1, 4), rng.randint(0, 2), rng.choice([1, 2, 5, 50])
    box, divisions = rng.choice([None, 3, 20]), rng.random() < 0.25
    first = random_domain(rng, dims, sizes, rng.randint(1, 5), largest, box, 0.1, divisions, rng.random() < 0.7)
    second = random_domain(rng, dims, sizes, rng.randint(1, 4), largest, None, 0.15, divisions, rng.random() < 0.7)
    shared = [one for one in second.constraints if rng.random() < 0.3]
    return first.intersect(shared), second


def test_subset_difference_and_union_agree_with_isl():
    isl = pytest.importorskip("islpy")
    subsets = 0
    for seed in share_of(range(700)):
        a, b = pair(seed)
        theirs, others = isl_set(isl, a), isl_set(isl, b)
        difference = a.subtract(b)
        assert isl_set(isl, difference, a.sizes).is_equal(theirs.subtract(others)), f"seed {seed}: {a} minus {b}"
        assert a.is_subset(b) == theirs.is_subset(others), f"seed {seed}"
        assert a.is_disjoint(b) == theirs.is_disjoint(others), f"seed {seed}"
        assert a.is_equal(b) == theirs.is_equal(others), f"seed {seed}"
        assert isl_set(isl, a.intersect(b)).is_equal(theirs.intersect(others))
        assert all(one.is_disjoint(other) for one, other in itertools.combinations(difference.pieces, 2)), f"seed {seed}"
        assert not any(piece.is_empty() for piece in difference.pieces)
        both = a.union(b)
        assert isl_set(isl, both, a.sizes).is_equal(theirs.union(others)), f"seed {seed}"
        assert difference.is_subset(a) and both.subtract(b).is_equal(difference), f"seed {seed}"
        subsets += a.is_subset(b)
    assert subsets > 20


def test_gist_agrees_with_isl_and_is_irredundant():
    isl = pytest.importorskip("islpy")
    dropped = 0
    for seed in share_of(range(700)):
        a, context = pair(seed)
        short = a.gist(context)
        theirs, known = isl_set(isl, a), isl_set(isl, context)
        assert isl_set(isl, short).intersect(known).is_equal(theirs.intersect(known)), f"seed {seed}: {a} given {context}"
        assert isl_set(isl, a.simplified()).is_equal(theirs), f"seed {seed}"
        for one in short.constraints:
            others = [other for other in short.constraints if other is not one]
            assert one.is_false or not context.constrain(*others).implies(one), f"seed {seed}: {one} follows"
        dropped += len(a.constraints) - len(short.constraints)
    assert dropped > 230


def projected(seed):
    rng = random.Random(f"project{seed}")
    largest, gone, constraints, divisions = rng.choice(
        [(1, 3, 5, False), (2, 3, 4, False), (3, 2, 4, False), (5, 2, 3, False), (50, 1, 5, False), (3, 1, 3, True)]
    )
    dims = gone + rng.randint(1, 2)
    domain = random_domain(rng, dims, rng.randint(0, 1), rng.randint(1, constraints), largest, 6, 0.15, divisions, rng.random() < 0.8)
    return rng, domain, rng.sample(domain.dims, gone)


def test_projection_agrees_with_brute_force():
    slowest, pieces = (0.0, 0), {}
    for seed in share_of(range(800)):
        _, domain, gone = projected(seed)
        start = time.perf_counter()
        shadow = domain.project_out(gone)
        slowest = max(slowest, (time.perf_counter() - start, seed))
        rest = [name for name in domain.dims if name not in gone]
        hull = domain.hull_without(gone)
        for size in range(-2, 3, 2) if domain.sizes else [None]:
            sizes = {} if size is None else {"n": size}
            expected = {tuple(point[name] for name in rest) for point in domain.points(**sizes)}
            found = [tuple(point.values()) for point in shadow.points(**sizes)]
            assert found == sorted(expected), f"seed {seed}: {domain} without {gone}"  # sorted and unique: disjoint pieces
            assert shadow.count(**sizes) == len(expected)
            assert all(hull.contains({**sizes, **dict(zip(rest, point, strict=True))}) for point in expected), f"seed {seed}"
        pieces[len(shadow.pieces)] = pieces.get(len(shadow.pieces), 0) + 1
    print(f"slowest projection: {slowest[0] * 1e3:.0f} ms (seed {slowest[1]}); pieces {dict(sorted(pieces.items()))}")


def test_projection_agrees_with_isl():
    isl = pytest.importorskip("islpy")
    for seed in share_of(range(500)):
        rng = random.Random(f"shadow{seed}")
        gone = rng.randint(1, 2)
        dims = gone + rng.randint(1, 2)
        domain = random_domain(rng, dims, rng.randint(0, 2), rng.randint(2, dims + 2), 50 if gone == 1 else 4, None, 0.15, nonempty=True)
        theirs = isl_set(isl, domain).project_out(isl.dim_type.set, dims - gone, gone)
        shadow = domain.project_out(domain.dims[dims - gone :])
        assert isl_set(isl, shadow, domain.sizes).is_equal(theirs), f"seed {seed}: {domain}"
        assert theirs.is_subset(isl_set(isl, domain.hull_without(domain.dims[dims - gone :])))


def test_images_and_preimages_agree_with_brute_force():
    for seed in share_of(range(500)):
        rng = random.Random(f"image{seed}")
        dims = rng.choice([1, 2, 2, 3])
        domain = random_domain(rng, dims, 0, rng.randint(0, 2), 4, 4, 0.1, nonempty=True)
        values = {name: random_affine(rng, domain.dims, 3, divisions=dims < 3) for name in ("x", "i")[: rng.randint(1, 2)]}
        image = domain.image(values)
        expected = sorted({tuple(value.evaluate(point) for value in values.values()) for point in domain.points()})
        assert [tuple(point.values()) for point in image.points()] == expected, f"seed {seed}: {domain}, {values}"
        assert domain.is_injective(values) == (len(expected) == domain.count()), f"seed {seed}"
        back = domain.preimage({name: random_affine(rng, ["u", "v"], 3, divisions=True) for name in domain.dims}, ["u", "v"])
        assert isinstance(image, Union) and back.dims == ("u", "v")
    moved = Domain.box({"x": (0, 10)}).preimage({"x": 2 * Affine.of("o") + "k"}, ["o", "k"])
    for point in box_points(["o", "k"], -12, 12):
        assert moved.contains(point) == (0 <= 2 * point["o"] + point["k"] < 10)


def test_determined_names_are_the_inverse():
    """Random mixed-radix maps and strided windows: `determine` inverts what is injective, and only that."""
    inverted = 0
    for seed in share_of(range(400)):
        rng = random.Random(f"inverse{seed}")
        names = ["i", "j", "k"][: rng.randint(1, 3)]
        extents = [rng.randint(1, 5) for _ in names]
        if rng.random() < 0.6:  # mixed radix, signs at random
            factors, stride = [], rng.randint(1, 3)
            for extent in extents:
                factors.append(stride * rng.choice([1, -1]))
                stride *= extent
        else:
            factors = [rng.randint(1, 6) for _ in names]
        x = sum((Affine.of(name) * factor for name, factor in zip(names, factors, strict=True)), Affine.of(rng.randint(-3, 3)))
        box = Domain.box({"x": (-200, 200), **{name: (0, extent) for name, extent in zip(names, extents, strict=True)}})
        domain = box.constrain(eq("x", x))
        found = domain.determine(names)
        if found is None:
            continue
        inverted += 1
        assert set().union(*(value.names() for value in found.values())) <= {"x"}
        for point in domain.points():
            assert {name: value.evaluate(point) for name, value in found.items()} == {name: point[name] for name in names}, f"seed {seed}"
    assert inverted > 45
