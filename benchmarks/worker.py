"""One workload in a process of its own: pools, memory and compile times of one are not those of another.

The processes are forked from one that has imported the peers (nothing of them has run there), with the number of threads set
for every library in the environment that it was started in. What a process finds is plain values, for `run` to print and keep.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from tensorexpr.benchmarks import operations, peers, roofline, workloads
from tensorexpr.benchmarks.harness import Effort, arrays_of, difference, interleaved
from tensorexpr.benchmarks.spec import Spec
from tensorexpr.benchmarks.subjects import memory

_VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "TENSOREXPR_NUM_THREADS", "HL_NUM_THREADS", "NPROC",
)  # fmt: skip
Say = Callable[[tuple[str, str] | None], None]
"""Told the direction and the candidate that are built and called for the first time now; None while all are timed."""
REFERENCES = ("torch", "numpy", "jax", "numba", "keops", "halide")
"""Who is right about values, the first that is there."""


def limits(threads: int) -> dict[str, str]:
    """What the environment of a process has for so many threads of ours and of every peer; OpenBLAS under NumPy reads it when loaded."""
    found = dict.fromkeys(_VARIABLES, str(threads))
    return found | {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"} if threads == 1 else found


def take_cores(threads: int) -> None:
    """So many cores for this process and those that it starts."""
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, allowed[-threads:])


def import_peers(names: Sequence[str], patience: float) -> None:
    """Imports the peers, once for all processes that are forked; searches for schedules may take so many seconds each."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # its pool of compiling processes would not be forked whole
    for name in names:
        with contextlib.redirect_stdout(io.StringIO()):
            room = peers.module(name)
            if name == "torch.compile":  # what its first call would import, in every process anew
                importlib.import_module("torch._inductor.compile_fx")
        if hasattr(room, "PATIENCE"):
            room.PATIENCE = patience


def measured(spec: Spec, names: Sequence[str], effort: Effort, seconds: float, timed: bool = True) -> dict[str, Any]:
    """What processes find about a workload: one for all candidates, and two in which ours is built from disk, called and weighed.

    Each has at most `seconds` (one that needs longer is ended). A peer that ends its process, or is being built when time is up, is named
    as failed, and the others are measured anew.
    """
    context = multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn")
    with tempfile.TemporaryDirectory() as cache:
        lost: dict[tuple[str, str], str] = {}
        while True:
            result = in_process(context, _measure, (spec, list(names), tuple(lost), effort, timed, cache), seconds)
            direction, name = result.get("at") or ("", peers.OURS)
            if "error" not in result or name == peers.OURS:
                break
            lost[direction, name] = result["error"]
        for row in result.get("rows", ()):
            row["failed"] |= {name: why for (direction, name), why in lost.items() if direction == row["direction"]}
            if timed and peers.OURS in row["timings"]:
                row |= in_process(context, _again, (spec, row["direction"] == "gradient", cache), seconds)
    return result


def in_process(context: Any, target: Any, arguments: tuple[Any, ...], seconds: float) -> dict[str, Any]:
    """What `target(say, *arguments)` returns in a process of its own, or an "error" and where it was ("at") when the process ended, raised,
    or took longer than so many seconds; then it is killed."""
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, target, arguments))
    process.start()
    sender.close()
    began, at = time.perf_counter(), None
    try:
        while receiver.poll(max(0.0, seconds - (time.perf_counter() - began))):
            found: dict[str, Any] = receiver.recv()
            if "at" not in found:
                return found
            at = found["at"]
        return {"error": f"expected an answer within {seconds:.0f} s, got none", "at": at}
    except EOFError:
        process.join()
        return {"error": f"expected an answer, got exit status {process.exitcode}", "at": at}
    finally:
        if process.is_alive() and not receiver.closed:
            process.join(1.0)
        process.kill()
        process.join()
        receiver.close()


def _send(sender: Any, target: Any, arguments: tuple[Any, ...]) -> None:
    def say(at: tuple[str, str] | None) -> None:
        sender.send({"at": at})

    try:
        sender.send(target(say, *arguments))
    except Exception:
        sender.send({"error": traceback.format_exc(limit=3)})


