"""Filters: what is refused, and edges that stay."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels

X = np.zeros((1, 1, 5, 6))
X[..., 3:] = 1.0


@pytest.mark.parametrize(
    ("op", "arrays", "static", "message"),
    [
        (
            kernels.bilateral_filter, (X,), {"radius": 1, "sigma_space": 0, "sigma_range": 1.0},
            "bilateral_filter: sigma_space: expected a positive number, got 0",
        ),
        (kernels.guided_filter, (X, X), {"radius": -1, "eps": 0.1}, "guided_filter: radius: expected an integer of at least 0, got -1"),
        (kernels.guided_filter, (X[:, :, :4], X), {"radius": 1, "eps": 0.1},
         "guided_filter: guide: expected shape (1, 1, 5, 6) (that of x, or one channel), got (1, 1, 4, 6)"),
        (kernels.joint_bilateral_filter, (X, X[..., :3]), {"radius": 1, "sigma_space": 1.0, "sigma_range": 1.0},
         "joint_bilateral_filter: guide: expected shape (1, 1, 5, 6) (batch and places of x), got (1, 1, 5, 3)"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(op, arrays, static, message):
    with pytest.raises(te.ArgumentError) as caught:
        op(*arrays, **static)
    assert caught.value.message == message


def test_an_edge_stays():
    static = {"radius": 2, "sigma_space": 2.0}
    np.testing.assert_allclose(kernels.bilateral_filter(X, **static, sigma_range=0.1), X, atol=1e-12)
    assert np.abs(kernels.bilateral_filter(X, **static, sigma_range=1e3) - X).max() > 0.2
    np.testing.assert_allclose(kernels.guided_filter(X, X, radius=1, eps=1e-9), X, atol=1e-6)
