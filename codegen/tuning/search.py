"""The search: which choices to try next, and when one counts as better. It knows decisions and a bench, and nothing of machines.

It starts at the model's own schedule and walks over decisions, one other answer at a time, from the best schedule so far: first what
the model ranked high, in the definitions that do most of the work, along decisions that have helped before. Now and then it
puts answers together that were good alone, and when no single one is left it changes a few at random. What is slower by far is
given up after one call.

Times are noisy, so a better time alone decides nothing. A candidate takes the place of the best one only in a duel: both run in turns,
and it must be faster by `MARGIN` in the median of the rounds and in most of them. At the end the best few run in turns against the
model's schedule, and by a stricter count of rounds one of them is better, or the model stays.
"""

from __future__ import annotations

import heapq
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from math import inf, sqrt
from typing import Protocol

from tensorexpr.codegen.schedule.decisions import Choices, Decision
from tensorexpr.records import field, record

MARGIN = 0.02
"""How much faster the median round must be."""
DUEL, FINAL = 1.5, 3.0
"""By how many standard deviations of a toss of coins the rounds that are faster must outnumber half of them: on the way, where a
mistake costs little, and at the end."""
SUSPICION = 1.02
"""A trial up to so much slower than the best one is looked at in a duel as well when it comes to the end."""
DUEL_ROUNDS = 7
LEAST_ROUNDS, FINAL_ROUNDS = 5, 31
FINALISTS = 3
FINAL_SHARE = 0.15
"""The part of the budget that is kept for the end."""
PAIRED = 5
"""Every so many trials are two answers together."""
STRAYS = 30
"""How often an untried combination is looked for at random before there is said to be none."""
FADING = 0.9
"""What a place further down in the model's order takes from the rank of an option."""

OK, SAME, OTHER_BITS, FAILED, SLOW = "ok", "same schedule", "other bits", "failed", "slow"


@record
class Trial:
    """What became of choices: an `outcome`, seconds of one call (infinite where there is no time), the decisions that came up with
    them, what share of the work each definition does, the calls of the schedule, and for a failure its reason."""

    choices: Choices
    outcome: str
    seconds: float = inf
    decisions: tuple[Decision, ...] = ()
    shares: tuple[tuple[str, float], ...] = ()
    schedule: str = ""
    reason: str = ""


class Bench(Protocol):
    """Where choices are measured."""

    def trial(self, choices: Choices, limit: float) -> Trial:
        """Builds what choices ask for, checks its results, and times it a little; gives up where a call takes more than `limit` seconds."""
        ...

    def rounds(self, rivals: Sequence[Choices], number: int) -> list[tuple[float, ...]]:
        """Seconds of each rival in so many rounds, in turns. Fewer rounds, or none, where one of them fails."""
        ...


@record(frozen=False, slots=False)
class Found:
    """What a search came to: the model's own trial, the best one, seconds of both side by side, all trials in order."""

    baseline: Trial
    best: Trial
    baseline_seconds: float
    seconds: float
    trials: list[Trial] = field(default_factory=list)
    elapsed: float = 0.0
    interrupted: bool = False
    exhausted: bool = False

    @property
    def improved(self) -> bool:
        return self.best is not self.baseline


@record
class Progress:
    """How far a search is: seconds gone and in all, trials, the model's seconds and the best ones, what is tried now."""

    elapsed: float
    budget: float
    trials: int
    baseline: float
    best: float
    now: str


def median(values: Iterable[float]) -> float:
    """The middle one of some numbers, or the mean of the two there."""
    found = sorted(values)
    half = len(found) // 2
    return found[half] if len(found) % 2 else (found[half - 1] + found[half]) / 2


def beats(rounds: Sequence[tuple[float, ...]], rival: int, certain: float) -> bool:
    """Whether a rival is faster than the first one: by the margin in the median of the rounds, and in more of them than chance gives."""
    ratios = [r[0] / r[rival] for r in rounds]
    needed = min(len(ratios), (len(ratios) + certain * sqrt(len(ratios))) / 2)
    return bool(ratios) and median(ratios) >= 1 + MARGIN and sum(ratio > 1 for ratio in ratios) >= needed


def search(
    bench: Bench,
    budget: float,
    *,
    first: Sequence[Choices] = (),
    clock: Callable[[], float] = time.monotonic,
    tell: Callable[[Progress], None] | None = None,
    seed: int = 0,
) -> Found:
    """Looks for choices that are faster than the model's for `budget` seconds; `first` are tried before all others.

    An interrupt from the keyboard ends the search after the trial that runs, with what was found so far; a second one ends the trial, too.
    """
    return _Search(bench, budget, first, clock, tell, seed).run()


