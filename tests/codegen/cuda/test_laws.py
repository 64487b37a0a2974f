"""Random programs under random schedules and under the default one, as CUDA text on the CPU: what the program means."""

import random
from contextlib import suppress

import pytest

from tensorexpr import ir
from tensorexpr.codegen.auto.search.memory import lowered as lower
from tensorexpr.codegen.cuda.emitter.nest import emit
from tensorexpr.codegen.nest import GRID, THREADS, LoopNest
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import Planned, schedule
from tensorexpr.codegen.target import H200, Target
from tensorexpr.errors import ScheduleError
from tests.codegen.cuda.device import Program, compiled_together, needs_compiler
from tests.codegen.programs import WIDE
from tests.random_programs import assert_agrees, meaning, random_inputs, random_program, random_sizes
from tests.random_programs.schedules import shuffled
from tests.seeds import share_of

pytestmark = needs_compiler
TEAMS = Target("test", vector_bits=32 * 64, registers=32, cores=64)
"""Lanes enough for threads of a block, few enough for small tensors."""


def bound(s: Planned, rng: random.Random) -> Planned:
    """Splits of some data loops, and every loop that takes it bound to an axis of a GPU, from the outside inwards."""
    for name in s.stages:
        for _ in range(2):
            with suppress(ScheduleError):
                s[name].split(rng.choice(s[name].loops or ("none",)), rng.randint(2, 5), rng.choice(("peel", "guard")))
        blocks, threads = list(rng.sample(GRID, rng.randint(1, 3))), list(rng.sample(THREADS, 3))
        for loop in s[name].loops:
            axes = blocks if blocks else threads
            if axes:
                with suppress(ScheduleError):
                    s[name].bind(loop, axes[-1])
                    axes.pop()
    return s


def in_warps(s: Planned, rng: random.Random) -> Planned:
    """Splits of loops, the outer ones of the grid or over warps of a block, every loop that takes it in the lanes of a warp."""
    for name in s.stages:
        for loop in s[name].loops:
            with suppress(ScheduleError):
                s[name].split(loop, rng.choice((2, 3, 4, 8, 32)), rng.choice(("peel", "guard")))
        axes = rng.choice((["parallel"], ["block.y", "block.x"], ["block.x", "thread.y"], ["thread.z", "thread.y"], []))
        for loop, axis in zip(s[name].loops, axes, strict=False):
            with suppress(ScheduleError):
                s[name].parallel(loop) if axis == "parallel" else s[name].bind(loop, axis)
        for loop in reversed(s[name].loops):
            with suppress(ScheduleError):
                s[name].bind(loop, "warp")
    return s


def assert_means(*given: tuple[int, ir.Program, LoopNest]) -> None:
    """Each program's nest, compiled together, gives what the interpreter gives."""
    programs = [Program(nest, f"s{seed}_") for seed, _, nest in given]
    compiled_together(programs)
    for (seed, program, nest), run in zip(given, programs, strict=True):
        sizes = random_sizes(program, seed)
        inputs = random_inputs(program, seed, sizes=sizes)
        want = meaning(program, inputs, sizes)
        if want is None:
            with suppress(IndexError):
                run(inputs, sizes, seed % 5)
            continue
        got = run(inputs, sizes, seed % 5)
        assert_agrees(program, {n: got[parameter] for n, parameter in zip(program.outputs, nest.writes, strict=True)}, want, seed)


def nest_of(s: Planned) -> LoopNest:
    return verify_nest(lower(s))


@pytest.mark.parametrize("block", share_of(range(4)))
def test_random_schedules(block):
    seeds = range(3000 + 12 * block, 3012 + 12 * block)
    programs = {seed: (random_program(seed), WIDE if seed % 2 else TEAMS) for seed in seeds}
    assert_means(*((k, p, nest_of(shuffled(schedule(p, target), random.Random(k)))) for k, (p, target) in programs.items()))


@pytest.mark.parametrize("block", share_of(range(4)))
def test_default_schedules(block):
    programs = {seed: random_program(seed) for seed in range(4000 + 12 * block, 4012 + 12 * block)}
    assert_means(*((k, p, nest_of(autoschedule(p, TEAMS))) for k, p in programs.items()))


@pytest.mark.parametrize("block", share_of(range(4)))
def test_schedules_for_a_gpu(block):
    programs = {seed: random_program(seed) for seed in range(5000 + 12 * block, 5012 + 12 * block)}
    assert_means(*((k, p, nest_of(autoschedule(p, H200))) for k, p in programs.items()))


@pytest.mark.parametrize("block", share_of(range(4)))
def test_bound_schedules(block):
    given = []
    for seed in range(6200 + 12 * block, 6212 + 12 * block):
        program = random_program(seed)
        s = bound(shuffled(schedule(program, H200), random.Random(seed), 3), random.Random(seed))
        given.append((seed, program, nest_of(s)))
    texts = [emit(nest).text for _, _, nest in given]
    assert any("blockIdx.y" in text or "blockIdx.z" in text for text in texts) and any("threadIdx.y" in text for text in texts)
    assert_means(*given)


@pytest.mark.parametrize("block", share_of(range(2)))
def test_schedules_in_the_lanes_of_warps(block):
    given = []
    for seed in range(7000 + 12 * block, 7012 + 12 * block):
        program = random_program(seed)
        s = in_warps(shuffled(schedule(program, H200), random.Random(seed), 2), random.Random(seed))
        given.append((seed, program, nest_of(s)))
    texts = [emit(nest).text for _, _, nest in given]
    assert any("te_shuffle_down" in text for text in texts) and any("threadIdx.y" in text for text in texts)
    assert_means(*given)
