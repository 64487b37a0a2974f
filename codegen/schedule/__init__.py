"""How a program runs: schedules, and the analytic default."""

from tensorexpr.codegen.schedule.schedule import Schedule, schedule

__all__ = ["Schedule", "schedule"]
