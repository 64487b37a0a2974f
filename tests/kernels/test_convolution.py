"""Convolutions: what they refuse, sizes known only at run time, other dtypes."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels

X = te.placeholder((2, 4, 5, 6), name="x")
W = te.placeholder((6, 4, 3, 3), name="w")


def tensor(*shape: int) -> te.Tensor:
    return te.placeholder(shape, name="t")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kernels.conv2d(X, W, stride=0), "conv2d: stride: expected an integer of at least 1, or 2 of them, one per axis, got 0"),
        (lambda: kernels.conv2d(X, W, padding="full"), "conv2d: padding: expected numbers, 'valid' or 'same', got 'full'"),
        (
            lambda: kernels.conv2d(X, W, padding="same", stride=2),
            "conv2d: padding: expected numbers or 'valid' where the stride is not 1, got 'same' with stride 2",
        ),
        (
            lambda: kernels.conv2d(X, te.placeholder((6, 4, te.dim("r"), 3), name="w"), padding="same"),
            "conv2d: padding: expected numbers where the extents of the weight are known only at run time, got 'same'",
        ),
        (
            lambda: kernels.conv2d(X, W, padding_mode="mirror"),
            "conv2d: padding_mode: expected one of 'zeros', 'reflect', 'replicate', 'circular', got 'mirror'",
        ),
        (
            lambda: kernels.conv3d(tensor(3, 4, 5), W),
            "conv3d: expected a tensor of at least 4 axes (channels and 3 of places, after any batch axes), got t of 3",
        ),
        (lambda: kernels.conv1d(X, W), "conv1d: expected a weight of 3 axes (two of channels, 1 of taps), got w of 4"),
        (lambda: kernels.conv2d(X, W, groups=0), "conv2d: groups: expected an integer of at least 1, got 0"),
        (lambda: kernels.conv2d(X, W, groups=3), "conv2d: groups: expected a divisor of the 4 channels of x, got 3"),
        (lambda: kernels.conv2d(X, W, groups=2), "conv2d: w: axis 1: expected an extent of 2, got 4"),
        (lambda: kernels.conv2d(X, W, tensor(6, 1)), "conv2d: expected a bias of 1 axis, got t of 2"),
        (lambda: kernels.conv2d(X, W, tensor(4)), "conv2d: t: expected an extent of 6, got 4"),
        (lambda: kernels.conv2d(X, W, dilation=3), "conv2d: window: expected at most the 5 + 0 + 0 elements of an axis, got 7 taps"),
        (
            lambda: kernels.separable_conv2d(X, tensor(4, 1, 3), tensor(3, 4, 1, 1)),
            "separable_conv2d: expected a depthwise weight of 4 axes and a known number of channels, got t and x",
        ),
        (
            lambda: kernels.local_conv2d(X, W),
            "local_conv2d: expected a weight of 6 axes (filters, channels, outputs, taps), got w of 4",
        ),
        (lambda: kernels.local_conv2d(X, tensor(3, 4, 3, 5, 3, 3)), "local_conv2d: t: axis 3: expected an extent of 4, got 5"),
        (lambda: kernels.conv_transpose2d(X, W), "conv_transpose2d: w: axis 0: expected an extent of 4, got 6"),
        (
            lambda: kernels.conv_transpose2d(X, tensor(4, 3, 2, 2), output_padding=1),
            "conv_transpose2d: output_padding: expected less than the stride or the dilation, got 1",
        ),
        (
            lambda: kernels.conv_transpose2d(X, tensor(4, 3, 2, 2), padding=3),
            "conv_transpose2d: expected padding that leaves an output, got 3 for an axis of 5",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(te.ArgumentError) as caught:
        call()
    assert caught.value.message == message


def by_hand(x, w, stride, padding):
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[-1], 2)[:, :, ::stride]
    return np.einsum("ncor,kcr->nko", windows, w)


def test_sizes_of_run_time():
    """One function for all batches, channels and lengths, and its gradients, which are gathers."""
    n, c, k, length = (te.dim(name) for name in ("n", "c", "k", "l"))
    x, w = te.placeholder((n, c, length), "float64", name="x"), te.placeholder((k, c, 3), "float64", name="w")
    y = kernels.conv1d(x, w, stride=2, padding=1)
    head = te.placeholder(y.shape, "float64", name="head")
    gradient = te.gradient(y, [x, w], head)
    assert {row.lowering for row in gradient.report().rows} == {"lattice", "substitute"}
    both = te.build([y, *gradient], [x, w, head])
    rng = np.random.default_rng(2)
    for sizes in ((1, 2, 3, 5), (2, 1, 2, 8)):
        x_array, w_array = rng.standard_normal((sizes[0], sizes[1], sizes[3])), rng.standard_normal((sizes[2], sizes[1], 3))
        expected = by_hand(x_array, w_array, 2, 1)
        head_array = rng.standard_normal(expected.shape)
        value, x_bar, w_bar = both(x_array, w_array, head_array)
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        # Convolution is linear in each argument: the gradient pairs with a move as the head pairs with the moved output.
        move = rng.standard_normal(x_array.shape)
        np.testing.assert_allclose(np.vdot(x_bar, move), np.vdot(head_array, by_hand(move, w_array, 2, 1)), rtol=1e-10)
        move = rng.standard_normal(w_array.shape)
        np.testing.assert_allclose(np.vdot(w_bar, move), np.vdot(head_array, by_hand(x_array, move, 2, 1)), rtol=1e-10)


def test_the_transposed_convolution_is_the_gradient_of_the_convolution():
    rng = np.random.default_rng(4)
    x, w, head = rng.standard_normal((2, 3, 8)), rng.standard_normal((4, 3, 3)), rng.standard_normal((2, 4, 4))
    x_bar, _ = te.vjp(kernels.conv1d)(x, w, None, head, stride=2, padding=1)[:2]
    again = kernels.conv_transpose1d(head, w, stride=2, padding=1, output_padding=1)
    np.testing.assert_allclose(again, x_bar, rtol=1e-12, atol=1e-14)


def test_integers():
    image = np.arange(9, dtype=np.int64).reshape(1, 3, 3)
    assert kernels.conv2d(image, np.ones((1, 1, 2, 2), np.int64)).tolist() == [[[8, 12], [20, 24]]]
    assert kernels.conv2d(image, np.ones((1, 1, 2, 2), np.int64), padding=1)[0, 0].tolist() == [0, 1, 3, 2]


@pytest.mark.parametrize(("groups", "kind"), [(1, np.float64), (2, np.float64), (2, np.float16)])
def test_transposed_windows_that_do_not_meet_are_those_with_a_border_of_zeros(groups, kind):
    rng = np.random.default_rng(3)
    x, w, bias = (rng.standard_normal(shape).astype(kind) for shape in ((2, 4, 3, 5), (4, 3, 2, 3), (3 * groups,)))
    named = {"stride": (2, 3), "groups": groups}
    found = kernels.conv_transpose2d(x, w, bias, **named)
    wider = kernels.conv_transpose2d(x, np.pad(w, ((0, 0), (0, 0), (0, 1), (0, 1))), bias, **named)
    np.testing.assert_allclose(found, wider[..., :-1, :-1], rtol=1e-12 if kind is np.float64 else 1e-3)
    if kind is np.float64:
        te.check_gradient(te.op(lambda x, w, bias: kernels.conv_transpose2d(x, w, bias, **named)), x, w, bias)
