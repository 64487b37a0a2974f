"""`python -m tensorexpr.benchmarks.gpu.run FOLDER`: the workloads on a GPU beside PyTorch, `torch.compile`, JAX, CuPy and Triton.

One process, candidates in turns, device time by CUDA's events between two synchronizations; our results are compared with float64
before they are timed. A GPU minute is costly, so: what fails is written down by name and the rest goes on; the most telling workloads and
the peers that need no long compilation come first, the peers that do (`torch.compile`, JAX) in a second turn; nothing takes more than its
share of the time; JSON and a table are written before and after every row, and `--resume` goes on where a run was cut off or where an
error left the GPU's context unusable (status 75: start again). With TENSOREXPR_CUDA=host and `--tiny` the same runs on a CPU, as a test.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr.benchmarks import peers
from tensorexpr.benchmarks.gpu import peers as gpu_peers
from tensorexpr.benchmarks.gpu import resources
from tensorexpr.benchmarks.gpu import workloads as gpu_workloads
from tensorexpr.benchmarks.gpu.peers import AGAIN, Clock
from tensorexpr.benchmarks.gpu.workloads import Workload
from tensorexpr.codegen.auto.gpus import GpuFacts, facts_of, with_measured
from tensorexpr.codegen.cuda.launch.device import Device, current_device

TURNS = (("torch", "deterministic", "cupy", "triton"), ("torch.compile", "jax"))
"""Peers by turn: the second turn's compile for seconds."""
SAMPLE = 0.01
"""Seconds of calls in one sample."""
ROUNDS = 7
PATIENCE = 25.0
"""Seconds for making one candidate, for the reference, and for the rounds of a row together."""

Row = dict[str, Any]


def ours(load: Workload, arrays: Sequence[Any], head: Any | None) -> tuple[Callable[[], Any], te.CompiledFunction]:
    """A call of the compiled operation, or of it and its gradients, and the function."""
    outputs, inputs = load.defined(head is not None)
    function = te.build(outputs, inputs, target="cuda", **_options(load))
    return functools.partial(function, *arrays, *([] if head is None else [head])), function


def _options(load: Workload) -> dict[str, str]:
    return {} if load.precision is None else {"precision": load.precision}


def predicted(load: Workload, gradient: bool, facts: GpuFacts) -> float:
    """Milliseconds that the static model gives the kernels, without a GPU."""
    code = resources.code_of(load, gradient, facts)
    return 1e-6 * sum(one.nanoseconds for one in resources.predicted(load, code, code.compiled(facts.arch), facts))


def predict(record: Record, loads: Sequence[Workload], facts: GpuFacts, until: float) -> None:
    """Puts predicted times beside those that are there."""
    for load in loads:
        for direction in ("forward", "gradient"):
            row = record.row(load.spec.name, direction)
            if row is None or "predicted" in row or time.monotonic() > until:
                continue
            try:
                with gpu_peers.limited(4 * PATIENCE):
                    row["predicted"] = predicted(load, direction == "gradient", facts)
            except Exception as problem:
                row["problems"]["model"] = _said(problem)
            record.write()


def facts_for(folder: Path, about: dict[str, Any]) -> GpuFacts:
    """The facts of the GPU that rows were measured on: those that a run of the ceilings left in the folder over all others."""
    found = facts_of(about.get("arch", "sm_90"), about.get("gpu"))
    for file in sorted((folder / "facts").glob("*.json")):
        found = with_measured(found, json.loads(file.read_text()))
    return found


def measure(load: Workload, gradient: bool, device: Device, clock: Clock, wanted: Sequence[str], check: bool) -> Row:
    """One row: milliseconds of every candidate, the error of ours, what it reaches, what its kernels take."""
    spec = load.spec
    arrays, head = spec.draw(), spec.head() if gradient else None
    there = [device.upload(a) for a in arrays]
    seed = None if head is None else device.upload(head)
    row: Row = {"name": spec.name, "direction": "gradient" if gradient else "forward", "problems": {}, "tried": list(wanted)}
    with gpu_peers.limited(PATIENCE):
        began = time.perf_counter()
        call, function = ours(load, there, seed)
        row["compile"] = time.perf_counter() - began
        results = call()
        clock.synchronize()
    if check:
        try:
            with gpu_peers.limited(PATIENCE):
                row["error"] = gpu_peers.error(load, arrays, head, results, device)
                if not row["error"] < 10 * spec.tolerance:
                    row["problems"]["tensorexpr"] = f"wrong: relative error {row['error']:.2g}"
        except Exception as problem:  # of any library
            row["problems"]["float64"] = _said(problem)
            gpu_peers.free()
    del results
    taken = getattr(function, "resources", {})
    row["kernels"] = {name: {"registers": r.registers, "spills": r.spill_stores, "shared": r.shared} for name, r in taken.items()}
    candidates: dict[str, Callable[[], Any]] = {"tensorexpr": call}
    for name in () if load.alone else wanted:
        try:
            with gpu_peers.limited(PATIENCE):
                made = gpu_peers.candidate(name, load, arrays, head, there, device)
                if made is not None:
                    made()
                    clock.synchronize()
                    candidates[name] = made
        except Exception as problem:  # of any library
            row["problems"][name] = _said(problem)
            gpu_peers.free()
    with gpu_peers.limited(PATIENCE):
        row["ms"] = {name: 1e3 * seconds for name, seconds in _timed(candidates, clock).items()}
    return row


