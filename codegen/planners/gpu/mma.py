"""Contractions on the tensor cores of a GPU: a block of warps computes a tile of two axes, each warp tiles of an instruction.

    [i, j, k]  -->  [i_o_j_o: parallel, k_o, k_i, i...: unroll, j...: unroll, threads: vectorize]    operands cached at k_o

The threads are laid out as `mma` spreads its accumulators: lane 4 r + c of a warp has rows r and r + 8 of 16 and columns 2 c and
2 c + 1 of 8, so that the loops over k inside are that instruction (the emitter finds this, see `cuda.mma`). Operands are cached as they
lie, so that whole lines of them are copied sixteen bytes at a time.

On a GPU that multiplies by warpgroups (sm_90a) there are tiles for these, too: their warps are stacked by fours, 16 rows each, steps are 64
points long, a row of 128 bytes, and what reads shared memory is each product of 64 rows (see `cuda.groups`).

Which tile, says a count of clocks of a multiprocessor: of its tensor cores, of its shared memory (what warps
read, and what copies write) and of the way from the second cache. A block takes as long as the longest of the three and a part of the
others, which do not overlap wholly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import ceil, prod

from tensorexpr import dtypes
from tensorexpr.codegen.planners.gpu.views import (
    Shapes,
    View,
    as_grid,
    blocks_of,
    by_classes,
    in_one_loop,
    in_squares,
    joined_points,
    steps_of,
)
from tensorexpr.codegen.planners.gpu.zeros import zero_beyond
from tensorexpr.codegen.planners.tiles.contraction import reads_within
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.codegen.target import Gpu
from tensorexpr.ir import Access, Apply, Cast, Const, Expr, integer
from tensorexpr.regions import affine_of

TILES = (
    (128, 256, 2, 4), (256, 128, 4, 2), (128, 128, 2, 4), (128, 64, 4, 2), (64, 128, 2, 4), (64, 64, 2, 4), (32, 64, 2, 4), (32, 32, 2, 4),
    (16, 256, 1, 8), (16, 128, 1, 8), (16, 64, 1, 8),
)  # fmt: skip
"""Rows and columns of a tile of floats of 16 bits, or of 32, and the warps of a block along both."""
TILES_OF_PIECES = ((128, 64, 8, 1), (128, 128, 8, 1), (64, 64, 4, 1), (64, 128, 4, 1), (64, 128, 1, 8), (64, 64, 1, 4))
"""The same beside these where one factor is of float32 and goes in pieces, which each warp makes for itself."""
TILES_OF_GROUPS = ((128, 256, 2), (256, 128, 2), (128, 128, 2), (128, 64, 2), (64, 128, 1), (64, 64, 1))
"""Rows and columns of a tile of floats of 16 bits, and the warpgroups of a block, one below the other."""
TILES_F64 = ((64, 64, 2, 4), (32, 64, 2, 4), (32, 32, 2, 4))
DEPTHS = (32, 16)
"""Points of a step along k, in 16 bits; a half of them in 32 and in 64."""
DEPTH_OF_GROUPS = 64
MOST_WASTE = 2.5
"""Points beyond the ends of the axes that a tile may have, to points within: tensor cores are that much faster still."""
MULTIPLIED = 1270
"""Products of 16-bit floats of a multiprocessor in a clock by `mma.sync`: what this instruction reaches of the 2048 that there are."""
MULTIPLIED_IN_GROUPS = 2048
"""The same by `wgmma`: all that there are."""
SHARED_BYTES = 128
"""Bytes that shared memory gives or takes in a clock."""
CACHE_BYTES = 28
"""Bytes that a multiprocessor gets from the second cache in a clock where all of them ask."""
WARP = 32
"""Threads of a warp."""
MOST_SUMS = 128
"""Sums of a thread: half of its registers."""
LINE = 8
"""Elements of 16 bits that an asynchronous copy takes."""
MOST_HELD = 64
"""The same where elements of 16 bits lie in lines of open length, or of one that is no multiple of these: no asynchronous copy takes them,
so those of the next step wait in registers, with places beside them."""
PIECES = 3
"""Products of 16-bit floats that one of these with float32 is."""
TAKEN_APART = 9
"""Numbers of float32 that a multiprocessor takes apart in a clock."""
BESIDE = 0.1
"""The part of a shorter time that is not behind the longest."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of a block: its lengths, the length of a step, whether a lane has two rows of an instruction, the warps along rows and
    columns, and how many warps are stacked for an instruction of a warpgroup (1 for one of a warp)."""

    view: View
    rows: int
    columns: int
    depth: int
    halves: bool
    warps: tuple[int, int]
    stacked: int = 1

    def __str__(self) -> str:
        by = " of warpgroups" if self.stacked > 1 else ""
        return f"{self.rows} {self.view.row}, {self.columns} {self.view.column} by {self.depth} {self.view.step}{by}"


def multiplies(value: Expr, precision: str, shapes: Shapes) -> dtypes.DType | None:
    """The dtype of the factors where a value is a product that tensor cores make: of 16-bit floats (added up in float32) or float64;
    of float32 where "tf32" was asked for. That of the other where one is of float32 and goes in pieces. A factor may be zero beyond the
    ends of its tensor: so is the copy of it."""
    value = value.arg if isinstance(value, Cast) and value.dtype is dtypes.float32 else value
    if not isinstance(value, Apply) or value.op.name != "mul":
        return None
    factors = [x.arg if isinstance(x, Cast) and x.dtype is dtypes.float32 else x for x in value.args]
    factors = [zero_beyond(x, shapes.get(_tensor(x))) or x for x in factors]
    a, b = (x.dtype if isinstance(x, Access) else None for x in factors)
    made = (dtypes.float16, dtypes.bfloat16, dtypes.float64, *([dtypes.float32] if precision == "tf32" else []))
    if {a, b} == {dtypes.bfloat16, dtypes.float32}:
        return dtypes.bfloat16
    return a if a is b and a in made else None


def _tensor(factor: Expr) -> str:
    read = factor.args[1] if isinstance(factor, Apply) and factor.op.name == "where" else factor
    return read.tensor if isinstance(read, Access) else ""


def timed_tiles(s: Planned, name: str, views: list[View], shapes: Shapes) -> list[tuple[float, Tile]]:
    """The tiles of a contraction on tensor cores, best first, each with the clocks of a point of the reduction; none where it is no such
    product, or small, or has conditions that depend on more of a tile than its columns."""
    stage = s.state.stage(name)
    if not views:
        return []
    (group,) = stage.parts.groups
    values = [v for m in group.members for v in m.values]
    if isinstance(s.target, Gpu) and not s.target.tensor_cores:
        return []
    precision = s.target.precision if isinstance(s.target, Gpu) else "float32"
    dtype = multiplies(values[0], precision, shapes) if len(values) == 1 and group.members[0].combiner.name == "sum" else None
    if dtype is None or (group.guard and not (all(map(_is_simple, group.guard)) and reads_within(group, stage.parts.axes, shapes))):
        return []
    lines = [shapes[r.access.tensor][-1] for view in views for r in view.operands]
    length = s.target.lines if isinstance(s.target, Gpu) else 1
    held = dtype.bits == 16 and any((integer(n) if isinstance(n, Const) else length) % LINE for n in lines)
    ranked = [found for view in views for found in _ranked(s, view, dtype, MOST_HELD if held else MOST_SUMS)]
    return sorted(ranked, key=lambda pair: pair[0])


def _is_simple(guard: Expr) -> bool:
    """Whether a guard compares what grows evenly: then one test around a tile stands for those of its points (`lowering.guards`)."""
    forms = [affine_of(e) for e in guard.args] if isinstance(guard, Apply) and guard.op.name in ("lt", "le", "gt", "ge") else [None]
    return not any(form is None or form.has_division() for form in forms)


def _ranked(s: Planned, view: View, dtype: dtypes.DType, most: int) -> list[tuple[float, Tile]]:
    """The tiles of a view with at most so many sums of a thread, each with its time."""
    wide = dtype is not dtypes.float64
    row, column, step, lengths = view.row, view.column, view.step, view.lengths
    depths = [n if dtype.bits == 16 else n // 2 for n in DEPTHS]
    tested = [axis for axis in (row, column, step) if view.side(axis) & view.tested]
    known = tested in ([row], [column]) and view.filled
    of_side = len(tested) == 1 or (step in tested and len(tested) == 2 and dtype.bits == 16)
    if not (known or not tested or (of_side and tested != [step] and not view.joined)) or lengths[step] < 2 * depths[-1]:
        return []
    sizes = tuple(max(r.access.dtype.itemsize for r in view.operands if r.stride(axis)) for axis in (row, column))
    depth = min(depths, key=lambda d: ceil(lengths[step] / d) * d)  # of equals the first
    known_tiles = (*TILES, *(TILES_OF_PIECES if sizes[0] != sizes[1] else ())) if wide else TILES_F64
    made = [Tile(view, rows, columns, depth, wide, (down, beside)) for rows, columns, down, beside in known_tiles]
    if _has_groups(s, dtype) and not tested and sizes[0] == sizes[1] and lengths[step] >= DEPTH_OF_GROUPS:
        made += [Tile(view, rows, columns, DEPTH_OF_GROUPS, wide, (4 * n, 1), 4) for rows, columns, n in TILES_OF_GROUPS]
    ranked = []
    for tile in made:
        across = [ceil(lengths[row] / tile.rows), ceil(lengths[column] / tile.columns)]
        blocks, waste = view.others * prod(across), prod(across) * tile.rows * tile.columns / (lengths[row] * lengths[column])
        sums = tile.rows * tile.columns // (WARP * prod(tile.warps))
        if waste <= MOST_WASTE and 2 * blocks >= s.target.cores and sums <= most:
            ranked.append((ceil(blocks / s.target.cores) * _clocks(tile, *sizes), tile))
    return ranked


def _has_groups(s: Planned, dtype: dtypes.DType) -> bool:
    return isinstance(s.target, Gpu) and s.target.warpgroups and dtype.bits == 16


def _clocks(tile: Tile, of_rows: int, of_columns: int) -> float:
    """The time of a point along k in a block that keeps a multiprocessor busy, by the bytes of an element of both factors."""
    pieces = PIECES if of_rows != of_columns else 1
    multiplied = (
        tile.rows * tile.columns * min(of_rows, of_columns) / 2 / (MULTIPLIED_IN_GROUPS if tile.stacked > 1 else MULTIPLIED) * pieces
    )
    loaded = tile.rows * of_rows + tile.columns * of_columns
    read = tile.warps[1] * tile.rows * of_rows + tile.warps[0] * tile.columns * of_columns
    if tile.stacked > 1:
        read = tile.rows // 64 * (64 * of_rows + tile.columns * of_columns)
    times = [multiplied, (read + loaded) / SHARED_BYTES, loaded / CACHE_BYTES]
    if pieces > 1:
        times.append((tile.warps[1] * tile.rows if of_rows > of_columns else tile.warps[0] * tile.columns) / TAKEN_APART)
    return max(times) + BESIDE * (sum(times) - max(times))


def plan_mma(s: Planned, name: str, tile: Tile) -> None:
    """rewrite: [i, j, k] --> [i_o_j_o: parallel, k_o, k_i, rows: unroll, columns: unroll, threads: vectorize], operands cached at k_o."""
    handle, stage, view = s[name], s.state.stage(name), tile.view
    (group,) = stage.parts.groups
    warp_rows, row_tiles = tile.rows // tile.warps[0] // (16 if tile.halves else 8), tile.columns // tile.warps[1] // 8
    lanes = []
    grid, points_of = by_classes(s, name, view)
    row_blocks, rows = blocks_of(s, name, joined_points(s, name, view, view.row, points_of), tile.rows)
    column_blocks, columns = blocks_of(s, name, joined_points(s, name, view, view.column, points_of), tile.columns)
    unrolled = []
    rest, row_lane = handle.split(rows, 8)
    if tile.halves:
        rest, half = handle.split(rest, 2)
        unrolled.append(half)
    if tile.stacked > 1:
        rest, stack = handle.split(rest, tile.stacked)
        lanes.append(stack)
    row_warp, tiles = handle.split(rest, warp_rows)
    unrolled.insert(0, tiles)
    rest, neighbor = handle.split(columns, 2)
    rest, column_lane = handle.split(rest, 4)
    column_warp, tiles = handle.split(rest, row_tiles)
    unrolled += [tiles, neighbor]
    steps, points = steps_of(s, name, joined_points(s, name, view, view.step, {}), tile.depth)
    around, steps = in_one_loop(s, name, [i for i in group.indices if i not in view.side(view.step)], steps)
    sizes = (tile.rows, tile.columns, tile.depth)
    grid += in_squares(s, name, view, row_blocks, column_blocks, sizes, s.target.cores)
    lanes = [row_warp, column_warp, *lanes, row_lane, column_lane]
    handle.reorder(*grid, *around, steps, points, *unrolled, *lanes)
    threads = reduce(handle.fuse, lanes)
    for loop in (points, *unrolled):
        handle.unroll(loop)
    handle.vectorize(threads)
    as_grid(s, name, grid)
    for tensor, along in view.cached():
        handle.cache(tensor, steps, tuple(range(len(along))))
