"""Rows measured in processes of their own, each within a time limit: what crashes or hangs costs one row.

`python -m tensorexpr.benchmarks.measures.worker REQUEST` imports what its rows need, then reads keys, one in a line, and answers each with
a line of JSON that a process forked for it has found. `Worker` is the other end. Libraries read their number of threads, and the
allocator what it keeps, once in a process: so there is a worker for each.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensorexpr.benchmarks import operations
from tensorexpr.benchmarks.worker import in_process, limits, take_cores

KEEPS = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(64 << 20),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
"""The environment in which glibc keeps memory that was given back, on large pages, as our pool does: one arena, nothing mapped for itself,
nothing trimmed, 64 MiB more at a time. (mallopt(3); `hugetlb` needs glibc 2.35.)"""


@dataclass(frozen=True, slots=True)
class Request:
    """What rows are measured with.

    `parts`: parts of names of rows (none: all); `seed` of what is drawn; `seconds` and `tries` that a search may take; `peers` to measure
    beside; `imports` of modules that rows need; `rounds` of interleaved samples; `keeps`: whether the allocator of C keeps memory;
    `pool`: whether ours keeps results that died; `limit`: seconds that a row may take, everything included; `environment`: more of it.
    """

    measure: str
    threads: int = 1
    parts: tuple[str, ...] = ()
    seed: int = 0
    seconds: float = 20.0
    tries: int = 200
    peers: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    rounds: int = 7
    keeps: bool = False
    pool: bool = True
    limit: float = 120.0
    environment: dict[str, str] = field(default_factory=dict)


class Worker:
    """A process that measures rows for a request; to be closed."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._noise = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- closed with the worker
        environment = os.environ | limits(request.threads) | {"TENSOREXPR_TUNING": ""} | request.environment
        environment |= (KEEPS if request.keeps else {}) | ({} if request.pool else {"TENSOREXPR_MEMORY_POOL": "0"})
        described = {name: getattr(request, name) for name in request.__dataclass_fields__}
        command = [sys.executable, "-m", "tensorexpr.benchmarks.measures.worker", json.dumps(described)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._noise, text=True, env=environment)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, key: str) -> dict[str, Any]:
        """What a row comes to; an "error" where its process failed. Raises `RuntimeError` where the worker itself is gone."""
        assert self._process.stdin is not None and self._process.stdout is not None
        line = ""
        if self._process.poll() is None:
            self._process.stdin.write(json.dumps(key) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._noise.seek(0)
            raise RuntimeError(
                f"bench: expected an answer of the worker, got status {self._process.returncode}:\n{self._noise.read()[-2000:]}"
            )
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._noise):
            if stream is not None:
                stream.close()


def measure_of(name: str) -> Any:
    """The module of a measure."""
    return importlib.import_module(f"tensorexpr.benchmarks.measures.{name}")


def _row(say: Any, key: str, request: Mapping[str, Any]) -> dict[str, Any]:
    del say
    found: dict[str, Any] = measure_of(request["measure"]).measured(key, request_of(request))
    return found


def request_of(described: Mapping[str, Any]) -> Request:
    """A request from its JSON."""
    listed: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in described.items()}
    return Request(**listed)


def main(described: dict[str, Any]) -> None:
    """Answers until the keys end, on what is the standard output now; peers may print there, too."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    request = request_of(described)
    take_cores(request.threads)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # a pool of compiling processes would not be forked whole
    measure_of(request.measure)
    for name in request.imports:
        importlib.import_module(name)
    operations.matmul(np.ones((3, 3), np.float32), np.ones((3, 3), np.float32))  # loads LLVM
    context = multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn")
    for line in sys.stdin:
        print(json.dumps(in_process(context, _row, (json.loads(line), described), request.limit)), file=answers, flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
