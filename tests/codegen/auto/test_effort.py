"""What a search may do is counted: it ends where that is spent, and what it found before does not depend on the limit."""

import pytest

from tensorexpr.codegen.auto.candidate import Spent, effort, plain, spend
from tensorexpr.codegen.auto.machine import ZEN_4
from tensorexpr.codegen.auto.search import contest, searched
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest.text import print_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.target import host_target
from tensorexpr.parse import parse_program

SUMS = """
A: f32[4096, 4000] = input()
B[j]: f32[4000] = sum(A[i, j] * A[i, j] for i in range(4096))
return B
"""


def test_a_search_ends_where_its_effort_is_spent():
    program = parse_program(SUMS)
    with effort(1e6) as left:
        found = searched(program, ZEN_4)
    used = 1e6 - left[0]
    assert used > 10
    with pytest.raises(Spent), effort(used - 1):
        searched(program, ZEN_4)
    with effort(used):
        assert print_nest(searched(program, ZEN_4).nest) == print_nest(found.nest)


def test_nothing_is_counted_where_nobody_asks():
    spend(1e12)
    with effort(1.0):
        spend(1.0)
    spend(1e12)


def test_the_planners_nest_is_built_where_a_search_would_take_too_long(monkeypatch):
    program = parse_program(SUMS)
    planned = lower(autoschedule(program, host_target()))
    monkeypatch.setattr(contest, "MARGIN", 0.0)
    monkeypatch.setattr(contest, "CLOSE", 0.0)
    assert contest.faster(program, planned, lambda program: planned) is not None
    monkeypatch.setattr(contest, "MOST_SECONDS", 1e-3)
    monkeypatch.setattr(contest, "FEW_SECONDS", 1e-3)
    assert contest.faster(program, planned, lambda program: planned) is None
    monkeypatch.setattr(contest, "A_PAIR", 0.0)
    assert contest.faster(program, planned, lambda program: planned) is None


def test_a_search_over_long_kernels_near_the_least_is_not_begun(monkeypatch):
    program = parse_program(SUMS)
    planned = lower(autoschedule(program, host_target()))
    monkeypatch.setattr(contest, "MARGIN", 0.0)
    monkeypatch.setattr(contest, "CLOSE", 0.0)
    monkeypatch.setattr(contest, "IN_A_KERNEL", 1e6)
    monkeypatch.setattr(contest, "searched", lambda program, facts: pytest.fail("a search was begun"))
    assert contest.faster(program, planned, lambda program: planned) is None


def test_kernels_that_a_rewrite_leaves_alone_take_no_effort():
    def taken(copies: int) -> float:
        more = "".join(f"C{k}[i]: f32[4096] = A[i, {k}] * 2.0\n" for k in range(copies))
        names = ", ".join(f"C{k}" for k in range(copies))
        start = plain(parse_program(SUMS.replace("return B", f"{more}return B, {names}")))
        with effort(1e6) as left:
            start.then("split", "j", 16)
        return 1e6 - left[0]

    assert taken(9) - taken(1) == 8  # looking at a kernel is a unit
