"""The primitive `slide`: windows of which an iteration computes what is new, and what it refuses."""

import random
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from tensorexpr.codegen.compile import build
from tensorexpr.codegen.schedule import schedule
from tensorexpr.errors import ScheduleError
from tensorexpr.parse import parse_program
from tests.codegen.programs import WIDE, assert_means, plain, visits
from tests.codegen.schedule.test_laws import assert_same_meaning
from tests.random_programs import random_inputs
from tests.random_programs.schedules import shuffled
from tests.seeds import share_of

BLUR = """
X: f32[15, 10] = input()
P[i, j]: f32[15, 8] = X[i, j] + X[i, j + 1] + X[i, j + 2]
C[i, j]: f32[13, 8] = P[i, j] + P[i + 1, j] + P[i + 2, j]
return C
"""
CLAMPED = """
X: f32[13, 8] = input()
P[i, j]: f32[13, 8] = X[i, j] * X[i, 7 - j]
C[i, j]: f32[13, 8] = sum(P[minimum(maximum(i + u - 2, 0), 12), minimum(maximum(j + v - 2, 0), 7)] for u in range(5) for v in range(5))
return C
"""
THREE = """
X: f32[19, 6] = input()
P[i, j]: f32[19, 6] = X[i, j] * 2.0
Q[i, j]: f32[17, 6] = P[i, j] + P[i + 1, j] * P[i + 2, j]
C[i, j]: f32[13, 6] = Q[i, j] + Q[i + 4, 5 - j] + P[i + 3, j]
return C
"""
POOLED = """
X: f32[29, 8] = input()
W: f32[8, 8] = input()
P[i, j]: f32[29, 8] = sum(X[i, k] * W[k, j] for k in range(8))
C[i, j]: f32[14, 4] = max(P[2 * i + u, 2 * j + v] for u in range(3) for v in range(2))
return C
"""
SIZES = """
sizes(n)
X: f32[9, 8] = input()
P[i, k]: f32[9, 8] = X[i, k] * 2.0
C[i]: f32[n] = sum(P[minimum(i + u, 8), k] for u in range(3) for k in range(8))
return C
"""


def placed(text: str = BLUR, loop: str = "i", code: str = ""):
    s = plain(text)
    exec(code, {"s": s})
    for name in ("Q", "P"):
        if name in s.stages:
            s[name].compute_at("C", loop)
    return s


def slid(text: str = BLUR, loop: str = "i", code: str = ""):
    s = placed(text, loop, code)
    for name in ("P", "Q"):
        if name in s.stages:
            s[name].slide()
    return s


def test_each_row_is_computed_once():
    s = slid()
    text = str(assert_means(s))
    assert "P_1: local(f32[3, 8])" in text
    assert "for i in range(0, 2):" in text and "P_1[(i + 2) % 3, j] = X[i + 2, j] + X[i + 2, j + 1] + X[i + 2, j + 2]" in text
    assert "P_1[i % 3, j] + P_1[(i + 1) % 3, j] + P_1[(i + 2) % 3, j]" in text


@pytest.mark.parametrize("text", [BLUR, CLAMPED, THREE, POOLED])
def test_the_same_bits_and_less_work(text):
    again, s = placed(text), slid(text)
    inputs = random_inputs(s.program, 1)
    work = [sum(visits(assert_means(x, exact=False), inputs).values()) for x in (again, s)]
    assert work[1] < work[0]
    found = [build(x)(*inputs.values())[0] for x in (plain(text), again, s)]
    assert all(np.array_equal(f.view(np.int32), found[0].view(np.int32)) for f in found)


def test_a_chain_slides_stage_by_stage():
    text = str(assert_means(slid(THREE)))
    assert "P_1: local(f32[7, 6])" in text and "Q_1: local(f32[5, 6])" in text
    assert "Q_1[(i + 4) % 5, j] = P_1[(i + 4) % 7, j] + P_1[(i + 5) % 7, j] * P_1[(i + 6) % 7, j]" in text


def test_a_stage_slides_while_what_reads_it_does_not():
    s = placed(THREE)
    s["P"].slide()
    assert_means(s)


@pytest.mark.parametrize("tail", ["peel", "shift"])
def test_blocks_of_rows_and_their_rest(tail):
    assert_means(slid(loop="i_o", code=f"s['C'].split('i', 2, {tail!r})"))
    assert_means(slid(CLAMPED, "i_i", code=f"s['C'].split('i', 5, {tail!r}); s['C'].parallel('i_o')"))


def test_the_rest_of_a_parallel_loop_runs_in_order():
    s = slid(loop="i_i", code="s['C'].split('i', 5); s['C'].parallel('i_o')")
    text = str(assert_means(s))
    assert text.count("parallel(") == 1 and "P_2[i_i, j] = X[i_i + 12, j]" in text and "for i_i in range(0, 3)" in text


