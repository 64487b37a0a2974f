"""One way to time: the candidates of a workload run in turn, round by round, in one process, on the same arrays.

Interleaving makes ratios hold when the machine's speed drifts; medians are quoted. Every candidate is called before
timing starts (compiled, caches warm) and its result is compared with the first candidate's, so that nobody is timed on
another problem.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Workload:
    """Something to compute: `candidates` maps names to functions of no arguments that give an array or a tuple of them.

    The first candidate is the reference for values, `tolerance` relative to the largest magnitude of its result.
    `operations` and `bytes` are the least a perfect implementation executes and moves.
    """

    name: str
    candidates: dict[str, Callable[[], Any]]
    operations: int
    bytes: int
    tolerance: float = 1e-4


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds per call of one candidate: the median and the least over the rounds."""

    workload: str
    candidate: str
    median: float
    least: float


def _arrays(result: Any) -> list[np.ndarray]:
    return [np.asarray(r) for r in result] if isinstance(result, tuple | list) else [np.asarray(result)]


def check_values(workload: Workload) -> None:
    """Raises AssertionError where a candidate's values differ from the first one's beyond the tolerance."""
    names = list(workload.candidates)
    reference = _arrays(workload.candidates[names[0]]())
    for name in names[1:]:
        for expected, got in zip(reference, _arrays(workload.candidates[name]()), strict=True):
            scale = max(float(np.abs(expected).max(initial=0)), 1e-30)
            error = float(np.abs(expected - got).max(initial=0)) / scale
            if not error <= workload.tolerance:
                raise AssertionError(f"{workload.name}: {name} differs from {names[0]} by {error:.1e} of the largest value")


SETTLE = 0.15
"""Seconds of rest before each sample: the worker threads of a BLAS spin for a while after its last call, on a core that the
next candidate is meant to have."""


def measure(workload: Workload, rounds: int = 15, seconds: float = 0.02) -> list[Timing]:
    """Times the candidates in turn, `rounds` times; one round of one candidate repeats calls for about `seconds`.

    Each sample follows a rest of `SETTLE` seconds and one call that is not counted.
    """
    check_values(workload)
    repeats = {}
    for name, function in workload.candidates.items():
        start = time.perf_counter()
        function()
        repeats[name] = max(1, int(seconds / max(time.perf_counter() - start, 1e-7)))
    samples: dict[str, list[float]] = {name: [] for name in workload.candidates}
    for _ in range(rounds):
        for name, function in workload.candidates.items():
            time.sleep(SETTLE)
            function()
            start = time.perf_counter()
            for _ in range(repeats[name]):
                function()
            samples[name].append((time.perf_counter() - start) / repeats[name])
    return [Timing(workload.name, name, float(np.median(s)), min(s)) for name, s in samples.items()]


def table(workloads: Sequence[Workload], timings: Sequence[Timing]) -> str:
    """A text table: milliseconds of every candidate, the ratio of the best peer to ours, operations and bytes per second."""
    by_workload = {w.name: {t.candidate: t for t in timings if t.workload == w.name} for w in workloads}
    candidates = list(dict.fromkeys(t.candidate for t in timings))
    width = max(len(name) for name in ("workload", *by_workload)) + 2
    header = f"{'workload':<{width}}" + "".join(f"{c + ' ms':>16}" for c in candidates) + f"{'peer / ours':>14}{'Gop/s':>9}{'GB/s':>8}"
    lines = [header]
    for w in workloads:
        row = by_workload[w.name]
        ours = row["tensorexpr"].median
        peers = [t.median for c, t in row.items() if c != "tensorexpr"]
        cells = "".join(f"{row[c].median * 1e3:>16.3f}" if c in row else f"{'-':>16}" for c in candidates)
        ratio = f"{min(peers) / ours:>13.2f}x" if peers else f"{'-':>14}"
        lines.append(f"{w.name:<{width}}{cells}{ratio}{w.operations / ours / 1e9:>9.1f}{w.bytes / ours / 1e9:>8.1f}")
    return "\n".join(lines)
