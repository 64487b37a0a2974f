"""Contractions: the tile of registers, the panels that operands are copied into, and the order of blocks, from one model in cycles.

A step of a reduction multiplies vectors of one operand (the axis in lanes) with single elements of the other (the axis of
rows): `rows x vectors` multiplications, as many accumulators, and loads that all of them share. For each pair of axes and each
tile that the registers hold, the model counts

    step      the slowest of multiplications, loads and the latency of an accumulator, plus what memory adds to it where the
              elements of a step lie apart: lines that the first level does not keep, pages, addresses that fall on one place of it
    copies    an operand copied into panels as wide as the tile costs per element, and its steps then cost no more than loads
    window    where a short axis of the reduction goes over the places that the rows stand at (taps of a convolution), it runs
              innermost, and what several of its steps read of the rows is loaded once for all of them
    afar      planes that come from beyond the second level, a page or more apart: they are gone through outermost or innermost, and each
              step to the next one waits for all rows at once
    waste     lanes and rows computed beyond the extents
    outside   products with zero beyond a border, which rows that have the same border share
    results   stores across lanes: squares of them are turned around in registers where rows lie side by side, else single
              elements are stored, which costs most where they fall on one place of the first level

and takes the least per product, unless the loops that the definition would have without a plan (`auto_loops`) cost less in the same
cycles: lanes along a short or tested axis, or along the reduction, need no copy and store next to each other. Blocks follow from the
caches: the panel of one block of lanes runs over as many rows as the second level holds; where a reduction is so long that a panel
does not fit, its outer loop stands around more tiles, whose accumulators wait in the first level. Nothing here knows a kernel by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import ceil, inf, prod

from tensorexpr.bounds import PROVED, check_access
from tensorexpr.codegen.memo import Memo
from tensorexpr.codegen.schedule.auto_copies import plan_copy
from tensorexpr.codegen.schedule.auto_loops import Planner
from tensorexpr.codegen.schedule.auto_tiles import LARGE, apply_plan, sizes
from tensorexpr.codegen.schedule.boxes import reads_tensors
from tensorexpr.codegen.schedule.legality import is_ordered
from tensorexpr.codegen.schedule.orders import plain_inside, tested_axes
from tensorexpr.codegen.schedule.reductions import Group
from tensorexpr.codegen.schedule.residues import classes
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.codegen.schedule.staging import Layout
from tensorexpr.codegen.schedule.state import definition_named
from tensorexpr.codegen.schedule.strides import FAR, Reach
from tensorexpr.codegen.schedule.work import length
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Apply, Axis, Const, Define, Expr, Index, apply, conjuncts
from tensorexpr.records import record, replace
from tensorexpr.regions import affine_of
from tensorexpr.traversal import free_names, read_occurrences, walk

LEAST_WORK = 1 << 16
"""Products from which on a contraction is looked at: below, copies and blocks do not matter."""
MOST_VECTORS = 4
MOST_ROWS = 28
LINE_BYTES = 64
PAGE = 4096
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
MOST_UNROLLED = 64
"""Multiplications of all steps of a window, which are written out one after the other."""
COMPARED = ("lt", "le", "gt", "ge")
MOST_COUNTED = 1 << 10
"""Points of a test up to which those are counted at which it holds."""
TOGETHER = 10.0
"""Cycles for adding up the lanes of an accumulator."""
ALIKE = 1.01
"""Costs up to so many times the least are alike: they are not known better than that."""
DOUBT = 1.25
"""How much cheaper loops without a plan must be: what they cost is known less well."""
MOST_KEPT = 256
"""Contractions whose plans are remembered."""
BORDERS = 1.02
"""What rows cost that conditions depend on, in parts of a whole: tiles at a border are computed by themselves."""


@record
class Plan:
    """A tile of `rows` along `row` by `vectors` along `vector`."""

    cost: float
    vector: str
    row: str
    rows: int
    vectors: int
    copied: tuple[Reach, ...]
    """The reads of operands that are copied into panels as wide, or high, as the tile."""
    order: tuple[str, ...]
    """The axes of the reduction, outermost first."""
    window: str | None = None
    """The axis of the reduction that runs innermost, over places that rows share."""
    near: bool = False
    """Whether the reduction goes through its axes as the rows lie in memory."""

    @property
    def packed(self) -> tuple[str, ...]:
        """The axes of the tile along which a copy has its blocks: its tiles end at theirs."""
        return tuple(axis for axis in (self.vector, self.row) if any(r.stride(axis) for r in self.copied))

    def __str__(self) -> str:
        copied = "".join(f", {r.access.tensor} copied" for r in self.copied)
        window = f", over {self.window}" if self.window is not None else f", {self.order[0]} outermost" if self.near else ""
        return f"{self.rows} {self.row}, {self.vectors} vectors of {self.vector}{copied}{window}"


_plans: Memo[tuple[tuple[Plan, tuple[int, ...]], ...]] = Memo(MOST_KEPT)


def plan_contraction(
    schedule: Planned,
    name: str,
    shapes: dict[str, tuple[Expr, ...]],
    rows: tuple[str, int] | None = None,
    batch: tuple[str, ...] = (),
    near: tuple[str, ...] = (),
) -> bool:
    """Copies operands and makes the loops of a contraction; says whether it did. `shapes` gets those of the copies.

    With `rows`, an axis and a length, it runs in blocks of so many points of the axis, whose loop stands inside of those over
    the axes of the `batch`, and outside of all others; what is `near` there is not copied.
    """
    found = schedule.state.stage(name)
    if found.scan is not None or schedule.state.placed_in(name) or len(found.parts.groups) != 1:
        return False
    (group,) = found.parts.groups
    if is_ordered(group) or len(group.members) != 1 or found.parts.unproved or group.depends == ():
        return False
    if any(map(reads_tensors, group.guard)) and not _reads_within(group, found.parts.axes, shapes):
        return False  # what data guards would be tested for each product
    counts = classes(found.parts)
    planner = Planner(schedule, name, shapes, counts)
    if rows is not None:
        planner.lengths = {**planner.lengths, rows[0]: rows[1]}
    model = Model(planner)
    model.placed.update(near)
    if not model.is_contraction():
        return False
    plans = _in_order(model.plans(), model)
    if not plans or model.plain_cost() * DOUBT < plans[0].cost or not schedule.decisions.wanted(f"{name}: planned as a contraction"):
        return False
    others = schedule.decisions.ranked(f"{name}: contraction", plans[:1], others=lambda: _in_order(model.plans(every=True), model)[1:])
    for made in others:
        before, known = schedule.state, dict(shapes)
        try:
            copies = []
            for tensor, layout in model.layouts(made):
                copy = schedule[name].stage(tensor, layout)
                shapes[copy] = schedule.state.program.types[copy].shape
                plan_copy(schedule, copy, tensor, layout, shapes)
                copies.append(copy)
            apply_plan(schedule, name, made, model, tuple(copies), rows, batch)
            return True
        except ScheduleError:
            schedule.state = before
            shapes.clear()
            shapes.update(known)
    return False


def _reads_within(group: Group, data: tuple[Axis, ...], shapes: dict[str, tuple[Expr, ...]]) -> bool:
    """Whether a reduction is in bounds wherever its guard holds or not, so that a tile need not test it (`lowering.guards`)."""
    return all(
        verdict is PROVED
        for member in group.members
        for value in member.values
        for access, axes, guards in read_occurrences(value, (*data, *group.axes), group.where)
        for verdict in check_access(access.indices, shapes[access.tensor], axes, guards)
    )


def _in_order(plans: list[Plan], model: Model) -> list[Plan]:
    """Plans by their costs. Of those that cost alike one goes first without a copy of the rows' operand, which is kept as a whole while
    all panels of lanes meet it. Of windows that cost alike the one that loads least goes first: what several of their steps share is loaded
    by instructions of their own, so a tile of few vectors has more of them than products to hide behind."""
    found = sorted(plans, key=lambda made: made.cost)
    alike = [made for made in found if made.cost <= ALIKE * found[0].cost]
    first = found[0] if found else None
    if first is not None and first.window is not None:
        alike = [made for made in alike if (made.window, made.copied) == (first.window, first.copied)]
        first = min(alike, key=lambda made: 1 / made.rows + 1 / made.vectors)
    elif first is not None and model.keeps_large(first):
        first = next((made for made in alike if made.window is None and not model.keeps_large(made)), first)
    return found if first is None else [first, *(made for made in found if made is not first)]


class Model:
    """What a step of the reduction costs for each choice of axes and tile."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.target = planner.target
        self.lengths = planner.lengths
        assert planner.main is not None
        self.group = planner.main
        self.lanes = planner.lane_count
        self.reads = planner.reads
        order = plain_inside(planner.stage, list(planner.stage.order), frozenset(a.index for a in planner.data), planner.lengths)
        self.reduction = [x for x in order if x in self.group.indices]
        self.steps = prod(self.lengths[a] for a in self.reduction)
        self.points = prod(self.lengths[a.index] for a in planner.parts.axes)
        whole = definition_named(planner.state.program, planner.stage.name)
        self.all_points = prod(map(length, whole.axes)) if isinstance(whole, Define) else self.points
        found = (n for m in self.group.members for v in m.values for n in walk(v) if isinstance(n, Apply) and n.op.name == "where")
        self.tests = [t for n in found if not planner.counts and n.args[2] == Const(0.0, n.dtype) for t in conjuncts(n.args[0])]
        self.outside: dict[tuple[str, str], float] = {}
        self.placed = {m.name for m in planner.state.stages if m.place is not None}
        self.least, self.every = inf, False

    def is_contraction(self) -> bool:
        """Whether products are summed whose operands each leave out an axis, often enough, at places that are known."""
        data = {a.index for a in self.planner.data}
        if self.steps * self.points < LEAST_WORK or len(self.reads) < 2 or not data <= set(self.group.depends):
            return False
        if any(not isinstance(a.stop, Const) or not isinstance(a.start, Const) for a in self.planner.parts.axes):
            return False
        if any(r.stride(a) >= FAR for r in self.reads for a in self.reduction):
            return False
        moving = [{a for a in data if r.stride(a)} for r in self.reads if any(r.stride(a) for a in self.reduction)]
        return len(moving) >= 2 and all(data - found for found in moving)

    def plans(self, every: bool = False) -> list[Plan]:
        """The choices that cost about as little as the best one, and some more; or `every` one that can be made. Once for contractions
        that differ in the names of tensors alone."""

        def made() -> tuple[tuple[Plan, tuple[int, ...]], ...]:
            places = {id(r): number for number, r in enumerate(self.reads)}
            self.least, self.every = inf, every
            found = (plan for plan in self._plans() if plan.cost < inf)
            return tuple((replace(plan, copied=()), tuple(places[id(r)] for r in plan.copied)) for plan in found)

        found = _plans.get((every, *self._key()), made)
        return [replace(plan, copied=tuple(self.reads[k] for k in copied)) for plan, copied in found]

    def _key(self) -> tuple[object, ...]:
        """All that costs depend on."""
        planner, data = self.planner, self.planner.data
        axes = tuple((a.index, a.index in planner.alone, bool(tested_axes(self.group, frozenset({a.index})))) for a in data)
        reads = tuple(
            (
                tuple(sorted(r.strides.items())),
                r.access.dtype,
                self._elements(r),
                tuple(self._may_be_copied(r, a.index) for a in data),
            )
            for r in self.reads
        )
        lengths, counts = tuple(sorted(self.lengths.items())), tuple(sorted(planner.counts.items()))
        store = tuple(sorted(planner.store.strides.items()))
        tests = tuple(self.tests)
        whole = (self.target, self.lanes, planner.dtype, self.all_points, tuple(self.reduction), tests)
        return (*whole, axes, reads, lengths, counts, store)

    def _plans(self) -> Iterator[Plan]:
        far = {a for r in self.reads for a, s in r.strides.items() if s >= FAR}
        data = [a for a in self.planner.data if a.index not in self.planner.alone and a.index not in far]
        for vector in data:
            if self.lengths[vector.index] < self.lanes or vector.index in self.planner.counts:
                continue
            tested = tested_axes(self.group, frozenset({vector.index}))
            if any(vector.index in r.strides for r in self.reads) and not tested:
                for row in data:
                    if row is not vector and any(r.stride(vector.index) and not r.stride(row.index) for r in self.reads):
                        yield from self._tiles(vector, row)

    def _tiles(self, vector: Axis, row: Axis) -> Iterator[Plan]:
        """The tiles along two axes, from small to large; they are looked at from large to small, for a small one is soon seen to cost more
        than the best so far, however cheap its loads were."""
        width, height = self.lengths[vector.index], self.lengths[row.index]
        borders = BORDERS if tested_axes(self.group, frozenset({row.index})) else 1.0
        near = 1 + 1e-4 * sum(abs(r.stride(row.index)).bit_length() for r in self.reads)
        choices = [(copied, self._copies(copied, vector.index)) for copied in self._choices(vector.index, row.index)]
        tiles = []
        for vectors in range(1, MOST_VECTORS + 1):
            if vectors > 1 and (vectors - 1) * self.lanes >= width:
                break
            for rows in range(1, min(MOST_ROWS, height) + 1):
                if rows * vectors + vectors + 1 > self.target.registers:
                    break
                tiles.append((vectors, rows))
        outside = max((self._outside(row.index, a) for a in self.reduction), default=0.0)
        found: list[list[Plan]] = []
        for vectors, rows in reversed(tiles):
            waste = _rounded(width, vectors * self.lanes) * _rounded(height, rows) * borders * near
            results = self._results(vector.index, vectors, row.index, rows)
            least = max(rows * vectors / self.target.multiplies, float(LATENCY)) * (1 - outside * (1 - 1 / rows))
            plans: list[Plan] = []
            for copied, copies in choices:
                if not self.every and least / (rows * vectors) * waste + results + copies > ALIKE * self.least:
                    continue
                for order, window in self._orders(vectors, row.index, rows, copied):
                    step = self._step(vector.index, vectors, row.index, rows, copied, order, window)
                    step *= 1 - self._outside(row.index, order[-1]) * (1 - 1 / rows)
                    cost = step / (rows * vectors) * waste + results + copies
                    self.least = min(self.least, cost)
                    moved = order is not self.reduction
                    plans.append(Plan(cost, vector.index, row.index, rows, vectors, copied, tuple(order), window, moved))
            found.append(plans)
        for plans in reversed(found):
            yield from plans

    def _choices(self, vector: str, row: str) -> Iterator[tuple[Reach, ...]]:
        """The reads that may be copied together: those of lanes, those of rows, both or none."""
        lanes = [r for r in self.reads if r.stride(vector) and not r.stride(row)]
        rows = [r for r in self.reads if r.stride(row) and not r.stride(vector)]
        for a in ((), tuple(lanes)) if len(lanes) == 1 and self._may_be_copied(lanes[0], vector) else ((),):
            yield from ((*a, *b) for b in (((), tuple(rows)) if len(rows) == 1 and self._may_be_copied(rows[0], row) else ((),)))

    def _may_be_copied(self, r: Reach, axis: str) -> bool:
        """Whether an operand has a constant shape, is read at one place, and an axis of it is the one given."""
        tensor = r.access.tensor
        once = sum(tensor == other.access.tensor for other in self.reads) == 1 and tensor not in self.placed
        return once and all(isinstance(e, Const) for e in self.planner.shapes[tensor]) and _place(r.access, axis) is not None

    # ---------------------------------------------------------------------------------------------------------- cycles

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

    def _elements(self, r: Reach) -> int:
        """The elements of the tensor that is read."""
        return prod(int(e.value) for e in self.planner.shapes[r.access.tensor] if isinstance(e, Const))

    def _beside(self, loads: float, memory: float) -> float:
        """Cycles that loads and memory cost beside arithmetic: the longer that takes, the more loads hide behind it."""
        return BESIDE * loads * self.target.multiplies / MULTIPLIES + HIDDEN * memory

    def _outside(self, row: str, inner: str) -> float:
        """The part of the products that are with zero for all rows at once, as tests say that do not change along the innermost axis:
        beyond the borders of an image (`lowering.zeros` sums them once)."""
        known = self.outside.get((row, inner))
        if known is None:
            tests = (t for t in self.tests if row not in free_names(t) and inner not in free_names(t))
            known = self.outside[row, inner] = 1 - prod(map(self._share, tests))
        return known

    def _share(self, test: Expr) -> float:
        """At how many of its points a comparison holds, in parts of all; 1 where they are too many, or more than indices decides."""
        names = [n for n in free_names(test) if n in self.lengths]
        if not isinstance(test, Apply) or test.op.name not in COMPARED or prod(self.lengths[n] for n in names) > MOST_COUNTED:
            return 1.0
        left, right = test.args if test.op.name in ("gt", "ge") else reversed(test.args)
        form = affine_of(apply("sub", left, right)) if left.dtype.is_integer and right.dtype.is_integer else None
        if form is None or set(form.names()) - set(names):
            return 1.0
        least = 0 if test.op.name in ("lt", "gt") else -1
        values = [sum(at, form.constant) for at in product(*([form.coefficient(n) * k for k in range(self.lengths[n])] for n in names))]
        return sum(v > least for v in values) / len(values)

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
        waste = _rounded(self.lengths[vector], vectors * self.lanes) * prod(_rounded(self.lengths[a], n) for a, n in rows.items())
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
        stride = abs(self.planner.store.stride(vector))
        if stride == 1:
            return 2.0 / max(1, self.steps)
        bytes_ = self.planner.dtype.itemsize
        on_one_place = stride * bytes_ % PAGE == 0 and min(self.lanes, self.lengths[vector]) > WAYS
        classes = 1 if row is None else self.planner.counts.get(row, 1)
        beside = row is not None and self.planner.store.stride(row) == classes
        # Lines of which each tile stores a single element go to memory and come back in between.
        far = not beside and self.points * prod(self.planner.counts.values()) * bytes_ > self.target.l2_bytes
        cost = SCATTER + (HIDDEN * ALIASED * self.lanes if on_one_place or far else 0.0)
        if beside:
            line = TURNED + (HIDDEN * ALIASED if on_one_place else 0.0)
            cost = min(cost, line * self.lanes * -(-rows * classes // self.lanes) / (rows * classes))
        if classes > 1 and rows * vectors * classes > self.target.registers:
            cost += AWAY
        return cost / max(1, self.steps)

    def keeps_large(self, made: Plan) -> bool:
        """Whether a plan has a copy of what its rows read, large beside what the contraction reads and writes."""
        rows = (self._elements(r) * r.access.dtype.itemsize for r in made.copied if not r.stride(made.vector))
        return sum(rows) * LARGE > sum(sizes(self))

    def _copies(self, copied: tuple[Reach, ...], vector: str) -> float:
        """Cycles of the copies, per vector of products."""
        total = 0.0
        for r in copied:
            elements = self._elements(r)
            axis = next(a for a in r.strides if a == vector or r.stride(a))
            far = COPY_FAR if elements * r.access.dtype.itemsize > self.target.l2_bytes else 1.0
            total += elements * (COPY if abs(r.stride(axis)) == 1 else COPY_ACROSS) * far
        return total / (self.steps * self.all_points / self.lanes)

    # --------------------------------------------------------------------------------------------------------- layouts

    def layouts(self, chosen: Plan) -> Iterator[tuple[str, Layout]]:
        """The copies of a plan, by tensor: what tiles go through outermost, then blocks, the reduction in its order, a block innermost."""
        for r in chosen.copied:
            axis, block = (chosen.vector, chosen.vectors * self.lanes) if r.stride(chosen.vector) else (chosen.row, chosen.rows)
            place = _place(r.access, axis)
            assert place is not None
            order = chosen.order
            moved = [max((order.index(a) for a in order if a in free_names(i)), default=-1) for i in r.access.indices]
            rest = [k for k in range(len(moved)) if k != place]
            outer = [k for k in rest if moved[k] < 0]
            inner = sorted((k for k in rest if moved[k] >= 0), key=lambda k: moved[k])
            yield r.access.tensor, (*outer, (place, block), *inner)


def _place(access: Access, axis: str) -> int | None:
    """The axis of the tensor that an index alone stands for, and no other says."""
    found = [k for k, index in enumerate(access.indices) if axis in free_names(index)]
    return found[0] if len(found) == 1 and isinstance(access.indices[found[0]], Index) else None


def _rounded(extent: int, block: int) -> float:
    """How much is computed per element that counts."""
    return -(-extent // block) * block / max(1, extent)
