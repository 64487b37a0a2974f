"""Part 004 of the acceptance lists, lines 36 to 42: bundles, the cache, what takes no context."""

from __future__ import annotations

import ctypes
import inspect
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import tensorexpr as te
import tensorexpr_runtime
from tensorexpr import language
from tensorexpr.codegen import executable
from tensorexpr.language import program_of
from tests.storage.models import dense, dense_program, floats

ROOT = Path(__file__).resolve().parents[2]

# Nothing but NumPy and the loader: whoever else is imported is refused.
ALONE = """
import sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tensorexpr", "llvmlite", "sympy", "ml_dtypes", "safetensors"):
            raise ImportError(f"{name} is not to be had here")

sys.meta_path.insert(0, Refusing())
import numpy as np
import tensorexpr_runtime
bundle = tensorexpr_runtime.load(sys.argv[1])
x, w = np.load(sys.argv[2]), np.load(sys.argv[3])
y = bundle.forward(x, w)
slopes = bundle.backward(x, w, np.ones_like(y))
print(y.tobytes().hex(), *(s.tobytes().hex() for s in slopes))
assert not any(name.startswith(("tensorexpr.", "llvmlite")) for name in sys.modules)
assert not any(c.flags.writeable for c in bundle.constants.values())
"""


def functions() -> tuple[te.CompiledFunction, te.CompiledFunction]:
    """A function with an open size and a constant, and its gradient."""
    x, w, y = dense(te.dim("n"))
    table = te.constant(np.linspace(-1, 1, 4, dtype=np.float32), name="table")
    z = te.compute((x.shape[0], 4), lambda i, j: y[i, j] + table[j] * x[i, 0], name="z")
    head = te.placeholder((x.shape[0], 4), name="head")
    return te.compile(z, [x, w]), te.compile(list(te.gradient(z, [x, w], head)), [x, w, head])


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    forward, backward = functions()
    return te.export(
        tmp_path_factory.mktemp("bundles") / "model", forward=forward, backward=backward, cpus=("host", "x86-64-v3", "x86-64-v2")
    )


def test_004_36_a_bundle_runs_where_the_compiler_cannot_be_imported(bundle: Path, tmp_path: Path):
    forward, backward = functions()
    x, w = floats(7, 6), floats(6, 4)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "w.npy", w)
    shutil.copytree(bundle, tmp_path / "moved")  # it holds no path
    command = [sys.executable, "-c", ALONE, str(tmp_path / "moved"), str(tmp_path / "x.npy"), str(tmp_path / "w.npy")]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == 0, done.stderr
    y = forward(x, w)
    assert done.stdout.split() == [y.tobytes().hex(), *(s.tobytes().hex() for s in backward(x, w, np.ones_like(y)))]


def test_004_37_its_results_are_bit_for_bit_those_of_the_jit(bundle: Path):
    forward, backward = functions()
    loaded = te.load(bundle)
    assert loaded.variant.startswith("host")
    for n in (1, 2, 33, 1000):
        x, w, head = floats(n, 6), floats(6, 4), floats(n, 4)
        np.testing.assert_array_equal(loaded.forward(x, w), forward(x, w))
        for found, wanted in zip(loaded.backward(x, w, head), backward(x, w, head), strict=True):
            np.testing.assert_array_equal(found, wanted)


