"""Joining and parting, and where they refuse."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels

X = np.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kernels.select(X, 1, 4), "select: expected a place on axis 1 between -4 and 3, got 4"),
        (lambda: kernels.narrow(X, 1, -5, 2), "narrow: start: expected an integer of at least 0, got -1"),
        (
            lambda: kernels.unbind(np.zeros((2, 0)), axis=1),
            "unbind: expected an extent of at least 1, known when the op is traced, of axis 1, got 0",
        ),
        (lambda: kernels.tensor_split(X, "a"), "tensor_split: expected a number of sections or the places of the cuts, got 'a'"),
        (
            lambda: kernels.slice_scatter(X, X, axis=0, step=-1),
            "slice_scatter: expected integers, a step of at least 1 and a known extent, got None:None:-1 of 3",
        ),
        (
            lambda: kernels.select_scatter(X, np.zeros(4), axis=1, index=0),
            "select_scatter: expected a src of float64 and shape (3,), the part it goes to, got float64 of (4,)",
        ),
        (lambda: kernels.vsplit(X[0], 2), "vsplit: expected a tensor of at least 2 axes, got x of 1"),
        (lambda: kernels.hsplit(X, 3), "hsplit: expected a number of sections that divides 4, the extent of axis 1, got 3"),
        (lambda: kernels.block_diag((X, X[None])), "block_diag: expected tensors of at most 2 axes, got tensors_1 of 3"),
        (lambda: kernels.t(X[None]), "t: expected at most 2 axes, got 3"),
        (lambda: kernels.cov(X[None]), "cov: expected at most 2 axes and an integer correction, got shape (1, 3, 4) and 1"),
        (lambda: kernels.hstack((X, np.zeros((2, 4)))), "hstack: tensors_1, axis 0: expected an extent of 3, got 2"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(te.ArgumentError) as caught:
        call()
    assert caught.value.message == message


def test_an_extent_of_run_time_is_not_split():
    @te.op
    def halves(x):
        return kernels.tensor_split(x, sections=2)

    with pytest.raises(
        te.ArgumentError, match="tensor_split: expected an axis of an extent known when the op is traced, got a size of run time"
    ):
        halves.compile(te.placeholder((te.dim("n"),), "float64"))


def test_nothing_is_put_into_nothing():
    np.testing.assert_array_equal(kernels.slice_scatter(X, np.zeros((0, 4)), start=3), X)


def test_calls_are_those_of_pytorch():
    np.testing.assert_array_equal(kernels.select(X, 1, -1), X[:, -1])
    np.testing.assert_array_equal(kernels.slice_scatter(X, X[:1], dim=0, start=1, end=2)[1], X[0])
    np.testing.assert_array_equal(kernels.mm(input=X, mat2=X.T), X @ X.T)
    np.testing.assert_array_equal(kernels.cat([X, X], -1), np.concatenate([X, X], 1))
    assert kernels.sum(X, 0, dtype="float32").dtype == np.float32


def test_pairs_of_rows_are_known():
    with pytest.raises(te.ArgumentError, match="pdist: expected a number of rows known when the op is traced, got "):
        kernels.pdist.compile(te.placeholder((te.dim("n"), 2), "float64"))
