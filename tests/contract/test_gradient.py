"""As an outside checker reads the documents: gradients against finite differences and closed forms, conventions, costs."""

import numpy as np
import pytest

import tensorexpr as te
from tests.contract.running import both

RNG = np.random.default_rng(0)


def differences(output, arrays, wrt, head, step=1e-6):
    """The gradient by central differences, element by element."""
    f = te.build(output, list(arrays))
    found = np.zeros(arrays[wrt].shape)
    for at in np.ndindex(*found.shape):
        values = []
        for sign in (step, -step):
            moved = arrays[wrt].copy()
            moved[at] += sign
            values.append(np.sum(f(*(moved if t is wrt else x for t, x in arrays.items())) * head))
        found[at] = (values[0] - values[1]) / (2 * step)
    return found


def check(output, arrays, wrt=None):
    """Compares with differences, and the forced scatter forms with the gathers; gives the rows of the report."""
    wrt = wrt or [t for t in arrays if t.dtype.is_float]
    head = te.placeholder(output.shape, output.dtype, name="head") if output.ndim else None
    shape = te.evaluate(output, arrays).shape
    value = RNG.normal(size=shape) if head is not None else np.ones(())
    given = arrays if head is None else {**arrays, head: value}
    gradient = te.gradient(output, wrt, head)
    found = both(list(gradient), given)
    for tensor, result in zip(wrt, found, strict=True):
        np.testing.assert_allclose(result, differences(output, arrays, tensor, value), rtol=1e-5, atol=1e-5)
    for lowering in ("segments", "atomics"):
        forced = te.gradient(output, wrt, head, lowering=lowering)
        assert {row.lowering for row in forced.report().rows} <= {lowering}
        for x, y in zip(te.build(list(forced), list(given))(*given.values()), found, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)
    return gradient.report().rows


@pytest.mark.parametrize("stride, dilation", [(1, 1), (2, 1), (1, 2), (2, 3), (3, 2)])
def test_every_stride_and_dilation_costs_exactly_the_reads(stride, dilation):
    size, kernel = 9, 3
    out = (size - (kernel - 1) * dilation - 1) // stride + 1
    X, W = te.placeholder((2, size), "float64", name="X"), te.placeholder((3, 2, kernel), "float64", name="W")
    C = te.compute((3, out), lambda k, y: te.sum(lambda c, r: X[c, y * stride + r * dilation] * W[k, c, r], (2, kernel)), name="C")
    rows = check(C, {X: RNG.normal(size=(2, size)), W: RNG.normal(size=(3, 2, kernel))})
    assert {row.lowering for row in rows} <= {"substitute", "reshape", "lattice", "residues", "pieces"}
    assert [(row.iterations, row.reads) for row in rows] == [(3 * out * 2 * kernel,) * 2] * 2


