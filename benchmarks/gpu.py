"""`python -m tensorexpr.benchmarks.gpu FOLDER`: the workloads on a GPU beside PyTorch, `torch.compile`, JAX and CuPy.

One process, candidates in turns, device time by CUDA's events between two synchronizations; each result is compared with float64 before
it is timed. What fails is written down and the rest goes on: a GPU minute is dear. JSON and a table are written after every workload,
so that a run that is cut off leaves what it has. With TENSOREXPR_CUDA=host and `--tiny` the same runs on a CPU, as a test of this file.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import importlib
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.benchmarks import operations, peers, workloads
from tensorexpr.benchmarks.spec import Spec
from tensorexpr.codegen.cuda.device import Device, current_device

PEERS = ("torch", "torch.compile", "jax", "cupy")
SAMPLE = 0.01
"""Seconds of calls in one sample."""
ROUNDS = 7


def large(tiny: bool) -> Iterator[Spec]:
    """Workloads of the size of a GPU."""
    for side in (9, 10) if tiny else (4096, 8192):
        yield Spec(f"gemm {side}", "contraction", "matmul", operations.matmul, ((side, side), (side, side)), 2.0 * side**3, 12.0 * side**2)
    n, c, size = (2, 4, 6) if tiny else (32, 256, 56)
    work, moved = 2.0 * n * size * size * c * c * 9, 4.0 * (2 * n * c * size * size + 9 * c * c)
    shapes: tuple[tuple[int, ...], ...] = ((n, c, size, size), (c, c, 3, 3))
    yield Spec(f"conv 3x3 {n}x{c}x{size}x{size}", "contraction", "conv2d", kernels.conv2d, shapes, work, moved, {"padding": 1})
    row = (5, 40) if tiny else (16384, 8192)
    elements = float(np.prod(row))
    yield Spec(f"softmax {row[0]}x{row[1]}", "memory", "softmax", kernels.softmax, (row,), 5 * elements, 8 * elements)
    weights = (row[1:], row[1:])
    yield Spec(f"layer norm {row[0]}x{row[1]}", "memory", "layer_norm", kernels.layer_norm, (row, *weights), 8 * elements, 8 * elements)
    for inner in (4,) if tiny else (64, 128):
        length = 16 if tiny else 16384
        work, moved = 4.0 * length * length * inner, 16.0 * length * inner
        op, shapes = kernels.scaled_dot_product_attention, ((1, length, inner),) * 3
        yield Spec(f"attention {length}x{inner}", "fused", "attention", op, shapes, work, moved, {"is_causal": False})
    for points in (12,) if tiny else (100_000,):
        shapes = ((points, 3), (points, 3), (points, 1))
        op = kernels.gaussian_product
        yield Spec(f"Gaussian product {points}", "fused", "gaussian_product", op, shapes, 30.0 * points**2, 32.0 * points)
    length = 64 if tiny else 1 << 28
    yield Spec(f"copy {length}", "memory", "copy", copy, ((length,),), float(length), 8.0 * length, differentiable=False)


@te.op
def copy(x):
    """x again."""
    return te.compute(x.shape, lambda i: x[i])


class Clock:
    """Seconds that calls take on a device."""

    def __init__(self, device: Device) -> None:
        self._cupy = None if device.arch is None else importlib.import_module("cupy")

    def seconds(self, call: Callable[[], Any], repeats: int) -> float:
        """Of one call, over so many in a row."""
        if self._cupy is None:
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            return (time.perf_counter() - start) / repeats
        cuda = self._cupy.cuda
        before, after = cuda.Event(), cuda.Event()
        self._cupy.cuda.runtime.deviceSynchronize()
        before.record()
        for _ in range(repeats):
            call()
        after.record()
        self._cupy.cuda.runtime.deviceSynchronize()
        return float(cuda.get_elapsed_time(before, after)) * 1e-3 / repeats


def ours(spec: Spec, arrays: Sequence[Any], head: Any | None) -> tuple[Callable[[], Any], te.CompiledFunction]:
    """A call of the compiled operation, or of it and its gradients, and the function."""
    inputs = spec.placeholders()
    output = spec.op(*inputs, **spec.static)
    if head is None:
        function = te.build([output], inputs, target="cuda")
        return functools.partial(function, *arrays), function
    given = te.placeholder(head.shape, "float32", name="head")
    gradients = te.gradient(output, [t for t in inputs if t.dtype.is_float], given)
    function = te.build([output, *gradients], [*inputs, given], target="cuda")
    return functools.partial(function, *arrays, head), function


def torch_candidate(spec: Spec, arrays: Sequence[np.ndarray], head: np.ndarray | None, compiled: bool) -> Callable[[], Any] | None:
    """PyTorch on its GPU, or on the CPU where it has none."""
    import torch  # noqa: PLC0415

    functions = {**peers.module("torch").FUNCTIONS, "copy": torch.clone}
    if spec.key not in functions or spec.key.endswith("_nhwc"):
        return None
    where = "cuda" if torch.cuda.is_available() else "cpu"
    given = [torch.from_numpy(a).to(where) for a in arrays]
    function: Callable[..., Any] = functools.partial(functions[spec.key], **spec.static)
    if compiled:
        function = torch.compile(function, dynamic=False)
    if head is None:

        def forward() -> Any:
            with torch.no_grad():
                return (function(*given),)

        return forward
    floating = [t.requires_grad_() for t in given if t.is_floating_point()]
    seed = torch.from_numpy(head).to(where)

    def both() -> Any:
        output = function(*given)
        return (output.detach(), *torch.autograd.grad(output, floating, seed))

    return both


def cupy_candidate(spec: Spec, arrays: Sequence[Any], head: Any | None) -> Callable[[], Any] | None:
    """CuPy's own functions by NumPy's names, forward."""
    functions = {**peers.module("numpy").FUNCTIONS, "copy": lambda x: x.copy()}
    if head is not None or spec.key not in functions:
        return None
    function = functools.partial(functions[spec.key], **spec.static)
    return lambda: (function(*arrays),)


def reference(spec: Spec, arrays: Sequence[np.ndarray], head: np.ndarray | None) -> list[np.ndarray] | None:
    """Results in float64, by PyTorch where it has the operation."""
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
    call = torch_candidate(spec, wide, None if head is None else head.astype(np.float64), compiled=False)
    return None if call is None else [np.asarray(t.detach().cpu()) for t in call()]


def error_of(results: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> float:
    """The largest difference, relative to the largest magnitude of each result."""
    worst = 0.0
    for found, expected in zip(results, wanted, strict=True):
        scale = float(np.abs(expected).max(initial=0.0)) or 1.0
        worst = max(worst, float(np.abs(found.astype(np.float64) - expected).max(initial=0.0)) / scale)
    return worst


def measure(spec: Spec, gradient: bool, device: Device, clock: Clock, wanted: Sequence[str], check: bool) -> dict[str, Any]:
    """One row: milliseconds of every candidate, the error of ours, what it reaches, what its kernels take."""
    arrays = spec.draw()
    head = spec.head() if gradient else None
    there = [device.upload(a) for a in arrays]
    call, function = ours(spec, there, None if head is None else device.upload(head))
    row: dict[str, Any] = {"name": spec.name, "direction": "gradient" if gradient else "forward", "problems": {}}
    results = [device.read(r) for r in call()]
    expected = reference(spec, arrays, head) if check else None
    if expected is not None:
        row["error"] = error_of(results, expected)
        if not row["error"] < 10 * spec.tolerance:
            row["problems"]["tensorexpr"] = f"wrong: relative error {row['error']:.2g}"
    resources = getattr(function, "resources", {})
    row["kernels"] = {name: {"registers": r.registers, "spills": r.spill_stores, "shared": r.shared} for name, r in resources.items()}
    candidates: dict[str, Callable[[], Any]] = {"tensorexpr": call}
    makers: dict[str, Callable[[], Any]] = {
        "torch": lambda: torch_candidate(spec, arrays, head, compiled=False),
        "torch.compile": lambda: torch_candidate(spec, arrays, head, compiled=True),
        "jax": lambda: None if spec.key == "copy" else peers.maker("jax", spec, arrays, head),
        "cupy": lambda: None if device.arch is None else cupy_candidate(spec, there, head),
    }
    for name in wanted:
        try:
            made = makers[name]()
            made = made() if name == "jax" and made is not None else made
            if made is not None:
                made()
                candidates[name] = made
        except Exception as problem:  # of any library
            row["problems"][name] = f"{type(problem).__name__}: {str(problem)[:200]}"
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    repeats = {name: max(1, int(SAMPLE / max(clock.seconds(c, 1), 1e-7))) for name, c in candidates.items()}
    for _ in range(ROUNDS):
        for name, candidate in candidates.items():
            samples[name].append(clock.seconds(candidate, repeats[name]))
    row["ms"] = {name: 1e3 * float(np.median(taken)) for name, taken in samples.items()}
    own = row["ms"]["tensorexpr"] * 1e-3
    row["gflops"], row["gbs"] = spec.work(gradient) / own * 1e-9, spec.moved(gradient) / own * 1e-9
    others = {name: ms for name, ms in row["ms"].items() if name != "tensorexpr"}
    row["ratio"] = min(others.values()) / row["ms"]["tensorexpr"] if others else None
    return row


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as text: the ratio is that of the fastest peer's time to ours."""
    lines = [f"{'workload':32} {'':9} {'ours ms':>10} {'ratio':>6} {'GFLOP/s':>9} {'GB/s':>8} {'error':>8}  others"]
    for row in rows:
        if "ms" not in row:
            lines.append(f"{row['name']:32} {row['direction']:9} failed: {row['problems'].get('tensorexpr', '')[:90]}")
            continue
        others = " ".join(f"{n}={ms:.3g}" for n, ms in row["ms"].items() if n != "tensorexpr")
        ratio = "-" if row["ratio"] is None else f"{row['ratio']:.2f}"
        error = f"{row['error']:.1e}" if "error" in row else "-"
        own = row["ms"]["tensorexpr"]
        lines.append(
            f"{row['name']:32} {row['direction']:9} {own:10.4g} {ratio:>6} {row['gflops']:9.1f} {row['gbs']:8.1f} {error:>8}  {others}"
        )
    return "\n".join(lines) + "\n"


