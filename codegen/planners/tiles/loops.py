"""The loops of one definition, chosen from strides and reuse: which axis runs in vector lanes, which rows make a tile.

Every access is looked at along every axis: broadcast (stride 0) costs nothing, consecutive elements cost a load per
vector, anything else a gather. The vector axis is the one that costs least: a data axis, whose lanes are elements of the
result, or the axis of a reduction, whose lanes are accumulators. Where some access does not depend on a data axis, rows of
that axis share what it loads: they make a tile of accumulators in registers, as many as fit. There is no list of
kernels: matmul and convolution, their gradients and a row of a softmax come out of the same few rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import combinations, product
from math import inf, prod

from tensorexpr.codegen.planners.tiles.classes import split_classes
from tensorexpr.codegen.planners.tiles.widths import vectors_held, wait_long
from tensorexpr.codegen.planners.tiles.windows import is_window, side_by_side, written_out
from tensorexpr.codegen.schedule.analysis.reductions import Parts
from tensorexpr.codegen.schedule.analysis.residues import classes, in_class, tested
from tensorexpr.codegen.schedule.analysis.state import Stage, State
from tensorexpr.codegen.schedule.analysis.strides import Reach, reach, reaches
from tensorexpr.codegen.schedule.analysis.windows import has_hull, most_points, window
from tensorexpr.codegen.schedule.analysis.work import UNKNOWN_EXTENT, arithmetic, group_work, lengths
from tensorexpr.codegen.schedule.decisions import NO, YES
from tensorexpr.codegen.schedule.legal.legality import runs_in_lanes
from tensorexpr.codegen.schedule.legal.orders import over_windows
from tensorexpr.codegen.schedule.legal.placement import part_of
from tensorexpr.codegen.schedule.schedule import Planned, StageHandle
from tensorexpr.codegen.target import Target
from tensorexpr.dtypes import DType, accumulator
from tensorexpr.ir import Access, Axis, Const, Expr, Index, apply, conjuncts, const
from tensorexpr.records import record, replace
from tensorexpr.traversal import free_names

GATHER = 20
"""What a load of elements that are not consecutive costs, in loads of a vector."""
LOAD = 1.5
"""What a load costs, in multiplications with addition: every other one crosses a cache line."""
LINE = 3.0
"""What a cache line costs that comes from the second level, in the same units."""
FAR_LINE = 7.0
"""What it costs where the second level does not hold what a tile reads."""
BROADCAST = 0.7
"""What a load of one element for all lanes costs: it comes with the arithmetic."""
APART = 1.5
"""How much costlier lines of many rows are that lie a page or more apart: each row is a stream, more than a processor sees coming, and
they may fall on one place of the first level."""
STREAMS = 8
"""Rows from which on that is so."""
NEAR = 8
"""Up to this distance, elements that are not consecutive share cache lines."""
PAGE = 4096
"""Bytes from which on rows are far from each other: a page, and what one way of the first cache holds."""
SERIAL = 0.05
"""What accumulators that wait for themselves cost even where memory takes longer."""
MOST_ROWS = 12
ROWS = (2, 3, 4, 5, 6, 8)
SHORT = 36
"""What an open extent counts where blocks of it are filled up: more may be filled up in vain than blocks of what is long waste."""
OPEN_VECTORS = 2
"""Vectors of a loop of open length over a window, without rows beside it: a shorter one is masked as a whole. Sums along columns go over
rows that lie apart, and read as much of each as they can."""
MOST_BESIDE = 4
"""Elements side by side that are stored together with those of the next lane: each vector is shuffled twice."""
WIDEST_LANES = 4
"""Vectors that one vectorized loop has at most, so that their latencies overlap."""


@record
class Tile:
    """What the planner decided: the vector axis with its lanes, rows per axis, and how many vectors of lanes the tile has
    where the axis is not one loop of them."""

    vector: str | None
    lanes: int
    rows: tuple[tuple[str, int], ...] = ()
    blocks: int = 1
    classes: tuple[tuple[str, int], ...] = ()
    """Axes whose residue classes have loops of their own, each with their number."""
    window: str | None = None
    """The innermost axis of the reduction where its steps share what they read of the rows: they are copied out."""
    steps: tuple[str, int] | None = None
    """An axis of the reduction around lanes along it, and how many steps stand side by side: rows of one read what those of another do."""

    def __str__(self) -> str:
        lanes = f"{self.lanes} {self.vector}" if self.blocks == 1 else f"{self.blocks} x {self.lanes} {self.vector}"
        return ", ".join([*(f"{count} {axis}" for axis, count in self.rows), lanes])


def plan(schedule: Planned, name: str, shapes: dict[str, tuple[Expr, ...]]) -> None:
    """Gives a definition its vector axis and its tile; what turns out to be illegal is tried with less."""
    counts = classes(schedule.state.stage(name).parts)
    planners = [Planner(schedule, name, shapes, given) for given in ((counts, {}) if counts else ({},))]
    if not planners[0].parts.groups:  # where points are computed one by one, a mask may be cheaper than strides
        planners.sort(key=lambda planner: planner.cost)
    planners = schedule.decisions.ranked(f"{name}: residue classes", planners, word=lambda planner: YES if planner.counts else NO)
    for planner in (p for p in planners if p.vectors):
        whole = " without classes" if counts and not planner.counts else ""
        vector = schedule.decisions.choose(f"{name}: lanes along{whole}", planner.vectors)
        others = partial(planner.other_tiles, vector)
        for tile in schedule.decisions.ranked(f"{name}: tile{whole}", planner.tiles(vector), others=others):
            if schedule.tried(_apply, schedule[name], tile):
                return


def vector_cost(schedule: Planned, name: str, shapes: dict[str, tuple[Expr, ...]]) -> float:
    """What a point of a definition costs along the axis that its lanes would have."""
    return Planner(schedule, name, shapes, classes(schedule.state.stage(name).parts)).cost


def vector_axis(schedule: Planned, name: str, shapes: dict[str, tuple[Expr, ...]]) -> str | None:
    """The axis that the lanes of a definition would have, if there is one."""
    return next(iter(Planner(schedule, name, shapes, {}).vectors), None)


def _apply(handle: StageHandle, tile: Tile) -> None:
    """Splits the axes of the tile, puts its loops innermost, rows unrolled around the vector.

    Residue classes are copied out: around the reductions, or without any inside the lanes, whose stores then fill what lies
    between theirs. So are few elements of each lane that lie side by side.
    """
    loop_of, around, within = split_classes(handle, tile)
    beside = _beside_lanes(handle._stage, tile)
    vector = None if tile.vector is None else loop_of.get(tile.vector, tile.vector)
    stage = handle._stage
    inner: list[str] = []
    kinds: list[str] = []
    for axis, count in (*tile.rows, *([] if vector is None else [(vector, tile.lanes)])):
        axis = loop_of.get(axis, axis)
        extent = stage.extent(axis)
        kind = "vectorize" if axis == vector else "unroll"
        if extent == count:
            made: tuple[str, ...] = (axis,)
        else:
            if stage.group_of(axis) is None:
                tail = "shift" if extent is None or extent >= count else "guard"
            else:  # a rest whose length is known only when it runs is masked
                tail = "guard" if extent is None else "peel"
            made = handle.split(axis, count, tail)
        if axis == beside:
            continue
        if kind == "vectorize" and tile.blocks > 1:
            inner += made
            kinds += ["unroll", kind]
        else:
            inner.append(made[-1])
            kinds.append(kind)
    if beside is not None:
        handle.unroll(beside)
        within.append(beside)
    if tile.steps is not None:
        inner.insert(0, handle.split(*tile.steps, "peel")[1])
        kinds.insert(0, "unroll")
    rest = [x for x in handle.loops if x not in inner and x not in around and x not in within]
    if tile.window in rest and all(handle._stage.group_of(x) is not None for x in rest[rest.index(tile.window) :]):
        rest = [*(x for x in rest if x != tile.window), tile.window]
    first = next((at for at, x in enumerate(rest) if handle._stage.group_of(x) is not None), len(rest))
    handle.reorder(*rest[:first], *around, *rest[first:], *inner, *within)
    for loop, kind in zip(inner, kinds, strict=True):
        if kind == "vectorize":
            handle.vectorize(loop)
        else:
            handle.unroll(loop)
    if tile.window is not None and tile.window in handle.loops and handle.loops.index(tile.window) == len(handle.loops) - len(inner) - 1:
        handle.unroll(tile.window)


def _beside_lanes(stage: Stage, tile: Tile) -> str | None:
    """The last axis where it has few elements, lanes go along the axis before it, and nothing is summed up: colors of pixels, components of
    points."""
    axes = stage.parts.axes
    if len(axes) < 2 or stage.parts.groups or tile.classes or tile.vector != axes[-2].index or stage.order[-1] != axes[-1].index:
        return None
    last, extent = axes[-1].index, stage.extent(axes[-1].index)
    return last if extent is not None and 1 < extent <= MOST_BESIDE and dict(tile.rows).get(last, extent) == extent else None


class Planner:
    """Looks at the loops of one definition, along one residue class of each axis in `counts`."""

    def __init__(self, schedule: Planned, name: str, shapes: dict[str, tuple[Expr, ...]], counts: dict[str, int]) -> None:
        self.state: State = schedule.state
        self.stage: Stage = self.state.stage(name)
        self.parts: Parts = in_class(self.stage.parts, counts)
        self.counts = counts
        self.tested = tested(self.stage.parts)
        self.target: Target = schedule.target
        self.shapes = shapes
        (value,) = self.parts.values
        self.dtype = accumulator(value.dtype)
        # Without reductions, lanes of all classes are stored together; else each class by itself.
        apart = counts if self.parts.groups else {}
        elements = tuple(apply("mul", Index(a.index), const(apart.get(a.index, 1))) for a in self.parts.axes)
        self.store = reach(Access(name, elements, value.dtype), shapes[name])
        settled: set[str] = set()
        if self.stage.place is not None:
            part = part_of(self.state, name)
            settled = {a.index for a, p, n in zip(self.parts.axes, part.points, part.lengths, strict=True) if p is not None and n is None}
        self.lengths = lengths(self.parts)
        every = (*self.parts.axes, *(a for g in self.parts.groups for a in g.axes))
        self.open = {a.index for a in every if self.lengths[a.index] == UNKNOWN_EXTENT and _constant_length(a) is None}
        self.data = [a for a in self.parts.axes if self.lengths[a.index] > 1 and a.index not in settled]
        top = [g for g in self.parts.groups if g.scope is None]
        self.main = max(top, key=lambda g: group_work(self.parts, g, self.lengths), default=None)
        exprs = (value,) if self.main is None else tuple(v for m in self.main.members for v in m.values)
        exprs = exprs if self.main is None else over_windows(self.parts, self.main, exprs)
        self.exprs = exprs
        self.reads = reaches(exprs, shapes)
        self.lane_count = self.target.lanes(self.dtype)
        # Where the bounds of a reduction depend on data that an axis chooses, its points have loops of their own.
        bounds = [(a, {n for e in (a.start, a.stop) for n in free_names(e)}) for g in self.parts.groups for a in g.axes]
        self.apart = {
            a.index for a in self.data if any(a.index in names and window(r, frozenset({a.index})) is None for r, names in bounds)
        }
        # The same where no hull of the bounds over a block of its points can be run through either.
        self.alone = {a for a in self.apart if any(a in names and not has_hull(r, frozenset({a})) for r, names in bounds)}
        costs = sorted(self._vector_axes(), key=lambda found: found[0])
        self.cost = costs[0][0] if costs else inf
        self.vectors = [axis for _, axis in costs]

    def _lanes(self, axis: str) -> int:
        """Lanes of the widest element that differs between the lanes of an axis."""
        types: list[DType] = [r.access.dtype for r in self.reads if r.stride(axis) and not r.access.dtype.is_bool]
        types += [accumulator(v.dtype) for v in self.exprs if not v.dtype.is_bool]
        return min((self.target.lanes(accumulator(t)) for t in types), default=self.target.lanes(self.dtype))

    def tiles(self, vector: str) -> list[Tile]:
        """Tiles with lanes along an axis to try, best first."""
        self.lane_count = self._lanes(vector)
        return self._complete(vector, self._lane_tiles(vector) if self._is_reduction(vector) else self._column_tiles(vector))

    def other_tiles(self, vector: str) -> list[Tile]:
        """Further tiles with lanes along an axis, best first, for those who measure: rows of several axes, more and fewer vectors."""
        reduced = () if self.main is None else self.main.axes
        extent = next(_constant_length(a) for a in (*self.parts.axes, *reduced) if a.index == vector)
        if self.main is None or vector not in (*self.main.depends, *self.main.indices):
            wide = (n * self.lane_count for n in (1, 2, WIDEST_LANES, 2 * WIDEST_LANES))
            return self._complete(vector, [Tile(vector, self._fitted(extent, lanes)) for lanes in wide])
        axes = [(a.index, self.lengths[a.index]) for a in self._row_axes(vector)]
        found: list[tuple[float, int, Tile]] = []
        for vectors in range(1, WIDEST_LANES + 1):
            lanes = vectors * self.lane_count
            if extent is not None and vectors > 1 and lanes >= extent + self.lane_count:
                break
            for rows in ((), *_row_choices(axes, self.target.registers, range(2, MOST_ROWS + 1))):
                count = prod(n for _, n in rows)
                if count * vectors + min(vectors, count) + 1 > self.target.registers:
                    continue
                cost = self._tile_cost(vector, lanes, rows) * self.waste(vector, lanes) * prod(self.waste(*row) for row in rows)
                found.append((cost, len(found), self._tile(vector, extent, lanes, rows)))
        return self._complete(vector, [tile for _, _, tile in sorted(found)])

    def _complete(self, vector: str, found: list[Tile]) -> list[Tile]:
        """The tiles with the windows and the classes that follow from their axes."""
        found = [replace(tile, window=written_out(self, tile), steps=side_by_side(self, tile)) for tile in found]
        return [replace(tile, classes=self._classes(vector, *dict(tile.rows))) for tile in found]

    def _classes(self, *axes: str) -> tuple[tuple[str, int], ...]:
        return tuple((axis, count) for axis, count in self.counts.items() if axis in axes or axis in self.tested)

    def _is_reduction(self, axis: str) -> bool:
        return all(a.index != axis for a in self.parts.axes)

    # --------------------------------------------------------------------------------------------------- vector axis

    def _vector_axes(self) -> Iterator[tuple[float, str]]:
        """The axes that may run in lanes, each with what a vector of it costs."""
        unproved = {n for access, axis in self.parts.unproved for n in free_names(access.indices[axis])}
        for axis in self.data:
            if axis.index in unproved or axis.index in self.apart or self.lengths[axis.index] < 2:
                continue
            cost = self._loads(axis) + self._store_cost(axis)
            yield cost * self.waste(axis.index, self._lanes(axis.index)), axis.index
        if self.main is not None and runs_in_lanes(self.main) and not any(g.scope is not None for g in self.parts.groups):
            around = {n for a in self.main.axes for e in (a.start, a.stop) for n in free_names(e)}
            for axis in self.main.axes:
                lanes = self._lanes(axis.index)
                if axis.index in around:
                    continue  # lanes are innermost, and where another axis ends depends on this one
                if axis.index in unproved or self.lengths[axis.index] < lanes // 2:
                    continue
                rounds = max(1.0, self.lengths[axis.index] / lanes)
                others = 1.0
                for a in self.main.axes:
                    others *= 1 if a is axis else max(1, self.lengths[a.index])
                yield (self._loads(axis) + 1.0 * lanes / (rounds * others) + 0.25) * self.waste(axis.index, lanes), axis.index

    def _loads(self, axis: Axis) -> float:
        """Arithmetic and loads of one vector; rows of another axis share a load that does not depend on it."""
        cost = 1.0
        for r in self.reads:
            together = (a for a in self.data if a is not axis and a.index not in self.apart)
            shared = [self.lengths[a.index] for a in together if not r.stride(a.index)]
            in_reduction = self.main is not None and any(r.stride(a.index) for a in self.main.axes)
            cost += _load_cost(r.stride(axis.index)) / (min(8, max(shared, default=1)) if in_reduction else 1)
        return cost

    def _store_cost(self, axis: Axis) -> float:
        stride = self.store.stride(axis.index)
        once = 1.0 if stride == 1 else GATHER * (0.5 if abs(stride) <= NEAR else 1.0)
        if self.main is None:
            return once
        visits = 1
        for a in self.main.axes:
            visits *= self.lengths[a.index]
        return once / max(1, visits)

    def waste(self, axis: str, block: int) -> float:
        """How much is computed per element that counts along an axis in blocks, the last of which is filled up or overlaps the one before:
        of one that is open half a block on `SHORT` elements."""
        extent = self.lengths[axis]
        return 1 + (block - 1) / 2 / SHORT if axis in self.open else -(-extent // block) * block / max(1, extent)

    def last_first(self, axes: Iterable[Axis]) -> list[Axis]:
        """Axes in the order in which they are tried: open ones from the last on, as those in front are short batches at times."""
        found = list(axes)
        return sorted(found, key=lambda a: (a.index in self.open, -found.index(a) if a.index in self.open else 0))

    # --------------------------------------------------------------------------------------------------------- tiles

    def _column_tiles(self, vector: str) -> list[Tile]:
        """Lanes along a data axis; rows of another one where some load does not depend on it."""
        axis = next(a for a in self.parts.axes if a.index == vector)
        extent = _constant_length(axis)
        found: list[Tile] = []
        if self.main is not None and vector in self.main.depends:
            best: tuple[float, Tile] | None = None
            for row in self._row_axes(vector):
                count = self.lengths[row.index]
                for rows in range(1, min(MOST_ROWS, count) + 1):
                    for vectors in range(1, WIDEST_LANES + 1):
                        lanes = vectors * self.lane_count
                        if extent is not None and lanes > max(self.lane_count, -(-extent // self.lane_count) * self.lane_count):
                            continue
                        if rows * vectors + vectors + 1 > self.target.registers:
                            continue
                        cost = self._tile_cost(vector, lanes, ((row.index, rows),))
                        cost *= self.waste(vector, lanes) * self.waste(row.index, rows)
                        if best is None or cost < best[0] - 1e-9:
                            best = cost, self._tile(vector, extent, lanes, ((row.index, rows),) if rows > 1 else ())
            if best is not None:
                found.append(best[1])
            short = vector in self.open and self.open.isdisjoint(a.index for a in self.main.axes)
            wide = min(self._wide(vector), OPEN_VECTORS * self.lane_count) if short else self._wide(vector)
            found.append(self._tile(vector, extent, wide, ()))
        wide = self.lane_count * WIDEST_LANES
        long = inf if len(self.parts.axes) == 1 else None  # a loop alone takes no time where it is short
        known = long if extent is None else extent
        if self.main is None and wait_long(self.exprs, (*self.reads, self.store), vector, known, wide):
            found.append(Tile(vector, wide))
        found.append(Tile(vector, self._fitted(extent, self.lane_count, vector)))
        return found

    def _lane_tiles(self, vector: str) -> list[Tile]:
        """Lanes along a reduction; rows of one or two data axes."""
        assert self.main is not None
        axis = next(a for a in self.main.axes if a.index == vector)
        extent = _constant_length(axis)
        axes = self._row_axes(vector)
        best: tuple[float, Tile] | None = None
        for rows in _row_choices([(a.index, self.lengths[a.index]) for a in axes], self.target.registers):
            cost = self._tile_cost(vector, self.lane_count, rows)
            cost *= prod(self.waste(*row) for row in rows)
            if best is None or cost < best[0] - 1e-9:
                best = cost, Tile(vector, self._fitted(extent, self.lane_count), rows)
        found = [] if best is None else [best[1]]
        most = most_points(next(a for a in self.main.axes if a.index == vector))
        wide = self._wide(vector) if most is None else min(self._wide(vector), max(1, -(-most // self.lane_count)) * self.lane_count)
        found.append(Tile(vector, self._fitted(extent, wide)))
        found.append(Tile(vector, self._fitted(extent, self.lane_count)))
        return found

    def _row_axes(self, vector: str) -> list[Axis]:
        assert self.main is not None
        depends = self.main.depends
        rows = [a for a in self.data if a.index != vector and a.index in depends and a.index not in self.apart]
        rows = [a for a in rows if any(not r.stride(a.index) for r in self.reads)]
        near = [a for a in rows if not any(self._is_window_far(r, vector, a.index) for r in self.reads)]
        # Rows that are off at times are kept apart by jumps, and share nothing where lanes are masked beside; without any masks they make
        # tiles of their own at the borders.
        tests = [set(free_names(e)) for c in self.main.where for e in conjuncts(c)]
        bounds = [(a, {*free_names(a.start), *free_names(a.stop)}) for a in self.main.axes]
        # A short axis over a window of a row is written out for the tiles between borders.
        tests += [names for a, names in bounds if not any(names == {row.index} and is_window(self, a, row) for row in near)]
        # Loops of the reduction around lanes of it are cut at the borders: between them no row is off.
        cut = {a.index for a in self.main.axes if a.index != vector and self._is_reduction(vector) and _constant_length(a) is not None}
        asked = {n for names in tests if vector not in names and not names & cut for n in names}
        masked = any(vector in names for names in tests)
        return self.last_first([a for a in near if a.index not in asked] or (near if len(near) == len(rows) or not masked else []))

    def _is_window_far(self, r: Reach, vector: str, row: str) -> bool:
        """Whether rows have windows of their own of what is read, pages from each other, and share little: side by side they drive each
        other out of the first cache before the next points read the same again."""
        assert self.main is not None
        if not r.stride(vector) or abs(r.stride(row)) * r.access.dtype.itemsize < PAGE:
            return False
        moved = {
            a.index for a in self.data for along in self.main.axes if r.stride(a.index) and _among(r.stride(a.index), r.stride(along.index))
        }
        shared = (
            prod(self.lengths[n] for n in o.strides if n in self.lengths) * o.access.dtype.itemsize for o in self.reads if not o.stride(row)
        )
        return bool(moved) and row not in moved and sum(shared) <= self.target.l1_bytes // 2

    def _tile_cost(self, vector: str, lanes: int, rows: tuple[tuple[str, int], ...]) -> float:
        """Cost per useful vector operation: arithmetic, or loads where those are more."""
        vectors = lanes / self.lane_count
        work, loads, lines = vectors, 0.0, 0.0
        for _, count in rows:
            work *= count
        for r in self.reads:
            each = 1.0
            for index, count in rows:
                each *= count if r.stride(index) else 1
            stride = r.stride(vector)
            loads += each * (vectors * _load_cost(stride) if stride else BROADCAST)
            if stride:
                near = 1.0
                for index, count in rows:
                    near *= count if abs(r.stride(index)) * count > self.lane_count else 1
                    near *= APART if count >= STREAMS and abs(r.stride(index)) * r.access.dtype.itemsize >= PAGE else 1.0
                lines += near * vectors
        each_point = max(1, sum(arithmetic(v) for m in self.main.members for v in m.values)) if self.main is not None else 1
        # Few independent accumulators leave the pipelines of the multiplier idle: eight keep them busy.
        depth = max(1.0, 8.0 / work)
        # Where everything moves along the lanes, other lanes read nothing of it again: it makes no difference how many are side by side.
        beside = self.lengths[vector] if all(r.stride(vector) for r in self.reads) else lanes
        line = FAR_LINE if self._bytes_of_pass(vector, beside, dict(rows)) > self.target.l2_bytes else LINE
        return max(each_point * work * depth, LOAD * loads, line * lines) / work + 0.1 * loads / work + SERIAL * (depth - 1)

    def _bytes_of_pass(self, vector: str, lanes: int, rows: dict[str, int]) -> float:
        """What a tile reads over the whole reduction, about."""
        total = 0.0
        for r in self.reads:
            elements = float(lanes if r.stride(vector) and not self._is_reduction(vector) else 1)
            for index, count in rows.items():
                elements *= count if r.stride(index) else 1
            for axis in self.main.axes if self.main is not None else ():
                elements *= self.lengths[axis.index] if r.stride(axis.index) else 1
            total += elements * r.access.dtype.itemsize
        return total

    def _tile(self, vector: str, extent: int | None, lanes: int, rows: tuple[tuple[str, int], ...]) -> Tile:
        """A tile of a few vectors; where the axis is no whole number of them, as vectors side by side of which the last overlaps."""
        if extent is not None and self.lane_count < extent < lanes:
            return Tile(vector, self.lane_count, rows, -(-extent // self.lane_count))
        return Tile(vector, self._fitted(extent, lanes, vector if len(rows) == 0 else None), rows)

    def _wide(self, vector: str) -> int:
        axes = () if self.main is None else self.main.axes
        return self.lane_count * vectors_held(WIDEST_LANES, self.exprs, self.reads, vector, axes, self.target.registers)

    def _fitted(self, extent: int | None, lanes: int, vector: str | None = None) -> int:
        """The lanes of a loop: of an axis shorter than a vector, enough for all of it.

        Where single loads of `vector` are gathers, lanes that are off do not come for free: exactly the axis.
        """
        if extent is None:
            return lanes
        if extent <= self.lane_count:
            scattered = vector is not None and any(abs(r.stride(vector)) > 1 for r in (*self.reads, self.store))
            return extent if scattered else 1 << (extent - 1).bit_length()
        whole = extent * self.counts.get(vector, 1) if vector is not None else extent
        if whole % self.lane_count == 0 and extent < WIDEST_LANES * self.lane_count and extent % self.lane_count:
            return extent  # classes stored side by side end with a whole vector: none is stored twice
        while lanes > extent:
            lanes -= self.lane_count
        return max(lanes, min(extent, self.lane_count))


def _among(step: int, stride: int) -> bool:
    """Whether steps along one axis lie between, or on, those along another."""
    return stride != 0 and stride % step == 0 and abs(stride) <= NEAR * abs(step)


def _row_choices(axes: list[tuple[str, int]], registers: int, alone: Sequence[int] = ROWS) -> Iterator[tuple[tuple[str, int], ...]]:
    """Numbers of rows along up to three axes, of which the accumulators and one operand fit the registers."""
    for size in range(1, min(3, len(axes)) + 1):
        for chosen in combinations(axes, size):
            for counts in product(*([n for n in (alone if size == 1 else ROWS) if n <= extent] for _, extent in chosen)):
                if prod(counts) + min(counts) + 1 <= registers:
                    yield tuple((name, n) for (name, _), n in zip(chosen, counts, strict=True))


def _constant_length(axis: Axis) -> int | None:
    if isinstance(axis.start, Const) and isinstance(axis.stop, Const):
        return max(0, int(axis.stop.value) - int(axis.start.value))
    return None


def _load_cost(stride: int) -> float:
    match abs(stride):
        case 0:
            return 0.0
        case 1:
            return 1.0
        case 2:
            return 2.5
    return float(GATHER)
