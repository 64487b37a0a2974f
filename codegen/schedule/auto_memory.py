"""What goes past the caches, and what is asked for ahead of its use: the last decisions on a schedule of a CPU.

Outputs that are more than the last cache holds are written past it, where they come fast enough for memory to be what is
waited for. Rows that are passed over again, and streams that much is computed on, are fetched ahead.
"""

from __future__ import annotations

from math import prod

from tensorexpr.codegen.schedule.fetching import row_length
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.codegen.schedule.state import SERIAL, accesses_of, definition_named, program_facts
from tensorexpr.codegen.schedule.stream import streamable
from tensorexpr.codegen.schedule.strides import reach
from tensorexpr.codegen.schedule.work import length, total_work
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Const, Define, Index, Segments, TensorType, integer
from tensorexpr.traversal import walk

LEAST_SHARE = 4
"""Parts of the last cache that an output has to exceed one of before it is written past it."""
LINE = 64
LEAST_ROW = 512
"""Bytes of a row from which on it is fetched ahead: within shorter ones the processor sees what comes by itself."""
MOST_STREAMED = 32
"""Operations per byte of a result up to which it is memory that it waits for."""
LEAST_FETCHED = 2
"""Operations per byte of a result from which on loads of a stream come late by themselves."""
AHEAD = 4096
"""Bytes that a stream is fetched ahead."""
MOST_AHEAD = 16
"""Rows that are fetched ahead through a plan."""
MOST_COPIED = 8
"""Vectors of a row up to which they are copied out."""
SHORT_SEGMENTS = 8
"""Points of a segment up to which most of them end before the processor has asked for their rows by itself."""


