"""What is said where something that CUDA needs is not there."""

import sys
import types

import pytest

import tensorexpr as te
from tensorexpr.codegen.cuda import device, host, nvrtc
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
