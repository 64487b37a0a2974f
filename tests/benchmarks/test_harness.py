"""One way to time, under a clock of the test's own: nothing here depends on how fast anything is."""

from __future__ import annotations

import numpy as np
import pytest

from tensorexpr.benchmarks import harness
from tensorexpr.benchmarks.harness import Effort, arrays_of, difference, interleaved, settled
from tensorexpr.benchmarks.subjects import memory


class Clock:
    """Time that passes only where a candidate says so; remembers who ran and how long there was rest."""

    def __init__(self) -> None:
        self.now, self.ran, self.rested = 0.0, [], 0.0

    def __call__(self) -> float:
        return self.now

    def rest(self, seconds: float) -> None:
        self.rested += seconds
        self.now += seconds

    def candidate(self, name, *durations):
        """Takes the given times in turn, the last one for good."""
        left = list(durations)

        def call():
            self.ran.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return call


def test_candidates_take_turns_and_medians_are_quoted():
    clock = Clock()
    effort = Effort(rounds=3, sample=1.0, settle=0.5, limit=1e9, long=1e9)
    found = interleaved({"a": clock.candidate("a", 1.0), "b": clock.candidate("b", 2.0)}, effort, clock, clock.rest)
    assert clock.ran == ["a", "a", "b", "b"] * 3  # one call to warm up, one that counts
    assert clock.rested == 0.5 * 2 * 3
    assert (found["a"].median, found["a"].lower, found["a"].upper, found["a"].samples) == (1.0, 1.0, 1.0, 3)
    assert (found["b"].median, found["b"].least) == (2.0, 2.0)


def test_short_calls_are_repeated_for_the_length_of_a_sample():
    clock = Clock()
    effort = Effort(rounds=2, sample=1.0, settle=0.0, long=1e9)
    found = interleaved({"a": clock.candidate("a", 0.5, 0.01)}, effort, clock, clock.rest)  # the first call has caches to fill
    assert clock.ran.count("a") == (1 + 1 + 100) + (1 + 100)
    assert found["a"].median == pytest.approx(0.01)


def test_the_spread_is_that_of_the_quartiles():
    clock = Clock()
    times = [9.0]
    for taken in (1.0, 2.0, 3.0, 4.0, 5.0):
        times += [taken, 9.0]
    effort = Effort(rounds=5, sample=1e-9, settle=0.0, limit=1e9, long=1e9)
    timing = interleaved({"a": clock.candidate("a", *times)}, effort, clock, clock.rest)["a"]
    assert (timing.lower, timing.median, timing.upper, timing.least) == (2.0, 3.0, 4.0, 1.0)


def test_what_is_far_slower_sits_out_after_two_rounds_or_one():
    clock = Clock()
    times = {"fast": 1.0, "slow": 3.5, "near": 2.5, "hopeless": 11.0}
    candidates = {name: clock.candidate(name, taken) for name, taken in times.items()}
    found = interleaved(candidates, Effort(rounds=6, sample=0.1, settle=0.0, limit=1e9, slow=3.0, long=1e9), clock, clock.rest)
    assert [timing.samples for timing in found.values()] == [6, 2, 6, 1]


def test_no_round_starts_after_the_limit_but_three_are_run():
    clock = Clock()
    found = interleaved({"a": clock.candidate("a", 5.0)}, Effort(rounds=9, sample=0.1, settle=0.0, limit=1.0, long=1e9), clock, clock.rest)
    assert found["a"].samples == 3


@pytest.mark.parametrize("busy, rests", [([0.0], 1), ([0.5, 0.3, 0.02, 0.0], 4), ([1.0] * 99, harness.RESTS)])
def test_samples_wait_until_the_process_rests(monkeypatch, busy, rests):
    """What threads of a library still do after its result is there would be done beside the next candidate."""
    taken = [0.0, *np.cumsum(busy)]
    slept: list[float] = []
    monkeypatch.setattr(harness.time, "process_time", lambda: taken[len(slept)])
    monkeypatch.setattr(harness.time, "sleep", slept.append)
    settled(0.5)
    assert slept == [0.5] * rests


def test_a_long_call_is_its_own_sample():
    clock = Clock()
    found = interleaved({"a": clock.candidate("a", 0.4, 0.5, 0.35)}, Effort(rounds=3, settle=0.0), clock, clock.rest)
    assert clock.ran == ["a"] * 3 and (found["a"].median, found["a"].samples) == (pytest.approx(0.4), 3)


def test_values_are_compared_relative_to_the_largest():
    one = [np.array([1.0, -100.0]), np.array(2.0)]
    assert difference(one, [np.array([1.5, -100.0]), np.array(2.0)]) == pytest.approx(0.005)
    assert difference(one, [np.array([1.0, -100.0]), np.array(3.0)]) == pytest.approx(0.5)
    assert difference(one, one[:1]) == difference(one, [np.zeros(3), one[1]]) == float("inf")
    assert difference(one, [np.array([np.nan, -100.0]), np.array(2.0)]) == float("inf")
    empty = [np.array([-np.inf, 4.0])]  # the maximum of an empty segment
    assert difference(empty, [np.array([-np.inf, 5.0])]) == pytest.approx(0.25)
    assert difference(empty, [np.array([np.inf, 4.0])]) == float("inf")
    assert [a.shape for a in arrays_of((np.ones(2), 1.0))] == [(2,), ()] and len(arrays_of(np.ones(3))) == 1


def test_memory_of_a_call_is_seen_whoever_allocates_it():
    before = memory.resident()
    if before is None:
        pytest.skip("the operating system does not say")
    taken = memory.peak(lambda: np.ones(4 << 20), before)
    assert 24 << 20 < taken < 64 << 20
    assert memory.peak(lambda: None, None) is None
