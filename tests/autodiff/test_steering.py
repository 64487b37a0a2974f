"""Steering: rules for one tensor and for a group, rules of ops in both modes at any order, what stops and what refuses derivatives."""

import numpy as np
import pytest

import tensorexpr as te
from tests.autodiff.laws import check_orders

F64 = "float64"
RNG = np.random.default_rng(40)


def refused(use) -> list[str]:
    with pytest.raises(te.DifferentiationError) as caught:
        use()
    return str(caught.value).splitlines()


# ------------------------------------------------------------------------------------------------------------ stopping


def test_stop_gradient_of_tensors_and_scalars_at_every_order():
    x = te.placeholder((3,), F64, name="x")
    held = te.stop_gradient(te.compute((3,), lambda i: te.exp(x[i]), name="e"))
    assert held.name == "e"
    for y in (
        te.compute((3,), lambda i: held[i] * x[i] ** 3),
        te.compute((3,), lambda i: te.stop_gradient(te.exp(x[i])) * x[i] ** 3),
    ):
        loss = te.compute((), lambda y=y: te.sum(lambda i: y[i], 3))
        data = {x: RNG.standard_normal(3)}
        e = np.exp(data[x])
        ones = te.constant(np.ones(3))
        slope = te.gradient(loss, x)[0]
        np.testing.assert_allclose(te.evaluate(slope, data), 3 * e * data[x] ** 2)
        np.testing.assert_allclose(te.evaluate(te.jvp(loss, [x], [ones]), data), (3 * e * data[x] ** 2).sum())
        # The mark stays in the gradient: at the second order it is a constant still, compiled too.
        second = te.gradient(slope, x, ones)[0]
        np.testing.assert_allclose(te.evaluate(second, data), 6 * e * data[x])
        np.testing.assert_allclose(te.build(second, [x])(data[x]), 6 * e * data[x])
        np.testing.assert_allclose(te.evaluate(te.jvp(slope, [x], [ones]), data), 6 * e * data[x])


def test_stop_gradient_in_the_body_of_a_scan():
    x = te.placeholder((3,), F64, name="x")
    start = te.compute((3,), lambda j: te.cast(0, F64))

    def body(t, s):
        held = te.stop_gradient(te.compute((3,), lambda j: te.sin(s[j]) + x[j]))
        return te.compute((3,), lambda j: held[j] * x[j])

    s = te.scan(body, start, 2)
    data = RNG.standard_normal(3)
    gradient = te.evaluate(te.gradient(te.compute((), lambda: te.sum(lambda j: s[1, j], 3)), x)[0], {x: data})
    np.testing.assert_allclose(gradient, np.sin(data * data) + data)


def test_stop_gradient_leaves_integers_alone():
    n = te.placeholder((3,), "int64", name="n")
    assert te.stop_gradient(n) is n
    assert te.evaluate(te.compute((3,), lambda i: te.stop_gradient(n[i]) + te.stop_gradient(2)), {n: np.arange(3)}).tolist() == [2, 3, 4]


# ------------------------------------------------------------------------------------------------------------- override


def test_override_of_a_group_as_one_unit():
    """log(sum(exp)) with everything between as one unit: the rule gives the softmax, at the first and the second order."""
    x = te.placeholder((2, 4), F64, name="x")
    e = te.compute((2, 4), lambda i, j: te.exp(x[i, j]), name="e")
    s = te.compute((2,), lambda i: te.sum(lambda j: e[i, j], 4), name="s")
    y = te.compute((2,), lambda i: te.log(s[i]), name="y")

    def rule(output, inputs, head):
        (z,) = inputs
        return [te.compute((2, 4), lambda i, j: head[i] * te.exp(z[i, j] - output[i]))]

    loss = te.compute((), lambda: y[0] * y[1] + s[0])
    data = {x: RNG.standard_normal((2, 4))}
    plain, ruled = te.gradient(loss, x), te.gradient(loss, x, override={y: ([x], rule)})
    np.testing.assert_allclose(te.evaluate(ruled[0], data), te.evaluate(plain[0], data), rtol=1e-13)
    assert "exp(x[i, j] - y[i])" in str(ruled)
    head = te.constant(RNG.standard_normal((2, 4)))
    np.testing.assert_allclose(
        te.evaluate(te.gradient(ruled[0], x, head)[0], data), te.evaluate(te.gradient(plain[0], x, head)[0], data), rtol=1e-12
    )


