"""Random programs under random schedules and under the default one, as CUDA text on the CPU: the interpreter's result."""

import random

import numpy as np
import pytest

from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.nest_verify import verify_nest
from tensorexpr.codegen.schedule import autoschedule, schedule
from tensorexpr.codegen.target import H200, Target
from tensorexpr.errors import OutOfBoundsError
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Program
from tests.codegen.cuda.device import needs_compiler, run
from tests.codegen.programs import WIDE
from tests.codegen.schedule.test_laws import shuffled
from tests.generators import random_inputs, random_program, random_sizes

pytestmark = needs_compiler
TEAMS = Target("test", vector_bits=32 * 64, registers=32, cores=64)
"""Lanes enough for threads of a block, few enough for small tensors."""


def assert_means(program: Program, nest: LoopNest, seed: int, order: int = 0) -> None:
    sizes = random_sizes(program, seed)
    inputs = random_inputs(program, seed, sizes=sizes)
    try:
        want = evaluate_program(program, inputs, sizes)
    except OutOfBoundsError:
        with pytest.raises(IndexError):
            run(nest, inputs, sizes, order)
        return
    got = run(nest, inputs, sizes, order)
    for name, parameter in zip(program.outputs, nest.writes, strict=True):
        found, expected = (a.astype(np.float32) if a.dtype.name == "bfloat16" else a for a in (got[parameter], want[name]))
        np.testing.assert_array_equal(found, expected, err_msg=f"{seed}: {name}")


@pytest.mark.parametrize("block", range(8))
def test_random_schedules(block):
    for seed in range(3000 + 6 * block, 3006 + 6 * block):
        program = random_program(seed)
        target = WIDE if seed % 2 else TEAMS
        nest = verify_nest(lower(shuffled(schedule(program, target), random.Random(seed))))
        assert_means(program, nest, seed, order=seed % 5)


@pytest.mark.parametrize("block", range(8))
def test_default_schedules(block):
    for seed in range(4000 + 6 * block, 4006 + 6 * block):
        program = random_program(seed)
        nest = verify_nest(lower(autoschedule(program, TEAMS)))
        assert_means(program, nest, seed, order=seed % 5)


@pytest.mark.parametrize("block", range(8))
def test_schedules_for_a_gpu(block):
    for seed in range(5000 + 6 * block, 5006 + 6 * block):
        program = random_program(seed)
        nest = verify_nest(lower(autoschedule(program, H200)))
        assert_means(program, nest, seed, order=seed % 5)
