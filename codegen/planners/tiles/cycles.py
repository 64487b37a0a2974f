"""Cycles of a tile of a contraction: what a step of its reduction, its copies and its results cost (see `planners.tiles.contraction`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import ceil, inf, prod

from tensorexpr.codegen.planners.tiles.loops import PAGE, Planner
from tensorexpr.codegen.planners.tiles.windows import MOST_UNROLLED
from tensorexpr.codegen.schedule.analysis.state import definition_named
from tensorexpr.codegen.schedule.analysis.strides import Reach, reach
from tensorexpr.codegen.schedule.analysis.work import UNKNOWN_EXTENT, length
from tensorexpr.codegen.schedule.legal.orders import plain_inside, tested_axes
from tensorexpr.ir import Const, Define, Expr, const, integer

LINE_BYTES = 64
PAGES = 64
"""Pages of memory that a loop may go through again and again before each costs a walk through tables."""
LOAD = 0.65
"""Cycles per load: two start together, but wait for each other at times."""
LATENCY = 4
UNALIGNED = 1.7
"""Loads of a vector that may cross a line, in loads of one that does not."""
BESIDE = 0.2
"""Cycles that each load of a step costs beside what is multiplied meanwhile: it waits for lines, and others wait for it."""
MULTIPLIES = 2
"""Vectors multiplied in one cycle where that holds."""
HIDE = 1.3
"""How much longer than its loads a step must multiply so that it does not matter how many they are."""
HIDDEN = 0.15
"""The part of what memory costs that is not hidden behind arithmetic."""
WAYS = 8
"""Rows up to which lines at one place of the first level stay there together."""
LINE_CYCLES = 1.5
"""What a cache line costs that comes from the second level, beside arithmetic."""
AFAR = 3.0
"""How much costlier a line is that what goes through the second level in between may have pushed out."""
CROSSED, GAPS = 1.5, 3.0
"""Lines per vector that is not aligned, and how much costlier lines are with gaps between them."""
WALK = 30.0
"""What a page costs that is not at hand."""
FRESH = 300.0
"""What steps cost that are the first to touch lines beyond the second level, a page from those before: nothing fetches them ahead, and all
rows wait for them at once."""
STREAM = 256
"""Bytes side by side from which on lines are fetched before they are asked for."""
ALIASED = 50.0
"""What a line costs where lines fall on one place of the cache and push each other out."""
STARTED = 800.0
"""What it costs until a line or two for each step come ahead of the steps (`llvm.emit_ahead` asks for them): so much at most, however far
apart the steps are."""
COPY, COPY_ACROSS = 1.0, 1.6
"""Cycles per element of a copy, in rows and turned around."""
COPY_FAR = 2.0
"""How much costlier it is beyond the second level."""
SCATTER = 20.0
"""Cycles for storing a vector of elements that lie apart."""
MASKED = 1.0
"""Loads that a mask costs: comparing and joining its conditions."""
TURNED = 6.0
"""Cycles for turning around and storing one row of a square of results."""
AWAY = 2.0
"""Cycles of an accumulator that waits in memory until those of the other residue classes are there, with which it is stored."""
OPEN = UNKNOWN_EXTENT + 1
"""What an open extent counts between elements: rows lie whole pages apart by chance alone."""
TOGETHER = 10.0
"""Cycles for adding up the lanes of an accumulator."""


class Cycles:
    """What a step of the reduction costs for each choice of axes and tile."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.target = planner.target
        self.lengths = planner.lengths
        assert planner.main is not None
        self.group = planner.main
        self.lanes = planner.lane_count
        known = {r.access.tensor: _known(planner.shapes[r.access.tensor]) for r in (*planner.reads, planner.store)}
        self.shapes: Mapping[str, tuple[Expr, ...]] = known
        self.reads = tuple(reach(r.access, known[r.access.tensor]) for r in planner.reads)
        self.store = reach(planner.store.access, known[planner.store.access.tensor])
        order = plain_inside(planner.stage, list(planner.stage.order), frozenset(a.index for a in planner.data), planner.lengths)
        self.reduction = [x for x in order if x in self.group.indices]
        self.steps = prod(self.lengths[a] for a in self.reduction)
        self.points = prod(self.lengths[a.index] for a in planner.parts.axes)
        whole = definition_named(planner.state.program, planner.stage.name)
        self.all_points = prod(map(length, whole.axes)) if isinstance(whole, Define) else self.points
        self.constants = {c.name for c in planner.state.program.constants}

    def _window(self, vectors: int, row: str, rows: int, copied: tuple[Reach, ...]) -> str | None:
        """The short axis of the reduction whose steps share most of what they read of the rows; None where none do."""
        found: list[tuple[float, str]] = []
        held = rows * vectors + rows + 2 * vectors  # accumulators, what steps share, and vectors of two steps
        for a in self.reduction if len(self.reduction) > 1 and held <= self.target.registers else ():
            if 1 < self.lengths[a] <= MOST_UNROLLED // (rows * vectors):
                moving = [r for r in self.reads if r not in copied and r.stride(row) and r.stride(a)]
                apart = all(abs(r.stride(row)) * r.access.dtype.itemsize >= LINE_BYTES for r in moving)
                if apart and HIDE * LOAD * (rows * len(moving) + vectors) <= rows * vectors / self.target.multiplies:
                    continue  # each place has a line of its own, and loads hide behind arithmetic anyway
                shared = sum(self._places(r, row, rows, a) / rows for r in moving)
                if shared < len(moving):
                    found.append((shared / len(moving), a))
        return min(found)[1] if found else None

    def _places(self, r: Reach, row: str, rows: int, window: str | None) -> float:
        """How many places a read has along the rows in a step, those that steps of a window share counted once."""
        if window is None or not r.stride(row) or not r.stride(window):
            return rows if r.stride(row) else 1
        steps = self.lengths[window]
        return len({r.stride(row) * i + r.stride(window) * k for i in range(rows) for k in range(steps)}) / steps

    def _lines(self, r: Reach, row: str, rows: int, inner: list[str]) -> float:
        """Lines that a step touches of a read along the rows, where those of the innermost axes are touched once for all their steps."""
        per_line = LINE_BYTES // r.access.dtype.itemsize
        counts = {a: min(self.lengths[a], per_line) for a in inner if r.stride(a)}
        places: dict[int, int] = {}
        for stride, count in ((r.stride(row), rows), *((r.stride(a), n) for a, n in counts.items())):
            places[abs(stride)] = places.get(abs(stride), 1) + count - 1
        lines, span = 1.0, 0
        for stride, count in sorted(places.items()):
            if stride < per_line:
                span += stride * (count - 1)
                lines = 1 + span / per_line
            else:
                lines *= count
        return lines / prod(counts.values())

    def _orders(self, vectors: int, row: str, rows: int, copied: tuple[Reach, ...]) -> Iterator[tuple[list[str], str | None]]:
        """The axes of the reduction, outermost first, in each order to look at: with conditions outermost; as the rows lie in memory where
        the steps of that order are pages apart; and so with a window innermost, which is returned beside."""
        window = self._window(vectors, row, rows, copied)
        if window is None:
            yield self.reduction, None
        moving = [r for r in self.reads if r not in copied and r.stride(row)]
        if moving and len(self.reduction) > 1:
            far = {a: max(abs(r.stride(a)) for r in moving) for a in self.reduction}
            order = sorted(self.reduction, key=lambda a: -far[a])
            if window is not None:
                yield [*(a for a in order if a != window), window], window
            if any(abs(r.stride(self.reduction[-1])) * r.access.dtype.itemsize >= PAGE // 2 for r in moving):
                yield order, None

    def _step(
        self, vector: str, vectors: int, row: str, rows: int, copied: tuple[Reach, ...], order: list[str], window: str | None
    ) -> float:
        """Cycles of one step of the reduction for a whole tile."""
        loads, memory = 0.0, 0.0
        inner, near = order[-1], order is not self.reduction
        for r in self.reads:
            each = self._places(r, row, rows, window if r not in copied else None)
            along, bytes_ = r.stride(vector), r.access.dtype.itemsize
            if r in copied:
                width = vectors * self.lanes if along else each
                loads += vectors if along else each
                memory += LINE_CYCLES * width * bytes_ / LINE_BYTES * self.is_far(width, r)
                continue
            if not any(r.stride(a) for a in self.reduction):
                continue
            if along and abs(along) > 1:
                return inf
            loads += each * vectors * UNALIGNED if along else each
            apart, between = abs(r.stride(inner)) * bytes_, abs(r.stride(row)) * bytes_
            going, together = len(order) - 1, 1
            if near:  # `going` is the innermost axis whose steps lie far apart: it goes on after all steps inside of it
                going = next((k for k in range(len(order) - 1, -1, -1) if abs(r.stride(order[k])) * bytes_ >= PAGE // 2), len(order) - 1)
                apart, together = abs(r.stride(order[going])) * bytes_, prod(self.lengths[a] for a in order[going + 1 :])
            if along:
                # Vectors that may cross a line; where there are gaps between those of two steps, nothing fetches the next ones ahead.
                lines = each * vectors * CROSSED * (GAPS if apart > vectors * LINE_BYTES else 1.0)
            elif near:
                lines = self._lines(r, row, rows, order[-2:])
            elif apart < LINE_BYTES:
                lines = each * apart / LINE_BYTES
                if each > WAYS and between % PAGE == 0:
                    memory += ALIASED / 4 * lines
            else:
                lines = each if between >= LINE_BYTES else 1 + each * between / LINE_BYTES
            memory += LINE_CYCLES * lines * self.is_far(vectors * self.lanes if along else each * self.lanes, r)
            visits = prod(self.lengths[a] for a in order[: going + 1] if r.stride(a))  # outer axes go on where inner ones end
            far = WALK * (each if between >= PAGE else 1) / together if apart >= PAGE // 2 and visits > PAGES else 0.0
            far += ALIASED * lines if apart >= LINE_BYTES and apart % PAGE == 0 and visits > WAYS else 0.0
            if not near and (along or each * between <= 2 * LINE_BYTES):
                far = min(far, STARTED / self.lengths[inner])
            memory += far
            if near and not along and apart >= PAGE // 2:
                fresh = self._fresh(r, rows, order[going + 1 :])
                memory += FRESH * fresh / together / ceil(self.lengths[vector] / (vectors * self.lanes))
        return max(rows * vectors / self.target.multiplies, loads * LOAD, float(LATENCY)) + self._beside(loads, memory)

    def _least_step(self, vector: str, row: str, copied: tuple[Reach, ...]) -> Callable[[int, int], float]:
        """What a step costs at least for so many vectors and rows, whatever its order: with all operands near, and with all that steps of
        a window may share shared."""
        near = 0.0  # loads of one element for all lanes, of vectors, and of one element of each row
        beside = 0.0
        across = 0.0
        shared: list[tuple[bool, list[int]]] = []
        for r in self.reads:
            along, rows = r.stride(vector), r.stride(row)
            moved = [a for a in self.reduction if r.stride(a)]
            if r in copied or (moved and not rows):
                if r not in copied and abs(along) > 1:
                    return lambda vectors, rows: inf
                near += not along and not rows
                across += not along and bool(rows)
                beside += bool(along) * (1.0 if r in copied else UNALIGNED)
            elif moved:
                if abs(along) > 1:
                    return lambda vectors, rows: inf
                shared.append((bool(along), [self.lengths[a] for a in moved if self.lengths[a] > 1] if len(self.reduction) > 1 else []))

        def least(vectors: int, rows: int) -> float:
            products = rows * vectors
            loads = near + beside * vectors + across * rows
            for along, windows in shared:  # of r rows and n steps at least r + n - 1 places are different
                each = min([rows, *((rows + n - 1) / n for n in windows if n <= MOST_UNROLLED // products)])
                loads += each * vectors * UNALIGNED if along else each
            return max(products / self.target.multiplies, loads * LOAD, float(LATENCY)) + self._beside(loads, 0.0)

        return least

    def _elements(self, r: Reach) -> int:
        """The elements of the tensor that is read."""
        return prod(map(integer, self.shapes[r.access.tensor]))

    def _beside(self, loads: float, memory: float) -> float:
        """Cycles that loads and memory cost beside arithmetic: the longer that takes, the more loads hide behind it."""
        return BESIDE * loads * self.target.multiplies / MULTIPLIES + HIDDEN * memory

    def _fresh(self, r: Reach, rows: int, inner: list[str]) -> float:
        """How likely the steps along inner axes of the reduction are the first to touch lines of an operand that come from beyond the
        second level, too few side by side to be fetched ahead."""
        elements = self._elements(r)
        itemsize, run = r.access.dtype.itemsize, 1
        for a in sorted(inner, key=lambda a: abs(r.stride(a))):
            run *= self.lengths[a] if abs(r.stride(a)) == run else 1
        if elements * itemsize <= self.target.l2_bytes or run * itemsize > STREAM:
            return 0.0
        again = prod(self.lengths[a] for a in r.strides if a in self.lengths) / elements
        return min(1.0, rows * prod(self.lengths[a] for a in inner) / max(1.0, again) * itemsize / LINE_BYTES)

    def plain_cost(self) -> float:
        """Cycles of a vector of products in the loops that the definition has without a plan, where plans know none like them."""
        vector = next(iter(self.planner.vectors), None)
        tile = None if vector is None else next(iter(self.planner.tiles(vector)), None)
        if vector is None or tile is None or tile.classes:
            return inf
        reduced = vector in self.reduction
        tested = bool(tested_axes(self.group, frozenset({vector})))
        if not reduced and not tested and self.lengths[vector] >= self.lanes:
            return inf
        rows = dict(tile.rows)
        vectors = -(-tile.lanes * tile.blocks // self.lanes)
        products = prod(rows.values()) * vectors
        loads = memory = 0.0
        for r in self.reads:
            along, bytes_ = abs(r.stride(vector)), r.access.dtype.itemsize
            each = prod(count for axis, count in rows.items() if r.stride(axis))
            if along > 1:
                return inf
            loads += each * vectors * (UNALIGNED + (MASKED if tested else 0.0)) if along else each
            lines = each * (vectors * self.lanes if along else 1) * bytes_ / LINE_BYTES
            memory += LINE_CYCLES * lines * self.is_far(each * (1 if reduced else vectors * self.lanes), r)
        step = max(products / self.target.multiplies, loads * LOAD, float(LATENCY)) + self._beside(loads, memory)
        waste = self.planner.waste(vector, vectors * self.lanes) * prod(self.planner.waste(a, n) for a, n in rows.items())
        ends = TOGETHER / max(1.0, self.steps / self.lanes) if reduced else self._results(vector, vectors, None, 1)
        return step / products * waste + ends

    def is_far(self, elements: float, r: Reach) -> float:
        """How far away is what a tile reads of an operand over the reduction: in the first level (0), the second (1), or among so much
        else that it is hardly still there."""
        steps = prod(self.lengths[a] for a in self.reduction if r.stride(a))
        size = steps * elements * r.access.dtype.itemsize
        return 0.0 if size <= self.target.l1_bytes // 2 else 1.0 if size <= self.target.l2_bytes // 4 else AFAR

    def _results(self, vector: str, vectors: int, row: str | None, rows: int) -> float:
        """Cycles of storing the results, per vector of products."""
        stride = abs(self.store.stride(vector))
        if stride == 1:
            return 2.0 / max(1, self.steps)
        bytes_ = self.planner.dtype.itemsize
        on_one_place = stride * bytes_ % PAGE == 0 and min(self.lanes, self.lengths[vector]) > WAYS
        classes = 1 if row is None else self.planner.counts.get(row, 1)
        beside = row is not None and self.store.stride(row) == classes
        # Lines of which each tile stores a single element go to memory and come back in between.
        far = not beside and self.points * prod(self.planner.counts.values()) * bytes_ > self.target.l2_bytes
        cost = SCATTER + (HIDDEN * ALIASED * self.lanes if on_one_place or far else 0.0)
        if beside:
            line = TURNED + (HIDDEN * ALIASED if on_one_place else 0.0)
            cost = min(cost, line * self.lanes * -(-rows * classes // self.lanes) / (rows * classes))
        if classes > 1 and rows * vectors * classes > self.target.registers:
            cost += AWAY
        return cost / max(1, self.steps)

    def _copies(self, copied: tuple[Reach, ...], vector: str) -> float:
        """Cycles of the copies, per vector of products; those of constants are made once, before any call (`nest.early`)."""
        total = 0.0
        for r in copied:
            if r.access.tensor in self.constants:
                continue
            elements = self._elements(r)
            axis = next(a for a in r.strides if a == vector or r.stride(a))
            far = COPY_FAR if elements * r.access.dtype.itemsize > self.target.l2_bytes else 1.0
            total += elements * (COPY if abs(r.stride(axis)) == 1 else COPY_ACROSS) * far
        return total / (self.steps * self.all_points / self.lanes)


def _known(shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """A shape in which what is open is `OPEN`."""
    return tuple(e if isinstance(e, Const) else const(OPEN) for e in shape)
