"""Random programs: simplification keeps every output and comes to an end."""

from __future__ import annotations

import numpy as np
import pytest

from tensorexpr.interpret import evaluate_program
from tensorexpr.simplify import simplify
from tensorexpr.text import print_program
from tests.generators import random_inputs, random_program, random_sizes
from tests.simplify.points import same


@pytest.mark.parametrize("block", range(10))
def test_simplify_keeps_outputs_and_is_idempotent(block: int) -> None:
    for seed in range(7000 + 100 * block, 7000 + 100 * block + 30):
        program = random_program(seed)
        simple = simplify(program)
        text = f"seed {seed}\n{print_program(program)}\n-->\n{print_program(simple)}"
        again = simplify(simple)
        assert again is simple, f"{text}\n-->\n{print_program(again)}"
        assert simple.inputs == program.inputs and simple.outputs == program.outputs, text
        assert [simple.types[n] for n in simple.outputs] == [program.types[n] for n in program.outputs], text
        sizes = random_sizes(program, seed)
        inputs = random_inputs(program, seed, sizes=sizes)
        before, after = evaluate_program(program, inputs, sizes), evaluate_program(simple, inputs, sizes)
        for name, value in before.items():
            zero = np.zeros((), value.dtype)  # a sum of one term may keep the sign of a zero
            unsigned = (value, after[name]) if value.dtype.kind in "b" else (value + zero, after[name] + zero)
            assert same(*unsigned), f"{name} of {text}"
