"""What a long compilation is at: shown on a terminal after two seconds, told to a logger and to a callback elsewhere.

    with task("y = softmax(x)"):
        step("simplified")
        ...

Steps are told where they begin; nothing is told of a task that takes less than `PATIENCE` seconds. On a terminal (standard error) one
line is written over and erased in the end. The logger `tensorexpr.progress` has a line for each step at level INFO. `on_progress` sets a
callback, which takes the place of the terminal. Tasks inside of tasks are steps of the outermost one of their thread.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tensorexpr.hints import checked

PATIENCE = 2.0
_LONGEST = 100  # characters of the line on a terminal

log = logging.getLogger("tensorexpr.progress")


class Progress(NamedTuple):
    """What a compilation is at: the operation, the step that begins, and for how many seconds it has been compiled; no step at the end."""

    operation: str
    step: str | None
    seconds: float


Callback = Callable[[Progress], object]

_callback: Callback | None = None


@checked()
def on_progress(callback: Callback | None) -> Callback | None:
    """Sets what is called with the `Progress` of compilations beyond two seconds, in the place of a line on the terminal; gives the one
    before. None: the terminal. What the callback raises ends the compilation.

    >>> before = te.on_progress(lambda progress: print(f"{progress.operation}: {progress.step}"))
    >>> te.on_progress(before) is None        # the one that was set
    False
    """
    global _callback
    before, _callback = _callback, callback
    return before


class _Task:
    def __init__(self, operation: str) -> None:
        self.operation = operation
        self.start = time.monotonic()
        self.shown = 0  # characters on the terminal
        self.told = False

    def tell(self, step: str | None) -> None:
        seconds = time.monotonic() - self.start
        if not self.told and (step is None or seconds < PATIENCE):
            return
        self.told = True
        log.info("%s: %s after %.1f s", self.operation, step or "done", seconds)
        if _callback is not None:
            _callback(Progress(self.operation, step, seconds))
        elif sys.stderr is not None and sys.stderr.isatty():
            text = "" if step is None else f"tensorexpr: compiling {self.operation}: {step} ({seconds:.0f} s)"[:_LONGEST]
            sys.stderr.write(f"\r{text.ljust(self.shown)}" + ("\r" if step is None else ""))
            sys.stderr.flush()
            self.shown = len(text)


_tasks = threading.local()


@contextmanager
def task(operation: str) -> Iterator[None]:
    """A compilation of an operation in this thread; one inside of another is a part of that."""
    if getattr(_tasks, "now", None) is not None:
        yield
        return
    _tasks.now = now = _Task(operation)
    try:
        yield
    finally:
        _tasks.now = None
        now.tell(None)


def step(name: str) -> None:
    """Says what the compilation of this thread, if there is one, is at now."""
    now = getattr(_tasks, "now", None)
    if now is not None:
        now.tell(name)