AFFINE = {
    "reversed": lambda A: te.compute((6,), lambda i: A[5 - i, 0] ** 2),
    "diagonal": lambda A: te.compute((4,), lambda i: A[i, i] ** 2),
    "flattened": lambda A: te.compute((24,), lambda i: A[i // 4, i % 4] ** 2),
    "split": lambda A: te.compute((2, 3, 2, 2), lambda a, b, c, d: A[a * 3 + b, c * 2 + d] ** 3),
    "upsampled": lambda A: te.compute((12, 8), lambda i, j: A[i // 2, j // 2] ** 2),
    "tiled": lambda A: te.compute((12, 8), lambda i, j: A[i % 6, j % 4] ** 2),
    "skewed": lambda A: te.compute((6, 4), lambda i, j: A[i, (i + j) % 4] ** 2),
    "strided": lambda A: te.compute((2, 2), lambda i, j: A[3 * i + 1, 2 * j] ** 2),
    "clamped": lambda A: te.compute((10, 8), lambda i, j: A.read(i - 2, j - 2, outside="clamp") ** 2),
    "reflected": lambda A: te.compute((16, 10), lambda i, j: A.read(i - 5, j - 3, outside="reflect") ** 2),
    "symmetric": lambda A: te.compute((16, 10), lambda i, j: A.read(i - 5, j - 3, outside="symmetric") ** 2),
    "wrapped": lambda A: te.compute((16, 10), lambda i, j: A.read(i - 5, j - 3, outside="wrap") ** 2),
    "padded": lambda A: te.compute((16, 10), lambda i, j: A.read(i - 5, j - 3, outside=0.0) ** 2),
    "triangle": lambda A: te.compute((4,), lambda i: te.sum(lambda k: A[k, i] ** 2, i + 1)),
    "pool": lambda A: te.compute((3, 2), lambda i, j: te.max(lambda y, x: A[2 * i + y, 2 * j + x], (2, 2))),
    "overlapping pool": lambda A: te.compute((4, 2), lambda i, j: te.max(lambda y, x: A[i + y, j + x], (3, 3))),
    "minimum": lambda A: te.compute((4,), lambda j: te.min(lambda i: A[i, j] ** 2, 6)),
    "softmax": lambda A: te.compute((6, 4), lambda i, j: te.exp(A[i, j]) / te.sum(lambda k: te.exp(A[i, k]), 4)),
    "others": lambda A: te.compute((6,), lambda i: te.sum(lambda k: A[i, k] ** 2, 4, where=lambda k: k != i)),
}


@pytest.mark.parametrize("name", AFFINE)
def test_gathers_visit_exactly_what_is_read(name):
    A = te.placeholder((6, 4), "float64", name="A")
    rows = check(AFFINE[name](A), {A: RNG.normal(size=(6, 4))})
    assert rows and all(row.iterations == row.reads for row in rows)
    assert not {row.lowering for row in rows} & {"segments", "atomics"}


OTHERS = {
    "prod": lambda A: te.compute((4,), lambda j: te.prod(lambda i: A[i, j], 6)),
    "log-sum-exp": lambda A: te.compute((6,), lambda i: te.reduce(_logaddexp, -np.inf, lambda k: A[i, k], 4)),
    "where": lambda A: te.compute((6, 4), lambda i, j: te.where(A[i, j] > 0, te.exp(A[i, j]), A[i, j] * 3)),
    "scalar": lambda A: te.compute((), lambda: te.sum(lambda i, j: te.tanh(A[i, j]) * A[i, j], (6, 4))),
    "scan": lambda A: te.scan(
        lambda t, s: te.compute((4,), lambda j: s[j] * 0.5 + te.sin(A[t, j])), te.compute((4,), lambda j: 0.0), 6
    ),
    "scatter": lambda A: te.scatter((8, 4), lambda i, j: ((i + 2, 3 - j), A[i, j] ** 2), (6, 4)),
    "scatter max": lambda A: te.scatter((3, 4), lambda i, j: ((i // 2, j), A[i, j]), (6, 4), combine="max"),
    "nested": lambda A: te.compute((6,), lambda i: te.max(lambda j: A[i, j] * te.sum(lambda k: A[k, j], 6), 4)),
}  # fmt: skip


def _logaddexp(x, y):
    top = te.maximum(x, y)
    return te.where(top == -np.inf, top, top + te.log(te.exp(x - top) + te.exp(y - top)))


@pytest.mark.parametrize("name", OTHERS)
def test_gradients_of_the_whole_language(name):
    A = te.placeholder((6, 4), "float64", name="A")
    check(OTHERS[name](A), {A: RNG.normal(size=(6, 4))})


def test_data_dependent_reads_and_products_with_zeros():
    W, ids = te.placeholder((5, 3), "float64", name="W"), te.placeholder((7,), "int32", name="ids")
    E = te.compute((7, 3), lambda t, d: W[ids[t], d] ** 2, name="E")
    (row,) = check(E, {W: RNG.normal(size=(5, 3)), ids: np.array([0, 0, 4, 2, 0, 1, 1], "i4")})
    assert row.lowering == "segments" and row.reads == 21
    A = te.placeholder((4, 3), "float64", name="A")
    a = RNG.normal(size=(4, 3))
    a[0, 0] = a[1, 1] = a[2, 1] = 0
    check(te.compute((3,), lambda j: te.prod(lambda i: A[i, j], 4)), {A: a})


def test_symbolic_sizes_give_formulas():
    m = te.dim("m")
    X = te.placeholder((m,), "float64", name="X")
    Y = te.compute((m - 2,), lambda i: te.sum(lambda k: X[i + k] ** 2, 3), name="Y")
    head = te.placeholder((m - 2,), "float64", name="Y_bar")
    gradient = te.gradient(Y, X, head)
    (row,) = gradient.report().rows
    assert row._fields == ("tensor", "consumer", "access", "lowering", "iterations", "reads")
    assert [(row.reads(m=k), row.iterations(m=k)) for k in (2, 3, 7, 50)] == [(0, 0), (3, 3), (15, 15), (144, 144)]
    f = te.build(gradient[0], [X, head])
    for size in (3, 8):
        x = RNG.normal(size=size)
        np.testing.assert_allclose(f(x, np.ones(size - 2)), 2 * x * np.convolve(np.ones(size - 2), np.ones(3)))


# ------------------------------------------------------------------------------------------------------ conventions


def test_conventions():
    A, B, h = (te.placeholder((4,), "float64", name=name) for name in ("A", "B", "h"))
    arrays = {A: np.array([1.0, 2, 0, -1]), B: np.array([1.0, 1, 0, 0]), h: np.ones(4)}

    def gradients(body, *wrt):
        return [list(x) for x in both(list(te.gradient(te.compute((4,), body), list(wrt), h)), arrays)]

    assert gradients(lambda i: te.maximum(A[i], B[i]), A, B) == [[0.5, 1, 0.5, 0], [0.5, 0, 0.5, 1]]
    assert gradients(lambda i: te.minimum(A[i], B[i]), A, B) == [[0.5, 0, 0.5, 1], [0.5, 1, 0.5, 0]]
    assert gradients(lambda i: te.clip(A[i], 0.0, 2.0), A) == [[1, 0.5, 0.5, 0]]
    assert gradients(lambda i: te.abs(A[i]), A) == [[1, 1, 0, -1]]
    zeros = [[0, 0, 0, 0]]
    assert gradients(lambda i: te.sign(A[i]), A) == zeros
    assert gradients(lambda i: A[i], B) == zeros
    assert gradients(lambda i: te.cast(A[i] > 0, "float64"), A) == zeros
    assert gradients(lambda i: te.cast(te.cast(A[i], "int32"), "float64"), A) == zeros
    assert gradients(lambda i: te.cast(te.argmax(lambda k: A[k], 4), "float64"), A) == zeros


def test_the_first_winner_takes_the_gradient():
    M = te.placeholder((2, 3), "float64", name="M")
    values = np.array([[1.0, 3, 3], [3, 0, 0]])
    for name, wanted in (("max", [[0, 1, 0], [0, 0, 0]]), ("min", [[0, 0, 0], [0, 1, 0]])):
        best = te.compute((), lambda: getattr(te, name)(lambda i, j: M[i, j], (2, 3)))  # noqa: B023
        for lowering in (None, "segments", "atomics"):
            np.testing.assert_array_equal(both(te.gradient(best, M, lowering=lowering)[0], {M: values}), wanted)


def test_nothing_leaks_out_of_the_branch_not_taken():
    A, h = te.placeholder((6,), "float64", name="A"), te.placeholder((6,), "float64", name="h")
    a = np.array([4.0, 0.0, -1.0, 0.25, -0.0, 1.0])
    for body in (lambda i: te.where(A[i] > 0, te.sqrt(A[i]), 0.0), lambda i: te.where(A[i] != 0, 1 / A[i], 0.0)):
        found = both(te.gradient(te.compute((6,), body), A, h)[0], {A: a, h: np.ones(6)})
        assert np.isfinite(found).all() and found[1] == 0 and found[4] == 0


# --------------------------------------------------------------------------------------------- the Gradient object


def test_a_gradient_is_a_sequence_with_adjoints_and_contributions():
    A = te.placeholder((4,), "float64", name="A")
    B = te.compute((4,), lambda i: te.exp(A[i]), name="B")
    C = te.compute((), lambda: te.sum(lambda i: B[i] * A[i] * B[3 - i], 4), name="C")
    gradient = te.gradient(C, [A])
    a = RNG.normal(size=4)
    b = np.exp(a)
    assert len(gradient) == 1 and isinstance(gradient[0], te.Tensor) and list(gradient) == [gradient[0]]
    np.testing.assert_allclose(te.evaluate(gradient.adjoints[B], {A: a}), a * b[::-1] + (a * b)[::-1])
    parts = gradient.contributions[A]
    assert set(parts) == {B, C}
    np.testing.assert_allclose(te.evaluate(parts[C], {A: a}), b * b[::-1])
    np.testing.assert_allclose(sum(te.evaluate(part, {A: a}) for part in parts.values()), te.evaluate(gradient[0], {A: a}))
    assert [(row.tensor, row.consumer) for row in gradient.report().rows] == [("B", "C"), ("B", "C"), ("A", "C"), ("A", "B")]
    assert "lowering" in str(gradient.report())
    shared = te.compute((4,), lambda i: (lambda x: x * x)(A[i]), name="shared")
    assert len(te.gradient(shared, A, B).report().rows) == 1


def test_several_outputs_with_a_list_of_heads():
    A, h = te.placeholder((4,), "float64", name="A"), te.placeholder((4,), "float64", name="h")
    B, C = te.compute((4,), lambda i: A[i] ** 2), te.compute((), lambda: te.sum(lambda i: A[i], 4))
    a = RNG.normal(size=4)
    found = both(te.gradient([B, C], A, head=[h, None])[0], {A: a, h: np.ones(4)})
    np.testing.assert_allclose(found, 2 * a + 1)


def test_override_in_both_forms():
    A, h = te.placeholder((4,), "float64", name="A"), te.placeholder((4,), "float64", name="h")
    B = te.compute((4,), lambda i: te.exp(A[i]), name="B")
    D = te.compute((4,), lambda i: B[i] * 2.0, name="D")
    a = RNG.normal(size=4)
    rule = te.gradient(D, A, h, override={B: lambda output, inputs, head: [te.compute((4,), lambda k: head[k] * 7.0)]})
    np.testing.assert_allclose(both(rule[0], {A: a, h: np.ones(4)}), 14.0)
    unit = te.gradient(D, A, h, override={D: ([A], lambda output, inputs, head: [te.compute((4,), lambda k: head[k] * inputs[0][k])])})
    np.testing.assert_allclose(both(unit[0], {A: a, h: np.ones(4)}), a)


def test_forward_mode_jacobians_and_second_derivatives():
    A, dA = te.placeholder((4,), "float64", name="A"), te.placeholder((4,), "float64", name="dA")
    B = te.compute((4,), lambda i: te.exp(A[i]) * A[3 - i], name="B")
    C = te.compute((), lambda: te.sum(lambda i: B[i] * B[i], 4), name="C")
    a, d = RNG.normal(size=4), RNG.normal(size=4)
    jacobian = both(te.jacobian(B, A), {A: a})
    np.testing.assert_allclose(jacobian, np.diag(np.exp(a) * a[::-1]) + np.fliplr(np.diag(np.exp(a))))
    tangents = both(te.jvp([B, C], [A], [dA]), {A: a, dA: d})
    np.testing.assert_allclose(tangents[0], jacobian @ d)
    first = te.gradient(C, A)[0]
    np.testing.assert_allclose(tangents[1], te.evaluate(first, {A: a}) @ d)
    np.testing.assert_allclose(both(te.jvp(output=B, wrt=A, tangents=dA), {A: a, dA: d}), jacobian @ d)
    hessian = both(te.jacobian(first, A), {A: a})
    np.testing.assert_allclose(hessian, hessian.T)
    np.testing.assert_allclose(hessian, differences_of_vector(first, {A: a}), rtol=1e-5, atol=1e-4)


def differences_of_vector(output, arrays, step=1e-6):
    """The Jacobian of a vector by one vector, by central differences."""
    ((wrt, value),) = arrays.items()
    f = te.build(output, [wrt])
    return np.stack([(f(value + step * e) - f(value - step * e)) / (2 * step) for e in np.eye(len(value))], axis=1)


# -------------------------------------------------------------------------------------------------------------- ops


@te.op
def matmul(a, b):
    return te.compute((a.shape[0], b.shape[1]), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], a.shape[1]))


@te.op
def loss(w, x, t, *, p=2):
    return te.compute((), lambda: te.sum(lambda i: (te.sum(lambda k: x[i, k] * w[k], x.shape[1]) - t[i]) ** p, x.shape[0]))


def test_transforms_of_ops_against_closed_forms():
    a, b, h = RNG.normal(size=(3, 4)), RNG.normal(size=(4, 5)), RNG.normal(size=(3, 5))
    da, db = RNG.normal(size=(3, 4)), RNG.normal(size=(4, 5))
    a_bar, b_bar = te.vjp(matmul)(a, b, h)
    np.testing.assert_allclose(a_bar, h @ b.T)
    np.testing.assert_allclose(b_bar, a.T @ h)
    np.testing.assert_allclose(te.vjp(matmul, wrt="b")(a, b, h), a.T @ h)
    np.testing.assert_allclose(te.jvp(matmul)(a, b, da, db), da @ b + a @ db)
    w, x, t = RNG.normal(size=4), RNG.normal(size=(6, 4)), RNG.normal(size=6)
    r = x @ w - t
    np.testing.assert_allclose(te.grad(loss, wrt="w")(w, x, t), 2 * x.T @ r)
    np.testing.assert_allclose(te.grad(loss, wrt=("t", 1))(w, x, t)[1], 2 * np.outer(r, w))
    assert len(te.grad(loss)(w, x, t)) == 3
    value, gradient = te.value_and_grad(loss, wrt=0)(w, x, t, p=3)
    np.testing.assert_allclose(value, (r**3).sum())
    np.testing.assert_allclose(gradient, 3 * x.T @ r**2)


def test_hessians_by_transforms_of_transforms():
    w, x, t, v = RNG.normal(size=4), RNG.normal(size=(6, 4)), RNG.normal(size=6), RNG.normal(size=4)
    by_w = te.grad(loss, wrt="w")
    wanted = 2 * x.T @ x @ v
    np.testing.assert_allclose(te.vjp(by_w, wrt="w")(w, x, t, v), wanted)
    np.testing.assert_allclose(te.jvp(by_w)(w, x, t, v, 0 * x, 0 * t), wanted)
    squared = te.op(lambda w, x, t: te.compute((), lambda: te.sum(lambda k: by_w(w, x, t)[k] ** 2, 4)))
    np.testing.assert_allclose(te.grad(squared, wrt="w")(w, x, t), 2 * (2 * x.T @ x) @ (2 * x.T @ (x @ w - t)))


def test_an_op_with_several_outputs_and_a_rule_of_its_own():
    @te.op
    def two(x, y):
        return te.compute(x.shape, lambda i: x[i] * y[i]), te.compute((), lambda: te.sum(lambda i: te.sin(x[i]), x.shape[0]))

    x, y = RNG.normal(size=5), RNG.normal(size=5)
    for second in (np.array(2.0), 2.0, np.float64(2)):
        x_bar, y_bar = te.vjp(two)(x, y, (np.ones(5), second))
        np.testing.assert_allclose(x_bar, y + 2 * np.cos(x))
        np.testing.assert_allclose(y_bar, x)

    @te.op(gradient=lambda output, inputs, head: [te.compute((5,), lambda i: head[i] * 10.0)])
    def wrong(x):
        return te.compute((5,), lambda i: x[i] * x[i])

    np.testing.assert_array_equal(te.vjp(wrong)(x, np.ones(5))[0], 10.0)
    total = te.op(lambda x: te.compute((), lambda: te.sum(lambda i: wrong(x)[i], 5)))
    np.testing.assert_array_equal(te.grad(total)(x), 10.0)
    with pytest.raises(te.GradientCheckError) as caught:
        te.check_gradient(wrong, x)
    assert "wrong: expected the" in str(caught.value) and "the op's own gradient rule is what disagrees" in str(caught.value)


def test_check_gradient_holds_for_right_gradients():
    for op, shapes in ((matmul, [(3, 4), (4, 5)]), (loss, [(4,), (6, 4), (6,)])):
        te.check_gradient(op, *(RNG.normal(size=shape) for shape in shapes))
        te.check_gradient(op, *(RNG.normal(size=shape).astype("f4") for shape in shapes))
    table, ids = RNG.normal(size=(5, 3)), np.array([0, 4, 0], "i4")
    te.check_gradient(te.op(lambda w, i: te.compute((3, 3), lambda t, d: w[i[t], d] ** 2)), table, ids)


def test_gradients_stay_small_and_repeat_their_bits():
    X, W = te.placeholder((2, 3, 12, 12), name="X"), te.placeholder((4, 3, 3, 3), name="W")
    C = te.compute(
        (2, 4, 10, 10),
        lambda n, k, y, x: te.sum(lambda c, r, s: X[n, c, y + r, x + s] * W[k, c, r, s], (3, 3, 3)), name="C",
    )  # fmt: skip
    H = te.placeholder(C.shape, name="H")
    gradient = te.gradient(C, [X, W], H)
    f = te.build(list(gradient), [X, W, H])
    largest = max(np.prod([e.value for e in type_.shape], dtype=int) for d in f.program.definitions for _, type_ in d.results)
    assert largest <= 864
    forward = te.build(C, [X, W]).cost
    assert f.cost.operations <= 5 * forward.operations
    arrays = [RNG.normal(size=t.shape).astype("f4") for t in (X, W, H)]
    first = f(*arrays)
    assert all(np.array_equal(x, y) for _ in range(5) for x, y in zip(first, f(*arrays), strict=True))


def test_gradients_by_anything_in_the_graph():
    A, k = te.placeholder((4,), "float64", name="A"), te.constant(np.arange(4.0))
    F = te.placeholder((4,), "float32", name="F")
    B = te.compute((4,), lambda i: A[i] ** 2 * k[i], name="B")
    C = te.compute((), lambda: te.sum(lambda i: B[i] + F[i] * A[i], 4), name="C")
    a, f = RNG.normal(size=4), RNG.normal(size=4).astype("f4")
    wrt = [A, A, B, C, k, F]
    found = both(list(te.gradient(C, wrt)), {A: a, F: f}, rtol=1e-5)
    for x, wanted in zip(found, (2 * a * np.arange(4) + f,) * 2 + (np.ones(4), 1.0, a**2, a), strict=True):
        np.testing.assert_allclose(x, wanted, rtol=1e-5)
    assert found[5].dtype == np.float32
    np.testing.assert_allclose(both(te.gradient([C, C], B)[0], {A: a, F: f}), 2.0)


def test_a_maximum_that_is_nan_sends_to_the_first_nan():
    A = te.placeholder((4,), "float64", name="A")
    top = te.compute((), lambda: te.max(lambda i: A[i], 4))
    np.testing.assert_array_equal(both(te.gradient(top, A)[0], {A: np.array([1, np.nan, 3, np.nan])}), [0, 1, 0, 0])


def test_third_derivatives_and_second_ones_of_scans_and_gathers():
    A = te.placeholder((5,), "float64", name="A")
    a = RNG.normal(size=5)
    power = te.compute((), lambda: te.sum(lambda i: A[i] ** 4, 5))
    for _ in range(3):
        power = te.compute((), lambda x=power: te.sum(lambda i: te.gradient(x, A)[0][i], 5))
    np.testing.assert_allclose(te.evaluate(power, {A: a}), 24 * a.sum())
    states = te.scan(lambda t, s: te.compute((), lambda: s[()] * A[t] + te.sin(A[t])), te.compute((), lambda: 1.0), 5)
    first = te.gradient(te.compute((), lambda: states[4]), A)[0]
    hessian = both(te.jacobian(first, A), {A: a})
    np.testing.assert_allclose(hessian, differences_of_vector(first, {A: a}), rtol=1e-5, atol=1e-5)
