"""What a backend adds to the first call of whole networks: `python -m tensorexpr bench models --first`.

A process for each network, direction and backend, whose caches on disk are empty folders. A layer has been compiled in it before, for what
is imported once. From the first call by the backend that of "aot_eager" is taken off: tracing, and the graphs of both directions, which
all backends need. A process that takes longer than `--row-limit` seconds is ended, and its backend has at least those.
"""

from __future__ import annotations

import copy
import datetime
import importlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tensorexpr.benchmarks import keeping, peers
from tensorexpr.benchmarks.harness import machine
from tensorexpr.benchmarks.subjects.networks import NETWORKS, calls_of, chosen
from tensorexpr.benchmarks.worker import limits, take_cores
from tensorexpr.cli import output

SHARE = 0.25
"""Of what Inductor adds, ours is to be no more."""
COMPARED = ("tensorexpr", "inductor")
DIRECTIONS = ("inference", "training")
HEADS = ("network", "direction", "threads", "s", "Inductor s", "of Inductor's")


@dataclass(frozen=True)
class First:
    """Seconds that backends add to a first call; those `ended` took longer."""

    network: str
    direction: str
    threads: int
    seconds: dict[str, float]
    ended: tuple[str, ...]

    @property
    def share(self) -> float | None:
        """Ours of Inductor's: at most so much where that was ended."""
        ours, theirs = (self.seconds.get(backend) for backend in COMPARED)
        return ours / theirs if ours is not None and theirs and "tensorexpr" not in self.ended else None


def measured(name: str, small: bool, threads: int, direction: str, backend: str) -> float:
    """The seconds of one backend in this process, whose caches are as they are."""
    torch, networks = importlib.import_module("torch"), importlib.import_module(NETWORKS)
    torch.set_num_threads(threads)
    torch.manual_seed(0)

    def seconds(network: Any, by: str, arguments: dict[str, Any]) -> float:
        torch._dynamo.reset()
        own = copy.deepcopy(network)
        run = calls_of(torch, own, torch.compile(own, backend=by), arguments)[direction]
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    layer = torch.nn.Linear(3, 5), {"input": torch.randn(7, 3)}
    network, arguments = networks.made(name, small)
    for by in ("aot_eager", backend):
        seconds(layer[0], by, layer[1])
    return seconds(network, backend, arguments) - seconds(network, "aot_eager", arguments)


def worker(request: dict[str, Any]) -> None:
    """A number of seconds as a line of JSON."""
    take_cores(request["threads"])
    found = measured(request["network"], request["small"], request["threads"], request["direction"], request["backend"])
    print(json.dumps({"seconds": found}), flush=True)


def _in_a_process(request: dict[str, Any], limit: float) -> float | None:
    """What a process finds that begins with empty caches, None where it takes too long. Raises `RuntimeError` where it fails."""
    command = [sys.executable, "-m", "tensorexpr.benchmarks.subjects.networks.first", json.dumps(request)]
    with tempfile.TemporaryDirectory() as folder:
        caches = {name: f"{folder}/{name}" for name in ("TENSOREXPR_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")}
        environment = os.environ | limits(request["threads"]) | caches
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True) as process:
            try:
                printed, _ = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # the processes that compile for it, too
                return None
    line = next((line for line in reversed(printed.splitlines()) if line.startswith("{")), None)
    if process.returncode or line is None:
        raise RuntimeError(f"exit status {process.returncode}")
    seconds: float = json.loads(line)["seconds"]
    return seconds


def table(rows: Sequence[First]) -> list[tuple[str, ...]]:
    """The rows as texts, under `HEADS`."""
    found = []
    for row in rows:
        texts = [("> " if b in row.ended else "") + f"{row.seconds[b]:.1f}" if b in row.seconds else "" for b in COMPARED]
        share = "" if row.share is None else ("< " if "inductor" in row.ended else "") + f"{row.share:.2f}"
        found.append((row.network, row.direction, str(row.threads), *texts, share))
    return found


def main(threads: Sequence[int], path: str | None = None, parts: Sequence[str] = (), small: bool = False, limit: float = 120.0) -> int:
    """Prints the table, and writes the same as JSON where a path is given; 1 where a process fails."""
    if peers.missing(["torch"]):
        print("skipped: torch (not installed: pip install 'tensorexpr[bench]')")
        return 0
    rows, failed = [], []
    for count, name, direction in itertools.product(threads, chosen(parts)[0], DIRECTIONS):
        seconds: dict[str, float] = {}
        ended = []
        for backend in COMPARED:
            request = {"network": name, "small": small, "threads": count, "direction": direction, "backend": backend}
            try:
                found = _in_a_process(request, limit)
            except RuntimeError as error:
                failed.append(f"{name} by {backend} ({error})")
                continue
            seconds[backend] = limit if found is None else found
            ended += [backend] if found is None else []
        rows.append(First(name, direction, count, seconds, tuple(ended)))
        print(f"  {name}, {direction}, threads: {count}", file=sys.stderr, flush=True)
    output.print_columns(table(rows), HEADS, {0, 1})
    if failed:
        print(f"failed: {', '.join(failed)}")
    if path is not None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        keeping.write(path, {"date": date, "machine": machine(), "peers": peers.versions(), "rows": [asdict(row) for row in rows]})
    return int(bool(failed))


if __name__ == "__main__":
    worker(json.loads(sys.argv[1]))
