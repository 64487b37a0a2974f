#!/usr/bin/env bash
# All that GPU minutes are worth, most telling first; each step writes as it goes and takes its share of the time that is left.
#   benchmarks/gpu.sh FOLDER [SECONDS [OPTION...]]
# FOLDER gets machine.txt, STEP.txt for every step, gpu.json and gpu.txt (the rows), facts/NAME.json (what the GPU reaches at most: put into
# codegen/auto/gpus/). SECONDS are 570, a call of ten minutes. Options are those of tensorexpr.benchmarks.gpu.run. The steps, in $GPU_STEPS:
#   contact    instructions of the prelude, threads, streams, graphs and checks, each against a reference
#   sanitizer  memcheck, racecheck and synccheck of compute-sanitizer on four functions
#   tests      the tests that run kernels, each with a time-out, in processes that end after an error of the GPU
#   rows       workloads beside PyTorch, its deterministic mode, CuPy and Triton
#   ceilings   what the GPU reaches at most
#   ncu        six functions through Nsight Compute
#   tiles      a search around the default tiles of products
#   compiled   the workloads beside torch.compile and JAX, which compile for long
#   predict    the predicted time of every row (needs no GPU: python -m tensorexpr.benchmarks.gpu.run FOLDER --predict does it anywhere)
# Several calls share a folder: rows that are there are not measured again. Uses the `python3` that is there, or $PYTHON, and installs
# nothing: the packages are laid out in a scratch folder. $GPU_TESTS are the tests of that step.
set -uo pipefail
began=$SECONDS
out=$(mkdir -p "${1:?usage: benchmarks/gpu.sh FOLDER [SECONDS [OPTION...]]}" && cd "$1" && pwd)
limit=${2:-570}
options=("${@:3}")
python=${PYTHON:-python3}
steps=${GPU_STEPS:-contact sanitizer tests rows ceilings ncu tiles compiled predict}
cuda=tests/codegen/cuda
on_device="$cuda/test_operations.py $cuda/test_products.py $cuda/test_blocks.py $cuda/test_rows.py $cuda/test_warps.py $cuda/test_shuffles.py
 $cuda/test_columns.py $cuda/test_held.py $cuda/test_packs.py $cuda/test_atomics.py $cuda/test_sorting.py $cuda/test_checks.py
 $cuda/test_leaving.py $cuda/test_barriers.py $cuda/test_kernels.py $cuda/test_laws.py
 tests/runtime/test_gpu_function.py tests/storage/test_gpu_bundles.py"
tests=${GPU_TESTS:-$on_device}
tiny=$(printf '%s\n' "${options[@]+"${options[@]}"}" | grep -x -e --tiny || true)
cd "$(dirname "$0")/.."
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
"$python" - "$site" <<'LAYOUT'
import pathlib, shutil, sys, tomllib
with open("pyproject.toml", "rb") as file:
    about = tomllib.load(file)
