"""What is paid before the first call: the import beyond NumPy's, and building, cold and from code on disk."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import numpy as np

CASES = {
    "convolution with gradient": ("operations.conv2d", "(np.ones((8, 32, 28, 28), 'f'), np.ones((32, 32, 3, 3), 'f'))"),
    "softmax with gradient": ("operations.softmax", "(np.ones((1024, 1024), 'f'),)"),
    "layer norm with gradient": ("kernels.layer_norm", "(np.ones((1024, 512), 'f'), np.ones(512, 'f'), np.ones(512, 'f'))"),
    "causal attention with gradient": (
        "lambda *x: kernels.scaled_dot_product_attention(*x, is_causal=True)",
        "(np.ones((8, 512, 64), 'f'),) * 3",
    ),
}
"""What is compiled: a function of tensors, and arrays of their shapes."""


def import_milliseconds(rounds: int = 7) -> float:
    """Median milliseconds that `import tensorexpr` takes beyond `import numpy`, each in a fresh interpreter, bytecode cached."""
    probe = "import time, numpy; t = time.perf_counter(); import tensorexpr; print(time.perf_counter() - t)"
    with tempfile.TemporaryDirectory() as folder:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {"PYTHONPYCACHEPREFIX": folder}
        times = [float(_run(probe, environment)) for _ in range(rounds + 1)]
    return 1e3 * float(np.median(times[1:]))


def _run(code: str, environment: dict[str, str] | None = None) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment).stdout


def compile_milliseconds(rounds: int = 5) -> dict[str, float]:
    """Median milliseconds from arrays to a function (trace, derive, simplify, lower, compile), each in a fresh interpreter.

    The import of the package and the load of LLVM are outside of it: an unrelated function is compiled first. Cold is with
    nothing on disk, warm (of the build alone, after tracing and derivation) with the code there from an earlier process.
    """
    result = {}
    for name, (op, arrays) in CASES.items():
        probe = (
            "import time, numpy as np, tensorexpr as te; from tensorexpr import kernels; from tensorexpr.benchmarks import operations\n"
            "operations.matmul(np.ones((3, 3)), np.ones((3, 3)))\n"
            f"op = {op}; arrays = {arrays}\n"
            "specs = [te.placeholder(a.shape, 'float32', name=f'x{i}') for i, a in enumerate(arrays)]\n"
            "t = time.perf_counter(); y = op(*specs); head = te.placeholder(y.shape, 'float32', name='head')\n"
            "outputs = [y, *te.gradient(y, specs, head)]; d = time.perf_counter()\n"
            "te.build(outputs, [*specs, head]); e = time.perf_counter(); print(e - t, e - d)"
        )
        with tempfile.TemporaryDirectory() as folder:
            samples = []
            for kept in ("", folder, folder):
                environment = {**os.environ, "TENSOREXPR_CACHE_DIR": kept}
                samples.append([[float(word) for word in _run(probe, environment).split()] for _ in range(rounds)])
        cold, warm = np.median(samples[0], axis=0), np.median(samples[2], axis=0)
        result[f"cold, {name}"], result[f"warm, {name}"] = 1e3 * float(cold[0]), 1e3 * float(warm[1])
    return result
