"""Optimizers: the same as their formulas in NumPy, their state, clipping, and what they refuse."""

import math

import ml_dtypes
import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.graph.optimizers import SGD, Adam, AdamW, Optimizer
from tensorexpr.graph.rates import Cosine, Warmup

SHAPES = ((3, 4), (), (5,), (2, 3, 2))
STEPS = 6


def sgd(momentum=0.0, nesterov=False, decay=0.0):
    def update(w, g, state, t, rate):
        g = g + decay * w
        if momentum:
            state["b"] = momentum * state.get("b", 0.0) + g
            g = g + momentum * state["b"] if nesterov else state["b"]
        return w - rate * g

    return update


def adam(betas=(0.9, 0.999), eps=1e-8, decay=0.0, decoupled=False):
    def update(w, g, state, t, rate):
        if decoupled:
            w = w - rate * decay * w
        else:
            g = g + decay * w
        state["m"] = betas[0] * state.get("m", 0.0) + (1 - betas[0]) * g
        state["v"] = betas[1] * state.get("v", 0.0) + (1 - betas[1]) * g * g
        m, v = state["m"] / (1 - betas[0] ** t), state["v"] / (1 - betas[1] ** t)
        return w - rate * m / (np.sqrt(v) + eps)

    return update


CASES = {
    "sgd": (lambda v, r: SGD(v, r), sgd()),
    "momentum": (lambda v, r: SGD(v, r, momentum=0.9, weight_decay=0.1), sgd(0.9, decay=0.1)),
    "nesterov": (lambda v, r: SGD(v, r, momentum=0.9, nesterov=True), sgd(0.9, True)),
    "adam": (lambda v, r: Adam(v, r), adam()),
    "adam with decay": (lambda v, r: Adam(v, r, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1), adam((0.8, 0.95), 1e-6, 0.1)),
    "adamw": (lambda v, r: AdamW(v, r, weight_decay=0.1), adam(decay=0.1, decoupled=True)),
}


def data(dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal(shape).astype(dtype) if shape else np.asarray(rng.standard_normal(), dtype) for shape in SHAPES]
    gradients = [[np.asarray(rng.standard_normal(shape)).astype(dtype) for shape in SHAPES] for _ in range(STEPS)]
    return weights, gradients


@pytest.mark.parametrize("case", CASES)
def test_steps_follow_the_formula(case):
    make, formula = CASES[case]
    rate = Warmup(2, Cosine(0.1, 6, final=0.01))
    weights, gradients = data()
    variables = [te.Variable(w) for w in weights]
    optimizer = make(variables, rate)
    states = [{} for _ in weights]
    for step, given in enumerate(gradients):
        optimizer.apply(given)
        weights = [formula(w, g, s, step + 1, rate.at(step)) for w, g, s in zip(weights, given, states, strict=True)]
    for variable, expected in zip(variables, weights, strict=True):
        np.testing.assert_allclose(variable.value, expected, rtol=1e-12, atol=1e-14)
    assert optimizer.steps.value == STEPS


@pytest.mark.parametrize("most", [0.5, 100.0])
def test_clipping_by_norm_scales_all_gradients_together(most):
    weights, gradients = data()
    variables = [te.Variable(w) for w in weights]
    SGD(variables, 1.0, clip_norm=most).apply(gradients[0])
    norm = math.sqrt(sum(float((g * g).sum()) for g in gradients[0]))
    share = min(1.0, most / (norm + 1e-6))
    assert (share < 1) == (most == 0.5)
    for variable, w, g in zip(variables, weights, gradients[0], strict=True):
        np.testing.assert_allclose(variable.value, w - share * g, rtol=1e-12, atol=1e-14)


def test_clipping_by_value():
    weights, gradients = data()
    variables = [te.Variable(w) for w in weights]
    SGD(variables, 1.0, clip_value=0.3).apply(gradients[0])
    for variable, w, g in zip(variables, weights, gradients[0], strict=True):
        np.testing.assert_allclose(variable.value, w - np.clip(g, -0.3, 0.3), rtol=1e-12, atol=1e-14)


def test_003_41_an_optimizer_lists_its_own_state():
    variables = [te.Variable(np.zeros(3, "float32")), te.Variable(np.zeros((), "float32"))]
    optimizer = Adam(variables, name="optimizer")
    assert list(te.state_dict(optimizer)) == ["first.0", "first.1", "second.0", "second.1", "steps"]
    assert optimizer.trainable_variables == () and not set(map(id, variables)) & set(map(id, optimizer.variables))
    assert {v.name for v in optimizer.variables} == {"optimizer/first", "optimizer/second", "optimizer/steps"}


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16])
def test_16_bit_variables_have_their_moments_in_float32(dtype):
    variable = te.Variable(np.ones(4), dtype=dtype)
    optimizer = Adam([variable], 0.25)
    optimizer.apply([np.full(4, 1e-4, dtype)])
    assert optimizer.first[0].dtype == optimizer.second[0].dtype == "float32" and variable.dtype.bits == 16
    np.testing.assert_array_equal(variable.value.astype("float32"), np.full(4, 0.75, "float32"))


