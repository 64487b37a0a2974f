"""The fuzzer's laws on a share of its programs, what it once found, and the fuzzer itself: what it plans, finds and makes smaller."""

import os
import signal
from dataclasses import replace

import numpy as np
import pytest

import tests.fuzz.checks as checks
from tests.fuzz.checks import Failure, Skipped, check, slope_of
from tests.fuzz.corpus import FOUND
from tests.fuzz.minimise import minimised, outcome
from tests.fuzz.plan import FIRST_NOTATION, NOTATION, Plan, planned
from tests.fuzz.report import pasteable
from tests.random_programs import Sample
from tests.random_programs.bounds import Near
from tests.seeds import share_of

os.environ.setdefault("TENSOREXPR_STRICT", "1")


@pytest.mark.parametrize("block", share_of(range(60)))
def test_random_programs(block):
    for seed in range(5 * block, 5 * block + 5):
        plan = planned(seed)
        try:
            check(replace(plan, schedules=tuple(name for name in plan.schedules if name != "cuda")))
        except Skipped:
            continue


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_once(name):
    check(FOUND[name])


def test_the_same_seed_gives_the_same_plan():
    assert all(planned(seed) == planned(seed) for seed in range(20))
    plans = [planned(seed) for seed in range(300)]
    assert {name for plan in plans for name in plan.schedules} == {"default", "plain", "random", "tuned", "cuda", "searched", "versions"}
    assert {word for plan in plans for word in plan.derivatives} == {"gradient", "forced", "second"}


def test_campaigns_take_programs_in_index_notation():
    seeds = range(FIRST_NOTATION, FIRST_NOTATION + 40 * NOTATION)
    plans = [planned(seed) for seed in seeds]
    assert plans == [planned(seed) for seed in seeds]
    deep = [plan for plan in plans if "notation" in plan.sample.features]
    assert [plan.sample.seed for plan in deep] == [seed for seed in seeds if seed % NOTATION == 0]
    assert all(plan.sample.traced().program.definitions for plan in deep[:5])
    assert {word for plan in deep for word in plan.derivatives} >= {"gradient", "second"}


SAMPLE = Sample(
    """a, = (37,)
b = 9
X1 = te.placeholder((b, b), "float32", name="X1")
X2 = te.placeholder((b,), "float32", name="X2")
T3 = te.compute((b, b), lambda i, j: te.tanh(X1[i, j]) + X2[j], name="T3")
T4 = te.compute((b,), lambda i: te.sum(lambda k: T3[i, k] * X2[k], b), name="T4")
inputs = [X1, X2]
outputs = [T3, T4]""".replace("a, = (37,)\n", "")
)


def test_a_wrong_value_is_found_and_made_smaller(monkeypatch):
    """With a runtime that gives the last element of every result wrong."""
    evaluate = checks.evaluate

    def wrong(program, *arguments, **options):
        found = evaluate(program, *arguments, **options)
        for near in found.values():
            near.value.reshape(-1)[-1:] += 1
        return found

    monkeypatch.setattr(checks, "evaluate", wrong)
    plan = Plan(SAMPLE, ("default", "plain"))
    failure = outcome(plan)
    assert failure is not None and failure.kind == "default: values"
    smaller, failure = minimised(plan, failure, 30)
    assert failure.kind.endswith(": values") and len(smaller.schedules) == 1 and not smaller.threads
    assert "te.sum" not in smaller.sample.text and "b = 1" in smaller.sample.text and smaller.sample.text.count("te.compute") == 1
    text = pasteable(smaller, failure)
    names = {"np": np, "te": __import__("tensorexpr")}
    exec(text, names)
    names[next(name for name in names if name.startswith("test_seed"))]()  # it holds where nothing is wrong


def test_a_process_that_dies_and_one_that_hangs_are_answers(monkeypatch):
    monkeypatch.setattr(checks, "build_program", lambda program: os.kill(os.getpid(), signal.SIGSEGV))
    assert outcome(Plan(SAMPLE)).kind == "crash: SIGSEGV"
    monkeypatch.setattr(checks, "build_program", lambda program: signal.pause())
    assert outcome(Plan(SAMPLE), 2.0).kind == "hangs"


def test_an_error_of_the_checks_is_an_answer_even_without_words(monkeypatch):
    def wordless(plan):
        raise StopIteration

    monkeypatch.setattr("tests.fuzz.minimise.check", wordless)
    failure = outcome(Plan(SAMPLE))
    assert (failure.kind, failure.message) == ("checks: StopIteration", "StopIteration()")
    compile(pasteable(Plan(SAMPLE), Failure("checks: StopIteration", "")), "<a test>", "exec")


STEP = 1e-4


def bent(place, size, slope, moved):
    """Lines with a kink of some size at a place, as the reference gives them."""
    value = 1.5 + slope * moved + size * np.maximum(moved - place, 0)
    return Near(value, np.abs(value) * 2.0**-50)


def test_a_slope_next_to_a_kink_is_not_blamed_and_a_wrong_one_is():
    """Kinks and jumps at every distance, to both sides and at the point itself; lines and curves without one are asked."""
    rng = np.random.default_rng(0)
    many = 200_000
    place = (
        rng.choice((-1, 1), many) * STEP * np.where(rng.random(many) < 0.5, rng.uniform(0, 2.5, many), 10.0 ** rng.uniform(-12, 0.5, many))
    )
    place[:100] = 0
    size = rng.choice((-1, 1), many) * 10.0 ** rng.uniform(-9, 4, many)
    slope = rng.standard_normal(many)
    here, *moved = (bent(place, size, slope, distance) for distance in (0.0, STEP, -STEP, 2 * STEP, -2 * STEP))
    numeric, smooth, tolerance = slope_of(here, tuple(moved[:2]), tuple(moved[2:]), STEP)
    for side in (1, -1):  # at the point itself either slope is right
        true = slope + size * ((place < 0) | (place == 0) & (side > 0))
        assert not np.any(smooth & (np.abs(numeric - true) > tolerance))
    assert np.all(smooth[np.abs(place) > 2 * STEP]) and not np.any(smooth & (np.abs(place) < STEP) & (np.abs(size) > 0.1))
    for curve in (np.sin, np.exp, np.tanh, lambda x: x**3, lambda x: 100 * np.cos(5 * x)):
        at = rng.standard_normal(500)
        here, *moved = (Near(curve(at + distance)) for distance in (0.0, STEP, -STEP, 2 * STEP, -2 * STEP))
        numeric, smooth, tolerance = slope_of(here, tuple(moved[:2]), tuple(moved[2:]), STEP)
        assert smooth.mean() > 0.9 and np.all(tolerance < 1e-2)


def test_a_failure_says_where_and_by_how_much():
    sample = Sample(
        'X = te.placeholder((3,), "int32", name="X")\nT = te.compute((3,), lambda i: X[i], name="T")\ninputs = [X]\noutputs = [T]'
    )
    program = sample.traced().program
    expected = {"T": checks.Near(np.array([1, 2, 3], np.int32))}
    with pytest.raises(Failure, match=r"T\[1\]: expected .*2.* within 0, got .*5.* \(1 of 3 elements differ\)"):
        checks.compare("default", program, {"T": np.array([1, 5, 3], np.int32)}, expected, {})
