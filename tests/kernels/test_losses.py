"""Losses where the case table does not reach: classes out of range, dtypes, what is not scattered, derivatives of second order."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels

X = np.random.default_rng(1).standard_normal((4, 5))


@pytest.mark.parametrize("wrong", [5, -1, 1000])
def test_a_class_out_of_range_is_an_index_error(wrong):
    target = np.array([0, 1, wrong, 2])
    for loss in (kernels.cross_entropy, kernels.nll_loss, kernels.multi_margin_loss):
        with pytest.raises(IndexError, match=f"expected an index of input from 0 to 4, got {wrong}"):
            loss(X, target)


def test_targets_of_any_integer_type_and_losses_in_the_dtype_of_the_input():
    narrow = X.astype(np.float32)
    losses = [kernels.cross_entropy(narrow, np.array([0, 4, 2, 2], dtype)) for dtype in ("int8", "uint8", "int32", "int64")]
    assert {loss.dtype.name for loss in losses} == {"float32"} and len({float(loss) for loss in losses}) == 1
    signs = np.array([[1, -1, 1, -1, 1]] * 4)
    assert kernels.soft_margin_loss(narrow, signs).dtype == np.float32
    assert kernels.binary_cross_entropy_with_logits(narrow, signs > 0).dtype == np.float32
    assert kernels.poisson_nll_loss(narrow, np.abs(signs)).dtype == np.float32


def test_the_gradient_of_a_cross_entropy_is_one_gather():
    x, target, head = te.placeholder((4, 5), name="x"), te.placeholder((4,), "int64", name="target"), te.placeholder((), name="head")
    gradient = te.gradient(kernels.cross_entropy(x, target), [x], head)
    assert not any(word in str(te.program_of(list(gradient))) for word in ("scatter", "segments", "sort"))


def test_all_ignored_is_not_a_number_as_a_mean_and_zero_as_a_sum():
    target = np.full(4, -100)
    assert np.isnan(kernels.cross_entropy(X, target))
    assert kernels.cross_entropy(X, target, reduction="sum") == 0
    assert not te.vjp(kernels.cross_entropy)(X, target, None, np.float64(1), reduction="sum")[0].any()


def test_gradients_of_gradients():
    target = np.array([0, 4, 2, 2])
    te.check_gradient(te.vjp(kernels.cross_entropy), X, target, None, np.float64(0.7))
    te.check_gradient(te.vjp(kernels.cosine_similarity), X, X[::-1].copy(), X[:, 0].copy())


def test_a_norm_of_zero_and_equal_points_have_gradient_zero():
    zero, one = np.zeros((2, 3)), np.ones(())
    assert not te.vjp(kernels.norm)(zero, one)[0].any()
    assert not te.vjp(kernels.std)(zero, one)[0].any()
    similar, _ = te.vjp(kernels.cosine_similarity)(zero, np.zeros((2, 3)), np.ones(2))
    assert not similar.any()
