"""Recurrences backwards: every kind of body, scans inside scans, checkpoints; both modes, first and second order."""

import re

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Access, Const, Define, Scan
from tensorexpr.language import program_of
from tensorexpr.records import replace
from tensorexpr.traversal import expressions, walk
from tests.autodiff.laws import check_orders, gather_of, head_of, integers
from tests.autodiff.reads import stepwise_read
from tests.seeds import share_of

F64 = "float64"
RNG = np.random.default_rng(30)
T = 7

x, a, s0 = te.placeholder((T, 3), F64, name="x"), te.placeholder((T, 3), F64, name="a"), te.placeholder((3,), F64, name="s0")
w, ids = te.placeholder((3, 3), F64, name="w"), te.placeholder((T, 3), "int64", name="ids")
ARRAYS = {
    x: RNG.standard_normal((T, 3)),
    a: RNG.uniform(0.3, 0.9, (T, 3)),
    s0: RNG.standard_normal(3),
    w: RNG.standard_normal((3, 3)),
    ids: RNG.integers(0, 3, (T, 3)),
}


def constant(value):
    return te.compute((3,), lambda j: te.cast(value, F64))


def nested(t, s):
    inner = te.scan(lambda q, p: te.compute((3,), lambda j: te.sin(p[j]) * x[t, j] + a[q, j] * w[j, 0]), s, 3)
    return te.compute((3,), lambda j: inner[2, j] * 0.5 + s[j] * x[0, j])


def mixed(t, s):
    both = te.compute((3,), lambda i: te.sum(lambda j: w[i, j] * s[j], 3))
    return te.compute((3,), lambda i: te.tanh(both[i] + x[t, i]))


def reductions(t, s):
    return te.compute((3,), lambda i: te.max(lambda j: s[j] * x[t, j] + x[t, i], 3) + te.prod(lambda j: s[j] * 0.3 + 1.0, 3))


BODIES = {
    "cumulative sum": (lambda t, s: te.compute((3,), lambda j: s[j] + x[t, j] ** 2), constant(0.0)),
    "cumulative product": (lambda t, s: te.compute((3,), lambda j: s[j] * x[t, j]), constant(1.0)),
    "cumulative maximum": (lambda t, s: te.compute((3,), lambda j: te.maximum(s[j], x[t, j] ** 3)), constant(-np.inf)),
    "linear recurrence": (lambda t, s: te.compute((3,), lambda j: s[j] * a[t, j] + x[t, j]), s0),
    "recurrent network": (mixed, s0),
    "no memory": (lambda t, s: te.compute((3,), lambda j: te.sin(x[t, j]) * w[j, j]), s0),
    "reductions": (reductions, s0),
    "scattered": (lambda t, s: te.scatter((3,), lambda j: (ids[t, j], te.sin(s[j]) * x[t, j]), 3), s0),
    "windows of the input": (lambda t, s: te.compute((3,), lambda j: s[j] * 0.5 + x[t, j] * te.where(t > 0, a[t - 1, j], 1.0)), s0),
    "a scan in a scan": (nested, s0),
}


@pytest.mark.parametrize("name", BODIES)
def test_recurrences(name):
    check_recurrence(*BODIES[name], None, 2)


@pytest.mark.parametrize("name", BODIES)
def test_recurrences_with_checkpoints(name):
    check_recurrence(*BODIES[name], "sqrt", 2 if name in ("recurrent network", "windows of the input") else 1)


def check_recurrence(body, init, checkpoint, order):
    result = te.scan(body, init, T, checkpoint=checkpoint)
    used = [t for t in (x, a, s0, w) if t in te.gradient(te.compute((), lambda: result[0, 0]), [t]).adjoints]
    last = te.compute((3,), lambda j: result[T - 1, j] + 0.1 * result[3, j])
    check_orders(last, used, ARRAYS, order)


def test_states_in_tuples_and_of_integers():
    def body(t, state):
        count, u, v = state
        return (
            te.compute((), lambda: count[()] + 1),
            te.compute((3,), lambda j: u[j] + 0.1 * v[j] * te.cast(count[()], F64)),
            te.compute((3,), lambda j: v[j] - 0.1 * te.sin(u[j]) * w[j, 0]),
        )

    zero = te.compute((), lambda: te.cast(0, "int64"))
    for checkpoint in (None, 3):
        _, u, v = te.scan(body, (zero, s0, constant(0.5)), T, checkpoint=checkpoint)
        check_orders(te.compute((3,), lambda j, u=u, v=v: u[T - 1, j] * v[4, j]), [s0, w], ARRAYS)