def machine(device: Device) -> dict[str, Any]:
    """What ran, and when."""
    about: dict[str, Any] = {"date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "device": device.name}
    about["versions"] = {"tensorexpr": te.__version__, **peers.versions()}
    if device.arch is not None:
        cupy = importlib.import_module("cupy")
        properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())
        about.update(arch=device.arch, gpu=properties["name"].decode(), driver=cupy.cuda.runtime.driverGetVersion(), cupy=cupy.__version__)
    return about


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the workloads; gives the number of those that failed or are wrong."""
    parser = argparse.ArgumentParser(prog="tensorexpr.benchmarks.gpu")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tiny", action="store_true", help="small arrays: a test of this program")
    parser.add_argument("--filter", action="append", default=[], help="part of a name of a workload")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--seconds", type=float, default=420.0, help="no workload starts after that")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    device = current_device()
    clock, began, rows = Clock(device), time.monotonic(), []
    specs = [*large(options.tiny), *workloads.specs(options.tiny)]
    specs = [s for s in specs if not options.filter or any(f in s.name for f in options.filter)]
    wanted = [p for p in options.peers.split(",") if p and (p == "cupy" or p not in peers.missing([p]))]
    for spec in specs:
        for gradient in (False, True) if spec.differentiable else (False,):
            if time.monotonic() - began > options.seconds:
                break
            try:
                row = measure(spec, gradient, device, clock, wanted, check="torch" in wanted)
            except Exception as problem:
                traceback.print_exc()
                text = f"{type(problem).__name__}: {str(problem)[:500]}"
                row = {"name": spec.name, "direction": "gradient" if gradient else "forward", "problems": {"tensorexpr": text}}
            rows.append(row)
            print(table([row]).splitlines()[1], flush=True)
            document = {"machine": machine(device), "rows": rows}
            (options.folder / "gpu.json").write_text(json.dumps(document, indent=1) + "\n")
            (options.folder / "gpu.txt").write_text(table(rows))
    return sum(1 for row in rows if "tensorexpr" in row["problems"])


if __name__ == "__main__":
    sys.exit(main())
