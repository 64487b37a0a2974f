"""Throughput over threads of the caller: `python -m tensorexpr bench threads`.

One compiled function is called by 1, 2, ... threads at once, each with arrays and results of its own, for a while; kernels run on
the calling thread alone (TENSOREXPR_NUM_THREADS=1), so that the callers are what is spread over the cores. A kernel that is over
sooner than Python's lock is given up and had back keeps it: then threads cannot be faster than one.
"""

from __future__ import annotations

import datetime
import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tensorexpr.benchmarks import keeping
from tensorexpr.benchmarks.calls.square import COUNT, square
from tensorexpr.benchmarks.harness import machine
from tensorexpr.codegen.llvm import set_threads
from tensorexpr.kernels import matmul, softmax
from tensorexpr.op.transforms import vjp

SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Throughput:
    """Calls in a second by so many threads together, and how many times those of one thread that is."""

    workload: str
    threads: int
    calls: float
    scaling: float


def workloads() -> dict[str, tuple[Any, tuple[np.ndarray, ...]]]:
    """Compiled functions with arguments: from a microsecond's fraction to a millisecond."""
    rng = np.random.default_rng(0)
    a, b, x = (rng.standard_normal(shape, dtype=np.float32) for shape in ((256, 256), (256, 256), (128, 128)))
    small = np.linspace(0, 1, COUNT, dtype=np.float32)
    return {
        "x * x, 8": (square.compile(small), (small,)),
        "softmax, 128 x 128, gradient": (vjp(softmax).compile(x, x), (x, x)),
        "matmul, 256": (matmul.compile(a, b), (a, b)),
    }


def calls_per_second(function: Callable[..., Any], arrays: tuple[np.ndarray, ...], threads: int, seconds: float = SECONDS) -> float:
    """Calls of all threads together in a second, each on copies of the arrays into results of its own."""
    barrier, counts, stop = threading.Barrier(threads + 1), [0] * threads, threading.Event()

    def work(number: int) -> None:
        own = tuple(array.copy() for array in arrays)
        out = function(*own)
        barrier.wait()
        count = 0
        while not count or not stop.is_set():
            for _ in range(8):
                function(*own, out=out)
            count += 8
        counts[number] = count

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    barrier.wait()
    start = time.perf_counter()
    time.sleep(seconds)
    stop.set()
    for worker in workers:
        worker.join()
    return sum(counts) / (time.perf_counter() - start)


def measured(most: int, seconds: float = SECONDS) -> list[Throughput]:
    """Every workload on 1, 2, 4, ... up to `most` threads."""
    rows = []
    counts = sorted({1, *(2**k for k in range(most.bit_length()) if 2**k <= most), most})
    for name, (function, arrays) in workloads().items():
        single = 0.0
        for threads in counts:
            found = calls_per_second(function, arrays, threads, seconds)
            single = single or found
            rows.append(Throughput(name, threads, found, found / single))
    return rows


def on_all_cores(seconds: float = SECONDS) -> list[Throughput]:
    """Every workload on up to as many threads as there are cores (at least 2), each kernel on one."""
    set_threads(1)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        return measured(max(2, cores), seconds)
    finally:
        set_threads()


def text(rows: list[Throughput]) -> str:
    """The throughputs as a table."""
    width = max(len(row.workload) for row in rows)
    lines = [f"{'workload':{width}} {'threads':>8} {'calls/s':>10} {'x one':>6}"]
    lines += [f"{row.workload:{width}} {row.threads:8d} {row.calls:10.0f} {row.scaling:6.2f}" for row in rows]
    return "\n".join(lines)


def main(file: str | None = None) -> int:
    """Measures on all cores, prints the table, and writes JSON where asked to."""
    rows = on_all_cores()
    print(text(rows))
    if file is not None:
        when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        keeping.write(file, {"when": when, "info": machine(), "rows": [asdict(row) for row in rows]})
    return 0
