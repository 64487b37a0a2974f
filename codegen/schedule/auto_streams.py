"""Sums down the columns of something large: accumulators for a long piece of a row, so that memory is walked through in order.

Where a reduction reads each element once and runs over an outer axis of it, registers hold accumulators for a few vectors
of columns alone, and every row would be visited for these few: a new page and a broken stream each time. A row of
accumulators in the first cache costs a load and a store per vector and element instead, which memory is slower than.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tensorexpr.codegen.schedule.legality import COMMUTATIVE
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.codegen.schedule.strides import reaches
from tensorexpr.codegen.schedule.work import lengths
from tensorexpr.dtypes import accumulator
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Expr

WIDE = 4
"""Vectors in one vectorized loop."""
LONGEST, SHORTEST = 4096, 256
"""Columns of a piece."""
ACCUMULATORS = 16 << 10
"""Bytes of accumulators: half of a first cache."""
LEAST = 1 << 18
"""Elements below which everything is near anyway."""


def plan_stream(s: Planned, name: str, shapes: Mapping[str, tuple[Expr, ...]]) -> bool:
    """Gives a definition such loops where it is a sum down columns; says whether it is."""
    before = s.state
    try:
        if _planned(s, name, shapes):
            return True
    except ScheduleError:
        pass
    s.state = before
    return False


def _planned(s: Planned, name: str, shapes: Mapping[str, tuple[Expr, ...]]) -> bool:
    stage = s.state.stage(name)
    parts = stage.parts
    if len(parts.groups) != 1 or not parts.axes or stage.place is not None or s.state.placed_in(name):
        return False
    (group,), long = parts.groups, lengths(parts)
    column = next((a.index for a in reversed(parts.axes) if long[a.index] > 1), parts.axes[-1].index)
    extent = stage.extent(column)
    values = tuple(v for m in group.members for v in m.values)
    if extent is None or extent < 2 * SHORTEST or prod(long.values()) < LEAST or any(stage.extent(x) is None for x in group.indices):
        return False
    if group.where or group.guard or column not in group.depends or any(m.combiner.name not in COMMUTATIVE for m in group.members):
        return False
    reached = reaches(values, shapes)
    names = {x for x in (*group.depends, *group.indices) if long.get(x, 1) > 1}  # the step of a scan around stands still
    in_rows = all(
        not r.stride(column) or (abs(r.stride(column)) == 1 and all(abs(r.stride(x)) != 1 for x in group.indices)) for r in reached
    )
    if not in_rows or not any(names <= set(r.strides) and r.stride(column) == 1 for r in reached):
        return False
    # Where rows of another axis could share what a column loads, tiles of registers are better.
    others = [a.index for a in parts.axes if a.index != column]
    if any(not r.stride(x) for r in reached if r.stride(column) for x in others if long[x] > 1):
        return False
    wide = WIDE * min(s.target.lanes(accumulator(v.dtype)) for v in values)
    most = ACCUMULATORS // sum(accumulator(v.dtype).itemsize for v in values)
    outer, pieces = prod(long[x] for x in others), -(-extent // min(LONGEST, most))
    while outer * pieces < s.target.cores and extent // (2 * pieces) >= SHORTEST:
        pieces *= 2
    block = extent if pieces == 1 else -(-extent // (pieces * wide)) * wide  # equal ones: the last begins further in front
    sizes = dict.fromkeys(n // wide * wide for n in (SHORTEST // 2, SHORTEST, 2 * SHORTEST, 4 * SHORTEST, LONGEST) if wide <= n <= extent)
    block = s.decisions.choose(f"{name}: columns of a piece", [block], others=lambda: (*sizes, 0))
    if not block:
        return False
    handle = s[name]
    blocks, inner = handle.split(column, block, "shift") if block < extent else (None, column)
    middle, lane = handle.split(inner, wide)
    handle.reorder(*others, *([] if blocks is None else [blocks]), *group.indices, middle, lane)
    handle.vectorize(lane)
    return True
