"""How long gradients take to derive and simplify, and what they visit: every case of the kernels' table.

`python -m tensorexpr bench derivation`, from a checkout of the repository: the table stands in `tests/kernels/table`, which is
not installed. Each case is traced, derived and simplified once, in the order of the table and in one process, as a program
that uses the library would; times are CPU time of this process. Iterations and reads are summed over the rows of the report.
"""

from __future__ import annotations

import datetime
import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tensorexpr as te
from tensorexpr.autodiff import Row
from tensorexpr.benchmarks import keeping, operations
from tensorexpr.benchmarks.harness import machine
from tensorexpr.benchmarks.samples.library import from_checkout
from tensorexpr.simplify import simplify

LIMIT = 0.1
"""Seconds that the median of derivation and simplification is meant to stay under."""


@dataclass(frozen=True, slots=True)
class Derivation:
    """One case: seconds to trace the operation, to derive its gradients and to simplify them; the rows of the report."""

    case: str
    trace: float
    derive: float
    simplify: float
    rows: tuple[Row, ...]

    @property
    def total(self) -> float:
        """Derivation and simplification together."""
        return self.derive + self.simplify

    @property
    def lowerings(self) -> tuple[str, ...]:
        """How its reads were turned around, each way once."""
        return tuple(dict.fromkeys(row.lowering for row in self.rows))

    @property
    def exceptions(self) -> tuple[Row, ...]:
        """Rows whose loops do not visit exactly the reads."""
        return tuple(row for row in self.rows if row.iterations != row.reads)

    def counted(self, name: str) -> int | None:
        """The sum of a count over the rows, None where a loop depends on data."""
        counts = [getattr(row, name) for row in self.rows]
        return sum(counts) if all(isinstance(count, int) for count in counts) else None


def cases() -> list[Any]:
    """The rows of the kernels' table that have a gradient. Raises `ArgumentError` where the repository is not there."""
    table = from_checkout("tests.kernels.table", "derivation")
    return [case for case in table.ALL if case.differentiable]


def derivation_of(case: Any) -> Derivation:
    """Traces, derives and simplifies one case."""
    inputs = [placeholders(tree, f"x{number}") for number, tree in enumerate(case.arrays())]
    return measured(case.name, lambda: case.op(*inputs, **case.static), list(leaves(inputs)))


def measured(name: str, make: Callable[[], Any], inputs: Sequence[te.Tensor]) -> Derivation:
    """The times of `make`, which gives tensors, and of their gradients by the floating `inputs`."""
    gc.freeze()  # what earlier cases left behind is not this one's to search through
    start = time.process_time()
    result = make()
    traced = time.process_time()
    outputs = [tensor for tensor in leaves(result) if tensor.dtype.is_float]
    heads = [te.placeholder(tensor.shape, str(tensor.dtype.name), name=f"head{number}") for number, tensor in enumerate(outputs)]
    gradient = te.gradient(outputs, [tensor for tensor in inputs if tensor.dtype.is_float], heads)
    derived = time.process_time()
    simplify(te.program_of(list(gradient)))
    return Derivation(name, traced - start, derived - traced, time.process_time() - derived, gradient.report().rows)


def placeholders(tree: Any, name: str) -> Any:
    """Placeholders for the arrays of a tree."""
    if isinstance(tree, tuple):
        return tuple(placeholders(item, f"{name}_{number}") for number, item in enumerate(tree))
    return None if tree is None else te.placeholder(tree.shape, tree.dtype.name, name=name)


def leaves(tree: Any) -> Iterator[te.Tensor]:
    """The tensors of a tree."""
    if isinstance(tree, tuple | list):
        for item in tree:
            yield from leaves(item)
    elif tree is not None:
        yield tree


def growth() -> list[tuple[Derivation, Derivation]]:
    """Four kernels at small extents and at a thousand times as many elements: times must not grow with them."""
    pairs = []
    for op, small, large in (
        (operations.matmul, [(8, 8), (8, 8)], [(256, 256), (256, 256)]),
        (operations.conv2d, [(2, 2, 8, 8), (2, 2, 3, 3)], [(2, 2, 256, 256), (2, 2, 3, 3)]),
        (operations.softmax, [(8, 8)], [(256, 256)]),
        (operations.max_pool, [(2, 2, 8, 8)], [(2, 2, 256, 256)]),
    ):
        pairs.append((_at(op, small), _at(op, large)))
    return pairs


def _at(op: te.Op, shapes: Sequence[tuple[int, ...]]) -> Derivation:
    inputs = [te.placeholder(shape, name=f"x{number}") for number, shape in enumerate(shapes)]
    return measured(f"{op.name} {'x'.join(map(str, shapes[0]))}", lambda: op(*inputs), inputs)


