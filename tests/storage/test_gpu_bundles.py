"""Bundles for GPUs: cubins made without one, and run by the driver alone; here by one that runs kernels on this CPU."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorexpr as te
import tensorexpr_runtime
from tensorexpr.codegen import compile, gpu_code
from tensorexpr.codegen.auto.gpus import shipped
from tensorexpr.codegen.bundle.gpus import gpu_part
from tensorexpr.codegen.compiled.gpu_function import GpuFunction
from tensorexpr.codegen.cuda.emitter.source import Source
from tensorexpr.codegen.cuda.nvidia import nvrtc
from tensorexpr.codegen.cuda.nvidia.cubin import parameters_of
from tensorexpr.records import replace
from tensorexpr_runtime import ArgumentError, BundleError, DeviceArray, OutOfBoundsError, cuda, on_gpu
from tensorexpr_runtime.cuda import stream_of
from tensorexpr_runtime.device_array import _Managed, view
from tests.codegen.cuda.driver import cubin, fake, needs_compiler
from tests.messages import said
from tests.storage.models import floats

ROOT = Path(__file__).resolve().parents[2]
assert fake  # a fixture


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What NVRTC would say, where it is not there; the driver is found anew."""
    monkeypatch.setenv("TENSOREXPR_CUDA", "host")
    if not nvrtc.available():
        monkeypatch.setattr(nvrtc, "architectures", lambda: (75, 80, 90, 100))
    cuda.driver.cache_clear()
    yield
    cuda.driver.cache_clear()


def fake_cubins(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gpu_code, "compiled_text", lambda source, arch: nvrtc.Compiled(arch, cubin(source), "", "", {}))


def functions(target: str = "cuda") -> dict[str, Any]:
    """A function with an open size, a workspace, constants of odd length and a check; a gradient; one of a number."""
    n = te.dim("n")
    x, ids = te.placeholder((n, 8), name="x"), te.placeholder((n,), "int64", name="ids")
    w = te.constant(np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8), name="w")
    b = te.constant(np.linspace(-1, 1, 5, dtype=np.float32), name="b")
    k = te.constant(np.arange(3, dtype=np.int8), name="k")
    s = te.compute((n, 8), lambda i, j: te.sum(lambda r: x[i, r] * w[r, j], 8), name="s")
    total = te.compute((8,), lambda j: te.sum(lambda i: te.tanh(s[i, j]), n), name="total")
    y = te.compute((n, 8), lambda i, j: s[ids[i], j] * total[j] + b[j % 5] + te.cast(k[j % 3], "float32"), name="y")
    head, t = te.placeholder((n, 8), name="head"), te.placeholder((), name="t")
    return {
        "forward": te.compile(y, [x, ids], target=target),
        "backward": te.compile(list(te.gradient(s, [x], head)), [x, head], target=target),
        "scaled": te.compile(te.compute((n, 8), lambda i, j: t[()] * x[i, j], name="z"), [x, t], target=target),
    }


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For this CPU and for GPUs, of functions that were compiled for a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENSOREXPR_CUDA", "host")
        patch.setattr(nvrtc, "architectures", lambda: (75, 80, 90, 100))
        fake_cubins(patch)
        return te.export(tmp_path_factory.mktemp("gpu") / "model", cpus=["host"], gpus=["sm_80", "sm_90"], **functions())


class Interfaced:
    """An array of another library, by `__cuda_array_interface__`."""

    def __init__(self, array: DeviceArray, **changed: Any) -> None:
        self.array = array
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, **changed}


