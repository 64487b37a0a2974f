"""The order of kernels: what a program means and the proof of its nest stay, and the gradients of weights stand with their layers'."""

from __future__ import annotations

import random

import pytest

import tensorexpr as te
from tensorexpr.codegen import stages
from tensorexpr.codegen.nest import order
from tensorexpr.codegen.nest.order import sparing
from tensorexpr.codegen.nest.parse import parse_nest
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.target import host_target
from tensorexpr.records import replace
from tests.codegen.programs import assert_means_sample
from tests.random_programs import Options, random_sample
from tests.seeds import share_of

N = 1 << 19
NEST = f"""
main(x, a, y, u, v, w)
x: parameter(f64[{N}])
a: parameter(i64[1])
y: parameter(f64[{N}], written)
u: parameter(f64[{N}], written)
v: parameter(f64[{N}], written)
w: parameter(f64[{N}], written)
p: workspace(f64[{N}])
q: workspace(f64[{N}])
r: workspace(f64[{N}])
s: workspace(f64[{N}])

check_0 = site("x[a[0]]", tensor="x", axis=0, definition="q", location="model.py:7")

"""


def nest_of(*steps):
    """Kernels `target = source + source`, elementwise."""
    kernels = []
    for number, step in enumerate(steps):
        to, *read = step.split()
        if read == ["check"]:
            kernels.append(f"def kernel_{number}() -> {to}:\n    check(a[0], {N}, 0)\n    {to}[0] = x[a[0]]\n")
        else:
            kernels.append(
                f"def kernel_{number}() -> {to}:\n    for i in range(0, {N}):\n        {to}[i] = {' + '.join(f'{n}[i]' for n in read)}\n"
            )
    return parse_nest(NEST + "\n".join(kernels))


def names(nest):
    return [kernel.name for kernel in nest.kernels]


def test_results_that_nobody_reads_stand_behind_what_they_are_made_of():
    nest = nest_of("p x", "q p", "r q", "y r", "w r", "v q", "u p")
    assert names(sparing(nest)) == ["p", "u", "q", "v", "r", "y", "w"]


def test_what_needs_arguments_alone_stands_before_its_reader():
    assert names(sparing(nest_of("s x", "p x", "q p", "r q", "y r", "u s r"))) == ["p", "q", "r", "y", "s", "u"]


def test_an_order_that_needs_no_less_is_left():
    nest = nest_of("p x", "y p", "q x", "u q")
    assert sparing(nest) is nest


def test_the_second_write_of_a_buffer_stays_behind_the_readers_of_the_first():
    made = names(sparing(nest_of("p x", "q p", "p q", "y p", "r q", "u r", "v q", "w x")))
    assert made.index("q") < len(made) - 1 - made[::-1].index("p") < made.index("y") and made.index("v") > made.index("q")


def test_nothing_moves_up_past_a_check():
    steps = "p x", "y p", "q x", "r q", "s r", "q check", "u p", "v s", "w s"
    assert names(sparing(nest_of(*steps))) == names(nest_of(*steps))
    assert names(sparing(nest_of(*(step for step in steps if step != "q check"))))[:3] == ["p", "y", "u"]


@pytest.mark.parametrize("seed", share_of(range(200)))
def test_random_programs_keep_their_values_and_their_proof(seed, monkeypatch):
    monkeypatch.setattr(order, "FAR", 1)
    monkeypatch.setattr(stages, "sparing", lambda nest: replace(nest, kernels=order._ordered(nest.kernels)))
    rng = random.Random(seed)
    sample = random_sample(seed, Options(points=rng.choice((10, 20, 40)), most=8))
    try:
        program = sample.traced().program
    except te.TensorExprError:
        return
    _, nest = stages.made_of_program(program, host_target(), lambda found: found.nest)
    assert not prove(nest).refuted
    assert_means_sample(nest, program, sample, rng, seed, 1)
