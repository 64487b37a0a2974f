"""Order statistics: what is refused, NaN, integers, infinities, sizes known only as the program runs."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels

X = np.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize(
    ("op", "x", "static", "message"),
    [
        (kernels.topk, X, {"k": 5}, "topk: k: expected a number of elements of axis 1 of x, from 0 to 4, got 5"),
        (kernels.kthvalue, X, {"k": 0}, "kthvalue: k: expected a rank on axis 1 of x, from 1 to 4, got 0"),
        (kernels.median, X[:, :0], {"axis": 1}, "median: expected at least one element on axis 1 of x, got shape (3, 0)"),
        (kernels.quantile, X, {"q": 1.5}, "quantile: q: expected a number from 0 to 1, got 1.5"),
        (
            kernels.quantile, X[:, :0], {"q": 0.5, "axis": 1},
            "quantile: expected a known number of elements on axis 1 of x, at least 1, got shape (3, 0)",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(op, x, static, message):
    with pytest.raises(te.ArgumentError) as caught:
        op(x, **static)
    assert caught.value.message == message


def test_nan_is_the_greatest_and_infinities_are_numbers():
    x = np.array([np.nan, 1.0, -np.inf, np.nan, np.inf])
    values, places = kernels.sort(x)
    np.testing.assert_array_equal(values, [-np.inf, 1, np.inf, np.nan, np.nan])
    assert places.tolist() == [2, 1, 4, 0, 3]
    assert kernels.sort(x, descending=True)[1].tolist() == [0, 3, 4, 1, 2]


def test_integers():
    values, places = kernels.topk(np.array([3, 200, 7], np.uint8), k=2)
    assert values.tolist() == [200, 7] and values.dtype == np.uint8
    assert places.tolist() == [1, 2]


def test_sizes_known_as_it_runs():
    n = te.dim("n")
    compiled = kernels.sort.compile(te.placeholder((n,), "float64"))
    for count in (0, 1, 37):
        x = np.random.default_rng(count).integers(-5, 5, count).astype(np.float64)
        values, places = compiled(x)
        np.testing.assert_array_equal(values, np.sort(x))
        np.testing.assert_array_equal(places, np.argsort(x, kind="stable"))
