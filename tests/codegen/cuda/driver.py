"""A driver of CUDA for machines without a GPU (`fake_driver.cpp`), and cubins for it: what launches natively is run on this CPU."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import pytest

from tensorexpr.codegen.cuda import host
from tensorexpr.codegen.cuda.emitter.source import Source
from tensorexpr.codegen.cuda.launch.driver_text import LIBRARY

needs_compiler = pytest.mark.skipif(host.compiler() is None, reason="no C++ compiler to run CUDA kernels")


@cache
def library() -> Path:
    """The driver's library."""
    files = {"runtime.h": (Path(host.__file__).parent / "runtime.h").read_text()}
    return host._compiled({**files, "fake_driver.cpp": Path(__file__).with_name("fake_driver.cpp").read_text()})


@cache
def driver() -> ctypes.CDLL:
    """The driver in this process."""
    return ctypes.CDLL(str(library()))


def cubin(source: Source) -> bytes:
    """What the driver takes for the machine code of a source."""
    runtime = host._runtime()._name
    return f"fake cubin\n{runtime}\n{host.HostKernels(source)._path}\0".encode()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> ctypes.CDLL:
    """The driver, found by what asks for one; functions for the target "cuda" are built to run on this CPU."""
    monkeypatch.setenv(LIBRARY, str(library()))
    monkeypatch.setenv("TENSOREXPR_CUDA", "host")
    return driver()
