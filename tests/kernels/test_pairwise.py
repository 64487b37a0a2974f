"""All pairs: what is refused, and that a kernel product keeps no pairs."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels

X, Y = np.zeros((4, 3)), np.zeros((5, 3))


@pytest.mark.parametrize(
    ("op", "arrays", "static", "message"),
    [
        (kernels.cdist, (X, Y[:, :2]), {}, "cdist: axis 1 of y: expected an extent of 3, got 2"),
        (kernels.squared_distance, (X, Y[None]), {}, "squared_distance: expected x and y of one rank, got (4, 3) and (1, 5, 3)"),
        (kernels.pdist, (X,), {"p": -1}, "pdist: p: expected a number of at least 0 or infinity, got -1"),
        (kernels.cdist, (X, Y), {"p": -1}, "cdist: p: expected a number of at least 0 or infinity, got -1"),
        (kernels.gaussian_product, (X, Y, np.zeros(())), {},
         "gaussian_product: expected b of shape (5,), or with an axis more, got ()"),
        (kernels.sinkhorn_step, (X, Y, Y[:, 0], Y[:, 0]), {"eps": 0}, "sinkhorn_step: eps: expected a positive number, got 0"),
        (kernels.soft_dtw, (X,), {"gamma": -1.0}, "soft_dtw: gamma: expected a positive number, got -1.0"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(op, arrays, static, message):
    with pytest.raises(te.ArgumentError) as caught:
        op(*arrays, **static)
    assert caught.value.message == message


def test_a_kernel_product_of_many_points_keeps_no_pairs():
    """Compiled, it is one definition without a tensor beside its arguments."""
    n = te.dim("n")
    shapes = te.placeholder((n, 3), "float64"), te.placeholder((n, 3), "float64"), te.placeholder((n,), "float64")
    compiled = kernels.gaussian_product.compile(*shapes)
    assert len(compiled.program.definitions) == 1
    x = np.random.default_rng(0).standard_normal((300, 3))
    expected = np.exp(-((x[:, None] - x) ** 2).sum(-1)) @ x[:, 0]
    np.testing.assert_allclose(compiled(x, x, x[:, 0].copy()), expected, rtol=1e-12)
