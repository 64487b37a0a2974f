"""Running sums and recurrences: what is refused, NaN, dtypes, sizes known only as the program runs."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels

X = np.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize(
    ("op", "arrays", "static", "message"),
    [
        (kernels.cumsum, (X,), {"axis": 2}, "cumsum: expected an axis of x between -2 and 1, got 2"),
        (kernels.linear_recurrence, (X, X[1:]), {}, "linear_recurrence: a: expected shape (2, 4) (that of b), got (3, 4)"),
        (kernels.ema, (X,), {"alpha": 0}, "ema: alpha: expected a number above 0 and at most 1, got 0"),
        (kernels.diff, (X,), {"n": -1}, "diff: n: expected an integer of at least 0, got -1"),
        (kernels.trapezoid, (X, X[0, :2]), {},
         "trapezoid: x: expected shape (4,) (one point per value along the axis, or what broadcasts to the shape of y), got (2,)"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(op, arrays, static, message):
    with pytest.raises(te.ArgumentError) as caught:
        op(*arrays, **static)
    assert caught.value.message == message


def test_extremes_are_nan_from_a_nan_on():
    values, places = kernels.cummax(np.array([1.0, np.nan, 2.0, np.nan]))
    np.testing.assert_array_equal(values, [1, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(places, [0, 1, 1, 3])


def test_integers_are_summed_in_64_bits():
    assert kernels.cumsum(np.full(3, 100, np.int8)).tolist() == [100, 200, 300]
    assert kernels.cumsum(np.ones(3, np.uint8)).dtype == np.uint64
    assert kernels.cumprod(np.ones(3, bool)).dtype == np.int64
    assert kernels.cummin(np.array([3, 1, 2], np.int8))[0].tolist() == [3, 1, 1]


def test_sizes_known_as_it_runs():
    n, m = te.dim("n"), te.dim("m")
    x = te.placeholder((n, m), "float64")
    compiled = kernels.cumsum.compile(x, axis=1, reverse=True, exclusive=True)
    np.testing.assert_allclose(compiled(X), [[*np.cumsum(row[:0:-1])[::-1], 0] for row in X])
    assert compiled(X[:, :0]).shape == (3, 0)
    assert kernels.diff.compile(x)(X[:, :0]).shape == (3, 0)
