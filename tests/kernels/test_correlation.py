"""Correlation: what is refused, and windows without contrast."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels

X = np.arange(24.0).reshape(1, 2, 3, 4)


@pytest.mark.parametrize(
    ("op", "arrays", "static", "message"),
    [
        (kernels.correlation, (X, X[..., :3]), {"max_displacement": 1},
         "correlation: y: expected shape (1, 2, 3, 4) (that of x), got (1, 2, 3, 3)"),
        (kernels.correlation, (X, X), {"max_displacement": 1, "kernel_size": 2}, "correlation: kernel_size: expected an odd number, got 2"),
        (kernels.normalized_cross_correlation, (X, X[0, 0].T.copy()), {},
         "normalized_cross_correlation: template: expected between 1 and 3 rows, those of the image, got 4"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(op, arrays, static, message):
    with pytest.raises(te.ArgumentError) as caught:
        op(*arrays, **static)
    assert caught.value.message == message


def test_windows_without_contrast_are_like_nothing():
    image = np.zeros((4, 5))
    image[:, 3:] = np.arange(8.0).reshape(4, 2)
    template = np.array([[1.0, 2.0], [3.0, 4.0]])
    got = kernels.normalized_cross_correlation(image, template)
    np.testing.assert_array_equal(got[:, :2], 0)
    assert np.isfinite(te.vjp(kernels.normalized_cross_correlation)(image, template, np.ones_like(got))[0]).all()
    np.testing.assert_allclose(kernels.normalized_cross_correlation(3 * template + 2, template), [[1.0]])
