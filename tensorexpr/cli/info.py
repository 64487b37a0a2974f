"""`info`: versions, the CPU as the compiler sees it, threads, GPU: what to paste into a report."""

from __future__ import annotations

import importlib.metadata
import platform
import textwrap
from typing import Any

from tensorexpr.codegen.cuda.launch.device import current_device
from tensorexpr.codegen.disk import usage
from tensorexpr.codegen.llvm.process.memory import default_bound
from tensorexpr.codegen.llvm.process.pool import default_threads
from tensorexpr.codegen.llvm.text.machine import host
from tensorexpr.codegen.target import host_target
from tensorexpr.errors import TargetError
from tensorexpr.records import as_dict

_PACKAGES = ("tensorexpr", "numpy", "llvmlite", "sympy", "ml_dtypes", "cupy", "torch", "jax")


def collect() -> dict[str, Any]:
    """The facts as a dictionary of plain values (what `--json` prints).

    Raises `ArgumentError` where TENSOREXPR_NUM_THREADS is no positive integer or TENSOREXPR_CACHE_SIZE or
    TENSOREXPR_MEMORY_POOL no number of MiB.
    """
    versions: dict[str, str | None] = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    target, machine = host_target(), host()
    features = " ".join(f[1:] for f in machine.features.split(",") if f.startswith("+"))
    cpu = {"name": machine.cpu, "features": features, **{k: v for k, v in as_dict(target).items() if k != "name"}}
    kept = usage()
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": versions,
        "cpu": cpu,
        "threads": default_threads(),
        "pool": default_bound(),
        "cache": {
            "folder": None if kept.folder is None else str(kept.folder),
            **{k: getattr(kept, k) for k in ("entries", "bytes", "bound")},
        },
        "gpu": _gpu(),
    }


def _gpu() -> str:
    """The device that code for the target "cuda" runs on, or why there is none."""
    try:
        return current_device().name
    except TargetError as error:
        return f"none: {error.message.rpartition(': ')[2]}"


def as_text(facts: dict[str, Any]) -> str:
    """The facts as aligned lines."""
    lines = [f"python      {facts['python']}", f"platform    {facts['platform']}"]
    lines += [f"{package:<11} {version or 'not installed'}" for package, version in facts["versions"].items()]
    for key, value in facts["cpu"].items():
        lines += textwrap.wrap(f"cpu {key:<15} {value}", 100, subsequent_indent=" " * 20, break_on_hyphens=False)
    lines.append(f"threads     {facts['threads']}")
    lines.append(f"pool        keeps up to {facts['pool'] / 2**20:.0f} MiB of results that died")
    cache = facts["cache"]
    used = f"{cache['folder']}: {cache['entries']} entries, {cache['bytes'] / 2**20:.1f} of {cache['bound'] / 2**20:.0f} MiB"
    lines.append(f"cache       {'off' if cache['folder'] is None else used}")
    lines.append(f"gpu         {facts['gpu']}")
    return "\n".join(lines)
