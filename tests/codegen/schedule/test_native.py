"""Random schedules as machine code: loop kinds and tails as the emitter runs them give the interpreter's result too."""

import random

import numpy as np

from tensorexpr.codegen.llvm import compile_nest
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.schedule import schedule
from tensorexpr.interpret import extent_value
from tensorexpr.parse import parse_program
from tests.codegen.programs import WIDE
from tests.random_programs import assert_agrees, meaning, random_inputs, random_program, random_sizes
from tests.random_programs.schedules import shuffled

SEEDS = range(1000, 1050)
FOUND = {  # by the seed of the schedule
    1200: """
X1: i16 = input()
X2: f64[5, 3] = input()
X3: f64[1, 5] = input()
T4[i]: i16[4] = min(X1[()] // 3 for j in range(i, 4))
return T4
""",
    1709: """
sizes(n, m)
X1: i16[n] = input()
X2: u32[m] = input()
X3: i16[m + 1, 2 * n, m + 1] = input()
X4: i16[2] = input()
W5: i16[6, 6] = constant([
    [-3, 0, -3, 2, 1, -2], [3, 3, 2, 2, -1, 1], [1, 1, 0, -3, -1, 1], [1, 2, -2, 2, -3, 0], [-3, -1, -1, -2, 2, 2], [2, -3, 2, -1, -1, 1]
])
T6[i, j]: i16[4, 3] = maximum(
    sum(W5[j * 2 + 1, j * 2] + W5[-k + 5, (i * 3 + k * 2) // 3] for k in range(i + 1)),
    sum(
        where(i * 2 + j + 1 >= 0 and i * 2 + j + 1 < 2, X4[i * 2 + j + 1], 0) | W5[k * 2 + 3, i * 2 % 6]
        for k in range(1, 2)
    )
)
T7[i]: i16[6] = where(
    i * 2 > 11,
    min(X4[maximum(minimum(j - i, 1), 0)] // 3 for j in range(minimum(3, 6 - i))),
    max(X4[i % 2] for j in range(i, 6))
)
T8[i, j]: i16[m + 1, 3 * n + 2] = T7[i % 6]
return T6, T8
""",
}


def test_random_schedules_run_natively():
    programs = {seed: random_program(seed) for seed in SEEDS}
    programs |= {seed: parse_program(text.lstrip()) for seed, text in FOUND.items()}
    for seed, program in programs.items():
        sizes = random_sizes(program, seed)
        inputs = random_inputs(program, seed, sizes=sizes)
        nest = lower(shuffled(schedule(program, WIDE), random.Random(seed)))
        native = compile_nest(nest)
        shapes = {b.name: [extent_value(e, sizes) for e in b.shape] for b in nest.parameters}
        results = {b.name: np.zeros(shapes[b.name], b.dtype.numpy) for b in nest.parameters if b.name in nest.writes}
        arrays = {**{name: np.ascontiguousarray(a) for name, a in inputs.items()}, **results}
        bound = [sizes[name] for name in nest.sizes]
        block = np.zeros(native.workspace_size(bound) + 64, np.uint8)
        failure = native([arrays[b.name].ctypes.data for b in nest.parameters], bound, -(-block.ctypes.data // 64) * 64)
        want = meaning(program, inputs, sizes)
        if want is not None:
            assert failure is None
            found = {name: results[parameter] for name, parameter in zip(program.outputs, nest.writes, strict=True)}
            assert_agrees(program, found, want, seed)
