"""Recurrent layers: cells, and whole sequences as scans, with PyTorch's parameters and order of gates.

`weight_ih` (G * H, I), `weight_hh` (G * H, H) and the biases (G * H,) hold G gates one after another, H rows each. What a sequence
adds from its inputs is one product for all steps, before the scan; a step of the scan adds what comes from the state.
A sequence is (T, B, I) and its result the state of every step, (T, B, H); with `reverse` it runs from the last step to the first
and the result stays in the order of the input, so both directions of a layer are two calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad, one_of, ranked, same_extent, shaped

Gate = Callable[..., Any]
"""The sum of a gate (its number, indices of batch and unit) of what comes from the input, from the state, or both."""


def _projected(x: te.Tensor, weight: te.Tensor, bias: te.Tensor | None, name: str) -> te.Tensor:
    """`y[.., g] = sum_k x[.., k] * weight[g, k] + bias[g]`."""
    ranked(weight, 2)
    same_extent(f"features of {weight.name}", weight.shape[1], x.shape[-1])
    if bias is not None:
        shaped(bias, weight.shape[:1], f"one bias per row of {weight.name}")

    def value(*i: Any) -> Any:
        total = te.sum(lambda k: x[(*i[:-1], k)] * weight[i[-1], k], x.shape[-1])
        return total if bias is None else total + bias[i[-1]]

    return te.compute((*x.shape[:-1], weight.shape[0]), value, name=name)


def _gates(projected: te.Tensor, units: Any, *before: Any) -> Gate:
    return lambda gate, b, h: projected[(*before, b, gate * units + h if gate else h)]


def _checked(weight_ih: te.Tensor, weight_hh: te.Tensor, hidden: te.Tensor, batch: Any, gates: int) -> Any:
    """The number of units; the state is (B, H) and the weights hold `gates` gates."""
    ranked(hidden, 2)
    same_extent(f"batch of {hidden.name}", hidden.shape[0], batch)
    units = hidden.shape[1]
    for weight in (weight_ih, weight_hh):
        ranked(weight, 2)
        same_extent(f"rows of {weight.name}", weight.shape[0], gates * units, f"{gates} gates of as many rows as units")
    return units


# ---------------------------------------------------------------------------------------------------------- cells


def _rnn(nonlinearity: str) -> Callable[..., tuple[te.Tensor, ...]]:
    one_of("nonlinearity", nonlinearity, ("tanh", "relu"))

    def step(units: Any, x: Gate, h: Gate, state: tuple[te.Tensor, ...]) -> tuple[te.Tensor, ...]:
        def value(b: Any, j: Any) -> Any:
            total = x(0, b, j) + h(0, b, j)
            return te.tanh(total) if nonlinearity == "tanh" else te.maximum(total, 0.0)

        return (te.compute(state[0].shape, value, name="h"),)

    return step


def _lstm(units: Any, x: Gate, h: Gate, state: tuple[te.Tensor, ...]) -> tuple[te.Tensor, ...]:
    """Gates: input, forget, cell, output."""

    def total(gate: int, b: Any, j: Any) -> Any:
        return x(gate, b, j) + h(gate, b, j)

    shape, old = state[0].shape, state[1]
    opened, kept, out = (
        te.compute(shape, lambda b, j, gate=gate: te.sigmoid(total(gate, b, j)), name=name)
        for gate, name in ((0, "input_gate"), (1, "forget_gate"), (3, "output_gate"))
    )
    new = te.compute(shape, lambda b, j: te.tanh(total(2, b, j)), name="candidate")
    c = te.compute(shape, lambda b, j: kept[b, j] * old[b, j] + opened[b, j] * new[b, j], name="c")
    return te.compute(shape, lambda b, j: out[b, j] * te.tanh(c[b, j]), name="h"), c


def _gru(units: Any, x: Gate, h: Gate, state: tuple[te.Tensor, ...]) -> tuple[te.Tensor, ...]:
    """Gates: reset, update, new."""
    shape, old = state[0].shape, state[0]
    reset, update = (
        te.compute(shape, lambda b, j, gate=gate: te.sigmoid(x(gate, b, j) + h(gate, b, j)), name=name)
        for gate, name in ((0, "reset_gate"), (1, "update_gate"))
    )
    new = te.compute(shape, lambda b, j: te.tanh(x(2, b, j) + reset[b, j] * h(2, b, j)), name="candidate")
    return (te.compute(shape, lambda b, j: new[b, j] + update[b, j] * (old[b, j] - new[b, j]), name="h"),)


def _cell(
    x: te.Tensor, state: tuple[te.Tensor, ...], weights: tuple[Any, ...], gates: int, step: Callable[..., tuple[te.Tensor, ...]]
) -> tuple[te.Tensor, ...]:
    weight_ih, weight_hh, bias_ih, bias_hh = weights
    ranked(x, 2)
    units = _checked(weight_ih, weight_hh, state[0], x.shape[0], gates)
    from_input = _gates(_projected(x, weight_ih, bias_ih, "from_input"), units)
    from_state = _gates(_projected(state[0], weight_hh, bias_hh, "from_state"), units)
    return step(units, from_input, from_state, state)


@te.op
def rnn_cell(
    x: te.Tensor,
    h: te.Tensor,
    weight_ih: te.Tensor,
    weight_hh: te.Tensor,
    bias_ih: te.Tensor | None = None,
    bias_hh: te.Tensor | None = None,
    *,
    nonlinearity: str = "tanh",
) -> te.Tensor:
    """`h' = tanh(W_ih x + b_ih + W_hh h + b_hh)`, or relu; x (B, I), h (B, H), as `torch.nn.RNNCell`.

    >>> kernels.rnn_cell(np.ones((1, 1)), np.zeros((1, 1)), np.ones((1, 1)), np.ones((1, 1))).round(4)
    array([[0.7616]])
    """
    return _cell(x, (h,), (weight_ih, weight_hh, bias_ih, bias_hh), 1, _rnn(nonlinearity))[0]


@te.op
def lstm_cell(
    x: te.Tensor,
    hx: te.Tensor,
    weight_ih: te.Tensor,
    weight_hh: te.Tensor,
    bias_ih: te.Tensor | None = None,
    bias_hh: te.Tensor | None = None,
) -> tuple[te.Tensor, ...]:
    """`(h', c')` of a long short-term memory for x (B, I) and `hx`, the pair (h, c) of (B, H), as `torch.nn.LSTMCell`.

    `i, f, o = sigmoid(..)`, `g = tanh(..)` of `W_ih x + b_ih + W_hh h + b_hh` in the order i, f, g, o; `c' = f c + i g`,
    `h' = o tanh(c')`. Hochreiter, Schmidhuber 1997; Gers et al. 2000.

    >>> h = c = np.zeros((1, 1))
    >>> h, c = kernels.lstm_cell(np.ones((1, 1)), (h, c), np.ones((4, 1)), np.zeros((4, 1)))
    >>> h.round(4), c.round(4)
    (array([[0.3696]]), array([[0.5568]]))
    """
    return _cell(x, _pair(hx), (weight_ih, weight_hh, bias_ih, bias_hh), 4, _lstm)


def _pair(hx: Any) -> tuple[te.Tensor, te.Tensor]:
    if not isinstance(hx, tuple) or len(hx) != 2:
        raise bad(f"hx: expected the pair (h, c), got {hx!r}")
    shaped(hx[1], hx[0].shape, "that of h")
    return hx


@te.op
def gru_cell(
    x: te.Tensor,
    h: te.Tensor,
    weight_ih: te.Tensor,
    weight_hh: te.Tensor,
    bias_ih: te.Tensor | None = None,
    bias_hh: te.Tensor | None = None,
) -> te.Tensor:
    """`h' = (1 - z) n + z h` of a gated recurrent unit for x (B, I), h (B, H), as `torch.nn.GRUCell`.

    `r, z = sigmoid(W_ih x + b_ih + W_hh h + b_hh)`, `n = tanh(W_in x + b_in + r (W_hn h + b_hn))` in the order r, z, n. Cho et al. 2014.

    >>> kernels.gru_cell(np.ones((1, 1)), np.zeros((1, 1)), np.ones((3, 1)), np.zeros((3, 1))).round(4)
    array([[0.2048]])
    """
    return _cell(x, (h,), (weight_ih, weight_hh, bias_ih, bias_hh), 3, _gru)[0]


# ------------------------------------------------------------------------------------------------------ sequences


def _sequence(
    x: te.Tensor,
    state: tuple[te.Tensor, ...],
    weights: tuple[Any, ...],
    gates: int,
    step: Callable[..., tuple[te.Tensor, ...]],
    reverse: bool,
) -> tuple[te.Tensor, ...]:
    """The states of every step, in the order of `x`."""
    weight_ih, weight_hh, bias_ih, bias_hh = weights
    ranked(x, 3)
    length, batch, _ = x.shape
    units = _checked(weight_ih, weight_hh, state[0], batch, gates)
    from_inputs = _projected(x, weight_ih, bias_ih, "from_inputs")

    def position(t: Any) -> Any:
        return length - 1 - t if reverse else t

    def body(t: Any, given: Any) -> Any:
        old = given if isinstance(given, tuple) else (given,)
        from_state = _gates(_projected(old[0], weight_hh, bias_hh, "from_state"), units)
        new = step(units, _gates(from_inputs, units, position(t)), from_state, old)
        return new[0] if len(new) == 1 else new

    names = ("hs", "cs")[: len(state)]
    found = te.scan(body, state[0] if len(state) == 1 else state, length, name=names[0] if len(names) == 1 else names)
    states = found if isinstance(found, tuple) else (found,)
    if not reverse:
        return states
    return tuple(te.compute(s.shape, lambda t, b, h, s=s: s[length - 1 - t, b, h]) for s in states)


@te.op
def rnn(
    x: te.Tensor,
    h: te.Tensor,
    weight_ih: te.Tensor,
    weight_hh: te.Tensor,
    bias_ih: te.Tensor | None = None,
    bias_hh: te.Tensor | None = None,
    *,
    nonlinearity: str = "tanh",
    reverse: bool = False,
) -> te.Tensor:
    """The states (T, B, H) of `rnn_cell` over the steps of x (T, B, I), from h (B, H).

    >>> kernels.rnn(np.ones((3, 1, 1)), np.zeros((1, 1)), np.ones((1, 1)), np.ones((1, 1)), nonlinearity="relu").ravel()
    array([1., 2., 3.])
    """
    return _sequence(x, (h,), (weight_ih, weight_hh, bias_ih, bias_hh), 1, _rnn(nonlinearity), reverse)[0]


@te.op
def lstm(
    x: te.Tensor,
    hx: te.Tensor,
    weight_ih: te.Tensor,
    weight_hh: te.Tensor,
    bias_ih: te.Tensor | None = None,
    bias_hh: te.Tensor | None = None,
    *,
    reverse: bool = False,
) -> tuple[te.Tensor, ...]:
    """The states `(hs, cs)`, each (T, B, H), of `lstm_cell` over the steps of x (T, B, I), from `hx`, the pair (h, c) of (B, H).

    >>> h = c = np.zeros((1, 1))
    >>> hs, cs = kernels.lstm(np.ones((2, 1, 1)), (h, c), np.ones((4, 1)), np.zeros((4, 1)))
    >>> hs.ravel().round(4)
    array([0.3696, 0.5453])
    """
    return _sequence(x, _pair(hx), (weight_ih, weight_hh, bias_ih, bias_hh), 4, _lstm, reverse)


@te.op
def gru(
    x: te.Tensor,
    h: te.Tensor,
    weight_ih: te.Tensor,
    weight_hh: te.Tensor,
    bias_ih: te.Tensor | None = None,
    bias_hh: te.Tensor | None = None,
    *,
    reverse: bool = False,
) -> te.Tensor:
    """The states (T, B, H) of `gru_cell` over the steps of x (T, B, I), from h (B, H).

    >>> kernels.gru(np.ones((2, 1, 1)), np.zeros((1, 1)), np.ones((3, 1)), np.zeros((3, 1))).round(4).ravel()  # two steps
    array([0.2048, 0.3546])
    """
    return _sequence(x, (h,), (weight_ih, weight_hh, bias_ih, bias_hh), 3, _gru, reverse)[0]