C_PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include "model.h"
int main(int count, char **arguments) {
  static float x[3][6], w[6][4], y[3][4];
  float *constants = malloc(MODEL_CONSTANTS_BYTES);
  FILE *file = fopen(arguments[count - 1], "rb");
  if (!file || fseek(file, MODEL_CONSTANTS_OFFSET, SEEK_SET)) return 3;
  if (fread(constants, 1, MODEL_CONSTANTS_BYTES, file) != MODEL_CONSTANTS_BYTES) return 3;
  for (int i = 0; i < 18; i++) x[0][i] = 0.25f * i - 2;
  for (int i = 0; i < 24; i++) w[0][i] = 0.125f * (i % 7) - 0.5f;
  void *placeholders[MODEL_FORWARD_PLACEHOLDERS];
  placeholders[MODEL_FORWARD_X] = x;
  placeholders[MODEL_FORWARD_LAYERS_0_W] = w;
  placeholders[MODEL_FORWARD_Z] = y;
  int64_t sizes[1], error[2];
  sizes[MODEL_FORWARD_SIZE_N] = 3;
  void *workspace = aligned_alloc(64, model_forward_workspace(sizes) + 64 & ~63);
  model_threads(2);
  int64_t status = model_forward(constants, placeholders, sizes, workspace, error);
  for (int i = 0; i < 12; i++) printf("%a ", y[0][i]);
  return status != 0;
}
"""


def test_004_38_c_calls_one_entry_point(bundle: Path, tmp_path: Path):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    (tmp_path / "main.c").write_text(C_PROGRAM)
    options = ["-Wall", f"-I{bundle}", f"-L{bundle}", "-lmodel", f"-Wl,-rpath,{bundle}"]
    subprocess.run([compiler, str(tmp_path / "main.c"), "-o", str(tmp_path / "main"), *options], check=True)
    done = subprocess.run([str(tmp_path / "main"), str(bundle / "constants.safetensors")], capture_output=True, text=True, check=True)
    x = (np.arange(18, dtype=np.float32) * np.float32(0.25) - 2).reshape(3, 6)
    w = (np.arange(24) % 7 * 0.125 - 0.5).astype(np.float32).reshape(6, 4)
    assert [float.fromhex(text) for text in done.stdout.split()] == functions()[0](x, w).ravel().tolist()


def test_004_39_the_table_tells_all_of_every_symbol(bundle: Path):
    table = json.loads((bundle / "bundle.json").read_text())
    forward = table["functions"]["forward"]
    rows = [
        tuple(p[key] for key in ("name", "path", "kind", "dtype", "shape", "extents", "offset", "size")) for p in forward["placeholders"]
    ]
    assert rows == [
        ("x", "x", "input", "float32", ["n", 6], ["n", "6"], 0, None),
        ("layers_0_w", "layers.0.w", "input", "float32", [6, 4], ["6", "4"], 8, 96),
        ("z", "z", "output", "float32", ["n", 4], ["n", "4"], 16, None),
    ]
    assert table["constants"] == [{"name": "table", "kind": "constant", "dtype": "float32", "shape": [4], "offset": 0, "size": 16}]
    assert forward["constants"] == ["table"] and forward["sizes"] == ["n"]
    loaded, compiled = te.load(bundle), functions()
    for name, function in zip(("forward", "backward"), compiled, strict=True):
        for n in (1, 50):
            assert loaded[name].workspace_bytes(n=n) == function.workspace_bytes(n=n)
        assert [a["alignment"] for a in table["functions"][name]["activations"]] == [64] * 3
        assert table["functions"][name]["activations"][0]["size"] == function._native.interface.workspace


def test_004_40_constants_are_mapped_read_only(tmp_path: Path):
    data = floats(1000, 100)
    x = te.placeholder((1000,), name="x")
    t = te.constant(data, name="t")
    y = te.compute((100,), lambda j: te.sum(lambda i: x[i] * t[i, j], 1000), name="y")
    te.export(tmp_path / "model", f=te.compile(y, [x]))
    loaded = te.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.constants["t"], data)
    at = loaded.constants["t"].ctypes.data
    regions = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    (mine,) = [r for r in regions if int(r[0].split("-")[0], 16) <= at < int(r[0].split("-")[1], 16)]
    assert mine[1] == "r--s" and mine[5].endswith("constants.safetensors")
    with pytest.raises(ValueError, match="read-only"):
        loaded.constants["t"][0] = 0
    safetensors = pytest.importorskip("safetensors.numpy")
    np.testing.assert_array_equal(safetensors.load_file(tmp_path / "model" / "constants.safetensors")["t"], data)


def test_004_41_a_compiled_function_is_found_again(monkeypatch: pytest.MonkeyPatch):
    x = te.placeholder((37,), name="x")
    y = te.compute((37,), lambda i: te.where(te.training(), te.exp(x[i]), x[i]) + 1, name="found_again")
    first = te.compile(y, mode="training")
    made: list[object] = []
    emit = executable.nest_code
    monkeypatch.setattr(executable, "nest_code", lambda nest: made.append(nest) or emit(nest))
    again = te.compile(y, mode="training")
    assert not made and again._executable is first._executable
    other = te.compile(y, mode="inference")
    assert len(made) == 1 and other._executable is not first._executable
    te.compile(program_of([y]), mode="inference")
    assert len(made) == 1
    frozen = [te.compile(te.freeze(dense_program(n), te.Context({"layers.0.w": np.ones((6, 4), np.float32)}))) for n in (3, 3)]
    assert len(made) == 2 and frozen[0]._executable is frozen[1]._executable


def test_004_42_building_takes_no_context():
    for name in language.__all__:
        value = getattr(te, name)
        if inspect.isfunction(value):
            assert "context" not in inspect.signature(value).parameters, name


def test_eight_threads_in_one_bundle(bundle: Path):
    loaded, forward = te.load(bundle), functions()[0]
    wrong: list[int] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        x, w = rng.standard_normal((400, 6)).astype(np.float32), rng.standard_normal((6, 4)).astype(np.float32)
        wanted = forward(x, w)
        for _ in range(50):
            if not np.array_equal(loaded.forward(x, w), wanted):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_library_can_be_unloaded(bundle: Path, tmp_path: Path):
    """Its workers end with it: they must not run on in memory that is gone."""
    code = f"""
import ctypes, sys, threading
import numpy as np
sys.path.insert(0, {str(ROOT)!r})
import tensorexpr_runtime
b = tensorexpr_runtime.load({str(bundle)!r})
b.threads(3)
x, w = np.ones((20000, 6), np.float32), np.ones((6, 4), np.float32)
b.forward(x, w)
handle = b._library._handle
close = ctypes.CDLL(None).dlclose
close.argtypes = [ctypes.c_void_p]
assert close(handle) == 0
print("libmodel" in open("/proc/self/maps").read(), open("/proc/self/status").read().split("Threads:")[1].split()[0])
"""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False", "1"]
    assert ctypes.sizeof(ctypes.c_void_p) == 8 and tensorexpr_runtime.load(bundle).variant
