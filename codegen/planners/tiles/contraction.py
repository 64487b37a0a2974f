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
    results   stores across lanes: squares of them are turned around in registers where rows lie side by side, else single
              elements are stored, which costs most where they fall on one place of the first level

and takes the least per product, unless the loops that the definition would have without a plan (`planners.tiles.loops`) cost less in the
same cycles: lanes along a short or tested axis, or along the reduction, need no copy and store next to each other. Blocks follow from the
caches: the panel of one block of lanes runs over as many rows as the second level holds. Nothing here knows a kernel by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import inf
from operator import itemgetter

from tensorexpr.bounds import PROVED, check_access
from tensorexpr.codegen.memo import Memo
from tensorexpr.codegen.planners.tiles.copies import plan_copy
from tensorexpr.codegen.planners.tiles.cycles import Cycles
from tensorexpr.codegen.planners.tiles.loops import Planner
from tensorexpr.codegen.planners.tiles.tiles import apply_plan
from tensorexpr.codegen.schedule.analysis.boxes import reads_tensors
from tensorexpr.codegen.schedule.analysis.reductions import Group
from tensorexpr.codegen.schedule.analysis.residues import classes
from tensorexpr.codegen.schedule.analysis.strides import FAR, Reach
from tensorexpr.codegen.schedule.definitions.staging import Layout
from tensorexpr.codegen.schedule.legal.legality import is_ordered
from tensorexpr.codegen.schedule.legal.orders import tested_axes
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Axis, Expr, Index
from tensorexpr.records import record, replace
from tensorexpr.traversal import free_names, read_occurrences

LEAST_WORK = 1 << 16
"""Products from which on a contraction is looked at: below, copies and blocks do not matter."""
MOST_VECTORS = 4
MOST_ROWS = 28
ALIKE = 1.01
"""Costs up to so many times the least are alike: they are not known better than that."""
DOUBT = 1.25
"""How much cheaper loops without a plan must be: what they cost is known less well."""
MOST_KEPT = 256
"""Contractions whose plans are remembered."""
FRONT = 1.3
"""How much costlier rows are along an open axis in front of another one that could be taken: a batch may be of one."""
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
    if any(map(reads_tensors, group.guard)) and not reads_within(group, found.parts.axes, shapes):
        return False  # what data guards would be tested for each product
    counts = classes(found.parts)
    planner = Planner(schedule, name, shapes, counts)
    if rows is not None:
        planner.lengths = {**planner.lengths, rows[0]: rows[1]}
    model = Model(planner)
    model.placed.update(near)
    if not model.is_contraction():
        return False
    plans = _in_order(model.plans())
    if not plans or model.plain_cost() * DOUBT < plans[0].cost or not schedule.decisions.wanted(f"{name}: planned as a contraction"):
        return False
    others = schedule.decisions.ranked(f"{name}: contraction", plans[:1], others=lambda: _in_order(model.plans(every=True))[1:])
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


def reads_within(group: Group, data: tuple[Axis, ...], shapes: dict[str, tuple[Expr, ...]]) -> bool:
    """Whether a reduction is in bounds wherever its guard holds or not, so that a tile need not test it (`lowering.guards`)."""
    return all(
        verdict is PROVED
        for member in group.members
        for value in member.values
        for access, axes, guards in read_occurrences(value, (*data, *group.axes), group.where)
        for verdict in check_access(access.indices, shapes[access.tensor], axes, guards)
    )


def _in_order(plans: list[Plan]) -> list[Plan]:
    """Plans by their costs. Of windows that cost alike the one that loads least goes first: what several of their steps share is loaded
    by instructions of their own, so a tile of few vectors has more of them than products to hide behind."""
    found = sorted(plans, key=lambda made: made.cost)
    first = found[0] if found else None
    if first is not None and first.window is not None:
        alike = [made for made in found if made.cost <= ALIKE * first.cost and (made.window, made.copied) == (first.window, first.copied)]
        first = min(alike, key=lambda made: 1 / made.rows + 1 / made.vectors)
    return found if first is None else [first, *(made for made in found if made is not first)]


