"""Reductions that read the results of others: in every order of loops, the elements that are meant are at hand."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.target import Target
from tensorexpr.errors import ScheduleError
from tests.codegen.programs import WIDE, assert_means, plain, planned
from tests.seeds import share_of

NARROW = Target("narrow", vector_bits=256, registers=16, cores=8)


def test_a_result_under_a_guard_of_more_indices_than_its_reader_has() -> None:
    """The inner sum is evaluated where i == 2 alone, so it has an element for each i; the sum that reads it has none of its own."""
    value = "where(j < 5 and k == 1, sum(H[j, q] for q in range(6)), 0.0)"
    text = f"""
H: f32[9, 6] = input()
T[i, j]: f32[4, 9] = where(i == 2 and j < 7, sum(sum({value} for p in range(1)) for k in range(3)), 0.0)
return T
"""
    made = 0
    for order in itertools.permutations(plain(text)["T"].loops):
        s = plain(text)
        try:
            s["T"].reorder(*order)
        except ScheduleError:
            continue
        made += 1
        assert_means(s)
    assert made > 4


def chain(draw: random.Random, extents: tuple[int, ...]) -> tuple[list[te.Tensor], list[te.Tensor]]:
    """Three definitions that copy or sum what is at indices of their own or at constants, and the gradient of the last by the first."""
    x = current = te.placeholder(tuple(draw.choices(extents, k=2)), "float64", name="X")
    for name in "TUY":
        shape, length = tuple(draw.choices(extents, k=2)), draw.choice(extents)
        ends = {"i": shape[0], "j": shape[1], "k": length}
        names = "ij" if draw.random() < 0.6 else "ijk"
        at = [draw.choice([n for n in names if ends[n] <= extent] + [draw.randrange(extent)] * 2) for extent in current.shape]

        def body(i, j, source=current, at=tuple(at), length=length, summed="k" in names):
            def read(k):
                return source[tuple({"i": i, "j": j, "k": k}.get(place, place) for place in at)]

            return te.sum(read, length) if summed else read(None)

        current = te.compute(shape, body, name=name)
    head = te.placeholder(current.shape, "float64", name="H")
    return [current, *te.gradient(current, [x], head=head)], [x, head]


@pytest.mark.parametrize("first", share_of(range(0, 90, 10)))
def test_gradients_of_chains_at_constants_are_lowered_and_right(first: int) -> None:
    for seed in range(first, first + 10):
        for target in (WIDE, NARROW):
            lower(autoschedule(planned(chain(random.Random(seed), (1, 2, 3, 5, 8, 64, 499, 500))[0]).program, target))
        outputs, inputs = chain(random.Random(seed), (1, 2, 5, 17))
        data = np.random.default_rng(seed)
        arrays = {x: data.standard_normal(x.shape) for x in inputs}
        if seed % 2 == 0:
            for got, want in zip(te.build(outputs, inputs)(*arrays.values()), te.evaluate(outputs, arrays), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)
