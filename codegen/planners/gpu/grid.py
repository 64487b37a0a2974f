"""The default schedule of a GPU: which loops are the grid, which the threads of a block, what a thread holds in registers.

The same steps as on a CPU come first (terms computed again, producers inlined, scans swept, rows shared); then definitions get one of two
forms:

- rows: a block or a warp per point of the outer axes, its threads the lanes of a long reduction (or of the last axes of what is computed
  row by row), combined in a fixed order (see `planners.tiles.threads`). This is for reductions that are long where points are few, or whose
  elements lie side by side along the reduction, and for what shares the rows of its reader;
- tiles: a block per tile of two axes of a contraction, its operands in shared memory, step by step (see `planners.gpu.blocks`;
  on tensor cores where they multiply what is to be multiplied, see `planners.gpu.mma`).

All others are left without loops of a GPU, which the search gives them (`auto.tiles.grids`).
"""

from __future__ import annotations

from tensorexpr.codegen.planners.gpu.blocks import operands_to_stage, plan_block, product_tiles, ranked_products, ranked_tiles, tiles_of
from tensorexpr.codegen.planners.gpu.mma import plan_mma
from tensorexpr.codegen.planners.gpu.parts import in_parts, parts_of_columns, parts_of_product
from tensorexpr.codegen.planners.gpu.scatters import plan_gpu_scatter, plan_gpu_segments, take_gpu_scatters_apart
from tensorexpr.codegen.planners.tiles.threads import (
    data_loops,
    fused,
    plan_rows_of_gpu,
    wants_rows,
)
from tensorexpr.codegen.schedule.analysis.state import definition_named
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.ir import Define, Expr, Scatter, Segments

Shapes = dict[str, tuple[Expr, ...]]


def plan_gpu(s: Planned, shapes: Shapes, flat: set[str]) -> None:
    """Gives every definition the loops of a GPU; those of `flat` wait for the search."""
    shapes = take_gpu_scatters_apart(s, shapes)
    for name in s.stages:
        if name not in flat and s.state.stage(name).place is None and not s.state.placed_in(name):
            for what, found in (("product", parts_of_product), ("columns", parts_of_columns)):
                parts = found(s, name, shapes)
                if parts is not None and s.decisions.wanted(f"{name}: {what} in parts"):
                    s.tried(in_parts, s, name, *parts)
                    break
    shapes = {**shapes, **{name: type_.shape for name, type_ in s.state.program.types.items()}}
    for name in s.stages:
        if name not in flat and s.state.stage(name).place is None:
            for tensor, order in operands_to_stage(s, name, shapes):
                if s.decisions.wanted(f"{name}: {tensor} staged"):
                    s.tried(_staged, s, name, tensor, order)
    shapes = {**shapes, **{name: type_.shape for name, type_ in s.state.program.types.items()}}
    for name in s.stages:
        if name not in s.state.table or name in flat or s.state.stage(name).place is not None:
            continue
        definition = definition_named(s.state.program, name)
        hosted = [m.name for m in s.state.placed_in(name)]
        match definition:
            case Define() if _has_tiles(s, name, shapes) and s.decisions.wanted(f"{name}: tiles of blocks"):
                products = ranked_products(s, name, shapes)
                if products and not s.decisions.wanted(f"{name}: tensor cores"):
                    products = []
                tensor_cores = any(s.tried(plan_mma, s, name, tile) for tile in products)
                if not tensor_cores:
                    any(s.tried(plan_block, s, name, tile) for tile in ranked_tiles(s, name, shapes))
            case Define() if s.decisions.wanted(f"{name}: a block per point", bool(hosted) or wants_rows(s, name, shapes)):
                if not s.tried(plan_rows_of_gpu, s, name, hosted, shapes) and hosted:
                    s.tried(_threads, s, name)
            case Scatter():
                s.tried(plan_gpu_scatter, s, definition)
            case Segments():
                s.tried(plan_gpu_segments, s, name)


def _has_tiles(s: Planned, name: str, shapes: Shapes) -> bool:
    return bool(tiles_of(s, name, shapes) or product_tiles(s, name, shapes))


def _staged(s: Planned, name: str, tensor: str, order: tuple[int, ...]) -> None:
    s[name].stage(tensor, order)


def _threads(s: Planned, name: str) -> None:
    """rewrite: [i, j, k..., r...] --> [i_j_k: parallel, r...]: a thread per point of the loops over data."""
    data = data_loops(s.state.stage(name))
    if data:
        s[name].reorder(*data, *(x for x in s[name].loops if x not in data))
        s[name].parallel(fused(s, name, data))
