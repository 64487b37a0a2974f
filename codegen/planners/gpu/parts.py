"""Reductions with few results and many points, taken apart so that all multiprocessors have some of it.

    C[j] = sum(X[i, j] for i)                 columns: threads take neighboring points of a part each
    C[i, j] = sum(A[i, k] * B[k, j] for k)    products whose tiles are fewer than multiprocessors, or small so that they are as many
    -->  P[p, ...] = the sum over part p;  C[...] = sum(P[p, ...] for p)

How many parts a product has, says the count of clocks that tiles are chosen by, with the partial results written and read again beside it.
"""

from __future__ import annotations

from itertools import accumulate, takewhile
from math import prod

from tensorexpr.codegen.planners.gpu import mma
from tensorexpr.codegen.planners.gpu.blocks import tiles_of, timed_tiles, views_of
from tensorexpr.codegen.planners.gpu.views import Shapes, View
from tensorexpr.codegen.planners.tiles.parts import even_block
from tensorexpr.codegen.planners.tiles.threads import LONG, RESIDENT, WIDTHS, main_group, side_by_side
from tensorexpr.codegen.schedule.analysis.reductions import Group
from tensorexpr.codegen.schedule.analysis.state import Stage, definition_named
from tensorexpr.codegen.schedule.analysis.strides import reaches
from tensorexpr.codegen.schedule.analysis.work import lengths
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.ir import Const, Define
from tensorexpr.records import replace

Cuts = tuple[tuple[str, int], ...]
"""Axes of a reduction, each with the length of its parts."""
PART = 16
"""Points of a reduction that a thread adds up at least where columns are taken apart."""
FEW_PARTS = 4
"""Parts of a column below which it is left whole."""
PARTS_OF_PRODUCT = tuple(1 << k for k in range(1, 9))
LEAST_POINTS = 128
"""Points along the reduction of a part of a product at least."""
MEMORY = 2400
"""Bytes that all multiprocessors together move in a clock."""
LAUNCH = 4400
"""Clocks from a kernel to the next."""
GAIN = 1.1
"""How much faster a product in parts must be by the count."""