class Managed:
    """An array of another library, by DLPack."""

    def __init__(self, array: DeviceArray, code: int = 2, strides: tuple[int, ...] = (), kind: int = 2) -> None:
        self.array, self.kind, self.streams = array, kind, list[int]()
        self.shape = (ctypes.c_int64 * len(array.shape))(*array.shape)
        self.strides = (ctypes.c_int64 * len(strides))(*strides) if strides else None
        tensor = _Managed().tensor
        tensor.data, tensor.device_type, tensor.device_id, tensor.ndim = array.address - 8, kind, array.device, len(array.shape)
        tensor.code, tensor.bits, tensor.lanes, tensor.byte_offset = code, 8 * array.dtype.itemsize, 1, 8
        tensor.shape = self.shape
        if self.strides is not None:
            tensor.strides = self.strides
        self.managed = _Managed(tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, self.array.device

    def __dlpack__(self, stream: int) -> Any:
        self.streams.append(stream)
        make = ctypes.pythonapi.PyCapsule_New
        make.argtypes, make.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p], ctypes.py_object
        return make(ctypes.addressof(self.managed), b"dltensor", None)


def offset(array: DeviceArray, by: int) -> DeviceArray:
    """The contents at an address that is no multiple of 16, in memory that stays."""
    room = on_gpu(np.zeros(array.nbytes + 64, np.uint8))
    moved = DeviceArray(room.address + by, array.shape, array.dtype, 0, 0, room)
    cuda.driver().call("cuMemcpyDtoDAsync_v2", moved.address, array.address, array.nbytes, 0)
    return moved


@needs_compiler
def test_results_on_a_gpu_are_bit_for_bit_those_of_the_jit(fake: ctypes.CDLL, bundle: Path):
    loaded, compiled = tensorexpr_runtime.load(bundle), functions()
    before = fake.fake_count(4)
    for n in (1, 6, 40):
        x, ids, head = floats(n, 8), np.arange(n)[::-1].copy(), floats(n, 8)
        a, places, slope = on_gpu(x), on_gpu(ids), on_gpu(head)
        y = loaded.forward(a, places)
        assert isinstance(y, DeviceArray) and repr(y) == f"<float32[{n}, 8] on cuda:0>"
        np.testing.assert_array_equal(y.numpy(), compiled["forward"](x, ids))
        np.testing.assert_array_equal(loaded.backward(a, head=slope)[0].numpy(), compiled["backward"](x, head)[0])
        np.testing.assert_array_equal(loaded.scaled(a, 2.5).numpy(), compiled["scaled"](x, 2.5))
        # The same on this CPU, from the same bundle.
        on_cpu = functions("cpu")
        np.testing.assert_array_equal(loaded.forward(x, ids), on_cpu["forward"](x, ids))
        del a, places, slope, y
    assert fake.fake_count(4) == before + 1  # the constants
    assert fake.fake_count(1) >= 3


@needs_compiler
def test_threads_on_a_gpu(fake: ctypes.CDLL, bundle: Path):
    """Eight threads in one bundle that nobody has used yet, on streams of their own."""
    loaded, wrong = tensorexpr_runtime.load(bundle), list[int]()
    arrays = [floats(n + 1, 8) for n in range(8)]
    scaled = functions()["scaled"]
    wanted = [scaled(a, 3.0) for a in arrays]

    def work(k: int) -> None:
        a = on_gpu(arrays[k])
        wrong.extend(k for _ in range(20) if not np.array_equal(loaded.scaled(a, 3.0, stream=k + 1).numpy(), wanted[k]))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@needs_compiler