def test_a_tile_of_columns_with_lanes_in_workspace():
    s = plain(CLAMPED.replace("8]", "4096]").replace("i, 7 - j", "i, j").replace("j + v - 2, 0), 7)", "j + v - 2, 0), 4095)"))
    s["C"].split("j", 2048)
    s["C"].reorder("j_o", "i", "u", "v", "j_i")
    s["C"].parallel("j_o")
    s["P"].compute_at("C", "i")
    s["P"].slide()
    s["P"].split("j", 16)
    s["P"].vectorize("j_i")
    s["C"].split("j_i", 16)
    s["C"].reorder("i", "j_i_o", "u", "v", "j_i_i")
    s["C"].vectorize("j_i_i")
    assert "P_1: workspace(f32[2, 5, 2052])" in str(s)
    (x,) = random_inputs(s.program, 0).values()
    assert np.array_equal(build(s)(x), build(plain(str(s.program)))(x))


def test_a_size_that_is_known_only_at_run_time():
    for n in (0, 1, 7, 12):
        s = placed(SIZES)
        s["P"].slide()
        assert_means(s, n=n)


def test_python_text_rebuilds_it():
    s = slid(THREE)
    again = schedule(parse_program(THREE), WIDE)
    exec(s.as_python(), {"s": again})
    assert again == s and str(again) == str(s) != str(placed(THREE))


def test_another_place_starts_anew():
    s = slid()
    s["P"].compute_at("C", "i")
    assert s == placed()


REVERSED = BLUR.replace("P[i, j] + P[i + 1, j] + P[i + 2, j]", "P[14 - i, j] + P[13 - i, j] + P[12 - i, j]")
FAR = POOLED.replace("u in range(3)", "u in range(2)")
DIAGONAL = """
X: f32[9, 9] = input()
P[i, j]: f32[9, 9] = X[i, j] * 2.0
C[i]: f32[8] = P[i, i] + P[i + 1, i + 1]
return C
"""
SUMMED = """
X: f32[9, 8] = input()
P[i, k]: f32[9, 8] = X[i, k] * 2.0
C[i, j]: f32[8, 3] = sum(P[i, k] * P[i + 1, 7 - k] for k in range(8))
return C
"""
KEPT = """
X: f32[9, 8] = input()
P[i, j]: f32[9, 8] = X[i, j] * 2.0
C[i, j]: f32[9, 8] = P[i, j] + P[i, 7 - j]
return C, P
"""


@pytest.mark.parametrize(
    ("s", "code", "message"),
    [
        (plain(BLUR), "s['P'].slide()", "expected a definition computed in a loop of another to slide, got P"),
        (placed(), "s['C'].parallel('i'); s['P'].slide()", "expected a serial loop for P to slide in, got i, marked parallel"),
        (slid(), "s['C'].parallel('i')", "expected a serial loop for P to slide in, got i, marked parallel"),
        (placed(), "s['C'].pipeline('i'); s['P'].slide()", "expected a loop that is not pipelined for P to slide in, got i"),
        (slid(), "s['C'].pipeline('i')", "expected a loop in which nothing slides to pipeline, got i, in which P does"),
        (placed(loop="i_o", code="s['C'].split('i', 2, 'guard')"), "s['P'].slide()",
         "expected a loop that runs in whole blocks for P to slide in, got i_o of a split of i"),
        (placed(KEPT), "s['P'].slide()",
         "expected values that are kept for one iteration to slide, got P, which is kept whole"),
        (placed(THREE), "s['Q'].slide()", "expected what Q reads in the same loop to slide before it, got P"),
        (placed(SUMMED, "j", "s['C'].reorder('j', 'i', 'k')"), "s['P'].slide()",
         "expected a window of P that moves with j, got one that stays"),
        (placed(REVERSED), "s['P'].slide()",
         "expected one window of P that each iteration moves on by less than its length, got 3 along i, moved by -1"),
        (placed(FAR), "s['P'].slide()", "moves on by less than its length, got 2 along i, moved by 2"),
        (placed(DIAGONAL), "s['P'].slide()", "moves on by less than its length, got 2 axes that move: i, j"),
        (placed(SUMMED, "i_j", "s['C'].reorder('i', 'j', 'k'); s['C'].fuse('i', 'j')"), "s['P'].slide()",
         "by less than its length, got one along i that moves unevenly"),
        (schedule(parse_program(BLUR), replace(WIDE, kind="cuda")), "s['P'].compute_at('C', 'i'); s['P'].slide()",
         "expected a CPU as the target for P to slide, got a GPU"),
        (placed(POOLED), "s['P'].reorder('k', 'i', 'j'); s['P'].slide()",
         "expected the rows of P outside of the reduction over k to slide, got i"),
    ],
)  # fmt: skip
def test_what_is_refused(s, code, message):
    with pytest.raises(ScheduleError) as caught:
        exec(code, {"s": s})
    assert message in str(caught.value)


PROGRAMS = (BLUR, CLAMPED, THREE, POOLED)


@pytest.mark.parametrize("seed", share_of(range(60)))
def test_windows_in_random_schedules(seed):
    rng = random.Random(seed)
    s = shuffled(plain(PROGRAMS[seed % 4]), rng, 4)
    for name in reversed(s.stages):
        with suppress(ScheduleError):
            s[name].compute_at("C", rng.choice(s["C"].loops))
    for name in s.stages:
        with suppress(ScheduleError):
            s[name].slide()
    assert_same_meaning(shuffled(s, rng, 4), seed)
