"""The default schedule of a GPU: which loops are the grid, which the threads of a block, what a thread holds in registers.

The same steps as on a CPU come first (terms computed again, producers inlined, scans swept, rows shared); then every definition
gets one of three forms:

- points: all data axes are one loop of threads, each computing its points from beginning to end; neighbors along the last axis
  touch neighboring elements. Rows of an axis along which some operand stays the same are unrolled in the thread, as many as
  divide the extent, so that what it loads is used again;
- rows: a block or a warp per point of the outer axes, its threads the lanes of a long reduction (or of the last axes of what is computed
  row by row), combined in a fixed order (see `planners.tiles.threads`). This is for reductions that are long where points are few, or whose
  elements lie side by side along the reduction, and for what shares the rows of its reader;
- tiles: a block per tile of two axes of a contraction, its operands in shared memory, step by step (see `planners.gpu.blocks`;
  on tensor cores where they multiply what is to be multiplied, see `planners.gpu.mma`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tensorexpr.codegen.planners.gpu.blocks import operands_to_stage, plan_block, product_tiles, ranked_products, ranked_tiles, tiles_of
from tensorexpr.codegen.planners.gpu.mma import plan_mma
from tensorexpr.codegen.planners.gpu.parts import in_parts, parts_of_columns, parts_of_product
from tensorexpr.codegen.planners.gpu.scatters import plan_gpu_scatter, plan_gpu_segments, take_gpu_scatters_apart
from tensorexpr.codegen.planners.gpu.turned import plan_turned, turn_of
from tensorexpr.codegen.planners.tiles.threads import (
    PACK,
    RESIDENT,
    data_loops,
    done,
    fused,
    main_group,
    plan_rows_of_gpu,
    wants_rows,
)
from tensorexpr.codegen.schedule.analysis.state import Stage, definition_named
from tensorexpr.codegen.schedule.analysis.strides import reaches
from tensorexpr.codegen.schedule.analysis.work import lengths
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.ir import Access, Define, Expr, Scan, Scatter, Segments
from tensorexpr.traversal import free_names, walk

Shapes = dict[str, tuple[Expr, ...]]
ROWS = (8, 4, 2)
"""Rows that a thread computes at once."""
ONE = ("", 1)


def plan_gpu(s: Planned, shapes: Shapes, flat: frozenset[str]) -> None:
    """Gives every definition the loops of a GPU; those of `flat` have them, which become the grid."""
    shapes = take_gpu_scatters_apart(s, shapes)
    for name in s.stages:
        if name not in flat and s.state.stage(name).place is None and not s.state.placed_in(name):
            for what, found in (("product", parts_of_product), ("columns", parts_of_columns)):
                parts = found(s, name, shapes)
                if parts is not None and s.decisions.wanted(f"{name}: {what} in parts"):
                    done(s, in_parts, name, *parts)
                    break
    shapes = {**shapes, **{name: type_.shape for name, type_ in s.state.program.types.items()}}
    for name in s.stages:
        if name not in flat and s.state.stage(name).place is None:
            for tensor, order in operands_to_stage(s, name, shapes):
                if s.decisions.wanted(f"{name}: {tensor} staged"):
                    done(s, _staged, name, tensor, order)
    shapes = {**shapes, **{name: type_.shape for name, type_ in s.state.program.types.items()}}
    for name in s.stages:
        if name not in s.state.table or s.state.stage(name).place is not None:
            continue
        if name in flat:
            s[name].parallel(s[name].loops[0])
            continue
        definition = definition_named(s.state.program, name)
        hosted = [m.name for m in s.state.placed_in(name)]
        match definition:
            case Define() if _has_tiles(s, name, shapes) and s.decisions.wanted(f"{name}: tiles of blocks"):
                products = ranked_products(s, name, shapes)
                if products and not s.decisions.wanted(f"{name}: tensor cores"):
                    products = []
                tensor_cores = any(done(s, plan_mma, name, tile) for tile in products)
                if not tensor_cores and not any(done(s, plan_block, name, tile) for tile in ranked_tiles(s, name, shapes)):
                    done(s, _points, name, shapes)
            case Define() if s.decisions.wanted(f"{name}: a block per point", bool(hosted) or wants_rows(s, name, shapes)):
                if not done(s, plan_rows_of_gpu, name, hosted, shapes):
                    done(s, _points, name, shapes)
            case Define():
                turn = turn_of(s, name, shapes)
                wanted = turn is not None and s.decisions.wanted(f"{name}: squares turned around")
                if not wanted or not done(s, plan_turned, name, turn):
                    done(s, _points, name, shapes)
            case Scan():
                done(s, _swept, name)
            case Scatter():
                done(s, plan_gpu_scatter, definition)
            case Segments():
                done(s, plan_gpu_segments, name)


def _has_tiles(s: Planned, name: str, shapes: Shapes) -> bool:
    return bool(tiles_of(s, name, shapes) or product_tiles(s, name, shapes))


def plan_points(s: Planned) -> None:
    """A thread per point of every definition that has points of its own: the plain form on a GPU."""
    for name in s.stages:
        if isinstance(definition_named(s.state.program, name), Define):
            done(s, _threads, name)


def _staged(s: Planned, name: str, tensor: str, order: tuple[int, ...]) -> None:
    s[name].stage(tensor, order)


def _points(s: Planned, name: str, shapes: Shapes) -> None:
    """rewrite: [i, j, k..., r...] --> [i_j_k: parallel, r..., rows: unroll]: a thread per point, or per few rows of them."""
    stage = s.state.stage(name)
    handle = s[name]
    inner: list[str] = []
    lanes = _neighbors(s, stage)
    if lanes > 1:
        _, lane = handle.split(stage.parts.axes[-1].index, lanes)
        handle.vectorize(lane)
        inner = [lane]
    axis, count = s.decisions.choose(
        f"{name}: rows of a thread",
        [_row_axis(s, stage, shapes) or ONE],
        others=lambda: [ONE, *((a.index, n) for a in stage.parts.axes[:-1] for n in ROWS if (stage.extent(a.index) or 1) % n == 0)],
        word=lambda rows: f"{rows[1]} {rows[0]}".strip(),
    )
    if count > 1:
        _, unrolled = handle.split(axis, count)
        handle.unroll(unrolled)
        inner = [unrolled, *inner]
    _threads(s, name, inner)


def _threads(s: Planned, name: str, inner: Sequence[str] = ()) -> None:
    """rewrite: [i, j, k..., r...] --> [i_j_k: parallel, r..., inner...]: a thread per point of the loops over data that are not `inner`."""
    data = [x for x in data_loops(s.state.stage(name)) if x not in inner]
    if data:
        rest = [x for x in s[name].loops if x not in data and x not in inner]
        s[name].reorder(*data, *rest, *inner)
        s[name].parallel(fused(s, name, data))


def _neighbors(s: Planned, stage: Stage) -> int:
    """How many neighboring points a thread computes where there is no reduction: sixteen bytes of the widest element."""
    if stage.parts.groups or not stage.parts.axes:
        return 1
    widest = max(n.dtype.itemsize for v in stage.parts.values for n in walk(v) if isinstance(n, Access) or n is v)
    lanes, extent = PACK // widest, stage.extent(stage.parts.axes[-1].index)
    points = prod(lengths(stage.parts)[a.index] for a in stage.parts.axes)
    fits = extent is not None and extent % lanes == 0 and points // lanes >= s.target.cores * RESIDENT
    return lanes if fits else 1


def _row_axis(s: Planned, stage: Stage, shapes: Shapes) -> tuple[str, int] | None:
    """An axis along which operands of the main reduction stay where they are, so that rows of it share what is loaded, and how many."""
    group = main_group(stage)
    if group is None or len(stage.parts.axes) < 2:
        return None
    long = lengths(stage.parts)
    points = prod(long[a.index] for a in stage.parts.axes)
    read = [r for r in reaches(tuple(v for m in group.members for v in m.values), shapes) if set(r.strides) & set(group.indices)]
    best: tuple[int, int, str] | None = None
    for axis in stage.parts.axes[:-1]:
        extent = stage.extent(axis.index)
        again = sum(1 for r in read if not r.stride(axis.index))
        # Rows that are not equally long have loops of their own each.
        uneven = any(axis.index in free_names(e) for a in group.axes for e in (a.start, a.stop))
        if extent is None or not again or axis.index not in group.depends or uneven:
            continue
        for count in ROWS:
            if extent % count == 0 and points // count >= s.target.cores * RESIDENT // 8:
                found = (again, count, axis.index)
                best = found if best is None or found > best else best
                break
    return None if best is None else (best[2], best[1])


def _swept(s: Planned, name: str) -> None:
    """A scan whose points do not communicate: a thread per point, the steps in it."""
    if s.state.stage(name).sweep is not None:
        _threads(s, name)
