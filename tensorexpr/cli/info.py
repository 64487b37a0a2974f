"""`info`: versions, the CPU as the compiler sees it, threads, GPU: what to paste into a report."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from typing import Any

from tensorexpr.codegen.target import host_target

_PACKAGES = ("tensorexpr", "numpy", "llvmlite", "sympy", "ml_dtypes", "cupy", "torch", "jax")


def collect() -> dict[str, Any]:
    """The facts as a dictionary of plain values (what `--json` prints)."""
    versions: dict[str, str | None] = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    target = host_target()
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": versions,
        "cpu": {field: getattr(target, field) for field in target.__dataclass_fields__ if _plain(getattr(target, field))},
        "threads": int(os.environ.get("TENSOREXPR_NUM_THREADS", 0)) or affinity,
        "gpu": None if versions["cupy"] is None else "cupy is installed; this version has no CUDA backend yet",
    }


def _plain(value: object) -> bool:
    return isinstance(value, str | int | float | bool | tuple)


def as_text(facts: dict[str, Any]) -> str:
    """The facts as aligned lines."""
    lines = [f"python      {facts['python']}", f"platform    {facts['platform']}"]
    lines += [f"{package:<11} {version or 'not installed'}" for package, version in facts["versions"].items()]
    lines += [f"cpu {key:<15} {value}" for key, value in facts["cpu"].items()]
    lines.append(f"threads     {facts['threads']}")
    lines.append(f"gpu         {facts['gpu'] or 'none: the CUDA backend needs CuPy, which is not installed'}")
    return "\n".join(lines)
