"""A test that depends on a GPU, or spoils its context, costs itself: the others run, in another process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.codegen.cuda.isolation import STICKY

ROOT = Path(__file__).resolve().parents[3]
CONFTEST = """
from tests.codegen.cuda import device, isolation
from tests.codegen.cuda.isolation import pytest_runtest_makereport, pytest_runtest_protocol
device.gpu = lambda: object()
isolation.SECONDS = 1.0
"""
TESTS = """
import time
done = []
def test_before(): pass
def test_hangs(): time.sleep(100)
def test_between(): pass
def test_strays():
    done.append("spoiled")
    raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered")
def test_after(): assert not done
def test_fails(): raise RuntimeError("an index of x")
def test_at_the_end(): pass
"""


@pytest.mark.parametrize("workers", [["-n", "1"], ["-k", "not hangs"]], ids=["workers", "alone"])
def test_others_run(workers: list[str], tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_them.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "--rootdir", str(tmp_path), *workers, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    told = {line.split("::")[1].split()[0]: line.split()[0] for line in done.stdout.splitlines() if line.startswith(("PASSED ", "FAILED "))}
    assert told["test_before"] == told["test_between"] == "PASSED" and told["test_strays"] == "FAILED"
    if workers[0] == "-n":
        assert told["test_hangs"] == told["test_fails"] == "FAILED" and told["test_after"] == told["test_at_the_end"] == "PASSED"
        assert done.stdout.count("crashed while running") >= 2
    else:
        assert "test_after" not in told and "the GPU's context is spoiled" in done.stdout


def test_which_errors_stay() -> None:
    for text in (
        "CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure",
        "cudaErrorIllegalAddress: an illegal memory access",
        "misaligned address",
    ):
        assert STICKY.search(text)
    for text in ("CUDA_ERROR_OUT_OF_MEMORY: out of memory", "expected an index of x from 0 to 3, got 5", "cudaErrorInvalidValue"):
        assert not STICKY.search(text)