UPDATES = {  # kernels, the optimizer, the shapes of its variables
    "equal": (1, lambda variables: SGD(variables, 0.125, momentum=0.5, nesterov=True), [(24, 16)] * 5),
    "elements": (2, lambda variables: Adam(variables, 1e-3), [(24, 16), (384,), (4, 96), (6, 8, 8)]),
    "scalars": (1, lambda variables: SGD(variables, 0.125, weight_decay=0.125), [(), (), ()]),
    "mixed": (
        2,
        lambda variables: AdamW(variables, Warmup(3, Cosine(0.1, 6)), clip_value=0.5),
        [(40, 33), (), (4, 3, 3, 3), (), (300, 64)],
    ),
}


@pytest.mark.parametrize("case", UPDATES)
def test_updates_of_all_variables_are_one_kernel_and_the_same_bits(case):
    """One for what depends on the number of steps, where there is such, and one for all elements of all variables and their slots."""
    kernels, make, shapes = UPDATES[case]
    rng = np.random.default_rng(0)
    values, gradients = ([rng.standard_normal(shape).astype("float32") for shape in shapes] for _ in range(2))
    together, alone = ([te.Variable(value) for value in values] for _ in range(2))
    optimizer = make(together)
    assert optimizer.apply.compiled(gradients).kernels == kernels
    optimizer.apply(gradients)
    for variable, gradient in zip(alone, gradients, strict=True):
        make([variable]).apply([gradient])
    assert [v.value.tobytes() for v in together] == [v.value.tobytes() for v in alone]


def test_the_norm_of_many_gradients_is_no_deep_expression():
    variables = [te.Variable(np.zeros((), "float32")) for _ in range(300)]
    graph = SGD(variables, 1.0, clip_norm=1.0).apply.graph([np.ones((), "float32")] * 300)
    assert sum(node.id.startswith("moved") for node in graph.nodes) == 300


def test_an_optimizer_of_ones_own():
    class Sign(Optimizer):
        slots = ("velocity",)

        def advance(self, gradient, value, slots, scalars):
            return (0.9 * slots[0] + 0.1 * gradient,)

        def move(self, gradient, value, slots, scalars):
            return value - scalars["rate"] * te.sign(slots[0])

    variable = te.Variable(np.zeros(3))
    optimizer = Sign([variable], 0.5)
    optimizer.apply([np.array([2.0, -1.0, 0.0])])
    assert np.array_equal(variable.value, [-0.5, 0.5, 0.0]) and np.allclose(optimizer.velocity[0].value, [0.2, -0.1, 0.0])


def test_state_of_a_run_goes_on_bit_for_bit(tmp_path):
    weights, gradients = data("float32")

    def run(steps, file=None):
        model = te.Module()
        model.items = [te.Variable(w) for w in weights]
        model.optimizer = AdamW(model.items, Warmup(3, Cosine(0.1, 6)), clip_norm=1.0)
        if file is not None and file.exists():
            te.load_state(model, file)
        for given in gradients[int(model.optimizer.steps.value) : steps]:
            model.optimizer.apply(given)
        if file is not None:
            te.save_state(model, file)
        return {path: value.tobytes() for path, value in te.state_dict(model).items()}

    whole = run(STEPS)
    assert run(3, tmp_path / "half.safetensors") != whole
    assert run(STEPS, tmp_path / "half.safetensors") == whole


REFUSED = {
    "variables: expected floating variables, got ": lambda v: SGD([te.Variable(np.zeros(3, "int64"))], 0.1),
    "variables: expected each variable once, got variable twice": lambda v: SGD([v, v], 0.1),
    "rate: expected a number or a rate, got a str": lambda v: SGD([v], "0.1"),
    "rate: expected a number of at least 0, got -0.1": lambda v: SGD([v], -0.1),
    "variables: expected at least one variable, got none": lambda v: SGD([], 0.1),
    "momentum: expected a number from 0 to below 1, got 1.5": lambda v: SGD([v], 0.1, momentum=1.5),
    "weight_decay: expected a number of at least 0, got -1": lambda v: Adam([v], weight_decay=-1),
    "nesterov: expected a momentum above 0, got 0": lambda v: SGD([v], 0.1, nesterov=True),
    r"betas: expected two numbers from 0 to below 1, got \(0.9, 1.0\)": lambda v: Adam([v], betas=(0.9, 1.0)),
    "clip_norm: expected a number above 0, got 0": lambda v: SGD([v], 0.1, clip_norm=0),
    "clip_value: expected a number above 0, got -1.0": lambda v: SGD([v], 0.1, clip_value=-1.0),
    "sgd: expected 1 gradients, one per variable, got 2": lambda v: SGD([v], 0.1).apply([np.zeros(3), np.zeros(3)]),
    r"sgd: expected a gradient of shape \(3,\) for variable, got \(4,\)": lambda v: SGD([v], 0.1).apply([np.zeros(4)]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(message):
    variable = te.Variable(np.ones(3))
    with pytest.raises(te.ArgumentError, match=message):
        REFUSED[message](variable)
    assert np.array_equal(variable.value, np.ones(3))
