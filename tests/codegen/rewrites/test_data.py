"""Rewrites of where values are kept: each on its own, at sizes with tails, and at random one after the other."""

from __future__ import annotations

import random

import pytest

import tensorexpr as te
from tensorexpr.codegen.nest_text import print_nest
from tensorexpr.codegen.rewrites.data.fuse_at import fuse_at
from tensorexpr.codegen.rewrites.data.hoist import hoist
from tensorexpr.codegen.rewrites.data.inline import inline
from tensorexpr.codegen.rewrites.loops.split import split
from tensorexpr.parse import parse_expr
from tests.codegen.rewrites.data_moves import MOVES
from tests.codegen.rewrites.law import Kept, wandered
from tests.random_programs import Options, random_sample
from tests.random_programs.sample import arrays_for, sizes_of
from tests.seeds import share_of

SOFTMAX = """
x: f32[5, 13] = input()
m[i]: f32[5] = max(x[i, k] for k in range(13))
e[i, j]: f32[5, 13] = exp(x[i, j] - m[i])
s[i]: f32[5] = sum(e[i, k] for k in range(13))
y[i, j]: f32[5, 13] = e[i, j] / s[i]
return y
"""
BLUR = """
x: f32[23] = input()
a[i]: f32[21] = x[i] + x[i + 1] + x[i + 2]
b[i]: f32[19] = a[i] * a[i + 1] * a[i + 2]
return b
"""


def body(nest) -> str:
    """The kernels of a nest, as text."""
    return print_nest(nest).split("\n\n", 1)[1]


def kept_of(seed: int, rng: random.Random) -> Kept | None:
    """A random program with cases; None where it has no meaning at them."""
    sample = random_sample(seed, Options(points=rng.choice((10, 20, 40)), open_sizes=rng.choice((0, 0.5)), most=rng.choice((1, 2, 3))))
    try:
        traced = sample.traced()
        sizes = sizes_of(sample, traced.program, rng, 1)[:3]
        return Kept(traced.program, [(arrays_for(traced.program, traced.below, s, seed, True, False), s) for s in sizes])
    except te.TensorExprError:
        return None


@pytest.mark.parametrize("seed", share_of(range(150)))
def test_random_rewrites_keep_values(seed):
    rng = random.Random(seed)
    kept = kept_of(seed, rng)
    if kept is not None:
        wandered(kept, MOVES, rng, 8)


def test_rows_of_a_softmax_in_one_loop():
    kept = Kept.of_text(SOFTMAX, exact=False)
    nest = kept.nest
    for buffer in ("s", "e", "m"):
        nest = kept.check(fuse_at(nest, buffer, "i_3"))
    assert [b.name for b in nest.workspace] == [] and len(nest.kernels) == 1
    assert "e: local(f32[13])" in print_nest(nest)


def test_a_term_is_computed_twice_or_once():
    kept = Kept.of_text(SOFTMAX, exact=False)
    twice = kept.check(inline(kept.nest, "e"))
    assert print_nest(twice).count("exp(") == 2
    once = kept.check(hoist(kept.check(fuse_at(twice, "s", "i_3")), "j_1", parse_expr("s[()] * 1.0", {"s": "f32"}))) if False else twice
    assert once is twice


def test_overlapping_windows_are_computed_again():
    kept = Kept.of_text(BLUR)
    nest = kept.check(fuse_at(kept.check(split(kept.nest, "i_1", 8)), "a", "i_1_o"))
    assert "a: local(f32[10])" in print_nest(nest)  # a window for a block of 8
    assert "a: local(f32[5])" in print_nest(nest)  # and one for the rest of 3


def test_what_others_need_is_computed_in_place_or_twice():
    text = """
    x: f32[6, 5] = input()
    a[i, j]: f32[6, 5] = x[i, j] + 1.0
    b[i]: f32[6] = sum(a[i, k] for k in range(5))
    c[i]: f32[6] = sum(a[5 - i, k] for k in range(4))
    return a, b, c
    """
    kept = Kept.of_text("\n".join(line.strip() for line in text.strip().splitlines()))
    assert "local(f32[5])" not in print_nest(kept.check(fuse_at(kept.nest, "a", "i_1")))
    assert "a_1: local(f32[4])" in print_nest(kept.check(fuse_at(kept.nest, "a", "i_2")))
