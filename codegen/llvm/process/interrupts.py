"""Ctrl-C while machine code is made, or runs.

Python acts on a signal in its main thread, between two of its own instructions: not while that thread is in code of others.

- LLVM makes long code in a thread of its own (`interruptible`), and the main thread waits for it as Python does. Interrupted, it goes
  on at once; LLVM comes to its end behind it, and the next compilation waits for that.
- A long run in the main thread is *watched*: every 50 ms the pool, between two chunks of a loop, calls back (`LOOK`), and Python acts on
  what has come meanwhile. If its handler raises, as that of Ctrl-C does, the loops of this run end where they are (`pool_watch`), the run
  has failed, and `pool.raise_pending` raises what the handler did. Only who raises it may watch: calls of compiled code by other
  libraries are not watched, and no other thread's loops end.
"""

from __future__ import annotations

import atexit
import ctypes
import threading
from collections.abc import Callable
from typing import TypeVar

from tensorexpr.building.progress import step

Made = TypeVar("Made")

_WAIT = 0.5  # seconds between two reports of progress


def interruptible(make: Callable[[], Made], long: bool) -> Made:
    """What `make` gives, in a thread of its own if it takes `long` and this is the main thread. What it raises is raised here."""
    if not long or threading.current_thread() is not threading.main_thread():
        return make()
    done = threading.Event()
    made: list[Made] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            made.append(make())
        except BaseException as error:
            failed.append(error)
        finally:
            done.set()

    atexit.register(done.wait)  # LLVM must not be taken down while it works
    try:
        threading.Thread(target=run, name="tensorexpr-llvm", daemon=True).start()
        while not done.wait(_WAIT):
            step("machine code")
    finally:
        if done.is_set():
            atexit.unregister(done.wait)
    if failed:
        raise failed[0]
    return made[0]


# ----------------------------------------------------------------------------------------------------------------- runs

held = (ctypes.c_void_p * 3)()
"""What a handler raised during a run: its type, value and traceback, owned; null where there is nothing."""

PYTHONS = ("PyGILState_Ensure", "PyGILState_Release", "PyErr_CheckSignals", "PyErr_Fetch", "PyErr_Restore")

LOOK = """@te_held = external global [3 x ptr]

declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_Restore(ptr, ptr, ptr)

define i32 @te_look() {
entry:
  %lock = call i32 @PyGILState_Ensure()
  %raised = call i32 @PyErr_CheckSignals()
  %some = icmp ne i32 %raised, 0
  br i1 %some, label %keep, label %exit
keep:
  %value = getelementptr ptr, ptr @te_held, i64 1
  %trace = getelementptr ptr, ptr @te_held, i64 2
  call void @PyErr_Fetch(ptr @te_held, ptr %value, ptr %trace)
  br label %exit
exit:
  call void @PyGILState_Release(i32 %lock)
  ret i32 %raised
}

define void @te_raise() {
entry:
  %value.at = getelementptr ptr, ptr @te_held, i64 1
  %trace.at = getelementptr ptr, ptr @te_held, i64 2
  %type = load ptr, ptr @te_held, align 8
  %value = load ptr, ptr %value.at, align 8
  %trace = load ptr, ptr %trace.at, align 8
  store ptr null, ptr @te_held, align 8
  store ptr null, ptr %value.at, align 8
  store ptr null, ptr %trace.at, align 8
  call void @PyErr_Restore(ptr %type, ptr %value, ptr %trace)
  ret void
}
"""
"""What the pool calls during a run: lets Python act on signals, and keeps what a handler raises; and what raises it again. In Python itself
the handler would run as the function is entered, in front of any `try`."""


def python_addresses() -> dict[str, int]:
    """What `LOOK` calls and where it keeps what it finds, by name."""
    found = {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in PYTHONS}
    return {**found, "te_held": ctypes.addressof(held)}


def is_pending() -> bool:
    """Whether a handler raised something during a run that nobody has been told yet."""
    return held[0] is not None
