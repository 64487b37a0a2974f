"""Default loops of scans whose points do not communicate: which readers join, which axis runs in lanes, how far steps are blocked.

Every element that a step touches is looked at along each data axis, as for other definitions: the axis of the lanes is the one
along which most of them lie side by side. Elements that lie along the steps instead are moved in square tiles, so steps are
unrolled in blocks of as many as there are lanes. Without any of those, lanes come in long blocks, whose states stay in the
first cache: a step then walks through memory and not from page to page.
"""

from __future__ import annotations

from collections.abc import Mapping

from tensorexpr.codegen.planners.tiles.loops import GATHER
from tensorexpr.codegen.schedule.analysis.state import program_facts
from tensorexpr.codegen.schedule.analysis.strides import Reach, reach
from tensorexpr.codegen.schedule.analysis.work import length, operations
from tensorexpr.codegen.schedule.schedule import Planned, StageHandle
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Define, Definition, Expr, Scan
from tensorexpr.traversal import reads, walk

TURNED = 1.5
"""What an element costs that is moved in a square tile, in loads of elements side by side."""
STATE_BYTES = 16 << 10
"""Bytes of the states of a block of points: half of a first cache."""
WIDEST = 4
"""Vectors that run side by side, so that the latencies of their steps overlap."""
LONGEST = 1024


MOST_JOINED = 16
"""Readers that are tried in the steps of one scan."""
COPIED_WORK = 12
"""Operations of a step up to which a block of steps is copied out."""


def sweep_scans(s: Planned) -> None:
    """Gives scans loops of their own where their points do not communicate, with the readers that fit.

    The last scan first: a reader of several goes to the one after which it can run in its own place.
    """
    for definition in reversed(s.state.program.definitions):
        if not isinstance(definition, Scan):
            continue
        name = definition.names[0]
        readers: list[str] = []
        plain = s.state
        if not _tried(s, name, ()):
            continue
        made = {*definition.names}
        for reader in _after(s, name):
            if not made & set(reads(reader)) or reader.results[0][0] not in s.state.table:
                continue
            with_it, s.state = s.state, plain
            if _tried(s, name, (*readers, reader.results[0][0])):
                readers.append(reader.results[0][0])
                made.add(readers[-1])
            else:
                s.state = with_it
            if len(readers) == MOST_JOINED:
                break


def _tried(s: Planned, name: str, readers: tuple[str, ...]) -> bool:
    try:
        s.sweep(name, *readers)
    except ScheduleError:
        return False
    return True


def _after(s: Planned, name: str) -> tuple[Definition, ...]:
    return tuple(d for d in s.state.program.definitions[program_facts(s.state.program).numbers[name] + 1 :] if isinstance(d, Define))


def plan_sweep(s: Planned, name: str, shapes: Mapping[str, tuple[Expr, ...]]) -> None:
    """Lanes and blocks of a sweep; what turns out to be illegal leaves the loops as they were."""
    before = s.state
    try:
        _plan(s, name, shapes)
    except ScheduleError:
        s.state = before


def _plan(s: Planned, name: str, shapes: Mapping[str, tuple[Expr, ...]]) -> None:
    handle, stage = s[name], s.state.stage(name)
    assert stage.sweep is not None
    parts, moments = stage.parts, stage.sweep.moments
    step = parts.groups[0].axes[0]
    touched = [n for m in moments for n in walk(m.value) if isinstance(n, Access)]
    touched += [Access(tensor, at, m.value.dtype) for m in moments for tensor, at in m.stores]
    reached = [reach(a, shapes[a.tensor]) for a in dict.fromkeys(touched)]
    costs = {a.index: sum(_cost(r, a.index, step.index) for r in reached) for a in reversed(parts.axes) if length(a) > 1}
    if not costs:
        return
    chosen = s.decisions.choose(f"{name}: lanes along", sorted(costs, key=lambda index: costs[index]))
    axis, cost = stage.axis(chosen), costs[chosen]
    lanes = min(16, max(s.target.lanes(state.dtype) for state in stage.sweep.states))
    extent = stage.extent(axis.index)
    while extent is not None and lanes > extent:
        lanes //= 2
    if lanes < 2 or cost > lanes * max(1, len(reached)):
        return
    others = [a.index for a in parts.axes if a is not axis]
    if any(_lies_across(r, axis.index, step.index) for r in reached):
        blocks, lane = _split(handle, axis.index, lanes, extent)
        block, one = handle.split(step.index, lanes)
        handle.reorder(*others, *blocks, block, one, lane)
        if s.decisions.wanted(f"{name}: steps copied out", sum(operations(m.value) for m in moments) <= COPIED_WORK):
            handle.unroll(one)
        handle.vectorize(lane)
        return
    wide = lanes * WIDEST
    outer = 1
    for a in parts.axes:
        outer *= 1 if a is axis else length(a)
    long = wide
    while (
        extent is not None
        and 2 * long <= min(extent, LONGEST)
        and 2 * long * sum(state.dtype.itemsize for state in stage.sweep.states) <= STATE_BYTES
        and outer * (extent // (2 * long)) >= 2 * s.target.cores
    ):
        long *= 2
    sizes = [n * wide for n in (1, 2, 4, 8, 16) if extent is not None and n * wide <= min(extent, 2 * LONGEST)]
    long = s.decisions.choose(f"{name}: points of a block", [long], others=lambda: sizes)
    if extent is not None and extent < wide:
        blocks, lane = _split(handle, axis.index, extent // lanes * lanes, extent)
        handle.reorder(*others, *blocks, step.index, lane)
    elif long == wide:
        blocks, lane = _split(handle, axis.index, wide, extent)
        handle.reorder(*others, *blocks, step.index, lane)
    else:
        blocks, inner = _split(handle, axis.index, long, extent)
        middle, lane = handle.split(inner, wide)
        handle.reorder(*others, *blocks, step.index, middle, lane)
    handle.vectorize(lane)


def _split(handle: StageHandle, axis: str, count: int, extent: int | None) -> tuple[tuple[str, ...], str]:
    """Blocks of an axis: the loop over them, where there is more than one, and the loop inside."""
    if extent == count:
        return (), axis
    outer, inner = handle.split(axis, count, "shift")
    return (outer,), inner


def _lies_across(r: Reach, axis: str, step: str) -> bool:
    return abs(r.stride(step)) == 1 and abs(r.stride(axis)) > 1


def _cost(r: Reach, axis: str, step: str) -> float:
    stride = abs(r.stride(axis))
    return float(stride) if stride <= 1 else TURNED if _lies_across(r, axis, step) else float(GATHER)
