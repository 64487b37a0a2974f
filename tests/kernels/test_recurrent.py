"""Recurrent layers: what is refused, sizes known only as the program runs, two directions."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels

rng = np.random.default_rng(0)
X, H = rng.standard_normal((3, 2, 3)), rng.standard_normal((2, 4))
W, U = rng.standard_normal((12, 3)), rng.standard_normal((12, 4))


@pytest.mark.parametrize(
    ("op", "arrays", "static", "message"),
    [
        (kernels.gru_cell, (X[0], H, W[:8], U), {}, "gru_cell: rows of weight_ih: expected an extent of 12, got 8"),
        (kernels.gru_cell, (X[0], H[:1], W, U), {}, "gru_cell: batch of h: expected an extent of 2, got 1"),
        (kernels.gru_cell, (X[0], H, W[:, :2], U), {}, "gru_cell: features of weight_ih: expected an extent of 3, got 2"),
        (kernels.gru_cell, (X[0], H, W, U, W[0]), {}, "gru_cell: bias_ih: expected shape (12,) (one bias per row of weight_ih), got (3,)"),
        (kernels.rnn_cell, (X[0], H, W[:4], U[:4]), {"nonlinearity": "exp"},
         "rnn_cell: nonlinearity: expected one of 'tanh', 'relu', got 'exp'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(op, arrays, static, message):
    with pytest.raises(te.ArgumentError) as caught:
        op(*arrays, **static)
    assert caught.value.message == message


def test_a_state_that_is_no_pair():
    with pytest.raises(te.ArgumentError, match=r"hx: expected the pair \(h, c\), got hx: f64"):
        kernels.lstm_cell(X[0], H, np.zeros((16, 3)), np.zeros((16, 4)))


def test_any_number_of_steps():
    steps = te.dim("steps")
    compiled = kernels.gru.compile(
        te.placeholder((steps, 2, 3), "float64"), (H.shape, "float64"), (W.shape, "float64"), (U.shape, "float64")
    )
    np.testing.assert_allclose(compiled(X, H, W, U), kernels.gru(X, H, W, U), rtol=1e-12)
    assert compiled(X[:0], H, W, U).shape == (0, 2, 4)
