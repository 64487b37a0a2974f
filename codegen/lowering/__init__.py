"""From schedules to loop nests."""

from tensorexpr.codegen.lowering.program import Seen, lower_state
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.schedule import Planned


def lower(schedule: Planned, name: str = "main", *, seen: Seen | None = None) -> LoopNest:
    """The loop nest of a schedule. `seen` is given the nest after each step, with the name of the step."""
    return lower_state(schedule.state, name, seen)


__all__ = ["lower"]