def test_arrays_of_other_libraries_and_memory_of_the_caller(fake: ctypes.CDLL, bundle: Path):
    loaded, n = tensorexpr_runtime.load(bundle), 6
    x, ids = floats(n, 8), np.arange(n)
    a, places = on_gpu(x), on_gpu(ids)
    wanted = loaded.forward(a, places).numpy()
    managed = Managed(a)
    found = loaded.forward(managed, Interfaced(places, stream=None), stream=7)
    np.testing.assert_array_equal(found.numpy(), wanted)
    assert managed.streams == [7] and found.stream == 7
    np.testing.assert_array_equal(loaded.forward(ids=Interfaced(places, stream=5), x=Interfaced(a)).numpy(), wanted)
    np.testing.assert_array_equal(loaded.forward(offset(a, 4), places).numpy(), wanted)
    out = on_gpu(np.zeros((n, 8), np.float32))
    assert loaded.forward(a, places, out=out) is out and np.array_equal(out.numpy(), wanted)
    moved = offset(on_gpu(np.zeros((n, 8), np.float32)), 8)
    assert loaded.forward(a, places, out=moved) is moved and np.array_equal(moved.numpy(), wanted)
    other = Interfaced(on_gpu(np.zeros((n, 8), np.float32)))
    assert loaded.forward(a, places, out=other) is other and np.array_equal(other.array.numpy(), wanted)
    size = loaded.forward.gpu_workspace_bytes(n=n)
    assert size > n * 8 * 4
    np.testing.assert_array_equal(loaded.forward(a, places, workspace=on_gpu(np.zeros(size, np.uint8))).numpy(), wanted)
    empty = loaded.scaled(on_gpu(np.zeros((0, 8), np.float32)), 1.0)
    assert empty.shape == (0, 8) and empty.__cuda_array_interface__["data"] == (0, False)
    bits = Managed(DeviceArray(a.address, (n, 8), np.dtype(np.uint16), 0, 0), code=4)
    assert view(bits, 0).dtype.name == "bfloat16"
    assert [stream_of(s) for s in (None, 3, type("S", (), {"cuda_stream": 4}), type("S", (), {"ptr": 5}))] == [0, 3, 4, 5]
    assert stream_of(type("S", (), {"__cuda_stream__": lambda self: (0, 6)})()) == 6


