"""What was measured, as numbers a reader compares: a table on the terminal, the same in Markdown, and what stays behind a bar.

All of it is made from the JSON document of a run, never from memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from tensorexpr.benchmarks.peers import OURS
from tensorexpr.benchmarks.roofline import Roofline

COLUMNS = (
    "workload", "", "ours ms", "best peer ms", "peer", "peer / ours", "Gflop/s", "of peak", "GB/s", "of stream", "memory",
    "build ms", "warm ms", "beside",
)  # fmt: skip
GRADIENT_BARS = {"contraction": 3.0, "memory": 2.5, "fused": 2.5, "small": 3.0}
"""How many times the forward's time its gradient, with the output, may take."""
FRAMEWORKS = ("torch", "torch.compile", "jax")
FRAMEWORK_BAR, SMALL_BAR = 3.0, 2.0
"""How many times our time the fastest array framework takes at least for what is fused, and the best peer for what is small."""
PEAK_BAR, STREAM_BAR = 0.9, 0.85
"""Shares of the peak of multiply-adds that contractions reach at least, and of the best stream that what memory bounds does."""
MEMORY_BAR = 1.1
LEAST_WEIGHED = 8 << 20
"""Bytes of inputs and outputs below which memory is mostly that of code."""


def ours(row: dict[str, Any]) -> float | None:
    """Our median, seconds."""
    timing = row.get("timings", {}).get(OURS)
    return None if timing is None else timing["median"]


def best_peer(row: dict[str, Any], among: Sequence[str] | None = None) -> tuple[str, float] | None:
    """The fastest peer (of some) and its median."""
    timings = row.get("timings", {}).items()
    peers = {name: timing["median"] for name, timing in timings if name != OURS and (among is None or name in among)}
    return min(peers.items(), key=lambda item: item[1]) if peers else None


def ratio(row: dict[str, Any]) -> float | None:
    """The best peer's time over ours: at least 1 where nobody is faster."""
    mine, peer = ours(row), best_peer(row)
    return None if mine is None or peer is None else peer[1] / mine


def memory(row: dict[str, Any]) -> float | None:
    """Bytes at the peak (inputs, what a call adds, what is kept between calls) over those of inputs and outputs; None for small ones."""
    added, total = row.get("added"), row.get("in_and_out")
    if added is None or not total or total < LEAST_WEIGHED:
        return None
    return float((row["inputs"] + added) / total)


def fractions(row: dict[str, Any], roof: Roofline) -> tuple[float | None, float | None]:
    """Ours as shares of the peak of multiply-adds and of the best stream of that size."""
    mine = ours(row)
    if mine is None:
        return None, None
    stream = roof.bandwidth(row["bytes"])
    arithmetic = row["operations"] / mine / roof.flops if row["operations"] else None
    return arithmetic, None if stream is None else row["bytes"] / mine / stream


def cells(row: dict[str, Any], roof: Roofline) -> list[str]:
    """One line of the table."""
    mine, peer, times = ours(row), best_peer(row), ratio(row)
    peak, stream = fractions(row, roof)
    weight = memory(row)
    return [
        row["workload"],
        row["direction"],
        _milliseconds(mine),
        _milliseconds(peer[1] if peer else None),
        peer[0] if peer else "-",
        _number(times, "{:.2f}x"),
        _number(row["operations"] / mine / 1e9 if mine and row["operations"] else None, "{:.1f}"),
        _number(peak, "{:.0%}"),
        _number(row["bytes"] / mine / 1e9 if mine else None, "{:.1f}"),
        _number(stream, "{:.0%}"),
        _number(weight, "{:.2f}"),
        _milliseconds(row["compile"].get(OURS)),
        _milliseconds(row.get("warm")),
        " ".join(name for name in row.get("timings", {}) if name != OURS) or "-",
    ]


def _milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    value = seconds * 1e3
    return f"{value:.5f}" if value < 0.01 else f"{value:.3f}" if value < 10 else f"{value:.1f}"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def lines(run: dict[str, Any]) -> list[list[str]]:
    """The table of one number of threads."""
    roof = Roofline.of_json(run["roofline"])
    return [cells(row, roof) for row in run["rows"]]


def roof_text(run: dict[str, Any]) -> str:
    """What the machine can do, in a line."""
    roof = Roofline.of_json(run["roofline"])
    sizes = next(iter(roof.streams.values()))
    streams = ", ".join(f"{size >> 20} MiB {max(s[size] for s in roof.streams.values()) / 1e9:.1f}" for size in sizes)
    return f"{roof.flops / 1e9:.0f} Gflop/s of multiply-adds; best stream GB/s: {streams}"


def behind(run: dict[str, Any]) -> Iterator[str]:
    """What stays behind a bar: a peer that is faster or not slow enough, a gradient that takes too long, memory beyond inputs and outputs,
    arithmetic or bandwidth left unused."""
    roof = Roofline.of_json(run["roofline"])
    forward = {row["workload"]: ours(row) for row in run["rows"] if row["direction"] == "forward"}
    for row in run["rows"]:
        name = f"{row['workload']} {row['direction']}"
        times, mine, weight = ratio(row), ours(row), memory(row)
        peer = best_peer(row)
        if times is not None and peer is not None and times < 1:
            yield f"{name}: {times:.2f} of {peer[0]}"
        before = forward.get(row["workload"])
        if row["direction"] == "gradient" and mine and before and mine > GRADIENT_BARS[row["group"]] * before:
            yield f"{name}: {mine / before:.1f} times the forward"
        if weight is not None and weight > MEMORY_BAR:
            yield f"{name}: {weight:.2f} times the memory of inputs and outputs"
        yield from (f"{name}: {text}" for text in _unused(row, roof))


