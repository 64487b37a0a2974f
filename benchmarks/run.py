"""`python -m tensorexpr bench`: every workload beside every peer that is installed, on one and on all cores.

A process per number of threads (libraries read theirs once), which forks one per workload (`worker`); this one prints, and
keeps what they found as JSON, from which tables and page are made.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tensorexpr as te
from tensorexpr.benchmarks import keeping, page, peers, report, worker, workloads
from tensorexpr.benchmarks.harness import SETTLE, Effort, machine
from tensorexpr.benchmarks.subjects import startup
from tensorexpr.cli import output
from tensorexpr.errors import ArgumentError
from tensorexpr.hints import suggestion

FORMAT = 2
SECONDS, SECONDS_PREPARING = 300.0, 1800.0
"""What a workload may take, everything included; more while caches of compiled code are being filled."""
QUICK = ("numpy", "torch", "jax", "numba")
"""Peers that need no compiler of C++ and no search for schedules."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to run: parts of names of workloads (none: all), numbers of threads, peers, how much to time, where to write.

    After `limit` seconds of timing a direction of a workload no round starts; three are always made.
    `prepare` builds and calls every candidate and times nothing, so that compilers' caches on disk are warm.
    """

    filter: tuple[str, ...] = ()
    threads: tuple[int, ...] = (1,)
    peers: tuple[str, ...] = peers.PEERS
    rounds: int = 9
    limit: float = 10.0
    quick: bool = False
    prepare: bool = False
    json: str | None = None
    html: str | None = None

    def effort(self, threads: int) -> Effort:
        """Rests are for cores that other threads spin on; one thread has none."""
        settle = SETTLE if threads > 1 else 0.002
        return Effort(3, settle=settle, limit=1.0) if self.quick else Effort(self.rounds, settle=settle, limit=self.limit)


def cores() -> int:
    """The cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def chosen(parts: tuple[str, ...]) -> list[str]:
    """The names of the workloads that have one of `parts` in them. Raises `ArgumentError` where there are none."""
    names = [spec.name for spec in workloads.specs()]
    found = [name for name in names if not parts or any(part.lower() in name.lower() for part in parts)]
    if not found:
        hint = suggestion(parts[0], names, f"among others {names[0]}, softmax, attention")
        raise ArgumentError(f"bench: expected part of the name of a workload, got {', '.join(parts)}", hint=hint)
    return found


def wanted(options: Options) -> tuple[list[str], dict[str, str]]:
    """The peers to measure, and why others are not. Raises `ArgumentError` for a name that is none."""
    for name in options.peers:
        if name not in peers.PEERS:
            raise ArgumentError(f"bench: expected peers among {', '.join(peers.PEERS)}, got {name!r}", hint=suggestion(name, peers.PEERS))
    absent = dict.fromkeys(peers.missing(options.peers), "not installed: pip install 'tensorexpr[bench]'")
    if options.quick:
        absent |= dict.fromkeys((name for name in options.peers if name not in QUICK), "left out by --quick")
    return [name for name in options.peers if name not in absent], absent


def results(options: Options, threads: int, names: list[str], there: list[str]) -> Iterator[dict[str, Any]]:
    """What the process for a number of threads finds, as it finds it. Raises `RuntimeError` where that process fails."""
    request = {
        "threads": threads, "workloads": names, "peers": there, "effort": asdict(options.effort(threads)), "timed": not options.prepare,
        "seconds": SECONDS_PREPARING if options.prepare else SECONDS,
    }  # fmt: skip
    with tempfile.TemporaryFile("w+") as noise:
        command = [sys.executable, "-m", "tensorexpr.benchmarks.worker", json.dumps(request)]
        environment = os.environ | worker.limits(threads)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=noise, text=True, env=environment) as process:
            assert process.stdout is not None
            for line in process.stdout:
                yield json.loads(line)
        if process.returncode:
            noise.seek(0)
            raise RuntimeError(f"bench: expected exit status 0 of the worker, got {process.returncode}:\n{noise.read()[-2000:]}")


def run_of(options: Options, threads: int, names: list[str], there: list[str]) -> dict[str, Any]:
    """The rows and the roofline of one number of threads, with progress on the standard error output."""
    run: dict[str, Any] = {"threads": threads, "rows": [], "errors": {}}
    began = time.perf_counter()
    for found in results(options, threads, names, there):
        if "roofline" in found:
            run["roofline"] = found["roofline"]
            continue
        if "error" in found:
            run["errors"][found["workload"]] = found["error"]
        run["rows"] += found.get("rows", [])
        done = len({row["workload"] for row in run["rows"]}) + len(run["errors"])
        note = f" ({found['error'].splitlines()[-1]})" if "error" in found else ""
        text = f"  [{done}/{len(names)}] {threads} threads, {time.perf_counter() - began:.0f} s: {found['workload']}{note}"
        print(text, file=sys.stderr, flush=True)
    return run


def main(options: Options) -> int:
    """Measures, prints the tables and writes JSON, page and pictures; 1 where ours gave wrong values or none."""
    start = time.perf_counter()
    names, (there, absent) = chosen(options.filter), wanted(options)
    limits = ", ".join(str(count) for count in options.threads)
    print(f"tensorexpr {te.__version__}; float32; threads: {limits}; caches warm; medians of interleaved rounds", flush=True)
    for name, why in absent.items():
        print(f"skipped: {name} ({why})")
    runs = [run_of(options, threads, names, there) for threads in options.threads]
    if options.prepare:
        print("\n".join(report.failures(run) for run in runs))
        return 0
    document = document_of(runs, options, absent)
    for run in runs:
        print(f"\n{run['threads']} threads: {report.roof_text(run)}")
        output.print_columns(report.lines(run), report.COLUMNS, {0, 1, 4})
        print(report.summary(run))
    print(report.scaling(runs))
    for name, value in document["startup_ms"].items():
        print(f"{name}: {value:.1f} ms")
    write(document, options)
    print(f"({time.perf_counter() - start:.0f} s in all)")
    return int(any(report.wrong(run) for run in runs))


def document_of(runs: list[dict[str, Any]], options: Options, absent: dict[str, str]) -> dict[str, Any]:
    """What is kept: everything that tables are made of, with date, machine and versions."""
    started = {} if options.quick or options.filter else {"import beyond NumPy": startup.import_milliseconds()}
    if started:
        started |= {f"build {name}": value for name, value in startup.compile_milliseconds().items()}
    return {
        "format": FORMAT,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "peers": peers.versions(),
        "skipped": absent,
        "rounds": options.effort(1).rounds,
        "startup_ms": started,
        "runs": runs,
    }


def write(document: dict[str, Any], options: Options) -> None:
    """The files that were asked for; a picture of each roofline beside the page."""
    for path in (options.json, options.html):
        if path is not None:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
    if options.json is not None:
        keeping.write(options.json, document)
    if options.html is not None:
        Path(options.html).write_text(page.page(document))
        if not page.can_plot():
            print("no pictures: they need matplotlib (pip install 'tensorexpr[bench]')")
            return
        for run in document["runs"]:
            page.png(run, str(Path(options.html).with_suffix("")) + f"-roofline-{run['threads']}.png")
