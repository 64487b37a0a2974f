"""`python -m tensorexpr.benchmarks.gpu.kernels NAME... [--tiny]`: a few functions that are run once each, for tools that look on.

compute-sanitizer and ncu run a process from its beginning to its end: this one makes arrays, computes each function once on the GPU, and
compares it with the same function of this CPU. Without names all of them.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.codegen.cuda.launch.device import Device, current_device

Made = tuple[list[te.Tensor], list[te.Tensor], float]
"""Outputs, inputs, and how far results may be from those of the CPU, relative to the greatest."""


def _gemm(tiny: bool, dtype: str, tolerance: float) -> Made:
    n = 64 if tiny else 2048
    a, b = te.placeholder((n, n), dtype, name="a"), te.placeholder((n, n), dtype, name="b")
    return [te.compute((n, n), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], n), name="c")], [a, b], tolerance


def _with_gradient(operation: Callable[..., te.Tensor], *shapes: tuple[int, ...], tolerance: float = 1e-4) -> Made:
    inputs = [te.placeholder(shape, name=f"x{k}") for k, shape in enumerate(shapes)]
    y = operation(*inputs)
    head = te.placeholder(y.shape, name="head")
    return [y, *te.gradient(y, inputs, head)], [*inputs, head], tolerance


def _sort(tiny: bool) -> Made:
    rows, inner, count = (30, 8, 100) if tiny else (5000, 64, 1 << 14)
    table, ids = te.placeholder((rows, inner), name="table"), te.placeholder((count,), "int64", name="ids")
    head = te.placeholder((count, inner), name="head")
    y = te.compute((count, inner), lambda i, d: table[ids[i], d], name="y")
    return [y, *te.gradient(y, [table], head)], [table, ids, head], 1e-4


FUNCTIONS: dict[str, Callable[[bool], Made]] = {
    "gemm bf16": lambda tiny: _gemm(tiny, "bfloat16", 2e-2),
    "softmax": lambda tiny: _with_gradient(kernels.softmax, (9, 300) if tiny else (2048, 4096)),
    "convolution": lambda tiny: _with_gradient(
        lambda x, w: kernels.conv2d(x, w, padding=1), *(((2, 4, 8, 8), (4, 4, 3, 3)) if tiny else ((8, 64, 56, 56), (64, 64, 3, 3)))
    ),
    "sort": _sort,
    "gemm f32": lambda tiny: _gemm(tiny, "float32", 1e-4),
    "attention": lambda tiny: _with_gradient(
        lambda q, k, v: kernels.scaled_dot_product_attention(q, k, v, is_causal=True),
        *(((2, 40, 8),) * 3 if tiny else ((8, 1024, 64),) * 3),
    ),
}
CHECKED = ("gemm bf16", "softmax", "convolution", "sort")
"""Those that the sanitizer sees."""


def run(name: str, tiny: bool, device: Device) -> float:
    """The largest difference of a function's results from those of the CPU, relative to the greatest, over what it may be."""
    outputs, inputs, tolerance = FUNCTIONS[name](tiny)
    rng = np.random.default_rng(0)
    arrays: list[Any] = []
    for t in inputs:
        shape = tuple(int(str(e)) for e in t.shape)
        drawn = rng.standard_normal(shape) if t.dtype.is_float else rng.integers(0, int(str(inputs[0].shape[0])), shape)
        arrays.append(drawn.astype(t.dtype.numpy))
    found = te.build(outputs, inputs, target="cuda")(*map(device.upload, arrays))
    wanted = te.build(outputs, inputs)(*arrays)
    worst = 0.0
    for got, want in zip(found, wanted, strict=True):
        exact = want.astype(np.float64)
        worst = max(worst, float(np.abs(device.read(got).astype(np.float64) - exact).max() / max(1e-30, np.abs(exact).max())))
    return worst / tolerance


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the functions; 1 where one is wrong."""
    parser = argparse.ArgumentParser(prog="tensorexpr.benchmarks.gpu.kernels")
    parser.add_argument("names", nargs="*", help=", ".join(FUNCTIONS))
    parser.add_argument("--tiny", action="store_true", help="small arrays: a sanitizer takes a hundred times as long")
    parser.add_argument(
        "--checked", action="store_true", help=f"{', '.join(CHECKED)}, each array in memory of its own, as memcheck wants it"
    )
    options = parser.parse_args(arguments)
    device, wrong = current_device(), 0
    if options.checked and device.arch is not None:
        importlib.import_module("cupy").cuda.set_allocator(None)  # what leaves an array in a pool meets another one
    for name in options.names or (CHECKED if options.checked else FUNCTIONS):
        try:
            found = run(name, options.tiny, device)
        except Exception:  # of the GPU: the others may run all the same
            traceback.print_exc()
            found = float("nan")
        wrong += not found < 1
        print(f"{name}: {'right' if found < 1 else 'WRONG'}, {found:.2g} of what it may be off", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
