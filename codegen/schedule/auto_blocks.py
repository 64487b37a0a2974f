"""Contractions on a GPU: a block of threads computes a tile of two axes, each thread a few rows and columns of it in registers.

    [i, j, k]  -->  [i_o_j_o: parallel, k_o, k_i, rows: unroll, columns: unroll, threads: vectorize]    operands cached at k_o

Of two data axes each must have an operand that the other leaves where it is. What a step along the reduction reads of the operands
is cached in shared memory (`cache`), the axis that threads go along last, so that a thread reads four neighbors at once and no two
threads of a warp meet in a bank. A thread's columns are groups of four, so far apart that the groups of neighboring threads lie
side by side; its rows likewise.

Which tile, says a count of the time that the blocks take on all multiprocessors, by the operations of a block (points beyond the ends
included) and the reads of shared memory beside each of them.
"""

from __future__ import annotations

from math import ceil, prod

from tensorexpr.codegen.schedule import auto_mma as mma
from tensorexpr.codegen.schedule.legality import is_ordered
from tensorexpr.codegen.schedule.reductions import Group
from tensorexpr.codegen.schedule.schedule import Schedule
from tensorexpr.codegen.schedule.state import Stage
from tensorexpr.codegen.schedule.strides import Reach, reaches
from tensorexpr.ir import Const, Expr
from tensorexpr.records import record
from tensorexpr.regions import affine_of
from tensorexpr.traversal import free_names

Shapes = dict[str, tuple[Expr, ...]]
TILES = ((128, 128, 8, 8), (128, 64, 8, 4), (64, 128, 4, 8), (64, 64, 4, 4), (64, 32, 4, 2), (32, 64, 2, 4), (32, 32, 2, 2))
"""Tiles of a block: rows, columns, and how many of both a thread has. All are the work of 256 threads."""
GROUP = 4
"""Neighbors that a thread reads at once from shared memory."""
STEP = 1024
"""Elements of the larger operand that a step along the reduction reads: four of each thread."""
LEAST_DEPTH = 8
"""Points of a step at least."""
SHARED_READ = 0.6
"""The time of a read of shared memory beside that of a multiplication and addition."""
MOST_WASTE = 1.5
"""Points beyond the ends of the axes that a tile may have, to points within."""
FEW_BLOCKS = 8
"""Blocks per multiprocessor up to which the last ones to run count as a whole round."""


@record
class Tile:
    """A tile of a block over two axes, and the axis of the reduction along which it goes in steps of so many
    points."""

    row: str
    column: str
    step: str
    depth: int
    rows: int
    columns: int
    thread_rows: int
    thread_columns: int

    def __str__(self) -> str:
        return f"{self.rows} {self.row}, {self.columns} {self.column}"


def ranked_tiles(s: Schedule, name: str, shapes: Shapes) -> list[Tile]:
    """The tiles that pay, behind the one that is asked for."""
    return s.decisions.ranked(f"{name}: tile of a block", tiles_of(s, name, shapes))


def tiles_of(s: Schedule, name: str, shapes: Shapes) -> list[Tile]:
    """The tiles that pay, best first."""
    stage = s.state.stage(name)
    if len(stage.parts.groups) != 1 or stage.parts.unproved or stage.scan is not None or s.state.placed_in(name):
        return []
    (group,) = stage.parts.groups
    if is_ordered(group) or any(not isinstance(e, Const) for a in group.axes for e in (a.start, a.stop)):
        return []
    lengths = {a.index: stage.extent(a.index) or 0 for a in (*stage.parts.axes, *group.axes)}
    found = _axes(stage, group, lengths, _operands(group, shapes))
    if found is None or min(lengths.values()) < 1:
        return []
    row, column = found
    step = max((a.index for a in group.axes), key=lambda x: lengths[x])
    others = prod(lengths[a.index] for a in stage.parts.axes if a.index not in found)
    ranked: list[tuple[float, Tile]] = []
    for sizes in TILES:
        depth = STEP // max(sizes[:2])
        while depth > LEAST_DEPTH and lengths[step] < 2 * depth:
            depth //= 2
        tile = Tile(row, column, step, depth, *sizes)
        across = [ceil(lengths[x] / b) for x, b in ((row, tile.rows), (column, tile.columns))]
        blocks, waste = others * prod(across), prod(across) * tile.rows * tile.columns / (lengths[row] * lengths[column])
        if waste > MOST_WASTE or 2 * blocks < s.target.cores or lengths[step] < 2 * tile.depth:
            continue
        rounds = blocks / s.target.cores
        rounds = ceil(rounds) if rounds < FEW_BLOCKS else rounds
        reads = 1 / tile.thread_rows + 1 / tile.thread_columns
        ranked.append((rounds * tile.rows * tile.columns * (1 + SHARED_READ * reads), tile))
    return [tile for _, tile in sorted(ranked, key=lambda pair: pair[0])]


