"""The loops of one stage, made from its list of loops, outermost first.

`nest` walks down the list. What is on the way is placed at the first level where all it needs is known: conditions (as
`If`), checks of data-dependent indices, and reductions, whose loops stand in the list. At the first loop of a reduction
its accumulators are allocated, one per point of the data loops that come later and on which it depends, and started;
the reduction's own loops run with those inside, in the order of the list; then the walk goes on without them. A split
whose extent is no multiple of its factor forks the walk at its outer loop, one fork per form (see `Split`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tensorexpr import dtypes
from tensorexpr.codegen.lowering import accumulators
from tensorexpr.codegen.lowering.arithmetic import ZERO, add, constant, floordiv, mul, reads_data, sub, substituted
from tensorexpr.codegen.lowering.scope import Result, Scope
from tensorexpr.codegen.nest import Alloc, Block, Buffer, Check, CheckSite, For, If, Stmt, Store
from tensorexpr.codegen.schedule.reductions import Group, Member, groups_used
from tensorexpr.codegen.schedule.state import SERIAL, Split, Stage, all_uses, is_inside, needed_groups
from tensorexpr.codegen.schedule.windows import window
from tensorexpr.errors import Location, ScheduleError
from tensorexpr.ir import TRUE, Access, Apply, Axis, Const, Expr, Index, apply, conjunction, conjuncts, const
from tensorexpr.text import print_expr
from tensorexpr.traversal import fresh_name, free_names, read_occurrences, substitute

LOCAL_BYTES = 1 << 16
"""Local buffers above this size are refused: they would not fit a stack comfortably."""
MOST_COPIES = 8
"""Iterations up to which an unrolled loop around reductions is copied out while lowering."""
UNROLL_LIMIT = 32
"""Rests shorter than this keep the unrolling of their loop."""


@dataclass(slots=True)
class Names:
    """What lowering hands out: names of buffers, numbers of checks, and the workspace."""

    taken: set[str]
    checks: dict[CheckSite, int] = field(default_factory=dict)
    workspace: list[Buffer] = field(default_factory=list)

    def fresh(self, stem: str) -> str:
        return fresh_name(stem, self.taken)


@dataclass(frozen=True, slots=True)
class Pending:
    """A check to be made: the access and axis, and the conditions under which the access is evaluated."""

    access: Access
    axis: int
    guards: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Lanes:
    """The accumulators of a vectorized reduction: the loop, its number of lanes, buffers with an axis for it per member."""

    loop: str
    extent: int
    buffers: tuple[tuple[Buffer, ...], ...]


@dataclass(frozen=True, slots=True)
class Task:
    """What the loops are walked for: expressions needed, conditions around them, checks to make, statements at the innermost."""

    needs: tuple[Expr, ...]
    finish: Callable[[Scope], Block]
    where: tuple[Expr, ...] = ()
    checks: tuple[Pending, ...] = ()
    choose: Callable[[Expr], Task] | None = None
    """Makes the task for another value, where `needs` is one value that a condition further out may decide."""
    inside: Callable[[str, Scope, Callable[[], Block]], Block] | None = None
    """Wraps the body of a loop, for definitions that are computed there."""


class Loops:
    """Makes the loops of one stage; `shapes` and `buffers` tell how tensors are read."""

    def __init__(
        self,
        stage: Stage,
        names: Names,
        shapes: dict[str, tuple[Expr, ...]],
        read: Callable[[Expr], Expr],
        location: Location | None,
        at_root: bool,
    ) -> None:
        self.stage = stage
        self.parts = stage.parts
        self.names = names
        self.shapes = shapes
        self.read = read
        self.location = location
        self.at_root = at_root
        self.is_parallel = any(kind == "parallel" for _, kind in stage.kinds)

    # ------------------------------------------------------------------------------------------------------- walking

    def nest(self, loops: tuple[str, ...], scope: Scope, task: Task) -> Block:
        """The statements that run `task` in the loops of the list."""
        loops = self.relevant(loops, scope, task)
        for split in self.stage.relations:
            if isinstance(split, Split) and scope.variants.get(split.outer) == "guard" and split.outer not in scope.guarded:
                position, whole = scope.position(split.parent), scope.extent(split.parent)
                if position is not None and whole is not None:
                    inside = replace(scope, guarded=scope.guarded | {split.outer}, conditional=True)
                    return (If(self.read(apply("lt", position, whole)), self.nest(loops, inside, task)),)
        waits = self.is_parallel and self.at_root and not scope.names and loops  # parallel loops stand outside of conditions
        ready = () if waits else tuple(c for c in task.where if scope.is_ready(c))
        if ready:
            # Conditions on indices go together; one that reads data waits for those before it.
            first = tuple(c for c in ready if not reads_data(c)) or ready[:1]
            rest = replace(task, where=tuple(c for c in task.where if c not in first))
            return self.guarded(conjunction(first), scope, lambda inner: self.nest(loops, inner, rest))
        if not loops:
            return (*self.made_checks(task.checks, scope), *task.finish(scope))
        early = tuple(c for c in task.checks if self.is_decided(c, scope)) if not task.where and self.all_run(loops, scope) else ()
        if early:
            rest = replace(task, checks=tuple(c for c in task.checks if c not in early))
            return (*self.made_checks(early, scope), *self.nest(loops, scope, rest))
        chosen = self.chosen(loops, scope, task)
        if chosen is not None:
            return chosen
        group = self.stage.group_of(loops[0])
        if group is not None and group.number not in scope.groups:
            return self.reduction(group, loops, scope, task)
        return self.opened(loops, scope, task)

    def relevant(self, loops: tuple[str, ...], scope: Scope, task: Task) -> tuple[str, ...]:
        """The loops without those of reductions that the task does not need."""
        computed = {int(name[1:].split(".")[0]) for name in scope.results}
        needed = set(needed_groups(self.parts, *task.needs, *task.where)) | set(scope.groups)
        needed |= {n for g in scope.groups for n in all_uses(self.parts, self.parts.group(g))}
        kept = []
        for loop in loops:
            group = self.stage.group_of(loop)
            if group is None or group.number in scope.groups or (group.number in needed and group.number not in computed):
                kept.append(loop)
        return tuple(kept)

    def guarded(self, condition: Expr, scope: Scope, body: Callable[[Scope], Block]) -> Block:
        """The statements under a condition that is known here; it is a fact inside."""
        open_ = tuple(c for c in map(scope.resolve, conjuncts(condition)) if c not in scope.facts)
        resolved = conjunction(open_)
        if isinstance(resolved, Const):
            return body(scope) if resolved.value else ()
        checks = self.made_checks(self.checks_of((condition,)), scope)
        then = body(replace(scope, facts=scope.facts.union(open_), conditional=True))
        return (*checks, If(self.read(resolved), then)) if then else checks

    def chosen(self, loops: tuple[str, ...], scope: Scope, task: Task) -> Block | None:
        """Where the value is ``where(c, a, b)`` and c is decided out here: the loops for a and those for b."""
        if task.choose is None or (self.is_parallel and not scope.names):
            return None
        (value,) = task.needs
        if not (isinstance(value, Apply) and value.op.name == "where"):
            return None
        condition, taken, otherwise = value.args
        parts = tuple(conjuncts(condition))
        ready = tuple(c for c in parts if scope.is_ready(c))
        if not ready or (len(ready) < len(parts) and groups_used(otherwise)):
            return None
        rest = conjunction([c for c in parts if c not in ready])
        inner = taken if rest == TRUE else apply("where", rest, taken, otherwise)
        resolved = scope.resolve(conjunction(ready))
        branches = tuple(replace(task.choose(e), inside=task.inside) for e in (inner, otherwise))
        if isinstance(resolved, Const):
            return self.nest(loops, scope, branches[0] if resolved.value else branches[1])
        checks = self.made_checks(self.checks_of(ready), scope)
        fails = replace(scope, conditional=True)
        holds = replace(fails, facts=scope.facts | {scope.resolve(c) for c in ready})
        return (*checks, If(self.read(resolved), self.nest(loops, holds, branches[0]), self.nest(loops, fails, branches[1])))

    # -------------------------------------------------------------------------------------------------------- checks

    def checks_of(self, exprs: tuple[Expr, ...], guards: tuple[Expr, ...] = ()) -> tuple[Pending, ...]:
        """The checks that the accesses in the expressions need."""
        if not self.parts.unproved:
            return ()
        found: dict[Pending, None] = {}
        for expr in exprs:
            for access, _, around in read_occurrences(expr, (), guards):
                for axis in range(len(access.indices)):
                    if (access, axis) in self.parts.unproved:
                        found[Pending(access, axis, around)] = None
        return tuple(found)

    def made_checks(self, checks: tuple[Pending, ...], scope: Scope) -> Block:
        made: dict[Check | If, None] = {}
        for check in checks:
            resolve = lambda e: self.read(scope.resolve(e))  # noqa: E731
            tensor = check.access.tensor
            site = CheckSite(
                print_expr(check.access), tensor, check.axis, self.stage.name, check.access.location or self.location
            )
            number = self.names.checks.setdefault(site, len(self.names.checks))
            statement: Check | If = Check(resolve(check.access.indices[check.axis]), resolve(self.shapes[tensor][check.axis]), number)
            for guard in reversed(check.guards):
                statement = If(resolve(guard), (statement,))
            made[statement] = None
        return tuple(made)

    def is_decided(self, check: Pending, scope: Scope) -> bool:
        return scope.is_ready(check.access) and all(scope.is_ready(g) for g in check.guards)

    def all_run(self, loops: tuple[str, ...], scope: Scope) -> bool:
        """Whether each of the loops certainly has an iteration."""
        for loop in loops:
            for axis in self.stage.axes_of(loop):
                start, stop = (constant(e) for e in (scope.axes[axis].start, scope.axes[axis].stop))
                if start is None or stop is None or stop <= start:
                    return False
        return True

    # --------------------------------------------------------------------------------------------------------- loops

    def opened(self, loops: tuple[str, ...], scope: Scope, task: Task) -> Block:
        """The first loop of the list, around the rest."""
        loop, rest = loops[0], loops[1:]
        if scope.knows(loop):
            return self.body(loop, rest, scope, task)
        fork = self.undecided(loop, scope)
        if fork is not None:
            return self.forked(fork, loops, scope, task)
        bounds = tuple(e for a in self.stage.axes_of(loop) for e in (scope.axes[a].start, scope.axes[a].stop))
        checks = self.made_checks(self.checks_of(bounds), scope)
        extent = scope.extent(loop)
        if extent is None:
            raise ScheduleError(
                f"expected the bounds of {loop} in {self.stage.name} to be known where it runs", hint="reorder it inside the loops it depends on"
            )
        count = constant(extent)
        if count == 0:
            return checks
        if count == 1:
            return (*checks, *self.body(loop, rest, scope.with_values(**{loop: ZERO}), task))
        if self.stage.kind(loop) == "unroll" and count is not None and count <= MOST_COPIES and self.copies_pay(rest, scope):
            copies = (self.body(loop, rest, scope.with_values(**{loop: const(c)}), task) for c in range(count))
            return (*checks, *(statement for copy in copies for statement in copy))
        name = self.loop_name(loop, scope)
        start = scope.resolve(scope.axes[loop].start) if loop in scope.axes else ZERO
        stop = scope.resolve(scope.axes[loop].stop) if loop in scope.axes else extent
        kind = self.kind(loop, count, scope)
        if kind == "vectorize" and count is not None and count & (count - 1) and self.stage.group_of(loop) is not None:
            return (*checks, *self.masked_rest(loop, count, rest, scope, task))
        inner = replace(scope.with_values(**{loop: sub(Index(name), start)}), names=scope.names | {name})
        if kind == "vectorize":
            inner = replace(inner, vectors=inner.vectors | {loop})
        body = self.body(loop, rest, inner, task)
        return (*checks, For(name, self.read(start), self.read(stop), body, kind)) if body else checks

    def copies_pay(self, rest: tuple[str, ...], scope: Scope) -> bool:
        """Whether reductions start further in: a loop around them is copied out here, where their bounds get simpler by it."""
        found = (self.stage.group_of(x) for x in rest)
        return any(g is not None and g.number not in scope.groups for g in found)

    def masked_rest(self, loop: str, count: int, rest: tuple[str, ...], scope: Scope, task: Task) -> Block:
        """Lanes of a reduction that are no power of two: one more vector, of which the last lanes are off."""
        name, wide = self.loop_name(loop, scope), 1 << count.bit_length()
        inner = scope.with_values(**{loop: Index(name)})
        inner = replace(inner, names=scope.names | {name}, vectors=scope.vectors | {loop}, conditional=True)
        body = self.body(loop, rest, inner, task)
        if wide > count:
            body = (If(apply("lt", Index(name), const(count)), body),)
        return (For(name, ZERO, const(wide), body, "vectorize"),)

    def loop_name(self, loop: str, scope: Scope) -> str:
        """The name of a loop's index: its own, unless a loop around has it."""
        while loop in scope.names:
            loop = f"{loop}_"
        return loop

    def kind(self, loop: str, count: int | None, scope: Scope) -> str:
        kind = self.stage.kind(loop)
        if kind == "parallel" or (kind == SERIAL and self.inherits_parallel(loop, scope)):
            return "parallel" if self.at_root and not scope.names and not scope.conditional else SERIAL
        if count is None:
            return SERIAL
        split = self.stage.parents().get(loop)
        in_rest = isinstance(split, Split) and self.fork_of(loop, scope) in ("rest", "small")
        return SERIAL if kind == "unroll" and in_rest and count > UNROLL_LIMIT else kind

    def inherits_parallel(self, loop: str, scope: Scope) -> bool:
        """In the rest of a parallel block loop, the first data loop takes over."""
        if scope.names or self.stage.group_of(loop) is not None:
            return False
        return any(self.stage.kind(outer) == "parallel" for outer, variant in scope.variants.items() if variant in ("rest", "small"))

    def fork_of(self, loop: str, scope: Scope) -> str | None:
        split = self.stage.parents().get(loop)
        return scope.variants.get(split.outer) if isinstance(split, Split) else None

    def body(self, loop: str, rest: tuple[str, ...], scope: Scope, task: Task) -> Block:
        return self.nest(rest, scope, task) if task.inside is None else task.inside(loop, scope, lambda: self.nest(rest, scope, task))

    def undecided(self, loop: str, scope: Scope) -> Split | None:
        """The outermost split above a loop whose form is still open."""
        parents = self.stage.parents()
        found = None
        for name in self.stage.ancestry(loop):
            relation = parents.get(name)
            if isinstance(relation, Split) and relation.outer not in scope.variants:
                found = relation
        return found

    def forked(self, split: Split, loops: tuple[str, ...], scope: Scope, task: Task) -> Block:
        """The walk once per form that a split takes."""

        def walk(variant: str, outer: Expr | None = None) -> Block:
            inner = scope.with_variant(split, variant)
            return self.nest(loops, inner if outer is None else inner.with_values(**{split.outer: outer}), task)

        whole = scope.extent(split.parent)
        if whole is None:
            raise ScheduleError(f"expected the bounds of {split.parent} in {self.stage.name} to be known where it runs")
        count, factor = constant(whole), split.factor
        if count is not None and count % factor == 0:
            return walk("main")
        if split.tail == "guard":
            return walk("guard")
        if split.tail == "shift":
            if count is None:
                scope = replace(scope, conditional=True)
                return (If(self.read(apply("ge", whole, const(factor))), walk("shift"), walk("small", ZERO)),)
            return walk("shift") if count >= factor else walk("small", ZERO)
        if count is not None and count < factor:
            return walk("small", ZERO)
        blocks = floordiv(whole, factor)
        return (*walk("main"), *walk("rest", blocks))

    # --------------------------------------------------------------------------------------------------- reductions

    def reduction(self, group: Group, loops: tuple[str, ...], scope: Scope, task: Task) -> Block:
        """A reduction that starts here, and then the walk without its loops."""
        mine = [x for x in loops if self.belongs(x, group)]
        tile = tuple(x for x in loops if x not in mine and not scope.knows(x) and set(self.stage.axes_of(x)) & set(group.depends))
        tile = tuple(x for x in tile if self.stage.group_of(x) is None or self.stage.group_of(x).number != group.number)  # type: ignore[union-attr]
        own = tuple(x for x in loops if x in mine or x in tile)
        rest = tuple(x for x in loops if x not in mine)
        buffers, results = self.allocated(group, tile, scope)
        lanes = self.lane_accumulators(group, buffers, own)
        ready = tuple(c for c in group.guard if scope.is_ready(c))
        late = tuple(c for c in group.guard if c not in ready)
        crossed = tuple(
            apply("gt", scope.axes[a].stop, scope.axes[a].start)
            for x in rest
            if x not in tile and not scope.knows(x) and self.stage.group_of(x) is None
            for a in self.stage.axes_of(x)
            if constant(scope.axes[a].stop) is None
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
                finish=lambda s: self.taken_in(group, buffers, tile, s, None if position is None else self.read(s.resolve(position)), lanes),
                where=(*late, *group.where),
                checks=self.checks_of(values),
            )

        def computed(inner: Scope) -> Block:
            within, windows = self.windowed(group, own, replace(inner, groups=(*inner.groups, group.number)))
            run = self.nest(own, within, replace(update, where=(*update.where[: len(late)], *windows, *update.where[len(late) :])))
            return (*self.started(group, buffers, lanes, tile, inner), *run, *self.lanes_combined(group, buffers, lanes, tile, inner))

        def under(conditions: tuple[Expr, ...], inner: Scope) -> Block:
            if not conditions:
                return computed(inner)
            return self.guarded(conditions[0], inner, lambda s: under(conditions[1:], s))

        body = under((*dict.fromkeys(crossed), *ready), scope)
        after = self.nest(rest, replace(scope, results={**scope.results, **results}), task)
        block: Block = (*body, *after)
        for buffer in reversed([b for made in (*buffers, *(() if lanes is None else lanes.buffers)) for b in made]):
            if buffer.memory == "local":
                block = (Alloc(buffer, block),)
        return block

    def belongs(self, loop: str, group: Group) -> bool:
        """Whether a loop is one of a group, or of a reduction that stands in its loops."""
        found = self.stage.group_of(loop)
        return found is not None and (found.number == group.number or is_inside(self.parts, found.number, group.number))

    def allocated(self, group: Group, tile: tuple[str, ...], scope: Scope) -> tuple[tuple[tuple[Buffer, ...], ...], dict[str, Result]]:
        """The accumulators of a group's members, and where its results are found."""
        shape, elements = [], 1
        for loop in tile:
            extent = self.stage.extent(loop)
            if extent is None:
                raise ScheduleError(
                    f"expected a constant extent of {loop}, inside the reduction over {', '.join(group.indices)} of {self.stage.name}",
                    hint="split it, or move the reduction inside of it",
                )
            shape.append(const(extent))
            elements *= extent
        # Between kernels nothing local survives: results that parallel loops read live in the workspace.
        shared = self.at_root and not scope.names and not tile and self.is_parallel
        buffers, results = [], {}
        for member in group.members:
            kept = accumulators.carried(member)
            if sum(k.dtype.itemsize for k in kept) * elements > LOCAL_BYTES:
                raise ScheduleError(
                    f"expected accumulators of at most {LOCAL_BYTES} bytes, got a tile of {elements} elements in {self.stage.name}",
                    at=f"loops {', '.join(tile)}",
                    hint="split these loops, or move the reduction inside of them",
                )
            made = tuple(
                Buffer(self.names.fresh(f"{self.stage.name}_{k.stem}"), k.dtype, tuple(shape), "workspace" if shared else "local") for k in kept
            )
            if shared:
                self.names.workspace.extend(made)
            buffers.append(made)
            for component, final in enumerate(accumulators.finals(member)):
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
            if found is None:
                raise ScheduleError(f"expected the bounds of {axis.index} in {self.stage.name} to be known where it runs")
            offsets = scope.offsets if found.offset is None else {**scope.offsets, axis.index: found.offset}
            scope = replace(scope, axes={**scope.axes, axis.index: found.axis}, offsets=offsets)
            conditions.extend(found.conditions)
        return scope, tuple(conditions)

    def lane_accumulators(self, group: Group, buffers: tuple[tuple[Buffer, ...], ...], own: tuple[str, ...]) -> Lanes | None:
        """An accumulator per lane and member where a loop of the group is vectorized."""
        for loop in own:
            found = self.stage.group_of(loop)
            if found is not None and found.number == group.number and self.stage.kind(loop) == "vectorize":
                extent = self.stage.extent(loop)
                if extent is None or extent < 2:
                    return None
                extent = 1 << (extent - 1).bit_length()  # see `masked_rest`
                made = tuple(
                    tuple(Buffer(self.names.fresh(f"{b.name}_lanes"), b.dtype, (*b.shape, const(extent)), "local") for b in member)
                    for member in buffers
                )
                return Lanes(loop, extent, made)
        return None

    def lanes_combined(
        self, group: Group, buffers: tuple[tuple[Buffer, ...], ...], lanes: Lanes | None, tile: tuple[str, ...], scope: Scope
    ) -> Block:
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
                block.append(For(name, ZERO, const(width - half), tuple(stores), "vectorize"))
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

    def started(
        self, group: Group, buffers: tuple[tuple[Buffer, ...], ...], lanes: Lanes | None, tile: tuple[str, ...], scope: Scope
    ) -> Block:
        def finish(inner: Scope) -> Block:
            at = inner.positions(tile)
            starts = [kept.start for member in group.members for kept in accumulators.carried(member)]
            flat = [buffer for made in buffers for buffer in made]
            # The counter of points, where there is one, comes last and starts from 0.
            block: Block = tuple(Store(buffer.name, at, start) for buffer, start in zip(flat, [*starts, ZERO], strict=False))
            if lanes is not None:
                lane = self.loop_name(lanes.loop, inner)
                each = [b for made in lanes.buffers for b in made]
                own = tuple(Store(b.name, (*at, Index(lane)), start) for b, start in zip(each, starts, strict=True))
                block = (*block, For(lane, ZERO, const(lanes.extent), own, "vectorize"))
            return block

        return self.nest(tile, scope, Task((), finish))

    def taken_in(
        self,
        group: Group,
        buffers: tuple[tuple[Buffer, ...], ...],
        tile: tuple[str, ...],
        scope: Scope,
        place: Expr | None,
        lanes: Lanes | None = None,
    ) -> Block:
        """The stores that take in the values of one point, which has the number `place` where that is asked for."""
        at = scope.positions(tile)
        if lanes is not None and lanes.loop in scope.vectors:
            at, buffers = (*at, *scope.positions((lanes.loop,))), lanes.buffers
        stores = []
        for member, made in zip(group.members, buffers, strict=False):
            old = tuple(Access(b.name, at, b.dtype) for b in made)
            values = tuple(self.read(scope.resolve(v)) for v in member.values)
            new = accumulators.taken_in(member, old, values, place)
            if len(new) == 1:
                stores.append(Store(made[0].name, at, new[0]))
            else:
                stores.extend(self.stored_together(made, at, new))
        return tuple(stores)

    def taken_in_counting(
        self, group: Group, buffers: tuple[tuple[Buffer, ...], ...], counter: Buffer, tile: tuple[str, ...], scope: Scope
    ) -> Block:
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
