"""Recurrent cells and sequences against PyTorch's."""

from tensorexpr import kernels
from tests.kernels.case import Case

B, I, H, T = 2, 3, 2, 4


def weights(gates):
    return (gates * H, I), (gates * H, H), (gates * H,), (gates * H,)


RNN = "lambda x, h, *w: torch._VF.rnn_%s(x, h[None], w, True, 1, 0.0, False, False, False)[0]"
GRU = "lambda x, h, *w: torch._VF.gru(x, h[None], w, True, 1, 0.0, False, False, False)[0]"
LAYER = "torch._VF.lstm(x[:%s], (h[None], c[None]), w, True, 1, 0.0, False, False, False)"
LSTM = f"lambda x, h, c, *w: ({LAYER % 9}[0], torch.stack([{LAYER % 't'}[2][0] for t in range(1, len(x) + 1)]))"
STATE, X, XS = (B, H), (B, I), (T, B, I)

CASES = [
    Case("rnn_cell", kernels.rnn_cell, (X, STATE, *weights(1)), "torch._VF.rnn_tanh_cell"),
    Case("rnn_cell relu", kernels.rnn_cell, (X, STATE, *weights(1)), "torch._VF.rnn_relu_cell", static={"nonlinearity": "relu"}),
    Case("lstm_cell", kernels.lstm_cell, (X, (STATE, STATE), *weights(4)), "lambda x, h, c, *w: torch._VF.lstm_cell(x, (h, c), *w)"),
    Case("gru_cell", kernels.gru_cell, (X, STATE, *weights(3)), "torch._VF.gru_cell"),
    Case("gru_cell without biases", kernels.gru_cell, (X, STATE, *weights(3)[:2], None, None), "torch._VF.gru_cell"),
    Case("rnn", kernels.rnn, (XS, STATE, *weights(1)), RNN % "tanh"),
    Case("rnn relu without biases", kernels.rnn, (XS, STATE, *weights(1)[:2], None, None),
         "lambda x, h, *w: torch._VF.rnn_relu(x, h[None], w, False, 1, 0.0, False, False, False)[0]",
         static={"nonlinearity": "relu"}),
    Case("lstm", kernels.lstm, (XS, (STATE, STATE), *weights(4)), LSTM),
    Case("gru", kernels.gru, (XS, STATE, *weights(3)), GRU),
    Case("gru reverse", kernels.gru, (XS, STATE, *weights(3)),
         "lambda x, h, *w: torch._VF.gru(x.flip(0), h[None], w, True, 1, 0.0, False, False, False)[0].flip(0)", static={"reverse": True}),
]  # fmt: skip
