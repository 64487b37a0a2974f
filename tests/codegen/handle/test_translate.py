"""What planners choose, in words of nests: the same values, the same calls again, and what has no translation."""

from __future__ import annotations

import pytest

from tensorexpr.codegen.handle import Schedule
from tensorexpr.codegen.handle.translate import in_words, simple_schedule, translated
from tensorexpr.codegen.schedule.auto import autoschedule
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.codegen.schedule.schedule import schedule as plain_planned
from tensorexpr.codegen.target import host_target
from tensorexpr.codegen.tuning.lookup import simplified
from tensorexpr.errors import ScheduleError
from tensorexpr.parse import parse_program
from tests.codegen.programs import MATMUL, SOFTMAX, WIDE
from tests.codegen.rewrites.law import UNITS, Kept, kept_of
from tests.seeds import share_of

COPIES = """
A: f32[96, 80] = input()
B: f32[80, 96] = input()
C[i, j]: f32[96, 96] = sum(A[i, k] * B[k, j] for k in range(80))
D[i, j]: f32[96, 96] = maximum(C[i, j], 0.0) * 2.0
S[i]: f32[96] = sum(D[i, j] for j in range(96))
return D, S
"""

SENT = """
V: f32[40] = input()
k: i64[40] = input()
Y: f32[9] = scatter({k[t]: V[t] for t in range(40)})
return Y
"""


def planned_of(kept: Kept) -> Planned:
    """The planners' schedule of a program in the form in which builds have it."""
    return autoschedule(simplified(kept.program, WIDE), WIDE)


def checked(kept: Kept, planned: Planned) -> Schedule | None:
    """The schedule in words, checked; None where there is none."""
    try:
        found = translated(planned, simple_schedule(planned))
    except ScheduleError:
        return None
    kept.check(found.nest, UNITS)
    again = Schedule.plain(kept.program, WIDE)
    exec(found.as_python(), {"s": again})
    assert again == found
    return found


@pytest.mark.parametrize("block", range(6))
def test_random_programs(block):
    count = 0
    for seed in share_of(range(block * 20, (block + 1) * 20)):
        kept = kept_of(seed, 200)
        if kept is not None and kept.program.definitions:
            count += checked(kept, planned_of(kept)) is not None
    assert count


@pytest.mark.parametrize("text", (MATMUL, SOFTMAX, COPIES), ids=("matmul", "softmax", "copies"))
def test_words_of_planners_are_rewrites(text):
    kept = Kept.of_text(text, exact=False)
    found = checked(kept, planned_of(kept))
    assert found is not None and "planned" not in found.as_python()


def test_definitions_that_a_planner_makes_are_found():
    kept = Kept.of_text(COPIES, exact=False)
    planned = plain_planned(kept.program, WIDE)
    made = planned["C"].stage("B", (1, 0))
    outer, _ = planned["C"].split("k", 16)
    (parts,) = planned["C"].rfactor(outer)
    planned[made].vectorize(planned[made].split(planned[made].loops[-1], 16)[1])
    planned[parts].parallel(planned[parts].loops[0])
    found = translated(planned, Schedule.plain(kept.program, WIDE))
    kept.check(found.nest, UNITS)


def test_what_has_no_rewrite_is_refused():
    program = parse_program(COPIES)
    planned = plain_planned(program, WIDE)
    planned["S"].clone("D")
    with pytest.raises(ScheduleError, match="expected a word that is a rewrite, got clone"):
        translated(planned, Schedule.plain(program, WIDE))
    sent = parse_program(SENT)
    planned = plain_planned(sent, WIDE)
    planned["Y"].sort()
    with pytest.raises(ScheduleError, match="expected a word that is a rewrite, got sort"):
        translated(planned, Schedule.plain(sent, WIDE))
    planned = plain_planned(program, WIDE)
    planned.recompute("C")
    with pytest.raises(ScheduleError, match="expected a word that is a rewrite, got recompute"):
        translated(planned, Schedule.plain(program, WIDE))


def test_loops_of_one_iteration_are_gone():
    kept = Kept.of_text(COPIES, exact=False)
    planned = plain_planned(kept.program, WIDE)
    planned["D"].compute_at("S", "i")
    planned["D"].reorder("j", "i")
    kept.check(translated(planned, Schedule.plain(kept.program, WIDE)).nest, UNITS)
    planned["D"].split("i", 2)
    with pytest.raises(ScheduleError, match="expected a loop of D to split, got i, which has a single iteration"):
        translated(planned, Schedule.plain(kept.program, WIDE))


def test_sums_are_inlined_near_one_reader():
    kept = Kept.of_text(COPIES.replace("return D, S", "return D"), exact=False)
    planned = plain_planned(kept.program, WIDE)
    planned.inline("C")
    kept.check(translated(planned, Schedule.plain(kept.program, WIDE)).nest, UNITS)
    two = parse_program(COPIES.replace("sum(D[i, j]", "sum(C[i, j]"))
    planned = plain_planned(two, WIDE)
    planned.inline("C")
    with pytest.raises(ScheduleError, match="expected one reader of C, with loops, to compute it in, got D, S"):
        translated(planned, Schedule.plain(two, WIDE))


def test_long_schedules_keep_their_planners():
    program = parse_program(COPIES)
    planned = plain_planned(program, host_target())
    for _ in range(21):
        planned["D"].split(planned["D"].loops[0], 1)
        planned["C"].split(planned["C"].loops[0], 1)
    with pytest.raises(ScheduleError, match="expected at most 32 calls, and 80 statements, to translate a schedule, got more"):
        translated(planned, Schedule.plain(program, host_target()))
    assert in_words(planned) is None
