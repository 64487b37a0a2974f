"""The user's side: te.gradient, adjoints and contributions, overrides, te.jvp, te.jacobian, the report."""

import os
import subprocess
import sys

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import stop_gradient
from tensorexpr.autodiff.invert import merging
from tensorexpr.language import program_of

F64 = "float64"


def matmul():
    a, b = te.placeholder((4, 5), F64, name="A"), te.placeholder((5, 6), F64, name="B")
    return a, b, te.compute((4, 6), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], 5), name="C")


def test_a_gradient_is_a_sequence_of_tensors():
    a, b, c = matmul()
    head = te.placeholder((4, 6), F64, name="H")
    gradient = te.gradient(c, [a, b], head=head)
    assert isinstance(gradient, te.Gradient) and len(gradient) == 2
    a_bar, b_bar = gradient
    assert (a_bar.shape, b_bar.shape, a_bar.name, b_bar.name) == ((4, 5), (5, 6), "A_bar", "B_bar")
    assert te.gradient(c, a, head=head)[0].shape == (4, 5)


def test_several_outputs_with_heads_of_which_a_scalar_needs_none():
    x = te.placeholder((3,), F64, name="x")
    y = te.compute((3,), lambda i: x[i] * x[i], name="y")
    s = te.compute((), lambda: te.sum(lambda i: x[i], 3), name="s")
    head = te.placeholder((3,), F64, name="H")
    (found,) = te.gradient([y, s, y], [x], head=[head, None, head])
    arrays = {x: np.array([1.0, 2.0, 3.0]), head: np.array([1.0, -1.0, 0.5])}
    np.testing.assert_array_equal(te.evaluate(found, arrays), 4 * arrays[x] * arrays[head] + 1)


def test_an_unused_input_gets_zeros_and_an_output_its_head():
    x, unused = te.placeholder((3,), F64, name="x"), te.placeholder((2, 2), F64, name="unused")
    y = te.compute((3,), lambda i: x[i] + 1.0, name="y")
    head = te.placeholder((3,), F64, name="H")
    gradient = te.gradient(y, [unused, y, x], head=head)
    assert gradient[1] is head
    np.testing.assert_array_equal(te.evaluate(gradient[0]), np.zeros((2, 2)))


def test_adjoints_and_contributions_of_intermediates():
    x = te.placeholder((3,), F64, name="x")
    e = te.compute((3,), lambda i: te.exp(x[i]), name="e")
    s = te.compute((), lambda: te.sum(lambda i: e[i], 3), name="s")
    p = te.compute((3,), lambda i: e[i] / s[()], name="p")
    loss = te.compute((), lambda: te.sum(lambda i: p[i] * p[i], 3), name="loss")
    gradient = te.gradient(loss, [x])
    arrays = {x: np.array([0.1, 0.5, -0.3])}
    value = {t: te.evaluate(gradient.adjoints[t], arrays) for t in (x, e, s, p, loss)}
    parts = gradient.contributions[e]
    assert set(parts) == {s, p}
    total = sum(te.evaluate(part, arrays) for part in parts.values())
    np.testing.assert_allclose(total, value[e], rtol=1e-14)
    np.testing.assert_allclose(te.evaluate(parts[s], arrays), np.full(3, value[s]))
    assert value[loss] == 1 and x in gradient.adjoints and len(list(gradient.adjoints)) == 5
    off_path = te.gradient(loss, [p]).adjoints[e]  # e is no part of the way from p: derived when asked for
    np.testing.assert_allclose(te.evaluate(off_path, arrays), value[e])


def test_override_of_one_tensor_and_of_a_group():
    x = te.placeholder((3,), F64, name="x")
    e = te.compute((3,), lambda i: te.exp(x[i]), name="e")
    y = te.compute((3,), lambda i: te.log(e[i]), name="y")
    loss = te.compute((), lambda: te.sum(lambda i: y[i] * y[i], 3), name="loss")
    seen = []

    def rule(output, inputs, head):
        seen.append((output, inputs, head.shape))
        return [te.compute((3,), lambda i: head[i] * 10.0, name="ruled")]

    data = np.array([0.1, 0.5, -0.3])
    whole = te.gradient(loss, [x], override={y: ([x], rule)})
    np.testing.assert_allclose(te.evaluate(whole[0], {x: data}), 20 * data)
    single = te.gradient(loss, [x], override={y: rule})
    np.testing.assert_allclose(te.evaluate(single[0], {x: data}), 20 * data * np.exp(data))
    assert seen == [(y, [x], (3,)), (y, [e], (3,))]
    stopped = te.gradient(loss, [x], override={y: lambda output, inputs, head: [None]})
    np.testing.assert_array_equal(te.evaluate(stopped[0], {x: data}), np.zeros(3))


