"""The loops of copies of operands into panels.

A copy runs through the tensor in its order. Where the blocks of the panel lie across the tensor's rows, squares of elements are turned
around in registers, so that both sides are met side by side. Where the last axis is shorter than a vector (the taps of a convolution), it
and those before it that follow each other in the copy as well are gone through as one.
"""

from __future__ import annotations

from math import prod

from tensorexpr.codegen.planners.tiles.loops import plan
from tensorexpr.codegen.schedule.definitions.staging import Layout
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.ir import Expr


def plan_copy(schedule: Planned, copy: str, tensor: str, layout: Layout, shapes: dict[str, tuple[Expr, ...]]) -> None:
    """The loops of a copy: through the tensor in its order; squares turned around in registers where blocks lie across."""
    handle = schedule[copy]
    program = schedule.state.program
    shape = program.types[tensor].shape
    lanes = schedule.target.lanes(program.types[tensor].dtype)
    ((place, block),) = (entry for entry in layout if not isinstance(entry, int))
    order = tuple(entry if isinstance(entry, int) else entry[0] for entry in layout)
    names = dict(zip(order, handle.loops, strict=False))
    inner, last = handle.loops[-1], len(shape) - 1
    source = [names[k] for k in range(len(shape))]
    if place == last:
        handle.reorder(*source[:-1], source[-1], inner)
        handle.vectorize(inner)
        return
    run = [last]
    while run[0] - 1 != place and order.index(run[0] - 1) + 1 == order.index(run[0]):
        run = [run[0] - 1, *run]
    lengths = [schedule.state.stage(copy).extent(names[k]) for k in run]
    length = lengths[-1]
    if length is not None and length < lanes and None not in lengths and len(run) > 1 and block % lanes == 0:
        fused = names[run[0]]
        for k in run[1:]:
            fused = handle.fuse(fused, names[k])
        names[last], length = fused, prod(n or 0 for n in lengths)
        source = [*source[: run[0]], fused]
    if length is None or length < lanes or block % lanes:
        plan(schedule, copy, shapes)
        return
    squares, column = handle.split(names[last], lanes, "shift") if length > lanes else (None, names[last])
    parts, element = handle.split(inner, lanes) if block > lanes else (None, inner)
    outer = [x for x in (*source[:-1], parts, squares) if x is not None]
    handle.reorder(*outer, element, column)
    handle.unroll(element)
    handle.vectorize(column)
