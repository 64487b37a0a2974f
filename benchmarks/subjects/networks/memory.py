"""Peak memory of whole networks by `torch.compile`, ours beside Inductor and eager PyTorch: `python -m tensorexpr bench models --memory`.

A process for each network and each backend. Each direction runs twice, so that all is compiled; then garbage and gradients are dropped and
freed memory is given back to the operating system, and the peak of a third call is counted in resident pages, beyond what stands there
(`subjects.memory`). So weights and compiled code are in no figure; activations, gradients, results and workspace are. The pool in which we
keep dead results is off: what it holds would stand there already.
"""

from __future__ import annotations

import datetime
import importlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tensorexpr.benchmarks import keeping, peers
from tensorexpr.benchmarks.harness import machine
from tensorexpr.benchmarks.subjects.memory import peak, resident
from tensorexpr.benchmarks.subjects.networks import BACKENDS, NETWORKS, calls_of, chosen
from tensorexpr.benchmarks.worker import limits, take_cores
from tensorexpr.cli import output

HEADS = ("network", "direction", "threads", "MiB", "eager MiB", "Inductor MiB", "eager / ours")


@dataclass(frozen=True)
class Peak:
    """One network in one direction: bytes at the peak of a call, by backend; those missing whose process failed."""

    network: str
    direction: str
    threads: int
    bytes: dict[str, int]


def measured(name: str, small: bool, threads: int, backend: str) -> dict[str, int | None]:
    """The peak of each direction."""
    torch, networks = importlib.import_module("torch"), importlib.import_module(NETWORKS)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    network, arguments = networks.made(name, small)
    found: dict[str, int | None] = {}
    for direction, run in calls_of(
        torch, network, network if backend == "eager" else torch.compile(network, backend=backend), arguments
    ).items():
        for _ in range(2):
            run()
        network.zero_grad(set_to_none=True)
        found[direction] = peak(run, resident())
    return found


def worker(request: dict[str, Any]) -> None:
    """One network by one backend: a line of JSON."""
    take_cores(request["threads"])
    print(json.dumps(measured(request["network"], request["small"], request["threads"], request["backend"])), flush=True)


def table(peaks: Sequence[Peak]) -> list[tuple[str, ...]]:
    """The rows as texts, under `HEADS`."""
    rows = []
    for row in peaks:
        texts = [f"{row.bytes[b] / 2**20:.0f}" if b in row.bytes else "" for b in ("tensorexpr", "eager", "inductor")]
        both = row.bytes.get("tensorexpr"), row.bytes.get("eager")
        ratio = f"{both[1] / both[0]:.2f}" if both[0] and both[1] else ""
        rows.append((row.network, row.direction, str(row.threads), *texts, ratio))
    return rows


def main(threads: Sequence[int], path: str | None = None, parts: Sequence[str] = (), small: bool = False) -> int:
    """Prints the table, and writes the same as JSON where a path is given; 1 where a process fails."""
    if peers.missing(["torch"]):
        print("skipped: torch (not installed: pip install 'tensorexpr[bench]')")
        return 0
    peaks, failed = [], []
    for count, name in itertools.product(threads, chosen(parts)[0]):
        found: dict[str, dict[str, int]] = {}
        for backend in BACKENDS:
            request = {"network": name, "small": small, "threads": count, "backend": backend}
            command = [sys.executable, "-m", "tensorexpr.benchmarks.subjects.networks.memory", json.dumps(request)]
            environment = os.environ | limits(count) | {"TENSOREXPR_MEMORY_POOL": "0"}
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
            line = next((line for line in reversed(done.stdout.splitlines()) if line.startswith("{")), None)
            if done.returncode or line is None:
                failed.append(f"{name} by {backend}")
                continue
            for direction, bytes_ in json.loads(line).items():
                if bytes_ is not None:
                    found.setdefault(direction, {})[backend] = bytes_
        peaks += [Peak(name, direction, count, bytes_) for direction, bytes_ in found.items()]
        print(f"  {name}, threads: {count}", file=sys.stderr, flush=True)
    output.print_columns(table(peaks), HEADS, {0, 1})
    if failed:
        print(f"failed: {', '.join(failed)}")
    if path is not None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        rows = [asdict(row) for row in peaks]
        keeping.write(path, {"date": date, "machine": machine(), "peers": peers.versions(), "rows": rows})
    return int(bool(failed))


if __name__ == "__main__":
    worker(json.loads(sys.argv[1]))
