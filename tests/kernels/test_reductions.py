"""Reductions where the case table does not reach: 16 bits, nothing to reduce, derivatives of second order."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels


def test_statistics_of_float16_are_carried_in_float32():
    x = np.full((3, 4000), 60.0, np.float16) + np.arange(3, dtype=np.float16)[:, None]
    assert kernels.mean(x, axis=1).tolist() == [60.0, 61.0, 62.0]
    assert kernels.mean(x, axis=1).dtype == np.float16
    assert kernels.var(x, axis=1).tolist() == [0.0, 0.0, 0.0]
    assert [part.tolist() for part in kernels.var_mean(x, axis=1)] == [[0.0, 0.0, 0.0], [60.0, 61.0, 62.0]]
    assert kernels.norm(x[:, :400], axis=1).tolist() == [1200.0, 1220.0, 1240.0]
    assert kernels.softmax(x)[0, 0] == np.float16(1 / 4000)


def test_over_nothing():
    x = np.zeros((2, 0))
    assert kernels.sum(x, axis=1).tolist() == [0.0, 0.0]
    assert kernels.prod(x, axis=1).tolist() == [1.0, 1.0]
    assert np.isnan(kernels.mean(x, axis=1)).all()
    assert kernels.logsumexp(x, axis=1).tolist() == [-np.inf, -np.inf]
    assert kernels.norm(x, axis=1).tolist() == [0.0, 0.0]
    assert kernels.amax(x, axis=0).shape == (0,)
    assert kernels.softmax(x).shape == (2, 0)


def test_orders_of_norms_are_numpys():
    x = np.random.default_rng(0).standard_normal((3, 4))
    for order in (1, -1, np.inf, -np.inf, "fro"):
        np.testing.assert_allclose(kernels.norm(x, ord=order), np.linalg.norm(x, order), rtol=1e-14)
        np.testing.assert_allclose(
            kernels.norm(x, ord=order, axis=(1, 0), keepdims=True), np.linalg.norm(x, order, (1, 0), True), rtol=1e-14
        )
    np.testing.assert_allclose(kernels.norm(x, ord=3, axis=0), np.linalg.norm(x, 3, 0), rtol=1e-14)
    np.testing.assert_allclose(kernels.norm(x[0], ord=1), np.linalg.norm(x[0], 1), rtol=1e-14)
    with pytest.raises(te.ArgumentError, match="expected ord 1, -1, inf, -inf or 'fro' for matrices, got 2"):
        kernels.norm(x, ord=2)
    with pytest.raises(te.ArgumentError, match="expected one axis or two for ord, got 3"):
        kernels.norm(np.zeros((2, 2, 2)), ord=1)


def test_variance_far_from_zero_does_not_cancel():
    x = 1e9 + np.arange(6.0)
    for found in (kernels.var(x), kernels.var_mean(x)[0]):
        np.testing.assert_allclose(found, 3.5, rtol=1e-12)


@pytest.mark.parametrize(
    ("op", "static"),
    [(kernels.var_mean, {"axis": 1}), (kernels.logsumexp, {"axis": 0}), (kernels.norm, {"axis": 1}), (kernels.softmax, {})],
    ids=lambda item: getattr(item, "name", ""),
)
def test_gradients_of_gradients(op, static):
    x = np.random.default_rng(2).standard_normal((3, 4))
    value = op(x, **static)
    head = tuple(part + 0.5 for part in value) if isinstance(value, tuple) else value + 0.5
    te.check_gradient(te.vjp(op), x, head, **static)


def test_the_second_derivative_of_sinc_at_zero():
    slope = te.vjp(te.vjp(kernels.sinc, wrt="x"), wrt="x")
    np.testing.assert_allclose(slope(np.zeros(1), np.ones(1), np.ones(1)), [-(np.pi**2) / 3], rtol=1e-12)
