"""`onnx MODEL.onnx`: what a model is here, its time beside onnxruntime's, and a bundle of it."""

from __future__ import annotations

import importlib
import importlib.util
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorexpr.cli.output import print_code, print_columns, print_heading
from tensorexpr.cli.specs import parse_size
from tensorexpr.codegen.bundle.export import export
from tensorexpr.codegen.compiled.function import CompiledFunction
from tensorexpr.errors import TargetError

_ROUNDS, _SECONDS = 9, 0.05


def run(
    path: str, *, gradient: bool = False, bench: bool = False, bundle: str | None = None, sizes: Sequence[str] = (), as_json: bool = False
) -> dict[str, Any]:
    """Shows a model, or its gradient by all floating inputs and initializers; gives what was found.

    `bench` times it for made-up arguments, open dimensions having the `sizes` given as NAME=NUMBER, else 1; `bundle` writes it to a folder,
    with its gradient as `backward`. Raises `TargetError` where the package onnx is not installed, for a model that is not known, and where
    a bundle would need more than one compiled function.
    """
    model = _interop().from_onnx(path)
    given = model.made_up(**dict(map(parse_size, sizes)))
    shown, arguments = model, given
    if gradient:
        shown = model.gradient(model.floating)
        arguments = [*given, *(np.ones_like(item) for item in model.run(given) if item.dtype.kind not in "biu")]
    step = _step(shown, arguments)
    facts: dict[str, Any] = {
        "model": path,
        "arguments": {name: f"{a.dtype}{list(a.shape)}" for name, a in zip(shown.arguments, arguments, strict=False)},
        "results": list(shown.results),
        "definitions": len(step.graph.nodes),
        "functions": len(step.functions),
        "kernels": step.kernels,
        "whole": shown.is_whole,
    }
    if not as_json:
        _print(facts, str(step.graph))
    if bench:
        facts["milliseconds"] = _times(path, shown, arguments, gradient)
        if not as_json:
            print_columns([[name, f"{value:.4f}"] for name, value in facts["milliseconds"].items()], ["", "ms"])
    if bundle is not None:
        functions = {"forward": _single(_step(model, given))}
        if gradient:
            functions["backward"] = _single(step)
        facts["bundle"] = str(export(bundle, cpus=None, gpus=None, **functions))
        if not as_json:
            print_heading(f"bundle: {facts['bundle']} ({', '.join(functions)})", "program")
    return facts


def _interop() -> Any:
    if importlib.util.find_spec("onnx") is None:
        raise TargetError("onnx: expected the package onnx, got none installed", hint="pip install 'tensorexpr[onnx]'")
    return importlib.import_module("tensorexpr.interop.onnx")


def _step(function: Any, arguments: Sequence[Any]) -> Any:
    return function.compiled() if function.is_whole else function.specialised(*arguments).compiled()


def _print(facts: dict[str, Any], text: str) -> None:
    for name, kind in facts["arguments"].items():
        print_heading(f"{name}: {kind}", "program")
    print_heading(
        f"{facts['definitions']} definitions, {facts['functions']} compiled functions, {facts['kernels']} kernels; gives "
        f"{', '.join(facts['results'])}",
        "program",
    )
    print_code(text, "program")


def _single(step: Any) -> CompiledFunction:
    """The one compiled function that a model is. Raises `TargetError` where it is several, with loops or branches of the host between."""
    if len(step.functions) != 1 or len(step.plan.instructions) != 1:
        raise TargetError(
            f"onnx: expected a model of one compiled function for a bundle, got {len(step.functions)} with work of the host between them",
            hint="loops that end by data, branches and random numbers run on the host",
        )
    found: CompiledFunction = step.functions[0]
    return found


def _times(path: str, function: Any, arguments: Sequence[Any], gradient: bool) -> dict[str, float]:
    """Milliseconds of a call, here and, of a model itself, by onnxruntime where that is installed: medians of rounds in turns."""
    calls: dict[str, Callable[[], Any]] = {"tensorexpr": lambda: function(*arguments)}
    if not gradient and importlib.util.find_spec("onnxruntime") is not None:
        session = importlib.import_module("onnxruntime").InferenceSession(path, providers=["CPUExecutionProvider"])
        feeds = dict(zip(function.arguments, arguments, strict=False))
        calls["onnxruntime"] = lambda: session.run(None, feeds)
    times: dict[str, list[float]] = {name: [] for name in calls}
    counts = {}
    for name, call in calls.items():
        call()
        counts[name] = max(1, int(_SECONDS / max(_seconds(call, 1), 1e-7)))
    for _ in range(_ROUNDS):
        for name, call in calls.items():
            times[name].append(_seconds(call, counts[name]))
    return {name: 1e3 * statistics.median(found) for name, found in times.items()}


def _seconds(call: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count