project = about["project"]
own = pathlib.Path(sys.argv[1]) / f"{project['name']}-{project['version']}.dist-info"  # what says which version is installed
own.mkdir()
(own / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
for package, folder in sorted(about["tool"]["setuptools"]["package-dir"].items()):
    shutil.copytree(folder, sys.argv[1] + "/" + package.replace(".", "/"), ignore=shutil.ignore_patterns("__pycache__"))
for folder in ("tests", "scripts"):  # some tests run the scripts that wrote what they compare with
    shutil.copytree(folder, sys.argv[1] + "/" + folder, ignore=shutil.ignore_patterns("__pycache__"))
shutil.copy("pyproject.toml", sys.argv[1])
LAYOUT
cd "$site"
export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 TENSOREXPR_MEASURE=0
left() { echo $((limit - (SECONDS - began) - 5)); }
# share PERCENT: that much of the time that is left, at least ten seconds.
share() { local s=$(($(left) * $1 / 100)); echo $((s > 10 ? s : 10)); }
# step NAME PERCENT COMMAND...: runs a command within its share, where the step is wanted and there is time; what it prints is in NAME.txt.
status=0
step() {
  local name=$1 percent=$2
  shift 2
  [[ " $steps " == *" $name "* ]] && [ "$(left)" -gt 10 ] || return 0
  echo "== $name: at most $(share "$percent") s" | tee -a "$out/steps.txt"
  timeout --kill-after=5 "$(share "$percent")" "$@" >"$out/$name.txt" 2>&1
  local ended=$?
  tail -n 12 "$out/$name.txt"
  echo "== $name: ended with $ended after $((SECONDS - began)) s" | tee -a "$out/steps.txt"
  [ $ended -eq 0 ] || [ $ended -eq 124 ] || status=1
}
# Without a device there is nothing to do. The first kernel runs here: where it does not, this says why.
if ! "$python" - <<'PROBE' 2>&1 | tee "$out/machine.txt"; then
import importlib.metadata, importlib.util, platform, traceback
import numpy
import tensorexpr
print("python", platform.python_version())
for name in ("numpy", "llvmlite", "sympy", "ml_dtypes", "hypothesis", "pytest", "xdist", "cupy", "torch", "jax", "triton"):
    print(name, "there" if importlib.util.find_spec(name) else "missing")
own = importlib.metadata.distribution("tensorexpr")
print("tensorexpr", own.version, own.locate_file(""), tensorexpr.__file__)
from tensorexpr.codegen.cuda.launch.device import current_device
device = current_device()
print("device", device.name, device.arch)
print("facts", device.facts)
try:
    x = tensorexpr.placeholder((1000,), name="x")
    f = tensorexpr.build(tensorexpr.compute((1000,), lambda i: x[i] * 2.0, name="y"), [x], target="cuda")
    found = device.read(f(device.upload(numpy.arange(1000, dtype=numpy.float32))))
    print("the first kernel is", "right" if (found == 2 * numpy.arange(1000)).all() else f"WRONG: {found}")
except Exception:
    traceback.print_exc()
PROBE
  echo "no device: see $out/machine.txt"
  exit 1
fi
workers=$("$python" -c 'import importlib.util as u; print("-n 8" if u.find_spec("xdist") else "")')
pytest=("$python" -m pytest -vv --tb=short -rf --continue-on-collection-errors)

# bounded SECONDS COMMAND...: within so many seconds and what is left of the step, which outlives no step: `timeout` in another one is a group apart.
bounded() {
  local seconds=$1 until_end=$((until - SECONDS - 2))
  shift
  [ $until_end -gt 3 ] || return 124
  timeout --kill-after=2 $((seconds < until_end ? seconds : until_end)) "$@"
}

# The three tools at once: each holds the processor more than the GPU.
sanitize() {
  if ! command -v compute-sanitizer; then
    echo "no compute-sanitizer there"
    return 0
  fi
  local until=$((SECONDS + $1)) bad=0 tool job jobs=()
  for tool in memcheck racecheck synccheck; do
    bounded 120 compute-sanitizer --tool "$tool" --error-exitcode 9 "$python" -m tensorexpr.benchmarks.gpu.kernels --checked --tiny \
      >"$out/sanitizer-$tool.txt" 2>&1 &
    jobs+=($!)
  done
  for job in "${jobs[@]}"; do
    wait "$job" || bad=1
  done
  tail -n 30 "$out"/sanitizer-*.txt
  return $bad
}
profile() {
  if ! command -v ncu; then
    echo "no ncu there"
    return 0
  fi
  local until=$((SECONDS + $1))
  for name in "gemm bf16" "gemm f32" softmax convolution sort attention; do
    echo "-- $name"
    bounded 60 ncu --clock-control none --kernel-name-base function --kernel-name regex:^k --section SpeedOfLight --section Occupancy \
      --section MemoryWorkloadAnalysis --section WarpStateStats "$python" -m tensorexpr.benchmarks.gpu.kernels "$name" $tiny
  done
}
# Rows in turns: an error of the GPU ends a process, what is measured stays, and the next one goes on behind it.
rows() {
  local until=$((SECONDS + $1)) ended=0
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    [ $((until - SECONDS)) -gt 5 ] || break
    "$python" -m tensorexpr.benchmarks.gpu.run "$out" --seconds $((until - SECONDS - 5)) --resume --turn "$2" ${options[@]+"${options[@]}"}
    ended=$?
    [ $ended -gt 1 ] || break
  done
  return $ended
}
tiles() {
  cat >products.py <<'PRODUCTS'
import tensorexpr as te

@te.op
def product(a, b):
    (n, k), (_, m) = a.shape, b.shape
    return te.compute((n, m), lambda i, j: te.sum(lambda r: a[i, r] * b[r, j], k))
PRODUCTS
  local n=4096 budget=24
  [ -z "$tiny" ] || { n=64; budget=2; }
  for dtype in bf16 f32 f16; do
    echo "-- $dtype[$n, $n]"
    "$python" -m tensorexpr tune products.py:product "$dtype[$n, $n]" "$dtype[$n, $n]" --target cuda --budget $budget --output "$out/tiles.json"
  done
}
export -f bounded sanitize profile rows tiles
export python tiny out
in_bash() { # functions of this file under `timeout`, with what they know
  local quoted=
  [ ${#options[@]} -eq 0 ] || printf -v quoted '%q ' "${options[@]}" # of nothing it makes an empty word, which is an option too many
  echo "options=($quoted); $*"
}

alone=(-k "test_on_a_gpu or test_contact") # what a CPU can run takes no minutes of a GPU
few=${workers/8/4}
[ "${TENSOREXPR_CUDA:-}" != host ] || alone=(-k "shim and not group") few=
# shellcheck disable=SC2086 -- several words each
step contact 20 env -u TENSOREXPR_CUDA TENSOREXPR_GPU_TEST_SECONDS=30 "${pytest[@]}" $few ${alone[@]+"${alone[@]}"} \
  $cuda/test_prelude_behaviour.py $cuda/test_contact.py
step sanitizer 20 bash -c "$(in_bash sanitize "$(share 20)")"
# shellcheck disable=SC2086
step tests 40 env -u TENSOREXPR_CUDA "${pytest[@]}" ${GPU_WORKERS-$workers} $tests
step rows 60 bash -c "$(in_bash rows "$(share 60)" 1)"
step ceilings 25 "$python" -m tensorexpr.benchmarks.gpu.ceilings "$out/facts" $tiny
step ncu 35 bash -c "$(in_bash profile "$(share 35)")"
step tiles 30 bash -c "$(in_bash tiles)"
step compiled 85 bash -c "$(in_bash rows "$(share 85)" 2)"
step predict 95 "$python" -m tensorexpr.benchmarks.gpu.run "$out" --predict ${options[@]+"${options[@]}"}
[ ! -e "$out/gpu.txt" ] || cat "$out/gpu.txt"
exit $status
