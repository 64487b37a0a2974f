"""`te.scatter` and `te.scan`: values against NumPy, and what is refused."""

import numpy as np
import pytest

from tensorexpr import language as te
from tensorexpr.errors import OutOfBoundsError
from tensorexpr.verify import verify
from tests.language.messages import refused

ids = te.placeholder((6,), "int32", name="ids")
V = te.placeholder((6, 2), name="V")
rng = np.random.default_rng(1)
given = {ids: np.array([0, 3, 3, 1, 0, 3], np.int32), V: rng.standard_normal((6, 2)).astype(np.float32)}


@pytest.mark.parametrize(
    ("combine", "function", "start"),
    [("sum", np.add, 0), ("prod", np.multiply, 1), ("max", np.maximum, -np.inf), ("min", np.minimum, np.inf)],
)
def test_scatter_combines(combine, function, start):
    out = te.scatter((4, 2), lambda t, d: ((ids[t], d), V[t, d]), (6, 2), combine=combine, name="G")
    expected = np.full((4, 2), start, np.float32)
    function.at(expected, given[ids], given[V])
    np.testing.assert_allclose(te.evaluate(out, given), expected, rtol=1e-6)


def test_scatter_forms():
    counts = te.scatter(4, lambda t: (ids[t], 1), 6, name="counts")
    assert te.evaluate(counts, given).tolist() == [2, 1, 0, 3] and counts.dtype.name == "int64"
    total = te.scatter((), lambda t, d: ((), V[t, d]), (6, 2))
    np.testing.assert_allclose(te.evaluate(total, given), given[V].sum(), rtol=1e-5)
    some = te.scatter(4, lambda t: (ids[t], 1), 6, where=lambda t: t > 1)
    assert te.evaluate(some, given).tolist() == [1, 1, 0, 2]
    triangle = te.scatter(9, lambda i, j: (i + j, 1), (5, lambda i: i + 1))
    assert te.evaluate(triangle, {}).tolist() == [1, 1, 2, 2, 3, 2, 2, 1, 1]
    assert repr(counts) == "counts: i64[4] = scatter({i64(ids[t]): 1 for t in range(6)})"


def test_scatter_indices_are_proved_or_checked():
    text = refused(lambda: te.scatter((4, 2), lambda t, d: ((ids[t], d + 1), V[t, d]), (6, 2), name="G"))
    assert "G[i64(ids[t]), d + 1]: expected an index in range(2) on axis 1, got d + 1 from 1 to 2" in text and "at:   t = 0, d = 1" in text
    assert "hint: leave points out: where=lambda ...: condition" in text
    te.scatter((4, 2), lambda t, d: ((ids[t], d + 1), V[t, d]), (6, 2), where=lambda t, d: d < 1)
    assert "V[t + 1, 0]: expected an index in range(6) on axis 0" in refused(lambda: te.scatter(4, lambda t: (0, V[t + 1, 0]), 6))
    out = te.scatter(3, lambda t: (ids[t], 1), 6)
    with pytest.raises(OutOfBoundsError):
        te.evaluate(out, given)


def test_bad_scatters():
    assert "te.scatter: expected combine to be one of sum, prod, max, min, got 'mean'" in refused(
        lambda: te.scatter(4, lambda t: (ids[t], 1), 6, combine="mean")
    )
    assert "te.scatter: expected the body to return (indices, value), got i64(ids[t])" in refused(
        lambda: te.scatter(4, lambda t: te.cast(ids[t], "int64"), 6)
    )
    assert "te.scatter: expected 2 indices, one per axis of the result, got 1" in refused(
        lambda: te.scatter((4, 2), lambda t: (ids[t], 1), 6)
    )
    assert "te.scatter, axis 0: expected an integer index, got a float32" in refused(lambda: te.scatter(4, lambda t: (V[t, 0], 1), 6))
    assert "te.scatter: expected numbers to sum, got bool" in refused(lambda: te.scatter(4, lambda t: (ids[t], True), 6))


X = te.placeholder((5, 3), name="X")
x = rng.standard_normal((5, 3)).astype(np.float32)


