"""The loops of a reduction: accumulators, their start, what each point adds, and how lanes are put together.

A reduction starts where its first loop stands. Data loops that come later and on which it depends are its tile: it keeps an
accumulator for each of their points. A vectorized loop of the reduction has an accumulator per lane beside these, for whole
vectors; what runs serially (a rest) goes straight to the accumulators that count.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from tensorexpr import dtypes
from tensorexpr.codegen.lowering.context import accumulators
from tensorexpr.codegen.lowering.context.arithmetic import ZERO, add, mul, reads_data, sub, substituted
from tensorexpr.codegen.lowering.context.faults import known_axes, sheltered, sheltered_condition, still_to_run
from tensorexpr.codegen.lowering.context.guards import Kept, around_tile, beyond_extents, may_run_without
from tensorexpr.codegen.lowering.context.hulls import hull
from tensorexpr.codegen.lowering.context.scope import LOOP, Result, Scope
from tensorexpr.codegen.lowering.context.tasks import Names, Pending, Task
from tensorexpr.codegen.lowering.stage.panels import with_panels
from tensorexpr.codegen.nest import LANES, Alloc, Block, Buffer, For, If, Stmt, Store
from tensorexpr.codegen.schedule.analysis.reductions import Group, Member, Parts
from tensorexpr.codegen.schedule.analysis.state import Stage, is_inside
from tensorexpr.codegen.schedule.analysis.windows import alternatives, has_hull, hull_conditions, nonempty, window
from tensorexpr.codegen.schedule.legal.legality import MOST_COPIES
from tensorexpr.errors import InternalError
from tensorexpr.ir import TRUE, Access, Apply, Axis, Cast, Const, Expr, Index, apply, conjunction, conjuncts, const
from tensorexpr.records import record, replace
from tensorexpr.traversal import free_names, map_children, size_names, substitute, tensors_read

LOCAL_BYTES = 1 << 17
"""No accumulators above this size: they would not fit a stack comfortably. Schedules have smaller tiles."""
Buffers = tuple[tuple[Buffer, ...], ...]
"""The accumulators of a group: per member, in order."""


@record
class Lanes:
    """The accumulators of a vectorized reduction: the loop, its kind and number of lanes, buffers with an axis for it per member."""

    loop: str
    kind: str
    extent: int
    buffers: tuple[tuple[Buffer, ...], ...]


class Reductions(ABC):
    """The part of lowering a stage that makes reductions; the walk through its loops is given by `nest`."""

    stage: Stage
    parts: Parts
    names: Names
    read: Callable[[Expr], Expr]
    shape: Callable[[str], tuple[Expr, ...]]
    kept: Mapping[str, Kept]
    at_root: bool
    around: frozenset[str]
    is_parallel: bool

    @abstractmethod
    def nest(self, loops: tuple[str, ...], scope: Scope, task: Task) -> Block:
        """The statements that run `task` in the loops of the list."""

    @abstractmethod
    def guarded(self, condition: Expr, scope: Scope, body: Callable[[Scope], Block]) -> Block:
        """The statements under a condition that is known here."""

    @abstractmethod
    def checks_of(self, exprs: tuple[Expr, ...], guards: tuple[Expr, ...] = ()) -> tuple[Pending, ...]:
        """The checks that the accesses in the expressions need."""

    @abstractmethod
    def is_made(self, exprs: tuple[Expr, ...], loops: tuple[str, ...]) -> bool:
        """Whether what the expressions read is computed before loops that are still to come."""

    @abstractmethod
    def loop_name(self, loop: str, scope: Scope) -> str:
        """The name of a loop's index."""

    def reduction(self, group: Group, loops: tuple[str, ...], scope: Scope, task: Task) -> Block:
        """A reduction that starts here, and then the walk without its loops."""
        mine = [x for x in loops if self.belongs(x, group)]
        tile = tuple(x for x in loops if x not in mine and not scope.knows(x) and set(self.stage.axes_of(x)) & set(group.depends))
        tile = tuple(x for x in tile if not self.stage.reduces(x, group))
        own = tuple(x for x in loops if x in mine or x in tile)
        rest = tuple(x for x in loops if x not in mine)
        buffers, results = self.allocated(group, tile, scope)
        lanes = self.lane_accumulators(group, buffers, own)
        asked = {name for x in own for name in (f"{LOOP}{x}", *self.stage.axes_of(x))}
        unmet = tuple(c for c in scope.unmet() if all(n in asked or scope.index(n) is not None for n in free_names(c)))
        open_guard = tuple(c for c in dict.fromkeys((*group.guard, *unmet)) if not scope.decided(c))
        ready, late = self.guards_here(open_guard, scope)
        some: dict[Expr, Expr] = {}
        tested: tuple[Expr, ...] = ()
        if late and not scope.outside:
            found = {c: around_tile(c, self.stage, scope, tile) for c in late}
            some = {c: around for c, around in found.items() if around is not None}
            tested = tuple(dict.fromkeys(around for around in some.values() if around not in scope.facts))
            if may_run_without(group, self.parts, tuple(map(scope.bounded, self.parts.axes)), scope, self.shape):
                late = tuple(c for c in late if c not in some and not (c in group.guard and reads_data(c)))
        crossed = tuple(
            condition
            for x in rest
            if x not in tile and not scope.knows(x) and self.stage.group_of(x) is None
            for a in self.stage.axes_of(x)
            for condition in nonempty(scope.axes[a])
            if scope.is_ready(condition) and self.is_made((condition,), rest) and scope.resolve(condition) != TRUE
        )
        values = tuple(v for m in group.members for v in m.values)
        position = self.point_number(group)
        if position is None and any(accumulators.is_winner(m) for m in group.members):
            counter = Buffer(self.names.fresh(f"{self.stage.name}_point"), dtypes.int64, buffers[0][0].shape, "local")
            buffers = (*buffers, (counter,))
            update = Task(
                needs=(*values, *group.where),
                finish=lambda s: self.taken_in_counting(group, buffers, counter, tile, s),
                where=late,
                checks=self.checks_of(values, group.where),
            )
        else:
            update = Task(
                needs=values,
                finish=lambda s: self.taken_in(
                    group, buffers, tile, s, None if position is None else self.read(s.resolve(position)), lanes
                ),
                where=(*late, *group.where),
                checks=self.checks_of(values),
            )

        beyond = frozenset() if scope.outside else beyond_extents(group, self.stage, scope, tile, self.shape, self.kept)

        def computed(inner: Scope) -> Block:
            inner = replace(inner, guarded=inner.guarded | beyond, axes={**inner.axes, **self.bounded(group, inner)})
            within, windows = self.windowed(group, own, replace(inner, groups=(*inner.groups, group.number)))
            run = self.nest(own, within, replace(update, where=(*update.where[: len(late)], *windows, *update.where[len(late) :])))
            return (*self.started(group, buffers, lanes, tile, inner), *run, *self.lanes_combined(group, buffers, lanes, tile, inner))

        def under(conditions: tuple[Expr, ...], inner: Scope) -> Block:
            if not conditions:
                return computed(inner)
            first, *rest = conditions

            def holds(s: Scope) -> Scope:
                parts = conjuncts(first)
                return replace(s, facts=s.facts.union(map(s.resolve, parts)), holds=(*s.holds, *parts))

            return self.guarded(ready.get(first, first), inner, lambda s: under(tuple(rest), holds(s)))

        body = under((*dict.fromkeys(crossed), *ready), replace(scope, facts=scope.facts.union(tested)))
        if tested and body:
            body = (If(self.read(conjunction(tested)), body),)
        after = self.nest(rest, replace(scope, results={**scope.results, **results}), task)
        block: Block = (*body, *after)
        for buffer in reversed([b for made in (*buffers, *(() if lanes is None else lanes.buffers)) for b in made]):
            if buffer.memory == "local":
                block = (Alloc(buffer, block),)
        return block

    def guards_here(self, conditions: tuple[Expr, ...], scope: Scope) -> tuple[dict[Expr, Expr], tuple[Expr, ...]]:
        """The conditions around a reduction that are tested where it starts, each with how, and those that its points test.

        It is not known yet whether the loops of its tile run, nor whether conditions on them hold: what reads data here is sheltered, and
        what has to be checked waits."""
        here = {c: c for c in conditions if scope.is_ready(c) and not reads_data(c)}
        known, inside = known_axes(self.stage, scope), replace(scope, holds=(*scope.holds, *here))
        late: list[Expr] = []
        for condition in conditions:
            if condition in here:
                continue
            found: Expr | None = None
            if scope.is_ready(condition) and self.is_made((condition,), tuple(x for x in self.stage.order if not scope.knows(x))):
                if not late and still_to_run(self.stage.order, self.stage, scope) == ():
                    found = condition
                elif not self.checks_of((condition,)):
                    found = sheltered_condition(condition, known, inside, self.shape)
            if found is None:
                late.append(condition)
            else:
                here[condition] = found
        return here, tuple(late)

    def bounded(self, group: Group, scope: Scope) -> dict[str, Axis]:
        """The axes of a reduction with bounds that can be read where it starts, before guards further in are tested."""
        found: dict[str, Axis] = {}
        known = known_axes(self.stage, scope)
        for axis in group.axes:
            bounds = (sheltered(e, (*known, *found.values()), scope, self.shape) for e in (axis.start, axis.stop))
            found[axis.index] = Axis(axis.index, *bounds)
        return {name: axis for name, axis in found.items() if axis != self.stage.axis(name)}

    def is_outermost(self, scope: Scope) -> bool:
        """Whether no loop is open but those over steps of scans."""
        return self.at_root and scope.names <= self.around

    def belongs(self, loop: str, group: Group) -> bool:
        """Whether a loop is one of a group, or of a reduction that stands in its loops."""
        found = self.stage.group_of(loop)
        return found is not None and (found.number == group.number or is_inside(self.parts, found.number, group.number))

    def allocated(self, group: Group, tile: tuple[str, ...], scope: Scope) -> tuple[Buffers, dict[str, Result]]:
        """The accumulators of a group's members, and where its results are found."""
        shape, elements = [], 1
        for loop in tile:
            extent = self.stage.extent(loop)
            if extent is None:
                raise InternalError(f"expected a constant extent of {loop}, inside a reduction of {self.stage.name}")
            shape.append(const(extent))
            elements *= extent
        # Between kernels nothing local survives: results that parallel loops read live in the workspace.
        shared = self.is_outermost(scope) and not tile and self.is_parallel
        buffers, results = [], {}
        for member in group.members:
            kept = accumulators.carried(member, group)
            if sum(k.dtype.itemsize for k in kept) * elements > LOCAL_BYTES:
                raise InternalError(f"expected accumulators of at most {LOCAL_BYTES} bytes, got {elements} elements in {self.stage.name}")
            made = tuple(
                Buffer(self.names.fresh(f"{self.stage.name}_{k.stem}"), k.dtype, tuple(shape), "workspace" if shared else "local")
                for k in kept
            )
            if shared:
                self.names.workspace.extend(made)
            buffers.append(made)
            for component, final in enumerate(accumulators.finals(member, group)):
                results[f"{member.name}.{component}"] = Result(made[component].name, made[component].dtype, tile, final)
        return tuple(buffers), results

    def windowed(self, group: Group, own: tuple[str, ...], scope: Scope) -> tuple[Scope, tuple[Expr, ...]]:
        """The scope in which bounds that depend on loops further in are windows, and the conditions that go with these."""
        conditions: list[Expr] = []
        for axis in group.axes:
            mine = [own.index(x) for x in self.stage.loops_of(axis.index) if x in own]
            if not mine:
                continue
            inner = frozenset(a for x in own[min(mine) :] if not self.belongs(x, group) for a in self.stage.axes_of(x))
            inner = frozenset(a for a in inner if scope.index(a) is None)
            if not inner & {n for e in (axis.start, axis.stop) for n in free_names(e)}:
                continue
            spread = {a: scope.spread(a) for a in inner}
            bounds = (substitute(axis.start, spread), substitute(axis.stop, spread))
            start, stop = (substituted(e, Index, lambda p: p, lambda a: a) for e in bounds)
            hidden = frozenset(n for e in spread.values() for n in free_names(e) if scope.index(n) is None)
            found = window(Axis(axis.index, start, stop), hidden)
            if found is None or (_is_long(found.axis) and _ends_at_sizes(axis, inner) and has_hull(axis, inner)):
                inside = tuple(x for x in own[min(mine) :] if not self.belongs(x, group) and set(self.stage.axes_of(x)) & inner)
                scope = hull(axis, inner, self.stage, scope, tuple(x for x in inside if not scope.knows(x)))
                wide, own_conditions = scope.axes[axis.index], hull_conditions(axis, inner)
            else:
                wide, own_conditions = found.axis, found.conditions
                scope = replace(scope, axes={**scope.axes, axis.index: wide})
                if found.offset is not None:
                    scope = replace(scope, offsets={**scope.offsets, axis.index: found.offset})
                    wide = Axis(axis.index, found.offset, add(found.offset, wide.stop))
            conditions.extend(own_conditions)
            scope = replace(scope, widened={**scope.widened, axis.index: (wide, own_conditions)})
        return scope, tuple(conditions)

    def lane_accumulators(self, group: Group, buffers: Buffers, own: tuple[str, ...]) -> Lanes | None:
        """An accumulator per lane and member where a loop of the group is vectorized."""
        for loop in own:
            found = self.stage.group_of(loop)
            if found is not None and found.number == group.number and self.stage.kind(loop) in LANES:
                extent = self.stage.extent(loop)
                if extent is None or extent < 2:
                    return None
                extent = 1 << (extent - 1).bit_length()  # see `masked_rest`
                made = tuple(
                    tuple(Buffer(self.names.fresh(f"{b.name}_lanes"), b.dtype, (*b.shape, const(extent)), "local") for b in member)
                    for member in buffers
                )
                return Lanes(loop, self.stage.kind(loop), extent, made)
        return None

    def lanes_combined(self, group: Group, buffers: Buffers, lanes: Lanes | None, tile: tuple[str, ...], scope: Scope) -> Block:
        """The accumulators of lanes taken into the ones that count, by halves: a fixed order."""
        if lanes is None:
            return ()

        def finish(inner: Scope) -> Block:
            at, width = inner.positions(tile), lanes.extent
            block: list[Stmt] = []
            name = self.loop_name(lanes.loop, inner)
            while width > 1:
                half = 1 << (width - 1).bit_length() - 1
                stores: list[Stmt] = []
                for member, made in zip(group.members, lanes.buffers, strict=True):
                    here, there = ((*at, i) for i in (Index(name), add(Index(name), const(half))))
                    stores.extend(self.merged(member, made, here, made, there))
                block.append(For(name, ZERO, const(width - half), tuple(stores), lanes.kind))
                width = half
            for member, total, made in zip(group.members, buffers, lanes.buffers, strict=True):
                block.extend(self.merged(member, total, at, made, (*at, ZERO)))
            return tuple(block)

        return self.nest(tile, scope, Task((), finish))

    def merged(
        self, member: Member, into: tuple[Buffer, ...], at: tuple[Expr, ...], source: tuple[Buffer, ...], there: tuple[Expr, ...]
    ) -> Block:
        """The state of a member at one place taken into that at another."""
        a = tuple(Access(b.name, at, b.dtype) for b in into)
        b = tuple(Access(b.name, there, b.dtype) for b in source)
        new = accumulators.merged(member, a, b)
        return (Store(into[0].name, at, new[0]),) if len(new) == 1 else self.stored_together(into, at, new)

    def started(self, group: Group, buffers: Buffers, lanes: Lanes | None, tile: tuple[str, ...], scope: Scope) -> Block:
        def finish(inner: Scope) -> Block:
            at = inner.positions(tile)
            starts = [kept.start for member in group.members for kept in accumulators.carried(member, group)]
            flat = [buffer for made in buffers for buffer in made]
            # The counter of points, where there is one, comes last and starts from 0.
            block: Block = tuple(Store(buffer.name, at, start) for buffer, start in zip(flat, [*starts, ZERO], strict=False))
            if lanes is not None:
                lane = self.loop_name(lanes.loop, inner)
                each = [b for made in lanes.buffers for b in made]
                own = tuple(Store(b.name, (*at, Index(lane)), start) for b, start in zip(each, starts, strict=True))
                block = (*block, For(lane, ZERO, const(lanes.extent), own, lanes.kind))
            return block

        return self.nest(tile, scope, Task((), finish))

    def taken_in(
        self,
        group: Group,
        buffers: Buffers,
        tile: tuple[str, ...],
        scope: Scope,
        place: Expr | None,
        lanes: Lanes | None = None,
    ) -> Block:
        """The stores that take in the values of one point, which has the number `place` where that is asked for."""
        at = scope.positions(tile)
        if lanes is not None and lanes.loop in scope.vectors:
            at, buffers = (*at, *scope.positions((lanes.loop,))), lanes.buffers
        stores: list[Stmt] = []
        for member, made in zip(group.members, buffers, strict=False):
            old = tuple(Access(b.name, at, b.dtype) for b in made)
            values = tuple(self.read(scope.resolve(with_panels(v, scope.panels, self.shape))) for v in member.values)
            if scope.padded is not None:
                values = tuple(_padded(v, scope.padded) for v in values)
            new = accumulators.taken_in(member, group, old, values, place)
            if len(new) == 1:
                stores.append(Store(made[0].name, at, new[0]))
            else:
                stores.extend(self.stored_together(made, at, new))
        return tuple(stores)

    def vanishes(self, loop: str, task: Task) -> bool:
        """Whether all that is summed is a product of elements which all differ along a loop: lanes in which these are taken
        for zero then add nothing, without a condition on the sum. (Where one factor did not differ, it could be infinite; and a
        guard on elements would ask for those of the missing lanes.)"""
        axes = set(self.stage.axes_of(loop))
        group = self.stage.group_of(loop)
        if any(map(tensors_read, task.where)):
            return False
        if group is None or task.checks or not all(m.combiner.is_builtin and m.combiner.name == "sum" for m in group.members):
            return False
        factors = [f for m in group.members for v in m.values for f in _factors(v)]
        return all(isinstance(f, Access) and axes & set(free_names(f)) for f in factors)

    def taken_in_counting(self, group: Group, buffers: Buffers, counter: Buffer, tile: tuple[str, ...], scope: Scope) -> Block:
        """The same where only counting gives the number of a point: points that the guard leaves out count as well."""
        here = Access(counter.name, scope.positions(tile), counter.dtype)
        stores = self.taken_in(group, buffers, tile, scope, here)
        if group.where:
            stores = (If(self.read(scope.resolve(conjunction(group.where))), stores),)
        return (*stores, Store(counter.name, here.indices, apply("add", here, const(1))))

    def stored_together(self, buffers: tuple[Buffer, ...], at: tuple[Expr, ...], values: tuple[Expr, ...]) -> Block:
        """Several accumulators set at once: all new values are computed from the old ones."""
        fresh = tuple(Buffer(self.names.fresh(f"{b.name}_next"), b.dtype, (), "local") for b in buffers)
        block: Block = (
            *(Store(f.name, (), v) for f, v in zip(fresh, values, strict=True)),
            *(Store(b.name, at, Access(f.name, (), f.dtype)) for b, f in zip(buffers, fresh, strict=True)),
        )
        for buffer in reversed(fresh):
            block = (Alloc(buffer, block),)
        return block

    def point_number(self, group: Group) -> Expr | None:
        """The row-major number of a point among those of a group's axes, where a member asks for it and the axes do not
        depend on each other (else None)."""
        if not any(accumulators.is_winner(m) for m in group.members):
            return None
        number: Expr = ZERO
        for axis in group.axes:
            if set(group.indices) & {n for e in (axis.start, axis.stop) for n in free_names(e)}:
                return None
            number = add(mul(number, sub(axis.stop, axis.start)), sub(Index(axis.index), axis.start))
        return number


def _is_long(axis: Axis) -> bool:
    """Whether an axis has more points than are ever written out."""
    return isinstance(axis.start, Const) and isinstance(axis.stop, Const) and int(axis.stop.value) - int(axis.start.value) > MOST_COPIES


def _ends_at_sizes(axis: Axis, inner: frozenset[str]) -> bool:
    """Whether a bound by sizes may leave a whole block of the indices `inner` few of the axis' points."""
    return any(size_names(e) and set(free_names(e)) & inner for e in alternatives(axis.stop, "minimum"))


def _factors(value: Expr) -> tuple[Expr, ...]:
    """The factors of a product; casts to a wider type keep zeros and are looked through."""
    if isinstance(value, Apply) and value.op.name == "mul":
        return tuple(f for a in value.args for f in _factors(a))
    if isinstance(value, Cast) and value.dtype.is_float and value.arg.dtype.is_float:
        return _factors(value.arg)
    return (value,)


def _padded(value: Expr, condition: Expr) -> Expr:
    """A product whose factors are zero where the condition does not hold."""
    if isinstance(value, Access):
        return apply("where", condition, value, Const(0, value.dtype))
    return map_children(value, lambda child: _padded(child, condition))
