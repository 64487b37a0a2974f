"""How planners say that a program runs: schedules of definitions (`Planned`) and their primitives.

`analysis` says what definitions read, write and cost, `legal` what loops may be; `loops`, `definitions` and `scatters` are the primitives,
each on its own page, and `schedule` is what planners write on. What users hold is in `codegen.handle`.
"""

from tensorexpr.codegen.schedule.schedule import Planned, StageHandle, schedule

__all__ = ["Planned", "StageHandle", "schedule"]
