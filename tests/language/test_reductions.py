"""Reductions and user combiners: values and dtypes against NumPy, and what is refused."""

import warnings

import numpy as np
import pytest

from tensorexpr import dtypes, errors, kernels
from tensorexpr import language as te
from tests.language.messages import refused

A = te.placeholder((3, 4), name="A")
a = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def run(body, shape=(), **inputs):
    return te.evaluate(te.compute(shape, body), {A: a})


@pytest.mark.parametrize("name", ("sum", "prod", "max", "min", "argmax", "argmin"))
def test_against_numpy(name):
    reduction, expected = getattr(te, name), getattr(np, name)
    np.testing.assert_allclose(run(lambda: reduction(lambda i, j: A[i, j], (3, 4))), expected(a), rtol=1e-5)
    np.testing.assert_allclose(run(lambda i: reduction(lambda j: A[i, j], 4), 3), expected(a, axis=1), rtol=1e-5)
    np.testing.assert_allclose(run(lambda j: reduction(lambda i: A[i, j], (3,)), 4), expected(a, axis=0), rtol=1e-5)


def test_all_and_any():
    assert run(lambda i: te.all(lambda j: A[i, j] > -9, 4), 3).all()
    assert run(lambda: te.any(lambda i, j: A[i, j] > 9, (3, 4)))[()] == False  # noqa: E712
    assert te.compute((), lambda: te.any(lambda j: A[0, j], 4)).dtype is dtypes.bool_


@pytest.mark.parametrize("dtype", [d.name for d in dtypes.DTYPES if d is not dtypes.bfloat16])
def test_dtypes_of_sums_and_extremes(dtype):
    t = te.placeholder((3,), dtype)
    data = np.array([1, 0, 1], dtype)
    for name in ("sum", "prod", "max", "min", "argmax"):
        found = te.evaluate(te.compute((), lambda name=name: getattr(te, name)(lambda k: t[k], 3)), {t: data})
        expected = getattr(np, name)(data)
        assert found.dtype == expected.dtype and found == expected, name


def test_nested_dependent_and_guarded():
    np.testing.assert_allclose(run(lambda i: te.sum(lambda j: A[i, j], i + 1), 3), [a[i, : i + 1].sum() for i in range(3)], rtol=1e-5)
    np.testing.assert_allclose(
        run(lambda: te.sum(lambda i, j: A[i, j], (3, lambda i: i + 2))), sum(a[i, : i + 2].sum() for i in range(3)), rtol=1e-5
    )
    np.testing.assert_allclose(
        run(lambda i: te.sum(lambda j: A[i, j], 4, where=lambda j: (j != i) & (A[i, j] > 0)), 3),
        [sum(a[i, j] for j in range(4) if j != i and a[i, j] > 0) for i in range(3)],
        rtol=1e-5,
    )
    np.testing.assert_allclose(run(lambda: te.max(lambda i: te.sum(lambda j: A[i, j], 4), 3)), a.sum(1).max(), rtol=1e-5)
    np.testing.assert_allclose(
        run(lambda i: te.exp(A[i, 0]) / te.sum(lambda k: te.exp(A[k, 0]), 3), 3), np.exp(a[:, 0]) / np.exp(a[:, 0]).sum(), rtol=1e-5
    )


def test_ties_and_nans():
    t = te.placeholder((5,))
    first = te.compute((), lambda: te.argmax(lambda k: t[k], 5))
    assert te.evaluate(first, {t: np.array([1, 3, 3, 2, 3], np.float32)}) == 1
    assert te.evaluate(first, {t: np.array([1, 3, np.nan, 2, np.nan], np.float32)}) == 2
    assert np.isnan(te.evaluate(te.compute((), lambda: te.max(lambda k: t[k], 5)), {t: np.array([1, 3, np.nan, 2, 0], np.float32)}))