def parts_of_columns(s: Planned, name: str, shapes: Shapes) -> Cuts | None:
    """The axes of a reduction to take apart, where points are few and their elements lie side by side: its longest, or the first ones where
    these have far more parts."""
    stage = s.state.stage(name)
    group = main_group(stage)
    if group is None or not stage.parts.axes or not isinstance(definition_named(s.state.program, name), Define):
        return None
    long = lengths(stage.parts)
    points, results = prod(long[a] for a in group.indices), prod(long[a.index] for a in stage.parts.axes)
    if points < LONG or not _lies_across(stage, group, shapes) or tiles_of(s, name, shapes):
        return None
    fixed = takewhile(lambda a: isinstance(a.start, Const) and isinstance(a.stop, Const), group.axes)
    most = min(points // PART, s.target.cores * RESIDENT // max(1, results))

    def parts_of(run: tuple[str, ...]) -> int:
        return min(prod(long[a] for a in run), most)

    runs: list[tuple[str, ...]] = [(max(group.indices, key=lambda a: long[a]),), *accumulate((a.index,) for a in fixed)]
    most_found = max(map(parts_of, runs))
    best = next(run for run in sorted(runs, key=len) if 2 * parts_of(run) >= most_found)
    if parts_of(best) < FEW_PARTS:
        return None
    each = max(1, most // prod(long[a] for a in best[:-1]))
    cuts: list[tuple[str, int]] = [(a, 1) for a in best[:-1]]
    return (*cuts, (best[-1], even_block(long[best[-1]], each)))


def _lies_across(stage: Stage, group: Group, shapes: Shapes) -> bool:
    """Whether a warp of neighboring results reads lines of memory at a step of the reduction, or shares elements: neighbors along the last
    axis or, where that is short, along the last ones."""
    long = lengths(stage.parts)
    if long[stage.parts.axes[-1].index] >= WIDTHS[0]:
        along, across = side_by_side(stage, group, shapes)
        return not along and across > 0
    for read in reaches(tuple(v for m in group.members for v in m.values), shapes):
        results = read_elements = 1
        for axis in reversed(stage.parts.axes):
            stride = abs(read.stride(axis.index))
            if results >= WIDTHS[0] or not any(read.stride(a) for a in group.indices):
                break
            if stride not in (0, read_elements) and long[axis.index] > 1:
                return False
            results, read_elements = results * long[axis.index], read_elements * (long[axis.index] if stride else 1)
    return prod(long[a.index] for a in stage.parts.axes) >= WIDTHS[0]


def parts_of_product(s: Planned, name: str, shapes: Shapes) -> Cuts | None:
    """The axis of a product of matrices to take apart, and the length of a part: one of constant length, into as many equal parts as the
    count of clocks says; None where the whole is about as fast."""
    if not isinstance(definition_named(s.state.program, name), Define):
        return None
    stage, views = s.state.stage(name), views_of(s, name, shapes)
    if not views:
        return None
    (group,) = stage.parts.groups
    if group.members[0].combiner.name != "sum" or len(group.members) != 1:
        return None
    fixed = [a for a in (*stage.parts.axes, *group.axes) if isinstance(a.start, Const) and isinstance(a.stop, Const)]
    if len(fixed) != len(stage.parts.axes) + len(group.axes) or any(map(_is_tested, views)):
        return None
    long = lengths(stage.parts)
    points, results = prod(long[a] for a in group.indices), prod(long[a.index] for a in stage.parts.axes)
    whole = _clocks(s, name, views, shapes, points)
    best: tuple[float, Cuts] | None = None
    for axis in group.indices:
        for parts in PARTS_OF_PRODUCT:
            if long[axis] % parts or points // parts < LEAST_POINTS:
                break
            taken = _clocks(s, name, [_part(view, axis, parts) for view in views], shapes, points // parts)
            taken += 2 * 4 * results * parts / MEMORY + LAUNCH
            if taken * GAIN < whole and (best is None or taken < best[0]):
                best = (taken, ((axis, long[axis] // parts),))
    return None if best is None else best[1]


def in_parts(s: Planned, name: str, *cuts: tuple[str, int]) -> None:
    """rewrite: C[j] = sum(X[i, j] for i) --> P[p, j] = sum(X[p*b + i, j] for i in b); C[j] = sum(P[p, j] for p)."""
    (axis, length), *further = cuts
    for part in s[name].rfactor(axis if length == 1 else s[name].split(axis, length)[0]):
        if further:
            in_parts(s, part, *further)


def _is_tested(view: View) -> bool:
    """Whether classes or conditions take more than a test of a point of the reduction that is the same for all threads of a block."""
    apart = view.tested & (view.side(view.row) | view.side(view.column))
    return not view.filled and bool(view.counts or apart)


def _part(view: View, axis: str, parts: int) -> View:
    """A view of one of so many parts of an axis of the reduction."""
    shorter = {view.step: view.lengths[view.step] // parts} if axis in view.side(view.step) else {}
    return replace(view, others=view.others * parts, lengths={**view.lengths, axis: view.lengths[axis] // parts, **shorter})


def _clocks(s: Planned, name: str, views: list[View], shapes: Shapes, points: int) -> float:
    """The clocks of the best tile; where there is none, as many as a thread for each result takes, at a fortieth of the rate."""
    products = mma.timed_tiles(s, name, views, shapes)
    others = timed_tiles(s, name, views)
    best = products[:1] or others[:1]
    if best:
        return best[0][0] * points
    lengths_ = views[0].lengths
    return 40.0 * views[0].others * lengths_[views[0].row] * lengths_[views[0].column] * points / (128 * s.target.cores)