class Model(Cycles):
    """The tiles of a contraction, with what each costs."""

    def __init__(self, planner: Planner) -> None:
        super().__init__(planner)
        self.placed = {m.name for m in planner.state.stages if m.place is not None}
        self.least, self.every = inf, False

    def is_contraction(self) -> bool:
        """Whether products are summed whose operands each leave out an axis, often enough, at places that are known."""
        data = {a.index for a in self.planner.data}
        if self.steps * self.points < LEAST_WORK or len(self.reads) < 2 or not data <= set(self.group.depends):
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
                r.access.tensor in self.constants,
                tuple(self._may_be_copied(r, a.index) for a in data),
            )
            for r in self.reads
        )
        lengths, counts = tuple(sorted(self.lengths.items())), tuple(sorted(planner.counts.items()))
        opened = tuple(a.index for a in data if a.index in self.planner.open)
        store = tuple(sorted(self.store.strides.items()))
        whole = (self.target, self.lanes, planner.dtype, self.all_points, tuple(self.reduction))
        return (*whole, axes, reads, lengths, counts, store, opened)

    def _plans(self) -> Iterator[Plan]:
        far = {a for r in self.reads for a, s in r.strides.items() if s >= FAR}
        data = [a for a in self.planner.data if a.index not in self.planner.alone and a.index not in far]
        data = self.planner.last_first(data)
        for vector in data:
            if self.lengths[vector.index] < self.lanes or vector.index in self.planner.counts:
                continue
            tested = tested_axes(self.group, frozenset({vector.index}))
            if any(vector.index in r.strides for r in self.reads) and not tested:
                rows = [a for a in data if a is not vector and any(r.stride(vector.index) and not r.stride(a.index) for r in self.reads)]
                last = next((a for a in rows if a.index in self.planner.open), None)  # of open axes the last one is tried first
                for row in rows:
                    yield from self._tiles(vector, row, FRONT if row.index in self.planner.open and row is not last else 1.0)

    def _tiles(self, vector: Axis, row: Axis, front: float) -> Iterator[Plan]:
        """The tiles along two axes, from small to large. They are looked at from the one on that may cost least, until all others are
        known to cost more than the best."""
        width, height = self.lengths[vector.index], self.lengths[row.index]
        borders = front * (BORDERS if tested_axes(self.group, frozenset({row.index})) else 1.0)
        near = 1 + 1e-4 * sum(abs(r.stride(row.index)).bit_length() for r in self.reads)
        choices = [
            (copied, self._copies(copied, vector.index), self._least_step(vector.index, row.index, copied))
            for copied in self._choices(vector.index, row.index)
        ]
        tiles: list[tuple[float, int, tuple[int, int, tuple[Reach, ...]], partial[float]]] = []
        for vectors in range(1, MOST_VECTORS + 1):
            if vectors > 1 and (vectors - 1) * self.lanes >= width:
                break
            for rows in range(1, min(MOST_ROWS, height) + 1):
                if rows * vectors + vectors + 1 > self.target.registers:
                    break
                waste = self.planner.waste(vector.index, vectors * self.lanes) * self.planner.waste(row.index, rows) * borders * near
                results = self._results(vector.index, vectors, row.index, rows)
                for copied, copies, least in choices:
                    cost = partial(_cost, rows * vectors, waste, results, copies)
                    tiles.append((0.0 if self.every else cost(least(vectors, rows)), len(tiles), (vectors, rows, copied), cost))
        found: dict[int, list[Plan]] = {}
        for bound, number, (vectors, rows, copied), cost in sorted(tiles, key=itemgetter(0)):
            if not self.every and bound > ALIKE * self.least:
                break
            plans = found.setdefault(number, [])
            for order, window in self._orders(vectors, row.index, rows, copied):
                whole = cost(self._step(vector.index, vectors, row.index, rows, copied, order, window))
                self.least = min(self.least, whole)
                moved = order is not self.reduction
                plans.append(Plan(whole, vector.index, row.index, rows, vectors, copied, tuple(order), window, moved))
        for number in sorted(found):
            yield from found[number]

    def _choices(self, vector: str, row: str) -> Iterator[tuple[Reach, ...]]:
        """The reads that may be copied together: those of lanes, those of rows, both or none. Rows of open length are not: their last block
        is moved back, where one that is filled up would be tested."""
        beside = [r for r in self.reads if r.stride(vector) and not r.stride(row)]
        across = [r for r in self.reads if r.stride(row) and not r.stride(vector)]
        lanes = ((), tuple(beside)) if len(beside) == 1 and self._may_be_copied(beside[0], vector) else ((),)
        rows = ((), tuple(across)) if len(across) == 1 and row not in self.planner.open and self._may_be_copied(across[0], row) else ((),)
        for copied in lanes:
            yield from ((*copied, *more) for more in rows)

    def _may_be_copied(self, r: Reach, axis: str) -> bool:
        """Whether an operand is read at one place, and an axis of it is the one given."""
        tensor = r.access.tensor
        once = sum(tensor == other.access.tensor for other in self.reads) == 1 and tensor not in self.placed
        return once and _place(r.access, axis) is not None

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


def _cost(products: int, waste: float, results: float, copies: float, step: float) -> float:
    """Cycles of a vector of products in a tile of so many, of which a step takes `step`."""
    return step / products * waste + results + copies


def _place(access: Access, axis: str) -> int | None:
    """The axis of the tensor that an index alone stands for, and no other says."""
    found = [k for k, index in enumerate(access.indices) if axis in free_names(index)]
    return found[0] if len(found) == 1 and isinstance(access.indices[found[0]], Index) else None
