"""The primitive `pipeline`: what is computed ahead, and what it refuses."""

import random
from contextlib import suppress

import pytest

from tensorexpr.codegen.schedule import schedule
from tensorexpr.errors import ScheduleError
from tensorexpr.parse import parse_program
from tests.codegen.programs import WIDE, assert_means, plain
from tests.codegen.schedule.test_laws import assert_same_meaning
from tests.random_programs import random_program
from tests.random_programs.schedules import shuffled
from tests.seeds import share_of

ROWS = """
X: f32[13, 8] = input()
B: f32[8, 6] = input()
P[i, k]: f32[13, 8] = X[i, k] * 2.0
Q[i, k]: f32[13, 8] = P[i, k] + P[i, 0]
C[i, j]: f32[13, 6] = sum(Q[i, k] * B[k, j] for k in range(8)) + P[i, j]
return C
"""
SIZES = """
sizes(n)
X: f32[n, 8] = input()
P[i, k]: f32[n, 8] = X[i, k] * 2.0
C[i]: f32[n] = sum(P[i, k] * P[i, 7 - k] for k in range(8))
return C
"""
OPEN_COLUMNS = """
sizes(n)
X: u8[n] = input()
K: i64[n, n] = input()
P[i, k]: u8[n, n] = X[k]
C[i, j]: u8[n, n] = P[K[j, i], i]
return C
"""
WIDE_ROWS = ROWS.replace("8", "8000").replace("13", "3")


def placed(text: str = ROWS, loop: str = "i", code: str = ""):
    s = plain(text)
    exec(code, {"s": s})
    for name in ("Q", "P"):
        if name in s.stages:
            s[name].compute_at("C", loop)
    return s


@pytest.mark.parametrize("stages", [2, 3, 8])
def test_values_of_later_iterations_are_computed_first(stages):
    s = placed()
    s["C"].pipeline("i", stages)
    text = str(assert_means(s))
    assert f"P_1: local(f32[{stages}, 8])" in text
    assert f"if i + {stages - 1} < 13:" in text and f"P_1[i % {stages}, j]" in text
    assert f"Q_1[(i + {stages - 1}) % {stages}, k] = P_1[(i + {stages - 1}) % {stages}, k]" in text


def test_more_stages_than_iterations():
    s = placed(ROWS.replace("13", "3"))
    s["C"].pipeline("i", 8)
    assert_means(s)


def test_a_size_that_is_known_only_at_run_time():
    for n in (0, 1, 2, 7):
        s = placed(SIZES)
        s["C"].pipeline("i")
        assert_means(s, n=n)


@pytest.mark.parametrize("tail", ["peel", "shift", "stride"])
def test_blocks_and_their_rest(tail):
    s = placed(loop="i_o", code=f"s['C'].split('i', 4, {tail!r})")
    s["C"].pipeline("i_o")
    assert_means(s)


def test_inside_of_a_parallel_loop_and_with_lanes():
    s = placed(loop="i_i", code="s['C'].split('i', 5)")
    s["C"].parallel("i_o")
    s["C"].pipeline("i_i")
    s["P"].vectorize("k")
    s["C"].vectorize("j")
    assert_means(s)


def test_python_text_rebuilds_it():
    s = placed()
    s["C"].pipeline("i", 2)
    s["C"].pipeline("i", 3)
    again = schedule(parse_program(ROWS), WIDE)
    exec(s.as_python(), {"s": again})
    assert again == s and str(again) == str(s) and again["C"]._stage.ahead == (("i", 3),)


@pytest.mark.parametrize(
    ("s", "code", "message"),
    [
        (placed(), "s['C'].pipeline('q')", "expected a loop of C to pipeline, got 'q'"),
        (placed(), "s['C'].pipeline('i', 1)", "expected 2 to 8 stages, got 1"),
        (placed(), "s['C'].pipeline('j')", "expected a loop in which something is computed to pipeline, got j"),
        (placed(), "s['C'].parallel('i'); s['C'].pipeline('i')", "expected a serial loop to pipeline, got i, marked parallel"),
        (placed(), "s['C'].pipeline('i'); s['C'].parallel('i')", "expected a serial loop to pipeline, got i, marked parallel"),
        (placed(loop="i_o", code="s['C'].split('i', 5, 'guard')"), "s['C'].pipeline('i_o')",
         "expected a loop that runs in whole blocks to pipeline, got i_o of a split of i"),
        (placed(ROWS.replace("return C", "return C, P, Q")), "s['C'].pipeline('i')",
         "expected values that are kept for one iteration to compute ahead, got P, which is kept whole"),
        (placed(OPEN_COLUMNS), "s['C'].pipeline('i', 3)", "expected a constant number of values to compute ahead, got n of P"),
        (placed(WIDE_ROWS), "s['C'].pipeline('i', 3)", "expected at most 65536 bytes for 3 stages of P, got 96000"),
    ],
)  # fmt: skip
def test_what_is_refused(s, code, message):
    with pytest.raises(ScheduleError) as caught:
        exec(code, {"s": s})
    assert message in str(caught.value)


def test_a_pipelined_loop_stays_a_loop():
    s = plain(SIZES)
    s["P"].compute_at("C", "i")
    s["C"].pipeline("i")
    before = s.copy()
    for refused in (lambda: s["C"].split("i", 2), lambda: s["C"].vectorize("i")):
        with pytest.raises(ScheduleError):
            refused()
        assert s == before


def test_random_programs_with_all_that_can_be_computed_ahead():
    found = 0
    for seed in share_of(range(120)):
        rng = random.Random(seed)
        s = schedule(random_program(seed), WIDE)
        for name in reversed(s.stages):
            for consumer in s.stages:
                with suppress(ScheduleError):
                    s[name].compute_at(consumer, rng.choice(s[consumer].loops or ("none",)))
                    s[consumer].pipeline(s.state.stage(name).place.loop, rng.randint(2, 3))
                    found += 1
        assert_same_meaning(shuffled(s, rng, 4), seed)
    assert found > 1
