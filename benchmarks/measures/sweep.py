"""Every kernel of the library beside PyTorch, `torch.compile` and JAX: three sizes, and odd extents, forward and gradient.

Rows are those of the case table that have PyTorch's side as text, made larger by rule (`tensorexpr.benchmarks.samples.growth`): "small"
is within a second cache, "medium" within a third, "large" beyond; "odd" is medium at prime extents. Candidates take turns on the same
arrays, and their results are compared; a peer that differs has no time, and ours is compared with its plain nest then.

All run where the allocator of C keeps memory on large pages (`worker.KEEPS`), as our pool does: a peer does not pay for pages at each call.
Ours is measured once more with stock malloc and without the pool, in a process of its own: what the pool gives is that line, and no part of
the comparison. Page faults of a call are counted for each candidate, so that it can be seen.
"""

from __future__ import annotations

import importlib.util
import resource
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr.benchmarks.harness import Effort, arrays_of, difference, interleaved
from tensorexpr.benchmarks.measures.journal import Journal, Run
from tensorexpr.benchmarks.measures.report import WORST, Report, failures, milliseconds, others
from tensorexpr.benchmarks.measures.statistics import geometric_mean
from tensorexpr.benchmarks.measures.worker import Request
from tensorexpr.benchmarks.peers import OURS
from tensorexpr.benchmarks.samples import growth, library, texts
from tensorexpr.benchmarks.samples.sample import Sample
from tensorexpr.errors import ArgumentError

SIZES = {"small": (1 << 18, 10**7), "medium": (1 << 22, 10**8), "large": (1 << 26, 10**9), "odd": (1 << 22, 10**8)}
"""Bytes that a call moves, and operations that it does, whichever is reached first."""
SHARE_BAR, MEAN_BAR = 0.95, 1.8
"""The share of rows that are at least level with the best peer, and the geometric mean of its time over ours."""
STOCK = "stock"
CALLS = 3
"""Calls in which page faults are counted."""


def rows(request: Request) -> list[str]:
    """Each case by each size, in both directions. Raises `ArgumentError` without a checkout."""
    return [
        f"{sample.name} | {size} | {direction}"
        for sample in library.library(request.measure)
        if sample.torch is not None
        for size in SIZES
        for direction in ("forward", "gradient")
        if sample.differentiable or direction == "forward"
    ]


def requests(request: Request) -> list[Request]:
    """One worker with peers and memory that is kept, one for ours as the machine has it. Raises `ArgumentError` for unknown peers."""
    wanted = request.peers or tuple(texts.PEERS)
    for name in wanted:
        if name not in texts.PEERS:
            raise ArgumentError(f"bench sweep: expected peers among {', '.join(texts.PEERS)}, got {name!r}")
    there = tuple(name for name in wanted if importlib.util.find_spec(name.partition(".")[0]) is not None)
    imports = tuple(texts.PEERS[name] for name in there)
    return [replace(request, peers=there, imports=imports, keeps=True), replace(request, peers=(), imports=(), pool=False)]


def measured(key: str, request: Request) -> Run:
    """Seconds and page faults of each candidate; without the pool only ours, as "stock"."""
    name, size, direction = key.split(" | ")[:3]
    case = next(sample for sample in library.library(request.measure) if sample.name == name)
    sample = growth.grown(case, *SIZES[size], odd=size == "odd")
    if sample is None:
        return {"lacking": "the sample cannot be made large"}
    return beside(sample, direction == "gradient", request)


def beside(sample: Sample, gradient: bool, request: Request) -> Run:
    """Builds the candidates, compares what they give, times them in turns."""
    traced, arrays = sample.traced(), sample.draw()
    heads: list[np.ndarray] | None = None
    given = arrays
    if gradient:
        rng = np.random.default_rng(1)
        heads = [rng.standard_normal(t.shape, np.float32).astype(t.dtype.numpy) for t in traced.outputs if t.dtype.is_float]
        traced, given = traced.with_gradient(), [*arrays, *heads]
    function = te.build(traced.outputs, traced.inputs)
    calls: dict[str, Callable[[], Any]] = {OURS: lambda: function(*given)}
    results = {OURS: arrays_of(calls[OURS]())}
    failed: dict[str, str] = {}
    for peer in request.peers:
        assert sample.torch is not None
        try:
            call = texts.candidate(peer, sample.torch, arrays, heads)
            results[peer] = [np.asarray(result) for result in call()]
            calls[peer] = call
        except Exception as error:  # whatever a peer does is told, and the others are measured
            failed[peer] = f"{type(error).__name__}: {error}"[:200]
    wrong = {
        peer: gap for peer in request.peers if peer in calls and not (gap := difference(results[peer], results[OURS])) <= sample.tolerance
    }
    # Who is right where a peer differs: the plain nest, which is the same operation. A text may hold numbers of small shapes.
    plain = arrays_of(te.build(te.schedule(traced.outputs, "cpu", traced.inputs))(*given)) if wrong else results[OURS]
    apart = difference(plain, results[OURS])
    for peer, gap in wrong.items():
        failed[peer] = f"differs by {gap:.1e}"
        del calls[peer]
    results.clear()
    timings = interleaved(calls, Effort(request.rounds, settle=0.002 if request.threads == 1 else 0.04, limit=4.0))
    if not request.pool:
        return {STOCK: timings[OURS].median, "stock faults": _faults(calls[OURS])}
    return {
        "shapes": [list(shape) for shape in sample.shapes], "seconds": {name: timing.median for name, timing in timings.items()},
        "least": {name: timing.least for name, timing in timings.items()}, "faults": {name: _faults(call) for name, call in calls.items()},
        "difference": apart, "tolerance": sample.tolerance, "failed": failed,
    }  # fmt: skip


