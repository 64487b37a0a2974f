"""The reference interpreter: the meaning of the language, as naive as possible.

Loops in Python over the points of every axis, NumPy scalars of the exact dtype, `ops` for every operation. Each
expression becomes a function of the loop indices once per definition, arithmetic of indices in one piece (`positions`); that is all the
preparation there is. What the
other rooms must agree with: integers wrap; `where` evaluates the branch taken alone; 16-bit sums and products are
carried in float32 and rounded once; reductions fold left to right in row-major order; an index outside its tensor is an
`OutOfBoundsError` whatever produced it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tensorexpr import dtypes
from tensorexpr.dtypes import DType, accumulator
from tensorexpr.errors import ArgumentError, Location, OutOfBoundsError, user_location
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
    Input,
    Param,
    Program,
    Reduce,
    Scan,
    Scatter,
    Segments,
    Size,
    TensorType,
)
from tensorexpr.ops import OPS, cast_value, scalar_cast, scalar_evaluate
from tensorexpr.positions import Env, Positions, Thunk
from tensorexpr.text import print_expr, print_type
from tensorexpr.traversal import size_names, walk


def evaluate_program(program: Program, inputs: Mapping[str, np.ndarray], sizes: Mapping[str, int] | None = None) -> dict[str, np.ndarray]:
    """The outputs of the program by name, for arrays given by the names of its inputs.

    Sizes follow from the shapes of the inputs; `sizes` gives those that do not. Raises `ArgumentError` for an array of
    the wrong dtype or shape or one that is missing, `OutOfBoundsError` for an index that leaves its tensor.
    """
    arrays = {}
    for item in program.inputs:
        if item.name not in inputs:
            raise _argument_error(f"{item.name}: expected an array for {print_type(item.type)}, got none")
        arrays[item.name] = np.asarray(inputs[item.name])
    bound = infer_sizes(program.inputs, {name: a.shape for name, a in arrays.items()}, sizes)
    for name in program.sizes:
        if name not in bound:
            raise _argument_error(f"{name}: expected a value for this size, got none", hint="no input's shape fixes it: give it in sizes")
    for item in program.inputs:
        if arrays[item.name].dtype != item.type.dtype.numpy:
            hint = f"{item.name}.astype({item.type.dtype.name!r})"
            raise _argument_error(f"{item.name}: expected dtype {item.type.dtype.name}, got {arrays[item.name].dtype}", hint=hint)
    machine = _Machine(bound, arrays | {c.name: c.data for c in program.constants})
    for name in program.outputs:
        _check_extents(name, program.types[name], bound)
    with np.errstate(all="ignore"):
        for definition in program.definitions:
            machine.run(definition)
    return {name: machine.tensors[name] for name in program.outputs}


# ------------------------------------------------------------------------------------------------------------ sizes


_WHOLE: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "neg": operator.neg,
    "minimum": min,
    "maximum": max,
    "floordiv": lambda a, b: a // b if b else 0,
    "mod": lambda a, b: a % b if b else 0,
}


def extent_value(expr: Expr, sizes: Mapping[str, int]) -> int:
    """The value of an extent, an int64 expression over sizes and constants.

    Raises `ArgumentError` where arithmetic leaves int64: all that is made of a program takes extents for whole numbers.
    """
    if isinstance(expr, Const):
        return int(expr.value)
    if isinstance(expr, Size):
        return int(sizes[expr.name])
    if not isinstance(expr, Apply) or expr.op.name not in _WHOLE or expr.dtype is not dtypes.int64:
        with np.errstate(all="ignore"):
            return int(_Machine(sizes, {}).compile(expr, "")({}))
    found: int = _WHOLE[expr.op.name](*(extent_value(arg, sizes) for arg in expr.args))
    if not dtypes.int64.least <= found <= dtypes.int64.greatest:
        at = ", ".join(f"{name} = {sizes[name]}" for name in size_names(expr))
        raise _argument_error(f"expected extents that int64 holds, got {found}{f' at {at}' if at else ''}", print_expr(expr))
    return found


def _check_extents(name: str, type_: TensorType, sizes: Mapping[str, int]) -> None:
    """Refuses a result with an extent below zero."""
    for axis, expr in enumerate(type_.shape):
        length = extent_value(expr, sizes)
        if length < 0:
            raise _argument_error(f"{name}: expected an extent of at least 0 on axis {axis}, got {length}", print_expr(expr))


def infer_sizes(inputs: tuple[Input, ...], shapes: Mapping[str, tuple[int, ...]], given: Mapping[str, int] | None = None) -> dict[str, int]:
    """The symbolic sizes, from the shapes of the inputs: each extent that is linear in one unknown size gives its value.

    Raises `ArgumentError` for a wrong rank or an extent that contradicts the others.
    """
    bound: dict[str, int] = {}
    for name, value in (given or {}).items():
        bound[name] = int(value)
    todo: list[tuple[str, int, Expr, int]] = []
    for item in inputs:
        shape = shapes[item.name]
        if len(shape) != len(item.type.shape):
            raise _argument_error(f"{item.name}: expected {len(item.type.shape)} axes, got {len(shape)}", print_type(item.type))
        todo += [(item.name, axis, e, n) for axis, (e, n) in enumerate(zip(item.type.shape, shape, strict=True))]
    progress = True
    while progress:
        progress = False
        for _, _, expr, found in todo:
            unknown = [n for n in size_names(expr) if n not in bound]
            solution = _solve(expr, unknown[0], bound, found) if len(unknown) == 1 else None
            if solution is not None:
                bound[unknown[0]] = solution
                progress = True
    for name, value in bound.items():
        if value < 0:
            raise _argument_error(f"{name}: expected a size of at least 0, got {value}")
    for name, axis, expr, found in todo:
        if all(n in bound for n in size_names(expr)) and extent_value(expr, bound) != found:
            values = ", ".join(f"{n} = {bound[n]}" for n in size_names(expr))
            because = f" (where {values})" if values else ""
            raise _argument_error(f"{name}: expected extent {extent_value(expr, bound)}{because} on axis {axis}, got {found}")
    return bound


def _argument_error(message: str, term: str | None = None, hint: str | None = None) -> ArgumentError:
    return ArgumentError(message, term=term, location=user_location(), hint=hint)


def _solve(expr: Expr, name: str, bound: Mapping[str, int], found: int) -> int | None:
    """The value of `name` at which the extent is `found`; None where the extent is not linear in it or has none."""
    if any(isinstance(e, Apply) and e.op.name not in ("add", "sub", "mul", "neg") for e in walk(expr)):
        return None
    at = [extent_value(expr, {**bound, name: k}) for k in (0, 1, 2)]
    slope = at[1] - at[0]
    if slope == 0 or at[2] - at[1] != slope or (found - at[0]) % slope:
        return None
    return (found - at[0]) // slope


# ------------------------------------------------------------------------------------------------------ definitions


def out_of_bounds(
    definition: str, access: str, tensor: str, axis: int, index: int, length: int, location: Location | None = None
) -> OutOfBoundsError:
    """The error of an index that leaves its tensor while a kernel runs: which operation, which index, which extent."""
    return OutOfBoundsError(
        f"{definition}: expected 0 <= index < {length} on axis {axis} of {tensor}, got {index}", term=access, location=location
    )


_IDENTITY: dict[str, Callable[[DType], bool | int | float]] = {
    "sum": lambda d: 0,
    "prod": lambda d: 1,
    "max": lambda d: d.least,
    "min": lambda d: d.greatest,
    "all": lambda d: True,
    "any": lambda d: False,
}
_COMBINE = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "all": "and", "any": "or"}


def identity_of(combiner: str, dtype: DType) -> bool | int | float:
    """What a built-in reduction (other than argmax and argmin) of `dtype` gives over nothing."""
    return _IDENTITY[combiner](dtype)


def _scalar(value: bool | int | float, dtype: DType) -> Any:
    return np.array(value, dtype.numpy)[()]


class _Machine:
    """The tensors computed so far, and the sizes."""

    def __init__(self, sizes: Mapping[str, int], tensors: dict[str, np.ndarray]) -> None:
        self.sizes = {name: np.int64(value) for name, value in sizes.items()}
        self.tensors = tensors
        self._positions: dict[str, Positions] = {}
        self._thunks: dict[tuple[int, str], tuple[Expr, Thunk]] = {}

    def run(self, definition: Definition, env: Env | None = None) -> None:
        match definition:
            case Define():
                self.define(definition, env or {})
            case Scatter():
                self.scatter(definition, env or {})
            case Segments():
                self.segments(definition, env or {})
            case Scan():
                self.scan(definition, env or {})

    def shape(self, type_: TensorType, name: str) -> tuple[int, ...]:
        """A shape as numbers; along an extent below zero a tensor between definitions has no elements."""
        return tuple(max(0, int(self.compile(e, name)({}))) for e in type_.shape)

    def array(self, shape: tuple[int, ...], dtype: DType, name: str, value: bool | int | float = 0) -> np.ndarray:
        """An array full of one value."""
        try:
            return np.full(shape, value, dtype.numpy) if value else np.zeros(shape, dtype.numpy)
        except (MemoryError, ValueError):
            taken = f"{dtype.name}[{', '.join(map(str, shape))}], which takes {math.prod(shape) * dtype.itemsize:,} bytes"
            raise _argument_error(f"{name}: expected an array that fits into memory, got {taken}") from None

    def define(self, definition: Define, env: Env) -> None:
        _, type_ = definition.results[0]
        result = self.array(self.shape(type_, definition.name), type_.dtype, definition.name)
        value = self.compile(definition.value, definition.name)
        names = [a.index for a in definition.axes]
        for point in np.ndindex(result.shape):
            env.update(zip(names, point, strict=True))
            result[point] = value(env)
        self.tensors[definition.name] = result

    def scatter(self, definition: Scatter, env: Env) -> None:
        type_, name = definition.type, definition.name
        shape, carried = self.shape(type_, name), accumulator(type_.dtype)
        result = self.array(shape, carried, name, identity_of(definition.combine, carried))
        combine = OPS[_COMBINE[definition.combine]].evaluate
        indices = [self.compile(e, name) for e in definition.indices]
        value = self.compile(definition.value, name)
        where = None if definition.where is None else self.compile(definition.where, name)
        for _ in self.points(definition.axes, name)(env):
            if where is None or where(env):
                at = tuple(int(index(env)) for index in indices)
                for axis, (i, length) in enumerate(zip(at, shape, strict=True)):
                    if not 0 <= i < length:
                        term = f"{name}[{', '.join(print_expr(e) for e in definition.indices)}]"
                        raise out_of_bounds(name, term, name, axis, i, length, definition.location)
                result[at] = combine(result[at], cast_value(value(env), carried))
        self.tensors[name] = cast_value(result, type_.dtype) if carried is not type_.dtype else result

    def segments(self, definition: Segments, env: Env) -> None:
        name = definition.name
        offsets, order = (self.array(self.shape(type_, result), type_.dtype, result) for result, type_ in definition.results)
        shape = self.shape(TensorType(definition.extents, dtypes.int64), name)
        keys = [self.compile(e, name) for e in definition.keys]
        where = None if definition.where is None else self.compile(definition.where, name)
        names = [axis.index for axis in definition.batch]
        for plan in np.ndindex(offsets.shape[:-1]):
            env.update(zip(names, plan, strict=True))
            found: list[tuple[int, int]] = []
            for position, _ in enumerate(self.points(definition.axes, name)(env)):
                if where is None or where(env):
                    at = tuple(int(key(env)) for key in keys)
                    for axis, (i, length) in enumerate(zip(at, shape, strict=True)):
                        if not 0 <= i < length:
                            term = f"{name}[{', '.join(print_expr(e) for e in definition.keys)}]"
                            raise out_of_bounds(name, term, name, axis, i, length, definition.location)
                    found.append((int(np.ravel_multi_index(at, shape)) if at else 0, position))
            found.sort()
            order[plan][: len(found)] = [position for _, position in found]
            for key, _ in found:
                offsets[plan][key + 1 :] += 1
        self.tensors.update(zip(definition.names, (offsets, order), strict=True))

    def scan(self, definition: Scan, env: Env) -> None:
        length = max(0, int(self.compile(definition.length, definition.names[0])({})))
        results = [
            self.array((length, *self.shape(type_, name)), type_.dtype, name)
            for name, (_, type_) in zip(definition.names, definition.states, strict=True)
        ]
        current = [self.tensors[init] for init in definition.inits]
        for step in range(length):
            for (formal, _), array in zip(definition.states, current, strict=True):
                self.tensors[formal] = array
            for inner in definition.body:
                self.run(inner, env | {definition.step: step})
            current = [self.tensors[following] for following in definition.nexts]
            for result, array in zip(results, current, strict=True):
                result[step] = array
        self.tensors.update(zip(definition.names, results, strict=True))

    # ----------------------------------------------------------------------------------------------- expressions

    def points(self, axes: tuple[Axis, ...], name: str) -> Callable[[Env], Iterator[None]]:
        """Visits the points of a nest of loops in row-major order, its indices set in the environment."""
        compiled = [(a.index, self.compile(a.start, name), self.compile(a.stop, name)) for a in axes]

        def visit(env: Env, depth: int = 0) -> Iterator[None]:
            if depth == len(compiled):
                yield
                return
            index, start, stop = compiled[depth]
            for i in range(int(start(env)), int(stop(env))):
                env[index] = i
                yield from visit(env, depth + 1)

        return visit

    def compile(self, expr: Expr, name: str) -> Thunk:
        """The function from the environment to the value of `expr`, which stands in the definition called `name`."""
        kept = self._thunks.get((id(expr), name))  # the steps of a scan ask for the same ones again and again
        if kept is None:
            kept = self._thunks[id(expr), name] = (expr, self._made(expr, name))  # who is kept keeps its identity
        return kept[1]

    def positions(self, name: str) -> Positions:
        """Index arithmetic of the definition called `name`."""
        if name not in self._positions:
            self._positions[name] = Positions(self.sizes, lambda expr: self.compile(expr, name))
        return self._positions[name]

    def _made(self, expr: Expr, name: str) -> Thunk:
        found = self.positions(name).scalar(expr) if isinstance(expr, Apply) else None
        if found is not None:
            return found
        match expr:
            case Const(value, dtype):
                scalar = _scalar(value, dtype)
                return lambda env: scalar
            case Index(index):
                return lambda env: np.int64(env[index])
            case Param(param):
                return lambda env: env[param]
            case Size(size):
                return lambda env: self.sizes[size]
            case Access():
                return self.access(expr, name)
            case Cast(dtype, arg):
                inner, cast = self.compile(arg, name), scalar_cast(arg.dtype, dtype)
                return lambda env: cast(inner(env))
            case Apply(op, args):
                if op.name == "where":
                    condition, taken, otherwise = (self.compile(a, name) for a in args)
                    return lambda env: taken(env) if condition(env) else otherwise(env)
                evaluate, first = scalar_evaluate(op), self.compile(args[0], name)
                if op.arity == 1:
                    return lambda env: evaluate(first(env))
                second = self.compile(args[1], name)
                return lambda env: evaluate(first(env), second(env))
            case Reduce():
                return self.reduce(expr, name)
        raise AssertionError(type(expr))

    def access(self, expr: Access, name: str) -> Thunk:
        place, tensor = self.positions(name).place(expr.indices), expr.tensor

        def element(env: Env) -> Any:
            array, at = self.tensors[tensor], place(env)
            try:
                if not at or min(at) >= 0:
                    return array[at]
            except IndexError:
                pass  # beyond the end
            axis = next(axis for axis, (i, length) in enumerate(zip(at, array.shape, strict=True)) if not 0 <= i < length)
            raise out_of_bounds(name, print_expr(expr), tensor, axis, int(at[axis]), array.shape[axis], expr.location)

        return element

    def reduce(self, expr: Reduce, name: str) -> Thunk:
        visit = self.points(expr.axes, name)
        where = (lambda env: True) if expr.where is None else self.compile(expr.where, name)
        values = [self.compile(v, name) for v in expr.values]
        combiner = expr.combiner
        if combiner.name in ("argmax", "argmin") and combiner.is_builtin:
            return lambda env: _winner(combiner.name, visit(env), where, values[0], env)
        if not combiner.is_builtin:
            return self.fold(expr, visit, where, values, name)
        carried = accumulator(expr.dtype)
        start, combine = _scalar(identity_of(combiner.name, carried), carried), scalar_evaluate(OPS[_COMBINE[combiner.name]])

        def total(env: Env) -> Any:
            result = start
            for _ in visit(env):
                if where(env):
                    value = values[0](env)
                    result = combine(result, value if carried is expr.dtype else cast_value(value, carried))
            return result if carried is expr.dtype else cast_value(result, expr.dtype)

        return total

    def fold(self, expr: Reduce, visit: Callable[[Env], Iterator[None]], where: Thunk, values: list[Thunk], name: str) -> Thunk:
        combiner = expr.combiner
        identity = [_scalar(i.value, i.dtype) for i in combiner.identity if isinstance(i, Const)]
        results = [self.compile(r, name) for r in combiner.results]
        left, right = [p.name for p in combiner.left], [p.name for p in combiner.right]

        def total(env: Env) -> Any:
            state = identity
            for _ in visit(env):
                if where(env):
                    params = dict(zip(left, state, strict=True))
                    params.update(zip(right, [value(env) for value in values], strict=True))
                    state = [result(params) for result in results]
            return state[expr.component]

        return total


def _winner(name: str, points: Iterator[None], where: Thunk, value: Thunk, env: Env) -> np.int64:
    """The row-major position of the first greatest (or least) value; the first NaN wins over everything, 0 over nothing."""
    position, best = 0, None
    for here, _ in enumerate(points):
        if where(env):
            found = value(env)
            if best is None or (not _is_nan(best) and (_is_nan(found) or (found > best if name == "argmax" else found < best))):
                position, best = here, found
    return np.int64(position)


def _is_nan(value: Any) -> bool:
    return bool(value != value)
