"""The thread pool: any number of threads gives the same result; nested, concurrent, forked, stopped and started again."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.llvm import compile_nest, set_threads
from tensorexpr.codegen.llvm.process.jit import NativeModule
from tensorexpr.codegen.llvm.process.native import NativeFunction
from tensorexpr.codegen.llvm.process.pool import default_threads, pool
from tensorexpr.codegen.llvm.runtime.pool_text import pool_routines
from tensorexpr.codegen.llvm.text.machine import Machine, host
from tensorexpr.errors import ArgumentError
from tensorexpr.ir import Index, Size, apply
from tests.codegen.llvm.nests import buffer, loop, nest, read, write

_ROWS = 20_000
_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
_PART = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


@pytest.fixture(autouse=True)
def restored():
    yield
    set_threads()


@pytest.fixture(scope="module")
def doubled() -> NativeFunction:
    """Y[i, j] = X[i, j] + X[i, j], parallel over i."""
    x, y = buffer("X", dtypes.float32, Size("n"), 64), buffer("Y", dtypes.float32, Size("n"), 64)
    i, j = Index("i"), Index("j")
    store = write(y, [i, j], apply("add", read(x, i, j), read(x, i, j)))
    return compile_nest(nest([x, y], [y], (loop("i", Size("n"), loop("j", 64, store, kind="vectorize"), kind="parallel"),), sizes=("n",)))


def works(function: NativeFunction, rows: int = _ROWS) -> bool:
    x = np.random.default_rng(rows).random((rows, 64), np.float32)
    y = np.zeros_like(x)
    failure = function([x.ctypes.data, y.ctypes.data], [rows])
    return failure is None and bool(np.array_equal(y, x + x))


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_any_number_of_threads(doubled: NativeFunction, threads: int) -> None:
    assert set_threads(threads) == threads
    for rows in (1, 2, 7, 100, _ROWS):
        assert works(doubled, rows)
    assert pool().started == (threads - 1 if host().is_linux else 0)


def test_stop_and_restart(doubled: NativeFunction) -> None:
    set_threads(3)
    for _ in range(3):
        assert works(doubled)
        pool().stop()
        assert pool().started == 0


def workers_cpus(before: set[str]) -> set[frozenset[int]]:
    return {frozenset(os.sched_getaffinity(int(task))) for task in set(os.listdir("/proc/self/task")) - before}


def kept_off(function: NativeFunction, before: set[str], cpus: set[int]) -> None:
    """Waits until the workers may use these CPUs: on a busy machine they may not have come to sleep yet, and only sleepers are woken."""
    deadline = time.monotonic() + 10
    while True:
        time.sleep(0.02)
        assert works(function, 30_000)  # rows of a loop that is never tried alone
        if workers_cpus(before) == {frozenset(cpus)}:
            break
        assert time.monotonic() < deadline


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no CPU affinity")
def test_workers_are_kept_off_the_cpu_that_wakes_them(doubled: NativeFunction) -> None:
    """Two threads on one CPU take turns. Where a caller goes to another one, its workers may use that which it left, no longer its own."""
    pool().stop()
    before = set(os.listdir("/proc/self/task"))
    allowed = os.sched_getaffinity(0)
    long = 30_000  # rows: a loop that is never tried alone
    set_threads(2)
    assert works(doubled, long)
    set_threads(4)  # more of them, beside one that is kept off already
    assert works(doubled, long)
    try:
        for cpu in [*sorted(allowed)[:3], min(allowed)]:
            os.sched_setaffinity(0, {cpu})
            kept_off(doubled, before, allowed - {cpu} or allowed)
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no CPU affinity")
def test_workers_take_the_affinity_that_is_read_again(doubled: NativeFunction, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that was held on one CPU when the workers started holds them there no longer; its own CPUs are as it left them."""
    monkeypatch.setenv("TENSOREXPR_NUM_THREADS", "3")
    pool().stop()
    before, allowed = set(os.listdir("/proc/self/task")), os.sched_getaffinity(0)
    cpu = {min(allowed)}
    try:
        os.sched_setaffinity(0, cpu)
        set_threads(3)
        assert works(doubled) and workers_cpus(before) == {frozenset(cpu)} and os.sched_getaffinity(0) == cpu
        os.sched_setaffinity(0, allowed)
        assert set_threads() == 3 and works(doubled) and os.sched_getaffinity(0) == allowed
        os.sched_setaffinity(0, cpu)
        kept_off(doubled, before, allowed - cpu or allowed)
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no CPU affinity")
def test_a_process_with_one_cpu_has_nowhere_to_step() -> None:
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "import time, numpy as np, tensorexpr as te\n"
        "x = te.placeholder((512, 512), name='x'); f = te.build(te.compute((512, 512), lambda i, j: x[i, j] * 2.0), [x])\n"
        "a = np.ones((512, 512), 'f')\n"
        "for _ in range(20): assert (f(a) == 2).all(); time.sleep(0.002)\n"
        "assert all(len(os.sched_getaffinity(int(t))) == 1 for t in os.listdir('/proc/self/task')); print('fine')"
    )
    environment = os.environ | {"TENSOREXPR_NUM_THREADS": "3"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert done.stdout.strip() == "fine", done.stderr


def test_concurrent_callers(doubled: NativeFunction) -> None:
    set_threads(3)
    results: list[bool] = []

    def work(seed: int) -> None:
        results.extend(works(doubled, 3000 + seed) for _ in range(60))

    callers = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(results) == 360
    assert all(results)


def test_fork_while_the_pool_is_busy(doubled: NativeFunction) -> None:
    set_threads(2)
    assert works(doubled)
    stop = threading.Event()

    def keep_busy() -> None:
        while not stop.is_set():
            works(doubled, 2000)

    busy = [threading.Thread(target=keep_busy) for _ in range(2)]
    for thread in busy:
        thread.start()
    try:
        for _ in range(8):
            child = os.fork()
            if child == 0:
                os._exit(0 if works(doubled) and pool().started <= 1 else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        for thread in busy:
            thread.join()
    assert works(doubled)


def test_a_parallel_loop_inside_a_parallel_loop_runs_serially() -> None:
    """Through the pool's C entry: the inner call finds the lock taken and takes all of its range itself."""
    parallel = _ENTRY(pool().parallel_for)
    part = _PART
    set_threads(2)
    seen: list[tuple[int, int]] = []
    inner = part(lambda _, begin, end: seen.append((begin, end)))
    outer = part(lambda _, begin, end: parallel(ctypes.cast(inner, ctypes.c_void_p), None, 10, 1, None))
    parallel(ctypes.cast(outer, ctypes.c_void_p), None, 4, 1, None)
    assert seen == [(0, 10)] * 4
    chunks: list[tuple[int, int]] = []
    collect = part(lambda _, begin, end: chunks.append((begin, end)))
    parallel(ctypes.cast(collect, ctypes.c_void_p), None, 1000, 1, None)
    assert sorted(b for b, _ in chunks) == sorted([0, *sorted(e for _, e in chunks)[:-1]])
    parallel(ctypes.cast(collect, ctypes.c_void_p), None, 0, 1, None)
    assert max(e for _, e in chunks) == 1000


@pytest.mark.skipif(not host().is_linux, reason="the pool of other systems has no workers")
def test_loops_go_the_way_that_was_faster() -> None:
    """Through the pool's C entry, with what a loop knows in sight: for which iterations, calls since, nanoseconds alone and together."""
    set_threads(2)
    parallel = _ENTRY(pool().parallel_for)
    site = (ctypes.c_int64 * 4)()
    seen: list[tuple[int, int]] = []

    def ways(calls: int, count: int = 64, seconds: float = 0.0) -> list[str]:
        """How each of some calls went, each of which must take every iteration once."""
        found = []
        part = _PART(lambda _, begin, end: (seen.append((begin, end)), time.sleep(seconds))[0])
        for _ in range(calls):
            seen.clear()
            parallel(ctypes.cast(part, ctypes.c_void_p), None, count, 1, site)
            assert sorted(i for begin, end in seen for i in range(begin, end)) == list(range(count))
            found.append("alone" if seen == [(0, count)] else "together")
        return found

    assert ways(2, seconds=0.001) == ["together", "together"]
    key, calls, alone, together = site
    assert (calls, alone) == (5, 2**63 - 1) and together > 1_000_000  # long: not tried alone
    assert ways(3) == ["together"] * 3
    site[2], site[3] = 10, 20
    assert ways(3) == ["alone"] * 3
    site[2], site[3] = 100_000_000, 10
    assert ways(3) == ["together"] * 3 and 10 < site[3] < 100_000_000
    site[2], site[3] = 1000, 10
    assert ways(2, seconds=0.001) == ["together", "alone"]  # together it took longer than it did when it was tried
    site[1], site[3] = 2, 2**63 - 1
    assert ways(3) == ["alone", "together", "alone"] and 0 < site[2] < 2**63 - 1 and 0 < site[3] < 2**63 - 1
    assert (site[0], site[1]) == (key, 5)
    site[1], site[2], site[3] = 4095, 100_000_000, 10
    assert ways(1) == ["together"] and site[1] == 0  # to be tried again
    site[1], site[2], site[3] = 7, 10, 20
    assert ways(1, count=65) == ["together"] and site[0] != key and site[1] == 1  # another loop


_PROGRAM = """
from tests.codegen.llvm.test_pool import _made, works
from tensorexpr.codegen.llvm.process.pool import pool
function = _made()
assert works(function)
print(pool().threads, pool().started)
"""


def _made() -> NativeFunction:
    return doubled.__wrapped__() if hasattr(doubled, "__wrapped__") else doubled.__pytest_wrapped__.obj()


def test_environment_and_a_clean_exit_with_workers_running() -> None:
    environment = {**os.environ, "TENSOREXPR_NUM_THREADS": "3"}
    done = subprocess.run([sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "3 2\n"), done.stderr


def test_a_wrong_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSOREXPR_NUM_THREADS", "many")
    with pytest.raises(ArgumentError, match="TENSOREXPR_NUM_THREADS: expected a positive integer, got 'many'"):
        default_threads()
    monkeypatch.setenv("TENSOREXPR_NUM_THREADS", "5")
    assert set_threads() == 5


def test_the_serial_pool_of_other_systems() -> None:
    other = Machine("x86_64-apple-darwin", host().cpu, host().features, host().vector_bits)
    module = NativeModule.compiled(pool_routines(other), host(), "none")
    parallel = _ENTRY(module.address("te_parallel_for"))
    seen: list[tuple[int, int]] = []
    part = _PART(lambda _, begin, end: seen.append((begin, end)))
    parallel(ctypes.cast(part, ctypes.c_void_p), None, 7, 1, None)
    parallel(ctypes.cast(part, ctypes.c_void_p), None, 0, 1, None)
    assert seen == [(0, 7)]