def _faults(call: Callable[[], Any]) -> float:
    """Pages that a call asks the system for."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(CALLS):
        call()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / CALLS


def best_peer(run: Run) -> tuple[str, float] | None:
    """The fastest peer and its seconds."""
    found = {name: seconds for name, seconds in run.get("seconds", {}).items() if name != OURS}
    return min(found.items(), key=lambda item: item[1]) if found else None


def ratio(run: Run) -> float | None:
    """The best peer's time over ours."""
    peer = best_peer(run)
    return None if peer is None else float(peer[1] / run["seconds"][OURS])


def report(journal: Journal, keys: list[str], options: Any) -> Report:
    """How many rows are level, the geometric mean, by size and direction; what the pool gives; the worst twenty."""
    del options
    quoted = journal.quoted()
    found = {key: value for key in keys if (value := ratio(quoted[key])) is not None}
    lines = [f"{_line(list(found.values()))} (bars: {SHARE_BAR:.0%}, {MEAN_BAR:g})"]
    for part, place in (*((size, 1) for size in SIZES), ("forward", 2), ("gradient", 2)):
        own = [value for key, value in found.items() if key.split(" | ")[place] == part]
        if own:
            lines.append(f"{part}: {_line(own)}")
    for peer in texts.PEERS:
        own = [run["seconds"][peer] / run["seconds"][OURS] for key in found if peer in (run := quoted[key])["seconds"]]
        if own:
            lines.append(f"beside {peer}: {_line(own)}")
    stock = [quoted[key][STOCK] / quoted[key]["seconds"][OURS] for key in found if STOCK in quoted[key]]
    if stock:
        lines.append(f"ours with stock malloc and without the pool takes {geometric_mean(stock):.2f} times as long, in the geometric mean")
    worst = sorted(found, key=found.__getitem__)[:WORST]
    table: list[tuple[str, ...]] = []
    for key in worst:
        run, best = quoted[key], best_peer(quoted[key])
        assert best is not None
        faults = f"{run['faults'][OURS]:.0f} / {run['faults'][best[0]]:.0f}"
        stocked = milliseconds(run[STOCK]) if STOCK in run else "-"
        cells = (milliseconds(run["seconds"][OURS]), milliseconds(best[1]), best[0], stocked, faults)
        table.append((key, f"{found[key]:.2f}", *cells, others(journal, key, ratio)))
    heads = ("kernel", "peer / ours", "ours ms", "peer ms", "peer", "ours, stock malloc", "faults of a call, ours / peer", "other runs")
    wrong = [
        f"differs: {key} by {run['difference']:.1e}"
        for key in keys
        if not (run := quoted[key]).get("difference", 0) <= run.get("tolerance", 1)
    ]
    alone = [key for key in keys if "seconds" in quoted[key] and key not in found]
    lost: dict[str, int] = {}
    for key in keys:
        for peer in quoted[key].get("failed", ()):
            lost[peer] = lost.get(peer, 0) + 1
    remarks = [
        f"{peer} has no time in {count} of {len(keys)} rows: it has not got the operation, or not at these shapes"
        for peer, count in lost.items()
    ]
    remarks += [f"{len(alone)} rows have no peer"] if alone else []
    return Report(
        "Sweep: the library beside PyTorch, torch.compile and JAX", lines, heads, table, [*wrong, *failures(journal, keys), *remarks]
    )


def _line(ratios: list[float]) -> str:
    level = sum(value >= 1 for value in ratios)
    return f"{level} of {len(ratios)} at least level with the best peer; geometric mean of peer / ours {geometric_mean(ratios):.2f}"