def test_scans_in_a_chain():
    y = te.compute((T, 3), lambda t, j: te.exp(x[t, j]), name="y")
    first = te.scan(lambda t, s: te.compute((3,), lambda j: s[j] * 0.5 + y[t, j]), constant(0.0), T)
    second = te.scan(lambda t, s: te.compute((3,), lambda j: te.sin(s[j]) + first[T - 1 - t, j]), constant(0.0), T, checkpoint=3)
    check_orders(te.compute((3,), lambda j: second[T - 1, j] * y[0, j]), [x], ARRAYS)


def test_a_length_that_is_a_size():
    n = te.dim("n")
    xs = te.placeholder((n, 3), F64, name="xs")
    for checkpoint in (None, 3):
        s = te.scan(lambda t, s: te.compute((3,), lambda j: te.sin(s[j]) + xs[t, j] ** 2), constant(0.0), n, checkpoint=checkpoint)
        y = te.compute((3,), lambda j, s=s: te.where(n > 0, s[n - 1, j], 0.0) + te.sum(lambda t: s[t, j], n))
        for length in (1, 3, 7, 8):
            check_orders(y, [xs], {xs: RNG.standard_normal((length, 3))}, order=1)
        assert te.evaluate(te.gradient(te.compute((), lambda y=y: y[0]), xs)[0], {xs: np.zeros((0, 3))}).shape == (0, 3)


@pytest.mark.parametrize("seed", [16, 77, *share_of(range(90))])
def test_random_reads_by_cases_at_each_step(seed):
    """All at once without checkpoints, in the backward scan with them: the same gradient, bit for bit, as the forced forms give."""
    whole, parts = stepwise_read(seed, None), stepwise_read(seed, 1 + seed % 3)
    heads = head_of(whole.output), head_of(parts.output)
    values = [integers(whole.x, 1), integers(heads[0], 2)]
    found = te.evaluate(gather_of(whole.output, [whole.x], heads[0])[0], dict(zip((whole.x, heads[0]), values, strict=True)))
    again = te.build(te.gradient(parts.output, [parts.x], heads[1])[0], [parts.x, heads[1]])
    np.testing.assert_array_equal(again(*values), found)


# --------------------------------------------------------------------------------------------------------- checkpoints


def stencil(width, k):
    """A step of a diffusion with a nonlinear source, on a line with fixed ends."""

    def body(t, u):
        def element(i):
            return u[i] + k[()] * (u.read(i - 1, outside="clamp") - 2.0 * u[i] + u.read(i + 1, outside="clamp")) + te.sin(u[i]) * 0.1

        return te.compute((width,), element)

    return body


def workspace_elements(function):
    """The elements that a compiled function holds between its kernels, each place counted once."""
    return function.nest and sum(int(np.prod([e.value for e in b.shape])) for b in function.nest.workspace)


def test_checkpoints_hold_few_states_and_give_the_same_gradients():
    width, steps = 64, 100
    u0, k = te.placeholder((width,), F64, name="u0"), te.placeholder((), F64, name="k")
    draws = [[np.random.default_rng(seed).standard_normal(width), np.array(0.2)] for seed in range(20)]
    held, found, work = {}, {}, {}
    for checkpoint in (None, "sqrt", 5, 25):
        s = te.scan(stencil(width, k), u0, steps, checkpoint=checkpoint)
        loss = te.compute((), lambda s=s: te.sum(lambda j: s[steps - 1, j] ** 2, width))
        function = te.build([loss, *te.gradient(loss, [u0, k])], [u0, k])
        held[checkpoint] = workspace_elements(function) / width
        found[checkpoint] = [function(*data) for data in draws]
        work[checkpoint] = function.cost.operations
    for checkpoint in ("sqrt", 5, 25):
        for results, plain in zip(found[checkpoint], found[None], strict=True):
            for value, expected in zip(results[:2], plain[:2], strict=True):
                np.testing.assert_array_equal(value, expected)  # the gradient by the first state: the same operations in the same order
            np.testing.assert_allclose(results[2], plain[2], rtol=1e-12)
        assert work[checkpoint] < 1.5 * work[None]
    assert held[None] > 2 * steps
    assert held["sqrt"] < 8 * 10 + 12
    assert held[5] < 20 + 7 * 5 + 12
    assert held[25] < 4 + 8 * 25 + 12


