"""What a program means, for millions of points: the interpreter's rules on whole boxes of points in NumPy, apart from the compiler.

Every index is an array with an axis of its own, so an expression is computed at all points of a definition at once, in pieces
where the box is large. A mask says which points are visited: where both branches of a `where` are computed, only what is visited may
leave a tensor. Values carry bounds of what compiled code may differ by (`bounds`). Tests hold it to the interpreter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tensorexpr.dtypes import DType, accumulator
from tensorexpr.errors import ArgumentError, OutOfBoundsError
from tensorexpr.interpret import identity_of, infer_sizes
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
    Size,
    const,
)
from tests.random_programs.bounds import Arithmetic, Near

_BOX = 1 << 19
"""Points that are computed at once."""
_MOST_WORK = 1 << 26
"""Points of one program; more is refused."""
_STEP = 5_000
"""Points that take as long as one definition at one step of a scan."""
_KEPT = 4
"""Points that take as much as one whose place and value are kept until all are known."""


class TooMuch(Exception):
    """A program with more points than a reference can afford, or one whose places depend on roundings."""


class _Box(Exception):
    """A piece that is too large: its definition, or its loops, are taken in smaller ones."""


def evaluate(
    program: Program,
    inputs: Mapping[str, np.ndarray],
    sizes: Mapping[str, int] | None = None,
    ideal: bool = False,
    work: int = _MOST_WORK,
) -> dict[str, Near]:
    """The outputs of a program by name. Raises `OutOfBoundsError` as the interpreter does, `TooMuch` beyond `work` points."""
    bound = infer_sizes(program.inputs, {i.name: inputs[i.name].shape for i in program.inputs}, sizes)
    machine = _Machine(bound, Arithmetic(ideal), work)
    for name, array in [*inputs.items(), *((c.name, c.data) for c in program.constants)]:
        plain = array.astype(np.float64) if array.dtype.kind not in "biu" else array
        machine.tensors[name] = Near(plain)
    with np.errstate(all="ignore"):
        for definition in program.definitions:
            machine.run(definition, {})
    return {name: machine.tensors[name] for name in program.outputs}


class _Machine:
    def __init__(self, sizes: Mapping[str, int], arithmetic: Arithmetic, work: int) -> None:
        self.sizes = sizes
        self.arithmetic = arithmetic
        self.tensors: dict[str, Near] = {}
        self.work = work

    # -------------------------------------------------------------------------------------------------- definitions

    def run(self, definition: Definition, env: dict[str, Near]) -> None:
        match definition:
            case Define():
                self.define(definition, env)
            case Scatter():
                self.scatter(definition, env)
            case Segments():
                self.segments(definition, env)
            case Scan():
                self.scan(definition, env)

    def number(self, expr: Expr, env: dict[str, Near] | None = None) -> int:
        return int(_Points(self, env or {}, None, 0).value(expr).value)

    def extents(self, exprs: tuple[Expr, ...], name: str) -> tuple[int, ...]:
        shape = tuple(map(self.number, exprs))
        if any(n < 0 for n in shape):
            raise ArgumentError(f"{name}: expected extents of at least 0, got {shape}")
        if math.prod(shape) > self.work:
            raise TooMuch(f"{name} of {shape}")
        return shape

    def define(self, definition: Define, env: dict[str, Near]) -> None:
        dtype = definition.value.dtype
        shape = self.extents(tuple(a.stop for a in definition.axes), definition.name)
        value = np.zeros(shape, np.float64 if dtype.is_float else dtype.numpy)
        error: np.ndarray | None = None
        rows = [(0, n) for n in shape]
        if math.prod(shape):
            pending = [rows]
            while pending:
                box = pending.pop()
                points = math.prod(high - low for low, high in box)
                try:
                    if points > _BOX:
                        raise _Box
                    self.spend(points)
                    inside = self.over(definition.axes, box, env)
                    found = inside.value(definition.value)
                except _Box:
                    axis = next((k for k, (low, high) in enumerate(box) if high - low > 1), None)
                    if axis is None:
                        raise TooMuch(f"{points} points at once") from None
                    low, high = box[axis]
                    middle = (low + high) // 2
                    pending += [[*box[:axis], part, *box[axis + 1 :]] for part in ((low, middle), (middle, high))]
                    continue
                where = tuple(slice(low, high) for low, high in box)
                value[where] = found.value
                if found.error is not None:
                    error = np.zeros(shape) if error is None else error
                    error[where] = found.error
        self.tensors[definition.name] = Near(value, error)

    def spend(self, points: int) -> None:
        self.work -= points
        if self.work < 0:
            raise TooMuch("more points than the reference is given")

    def over(self, axes: tuple[Axis, ...], box: list[tuple[int, int]], env: dict[str, Near]) -> _Points:
        rank = len(axes)
        inner = dict(env)
        for k, (axis, (low, high)) in enumerate(zip(axes, box, strict=True)):
            inner[axis.index] = Near(np.arange(low, high).reshape((-1,) + (1,) * (rank - 1 - k)))
        return _Points(self, inner, None, rank)

    def all_points(self, axes: tuple[Axis, ...], env: dict[str, Near], where: Expr | None) -> tuple[_Points, np.ndarray, tuple[int, ...]]:
        """The points of loops whose bounds may depend on each other, flat in row-major order; which are visited, and the box's shape."""
        points = _Points(self, dict(env), None, 0).entered(axes)
        shape = np.broadcast_shapes(*(np.shape(points.env[a.index].value) for a in axes), (1,) * len(axes))
        mask = np.broadcast_to(True if points.mask is None else points.mask, shape)
        if where is not None:
            condition = points.value(where)
            self.certain(condition)
            mask = mask & condition.value
            points = _Points(self, points.env, mask, points.rank)
        return points, mask, shape

    @staticmethod
    def certain(near: Near) -> Any:
        if near.error is not None and np.any(near.error):
            raise TooMuch("a place that depends on a rounding")
        return near.value

    def places(self, points: _Points, indices: tuple[Expr, ...], extents: tuple[int, ...], mask: np.ndarray, name: str) -> list[np.ndarray]:
        found = []
        for axis, (index, extent) in enumerate(zip(indices, extents, strict=True)):
            at = np.broadcast_to(np.asarray(self.certain(points.value(index))).astype(np.int64), mask.shape)[mask]
            if np.any((at < 0) | (at >= extent)):
                raise OutOfBoundsError(f"{name}: an index leaves axis {axis}")
            found.append(at)
        return found

    def pieces(self, axes: tuple[Axis, ...], env: dict[str, Near], where: Expr | None, found: Visit) -> list[list[np.ndarray]]:
        """What `found` tells of the points of loops, in row-major order: of all at once, or of halves of an outer loop."""
        try:
            points, mask, box = self.all_points(axes, env, where)
            self.spend(_KEPT * math.prod(box))
            return [found(points, mask)]
        except _Box:
            outer = dict(env)
            for k, axis in enumerate(axes):
                start, stop = self.number(axis.start, outer), self.number(axis.stop, outer)
                if stop - start > 1:
                    middle = (start + stop) // 2
                    halves = (Axis(axis.index, const(low), const(high)) for low, high in ((start, middle), (middle, stop)))
                    return [piece for half in halves for piece in self.pieces((*axes[:k], half, *axes[k + 1 :]), env, where, found)]
                outer[axis.index] = Near(np.int64(start))
            raise TooMuch("one point with too many of its own") from None

    def scatter(self, definition: Scatter, env: dict[str, Near]) -> None:
        dtype, name = definition.type.dtype, definition.name
        shape = self.extents(definition.type.shape, name)
        carried = accumulator(dtype)

        def visit(points: _Points, mask: np.ndarray) -> list[np.ndarray]:
            at = self.places(points, definition.indices, shape, mask, name)
            near = points.value(definition.value)
            return [*at, *(np.broadcast_to(x, mask.shape)[mask] for x in (near.value, 0.0 if near.error is None else near.error))]

        rows = self.pieces(definition.axes, env, definition.where, visit)
        *places, value, errors = (np.concatenate(row) for row in zip(*rows, strict=True))
        at, error = tuple(places), errors if np.any(errors) else None
        start = identity_of(definition.combine, carried)

        def over(ufunc: np.ufunc, values: np.ndarray, first: Any) -> np.ndarray:
            result = np.full(math.prod(shape), first, values.dtype)
            if result.size:
                ufunc.at(result, np.ravel_multi_index(at, shape) if at else np.zeros(len(values), np.int64), values)
            return result.reshape(shape)

        if not dtype.is_float:
            ufunc = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[definition.combine]
            result = Near(over(ufunc, value.astype(carried.numpy), start))
            if error is not None:
                result = Near(result.value, over(np.maximum, error, 0.0))
        elif definition.combine in ("max", "min"):
            found = over(np.maximum if definition.combine == "max" else np.minimum, value, start)
            result = Near(found, None if error is None else over(np.maximum, error, 0.0))
        else:
            counts = over(np.add, np.ones(value.shape), 0.0)
            if definition.combine == "sum":
                result = self.arithmetic.total(value, error, counts, dtype, lambda v: over(np.add, v, 0.0))
            else:
                result = self.arithmetic.product(value, error, counts, dtype, lambda v: over(np.multiply, v, 1.0))
        self.tensors[name] = result

    def segments(self, definition: Segments, env: dict[str, Near]) -> None:
        extents = self.extents(definition.extents, definition.name)
        (_, offsets_type), (_, order_type) = definition.results
        offsets = np.zeros(self.extents(offsets_type.shape, definition.name), np.int64)
        order = np.zeros(self.extents(order_type.shape, definition.name), np.int64)
        lengths = self.extents(tuple(axis.stop for axis in definition.axes), definition.name)

        def visit(points: _Points, mask: np.ndarray) -> list[np.ndarray]:
            at = self.places(points, definition.keys, extents, mask, definition.name)
            indices = [np.broadcast_to(points.env[axis.index].value, mask.shape)[mask] for axis in definition.axes]
            return [*at, np.ravel_multi_index(tuple(indices), lengths) if indices and len(indices[0]) else np.arange(np.sum(mask))]

        for plan in np.ndindex(offsets.shape[:-1]):
            inner = env | {axis.index: Near(np.int64(i)) for axis, i in zip(definition.batch, plan, strict=True)}
            rows = self.pieces(definition.axes, inner, definition.where, visit)
            *at, positions = (np.concatenate(row) for row in zip(*rows, strict=True))
            keys = np.ravel_multi_index(tuple(at), extents) if at and len(positions) else np.zeros(len(positions), np.int64)
            sorted_ = np.argsort(keys, kind="stable")
            order[plan][: len(sorted_)] = positions[sorted_]
            offsets[plan][1:] = np.cumsum(np.bincount(keys, minlength=offsets.shape[-1] - 1))
        self.tensors.update(zip(definition.names, (Near(offsets), Near(order)), strict=True))

    def scan(self, definition: Scan, env: dict[str, Near]) -> None:
        (length,) = self.extents((definition.length,), definition.names[0])
        self.spend(_STEP * length * len(definition.body))
        rows: list[list[Near]] = [[] for _ in definition.names]
        current = [self.tensors[init] for init in definition.inits]
        for step in range(length):
            for (formal, _), near in zip(definition.states, current, strict=True):
                self.tensors[formal] = near
            for inner in definition.body:
                self.run(inner, env | {definition.step: Near(np.int64(step))})
            current = [self.tensors[following] for following in definition.nexts]
            for row, near in zip(rows, current, strict=True):
                row.append(near)
        for name, row, (_, type_) in zip(definition.names, rows, definition.states, strict=True):
            shape = self.extents(type_.shape, name)
            value = np.zeros((length, *shape), np.float64 if type_.dtype.is_float else type_.dtype.numpy)
            error = None if all(near.error is None for near in row) else np.zeros((length, *shape))
            for step, near in enumerate(row):
                value[step] = near.value
                if error is not None and near.error is not None:
                    error[step] = near.error
            self.tensors[name] = Near(value, error)


