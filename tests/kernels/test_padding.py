"""Padding: what it refuses, sizes known only at run time, other dtypes."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels

X = te.placeholder((3, 4), name="x")


@pytest.mark.parametrize(
    ("static", "message"),
    [
        (
            {"pads": (1, 1), "mode": "mirror"},
            "pad: mode: expected one of 'constant', 'reflect', 'replicate', 'edge', 'circular', 'wrap', 'symmetric', got 'mirror'",
        ),
        ({"pads": (1, 1, 1)}, "pad: pads: expected pairs of integers, from the last axis on, got (1, 1, 1)"),
        ({"pads": 2.0}, "pad: pads: expected pairs of integers, from the last axis on, got 2.0"),
        ({"pads": ((1, 1),) * 3}, "pad: pads: expected 2 pairs, one per axis of x, or one for all, got 3"),
        ({"pads": (1,) * 6}, "pad: pads: expected at most 2 pairs, one per axis of x, got 3"),
        ({"pads": (-2, -3)}, "pad: pads: expected to crop at most 4, the extent of axis 1, got -2 and -3"),
    ],
)
def test_what_does_not_fit_is_refused(static, message):
    with pytest.raises(te.ArgumentError) as caught:
        kernels.pad(X, **static)
    assert caught.value.message == message


def test_widths_as_in_numpy():
    x = np.arange(12.0).reshape(3, 4)
    for widths in (((1, 2), (0, -0)), ((2, 1),), 1, [[0, 1], [3, 0]]):
        np.testing.assert_array_equal(kernels.pad(x, widths), np.pad(x, widths))
        np.testing.assert_array_equal(kernels.pad(x, widths, mode="edge"), np.pad(x, widths, mode="edge"))
    np.testing.assert_array_equal(kernels.pad(x, 1, constant_values=5.0), np.pad(x, 1, constant_values=5.0))


def test_nothing_cannot_be_repeated():
    with pytest.raises(te.ArgumentError, match="pads: expected an axis with elements to repeat, got axis 1 of extent 0 in mode 'edge'"):
        kernels.pad(np.zeros((2, 0)), pads=(1, 0), mode="edge")
    assert kernels.pad(np.zeros((2, 0)), pads=(1, 0), value=3.0).tolist() == [[3.0], [3.0]]


def test_integers_and_bools():
    assert kernels.pad(np.array([1, 2]), pads=(1, 2), value=7).tolist() == [7, 1, 2, 7, 7]
    assert kernels.pad(np.array([True, False]), pads=(1, 0), value=True).tolist() == [True, True, False]


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap", "symmetric"])
def test_sizes_of_run_time(mode):
    n = te.dim("n")
    x = te.placeholder((n, 4), "float64", name="x")
    padded = te.build(kernels.pad(x, pads=(1, 2, 3, 2), mode=mode), [x])
    for size in (4, 7):
        array = np.random.default_rng(1).standard_normal((size, 4))
        np.testing.assert_array_equal(padded(array), np.pad(array, ((3, 2), (1, 2)), mode))