def _measure(
    say: Say, spec: Spec, names: list[str], without: tuple[tuple[str, str], ...], effort: Effort, timed: bool, cache: str
) -> dict[str, Any]:
    arrays, rows = spec.draw(), []
    for direction in ("forward", "gradient") if spec.differentiable else ("forward",):
        there = [name for name in names if (direction, name) not in without]
        head = spec.head() if direction == "gradient" else None
        rows.append(_row(say, spec, there, arrays, head, effort, timed, cache))
    return {"rows": rows}


def _row(
    say: Say, spec: Spec, names: list[str], arrays: list[np.ndarray], head: np.ndarray | None, effort: Effort, timed: bool, cache: str
) -> dict[str, Any]:
    """Builds, compares, times and weighs the candidates of one direction; `say` is told at which of them it is."""
    gradient = head is not None
    given = [*arrays, *([head] if head is not None else [])]
    row: dict[str, Any] = {
        "workload": spec.name, "group": spec.group, "direction": "gradient" if gradient else "forward",
        "operations": spec.work(gradient), "bytes": spec.moved(gradient), "compile": {}, "failed": {}, "differs": {}, "lacking": {},
        "inputs": sum(array.nbytes for array in given),
    }  # fmt: skip
    calls: dict[str, peers.Candidate] = {}
    results: dict[str, list[np.ndarray]] = {}
    for name in names:
        os.environ["TENSOREXPR_CACHE_DIR"] = cache
        say((row["direction"], name))
        try:
            make = peers.maker(name, spec, arrays, head)
            if make is None:
                row["lacking"][name] = peers.lacking(name, spec, gradient)
                continue
            start = time.perf_counter()
            call = make()
            built = time.perf_counter() - start
            results[name] = arrays_of(call())
            row["compile"][name] = built if name == peers.OURS else time.perf_counter() - start
        except Exception as error:
            row["failed"][name] = f"{type(error).__name__}: {error}"[:300]
            continue
        calls[name] = call
    say(None)
    reference = next((name for name in (*REFERENCES, *results) if name in results), None)
    row["reference"] = reference
    if reference is not None:
        row["in_and_out"] = row["inputs"] + sum(r.nbytes for r in results[reference])
        for name, result in results.items():
            off = difference(results[reference], result)
            if off > spec.tolerance:
                row["differs"][name] = off
    for name in row["differs"]:
        if name != peers.OURS:
            del calls[name]
    results.clear()
    gc.collect()
    gc.freeze()
    if timed:
        row["timings"] = {name: asdict(timing) for name, timing in interleaved(calls, effort).items()}
        row["peak"] = {name: memory.peak(call, memory.resident()) for name, call in calls.items()}
    return row


def main(request: dict[str, Any]) -> None:
    """Measures what a request names, one line of JSON for each finding on what is the standard output now; peers may print there too."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    take_cores(request["threads"])
    import_peers(request["peers"], 0.0 if request["timed"] else request["seconds"] / 4)
    operations.matmul(np.ones((3, 3), np.float32), np.ones((3, 3), np.float32))  # loads LLVM
    if request["timed"]:
        print(json.dumps({"roofline": roofline.measure(request["threads"]).as_json()}), file=answers, flush=True)
    names = [peers.OURS, *request["peers"]]
    for spec in workloads.specs():
        if spec.name in request["workloads"]:
            found = measured(spec, names, Effort(**request["effort"]), request["seconds"], request["timed"])
            print(json.dumps({"workload": spec.name, **found}), file=answers, flush=True)


def _again(say: Say, spec: Spec, gradient: bool, cache: str) -> dict[str, Any]:
    """Seconds to build from code on disk, and bytes that ours adds at its peak to what stood there before its first call."""
    del say
    os.environ["TENSOREXPR_CACHE_DIR"] = cache
    arrays, head = spec.draw(), spec.head() if gradient else None
    start = time.perf_counter()
    call = peers.ours(spec, arrays, head)
    found: dict[str, Any] = {"warm": time.perf_counter() - start}
    before = memory.resident()  # code and what compiling left behind are not of the call
    call()
    return {**found, "added": memory.peak(call, before)}


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
