#!/usr/bin/env bash
# All that a GPU minute is worth, in one call: the tests of the CUDA backend on the GPU, then the workloads beside its peers.
#   benchmarks/gpu.sh FOLDER [SECONDS]
# Writes tests.txt, gpu.json and gpu.txt to FOLDER. Uses the `python3` that is there (PyTorch, JAX, CuPy and Triton where installed)
# and installs nothing: the package is laid out in a scratch folder.
set -uo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: benchmarks/gpu.sh FOLDER [SECONDS]}
seconds=${2:-420}
mkdir -p "$out"
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
cp -r tensorexpr "$site/tensorexpr"
for room in autodiff codegen kernels examples benchmarks; do cp -r "$room" "$site/tensorexpr/$room"; done
export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}"
python3 - <<'PROBE' | tee "$out/machine.txt"
import importlib
for name in ("numpy", "llvmlite", "sympy", "ml_dtypes", "cupy", "torch", "jax", "triton", "pytest"):
    try:
        print(name, importlib.import_module(name).__version__)
    except Exception as problem:
        print(name, "missing:", problem)
from tensorexpr.codegen.cuda.device import current_device
print("device", current_device().name, current_device().arch)
PROBE
timeout $((seconds / 2)) python3 -m pytest -q tests/codegen/cuda tests/runtime/test_gpu_function.py 2>&1 | tail -40 | tee "$out/tests.txt"
python3 -m tensorexpr.benchmarks.gpu "$out" --seconds "$seconds"
