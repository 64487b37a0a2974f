"""Recurrences: steps in tiles of space and time, states in registers, rings of the last entries."""

from __future__ import annotations

import random

import pytest

from tensorexpr.codegen.rewrites.data.contract import contract
from tensorexpr.codegen.rewrites.data.fuse_at import fuse_at
from tensorexpr.codegen.rewrites.data.inline import inline
from tensorexpr.codegen.rewrites.data.merge import merge, merge_kernels
from tensorexpr.codegen.rewrites.data.slide import slide
from tensorexpr.codegen.rewrites.loops import parallel, partition, reorder, reverse, skew, split, vectorize
from tensorexpr.errors import ScheduleError
from tests.codegen.rewrites import data_moves, moves
from tests.codegen.rewrites.law import Kept, wandered
from tests.codegen.rewrites.test_data import nest_of

HEAT = """
U: f32[40] = input()
for t in range(7):
    u: f32[40] = state(U)
    next[i]: f32[40] = u[maximum(i - 1, 0)] * 0.25 + u[i] * 0.5 + u[minimum(i + 1, 39)] * 0.25
    S[t] = u = next
last[i]: f32[40] = S[6, i]
return last
"""
SUMS = """
sizes(n, m)
X: f32[n, m] = input()
Z[i]: f32[n] = 0.0
for t in range(m):
    u: f32[n] = state(Z)
    next[i]: f32[n] = u[i] * 0.5 + X[i, t]
    S[t] = u = next
y[i, t]: f32[n, m] = S[m - 1 - t, i]
return y
"""


def heat() -> Kept:
    kept = Kept.of_text(HEAT)
    kept.nest = kept.check(inline(kept.nest, "next_1"))
    return kept


def test_steps_of_a_stencil_run_in_tiles_of_space_and_time():
    kept = heat()
    nest = kept.check(contract(kept.nest, "S", "t"))
    assert "S: workspace(f32[2, 40])" in str(nest)
    with pytest.raises(ScheduleError, match="expected x0 outside of t to keep what is computed"):
        reorder(nest, "x0", "t")
    nest = kept.check(split(kept.check(skew(nest, "t", "x0", 1)), "t", 4))
    nest = kept.check(split(kept.check(reorder(nest, "t_o", "x0", "t_i")), "x0", 8))
    nest = kept.check(reorder(nest, "x0_o", "t_i", "x0_i"))
    nest = kept.check(partition(nest, "x0_i"))
    assert str(nest).count("for x0_o") == 2


def test_tiles_on_a_wavefront_run_at_once():
    kept = heat()
    nest = kept.check(split(kept.check(skew(kept.nest, "t", "x0", 1)), "t", 2, "guard"))
    nest = kept.check(split(kept.check(reorder(nest, "t_o", "x0", "t_i")), "x0", 8, "guard"))
    nest = kept.check(reorder(nest, "x0_o", "t_i", "x0_i"))
    nest = kept.check(skew(nest, "t_o", "x0_o", 2))
    nest = kept.check(reorder(nest, "x0_o", "t_o"))
    kept.check(parallel(nest, "t_o"))


@pytest.mark.parametrize("lanes", (False, True))
def test_a_scan_and_what_reads_it_backward_keep_a_state_in_a_register(lanes):
    kept = Kept.of_text(SUMS, *({"n": n, "m": m} for n, m in ((5, 3), (0, 2), (19, 1), (9, 0), (17, 8))))
    nest = kept.check(inline(kept.check(inline(kept.nest, "next_1")), "Z"))
    nest = kept.check(reorder(nest, "x0", "t"))
    nest = kept.check(merge_kernels(kept.check(reverse(nest, "t_1")), 0))
    nest = kept.check(merge(kept.check(merge(nest, "x0", "i_2")), "t", "t_1"))
    if lanes:
        nest = kept.check(reorder(kept.check(split(nest, "x0", 8)), "t", "x0_i"))
    nest = kept.check(contract(nest, "S", "t"))
    assert "S: workspace(f32[1, n])" in str(nest)
    kept.check(vectorize(nest, "x0_i") if lanes else parallel(kept.check(contract(nest, "S", "x0")), "x0"))


