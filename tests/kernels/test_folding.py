"""Folding: what it refuses, inverses, sizes known only at run time."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels

X = te.placeholder((2, 6, 5), name="x")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: kernels.unfold(te.placeholder((4, 5), name="x"), kernel_size=2),
            "unfold: expected a tensor of at least 3 axes (channels and two of places, after any batch axes), got x of 2",
        ),
        (lambda: kernels.fold(X, output_size=3, kernel_size=(2, 2)), "fold: expected rows in multiples of the 4 taps, got 6"),
        (lambda: kernels.fold(X, output_size=3, kernel_size=(2, 3)), "fold: columns: expected an extent of 2, got 5"),
        (
            lambda: kernels.pixel_shuffle(X, upscale_factor=2),
            "pixel_shuffle: channels: expected an extent in multiples of 4, got 2",
        ),
        (
            lambda: kernels.pixel_unshuffle(X, downscale_factor=2),
            "pixel_unshuffle: width: expected an extent in multiples of 2, got 5",
        ),
        (
            lambda: kernels.space_to_depth(X, block=5),
            "space_to_depth: height: expected an extent in multiples of 5, got 6",
        ),
        (lambda: kernels.channel_shuffle(X, groups=4), "channel_shuffle: channels: expected an extent in multiples of 4, got 6"),
        (lambda: kernels.nchwc_to_nchw(X, channels=31), "nchwc_to_nchw: channels: expected at most the 30 that the blocks have, got 31"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(te.ArgumentError) as caught:
        call()
    assert caught.value.message == message


def test_inverses():
    x = np.random.default_rng(0).standard_normal((2, 8, 4, 6))
    np.testing.assert_array_equal(kernels.pixel_unshuffle(kernels.pixel_shuffle(x, upscale_factor=2), downscale_factor=2), x)
    np.testing.assert_array_equal(kernels.depth_to_space(kernels.space_to_depth(x, block=2), block=2), x)
    np.testing.assert_array_equal(kernels.channel_shuffle(kernels.channel_shuffle(x, groups=2), groups=4), x)
    np.testing.assert_array_equal(kernels.nchwc_to_nchw(kernels.nchw_to_nchwc(x, block=3), channels=8), x)


def test_folding_is_the_transpose_of_unfolding():
    rng = np.random.default_rng(1)
    x, columns = rng.standard_normal((1, 2, 5, 4)), rng.standard_normal((1, 12, 9))
    options = {"kernel_size": (3, 2), "padding": (1, 1), "stride": (2, 2)}
    folded = kernels.fold(columns, output_size=(5, 4), **options)
    np.testing.assert_allclose(np.vdot(kernels.unfold(x, **options), columns), np.vdot(x, folded), rtol=1e-12)


def test_sizes_of_run_time():
    n, m = te.dim("n"), te.dim("m")
    x = te.placeholder((2, n, m), "float64", name="x")
    y = kernels.unfold(x, kernel_size=2, padding=1)
    head = te.placeholder(y.shape, "float64", name="head")
    gradient = te.gradient(y, [x], head)
    assert {row.lowering for row in gradient.report().rows}.isdisjoint({"segments", "atomics"})
    both = te.build([y, gradient[0]], [x, head])
    for shape in ((2, 3, 4), (2, 5, 2)):
        array = np.random.default_rng(2).standard_normal(shape)
        columns = np.random.default_rng(3).standard_normal((8, (shape[1] + 1) * (shape[2] + 1)))
        value, bar = both(array, columns)
        np.testing.assert_array_equal(value, kernels.unfold(array, kernel_size=2, padding=1))
        np.testing.assert_allclose(bar, kernels.fold(columns, output_size=shape[1:], kernel_size=2, padding=1), rtol=1e-12)
