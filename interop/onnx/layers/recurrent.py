"""RNN, GRU and LSTM: one or two directions, a step of a scan for each time, with lengths, peepholes, clipping and every activation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tensorexpr import language
from tensorexpr.interop.onnx.operators.common import filled
from tensorexpr.interop.onnx.table import operator
from tensorexpr.language import Tensor, cast, compute, scan

Activation = Callable[[Any], Any]
_DEFAULTS = {"Affine": (1.0, 0.0), "LeakyRelu": (0.01, 0.0), "ThresholdedRelu": (1.0, 0.0), "ScaledTanh": (1.0, 1.0),
             "HardSigmoid": (0.2, 0.5), "Elu": (1.0, 0.0)}  # fmt: skip


def _activation(name: str, alpha: float | None, beta: float | None) -> Activation:
    known = {key.lower(): key for key in (*_DEFAULTS, "Relu", "Tanh", "Sigmoid", "Softsign", "Softplus")}
    if name.lower() not in known:
        raise ValueError(f"activation {name}")
    kind = known[name.lower()]
    a, b = _DEFAULTS.get(kind, (0.0, 0.0))
    a, b = a if alpha is None else alpha, b if beta is None else beta
    functions: dict[str, Activation] = {
        "Relu": lambda v: language.maximum(v, 0), "Tanh": language.tanh, "Sigmoid": language.sigmoid,
        "Affine": lambda v: a * v + b, "LeakyRelu": lambda v: language.where(v < 0, a * v, v),
        "ThresholdedRelu": lambda v: language.where(v > a, v, 0), "ScaledTanh": lambda v: a * language.tanh(b * v),
        "HardSigmoid": lambda v: language.clip(a * v + b, 0, 1), "Softsign": lambda v: v / (1 + language.abs(v)),
        "Elu": lambda v: language.where(v < 0, a * language.expm1(language.minimum(v, 0)), v),
        "Softplus": lambda v: language.maximum(v, 0) + language.log1p(language.exp(-language.abs(v))),
    }  # fmt: skip
    return functions[kind]


class _Cells:
    """One node: its tensors, and a scan for each direction. `gates` are how many; `used` how many activations a direction has."""

    def __init__(
        self, x: Tensor, w: Tensor, r: Tensor, b: Any, lengths: Any, gates: int, names: Sequence[str], attributes: dict[str, Any]
    ) -> None:
        self.w, self.r, self.b, self.lengths, self.gates = w, r, b, lengths, gates
        self.layout = attributes["layout"]
        if self.layout:
            x = compute((x.shape[1], x.shape[0], x.shape[2]), lambda t, n, i, x=x: x[n, t, i], name="x")
        self.x = x
        self.steps, self.batch, self.units = x.shape[0], x.shape[1], r.shape[2]
        self.directions = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[attributes["direction"]]
        if w.shape[0] != len(self.directions):
            raise ValueError(f"weights for {w.shape[0]} directions")
        given = list(attributes["activations"]) if attributes["activations"] is not None else list(names) * len(self.directions)
        alphas, betas = (list[float](attributes[key] or ()) for key in ("activation_alpha", "activation_beta"))
        taking = [k for k, name in enumerate(given) if name.lower() in {key.lower() for key in _DEFAULTS}]
        positions = {k: at for at, k in enumerate(taking)} if len(alphas) < len(given) else {k: k for k in range(len(given))}

        def value(values: list[float], k: int) -> float | None:
            at = positions.get(k)
            return values[at] if at is not None and at < len(values) else None

        self.activations = [_activation(name, value(alphas, k), value(betas, k)) for k, name in enumerate(given)]
        self.used = len(names)
        self.clip = attributes["clip"]

    def held(self, value: Any) -> Any:
        """What goes into an activation."""
        return value if not self.clip else language.clip(value, -self.clip, self.clip)

    def initial(self, state: Any, d: int) -> Tensor:
        """The state of a direction before the first step."""
        if state is None:
            return filled((self.batch, self.units), 0, self.x.dtype)
        if self.layout:
            return compute((self.batch, self.units), lambda n, h: state[n, d, h])
        return compute((self.batch, self.units), lambda n, h: state[d, n, h])

    def from_inputs(self, d: int) -> Tensor:
        """What all gates get of all inputs, with both biases, those of `r` of a linear gate excepted."""
        rows = self.gates * self.units

        def element(t: Any, n: Any, g: Any) -> Any:
            total = language.sum(lambda i: self.x[t, n, i] * self.w[d, g, i], self.x.shape[2])
            return total if self.b is None else total + self.b[d, g]

        return compute((self.steps, self.batch, rows), element, name="from_inputs")

    def from_state(self, d: int, h: Tensor, scale: Callable[[Any, Any], Any] | None = None, gates: range | None = None) -> Tensor:
        """What gates get of the state, with their biases."""
        chosen = range(self.gates) if gates is None else gates
        first, rows = chosen.start * self.units, len(chosen) * self.units

        def element(n: Any, g: Any) -> Any:
            def term(i: Any) -> Any:
                value = h[n, i] if scale is None else h[n, i] * scale(n, i)
                return value * self.r[d, first + g, i]

            total = language.sum(term, self.units)
            return total if self.b is None else total + self.b[d, self.gates * self.units + first + g]

        return compute((self.batch, rows), element, name="from_state")

    def run(self, step: Callable[..., tuple[Tensor, ...]], initial: Sequence[Sequence[Tensor]]) -> list[tuple[Tensor, ...]]:
        """The states of all steps of each direction, at the times of `x`, and behind them the last ones."""
        results = []
        for d, backward in enumerate(self.directions):
            inputs = self.from_inputs(d)

            def body(t: Any, state: Any, d: int = d, backward: bool = backward, inputs: Tensor = inputs) -> Any:
                old = state if isinstance(state, tuple) else (state,)
                time = self.steps - 1 - t if backward else t

                def from_input(gate: int, n: Any, h: Any) -> Any:
                    return inputs[time, n, gate * self.units + h]

                new = step(d, from_input, old)
                if self.lengths is not None:
                    new = tuple(
                        compute(a.shape, lambda n, h, a=a, b=b: language.where(cast(self.lengths[n], "int64") > time, a[n, h], b[n, h]))
                        for a, b in zip(new, old, strict=True)
                    )
                return new[0] if len(new) == 1 else new

            inits = initial[d]
            found = scan(body, tuple(inits) if len(inits) > 1 else inits[0], self.steps)
            results.append(found if isinstance(found, tuple) else (found,))
        return results

    def outputs(self, found: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """All states of the first kind, with zeros beyond the lengths, and the last ones of each kind."""

        def state(t: Any, d: int, n: Any, h: Any) -> Any:
            at = self.steps - 1 - t if self.directions[d] else t
            value = found[d][0][at, n, h]
            return value if self.lengths is None else language.where(cast(self.lengths[n], "int64") > t, value, 0)

        def of_direction(d: Any, value: Callable[[int], Any]) -> Any:
            return value(0) if len(self.directions) == 1 else language.where(d == 0, value(0), value(1))

        count, last = len(self.directions), self.steps - 1
        if self.layout:
            y = compute(
                (self.batch, self.steps, count, self.units), lambda n, t, d, h: of_direction(d, lambda k: state(t, k, n, h)), name="y"
            )
        else:
            y = compute(
                (self.steps, count, self.batch, self.units), lambda t, d, n, h: of_direction(d, lambda k: state(t, k, n, h)), name="y"
            )
        ends = []
        for kind in range(len(found[0])):

            def end(d: Any, n: Any, h: Any, kind: int = kind) -> Any:
                return of_direction(d, lambda k: found[k][kind][last, n, h])

            shape = (self.batch, count, self.units) if self.layout else (count, self.batch, self.units)
            ends.append(compute(shape, (lambda n, d, h, end=end: end(d, n, h)) if self.layout else (lambda d, n, h, end=end: end(d, n, h))))
        return y, *ends


def _attributes(**given: Any) -> dict[str, Any]:
    return given


@operator("RNN")
def _rnn(
    x: Tensor, w: Tensor, r: Tensor, b: Any = None, lengths: Any = None, initial_h: Any = None, *, activation_alpha: Any = None,
    activation_beta: Any = None, activations: Any = None, clip: float = 0.0, direction: str = "forward", hidden_size: int = 0,
    layout: int = 0, output_sequence: int = 0,
) -> Any:  # fmt: skip
    cells = _Cells(x, w, r, b, lengths, 1, ["Tanh"], _attributes(
        activation_alpha=activation_alpha, activation_beta=activation_beta, activations=activations, clip=clip, direction=direction,
        layout=layout))  # fmt: skip

    def step(d: int, from_input: Any, old: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        own, f = cells.from_state(d, old[0]), cells.activations[d]
        return (compute(old[0].shape, lambda n, h: f(cells.held(from_input(0, n, h) + own[n, h])), name="h"),)

    return cells.outputs(cells.run(step, [[cells.initial(initial_h, d)] for d in range(len(cells.directions))]))


@operator("GRU")
def _gru(
    x: Tensor, w: Tensor, r: Tensor, b: Any = None, lengths: Any = None, initial_h: Any = None, *, activation_alpha: Any = None,
    activation_beta: Any = None, activations: Any = None, clip: float = 0.0, direction: str = "forward", hidden_size: int = 0,
    layout: int = 0, linear_before_reset: int = 0, output_sequence: int = 0,
) -> Any:  # fmt: skip
    """Gates: update, reset, hidden."""
    cells = _Cells(x, w, r, b, lengths, 3, ["Sigmoid", "Tanh"], _attributes(
        activation_alpha=activation_alpha, activation_beta=activation_beta, activations=activations, clip=clip, direction=direction,
        layout=layout))  # fmt: skip
    units = cells.units

    def step(d: int, from_input: Any, old: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        (h_,), f, g = old, cells.activations[2 * d], cells.activations[2 * d + 1]
        own = cells.from_state(d, h_) if linear_before_reset else cells.from_state(d, h_, gates=range(0, 2))

        def gate(k: int, n: Any, h: Any) -> Any:
            return f(cells.held(from_input(k, n, h) + own[n, k * units + h]))

        update, reset = (compute(h_.shape, lambda n, h, k=k: gate(k, n, h), name="gate") for k in (0, 1))
        if linear_before_reset:
            hidden = compute(h_.shape, lambda n, h: g(cells.held(from_input(2, n, h) + reset[n, h] * own[n, 2 * units + h])), name="hidden")
        else:
            after = cells.from_state(d, h_, lambda n, i: reset[n, i], range(2, 3))
            hidden = compute(h_.shape, lambda n, h: g(cells.held(from_input(2, n, h) + after[n, h])), name="hidden")
        return (compute(h_.shape, lambda n, h: (1 - update[n, h]) * hidden[n, h] + update[n, h] * h_[n, h], name="h"),)

    return cells.outputs(cells.run(step, [[cells.initial(initial_h, d)] for d in range(len(cells.directions))]))


@operator("LSTM")
def _lstm(
    x: Tensor, w: Tensor, r: Tensor, b: Any = None, lengths: Any = None, initial_h: Any = None, initial_c: Any = None, p: Any = None, *,
    activation_alpha: Any = None, activation_beta: Any = None, activations: Any = None, clip: float = 0.0, direction: str = "forward",
    hidden_size: int = 0, input_forget: int = 0, layout: int = 0, output_sequence: int = 0,
) -> Any:  # fmt: skip
    """Gates: input, output, forget, cell; peepholes: input, output, forget."""
    cells = _Cells(x, w, r, b, lengths, 4, ["Sigmoid", "Tanh", "Tanh"], _attributes(
        activation_alpha=activation_alpha, activation_beta=activation_beta, activations=activations, clip=clip, direction=direction,
        layout=layout))  # fmt: skip
    units = cells.units

    def step(d: int, from_input: Any, old: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        h_, c_ = old
        f, g, last = cells.activations[3 * d : 3 * d + 3]
        own = cells.from_state(d, h_)

        def total(k: int, n: Any, h: Any, peep: int | None = None, seen: Tensor | None = None) -> Any:
            value = from_input(k, n, h) + own[n, k * units + h]
            if p is not None and peep is not None and seen is not None:
                value = value + p[d, peep * units + h] * seen[n, h]
            return cells.held(value)

        opened = compute(h_.shape, lambda n, h: f(total(0, n, h, 0, c_)), name="input_gate")
        if input_forget:
            kept = compute(h_.shape, lambda n, h: 1 - opened[n, h], name="forget_gate")
        else:
            kept = compute(h_.shape, lambda n, h: f(total(2, n, h, 2, c_)), name="forget_gate")
        new = compute(h_.shape, lambda n, h: g(total(3, n, h)), name="candidate")
        c = compute(h_.shape, lambda n, h: kept[n, h] * c_[n, h] + opened[n, h] * new[n, h], name="c")
        out = compute(h_.shape, lambda n, h: f(total(1, n, h, 1, c)), name="output_gate")
        return compute(h_.shape, lambda n, h: out[n, h] * last(c[n, h]), name="h"), c

    start = [[cells.initial(initial_h, d), cells.initial(initial_c, d)] for d in range(len(cells.directions))]
    return cells.outputs(cells.run(step, start))