def write_past(s: Planned) -> None:
    """Writes outputs past the caches where what the function surely touches is more than these hold: its share, and half as
    much again where the cache is larger than all shares, since others seldom use theirs up.

    Not those that come slowly, as a contraction's do, nor small ones, which stay while the large ones go by. How much of a
    table is read through indices that are data nobody knows: one row of it, perhaps.
    """
    program = s.state.program
    types = program.types
    sizes = {name: bytes_of(types[name]) for name in dict.fromkeys((*read_throughout(s), *program.outputs))}
    much = sum(sizes.values()) > min(s.target.l3_bytes, 3 * s.target.last_level // 2)
    for name in s.stages:
        large = [n for n in streamable(s.state, name) if LEAST_SHARE * sizes[n] > s.target.last_level and not _is_in_parts(s, name)]
        few = large and total_work(s.state.stage(name).parts, segment_lengths(s, name)) <= MOST_STREAMED * sum(sizes[n] for n in large)
        if large and s.decisions.wanted(f"{name}: past the caches", bool(much and few)):
            s[name].stream()


def _is_in_parts(s: Planned, name: str) -> bool:
    """Whether lines of a result are written in parts, for which they wait in the caches: lanes lie across it, vectors being turned around,
    or rows side by side begin within a vector."""
    stage, definition = s.state.stage(name), definition_named(s.state.program, name)
    lanes = {axis: stage.extent(x) for x in stage.order if stage.kind(x) == "vectorize" for axis in stage.axes_of(x)}
    if not isinstance(definition, Define) or not lanes:
        return False
    axes = [a.index for a in definition.axes if length(a) > 1]
    if axes[-1] not in lanes:
        return bool(lanes.keys() & set(axes))
    rows = {axis for x in stage.order if stage.kind(x) == "unroll" for axis in stage.axes_of(x)} & set(axes[:-1])
    size = definition.value.dtype.itemsize
    return bool(rows) and length(definition.axes[-1]) * size % min(LINE, size * (lanes[axes[-1]] or 1)) != 0


def segment_lengths(s: Planned, name: str) -> dict[str, int]:
    """How long the segments of sort plans are that a definition sums over, on average, at least 1, where their points are counted."""
    definitions, found = program_facts(s.state.program).definitions, {}
    for group in s.state.stage(name).parts.groups:
        for axis in group.axes:
            plan = definitions.get(axis.stop.tensor) if isinstance(axis.stop, Access) else None
            if isinstance(plan, Segments) and all(isinstance(e, Const) for e in (*plan.extents, *(a.stop for a in plan.axes))):
                points, keys = (prod(map(integer, extents)) for extents in ((a.stop for a in plan.axes), plan.extents))
                found[axis.index] = max(1, points // max(1, keys))
    return found


def fetch_gathered(s: Planned) -> None:
    """Fetches the rows ahead that a sum over the segments of a sort plan reads in the order of the plan: how long segments are nobody can
    foresee, so every short one would wait for its first row."""
    program = s.state.program
    inputs = {i.name: i.type for i in program.inputs}
    for name in s.stages:
        stage = s.state.stage(name)
        lanes = [axis for x in stage.order if stage.kind(x) == "vectorize" for axis in stage.axes_of(x)]
        for axis, points in segment_lengths(s, name).items():
            for access in dict.fromkeys(a for a in accesses_of(program, name) if a.tensor in inputs and len(a.indices) > 1):
                lead, *_, last = access.indices
                if not isinstance(lead, Access) or lead.indices != (Index(axis),) or not lanes or last != Index(lanes[-1]):
                    continue
                size = bytes_of(inputs[access.tensor])
                row = size // max(1, integer(inputs[access.tensor].shape[0])) if size else 0
                if row < LEAST_ROW or size <= s.target.l2_bytes or points > SHORT_SEGMENTS:
                    continue
                before = s.state
                try:
                    if s.decisions.wanted(f"{name}: {access.tensor} by {lead.tensor} ahead"):
                        s[name].prefetch(lead.tensor, axis, max(1, min(MOST_AHEAD, AHEAD // row)))
                except ScheduleError:
                    s.state = before


def fetch_indexed(s: Planned) -> None:
    """Fetches the rows ahead that indices which are inputs lead to: they lie anywhere, so the processor does not see them come. A row of
    a few vectors is copied out, so that the place of a later one is worked out once for all of them."""
    program = s.state.program
    inputs = {i.name: i.type for i in program.inputs}
    for name in s.stages:
        stage = s.state.stage(name)
        if stage.parts.groups or stage.place is not None or len(stage.order) < 2 or stage.kind(stage.order[-1]) != "vectorize":
            continue
        inner, lanes = stage.order[-2], stage.axes_of(stage.order[-1])
        for access in dict.fromkeys(a for a in accesses_of(program, name) if a.tensor in inputs and len(a.indices) > 1):
            lead, *_, last = access.indices
            if not isinstance(lead, Access) or lead.tensor not in inputs or lanes != stage.axes_of(inner)[-1:] or last != Index(lanes[0]):
                continue
            size, loop = bytes_of(inputs[access.tensor]), next((x for x in stage.order if lead.indices == (Index(x),)), None)
            row = size // max(1, integer(inputs[access.tensor].shape[0])) if size else 0
            if loop is None or row < LEAST_ROW or size <= s.target.l2_bytes:
                continue
            before = s.state
            try:
                if s.decisions.wanted(f"{name}: {access.tensor} by {lead.tensor} ahead"):
                    s[name].prefetch(lead.tensor, loop, max(1, min(MOST_AHEAD, AHEAD // row)))
                    if stage.kind(inner) == SERIAL and (stage.extent(inner) or MOST_COPIED + 1) <= MOST_COPIED:
                        s[name].unroll(inner)
            except ScheduleError:
                s.state = before


def read_throughout(s: Planned) -> dict[str, None]:
    """The inputs that some read meets at places that do not depend on data."""
    inputs = {i.name for i in s.state.program.inputs}
    reads = (access for name in s.stages for access in accesses_of(s.state.program, name))
    return dict.fromkeys(
        a.tensor for a in reads if a.tensor in inputs and not any(isinstance(n, Access) for index in a.indices for n in walk(index))
    )


def fetch_rows(s: Planned) -> None:
    """Fetches the next row of what several definitions pass over row by row, where it comes from memory and rows are short enough for
    the first cache."""
    program = s.state.program
    for name in s.stages:
        members = s.state.placed_in(name)
        loops = dict.fromkeys(m.place.loop for m in members if m.place is not None)
        if s.state.stage(name).place is not None or len(loops) != 1:
            continue
        (loop,) = loops
        passes = [dict.fromkeys(a.tensor for a in accesses_of(program, n)) for n in (name, *(m.name for m in members))]
        rows = {}
        for i in program.inputs:
            apart = row_length(s.state, name, i.name, loop)
            often = sum(i.name in tensors for tensors in passes) > 1
            if apart is not None and often and bytes_of(i.type) > s.target.last_level // LEAST_SHARE:
                rows[i.name] = apart * i.type.dtype.itemsize
        if rows and min(rows.values()) >= LEAST_ROW and 2 * sum(rows.values()) <= s.target.l1_bytes:
            for tensor in rows:
                if s.decisions.wanted(f"{name}: {tensor} ahead"):
                    s[name].prefetch(tensor, loop)


def fetch_streams(s: Planned) -> None:
    """Fetches what is read once, side by side, from memory, where so much is computed on it that few iterations are under way at once."""
    program = s.state.program
    for name in s.stages:
        stage, definition = s.state.stage(name), definition_named(program, name)
        if not isinstance(definition, Define) or stage.parts.groups or stage.place is not None or len(stage.order) < 2:
            continue
        outer, inner = stage.order[-2:]
        (lane,) = stage.axes_of(inner) if len(stage.axes_of(inner)) == 1 else (None,)
        made = sum(bytes_of(type_) for _, type_ in definition.results)
        if lane is None or stage.kind(inner) != "vectorize" or total_work(stage.parts) < LEAST_FETCHED * made:
            continue
        for i in program.inputs:
            reads = list(dict.fromkeys(a for a in accesses_of(program, name) if a.tensor == i.name))
            apart = row_length(s.state, name, i.name, outer)
            if bytes_of(i.type) <= s.target.last_level // LEAST_SHARE or apart is None or len(reads) != 1:
                continue
            if reach(reads[0], i.type.shape).stride(lane) == 1 and s.decisions.wanted(f"{name}: {i.name} ahead"):
                s[name].prefetch(i.name, outer, max(1, AHEAD // (apart * i.type.dtype.itemsize)))


def bytes_of(type_: TensorType) -> int:
    """Bytes of a tensor, 0 where its extents are open."""
    if not all(isinstance(extent, Const) for extent in type_.shape):
        return 0
    return type_.dtype.itemsize * prod(int(extent.value) for extent in type_.shape if isinstance(extent, Const))