def test_a_recurrence_of_fixed_length_has_one_element():
    text = SUMS.replace("sizes(n, m)\n", "").replace("n, m]", "12, 9]").replace("[n]", "[12]").replace("range(m)", "range(9)")
    kept = Kept.of_text(text.replace("m - 1", "8"))
    nest = kept.check(inline(kept.check(inline(kept.nest, "next_1")), "Z"))
    nest = kept.check(merge_kernels(kept.check(reverse(kept.check(reorder(nest, "x0", "t")), "t_1")), 0))
    nest = kept.check(merge(kept.check(merge(nest, "x0", "i_2")), "t", "t_1"))
    nest = kept.check(contract(kept.check(contract(nest, "S", "x0")), "S", "t"))
    assert "S: local(f32[1])" in str(nest)


@pytest.mark.parametrize("seed", range(20))
def test_random_rewrites_of_recurrences(seed):
    kept = heat() if seed % 2 else Kept.of_text(SUMS, *({"n": n, "m": m} for n, m in ((5, 3), (0, 2), (9, 0))))
    often = [
        moves.skew,
        moves.reorder,
        moves.split,
        data_moves.contracted,
        data_moves.merged,
        data_moves.inlined,
        moves.of_a_loop("reverse"),
    ]
    wandered(kept, [*often, *often, *often, *moves.ALL, *data_moves.ALL], random.Random(seed), 10)


ROWS = "for t in range(0, 3):\n    for i in range(0, 4):\n        a[t*4 + i] = x[i]\nfor j in parallel(range(0, 4)):\n    y[j] = a[j]\n"


@pytest.mark.parametrize(
    ("rewrite", "message"),
    [
        (lambda n: skew(n, "t", "i", 0.5), "expected an int to skew i by, got 0.5"),
        (lambda n: skew(n, "i", "t", 1), "expected a loop in i to skew, got t"),
        (lambda n: skew(parallel(n, "t"), "t", "t", 1), "expected a loop in t to skew, got t"),
        (lambda n: skew(vectorize(n, "i"), "t", "i", 1), "expected a serial loop to skew, got vectorize i"),
        (lambda n: reverse(n, "j"), "expected a serial loop to reverse, got parallel j"),
        (lambda n: contract(n, "a", "t"), "or other elements than the last are read behind it"),
        (lambda n: contract(n, "a", "j"), "expected everything to touch a in j"),
    ],
)
def test_refusals(rewrite, message):
    with pytest.raises(ScheduleError, match=message):
        rewrite(nest_of(ROWS))


def test_a_recurrence_does_not_run_backward():
    with pytest.raises(ScheduleError, match="expected iterations of t that may run backward in any order"):
        reverse(heat().nest, "t")


CHAIN = """
X: f32[19, 6] = input()
P[i, j]: f32[19, 6] = X[i, j] * 2.0
Q[i, j]: f32[17, 6] = P[i, j] + P[i + 1, j] * P[i + 2, j]
C[i, j]: f32[13, 6] = Q[i, j] + Q[i + 4, 5 - j] + P[i + 3, j]
return C
"""
POOLED = """
X: f32[29, 8] = input()
W: f32[8, 8] = input()
P[i, j]: f32[29, 8] = sum(X[i, k] * W[k, j] for k in range(8))
C[i, j]: f32[14, 4] = max(P[2 * i + u, 2 * j + v] for u in range(3) for v in range(2))
return C
"""


def test_windows_slide_in_rings():
    kept = Kept.of_text(POOLED)
    nest = kept.check(slide(kept.check(fuse_at(kept.nest, "P", "i_1")), "P", "i_1"))
    assert "P: local(f32[3, 8])" in str(nest)


def test_what_reads_a_window_slides_before_that():
    kept = Kept.of_text(CHAIN)
    nest = kept.check(fuse_at(kept.check(fuse_at(kept.nest, "Q", "i_2")), "P", "i_2"))
    nest = kept.check(slide(kept.check(slide(nest, "Q", "i_2")), "P", "i_2"))
    assert "Q: local(f32[5, 6])" in str(nest)