def zeros(shape, dtype="float32"):
    return te.compute(shape, lambda *i: te.cast(0, dtype), name="zeros")


def test_cumulative_sum():
    out = te.scan(lambda t, s: te.compute(s.shape, lambda j: s[j] + X[t, j]), zeros(3), 5, name="S")
    assert out.shape == (5, 3)
    np.testing.assert_allclose(te.evaluate(out, {X: x}), x.cumsum(0), rtol=1e-5)
    program = te.program_of([out])
    verify(program)
    assert str(program).splitlines()[1:] == [
        "zeros[i0]: f32[3] = 0.0",
        "for t in range(5):",
        "    s: f32[3] = state(zeros)",
        "    t0[j]: f32[3] = s[j] + X[t, j]",
        "    S[t] = s = t0",
        "return S",
    ]


def test_states_without_axes():
    out = te.scan(lambda t, s: 0.5 * s[()] + X[t, 0], zeros(()), 5)
    state, expected = np.float32(0), []
    for t in range(5):
        state = np.float32(0.5) * state + x[t, 0]
        expected.append(state)
    np.testing.assert_allclose(te.evaluate(out, {X: x}), expected, rtol=1e-6)


def test_several_states():
    def step(t, state):
        a, b = state
        return b, te.compute((), lambda: a[()] + b[()])

    one = te.compute((), lambda: 1)
    a, b = te.scan(step, (one, one), 6, name=("fib", "next"))
    assert te.evaluate([a, b], {})[0].tolist() == [1, 2, 3, 5, 8, 13]
    assert te.evaluate(b, {}).tolist() == [2, 3, 5, 8, 13, 21]
    same, constant = te.scan(lambda t, s: (s[0], one), (one, one), 3)
    assert te.evaluate([same, constant], {})[0].tolist() == [1, 1, 1]
    verify(te.program_of([a, b, same, constant]))


def test_a_recurrent_network_with_intermediates():
    w = te.placeholder((3, 3), name="W")

    def cell(t, h):
        pre = te.compute(3, lambda i: te.sum(lambda k: w[i, k] * h[k], 3) + X[t, i], name="pre")
        return te.compute(3, lambda i: te.tanh(pre[i]), name="h_next")

    out = te.scan(cell, zeros(3), 5, name="H")
    weights = rng.standard_normal((3, 3)).astype(np.float32)
    h, expected = np.zeros(3, np.float32), []
    for t in range(5):
        h = np.tanh(weights @ h + x[t])
        expected.append(h)
    np.testing.assert_allclose(te.evaluate(out, {X: x, w: weights}), expected, rtol=1e-4)


def test_nested_scans():
    """Row sums by an inner scan over columns, accumulated by an outer one."""

    def outer(t, total):
        inner = te.scan(lambda j, s: s[()] + X[t, j], total, 3, name="inner")
        return te.compute((), lambda: inner[2])

    out = te.scan(outer, zeros(()), 5, name="O")
    np.testing.assert_allclose(te.evaluate(out, {X: x}), x.sum(1).cumsum(), rtol=1e-5)
    program = te.program_of([out])
    verify(program)
    assert "for j in range(3):" in str(program)


def test_a_scan_whose_step_indexes():
    n = te.dim("n")
    t_ = te.placeholder((n, 3), name="T")
    out = te.scan(lambda t, s: te.compute(3, lambda j: te.maximum(s[j], t_[n - 1 - t, j])), zeros(3), n)
    np.testing.assert_allclose(te.evaluate(out, {t_: x}), np.maximum.accumulate(np.maximum(x[::-1], 0)), rtol=1e-6)
    text = refused(lambda: te.scan(lambda t, s: te.compute(3, lambda j: s[j] + t_[t + 1, j]), zeros(3), n))
    assert "T[t + 1, j]: expected an index in range(n) on axis 0, got t + 1 from 1 to n" in text and "at:   t = 0, j = 0, n = 1" in text