class _Points:
    """Points at which expressions are computed: an array for every index, broadcast against each other to `rank` axes."""

    def __init__(
        self, machine: _Machine, env: dict[str, Near], mask: np.ndarray | None, rank: int, arithmetic: Arithmetic | None = None
    ) -> None:
        self.machine, self.env, self.mask, self.rank = machine, env, mask, rank
        self.arithmetic = machine.arithmetic if arithmetic is None else arithmetic
        self.kept: dict[int, tuple[Expr, Near]] = {}

    def value(self, expr: Expr) -> Near:
        kept = self.kept.get(id(expr))
        if kept is None:
            kept = self.kept[id(expr)] = (expr, self.made(expr))
        return kept[1]

    def made(self, expr: Expr) -> Near:
        arithmetic = self.arithmetic
        match expr:
            case Const(value, dtype):
                return Near(np.asarray(value, np.float64 if dtype.is_float else dtype.numpy))
            case Index(name) | Param(name):
                return self.env[name]
            case Size(name):
                return Near(np.int64(self.machine.sizes[name]))
            case Cast(dtype, arg):
                return arithmetic.cast(self.value(arg), arg.dtype, dtype)
            case Access():
                return self.access(expr)
            case Apply(op, args):
                if op.name == "where":
                    return self.where(expr)
                return arithmetic.apply(op.name, args[0].dtype, tuple(self.value(a) for a in args))
            case Reduce():
                return self.reduce(expr)
        raise AssertionError(type(expr))

    def where(self, expr: Apply) -> Near:
        condition, taken, otherwise = expr.args
        test = self.value(condition)
        true, false = bool(np.all(test.value)), not np.any(test.value)
        if test.error is None and (true or false):  # one branch everywhere: the other one has no points
            near = self.value(taken if true else otherwise)
            shape = np.broadcast_shapes(np.shape(near.value), np.shape(test.value))
            return near if shape == np.shape(near.value) else Near(np.broadcast_to(near.value, shape), near.error)
        sure = np.False_ if test.error is None else test.error > 0
        a = self.under(test.value | sure).value(taken)
        b = self.under(~np.asarray(test.value) | sure).value(otherwise)
        return self.arithmetic.where(test, a, b, expr.dtype.is_float)

    def under(self, condition: Any) -> _Points:
        return _Points(self.machine, self.env, condition if self.mask is None else self.mask & condition, self.rank)

    def access(self, expr: Access) -> Near:
        tensor = self.machine.tensors[expr.tensor]
        if not expr.indices:
            return tensor
        places = []
        visited = None
        for index, extent in zip(expr.indices, tensor.value.shape, strict=True):
            near = self.value(index)
            at = np.asarray(near.value).astype(np.int64)
            if near.error is not None and np.any(near.error):
                raise TooMuch("an index that depends on a rounding")
            outside = (at < 0) | (at >= extent)
            if np.any(outside):
                visited = np.asarray(True if self.mask is None else self.mask)
                if visited.ndim < outside.ndim or np.any(outside & visited):
                    if np.any(outside & visited):
                        raise OutOfBoundsError(f"{expr.tensor}: an index leaves an axis of {extent}")
                if extent == 0:
                    shape = np.broadcast_shapes(np.shape(at), visited.shape)
                    return Near(np.zeros(shape, tensor.value.dtype))
                at = np.clip(at, 0, extent - 1)
            elif at.size == 0:
                return Near(np.zeros(self.shape(), tensor.value.dtype))
            places.append(at)
        self.large(*places)
        where = tuple(places)
        return Near(tensor.value[where], None if tensor.error is None else tensor.error[where])

    def shape(self) -> tuple[int, ...]:
        arrays = [np.shape(near.value) for near in self.env.values()]
        return np.broadcast_shapes(*arrays, () if self.mask is None else self.mask.shape)

    def large(self, *arrays: Any) -> None:
        if math.prod(np.broadcast_shapes(*map(np.shape, arrays))) > 4 * _BOX:
            raise _Box

    def entered(self, axes: tuple[Axis, ...]) -> _Points:
        """These points with the indices of further loops, each an axis behind the others; where a loop is over, the mask says no."""
        extra = len(axes)

        def moved(near: Near) -> Near:
            value = np.asarray(near.value)
            error = None if near.error is None else np.asarray(near.error)
            return Near(
                value.reshape(value.shape + (1,) * extra) if value.ndim else value,
                error if error is None or not error.ndim else error.reshape(error.shape + (1,) * extra),
            )

        env = {name: moved(near) for name, near in self.env.items()}
        mask = None if self.mask is None else np.asarray(self.mask).reshape(np.shape(self.mask) + (1,) * extra)
        for k, axis in enumerate(axes):
            inner = _Points(self.machine, env, mask, self.rank + extra)
            start, stop = (np.asarray(self.machine.certain(inner.value(e))).astype(np.int64) for e in (axis.start, axis.stop))
            lengths = np.maximum(stop - start, 0)
            if mask is not None and np.ndim(lengths):
                lengths = np.where(mask, lengths, 0)
            longest = int(np.max(lengths, initial=0))
            step = np.arange(longest).reshape((-1,) + (1,) * (extra - 1 - k))
            if math.prod(np.broadcast_shapes(np.shape(lengths), step.shape)) > 4 * _BOX:
                raise _Box
            env[axis.index] = Near(start + step)
            if longest == 0 or (
                np.ndim(lengths) and np.any(lengths != longest)
            ):  # of no points none is visited, whatever depends on others
                visited = step < lengths
                mask = visited if mask is None else mask & visited
        points = _Points(self.machine, env, mask, self.rank + extra)
        self.large(np.empty(()) if mask is None else mask, *(env[a.index].value for a in axes))
        return points

    def reduce(self, expr: Reduce) -> Near:
        machine = self.machine
        points = self.entered(expr.axes)
        extra = len(expr.axes)
        domain = points.mask
        condition = None if expr.where is None else points.value(expr.where)
        unsure = None
        if condition is not None:
            if condition.error is not None:
                unsure = condition.error > 0
            points = points.under(condition.value if unsure is None else condition.value | unsure)
        values = [points.value(v) for v in expr.values]
        axes_shapes = [np.shape(points.env[a.index].value) for a in expr.axes]
        inner = np.broadcast_shapes(
            *axes_shapes, *(np.shape(v.value) for v in values), () if points.mask is None else np.shape(points.mask)
        )
        inner = (1,) * (extra - len(inner)) + inner
        outer, own = inner[: len(inner) - extra], inner[len(inner) - extra :]
        machine.spend(math.prod(inner))
        mask = None if points.mask is None else np.broadcast_to(points.mask, inner)
        if unsure is not None:
            unsure = np.broadcast_to(unsure & (True if points.mask is None else points.mask), inner)
            unsure = unsure.reshape((*outer, math.prod(own))).any(axis=-1)
        flat = [Near(_flat(v.value, inner, outer), None if v.error is None else _flat(v.error, inner, outer)) for v in values]
        flags = None if mask is None else mask.reshape((*outer, math.prod(own)))
        name = expr.combiner.name
        if not expr.combiner.is_builtin:
            found = self.fold(expr, flat, flags, outer)
        elif name in ("argmax", "argmin"):
            among = None if domain is None else _flat(domain, inner, outer)
            found = self.winner(name, flat[0], flags, own, among)
        else:
            found = self.combined(name, expr.dtype, flat[0], flags, own)
        if unsure is not None:
            found = Near(found.value, np.where(unsure, np.inf, 0.0 if found.error is None else found.error))
        return found

    def combined(self, name: str, dtype: DType, near: Near, flags: np.ndarray | None, own: tuple[int, ...]) -> Near:
        arithmetic = self.machine.arithmetic
        count: Any = math.prod(own) if flags is None else flags.sum(axis=-1)
        neutral = identity_of(name, dtype)
        value = near.value if flags is None else np.where(flags, near.value, np.asarray(neutral, near.value.dtype))
        error = None if near.error is None else near.error if flags is None else np.where(flags, near.error, 0.0)
        match name:
            case "sum" | "prod" if dtype.is_float:
                add = (lambda v: v.sum(axis=-1)) if name == "sum" else (lambda v: v.prod(axis=-1))
                reduce = arithmetic.total if name == "sum" else arithmetic.product
                return reduce(value, error, count, dtype, add)
            case "sum":
                found = value.sum(axis=-1, dtype=value.dtype)
            case "prod":
                found = value.prod(axis=-1, dtype=value.dtype)
            case "max":
                found = np.max(value, axis=-1, initial=np.asarray(neutral, value.dtype))
            case "min":
                found = np.min(value, axis=-1, initial=np.asarray(neutral, value.dtype))
            case "all":
                found = value.all(axis=-1)
            case _:
                found = value.any(axis=-1)
        if error is None:
            return Near(found)
        return Near(found, np.max(error, axis=-1, initial=0.0))

    @staticmethod
    def winner(name: str, near: Near, flags: np.ndarray | None, own: tuple[int, ...], among: np.ndarray | None) -> Near:
        """The position among the points that are visited (`among` in the box): the box is of the longest extents, a point has its own."""
        real = near.value.dtype.kind == "f"
        value = near.value if name == "argmax" else -near.value if real else ~near.value  # which turns the order around, without overflow
        if not math.prod(own):
            return Near(np.zeros(value.shape[:-1], np.int64))
        least: Any = -np.inf if real else False if value.dtype.kind == "b" else np.iinfo(value.dtype).min
        nan = np.isnan(near.value) & (True if flags is None else flags)
        if real:  # a NaN wins over all, the first of them
            value = np.where(np.isnan(value), np.inf, value)
        value = value if flags is None else np.where(flags, value, np.asarray(least, value.dtype))
        position = np.argmax(value, axis=-1)
        if flags is not None:  # minus infinity everywhere: the first that is visited
            best = np.take_along_axis(value, position[..., None], -1)
            position = np.argmax((value == best) & flags, axis=-1)
        if real:
            position = np.where(nan.any(axis=-1), np.argmax(nan, axis=-1), position)
        if among is not None:
            ordinal = np.maximum(np.cumsum(among, axis=-1) - 1, 0)
            position = np.take_along_axis(ordinal, position[..., None], -1)[..., 0]
        if near.error is None:
            return Near(position)
        error = near.error if flags is None else np.where(flags, near.error, 0.0)
        best = np.take_along_axis(value - error, position[..., None], -1)
        rivals = (value + error >= best) & (True if flags is None else flags)
        doubtful = (rivals.sum(axis=-1) > 1) & (rivals & (error > 0)).any(axis=-1)
        return Near(position, np.where(doubtful, np.inf, 0.0))

    def fold(self, expr: Reduce, values: list[Near], flags: np.ndarray | None, outer: tuple[int, ...]) -> Near:
        """By steps in one order, where compiled code may take another one: a sum of its own is bounded for all of them."""
        combiner, arithmetic = expr.combiner, Arithmetic(self.arithmetic.ideal, regrouped=True)
        near, own = values[expr.component], (combiner.left[expr.component], combiner.right[expr.component])
        match combiner.results[expr.component]:
            case Apply(op, args) if op.name == "add" and expr.dtype.is_float and args in (own, own[::-1]):
                value = near.value if flags is None else np.where(flags, near.value, 0.0)
                error = near.error if near.error is None or flags is None else np.where(flags, near.error, 0.0)
                count = near.value.shape[-1] if flags is None else flags.sum(axis=-1)
                return arithmetic.total(value, error, count, expr.dtype, lambda v: v.sum(axis=-1), wide=False)
        state = [_Points(self.machine, {}, None, 0).value(i) for i in combiner.identity]
        state = [Near(np.broadcast_to(s.value, outer)) for s in state]
        steps = values[0].value.shape[-1]
        self.machine.spend(20_000 * steps // 50)
        for k in range(steps):
            env: dict[str, Near] = {p.name: s for p, s in zip(combiner.left, state, strict=True)}
            for p, v in zip(combiner.right, values, strict=True):
                env[p.name] = Near(v.value[..., k], None if v.error is None else v.error[..., k])
            points = _Points(self.machine, env, None, len(outer), arithmetic)
            following = [points.value(r) for r in combiner.results]
            if flags is not None:
                taken = Near(flags[..., k])
                following = [
                    arithmetic.where(taken, new, old, r.dtype.is_float)
                    for new, old, r in zip(following, state, combiner.results, strict=True)
                ]
            state = following
        return state[expr.component]


Visit = Callable[[_Points, np.ndarray], list[np.ndarray]]
"""Tells of the points of a mask: arrays with an element for each one that is visited."""


def _flat(array: Any, inner: tuple[int, ...], outer: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(array, inner).reshape((*outer, math.prod(inner[len(outer) :])))
