"""The bench: what it builds, what it checks, what it turns away before it builds anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import Planned
from tensorexpr.codegen.schedule.decisions import Choices
from tensorexpr.codegen.target import host_target
from tensorexpr.codegen.tuning.search import FAILED, OK, OTHER_BITS, SAME, SLOW
from tensorexpr.codegen.tuning.timing import Job, Timing, build_function, least_indexed, made_up
from tensorexpr.errors import OutOfBoundsError, ScheduleError
from tensorexpr.parse import parse_program
from tests.codegen.programs import MATMUL, WIDE

PICK = "table: f32[9] = input()\nids: i64[20] = input()\nY[i]: f32[20] = table[ids[i]] * 2.0\nreturn Y"
LOGS = "X: f32[64] = input()\nL[i]: f32[64] = log(X[i])\nreturn L"


class Ticks:
    """A clock that a function of a schedule moves on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def bench(
    text: str,
    change: Callable[[Planned, np.ndarray], None] | None = None,
    seconds: Callable[[Planned], float] = lambda s: 1.0,
    **job: Any,
) -> Timing:
    """A bench whose calls take the seconds that a function of the schedule says, and whose results something may change."""
    ticks = Ticks()

    def make(schedule: Planned) -> Callable[..., Any]:
        function = build_function(schedule)

        def run(*inputs: np.ndarray, out: tuple[np.ndarray, ...]) -> None:
            function(*inputs, out=out)
            ticks.now += seconds(schedule)
            if change is not None:
                change(schedule, out[0])

        return run

    return Timing(Job(parse_program(text), host_target(), {}, **job), ticks, make)


def in_fours(schedule: Planned) -> bool:
    return "split('i', 4" in schedule.as_python()


FOURS = Choices({"C: tile": "4 i, 3 x 16 j"})


def test_a_trial_is_built_checked_and_timed():
    b = bench(MATMUL, seconds=lambda s: 0.5 if in_fours(s) else 1.0)
    first, second = b.trial(Choices(), float("inf")), b.trial(FOURS, 3.0)
    assert (first.outcome, first.seconds) == (OK, 1.0) and (second.outcome, second.seconds) == (OK, 0.5)
    assert "s['C'].split('i', 4" in second.schedule and dict(first.shares) == {"C": 1.0}
    assert "C: tile" in {d.name for d in first.decisions}
    assert b.rounds((Choices(), FOURS), 3) == [(1.0, 0.5)] * 3


def test_short_calls_are_timed_several_at_once():
    b = bench(MATMUL, seconds=lambda s: 1e-6)
    assert b.trial(Choices(), float("inf")).seconds == pytest.approx(1e-6)
    assert b.rounds((Choices(),), 2) == [(pytest.approx(1e-6),)] * 2


def test_results_are_compared_bit_by_bit():
    def change(schedule: Planned, out: np.ndarray) -> None:
        if in_fours(schedule):
            out[0, 0] = np.nextafter(out[0, 0], np.float32(2e9))

    b = bench(MATMUL, change)
    assert b.trial(Choices(), float("inf")).outcome == OK
    found = b.trial(FOURS, 9.0)
    assert (found.outcome, found.reason) == (OTHER_BITS, "C differs")


def test_an_element_that_is_not_written_differs():
    def change(schedule: Planned, out: np.ndarray) -> None:
        if in_fours(schedule):
            out.reshape(-1).view(np.uint8)[-4:] = 0xA5

    b = bench(MATMUL, change)
    b.trial(Choices(), float("inf"))
    assert b.trial(FOURS, 9.0).outcome == OTHER_BITS


@pytest.mark.parametrize(("by", "outcome"), [(1e-6, OK), (0.5, OTHER_BITS), (np.nan, OTHER_BITS), (np.inf, OTHER_BITS)])
def test_with_leave_to_reassociate_results_are_close(by, outcome):
    def change(schedule: Planned, out: np.ndarray) -> None:
        if in_fours(schedule):
            out[3, 3] += np.float32(by)

    b = bench(MATMUL, change, reassociate=True)
    b.trial(Choices(), float("inf"))
    assert b.trial(FOURS, 9.0).outcome == outcome


