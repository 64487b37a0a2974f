"""Machine code made by LLVM in the background, while Python goes on with the rest of a program.

LLVM gives up Python's lock while it works, so its time and Python's are spent on two cores. `submit` hands over a `Job`, `image_of` waits
for its object code. One thread works through the jobs in order while Python computes, and one more while somebody waits and another
core would stand still (`compilers`); threads end where there are no jobs. Between two calls of LLVM they need Python's lock, some
twenty times for a module, and a thread that computes gives it up only when its turn ends; so turns are short as long as there are
jobs (with Python's 5 ms LLVM stood still for a third of the time of DenseNet). Whoever is interrupted while it waits goes on at once;
`withdraw` takes back what nobody waits for then. A child of a fork has no thread: what is waited for there is made again.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections import deque
from collections.abc import Iterable

from tensorexpr.building.progress import step
from tensorexpr.codegen.llvm.process.compilers import SIDE_BY_SIDE
from tensorexpr.codegen.llvm.process.jit import object_code
from tensorexpr.codegen.llvm.text.machine import Machine

_WAIT = 0.5  # seconds between two reports of progress
_TURN = 1e-4  # seconds that a thread keeps Python's lock while another wants it


class Job:
    """A module to be compiled: its text, for a machine, with some passes (see `object_code`); then its object code or the error."""

    __slots__ = ("__weakref__", "done", "error", "image", "machine", "passes", "text")

    def __init__(self, text: str, machine: Machine, passes: str) -> None:
        self.text, self.machine, self.passes = text, machine, passes
        self.image: bytes | None = None
        self.error: BaseException | None = None
        self.done = threading.Event()

    def run(self) -> None:
        """Compiles it; whoever waits is told by `_work`."""
        try:
            self.image = object_code(self.text, self.machine, self.passes).image
            self.text = ""
        except BaseException as error:  # raised where it is waited for
            self.error = error


_jobs: deque[Job] = deque()
"""Those that have not begun."""
_running: list[Job] = []
_lock = threading.Lock()
_threads = 0
_before = sys.getswitchinterval()


def submit(job: Job) -> None:
    """Has a job done, which waits or runs only once."""
    with _lock:
        there = job in _jobs or job in _running
        if job.error is not None and not there:  # it is asked for again: what ended it may be over
            job.error = None
            job.done.clear()
        if job.done.is_set() or there:
            return
        _jobs.append(job)
        _start(1)


def _start(most: int) -> None:
    """Starts a thread for jobs that wait, up to so many; under the lock."""
    global _threads
    if _jobs and _threads < most:
        if not _threads:
            _short_turns()
        _threads += 1
        threading.Thread(target=_work, name="tensorexpr-llvm", daemon=True).start()


def _work() -> None:
    global _threads
    while True:
        with _lock:
            if not _jobs:
                _threads -= 1
                if not _threads:
                    _long_turns()
                return
            job = _jobs.popleft()
            _running.append(job)
        job.run()
        with _lock:
            _running.remove(job)
            job.done.set()  # not before: who asks again for what failed would find it running


def _short_turns() -> None:
    """Threads give up Python's lock sooner, until `_long_turns`."""
    global _before
    _before = sys.getswitchinterval()
    sys.setswitchinterval(min(_before, _TURN))


def _long_turns() -> None:
    """As before `_short_turns`, where nobody has said otherwise since."""
    if round(sys.getswitchinterval(), 6) <= _TURN:
        sys.setswitchinterval(_before)


def image_of(job: Job) -> bytes:
    """The object code of a job that was submitted. What LLVM raises is raised here."""
    with _lock:
        if not job.done.is_set():
            _start(min(SIDE_BY_SIDE, _cores()))
    while not job.done.wait(_WAIT):
        step("machine code")
        submit(job)
    if job.error is not None:
        raise job.error
    assert job.image is not None
    return job.image


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def withdraw(jobs: Iterable[Job]) -> None:
    """Takes back jobs that have not begun."""
    for job in jobs:
        taken_back(job)


def taken_back(job: Job) -> bool:
    """Takes back a job; says whether it had not begun."""
    with _lock:
        if job in _jobs:
            _jobs.remove(job)
        return not job.done.is_set() and job not in _running


def _at_exit() -> None:
    """LLVM must not be taken down while it works."""
    with _lock:
        _jobs.clear()
        running = list(_running)
    for job in running:
        job.done.wait()


def _after_fork() -> None:
    global _lock, _threads
    if _threads:
        _long_turns()
    _lock, _threads = threading.Lock(), 0
    _jobs.clear()
    _running.clear()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