@needs_compiler
def test_what_does_not_fit_on_a_gpu_is_refused(fake: ctypes.CDLL, bundle: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FAKE_CUDA_DEVICES", "2")
    cuda.driver.cache_clear()
    f, n = tensorexpr_runtime.load(bundle).forward, 6
    x, ids = floats(n, 8), np.arange(n)
    a, places = on_gpu(x), on_gpu(ids)
    y, size = on_gpu(x), f.gpu_workspace_bytes(n=n)
    cases = (
        ("f: argument ids: expected an array on a GPU, as the other ones are, got a ndarray", lambda: f(a, ids)),
        ("f: argument ids: expected an array on cuda:0 as x, got one on cuda:1", lambda: f(a, on_gpu(ids, 1))),
        ("f: argument x: expected dtype float32, got float64", lambda: f(on_gpu(x.astype(float)), places)),
        ("f: argument x: expected 2 axes, got 1", lambda: f(on_gpu(x[0]), places)),
        ("f: argument x: expected shape [6, 8], got [6, 4]", lambda: f(on_gpu(x[:, :4]), places)),
        ("f: argument x: expected an array that is row-major without gaps, got shape [6, 8] with strides [4, 24]",
         lambda: f(Interfaced(a, strides=(4, 24)), places)),
        ("f: argument x: expected an array that is row-major without gaps, got shape [6, 8] with strides [1, 6]",
         lambda: f(Managed(a, strides=(1, 6)), places)),
        ("f: argument x: expected elements of a type that is known, got code 5 of 32 bits in DLPack",
         lambda: f(Managed(a, code=5), places)),
        ("f: out y: expected an array float32[6, 8] on cuda:0, got a ndarray", lambda: f(a, places, out=x)),
        ("f: out y: expected an array float32[6, 8] on cuda:0, got <float32[6, 8] on cuda:1>", lambda: f(a, places, out=on_gpu(x, 1))),
        ("f: out y: expected an array float32[6, 8] on cuda:0, got <float32[6, 4] on cuda:0>", lambda: f(a, places, out=on_gpu(x[:, :4]))),
        ("f: out y: expected memory of its own, got an array that overlaps another one", lambda: f(a, places, out=a)),
        (f"f: workspace: expected {size} bytes on the GPU at a multiple of 256, got a ndarray", lambda: f(a, places, workspace=x)),
        (f"f: workspace: expected {size} bytes on the GPU at a multiple of 256, got 192 bytes", lambda: f(a, places, workspace=y)),
        ("stream: expected a stream of CUDA, got 'mine'", lambda: f(a, places, stream="mine")),
        ("on_gpu: expected the number of a GPU below 2, got 2", lambda: on_gpu(x, 2)),
    )  # fmt: skip
    for message, use in cases:
        with pytest.raises(ArgumentError) as caught:
            use()
        assert str(caught.value) == message.replace("f: ", "forward: ", 1)
    with pytest.raises(OutOfBoundsError, match="y: expected an index of s from 0 to 5, got 6"):
        f(a, on_gpu(ids + 1))
    with pytest.raises(BundleError, match="CUDA refused cuMemAllocAsync: out of memory"):
        tensorexpr_runtime.load(bundle).scaled(DeviceArray(a.address, (1 << 40, 8), a.dtype, 0, 0), 1.0)
    cuda.driver.cache_clear()


@needs_compiler
def test_a_gpu_that_is_not_there_or_has_no_code_is_refused(fake: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    x = te.placeholder((4,), name="x")
    f = te.compile(te.compute((4,), lambda i: x[i] + 1, name="y"), [x])
    with monkeypatch.context() as patch:
        fake_cubins(patch)
        te.export(tmp_path / "gpu", f=f, cpus=[], gpus=["sm_90", "sm_80"])
        patch.setattr(gpu_code, "compiled_text", lambda source, arch: nvrtc.Compiled(arch, b"\x7fELF damaged", "", "", {}))
        te.export(tmp_path / "damaged", f=f, gpus=["sm_90"])
    te.export(tmp_path / "cpu", f=f)
    array = np.ones(4, np.float32)
    loaded = tensorexpr_runtime.load(tmp_path / "gpu")
    assert loaded.variant is None and loaded.gpus == ("sm_90", "sm_80") and "sm_90, sm_80: f(" in repr(loaded)
    assert np.array_equal(loaded.f(on_gpu(array)).numpy(), array + 1) and loaded.f.workspace_bytes() == 0
    loaded.threads(2)
    with pytest.raises(ArgumentError, match="f: argument x: expected an array on a GPU, as the other ones are, got a ndarray"):
        loaded.f(array)
    with pytest.raises(
        ArgumentError, match="f: argument x: expected arrays in this machine's memory, got a GPU's: the bundle has no code for GPUs"
    ):
        tensorexpr_runtime.load(tmp_path / "cpu").f(on_gpu(array))
    damaged = tensorexpr_runtime.load(tmp_path / "damaged")
    assert np.array_equal(damaged.f(array), array + 1)
    with pytest.raises(BundleError) as caught:
        damaged.f(on_gpu(array))
    wanted = "expected code and memory that the driver of CUDA takes, got: device kernel image is invalid"
    assert str(caught.value) == f"{tmp_path / 'damaged'}: {wanted}"
    with monkeypatch.context() as patch:
        patch.setenv("FAKE_CUDA_CAPABILITY", "75")
        shutil.copytree(tmp_path / "gpu", tmp_path / "copy")
        with pytest.raises(BundleError) as caught:
            tensorexpr_runtime.load(tmp_path / "copy").f(on_gpu(array))
        assert str(caught.value) == f"{tmp_path / 'copy'}: expected a GPU that the bundle has code for (sm_90, sm_80), got a fake (sm_75)"
    with monkeypatch.context() as patch:
        patch.setenv("FAKE_CUDA_LAUNCH", "719")
        with pytest.raises(BundleError, match="expected code and memory that the driver of CUDA takes, got: an error of the fake"):
            loaded.f(on_gpu(array))
    with monkeypatch.context() as patch:
        cuda.driver.cache_clear()
        patch.setenv("FAKE_CUDA_DEVICES", "0")
        with pytest.raises(BundleError, match="CUDA refused cuInit: an error of the fake"):
            tensorexpr_runtime.load(tmp_path / "gpu")
        patch.setattr(cuda.Driver, "call", lambda *arguments: None)
        with pytest.raises(BundleError, match="expected a GPU, got a driver that finds none"):
            tensorexpr_runtime.load(tmp_path / "gpu")
    for driver, message in (
        ("/nowhere/libcuda.so.1", "expected a GPU with its driver, got no library /nowhere/libcuda.so.1: "),
        ("libm.so.6", "expected a driver of CUDA 11.2 or later, got one without cuInit: libm.so.6"),
    ):
        monkeypatch.setenv(cuda.LIBRARY, driver)
        cuda.driver.cache_clear()
        with pytest.raises(BundleError, match=message):
            tensorexpr_runtime.load(tmp_path / "gpu")
        both = tensorexpr_runtime.load(tmp_path / "damaged")
        assert np.array_equal(both.f(array), array + 1)  # the CPU's code needs none
        there = DeviceArray(64, (4,), array.dtype, 0, 0)
        for use, what in ((lambda: both.f(there), "argument x"), (lambda: both.f(array, out=there), "out y")):  # noqa: B023
            with pytest.raises(BundleError, match=f"f: {what}: {message}"):
                use()


ALONE = """
import sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tensorexpr", "llvmlite", "cupy", "cuda", "ml_dtypes", "safetensors"):
            raise ImportError(f"{name} is not to be had here")

sys.meta_path.insert(0, Refusing())
import numpy as np
import tensorexpr_runtime as r
bundle = r.load(sys.argv[1])
x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)
print(bundle.forward(r.on_gpu(x), r.on_gpu(np.array([2, 0, 1]))).numpy().tobytes().hex())
"""
C_PROGRAM = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include "model.h"
typedef int (*allocating)(void **, size_t);
typedef int (*copying)(void *, const void *, size_t);
static void *driver;
static void *on_device(const void *data, size_t bytes) {
  void *at;
  if (((allocating)dlsym(driver, "cuMemAlloc_v2"))(&at, bytes)) exit(4);
  if (data && ((copying)dlsym(driver, "cuMemcpyHtoD_v2"))(at, data, bytes)) exit(5);
  return at;
}
int main(int count, char **arguments) {
  static float x[24], y[24];
  int64_t ids[3] = {2, 0, 1}, sizes[1] = {3}, error[2];
  char *constants = malloc(MODEL_CONSTANTS_BYTES);
  FILE *file = fopen(arguments[1], "rb");
  if (count != 2 || !file || fseek(file, MODEL_CONSTANTS_OFFSET, SEEK_SET)) return 3;
  if (fread(constants, 1, MODEL_CONSTANTS_BYTES, file) != MODEL_CONSTANTS_BYTES) return 3;
  for (int i = 0; i < 24; i++) x[i] = 0.25f * i - 2;
  driver = dlopen(getenv("TENSOREXPR_CUDA_DRIVER"), RTLD_NOW);
  if (model_cuda_load()) return 6;  /* makes a context, too */
  void *placeholders[MODEL_FORWARD_PLACEHOLDERS], *weights = on_device(constants, MODEL_CONSTANTS_BYTES);
  placeholders[MODEL_FORWARD_X] = on_device(x, sizeof x);
  placeholders[MODEL_FORWARD_IDS] = on_device(ids, sizeof ids);
  placeholders[MODEL_FORWARD_Y] = on_device(NULL, sizeof y);
  void *workspace = on_device(NULL, model_forward_cuda_workspace(sizes));
  if (model_forward_cuda(weights, placeholders, sizes, workspace, error, NULL)) return 7;
  ((copying)dlsym(driver, "cuMemcpyDtoH_v2"))(y, placeholders[MODEL_FORWARD_Y], sizeof y);
  for (int i = 0; i < 24; i++) printf("%a ", y[i]);
  ids[1] = 9;
  placeholders[MODEL_FORWARD_IDS] = on_device(ids, sizeof ids);
  int64_t check = model_forward_cuda(weights, placeholders, sizes, workspace, error, NULL);
  printf("%d %d %d", check > 0, (int)error[0], (int)error[1]);
  return 0;
}
"""


@needs_compiler
def test_without_the_compiler_and_without_cupy(fake: ctypes.CDLL, bundle: Path):
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", ALONE, str(bundle)], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == functions()["forward"](x, np.array([2, 0, 1])).tobytes().hex()


@needs_compiler
def test_c_calls_one_entry_point_on_a_gpu(fake: ctypes.CDLL, bundle: Path, tmp_path: Path):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    (tmp_path / "main.c").write_text(C_PROGRAM)
    options = ["-D_GNU_SOURCE", "-Wall", "-Werror", f"-I{bundle}", f"-L{bundle}", "-lmodel", "-ldl", f"-Wl,-rpath,{bundle}"]
    subprocess.run([compiler, str(tmp_path / "main.c"), "-o", str(tmp_path / "main"), *options], check=True)
    done = subprocess.run([str(tmp_path / "main"), str(bundle / "constants.safetensors")], capture_output=True, text=True, check=True)
    x = (np.arange(24, dtype=np.float32) * np.float32(0.25) - 2).reshape(3, 8)
    *found, failed, index, extent = done.stdout.split()
    assert [float.fromhex(text) for text in found] == functions()["forward"](x, np.array([2, 0, 1])).ravel().tolist()
    assert (failed, index, extent) == ("1", "9", "3")
    lost = {**os.environ, "TENSOREXPR_CUDA_DRIVER": "/nowhere"}
    assert subprocess.run([str(tmp_path / "main"), str(bundle / "constants.safetensors")], env=lost, check=False).returncode == 6


def capability() -> str | None:
    """The architecture of this machine's first GPU; None where there is none."""
    try:
        return cuda.driver().described(0).rpartition("(")[2].rstrip(")")
    except BundleError:
        return None


HERE = capability()


@pytest.mark.skipif(HERE is None or not nvrtc.available(), reason="no GPU, or no NVRTC to make code for it")
def test_on_the_gpu_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its driver and real cubins: what the CPU computes, and bit for bit the JIT where CuPy is there."""
    monkeypatch.delenv("TENSOREXPR_CUDA")
    compiled, n = functions("cpu"), 100
    loaded = tensorexpr_runtime.load(te.export(tmp_path / "model", gpus=[str(HERE)], **compiled))
    x, ids, head = floats(n, 8), np.arange(n)[::-1].copy(), floats(n, 8)
    a, places = on_gpu(x), on_gpu(ids)
    y, slope = loaded.forward(a, places).numpy(), loaded.backward(a, head=on_gpu(head))[0].numpy()
    np.testing.assert_allclose(y, compiled["forward"](x, ids), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(slope, compiled["backward"](x, head)[0], rtol=1e-4, atol=1e-4)
    with pytest.raises(OutOfBoundsError, match=f"y: expected an index of s from 0 to {n - 1}, got {n}"):
        loaded.forward(a, on_gpu(ids + 1))
    cupy = pytest.importorskip("cupy")
    jit = functions("cuda")
    np.testing.assert_array_equal(cupy.asnumpy(jit["forward"](cupy.asarray(x), cupy.asarray(ids))), y)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        np.testing.assert_array_equal(loaded.forward(cupy.asarray(x), cupy.asarray(ids), stream=stream).numpy(), y)


@needs_compiler
def test_what_no_code_is_made_for_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    x = te.placeholder((4,), name="x")
    y = te.compute((4,), lambda i: x[i] + 1, name="y")
    f = te.compile(y, [x])

    def refused(function: Any, **options: Any) -> str:
        lines = said(te.TargetError, lambda: te.export(tmp_path / "a", f=function, **options))
        assert not (tmp_path / "a").exists()
        return lines[0]

    assert refused(f, gpus="H200") == "expected architectures of GPUs such as sm_90, got 'H200'"
    with monkeypatch.context() as patch:
        patch.setattr(nvrtc, "architectures", lambda: (80, 90))
        assert refused(f, gpus=["sm_70"]) == "export: expected GPUs that NVRTC makes code for (sm_80, sm_90), got 'sm_70'"
    assert refused(f, cpus=[], gpus=[]) == "export: expected at least one CPU or GPU to make code for, got none"
    gpu = te.compile(y, [x], target="cuda")
    assert isinstance(gpu, GpuFunction) and gpu.architecture is None
    assert refused(gpu) == "export: expected the GPUs to make code for, got none: here the kernels of f run on a CPU"


def _launches(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [launch for step in steps for launch in (_launches(step["steps"]) if "steps" in step else [step])]


@needs_compiler
@pytest.mark.parametrize("here", ["sm_90", "sm_90a"])
def test_only_code_for_hopper_alone_multiplies_by_warpgroups(monkeypatch, here):
    """Whichever GPU the function was compiled for: code for several, or for others, is one text that all of them run."""
    texts: dict[str, str] = {}

    def compiled(source: Source, arch: str) -> nvrtc.Compiled:
        texts[arch] = source.text
        return nvrtc.Compiled(arch, b"", "", "", {})

    monkeypatch.setattr(gpu_code, "compiled_text", compiled)
    monkeypatch.setattr(compile, "_current_facts", lambda: replace(shipped(here), arch=here))
    a, b = (te.placeholder((2048, 2048), "bfloat16", name=name) for name in "ab")
    f = te.compile(te.compute((2048, 2048), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], 2048), name="c"), [a, b], target="cuda")
    assert ("te_group_bf16<" in f.source("cuda")) == (here == "sm_90a")
    for gpus in (["sm_90a"], ["sm_90"], ["sm_80"], ["sm_90a", "sm_80"], ["sm_90a", "sm_90"], ["sm_100"]):
        texts.clear()
        gpu_part(f, gpus)
        assert set(texts) == set(gpus) and len(set(texts.values())) == 1
        (text,) = set(texts.values())
        assert ("te_group_bf16<" in text, "te_mma_bf16(" in text) == ((True, False) if gpus == ["sm_90a"] else (False, True)), gpus


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")
def test_the_table_tells_of_kernels_grids_parameters_and_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With cubins as NVRTC makes them: what the JIT would load, for its text, where the table says."""
    compile_text, made_of = nvrtc.compile_text, dict[tuple[str, str], bytes]()

    def noted(text: str, arch: str) -> nvrtc.Compiled:
        found = compile_text(text, arch)
        made_of[text, arch] = found.cubin
        return found

    monkeypatch.setattr(nvrtc, "compile_text", noted)
    compiled = functions("cpu")
    made = {"forward": compiled["forward"]}
    folder = te.export(tmp_path / "model", gpus=["sm_80", "sm_90"], **made)
    table = json.loads((folder / "bundle.json").read_text())
    assert table["gpus"] == ["sm_90", "sm_80"] and len(table["variants"]) == 1
    image = (folder / "libmodel.so").read_bytes()
    jit = functions("cuda")
    for name in made:
        said, code = table["functions"][name]["gpu"], jit[name].code
        assert [row["name"] for row in said["images"]] == ["sm_90", "sm_80"] and said["alignment"] == 256
        steps = {step["kernel"]: step for step in _launches(said["steps"])}
        for row in said["images"]:
            data = image[row["offset"] : row["offset"] + row["bytes"]]
            assert data == made_of[code.source.text, row["name"]]
            assert parameters_of(data) == {
                kernel: tuple((p["offset"], p["size"]) for p in step["parameters"]) for kernel, step in steps.items()
            }
        for launch in code.source.launches:
            step = steps[launch.kernel]
            assert step["threads"] == list(launch.threads)
            assert [p["name"] for p in step["parameters"]][: len(launch.buffers)] == list(launch.buffers)
    forward = table["functions"]["forward"]["gpu"]
    assert forward["reports"] and _launches(forward["steps"])[-1]["parameters"][-1]["name"] == "the report of checks"
    assert {b["name"] for b in forward["workspace"]} and forward["checks"][0]["access"] == "s[ids[i], j]"
    for row in table["constants"]:
        assert row["offset"] % 16 == 0
    safetensors = pytest.importorskip("safetensors.numpy")
    found = safetensors.load_file(folder / "constants.safetensors")
    assert {"w", "b", "k"} < set(found) and all(name.startswith("padding.") for name in set(found) - {"w", "b", "k"})
