"""How a program runs: schedules, their primitives, and the analytic default."""

from tensorexpr.codegen.schedule.auto import autoschedule
from tensorexpr.codegen.schedule.intrinsics import Intrinsic, intrinsic
from tensorexpr.codegen.schedule.schedule import Planned, StageHandle, schedule

__all__ = ["Intrinsic", "Planned", "StageHandle", "autoschedule", "intrinsic", "schedule"]
