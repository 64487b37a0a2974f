"""A program said again in the language, in other words: what variants by rule are made with.

A `Speaker` walks the definitions of a program as it was traced and writes each anew with `te.compute` and its kin, so every access is
proved in bounds again, and what comes out is what a user would have written. What differs is what it was told:

- a `Layout` for a tensor: how its elements are stored (permuted axes, one of them in two, two of them as one, an axis of extent one);
- a leading axis over which inputs, and all that is made of them, are repeated;
- loops of reductions in two;
- a border: what reads beyond the edge give, for those that have a border, else for windows moved by one element;
- definitions that are written where they are read, and subexpressions that become definitions.

It says programs of closed extents, without the sort plans of gradients; anything else raises `Unspoken`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr.benchmarks.samples.sample import Shape, Traced
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
    apply,
    conjuncts,
    const,
)
from tensorexpr.ir import integer as integer_of
from tensorexpr.language.core.scalar import Scalar, build
from tensorexpr.regions import affine_of
from tensorexpr.traversal import free_names, reads, walk

MODES = ("zero", "clamp", "reflect", "symmetric", "wrap")


class Unspoken(Exception):
    """The program has what cannot be said again."""


@dataclass(frozen=True)
class Layout:
    """How a tensor is stored: its axes permuted by `order`; `split`: (axis, extent of the inner one); `merged`: an axis and the next one
    as one; `unit`: where an axis of one element stands. At most one of them; axes are those of the program."""

    order: tuple[int, ...] | None = None
    split: tuple[int, int] | None = None
    merged: tuple[int, int] | None = None
    """The first axis, and the extent of the second."""
    unit: int | None = None

    def array(self, array: np.ndarray) -> np.ndarray:
        """An array of the tensor's elements so stored."""
        found = array if self.order is None else array.transpose(self.order)
        return np.ascontiguousarray(found).reshape(self.shape(array.shape))

    def shape(self, shape: Shape) -> Shape:
        """The shape so stored."""
        if self.order is not None:
            return tuple(shape[axis] for axis in self.order)
        if self.split is not None:
            axis, inner = self.split
            return (*shape[:axis], shape[axis] // inner, inner, *shape[axis + 1 :])
        if self.merged is not None:
            axis = self.merged[0]
            return (*shape[:axis], prod(shape[axis : axis + 2]), *shape[axis + 2 :])
        return shape if self.unit is None else (*shape[: self.unit], 1, *shape[self.unit :])

    def place(self, indices: Sequence[Any]) -> tuple[Any, ...]:
        """Where the element of some indices stands."""
        at = tuple(indices)
        if self.order is not None:
            return tuple(at[axis] for axis in self.order)
        if self.split is not None:
            axis, inner = self.split
            return (*at[:axis], at[axis] // inner, at[axis] % inner, *at[axis + 1 :])
        if self.merged is not None:
            axis, extent = self.merged
            return (*at[:axis], at[axis] * extent + at[axis + 1], *at[axis + 2 :])
        return at if self.unit is None else (*at[: self.unit], 0, *at[self.unit :])

    def back(self, indices: Sequence[Any]) -> tuple[Any, ...]:
        """The indices of the element that stands there."""
        at = tuple(indices)
        if self.order is not None:
            return tuple(at[self.order.index(axis)] for axis in range(len(at)))
        if self.split is not None:
            axis, inner = self.split
            return (*at[:axis], at[axis] * inner + at[axis + 1], *at[axis + 2 :])
        if self.merged is not None:
            axis, extent = self.merged
            return (*at[:axis], at[axis] // extent, at[axis] % extent, *at[axis + 1 :])
        return at if self.unit is None else (*at[: self.unit], *at[self.unit + 1 :])


AS_IT_IS = Layout()


@dataclass(frozen=True)
class Words:
    """What a speaker is told; see the top of this file. `named`: subexpressions with the axes that they depend on."""

    layouts: Mapping[str, Layout] = field(default_factory=dict)
    batch: int = 0
    batched: frozenset[str] = frozenset()
    split_loops: tuple[int, int] | None = None
    """Loops of this extent are two, the inner one of that extent."""
    border: str | None = None
    inline: frozenset[str] = frozenset()
    named: Mapping[Expr, tuple[Axis, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Scope:
    """What names stand for, and what expressions have become."""

    names: Mapping[str, Any]
    batch: Any = None
    said: dict[int, Scalar] = field(default_factory=dict)

    def with_names(self, more: Mapping[str, Any]) -> _Scope:
        return _Scope({**self.names, **more}, self.batch)


class Speaker:
    """Says a program again; `changes` counts the reads whose border became another one."""

    def __init__(self, program: Program, words: Words) -> None:
        if program.sizes:
            raise Unspoken("open sizes")
        self.program, self.words = program, words
        self.table: dict[str, te.Tensor] = {}
        self.stepped: set[str] = set()  # the results of scans, whose steps stand in front of the axis that repeats
        self.batched = set(words.batched)
        self.defined = {name: definition for definition in program.definitions for name, _ in definition.results}
        self.aside: dict[Expr, te.Tensor] = {}
        self.changes = 0

    def spoken(self) -> Traced:
        """The tensors: inputs and outputs in the order of the program."""
        for item in self.program.inputs:
            shape = self.shape(item.name, tuple(map(integer_of, item.type.shape)))
            self.table[item.name] = te.placeholder(shape, item.type.dtype.name, name=item.name)
        for constant in self.program.constants:
            self.table[constant.name] = te.constant(constant.data, name=constant.name)
        for definition in self.program.definitions:
            self.define(definition, _Scope({}))
        return Traced([self.table[item.name] for item in self.program.inputs], [self.table[name] for name in self.program.outputs])

    def layout(self, name: str) -> Layout:
        """How a tensor is stored."""
        return self.words.layouts.get(name, AS_IT_IS)

    def shape(self, name: str, shape: Shape) -> Shape:
        """The shape of a tensor of the program as it is stored."""
        stored = self.layout(name).shape(shape)
        return (self.words.batch, *stored) if name in self.batched else stored

    # --------------------------------------------------------------------------------------------------- definitions

    def define(self, definition: Definition, scope: _Scope) -> None:
        """Puts what a definition gives in the table."""
        if self.batched & set(reads(definition)):
            self.batched |= {name for name, _ in definition.results}
        match definition:
            case Define() if definition.name in self.words.inline:
                return
            case Define():
                self.name_parts(definition, scope)
                self.table[definition.name] = self.computed(definition, scope)
            case Scatter():
                self.table[definition.name] = self.scattered(definition, scope)
            case Scan():
                self.scanned(definition, scope)
            case _:
                raise Unspoken(f"the definition {definition.results[0][0]}")

    def computed(self, definition: Define, scope: _Scope) -> te.Tensor:
        layout, batched = self.layout(definition.name), definition.name in self.batched
        names = [axis.index for axis in definition.axes]

        def body(*at: Any) -> Scalar:
            own = dict(zip(names, layout.back(at[1:] if batched else at), strict=True))
            return self.say(definition.value, _Scope({**scope.names, **own}, at[0] if batched else scope.batch))

        shape = tuple(integer_of(axis.stop) for axis in definition.axes)
        return te.compute(self.shape(definition.name, shape), body, name=definition.name)

    def scattered(self, definition: Scatter, scope: _Scope) -> te.Tensor:
        batched = definition.name in self.batched
        lead = (self.words.batch,) if batched else ()

        def inner(at: Sequence[Any]) -> _Scope:
            own = {axis.index: i for axis, i in zip(definition.axes, at[len(lead) :], strict=True)}
            return _Scope({**scope.names, **own}, at[0] if batched else scope.batch)

        def body(*at: Any) -> Any:
            here = inner(at)
            place = self.layout(definition.name).place([self.say(index, here) for index in definition.indices])
            return (*at[: len(lead)], *place), self.say(definition.value, here)

        where = definition.where
        shape = self.shape(definition.name, tuple(map(integer_of, definition.type.shape)))
        extents = (*lead, *(integer_of(axis.stop) for axis in definition.axes))
        guard = None if where is None else (lambda *at: self.say(where, inner(at)))
        return te.scatter(shape, body, extents, definition.combine, definition.name, guard)

    def scanned(self, definition: Scan, scope: _Scope) -> None:
        if any(name in self.words.layouts and self.layout(name).unit is None for name in (*definition.inits, *definition.names)):
            raise Unspoken("a state that is stored in another way")
        inits = [self.table[name] for name in definition.inits]
        if self.batched & set(definition.names):  # what is read in the steps is repeated: then all states are
            inits = [t if n in self.batched else self.repeated(t) for n, t in zip(definition.inits, inits, strict=True)]
            self.batched |= {name for name, _ in definition.states}

        def body(t: Any, state: Any) -> Any:
            states = state if isinstance(state, tuple) else (state,)
            self.table |= {name: tensor for (name, _), tensor in zip(definition.states, states, strict=True)}
            inside = scope.with_names({definition.step: t})
            for inner in definition.body:
                self.define(inner, inside)
            nexts = tuple(self.table[name] for name in definition.nexts)
            return nexts if isinstance(state, tuple) else nexts[0]

        one = len(inits) == 1
        name = definition.names[0] if one else definition.names
        found = te.scan(body, inits[0] if one else tuple(inits), integer_of(definition.length), name)
        self.table |= dict(zip(definition.names, (found,) if one else found, strict=True))
        self.stepped |= set(definition.names)

    def repeated(self, tensor: te.Tensor) -> te.Tensor:
        """A tensor once for each index of the leading axis."""
        return te.compute((self.words.batch, *tensor.shape), lambda *at: tensor[at[1:]], name=tensor.name)

    def name_parts(self, definition: Define, scope: _Scope) -> None:
        """Makes tensors of the subexpressions of a definition that are to have names."""
        for part in walk(definition.value):
            if part not in self.words.named or part in self.aside:
                continue
            axes = self.words.named[part]
            names = [axis.index for axis in axes]

            def body(*at: Any, part: Expr = part, names: list[str] = names) -> Scalar:
                return self.say_anew(part, _Scope({**scope.names, **dict(zip(names, at, strict=True))}))

            self.aside[part] = te.compute(tuple(integer_of(axis.stop) for axis in axes), body, name="part")

    # --------------------------------------------------------------------------------------------------- expressions

    def say(self, expr: Expr, scope: _Scope) -> Scalar:
        """An expression in the language."""
        known = scope.said.get(id(expr))
        if known is None:
            tensor = self.aside.get(expr)
            if tensor is not None:
                known = tensor[tuple(scope.names[axis.index] for axis in self.words.named[expr])]
            else:
                known = self.say_anew(expr, scope)
            scope.said[id(expr)] = known
        return known

    def say_anew(self, expr: Expr, scope: _Scope) -> Scalar:
        """An expression that has no name."""
        match expr:
            case Const():
                return Scalar(expr)
            case Index() | Param():
                return scope.names[expr.name]
            case Access():
                return self.element(expr, scope)
            case Cast():
                return te.cast(self.say(expr.arg, scope), expr.dtype.name)
            case Apply():
                guarded = self.guarded(expr)
                if guarded is not None:
                    self.changes += self.words.border != "zero"
                    return self.beyond(guarded, [_raw(index) for index in guarded.indices], scope)
                return build(expr.op.name, *(self.say(argument, scope) for argument in expr.args))
            case Reduce():
                return self.reduced(expr, scope)
        raise Unspoken(type(expr).__name__)

    def reduced(self, expr: Reduce, scope: _Scope) -> Scalar:
        """A reduction, its loops as they are or in two."""
        loops = _Loops(self, expr.axes, scope)
        guard, combiner = expr.where, expr.combiner
        where = None if guard is None else (lambda *k: self.say(guard, loops.scope(k)))
        if combiner.is_builtin:
            function = getattr(te, combiner.name)
            found: Scalar = function(lambda *k: self.say(expr.values[0], loops.scope(k)), loops.extents, where=where)
            return found

        def combine(a: Any, b: Any) -> Any:
            sides = {p.name: s for p, s in zip((*combiner.left, *combiner.right), (*a, *b), strict=True)}
            return tuple(self.say(result, _Scope(sides)) for result in combiner.results)

        def body(*k: Any) -> Any:
            here = loops.scope(k)
            return tuple(self.say(value, here) for value in expr.values)

        neutral = tuple(Scalar(identity) for identity in combiner.identity)
        several: tuple[Scalar, ...] = te.reduce(combine, neutral, body, loops.extents, where=where)
        return several[expr.component]

    def element(self, access: Access, scope: _Scope) -> Scalar:
        """An element of a tensor, or the value of a definition that is written where it is read."""
        definition = self.defined.get(access.tensor)
        if access.tensor in self.words.inline and isinstance(definition, Define):
            at = [self.say(index, scope) for index in access.indices]
            own = dict(zip((axis.index for axis in definition.axes), at, strict=True))
            return self.say(definition.value, scope.with_names(own))
        if self.words.border is not None:
            raws = [_raw(index) for index in access.indices]
            clamped = raws != list(access.indices)
            moved = raws if clamped else [_moved(index) for index in access.indices]
            if moved != list(access.indices):
                self.changes += not clamped or self.words.border != "clamp"
                return self.beyond(access, moved, scope)
        return self.table[access.tensor][self.place(access.tensor, [self.say(index, scope) for index in access.indices], scope)]

    def place(self, name: str, indices: Sequence[Any], scope: _Scope) -> tuple[Any, ...]:
        """Where an element of a tensor is stored."""
        steps = 1 if name in self.stepped else 0
        lead = (scope.batch,) if name in self.batched else ()
        return (*indices[:steps], *lead, *self.layout(name).place(indices[steps:]))

    def guarded(self, expr: Apply) -> Access | None:
        """The access of a read that is a value beyond the border, where another border is wanted."""
        if self.words.border is None or expr.op.name != "where":
            return None
        condition, taken, otherwise = expr.args
        if not isinstance(taken, Access) or not isinstance(otherwise, Const):
            return None
        bounds = [c for c in conjuncts(condition) if isinstance(c, Apply) and c.op.name in ("ge", "lt") and c.args[0] in taken.indices]
        return taken if len(bounds) == len(list(conjuncts(condition))) else None

    def beyond(self, access: Access, indices: Sequence[Expr], scope: _Scope) -> Scalar:
        """A read with the border that is wanted."""
        at = self.place(access.tensor, [self.say(index, scope) for index in indices], scope)
        return self.table[access.tensor].read(*at, outside=0 if self.words.border == "zero" else self.words.border)


def integer_or_none(expr: Expr) -> int | None:
    """The integer that an expression is, None for others."""
    return int(expr.value) if isinstance(expr, Const) else None


class _Loops:
    """The loops of a reduction as they are said: their extents, and what the indices of the program are in them."""

    def __init__(self, speaker: Speaker, axes: Sequence[Axis], outer: _Scope) -> None:
        self.speaker, self.outer = speaker, outer
        self.names = [axis.index for axis in axes]
        self.extents: tuple[Any, ...] = ()
        self.inner: list[int | None] = []
        """For each axis the extent of the inner loop of two, None of one."""
        split = speaker.words.split_loops
        for position, axis in enumerate(axes):
            if integer_or_none(axis.start) != 0:
                raise Unspoken("a loop that starts elsewhere than at 0")
            extent = integer_or_none(axis.stop)
            in_two = split is not None and extent == split[0]
            if split is not None and in_two:
                self.extents += (split[0] // split[1], split[1])
            elif set(free_names(axis.stop)) & set(self.names[:position]):
                self.extents += (self._depending(axis.stop, position),)
            else:
                self.extents += (speaker.say(axis.stop, outer) if extent is None else extent,)
            self.inner.append(split[1] if split is not None and in_two else None)

    def _depending(self, stop: Expr, position: int) -> Callable[..., Scalar]:
        """An extent that is a function of the indices before it."""
        return lambda *k: self.speaker.say(stop, self.scope(k, position))

    def scope(self, at: Sequence[Any], count: int | None = None) -> _Scope:
        """What names stand for inside, given the indices of the loops that are said: of all axes, or of the first so many."""
        rest = iter(at)
        own: dict[str, Any] = {}
        for name, inner in list(zip(self.names, self.inner, strict=False))[:count]:
            own[name] = next(rest) if inner is None else next(rest) * inner + next(rest)
        return self.outer.with_names(own)


def _raw(index: Expr) -> Expr:
    """An index that was brought inside by a clamp, before that."""
    if isinstance(index, Apply) and index.op.name in ("minimum", "maximum") and isinstance(index.args[1], Const):
        return _raw(index.args[0])
    return index


def _moved(index: Expr) -> Expr:
    """An index that runs over a window, one element before; any other as it is."""
    over_a_window = affine_of(index) is not None and len(free_names(index)) >= 2
    return apply("sub", index, const(1)) if over_a_window else index
