"""What is said where something that CUDA needs is not there."""

import sys
import types

import pytest

import tensorexpr as te
from tensorexpr.codegen.cuda import host
from tensorexpr.codegen.cuda.emitter.source import Source
from tensorexpr.codegen.cuda.launch import device
from tensorexpr.codegen.cuda.nvidia import nvrtc
from tensorexpr.errors import TargetError


def refused(call, *arguments) -> str:
    with pytest.raises(TargetError) as caught:
        call(*arguments)
    return str(caught.value)


def test_no_cupy(monkeypatch):
    monkeypatch.delenv("TENSOREXPR_CUDA", raising=False)
    monkeypatch.setitem(sys.modules, "cupy", None)
    x = te.placeholder((3,), name="x")
    text = refused(te.build, te.compute((3,), lambda i: x[i]), [x], "cuda")
    assert "expected a target that this machine has, got 'cuda': CuPy is not installed" in text
    assert "pip install 'tensorexpr[cuda]' (CUDA 13) or 'tensorexpr[cuda12]'" in text


def test_no_gpu(monkeypatch):
    monkeypatch.delenv("TENSOREXPR_CUDA", raising=False)
    cupy = types.ModuleType("cupy")
    cupy.cuda = types.SimpleNamespace(is_available=lambda: False)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    text = refused(device.current_device)
    assert "expected a target that this machine has, got 'cuda': CuPy finds no GPU (no driver, or no device)" in text


def test_no_driver(monkeypatch):
    """CuPy may find a device where a program cannot: the driver's library is not where libraries are looked for."""

    def load(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(device.ctypes, "CDLL", load)
    text = refused(device.CupyDevice, types.ModuleType("cupy"))
    assert "expected the driver of the GPU that CuPy finds, libcuda.so.1, to be loaded, got none" in text


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")
def test_a_driver_that_is_too_old():
    class CUDADriverError(RuntimeError):
        pass

    class Module:
        def load(self, cubin):
            raise CUDADriverError("CUDA_ERROR_UNSUPPORTED_PTX_VERSION: the provided PTX was compiled with an unsupported toolchain.")

    errors, modules = types.SimpleNamespace(CUDADriverError=CUDADriverError), types.SimpleNamespace(Module=Module)
    cuda = types.SimpleNamespace(get_current_stream=None, function=modules, driver=errors)
    made = nvrtc.Compiled("sm_90", b"", "", "", {})
    text = refused(device._CupyKernels, types.SimpleNamespace(cuda=cuda), None, Source("", ()), made)
    version = ".".join(map(str, nvrtc.version()))
    assert f"expected a driver that loads code of NVRTC {version} for sm_90, got one that refuses it" in text
    assert "CUDA_ERROR_UNSUPPORTED_PTX_VERSION" in text and "a newer driver, or tensorexpr[cuda12]" in text


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")
def test_a_gpu_that_nvrtc_does_not_know():
    known, (major, minor) = nvrtc.architectures(), nvrtc.version()
    text = refused(nvrtc.compile_text, "", "sm_35")
    assert f"expected a GPU that NVRTC {major}.{minor} makes code for, of sm_{min(known)} to sm_{max(known)}, got one of sm_35" in text
    assert "another version of NVRTC" in text
    assert not nvrtc.compile_text("", "sm_90a").resources  # a letter behind the number is code for that alone


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")
def test_a_gpu_that_came_later_than_nvrtc_runs_code_of_its_generation(monkeypatch):
    monkeypatch.setattr(nvrtc, "architectures", lambda: (75, 80, 90, 100))
    assert nvrtc.compile_text("", "sm_103").arch == "sm_100" and nvrtc.compile_text("", "sm_89").arch == "sm_80"
    assert "got one of sm_120" in refused(nvrtc.compile_text, "", "sm_120")


def test_no_compiler_of_cpp(monkeypatch):
    monkeypatch.setattr(host, "compiler", lambda: None)
    text = refused(host._compiled, {"x.cpp": "int x;"})
    assert "expected a C++ compiler to run CUDA kernels on a CPU, found none of g++, clang++, c++" in text


def test_no_nvrtc(monkeypatch):
    nvrtc._library.cache_clear()
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    assert "expected NVRTC to compile for 'cuda', found no cuda-pathfinder" in refused(nvrtc.version)
    finder = types.ModuleType("cuda.pathfinder")

    def load(name):
        raise RuntimeError(f"no {name} here\nnor there")

    finder.load_nvidia_dynamic_lib = load
    monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", finder)
    text = refused(nvrtc.version)
    assert "expected NVRTC to compile for 'cuda', found none" in text and "no nvrtc here" in text and "nor there" not in text
    assert not nvrtc.available()
    nvrtc._library.cache_clear()


def test_no_cuobjdump(monkeypatch, tmp_path):
    monkeypatch.setattr(nvrtc.shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    text = refused(nvrtc.Compiled("sm_90", b"", "", "", {}).sass)
    assert "expected cuobjdump to print machine code, found none" in text
