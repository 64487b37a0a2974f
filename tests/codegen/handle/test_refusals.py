"""What words of a schedule refuse, and what they say then."""

from __future__ import annotations

import pytest

from tensorexpr.codegen.handle import Schedule
from tensorexpr.errors import ScheduleError
from tensorexpr.parse import parse_program
from tests.codegen.programs import WIDE

CHAIN = """
X: f32[6, 6] = input()
P[i, j]: f32[6, 6] = X[i, j] * 2.0
Q[i, j]: f32[6, 6] = P[i, j] + 1.0
R[i, j]: f32[6, 6] = X[j, i] * 3.0
return Q, R
"""
SUMS = """
X: f32[6, 8] = input()
S: f32 = sum(X[0, k] for k in range(8)) + sum(X[1, k] * X[1, k] for k in range(8))
return S
"""
SCALARS = """
A: f32[()] = input()
B[()]: f32[()] = A[()] + 1.0
C[()]: f32[()] = A[()] * 2.0
return B, C
"""


def schedule(text: str) -> Schedule:
    return Schedule.plain(parse_program(text), WIDE)


@pytest.mark.parametrize("call", ["s['Q'].split(", "t['Q'].split('i', 8)", "s['Q'].split(loop='i')", "split", "s['Q'].split(i, 8)"])
def test_a_call_of_planners_is_one_of_a_schedule(call):
    with pytest.raises(ScheduleError) as caught:
        schedule(CHAIN).planned(call)
    assert str(caught.value).startswith(f"expected a call such as s['C'].split('i', 8), got {call!r}")


def test_the_form_is_chosen_first():
    s = schedule(CHAIN)
    s["Q"].split("i", 2)
    with pytest.raises(ScheduleError, match=r"expected simplify before all other calls, got s\['Q'\].split\('i', 2, 'peel'\) before"):
        s.simplify()
    with pytest.raises(ScheduleError, match=r"expected planned before all other calls, got s\['Q'\].split\('i', 2, 'peel'\) before"):
        s.planned()


def test_compute_at_a_loop_of_another():
    s = schedule(CHAIN)
    with pytest.raises(ScheduleError, match="expected a loop of R to compute Q in, got i_1"):
        s["Q"].compute_at("R", "i_1")  # what the nest calls the loop of Q
    assert s.calls == ()


def test_rfactor_of_a_loop_of_two_sums():
    s = schedule(SUMS)
    s.rewrite("merge", "k", "k_1")
    with pytest.raises(ScheduleError, match="expected a loop of one reduction to take apart, got k, which updates sum, sum_1"):
        s["S"].rfactor("k")


def test_definitions_without_loops_have_none_to_merge():
    s = schedule(SCALARS)
    with pytest.raises(ScheduleError, match="expected definitions with loops to merge, got one without"):
        s["C"].compute_with("B")
