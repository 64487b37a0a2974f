"""Whole networks as PyTorch exports them to ONNX, ours beside onnxruntime: `python -m tensorexpr bench models --onnx`.

A process for each network and number of threads: the network is exported for inference, both read the file, results are compared, and then
calls on NumPy arrays take turns. The exporter has no word for what two operators of the `transformers` package do; those are added here.
"""

from __future__ import annotations

import datetime
import importlib
import importlib.util
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tensorexpr.benchmarks import keeping, peers
from tensorexpr.benchmarks.harness import Effort, difference, interleaved, machine
from tensorexpr.benchmarks.subjects.networks import NETWORKS, chosen, result_of
from tensorexpr.benchmarks.worker import limits, take_cores
from tensorexpr.cli import output

CLOSE, OPSET = 1e-3, 18
HEADS = ("network", "threads", "ms", "onnxruntime ms", "onnxruntime / ours", "first s", "differs by")


@dataclass(frozen=True)
class Row:
    """One network: milliseconds of a call here and by onnxruntime, seconds of the first call here, the difference of results."""

    network: str
    threads: int
    ours: float
    onnxruntime: float | None
    first: float
    difference: float | None

    @property
    def ratio(self) -> float | None:
        """The time of onnxruntime over ours."""
        return None if self.onnxruntime is None else self.onnxruntime / self.ours


def exported(torch: Any, network: Any, arguments: dict[str, Any], path: str) -> dict[str, Any]:
    """Writes a network to a file, and gives what it is called with, as arrays by name."""
    if not getattr(getattr(network, "config", None), "is_encoder_decoder", False):
        arguments = {name: value for name, value in arguments.items() if name != "labels"}  # a loss is not asked for

    class Called(torch.nn.Module):  # type: ignore[misc]  # torch may have no types
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *given: Any) -> Any:
            return result_of(self.network(**dict(zip(arguments, given, strict=True))))

    _teach(torch)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Called().eval(), tuple(arguments.values()), path, dynamo=False, opset_version=OPSET, input_names=list(arguments),
            output_names=["result"],
        )  # fmt: skip
    return {name: value.numpy() for name, value in arguments.items()}


def _teach(torch: Any) -> None:
    """Tells the exporter what `diff` and sums over prefixes of truth values are in ONNX."""
    torch.backends.mha.set_fastpath_enabled(False)  # an operator of its own, which ONNX has not
    helper, types = importlib.import_module("torch.onnx.symbolic_helper"), importlib.import_module("onnx").TensorProto

    def diff(g: Any, x: Any, n: Any, dim: Any, prepend: Any, append: Any) -> Any:
        axis = helper._get_const(dim, "i", "dim")
        parts = [part for part in (prepend, x, append) if not helper._is_none(part)]
        x = g.op("Concat", *parts, axis_i=axis) if len(parts) > 1 else x
        later = helper._slice_helper(g, x, axes=[axis], starts=[1], ends=[2**62])
        return g.op("Sub", later, helper._slice_helper(g, x, axes=[axis], starts=[0], ends=[-1]))

    def cumsum(g: Any, x: Any, dim: Any, kind: Any = None) -> Any:
        if x.type().scalarType() == "Bool":
            x = g.op("Cast", x, to_i=types.INT64)
        return g.op("CumSum", x, g.op("Constant", value_t=torch.tensor(helper._get_const(dim, "i", "dim"))))

    torch.onnx.register_custom_op_symbolic("aten::diff", diff, OPSET)
    torch.onnx.register_custom_op_symbolic("aten::cumsum", cumsum, OPSET)


def measured(name: str, small: bool, threads: int, effort: Effort) -> Row:
    """Exports a network, compares the two, and times them in turns; ours alone where onnxruntime is not installed."""
    torch, networks = importlib.import_module("torch"), importlib.import_module(NETWORKS)
    interop = importlib.import_module("tensorexpr.interop.onnx")
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    network, arguments = networks.made(name, small)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/{name}.onnx"
        feeds = exported(torch, network, arguments, path)
        model = interop.from_onnx(path)
        session = None
        if importlib.util.find_spec("onnxruntime") is not None:
            runtime = importlib.import_module("onnxruntime")
            options = runtime.SessionOptions()
            options.intra_op_num_threads = threads
            session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given = [feeds[argument] for argument in model.arguments]
    start = time.perf_counter()
    found = np.asarray(model(*given))
    first = time.perf_counter() - start
    calls = {"tensorexpr": lambda: model(*given)}
    apart = None
    if session is not None:
        (expected,) = session.run(None, feeds)
        apart = difference([expected], [found])
        calls["onnxruntime"] = lambda: session.run(None, feeds)
    times = {by: 1e3 * timing.median for by, timing in interleaved(calls, effort).items()}
    return Row(name, threads, times["tensorexpr"], times.get("onnxruntime"), first, apart)


def worker(request: dict[str, Any]) -> None:
    """One network: a line of JSON."""
    take_cores(request["threads"])
    print(json.dumps(asdict(measured(request["network"], request["small"], request["threads"], Effort(**request["effort"])))), flush=True)


def table(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The rows as texts, under `HEADS`."""

    def text(value: float | None) -> str:
        return "" if value is None else f"{value:.2f}"

    return [
        (
            row.network, str(row.threads), text(row.ours), text(row.onnxruntime), text(row.ratio), text(row.first),
            "" if row.difference is None else f"{row.difference:.0e}",
        )
        for row in rows
    ]  # fmt: skip


def main(threads: Sequence[int], rounds: int = 9, path: str | None = None, parts: Sequence[str] = (), small: bool = False) -> int:
    """Prints the table, and writes the same as JSON where a path is given; 1 where results differ or a process fails."""
    absent = peers.missing(["torch"]) or importlib.util.find_spec("onnx") is None
    if absent:
        print("skipped: torch and onnx (not installed: pip install 'tensorexpr[bench,onnx]')")
        return 0
    rows: list[Row] = []
    failed = []
    for count, name in itertools.product(threads, chosen(parts)[0]):
        effort = asdict(Effort(rounds=rounds) if count > 1 else Effort(rounds=rounds, settle=0.0))
        request = {"network": name, "small": small, "threads": count, "effort": effort}
        command = [sys.executable, "-m", "tensorexpr.benchmarks.subjects.networks.onnx", json.dumps(request)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ | limits(count), check=False)
        line = next((line for line in reversed(done.stdout.splitlines()) if line.startswith("{")), None)
        if done.returncode or line is None:
            failed.append(name)
        else:
            rows.append(Row(**json.loads(line)))
        print(f"  {name}, threads: {count}", file=sys.stderr, flush=True)
    output.print_columns(table(rows), HEADS, {0})
    ratios = [row.ratio for row in rows if row.ratio is not None]
    if ratios:
        print(f"geometric mean of onnxruntime / ours: {statistics.geometric_mean(ratios):.2f} over {len(ratios)}")
    if failed:
        print(f"failed: {', '.join(failed)}")
    if path is not None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        keeping.write(path, {"date": date, "machine": machine(), "peers": peers.versions(), "rows": [asdict(row) for row in rows]})
    return int(bool(failed) or any(row.difference is not None and row.difference >= CLOSE for row in rows))


if __name__ == "__main__":
    worker(json.loads(sys.argv[1]))