# ---------------------------------------------------------------------------------------------------------- rules of ops


@te.op(gradient=lambda output, inputs, heads: polar_rule(output, inputs, heads))
def polar(x, y):
    return te.compute(x.shape, lambda i: te.sqrt(x[i] ** 2 + y[i] ** 2)), te.compute(x.shape, lambda i: te.atan2(y[i], x[i]))


def polar_rule(output, inputs, heads):
    (r, phi), (x, _), (r_bar, phi_bar) = output, inputs, heads
    return [
        te.compute(x.shape, lambda i: r_bar[i] * te.cos(phi[i]) - phi_bar[i] * te.sin(phi[i]) / r[i]),
        te.compute(x.shape, lambda i: r_bar[i] * te.sin(phi[i]) + phi_bar[i] * te.cos(phi[i]) / r[i]),
    ]


def test_a_rule_of_an_op_of_several_outputs_serves_both_modes_at_every_order():
    x, y = te.placeholder((3,), F64, name="x"), te.placeholder((3,), F64, name="y")
    r, phi = polar(x, y)
    arrays = {x: RNG.uniform(0.5, 1.5, 3), y: RNG.uniform(0.5, 1.5, 3)}
    check_orders(te.compute((3,), lambda i: r[i] ** 2 * te.sin(phi[i]) + r[2 - i]), [x, y], arrays, order=3, tolerance=1e-5)
    by_hand = te.gradient(te.compute((), lambda: te.sum(lambda i: r[i] * phi[i], 3)), [x, y])
    assert "cos" in str(by_hand) and "atan2" in str(by_hand) and "sqrt" in str(by_hand)


def test_a_rule_that_is_wrong_on_purpose_is_what_both_modes_use():
    double = te.op(gradient=lambda output, inputs, head: [te.compute(head.shape, lambda i: head[i] * 7.0 * inputs[0][i])])(
        lambda a: te.compute(a.shape, lambda i: a[i] * 2.0)
    )
    x = te.placeholder((3,), F64, name="x")
    y, ones = double(x), te.constant(np.ones(3))
    data = {x: RNG.standard_normal(3)}
    np.testing.assert_allclose(te.evaluate(te.gradient(y, x, ones)[0], data), 7 * data[x])
    np.testing.assert_allclose(te.evaluate(te.jvp(y, x, ones), data), 7 * data[x])
    np.testing.assert_allclose(te.evaluate(te.jvp(te.gradient(y, x, ones)[0], x, ones), data), 7.0)


def test_an_input_that_is_given_twice_receives_both():
    def rule(output, inputs, head):
        return [head, te.compute((2,), lambda i: head[i] * 2.0)]

    x = te.placeholder((2,), F64, name="x")
    y, ones = te.op(gradient=rule)(lambda a, b: te.compute((2,), lambda i: a[i] + 2.0 * b[i]))(x, x), te.constant(np.ones(2))
    z = te.compute((2,), lambda i: x[i] * 3.0, name="z")
    for value in (te.gradient(y, x, ones)[0], te.jvp(y, x, ones), te.gradient(z, x, ones, override={z: ([x, x], rule)})[0]):
        np.testing.assert_array_equal(te.evaluate(value, {x: np.ones(2)}), np.full(2, 3.0))


def recurrent(act, checkpoint):
    """A recurrence through an op of two inputs, one of the body and one from outside; its loss, inputs and data."""
    x, w, b = te.placeholder((3,), F64, name="x"), te.placeholder((3, 3), F64, name="w"), te.placeholder((), F64, name="b")

    def body(t, s):
        a = act(te.compute((3,), lambda j: te.sum(lambda k: w[j, k] * s[k], 3) + x[j] * (t + 1)), b)
        return te.compute((3,), lambda j: a[j] * 0.9 + s[j] * 0.1)

    s = te.scan(body, te.compute((3,), lambda j: te.sin(x[j])), 5, name="s", checkpoint=checkpoint)
    loss = te.compute((), lambda: te.sum(lambda j: s[4, j] * (j + 1), 3) + s[1, 0])
    rng = np.random.default_rng(4)
    return loss, {x: rng.standard_normal(3), w: rng.standard_normal((3, 3)) / 2, b: np.array(0.3)}