def test_names_in_scans():
    n = te.dim("t")
    t_ = te.placeholder((n,), name="s")
    out = te.scan(lambda t, s: te.compute((), lambda: s[()] + t_[t]), zeros(()), n, name="s_out")
    program = te.program_of([out])
    verify(program)
    assert "for t_1 in range(t):" in str(program) and "s_1: f32 = state(zeros)" in str(program)


def test_the_text_does_not_depend_on_how_many_tensors_were_made_before():
    def text():
        first, _ = te.scan(lambda t, state: (state[1], state[0]), (zeros(3), zeros(3)), 5, name=("first", "second"))
        return str(te.program_of([first]))

    assert text() == text()
    assert "second[t] = " in text()


def test_a_recursion_without_base():
    text = refused(lambda: te.scan(lambda t, s: te.compute(3, lambda j: s[j]), None, 5))
    assert "te.scan: expected init to be a tensor or a tuple of tensors, the state before step 0, got None" in text
    assert "hint: a recurrence needs a base" in text and __file__ in text
    assert "the state before step 0, got 0.0" in refused(lambda: te.scan(lambda t, s: s, 0.0, 5))
    assert "the state before step 0" in refused(lambda: te.scan(lambda t, s: s, (), 5))


def test_a_definition_that_reads_itself():
    def by_its_variable():
        total = te.compute(5, lambda i: te.where(i > 0, total[i - 1], 0.0) + X[i, 0])
        return total

    def by_its_name():
        return te.compute(5, lambda i: Z[i - 1] + X[i, 0], name="Z")  # noqa: F821

    text = refused(by_its_variable)
    assert "te.compute: expected a definition made of other tensors, got one that reads itself: total" in text
    assert "hint: a recurrence has a base and a step: te.scan(" in text and __file__ in text
    assert "got one that reads itself: Z" in refused(by_its_name)
    with pytest.raises(NameError, match="'typo'"):
        te.compute(5, lambda i: typo[i])  # noqa: F821


def test_bad_scans():
    state = zeros(3)
    assert "te.scan: expected extents that are not negative, got -1" in refused(lambda: te.scan(lambda t, s: s, state, -1))
    assert "te.scan: expected a length made of integers and sizes, got" in refused(
        lambda: te.scan(lambda t, s: s, state, te.cast(ids[0], "int64"))
    )
    assert "te.scan: expected a function of the step and the state, got one of 1 parameter" in refused(
        lambda: te.scan(lambda s: s, state, 5)
    )
    assert "te.scan: expected the body to return one tensor, the next state, got a tuple of 2" in refused(
        lambda: te.scan(lambda t, s: (s, s), state, 5)
    )
    assert "te.scan: expected the body to return a tuple of 2 tensors, the next state, got None" in refused(
        lambda: te.scan(lambda t, s: None, (state, state), 5)
    )
    assert "te.scan: expected the body to return a tensor for the state s, got a Scalar" in refused(
        lambda: te.scan(lambda t, s: s[0], state, 5)
    )
    text = refused(lambda: te.scan(lambda t, s: te.compute(3, lambda j: te.cast(s[j], "float64") * t), state, 5))
    assert "te.scan: expected the next s to be float32 like the state, got float64" in text and 'te.cast(x, "float32")' in text
    text = refused(lambda: te.scan(lambda t, s: te.compute(2, lambda j: s[j]), state, 5))
    assert "te.scan: expected the next s to have shape (3) like the state, got (2)" in text


def test_states_stay_in_their_scan():
    leaked = []

    def body(t, s):
        leaked.append(s)
        leaked.append(t)
        leaked.append(te.compute(3, lambda j: s[j] + t, name="inner"))
        return te.compute(3, lambda j: s[j])

    te.scan(body, zeros(3), 5)
    text = refused(lambda: te.compute(3, lambda j: leaked[0][j]))
    assert "expected a tensor that has a meaning here, got s, which belongs to the body of a scan" in text
    assert "expected indices of this definition, got t" in refused(lambda: te.compute(3, lambda j: leaked[1] + j))
    text = refused(lambda: te.program_of([leaked[2]]))
    assert "expected a tensor that has a meaning outside of a scan, got inner, which belongs to the body of one" in text
