"""Child processes, forked and spawned, after the worker threads have started, and while other threads compile."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time

import pytest

from tensorexpr.codegen.llvm import set_threads
from tensorexpr.codegen.llvm.process.pool import pool
from tests.runtime.processes import child, compiled, digest

_PATIENCE = 60  # seconds


@pytest.fixture
def workers():
    """Three threads, which have worked."""
    before = pool().threads
    set_threads(3)
    expected = digest()
    assert pool().started == 2
    yield expected
    set_threads(before)


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_children_compute_the_same_and_compile(method, workers):
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    children = [context.Process(target=child, args=(number, queue)) for number in range(2)]
    for process in children:
        process.start()
    answers = [queue.get(timeout=_PATIENCE) for _ in children]
    for process in children:
        process.join(_PATIENCE)
    assert answers == [(workers, True)] * 2
    assert [process.exitcode for process in children] == [0, 0]
    assert digest() == workers  # and the parent's threads still work


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_children_forked_while_other_threads_compile_and_run(workers):
    stop, failures = threading.Event(), []

    def work(number):
        while not stop.is_set():
            number += 10
            if not compiled(number):
                failures.append(number)

    threads = [threading.Thread(target=work, args=(start,)) for start in (1, 2)]
    for thread in threads:
        thread.start()
    codes = []
    for number in range(6):
        process = os.fork()
        if process == 0:
            try:
                os._exit(0 if digest() == workers and compiled(-1 - number) else 1)
            except BaseException:
                os._exit(2)
        codes.append(_exit_code(process))
    stop.set()
    for thread in threads:
        thread.join()
    assert codes == [0] * 6 and not failures


def _exit_code(process: int) -> int | None:
    """The exit code of a child; None where it hangs, which ends it."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(process, 9)
    os.waitpid(process, 0)
    return None