def tanh_rule(output, inputs, head):
    slope = te.compute(head.shape, lambda i: head[i] * (1.0 - output[i] ** 2))
    return [slope, te.compute((), lambda: te.sum(lambda i: slope[i], head.shape))]


def rule_of_its_own(output, inputs, head):
    return [
        te.compute(head.shape, lambda i: head[i] * 3.0 * inputs[0][i]),
        te.compute((), lambda: te.sum(lambda i: head[i] * output[i] * inputs[1][()], head.shape)),
    ]


def shifted_tanh(a, b):
    return te.compute(a.shape, lambda i: te.tanh(a[i] + b[()]), name="act")


@pytest.mark.parametrize("checkpoint", [None, 2])
def test_a_rule_inside_a_scan_serves_both_modes(checkpoint):
    """A rule that says what the derivative says changes nothing, at any order; another one is what both modes use."""
    plain, data = recurrent(shifted_tanh, checkpoint)
    ruled, same = recurrent(te.op(gradient=tanh_rule)(shifted_tanh), checkpoint)
    other, own = recurrent(te.op(gradient=rule_of_its_own)(shifted_tanh), checkpoint)
    tangents = [te.constant(RNG.standard_normal(a.shape)) for a in data.values()]

    def along(loss, wrt):
        gradient = te.gradient(loss, list(wrt))
        x, w, b = (
            te.compute((), lambda g=g, v=v: te.sum(lambda *i: g[i] * v[i], g.shape) if g.ndim else g[()] * v[()])
            for g, v in zip(gradient, tangents, strict=True)
        )
        return te.compute((), lambda: x[()] + w[()] + b[()])

    expected = te.evaluate(along(plain, data), data)
    for value in (along(ruled, same), te.jvp(ruled, list(same), tangents)):
        np.testing.assert_allclose(te.evaluate(value, same), expected, rtol=1e-12)
        np.testing.assert_allclose(te.build(value, list(same))(*same.values()), expected, rtol=1e-12)
    backward = te.evaluate(along(other, own), own)
    assert abs(backward - expected) > 1e-3
    np.testing.assert_allclose(te.evaluate(te.jvp(other, list(own), tangents), own), backward, rtol=1e-12)
    twice = te.evaluate(along(along(plain, data), data), data)
    for first in (along(ruled, same), te.jvp(ruled, list(same), tangents)):
        np.testing.assert_allclose(te.evaluate(along(first, same), same), twice, rtol=1e-10)
        np.testing.assert_allclose(te.evaluate(te.jvp(first, list(same), tangents), same), twice, rtol=1e-10)


def nested(scan, marked=lambda t: t, checkpoint=None):
    """A loop in a loop around an op whose rule is another function's, and reads the steps and the state of the outer loop; its input."""
    x = te.placeholder((2,), F64, name="x")

    def outer(t, s):
        def rule(output, inputs, head):
            first = te.compute((2,), lambda i: head[i] * (t + 1) * inputs[0][i])
            return [first, te.compute((2,), lambda i: head[i] * 2.0 * inputs[1][i] * output[i] * (t + 1))]

        def inner(q, r):
            a = te.op(gradient=rule)(lambda p, z: te.compute((2,), lambda i: p[i] * te.sin(z[i]), name="act"))(r, s)
            return te.compute((2,), lambda i: a[i] * 0.5 + r[i] * 0.3 * (q + 1))

        y = marked(scan(inner, s, 2))
        return te.compute((2,), lambda i: y[1, i] + 0.1 * s[i])

    start = te.compute((2,), lambda j: te.sin(x[j]))
    states = marked(scan(outer, start, 3, checkpoint=checkpoint) if checkpoint else scan(outer, start, 3))
    return x, te.compute((), lambda: te.sum(lambda i: states[2, i] * states[0, i] * (i + 1), 2))


