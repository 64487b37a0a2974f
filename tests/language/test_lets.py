"""`te.let`, and bodies of thousands of operations: the same values and gradients, under names, at any depth."""

import sys

import numpy as np
import pytest

import tensorexpr as te

RNG = np.random.default_rng(0)


def both(make, inputs, arrays):
    """A definition with `te.let` and without, from the interpreter, compiled, and their gradients."""
    found = []
    for let in (te.let, lambda value, name=None: value):
        y = make(let)
        head = te.placeholder(y.shape, y.dtype.name, name="head")
        outputs = [y, *te.gradient(y, [t for t in inputs if t.dtype.is_float], head)]
        given = [*arrays, np.ones([int(n) for n in y.shape], y.dtype.numpy)]
        found.append(te.evaluate(outputs, dict(zip([*inputs, head], given, strict=True))))
        for one, other in zip(found[-1], te.build(outputs, [*inputs, head])(*given), strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(found[0][0], found[1][0])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    return make(te.let)


X = te.placeholder((7, 3), "float64", name="X")
I = te.placeholder((5,), "int32", name="I")
x, ids = RNG.standard_normal((7, 3)), np.array([0, 6, 2, 2, 1], np.int32)


def lennard_jones(let):
    def pair(i, j):
        r2 = let(te.sum(lambda d: (X[i, d] - X[j, d]) ** 2, 3), "r2")
        s6 = let(1.0 / (r2 * r2 * r2), "s6")
        return 4 * (s6 * s6 - s6)

    return te.compute((), lambda: te.sum(lambda i, j: te.where(i < j, pair(i, j), 0.0), (7, 7)), name="energy")


def test_the_gradient_of_an_energy_prints_in_the_users_names():
    energy = both(lennard_jones, [X], [x])
    text = str(te.gradient(energy, [X]))
    assert len(text.splitlines()) <= 20
    for name in ("r2[i, j]", "s6[i, j]", "r2_bar[i, j]", "s6_bar[i, j]"):
        assert text.count(f"{name}: f64[7, 7] =") == 1
    assert "r^{(2)}" in te.latex(te.gradient(energy, [X]))


def test_under_conditions_values_are_not_read_out_of_bounds():
    def neighbors(let):
        def body(i, d):
            before = let(X[i - 1, d] * X[i, d], "before")
            return te.where(i > 0, before * before + before, 0.0)

        return te.compute((7, 3), body)

    text = str(te.program_of([both(neighbors, [X], [x])]))
    assert "before[i, d]: f64[7, 3] = where(i > 0, X[i - 1, d] * X[i, d], 0.0)" in text


def test_what_is_in_bounds_only_where_it_stands_stays_there():
    def two_places(let):
        def body(i, d):
            sides = [te.where(i > 0, let(X[i - 1, d] * 2, "side") + 1, 0.0)]
            far = let(X[te.where(i > 3, i - 3, 0), d] * 3, "far")
            return sides[0] + te.where(i > 3, far, 0.0) + te.where(i < 2, far, 1.0)

        return te.compute((7, 3), body)

    both(two_places, [X], [x])


def test_data_under_different_conditions_is_not_read_elsewhere():
    def gathered(let):
        def body(k, d):
            row = let(X[I[k], d] * 2, "row")
            return te.where(k > 0, row, 0.0) + te.where(I[k] < 3, row * row, 1.0)

        return te.compute((5, 3), body)

    text = str(te.program_of([both(gathered, [X, I], [x, ids])]))
    assert "row" not in text
    assert "row[k, d]" in str(te.program_of([te.compute((5, 3), lambda k, d: te.exp(te.let(X[I[k], d] * 2, "row")))]))


def test_in_scans_scatters_tuples_and_open_sizes():
    n = te.dim("n")
    Z = te.placeholder((n, 3), name="Z")

    def body(t, state):
        def step(d):
            grown = te.let(state[d] * Z[t, d], "grown")
            return te.tanh(grown) + grown

        return te.compute((3,), step)

    y = te.scan(body, te.compute((3,), lambda d: 1.0 + 0 * d), n)
    z = RNG.standard_normal((6, 3)).astype(np.float32)
    state, expected = np.ones(3, np.float32), []
    for row in z:
        state = np.tanh(state * row) + state * row
        expected.append(state)
    np.testing.assert_allclose(te.build(y, [Z])(z), expected, rtol=1e-5)
    pair = te.compute((n, 3), lambda i, d: (te.let(te.exp(Z[i, d]), "e") + 1, te.let(te.exp(Z[i, d]) * 2, "f")))
    np.testing.assert_allclose(te.build(list(pair), [Z])(z)[1], np.exp(z) * 2, rtol=1e-6)
    sent = te.scatter((7,), lambda k: (I[k], te.let(X[I[k], 0] * 2, "sent") * 3), 5, where=lambda k: k > 0)
    expected = np.zeros(7)
    np.add.at(expected, ids[1:], x[ids[1:], 0] * 6)
    np.testing.assert_allclose(te.build(sent, [X, I])(x, ids), expected)


def test_elements_indices_and_numbers_stay_themselves():
    y = te.compute((7, 3), lambda i, d: X[te.let(i, "row"), te.let(d * 1, "column")] * te.let(2.0, "two") + te.let(X[i, d], "element"))
    assert "row" not in str(te.program_of([y])) and "element" not in str(te.program_of([y]))
    with pytest.raises(te.DefinitionError, match="expected a name that is a Python identifier, got 'r 2'"):
        te.compute((7, 3), lambda i, d: te.let(X[i, d] * 2, "r 2"))


@pytest.mark.parametrize("steps", [150, 3000])
def test_thousands_of_nested_operations(steps):
    z = te.placeholder((5,), "float64", name="z")

    def body(i):
        value = z[i]
        for k in range(steps):
            value = te.sin(value) * 0.5 + 0.1 if k % 2 else value * value - 0.3
        return value

    y = te.compute((5,), body)
    outputs = [y, *te.gradient(y, [z], te.compute((5,), lambda i: 1.0 + 0.0 * i))]
    at = np.linspace(0.1, 0.9, 5)
    value, slope = at, np.ones(5)
    for k in range(steps):
        value, slope = (np.sin(value) * 0.5 + 0.1, np.cos(value) * 0.5 * slope) if k % 2 else (value * value - 0.3, 2 * value * slope)
    found = te.build(outputs, [z])(at)
    np.testing.assert_allclose(found[0], value, rtol=1e-9)
    np.testing.assert_allclose(found[1], slope, rtol=1e-7, atol=1e-300)
    assert str(te.program_of(outputs, [z])) and te.latex(y)


def test_ten_thousand_operations_are_traced_without_recursion():
    limit = sys.getrecursionlimit()
    z = te.placeholder((5,), name="z")

    def body(i):
        value = z[i]
        for _ in range(10_000):
            value = value + 1.0
        return value

    y = te.compute((5,), body)
    assert sys.getrecursionlimit() == limit
    np.testing.assert_array_equal(te.build(y, [z])(np.zeros(5, np.float32)), np.full(5, 10_000.0))


def test_a_million_nodes():
    z = te.placeholder((3,), "float64", name="z")

    def body(i):
        terms = [z[i] * float(k) for k in range(1, 1 << 15)]
        while len(terms) > 1:
            terms = [a + b for a, b in zip(terms[::2], terms[1::2], strict=False)] + terms[len(terms) & ~1 :]
        value = terms[0]
        for _ in range(40):  # 2^40 times as many, written out
            value = value * 0.5 + value * 0.25
        return value

    y = te.compute((3,), body)
    total = sum(range(1, 1 << 15)) * 0.75**40
    np.testing.assert_allclose(te.build(y, [z])(np.ones(3)), np.full(3, total), rtol=1e-9)
