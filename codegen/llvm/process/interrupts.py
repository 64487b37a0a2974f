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
from tensorexpr.codegen.llvm.text.routines import Routines

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

LOOK = Routines(
    """
te_held: extern

def PyGILState_Ensure() -> i32: ...
def PyGILState_Release(lock: i32): ...
def PyErr_CheckSignals() -> i32: ...
def PyErr_Fetch(kind: ptr, value: ptr, trace: ptr): ...
def PyErr_Restore(kind: ptr, value: ptr, trace: ptr): ...

@unwinds
def te_look() -> i32:
    lock = PyGILState_Ensure()
    raised = PyErr_CheckSignals()
    if raised != 0:
        PyErr_Fetch(te_held, te_held + 8, te_held + 16)
    PyGILState_Release(lock)
    return raised

@unwinds
def te_raise():
    kind = te_held.ptr[0]
    value = te_held.ptr[1]
    trace = te_held.ptr[2]
    memset(te_held, 0, 24)
    PyErr_Restore(kind, value, trace)
""",
    {},
)
"""What the pool calls during a run: lets Python act on signals, and keeps what a handler raises; and what raises it again. In Python itself
the handler would run as the function is entered, in front of any `try`."""


def python_addresses() -> dict[str, int]:
    """What `LOOK` calls and where it keeps what it finds, by name."""
    found = {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in PYTHONS}
    return {**found, "te_held": ctypes.addressof(held)}


def is_pending() -> bool:
    """Whether a handler raised something during a run that nobody has been told yet."""
    return held[0] is not None
