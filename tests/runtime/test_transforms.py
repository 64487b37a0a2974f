"""vjp, grad, value_and_grad, jvp: ops from ops, at every order, with rules, statics, several results."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.op.trees import leaves

RNG = np.random.default_rng(1)


@te.op
def matmul(a, b):
    (n, k), (_, m) = a.shape, b.shape
    return te.compute((n, m), lambda i, j: te.sum(lambda r: a[i, r] * b[r, j], k))


@te.op
def total_power(x, *, power=3):
    return te.compute((), lambda: te.sum(lambda i: x[i] ** power, x.shape[0]))


@te.op
def gather(table, ids):
    return te.compute((ids.shape[0], table.shape[1]), lambda i, j: table[ids[i], j])


@te.op
def polar(r, t):
    return te.compute(r.shape, lambda i: r[i] * te.cos(t[i])), te.compute(r.shape, lambda i: r[i] * te.sin(t[i]))


def normal(*shape):
    return RNG.standard_normal(shape)


def test_vjp_pulls_a_head_back():
    a, b, head = normal(3, 4), normal(4, 5), normal(3, 5)
    a_bar, b_bar = te.vjp(matmul)(a, b, head)
    np.testing.assert_allclose(a_bar, head @ b.T)
    np.testing.assert_allclose(b_bar, a.T @ head)
    np.testing.assert_allclose(te.vjp(matmul, wrt="b")(a, b, head), b_bar)
    np.testing.assert_allclose(te.vjp(matmul, wrt=["b"])(a, b, head)[0], b_bar)
    np.testing.assert_allclose(te.vjp(matmul, wrt=(1, 0))(a, b, head)[1], a_bar)


def test_a_derivative_by_an_argument_holds_what_is_made_of_it():
    """In an op: another argument, the same one once more, one in a tuple, and what the function closes over."""

    def tripled(x):
        return te.compute(x.shape, lambda i: x[i] * 3)

    def times(x, y):
        return te.compute(x.shape, lambda i: x[i] * y[i])

    def dot(x, pair):
        return te.compute((), lambda: te.sum(lambda i: x[i] * x[i] * pair[0][i], x.shape[0]))

    @te.op
    def all_of_them(x, head):
        y = tripled(x)
        return (
            te.vjp(times)(x, y, head),
            te.vjp(times)(x, x, head),
            te.vjp(lambda x: times(x, y))(x, head),
            te.vjp(lambda y: times(y, y))(y, head),
            te.grad(dot)(x, (y,)),
            te.value_and_grad(dot, "x")(x, (x,)),
            te.vjp(te.grad(lambda x: dot(x, (y,))))(x, head),
            te.jvp(times)(x, y, head, x),
            te.jvp(times, wrt="x")(x, y, head),
            te.jvp(times)(x, x, head, y),
            te.jvp(lambda x: times(x, y))(x, head),
        )

    x, h = normal(5), normal(5)
    wanted = (
        (3 * x * h, x * h), (x * h, x * h), (3 * x * h,), (6 * x * h,), (6 * x * x, (x * x,)), ((x**3).sum(), 2 * x * x), (6 * x * h,),
        3 * x * h + x * x, 3 * x * h, x * h + 3 * x * x, 3 * x * h,
    )  # fmt: skip
    for one, other in zip(leaves(all_of_them(x, h)), leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_transforms_have_names_and_signatures():
    assert str(inspect.signature(te.vjp(matmul))) == "(a, b, head)" and te.vjp(matmul).name == "vjp(matmul)"
    assert str(inspect.signature(te.vjp(te.vjp(matmul)))) == "(a, b, head, head_1)"
    assert str(inspect.signature(te.grad(total_power))) == "(x, *, power=3)"
    assert str(inspect.signature(te.jvp(matmul))) == "(a, b, *tangent)"


def test_grad_and_value_and_grad_of_a_scalar():
    x = normal(5)
    np.testing.assert_allclose(te.grad(total_power)(x), 3 * x**2)
    np.testing.assert_allclose(te.grad(total_power)(x, power=4), 4 * x**3)
    value, slope = te.value_and_grad(total_power, wrt="x")(x, power=2)
    assert value.shape == () and np.isclose(value, (x**2).sum())
    np.testing.assert_allclose(slope, 2 * x)
    assert isinstance(te.grad(total_power, wrt=(0,))(x), tuple)


def test_several_inputs_give_a_tuple_in_order():
    @te.op
    def dot(x, y, n):
        return te.compute((), lambda: te.sum(lambda i: x[i] * y[i] * n[i], x.shape[0]))

    x, y, n = normal(4), normal(4), np.arange(4)
    dx, dy = te.grad(dot)(x, y, n)
    np.testing.assert_allclose(dx, y * n)
    np.testing.assert_allclose(dy, x * n)
    value, (dy, dx) = te.value_and_grad(dot, wrt=("y", "x"))(x, y, n)
    np.testing.assert_allclose(value, (x * y * n).sum())
    np.testing.assert_allclose(dx, y * n)


def test_every_order():
    @te.op
    def cube(x):
        return te.compute((), lambda: x[()] ** 3)

    x = np.float64(1.5)
    first = te.grad(cube)
    second = te.grad(first)
    third = te.grad(second)
    assert [float(f(x)) for f in (cube, first, second, third)] == pytest.approx([1.5**3, 3 * 1.5**2, 6 * 1.5, 6])
    v, w = normal(5), normal(5)
    x = normal(5)
    np.testing.assert_allclose(te.jvp(te.grad(total_power))(x, v), 6 * x * v)
    np.testing.assert_allclose(te.vjp(te.grad(total_power))(x, v)[0], 6 * x * v)
    np.testing.assert_allclose(te.jvp(te.jvp(total_power))(x, v, w, np.zeros(5)), (6 * x * v * w).sum())


def test_jvp_pushes_tangents_forward():
    a, b, da, db = normal(3, 4), normal(4, 5), normal(3, 4), normal(4, 5)
    np.testing.assert_allclose(te.jvp(matmul)(a, b, da, db), da @ b + a @ db)
    table, ids, change = normal(6, 2), np.array([5, 0, 5]), normal(6, 2)
    np.testing.assert_array_equal(te.jvp(gather)(table, ids, change), change[ids])


def test_integer_inputs_have_no_gradient():
    table, ids, head = normal(6, 2), np.array([5, 0, 5]), normal(3, 2)
    expected = np.zeros((6, 2))
    np.add.at(expected, ids, head)
    (found,) = te.vjp(gather)(table, ids, head)
    np.testing.assert_allclose(found, expected)


def test_several_outputs_take_a_tuple_of_heads():
    r, t, heads = normal(4), normal(4), (normal(4), normal(4))
    dr, dt = te.vjp(polar)(r, t, heads)
    np.testing.assert_allclose(dr, heads[0] * np.cos(t) + heads[1] * np.sin(t))
    np.testing.assert_allclose(dt, r * (-heads[0] * np.sin(t) + heads[1] * np.cos(t)))
    dx, dy = te.jvp(polar)(r, t, np.ones(4), np.zeros(4))
    np.testing.assert_allclose((dx, dy), (np.cos(t), np.sin(t)))


def test_names_inside_of_tuples_are_nobody_elses():
    """The second of two heads of `vjp(polar)` and the head of `vjp(vjp(polar))` were both called `head_1`."""
    r, t, heads, zeros = normal(4), normal(4), (np.ones(4), np.zeros(4)), np.zeros(4)
    dr, dt, (dx, dy) = te.vjp(te.vjp(polar))(r, t, heads, (np.ones(4), zeros))  # of cos(t) . 1
    np.testing.assert_allclose((dr, dt), (zeros, -np.sin(t)))
    np.testing.assert_allclose((dx, dy), (np.cos(t), np.sin(t)))
    pair = te.op(lambda w, w_0: te.compute((4,), lambda i: w[0][i] - w[1][i] * w_0[i]))
    np.testing.assert_allclose(pair((r, t), dt), r - t * dt)


def test_a_tuple_argument_has_a_tuple_of_gradients():
    @te.op
    def norm(pair, scale):
        a, b = pair
        return te.compute((), lambda: scale[()] * te.sum(lambda i: a[i] ** 2 + b[i] ** 2, a.shape[0]))

    a, b = normal(3), normal(3)
    (da, db), dscale = te.grad(norm)((a, b), 2.0)
    np.testing.assert_allclose((da, db), (4 * a, 4 * b))
    np.testing.assert_allclose(dscale, (a**2 + b**2).sum())


def test_transforms_compose_on_tensors_and_compile():
    x = te.placeholder((4,), "float64", name="x")
    slope = te.grad(total_power)(x)
    compiled = te.build(te.compute((4,), lambda i: slope[i] + 1), [x])
    values = normal(4)
    np.testing.assert_allclose(compiled(values), 3 * values**2 + 1)
    opened = te.grad(total_power).compile(((1,), "float64"), dynamic={"x": (0,)})
    for n in (0, 1, 9):
        values = normal(n)
        np.testing.assert_allclose(opened(values), 3 * values**2)
    assert [i.name for i in te.vjp(matmul).trace(((2, 3), "f32"), ((3, 4), "f32"), ((2, 4), "f32")).inputs] == ["a", "b", "head"]


def test_a_plain_function_is_taken_too():
    x = normal(3)
    np.testing.assert_allclose(te.grad(lambda x: te.compute((), lambda: te.sum(lambda i: te.sin(x[i]), 3)))(x), np.cos(x))


# ------------------------------------------------------------------------------------------------ rules


def doubled_rule(output, inputs, head, *, factor):
    (x,) = inputs
    assert output.shape == x.shape
    return [te.compute(x.shape, lambda i: 1000 * factor * head[i])]


@te.op(gradient=doubled_rule)
def ruled(x, *, factor=2, shift=0):
    return te.compute(x.shape, lambda i: factor * x[i] + shift)


def test_an_ops_own_rule_is_used_alone_and_inside_others():
    x, head = normal(3), normal(3)
    np.testing.assert_allclose(te.vjp(ruled)(x, head)[0], 2000 * head)
    np.testing.assert_allclose(te.vjp(ruled)(x, head, factor=3, shift=1)[0], 3000 * head)

    @te.op
    def loss(x, w):
        scaled = te.compute(x.shape, lambda i: w[i] * x[i])
        hidden = ruled(ruled(scaled))
        return te.compute((), lambda: te.sum(lambda i: hidden[i] * hidden[i], 3))

    w = normal(3)
    dx, dw = te.grad(loss)(x, w)
    inner = 2000.0**2 * 2 * 4 * (w * x)
    np.testing.assert_allclose(dx, inner * w)
    np.testing.assert_allclose(dw, inner * x)


def test_a_rule_is_differentiated_in_turn():
    def rule(output, inputs, head):
        (x,) = inputs
        return [te.compute(x.shape, lambda i: head[i] * x[i] * x[i] * x[i])]

    @te.op(gradient=rule)
    def odd(x):
        return te.compute(x.shape, lambda i: x[i])

    @te.op
    def total(x):
        y = odd(x)
        return te.compute((), lambda: te.sum(lambda i: y[i], 3))

    @te.op
    def slopes(x):
        g = te.grad(total)(x)
        return te.compute((), lambda: te.sum(lambda i: g[i], 3))

    x = normal(3)
    np.testing.assert_allclose(te.grad(slopes)(x), 3 * x**2)


def test_a_rule_for_several_outputs_and_integer_inputs():
    def rule(outputs, inputs, heads):
        x, _ = inputs
        first, second = heads
        return [te.compute(x.shape, lambda i: 5 * first[i] + 7 * second[i]), None]

    @te.op(gradient=rule)
    def pair(x, ids):
        return te.compute(x.shape, lambda i: x[i]), te.compute(x.shape, lambda i: x[i] + ids[i])

    x, ids, heads = normal(3), np.arange(3), (normal(3), normal(3))
    np.testing.assert_allclose(te.vjp(pair)(x, ids, heads)[0], 5 * heads[0] + 7 * heads[1])

    @te.op
    def second(x, ids):
        return pair(x, ids)[1]

    np.testing.assert_allclose(te.vjp(second)(x, ids, heads[1])[0], 7 * heads[1])


def test_a_rule_may_give_none_for_zero():
    product = te.op(gradient=lambda o, i, h: [te.compute((3,), lambda k: h[k] * i[1][k]), None])(
        lambda x, y: te.compute((3,), lambda k: x[k] * y[k])
    )
    x, y, head = normal(3), normal(3), normal(3)
    dx, dy = te.vjp(product)(x, y, head)
    np.testing.assert_allclose(dx, head * y)
    assert not dy.any()


def test_a_rule_of_an_op_that_returns_its_argument():
    @te.op(gradient=lambda output, inputs, head: [te.compute(head.shape, lambda i: -head[i])])
    def reverse_gradient(x):
        return x

    x, head = normal(3), normal(3)
    np.testing.assert_array_equal(reverse_gradient(x), x)
    np.testing.assert_array_equal(te.vjp(reverse_gradient)(x, head)[0], -head)


def refused(error, function, *arguments, **keywords):
    with pytest.raises(error) as info:
        function(*arguments, **keywords)
    assert "test_transforms.py:" in str(info.value)
    return str(info.value)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda o, i, h: [], "gradient rule: expected a list of 1 gradients, one per input, got 0"),
        (lambda o, i, h: h, "gradient rule: expected a list of 1 gradients, one per input, got a Tensor"),
        (lambda o, i, h: [3.0], "gradient rule: expected a te tensor as gradient of x, got a float"),
        (lambda o, i, h: [te.compute((2,), lambda i: h[i])], "gradient rule: expected float64[3] as gradient of x, got float64[2]"),
    ],
)
def test_rules_that_do_not_fit(rule, message):
    wrong = te.op(gradient=rule)(lambda x: te.compute(x.shape, lambda i: x[i]))
    assert message in refused(te.DifferentiationError, te.vjp(wrong), normal(3), normal(3))


def test_transforms_that_do_not_fit():
    x = normal(3)
    text = refused(te.DifferentiationError, te.grad(ruled), x)
    assert "grad(ruled): expected one floating scalar output, got float64[3]" in text and "te.vjp takes a head" in text
    assert "vjp(matmul): expected 3 tensor arguments (a, b, head), got 2" in refused(te.ArgumentError, te.vjp(matmul), x, x)
    nothing = te.op(lambda: te.compute((), lambda: 1.0))
    assert "expected inputs and a head, got 0 arguments" in refused(te.DifferentiationError, te.vjp(te.jvp(nothing)))
    text = refused(te.DifferentiationError, te.grad, total_power, "y")
    assert "grad(total_power): wrt: expected one of x, or a position, got y" in text
    text = refused(te.DifferentiationError, te.vjp(gather, wrt="ids"), normal(2, 2), np.arange(2), normal(2, 2))
    assert "vjp(gather): wrt: expected a floating input, got ids (int64)" in text
    integer = te.grad(lambda x: te.compute((), lambda: te.cast(x[0], "float64")))
    assert "expected a floating input to differentiate by, got none" in refused(te.DifferentiationError, integer, np.arange(3))
    text = refused(te.DifferentiationError, te.vjp(polar), x, x, x)
    assert "vjp(polar): expected 2 heads, one per floating output, got 1" in text
    assert "hint: as one argument, a tuple where there are several: vjp(polar)(" in text and ", (head_0, head_1, ...))" in text
    text = refused(te.ArgumentError, te.vjp(polar), x, x, x, x)
    assert "hint: the heads of several outputs are one argument, a tuple: vjp(polar)(" in text
    assert "jvp(matmul): expected 2 inputs and one tangent per floating input, got 3 arguments" in refused(
        te.DifferentiationError, te.jvp(matmul), normal(2, 2), normal(2, 2), normal(2, 2)
    )
    text = refused(te.DifferentiationError, te.jvp(te.jvp(total_power)), x, x, x)
    assert "expected its inputs and one tangent per floating input, got 3 arguments" in text
    assert "wrt: expected one of x, or a position, got 1.5" in refused(te.DifferentiationError, te.grad, total_power, 1.5)
    assert "vjp: expected a te.op, got a tensor" in refused(te.DifferentiationError, te.vjp, te.placeholder((3,)))
    assert "grad: expected a te.op, got int" in refused(te.DifferentiationError, te.grad, 3)
    assert "argument power: expected a hashable value" in refused(te.ArgumentError, te.grad(total_power), x, power={2})


# ------------------------------------------------------------------------------------------------ check_gradient


def test_check_gradient_of_right_ops():
    found = te.check_gradient(matmul, normal(3, 4).astype(np.float32), normal(4, 2))
    assert found.forward_error < 1e-8 and found.reverse_error < 1e-8
    text = str(found)
    assert text.startswith("matmul: the derivative along a random direction") and "reverse mode" in text and "off by" in text
    te.check_gradient(total_power, normal(4), power=2)
    te.check_gradient(gather, normal(6, 2), np.array([5, 0, 5]))
    te.check_gradient(polar, normal(4), normal(4))
    te.check_gradient(te.grad(total_power), normal(4))
    te.check_gradient(lambda x: te.compute(x.shape, lambda i: te.cast(te.exp(te.cast(x[i], "float32")), "float64")), normal(4))
    te.check_gradient(matmul, normal(0, 4), normal(4, 2))


def test_check_gradient_of_a_wrong_rule():
    text = refused(te.GradientCheckError, te.check_gradient, ruled, normal(3), factor=3)
    assert "ruled: expected the reverse derivative along a random direction to be" in text
    assert "(finite differences), got" in text and "at:   the derivative by x alone is" in text
    assert "hint: the op's own gradient rule is what disagrees" in text


def test_check_gradient_names_the_input_at_fault():
    @te.op(gradient=lambda o, i, h: [te.compute((3,), lambda k: h[k] * i[1][k]), te.compute((3,), lambda k: h[k])])
    def product(x, y):
        return te.compute((3,), lambda k: x[k] * y[k])

    assert "the derivative by y alone is" in refused(te.GradientCheckError, te.check_gradient, product, normal(3), normal(3))


def test_check_gradient_names_the_kinks_of_an_operation():
    greatest = te.op(lambda x: te.compute((), lambda: te.max(lambda i: te.abs(x[i]), 3)))
    text = refused(te.GradientCheckError, te.check_gradient, greatest, np.ones(3))
    assert "hint: away from kinks (max of equal values, abs where a == 0) this is a defect: please report it with the op" in text


def test_check_gradient_of_what_cannot_be_checked():
    logarithm = te.op(lambda x: te.compute(x.shape, lambda i: te.log(x[i])))
    text = refused(te.GradientCheckError, te.check_gradient, logarithm, -np.ones(2))
    assert "expected finite values around these arrays, got nan" in text
    integer = te.op(lambda x: te.compute(x.shape, lambda i: x[i] + 1))
    assert "expected a floating output to check, got none" in refused(te.GradientCheckError, te.check_gradient, integer, np.arange(3))


# ------------------------------------------------------------------------------------------------ arguments left out


@te.op
def affine(x, w, bias=None):
    (n, k), (m, _) = x.shape, w.shape
    product = te.compute((n, m), lambda i, j: te.sum(lambda r: x[i, r] * w[j, r], k))
    return product if bias is None else te.compute((n, m), lambda i, j: product[i, j] + bias[j])


@te.op
def squares(x, w, bias=None):
    y = affine(x, w, bias)
    return te.compute((), lambda: te.sum(lambda i, j: y[i, j] ** 2, y.shape))


def test_transforms_of_an_op_with_an_argument_left_out():
    rng = np.random.default_rng(0)
    x, w, b, h = (rng.integers(-4, 5, shape).astype(float) for shape in ((3, 4), (2, 4), (2,), (3, 2)))
    backward, forward = te.vjp(affine), te.jvp(affine)
    expected = (h @ w, h.T @ x)
    calls = (
        backward(x, w, h),
        backward(x, w, None, h),
        backward(x, w, head=h),
        backward(x, w, bias=None, head=h),
        backward(x, w=w, head=h),
    )
    for found in calls:
        assert len(found) == 2
        for value, wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(value, wanted)
    assert len(backward(x, w, b, h)) == 3 and te.vjp(affine, wrt="w")(x, w, h).shape == w.shape
    for tangent in (forward(x, w, x, w), forward(x, w, None, x, w)):
        np.testing.assert_array_equal(tangent, 2 * x @ w.T)
    np.testing.assert_array_equal(forward(x, w, b, x, w, b), 2 * x @ w.T + b)
    assert [g.shape for g in te.grad(squares)(x, w)] == [x.shape, w.shape] and len(te.grad(squares)(x, w, b)) == 3
    value, gradients = te.value_and_grad(squares)(x, w)
    assert value == ((x @ w.T) ** 2).sum() and len(gradients) == 2
    assert len(te.vjp(backward)(x, w, h, (x, w))) == 3 and len(te.jvp(backward)(x, w, h, x, w, h)) == 2
    assert len(te.vjp(forward)(x, w, x, w, h)) == 4
    assert repr(backward) == "<te.op vjp(affine)(x, w, bias=None, head)>"
    message = r"vjp\(affine\): expected 4 tensor arguments \(x, w, bias, head\), got 2"
    with pytest.raises(te.ArgumentError, match=message):
        backward(x, w)


def test_open_axes_of_a_head_and_an_input_are_one_size():
    rows = te.vjp(affine).compile(((1, 4), "f64"), ((2, 4), "f64"), ((1, 2), "f64"), dynamic={"x": {0: "n"}, "head": {0: "n"}})
    x, w, h = (np.arange(12.0).reshape(3, 4), np.ones((2, 4)), np.arange(6.0).reshape(3, 2))
    for value, wanted in zip(rows(x, w, h), (h @ w, h.T @ x), strict=True):
        np.testing.assert_array_equal(value, wanted)
    with pytest.raises(te.ArgumentError, match=r"head: expected 3 elements along axis 0|expected extent 3"):
        rows(x, w, h[:2])


def test_a_transform_made_again_is_the_same_op():
    assert te.vjp(matmul) is te.vjp(matmul) is not te.vjp(matmul, wrt="a")
    assert te.vjp(matmul, wrt=["a", 1]) is te.vjp(matmul, ["a", 1]) is not te.vjp(matmul, wrt=[0])
    assert te.grad(total_power) is te.grad(total_power) is not te.value_and_grad(total_power)
    assert te.jvp(matmul, wrt=1) is te.jvp(matmul, 1) is not te.jvp(matmul)
    assert te.vjp(te.vjp(matmul)) is te.vjp(te.vjp(matmul))
    # Positions are no booleans, though these are equal.
    assert te.vjp(matmul, wrt=1) is not te.vjp(matmul, wrt=True)


def test_a_plain_function_is_taken_as_the_op_that_it_makes():
    def double(x):
        return te.compute(x.shape, lambda i: 2 * x[i])

    assert te.vjp(double) is te.vjp(double) and te.jvp(double) is te.jvp(double)
    x = normal(3)
    np.testing.assert_allclose(te.vjp(double)(x, x)[0], 2 * x)
    np.testing.assert_allclose(te.jvp(double)(x, x), 2 * x)

    class Scaled:
        def __init__(self, by):
            self.by = by

        def scale(self, x):
            return te.compute(x.shape, lambda i: self.by * x[i])

    np.testing.assert_allclose(te.vjp(Scaled(3.0).scale)(x, x)[0], 3 * x)
    np.testing.assert_allclose(te.vjp(Scaled(4.0).scale)(x, x)[0], 4 * x)


def test_jvp_by_some_inputs():
    a, b, da, db = normal(3, 4), normal(4, 5), normal(3, 4), normal(4, 5)
    np.testing.assert_allclose(te.jvp(matmul, wrt="b")(a, b, db), a @ db)
    np.testing.assert_allclose(te.jvp(matmul, wrt=0)(a, b, da), da @ b)
    np.testing.assert_allclose(te.jvp(matmul, wrt=("b", "a"))(a, b, db, da), a @ db + da @ b)
    table, ids = normal(5, 2), np.array([1, 3, 1])
    np.testing.assert_allclose(te.jvp(gather, wrt="table")(table, ids, table), table[ids])
    with pytest.raises(te.DifferentiationError, match="wrt: expected one of a, b, or a position, got c"):
        te.jvp(matmul, wrt="c")(a, b, db)
    with pytest.raises(te.DifferentiationError, match=r"expected inputs and 3 tangents, got 2 arguments"):
        te.jvp(matmul, wrt=(0, 1, 1))(a, b)
    with pytest.raises(te.DifferentiationError, match="floating input"):
        te.jvp(gather, wrt="ids")(table, ids, table)
