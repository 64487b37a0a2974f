"""How a program runs: schedules, their primitives, and the analytic default."""

from tensorexpr.codegen.schedule.auto import autoschedule
from tensorexpr.codegen.schedule.schedule import Schedule, StageHandle, schedule

__all__ = ["Schedule", "StageHandle", "autoschedule", "schedule"]
