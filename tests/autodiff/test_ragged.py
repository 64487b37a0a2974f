"""Reductions and scatters whose bounds depend on data: every combiner, both modes, first and second order."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.ir import Scan
from tensorexpr.language import program_of
from tests.autodiff.laws import check_orders

F64 = "float64"
RNG = np.random.default_rng(20)


def welford(a, b):
    """Count, mean and sum of squared deviations of two sets; either may be empty."""
    n = a[0] + b[0]
    share = te.where(n == 0, 0.0, b[0] / te.where(n == 0, 1.0, n))
    step = b[1] - a[1]
    return n, a[1] + step * share, a[2] + b[2] + step * step * a[0] * share


def log_sum_exp(a, b):
    """The greatest exponent and the sum of exponentials relative to it."""
    top = te.maximum(a[0], b[0])
    return top, a[1] * te.exp(a[0] - top) + b[1] * te.exp(b[0] - top)


REDUCTIONS = {
    "sum": te.sum,
    "prod": te.prod,
    "max": te.max,
    "min": te.min,
    "welford": lambda body, n: te.reduce(welford, (0.0, 0.0, 0.0), lambda k: (1.0, body(k), 0.0), n)[2],
    "log_sum_exp": lambda body, n: te.log(te.reduce(log_sum_exp, (-1e3, 0.0), lambda k: (body(k), 1.0), n)[1]),
    "product": lambda body, n: te.reduce(lambda a, b: a * b, 1.0, body, n),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_lengths_that_are_data(name):
    x, lengths = te.placeholder((3, 5), F64, name="x"), te.placeholder((3,), "int64", name="lengths")
    y = te.compute((3,), lambda i: REDUCTIONS[name](lambda k: te.sin(x[i, k]) + 1.5, lengths[i]), name="y")
    check_orders(y, [x], {x: RNG.standard_normal((3, 5)), lengths: np.array([2, 5, 3])})


@pytest.mark.parametrize("name", ["sum", "prod", "max", "welford"])
def test_rows_of_a_compressed_matrix(name):
    v, starts = te.placeholder((9,), F64, name="v"), te.placeholder((4,), "int64", name="starts")
    y = te.compute((3,), lambda i: REDUCTIONS[name](lambda k: v[starts[i] + k] ** 2, starts[i + 1] - starts[i]), name="y")
    check_orders(y, [v], {v: RNG.standard_normal(9), starts: np.array([0, 2, 6, 9])})


def test_a_product_over_a_length_that_is_data_costs_no_square():
    x, lengths = te.placeholder((2, 64), F64, name="x"), te.placeholder((2,), "int64", name="lengths")
    y = te.compute((2,), lambda i: te.prod(lambda k: x[i, k], lengths[i]), name="y")
    (found,) = te.gradient(te.compute((), lambda: y[0] + y[1]), [x])
    lengths_of_scans = [int(d.length.value) for d in program_of([found]).definitions if isinstance(d, Scan)]
    assert lengths_of_scans == [64, 64]
    data = RNG.uniform(0.5, 1.5, (2, 64))
    data[0, 3] = 0.0
    value = te.evaluate(found, {x: data, lengths: np.array([10, 64])})
    expected = np.zeros((2, 64))
    for i, n in enumerate((10, 64)):
        expected[i, :n] = [np.prod(np.delete(data[i, :n], k)) for k in range(n)]
    np.testing.assert_allclose(value, expected, rtol=1e-12)


def test_a_fold_with_an_empty_row_and_one_under_a_limit_of_the_user():
    x, lengths = te.placeholder((8,), F64, name="x"), te.placeholder((3,), "int64", name="lengths")

    def total(i):
        return te.reduce(lambda a, b: a + b, 0.0, lambda k: te.where(k < 6, x[te.minimum(k, 7)] ** 2, 1.0), te.minimum(lengths[i], 7))

    y = te.compute((3,), total, name="y")
    check_orders(te.compute((3,), lambda i: te.sin(y[i])), [x], {x: RNG.standard_normal(8), lengths: np.array([0, 3, 100])}, order=1)


@pytest.mark.parametrize("combine", ["sum", "max", "min", "prod"])
def test_scatters_over_lengths_that_are_data(combine):
    x, lengths = te.placeholder((3, 5), F64, name="x"), te.placeholder((3,), "int64", name="lengths")
    y = te.scatter((3,), lambda i, k: ((i + k) % 3, te.sin(x[i, k]) + 2.0), (3, lambda i: lengths[i]), combine=combine, name="y")
    check_orders(te.compute((3,), lambda i: te.cos(y[i])), [x], {x: RNG.standard_normal((3, 5)), lengths: np.array([2, 5, 3])})
