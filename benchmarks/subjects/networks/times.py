"""Whole networks by `torch.compile`, ours beside Inductor and eager PyTorch, on the CPU: `python -m tensorexpr bench models`.

Each network (`benchmarks/networks`) has a process of its own for each number of threads. In it the three begin with the same weights,
results and gradients of ours are compared with those of eager mode, and then they take turns: inference, and a training step (loss and
all gradients). Beside the times stands what a backend adds to the first call: that of the same graph with the backend "aot_eager",
which compiles nothing, is taken off. Where a result differs by more than rounding does as a rule, both are compared with the network in
float64, and ours may be no farther from it. An element at the border of a ReLU, or a pool whose winner is not clear, falls on either side
by rounding, and moves whole gradients by hundredths, now in one of the two and now in the other: so inputs are drawn several times, and
the middle one counts. Caches on disk are those of the environment; `--prepare` fills them and times nothing.
"""

from __future__ import annotations

import copy
import datetime
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tensorexpr.benchmarks import keeping, peers
from tensorexpr.benchmarks.harness import Effort, interleaved, machine
from tensorexpr.benchmarks.subjects.networks import BACKENDS, NETWORKS, calls_of, chosen
from tensorexpr.benchmarks.worker import limits, take_cores
from tensorexpr.cli import output

CLOSE, FARTHER, DRAWS = 1e-3, 2.0, 5
"""How far results and gradients may be apart, relatively to the largest of each tensor's: both round in their own order. Beyond it, how
many times as far from the float64 result ours may be as those of eager mode, in the middle of so many draws of the inputs."""


@dataclass(frozen=True)
class Row:
    """One network in one direction: milliseconds by backend, seconds that ours and Inductor add to the first call, the difference."""

    network: str
    direction: str
    threads: int
    ours: float | None
    eager: float | None
    inductor: float | None
    first: float
    first_inductor: float | None
    difference: float
    farther: float | None

    @property
    def right(self) -> bool:
        """Whether results are those of eager mode but for rounding."""
        return self.difference < CLOSE or (self.farther is not None and self.farther < FARTHER)

    @property
    def ratio(self) -> float | None:
        """The time of the faster peer over ours."""
        times = [t for t in (self.eager, self.inductor) if t is not None]
        return min(times) / self.ours if self.ours and times else None


