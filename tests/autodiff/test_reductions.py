"""Reductions of every kind, scatters and scans: values against NumPy and finite differences, with the documented choices."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.language import program_of
from tests.autodiff.laws import scatters

F64 = "float64"


def gradient_of(output, wrt, arrays):
    return [te.evaluate(g, arrays) for g in te.gradient(output, wrt)]


def total(tensor, weight=None):
    """The sum of a tensor, weighted so that no two elements count alike."""
    extents = tensor.shape

    def body(*at):
        place = sum(i * (7**d) for d, i in enumerate(at))
        return tensor[at] * (1.0 + 0.1 * te.cast(place, F64))

    return te.compute((), lambda: te.sum(body, extents), name="L") if extents else tensor


def check_by_differences(output, wrt, arrays, tolerance=1e-6):
    """The gradient of a weighted sum against central differences."""
    loss = total(output)
    found = gradient_of(loss, wrt, arrays)
    step = 1e-6
    for tensor, value in zip(wrt, found, strict=True):
        expected = np.zeros_like(arrays[tensor])
        for at in np.ndindex(*arrays[tensor].shape):
            high, low = arrays[tensor].copy(), arrays[tensor].copy()
            high[at] += step
            low[at] -= step
            expected[at] = (te.evaluate(loss, arrays | {tensor: high}) - te.evaluate(loss, arrays | {tensor: low})) / (2 * step)
        np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance)


def leave_one_out(row):
    return np.array([np.prod(np.delete(row, k)) for k in range(len(row))])


@pytest.mark.parametrize("n", [1, 3, 9])
def test_product_with_zeros_among_the_factors(n):
    x = te.placeholder((4, n), F64, name="x")
    y = te.compute((4,), lambda i: te.prod(lambda k: x[i, k], n), name="y")
    loss = te.compute((), lambda: te.sum(lambda i: y[i], 4))
    data = np.random.default_rng(0).integers(1, 4, (4, n)).astype(float)
    data[1, 0] = 0.0
    data[2, : min(2, n)] = 0.0
    np.testing.assert_array_equal(gradient_of(loss, [x], {x: data})[0], np.stack([leave_one_out(row) for row in data]))


def test_product_over_two_axes_with_a_mask():
    x = te.placeholder((3, 6), F64, name="x")
    y = te.compute((2,), lambda b: te.prod(lambda i, j: x[i, j] + 0.5 * te.cast(b, F64), (3, 6), where=lambda i, j: i + b < j), name="y")
    check_by_differences(y, [x], {x: np.random.default_rng(1).uniform(0.5, 1.5, (3, 6))})


def test_triangular_product():
    x = te.placeholder((6,), F64, name="x")
    y = te.compute((6,), lambda i: te.prod(lambda k: x[k], i + 1), name="y")
    check_by_differences(y, [x], {x: np.array([0.5, -1.2, 0.0, 2.0, 1.5, -0.3])})


def test_extremes_go_to_the_first_winner_in_row_major_order():
    x = te.placeholder((2, 3), F64, name="x")
    data = np.array([[1.0, 5.0, 5.0], [5.0, 0.0, 0.0]])
    for reduction, where in ((te.max, (0, 1)), (te.min, (1, 1))):
        y = te.compute((), lambda reduction=reduction: reduction(lambda i, j: x[i, j], (2, 3)), name="y")
        expected = np.zeros((2, 3))
        expected[where] = 1.0
        np.testing.assert_array_equal(gradient_of(y, [x], {x: data})[0], expected)


@pytest.mark.parametrize("pad, stride, gap", [(1, 1, 1), (2, 1, 1), (1, 2, 1), (2, 3, 2), (4, 1, 1)])
def test_windows_that_end_at_a_border_number_their_points_as_all_others_do(pad, stride, gap):
    """Also where a window has no point (padding beyond its length), with ties, NaN and an open number of rows."""
    n, width, lost = te.dim("n"), 3, 2 * pad - 2 * gap
    x = te.placeholder((n, 7), F64, name="x")

    def at(i, a):
        return i * stride + a * gap - pad

    def window(i, j):
        inside = lambda a, b: (at(i, a) >= 0) & (at(i, a) < n) & (at(j, b) >= 0) & (at(j, b) < 7)  # noqa: E731
        return te.max(lambda a, b: x[at(i, a), at(j, b)], (width, width), where=inside)

    y = te.compute(((n + lost - 1) // stride + 1, (7 + lost - 1) // stride + 1), window, name="y")
    head = te.placeholder(y.shape, F64, name="head")
    gradient = te.gradient(y, [x], head)
    assert "for a in range(3) for b in range(3)" in " ".join(str(gradient).split())
    run = te.build(list(gradient), [x, head])
    for rows in (0, 1, 7, 33):
        random = np.random.default_rng(rows)
        data = random.integers(0, 3, (rows, 7)).astype(float)
        data[:1, 3] = np.nan
        weight = random.standard_normal(((rows + lost - 1) // stride + 1, (7 + lost - 1) // stride + 1))
        expected = np.zeros((rows, 7))
        for i, j in np.ndindex(*weight.shape):
            places = [(at(i, a), at(j, b)) for a in range(width) for b in range(width)]
            places = [(p, q) for p, q in places if 0 <= p < rows and 0 <= q < 7]
            if places:
                expected[places[int(np.argmax([data[place] for place in places]))]] += weight[i, j]
        np.testing.assert_allclose(run(data, weight)[0], expected, rtol=1e-12, atol=1e-12)


def test_maximum_over_dependent_axes():
    x = te.placeholder((4, 4), F64, name="x")
    y = te.compute((), lambda: te.max(lambda i: te.max(lambda j: x[i, j], i + 1), 4), name="y")
    data = np.random.default_rng(2).permutation(16).reshape(4, 4).astype(float)
    data[0, 3] = 100.0  # outside of the triangle
    expected = np.zeros((4, 4))
    expected[np.unravel_index(np.argmax(np.tril(data)), (4, 4))] = 1.0
    np.testing.assert_array_equal(gradient_of(y, [x], {x: data})[0], expected)


def test_a_maximum_inside_an_expression_and_argmax():
    x = te.placeholder((3, 4), F64, name="x")
    y = te.compute((3,), lambda i: te.exp(te.max(lambda k: x[i, k] * x[i, k], 4)) * te.cast(te.argmax(lambda k: x[i, k], 4), F64), name="y")
    check_by_differences(y, [x], {x: np.random.default_rng(3).uniform(-1, 1, (3, 4))})


def test_nested_reductions_in_one_expression():
    x = te.placeholder((3, 5), F64, name="x")
    softmax = te.compute(
        (3, 5),
        lambda i, j: te.exp(x[i, j] - te.max(lambda k: x[i, k], 5)) / te.sum(lambda m: te.exp(x[i, m] - te.max(lambda k: x[i, k], 5)), 5),
        name="softmax",
    )
    check_by_differences(softmax, [x], {x: np.random.default_rng(4).standard_normal((3, 5))})


def test_user_combiners_with_tuples():
    x = te.placeholder((3, 6), F64, name="x")

    def statistics(i):
        count, mean, spread = te.reduce(
            lambda a, b: (
                a[0] + b[0],
                (a[0] * a[1] + b[0] * b[1]) / (a[0] + b[0]),
                a[2] + b[2] + (a[1] - b[1]) ** 2 * a[0] * b[0] / (a[0] + b[0]),
            ),
            (0.0, 0.0, 0.0),
            lambda k: (1.0, x[i, k], 0.0),
            6,
        )
        return mean + te.sqrt(spread / count)

    y = te.compute((3,), statistics, name="y")
    check_by_differences(y, [x], {x: np.random.default_rng(5).standard_normal((3, 6))})


def test_scatters_are_read_back():
    ids, v = te.placeholder((6,), "int64", name="ids"), te.placeholder((6, 2), F64, name="v")
    places = np.array([2, 0, 2, 3, 0, 2])
    for combine in ("sum", "max", "min", "prod"):
        y = te.scatter((4, 2), lambda t, d: ((ids[t], d), te.sin(v[t, d])), (6, 2), combine=combine)
        arrays = {ids: places, v: np.random.default_rng(6).uniform(0.2, 1.2, (6, 2))}
        loss = te.compute((), lambda y=y: te.sum(lambda i, d: te.where(i != 1, y[i, d] * te.cast(2 * i + d + 1, F64), 0.0), (4, 2)))
        (found,) = te.gradient(loss, [v])
        assert "v_bar[t, d]" in repr(found)
        step, expected = 1e-6, np.zeros((6, 2))
        for at in np.ndindex(6, 2):
            high, low = arrays[v].copy(), arrays[v].copy()
            high[at] += step
            low[at] -= step
            expected[at] = (te.evaluate(loss, arrays | {v: high}) - te.evaluate(loss, arrays | {v: low})) / (2 * step)
        np.testing.assert_allclose(te.evaluate(found, arrays), expected, rtol=1e-6, atol=1e-8)


def test_a_product_of_scattered_values_with_zeros():
    v = te.placeholder((5,), F64, name="v")
    y = te.scatter((2,), lambda t: (t % 2, v[t]), 5, combine="prod")
    loss = te.compute((), lambda: y[0] + y[1])
    np.testing.assert_array_equal(gradient_of(loss, [v], {v: np.array([3.0, 0.0, 2.0, 5.0, 0.0])})[0], np.array([0.0, 5.0, 0.0, 0.0, 6.0]))


def test_data_dependent_reads_become_segments_or_atomics():
    table, ids = te.placeholder((4, 3), F64, name="table"), te.placeholder((5,), "int32", name="ids")
    y = te.compute((5, 3), lambda t, d: table[ids[t], d], name="y")
    head = te.placeholder((5, 3), F64, name="H")
    gradient = te.gradient(y, [table], head=head)
    (row,) = gradient.report().rows
    assert (row.lowering, row.iterations, row.reads) == ("segments", 15, 15)
    atomics = te.gradient(y, [table], head=head, lowering="atomics")
    assert atomics.report().rows[0].lowering == "atomics"
    assert (scatters(program_of(list(gradient))), scatters(program_of(list(atomics)))) == ([], ["table_bar"])
    weights, places = np.arange(15.0).reshape(5, 3), np.array([3, 1, 1, 0, 3], np.int32)
    expected = np.zeros((4, 3))
    np.add.at(expected, places, weights)
    np.testing.assert_array_equal(te.evaluate(gradient[0], {ids: places, head: weights}), expected)


def test_scan_backwards():
    x, w, s0 = te.placeholder((6, 3), F64, name="x"), te.placeholder((3, 3), F64, name="w"), te.placeholder((3,), F64, name="s0")

    def step(t, s):
        mixed = te.compute((3,), lambda i: te.sum(lambda j: w[i, j] * s[j], 3))
        return te.compute((3,), lambda i: te.tanh(mixed[i] + x[t, i]))

    h = te.scan(step, s0, 6)
    rng = np.random.default_rng(7)
    arrays = {x: rng.standard_normal((6, 3)), w: rng.standard_normal((3, 3)), s0: rng.standard_normal(3)}
    check_by_differences(h, [x, w, s0], arrays)


def test_scan_of_two_states_and_twice_differentiated():
    x = te.placeholder((5,), F64, name="x")
    first = te.compute((), lambda: 1.0)
    second = te.compute((), lambda: 0.5)
    a, b = te.scan(
        lambda t, s: (te.compute((), lambda: s[0][()] * x[t]), te.compute((), lambda: s[1][()] + s[0][()] * te.cast(t, F64))),
        (first, second),
        5,
    )
    y = te.compute((5,), lambda t: a[t] * b[t], name="y")
    arrays = {x: np.array([0.5, -1.0, 2.0, 1.5, 0.3])}
    check_by_differences(y, [x], arrays)
    (slope,) = te.gradient(total(y), [x])
    check_by_differences(slope, [x], arrays, tolerance=1e-5)


def test_sixteen_bit_gradients_carry_float32():
    x = te.placeholder((2048,), "float16", name="x")
    y = te.compute((2048, 2), lambda i, j: x[i], name="y")
    w = te.placeholder((), "float16", name="w")
    z = te.compute((2048,), lambda i: w[()] * x[i], name="z")
    head = te.placeholder((2048,), "float16", name="H")
    ones = np.ones(2048, np.float16)
    for lowering in (None, "segments"):
        (found,) = te.gradient(z, [w], head=head, lowering=lowering)
        value = te.evaluate(found, {x: ones * np.float16(1.001), head: ones})
        assert value.dtype == np.float16 and value == np.float16(2048 * np.float32(np.float16(1.001)))
    assert te.gradient(y, [x], head=te.placeholder((2048, 2), "float16"))[0].dtype is te.float16


def merged(a, b):
    """Count, mean and sum of squared deviations of two parts together."""
    count, apart = a[0] + b[0], b[1] - a[1]
    share = te.where(b[0] == 0, 0, b[0] / te.where(count == 0, 1, count))
    return count, a[1] + apart * share, a[2] + b[2] + apart * apart * (a[0] * share)


@pytest.mark.parametrize("shape", [(24, 50, 30), (36000,)])
def test_rounding_of_a_long_fold_stays_small_whatever_axes_it_has(shape):
    x = te.placeholder(shape, "float32", name="x")
    _, mean, squares = te.compute((), lambda: te.reduce(merged, (0.0, 0.0, 0.0), lambda *i: (1.0, x[i], 0.0), shape))
    data = (np.random.default_rng(7).standard_normal(shape) + 1).astype(np.float32)
    exact = data.astype(F64)
    slopes = te.gradient(te.compute((), lambda: mean[()] + squares[()] / data.size), [x])
    (found,) = te.build(te.schedule(slopes, "cpu", [x]))(data)
    np.testing.assert_allclose(found * data.size, 1 + 2 * (exact - exact.mean()), rtol=0, atol=5e-6)


@pytest.mark.parametrize("shape", [(3, 50), (131,), (50, 3), (2, 0), (0, 2)])
@pytest.mark.parametrize("are_open", [False, True])
def test_parts_of_a_long_fold_keep_the_order_of_its_points(shape, are_open):
    sizes = tuple(te.dim(f"n{k}") for k in range(len(shape))) if are_open else shape
    x = te.placeholder(sizes, F64, name="x")
    head = te.placeholder((), F64, name="h")

    def then(a, b):  # first x -> a0*x + a1, then x -> b0*x + b1
        return b[0] * a[0], b[0] * a[1] + b[1]

    whole = te.compute((), lambda: te.reduce(then, (1.0, 0.0), lambda *i: (te.cos(x[i]), te.sin(x[i])), sizes)[1], name="y")
    data = np.random.default_rng(8).uniform(-0.3, 0.3, shape)
    flat = data.ravel()
    behind = np.concatenate([np.cumprod(np.cos(flat)[::-1])[::-1][1:], [1.0]])[: flat.size]
    before = np.zeros(flat.size)
    for k in range(1, flat.size):
        before[k] = np.cos(flat[k - 1]) * before[k - 1] + np.sin(flat[k - 1])
    expected = (behind * (np.cos(flat) - np.sin(flat) * before)).reshape(shape)
    (slope,) = te.gradient(whole, [x], head=head)
    np.testing.assert_allclose(te.evaluate(slope, {x: data, head: 1.0}), expected, rtol=1e-12, atol=1e-15)
    tangent = te.placeholder(sizes, F64, name="v")
    along = te.jvp(whole, x, tangent)
    v = np.random.default_rng(9).standard_normal(shape)
    np.testing.assert_allclose(te.evaluate(along, {x: data, tangent: v}), (expected * v).sum(), rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("kind", ["max", "min"])
def test_a_maximum_of_maxima_has_one_winner(kind: str) -> None:
    """The same gradient as of one maximum over both axes: to the first winner in row-major order, by one position."""
    best = getattr(te, kind)
    x, head = te.placeholder((7, 9), "float64", name="x"), te.placeholder((6, 4), "float64", name="h")

    def gradient(y: te.Tensor) -> te.CompiledFunction:
        return te.build(list(te.gradient([y], [x], [head])), [x, head])

    nested = te.compute((6, 4), lambda i, j: best(lambda r: best(lambda q: x[i + r, 2 * j + q], 3), 2))
    whole = te.compute((6, 4), lambda i, j: best(lambda r, q: x[i + r, 2 * j + q], (2, 3)))
    one, other = gradient(nested), gradient(whole)
    values = np.random.default_rng(0).integers(0, 3, (7, 9)).astype(float)  # many winners
    heads = np.random.default_rng(1).standard_normal((6, 4))
    np.testing.assert_array_equal(one(values, heads)[0], other(values, heads)[0])
    assert len(one.program.definitions) == len(other.program.definitions)
