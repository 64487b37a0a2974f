"""Random schedules as machine code: loop kinds and tails as the emitter runs them give the interpreter's result too."""

import random

import numpy as np

from tensorexpr.codegen.llvm import compile_nest
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.schedule import schedule
from tensorexpr.errors import OutOfBoundsError
from tensorexpr.interpret import evaluate_program, extent
from tests.codegen.programs import WIDE
from tests.codegen.schedule.test_laws import shuffled
from tests.generators import random_inputs, random_program, random_sizes

SEEDS = (*range(1000, 1050), 1200, 1709)


def test_random_schedules_run_natively():
    for seed in SEEDS:
        program = random_program(seed)
        sizes = random_sizes(program, seed)
        inputs = random_inputs(program, seed, sizes=sizes)
        nest = lower(shuffled(schedule(program, WIDE), random.Random(seed)))
        native = compile_nest(nest)
        shapes = {b.name: [extent(e, sizes) for e in b.shape] for b in nest.parameters}
        results = {b.name: np.zeros(shapes[b.name], b.dtype.numpy) for b in nest.parameters if b.name in nest.writes}
        arrays = {**{name: np.ascontiguousarray(a) for name, a in inputs.items()}, **results}
        bound = [sizes[name] for name in nest.sizes]
        block = np.zeros(native.workspace_size(bound) + 64, np.uint8)
        failure = native([arrays[b.name].ctypes.data for b in nest.parameters], bound, -(-block.ctypes.data // 64) * 64)
        try:
            want = evaluate_program(program, inputs, sizes)
        except OutOfBoundsError:
            assert failure is not None
            continue
        assert failure is None
        for name, parameter in zip(program.outputs, nest.writes, strict=True):
            found, expected = (a.astype(np.float32) if a.dtype.name == "bfloat16" else a for a in (results[parameter], want[name]))
            np.testing.assert_array_equal(found, expected, err_msg=f"{seed}: {name}")
