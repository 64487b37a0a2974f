"""The primitive `stage`, and where the default schedule uses it."""

import numpy as np
import pytest

from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import schedule
from tensorexpr.errors import ScheduleError
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tests.codegen.programs import WIDE, assert_means
from tests.random_programs import random_inputs

ACROSS = """
A: f32[6, 5] = input()
B: f32[7, 5] = input()
C[i, j]: f32[6, 7] = sum(A[i, k] * B[j, k] for k in range(5))
D[i, j]: f32[6, 7] = C[i, j] + B[j, 0]
return D
"""
WEIGHTS = """
y: f32[8, 56, 56, 64] = input()
w: f32[3, 64, 64] = input()
x[n, p, q, c]: f32[8, 56, 56, 64] = sum(
    y[n, p, q - j + 1, k] * w[j, c, k] for j in range(maximum(q - 54, 0), minimum(q + 2, 3)) for k in range(64)
)
return x
"""
CHECKED = """
A: f32[6, 5] = input()
ids: i64[4] = input()
C[i]: f32[4] = sum(A[ids[i], k] for k in range(5))
return C
"""
STEPS = """
X: f32[5, 4] = input()
h0: f32[4] = input()
for t in range(5):
    h: f32[4] = state(h0)
    g[i]: f32[4] = h[i] + X[t, i]
    H[t] = h = g
return H
"""


def test_a_copy_is_read_in_place_of_the_tensor():
    s = schedule(parse_program(ACROSS), WIDE)
    assert s["C"].stage("B", (1, 0)) == "B_staged"
    assert s.stages == ("B_staged", "C", "D")
    assert "C[i, j]: f32[6, 7] = sum(A[i, k] * B_staged[k, j] for k in range(5))" in str(s.state.program)
    assert "B_staged[a1, a0]: f32[5, 7] = B[a0, a1]" in str(s.state.program) and "C[i, j] + B[j, 0]" in str(s.state.program)
    s["B_staged"].reorder("a0", "a1")
    s["C"].split("j", 4)
    s["C"].vectorize("j_i")
    assert_means(s)


def test_values_are_the_same_bits():
    program = parse_program(ACROSS)
    inputs = random_inputs(program, 3, exact=False)
    s = schedule(program, WIDE)
    s["C"].stage("B", (1, 0))
    (want,) = evaluate_program(program, inputs, {}).values()
    (found,) = evaluate_program(s.state.program, inputs, {}).values()
    assert np.array_equal(want, found)


def test_a_copy_may_be_computed_in_the_loops_of_its_reader():
    s = schedule(parse_program(ACROSS), WIDE)
    s["C"].stage("B", (1, 0))
    s["C"].reorder("j", "i", "k")
    s["B_staged"].compute_at("C", "j")
    assert "local(f32[5])" in str(assert_means(s))


def test_two_copies_have_names_of_their_own_and_python_rebuilds_them():
    program = parse_program(ACROSS)
    s = schedule(program, WIDE)
    s["C"].stage("B", (1, 0))
    assert s["D"].stage("B", (1, 0)) == "B_staged_1"
    s["C"].stage("B_staged", (0, 1))
    again = schedule(program, WIDE)
    exec(s.as_python(), {"s": again})
    assert again == s and str(again) == str(s)
    assert_means(s)


def test_blocks_lie_innermost_and_are_filled_up():
    program = parse_program(ACROSS)
    s = schedule(program, WIDE)
    s["C"].stage("B", ((0, 4), 1))
    text = str(s.state.program)
    assert "B_staged[a0_o, a1, a0_i]: f32[2, 5, 4] = where(a0_o * 4 + a0_i < 7, B[a0_o * 4 + a0_i, a1], 0.0)" in text
    assert "A[i, k] * B_staged[j // 4, k, j % 4]" in text
    s["C"].split("j", 4, "guard")
    s["C"].reorder("j_o", "i", "k", "j_i")
    s["C"].vectorize("j_i")
    text = str(assert_means(s))  # the last block, of three, is one by itself
    assert "B_staged[0, k, j_i]" in text and "B_staged[1, k, j_i]" in text
    again = schedule(program, WIDE)
    exec(s.as_python(), {"s": again})
    assert again == s


@pytest.mark.parametrize("layout", [((0, 3), (1, 2)), ((1, 2), 0), (1, (0, 1)), ((0, 7), 1), ((1, 8), 0)])
def test_any_blocks_give_the_same_values(layout):
    s = schedule(parse_program(ACROSS), WIDE)
    s["C"].stage("B", layout)
    assert_means(s)


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (ACROSS, "s['C'].stage('D', (1, 0))", "expected a tensor that C reads to stage, got 'D'"),
        (ACROSS, "s['C'].stage('B', (1, 1))", "expected each axis of B once, 0 to 1, got (1, 1)"),
        (ACROSS, "s['C'].stage('B', ((1, 0), 0))", "expected blocks of at least one element, got ((1, 0), 0)"),
        (ACROSS, "s['C'].split('i', 2); s['C'].stage('B', (1, 0))", "expected plain loops of C, which reads B, got changed ones"),
        (CHECKED, "s['C'].stage('A', (1, 0))", "expected reads of A that are known to be in bounds, got one that is checked as it runs"),
        (STEPS, "s['g'].stage('X', (1, 0))", "expected a plain definition outside of scans to stage a tensor for, got g"),
    ],
)
def test_what_is_refused(text, code, message):
    s = schedule(parse_program(text), WIDE)
    with pytest.raises(ScheduleError) as caught:
        exec(code, {"s": s})
    assert message in str(caught.value)


def test_an_axis_that_one_block_holds_is_read_without_division():
    s = schedule(parse_program(ACROSS), WIDE)
    copy = s["C"].stage("B", (1, (0, 8)))
    assert f"A[i, k] * {copy}[k, 0, j]" in str(s.state.program)


def test_weights_that_lie_across_the_lanes_are_staged_by_default():
    lines = autoschedule(parse_program(WEIGHTS), WIDE).as_python()
    assert "s['x'].stage('w', ((1, " in lines and "s['x'].vectorize('c" in lines


def test_an_operand_that_is_read_a_few_times_is_not():
    assert "stage" not in autoschedule(parse_program(ACROSS), WIDE).as_python()
