"""The plain nest of a program computes what the program means, at every size, and is proved like any other."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.nest.text import print_nest
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.plain import plain_nest
from tensorexpr.errors import ArgumentError, OutOfBoundsError
from tensorexpr.interpret import evaluate_program
from tensorexpr.simplify import simplify
from tests.codegen.programs import outputs
from tests.random_programs import Options, random_sample
from tests.random_programs.sample import arrays_for, sizes_of
from tests.seeds import share_of


def assert_plain(program, cases) -> str:
    """Checks the plain nest of a program for inputs and sizes; gives its text."""
    nest = plain_nest(program)
    verdict = prove(nest, quick=True)
    assert not verdict.refuted, f"{program}\n{nest}\n{verdict}"
    for arrays, sizes in cases:
        try:
            expected = evaluate_program(program, arrays, sizes)
        except ArgumentError:
            continue  # an extent below zero
        except OutOfBoundsError:
            with pytest.raises(OutOfBoundsError):
                outputs(nest, program, arrays, sizes)
            continue
        for name, found in outputs(nest, program, arrays, sizes).items():
            np.testing.assert_array_equal(found, expected[name], err_msg=f"{sizes}: {name} of\n{program}\n{nest}")
    return print_nest(nest)


@pytest.mark.parametrize("seed", share_of(range(240)))
def test_random_programs(seed):
    rng = random.Random(seed)
    sample = random_sample(seed, Options(points=rng.choice((10, 20, 40)), open_sizes=rng.choice((0, 0.5)), most=rng.choice((1, 2, 3))))
    try:
        traced = sample.traced()
    except te.TensorExprError:
        return
    program = simplify(traced.program) if seed % 3 == 0 else traced.program
    cases = []
    for sizes in sizes_of(sample, traced.program, rng, 1)[:3]:
        cases.append((arrays_for(traced.program, traced.below, sizes, seed, True, False), sizes))
    assert_plain(program, cases)
