"""Sums that leave their own point out read the states before steps."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.algebra import with_states_before
from tensorexpr.codegen.target import host_target
from tensorexpr.codegen.tuning.lookup import simplified
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Scan
from tensorexpr.language import program_of
from tensorexpr.parse import parse_program
from tensorexpr.text import print_program
from tensorexpr.verify import verify

TEXT = """
X: f32[20, {columns}] = input()
zero[i]: f32[20] = {start}
for t in range({steps}):
    h: f32[20] = state(zero)
    n[i]: f32[20] = h[i] + X[i, t]
    S[t] = h = n
Y[j, i]: f32[{rows}, 20] = {value}
return {outputs}
"""
PLAIN = {"columns": 9, "start": "0.0", "steps": 8, "rows": 9, "outputs": "Y", "value": "where(j >= 1, S[j - 1, 19 - i], 0.0)"}


def changed(**other):
    program = parse_program(TEXT.format(**{**PLAIN, **other}))
    found = with_states_before(program)
    verify(found)
    x = np.random.default_rng(0).integers(-3, 4, (20, other.get("columns", 9))).astype(np.float32)
    for name, array in evaluate_program(program, {"X": x}).items():
        np.testing.assert_array_equal(array, evaluate_program(found, {"X": x})[name])
    assert with_states_before(found) is found
    return found is not program


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"value": "where(j < 1, 0.0, S[j - 1, i])"},
        {"value": "where(j == 0, 0.0, S[j - 1, i]) * where(j == 0, 0.0, S[j - 1, i])"},
        {"value": "where(j < 8, S[7 - j, i], 0.0)"},
        {"value": "sum(where(k >= 1, S[k - 1, i], 0.0) for k in range(9))"},
        {"start": "2.5", "value": "where(j >= 1, S[j - 1, i], 2.5) * X[i, j]"},
        {"rows": 8, "steps": 8, "columns": 8},
        {"rows": 5},
    ],
)
def test_states_before_steps_are_results_where_all_reads_are_of_these(other):
    assert changed(**other)


@pytest.mark.parametrize(
    "other",
    [
        {"value": "where(j >= 1, S[j - 1, i], 1.0)"},
        {"start": "-0.0"},
        {"value": "where(j >= 2, S[j - 2, i], 0.0)"},
        {"value": "where(j >= 2, S[j - 1, i], 0.0)"},
        {"value": "where(j >= 1, S[j - 1, i], 0.0) + S[7, i]"},
        {"outputs": "Y, S"},
        {"value": "sum(where(k >= 1, S[k - 1, i], 0.0) for k in range(j + 1))"},
        {"columns": 8},  # there is no last step to make
    ],
)
def test_others_stay(other):
    assert not changed(**other)


@pytest.mark.parametrize(
    "value, again",
    [
        ("where(j >= 1, S[j - 1, i], 0.0) + X[i, j]", True),
        ("X[i, j] + where(j < 1, 0.0, S[j - 1, i])", True),
        ("(X[i, 7 - j] + where(j < 7, S[6 - j, i], 0.0)) * 2.0", True),
        ("sum(X[i, k] + where(k >= 1, S[k - 1, i], 0.0) for k in range(j + 1))", True),
        ("where(j >= 1, S[j - 1, i], 0.0) + X[i, maximum(j - 1, 0)]", False),
        ("where(j >= 1, S[j - 1, 19 - i], 0.0) + X[i, j]", False),
        ("where(j >= 1, S[j - 1, i], 0.0) * X[i, j]", False),
    ],
)
@pytest.mark.parametrize("start", ["0.0", "2.5"])
def test_what_the_step_computes_of_its_state_is_the_state_after_it(value, again, start):
    value = value.replace(", 0.0)", f", {start})").replace("< 1, 0.0", f"< 1, {start}")
    other = {"rows": 8, "columns": 8, "start": start, "value": value}
    assert changed(**other) or not again
    found = with_states_before(parse_program(TEXT.format(**{**PLAIN, **other})))
    assert ("where" not in print_program(found) and "before" not in print_program(found)) == again


def test_a_step_that_the_scan_does_not_make_is_computed():
    changed(rows=9, columns=9, steps=8, value="where(j >= 1, S[j - 1, i], 0.0) + X[i, j]")


@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_of_sums_by_scans_read_their_states(reverse):
    n, length = te.dim("n"), te.dim("length")
    x, head = te.placeholder((n, length), name="x"), te.placeholder((n, length), name="h")
    zero = te.compute((n,), lambda i: te.cast(0.0, "float32"))

    def at(t):
        return length - 1 - t if reverse else t

    states = te.scan(lambda t, s: te.compute((n,), lambda i: s[i] + x[i, at(t)]), zero, length)
    y = te.compute((n, length), lambda i, j: states[at(j), i])
    run = te.build(list(te.gradient(y, [x], head)), [x, head])
    for shape in ((0, 3), (3, 0), (1, 1), (7, 1), (33, 7), (20, 300)):
        given = np.random.default_rng(0).integers(-4, 5, shape).astype(np.float32)
        want = np.cumsum(given, 1) if reverse else np.cumsum(given[:, ::-1], 1)[:, ::-1]
        np.testing.assert_array_equal(run(given, given)[0], want)


def exclusive(n, length, x):
    return te.compute((n, length), lambda i, j: te.sum(lambda k: x[i, k], j), name="y")


def test_an_exclusive_sum_is_computed_in_the_steps_of_its_scan_forward_and_gradient():
    x, head = te.placeholder((40, 33), name="x"), te.placeholder((40, 33), name="h")
    y = exclusive(40, 33, x)
    for outputs, inputs in (([y], [x]), (list(te.gradient(y, [x], head)), [x, head])):
        program = simplified(program_of(outputs, inputs), host_target())
        assert [len(d.states) for d in program.definitions if isinstance(d, Scan)] == [2]
    given = np.random.default_rng(0).standard_normal((40, 33)).astype(np.float32)
    weights = np.random.default_rng(1).standard_normal((40, 33)).astype(np.float32)
    np.testing.assert_allclose(te.build(y, [x])(given), np.cumsum(given, 1) - given, rtol=1e-4, atol=1e-4)
    gradient = te.build(list(te.gradient(y, [x], head)), [x, head])(given, weights)[0]
    np.testing.assert_allclose(gradient, np.cumsum(weights[:, ::-1], 1)[:, ::-1] - weights, rtol=1e-4, atol=1e-4)


def test_exclusive_sums_of_open_sizes():
    n, length = te.dim("n"), te.dim("length")
    x = te.placeholder((n, length), name="x")
    head = te.placeholder((n, length), name="h")
    y = exclusive(n, length, x)
    run = te.build([y, *te.gradient(y, [x], head)], [x, head])
    for shape in ((0, 3), (3, 0), (1, 1), (7, 1), (33, 7), (300, 33)):
        given = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        forward, backward = run(given, given)
        np.testing.assert_allclose(forward, np.cumsum(given, 1) - given, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(backward, np.cumsum(given[:, ::-1], 1)[:, ::-1] - given, rtol=1e-4, atol=1e-4)


EARLY = """
X: f32[20, {columns}] = input()
zero[i]: f32[20] = 0.0
for t in range({steps}):
    h: f32[20] = state(zero)
    n[i]: f32[20] = h[i] + where(t >= 1, X[i, {term}], 0.0)
    S[t] = h = n
