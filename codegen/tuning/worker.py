"""A bench in a process of its own, which answers over its standard input and output: `python -m tensorexpr.codegen.tuning.worker`.

Requests and answers are pickled, each behind its length. The first request is a `Job`, after that names of methods of the bench with
their arguments. What fails is an answer, too; where that was nothing foreseen, the process has to be replaced, since nobody knows
what state a library or a device is in. It ends with its input; interrupts from the keyboard are its parent's affair.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from typing import IO, Any

from tensorexpr.codegen.tuning.timing import GpuTiming, Timing
from tensorexpr.errors import InternalError, TensorExprError

BENCHES = {"cpu": Timing, "cuda": GpuTiming}
"""The bench of each target."""
DONE, USER, OTHER = "done", "refused", "raised"


def send(stream: IO[bytes], message: object) -> None:
    """Writes one message."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(len(data).to_bytes(8, "little") + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Reads one message. Raises `EOFError` where the other side is gone."""
    size = stream.read(8)
    data = stream.read(int.from_bytes(size, "little")) if len(size) == 8 else b""
    if len(size) < 8 or len(data) < int.from_bytes(size, "little"):
        raise EOFError
    return pickle.loads(data)


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answers until the requests end."""
    bench: Any = None
    while True:
        try:
            method, arguments = receive(requests)
        except EOFError:
            return
        try:
            if method == "job":
                bench = BENCHES[arguments[0].target.name](*arguments)
                found = None
            else:
                found = getattr(bench, method)(*arguments)
            send(answers, (DONE, found))
        except Exception as error:  # whatever a candidate does is told, and the next one is tried
            foreseen = isinstance(error, TensorExprError) and not isinstance(error, InternalError)
            send(answers, (USER if foreseen else OTHER, f"{type(error).__name__}: {error}"))


def main() -> None:
    """Serves on standard input and output; what anything prints goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