def test_over_nothing():
    n = te.dim("n")
    t = te.placeholder((n,), name="t")
    empty = {t: np.zeros(0, np.float32)}
    assert te.evaluate(te.compute((), lambda: te.sum(lambda k: t[k], n)), empty) == 0
    assert te.evaluate(te.compute((), lambda: te.max(lambda k: t[k], n)), empty) == -np.inf
    assert te.evaluate(te.compute((), lambda: te.min(lambda k: te.cast(t[k], "int8"), n)), empty) == 127
    assert te.evaluate(te.compute((), lambda: te.all(lambda k: t[k], n)), empty)
    text = refused(lambda: te.compute((), lambda: te.max(lambda k: A[0, k], 0)))
    assert "expected something to take the max of, got a reduction over nothing" in text
    assert "in:   max(A[0, k] for k in range(0)) (" in text and __file__ in text and "guard it with te.where" in text
    assert "the argmin of" in refused(lambda: te.compute(3, lambda i: te.argmin(lambda k: A[i, k], 4, where=lambda k: k > 5)))
    assert "the min of" in refused(
        lambda: te.compute(3, lambda i: te.where(i > 1, te.min(lambda k: A[i, k], 4, where=lambda k: k + i > 9), 0.0))
    )
    # Empty for some outer indices only, or inside an empty definition: that is fine.
    assert run(lambda i: te.max(lambda k: A[0, k], i), 3)[0] == -np.inf
    assert te.compute((0,), lambda i: te.max(lambda k: A[0, k], 0)).shape == (0,)


def test_bad_reductions():
    assert "te.sum: expected a function of 2 indices, got one of 1 parameter" in refused(lambda: te.sum(lambda k: 1, (2, 3)))
    assert "te.sum: expected extents that are not negative, got -3" in refused(lambda: te.sum(lambda k: 1, -3))
    assert "te.sum: expected extents that are integers, got 2.5" in refused(lambda: te.sum(lambda k: 1, 2.5))
    assert "te.sum: expected the body to return one value, got a tuple of 2" in refused(lambda: te.sum(lambda k: (1, 2), 3))
    text = refused(lambda: te.max(te.dim("n"), 0.0))
    assert "te.max: expected a function of indices to reduce, got n" in text and "te.maximum(a, b) takes two values" in text
    assert "te.max, where: expected a bool condition, got int64" in refused(lambda: te.max(lambda k: k, 3, where=lambda k: k))
    assert "te.max, where: expected a function of 1 index" in refused(lambda: te.max(lambda k: k, 3, where=lambda k, j: k > j))
    assert "expected a scalar, got a Tensor" in refused(lambda: te.sum(lambda k: A, 3))
    text = refused(lambda: te.compute((), lambda: te.argmax(lambda i, j: A[i, j], (3, lambda i: i + 1))))
    assert "te.argmax: expected extents that do not depend on each other, got i + 1" in text and "rectangle" in text


def test_combiner_of_one_value():
    product = te.compute((), lambda: te.reduce(lambda p, q: p * q, 1.0, lambda k: A[0, k], 4), name="P")
    assert repr(product) == "P: f32 = reduce(lambda p, q: p * q, f32(1.0), (A[0, k] for k in range(4)))"
    np.testing.assert_allclose(te.evaluate(product, {A: a}), a[0].prod(), rtol=1e-5)


def test_running_mean_and_variance():
    def combine(x, y):
        (n, mean, spread), (m, other, other_spread) = x, y
        total = n + m
        delta = other - mean
        weight = te.where(total > 0, m / te.maximum(total, 1.0), 0.0)
        return total, mean + delta * weight, spread + other_spread + delta * delta * n * weight

    def body(i):
        n, mean, spread = te.reduce(combine, (0.0, 0.0, 0.0), lambda k: (1.0, A[i, k], 0.0), 4)
        return mean, spread / n

    mean, variance = te.evaluate(te.compute(3, body), {A: a})
    assert mean.dtype == np.float32
    np.testing.assert_allclose(mean, a.mean(1), rtol=1e-4)
    np.testing.assert_allclose(variance, a.var(1), rtol=1e-4)


def test_maximum_with_its_index():
    def better(x, y):
        take = y[0] > x[0]
        return te.where(take, y[0], x[0]), te.where(take, y[1], x[1])

    values, places = te.compute(3, lambda i: te.reduce(better, (-np.inf, -1), lambda k: (A[i, k], k), 4))
    values, places = te.evaluate([values, places], {A: a})
    assert values.dtype == np.float32 and places.dtype == np.int64
    assert (places == a.argmax(1)).all() and (values == a.max(1)).all()


