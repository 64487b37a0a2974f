"""What kernels refuse: each shared check once, with the message a user reads."""

import pytest

import tensorexpr as te
from tensorexpr.kernels import arguments, axes


def refused(check, *args) -> str:
    with pytest.raises(te.ArgumentError) as caught:
        check(*args)
    return caught.value.message


def test_static_arguments():
    assert refused(arguments.one_of, "mode", "cubic", ("sum", "mean")) == "mode: expected one of 'sum', 'mean', got 'cubic'"
    assert refused(arguments.whole, "stride", -1) == "stride: expected an int of at least 1, got -1"
    assert refused(arguments.whole, "padding", True, 0) == "padding: expected an int of at least 0, got True"


def test_shapes_and_dtypes():
    x = te.placeholder((2, 3), name="x")
    assert refused(arguments.ranked, x, 3, 4) == "x: expected 3 or 4 axes, got 2 (shape (2, 3))"
    assert refused(arguments.shaped, x, (2, 4), "one row per item") == "x: expected shape (2, 4) (one row per item), got (2, 3)"
    assert refused(arguments.integral, x, "rows of the table") == "x: expected integers (rows of the table), got float32"


def test_a_symbolic_extent_is_left_to_the_proof_of_bounds():
    n = te.dim("n")
    arguments.shaped(te.placeholder((n, 3), name="x"), (4, 3), "anything")


def test_axes():
    x = te.placeholder((2, 3), name="x")
    assert refused(axes.normalized, 2, x) == "expected an axis of x between -2 and 1, got 2"
    assert axes.normalized(-1, x) == 1