Y[i, j]: f32[20, {steps}] = {value}
return Y
"""


@pytest.mark.parametrize(
    ("columns", "steps", "term", "value", "found"),
    [
        (9, 9, "t - 1", "S[j, i]", True),  # an exclusive sum
        (9, 9, "9 - t", "S[8 - j, i] * 2.0", True),  # from behind
        (9, 9, "9 - t", "where(j < 8, X[i, j + 1] + where(j < 7, S[7 - j, i], 0.0), 0.0)", True),  # the state after, computed again
        (8, 9, "t - 1", "S[j, i]", False),  # the term of the last step does not exist
        (1, 1, "t - 1", "S[j, i]", True),
    ],
)
def test_terms_of_the_step_before_are_those_of_each_step_read_one_step_back(
    columns: int, steps: int, term: str, value: str, found: bool
) -> None:
    program = parse_program(EARLY.format(columns=columns, steps=steps, term=term, value=value))
    changed = with_states_before(program)
    verify(changed)
    x = np.random.default_rng(0).integers(-3, 4, (20, columns)).astype(np.float32)
    np.testing.assert_array_equal(evaluate_program(changed, {"X": x})["Y"], evaluate_program(program, {"X": x})["Y"])
    assert ("where(t >= 1" not in print_program(changed)) is found