@contextmanager
def _interrupts(note: Callable[[], None]) -> Iterator[None]:
    """Has `note` called at the first interrupt from the keyboard, where this is the thread that is told; the next are as they were.

    An exception may come anywhere: in the middle of what is told to another process, or where exceptions are passed over.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield
        return

    def first(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, before)
        note()

    signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _Search:
    def __init__(
        self,
        bench: Bench,
        budget: float,
        first: Sequence[Choices],
        clock: Callable[[], float],
        tell: Callable[[Progress], None] | None,
        seed: int,
    ) -> None:
        self.bench, self.budget, self.clock, self.tell = bench, budget, clock, tell
        self.first = first
        self.random = random.Random(seed)
        self.began = clock()
        self.tried: dict[Choices, Trial] = {}
        self.gains: dict[str, float] = {}
        self.stopped = False

    def run(self) -> Found:
        self._say(inf, inf, "the model's own schedule")
        self.baseline = self.best = self.bench.trial(Choices(), inf)
        self.tried[Choices()] = self.baseline
        self.began = self.clock()  # what building and starting took is no part of the search
        found = Found(self.baseline, self.baseline, self.baseline.seconds, self.baseline.seconds)
        if self.baseline.outcome == OK:
            try:
                with _interrupts(self._stop):
                    found.exhausted = self._walk()
            except KeyboardInterrupt:
                self.stopped = True
            found.interrupted = self.stopped
            self._finish(found)
        found.trials, found.elapsed = list(self.tried.values()), self.elapsed
        return found

    def _stop(self) -> None:
        self.stopped = True

    @property
    def elapsed(self) -> float:
        return self.clock() - self.began

    def _say(self, baseline: float, best: float, now: str) -> None:
        if self.tell is not None:
            self.tell(Progress(self.elapsed, self.budget, len(self.tried), baseline, best, now))

    # --------------------------------------------------------------------------------------------------------- walk

    def _walk(self) -> bool:
        """Tries one after the other until the time is up; says whether there was nothing left to try."""
        for choices in self._proposals():
            if self.stopped or self.elapsed >= self.budget * (1 - FINAL_SHARE):
                return False
            self._try(choices)
        return True

    def _proposals(self) -> Iterator[Choices]:
        yield from (choices for choices in self.first if choices not in self.tried)
        while True:
            chosen = self._pair() if len(self.tried) % PAIRED == PAIRED - 1 else None
            chosen = chosen or self._neighbor() or self._pair() or self._stray()
            if chosen is None:
                return
            yield chosen

    def _neighbor(self) -> Choices | None:
        """The best choices, with the answer to one decision changed that promises most."""
        shares = dict(self.best.shares)
        queue: list[tuple[float, int, Choices]] = []
        order = count()
        for decision in self.best.decisions:
            weight = shares.get(decision.name.split(":", 1)[0], 0.0) + 0.01
            weight *= 1 + self.gains.get(_kind(decision.name), 0.0)
            for rank, option in enumerate(decision.options):
                if option == decision.taken:
                    continue
                asked = self.best.choices.with_choice(decision.name, None if rank == 0 else option)
                if asked not in self.tried:
                    heapq.heappush(queue, (-weight * FADING**rank, next(order), asked))
        return queue[0][2] if queue else None

    def _pair(self) -> Choices | None:
        """The best choices with those of another good trial, or two good ones of it at random."""
        good = sorted((t for t in self.tried.values() if t.outcome == OK and t.choices), key=lambda t: t.seconds)[:8]
        for _ in range(8):
            if len(good) < 2:
                return None
            a, b = self.random.sample(good, 2)
            asked = Choices({**b.choices, **a.choices})
            if asked not in self.tried:
                return asked
        return None

    def _stray(self) -> Choices | None:
        """The best choices with a few answers changed at random, the model's better ones more often."""
        for _ in range(STRAYS):
            asked = self.best.choices
            for decision in self.random.sample(self.best.decisions, min(len(self.best.decisions), self.random.randint(2, 3))):
                rank = int(len(decision.options) * self.random.random() ** 2)
                asked = asked.with_choice(decision.name, decision.options[rank] if rank else None)
            if asked not in self.tried:
                return asked
        return None

    def _try(self, choices: Choices) -> None:
        self._say(self.baseline.seconds, self.best.seconds, _difference(self.best.choices, choices))
        trial = self.tried[choices] = self.bench.trial(choices, 3 * self.best.seconds)
        if trial.outcome != OK:
            return
        faster = self.best.seconds / trial.seconds
        for name in _changed(self.best.choices, choices):
            kind = _kind(name)
            self.gains[kind] = 0.5 * self.gains.get(kind, 0.0) + max(-0.5, min(2.0, 4 * (faster - 1)))
        if faster > 1 + MARGIN / 2 and beats(self.bench.rounds((self.best.choices, choices), DUEL_ROUNDS), 1, DUEL):
            self.best = trial

    # ----------------------------------------------------------------------------------------------------- the end

    def _finish(self, found: Found) -> None:
        """The best few against the model's own, in turns, while there is time."""
        near = [t for t in self.tried.values() if t.outcome == OK and t.choices and t.seconds <= SUSPICION * self.best.seconds]
        rivals = sorted(near, key=lambda t: (t is not self.best, t.seconds))[: 1 if found.interrupted else FINALISTS]
        if not rivals:
            return
        self._say(self.baseline.seconds, self.best.seconds, "the best against the model's own")
        each = sum(t.seconds for t in (self.baseline, *rivals))
        left = max(self.budget - self.elapsed, self.budget * FINAL_SHARE / 2)
        number = max(LEAST_ROUNDS, min(FINAL_ROUNDS, int(left / max(each, 1e-9))))
        rounds = self.bench.rounds((self.baseline.choices, *(t.choices for t in rivals)), number)
        if not rounds and len(rivals) > 1:  # one of them failed
            rivals = rivals[:1]
            rounds = self.bench.rounds((self.baseline.choices, rivals[0].choices), number)
        ranked = sorted((median(r[k] for r in rounds), k) for k in range(1, len(rivals) + 1)) if rounds else []
        for seconds, k in ranked:
            if beats(rounds, k, FINAL):
                found.best, found.seconds = rivals[k - 1], seconds
                found.baseline_seconds = median(r[0] for r in rounds)
                return


def _kind(decision: str) -> str:
    """What a decision is about, without the definition: `tile` helps in one if it helped in another."""
    return decision.split(": ", 1)[-1]


def _changed(a: Choices, b: Choices) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys((*a, *b)) if a.get(name) != b.get(name))


def _difference(a: Choices, b: Choices) -> str:
    """What choices ask for beside others, in words."""
    return "; ".join(f"{name}: {b.get(name, 'the model')}" for name in _changed(a, b))
