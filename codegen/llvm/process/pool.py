"""The worker threads of this process: one pool, shared by all compiled functions, made on first use.

The number of threads is TENSOREXPR_NUM_THREADS, else the number of CPUs that this process may use. Results never depend
on it. Workers start when the first parallel loop wants them, again after a fork, and are stopped and joined at exit.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from collections.abc import Callable

from tensorexpr.building.environment import number_of
from tensorexpr.codegen.llvm.process.compilers import linking
from tensorexpr.codegen.llvm.process.interrupts import LOOK, is_pending, python_addresses
from tensorexpr.codegen.llvm.process.jit import NativeModule
from tensorexpr.codegen.llvm.runtime.pool_text import LIMIT, pool_routines
from tensorexpr.codegen.llvm.text.machine import host

_PLAIN = ctypes.CFUNCTYPE(None)
_VARIABLE = "TENSOREXPR_NUM_THREADS"


class Pool:
    """The pool's machine code and its controls; `parallel_for` is the address of its entry."""

    def __init__(self) -> None:
        self._module = NativeModule.compiled(pool_routines(host()), host(), "none")
        self.parallel_for = self._module.address("te_parallel_for")
        self._set = ctypes.CFUNCTYPE(None, ctypes.c_int32)(self._module.address("te_pool_set"))
        self._stop = ctypes.CFUNCTYPE(None)(self._module.address("te_pool_stop"))
        self._reset = ctypes.CFUNCTYPE(None)(self._module.address("te_pool_reset"))
        self._started = ctypes.CFUNCTYPE(ctypes.c_int32)(self._module.address("te_pool_started"))
        self.watch = self._module.address("te_watch")
        self.watched = self._module.address("te_watched")
        self._watch, self._watched = _PLAIN(self.watch), ctypes.CFUNCTYPE(ctypes.c_int64)(self.watched)
        self._clear = _PLAIN(self._module.address("te_watch_clear"))
        self._looking = NativeModule.compiled(LOOK, host(), "none", python_addresses())
        self._raise = ctypes.PYFUNCTYPE(None)(self._looking.address("te_raise"))
        self.threads = 1
        self._find_main_thread()
        self.resize(default_threads())
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)
            os.register_at_fork(after_in_child=self._find_main_thread)
        # Before the interpreter frees anything: a worker must not outlive the code that it runs.
        atexit.register(self.resize, 1)

    def _find_main_thread(self) -> None:
        """Runs of the main thread can be interrupted, if it is the one that asks here, or has asked before."""
        if threading.current_thread() is threading.main_thread():
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._module.address("te_watch_by"))(self._looking.address("te_look"))

    def run(self, function: Callable[[], int]) -> int:
        """What a long run gives; raises what a handler of a signal raised meanwhile."""
        self._watch()
        try:
            result = function()
        finally:
            interrupted = self._watched()
        if interrupted:
            self.raise_pending()
        return result

    def raise_pending(self) -> None:
        """Raises what a handler raised during a run that ended for it, if there is something."""
        self._clear()
        if is_pending():
            self._raise()

    def resize(self, threads: int) -> None:
        """Uses `threads` threads from now on, the caller's included; waits for a loop that is running."""
        self.threads = max(1, min(threads, LIMIT + 1))
        self._set(self.threads - 1)

    def stop(self) -> None:
        """Stops and joins the workers; the next parallel loop starts them again."""
        self._stop()

    @property
    def started(self) -> int:
        """Workers that are running now."""
        return int(self._started())


_pool: Pool | None = None


def pool() -> Pool:
    """The pool of this process."""
    global _pool
    with linking:
        if _pool is None:
            _pool = Pool()
        return _pool


def raise_pending() -> None:
    """Raises what a handler of a signal raised during a run that ended for it, if there is something."""
    if is_pending():
        pool().raise_pending()


def default_threads() -> int:
    """The number of threads that the environment asks for. Raises `ArgumentError` where that is not a positive integer."""
    said = number_of(_VARIABLE, "a positive integer", least=1)
    if said is not None:
        return said
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def set_threads(count: int | None = None) -> int:
    """Sets how many threads parallel loops use, and gives the number; None reads environment and CPU affinity again.

    Workers have the CPUs of the thread that starts them; after None they are started anew, those that this thread may use by then.
    """
    if count is None:
        pool().stop()
    pool().resize(default_threads() if count is None else count)
    return pool().threads
