"""Conditions around a tile hold where some point of it counts: whatever the extents leave for the last block of a split."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.schedule import autoschedule
from tests.codegen.programs import WIDE, assert_means, plain

RNG = np.random.default_rng(4)


def last_and_first(n, m):
    """Sums that only the first, some middle and the last element ask for: their guards are conditions around tiles of p."""
    x = te.placeholder((m,), "float64", name="x")
    total = te.sum(lambda i: x[i] * x[i], m)

    def element(p):
        return te.where(p == n - 1, total, 0.0) + te.where(p == 0, 2 * total, 0.0) + te.where(p >= n - 2, x[p % m], 0.0)

    return x, te.compute((n,), element, name="y")


@pytest.mark.parametrize("n", range(1, 22))
def test_the_last_block_counts_in_the_default_schedule(n):
    x, y = last_and_first(n, 5)
    array = RNG.standard_normal(5)
    np.testing.assert_allclose(te.build(y, [x])(array), te.evaluate(y, {x: array}), rtol=1e-12)


@pytest.mark.parametrize(("n", "tail", "twice"), list(itertools.product((5, 8, 11, 13, 16, 19), ("shift", "guard", "peel"), (False, True))))
def test_the_last_block_counts_in_any_split(n, tail, twice):
    x, y = last_and_first(n, 5)
    s = te.schedule(y, inputs=[x])
    s[y].split("p", 4, tail)
    loops = ["p_o", "p_i"]
    if twice:
        s[y].split("p_o", 2, tail)
        loops = ["p_o_o", "p_o_i", "p_i"]
    reduction = next(loop for loop in s[y].loops if loop not in loops)
    s[y].reorder(reduction, *loops)
    array = RNG.standard_normal(5)
    np.testing.assert_allclose(te.build(s, [x])(array), te.evaluate(y, {x: array}), rtol=1e-12)


@pytest.mark.parametrize(("n", "reach"), list(itertools.product((7, 14, 20), (1, 2, 4, 6, 8))))
def test_the_gradient_of_a_bias_by_clamped_distance(n, reach):
    scores, bias, head = (
        te.placeholder(shape, "float64", name=name) for name, shape in (("s", (n, n)), ("b", (2 * reach + 1,)), ("h", (n, n)))
    )
    y = te.compute((n, n), lambda i, j: te.exp(scores[i, j] + bias[te.clip(j - i, -reach, reach) + reach]))
    (gradient,) = te.gradient(y, [bias], head)
    s, b, h = (RNG.standard_normal(t.shape) for t in (scores, bias, head))
    at = np.clip(np.arange(n)[None] - np.arange(n)[:, None], -reach, reach) + reach
    expected = np.zeros(2 * reach + 1)
    np.add.at(expected, at, h * np.exp(s + b[at]))
    np.testing.assert_allclose(te.build(gradient, [scores, bias, head])(s, b, h), expected, rtol=1e-10)


def test_a_sum_outside_of_loops_that_are_empty_beyond_the_extent_stays_inside_of_it():
    """What `i` leaves no `l` for is beyond the tensor, too; the products do not depend on `l`, and run whether it has a point or not."""
    text = "x: f64[3, 2] = input()\n"
    text += "y[i]: f64[2] = sum(prod(x[k, i] for q in range(3)) for k in range(3) for l in range(minimum(3, 2 - i)))\nreturn y"
    by_hand = plain(text)
    by_hand["y"].split("i", 8, "guard")
    by_hand["y"].reorder("i_o", "k", "q", "l", "i_i")
    by_hand["y"].vectorize("i_i")
    for schedule in (by_hand, autoschedule(by_hand.program, WIDE)):
        assert_means(schedule, exact=False)