def test_sums_in_another_order_are_turned_away_before_they_are_built():
    built: list[Planned] = []
    lanes = Choices({"C: lanes along": "k"})
    long = MATMUL.replace("8]", "64]").replace("f32[8,", "f32[64,").replace("range(8)", "range(64)")
    b = bench(long, seconds=lambda s: built.append(s) or 1.0)
    b.trial(Choices(), float("inf"))
    ran = len(built)
    found = b.trial(lanes, 9.0)
    assert (found.outcome, found.reason) == (OTHER_BITS, "sums in another order") and len(built) == ran
    allowed = bench(MATMUL, reassociate=True)
    allowed.trial(Choices(), float("inf"))
    assert allowed.trial(lanes, 9.0).outcome == OK


def test_any_nan_equals_any():
    def change(schedule: Planned, out: np.ndarray) -> None:
        out[np.isnan(out)] = -np.nan if schedule.decisions.choices else np.nan

    b = bench(LOGS, change)
    assert b.trial(Choices(), float("inf")).outcome == OK
    assert b.trial(Choices({"L: tile": "32 i"}), 9.0).outcome == OK


def test_equal_schedules_are_not_measured_twice():
    b = bench(MATMUL)
    first = b.trial(Choices(), float("inf"))
    again = b.trial(Choices({"C: tile": first.decisions[1].options[0], "C: parallel": "no such word"}), 9.0)
    assert (again.outcome, again.seconds) == (SAME, first.seconds)


def test_what_is_far_too_slow_is_called_once():
    calls: list[bool] = []
    b = bench(MATMUL, seconds=lambda s: calls.append(in_fours(s)) or (9.0 if in_fours(s) else 1.0))
    b.trial(Choices(), float("inf"))
    assert b.trial(FOURS, 3.0).outcome == SLOW
    assert sum(calls) == 3  # two that are checked, one that is timed


def test_what_cannot_be_built_has_failed():
    def make(schedule: Planned) -> Any:
        if in_fours(schedule):
            raise ScheduleError("expected something else, got this")
        return build_function(schedule)

    b = Timing(Job(parse_program(MATMUL), host_target(), {}), make=make)
    assert b.trial(Choices(), float("inf")).outcome == OK
    found = b.trial(FOURS, 9.0)
    assert (found.outcome, found.reason) == (FAILED, "ScheduleError: expected something else, got this")


def test_made_up_values_are_in_bounds_and_arrays_that_are_given_are_used():
    program = parse_program(PICK)
    assert least_indexed(program, {}) == 9
    table, ids = made_up(program, {}, 0, -1.0)
    assert ids.dtype == np.int64 and ids.min() >= 0 and ids.max() < 9 and table.min() < 0
    assert bench(PICK).trial(Choices(), float("inf")).outcome == OK
    scaled = parse_program("X: f32[4] = input()\na: f32 = input()\nY[i]: f32[4] = X[i] * a[()]\nreturn Y")
    assert [x.shape for x in made_up(scaled, {}, 0, -1.0)] == [(4,), ()]
    wrong = (table, np.full(20, 9))
    with pytest.raises(OutOfBoundsError):
        bench(PICK, arrays=wrong).trial(Choices(), float("inf"))


def test_open_extents_have_the_sizes_of_the_job():
    text = "sizes(n)\nX: f32[n, 3] = input()\nS[i]: f32[n] = sum(X[i, k] for k in range(3))\nreturn S"
    b = Timing(Job(parse_program(text), host_target(), {"n": 33}))
    assert b.trial(Choices(), float("inf")).outcome == OK


def test_a_job_is_for_any_target():
    """Nothing here asks what the machine is: schedules for another one are made as well."""
    found = Timing(Job(parse_program(MATMUL), WIDE, {}), make=build_function).trial(Choices(), float("inf"))
    assert found.schedule == autoschedule(parse_program(MATMUL), WIDE).as_python()


def test_results_begin_at_a_line_and_hold_what_no_result_is():
    for dtype in ("f32", "bf16", "bool", "i8"):
        (made,) = bench(f"X: {dtype}[3, 5] = input()\nY[i, j]: {dtype}[3, 5] = X[i, j]\nreturn Y")._unwritten()
        assert made.shape == (3, 5) and made.ctypes.data % 64 == 0 and made.flags.c_contiguous and set(made.tobytes()) == {0xA5}
