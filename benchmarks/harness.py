"""One way to time: the candidates of a workload take turns, round by round, in one process, on the same arrays.

Interleaving makes ratios hold when the machine's speed drifts; medians are quoted, with the quartiles as the spread. Every
candidate has been called before timing starts and once more before each sample, so code and caches are warm: operands that
fit in a cache are there (a call so long that filling a cache is nothing to it is its own sample). A candidate far slower
than the fastest sits out the later rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorexpr.cli.info import collect

SETTLE = 0.04
"""Seconds of rest before each sample where threads are: the workers of some libraries spin for a while after their last call, on
cores that the next candidate is meant to have."""
RESTS = 25
"""Such rests at most, until the process computes next to nothing in one: XLA goes on giving back memory long after its result is there."""
IDLE = 0.02
"""Of a core: what a process that rests may take."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to time: rounds, seconds of calls per sample, seconds of rest before it, seconds for a whole set of candidates after
    which no round starts (the third still does), how many times slower than the fastest a candidate stays in after two samples, and how
    many after one, and seconds of a call that needs no other before it."""

    rounds: int = 9
    sample: float = 0.01
    settle: float = SETTLE
    limit: float = 10.0
    slow: float = 3.0
    hopeless: float = 10.0
    long: float = 0.3


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds per call: median, quartiles and least over the samples."""

    median: float
    lower: float
    upper: float
    least: float
    samples: int


def settled(seconds: float) -> None:
    """Rests until no thread of this process computes."""
    for _ in range(RESTS):
        before = time.process_time()
        time.sleep(seconds)
        if time.process_time() - before <= IDLE * seconds:
            return


def interleaved(
    candidates: dict[str, Callable[[], Any]],
    effort: Effort,
    clock: Callable[[], float] = time.perf_counter,
    rest: Callable[[float], None] = settled,
) -> dict[str, Timing]:
    """Times candidates that have been called before."""
    began = clock()
    repeats: dict[str, int] = {}
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(effort.rounds):
        if number >= 3 and clock() - began > effort.limit:
            break
        fastest = min((float(np.median(found)) for found in samples.values() if found), default=0.0)
        for name, function in candidates.items():
            patience = (float("inf"), effort.hopeless, effort.slow)[min(number, 2)]
            if number and float(np.median(samples[name])) > patience * fastest:
                continue
            rest(effort.settle)
            start = clock()
            function()
            taken = clock() - start
            if taken >= effort.long:
                samples[name].append(taken)
                continue
            count = repeats.setdefault(name, max(1, round(effort.sample / max(taken, 1e-7))))
            if count > 1 and number == 0:  # the first estimate may have had caches to fill
                start = clock()
                function()
                count = repeats[name] = max(1, round(effort.sample / max(clock() - start, 1e-7)))
            start = clock()
            for _ in range(count):
                function()
            samples[name].append((clock() - start) / count)
    return {name: _timing(found) for name, found in samples.items()}


def _timing(samples: Sequence[float]) -> Timing:
    lower, median, upper = np.percentile(samples, (25, 50, 75))
    return Timing(float(median), float(lower), float(upper), min(samples), len(samples))


def machine() -> dict[str, Any]:
    """What results say of where they were made: `tensorexpr info`, but for what is kept on this disk."""
    return {name: fact for name, fact in collect().items() if name != "cache"}


def arrays_of(result: Any) -> list[np.ndarray]:
    """The arrays of a result, whatever library they are from."""
    return [np.asarray(r) for r in result] if isinstance(result, tuple | list) else [np.asarray(result)]


def difference(expected: Sequence[np.ndarray], got: Sequence[np.ndarray]) -> float:
    """The largest difference over all arrays, each relative to the largest finite magnitude expected in it; equal infinities do not differ.
    Infinite for other shapes or NaN."""
    if [a.shape for a in expected] != [a.shape for a in got]:
        return float("inf")
    worst = 0.0
    for one, other in zip(expected, got, strict=True):
        scale = max(float(np.abs(one[np.isfinite(one)]).max(initial=0)), 1e-30)
        apart = one != other
        error = float(np.abs(one[apart] - other[apart]).max(initial=0)) / scale
        worst = max(worst, error if error == error else float("inf"))
    return worst
