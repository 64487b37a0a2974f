"""Fourier transforms of lengths of every kind, with the turns between stages in their tables and apart, and over open batches."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.kernels.products import fourier


@pytest.mark.parametrize("largest", [0, fourier.LARGEST], ids=["turned apart", "turned in the sums"])
@pytest.mark.parametrize("n", [1, 13, 17, 30, 34, 64, 90, 323])
def test_a_transform_is_that_of_numpy(n, largest, monkeypatch):
    monkeypatch.setattr(fourier, "LARGEST", largest)
    rng = np.random.default_rng(n)
    real, imag = rng.normal(size=(2, 3, n, 2))
    x, y = te.placeholder(real.shape, "float64", name="x"), te.placeholder(real.shape, "float64", name="y")
    transformed = te.build(te.schedule(kernels.fft(x, y, axis=1), inputs=[x, y]))
    found = transformed(real, imag)
    np.testing.assert_allclose(found[0] + 1j * found[1], np.fft.fft(real + 1j * imag, axis=1), rtol=0, atol=1e-14 * n)


def test_whole_numbers_have_whole_transforms_where_turns_are_quarters():
    x = np.arange(16.0).reshape(4, 4)
    real, imag = kernels.fft(x)
    assert np.array_equal(real, np.round(real)) and np.array_equal(imag, np.round(imag))


@pytest.mark.parametrize("batch", [0, 1, 7])
def test_a_batch_may_be_open(batch):
    x = te.placeholder((te.dim("n"), 24), "float64", name="x")
    given = np.random.default_rng(0).normal(size=(batch, 24))
    real, imag = te.build(kernels.fft(x), [x])(given)
    np.testing.assert_allclose(real + 1j * imag, np.fft.fft(given), rtol=0, atol=1e-12)
