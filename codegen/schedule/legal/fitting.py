"""Definitions computed in the loops of another have axes as long as what one iteration asks for: fitted whenever that changes."""

from __future__ import annotations

from tensorexpr.codegen.schedule.analysis.state import State
from tensorexpr.codegen.schedule.legal.legality import check_stage
from tensorexpr.codegen.schedule.legal.placement import check_placement, part_axes
from tensorexpr.records import replace


def fitted(state: State, root: str) -> State:
    """The state with the axes of what is computed in the loops of `root` as long as the blocks that one iteration asks for.

    Raises `ScheduleError` where their loops are not legal then.
    """
    for name in [s.name for s in state.placed_in(root)]:
        stage, axes = state.stage(name), part_axes(state, name)
        if stage.parts.axes != axes:
            state = state.with_stage(check_stage(state, replace(stage, parts=replace(stage.parts, axes=axes))))
            check_placement(state, name)
    return state