def test_a_gradient_is_differentiated_again():
    x, v = te.placeholder((4,), F64, name="x"), te.placeholder((4,), F64, name="v")
    f = te.compute((), lambda: te.sum(lambda i: te.sin(x[i]) * x[3 - i] ** 2, 4), name="f")
    (slope,) = te.gradient(f, [x])
    (product,) = te.gradient(slope, [x], head=v)
    forward = te.jvp(slope, [x], [v])
    rng = np.random.default_rng(0)
    arrays = {x: rng.standard_normal(4), v: rng.standard_normal(4)}
    hessian = te.evaluate(te.jacobian(slope, x), {x: arrays[x]})
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-12)
    np.testing.assert_allclose(te.evaluate(product, arrays), hessian @ arrays[v], rtol=1e-12)
    np.testing.assert_allclose(te.evaluate(forward, arrays), hessian @ arrays[v], rtol=1e-12)


def test_jvp_and_jacobian_agree():
    a, b, c = matmul()
    tangent = te.placeholder((4, 5), F64, name="dA")
    rng = np.random.default_rng(1)
    arrays = {a: rng.standard_normal((4, 5)), b: rng.standard_normal((5, 6)), tangent: rng.standard_normal((4, 5))}
    matrix = te.evaluate(te.jacobian(c, a), {b: arrays[b]})
    assert matrix.shape == (4, 6, 4, 5)
    pushed = te.evaluate(te.jvp(c, [a], [tangent]), {b: arrays[b], tangent: arrays[tangent]})
    np.testing.assert_allclose(pushed, np.einsum("ijkl,kl->ij", matrix, arrays[tangent]), rtol=1e-12)
    ab = te.jacobian(c, [a, b])
    assert [j.shape for j in ab] == [(4, 6, 4, 5), (4, 6, 5, 6)]
    unused = te.placeholder((2,), F64, name="u")
    assert not te.evaluate(te.jacobian(c, unused)).any()


def test_a_rule_of_an_op_serves_both_modes():
    @te.op(gradient=lambda output, inputs, head: [te.compute((3,), lambda i: head[i] * 5.0 * inputs[0][i])])
    def square(x):
        return te.compute((3,), lambda i: x[i] * x[i], name="square")

    x, v = te.placeholder((3,), F64, name="x"), te.placeholder((3,), F64, name="v")
    y = square(x)
    data = {x: np.array([1.0, 2.0, 3.0]), v: np.array([1.0, -1.0, 0.5])}
    np.testing.assert_array_equal(te.evaluate(te.gradient(y, [x], head=v)[0], data), 5 * data[x] * data[v])
    np.testing.assert_array_equal(te.evaluate(te.jvp(y, [x], [v]), data), 5 * data[x] * data[v])


def test_stop_gradient_stops_both_modes():
    x, v = te.placeholder((3,), F64, name="x"), te.placeholder((3,), F64, name="v")
    held = stop_gradient(x)
    y = te.compute((3,), lambda i: x[i] * held[i], name="y")
    data = {x: np.array([1.0, 2.0, 3.0]), v: np.array([1.0, -1.0, 0.5])}
    np.testing.assert_array_equal(te.evaluate(te.gradient(y, [x], head=v)[0], data), data[x] * data[v])
    np.testing.assert_array_equal(te.evaluate(te.jvp(y, [x], [v]), data), data[x] * data[v])