def test_log_sum_exp():
    def combine(x, y):
        top = te.maximum(x[0], y[0])
        return top, x[1] * te.exp(x[0] - top) + y[1] * te.exp(y[0] - top)

    def body(i):
        top, total = te.reduce(combine, (np.float32(-1e30), 0.0), lambda k: (A[i, k], 1.0), 4, where=lambda k: k != 2)
        return top + te.log(total)

    np.testing.assert_allclose(run(body, 3), np.log(np.exp(a[:, [0, 1, 3]]).sum(1)), rtol=1e-5)


def test_bad_combiners():
    pair = lambda x, y: (x[0] + y[0], x[1] + y[1])  # noqa: E731
    assert "te.reduce: expected the body to return a tuple of 2, got one value" in refused(
        lambda: te.reduce(pair, (0.0, 0.0), lambda k: A[0, k], 4)
    )
    assert "te.reduce: expected combine to return a tuple of 2, got one value" in refused(
        lambda: te.reduce(lambda x, y: x[0], (0.0, 0.0), lambda k: (A[0, k], 1.0), 4)
    )
    assert "te.reduce: expected the body to return one value, got a tuple of 2" in refused(
        lambda: te.reduce(pair, 0.0, lambda k: (1, 2), 4)
    )
    assert "te.reduce, combine: expected a function of two values, got one of 1 parameter" in refused(
        lambda: te.reduce(lambda x: x, 0.0, lambda k: A[0, k], 4)
    )
    text = refused(lambda: te.reduce(lambda x, y: x + y + A[0, 0], 0.0, lambda k: A[0, k], 4))
    assert "te.reduce: expected combine to use its arguments and numbers alone, got A[0, 0]" in text
    assert "te.reduce: expected combine to return int64 like its arguments, got float64" in refused(
        lambda: te.reduce(lambda x, y: x / y, 1, lambda k: k, 4)
    )
    assert "te.reduce: expected combine to return int64, got 0.5" in refused(lambda: te.reduce(lambda x, y: 0.5, 1, lambda k: k, 4))
    assert "te.reduce: expected an identity made of numbers, got n" in refused(
        lambda: te.reduce(lambda x, y: x, te.dim("n"), lambda k: k, 4)
    )


def test_products_of_narrow_integers_warn_once_with_the_cast_to_write():
    a = te.placeholder((5,), "int8", name="a")

    def total():
        return te.compute((), lambda: te.sum(lambda k: a[k] * a[k], 5))

    with pytest.warns(
        errors.PromotionWarning, match=r"products of int8 wrap around in int8 .*: a\[k\] \* a\[k\]\. Cast the factors first, te\.cast"
    ) as seen:
        total()
        total()
    assert len(seen) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        te.compute((), lambda: te.sum(lambda k: te.cast(a[k], "int32") * te.cast(a[k], "int32"), 5))
        te.compute((), lambda: te.sum(lambda k: te.cast(a[k] * a[k], "int64"), 5))
        te.compute((), lambda: te.sum(lambda k: a[k] * 2, 5))


def test_data_that_becomes_float64_by_a_number_warns_once_with_what_to_write():
    x = te.placeholder((5,), name="x")

    def scaled():
        return te.compute((5,), lambda i: x[i] / np.sqrt(6))

    with pytest.warns(errors.PromotionWarning, match=r"x\[i\] of float32 becomes float64, the dtype of the number 2\.449") as seen:
        scaled()
        scaled()
    assert len(seen) == 1 and str(seen[0].message).endswith("; float(2.449489742783178) keeps float32")
    with pytest.warns(errors.PromotionWarning, match=r'te\.cast\(0\.5 \* f64\(i\), "float32"\) keeps float32'):
        te.compute((5,), lambda i: x[i] - 0.5 * i)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        te.compute((5,), lambda i: x[i] * i + x[i] * float(np.sqrt(6)) + x[i] * np.float32(2))
        te.compute((5,), lambda i: te.cast(x[i], "float64") * np.sqrt(6))
        kernels.interpolate(np.ones((1, 1, 4, 4), np.float32), size=(8, 8))  # lines of the library are not the user's
