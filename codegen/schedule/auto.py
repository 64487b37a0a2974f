"""The default schedule."""

from __future__ import annotations

from tensorexpr.codegen.schedule.schedule import Schedule, schedule
from tensorexpr.codegen.target import Target
from tensorexpr.ir import Program


def autoschedule(program: Program, target: Target | None = None) -> Schedule:
    """The default schedule."""
    return schedule(program, target)
