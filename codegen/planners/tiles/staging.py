"""Which operands the default schedule copies with their axes in another order, so that lanes read them side by side.

A definition whose best lanes are those of a reduction, or gather, may have better ones along a data axis but for one operand
that lies across it. Where each element of that operand is read very often, a copy of it costs next to nothing.
"""

from __future__ import annotations

from math import prod

from tensorexpr.codegen.planners.tiles.loops import vector_cost
from tensorexpr.codegen.schedule.analysis.state import accesses_of
from tensorexpr.codegen.schedule.analysis.strides import reach
from tensorexpr.codegen.schedule.analysis.work import length, total_work
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Const, Expr, Index

READS = 1 << 6
"""Reads of each element from which on a copy is looked at."""
GAIN = 1.5
"""How much costlier the lanes must be that the definition has without a copy."""


def stage_operands(schedule: Planned, name: str, shapes: dict[str, tuple[Expr, ...]]) -> None:
    """Stages an operand of a definition where the lanes get much better by it; `shapes` gets the copy's."""
    found = schedule.state.stage(name)
    if found.place is not None or found.scan is not None or len(found.parts.groups) != 1:
        return
    work = total_work(found.parts)
    if work < READS:
        return
    candidates: list[tuple[float, str, tuple[int, ...]]] = []
    for axis in found.parts.axes:
        across: dict[str, int] = {}
        for access in accesses_of(schedule.state.program, name):
            if abs(reach(access, shapes[access.tensor]).stride(axis.index)) > 1:
                across[access.tensor] = _place(access, axis.index) if access.tensor not in across else -1
        if len(across) != 1 or min(across.values()) < 0 or length(axis) < schedule.target.lanes(found.parts.values[0].dtype):
            continue
        ((tensor, place),) = across.items()
        shape = shapes[tensor]
        if not all(isinstance(e, Const) for e in shape) or prod(int(e.value) for e in shape if isinstance(e, Const)) * READS > work:
            continue
        order = (*(k for k in range(len(shape)) if k != place), place)
        before = schedule.state
        try:
            packed = schedule[name].stage(tensor, order)
        except ScheduleError:
            continue
        candidates.append((vector_cost(schedule, name, {**shapes, packed: tuple(shape[k] for k in order)}), tensor, order))
        schedule.state = before
    if not candidates:
        return
    cost, tensor, order = min(candidates, key=lambda found: found[0])
    if schedule.decisions.wanted(f"{name}: {tensor} staged", cost * GAIN < vector_cost(schedule, name, shapes)):
        shapes[schedule[name].stage(tensor, order)] = tuple(shapes[tensor][k] for k in order)


def _place(access: Access, index: str) -> int:
    """The axis of the tensor that an index alone stands for; -1 where there is none."""
    return next((k for k, e in enumerate(access.indices) if isinstance(e, Index) and e.name == index), -1)