def apart(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    """The largest difference, relative to the largest element of each tensor; those that are rounding alone count against all of them."""
    scale = max(float(t.abs().max()) for t in theirs)
    return max(float((a - b).abs().max()) / max(float(b.abs().max()), 1e-3 * scale) for a, b in zip(ours, theirs, strict=True))


def farther(torch: Any, network: Any, arguments: dict[str, Any], direction: str, compared: dict[str, tuple[Any, Any]]) -> float:
    """How many times as far from the results in float64 ours are as those of eager mode: the greatest distance of a tensor, by norms.

    `compared` has the network and the run of `tensorexpr` and of `eager`. The inputs are drawn again, so theirs are changed.
    """
    wide = copy.deepcopy(network).double()
    given = {name: value.double() if value.is_floating_point() else value for name, value in arguments.items()}
    exact = calls_of(torch, wide, wide, given)[direction]
    ratios = []
    for _ in range(DRAWS):
        for name, value in arguments.items():
            if value.is_floating_point():
                given[name].copy_(value.normal_())
            else:  # words change their places
                value.copy_(value.flatten()[torch.randperm(value.numel())].view_as(value))
        wanted = exact()
        distances = []
        for own, run in (compared["tensorexpr"], compared["eager"]):
            own.load_state_dict(network.state_dict())
            found = run()
            distances.append(max(float((a.double() - b).norm()) / max(float(b.norm()), 1e-30) for a, b in zip(found, wanted, strict=True)))
        wide.load_state_dict(network.state_dict())
        ratios.append(distances[0] / max(distances[1], 1e-30))
    return statistics.median(ratios)


def measured(name: str, small: bool, threads: int, effort: Effort | None, backends: Sequence[str] = BACKENDS) -> list[Row]:
    """Compiles a network, compares it with eager mode, and times it beside the others (not without `effort`)."""
    torch, networks = importlib.import_module("torch"), importlib.import_module(NETWORKS)
    torch.set_num_threads(threads)
    torch._dynamo.config.recompile_limit = 1 << 10  # several backends and directions of the same code
    torch.manual_seed(0)
    network, arguments = networks.made(name, small)
    found: dict[str, dict[str, Callable[[], Any]]] = {}
    owned: dict[str, Any] = {}
    first: dict[str, dict[str, float]] = {}
    results: dict[str, dict[str, list[Any]]] = {}
    for backend in ("aot_eager", "aot_eager", *backends):  # the first of all is what imports, and is forgotten
        own = owned[backend] = copy.deepcopy(network)
        call = own if backend == "eager" else torch.compile(own, backend=backend)
        found[backend] = calls_of(torch, own, call, arguments)
        first[backend], results[backend] = {}, {}
        for direction, run in found[backend].items():
            start = time.perf_counter()
            results[backend][direction] = [t.clone() for t in run()]
            first[backend][direction] = time.perf_counter() - start
    rows = []
    for direction in found["eager"]:
        times: dict[str, float] = {}
        if effort is not None:
            for backend in backends:
                found[backend][direction]()
            timings = interleaved({backend: found[backend][direction] for backend in backends}, effort)
            times = {backend: 1e3 * timing.median for backend, timing in timings.items()}
        added = {backend: first[backend][direction] - first["aot_eager"][direction] for backend in backends}
        ours, theirs = results["tensorexpr"][direction], results["eager"][direction]
        difference = apart(ours, theirs)
        compared = {backend: (owned[backend], found[backend][direction]) for backend in ("tensorexpr", "eager")}
        worse = None if difference < CLOSE else farther(torch, network, arguments, direction, compared)
        rows.append(
            Row(
                name, direction, threads, times.get("tensorexpr"), times.get("eager"), times.get("inductor"),
                added["tensorexpr"], added.get("inductor"), difference, worse,
            )
        )  # fmt: skip
    return rows


def worker(request: dict[str, Any]) -> None:
    """One network: a line of JSON for each direction."""
    take_cores(request["threads"])
    effort = None if request["effort"] is None else Effort(**request["effort"])
    for row in measured(request["network"], request["small"], request["threads"], effort, request["backends"]):
        print(json.dumps(asdict(row)), flush=True)


def _text(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def lines(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The rows as texts, under `HEADS`."""
    return [
        (
            row.network, row.direction, str(row.threads), _text(row.ours), _text(row.eager), _text(row.inductor), _text(row.ratio),
            _text(row.first), _text(row.first_inductor), f"{row.difference:.0e}",
            _text(row.farther),
        )
        for row in rows
    ]  # fmt: skip


HEADS = (
    "network",
    "direction",
    "threads",
    "ms",
    "eager ms",
    "Inductor ms",
    "best / ours",
    "first s",
    "Inductor s",
    "differs by",
    "farther",
)


def main(
    threads: Sequence[int], rounds: int = 9, path: str | None = None, parts: Sequence[str] = (), small: bool = False, prepare: bool = False
) -> int:
    """Prints the table, and writes the same as JSON where a path is given; 1 where results differ or a process fails."""
    if peers.missing(["torch"]):
        print("skipped: torch (not installed: pip install 'tensorexpr[bench]')")
        return 0
    names, absent = chosen(parts)
    if absent:
        print(f"skipped: {', '.join(absent)} (not installed: pip install transformers)")
    rows: list[Row] = []
    failed = []
    for count in threads:
        effort = None if prepare else asdict(Effort(rounds=rounds) if count > 1 else Effort(rounds=rounds, settle=0.0))
        for name in names:
            request = {"network": name, "small": small, "threads": count, "effort": effort, "backends": BACKENDS}
            command = [sys.executable, "-m", "tensorexpr.benchmarks.subjects.networks.times", json.dumps(request)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | limits(count)) as process:
                assert process.stdout is not None
                rows += [Row(**json.loads(line)) for line in process.stdout if line.startswith("{")]
            if process.returncode:
                failed.append(name)
            print(f"  {name}, threads: {count}", file=sys.stderr, flush=True)
    output.print_columns(lines(rows), HEADS, {0, 1})
    if failed:
        print(f"failed: {', '.join(failed)}")
    if path is not None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        document = {"date": date, "machine": machine(), "peers": peers.versions(), "rows": [asdict(row) for row in rows]}
        keeping.write(path, document)
    return int(bool(failed) or any(not row.right for row in rows))


if __name__ == "__main__":
    worker(json.loads(sys.argv[1]))
