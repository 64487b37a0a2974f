"""Every legal schedule of a random program gives what the program means, as exactly as rounding lets it."""

import random
from contextlib import suppress
from dataclasses import replace

import pytest

from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import Planned, schedule
from tensorexpr.errors import OutOfBoundsError
from tests.codegen.programs import WIDE, outputs
from tests.random_programs import assert_agrees, meaning, random_inputs, random_program, random_sizes
from tests.random_programs.schedules import shuffled
from tests.seeds import share_of


def assert_same_meaning(s: Planned, seed: int) -> None:
    program = s.program
    sizes = random_sizes(program, seed)
    inputs = random_inputs(program, seed, sizes=sizes)
    nest = lower(s)
    want = meaning(program, inputs, sizes)
    if want is None:  # no index is met where nothing is computed that depends on it
        with suppress(OutOfBoundsError):
            outputs(nest, program, inputs, sizes)
        return
    assert_agrees(program, outputs(nest, program, inputs, sizes), want, f"{seed}:\n{s.as_python()}")


@pytest.mark.parametrize("block", range(6))
def test_plain_schedules(block):
    for seed in share_of(range(block * 60, (block + 1) * 60)):
        assert_same_meaning(schedule(random_program(seed), WIDE), seed)


@pytest.mark.parametrize("block", range(6))
def test_default_schedules(block):
    for seed in share_of(range(block * 60, (block + 1) * 60)):
        assert_same_meaning(autoschedule(random_program(seed), WIDE), seed)


@pytest.mark.parametrize("block", range(6))
def test_random_schedules(block):
    for seed in share_of(range(block * 60, (block + 1) * 60)):
        assert_same_meaning(shuffled(schedule(random_program(seed), WIDE), random.Random(seed)), seed)


def test_random_schedules_of_a_gpu():
    for seed in share_of(range(60)):
        assert_same_meaning(shuffled(schedule(random_program(seed), replace(WIDE, kind="cuda")), random.Random(seed), 15), seed)


def test_default_schedules_that_were_shuffled_further():
    for seed in share_of(range(60)):
        assert_same_meaning(shuffled(autoschedule(random_program(seed), WIDE), random.Random(seed)), seed)


def test_python_text_rebuilds_a_schedule():
    for seed in share_of(range(60)):
        program = random_program(seed)
        s = shuffled(autoschedule(program, WIDE), random.Random(seed))
        again = schedule(program, WIDE)
        exec(s.as_python(), {"s": again})
        assert again == s and str(again) == str(s)
        assert hash(again) == hash(s)