def _timed(candidates: dict[str, Callable[[], Any]], clock: Clock) -> dict[str, float]:
    """Medians of samples taken in turns."""
    began = time.monotonic()
    samples = {name: [clock.seconds(call, 1)] for name, call in candidates.items()}
    repeats = {name: max(1, int(SAMPLE / max(taken[0], 1e-7))) for name, taken in samples.items()}
    for number in range(ROUNDS):
        if time.monotonic() - began > PATIENCE / 4:
            break
        for name, candidate in candidates.items():
            if number == 0:
                samples[name] = []
            samples[name].append(clock.seconds(candidate, repeats[name]))
    return {name: float(np.median(taken)) for name, taken in samples.items()}


def _said(problem: Exception) -> str:
    return f"{type(problem).__name__}: {str(problem)[:300]}"


def overheads(device: Device, clock: Clock, wanted: Sequence[str]) -> dict[str, float | str]:
    """Microseconds of the host for one call that adds 16 numbers, results given where that can be said, without waiting for the GPU."""
    load = next(load for load in gpu_workloads.all_of(True) if load.spec.name == "add of 16")
    arrays = load.spec.draw()
    there, out = [device.upload(a) for a in arrays], device.upload(arrays[0])
    function = ours(load, there, None)[1]
    calls: dict[str, Callable[[], Any]] = {"tensorexpr": functools.partial(function, *there, out=(out,))}
    found: dict[str, float | str] = {}
    for name in ("tensorexpr", *wanted):
        try:
            call = calls[name] if name in calls else gpu_peers.candidate(name, load, arrays, None, there, device)
            if call is None:
                continue
            taken = []
            for _ in range(ROUNDS):
                clock.synchronize()
                start = time.perf_counter()
                for _ in range(200):
                    call()
                taken.append((time.perf_counter() - start) / 200)
            found[name] = 1e6 * float(np.median(taken))
        except Exception as problem:  # of any library
            found[name] = _said(problem)
    return found


def finished(row: Row, load: Workload) -> None:
    """Fills in what follows from the times: what is reached, and the ratio to the fastest peer."""
    own, gradient = row["ms"]["tensorexpr"] * 1e-3, row["direction"] == "gradient"
    row["gflops"], row["gbs"] = load.spec.work(gradient) / own * 1e-9, load.spec.moved(gradient) / own * 1e-9
    others = [ms for name, ms in row["ms"].items() if name not in ("tensorexpr", "deterministic")]
    row["ratio"] = min(others) / row["ms"]["tensorexpr"] if others else None


def table(rows: Sequence[Row], overhead: dict[str, float | str] | None = None) -> str:
    """The rows as text: the ratio is that of the fastest peer's time to ours, `model` that of the predicted time to ours."""
    lines = [
        f"{'workload':36} {'':9} {'ours ms':>10} {'ratio':>6} {'GFLOP/s':>9} {'GB/s':>8} {'copy':>5} {'model':>6} {'error':>8}  others"
    ]
    for row in rows:
        if "of_copy" not in row:
            lines.append(f"{row['name']:36} {row['direction']:9} failed: {row['problems'].get('tensorexpr', '')[:90]}")
            continue
        others = " ".join(f"{n}={ms:.3g}" for n, ms in row["ms"].items() if n != "tensorexpr")
        failed = "".join(f" {n}: {text[:40]}" for n, text in row["problems"].items()).replace("\n", " ")
        ratio, share = ("-" if row[key] is None else f"{row[key]:.2f}" for key in ("ratio", "of_copy"))
        error = f"{row['error']:.1e}" if "error" in row else "-"
        model = f"{row['predicted'] / row['ms']['tensorexpr']:.2f}" if "predicted" in row else "-"
        lines.append(
            f"{row['name']:36} {row['direction']:9} {row['ms']['tensorexpr']:10.4g} {ratio:>6} {row['gflops']:9.1f} {row['gbs']:8.1f} "
            f"{share:>5} {model:>6} {error:>8}  {others}{' |' if failed else ''}{failed}"
        )
    if overhead:
        values = ", ".join(f"{n} {v:.2f}" if isinstance(v, float) else f"{n} failed" for n, v in overhead.items())
        lines.append(f"microseconds of the host per call: {values}")
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


