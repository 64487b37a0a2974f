"""The search on a bench that only exists in numbers: what it tries, what it believes, when it stops."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from tensorexpr.codegen.schedule.decisions import Choices, Decision
from tensorexpr.codegen.tuning.search import DUEL, FAILED, FINAL, OK, OTHER_BITS, SLOW, Progress, Trial, beats, search

SPACE = {
    "C: tile": ("6 i, 64 j", "8 i, 48 j", "4 i, 64 j", "12 i, 32 j"),
    "C: copies of k": ("as it is", "2", "4"),
    "D: lanes along": ("j", "i"),
}


class Clock:
    """Time that passes only where a bench spends it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Numbers:
    """A bench on which choices take the seconds that a function says, and every trial a tenth of a second."""

    def __init__(
        self,
        seconds: Callable[[Mapping[str, str]], float],
        noise: Callable[[], float] = lambda: 1.0,
        outcomes: Mapping[str, str] | None = None,
        space: Mapping[str, tuple[str, ...]] = SPACE,
    ) -> None:
        self.clock = Clock()
        self.asked: list[Choices] = []
        self.duels: list[tuple[Choices, ...]] = []
        self._seconds, self._noise, self._outcomes, self._space = seconds, noise, outcomes or {}, space

    def _time(self, choices: Choices) -> float:
        return self._seconds({name: choices.get(name, options[0]) for name, options in self._space.items()})

    def trial(self, choices: Choices, limit: float) -> Trial:
        self.asked.append(choices)
        self.clock.now += 0.1
        decisions = tuple(Decision(n, o, choices.get(n, o[0])) for n, o in self._space.items())
        seconds = self._time(choices)
        trial = Trial(choices, OK if seconds <= limit else SLOW, seconds * self._noise(), decisions, (("C", 0.9), ("D", 0.1)))
        bad = [outcome for word, outcome in self._outcomes.items() if word in choices.values()]
        return replace(trial, outcome=bad[0]) if bad else trial

    def rounds(self, rivals: Sequence[Choices], number: int) -> list[tuple[float, ...]]:
        self.duels.append(tuple(rivals))
        self.clock.now += 0.01 * number
        return [tuple(self._time(choices) * self._noise() for choices in rivals) for _ in range(number)]


def additive(gains: Mapping[str, float]) -> Callable[[Mapping[str, str]], float]:
    return lambda words: 1e-3 * (1 - sum(gains.get(word, 0.0) for word in words.values()))


def test_it_finds_the_best_of_each_decision():
    bench = Numbers(additive({"4 i, 64 j": 0.3, "2": 0.1, "4": 0.05, "12 i, 32 j": -0.5}))
    found = search(bench, 30.0, clock=bench.clock)
    assert found.best.choices == Choices({"C: tile": "4 i, 64 j", "C: copies of k": "2"})
    assert found.improved and found.exhausted and not found.interrupted
    assert found.seconds == pytest.approx(0.6e-3) and found.baseline_seconds == pytest.approx(1e-3)
    assert len(found.trials) == len(bench.asked) == len(set(bench.asked)) <= 4 * 3 * 2


def test_it_starts_with_the_model_and_what_it_ranks_high_where_most_work_is():
    bench = Numbers(additive({}))
    search(bench, 10.0, clock=bench.clock)
    assert bench.asked[0] == Choices()
    assert {next(iter(choices)) for choices in bench.asked[1:4]} == {"C: tile", "C: copies of k"}
    assert bench.asked[1] == Choices({"C: tile": "8 i, 48 j"})


def test_what_was_found_before_is_tried_first():
    bench = Numbers(additive({"i": 0.2}))
    earlier = Choices({"D: lanes along": "i"})
    search(bench, 10.0, first=[earlier], clock=bench.clock)
    assert bench.asked[:2] == [Choices(), earlier]


def test_answers_that_are_good_together_alone_are_found():
    """Two changes that cost something each and save a lot together."""

    def seconds(words: Mapping[str, str]) -> float:
        both = (words["C: tile"] == "12 i, 32 j") + (words["C: copies of k"] == "4")
        return 1e-3 * {0: 1.0, 1: 1.05, 2: 0.5}[both]

    bench = Numbers(seconds)
    found = search(bench, 30.0, clock=bench.clock)
    assert found.best.choices == Choices({"C: tile": "12 i, 32 j", "C: copies of k": "4"})


@pytest.mark.parametrize("seed", range(30))
def test_noise_does_not_win(seed):
    """All choices take the same time, measured within thirty percent: the model stays."""
    rng = random.Random(seed)
    bench = Numbers(additive({}), noise=lambda: rng.uniform(1.0, 1.3))
    found = search(bench, 30.0, clock=bench.clock, seed=seed)
    assert not found.improved and found.seconds == found.baseline_seconds
    assert bench.duels


@pytest.mark.parametrize("seed", range(6))
def test_a_real_gain_is_found_in_noise(seed):
    rng = random.Random(seed)
    bench = Numbers(additive({"8 i, 48 j": 0.3}), noise=lambda: rng.uniform(1.0, 1.1))
    found = search(bench, 30.0, clock=bench.clock, seed=seed)
    assert found.best.choices["C: tile"] == "8 i, 48 j"