def unrolled(body, state, length):
    states = []
    for t in range(length):
        state = body(t, state)
        states.append(state)
    return te.compute((length, 2), lambda t, i: sum(te.where(t == n, s[i], 0.0) for n, s in enumerate(states)))


@pytest.mark.parametrize(
    ("marked", "checkpoint"), [(lambda t: t, None), (lambda t: t, 2), (te.checkpoint, None)], ids=["plain", "segments", "marked"]
)
def test_what_a_derivative_computes_again_keeps_its_rule(marked, checkpoint):
    """Scans within scans, segments of steps and marked tensors are computed again in derivatives; there, too, the rule is what counts, in
    every mode at the second order, with the steps that it reads."""
    data, v = RNG.uniform(0.5, 1.5, 2), te.constant(RNG.standard_normal(2))

    def back(loss, x):
        g = te.gradient(loss, [x])[0]
        return te.compute((), lambda: te.sum(lambda i: g[i] * v[i], 2))

    def forth(loss, x):
        return te.jvp(loss, x, v)

    x, loss = nested(unrolled)
    expected = te.evaluate(back(back(loss, x), x), {x: data})
    x, loss = nested(te.scan, marked, checkpoint)
    for first, second in ((back, back), (back, forth), (forth, back), (forth, forth)):
        np.testing.assert_allclose(te.evaluate(second(first(loss, x), x), {x: data}), expected, rtol=1e-12)


def test_a_rule_inside_a_scan_knows_the_step_and_rounds_as_its_op_does():
    """A rule that reads the step of the scan around it; in float16, where adjoints between the steps are float32."""
    x = te.placeholder((2,), "float16", name="x")

    def body(t, s):
        rule = te.op(gradient=lambda output, inputs, head: [te.compute((2,), lambda i: head[i] * te.cast(t + 1, "float16"))])
        return rule(lambda a: te.compute((2,), lambda i: a[i] * te.cast(t + 1, "float16")))(s)

    s = te.scan(body, x, 4)
    head = te.constant(np.ones(2, np.float16))
    last = te.compute((2,), lambda i: s[3, i])
    data = {x: np.array([0.5, 2.0], np.float16)}
    for value in (te.gradient(last, x, head)[0], te.jvp(last, x, head)):
        assert value.dtype.name == "float16"
        np.testing.assert_array_equal(te.evaluate(value, data), np.full(2, 24, np.float16))


# -------------------------------------------------------------------------------------------------- not differentiable


@te.op(differentiable=False)
def quantize(x):
    return te.compute(x.shape, lambda i: te.round(x[i] * 8.0) / 8.0, name="q")


def test_an_op_marked_non_differentiable():
    x = te.placeholder((3,), F64, name="x")
    y = te.compute((3,), lambda i: quantize(x)[i] * x[i], name="y")
    head = te.placeholder((3,), F64, name="H")
    for use in (lambda: te.gradient(y, x, head), lambda: te.jvp(y, x, head), lambda: te.vjp(quantize)(np.ones(3), np.ones(3))):
        lines = refused(use)
        assert lines[0] == "expected no derivative through quantize, which is marked differentiable=False"
        assert lines[1].startswith("  in:   q: f") and __file__ in lines[1]
        assert lines[2] == "  hint: te.stop_gradient(q) makes it a constant, te.op(gradient=rule) gives it a rule"
    # Where no derivative has to pass, nothing is refused.
    held = te.compute((3,), lambda i: te.stop_gradient(quantize(x))[i] * x[i], name="y")
    data = RNG.standard_normal(3)
    np.testing.assert_allclose(te.evaluate(te.gradient(held, x, head)[0], {x: data, head: np.ones(3)}), np.round(data * 8) / 8)
    other = te.placeholder((3,), F64, name="other")
    te.gradient(te.compute((3,), lambda i: quantize(x)[i] * other[i]), other, head)


def test_a_rule_and_the_mark_together_are_a_mistake():
    with pytest.raises(te.DefinitionError, match="f: expected either a gradient rule or differentiable=False, got both"):
        te.op(gradient=lambda output, inputs, head: [head], differentiable=False)(_named_f)


def _named_f(x):
    return x


_named_f.__name__ = "f"
