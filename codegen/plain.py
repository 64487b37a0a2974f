"""A program as the plain nest: what it says, in the order in which it is written, and nothing else.

A kernel for each definition, a loop for each axis, a reduction as accumulators in front of its loops. Conditions are tested where they
are written: a branch of a `where` that takes statements (reductions, checks) stands in an `If`, any other stays an expression. An access
that is not proved in bounds has a `Check` in front of the statement that reads it.

    T[i] = where(i < 3, sum(A[i, k] for k in range(n)), 0.0)       for i in range(0, m):
                                                                       branch: local(f32[()])
                                                                       if i < 3:
                                                                           sum: local(f32[()])
                                                                           sum[()] = 0.0
                                                                           for k in range(0, n):
                                                                               sum[()] = sum[()] + A[i, k]
                                                                           branch[()] = sum[()]
                                                                       else:
                                                                           branch[()] = 0.0
                                                                       T[i] = branch[()]

It shares no step with schedules and their lowering, so that it is right where these are not: the last form that a build tries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tensorexpr import dtypes
from tensorexpr.bounds import PROVED, check_access
from tensorexpr.codegen.facts.winners import beaten_by_all, wins
from tensorexpr.codegen.lowering.context.arithmetic import ONE, ZERO, add, sub
from tensorexpr.codegen.lowering.scatters.sorting import NO_KEY, Sorting, flat
from tensorexpr.codegen.nest import Alloc, Block, Buffer, Check, CheckSite, For, If, Kernel, LoopNest, Stmt, Store
from tensorexpr.dtypes import DType, accumulator
from tensorexpr.errors import Location
from tensorexpr.interpret import identity_of
from tensorexpr.ir import (
    Access,
    Apply,
    Axis,
    Cast,
    Const,
    Define,
    Definition,
    Expr,
    Index,
    Param,
    Program,
    Reduce,
    Scan,
    Scatter,
    Segments,
    TensorType,
    apply,
    conjuncts,
    const,
    counted,
    product,
)
from tensorexpr.records import field, record, replace
from tensorexpr.simplify.facts.sort_ranges import known_of, ranges_of
from tensorexpr.text import print_expr
from tensorexpr.traversal import fresh_name, map_children, negate, walk, with_bodies

COMBINE = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "all": "and", "any": "or"}

Element = Callable[[tuple[Expr, ...]], Expr]
"""The element of a tensor at indices."""


class Plain(NamedTuple):
    """The plain nest of a program, the buffer in which each tensor is kept, those in bodies of scans included, and the statements that
    compute each definition, by its name."""

    nest: LoopNest
    buffers: Mapping[str, str]
    blocks: Mapping[str, Block]


def plain_nest(program: Program, name: str = "main") -> LoopNest:
    """The plain nest of a program, for any target. Ensures: `verify_nest` accepts it, and it computes what the program means."""
    return plainly(program, name).nest


def plainly(program: Program, name: str = "main") -> Plain:
    """The plain nest of a program, and what of it is which definition."""
    made = _Plain(program)
    return Plain(made.nest(name), made.targets, made.blocks)


@record(frozen=False)
class _Place:
    """Where statements are made: the definition, the loops and conditions around as the program writes them, values of parameters; what
    has been made here, and what stands for expressions that were met here."""

    definition: str
    location: Location | None
    axes: tuple[Axis, ...] = ()
    guards: tuple[Expr, ...] = ()
    params: Mapping[str, Expr] = field(default_factory=dict)
    around: _Place | None = None
    statements: list[Stmt] = field(default_factory=list)
    locals: list[Buffer] = field(default_factory=list)
    known: dict[int, tuple[Expr, Expr]] = field(default_factory=dict)

    def inner(self, axes: tuple[Axis, ...] = (), guards: tuple[Expr, ...] = ()) -> _Place:
        """A place inside of further loops and conditions."""
        return replace(
            self,
            axes=(*self.axes, *axes),
            guards=(*self.guards, *guards),
            around=self,
            statements=[],
            locals=[],
            known={},
        )

    def block(self) -> Block:
        """What has been made here, with its local buffers around it."""
        block: Block = tuple(self.statements)
        for buffer in reversed(self.locals):
            block = (Alloc(buffer, block),)
        return block

    def found(self, expr: Expr) -> Expr | None:
        """What stands for an expression that was met here or further out."""
        place: _Place | None = self
        while place is not None:
            known = place.known.get(id(expr))
            if known is not None:
                return known[1]
            place = place.around
        return None


class _Plain:
    """The nest of one program: its names, where tensors are kept, and its kernels so far."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.types: dict[str, TensorType] = dict(program.types)
        self.taken = {*self.types, *program.sizes, *_names(program.definitions)}
        every = [*with_bodies(program.definitions)]
        self.ranges = ranges_of(every)
        self.elements: dict[str, Element] = {}
        self.targets: dict[str, str] = {}
        self.workspace: list[Buffer] = []
        self.checks: dict[CheckSite, int] = {}
        self.kernels: list[Kernel] = []
        self.blocks: dict[str, Block] = {}

    def nest(self, name: str) -> LoopNest:
        program = self.program
        computed = {n for d in program.definitions for n, _ in d.results}
        parameters = [Buffer(i.name, i.type.dtype, i.type.shape, "parameter") for i in program.inputs]
        for tensor in (*(i.name for i in program.inputs), *(c.name for c in program.constants)):
            self.kept(tensor, tensor)
        outputs: list[str] = []
        copies: list[tuple[str, str]] = []
        for output in program.outputs:
            type_, target = self.types[output], output
            if output not in computed or output in outputs:
                target = fresh_name(f"{output}_out", self.taken)
                copies.append((target, output))
            outputs.append(target)
            parameters.append(Buffer(target, type_.dtype, type_.shape, "parameter", self.within(output)))
        for definition in program.definitions:
            for tensor, type_ in definition.results:
                if tensor not in outputs:
                    self.workspace.append(Buffer(tensor, type_.dtype, tuple(map(counted, type_.shape)), "workspace", self.within(tensor)))
                self.kept(tensor, tensor)
            self.kernels.append(Kernel(definition.results[0][0], self.definition(definition, ())))
        self.kernels += (Kernel(target, self.copied(self.types[source], target, self.elements[source])) for target, source in copies)
        return LoopNest(
            name,
            tuple(parameters),
            program.constants,
            tuple(self.workspace),
            tuple(k for k in self.kernels if k.body),
            tuple(outputs),
            program.sizes,
            tuple(self.checks),
        )

    # -- tensors -------------------------------------------------------------------------------------------------------

    def kept(self, tensor: str, buffer: str) -> None:
        """Says that a tensor is kept in a buffer."""
        dtype = self.types[tensor].dtype
        self.targets[tensor] = buffer
        self.elements[tensor] = lambda at: Access(buffer, at, dtype)

    def within(self, tensor: str) -> tuple[int, Expr] | None:
        """Between which numbers the elements of a sort plan are."""
        found = self.ranges.get(tensor)
        if found is None:
            return None
        comparison, most = found
        return 0, most if comparison == "le" else sub(most, ONE)

    def temporary(self, stem: str, type_: TensorType, within: tuple[int, Expr] | None = None) -> str:
        """A buffer of the workspace."""
        name = fresh_name(stem, self.taken)
        self.workspace.append(Buffer(name, type_.dtype, tuple(map(counted, type_.shape)), "workspace", within))
        return name

    def store(self, buffer: str, at: tuple[Expr, ...], value: Expr) -> Block:
        return (Store(buffer, at, value),)

    def over(self, type_: TensorType, body: Callable[[tuple[Expr, ...]], Block]) -> Block:
        """Loops over all elements of a tensor."""
        taken = set(self.taken)
        names = [fresh_name(f"x{axis}", taken) for axis in range(len(type_.shape))]
        block = body(tuple(map(Index, names)))
        for name, extent in zip(reversed(names), reversed(type_.shape), strict=True):
            block = (For(name, ZERO, extent, block),)
        return block

    def copied(self, type_: TensorType, target: str, source: Element, entry: tuple[Expr, ...] = ()) -> Block:
        """Loops that copy a tensor to a buffer, or to an entry of one."""
        return self.over(type_, lambda at: self.store(target, (*entry, *at), source(at)))

    # -- definitions -----------------------------------------------------------------------------------------------------

    def definition(self, definition: Definition, outer: tuple[Axis, ...]) -> Block:
        match definition:
            case Define():
                block = self.define(definition, outer)
            case Scatter():
                block = self.scatter(definition, outer)
            case Segments():
                block = self.segments(definition, outer)
            case Scan():
                block = self.scan(definition, outer)
        self.blocks[definition.results[0][0]] = block
        return block

    def define(self, definition: Define, outer: tuple[Axis, ...]) -> Block:
        def body(place: _Place) -> None:
            value = self.value(definition.value, place)
            place.statements += self.store(self.targets[definition.name], tuple(Index(a.index) for a in definition.axes), value)

        place = _Place(definition.name, definition.location, outer)
        self.loops(definition.axes, place, body)
        return place.block()

    def scatter(self, definition: Scatter, outer: tuple[Axis, ...]) -> Block:
        type_, name = definition.type, definition.name
        carried = accumulator(type_.dtype)
        target = self.targets[name]
        kept = target if carried is type_.dtype else self.temporary(f"{name}_wide", TensorType(type_.shape, carried))
        start = Const(carried.numpy.type(identity_of(definition.combine, type_.dtype)), carried)

        def body(place: _Place) -> None:
            test, inner = self.under(definition.where, place)
            at = tuple(self.value(e, inner) for e in definition.indices)
            self.check(Access(name, definition.indices, type_.dtype), at, type_.shape, inner)
            sent = _as(self.value(definition.value, inner), carried)
            inner.statements += self.store(kept, at, apply(COMBINE[definition.combine], Access(kept, at, carried), sent))
            self.closed(test, inner, place)

        place = _Place(name, definition.location, outer)
        place.statements += self.over(type_, lambda at: self.store(kept, at, start))
        self.loops(definition.axes, place, body)
        if kept != target:
            place.statements += self.over(type_, lambda at: self.store(target, at, Cast(type_.dtype, Access(kept, at, carried))))
        return place.block()

    def segments(self, definition: Segments, outer: tuple[Axis, ...]) -> Block:
        """A counting sort (`lowering.sorting`)."""
        (offsets, offsets_type), (order, order_type) = definition.results
        extent = counted(product(definition.extents))
        keys = self.temporary(f"{definition.name}_keys", order_type, (-1, sub(extent, ONE)))
        sorting = Sorting(
            definition.batch,
            lambda at: (keys, at),
            lambda at: (self.targets[offsets], at),
            lambda at: (self.targets[order], at),
            extent,
            order_type.shape[-1],
            definition.where is not None,
        )

        def body(place: _Place) -> None:
            test, inner = self.under(definition.where, place)
            at = tuple(self.value(e, inner) for e in definition.keys)
            self.check(Access(definition.name, definition.keys, dtypes.int64), at, definition.extents, inner)
            batch, points = (tuple(Index(a.index) for a in axes) for axes in (definition.batch, definition.axes))
            position = flat(points, tuple(a.stop for a in definition.axes))
            inner.statements += sorting.counted(batch, position, flat(at, definition.extents))
            self.closed(test, inner, place)

        place = _Place(definition.name, definition.location, outer)
        place.statements += self.over(offsets_type, lambda at: self.store(self.targets[offsets], at, ZERO))
        if sorting.partial:
            place.statements += self.over(order_type, lambda at: self.store(keys, at, NO_KEY))
        self.loops(definition.loops, place, body)
        place.statements += sorting.sorted(set(self.taken))
        return place.block()

    def scan(self, definition: Scan, outer: tuple[Axis, ...]) -> Block:
        """Every entry from the one before, the first from the initial states."""
        step = Index(definition.step)
        first = apply("eq", step, ZERO)
        before = [self.elements[init] for init in definition.inits]
        results = [(self.targets[name], self.elements[name]) for name in definition.names]
        for (formal, type_), start, (_, entry) in zip(definition.states, before, results, strict=True):
            self.types[formal] = type_
            self.elements[formal] = _state(first, start, entry, sub(step, ONE))
        statements: list[Stmt] = []
        steps = (*outer, Axis(definition.step, ZERO, definition.length))
        for inner in definition.body:
            for tensor, type_ in inner.results:
                self.types[tensor] = type_
                self.kept(tensor, self.temporary(tensor, type_, self.within(tensor)))
            statements += self.definition(inner, steps)
        for following, (target, _), (_, type_) in zip(definition.nexts, results, definition.states, strict=True):
            statements += self.copied(type_, target, self.elements[following], (step,))
        return (For(definition.step, ZERO, definition.length, tuple(statements)),)

    # -- loops and conditions ----------------------------------------------------------------------------------------------

    def loops(self, axes: Sequence[Axis], place: _Place, body: Callable[[_Place], None]) -> None:
        """Makes loops over axes at a place; `body` makes what stands in the innermost."""
        if not axes:
            body(place)
            return
        axis = axes[0]
        start, stop = self.value(axis.start, place), self.value(axis.stop, place)
        inner = place.inner((axis,))
        self.loops(axes[1:], inner, body)
        place.statements.append(For(axis.index, start, stop, inner.block()))

    def under(self, where: Expr | None, place: _Place) -> tuple[Expr | None, _Place]:
        """The test of a condition, and the place where it holds; that is this one where there is no condition."""
        return (None, place) if where is None else (self.value(where, place), place.inner(guards=tuple(conjuncts(where))))

    def closed(self, test: Expr | None, inner: _Place, place: _Place) -> None:
        """Puts what was made where a condition holds behind its test."""
        if test is not None:
            place.statements.append(If(test, inner.block()))

    def check(self, access: Access, at: tuple[Expr, ...], shape: tuple[Expr, ...], place: _Place) -> None:
        """Checks of an access, on the axes on which it is not proved in bounds."""
        guards = place.guards
        if self.ranges:
            bounds = [bound for axis in place.axes for bound in (axis.start, axis.stop)]
            guards = (*guards, *known_of((*bounds, *access.indices), self.ranges))
        for axis, verdict in enumerate(check_access(access.indices, shape, place.axes, guards)):
            if verdict is PROVED:
                continue
            written = access.indices[axis]
            unsigned = isinstance(written, Cast) and written.arg.dtype is dtypes.uint64
            location = access.location or place.location
            site = CheckSite(print_expr(access), access.tensor, axis, place.definition, location, unsigned)
            place.statements.append(Check(at[axis], shape[axis], self.checks.setdefault(site, len(self.checks))))

    # -- expressions -------------------------------------------------------------------------------------------------------

    def value(self, expr: Expr, place: _Place) -> Expr:
        """What an expression is at a place, where the statements that it takes are made."""
        found = place.found(expr)
        if found is None:
            found = self.made(expr, place)
            place.known[id(expr)] = expr, found  # who is kept keeps its identity
        return found

    def made(self, expr: Expr, place: _Place) -> Expr:
        match expr:
            case Param():
                return place.params.get(expr.name, expr)
            case Access():
                at = tuple(self.value(index, place) for index in expr.indices)
                self.check(expr, at, self.types[expr.tensor].shape, place)
                return self.elements[expr.tensor](at)
            case Apply() if expr.op.name == "where":
                return self.choice(expr, place)
            case Reduce():
                return self.reduction(expr, place)
        return map_children(expr, lambda child: self.value(child, place))

    def choice(self, expr: Apply, place: _Place) -> Expr:
        """The branch that is taken, evaluated alone."""
        condition, taken, otherwise = expr.args
        test = self.value(condition, place)
        branches = (place.inner(guards=tuple(conjuncts(condition))), place.inner(guards=(negate(condition),)))
        values = [self.value(branch, inner) for branch, inner in zip((taken, otherwise), branches, strict=True)]
        if not any(inner.statements for inner in branches):
            return apply("where", test, *values)
        result = self.local("branch", expr.dtype, place)
        for value, inner in zip(values, branches, strict=True):
            inner.statements += self.store(result, (), value)
        place.statements.append(If(test, branches[0].block(), branches[1].block()))
        return Access(result, (), expr.dtype)

    def local(self, stem: str, dtype: DType, place: _Place) -> str:
        """A local buffer of one element."""
        name = fresh_name(stem, self.taken)
        place.locals.append(Buffer(name, dtype, (), "local"))
        return name

    def held(self, stem: str, value: Expr, place: _Place) -> Access:
        """A value in a local buffer."""
        name = self.local(stem, value.dtype, place)
        place.statements += self.store(name, (), value)
        return Access(name, (), value.dtype)

    def reduction(self, expr: Reduce, place: _Place) -> Expr:
        """A reduction: its accumulators, and loops that take in the value of each point at which its condition holds."""
        if expr.combiner.is_builtin and expr.combiner.name in ("argmax", "argmin"):
            return self.winner(expr, place)
        stem, dtype = expr.combiner.name or "reduced", expr.dtype
        if expr.combiner.is_builtin:
            carried = accumulator(dtype)
            starts: tuple[Expr, ...] = (Const(identity_of(expr.combiner.name, carried), carried),)
        else:
            starts = expr.combiner.identity
        held = tuple(self.held(stem, start, place) for start in starts)

        def taken_in(values: tuple[Expr, ...], inner: _Place) -> None:
            found: tuple[Expr, ...]
            if expr.combiner.is_builtin:
                found = (apply(COMBINE[expr.combiner.name], held[0], _as(values[0], starts[0].dtype)),)
            else:
                found = self.combined(expr, held, values, inner)
            for accumulated, value in zip(held, found, strict=True):
                inner.statements += self.store(accumulated.tensor, (), value)

        self.points(expr, place, taken_in)
        return _as(held[expr.component], dtype)

    def combined(self, expr: Reduce, old: tuple[Expr, ...], values: tuple[Expr, ...], place: _Place) -> tuple[Expr, ...]:
        """A user's combination of what is accumulated and further values: none is stored before all are computed."""
        combiner = expr.combiner
        further = [self.held("value", value, place) for value in values]
        params = dict(zip((p.name for p in (*combiner.left, *combiner.right)), (*old, *further), strict=True))
        inside = replace(place, params={**place.params, **params}, known={}, around=None)
        return tuple(self.held("combined", self.value(result, inside), place) for result in combiner.results)

    def winner(self, expr: Reduce, place: _Place) -> Expr:
        """The position of the first greatest or least value; a NaN wins over all but an earlier NaN. 0 where there is no point."""
        dtype = expr.values[0].dtype
        known = self.position(expr, place)
        counted = self.held("position", ZERO, place) if known is None else None
        found, best = (
            self.held(stem, start, place)
            for stem, start in ((expr.combiner.name, const(-1)), ("best", Const(beaten_by_all(expr.combiner.name, dtype), dtype)))
        )

        def taken_in(values: tuple[Expr, ...], inner: _Place) -> None:
            value = self.held("value", values[0], inner)
            position = known if counted is None else counted
            assert position is not None
            kept = (*self.store(found.tensor, (), position), *self.store(best.tensor, (), value))
            inner.statements.append(If(wins(expr.combiner.name, found, best, value), kept))

        def counted_on(inner: _Place) -> None:
            if counted is not None:
                inner.statements += self.store(counted.tensor, (), add(counted, ONE))

        self.points(expr, place, taken_in, counted_on)
        return apply("maximum", found, ZERO)

    def position(self, expr: Reduce, place: _Place) -> Expr | None:
        """The row-major position of a point of a reduction by its indices; None where bounds depend on other indices of it, or on data."""
        own = {axis.index for axis in expr.axes}
        bounds = [bound for axis in expr.axes for bound in (axis.start, axis.stop)]
        if any(isinstance(n, Access | Reduce) or (isinstance(n, Index) and n.name in own) for bound in bounds for n in walk(bound)):
            return None
        ends = [(self.value(axis.start, place), self.value(axis.stop, place)) for axis in expr.axes]
        at = tuple(sub(Index(axis.index), start) for axis, (start, _) in zip(expr.axes, ends, strict=True))
        return flat(at, tuple(sub(stop, start) for start, stop in ends))

    def points(
        self,
        expr: Reduce,
        place: _Place,
        taken_in: Callable[[tuple[Expr, ...], _Place], None],
        behind: Callable[[_Place], None] = lambda place: None,
    ) -> None:
        """The loops of a reduction: values taken in where its condition holds, and what stands behind that at every point."""

        def body(inner: _Place) -> None:
            test, under = self.under(expr.where, inner)
            taken_in(tuple(self.value(value, under) for value in expr.values), under)
            self.closed(test, under, inner)
            behind(inner)

        if expr.axes:
            self.loops(expr.axes, place, body)
            return
        once = place.inner()  # one point, with values of its own
        body(once)
        place.statements += once.block()


def _state(first: Expr, start: Element, entry: Element, before: Expr) -> Element:
    """The state of a scan: where it starts, or the entry before."""
    return lambda at: apply("where", first, start(at), entry((before, *at)))


def _as(value: Expr, dtype: DType) -> Expr:
    return value if value.dtype is dtype else Cast(dtype, value)


def _names(definitions: Sequence[Definition]) -> set[str]:
    """The names of tensors and steps in the bodies of scans."""
    names: set[str] = set()
    for definition in with_bodies(definitions):
        names.update(name for name, _ in definition.results)
        if isinstance(definition, Scan):
            names |= {definition.step, *(name for name, _ in definition.states)}
    return names