class Record:
    """The rows so far, on disk after every change."""

    def __init__(self, folder: Path, device: Device | None, resume: bool) -> None:
        self._folder = folder
        self.document: dict[str, Any] = {"machine": {} if device is None else machine(device), "overhead_us": {}, "rows": []}
        if resume and (folder / "gpu.json").exists():
            self.document |= json.loads((folder / "gpu.json").read_text())
        self.rows: list[Row] = self.document["rows"]

    def row(self, name: str, direction: str) -> Row | None:
        """What there is of a workload."""
        return next((row for row in self.rows if (row["name"], row["direction"]) == (name, direction)), None)

    def bandwidth(self) -> float:
        """GB/s of the fastest copy by anyone."""
        copies = [row for row in self.rows if row["name"].startswith("copy") and "gbs" in row]
        return max((row["gbs"] * row["ms"]["tensorexpr"] / min(row["ms"].values()) for row in copies), default=0.0)

    def write(self) -> None:
        """Both files, each in one step."""
        texts = {"gpu.json": json.dumps(self.document, indent=1) + "\n", "gpu.txt": table(self.rows, self.document["overhead_us"])}
        for name, text in texts.items():
            part = self._folder / f"{name}.part"
            part.write_text(text)
            part.replace(self._folder / name)


def work(record: Record, load: Workload, gradient: bool, device: Device, clock: Clock, wanted: Sequence[str], check: bool) -> bool:
    """Measures a row, or more peers for one that is there; False where the GPU's context is lost."""
    name, direction = load.spec.name, "gradient" if gradient else "forward"
    old = record.row(name, direction)
    if old is None:
        row: Row = {"name": name, "direction": direction, "problems": {"tensorexpr": "the process ended"}, "tried": list(wanted)}
        record.rows.append(row)
    else:
        row = old
        wanted = [peer for peer in wanted if peer not in row["tried"]]
        if not wanted or "of_copy" not in row:
            return True
        row["tried"] += wanted
    record.write()
    usable = True
    try:
        found = measure(load, gradient, device, clock, wanted, check and old is None)
        if old is None:
            row.clear()
            row.update(found)
        else:
            row["ms"] |= {peer: ms for peer, ms in found["ms"].items() if peer != "tensorexpr"}
            row["problems"] |= found["problems"]
        finished(row, load)
        bandwidth = record.bandwidth()
        row["of_copy"] = row["gbs"] / bandwidth if bandwidth and load.spec.group == "memory" else None
    except Exception as problem:
        traceback.print_exc()
        row["problems"]["tensorexpr"] = _said(problem)
        try:
            clock.synchronize()
        except Exception:  # an error of the GPU stays: nothing runs in this process any more
            usable = False
    if usable:
        with contextlib.suppress(Exception):
            gpu_peers.free()
    record.write()
    print(table([row]).splitlines()[1], flush=True)
    return usable


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the workloads: 0, or 1 where some failed or are wrong, or `AGAIN`."""
    parser = argparse.ArgumentParser(prog="tensorexpr.benchmarks.gpu.run")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tiny", action="store_true", help="small arrays: a test of this program")
    parser.add_argument("--filter", action="append", default=[], help="part of a name of a workload")
    parser.add_argument("--peers", default=",".join(peer for turn in TURNS for peer in turn))
    parser.add_argument("--seconds", type=float, default=400.0, help="no workload starts after that")
    parser.add_argument("--resume", action="store_true", help="keep the rows that the folder has")
    parser.add_argument(
        "--turn", type=int, choices=range(1, len(TURNS) + 1), help="only this turn of peers: 2 are those that compile for long"
    )
    parser.add_argument("--predict", action="store_true", help="only put predicted times beside the rows that are there; needs no GPU")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, value in gpu_peers.ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    began = time.monotonic()
    loads = [load for load in gpu_workloads.all_of(options.tiny) if not options.filter or any(f in load.spec.name for f in options.filter)]
    if options.predict:
        record = Record(options.folder, None, True)
        predict(record, loads, facts_for(options.folder, record.document["machine"]), began + options.seconds)
        print(table(record.rows, record.document["overhead_us"]))
        return 0
    device = current_device()
    clock, record = Clock(device), Record(options.folder, device, options.resume)
    asked = [p for p in options.peers.split(",") if p and gpu_peers.installed(p)]
    if not record.document["overhead_us"] and not options.filter:
        try:
            record.document["overhead_us"] = overheads(device, clock, [p for p in asked if p in TURNS[0]])
        except Exception as problem:
            record.document["overhead_us"] = {"tensorexpr": _said(problem)}
    for turn in TURNS if options.turn is None else TURNS[options.turn - 1 :][:1]:
        for load in loads:
            for gradient in (False, True) if load.spec.differentiable else (False,):
                if time.monotonic() - began > options.seconds:
                    return 1 if _failed(record.rows) else 0
                wanted = [peer for peer in turn if peer in asked]
                if not work(record, load, gradient, device, clock, wanted, gpu_peers.installed("torch")):
                    return AGAIN
    return 1 if _failed(record.rows) else 0


def _failed(rows: Sequence[Row]) -> bool:
    return any("tensorexpr" in row["problems"] for row in rows)


if __name__ == "__main__":
    sys.exit(main())
