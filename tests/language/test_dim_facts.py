"""Facts of open sizes: proofs use them, calls are checked for them, and they go through ops, gradients, scans, functions, bundles."""

from __future__ import annotations

import numpy as np
import pytest

import tensorexpr as te
import tensorexpr_runtime
from tensorexpr.parse import parse_program
from tensorexpr.text import print_program


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


@te.op
def softmax(x):
    a, b = x.shape
    e = te.compute((a, b), lambda i, j: te.exp(x[i, j]))
    return te.compute((a, b), lambda i, j: e[i, j] / te.sum(lambda k: e[i, k], b))


def test_a_least_value_proves_the_last_element() -> None:
    n = te.dim("n", min=1)
    x = te.placeholder((n,), name="x")
    f = te.build(te.compute((), lambda: x[n - 1], name="last"), [x])
    assert f(np.arange(5, dtype=np.float32)) == 4
    with pytest.raises(te.ArgumentError, match=r"argument x: expected an extent of at least 1 \(n_from1 \+ 1\), got 0"):
        f(ones(0))


def test_a_greatest_value_proves_reads_of_a_table() -> None:
    n = te.dim("n", max=12)
    x, table = te.placeholder((n,), name="x"), te.placeholder((12,), name="table")
    f = te.build(te.compute((n,), lambda i: x[i] + table[i], name="y"), [x, table])
    assert f(ones(12), ones(12)).shape == (12,)
    with pytest.raises(te.ArgumentError, match="argument x: expected an extent of at most 12, got 13"):
        f(ones(13), ones(12))


def test_multiples_come_out_whole() -> None:
    n = te.dim("n", min=5, max=70, multiple_of=16)
    x = te.placeholder((n,), name="x")
    y = te.compute((n // 16, 16), lambda i, j: x[16 * i + j], name="y")
    (x_bar,) = te.gradient(y, [x], te.placeholder(y.shape, name="head"))
    f = te.build([y, x_bar])
    assert not f.nest.checks
    for extent in (16, 32, 64):
        assert f(ones(extent), ones(extent // 16, 16))[1].shape == (extent,)
    g = te.build(y)
    for extent in (0, 8, 17):
        with pytest.raises(te.ArgumentError, match=rf"expected a multiple of 16 from 16 on \(.*\* 16 \+ 16\), got {extent}"):
            g(ones(extent))
    with pytest.raises(te.ArgumentError, match="expected an extent of at most 64, got 80"):
        g(ones(80))
    program = te.program_of([y])
    assert parse_program(print_program(program)) == program


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"min": -1}, "te.dim: expected min to be an integer of at least 0, got -1"),
        ({"multiple_of": 0}, "te.dim: expected multiple_of to be an integer of at least 1, got 0"),
        ({"max": "5"}, "te.dim: expected max to be an integer of at least 0, got '5'"),
        ({"min": 5, "max": 7, "multiple_of": 4}, "te.dim: expected facts that some extent has, got min=5, max=7, multiple_of=4"),
    ],
)
def test_facts_that_are_none_are_refused(facts: dict[str, int], message: str) -> None:
    with pytest.raises(te.DefinitionError) as found:
        te.dim("n", **facts)
    assert found.value.message == message
    assert found.value.hint == ("the least multiple of 4 from 5 on is 8" if len(facts) == 3 else None)


def test_equal_facts_are_one_size() -> None:
    x, y = (te.placeholder((te.dim("n", min=1),), name=name) for name in "xy")
    f = te.build(te.compute(x.shape, lambda i: x[i] + y[i], name="z"), [x, y])
    assert f(ones(3), ones(3)).shape == (3,)


def test_axes_are_opened_as_expressions_of_each_other() -> None:
    @te.op
    def window(x, w):
        (a,), (r,) = x.shape, w.shape
        return te.compute((a - r + 1,), lambda i: te.sum(lambda k: x[i + k] * w[k], r))

    k = te.dim("k", min=1)
    f = window.compile(((8,), "float32"), ((3,), "float32"), dynamic={"x": {0: 2 * k + 2}, "w": {0: k}})
    np.testing.assert_array_equal(f(ones(10), ones(4)), np.full(7, 4, np.float32))
    with pytest.raises(te.ArgumentError, match="argument x: expected extent 10"):
        f(ones(11), ones(4))


def test_through_gradients_scans_and_second_order() -> None:
    n, steps = te.dim("n", min=1), te.dim("steps", min=1, max=64)
    x = te.placeholder((steps, n), "float64", name="x")
    start = te.compute((n,), lambda i: x[0, i])
    states = te.scan(lambda t, s: te.compute((n,), lambda i: te.tanh(s[i] * 0.5 + x[t, i])), start, steps)
    head, direction = te.placeholder(states.shape, "float64", name="head"), te.placeholder(x.shape, "float64", name="direction")
    (first,) = te.gradient(states, [x], head)
    (second,) = te.gradient(first, [x], direction)
    f = te.build([first, second], [x, head, direction])
    rng = np.random.default_rng(0)
    for shape in ((1, 1), (7, 3)):
        a, h, d = (rng.standard_normal(shape) for _ in range(3))
        near = [f(a + sign * 1e-6 * d, h, d)[0] for sign in (1, -1)]
        np.testing.assert_allclose(f(a, h, d)[1], (near[0] - near[1]) / 2e-6, rtol=1e-5, atol=1e-7)


def test_through_functions() -> None:
    v = te.Variable(ones(4, 4), name="v")

    @te.function
    def step(x):
        a, b = x.shape
        return te.compute((a, b), lambda i, j: te.sum(lambda k: x[i, k] * v[k, j], b))

    compiled = step.compiled(te.placeholder((te.dim("b", min=1, multiple_of=2), 4), name="x"))
    np.testing.assert_array_equal(compiled([ones(4, 4)])[0], np.full((4, 4), 4, np.float32))


def test_through_constants() -> None:
    n = te.dim("n", min=1)
    x, w = te.placeholder((n,), name="x"), te.placeholder((n,), name="w")
    dot = te.compute((), lambda: te.sum(lambda i: x[i] * w[i], n), name="dot")
    frozen = te.freeze(dot, te.Context({"w": ones(3)}))
    assert frozen.sizes == ()
    assert te.compile(frozen)(ones(3))[0] == 3


def test_through_bundles(tmp_path) -> None:
    f = softmax.compile(te.placeholder((te.dim("n", min=1), te.dim("m", max=8)), name="x"))
    te.export(tmp_path / "b", softmax=f)
    loaded = tensorexpr_runtime.load(tmp_path / "b")
    np.testing.assert_array_equal(loaded.softmax(ones(2, 5)), f(ones(2, 5)))
    with pytest.raises(Exception, match="expected an extent of at most 8, got 9"):
        loaded.softmax(ones(2, 9))


def test_through_transforms() -> None:
    spec = te.placeholder((te.dim("n", min=1), te.dim("m", multiple_of=4)), name="x")
    f = te.vjp(softmax).compile(spec, spec)
    fixed = te.vjp(softmax)(ones(2, 8) * np.arange(8, dtype=np.float32), head := np.eye(2, 8, dtype=np.float32))
    np.testing.assert_allclose(f(ones(2, 8) * np.arange(8, dtype=np.float32), head)[0], fixed[0], rtol=1e-6)
