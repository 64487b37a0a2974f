"""A bench seen from outside its process: what crashes or hangs there ends that process, counts as failed, and a new one goes on.

How long an answer may take follows from how long the first one took. Where it takes longer, or the wait is interrupted, the
process is ended; the next request starts another, which measures the model's own schedule again before anything else, since that
is what results are compared with.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from math import isfinite
from typing import IO, Any

from tensorexpr.codegen.schedule.decisions import Choices
from tensorexpr.codegen.tuning.search import FAILED, Trial
from tensorexpr.codegen.tuning.timing import Job
from tensorexpr.codegen.tuning.worker import DONE, OTHER, USER, receive, send
from tensorexpr.errors import ArgumentError, InternalError

FIRST = 600.0
"""Seconds that the first answer may take."""
PATIENCE, LEAST = 3.0, 3.0
"""How many times longer than the first an answer may take, and the seconds that it may take in any case."""
CALLS = 50
"""Calls of the slowest candidate that a trial may make."""
COMMAND = (sys.executable, "-m", "tensorexpr.codegen.tuning.worker")


class Lost(Exception):
    """The process ended, or did not answer in time."""


class Remote:
    """The bench of a job (see `search.Bench`) in a process of its own; to be closed."""

    def __init__(self, job: Job, command: Sequence[str] = COMMAND) -> None:
        self._job = job
        self._command = tuple(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.Queue[tuple[str, Any] | None] = queue.Queue()
        self._first: float | None = None

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()

    # -------------------------------------------------------------------------------------------------------- bench

    def trial(self, choices: Choices, limit: float) -> Trial:
        """See `search.Bench`. Raises `ArgumentError` where the model's own schedule cannot be measured."""
        if self._first is None:
            return self._baseline()
        try:
            kind, found = self._ask(self._patience(limit), "trial", choices, limit)
        except Lost as error:
            return Trial(choices, FAILED, reason=str(error))
        return found if kind == DONE else Trial(choices, FAILED, reason=found)

    def rounds(self, rivals: Sequence[Choices], number: int) -> list[tuple[float, ...]]:
        """See `search.Bench`."""
        try:
            kind, found = self._ask(PATIENCE * self._patience(0.0) * (len(rivals) + number), "rounds", tuple(rivals), number)
        except Lost:
            return []
        return found if kind == DONE else []

    def _baseline(self) -> Trial:
        began = time.monotonic()
        try:
            kind, found = self._ask(FIRST, "trial", Choices(), float("inf"))
        except Lost as error:
            raise InternalError(
                f"tune: the default schedule of {', '.join(self._job.program.outputs)} cannot be measured: {error}"
            ) from None
        if kind == USER:
            hint = "give arrays to measure with" if self._job.arrays is None else None
            raise ArgumentError(f"tune: expected an operation that runs, got {found.splitlines()[0]}", hint=hint)
        if kind != DONE:
            raise InternalError(f"tune: {found}")
        self._first = time.monotonic() - began
        trial: Trial = found
        return trial

    def _patience(self, limit: float) -> float:
        assert self._first is not None
        return LEAST + PATIENCE * self._first + (CALLS * limit if isfinite(limit) else 0.0)

    # ------------------------------------------------------------------------------------------------------ process

    def _ask(self, seconds: float, method: str, *arguments: object) -> tuple[str, Any]:
        """The answer to a request. Raises `Lost` where none comes in time."""
        if self._process is None:
            self._start()
            if method != "trial" or arguments[0]:
                self._exchange(FIRST if self._first is None else self._patience(0.0), "trial", (Choices(), float("inf")))
        return self._exchange(seconds, method, arguments)

    def _start(self) -> None:
        # No code of candidates is kept, and the model's schedule is the model's.
        environment = {
            **os.environ,
            "TENSOREXPR_CACHE_DIR": "",
            "TENSOREXPR_TUNING": "",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environment)
        assert self._process.stdout is not None
        self._answers = queue.Queue()
        threading.Thread(target=_read, args=(self._process.stdout, self._answers), daemon=True).start()
        kind, found = self._exchange(FIRST, "job", (self._job,))
        if kind != DONE:
            self.close()
            raise Lost(found)

    def _exchange(self, seconds: float, method: str, arguments: tuple[object, ...]) -> tuple[str, Any]:
        process = self._process
        assert process is not None and process.stdin is not None
        try:
            send(process.stdin, (method, arguments))
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            self.close()
            raise Lost(f"took longer than {seconds:.1f} s") from None
        except OSError:
            answer = None
        except BaseException:
            self.close()
            raise
        if answer is None:
            self.close()
            raise Lost(f"ended the process with status {process.returncode}")
        if answer[0] == OTHER:
            self.close()
        return answer


def _read(stream: IO[bytes], answers: queue.Queue[Any]) -> None:
    """Hands on answers, and None at the end."""
    with contextlib.suppress(EOFError, OSError, ValueError):
        while True:
            answers.put(receive(stream))
    answers.put(None)
