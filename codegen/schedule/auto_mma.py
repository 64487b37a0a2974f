"""Contractions on the tensor cores of a GPU: a block of warps computes a tile of two axes, each warp tiles of an instruction.

    [i, j, k]  -->  [i_o_j_o: parallel, k_o, k_i, i...: unroll, j...: unroll, threads: vectorize]    operands cached at k_o

The threads are laid out as `mma` spreads its accumulators: lane 4 r + c of a warp has rows r and r + 8 of 16 and columns 2 c and
2 c + 1 of 8, so that the loops over k inside are that instruction (the emitter finds this, see `cuda.mma`). Operands are cached as they
lie, so that whole lines of them are copied sixteen bytes at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from tensorexpr import dtypes
from tensorexpr.codegen.schedule.legality import is_ordered
from tensorexpr.codegen.schedule.schedule import Schedule
from tensorexpr.codegen.schedule.strides import Reach
from tensorexpr.codegen.target import Gpu
from tensorexpr.ir import Access, Apply, Cast, Expr
from tensorexpr.regions import affine_of
from tensorexpr.traversal import free_names

WARPS = (2, 4)
"""Warps of a block along rows and columns."""
TILES = ((128, 128), (128, 64), (64, 64), (32, 64), (32, 32))
"""Rows and columns of a tile of floats of 16 bits, or of 32."""
TILES_F64 = ((64, 64), (32, 64), (32, 32))
DEPTHS = (32, 16)
"""Points of a step along k, in 16 bits; a half of them in 32 and in 64."""
MOST_WASTE = 1.5


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of a block: its axes and lengths, and the axis and the length of a step."""

    row: str
    column: str
    step: str
    rows: int
    columns: int
    depth: int
    halves: bool

    def __str__(self) -> str:
        return f"{self.rows} {self.row}, {self.columns} {self.column} by {self.depth} {self.step}"


def multiplies(value: Expr, precision: str) -> dtypes.DType | None:
    """The dtype of the factors where a value is a product that tensor cores make: of 16-bit floats (added up in float32) or float64;
    of float32 where "tf32" was asked for."""
    value = value.arg if isinstance(value, Cast) and value.dtype is dtypes.float32 else value
    if not isinstance(value, Apply) or value.op.name != "mul":
        return None
    factors = [x.arg if isinstance(x, Cast) and x.dtype is dtypes.float32 else x for x in value.args]
    a, b = (x.dtype if isinstance(x, Access) else None for x in factors)
    made = (dtypes.float16, dtypes.bfloat16, dtypes.float64, *([dtypes.float32] if precision == "tf32" else []))
    return a if a is b and a in made else None


def mma_tiles(s: Schedule, name: str, row: str, column: str, step: str) -> list[Tile]:
    """The tiles of a contraction on tensor cores, best first; none where it is no such product, or small."""
    stage = s.state.stage(name)
    (group,) = stage.parts.groups
    values = [v for m in group.members for v in m.values]
    precision = s.target.precision if isinstance(s.target, Gpu) else "float32"
    dtype = multiplies(values[0], precision) if len(values) == 1 and group.members[0].combiner.name == "sum" else None
    if dtype is None or group.where or group.guard or is_ordered(group):
        return []
    wide = dtype is not dtypes.float64
    lengths = {a.index: stage.extent(a.index) or 0 for a in (*stage.parts.axes, *group.axes)}
    depth = next((d for d in ((n if dtype.bits == 16 else n // 2) for n in DEPTHS) if lengths[step] % d == 0 and lengths[step] > d), None)
    if depth is None:
        return []
    others = prod(lengths[a.index] for a in stage.parts.axes if a.index not in (row, column))
    ranked = []
    for rows, columns in TILES if wide else TILES_F64:
        across = [ceil(lengths[row] / rows), ceil(lengths[column] / columns)]
        blocks, waste = others * prod(across), prod(across) * rows * columns / (lengths[row] * lengths[column])
        if waste > MOST_WASTE or 2 * blocks < s.target.cores:
            continue
        # A step brings rows + columns, for rows * columns products.
        ranked.append(
            (ceil(blocks / s.target.cores) * (rows * columns + 24 * (rows + columns)), Tile(row, column, step, rows, columns, depth, wide))
        )
    return [tile for _, tile in sorted(ranked, key=lambda pair: pair[0])]


def plan_mma(s: Schedule, name: str, tile: Tile, operands: list[Reach]) -> None:
    """rewrite: [i, j, k] --> [i_o_j_o: parallel, k_o, k_i, rows: unroll, columns: unroll, threads: vectorize], operands cached at k_o."""
    handle, stage = s[name], s.state.stage(name)
    (group,) = stage.parts.groups
    warp_rows, row_tiles = tile.rows // WARPS[0] // (16 if tile.halves else 8), tile.columns // WARPS[1] // 8

    def blocks_of(axis: str, length: int) -> tuple[str | None, str]:
        if stage.extent(axis) == length:
            return None, axis
        return handle.split(axis, length, "guard")

    row_blocks, rows = blocks_of(tile.row, tile.rows)
    column_blocks, columns = blocks_of(tile.column, tile.columns)
    unrolled = []
    rest, row_lane = handle.split(rows, 8)
    if tile.halves:
        rest, half = handle.split(rest, 2)
        unrolled.append(half)
    row_warp, tiles = handle.split(rest, warp_rows)
    unrolled.insert(0, tiles)
    rest, neighbor = handle.split(columns, 2)
    rest, column_lane = handle.split(rest, 4)
    column_warp, tiles = handle.split(rest, row_tiles)
    unrolled += [tiles, neighbor]
    steps, points = handle.split(tile.step, tile.depth)
    others = [a.index for a in stage.parts.axes if a.index not in (tile.row, tile.column)]
    blocks = [*others, *(x for x in (row_blocks, column_blocks) if x is not None)]
    around = [i for i in group.indices if i != tile.step]
    handle.reorder(*blocks, *around, steps, points, *unrolled, row_warp, column_warp, row_lane, column_lane)
    threads = handle.fuse(handle.fuse(handle.fuse(row_warp, column_warp), row_lane), column_lane)
    for loop in (points, *unrolled):
        handle.unroll(loop)
    handle.vectorize(threads)
    if blocks:
        grid = blocks[0]
        for further in blocks[1:]:
            grid = handle.fuse(grid, further)
        handle.parallel(grid)
    for reach in operands:
        access = reach.access
        along = any({tile.row, tile.column} & set(free_names(i)) for i in access.indices)
        if along and all(affine_of(i) is not None for i in access.indices):
            handle.cache(access.tensor, steps, tuple(range(len(access.indices))))