def _unused(row: dict[str, Any], roof: Roofline) -> Iterator[str]:
    """What bounds the group of a row, where it is missed."""
    peak, stream = fractions(row, roof)
    if row["group"] == "contraction" and peak is not None and peak < PEAK_BAR:
        yield f"{peak:.2f} of the peak of multiply-adds"
    if row["group"] == "memory" and stream is not None and stream < STREAM_BAR:
        yield f"{stream:.2f} of the best stream"
    bar, names = (SMALL_BAR, None) if row["group"] == "small" else (FRAMEWORK_BAR, FRAMEWORKS)
    peer = best_peer(row, names)
    mine = ours(row)
    if row["group"] in ("fused", "small") and mine and peer is not None and mine <= peer[1] < bar * mine:
        yield f"{peer[1] / mine:.2f} of {peer[0]}, where {bar:.0f} is meant"


def headline(run: dict[str, Any]) -> str:
    """How many workloads are ahead, and by how much."""
    ratios = [r for r in map(ratio, run["rows"]) if r is not None]
    if not ratios:
        return "no peers"
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return f"{sum(r >= 1 for r in ratios)} of {len(ratios)} at least as fast as the best peer; geometric mean of peer / ours {mean:.2f}"


def summary(run: dict[str, Any]) -> str:
    """The headline, and what is behind."""
    return "\n".join([headline(run), *(f"  behind: {text}" for text in behind(run)), *skipped(run), failures(run)]).rstrip()


def counts(run: dict[str, Any]) -> dict[str, int]:
    """In how many rows each peer was timed."""
    found: dict[str, int] = {}
    for row in run["rows"]:
        for name in row.get("timings", {}):
            if name != OURS:
                found[name] = found.get(name, 0) + 1
    return found


def skipped(run: dict[str, Any]) -> Iterator[str]:
    """A line for each peer and reason that it was not timed for, though it is installed."""
    found: dict[tuple[str, str], int] = {}
    for row in run["rows"]:
        for reason in row.get("lacking", {}).items():
            found[reason] = found.get(reason, 0) + 1
    for (name, why), rows in found.items():
        yield f"  skipped: {name} in {rows} of {len(run['rows'])} rows ({why})"


def failures(run: dict[str, Any]) -> str:
    """What could not be measured: peers that failed or differ, workloads without an answer."""
    found = [f"  {name}: {text.splitlines()[-1]}" for name, text in run["errors"].items()]
    for row in run["rows"]:
        where = f"{row['workload']} {row['direction']}"
        found += [f"  {where}: {name} failed ({why.splitlines()[0][:120]})" for name, why in row["failed"].items()]
        found += [f"  {where}: {name} differs from {row['reference']} by {error:.1e}" for name, error in row["differs"].items()]
    return "\n".join(found)


def wrong(run: dict[str, Any]) -> bool:
    """Whether ours gave other values than the reference somewhere, or none."""
    return bool(run["errors"]) or any(OURS in row["failed"] or OURS in row["differs"] for row in run["rows"])


def scaling(runs: Sequence[dict[str, Any]]) -> str:
    """How much faster the last number of threads is than the first, as a line; empty where there is one run."""
    if len(runs) < 2:
        return ""
    first = {(row["workload"], row["direction"]): ours(row) for row in runs[0]["rows"]}
    pairs = [(one, ours(row)) for row in runs[-1]["rows"] if (one := first.get((row["workload"], row["direction"])))]
    gains = sorted(one / many for one, many in pairs if one and many)
    if not gains:
        return ""
    counts = f"{runs[-1]['threads']} threads against {runs[0]['threads']}"
    return f"{counts}: median {gains[len(gains) // 2]:.2f}x, least {gains[0]:.2f}x, most {gains[-1]:.2f}x"


def markdown(runs: Sequence[dict[str, Any]]) -> str:
    """The table of the performance page: for each number of threads our time and the ratio to the best peer, forward and gradient."""
    found: dict[str, list[str]] = {}
    heads = ["workload"]
    for run in runs:
        suffix = f", {run['threads']} thread{'s' if run['threads'] > 1 else ''}"
        for direction in ("forward", "gradient"):
            heads += [f"{direction} ms{suffix}", "best peer / ours"]
            for name in dict.fromkeys(row["workload"] for row in run["rows"]):
                row = next((row for row in run["rows"] if (row["workload"], row["direction"]) == (name, direction)), None)
                times, peer = (ratio(row), best_peer(row)) if row else (None, None)
                quoted = f"{times:.2f} ({peer[0]})" if times is not None and peer else "-"
                found.setdefault(name, []).extend([_milliseconds(ours(row)) if row else "-", quoted])
    lines = [heads, ["---"] * len(heads), *([name, *cells] for name, cells in found.items())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
