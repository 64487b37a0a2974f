"""Normalization: what is refused, sizes known only as the program runs, and 16-bit inputs."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels

X = np.random.default_rng(0).standard_normal((3, 4, 5))
C = np.ones(4)


@pytest.mark.parametrize(
    ("op", "arrays", "static", "message"),
    [
        (kernels.batch_norm, (X,), {}, "batch_norm: expected running_mean and running_var, got None"),
        (kernels.batch_norm, (X, C), {}, "batch_norm: expected running_mean and running_var together, got one of them"),
        (
            kernels.batch_norm, (X, None, None, np.ones(3)), {"training": True},
            "batch_norm: weight: expected shape (4,) (one weight per channel, axis 1 of x), got (3,)",
        ),
        (
            kernels.layer_norm, (X,), {"normalized_shape": (3, 4)},
            "layer_norm: normalized_shape: expected the last extents of x, whose shape is (3, 4, 5), got (3, 4)",
        ),
        (kernels.group_norm, (X,), {"num_groups": 3}, "group_norm: num_groups: expected a divisor of the 4 channels of x, got 3"),
        (
            kernels.instance_norm, (X,), {"use_input_stats": False},
            "instance_norm: expected running_mean and running_var, got None",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(op, arrays, static, message):
    with pytest.raises(te.ArgumentError) as caught:
        op(*arrays, **static)
    assert caught.value.message == message


def test_sizes_known_as_it_runs():
    rows, columns = te.dim("rows"), te.dim("columns")
    compiled = kernels.layer_norm.compile(te.placeholder((rows, columns)), te.placeholder((columns,)))
    for n, m in ((2, 7), (5, 3)):
        x, w = X.reshape(-1)[: n * m].reshape(n, m).astype(np.float32), np.arange(m, dtype=np.float32)
        expected = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * w
        np.testing.assert_allclose(compiled(x, w), expected, rtol=1e-4, atol=1e-5)


def test_the_variance_of_large_values_does_not_cancel():
    x = (X + 1e4).astype(np.float32)
    got = kernels.layer_norm(x)
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(got, expected, atol=3e-3)


def test_statistics_of_16_bits_are_carried_in_32():
    x = np.full((1, 4096), 16, np.float16)
    x[0, ::2] = 20
    np.testing.assert_array_equal(kernels.layer_norm(x), np.where(x == 20, 1, -1).astype(np.float16))
    assert kernels.layer_norm(x).dtype == np.float16
