"""Rewrites of loops keep what a nest computes, one after the other, over random programs and at sizes where tails exist."""

from __future__ import annotations

import random

import pytest

import tensorexpr as te
from tensorexpr.simplify import simplify
from tests.codegen.rewrites import moves
from tests.codegen.rewrites.law import Kept, wandered
from tests.random_programs import Options, random_sample
from tests.random_programs.sample import arrays_for, sizes_of
from tests.seeds import share_of


def kept_of(seed: int, points: int = 20) -> Kept | None:
    """The program of a seed, at some sizes; None where the text is refused."""
    rng = random.Random(seed)
    sample = random_sample(seed, Options(points=points, open_sizes=rng.choice((0, 0.5)), most=rng.choice((1, 2, 3))))
    try:
        traced = sample.traced()
    except te.TensorExprError:
        return None
    program = simplify(traced.program) if seed % 3 == 0 else traced.program
    sizes = sizes_of(sample, traced.program, rng, 1)[:3]
    try:
        return Kept(program, [(arrays_for(traced.program, traced.below, s, seed, True, False), s) for s in sizes])
    except te.TensorExprError:
        return None  # sizes that do not fit


@pytest.mark.parametrize("seed", share_of(range(90)))
def test_random_rewrites_of_loops_keep_what_a_nest_computes(seed):
    kept = kept_of(seed)
    if kept is not None:
        wandered(kept, moves.ALL, random.Random(seed), 6)
