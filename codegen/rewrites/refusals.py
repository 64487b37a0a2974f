"""The errors of rewrites: what was expected of which loop, and what came instead."""

from __future__ import annotations

from tensorexpr.codegen.nest import Stmt
from tensorexpr.codegen.nest.text import print_block
from tensorexpr.errors import ScheduleError


def refuse(message: str, s: Stmt | None = None, loop: str | None = None, hint: str | None = None) -> ScheduleError:
    """The error of a rewrite that would change what a nest computes or has nothing to act on; `s` is shown by its first line."""
    return ScheduleError(message, term=None if s is None else next(iter(print_block((s,)))), at=loop, hint=hint)
