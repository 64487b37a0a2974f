"""The loops of one stage, made from its list of loops, outermost first.

`nest` walks down the list. What is on the way is placed at the first level where all it needs is known: conditions (as
`If`), checks of data-dependent indices, and reductions, whose loops stand in the list. At the first loop of a reduction
its accumulators are allocated, one per point of the data loops that come later and on which it depends, and started;
the reduction's own loops run with those inside, in the order of the list; then the walk goes on without them. A split
whose extent is no multiple of its factor forks the walk at its outer loop, one fork per form (see `Split`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tensorexpr import dtypes
from tensorexpr.bounds import interval
from tensorexpr.codegen.lowering.context.arithmetic import ZERO, constant, floordiv, multiple_of, reads_data, sub
from tensorexpr.codegen.lowering.context.faults import is_safe, known_axes, still_to_run
from tensorexpr.codegen.lowering.context.guards import Kept
from tensorexpr.codegen.lowering.context.rests import Rest
from tensorexpr.codegen.lowering.context.scope import PARTS, Scope
from tensorexpr.codegen.lowering.context.tasks import Names, Pending, Task
from tensorexpr.codegen.lowering.stage.boxes import Source
from tensorexpr.codegen.lowering.stage.caching import DECLARED, Ends, with_tiles
from tensorexpr.codegen.lowering.stage.joining import joined
from tensorexpr.codegen.lowering.stage.panels import panel_of, says_inside
from tensorexpr.codegen.lowering.stage.reductions import Reductions
from tensorexpr.codegen.nest import GRID, LANES, THREADS, Block, Check, CheckSite, Filled, For, If
from tensorexpr.codegen.schedule.analysis.reductions import groups_used
from tensorexpr.codegen.schedule.analysis.residues import is_class
from tensorexpr.codegen.schedule.analysis.state import SERIAL, Split, Stage, all_uses, needed_groups
from tensorexpr.codegen.schedule.legal.legality import COPIED, is_ordered, written_out_inside
from tensorexpr.errors import InternalError, Location
from tensorexpr.ir import TRUE, Access, Apply, Axis, Cast, Const, Expr, Index, apply, conjunction, conjuncts, const
from tensorexpr.records import replace
from tensorexpr.regions import affine_of
from tensorexpr.text import print_expr
from tensorexpr.traversal import negate, read_occurrences

GUARDED = ("guard", "single", "half", "parts")
"""Forms of a split that run points beyond the extent, which a condition leaves out."""
UNROLL_LIMIT = {"rest": 32, "small": 32, "single": 5}
"""Rests up to so long keep the unrolling of their loop, and so do single blocks of open sizes."""
LEAST_HALVED = 16
"""Lanes of a block from which on a sum over what is open has half of them where these do."""
IN_PARTS = 32
"""Lanes of a block of a sum over what is open from which on its rest runs in parts of them: a short row is no whole block."""
SHORT_WINDOW = 8
"""Iterations up to which a window that moves with the lanes (see `windows`) is unrolled."""


class Loops(Reductions):
    """Makes the loops of one stage; `shape` and `read` tell what tensors are and where they are kept.

    In the loops `hosting` definitions are computed that others read, at every point; `made_in` says in which loop a definition is
    computed that nothing reads before, `kept` of which tensors a block is there; `may_meet` tells whether two iterations over some
    axes may touch one element. With `at_root` nothing is around the stage but the serial loops `around`, over steps of scans: its loops may
    be parallel. A block of a GPU may ask for so many bytes of `shared` memory, and have
    lines of open length that are multiples of `lines`."""

    def __init__(
        self,
        stage: Stage,
        names: Names,
        shape: Callable[[str], tuple[Expr, ...]],
        read: Callable[[Expr], Expr],
        location: Location | None,
        at_root: bool,
        around: frozenset[str] = frozenset(),
        shared: int = DECLARED,
        hosting: frozenset[str] = frozenset(),
        made_in: Mapping[str, str] | None = None,
        may_meet: Callable[[tuple[str, ...]], bool] = lambda axes: False,
        kept: Mapping[str, Kept] | None = None,
        grid: bool = False,
        lines: int = 1,
        threads: bool = False,
    ) -> None:
        self.stage = stage
        self.lines = lines
        self.hosting = hosting
        self.made_in = made_in or {}
        self.kept = kept or {}
        self.may_meet = may_meet
        self.parts = stage.parts
        self.names = names
        self.shape = shape
        self.read = read
        self.location = location
        self.at_root = at_root
        self.around = around
        self.shared = shared
        self.is_parallel = any(kind == "parallel" or kind in GRID or kind in THREADS for _, kind in stage.kinds)
        self.grid = grid and not hosting and all(kind == "parallel" for _, kind in stage.kinds)
        """Whether all loops over data are to be those of a grid, which stand right inside of each other."""
        self.threads = threads
        """Whether lanes are threads, all of which a block has anyway."""

    # ------------------------------------------------------------------------------------------------------- walking

    def nest(self, loops: tuple[str, ...], scope: Scope, task: Task) -> Block:
        """The statements that run `task` in the loops of the list."""
        loops = self.relevant(loops, scope, task)
        within = self.within_extent(scope)
        if within is not None:
            condition, inside, ends = within
            return (ends(self.read(condition), self.nest(loops, inside, task)),)
        # Parallel loops stand outside of conditions.
        waits = loops and ((self.is_parallel and self.is_outermost(scope)) or self.is_in_grid(loops))
        first = () if waits or self.hosting.intersection(loops) else self.tested(loops, scope, task)
        if first:
            rest = replace(task, where=tuple(c for c in task.where if c not in first))
            return self.guarded(conjunction(first), scope, lambda inner: self.nest(loops, inner, rest))
        if not loops:
            if task.where:
                raise InternalError(f"expected the conditions in {self.stage.name} to be known where they are tested", term=task.where[0])
            return (*self.made_checks(task.checks, scope), *task.finish(scope))
        chosen = self.chosen(loops, scope, task)
        if chosen is not None:
            return chosen
        # A check stands in the loops whose iterations read: those of a parallel loop may run before what stands in front of it.
        runs = not task.where and not waits and self.still_to_run(loops, scope) == ()
        early = tuple(c for c in task.checks if self.is_decided(c, scope, loops)) if runs else ()
        if early:
            rest = replace(task, checks=tuple(c for c in task.checks if c not in early))
            return (*self.made_checks(early, scope), *self.nest(loops, scope, rest))
        group = self.stage.group_of(loops[0])
        if group is not None and group.number not in scope.groups:
            return self.reduction(group, loops, scope, task)
        return self.opened(loops, scope, task)

    def is_in_grid(self, loops: tuple[str, ...]) -> bool:
        """Whether the next loop is one of a grid."""
        return self.grid and bool(loops) and self.stage.group_of(loops[0]) is None

    def tested(self, loops: tuple[str, ...], scope: Scope, task: Task) -> tuple[Expr, ...]:
        """The conditions that are tested here, those on indices together. One that reads data waits for all before it and for loops that
        may be empty, which are tested for that where they can be, unless it is in bounds without (see `faults`)."""
        ready = tuple(c for c in task.where if scope.is_ready(c) and self.is_made((c,), loops))
        plain = tuple(c for c in ready if not reads_data(c))
        for condition in () if plain else ready:
            if is_safe((condition,), known_axes(self.stage, scope), scope, self.shape):
                return (condition,)
            runs = self.still_to_run(loops, scope) if condition is task.where[0] else None
            if runs is not None:
                return runs or (condition,)
        return plain

    def still_to_run(self, loops: tuple[str, ...], scope: Scope) -> tuple[Expr, ...] | None:
        """What must hold yet for all of the task to run; None where that is not known, or other definitions are computed in the loops."""
        found = still_to_run(loops, self.stage, scope)
        return None if found and self.hosting.intersection(loops) else found

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
            return body(replace(scope, holds=(*scope.holds, *conjuncts(condition)))) if resolved.value else ()
        checks = self.made_checks(self.checks_of((condition,)), scope)
        holds = (*scope.holds, *conjuncts(condition))
        then = body(replace(scope, facts=scope.facts.union(open_), holds=holds, conditional=True))
        tile = says_inside(condition, scope, self.shape)
        made = Filled(self.read(resolved), then, (), tile) if tile else If(self.read(resolved), then)
        return (*checks, made) if then else checks

    def chosen(self, loops: tuple[str, ...], scope: Scope, task: Task) -> Block | None:
        """Where the value is ``where(c, a, b)`` and c is decided out here: the loops for a and those for b."""
        if task.choose is None:
            return None
        (value,) = task.needs
        if not (isinstance(value, Apply) and value.op.name == "where"):
            return None
        condition, taken, otherwise = value.args
        known = [(c, scope.decided(c)) for c in conjuncts(condition)]
        if any(holds is False for _, holds in known):
            return self.nest(loops, scope, self.branch(task, otherwise))
        parts = tuple(c for c, holds in known if holds is None)
        if not parts:
            return self.nest(loops, scope, self.branch(task, taken))
        if isinstance(otherwise, Const):
            for axis in self.parts.axes:
                pieces = self.pieces(axis.index, parts, loops, scope)
                if pieces:
                    return tuple(s for piece in pieces for s in self.nest(loops, piece, task))
        if (self.is_parallel and scope.names <= self.around) or self.is_in_grid(loops):
            return None
        ready = tuple(c for c in parts if scope.is_ready(c) and self.is_made((c,), loops))
        if not ready or (len(ready) < len(parts) and groups_used(otherwise)):
            return None
        if not is_safe(ready, known_axes(self.stage, scope), scope, self.shape):
            runs = None if task.where else self.still_to_run(loops, scope)
            if runs is None:
                return None
            if runs:
                return self.guarded(conjunction(runs), scope, lambda inner: self.nest(loops, inner, task))
        rest = conjunction([c for c in parts if c not in ready])
        inner = taken if rest == TRUE else apply("where", rest, taken, otherwise)
        resolved = scope.resolve(conjunction(ready))
        branches = [self.branch(task, e) for e in (inner, otherwise)]
        if isinstance(resolved, Const):
            return self.nest(loops, scope, branches[0] if resolved.value else branches[1])
        checks = self.made_checks(self.checks_of(ready), scope)
        fails = replace(scope, conditional=True)
        holds = replace(fails, facts=scope.facts | {scope.resolve(c) for c in ready}, holds=(*scope.holds, *ready))
        fails = replace(fails, holds=(*scope.holds, negate(conjunction(ready))))
        return (*checks, If(self.read(resolved), self.nest(loops, holds, branches[0]), self.nest(loops, fails, branches[1])))

    def pieces(self, axis: str, conditions: tuple[Expr, ...], loops: tuple[str, ...], scope: Scope) -> tuple[Scope, ...]:
        """An axis that runs in lanes, cut where a condition on it alone begins or ceases to hold: no lane tests it then.

        Only one of which all loops are still to come: the point at which a placed definition is computed is no range to cut, and sums that
        are held for the points of its loops are found by what these are in the whole range."""
        own = self.stage.loops_of(axis)
        if any(loop in own for result in scope.results.values() for loop in result.tile):
            return ()
        bounds = tuple(constant(e) for e in (scope.axes[axis].start, scope.axes[axis].stop))
        whole = set(own) <= set(loops) and any(self.stage.kind(loop) in LANES for loop in own) and scope.is_untouched(axis)
        if not whole or None in bounds:
            return ()
        start, stop = (int(bound) for bound in bounds if bound is not None)
        for condition in conditions:
            cut = _border(condition, axis)
            if cut is not None and start < cut < stop:
                parts = (Axis(axis, const(start), const(cut)), Axis(axis, const(cut), const(stop)))
                return tuple(replace(scope, axes={**scope.axes, axis: part}) for part in parts)
        return ()

    def branch(self, task: Task, value: Expr) -> Task:
        """What is done for one branch of the selection that a task is about; checks that were made are not made again."""
        assert task.choose is not None
        open_checks = {(c.access, c.axis) for c in task.checks}
        chosen = replace(task.choose(value), inside=task.inside)
        return replace(chosen, checks=tuple(c for c in chosen.checks if (c.access, c.axis) in open_checks))

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

        def resolve(e: Expr) -> Expr:
            return self.read(scope.resolve(e))

        for check in checks:
            tensor = check.access.tensor
            index, place = check.access.indices[check.axis], check.access.location or self.location
            unsigned = isinstance(index, Cast) and index.arg.dtype is dtypes.uint64
            site = CheckSite(print_expr(check.access), tensor, check.axis, self.stage.name, place, unsigned)
            number = self.names.checks.setdefault(site, len(self.names.checks))
            statement: Check | If = Check(resolve(index), resolve(self.shape(tensor)[check.axis]), number)
            for guard in reversed(check.guards):
                statement = If(resolve(guard), (statement,))
            made[statement] = None
        return tuple(made)

    def is_decided(self, check: Pending, scope: Scope, loops: tuple[str, ...]) -> bool:
        """Whether a check can be made in front of the loops."""
        asked = (check.access.indices[check.axis], *check.guards)
        return all(map(scope.is_ready, asked)) and self.is_made(asked, loops)

    def is_made(self, exprs: tuple[Expr, ...], loops: tuple[str, ...]) -> bool:
        """Whether nothing that the expressions read is computed in these loops."""
        return not self.made_in or not any(
            self.made_in.get(access.tensor) in loops for e in exprs for access, _, _ in read_occurrences(e, ())
        )

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
            raise InternalError(f"expected the bounds of {loop} in {self.stage.name} to be known where it runs")
        count = constant(extent)
        if count == 0:
            return checks
        if count == 1 and not self.is_cached_in(loop):
            return (*checks, *self.body(loop, rest, scope.with_values(**{loop: ZERO}), task))
        if self.stage.kind(loop) == "unroll" and count is not None and count <= COPIED and self.copies_pay(loop, rest, scope):
            copies = [self.body(loop, rest, scope.with_values(**{loop: const(c)}), task) for c in range(count)]
            return (*checks, *joined(copies))
        name = self.loop_name(loop, scope)
        start = scope.resolve(scope.axes[loop].start) if loop in scope.axes else ZERO
        stop = scope.resolve(scope.axes[loop].stop) if loop in scope.axes else extent
        kind = self.kind(loop, count, scope)
        if kind in (*LANES, "unroll") and count is not None and constant(start) is None:  # along the block of an axis
            start, stop = ZERO, extent
        if kind in LANES and count is not None and self.stage.group_of(loop) is not None:
            wide = count if self.fork_of(loop, scope) == "parts" else max(count, self.stage.extent(loop) or count)
            if count < wide or count & (count - 1):
                return (*checks, *self.masked_rest(loop, kind, count, wide, rest, scope, task))
        inner = replace(scope.with_values(**{loop: sub(Index(name), start)}), names=scope.names | {name})
        if kind in LANES:
            inner = replace(inner, vectors=inner.vectors | {loop})
        inner, sources = self.cached_in(loop, inner)
        body = self.body(loop, rest, inner, task)
        made = self.with_copies(loop, For(name, self.read(start), self.read(stop), body, kind), sources) if body else ()
        return (*checks, *made)

    def is_cached_in(self, loop: str) -> bool:
        return any(at == loop for at, *_ in self.stage.cached)

    def cached_in(self, loop: str, scope: Scope) -> tuple[Scope, tuple[Source, ...]]:
        """The tensors, and panels of them, of which the part that a loop reads is copied in it, with the buffers where they are kept, and
        the scope in which panels are read."""
        found = []
        for at, tensor, order, across in self.stage.cached:
            if at != loop:
                continue
            shape = self.shape(tensor)
            home = self.read(Access(tensor, tuple(ZERO for _ in shape), dtypes.int64))
            if not isinstance(home, Access) or len(home.indices) != len(shape) or any(i != ZERO for i in home.indices):
                continue
            panel = panel_of(self.stage, tensor, order, across, scope, home.tensor, shape, self.names.fresh)
            if panel is None:
                found.append(Source(home.tensor, shape, order))
                continue
            access, of_panel, where = panel
            scope = replace(scope, panels={**scope.panels, access: of_panel})
            extents = tuple(map(const, where.extents))
            found.append(Source(of_panel.tensor, extents, tuple(range(len(extents))), where))
        return scope, tuple(found)

    def with_copies(self, loop: str, nest: For, sources: tuple[Source, ...]) -> Block:
        """The loop, with copies of what it reads where these are asked for."""
        return with_tiles(nest, sources, self.names.fresh, self.shared, self.lines) if sources else (nest,)

    def copies_pay(self, loop: str, rest: tuple[str, ...], scope: Scope) -> bool:
        """Whether reductions start further in: a loop around them is copied out here, where their bounds get simpler by it.

        So is a loop over residue classes, in each of which conditions are decided.
        """
        found = (self.stage.group_of(x) for x in rest)
        if any(g is not None and g.number not in scope.groups for g in found):
            return True
        split = self.stage.parents().get(loop)
        if not isinstance(split, Split) or split.inner != loop:
            return False
        return any(a.index == split.parent for a in self.parts.axes) and is_class(self.parts, split.parent, split.factor)

    def masked_rest(self, loop: str, kind: str, count: int, lanes: int, rest: tuple[str, ...], scope: Scope, task: Task) -> Block:
        """Lanes of a reduction that are no power of two, or fewer than its accumulators: one vector, of which the last lanes are off."""
        name, wide = self.loop_name(loop, scope), 1 << (lanes - 1).bit_length()
        inner = scope.with_values(**{loop: Index(name)})
        inner = replace(inner, names=scope.names | {name}, vectors=scope.vectors | {loop}, conditional=True)
        if wide == count:
            return (For(name, ZERO, const(wide), self.body(loop, rest, inner, task), kind),)
        inside = apply("lt", Index(name), const(count))
        if self.vanishes(loop, task):
            body = self.body(loop, rest, replace(inner, padded=inside), task)
        else:
            body = (If(inside, self.body(loop, rest, inner, task)),)
        return (For(name, ZERO, const(wide), body, kind),)

    def loop_name(self, loop: str, scope: Scope) -> str:
        """The name of a loop's index: its own, unless a loop around has it."""
        while loop in scope.names:
            loop = f"{loop}_"
        return loop

    def kind(self, loop: str, count: int | None, scope: Scope) -> str:
        kind = self.stage.kind(loop)
        if kind == "parallel" or (kind == SERIAL and self.inherits_parallel(loop, scope)):
            return "parallel" if self.is_outermost(scope) and not scope.conditional else SERIAL
        if kind in GRID:
            return kind if self.at_root and not self.around and not scope.conditional else SERIAL
        if count is None:
            return SERIAL
        if kind == SERIAL and loop in scope.offsets and count <= SHORT_WINDOW:
            return "unroll"  # of most taps it is then known that all lanes have them, and weights wait in registers for the next row
        split = self.stage.parents().get(loop)
        form = self.fork_of(loop, scope) if isinstance(split, Split) else None
        return SERIAL if kind == "unroll" and form is not None and count > UNROLL_LIMIT.get(form, count) else kind

    def inherits_parallel(self, loop: str, scope: Scope) -> bool:
        """In the rest of a parallel block loop, the first data loop takes over."""
        if not scope.names <= self.around or self.stage.group_of(loop) is not None or self.may_meet(self.stage.axes_of(loop)):
            return False
        if written_out_inside(self.stage, loop) is not None:
            return False
        return any(self.stage.kind(outer) == "parallel" for outer, variant in scope.variants.items() if variant in ("rest", "small"))

    def fork_of(self, loop: str, scope: Scope) -> str | None:
        split = self.stage.parents().get(loop)
        return scope.variants.get(split.outer) if isinstance(split, Split) else None

    def body(self, loop: str, rest: tuple[str, ...], scope: Scope, task: Task) -> Block:
        if task.inside is None:
            return self.nest(rest, scope, task)
        within = self.within_extent(scope)
        if within is not None:  # what is computed here stands behind the condition too
            return (within[2](self.read(within[0]), self.body(loop, rest, within[1], task)),)
        return task.inside(loop, scope, lambda: self.nest(rest, scope, task))

    def within_extent(self, scope: Scope) -> tuple[Expr, Scope, type[If]] | None:
        """The condition that leaves out points beyond the extent of a split, where its position is known, the scope under it, and
        how it is written."""
        for split in self.stage.relations:
            if isinstance(split, Split) and scope.variants.get(split.outer) in GUARDED and split.outer not in scope.guarded:
                position, whole = scope.position(split.parent), scope.length(split.parent)
                if position is not None and whole is not None:
                    condition = apply("lt", position, whole)
                    facts = scope.facts | {condition}
                    ends = Ends if self.stage.group_of(split.outer) is None else Rest
                    return condition, replace(scope, guarded=scope.guarded | {split.outer}, facts=facts, conditional=True), ends
        return None

    def undecided(self, loop: str, scope: Scope) -> Split | None:
        """The outermost split above a loop whose form is still open."""
        parents = self.stage.parents()
        found = None
        for name in self.stage.ancestry(loop):
            relation = parents.get(name)
            if isinstance(relation, Split) and relation.outer not in scope.variants:
                found = relation
        return found

    def fitted(self, split: Split, loops: tuple[str, ...], scope: Scope, task: Task, whole: Expr) -> Block:
        """A split with tail "shift" of an extent known only when it runs: blocks where one fits. Else copies one by one, where each would
        be tested, or a single block, guarded, of half the lanes where these do: each step of a sum would go through all of them."""
        fits = self.read(apply("ge", whole, const(split.factor)))
        kind, factor = self.stage.kind(split.inner), split.factor

        def fewer(variant: str) -> Block:
            inner = replace(scope.with_variant(split, variant), conditional=True)
            return self.nest(loops, inner.with_values(**{split.inner if variant == "ones" else split.outer: ZERO}), task)

        if kind == "unroll" and split.inner in loops:
            small = fewer("ones")
        elif kind in LANES and factor % 2 == 0 and factor >= LEAST_HALVED and self.parts.groups:
            small = (If(self.read(apply("gt", whole, const(factor // 2))), fewer("single"), fewer("half")),)
        else:
            small = fewer("single")
        if self.is_parallel and self.is_outermost(scope) and not scope.conditional:
            # A parallel loop stands outside of conditions: it has no iterations where no block fits. It comes last, so that loops of
            # several definitions, which write to nothing that lies between, may be one (`kernels.together`).
            blocks = self.nest(loops, scope.with_variant(split, "shift if fits"), task)
            return (If(self.read(negate(fits)), small), *blocks)
        inside = replace(scope.with_variant(split, "shift"), conditional=True)
        return (If(fits, self.nest(loops, inside, task), small),)

    def in_parts(self, split: Split) -> bool:
        """Whether the rest of a sum runs in parts of the lanes of a block: whichever lane takes a point, all are added up."""
        group = self.stage.group_of(split.outer)
        lanes = self.stage.kind(split.inner) in LANES and split.factor >= IN_PARTS and split.factor % PARTS == 0
        return split.tail == "guard" and lanes and group is not None and not is_ordered(group) and not self.threads

    def runs_inside(self, loop: str, other: str) -> bool:
        """Whether all that a loop was split into runs inside of all that another was split into. (Of a split without a tail that need not
        be so; where its loop is the rest of another split it may have one nevertheless.)"""
        order = self.stage.order
        return min(map(order.index, self.stage.loops_of(loop)), default=0) >= max(map(order.index, self.stage.loops_of(other)), default=0)

    def forked(self, split: Split, loops: tuple[str, ...], scope: Scope, task: Task) -> Block:
        """The walk once per form that a split takes."""

        def walk(variant: str, outer: Expr | None = None) -> Block:
            inner = scope.with_variant(split, variant)
            return self.nest(loops, inner if outer is None else inner.with_values(**{split.outer: outer}), task)

        whole = scope.length(split.parent)
        if whole is None:
            raise InternalError(f"expected the bounds of {split.parent} in {self.stage.name} to be known where it runs")
        count, factor = constant(whole), split.factor
        least = interval(whole, {})[0]
        if (count is not None or least >= 0) and multiple_of(whole) % factor == 0:
            return walk("main")
        if count is None and self.in_parts(split):
            return (*walk("main"), *walk("parts"))
        if split.tail in ("guard", "stride"):
            return walk("stride" if split.tail == "stride" and self.runs_inside(split.outer, split.inner) else "guard")
        if split.tail == "shift":
            if least >= factor:
                return walk("shift")
            return self.fitted(split, loops, scope, task, whole) if count is None else walk("small", ZERO)
        if count is not None and count < factor:
            return walk("small", ZERO)
        return (*walk("main"), *walk("rest", floordiv(whole, factor)))


def _border(condition: Expr, index: str) -> int | None:
    """The value of an index from which on a condition on it alone holds, or no longer does."""
    if not isinstance(condition, Apply) or condition.op.name not in ("lt", "le", "gt", "ge"):
        return None
    left, right = (affine_of(e) for e in condition.args)
    form = None if left is None or right is None else left - right
    if form is None or form.names() != (index,) or form.has_division() or form.coefficient(index) != 1:
        return None
    return -form.constant + (condition.op.name in ("le", "gt"))
