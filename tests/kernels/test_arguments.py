"""What kernels refuse: each shared check once, with the message a user reads."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.kernels.conventions import arguments, axes


def refused(check, *args) -> str:
    with pytest.raises(te.ArgumentError) as caught:
        check(*args)
    return caught.value.message


def test_numbers_and_choices():
    assert refused(arguments.one_of, "mode", "cubic", ("sum", "mean")) == "mode: expected one of 'sum', 'mean', got 'cubic'"
    assert refused(arguments.at_least, "stride", -1, 1) == "stride: expected an integer of at least 1, got -1"
    assert refused(arguments.at_least, "padding", True, 0) == "padding: expected an integer of at least 0, got True"
    assert (
        refused(arguments.per_axis, "stride", (1, 2), 3, 1)
        == "stride: expected an integer of at least 1, or 3 of them, one per axis, got (1, 2)"
    )
    assert arguments.per_axis("stride", 2, 3, 1) == (2, 2, 2)


def test_shapes_and_dtypes():
    x = te.placeholder((2, 3), name="x")
    assert refused(arguments.ranked, x, 3, 4) == "x: expected 3 or 4 axes, got 2 (shape (2, 3))"
    assert refused(arguments.shaped, x, (2, 4), "one row per item") == "x: expected shape (2, 4) (one row per item), got (2, 3)"
    assert refused(arguments.integral, x, "rows of the table") == "x: expected integers (rows of the table), got float32"
    assert refused(arguments.same_extent, "b", 2, 3) == "b: expected an extent of 3, got 2"
    wanted = "conv: expected a tensor of at least 3 axes (batch, channels, places), got x of 2"
    assert refused(arguments.at_least_axes, "conv", x, 3, "batch, channels, places") == wanted


def test_a_symbolic_extent_is_left_to_the_proof_of_bounds():
    n = te.dim("n")
    arguments.shaped(te.placeholder((n, 3), name="x"), (4, 3), "anything")
    arguments.same_extent("x", n, 3)


def test_axes():
    x = te.placeholder((2, 3), name="x")
    assert refused(axes.normalized, 2, x) == "expected an axis of x between -2 and 1, got 2"
    assert axes.normalized(-1, x) == 1


def test_names_of_others():
    assert not set(kernels.OTHER_NAMES) & set(kernels.__all__) and set(kernels.OTHER_NAMES.values()) <= set(kernels.__all__)
    x, y, i = np.array([[0.3, -0.5, 0.9]]), np.array([[0.5, -0.5, 2.0]]), np.array([3, 0, 5])
    given = {
        "concat": ((x, y),), "expand_dims": (x, 1), "swapaxes": (x, 0, 1), "permute_dims": (x, (1, 0)),
        "clip": (x, 0, 0.5), "power": (abs(x), y), "arccosh": (abs(x) + 1,), "array_split": (x, 2, 1),
        "invert": (i,), "bitwise_invert": (i,), "left_shift": (i, i), "right_shift": (i, i), "cumulative_sum": (x[0],),
        "cumulative_prod": (x[0],),
    }  # fmt: skip
    two = {"arctan2", "subtract", "multiply", "divide", "mod", "greater", "greater_equal", "less", "less_equal", "not_equal"}
    for name in kernels.OTHER_NAMES:
        numpy = np.concatenate if name == "concat" else np.transpose if name == "permute_dims" else getattr(np, name, None)
        if numpy is not None:
            values = given.get(name, (x, y) if name in two else (x,))
            found, wanted = getattr(kernels, name)(*values), numpy(*values)
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-13, err_msg=name)


def test_calls_that_are_spelled_alike_are_bound_once_and_others_apart():
    x, y = np.arange(6.0).reshape(2, 3), np.arange(6.0, 12.0).reshape(2, 3)
    for _ in range(3):
        for axis in (0, 1, -1, (0, 1), [0], None):
            wanted = x.sum(tuple(axis) if isinstance(axis, list) else axis)
            np.testing.assert_array_equal(kernels.sum(x, axis=axis), wanted)
            np.testing.assert_array_equal(kernels.sum(x, axis), wanted)
            np.testing.assert_array_equal(kernels.sum(input=x, dim=axis), wanted)
        np.testing.assert_array_equal(kernels.sum(x, 1, True), x.sum(1, keepdims=True))  # True is no 1
        np.testing.assert_array_equal(kernels.sum(x, 1, 0), x.sum(1))
        np.testing.assert_array_equal(kernels.linear(x, x), x @ x.T)  # one array in two places
        np.testing.assert_array_equal(kernels.linear(x, y), x @ y.T)
        np.testing.assert_array_equal(kernels.linear(weight=y, x=x), x @ y.T)
        np.testing.assert_array_equal(kernels.linear(weight=x, x=y), y @ x.T)
        for shift in (1, 2):  # an array of numbers is a static argument, by its values
            np.testing.assert_array_equal(kernels.roll(x, np.array([shift]), axes=(1,)), np.roll(x, shift, 1))
        np.testing.assert_array_equal(kernels.sum(x.astype(np.float32), axis=0), x.sum(0))
        np.testing.assert_array_equal(kernels.sum(x[::-1, ::-1], axis=0), x[::-1, ::-1].sum(0))
        out = np.empty(3)
        assert kernels.sum(x, axis=0, out=out) is out
        np.testing.assert_array_equal(out, x.sum(0))
