"""Products of matrices of odd shapes: `python -m tensorexpr bench products`.

Primes, one element more or less than a block, few rows, few columns, long thin ones, operands transposed: what the tiles of a library's
author were not made for. Each beside NumPy's product and PyTorch's, on the same arrays, in one process for a number of threads. What is
told is time of the faster one over ours: its geometric mean, and the worst.
"""

from __future__ import annotations

import datetime
import importlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr.benchmarks import keeping, operations, peers
from tensorexpr.benchmarks.harness import Effort, difference, interleaved, machine
from tensorexpr.benchmarks.worker import limits, take_cores
from tensorexpr.cli import output

SQUARE = ((17, 17, 17), (31, 33, 35), (48, 48, 48), (64, 64, 64), (96, 96, 96), (101, 103, 107), (127, 127, 127), (211, 223, 227),
          (257, 257, 257), (300, 300, 300), (509, 503, 499), (513, 511, 510))  # fmt: skip
THIN = ((997, 61, 991), (61, 997, 991), (991, 997, 61), (33, 512, 33), (5000, 30, 50), (768, 768, 64), (2048, 32, 2048), (20000, 64, 64),
        (64, 20000, 64), (64, 64, 20000), *((1000, k, 1000) for k in (1, 2, 5, 8, 16, 17)))  # fmt: skip
FEW_ROWS = (
    *((n, 1024, 1024) for n in (1, 2, 7, 8, 16, 17)),
    (3, 1000, 1000),
    (4, 512, 2048),
    (5, 777, 333),
    (11, 500, 700),
    (13, 1024, 333),
)
FEW_COLUMNS = (*((1024, 1024, m) for m in (1, 2, 5, 8, 16, 17)), (333, 777, 13))
TURNED = ((101, 103, 107), (509, 503, 499), (8, 1024, 1024), (1000, 8, 1000), (997, 61, 991), (64, 20000, 64), (333, 1000, 17))
PRODUCTS = [
    *(("", *shape) for shape in (*SQUARE, *THIN, *FEW_ROWS, *FEW_COLUMNS)),
    *((word, *shape) for shape in TURNED for word in ("At ", "Bt ")),
]
"""Which operand is transposed, rows, terms, columns."""
CLOSE = 1e-5
"""By how much results may differ, relative to the largest element."""


@dataclass(frozen=True, slots=True)
class Row:
    """Milliseconds of a product; None where a peer is not there."""

    product: str
    threads: int
    ours: float
    numpy: float
    torch: float | None
    difference: float

    @property
    def ratio(self) -> float:
        """The faster peer's time over ours."""
        return min(self.numpy, self.numpy if self.torch is None else self.torch) / self.ours


def name_of(product: tuple[str, int, int, int]) -> str:
    """A product as text: At 8x1024x1024."""
    word, *shape = product
    return word + "x".join(map(str, shape))


def measured(product: tuple[str, int, int, int], threads: int, effort: Effort, torch: Any) -> Row:
    """Compiles a product, compares its result with NumPy's, and times all in turn."""
    word, rows, terms, columns = product
    rng = np.random.default_rng(0)
    a = rng.standard_normal((terms, rows) if word == "At " else (rows, terms), np.float32)
    b = rng.standard_normal((columns, terms) if word == "Bt " else (terms, columns), np.float32)
    op = {"": operations.matmul, "At ": operations.matmul_at, "Bt ": operations.matmul_bt}[word]
    inputs = [te.placeholder(a.shape, "float32", name="a"), te.placeholder(b.shape, "float32", name="b")]
    ours = te.build(op(*inputs), inputs)
    left, right = a.T if word == "At " else a, b.T if word == "Bt " else b
    candidates: dict[str, Callable[[], Any]] = {"ours": lambda: ours(a, b), "numpy": lambda: left @ right}
    if torch is not None:
        x, y = torch.from_numpy(a), torch.from_numpy(b)
        x, y = x.T if word == "At " else x, y.T if word == "Bt " else y
        candidates["torch"] = lambda: torch.matmul(x, y)
    apart = max(difference([left @ right], [np.asarray(candidate())]) for candidate in candidates.values())
    times = {name: 1e3 * timing.median for name, timing in interleaved(candidates, effort).items()}
    return Row(name_of(product), threads, times["ours"], times["numpy"], times.get("torch"), apart)


def chosen(parts: Sequence[str]) -> list[tuple[str, int, int, int]]:
    """The products with one of these in their name; all where none is given."""
    return [p for p in PRODUCTS if not parts or any(part in name_of(p) for part in parts)]


def worker(request: dict[str, Any]) -> None:
    """One number of threads: a line of JSON for each product."""
    take_cores(request["threads"])
    torch = importlib.import_module("torch") if request["torch"] else None
    if torch is not None:
        torch.set_num_threads(request["threads"])
    for product in chosen(request["filter"]):
        row = measured(product, request["threads"], Effort(**request["effort"]), torch)
        print(json.dumps(asdict(row)), flush=True)


def headlines(rows: Sequence[Row]) -> list[str]:
    """For each number of threads: the geometric mean, the worst, and how many are behind."""
    found = []
    for threads in dict.fromkeys(row.threads for row in rows):
        own = sorted((row for row in rows if row.threads == threads), key=lambda row: row.ratio)
        mean = statistics.geometric_mean(row.ratio for row in own)
        behind = sum(row.ratio < 1 for row in own)
        plural = "s" if threads > 1 else ""
        found.append(
            f"{threads} thread{plural}: faster peer / ours {mean:.2f} in the geometric mean of {len(own)}, "
            f"worst {own[0].ratio:.2f} ({own[0].product}), {behind} behind"
        )
    return found


HEADS = ("product", "threads", "ms", "numpy ms", "torch ms", "peer / ours")


def lines(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The rows as texts, under `HEADS`, the worst first."""
    worst_first = sorted(rows, key=lambda row: (row.threads, row.ratio))
    times = [[row.ours, row.numpy, row.torch] for row in worst_first]
    texts = [["" if ms is None else f"{ms:.4f}" for ms in found] for found in times]
    return [(row.product, str(row.threads), *found, f"{row.ratio:.2f}") for row, found in zip(worst_first, texts, strict=True)]


def main(threads: Sequence[int], rounds: int = 9, path: str | None = None, parts: Sequence[str] = ()) -> int:
    """Prints the table, and writes the same as JSON where a path is given; 1 where results differ, nothing is chosen or a process fails."""
    there = not peers.missing(["torch"])
    if not there:
        print("skipped: torch (not installed: pip install 'tensorexpr[bench]')")
    rows: list[Row] = []
    for count in threads:
        effort = asdict(Effort(rounds=rounds, limit=2.0) if count > 1 else Effort(rounds=rounds, limit=2.0, settle=0.0))
        request = json.dumps({"threads": count, "torch": there, "filter": list(parts), "effort": effort})
        command = [sys.executable, "-m", "tensorexpr.benchmarks.subjects.products", request]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | limits(count)) as process:
            assert process.stdout is not None
            rows += [Row(**json.loads(line)) for line in process.stdout]
        if process.returncode:
            return 1
    if not rows:
        print(f"no product with {' or '.join(parts)} in its name")
        return 1
    output.print_columns(lines(rows), HEADS, {0})
    print(*headlines(rows), sep="\n")
    if path is not None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        document = {"date": date, "machine": machine(), "peers": peers.versions(), "rows": [asdict(row) for row in rows]}
        keeping.write(path, document)
    return int(any(not row.difference < CLOSE for row in rows))


if __name__ == "__main__":
    worker(json.loads(sys.argv[1]))
