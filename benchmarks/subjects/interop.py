"""What a call costs, in microseconds: `python -m tensorexpr bench interop`.

An op with as little work as there is (`calls/square.py`) is called from each library that is installed, beside that library's own
elementwise operation, in one process: in every round each call is repeated for some milliseconds, in turns, and the median over the
rounds counts. Beside that: how calls of one function by several threads together scale (`threads`), and a bundle, its size and how long it
takes to load.
"""

from __future__ import annotations

import datetime
import importlib
import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tensorexpr_runtime
from tensorexpr.benchmarks import keeping
from tensorexpr.benchmarks.calls.square import COUNT, square
from tensorexpr.benchmarks.harness import machine
from tensorexpr.benchmarks.subjects import threads
from tensorexpr.codegen.bundle.export import export
from tensorexpr.op.transforms import vjp

HOSTS = ("numpy", "torch", "jax")
ROUNDS, BATCH = 9, 0.004
"""Rounds, and seconds of one call's repetitions in a round."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds of one call, and how many times those of the library's own operation that is."""

    host: str
    call: str
    microseconds: float
    ratio: float


def _repeated(call: Callable[[], object], count: int) -> float:
    """Seconds of one call, repeated."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def measured(calls: dict[str, Callable[[], object]], rounds: int = ROUNDS, batch: float = BATCH) -> dict[str, float]:
    """Microseconds of each call: medians over rounds in turns, less what calling a function that does nothing takes."""
    timed = {**calls, "": lambda: None}
    for call in timed.values():
        _repeated(call, 20)  # compiles
    counts = {name: max(1, int(batch / max(1e-7, _repeated(call, 20)))) for name, call in timed.items()}
    samples: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(rounds + 1):
        for name, call in timed.items():
            samples[name].append(_repeated(call, counts[name]))
    medians = {name: statistics.median(values[1:]) for name, values in samples.items()}
    return {name: 1e6 * (medians[name] - medians[""]) for name in calls}


def costs(host: str, rounds: int = ROUNDS, batch: float = BATCH) -> list[Cost]:
    """The calls of a library; the ratios are to its own operation of the same kind (recorded, with the way back, ...)."""
    calls = importlib.import_module(f"tensorexpr.benchmarks.calls.with_{host}").calls()
    found = measured(calls, rounds, batch)
    own, result = 0.0, []
    for number, (name, value) in enumerate(found.items()):
        if number == 0 or name.startswith(next(iter(found))):
            own = value
        result.append(Cost(host, name, value, value / own))
    return result


def installed() -> list[str]:
    """The libraries that are there and have calls to time."""
    here = Path(__file__).parent.parent / "calls"
    return [host for host in HOSTS if importlib.util.find_spec(host) and (here / f"with_{host}.py").exists()]


def text(rows: list[Cost]) -> str:
    """The costs as a table."""
    width = max(len(row.call) for row in rows)
    lines = [f"{'library':8} {'call':{width}} {'us':>8} {'x own':>7}"]
    lines += [f"{row.host:8} {row.call:{width}} {row.microseconds:8.2f} {row.ratio:7.1f}" for row in rows]
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle of a function and its gradient: kilobytes on disk, milliseconds to export and to load, microseconds of a call by way of
    the loader."""

    function: str
    kilobytes: float
    export: float
    load: float
    call: float

    def __str__(self) -> str:
        return (
            f"bundle of {self.function}: {self.kilobytes:.0f} KB, exported in {self.export:.0f} ms, loaded in {self.load:.2f} ms, "
            f"a call {self.call:.1f} us"
        )


def bundle(rounds: int = ROUNDS) -> Bundle:
    """What a bundle of the op of the calls and its gradient is."""
    x = np.linspace(0, 1, COUNT, dtype=np.float32)
    functions: dict[str, Any] = {"forward": square.compile(x), "backward": vjp(square, wrt="x").compile(x, x)}
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        path = export(Path(folder) / "square", **functions)
        exported = time.perf_counter() - start
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        loads = [_repeated(lambda: tensorexpr_runtime.load(path), 1) for _ in range(rounds + 1)]
        forward = tensorexpr_runtime.load(path)["forward"]
        call = measured({"call": lambda: forward(x)}, rounds)["call"]
    return Bundle("x * x and its gradient", size / 1000, 1e3 * exported, 1e3 * statistics.median(loads[1:]), call)


def main(file: str | None = None, rounds: int = ROUNDS) -> int:
    """Times every library that is installed, threads and a bundle, prints tables, and writes JSON where asked to."""
    rows = [cost for host in installed() for cost in costs(host, rounds)]
    scaling, bundled = threads.on_all_cores(min(threads.SECONDS, 0.1 * rounds)), bundle(rounds)
    print(text(rows), threads.text(scaling), bundled, sep="\n\n")
    if file is not None:
        more = {"threads": [asdict(row) for row in scaling], "bundle": asdict(bundled)}
        when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        keeping.write(file, {"when": when, "info": machine(), "rows": [asdict(row) for row in rows], **more})
    return 0
