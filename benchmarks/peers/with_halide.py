"""Halide: pipelines scheduled by its autoschedulers, the fastest of them for each workload; gradients by its own autodiff.

Compiled ahead of time (`halide_build`, by `bench --prepare`) and kept under the user's cache folder, since its autoschedulers take
up to minutes; what failed or took longer than `PATIENCE` is kept too, as an empty file. Called through `ctypes` on prepared buffers.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tensorexpr.benchmarks.peers import halide_build, halide_call
from tensorexpr.codegen.disk import digest

SCHEDULERS: tuple[str | None, ...] = ("Adams2019", "Mullapudi2016")
GRADIENT_SCHEDULERS: tuple[str | None, ...] = ("Li2018", "Mullapudi2016")
"""Of gradients, whose many stages the search of the first would take hours for; Li2018 is made for them."""
PATIENCE = 0.0
"""Seconds that an autoscheduler and the compiler may take; 0: what is not there yet is not made."""
LEFT_TO_LIBRARIES = ("matmul", "matmul_at", "matmul_bt", "conv2d", "conv2d_nhwc", "softmax")
"""What BLAS and oneDNN are there for, but for depthwise convolutions."""


def _folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tensorexpr-benchmarks" / "halide"


def _library(key: str, static: dict[str, Any], shapes: Sequence[Sequence[int]], gradient: bool, scheduler: str | None) -> Path | None:
    """The compiled pipeline, made where it is not there yet; None where it cannot be."""
    request = {
        "key": key, "static": static, "shapes": [list(shape) for shape in shapes], "gradient": gradient, "scheduler": scheduler,
        "threads": int(os.environ.get("HL_NUM_THREADS") or os.cpu_count() or 1),
    }  # fmt: skip
    source = Path(halide_build.__file__).read_text()
    name = digest(json.dumps(request, sort_keys=True), source, importlib.metadata.version("halide"))
    path = _folder() / f"{name}.so"
    if not path.exists() and not PATIENCE:
        return None
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tensorexpr.benchmarks.peers.halide_build", json.dumps({**request, "library": str(path)})]
        try:
            done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
            if done.returncode != 0:
                path.with_suffix(".log").write_text(f"{done.stderr.decode(errors='replace')}exit status {done.returncode}\n")
        except subprocess.TimeoutExpired:
            path.with_suffix(".log").write_text(f"no answer within {PATIENCE:.0f} s")
        if not path.exists():
            path.touch()
    return path if path.stat().st_size else None


def has(key: str, static: dict[str, Any], gradient: bool) -> bool:
    """Whether there is a pipeline for the workload that is worth its search."""
    del gradient
    return key in halide_build.PIPELINES and (key not in LEFT_TO_LIBRARIES or static.get("groups", 1) > 1)


def candidate(key: str, static: dict[str, Any], arrays: Sequence[np.ndarray], head: np.ndarray | None) -> Callable[[], Any]:
    """The pipeline under the autoscheduler that is fastest on these arrays. Raises `RuntimeError` where none of them makes code."""
    shapes = [a.shape for a in arrays]
    given = [np.asarray(a, order="C") for a in (*arrays, *(() if head is None else (head,)))]
    fastest: tuple[float, Callable[[], Any]] | None = None
    schedulers = SCHEDULERS if head is None else GRADIENT_SCHEDULERS
    for scheduler in schedulers:
        path = _library(key, static, shapes, head is not None, scheduler)
        if path is None:
            continue
        call = halide_call.caller(path, given, json.loads(path.with_suffix(".json").read_text()))
        call()
        start = time.perf_counter()
        call()
        taken = time.perf_counter() - start
        if fastest is None or taken < fastest[0]:
            fastest = taken, call
    if fastest is None:
        names = ", ".join(map(str, schedulers))
        raise RuntimeError(f"expected code from one of {names}, got none (bench --prepare makes it, with logs in {_folder()})")
    return fastest[1]