def test_checkpoints_give_the_same_bits_where_sums_are_exact():
    u0, k = te.placeholder((6,), F64, name="u0"), te.placeholder((9, 6), F64, name="k")
    data = {u0: RNG.integers(-3, 4, 6).astype(float), k: RNG.integers(-1, 2, (9, 6)).astype(float)}
    results = []
    for checkpoint in (None, 1, 2, 3, 4, 9, "sqrt"):
        s = te.scan(lambda t, u: te.compute((6,), lambda i: u[5 - i] * k[t, i] + u[i] - k[0, i]), u0, 9, checkpoint=checkpoint)
        loss = te.compute((), lambda s=s: te.sum(lambda t, i: s[t, i] * te.cast(i + t, F64), (9, 6)))
        results.append(te.evaluate([loss, *te.gradient(loss, [u0, k])], data))
    for result in results[1:]:
        for value, expected in zip(result, results[0], strict=True):
            np.testing.assert_array_equal(value, expected)


def test_of_a_scan_whose_last_state_is_read_two_entries_are_kept():
    s = te.scan(lambda t, u: te.compute((3,), lambda i: u[i] * x[t, i]), s0, T)
    function = te.build(te.compute((3,), lambda i: s[T - 1, i] * 2.0), [x, s0])
    assert [[int(e.value) for e in b.shape] for b in function.nest.workspace] == [[2, 3]]
    value = te.build(te.compute((3,), lambda i: s[T - 1, i] * 2.0), [x, s0])(ARRAYS[x], ARRAYS[s0])
    np.testing.assert_allclose(value, ARRAYS[s0] * np.prod(ARRAYS[x], 0) * 2)
    n = te.dim("n")
    xs = te.placeholder((n, 3), F64, name="xs")
    symbolic = te.scan(lambda t, u: te.compute((3,), lambda i: u[i] * xs[t, i]), s0, n)
    function = te.build(te.compute((3,), lambda i: te.where(n > 0, symbolic[n - 1, i], s0[i])), [xs, s0])
    assert [[int(e.value) for e in b.shape] for b in function.nest.workspace] == [[2, 3]]
    for length in (0, 1, 2, 7):
        np.testing.assert_allclose(function(ARRAYS[x][:length], ARRAYS[s0]), ARRAYS[s0] * np.prod(ARRAYS[x][:length], 0))


def test_a_forward_pass_that_gradients_share_runs_once():
    u0, k = te.placeholder((8,), F64, name="u0"), te.placeholder((), F64, name="k")
    s = te.scan(stencil(8, k), u0, 12, checkpoint=4)
    loss = te.compute((), lambda: te.sum(lambda j: s[11, j], 8))
    text = str(program_of([loss, *te.gradient(loss, [u0, k])]))
    assert len(re.findall(r"^for ", text, re.MULTILINE)) == 2  # segments forward, segments backward


def test_checkpoints_that_are_none():
    for wrong in (0, -1, 2.5, "root", True):
        with pytest.raises(te.DefinitionError) as caught:
            te.scan(lambda t, s: s, s0, T, checkpoint=wrong)
        lines = str(caught.value).splitlines()
        assert lines[0] == (
            f"te.scan: expected checkpoint= to be None, a number of steps, or 'sqrt' of a length that is a number, got {wrong!r}"
        )
        assert __file__ in lines[1] and lines[2] == "  hint: checkpoint=16 keeps every 16th state"
    with pytest.raises(te.DefinitionError, match="'sqrt' of a length that is a number, got 'sqrt'"):
        te.scan(lambda t, s: s, s0, te.dim("n"), checkpoint="sqrt")


def test_jacobians_of_scans_that_keep_few_states():
    x, s0 = te.placeholder((6,), F64, name="x"), te.placeholder((), F64, name="s0")
    found = []
    for checkpoint in (None, 2, "sqrt"):
        s = te.scan(lambda t, s: te.tanh(s[()] + x[t]), s0, 6, checkpoint=checkpoint)
        y = te.compute((2,), lambda j, s=s: s[5] * s[2 + j])
        found.append(te.evaluate(te.jacobian(y, [x, s0]), {x: np.linspace(-1, 1, 6), s0: 0.3}))
    for kept in found[1:]:
        np.testing.assert_allclose(kept[0], found[0][0], rtol=1e-12)
        np.testing.assert_allclose(kept[1], found[0][1], rtol=1e-12)


@pytest.mark.parametrize("length", [2, 4, te.dim("length")])
def test_the_way_back_starts_from_what_the_end_received(length):
    u = te.placeholder((6,), "float64", name="u")
    head = te.placeholder((6,), "float64", name="head")
    states = te.scan(lambda t, v: te.compute((6,), lambda i: te.sin(v[i]) * 0.5 + v[5 - i]), u, length)
    end = te.compute((6,), lambda i: states[length - 1, i] * 3.0)
    text = str(te.gradient(end, [u], head).program)
    assert "_init[i0]: f64[6] = head[i0] * 3.0" in text and "_bar[p" not in text
    both = te.compute((6,), lambda i: states[length - 1, i] + states[0, i])
    assert "_init[i0]: f64[6] = 0.0" in str(te.gradient(both, [u], head).program)


