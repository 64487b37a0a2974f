"""Machine code made by LLVM in the background, while Python goes on with the rest of a program.

LLVM gives up Python's lock while it works, so its time and Python's are spent on two cores. `submit` hands over a `Job`, `image_of` waits
for its object code. One thread works through all jobs in order (LLVM's wrapper has a lock, so that two would wait for each other) and ends
where there are none. Between two calls of LLVM it needs Python's lock, some twenty times for a module, and a thread that computes gives it
up only when its turn ends; so turns are short as long as there are jobs (with Python's 5 ms LLVM stood still for a third of the time of
DenseNet). Whoever is interrupted while it waits goes on at once; `withdraw` takes back what nobody waits for then. A child of a
fork has no thread: what is waited for there is made again.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections import deque
from collections.abc import Iterable

from tensorexpr.building.progress import step
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
        """Compiles it."""
        try:
            self.image = object_code(self.text, self.machine, self.passes).image
            self.text = ""
        except BaseException as error:  # raised where it is waited for
            self.error = error
        finally:
            self.done.set()


_jobs: deque[Job] = deque()
_lock = threading.Lock()
_worker: threading.Thread | None = None
_before = sys.getswitchinterval()


def submit(job: Job) -> None:
    """Has a job done, which waits or runs only once."""
    global _worker
    with _lock:
        if job.error is not None and job not in _jobs:  # it is asked for again: what ended it may be over
            job.error = None
            job.done.clear()
        if job.done.is_set() or job in _jobs:
            return
        _jobs.append(job)
        if _worker is None:
            _short_turns()
            _worker = threading.Thread(target=_work, name="tensorexpr-llvm", daemon=True)
            _worker.start()


def _work() -> None:
    global _worker
    while True:
        with _lock:
            if not _jobs:
                _long_turns()
                _worker = None
                return
            job = _jobs[0]
        job.run()
        with _lock:
            if _jobs and _jobs[0] is job:
                _jobs.popleft()


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
    while not job.done.wait(_WAIT):
        step("machine code")
        submit(job)
    if job.error is not None:
        raise job.error
    assert job.image is not None
    return job.image


def withdraw(jobs: Iterable[Job]) -> None:
    """Takes back jobs that have not begun."""
    given = set(map(id, jobs))
    with _lock:
        kept = [job for number, job in enumerate(_jobs) if number == 0 or id(job) not in given]
        _jobs.clear()
        _jobs.extend(kept)


def taken_back(job: Job) -> bool:
    """Takes back a job; says whether it had not begun."""
    with _lock:
        if job.done.is_set() or (_jobs and _jobs[0] is job):
            return False
        if job in _jobs:
            _jobs.remove(job)
        return True


def _at_exit() -> None:
    """LLVM must not be taken down while it works."""
    with _lock:
        running = _jobs[0] if _jobs else None
        _jobs.clear()
    if running is not None:
        running.done.wait()


def _after_fork() -> None:
    global _lock, _worker
    if _worker is not None:
        _long_turns()
    _lock, _worker = threading.Lock(), None
    _jobs.clear()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
