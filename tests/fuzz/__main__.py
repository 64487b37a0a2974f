"""`python -m tests.fuzz`: random programs on new seeds for as long as it is told, in processes that may die.

A process that ends by itself or hangs is a finding like any other. What fails is made smaller and printed as a test to paste; the
exit status is 1 where something failed. `--only SEED` runs and minimises one seed.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

_HANGS = 180
"""Seconds of one program after which it hangs."""
_MINIMISED = 12
"""Failures of different kinds that are made smaller at the end."""


@dataclass
class Worker:
    """A process and the seed that it is at."""

    process: subprocess.Popen[bytes]
    following: int
    seed: int | None = None
    since: float = 0.0
    pending: bytes = b""


@dataclass
class Found:
    """What the run has seen."""

    programs: int = 0
    seconds: float = 0.0
    features: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str, str]] = field(default_factory=list)


def main() -> int:
    """Runs the fuzzer; gives the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long (default 600)")
    parser.add_argument("--seed", type=int, default=None, help="the first seed (default: from the clock)")
    parser.add_argument("--programs", type=int, default=0, help="so many programs, however long that takes")
    parser.add_argument("--processes", type=int, default=2, help="processes at a time (default 2)")
    parser.add_argument("--only", type=int, nargs="+", help="run, and make smaller, these seeds alone")
    parser.add_argument("--minimise", type=float, default=60.0, help="seconds for each failure that is made smaller (default 60)")
    parser.add_argument("--log", default=None, help="a file to which failures are appended as they are found")
    options = parser.parse_args()
    environment = {
        **{k: v for k, v in os.environ.items() if k != "TENSOREXPR_CUDA"},
        "TENSOREXPR_CACHE_DIR": "",
        "TENSOREXPR_STRICT": "1",
        "TENSOREXPR_TUNING": "",
    }
    if options.only is not None:
        return _alone(options.only, options.minimise, environment)
    first = int(time.time()) * 1_000 if options.seed is None else options.seed
    print(f"seeds from {first} on, {options.processes} processes", flush=True)
    start = time.monotonic()
    found = _campaign(first, options.processes, options.seconds, options.programs, environment, options.log)
    wall = time.monotonic() - start
    _tell(found, wall, first)
    kinds: dict[str, int] = {}
    for seed, kind, message in found.failures:
        kinds.setdefault(f"{kind} {''.join(c for c in message[:50] if not c.isdigit())}", seed)
    if found.failures:
        _alone(list(kinds.values())[:_MINIMISED], options.minimise, environment)
    return 1 if found.failures else 0


def _campaign(first: int, processes: int, seconds: float, programs: int, environment: dict[str, str], log: str | None) -> Found:
    found = Found()
    until = time.monotonic() + seconds
    selector = selectors.DefaultSelector()

    def start(following: int) -> None:
        command = [sys.executable, "-m", "tests.fuzz.worker", str(following), str(processes)]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        selector.register(process.stdout, selectors.EVENT_READ, Worker(process, following, since=time.monotonic()))

    def failed(seed: int, kind: str, message: str) -> None:
        found.failures.append((seed, kind, message))
        line = f"seed {seed}: {kind}: {' '.join(message.split())[:300]}"
        print(line, flush=True)
        if log is not None:
            with open(log, "a") as file:
                file.write(f"{line}\n")

    for k in range(processes):
        start(first + k)
    told = time.monotonic()
    while time.monotonic() < until if not programs else found.programs < programs:
        for key, _ in selector.select(1.0):
            worker: Worker = key.data
            data = worker.process.stdout.read() if worker.process.stdout is not None else b""
            if data:
                _listen(worker, data, processes, found, failed)
            elif data == b"":
                selector.unregister(key.fileobj)
                status = worker.process.wait()
                if worker.seed is not None:
                    failed(worker.seed, f"crash: status {status}", "the process ended")
                    worker.following = worker.seed + processes
                    found.programs += 1
                start(worker.following)
        now = time.monotonic()
        for key in list(selector.get_map().values()):
            worker = key.data
            if worker.seed is not None and now - worker.since > _HANGS:
                failed(worker.seed, "hangs", f"expected an end within {_HANGS} s")
                worker.following, worker.seed = worker.seed + processes, None
                worker.process.kill()
        if now - told > 60:
            told = now
            print(f"... {found.programs} programs, {len(found.failures)} failures", flush=True)
    for key in list(selector.get_map().values()):
        key.data.process.kill()
        key.data.process.wait()
    return found


def _listen(worker: Worker, data: bytes, step: int, found: Found, failed) -> None:  # type: ignore[no-untyped-def]
    worker.pending += data
    *lines, worker.pending = worker.pending.split(b"\n")
    for line in lines:
        word, seed, *rest = line.decode().split(" ", 2)
        if word == "begin":
            worker.seed, worker.since = int(seed), time.monotonic()
        elif word == "end":
            worker.seed, worker.following = None, int(seed) + step
            result = json.loads(rest[0])
            found.programs += 1
            found.seconds += result["seconds"]
            found.features.update(result["features"])
            if "skipped" in result:
                found.skipped[result["skipped"]] += 1
            if "kind" in result:
                failed(int(seed), result["kind"], result["message"])


def _tell(found: Found, wall: float, first: int) -> None:
    whole = max(found.programs, 1)
    rate, each = found.programs / max(wall, 1e-9), 1e3 * found.seconds / whole
    print(f"\n{found.programs} programs from seed {first} on in {wall:.0f} s: {rate:.1f} per second, {each:.0f} ms of one core each")
    print(f"{sum(found.skipped.values())} not asked, {len(found.failures)} failures")
    rows = sorted(found.features.items(), key=lambda row: (-row[1], row[0]))
    print("\nprograms with each feature:")
    width = max((len(name) for name, _ in rows), default=0)
    for k in range(0, len(rows), 3):
        print("   ".join(f"{name:{width}} {count:7}" for name, count in rows[k : k + 3]))
    for reason, count in found.skipped.most_common(8):
        print(f"not asked, {count}: {reason}")
    sys.stdout.flush()


def _alone(seeds: list[int], seconds: float, environment: dict[str, str]) -> int:
    """Runs and minimises seeds, each in a process of its own."""
    status = 0
    for seed in seeds:
        code = f"from tests.fuzz.minimise import report; raise SystemExit(report({seed}, {seconds}))"
        status |= subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode != 0
    return int(status)


if __name__ == "__main__":
    raise SystemExit(main())
