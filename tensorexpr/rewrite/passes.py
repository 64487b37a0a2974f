"""Running passes: functions from a program to a program, each followed by the verifier.

A pass returns the same object when it changed nothing; its docstring says what it `Requires` and `Ensures`. The logger
`tensorexpr.passes` gets one line per pass. `TENSOREXPR_VERIFY=0` turns the verifier off; `TENSOREXPR_DEBUG=passes`
prints the program after each pass that changed it to standard error (the other channel is `rules`; both are separated by
a comma).
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable

from tensorexpr.errors import InternalError, TensorExprError
from tensorexpr.ir import Program
from tensorexpr.verify import verify

Pass = Callable[[Program], Program]

_logger = logging.getLogger("tensorexpr.passes")


def run_passes(program: Program, passes: Iterable[Pass]) -> Program:
    """The program after all passes in order.

    Raises `InternalError` that names the guilty pass, with the program before and after, when a pass leaves a program
    that breaks an invariant or fails itself; errors that are the user's go through.
    """
    verifying = os.environ.get("TENSOREXPR_VERIFY", "1") != "0"
    printing = debug_channel("passes")
    for run in passes:
        name = getattr(run, "__name__", repr(run))
        start = time.perf_counter()
        try:
            result = run(program)
        except InternalError as error:
            raise InternalError(f"pass {name} failed: {error.message}", term=f"before:\n{program}", at=error.at) from error
        except TensorExprError:
            raise
        except Exception as error:
            raise InternalError(f"pass {name} failed: {type(error).__name__}: {error}", term=f"before:\n{program}") from error
        unchanged = result is program
        _logger.debug("%s %.3f ms%s", name, (time.perf_counter() - start) * 1e3, " (unchanged)" if unchanged else "")
        if unchanged:
            continue
        if verifying:
            try:
                verify(result)
            except InternalError as error:
                raise InternalError(
                    f"pass {name} broke an invariant: {error.message}", term=f"before:\n{program}\nafter:\n{result}", at=error.at
                ) from error
        if printing:
            print(f"# after {name}\n{result}\n", file=sys.stderr)
        program = result
    return program


def debug_channel(name: str) -> bool:
    """Whether `TENSOREXPR_DEBUG` lists this channel."""
    return name in os.environ.get("TENSOREXPR_DEBUG", "").split(",")
