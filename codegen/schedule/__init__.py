"""How a program runs: schedules (`Planned`) and their primitives.

`analysis` says what definitions read, write and cost, `legal` what loops may be; `loops`, `definitions` and `scatters` are the primitives,
each on its own page, and `schedule` is what users hold.
"""

from tensorexpr.codegen.schedule.legal.intrinsics import Intrinsic, intrinsic
from tensorexpr.codegen.schedule.schedule import Planned, StageHandle, schedule

__all__ = ["Intrinsic", "Planned", "StageHandle", "intrinsic", "schedule"]
