#!/usr/bin/env bash
# All that a GPU minute is worth, in one call: the tests of the CUDA backend on the GPU, then the workloads beside its peers.
#   benchmarks/gpu.sh FOLDER [SECONDS [OPTION...]]
# Writes machine.txt, tests.txt, gpu.json and gpu.txt to FOLDER within SECONDS (570: a call of ten minutes), as it goes; options are those
# of tensorexpr.benchmarks.gpu. Uses the `python3` that is there, or $PYTHON (PyTorch, JAX, CuPy and Triton where installed), and installs
# nothing: the packages are laid out in a scratch folder. $GPU_TESTS are the tests that are run.
set -uo pipefail
began=$SECONDS
out=$(mkdir -p "${1:?usage: benchmarks/gpu.sh FOLDER [SECONDS [OPTION...]]}" && cd "$1" && pwd)
limit=${2:-570}
options=("${@:3}")
python=${PYTHON:-python3}
tests=${GPU_TESTS:-tests/codegen/cuda tests/runtime/test_gpu_function.py tests/storage/test_gpu_bundles.py}
cd "$(dirname "$0")/.."
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
"$python" - "$site" <<'LAYOUT'
import shutil, sys, tomllib
with open("pyproject.toml", "rb") as file:
    places = tomllib.load(file)["tool"]["setuptools"]["package-dir"]
for package, folder in sorted(places.items()):
    shutil.copytree(folder, sys.argv[1] + "/" + package.replace(".", "/"), ignore=shutil.ignore_patterns("__pycache__"))
for folder in ("tests", "scripts"):  # some tests run the scripts that wrote what they compare with
    shutil.copytree(folder, sys.argv[1] + "/" + folder, ignore=shutil.ignore_patterns("__pycache__"))
shutil.copy("pyproject.toml", sys.argv[1])
LAYOUT
cd "$site"
export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
left() { echo $((limit - (SECONDS - began) - 5)); }
"$python" - <<'PROBE' 2>&1 | tee "$out/machine.txt"
import importlib.metadata, importlib.util
import tensorexpr
for name in ("numpy", "llvmlite", "sympy", "ml_dtypes", "hypothesis", "pytest", "xdist", "cupy", "torch", "jax", "triton"):
    print(name, "there" if importlib.util.find_spec(name) else "missing")
print("tensorexpr", tensorexpr.__version__, tensorexpr.__file__)
from tensorexpr.codegen.cuda.device import current_device
print("device", current_device().name, current_device().arch)
PROBE
# A third of the time at most; in eight processes where pytest can: most of it goes to compiling.
workers=$("$python" -c 'import importlib.util as u; print("-n 8" if u.find_spec("xdist") else "")')
# shellcheck disable=SC2086 -- several words each
timeout $(($(left) / 3)) env -u TENSOREXPR_CUDA "$python" -m pytest --tb=short -rf --continue-on-collection-errors ${GPU_WORKERS-$workers} $tests >"$out/tests.txt" 2>&1
tail -30 "$out/tests.txt"
# An error of the GPU ends a process: what is measured stays, and the next one goes on behind it.
for _ in 1 2 3 4 5 6 7 8 9 10; do
  [ "$(left)" -gt 10 ] || break
  timeout "$(left)" "$python" -m tensorexpr.benchmarks.gpu "$out" --seconds $(($(left) - 30)) --resume ${options[@]+"${options[@]}"} 2>>"$out/errors.txt"
  status=$?
  [ $status -gt 1 ] && [ $status -ne 124 ] || break
done
cat "$out/gpu.txt"
exit $status
