"""All modes and orders: many heads and tangents at once, Hessian-vector products, third derivatives, Jacobians."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tests.autodiff.laws import check_orders

F64 = "float64"
RNG = np.random.default_rng(60)
B = 3

x, w = te.placeholder((4, 5), F64, name="x"), te.placeholder((5, 6), F64, name="w")
ids = te.placeholder((7,), "int64", name="ids")
ARRAYS = {x: RNG.uniform(0.5, 1.5, (4, 5)), w: RNG.standard_normal((5, 6)), ids: np.array([0, 3, 3, 1, 0, 2, 3])}


def top_pair(a, b):
    take = b[0] > a[0]
    return te.where(take, b[0], a[0]), te.where(take, b[1], a[1])


def softmax(i, j):
    return te.exp(x[i, j] - te.max(lambda k: x[i, k], 5)) / te.sum(lambda m: te.exp(x[i, m] - te.max(lambda k: x[i, k], 5)), 5)


OUTPUTS = {
    "matmul": te.compute((4, 6), lambda i, j: te.sum(lambda k: x[i, k] * w[k, j], 5), name="y"),
    "softmax": te.compute((4, 5), softmax, name="y"),
    "product": te.compute((4,), lambda i: te.prod(lambda k: te.sin(x[i, k]), 5), name="y"),
    "stencil": te.compute((4, 5), lambda i, j: te.sin(x.read(i, j - 1, outside="reflect")) * x[3 - i, j], name="y"),
    "gather": te.compute((7, 5), lambda t, k: x[ids[t], k] ** 2, name="y"),
    "scatter": te.scatter((4, 5), lambda t, k: ((ids[t], k), te.sin(x[t % 4, k])), (7, 5), name="y"),
    "fold": te.compute((4,), lambda i: te.reduce(top_pair, (-np.inf, 0.0), lambda k: (x[i, k] ** 2, x[i, k]), 5)[1], name="y"),
    "scan": te.scan(lambda t, s: te.compute((5,), lambda k: te.sin(s[k]) * x[t, k] + s[4 - k]), te.compute((5,), lambda k: x[0, k]), 4),
    "scan with checkpoints": te.scan(
        lambda t, s: te.compute((5,), lambda k: te.sin(s[k]) * x[t, k] + w[k, 0]), te.compute((5,), lambda k: x[0, k]), 4, checkpoint=2
    ),
    "scalar": te.compute((), lambda: te.sum(lambda i, k: x[i, k] ** 3, (4, 5)), name="y"),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_many_heads_and_tangents_are_each_of_them(name):
    y = OUTPUTS[name]
    single, many = te.placeholder(y.shape, F64, name="H"), te.placeholder((B, *y.shape), F64, name="H")
    heads = RNG.standard_normal((B, *y.shape))
    gradient = te.gradient(y, [x, w], many)
    assert [g.shape for g in gradient] == [(B, 4, 5), (B, 5, 6)]
    expected = [te.evaluate(list(te.gradient(y, [x, w], single)), ARRAYS | {single: head}) for head in heads]
    for found in (te.evaluate(list(gradient), ARRAYS | {many: heads}), te.build(list(gradient), [*ARRAYS, many])(*ARRAYS.values(), heads)):
        for value, slices in zip(found, zip(*expected, strict=True), strict=True):
            np.testing.assert_allclose(value, np.stack(slices), rtol=1e-12, atol=1e-13)

    dots = [te.placeholder((4, 5), F64, name="x_dot"), te.placeholder((5, 6), F64, name="w_dot")]
    wide = [te.placeholder((B, *t.shape), F64, name=t.name) for t in dots]
    tangents = [RNG.standard_normal(t.shape) for t in wide]
    pushed = te.jvp(y, [x, w], wide)
    assert pushed.shape == (B, *y.shape)
    alone = te.jvp(y, [x, w], dots)
    each = [te.evaluate(alone, ARRAYS | {dots[0]: a, dots[1]: b}) for a, b in zip(*tangents, strict=True)]
    np.testing.assert_allclose(te.evaluate(pushed, ARRAYS | dict(zip(wide, tangents, strict=True))), np.stack(each), rtol=1e-12, atol=1e-13)
    built = te.build(pushed, [*ARRAYS, *wide])(*ARRAYS.values(), *tangents)
    np.testing.assert_allclose(built, np.stack(each), rtol=1e-12, atol=1e-13)


def test_many_heads_of_several_outputs_and_what_lies_between():
    e = te.compute((4, 5), lambda i, k: te.exp(x[i, k]), name="e")
    s = te.compute((4,), lambda i: te.sum(lambda k: e[i, k], 5), name="s")
    y = te.compute((4, 5), lambda i, k: e[i, k] / s[i], name="y")
    n = te.dim("n")
    heads = [te.placeholder((n, 4, 5), F64, name="H"), te.placeholder((n, 4), F64, name="G")]
    data = dict(zip(heads, (RNG.standard_normal((B, 4, 5)), RNG.standard_normal((B, 4))), strict=True))
    gradient = te.gradient([y, s], [x, w, y], heads)
    assert [g.shape[1:] for g in gradient] == [(4, 5), (5, 6), (4, 5)]
    singles = [te.placeholder((4, 5), F64, name="H"), te.placeholder((4,), F64, name="G")]
    alone = te.gradient([y, s], [x, w, y], singles)
    for wide, narrow in [
        *zip(gradient, alone, strict=True),
        (gradient.adjoints[s], alone.adjoints[s]),
        (gradient.adjoints[e], alone.adjoints[e]),
        (gradient.contributions[e][s], alone.contributions[e][s]),
    ]:
        each = [te.evaluate(narrow, ARRAYS | {h: a[b] for h, a in zip(singles, data.values(), strict=True)}) for b in range(B)]
        np.testing.assert_allclose(te.evaluate(wide, ARRAYS | data), np.stack(each), rtol=1e-12, atol=1e-14)
    assert str(gradient.report()) == str(alone.report())
    # exp and the sums do not depend on the head: they are computed once.
    text = str(te.gradient(y, x, te.placeholder((B, 4, 5), F64, name="H")))
    assert "e[i, k]: f64[4, 5]" in text and f"x_bar[direction, i, k]: f64[{B}, 4, 5]" in text


def test_many_heads_of_ops_and_of_a_rule():
    matmul = te.op(lambda a, b: te.compute((4, 6), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], 5)))
    heads = RNG.standard_normal((B, 4, 6))
    a_bar, b_bar = te.vjp(matmul)(ARRAYS[x], ARRAYS[w], heads)
    np.testing.assert_allclose(a_bar, heads @ ARRAYS[w].T)
    np.testing.assert_allclose(b_bar, ARRAYS[x].T @ heads)
    da, db = RNG.standard_normal((B, 4, 5)), RNG.standard_normal((B, 5, 6))
    np.testing.assert_allclose(te.jvp(matmul)(ARRAYS[x], ARRAYS[w], da, db), da @ ARRAYS[w] + ARRAYS[x] @ db)
    ruled = te.op(gradient=lambda output, inputs, head: [te.compute((3,), lambda i: head[i] * 5.0 * inputs[0][i])])(
        lambda a: te.compute((3,), lambda i: a[i] ** 2)
    )
    v, many = RNG.standard_normal(3), RNG.standard_normal((B, 3))
    np.testing.assert_allclose(te.vjp(ruled, wrt="a")(v, many), 5 * v * many)
    np.testing.assert_allclose(te.jvp(ruled)(v, many), 5 * v * many)


def test_forward_mode_by_a_rule_with_a_scan_of_which_one_state_depends_on_the_head():
    def rule(output, inputs, head):
        (a,) = inputs
        start = te.compute((), lambda: te.cast(0, F64)), te.compute((), lambda: te.cast(1, F64))

        def step(t, states):
            s, p = states
            return te.compute((), lambda: s[()] * 0.5 + head[t] * a[t] * p[()]), te.compute((), lambda: p[()] * 0.9 + a[t])

        sums, _ = te.scan(step, start, 4, name=("sums", "weights"))
        return [te.compute((4,), lambda i: sums[i])]

    ruled = te.op(gradient=rule)(lambda a: te.compute((4,), lambda i: a[i] ** 2))
    v, d = RNG.standard_normal(4), RNG.standard_normal(4)
    rows = np.stack([te.vjp(ruled)(v, e) for e in np.eye(4)]).reshape(4, 4)
    np.testing.assert_allclose(te.jvp(ruled)(v, d), rows @ d)


def test_directions_that_do_not_fit():
    y = OUTPUTS["matmul"]
    with pytest.raises(te.DifferentiationError) as caught:
        te.gradient([y, y], [x], [te.placeholder((2, 4, 6), F64, name="a"), te.placeholder((3, 4, 6), F64, name="b")])
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        "expected every head to have the same axis of directions in front, or none, got f64[3, 4, 6] for f64[4, 6] "
        "beside f64[2, 4, 6] for f64[4, 6]"
    )
    assert lines[1].startswith("  in:   b: f64[3, 4, 6] (") and __file__ in lines[1]
    with pytest.raises(te.DifferentiationError, match="expected every tangent to have the same axis of directions in front"):
        te.jvp(y, [x, w], [te.placeholder((2, 4, 5), F64), te.placeholder((5, 6), F64)])
    with pytest.raises(te.DifferentiationError) as caught:
        te.gradient(y, x, te.placeholder((2, 3, 4, 6), F64, name="deep"))
    lines = str(caught.value).splitlines()
    assert lines[0] == "expected the head of y to be f64[4, 6], got f64[2, 3, 4, 6]"
    assert lines[2] == (
        "  hint: head=te.placeholder(y.shape, 'float64', name='y_bar'), or with one more axis in front for many heads at once"
    )


def test_hessian_vector_products_in_every_way():
    f = te.compute((), lambda: te.sum(lambda i, k: te.exp(te.sin(x[i, k])) * x[3 - i, k] ** 2, (4, 5)), name="f")
    v = te.placeholder((4, 5), F64, name="v")
    slope = te.gradient(f, x)[0]
    ways = {
        "forward over reverse": te.jvp(slope, x, v),
        "reverse over reverse": te.gradient(slope, x, v)[0],
        "reverse over forward": te.gradient(te.jvp(f, x, v), x)[0],
    }
    data = ARRAYS | {v: RNG.standard_normal((4, 5))}
    hessian = te.evaluate(te.jacobian(slope, x), ARRAYS)
    expected = np.einsum("abcd,cd->ab", hessian, data[v])
    np.testing.assert_allclose(hessian, hessian.transpose(2, 3, 0, 1), rtol=1e-12)
    for product in ways.values():
        np.testing.assert_allclose(te.evaluate(product, data), expected, rtol=1e-11, atol=1e-12)
    # All columns at once: a Jacobian is the product with every unit vector.
    columns = te.evaluate(te.jvp(slope, x, te.constant(np.eye(20).reshape(20, 4, 5))), ARRAYS)
    np.testing.assert_allclose(columns, hessian.reshape(4, 5, 20).transpose(2, 0, 1), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", ["softmax", "product", "stencil", "gather", "scan", "fold"])
def test_third_order(name):
    y = OUTPUTS[name]
    small = te.compute(y.shape[:1], lambda i: te.sin(y[(i, *(0 for _ in y.shape[1:]))]))
    check_orders(
        small,
        [x],
        {t: a for t, a in ARRAYS.items() if t is not w},
        order=3,
        tolerance=1e-5,
        compiled=name in ("softmax", "product", "gather"),
    )


def test_forward_mode_of_an_op_of_any_number_of_tensors_takes_its_tangents_apart():
    x, moved = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    np.testing.assert_array_equal(te.jvp(kernels.atleast_2d)(x, moved), moved[None])
    several = te.jvp(kernels.cat)((x, moved), (moved, x), axis=0)
    np.testing.assert_array_equal(several, np.concatenate((moved, x)))
