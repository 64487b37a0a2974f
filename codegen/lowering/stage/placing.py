"""Where tensors are kept, and what is computed in the loops of another definition.

A definition placed in a loop is computed at the start of each iteration, its values in a local buffer around the rest of
the iteration.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from tensorexpr.bounds import axis_ranges, implied, interval
from tensorexpr.codegen.lowering.context.arithmetic import ZERO, add, constant, minimum, sub
from tensorexpr.codegen.lowering.context.faults import known_axes
from tensorexpr.codegen.lowering.context.guards import Kept
from tensorexpr.codegen.lowering.context.scope import Scope
from tensorexpr.codegen.lowering.context.slots import Slots
from tensorexpr.codegen.lowering.context.tasks import Names
from tensorexpr.codegen.nest import Alloc, Block, Buffer, If
from tensorexpr.codegen.schedule.analysis.state import Stage, State
from tensorexpr.codegen.schedule.legal.placement import Part, blocks_in
from tensorexpr.ir import Axis, Define, Definition, Expr, Index, Scatter, TensorType, apply, const, product
from tensorexpr.records import record
from tensorexpr.traversal import free_names, tensors_read

PAGE, LINE = 4096, 64
"""Bytes of a page of memory, and of a line of the caches."""


@record
class Home:
    """Where a tensor is kept: a buffer, behind fixed leading indices (the step of a scan).

    `axes` are those of the tensor that the buffer has, where it holds one element of the others, and a block, beginning at the
    given element, of those in `origins`. A `ring` holds the last so many entries along the first axis.
    """

    buffer: str
    leading: tuple[Expr, ...] = ()
    axes: tuple[int, ...] | None = None
    ring: int = 0
    origins: tuple[tuple[int, Expr], ...] = ()

    def at(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        if self.ring:
            return (*self.leading, slot(indices[0], self.ring), *indices[1:])
        begin = dict(self.origins)

        def kept(axis: int) -> Expr:
            return sub(indices[axis], begin[axis]) if axis in begin else indices[axis]

        return (*self.leading, *map(kept, range(len(indices)) if self.axes is None else self.axes))


def slot(position: Expr, entries: int) -> Expr:
    """Where a ring of so many entries keeps that of a position."""
    known = constant(position)
    return apply("mod", position, const(entries)) if known is None else const(known % entries)


def all_axes(stage: Stage) -> dict[str, Axis]:
    """The axes of a stage by name, those of its reductions included."""
    return {a.index: a for a in (*stage.parts.axes, *(x for g in stage.parts.groups for x in g.axes))}


class Placing(ABC):
    """The part of lowering a program that computes definitions in the loops of others."""

    state: State
    names: Names
    types: dict[str, TensorType]
    homes: dict[str, Home]
    stages: Mapping[str, Stage]
    definitions: Mapping[str, Definition]
    placed: dict[tuple[str, str], list[str]]
    parts: dict[str, Part]
    slots: Slots

    @abstractmethod
    def read(self, expr: Expr) -> Expr:
        """The expression with tensors read where they are kept."""

    @abstractmethod
    def defined(self, definition: Define, scope: Scope, at_root: bool) -> Block:
        """The loops of a definition at the points that the scope knows, and all others."""

    def inside(self, loop: str, scope: Scope, body: Callable[[], Block]) -> Block:
        """The body of a loop, after what is computed there."""
        return self.with_placed(self.placed.get((scope.stage.name, loop), []), scope, body)

    def with_placed(self, names: list[str], scope: Scope, body: Callable[[], Block]) -> Block:
        """The body of a loop after the definitions that are computed in it; their local buffers live around it."""
        if not names:
            return body()
        name, rest = names[0], names[1:]
        if not self.parts[name].is_local:
            return (*self.computed(name, scope), *self.with_placed(rest, scope, body))
        before = self.homes[name]
        part, axes = self.parts[name], self.whole_axes(name)
        buffer = self.local_buffer(name) if part.is_on_stack() else self.slots.buffer(name, self.local_buffer)
        # Outside of all loops no iteration has a slot: all that follows reads what was made once, in the first.
        slots = () if part.is_on_stack() else (self.slots.index if scope.names else ZERO,)
        self.homes[name] = Home(buffer.name, slots, axes, origins=self.origins(name, scope))
        block = (*self.computed(name, scope), *self.with_placed(rest, scope, body))
        self.homes[name] = before
        return (Alloc(buffer, block),) if part.is_on_stack() else block

    def local_buffer(self, name: str) -> Buffer:
        """A buffer for what one iteration asks for of a definition."""
        type_ = self.types[name]
        extents = self.parts[name].extents(type_.shape)
        shape = tuple(extents[axis] for axis in self.whole_axes(name))
        return Buffer(self.names.fresh(name), type_.dtype, shape, "local")

    def whole_axes(self, name: str) -> tuple[int, ...]:
        """The axes of a placed definition that are computed whole, or in blocks."""
        part = self.parts[name]
        return tuple(axis for axis, (p, n) in enumerate(zip(part.points, part.lengths, strict=True)) if p is None or n is not None)

    def origins(self, name: str, scope: Scope) -> tuple[tuple[int, Expr], ...]:
        """The axes of which a block or a window is computed, and where it begins."""
        return tuple((axis, self.begin(name, axis, scope)) for axis, n in enumerate(self.parts[name].lengths) if n is not None)

    def kept_for(self, stage: Stage) -> dict[str, Kept]:
        """The tensors of which a block is kept where the loops of a stage run."""
        root = stage.name if stage.place is None else stage.place.stage
        found: dict[str, Kept] = {}
        for name, loop in ((name, loop) for (at, loop), names in self.placed.items() if at == root for name in names):
            along = tuple(axis for axis, n in enumerate(self.parts[name].lengths) if n is not None)
            blocks = {} if stage.place is not None or self.state.target.is_gpu else blocks_in(stage, loop)
            known = (axis for axis, block in blocks.items() if block.inner is None)  # nothing is computed behind a rest
            if along and self.parts[name].is_local:
                found[name] = Kept(along, frozenset(known))
        return found

    def begin(self, name: str, axis: int, scope: Scope) -> Expr:
        """Where the block or window begins that is computed of an axis."""
        point = self.parts[name].points[axis]
        assert point is not None
        inside = {loop: ZERO for index in free_names(point) for loop in scope.stage.leaves(index) if not scope.knows(loop)}
        return scope.with_values(**inside).resolve(point)

    def ragged_stop(self, name: str, point: Expr | None, stop: Expr, axis: Axis, scope: Scope) -> Expr:
        """Where a block ends of which the last one is shorter: in the form that the consumer's loops run in, or with the axis."""
        inner = None
        if isinstance(point, Index):
            inner = blocks_in(scope.stage, self.stages[name].site.loop)[point.name].inner
        length = None if inner is None else scope.extent(inner)
        return minimum(stop, axis.stop) if length is None else add(Index(f"{axis.index} begins"), length)

    def computed(self, name: str, scope: Scope) -> Block:
        """A placed definition, at the points that are asked for where the scope stands."""
        definition, stage, part = self.definitions[name], self.stages[name], self.parts[name]
        assert isinstance(definition, Define)
        values, conditions, given, axes, reach = {}, [], {}, all_axes(stage), {}
        for number, (axis, point) in enumerate(zip(definition.axes, part.points, strict=True)):
            length = part.lengths[number]
            if length is not None and point is not None:
                reach[axis.index] = _reach(axis, point, length, scope.stage)
            if length is not None:
                first = f"{axis.index} begins"  # no name of an index has a space
                stop = add(Index(first), const(length))
                if number in part.ragged:
                    stop = self.ragged_stop(name, point, stop, axis, scope)
                axes[axis.index] = Axis(axis.index, Index(first), stop)
                given[first] = self.begin(name, number, scope)
            elif point is not None:
                values[axis.index] = scope.resolve(point)
                for bound in (apply("ge", point, ZERO), apply("lt", point, axis.stop)):
                    if not implied(bound, known_axes(scope.stage, scope)):  # loops that are still to come may be empty
                        conditions.append(self.read(scope.resolve(bound)))
        block = self.defined(definition, Scope(stage, axes, values=values, names=scope.names, given=given, reach=reach), False)
        for condition in reversed(conditions):
            block = (If(condition, block),)
        return block


def _reach(axis: Axis, point: Expr, length: int, consumer: Stage) -> Axis:
    """An axis of which iterations of a consumer compute blocks of a length, each from a point on: from its start to the end of the last."""
    last = interval(point, axis_ranges(consumer.parts.axes))[1] + length
    stop = constant(axis.stop)
    return Axis(axis.index, axis.start, const(int(min(last, stop)))) if stop is not None else axis


def moved_apart(scatter: Scatter) -> tuple[Expr, ...]:
    """The shape of the memory of a scatter's result, where results of parts lie a multiple of a page apart: a cache line further then.

    A core compares loads with the stores before them by their places within a page first, so additions to the same element of
    results a page apart would wait for each other.
    """
    shape, item = scatter.type.shape, scatter.type.dtype.itemsize
    first = next((d for d, index in enumerate(scatter.indices) if tensors_read(index)), 0)
    whole, row = constant(product(shape[first:])), constant(product(shape[first + 1 :]))
    if not first or not whole or not row or whole * item % PAGE:
        return shape
    return (*shape[:first], add(shape[first], const(-(-LINE // (row * item)))), *shape[first + 1 :])
