"""From schedules to loop nests."""

from tensorexpr.codegen.lowering.program import lower_state
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.schedule import Schedule


def lower(schedule: Schedule, name: str = "main", *, plain: bool = False) -> LoopNest:
    """The loop nest of a schedule; a `plain` one without the passes that only make it faster."""
    return lower_state(schedule.state, name, plain)


__all__ = ["lower"]