# ---------------------------------------------------------------------------------------------------- what is printed


def table(found: Sequence[Derivation]) -> str:
    """One line per case: milliseconds, rows, how they were lowered, what is visited against what is read."""
    width = max(len(one.case) for one in found) + 2
    ways = max(len(", ".join(one.lowerings)) for one in found) + 2
    times = f"{'trace ms':>9}{'derive ms':>10}{'simplify ms':>12}"
    lines = [f"{'case':<{width}}{times}{'rows':>6}  {'lowering':<{ways}}{'iterations':>11}{'reads':>9}{'ratio':>7}"]
    for one in found:
        iterations, reads = one.counted("iterations"), one.counted("reads")
        ratio = "" if not reads or iterations is None else f"{iterations / reads:.2f}"
        numbers = f"{_number(iterations):>11}{_number(reads):>9}{ratio:>7}"
        times = f"{one.trace * 1e3:>9.1f}{one.derive * 1e3:>10.1f}{one.simplify * 1e3:>12.1f}"
        lines.append(f"{one.case:<{width}}{times}{len(one.rows):>6}  {', '.join(one.lowerings):<{ways}}{numbers}")
    return "\n".join(lines)


def _number(count: int | None) -> str:
    return "by data" if count is None else str(count)


def summary(found: Sequence[Derivation]) -> str:
    """Quantiles of the times, the rows that are not visited exactly once per read, and those that depend on data."""
    totals = sorted(one.total for one in found)
    rows = [(one.case, row) for one in found for row in one.rows]
    affine = [(case, row) for case, row in rows if row.lowering not in ("segments", "atomics")]
    strange = [(one.case, row) for one in found for row in one.exceptions]
    ways: dict[str, int] = {}
    for _, row in rows:
        ways[row.lowering] = ways.get(row.lowering, 0) + 1
    slowest = sorted(found, key=lambda one: -one.total)[:5]
    lines = [
        f"{len(found)} cases, {len(rows)} reads: "
        + ", ".join(f"{count} {way}" for way, count in sorted(ways.items(), key=lambda w: -w[1])),
        f"derive and simplify: median {_ms(statistics.median(totals))} (meant to be under {_ms(LIMIT)}), "
        f"95 % under {_ms(totals[min(len(totals) - 1, int(0.95 * len(totals)))])}, most {_ms(totals[-1])}",
        "slowest: " + ", ".join(f"{one.case} {_ms(one.total)}" for one in slowest),
        f"iterations / reads is 1.00 in {sum(row.iterations == row.reads for _, row in affine)} of {len(affine)} affine reads",
    ]
    lines += [f"  not 1.00: {case}: {row.tensor} at {row.access}: {row.iterations} / {row.reads} ({row.lowering})" for case, row in strange]
    lines += [f"  segments: {case}: {row.tensor} at {row.access}" for case, row in rows if row.lowering in ("segments", "atomics")]
    return "\n".join(lines)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


def as_json(found: Sequence[Derivation]) -> list[dict[str, Any]]:
    """The cases as plain values."""

    def plain(row: Row) -> dict[str, Any]:
        return {k: v if isinstance(v, int | str) else str(v) for k, v in row._asdict().items()}

    return [{**{k: v for k, v in asdict(one).items() if k != "rows"}, "rows": [plain(row) for row in one.rows]} for one in found]


def main(json_path: str | None = None) -> int:
    """Prints the table and the summary, and writes the same as JSON where a path is given."""
    chosen = cases()
    warm = [te.placeholder((2, 2), name=name) for name in ("a", "b")]
    measured("warm-up", lambda: operations.matmul(*warm), warm)
    found = []
    for number, case in enumerate(chosen):
        if sys.stderr.isatty():
            print(f"\r  case {number + 1} of {len(chosen)}", end="", file=sys.stderr, flush=True)
        found.append(derivation_of(case))
    if sys.stderr.isatty():
        print("\r" + " " * 30, end="\r", file=sys.stderr, flush=True)
    print(table(found))
    print()
    print(summary(found))
    pairs = growth()
    print("with the extents: " + "; ".join(f"{a.case} {_ms(a.total)}, {b.case.split()[1]} {_ms(b.total)}" for a, b in pairs))
    if json_path is not None:
        document = {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "cases": as_json(found),
            "growth": [[asdict(one) | {"rows": len(one.rows)} for one in pair] for pair in pairs],
        }
        Path(json_path).parent.mkdir(parents=True, exist_ok=True)
        keeping.write(json_path, document)
    return 0
