"""Learning rates: the same as scalars of a compiled step and as numbers, at the steps where they change."""

import math

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.graph.rates import Constant, Cosine, Steps, Warmup, as_rate

CASES = {
    "constant": (Constant(0.5), lambda t: 0.5),
    "steps": (Steps(0.5, every=3, factor=0.2), lambda t: 0.5 * 0.2 ** (t // 3)),
    "cosine": (Cosine(0.5, 10, final=0.1), lambda t: 0.1 + 0.4 * 0.5 * (1 + math.cos(math.pi * min(t, 10) / 10))),
    "warmup": (Warmup(4, Constant(0.5)), lambda t: 0.5 * min(1, (t + 1) / 4)),
    "warmup of cosine": (
        Warmup(4, Cosine(0.5, 6)),
        lambda t: min(1, (t + 1) / 4) * 0.25 * (1 + math.cos(math.pi * min(max(t - 4, 0), 6) / 6)),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_rates_follow_their_formulas_as_numbers_and_compiled(case):
    rate, formula = CASES[case]
    step = te.placeholder((), "int64", name="step")
    compiled = te.build(te.compute((), lambda: te.cast(rate(step[()]), "float64")), [step])
    for t in range(14):
        assert rate.at(t) == pytest.approx(formula(t), rel=1e-12, abs=1e-15)
        assert compiled(np.int64(t).reshape(())) == pytest.approx(formula(t), rel=1e-12, abs=1e-15)


def test_a_number_is_a_constant_rate():
    assert as_rate(0.1) == Constant(0.1) and as_rate(1) == Constant(1.0)
    assert as_rate(Cosine(0.1, 5)) == Cosine(0.1, 5)


@pytest.mark.parametrize("wrong", ["0.1", None, True, [0.1]])
def test_what_is_no_rate(wrong):
    with pytest.raises(te.ArgumentError, match="rate: expected a number or a rate, got a "):
        as_rate(wrong)


@pytest.mark.parametrize("make", [lambda n: Steps(0.1, n), lambda n: Cosine(0.1, n), lambda n: Warmup(n, Constant(0.1))])
@pytest.mark.parametrize("wrong", [0, -3, 2.5, True])
def test_numbers_of_steps(make, wrong):
    with pytest.raises(te.ArgumentError, match=r": expected an integer of at least 1, got "):
        make(wrong)
