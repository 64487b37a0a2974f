"""On a GPU one test must not take the others along: one that hangs is ended, and so is a process whose context an error has spoiled.

Threads of a kernel that wait for each other in vain never end, and no exception reaches them: after `SECONDS` the process ends, with where
it stood. An illegal address (and what else CUDA calls sticky) makes every later call in the process fail: the process ends after the
test that met it. Run by several workers (`-n`), such a test is reported as one that crashed, and another worker goes on with the rest.
Where there is no GPU nothing is done.
"""

from __future__ import annotations

import faulthandler
import os
import re
import sys
from collections.abc import Generator
from typing import Any

import pytest

from tests.codegen.cuda import device

SECONDS = float(os.environ.get("TENSOREXPR_GPU_TEST_SECONDS", "120"))
STICKY = re.compile(
    "ILLEGAL_ADDRESS|IllegalAddress|illegal memory access|ILLEGAL_INSTRUCTION|illegal instruction|MISALIGNED|misaligned address|"
    "LAUNCH_FAILED|unspecified launch failure|INVALID_PC|invalid program counter|HARDWARE_STACK|ECC|LAUNCH_TIMEOUT|cudaErrorAssert"
)
"""Errors after which a context is of no use (CUDA driver API, CUresult)."""


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, None]:
    """Bounds the time of a test."""
    there = device.gpu() is not None
    if there:
        faulthandler.dump_traceback_later(SECONDS, exit=True)
    yield
    if there:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    """Ends the process after an error that is there to stay."""
    yield
    if call.excinfo is None or device.gpu() is None or not STICKY.search(str(call.excinfo.value)):
        return
    print(f"{item.nodeid}: {call.excinfo.value}\nthe GPU's context is spoiled: this process ends", file=sys.stderr, flush=True)
    if hasattr(item.config, "workerinput"):
        os._exit(1)
    item.session.shouldfail = "the GPU's context is spoiled: the tests behind would all fail"
