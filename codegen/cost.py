"""What a program costs, counted on its integer domains: arithmetic operations, and bytes that must move.

Operations are those of the definitions as they stand: every scalar operation on elements counts one at each point at which
it is evaluated, a reduction one more per point it combines; arithmetic on indices, casts and selections count nothing. A
reduction is evaluated once for the indices that it depends on. So a matmul has 2 n m k. Bytes are the compulsory traffic:
every element of an input that can be read counts once, every element of an output once. A guard that depends on data
counts as true, a loop whose extent does as one iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, NamedTuple

from tensorexpr.hints import Explained
from tensorexpr.integers import Constraint, Domain
from tensorexpr.interpret import extent_value
from tensorexpr.ir import Access, Apply, Axis, Define, Definition, Expr, Program, Reduce, Scan, Scatter, Segments, Size, conjuncts, const
from tensorexpr.records import record
from tensorexpr.regions import bound_constraints, constraints_of
from tensorexpr.traversal import bottom_up, children, free_names, map_axes, negate, read_occurrences, walk

Points = tuple[tuple[Axis, ...], tuple[Expr, ...]]
"""Loops and guards: the points of the loops at which the guards hold."""


@record
class Formula:
    """A count that depends on sizes: called with them by name it gives an int."""

    program: Program
    quantity: str

    def __call__(self, **sizes: int) -> int:
        return _QUANTITIES[self.quantity](self.program, sizes)

    def __repr__(self) -> str:
        return f"<{self.quantity} of {', '.join(self.program.sizes)}: call it with these sizes>"


class _Counts(NamedTuple):
    operations: int | Formula
    bytes: int | Formula


class Cost(_Counts, Explained):
    """`operations` and `bytes` of one call: ints, or `Formula`s where the program has sizes."""

    __slots__ = ()
    noun = "the cost of a call"
    offered = ("bytes", "operations")
    habits: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("flops", "flop", "macs", "ops"), "f.cost.operations counts them, a product that is added as two"),
        **dict.fromkeys(("memory", "bytes_accessed"), "f.cost.bytes counts what goes in and out, f.workspace_bytes() the rest"),
        **dict.fromkeys(("nanoseconds", "time", "seconds"), "te.schedule(C).cost predicts the time, f.profile(*arrays) measures it"),
    }


def cost_of(program: Program) -> Cost:
    """The cost of a program."""
    if program.sizes:
        return Cost(Formula(program, "operations"), Formula(program, "bytes"))
    return Cost(_operations(program, {}), _bytes(program, {}))


def _operations(program: Program, sizes: dict[str, int]) -> int:
    weights: dict[Points, int] = {}
    for definition in program.definitions:
        for points, weight in _definition_work(definition, ()):
            weights[points] = weights.get(points, 0) + weight
    return sum(weight * count_of(axes, guards, sizes) for (axes, guards), weight in weights.items())


def _bytes(program: Program, sizes: dict[str, int]) -> int:
    types = program.types
    read: dict[str, int] = {}
    for definition in program.definitions:
        for tensor, axes, guards in _reads(definition, ()):
            read[tensor] = read.get(tensor, 0) + count_of(axes, guards, sizes)
    total = 0
    for name in dict.fromkeys((*(i.name for i in program.inputs), *program.outputs)):
        elements = 1
        for extent in types[name].shape:
            elements *= extent_value(extent, sizes)
        if name not in program.outputs:
            elements = min(elements, read.get(name, 0))
        total += elements * types[name].dtype.itemsize
    return total


_QUANTITIES = {"operations": _operations, "bytes": _bytes}


# ---------------------------------------------------------------------------------------------------- points of work


def _definition_work(definition: Definition, outer: tuple[Axis, ...]) -> Iterator[tuple[Points, int]]:
    match definition:
        case Define():
            yield from work(definition.value, (*outer, *definition.axes), (), len(outer))
        case Scatter():
            axes, guards = (*outer, *definition.axes), tuple(conjuncts(definition.where))
            if definition.where is not None:
                yield from work(definition.where, axes, (), len(outer))
            yield from work(definition.value, axes, guards, len(outer))
            yield (axes, guards), 1
        case Segments():
            for key in definition.keys if definition.where is None else (definition.where, *definition.keys):
                yield from work(key, (*outer, *definition.loops), (), len(outer))
        case Scan():
            steps = (*outer, Axis(definition.step, const(0), definition.length))
            for inner in definition.body:
                yield from _definition_work(inner, steps)


def work(value: Expr, axes: tuple[Axis, ...], guards: tuple[Expr, ...], fixed: int = 0) -> Iterator[tuple[Points, int]]:
    """The operations of a value, each with the points at which it is evaluated; the first `fixed` axes are steps of scans."""
    match value:
        case Access():
            return
        case Reduce():
            inner = (*axes[:fixed], *_needed(value, axes[fixed:], guards), *value.axes)
            if value.where is not None:
                yield from work(value.where, inner, guards, fixed)
                guards = guards + tuple(conjuncts(value.where))
            for item in value.values:
                yield from work(item, inner, guards, fixed)
            yield (inner, guards), max(1, sum(isinstance(n, Apply) for r in value.combiner.results for n in walk(r)))
        case Apply() if value.op.name == "where":
            condition, taken, otherwise = value.args
            yield from work(condition, axes, guards, fixed)
            yield from work(taken, axes, guards + tuple(conjuncts(condition)), fixed)
            yield from work(otherwise, axes, (*guards, negate(condition)), fixed)
        case _:
            if isinstance(value, Apply) and any(isinstance(node, (Access, Reduce)) for node in walk(value)):
                yield (axes, guards), 1
            for child in children(value):
                yield from work(child, axes, guards, fixed)


def _needed(value: Expr, axes: tuple[Axis, ...], guards: tuple[Expr, ...]) -> tuple[Axis, ...]:
    """The axes that a value depends on, by itself, by the guards on the way to it, or by the bounds of such an axis."""
    names = {name for e in (value, *guards) for name in free_names(e)}
    needed: list[Axis] = []
    for axis in reversed(axes):
        if axis.index in names:
            needed.append(axis)
            names.update((*free_names(axis.start), *free_names(axis.stop)))
    return tuple(reversed(needed))


def _reads(definition: Definition, outer: tuple[Axis, ...]) -> Iterator[tuple[str, tuple[Axis, ...], tuple[Expr, ...]]]:
    if isinstance(definition, Scan):
        steps = (*outer, Axis(definition.step, const(0), definition.length))
        for name in definition.inits:
            state = dict(zip(definition.inits, definition.states, strict=True))[name]
            yield name, tuple(Axis(f"{name}.{position}", const(0), n) for position, n in enumerate(state[1].shape)), ()
        for inner in definition.body:
            yield from _reads(inner, steps)
        return
    axes = (*outer, *(definition.loops if isinstance(definition, Segments) else definition.axes))
    guards: tuple[Expr, ...] = ()
    match definition:
        case Define():
            values: tuple[Expr, ...] = (definition.value,)
        case Scatter():
            guards = tuple(conjuncts(definition.where))
            values = (*definition.indices, *(() if definition.where is None else (definition.where,)), definition.value)
        case Segments():
            values = (*definition.keys, *(() if definition.where is None else (definition.where,)))
    for value in values:
        for access, around, conditions in read_occurrences(value, axes, guards):
            yield access.tensor, around, conditions


def count_of(axes: tuple[Axis, ...], guards: tuple[Expr, ...], sizes: dict[str, int]) -> int:
    """How many points of the axes satisfy the guards, at these sizes."""

    def at_sizes(expr: Expr) -> Expr:
        return bottom_up(expr, lambda node: const(sizes[node.name]) if isinstance(node, Size) else node) if sizes else expr

    constraints: list[Constraint] = []
    for axis in map_axes(axes, at_sizes):
        found, exact = bound_constraints(axis.index, axis)
        constraints.extend(found if exact else bound_constraints(axis.index, Axis(axis.index, const(0), const(1)))[0])
    for guard in guards:
        constraints.extend(constraints_of(at_sizes(guard))[0])
    return Domain([axis.index for axis in axes], constraints).count()
