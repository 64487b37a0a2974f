"""Interpolation: what it refuses, what scale factors mean, sizes known only at run time."""

from fractions import Fraction

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels

X = te.placeholder((1, 2, 4, 6), name="x")
N = te.placeholder((1, 2, te.dim("n")), "float64", name="x")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: kernels.interpolate(X, size=8, mode="cubic"),
            "interpolate: mode: expected one of 'nearest', 'nearest-exact', 'area', 'linear', "
            "'bilinear', 'trilinear', 'bicubic', got 'cubic'",
        ),
        (
            lambda: kernels.interpolate(X, size=8, mode="linear"),
            "interpolate: expected a batch, channels and 1 axes of places for mode 'linear', got x of 4 axes",
        ),
        (lambda: kernels.interpolate(X), "interpolate: expected either size or scale_factor, got neither"),
        (lambda: kernels.interpolate(X, size=8, scale_factor=2), "interpolate: expected either size or scale_factor, got both"),
        (lambda: kernels.interpolate(X, size=(8,)), "interpolate: expected a number, or 2 of them, one per axis of places, got (8,)"),
        (lambda: kernels.interpolate(X, size=(8, 0)), "interpolate: size: expected integers of at least 1, got (8, 0)"),
        (lambda: kernels.interpolate(X, scale_factor=-1), "interpolate: scale_factor: expected numbers above 0, got -1"),
        (
            lambda: kernels.interpolate(X, scale_factor=0.2),
            "interpolate: scale_factor: expected factors that leave an output, got 0.2 for an axis of 4",
        ),
        (
            lambda: kernels.interpolate(X, size=8, mode="area", antialias=True),
            "interpolate: antialias: expected mode 'bilinear' or 'bicubic', got 'area'",
        ),
        (
            lambda: kernels.interpolate(X, size=8, align_corners=True),
            "interpolate: align_corners: expected a linear or cubic mode without antialias, got 'nearest'",
        ),
        (
            lambda: kernels.interpolate(te.placeholder((1, 2, 4), "int64", name="x"), size=8, mode="linear"),
            "interpolate: expected a floating dtype for mode 'linear', got int64",
        ),
        (
            lambda: kernels.interpolate(N, size=8),
            "interpolate: expected extents known when traced, or scale_factor without align_corners, got a size of run time",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(te.ArgumentError) as caught:
        call()
    assert caught.value.message == message


def test_a_factor_is_a_fraction():
    x = np.arange(9.0).reshape(1, 1, 9)
    thirds = kernels.interpolate(x, scale_factor=Fraction(1, 3))
    assert thirds.tolist() == [[[0.0, 3.0, 6.0]]]
    np.testing.assert_array_equal(kernels.interpolate(x, scale_factor=1 / 3), thirds)
    assert kernels.interpolate(np.arange(100).reshape(1, 1, 100), scale_factor=0.29).shape == (1, 1, 29)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "linear"])
def test_sizes_of_run_time(mode):
    y = kernels.interpolate(N, scale_factor=Fraction(3, 2), mode=mode)
    head = te.placeholder(y.shape, "float64", name="head")
    gradient = te.gradient(y, [N], head)
    assert {row.lowering for row in gradient.report().rows}.isdisjoint({"segments", "atomics"})
    both = te.build([y, gradient[0]], [N, head])
    rng = np.random.default_rng(0)
    for size in (1, 4, 7):
        x = rng.standard_normal((1, 2, size))
        expected = kernels.interpolate(x, scale_factor=Fraction(3, 2), mode=mode)
        h = rng.standard_normal(expected.shape)
        value, bar = both(x, h)
        np.testing.assert_allclose(value, expected, rtol=1e-14)
        (expected_bar,) = te.vjp(kernels.interpolate)(x, h, scale_factor=Fraction(3, 2), mode=mode)
        np.testing.assert_allclose(bar, expected_bar, rtol=1e-13)
