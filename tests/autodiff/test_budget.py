"""What takes the solver too long is taken value by value of a loop, or sorted: decided by counted steps, so always alike."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.autodiff.invert import components
from tensorexpr.integers import Affine, Domain, DomainTooComplex, at_most, eq, ge, le
from tensorexpr.integers.solving.effort import spend
from tensorexpr.language import program_of
from tests.autodiff.laws import head_of
from tests.autodiff.reads import strange_read
from tests.autodiff.rounds import check_rounds
from tests.seeds import share_of


def knapsack(*more):
    weight = 12 * Affine.of("a") + 21 * Affine.of("b") + 35 * Affine.of("c")
    return Domain(["a", "b", "c"], [eq(weight, 1000), ge("a", 0), ge("b", 0), ge("c", 0), *more])


def gradients_of(seed):
    case = strange_read(seed)
    head = head_of(case.output)
    return case, head, te.gradient(case.output, [case.x], head=head)


@pytest.mark.parametrize(
    ("seed", "lowering", "steps"),
    [
        (25, "pieces", None),
        (65, "pieces", None),
        (155, "pieces", None),
        (344, "pieces", None),
        (111, "segments", 40_000),
        (293, "segments", 500),
    ],
)
def test_a_read_beyond_the_budget_is_taken_value_by_value_or_sorted_and_right(seed, lowering, steps, monkeypatch):
    if steps is not None:
        monkeypatch.setattr(components, "MOST_STEPS_BY_VALUES", steps)
        components._pieces.cache_clear()
        components.invert_read.cache_clear()
    case, head, gradient = gradients_of(seed)
    components._pieces.cache_clear()
    components.invert_read.cache_clear()
    (row,) = gradient.report().rows
    assert row.lowering == lowering and row.iterations == row.reads
    data = {case.x: np.zeros(case.x.shape), head: np.random.default_rng(0).standard_normal(case.output.shape)}
    expected = te.evaluate(te.gradient(case.output, [case.x], head=head, lowering="atomics")[0], data)
    np.testing.assert_allclose(te.evaluate(gradient[0], data), expected, rtol=1e-13, atol=1e-13)
    (found,) = te.build(list(gradient), list(data))(*data.values())
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("seed", share_of(range(24)))
def test_strange_reads_are_exact_whatever_the_budget(seed, monkeypatch):
    case, head, gradient = gradients_of(seed)
    check_rounds(case.output, case.x, gradient)
    monkeypatch.setattr(components, "MOST_STEPS", 500)
    monkeypatch.setattr(components, "MOST_STEPS_BY_VALUES", 500)
    components._pieces.cache_clear()
    components.invert_read.cache_clear()
    sparing = te.gradient(case.output, [case.x], head=head)
    check_rounds(case.output, case.x, sparing)
    components._pieces.cache_clear()
    components.invert_read.cache_clear()
    data = {case.x: np.zeros(case.x.shape), head: np.random.default_rng(seed).standard_normal(case.output.shape)}
    np.testing.assert_allclose(te.evaluate(gradient[0], data), te.evaluate(sparing[0], data), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("seed", [25, 114])
def test_what_was_asked_before_changes_neither_the_count_nor_the_code(seed):
    def text_of():
        return str(program_of(list(gradients_of(seed)[2])))

    cold = text_of()
    assert text_of() == cold
    components._pieces.cache_clear()
    components.invert_read.cache_clear()
    assert text_of() == cold  # with the answers of the solver still known


def test_steps_are_those_of_what_is_asked_and_inner_limits_count_for_themselves():
    counts = []
    for _ in range(2):
        with at_most(10**6) as effort:
            assert not knapsack().is_empty() and not knapsack(le("c", 20)).is_empty()
        counts.append(effort.steps)
    assert counts[0] == counts[1] > 0
    with at_most(10**6) as effort:
        knapsack().is_empty()
        before = effort.steps
        with at_most(10**6) as inner:
            knapsack().is_empty()
        assert inner.steps == before == effort.steps


def test_a_question_beyond_the_limit():
    with pytest.raises(DomainTooComplex) as caught, at_most(20):
        spend([(1, 2, 3)] * 7)
    assert str(caught.value).splitlines()[0] == "expected a question that takes at most 20 steps of the solver, got a longer one"
    assert "hint: fewer floor divisions, remainders and cases in one index make it shorter" in str(caught.value)
    spend([(1, 2, 3)] * 7)  # without a limit
