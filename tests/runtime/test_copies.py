"""Ops, traced functions and compiled functions are copied and pickled: found by name where that finds them, else built again."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels

RNG = np.random.default_rng(0)
X, W = RNG.normal(size=(6, 5)).astype(np.float32), RNG.normal(size=5).astype(np.float32)


@te.op
def scaled(x, w, *, factor=2.0):
    return te.compute(x.shape, lambda i, j: factor * x[i, j] * te.tanh(w[j]))


def _body(x, w):
    return te.compute(x.shape, lambda i, j: x[i, j] - w[j])


shifted = te.op(_body)  # the op and its function have names of their own
nameless = te.op(lambda x, w: te.compute(x.shape, lambda i, j: x[i, j] + w[j]))


def twice(y, inputs, head):
    return [te.compute(inputs[0].shape, lambda i, j: 2 * head[i, j]), None]


ruled = te.op(_body, gradient=twice)


@te.op
def total(x, w):
    return te.compute((), lambda: te.sum(lambda i, j: x[i, j] * w[j] * w[j], x.shape))


@te.function
def traced(x, w):
    return scaled(x, w) + 1.0


class Layer(te.Module):
    def __init__(self, w):
        super().__init__()
        self.w = te.Variable(w, name="w")

    @te.function
    def apply(self, x):
        return scaled(x, self.w)


OPS = {
    "by name": scaled,
    "of a function with a name": shifted,
    "of a lambda with a name": nameless,
    "with a rule": ruled,
    "of the library": kernels.relu,
    "vjp": te.vjp(scaled),
    "vjp by a name": te.vjp(scaled, wrt="w"),
    "grad": te.grad(total, wrt=["w", "x"]),
    "value_and_grad": te.value_and_grad(total),
    "jvp": te.jvp(scaled),
    "second order": te.vjp(te.grad(total, wrt="w")),
    "function": traced,
}


def arguments(operation):
    given = {"x": X, "w": W, "head": X, "input": X}
    names = operation.parameters if isinstance(operation, te.Op) else ("x", "w")
    if operation is OPS["second order"]:
        return X, W, W
    if operation is OPS["jvp"]:
        return X, W, X, W
    return tuple(given[name] for name in names)


def same(one, other):
    if isinstance(other, tuple):
        for a, b in zip(one, other, strict=True):
            same(a, b)
    else:
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", OPS)
def test_an_op_comes_back(name):
    operation = OPS[name]
    assert copy.deepcopy(operation) is operation and copy.copy(operation) is operation
    again = pickle.loads(pickle.dumps(operation))
    same(again(*arguments(operation)), operation(*arguments(operation)))
    if name in ("by name", "of a lambda with a name", "of the library", "function"):
        assert again is operation


def test_a_rule_comes_back():
    again = pickle.loads(pickle.dumps(te.op(_body, gradient=twice)))
    same(te.vjp(again, wrt="x")(X, W, X), 2 * X)


def test_what_pickle_cannot_find_it_says_itself():
    local = te.op(lambda x: te.compute(x.shape, lambda i: x[i]))
    assert copy.deepcopy({"op": local})["op"] is local
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(local)


def test_an_op_that_is_gone_is_missed_by_name(monkeypatch):
    monkeypatch.setitem(globals(), "gone", te.op(lambda x: te.compute(x.shape, lambda i: x[i])))
    pickled = pickle.dumps(globals()["gone"])
    monkeypatch.delitem(globals(), "gone")
    with pytest.raises(te.DefinitionError, match=f"expected gone in the module {__name__}, where it was when it was pickled, got none"):
        pickle.loads(pickled)


def built():
    x, w, n = te.placeholder((6, 5), name="x"), te.placeholder((5,), name="w"), te.dim("n")
    y = te.compute((6, 5), lambda i, j: x[i, j] * w[j])
    z = te.placeholder((n, 5), name="x")
    schedule = te.schedule([y])
    schedule[y].reorder("j", "i")
    return {
        "one result": (te.build(y, [x, w]), (X, W)),
        "several": (te.build([y, te.compute((5,), lambda j: w[j] + 1)], [w, x]), (W, X)),
        "open": (te.build(te.compute((n, 5), lambda i, j: z[i, j] * 2), [z]), (X,)),
        "constants": (te.build(te.compute((6, 5), lambda i, j: x[i, j] * te.constant(X)[i, j]), [x]), (X,)),
        "by hand": (te.build(schedule, [w, x]), (W, X)),
        "te.compile": (te.compile(y, [x, w]), (X, W)),
        "of an op": (scaled.compile(X, W), (X, W)),
    }


@pytest.mark.parametrize("name", built())
def test_a_compiled_function_comes_back(name):
    function, arrays = built()[name]
    assert copy.deepcopy(function) is function
    again = pickle.loads(pickle.dumps(function))
    same(again(*arrays), function(*arrays))
    assert str(again.schedule) == str(function.schedule) and repr(again) == repr(function)


def test_compiled_functions_with_updates_come_back():
    x, s = te.placeholder((5,), name="x"), te.placeholder((5,), name="s")
    made = te.compile(te.compute((5,), lambda i: x[i] + s[i]), [x, s], mode="training", updates={s: te.compute((5,), lambda i: s[i] + 1)})
    for function in (made, pickle.loads(pickle.dumps(made))):
        context = function.context({"s": W.copy()})
        same(function.run(context, x=W), 2 * W)
        assert function.mode == "training" and function.updates == made.updates


def test_methods_go_with_their_objects():
    layer = Layer(W)
    for again in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        layer.w.assign(W + 1)
        same(again.apply(X), scaled(X, W))
        layer.w.assign(W)
    method = pickle.loads(pickle.dumps(layer.apply))
    same(method(X), scaled(X, W))


def test_another_process_runs_them():
    """As a spawned worker does: what comes is unpickled by name, and computed there."""
    root = Path(__file__).resolve().parents[2]
    program = "import pickle, sys; f, a = pickle.load(sys.stdin.buffer); pickle.dump([g(*b) for g, b in zip(f, a)], sys.stdout.buffer)"
    functions = [OPS["by name"], OPS["vjp"], OPS["function"], *(function for function, _ in built().values())]
    given = [arguments(OPS[name]) for name in ("by name", "vjp", "function")] + [arrays for _, arrays in built().values()]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *filter(None, sys.path)])}
    done = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps((functions, given)), capture_output=True, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stderr.decode()
    for found, function, arrays in zip(pickle.loads(done.stdout), functions, given, strict=True):
        same(found, function(*arrays))


def test_a_function_of_code_alone_is_not_pickled():
    x = te.placeholder((3,), name="x")
    function = te.build(te.compute((3,), lambda i: x[i] * 2, name="y"), [x])
    function.origin = None
    with pytest.raises(pickle.PicklingError, match="y: expected a function that was built of a program, got one of code alone"):
        pickle.dumps(function)
