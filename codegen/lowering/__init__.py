"""From schedules to loop nests."""

from tensorexpr.codegen.lowering.program import lower_state
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.schedule import Schedule


def lower(schedule: Schedule, name: str = "main") -> LoopNest:
    """The loop nest of a schedule."""
    return lower_state(schedule.state, name)


__all__ = ["lower"]
