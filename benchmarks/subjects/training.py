"""Training steps of the examples beside the same models in PyTorch, eager, on the CPU: `python -m tensorexpr bench training`.

A step is all that a training loop does with a batch: loss, all gradients, clipping, the optimizer's update. Both begin with the same
weights, and their losses are compared over the first steps; then they take turns. Each number of threads has a process of its own.
Beside the times stands what tracing and compiling the step took (no code from disk), and how many kernels it has; and what a step costs
in Python that does next to nothing to a hundred variables.
"""

from __future__ import annotations

import datetime
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr.benchmarks import keeping, peers
from tensorexpr.benchmarks.harness import Effort, interleaved, machine
from tensorexpr.benchmarks.worker import limits, take_cores
from tensorexpr.cli import output
from tensorexpr.examples import char_transformer, train_digits
from tensorexpr.graph import optimizers

_COMPARED = 20
"""Steps whose losses are compared."""
CLOSE = 1e-3
"""How far apart the losses may be, relatively: both round in their own order, and twenty steps amplify that."""


@dataclass(frozen=True)
class Case:
    """A step of ours, arguments that it is called with, and how PyTorch's is made; `kernels` of the compiled step."""

    name: str
    step: Any
    batches: Sequence[tuple[np.ndarray, ...]]
    peer: Callable[[Any], Callable[..., float]] | None = None


@dataclass(frozen=True)
class Row:
    """What was measured of a case: milliseconds per step, seconds to trace and to compile, kernels, the difference of losses."""

    case: str
    threads: int
    ours: float
    torch: float | None
    trace: float
    compile: float
    kernels: int
    difference: float | None

    @property
    def ratio(self) -> float | None:
        """The peer's time over ours."""
        return None if self.torch is None else self.torch / self.ours


def digits() -> Case:
    """The step of `examples/train_digits.py`, batches of 32."""
    training = train_digits.Training(0, 1000)
    images, labels, _, _ = train_digits.load_data()
    batches = [(images[k : k + 32], labels[k : k + 32]) for k in range(0, 640, 32)]
    rates = [training.optimizer.rate.at(step) for step in range(_COMPARED)]
    state = te.state_dict(training.network)
    return Case("digits", training.step, batches, lambda torch: torch.digits(state, rates))


def transformer(blocks: int = 2, features: int = 64) -> Case:
    """The step of `examples/char_transformer.py`: 16 windows of 64 characters, four heads."""
    options = char_transformer.parsed(["--blocks", str(blocks), "--features", str(features)])
    text = char_transformer.Text(char_transformer.documents())
    training = char_transformer.made(options, text)
    batches = [text.batch(k, options.batch, options.context, 0) for k in range(_COMPARED)]
    rates = [training.optimizer.rate.at(step) for step in range(_COMPARED)]
    state = te.state_dict(training.model)
    sizes = {
        "characters": len(text.characters), "context": options.context, "features": features, "heads": options.heads, "blocks": blocks,
    }  # fmt: skip
    name = f"transformer, {blocks} blocks of {features}"
    return Case(name, training.step, batches, lambda torch: torch.transformer(state, sizes, rates))


class Hundred(te.Module):
    """A hundred variables of four elements, and a step that moves them."""

    def __init__(self) -> None:
        super().__init__()
        self.items = [te.Variable(np.full(4, k, np.float32)) for k in range(100)]
        self.optimizer = optimizers.SGD(self.items, 1e-3)

    @te.function
    def step(self, x: Any) -> Any:
        self.optimizer.apply([te.compute((4,), lambda i, v=v: v[i] * x[i]) for v in (item.read() for item in self.items)])
        return x


def hundred() -> Case:
    """The step of `Hundred`: what a step costs beside its kernels."""
    return Case("100 variables of 4", Hundred().step, [(np.ones(4, np.float32),)])


CASES: dict[str, Callable[[], Case]] = {
    "digits": digits,
    "transformer": transformer,
    "wide transformer": lambda: transformer(features=128),
    "hundred": hundred,
}


def measured(case: Case, threads: int, effort: Effort, torch: Any) -> Row:
    """Compiles a step, compares its losses with PyTorch's, and times both in turn."""
    start = time.perf_counter()
    case.step.graph(*case.batches[0])
    traced = time.perf_counter()
    step = case.step.compiled(*case.batches[0])
    compiled = time.perf_counter()
    peer = None if torch is None or case.peer is None else case.peer(torch)
    difference = None
    if peer is not None:
        pairs = [(float(case.step(*batch)), peer(*batch)) for batch in case.batches[:_COMPARED]]
        difference = max(abs(a - b) / abs(b) for a, b in pairs)
    candidates: dict[str, Callable[[], Any]] = {"ours": lambda: case.step(*case.batches[0])}
    if peer is not None:
        candidates["torch"] = lambda: peer(*case.batches[0])
    for candidate in candidates.values():
        candidate()
    times = interleaved(candidates, effort)
    theirs = 1e3 * times["torch"].median if peer is not None else None
    return Row(case.name, threads, 1e3 * times["ours"].median, theirs, traced - start, compiled - traced, step.kernels, difference)


def worker(request: dict[str, Any]) -> None:
    """One number of threads: a line of JSON for each case."""
    os.environ["TENSOREXPR_CACHE_DIR"] = ""
    take_cores(request["threads"])
    torch = None
    if request["torch"]:
        torch = importlib.import_module("tensorexpr.benchmarks.peers.training_with_torch")
        torch.threads(request["threads"])
    for name in request["cases"]:
        print(json.dumps(asdict(measured(CASES[name](), request["threads"], Effort(**request["effort"]), torch))), flush=True)


def lines(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The rows as texts, under `HEADS`."""
    return [
        (
            row.case, str(row.threads), f"{row.ours:.3f}", "" if row.torch is None else f"{row.torch:.3f}",
            "" if row.ratio is None else f"{row.ratio:.2f}", f"{row.trace:.2f}", f"{row.compile:.2f}", str(row.kernels),
            "" if row.difference is None else f"{row.difference:.0e}",
        )
        for row in rows
    ]  # fmt: skip


HEADS = ("training step", "threads", "ms", "torch ms", "torch / ours", "trace s", "compile s", "kernels", "loss differs by")


def main(threads: Sequence[int], rounds: int = 9, path: str | None = None, names: Sequence[str] = tuple(CASES)) -> int:
    """Prints the table, and writes the same as JSON where a path is given; 1 where losses differ or a process fails."""
    there = not peers.missing(["torch"])
    if not there:
        print("skipped: torch (not installed: pip install 'tensorexpr[bench]')")
    rows: list[Row] = []
    for count in threads:
        effort = asdict(Effort(rounds=rounds) if count > 1 else Effort(rounds=rounds, settle=0.0))
        request = json.dumps({"threads": count, "torch": there, "cases": list(names), "effort": effort})
        command = [sys.executable, "-m", "tensorexpr.benchmarks.subjects.training", request]
        environment = os.environ | limits(count)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout is not None
            for line in process.stdout:
                rows.append(Row(**json.loads(line)))
                print(f"  {rows[-1].case}, threads: {count}", file=sys.stderr, flush=True)
        if process.returncode:
            return 1
    output.print_columns(lines(rows), HEADS, {0})
    if path is not None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        document = {"date": date, "machine": machine(), "peers": peers.versions(), "rows": [asdict(row) for row in rows]}
        keeping.write(path, document)
    return int(any(row.difference is not None and not row.difference < CLOSE for row in rows))


if __name__ == "__main__":
    worker(json.loads(sys.argv[1]))
