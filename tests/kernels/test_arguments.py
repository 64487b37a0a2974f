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


def test_names_that_are_not_here_say_what_to_do():
    assert not set(kernels.ABSENT) & {*kernels.__all__, *kernels.OTHER_NAMES}
    for name, wanted in (("nonzero", "the size of its result depends on data"), ("eye", "it takes no tensor"), ("svd", "solve")):
        with pytest.raises(te.UnknownNameError, match=f"got {name}") as caught:
            getattr(kernels, name)
        assert wanted in caught.value.hint
    with pytest.raises(te.ArgumentError, match=r"bincount: expected num_bins \(minlength\)") as refusal:
        kernels.bincount(np.array([1, 0]))
    assert "depend on data" in refusal.value.hint


def test_spellings_of_others():
    x, v, i = np.arange(12.0).reshape(3, 4), np.array([0.5, -1.0, 2.0]), np.array([5, -1])
    one = np.ones((2, 4))
    for found, wanted in (
        (kernels.take(v, i, mode="wrap"), np.take(v, i, mode="wrap")),
        (kernels.take(x, i, axis=1, mode="clip"), np.take(x, i, axis=1, mode="clip")),
        (kernels.take(x, indices=np.array([1]), axis=0), np.take(x, indices=[1], axis=0)),
        (kernels.repeat(x, 2, axis=1), np.repeat(x, 2, axis=1)),
        (kernels.repeat(x, repeats=2, axis=0), np.repeat(x, repeats=2, axis=0)),
        (kernels.cumulative_sum(v, include_initial=True), np.cumulative_sum(v, include_initial=True)),
        (kernels.delete(x, 1, axis=1), np.delete(x, 1, axis=1)),
        (kernels.delete(v, [0, 2]), np.delete(v, [0, 2])),
        (kernels.insert(x, 1, one[0], axis=0), np.insert(x, 1, one[0], axis=0)),
        (kernels.resize(v, (2, 2)), np.resize(v, (2, 2))),
        (kernels.row_stack((x, one)), np.vstack((x, one))),
        (kernels.partition(v, 1), np.partition(v, 1)),
        (kernels.outer(x, v), np.outer(x, v)),
        (kernels.dot(x, one.T), np.dot(x, one.T)),
        (kernels.polyder(v, m=2), np.polyder(v, m=2)),
        (kernels.histogram(x, bins=3)[0], np.histogram(x, bins=3)[0]),
        (kernels.inverse(x[:2, 1:3]), np.linalg.inv(x[:2, 1:3])),
        (kernels.sliding_window_view(v, 2), np.lib.stride_tricks.sliding_window_view(v, 2)),
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-13)
    for fill, name in ((0.0, "real"), (0.0, "conj")):
        np.testing.assert_array_equal(getattr(kernels, name)(x) - x, fill)


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


@pytest.mark.parametrize(
    ("op", "shapes", "static"),
    [
        (kernels.layer_norm, ((3, 5),), {}),
        (kernels.rms_norm, ((3, 5), (5,)), {}),
        (kernels.group_norm, ((2, 4, 3),), {"num_groups": 2}),
        (kernels.batch_norm, ((4, 3), None, None, (3,), (3,)), {"training": True}),
        (kernels.scaled_dot_product_attention, ((2, 3, 4), (2, 5, 4), (2, 5, 2)), {"is_causal": True}),
        (kernels.alibi_attention, ((2, 3, 4), (2, 3, 4), (2, 3, 2), (2,)), {}),
        (kernels.rotary_embedding, ((3, 4),), {}),
        (kernels.bilateral_filter, ((1, 2, 5, 4),), {"radius": 1, "sigma_space": 1.0, "sigma_range": 2.0}),
    ],
)
def test_means_and_roots_of_integers_are_those_of_float64(op, shapes, static):
    rng = np.random.default_rng(0)
    given = [shape and rng.integers(1, 6, shape) for shape in shapes]
    floats = [array if array is None else array.astype(float) for array in given]
    for dtype in ("int64", "int8", "uint16"):
        found = op(*(array if array is None else array.astype(dtype) for array in given), **static)
        wanted = op(*floats, **static)
        for a, b in zip(*((r if isinstance(r, tuple) else (r,)) for r in (found, wanted)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-13)
            assert a.dtype == np.float64


def test_running_extremes_of_bools():
    x = np.array([[True, False, True], [False, False, True]])
    for op, numpy in ((kernels.cummax, np.maximum), (kernels.cummin, np.minimum)):
        values, _ = op(x)
        np.testing.assert_array_equal(values, numpy.accumulate(x, 1))


def test_numbers_by_position_are_what_numpy_takes_them_for():
    x, v = np.arange(6.0).reshape(2, 3), np.arange(1.0, 7.0)
    weights = np.array([1.0, 2.0, 3.0])
    for name, given in (
        ("average", (x, 0)), ("average", (x, 1, weights)), ("average", (v,)), ("diff", (v, 2)), ("diff", (x, 1, 0)),
        ("insert", (v, 1, 2)), ("insert", (v, 2, 7.0)), ("insert", (v, 1, np.array([8.0, 9.0]))), ("insert", (x, 1, 7.0, 1)),
        ("insert", (v, (1, 3), np.array([8.0, 9.0]))), ("histogram", (v, 3)), ("sum", (x, None)), ("sum", (x, 1)),
    ):  # fmt: skip
        found, wanted = getattr(kernels, name)(*given), getattr(np, name)(*given)
        for a, b in zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]:
            np.testing.assert_allclose(a, b, rtol=1e-13, err_msg=name)
    np.testing.assert_array_equal(kernels.sum(x, None, True), x.sum(None, keepdims=True))
    np.testing.assert_array_equal(kernels.average(x, None, axis=1), x.mean(1))
    np.testing.assert_array_equal(kernels.diff(x, None, x[:, :1], n=1), np.diff(x, append=x[:, :1]))
    np.testing.assert_array_equal(kernels.average(x, x), np.average(x, weights=x))
    np.testing.assert_array_equal(kernels.diff(v, v[:1], v[1:2]), np.diff(v, prepend=v[:1], append=v[1:2]))
    np.testing.assert_array_equal(kernels.insert(v, v[:2], obj=1), np.insert(v, 1, v[:2]))
