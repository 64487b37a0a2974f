"""Pooling: what it refuses, sizes known only at run time, edges."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels

X = te.placeholder((2, 5, 6), name="x")

N = te.placeholder((2, te.dim("n"), te.dim("m")), "float64", name="x")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: kernels.max_pool2d(X, kernel_size=(2, 2, 2)),
            "max_pool2d: kernel_size: expected an integer of at least 1, or 2 of them, one per axis, got (2, 2, 2)",
        ),
        (lambda: kernels.max_pool2d(X, kernel_size=3, padding=2), "max_pool2d: padding: expected at most half of the window of 3, got 2"),
        (
            lambda: kernels.max_pool2d(X, kernel_size=7),
            "max_pool2d: window: expected at most the 5 + 0 + 0 elements of an axis, got 7 taps",
        ),
        (
            lambda: kernels.avg_pool2d(X, kernel_size=2, stride=0),
            "avg_pool2d: stride: expected an integer of at least 1, or 2 of them, one per axis, got 0",
        ),
        (
            lambda: kernels.avg_pool2d(X, kernel_size=2, divisor_override=0),
            "avg_pool2d: divisor_override: expected an integer other than 0, got 0",
        ),
        (lambda: kernels.lp_pool2d(X, kernel_size=2, norm_type=0), "lp_pool2d: norm_type: expected a number above 0, got 0"),
        (
            lambda: kernels.adaptive_avg_pool2d(X, output_size=(0, 2)),
            "adaptive_avg_pool2d: output_size: expected an integer of at least 1 or None, or 2 of them, got (0, 2)",
        ),
        (
            lambda: kernels.adaptive_max_pool2d(N, output_size=2),
            "adaptive_max_pool2d: output_size: expected 1 or None on axes of extents known only at run time, got 2",
        ),
        (
            lambda: kernels.global_avg_pool(te.placeholder((2, 3), name="x")),
            "global_avg_pool: global pooling: expected a batch axis, channels and 1 to 3 axes of places, got x of 2 axes",
        ),
        (
            lambda: kernels.max_unpool2d(X, te.placeholder((2, 5, 5), "int64", name="i"), kernel_size=2),
            "max_unpool2d: i: expected shape (2, 5, 6) (a place for each value), got (2, 5, 5)",
        ),
        (lambda: kernels.max_unpool2d(X, X, kernel_size=2), "max_unpool2d: expected indices of an integer dtype, got float32"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(te.ArgumentError) as caught:
        call()
    assert caught.value.message == message


def by_windows(x):
    """Maxima of 2 by 2 windows, cut at the edge."""
    y, z = np.arange(0, x.shape[1], 2), np.arange(0, x.shape[2], 2)
    return np.maximum.reduceat(np.maximum.reduceat(x, y, 1), z, 2)


@pytest.mark.parametrize(
    ("operation", "reference"),
    [
        (
            lambda x: kernels.max_pool2d(x, kernel_size=2, ceil_mode=True),
            by_windows,
        ),
        (
            lambda x: kernels.avg_pool2d(x, kernel_size=(1, 3), stride=1, padding=(0, 1), count_include_pad=False),
            lambda x: np.stack([x[..., max(j - 1, 0) : j + 2].mean(-1) for j in range(x.shape[2])], -1),
        ),
        (lambda x: kernels.adaptive_avg_pool2d(x, output_size=(None, 1)), lambda x: x.mean(2, keepdims=True)),
    ],
)  # fmt: skip
def test_sizes_of_run_time(operation, reference):
    y = operation(N)
    head = te.placeholder(y.shape, "float64", name="head")
    gradient = te.gradient(y, [N], head)
    assert {row.lowering for row in gradient.report().rows}.isdisjoint({"segments", "atomics"})
    pooled = te.build([y, gradient[0]], [N, head])
    for shape in ((2, 4, 6), (2, 5, 3)):
        array = np.random.default_rng(0).permutation(np.prod(shape)).reshape(shape) / 7.0
        expected = reference(array)
        head_array = np.random.default_rng(1).standard_normal(expected.shape)
        value, bar = pooled(array, head_array)
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        step = 1e-6 * np.random.default_rng(2).standard_normal(shape)
        moved = np.vdot(head_array, reference(array + step) - reference(array - step)) / 2
        np.testing.assert_allclose(np.vdot(bar, step), moved, rtol=1e-5)


def test_pooling_and_unpooling_put_the_maxima_back():
    x = np.random.default_rng(5).permutation(48).reshape(1, 2, 4, 6).astype(float)
    best, places = kernels.max_pool2d(x, kernel_size=2, return_indices=True)
    back = kernels.max_unpool2d(best, places, kernel_size=2)
    np.testing.assert_array_equal(back, np.where(np.isin(x, best), x, 0.0))


def test_an_index_outside_is_an_index_error():
    with pytest.raises(IndexError):
        kernels.max_unpool1d(np.ones((1, 2)), np.array([[0, 9]]), kernel_size=2)


def test_the_gradient_of_a_norm_is_zero_at_a_window_of_zeros():
    x = np.array([[0.0, 0.0, 0.0, 4.0]])
    (x_bar,) = te.vjp(kernels.lp_pool1d)(x, np.ones((1, 2)), norm_type=2, kernel_size=2)
    assert x_bar.tolist() == [[0.0, 0.0, 0.0, 1.0]]
