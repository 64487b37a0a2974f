"""Contractions on a GPU: a block of threads computes a tile of two axes, each thread a few rows and columns of it in registers.

    [i, j, k]  -->  [i_o_j_o: parallel, k_o, k_i, rows: unroll, columns: unroll, threads: vectorize]    operands cached at k_o

Of two data axes each must have an operand that the other leaves where it is. What a step along the reduction reads of the operands
is cached in shared memory (`cache`), the axis that threads go along last, so that a thread reads four neighbors at once and no two
threads of a warp meet in a bank. A thread's columns are groups of four, so far apart that the groups of neighboring threads lie
side by side; its rows likewise.

Which tile, says a count of the time that the blocks take on all multiprocessors: of a point of the reduction, by what takes longer, the
operations of a block (points beyond the ends included), its accesses of shared memory, or a warp by itself, in as many rounds as blocks do
not fit on the multiprocessors at once. Tiles of few rows and columns of a thread wait for shared memory, few blocks for themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, prod

from tensorexpr.codegen.planners.gpu import mma
from tensorexpr.codegen.planners.gpu.views import (
    View,
    as_grid,
    best_view,
    blocks_of,
    by_classes,
    in_squares,
    joined_points,
    steps_of,
)
from tensorexpr.codegen.schedule.analysis.strides import Reach
from tensorexpr.codegen.schedule.analysis.work import total_work
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.codegen.target import Gpu
from tensorexpr.ir import Const, Expr, Index, integer
from tensorexpr.records import record
from tensorexpr.regions import affine_of

Shapes = dict[str, tuple[Expr, ...]]
TILES = (
    (128, 128, 16, 8),
    (128, 128, 8, 8),
    (64, 128, 8, 8),
    (128, 64, 8, 8),
    (64, 64, 8, 8),
    (64, 128, 4, 8),
    (128, 64, 8, 4),
    (64, 64, 8, 4),
    (64, 64, 4, 4),
    (64, 32, 4, 2),
    (32, 64, 2, 4),
    (32, 32, 2, 2),
)
"""Tiles of a block: rows, columns, and how many of both a thread has. The first is the work of 128 threads, the others of `TEAM`."""
TEAM = 256
GROUP = 4
"""Neighbors that a thread reads at once from shared memory."""
STEP = 1024
"""Elements of the larger operand that a step along the reduction reads: four of each thread."""
MANY = 64
"""Results of a thread beyond which a step is twice as long, as fewer threads load what it reads, and beyond which there is no room for
conditions and further addresses."""
LEAST_DEPTH = 8
"""Points of a step at least."""
MULTIPLIED = 106
"""Products of float32 of a multiprocessor in a clock: of 128 that there are, beside the loads of what is multiplied."""
REGISTERS = 1 << 16
"""Registers of a multiprocessor."""
BESIDE = 32
"""Registers of a thread beside its results, and what it multiplies for these: a quarter as many."""
LATENCY = 700
"""Clocks that a warp alone waits in a step: for the copies of the next one, and at barriers."""
COPIED = 8
"""Elements that a block reads and puts into shared memory in a clock."""
MOST_WASTE = 3.0
"""Points beyond the ends of the axes that a tile may have, to points within."""
READS = 1 << 8
"""Operations for each element of an operand from which on a copy of it costs next to nothing."""
FAST_READS = 1 << 11
"""The same on tensor cores, of a copy that is no longer in the second cache when it is read."""
CACHED = 4
"""Copies of an operand that the second cache has room for."""
BLOCKS = 2
"""Blocks that run beside each other on a multiprocessor."""
FEW_BLOCKS = 8
"""Blocks per multiprocessor up to which the last ones to run count as a whole round."""


@record
class Tile:
    """A tile of a block over two axes, the points of a step along the reduction, and how many rows and columns a thread has."""

    view: View
    depth: int
    rows: int
    columns: int
    thread_rows: int
    thread_columns: int

    @property
    def threads(self) -> int:
        """How many have its work."""
        return self.rows * self.columns // (self.thread_rows * self.thread_columns)

    def __str__(self) -> str:
        few = f" of {self.threads} threads" if self.threads < TEAM else ""
        row, column = ("_".join((*self.view.joined.get(axis, ()), axis)) for axis in (self.view.row, self.view.column))
        return f"{self.rows} {row}, {self.columns} {column}{few}"


def ranked_tiles(s: Planned, name: str, shapes: Shapes) -> list[Tile]:
    """The tiles that pay, behind the one that is asked for."""
    return s.decisions.ranked(f"{name}: tile of a block", tiles_of(s, name, shapes))


def tiles_of(s: Planned, name: str, shapes: Shapes) -> list[Tile]:
    """The tiles that pay, best first."""
    return [tile for _, tile in timed_tiles(s, name, views_of(s, name, shapes))]


def timed_tiles(s: Planned, name: str, views: list[View]) -> list[tuple[float, Tile]]:
    """The tiles of some views that pay, best first, each with the clocks of a point of the reduction."""
    known = (view for view in views if not (view.joined and view.tested) or (view.filled and not view.counts))
    return sorted((found for view in known for found in _timed(s, name, view)), key=lambda pair: pair[0])


def _timed(s: Planned, name: str, view: View) -> Iterator[tuple[float, Tile]]:
    stage = s.state.stage(name)
    row, column, step, lengths = view.row, view.column, view.step, view.lengths
    for sizes in TILES:
        depth = STEP // max(sizes[:2]) * (2 if sizes[2] * sizes[3] > MANY else 1)
        while depth > LEAST_DEPTH and lengths[step] < 2 * depth:
            depth //= 2
        tile = Tile(view, depth, *sizes)
        across = [ceil(lengths[x] / b) for x, b in ((row, tile.rows), (column, tile.columns))]
        blocks, waste = view.others * prod(across), prod(across) * tile.rows * tile.columns / (lengths[row] * lengths[column])
        if waste > MOST_WASTE or 2 * blocks < s.target.cores or lengths[step] < 2 * tile.depth:
            continue
        whole = waste == 1 and lengths[step] % depth == 0 and all(stage.extent(x) is not None for x in (row, column, step))
        if sizes[2] * sizes[3] > MANY and not (whole and _is_plain(view)):
            continue
        rounds = blocks / s.target.cores
        rounds = ceil(rounds) if rounds < FEW_BLOCKS else rounds
        shared = tile.threads / mma.WARP * (tile.thread_rows + tile.thread_columns) + (tile.rows + tile.columns) / COPIED
        own = tile.thread_rows * tile.thread_columns
        waves = ceil(blocks / s.target.cores / max(1, REGISTERS // (tile.threads * (BESIDE + own + own // 4))))
        yield max(rounds * max(tile.rows * tile.columns / MULTIPLIED, shared), waves * (own + LATENCY / depth)), tile


def _is_plain(view: View) -> bool:
    """Whether a contraction is a product of matrices, or many: what it adds up and where that lies takes few registers beside results."""
    small = all(r.access.dtype.bits <= 32 for r in view.operands)
    return small and not view.tested and all(isinstance(i, Index) for r in view.operands for i in r.access.indices)


def operands_to_stage(s: Planned, name: str, shapes: Shapes) -> list[tuple[str, tuple[int, ...]]]:
    """The operands of a contraction whose elements lie side by side neither along its tile nor along its steps, as the weights of a
    convolution: a copy of such an operand with one of these axes last is read in whole lines. Only where each
    element is read often enough that the copy costs next to nothing, and it stays in the second cache.

    For tensor cores also operands whose lines begin anywhere, as those of a window that moves by single points: a copy with another axis
    last has lines that begin at multiples of sixteen bytes, as asynchronous copies take them."""
    products = product_tiles(s, name, shapes)
    tiles = [tile.view for tile in (products or tiles_of(s, name, shapes))]
    if not tiles:
        return []
    view, work = tiles[0], total_work(s.state.stage(name).parts)
    rounds = isinstance(s.target, Gpu) and s.target.precision == "tf32"
    found = []
    for reach in view.operands:
        tensor, shape = reach.access.tensor, shapes[reach.access.tensor]
        # A step's lines go to shared memory as they lie: along the tile, but as factors of TF32 come, which are loaded along the steps.
        axes = (view.step, view.row, view.column) if rounds else (view.row, view.column, view.step)
        near = {a: abs(reach.stride(a)) for a in axes if reach.stride(a)}
        places = {i.name: k for k, i in enumerate(reach.access.indices) if isinstance(i, Index)}
        once = sum(r.access.tensor == tensor for r in view.operands) == 1
        if not once or not all(isinstance(e, Const) for e in shape):
            continue
        elements = prod(integer(e) for e in shape)
        axis = next((a for a in near if a in places), None) if min(near.values(), default=1) > 1 else None
        pays = elements * READS <= work and elements * reach.access.dtype.itemsize * CACHED <= s.target.l3_bytes
        if products and reach.access.dtype.bits == 16 and not any(_in_lines(reach, a, shape) for a in near):
            whole = [a for a in near if a in places and integer(shape[places[a]]) % mma.LINE == 0]
            axis, pays = next(iter(whole), axis), pays or bool(whole and elements * FAST_READS <= work)
        if axis is not None and pays:
            found.append((tensor, (*(k for k in range(len(shape)) if k != places[axis]), places[axis])))
    return found


def _in_lines(reach: Reach, axis: str, shape: tuple[Expr, ...]) -> bool:
    """Whether elements side by side along an axis may be taken sixteen bytes at a time: lines of them begin at multiples of that."""
    form = affine_of(reach.access.indices[-1])
    if form is None or reach.stride(axis) != 1 or form.coefficient(axis) != 1 or integer(shape[-1]) % mma.LINE:
        return False
    return form.constant % mma.LINE == 0 and all(factor % mma.LINE == 0 for atom, factor in form.terms if atom != axis)


def _side(s: Planned, name: str, axis: str, block: int, own: int) -> tuple[list[str], list[str], str]:
    """A loop as its blocks (none where it is one), what a thread has of one, and the threads."""
    handle = s[name]
    blocks, inner = blocks_of(s, name, axis, block)
    groups, neighbors = handle.split(inner, min(own, GROUP))
    if own <= GROUP:
        return blocks, [neighbors], groups
    apart, threads = handle.split(groups, block // own)
    return blocks, [apart, neighbors], threads


def ranked_products(s: Planned, name: str, shapes: Shapes) -> list[mma.Tile]:
    """The tiles of a contraction on tensor cores that pay, behind the one that is asked for; none where it is no product of theirs."""
    found = product_tiles(s, name, shapes)
    return s.decisions.ranked(f"{name}: tile of warps", found) if found else []


def product_tiles(s: Planned, name: str, shapes: Shapes) -> list[mma.Tile]:
    """The tiles of a contraction on tensor cores that pay, best first: with axes joined to its sides where these fill tiles better."""
    return [tile for _, tile in mma.timed_tiles(s, name, views_of(s, name, shapes), shapes)]


def views_of(s: Planned, name: str, shapes: Shapes) -> list[View]:
    """How a contraction looks from its best tile, and from that with axes joined to its sides."""
    if not has_tiles(s, name):
        return []
    views = [best_view(s.state.stage(name), shapes, joins) for joins in (False, True)]
    return [view for view in views if view is not None]


def has_tiles(s: Planned, name: str) -> bool:
    """Whether a definition may be computed in tiles at all."""
    stage = s.state.stage(name)
    return len(stage.parts.groups) == 1 and not stage.parts.unproved and stage.scan is None and not s.state.placed_in(name)


def plan_block(s: Planned, name: str, tile: Tile) -> None:
    """rewrite: [i, j, k] --> [i_o_j_o: parallel, k_o, k_i, i_...: unroll, j_...: unroll, i_j: vectorize], operands cached at k_o."""
    handle, stage, view = s[name], s.state.stage(name), tile.view
    (group,) = stage.parts.groups
    grid, points_of = by_classes(s, name, view)
    along_rows, along_columns = (joined_points(s, name, view, axis, points_of) for axis in (view.row, view.column))
    row_blocks, rows, row_threads = _side(s, name, along_rows, tile.rows, tile.thread_rows)
    column_blocks, columns, column_threads = _side(s, name, along_columns, tile.columns, tile.thread_columns)
    steps, points = steps_of(s, name, joined_points(s, name, view, view.step, {}), tile.depth)
    rest = [i for i in group.indices if i not in view.side(view.step)]
    sizes = (tile.rows, tile.columns, tile.depth)
    grid += in_squares(s, name, view, row_blocks, column_blocks, sizes, BLOCKS * s.target.cores)
    handle.reorder(*grid, *rest, steps, points, *rows, *columns, row_threads, column_threads)
    threads = handle.fuse(row_threads, column_threads)
    for loop in (points, *rows, *columns):
        handle.unroll(loop)
    handle.vectorize(threads)
    as_grid(s, name, grid)
    for tensor, along in view.cached():
        handle.cache(tensor, steps, tuple(sorted(range(len(along)), key=lambda axis: along[axis])), bool(view.joined))