@pytest.mark.parametrize("n", [1, 2])
def test_what_the_end_received_is_a_sum_over_an_index_of_the_state_s_name(n):
    """An axis in front of the last state, called `i0` as the state's own first axis is: once the head was read at its row 0 alone."""
    u, head = te.placeholder((3, 4), "float64", name="u"), te.placeholder((n, 3, 4), "float64", name="head")
    states = te.scan(lambda t, v: te.compute((3, 4), lambda i, j: v[i, j] * 2.0), u, 2)
    end = te.compute((n, 3, 4), lambda *i: states[1, i[1], i[2]])
    (found,) = te.gradient(end, [u], head)
    given = RNG.standard_normal((n, 3, 4))
    np.testing.assert_allclose(te.evaluate(found, {u: np.ones((3, 4)), head: given}), 4 * given.sum(0), rtol=1e-12)


def combine_moments(a, b):
    n, d = a[0] + b[0], b[1] - a[1]
    return n, a[1] + d * b[0] / te.maximum(n, 1.0), a[2] + b[2] + d * d * a[0] * b[0] / te.maximum(n, 1.0)


def combine_exponentials(a, b):
    top = te.maximum(a[0], b[0])
    return top, sum(te.where(v[0] == -np.inf, 0.0, v[1] * te.exp(v[0] - top)) for v in (a, b))


def variance():
    n, mean, squares = te.compute((3,), lambda j: te.reduce(combine_moments, (0.0, 0.0, 0.0), lambda k: (1.0, x[k, j], 0.0), T))
    return te.compute((3,), lambda j: mean[j] + squares[j] / n[j])


def logsumexp():
    top, total = te.compute((3,), lambda j: te.reduce(combine_exponentials, (-np.inf, 0.0), lambda k: (x[k, j], 1.0), T))
    return te.compute((3,), lambda j: top[j] + te.log(total[j]))


def first_of_two():
    def step(t, s):
        first, second = s
        return te.compute((3,), lambda j: first[j] * a[t, j] + x[t, j]), te.compute((3,), lambda j: second[j] * first[j] + x[t, j])

    states, _ = te.scan(step, (s0, s0), T)
    return te.compute((3,), lambda j: states[T - 2, j])


def test_components_of_one_scan_backwards_are_consumers_of_their_own():
    """What each of them sends is told apart when it is asked for."""
    moments = te.compute((3,), lambda j: te.reduce(combine_moments, (0.0, 0.0, 0.0), lambda k: (1.0, x[k, j], 0.0), T))
    heads = [te.placeholder((3,), F64, name=f"h{c}") for c in range(3)]
    gradient = te.gradient(list(moments), [x], heads)
    arrays = {t: RNG.uniform(0.5, 1.5, t.shape) for t in (x, *heads)}
    parts = gradient.contributions[x]
    assert set(parts) == set(moments)
    for moment, head in zip(moments, heads, strict=True):
        want = te.evaluate(te.gradient(moment, [x], head)[0], arrays)
        np.testing.assert_allclose(te.evaluate(parts[moment], arrays), want, rtol=1e-12, atol=1e-14)
    total = sum(te.evaluate(part, arrays) for part in parts.values())
    np.testing.assert_allclose(te.evaluate(gradient[0], arrays), total, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("make", "carried"), [(variance, [2]), (logsumexp, [2]), (first_of_two, [1])])
def test_no_state_is_carried_back_that_is_zero_at_all_steps(make, carried):
    """Only states that a state which receives is computed from; and what starts from a number is read as that number. The components of a
    combiner stand in definitions of their own and share one scan."""
    y = make()
    head = te.placeholder((3,), F64, name="head")
    program = te.gradient(y, [x], head).program
    arrays = {t.name: RNG.uniform(0.5, 1.5, t.shape) for t in (x, a, head, s0)}
    back = [d for d in program.definitions if isinstance(d, Scan) and all("_back" in name for name in d.names)]
    everything = replace(program, outputs=tuple(name for d in back for name in d.names))
    values = evaluate_program(everything, {i.name: arrays[i.name] for i in program.inputs})
    assert sorted(len(d.names) for d in back) == carried
    assert all(values[name].any() for d in back for name in d.names)
    numbers = [d.name for d in program.definitions if isinstance(d, Define) and isinstance(d.value, Const)]
    read = {node.tensor for d in program.definitions for e in expressions(d) for node in walk(e) if isinstance(node, Access)}
    assert read.isdisjoint(numbers)
    check_orders(y, [x], ARRAYS, order=1, compiled=False)
