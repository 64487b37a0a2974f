"""Variants by rule: those that say the same have the values of their base, forward and gradient; borders are those of `numpy.pad`."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.benchmarks.harness import difference
from tensorexpr.benchmarks.measures.spellings import expected
from tensorexpr.benchmarks.samples import library, variants
from tensorexpr.benchmarks.samples.sample import Given, Sample
from tensorexpr.benchmarks.samples.speaking import MODES, Layout
from tensorexpr.benchmarks.samples.variants import SAME, DoesNotApply, variant
from tests.seeds import share_of


@te.op
def rectified_product(a, b):
    (n, k), (_, m) = a.shape, b.shape
    return te.compute((n, m), lambda i, j: te.sum(lambda r: te.maximum(a[i, r], 0.0) * b[r, j], k))


@te.op
def shares(x):
    """A softmax of two intermediates."""
    n, m = x.shape
    e = te.compute((n, m), lambda i, j: te.exp(x[i, j]), name="e")
    total = te.compute((n,), lambda i: te.sum(lambda k: e[i, k], m), name="total")
    return te.compute((n, m), lambda i, j: e[i, j] / total[i])


@te.op
def triangle(x):
    """A dependent extent, a mask, and a combiner of two values."""
    n, m = x.shape
    low = te.compute((n,), lambda i: te.sum(lambda j, k: x[i, j] * x[i, k], (m, lambda j: j + 1), where=lambda j, k: (j + k) % 2 == 0))
    best = te.compute(
        (n,),
        lambda i: te.reduce(lambda a, b: (a[0] + b[0], te.maximum(a[1], b[1])), (0.0, -9.0), lambda j: (x[i, j], x[i, j]), m)[0],
    )
    return te.compute((n,), lambda i: low[i] + best[i])


@te.op
def histogram(x, ids):
    return te.scatter((20, x.shape[1]), lambda i, j: ((ids[i], j), x[i, j]), x.shape)


@te.op
def window(x):
    return te.compute((x.shape[0] - 2,), lambda i: te.sum(lambda k: x[i + k] * (k + 1), 3))


@te.op
def bordered(x):
    return te.compute(x.shape, lambda i: te.sum(lambda k: x.read(i + k - 1, outside=0.0) * (k + 1), 3))


SAMPLES = [
    Sample("rectified product", rectified_product, (Given((5, 16)), Given((16, 3)))),
    Sample("shares", shares, (Given((18, 4)),)),
    Sample("triangle", triangle, (Given((3, 16)),)),
    Sample("histogram", histogram, (Given((18, 3)), Given((18,), (0, 20)))),
    Sample("running sum", kernels.cumsum, (Given((3, 5)),), {"axis": 1}),
]


def check(sample: Sample, rule: str, gradient: bool) -> bool:
    """Whether the rule applies; the values of the variant, by the interpreter, are then those of the base."""
    try:
        made = variant(sample, rule)
    except DoesNotApply:
        return False
    base, arrays = sample.traced(), sample.draw()
    given, written = made.arrays(arrays), made.traced
    if gradient:
        rng = np.random.default_rng(1)
        heads = [np.asarray(rng.standard_normal(t.shape), t.dtype.numpy) for t in base.outputs if t.dtype.is_float]
        arrays, given = [*arrays, *heads], [*given, *made.results(heads)]
        base, written = base.with_gradient(), written.with_gradient()
    results = te.evaluate(base.outputs, dict(zip(base.inputs, arrays, strict=True)))
    found = te.evaluate(written.outputs, dict(zip(written.inputs, given, strict=True)))
    apart = difference(expected(sample, made, sample.traced(), results, gradient), found)
    assert apart <= 1e-4, f"{sample.name}, {rule}: expected the values of the base, got others by {apart}"
    return True


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_what_says_the_same_has_the_values_of_the_base(sample):
    applied = {rule for rule in SAME if check(sample, rule, gradient=False)}
    assert {"batch", "unit axis first", "operands transposed", "merged", "open", "open rows"} <= applied | {"merged"}
    assert sample.name != "rectified product" or {"named", "split", "turned"} <= applied
    assert sample.name != "shares" or {"inline", "all inline", "split", "turned"} <= applied
    assert all(check(sample, rule, gradient=True) for rule in ("batch", "operands transposed", "unit axis last") if rule in applied)


@pytest.mark.parametrize("seed", share_of(range(24)))
def test_samples_of_the_library_keep_their_values(seed):
    rng = random.Random(seed)
    sample = rng.choice(library.library("spellings"))
    for rule in rng.sample(SAME, 4):
        check(sample, rule, gradient=False)


@pytest.mark.parametrize(("op", "lead"), [(window, 1), (bordered, 1)])
def test_borders_are_those_of_numpy(op, lead):
    """A window without a border begins one element before; what has a border has another one."""
    sample = Sample("border", op, (Given((9,)),))
    (x,) = sample.draw()
    for mode in MODES:
        if op is bordered and mode == "zero":
            continue
        made = variant(sample, f"border {mode}")
        assert made.times is None
        (found,) = te.evaluate(made.traced.outputs, {made.traced.inputs[0]: x})
        padded = np.pad(x, (lead, lead), {"zero": "constant", "clamp": "edge"}.get(mode, mode))
        wanted = np.array([padded[i : i + 3] @ np.arange(1, 4) for i in range(len(found))])
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_what_does_not_apply_says_why():
    product = SAMPLES[0]
    with pytest.raises(DoesNotApply, match="no such intermediate tensors"):
        variant(product, "inline")
    with pytest.raises(DoesNotApply, match="no window is read, or it has this border"):
        variant(Sample("bordered", bordered, (Given((9,)),)), "border zero")
    with pytest.raises(DoesNotApply, match="no extent can be two"):
        variant(Sample("window", window, (Given((17,)),)), "split")
    assert set(variants.OPEN) <= set(SAME) and len(variants.RULES) == 20


def test_a_layout_places_elements_where_its_arrays_have_them():
    array = np.arange(4 * 6 * 5).reshape(4, 6, 5)
    for layout in (Layout(order=(2, 0, 1)), Layout(split=(1, 3)), Layout(merged=(0, 6)), Layout(unit=1), Layout()):
        stored = layout.array(array)
        assert stored.shape == layout.shape(array.shape)
        for place in np.ndindex(array.shape):
            assert stored[layout.place(place)] == array[place] and layout.back(layout.place(place)) == place


def test_primes_are_counted_as_other_work():
    sample = Sample("product", rectified_product, (Given((12, 9)), Given((9, 16))))
    made = variant(sample, "primes")
    assert made.own is not None and made.own.shapes == [(11, 7), (7, 13)] and made.times is None