def _operands(group: Group, shapes: Shapes) -> list[Reach]:
    values = tuple(v for m in group.members for v in m.values)
    return [r for r in reaches(values, shapes) if set(r.strides) & set(group.indices)]


def _axes(stage: Stage, group: Group, lengths: dict[str, int], operands: list[Reach]) -> tuple[str, str] | None:
    """The two axes of a tile: the largest pair of which each has an operand that the other leaves where it is; the later one, along
    which results lie side by side, has the columns."""
    axes = [a.index for a in stage.parts.axes if a.index in group.depends]
    best: tuple[int, int, tuple[str, str]] | None = None
    for at, row in enumerate(axes):
        for later, column in enumerate(axes[at + 1 :], at + 1):
            first = any(r.stride(row) and not r.stride(column) for r in operands)
            second = any(r.stride(column) and not r.stride(row) for r in operands)
            area = min(lengths[row], 128) * min(lengths[column], 128)
            if first and second and (best is None or (area, later) > best[:2]):
                best = (area, later, (row, column))
    return None if best is None else best[2]


def _side(s: Schedule, name: str, axis: str, block: int, own: int) -> tuple[str, list[str], str]:
    """An axis as its blocks, what a thread has of one, and the threads."""
    handle = s[name]
    outer, inner = (axis, axis) if s.state.stage(name).extent(axis) == block else handle.split(axis, block, "guard")
    groups, neighbors = handle.split(inner, min(own, GROUP))
    if own <= GROUP:
        return outer, [neighbors], groups
    apart, threads = handle.split(groups, block // own)
    return outer, [apart, neighbors], threads


def ranked_products(s: Schedule, name: str, shapes: Shapes) -> list[mma.Tile]:
    """The tiles of a contraction on tensor cores that pay, behind the one that is asked for; none where it is no product of theirs."""
    tiles = tiles_of(s, name, shapes)
    if not tiles:
        return []
    found = mma.mma_tiles(s, name, tiles[0].row, tiles[0].column, tiles[0].step)
    return s.decisions.ranked(f"{name}: tile of warps", found) if found else []


def plan_product(s: Schedule, name: str, tile: mma.Tile, shapes: Shapes) -> None:
    """A contraction on tensor cores (see `auto_mma`)."""
    (group,) = s.state.stage(name).parts.groups
    mma.plan_mma(s, name, tile, _operands(group, shapes))


def plan_block(s: Schedule, name: str, tile: Tile, shapes: Shapes) -> None:
    """rewrite: [i, j, k] --> [i_o_j_o: parallel, k_o, k_i, i_...: unroll, j_...: unroll, i_j: vectorize], operands cached at k_o."""
    handle, stage = s[name], s.state.stage(name)
    (group,) = stage.parts.groups
    operands = _operands(group, shapes)
    row_blocks, rows, row_threads = _side(s, name, tile.row, tile.rows, tile.thread_rows)
    column_blocks, columns, column_threads = _side(s, name, tile.column, tile.columns, tile.thread_columns)
    steps, points = handle.split(tile.step, tile.depth)
    others = [a.index for a in stage.parts.axes if a.index not in (tile.row, tile.column)]
    blocks = [*others, *(x for x, axis in ((row_blocks, tile.row), (column_blocks, tile.column)) if x != axis)]
    rest = [i for i in group.indices if i != tile.step]
    handle.reorder(*blocks, *rest, steps, points, *rows, *columns, row_threads, column_threads)
    threads = handle.fuse(row_threads, column_threads)
    for loop in (points, *rows, *columns):
        handle.unroll(loop)
    handle.vectorize(threads)
    if blocks:
        grid = blocks[0]
        for inner in blocks[1:]:
            grid = handle.fuse(grid, inner)
        handle.parallel(grid)
    for reach in operands:
        access = reach.access
        along = [bool({tile.row, tile.column} & set(free_names(i))) for i in access.indices]
        if any(along) and all(affine_of(i) is not None for i in access.indices):
            handle.cache(access.tensor, steps, tuple(sorted(range(len(along)), key=lambda axis: along[axis])))