def test_the_same_code_under_any_hash_seed():
    script = """
import tensorexpr as te
x, w = te.placeholder((2, 9, 9), name="x"), te.placeholder((3, 2, 3, 3), name="w")
m = te.compute((2, 9, 9), lambda c, i, j: te.tanh(x[c, i, j]) / te.sum(lambda k: te.exp(x[c, i, k]), 9), name="m")
y = te.compute((3, 4, 4), lambda o, i, j: te.max(lambda c, r, s: m[c, 2*i + r, 2*j + s] * w[o, c, r, s], (2, 3, 3)), name="y")
print(te.language.program_of(list(te.gradient(y, [x, w], head=te.placeholder((3, 4, 4), name="H")))))
"""
    texts = {
        subprocess.run(
            [sys.executable, "-c", script], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True, text=True
        ).stdout
        for seed in ("1", "3")
    }
    assert len(texts) == 1 and "y_argmax" in texts.pop()


def test_where_lets_nothing_leak_out_of_the_branch_not_taken():
    x = te.placeholder((4,), F64, name="x")
    y = te.compute((), lambda: te.sum(lambda i: te.where(x[i] > 0, te.log(x[i]) + te.sqrt(x[i]), 0.0), 4), name="y")
    data = np.array([-1.0, 0.0, 1.0, 4.0])
    (found,) = te.gradient(y, [x])
    np.testing.assert_array_equal(te.evaluate(found, {x: data}), np.array([0.0, 0.0, 1.5, 0.5]))


def test_paths_through_integers_are_flat():
    x = te.placeholder((3,), F64, name="x")
    y = te.compute((3,), lambda i: te.cast(te.cast(x[i], "int32"), F64) + te.floor(x[i]) + te.where(x[i] > 1, 1.0, 2.0), name="y")
    gradient = te.gradient(y, [x], head=te.placeholder((3,), F64, name="H"))
    assert not te.evaluate(gradient[0]).any() and gradient.report().rows == ()


def test_the_report_is_a_table():
    a, b, c = matmul()
    report = te.gradient(c, [a, b], head=te.placeholder((4, 6), F64, name="H")).report()
    assert [tuple(row) for row in report.rows] == [
        ("A", "C", "A[i, k]", "substitute", 120, 120),
        ("B", "C", "B[k, j]", "substitute", 120, 120),
    ]
    assert report.rows[0]._fields == ("tensor", "consumer", "access", "lowering", "iterations", "reads")
    assert str(report).splitlines() == [
        "tensor  consumer  access   lowering    iterations  reads  ratio",
        "A       C         A[i, k]  substitute         120    120   1.00",
        "B       C         B[k, j]  substitute         120    120   1.00",
    ]


@pytest.mark.parametrize("stages", [2000])
def test_a_long_chain(stages):
    x = te.placeholder((2,), F64, name="x")
    t = x
    for _ in range(stages):
        t = te.compute((2,), lambda i, s=t: s[1 - i] * 1.001, name="t")
    (found,) = te.gradient(t, [x], head=te.placeholder((2,), F64, name="H"))
    assert len(program_of([found]).definitions) == stages


def test_plain_reads_of_one_tensor_are_not_compared_in_pairs(monkeypatch):
    compared = []
    monkeypatch.setattr(merging, "blocks_of", lambda shares, unite=merging.blocks_of: compared.append(shares) or unite(shares))
    x = te.placeholder((2,), F64, name="x")
    t = x
    for _ in range(50):
        t = te.compute((2,), lambda i, s=t: te.sin(s[1 - i]) + x[i] * 0.1, name="t")
    te.gradient(t, [x], head=te.placeholder((2,), F64, name="H"))
    assert 100 <= len(compared) < 200


def test_a_weight_that_hundreds_of_layers_share():
    layers = 400
    x, w = te.placeholder((2,), F64, name="x"), te.placeholder((2, 2), F64, name="w")
    t = x
    for _ in range(layers):
        t = te.compute((2,), lambda i, s=t: te.sum(lambda k: w[i, k] * s[k], 2), name="t")
    head = te.placeholder((2,), F64, name="H")
    (found,) = te.gradient(t, [w], head=head)
    matrix, start, end = np.array([[0.8, -0.6], [0.6, 0.8]]), np.array([1.0, 2.0]), np.array([3.0, -1.0])
    states = [start]
    for _ in range(layers):
        states.append(matrix @ states[-1])
    expected, weight = np.zeros((2, 2)), end
    for state in reversed(states[:-1]):
        expected += np.outer(weight, state)
        weight = matrix.T @ weight
    np.testing.assert_allclose(te.evaluate(found, {x: start, w: matrix, head: end}), expected, rtol=1e-10)