def test_a_gain_below_the_margin_is_none():
    bench = Numbers(additive({"8 i, 48 j": 0.01}))
    assert not search(bench, 30.0, clock=bench.clock).improved


@pytest.mark.parametrize("outcome", [OTHER_BITS, FAILED])
def test_what_changes_bits_or_fails_is_never_kept(outcome):
    bench = Numbers(additive({"4 i, 64 j": 0.9, "2": 0.2}), outcomes={"4 i, 64 j": outcome})
    found = search(bench, 30.0, clock=bench.clock)
    assert found.best.choices == Choices({"C: copies of k": "2"})
    assert all("4 i, 64 j" not in choices.values() for duel in bench.duels for choices in duel)


def test_what_is_far_slower_is_given_up():
    bench = Numbers(additive({"8 i, 48 j": -9.0}))
    found = search(bench, 30.0, clock=bench.clock)
    assert {t.outcome for t in found.trials if t.choices.get("C: tile") == "8 i, 48 j"} == {SLOW}


def test_the_budget_ends_it_and_some_of_it_is_left_for_the_end():
    space = {f"C{n}: tile": tuple(map(str, range(20))) for n in range(50)}
    bench = Numbers(additive({"7": 0.01}), space=space)
    found = search(bench, 20.0, clock=bench.clock)
    assert 100 < len(found.trials) < 200 and found.elapsed <= 20.0
    assert not found.exhausted
    assert len(bench.duels[-1]) > 1 and bench.duels[-1][0] == Choices()


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_keeps_the_best_so_far(times):
    """The first one lets the trial end that runs, so no answer is lost; the second does not."""
    bench = Numbers(additive({"8 i, 48 j": 0.3}))
    plain, ended = bench.trial, []

    def interrupted(choices: Choices, limit: float) -> Trial:
        if len(bench.asked) == 4:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
        ended.append(plain(choices, limit))
        return ended[-1]

    bench.trial = interrupted
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore interrupts
    try:
        before = signal.getsignal(signal.SIGINT)
        found = search(bench, 1000.0, clock=bench.clock)
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGINT, inherited)
    assert found.interrupted and found.best.choices == Choices({"C: tile": "8 i, 48 j"})
    assert bench.clock.now < 2.0 and len(ended) == 6 - times


def test_a_search_in_another_thread_leaves_signals_alone():
    bench, found = Numbers(additive({"8 i, 48 j": 0.3})), []
    thread = threading.Thread(target=lambda: found.append(search(bench, 3.0, clock=bench.clock)))
    thread.start()
    thread.join()
    assert found[0].improved and not found[0].interrupted


def test_a_finalist_that_fails_in_the_end_does_not_take_the_others_along():
    bench = Numbers(additive({"8 i, 48 j": 0.3}))
    plain = bench.rounds
    bench.rounds = lambda rivals, number: [] if len(rivals) > 2 else plain(rivals, number)
    assert search(bench, 30.0, clock=bench.clock).best.choices["C: tile"] == "8 i, 48 j"
    bench.rounds = lambda rivals, number: []
    assert not search(bench, 30.0, clock=bench.clock).improved


def test_a_model_that_cannot_be_measured_ends_it():
    bench = Numbers(additive({}))
    bench.trial = lambda choices, limit: Trial(choices, FAILED, reason="no")
    found = search(bench, 30.0, clock=bench.clock)
    assert len(found.trials) == 1 and not found.improved


def test_it_is_the_same_every_time():
    def asked() -> list[Choices]:
        bench = Numbers(additive({"4": 0.1, "i": 0.05}))
        search(bench, 3.0, clock=bench.clock, seed=5)
        return bench.asked

    assert asked() == asked()


def test_it_tells_how_far_it_is():
    told: list[Progress] = []
    bench = Numbers(additive({"4 i, 64 j": 0.3}))
    search(bench, 30.0, clock=bench.clock, tell=told.append)
    assert told[0].now == "the model's own schedule" and told[-1].now == "the best against the model's own"
    assert told[-1].best == pytest.approx(0.7e-3) and told[-1].baseline == pytest.approx(1e-3)
    assert any(p.now == "C: tile: 4 i, 64 j" for p in told)
    assert [p.trials for p in told[1:]] == sorted(p.trials for p in told[1:])


@pytest.mark.parametrize(
    ("rounds", "wins"),
    [
        ([(1.0, 0.9)] * 8, True),
        ([(1.0, 0.99)] * 8, False),  # below the margin
        ([(1.0, 0.5)] * 5 + [(1.0, 1.1)] * 3, False),  # too seldom
        ([(1.0, 0.9)] * 7 + [(1.0, 9.0)], True),  # something else ran meanwhile
        ([], False),
    ],
)
def test_a_duel_asks_for_a_margin_in_most_rounds(rounds, wins):
    assert beats(rounds, 1, DUEL) is wins


def test_the_end_asks_for_more_rounds_than_a_duel():
    assert beats([(1.0, 0.9)] * 6 + [(1.0, 1.1)], 1, DUEL) and not beats([(1.0, 0.9)] * 6 + [(1.0, 1.1)], 1, FINAL)
    assert beats([(1.0, 0.9)] * 24 + [(1.0, 1.1)] * 7, 1, FINAL) and not beats([(1.0, 0.9)] * 23 + [(1.0, 1.1)] * 8, 1, FINAL)
