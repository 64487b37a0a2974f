"""A naive interpreter of loop nests: the oracle against which schedules, lowering and emitters are tested.

Scalars are NumPy scalars, so every operation means what `ops.evaluate` says; indices are Python's integers (`positions`); loops of
every kind run serially. Each array is checked on every access, and what a nest leaves uninitialized is poisoned (NaN, or the dtype's
least value), so that a stray read or a read before a write shows. Each statement and expression becomes a function once, and then runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tensorexpr.codegen.nest import Alloc, Block, Buffer, Check, For, If, LoopNest, Stmt, Store
from tensorexpr.errors import InternalError, OutOfBoundsError
from tensorexpr.ir import Access, Apply, Cast, Const, Expr, Index, Size
from tensorexpr.ops import scalar_cast, scalar_evaluate
from tensorexpr.positions import Positions

Env = dict[str, int]
Run = Callable[[Env], None]
Place = tuple[int, ...]


def run_nest(nest: LoopNest, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int] | None = None) -> dict[str, np.ndarray]:
    """Runs the nest on arrays for the parameters that are inputs (by name); gives the outputs, by parameter name.

    Raises `OutOfBoundsError` where a `Check` fails and `InternalError` for an access outside its buffer.
    """
    machine = Machine(nest, dict(arrays), dict(sizes or {}))
    with np.errstate(all="ignore"):
        for kernel in nest.kernels:
            machine.block(kernel.body, {})
    return {name: machine.arrays[name] for name in nest.writes}


class Machine:
    """The state of one run: arrays by name, sizes, and `visits`: how often the body of each loop index ran."""

    def __init__(self, nest: LoopNest, arrays: dict[str, np.ndarray], sizes: dict[str, int]) -> None:
        self.nest = nest
        self.sizes = sizes
        self.arrays: dict[str, np.ndarray] = {c.name: c.data for c in nest.constants}
        self.visits: dict[str, int] = {}
        self.positions = Positions(sizes, self.value)
        for buffer in (*nest.parameters, *nest.workspace):
            given = arrays.get(buffer.name)
            writes = buffer.memory == "workspace" or buffer.name in nest.writes
            self.arrays[buffer.name] = self.poisoned(buffer) if writes or given is None else np.asarray(given)

    def poisoned(self, buffer: Buffer) -> np.ndarray:
        shape = tuple(int(self.value(e)({})) for e in buffer.shape)
        poison = np.nan if buffer.dtype.is_float else buffer.dtype.least
        return np.full(shape, poison, dtype=buffer.dtype.numpy)

    def block(self, block: Block, env: Env) -> None:
        """Runs statements, with the indices around them in `env`."""
        for run in self.compiled(block):
            run(env)

    # ------------------------------------------------------------------------------------- statements and values as functions

    def compiled(self, block: Block) -> list[Run]:
        """Each statement as a function of the indices around it."""
        return [self.statement(statement) for statement in block]

    def statement(self, statement: Stmt) -> Run:
        match statement:
            case For():
                return self.loop(statement)
            case If():
                condition, then, otherwise = (
                    self.value(statement.condition),
                    self.compiled(statement.then),
                    self.compiled(statement.otherwise),
                )

                def choose(env: Env) -> None:
                    for run in then if condition(env) else otherwise:
                        run(env)

                return choose
            case Store():
                place, value = self.element(statement.buffer, statement.indices), self.value(statement.value)

                def store(env: Env) -> None:
                    array, at = place(env)
                    stored = value(env)
                    try:
                        array[at] = stored
                    except IndexError:
                        raise outside(statement.buffer, array, at) from None

                return store
            case Alloc():
                buffer, body = statement.buffer, self.compiled(statement.body)

                def allocate(env: Env) -> None:
                    outer = self.arrays.get(buffer.name)
                    self.arrays[buffer.name] = self.poisoned(buffer)
                    for run in body:
                        run(env)
                    if outer is not None:
                        self.arrays[buffer.name] = outer

                return allocate
            case Check():
                return self.check(statement)
        raise AssertionError(type(statement))

    def loop(self, loop: For) -> Run:
        index, start, stop, body = loop.index, self.value(loop.start), self.value(loop.stop), self.compiled(loop.body)

        def repeat(env: Env) -> None:
            outer = env.get(index)
            first, last = int(start(env)), int(stop(env))
            if last > first:
                self.visits[index] = self.visits.get(index, 0) + last - first
            for i in range(first, last):
                env[index] = i
                for run in body:
                    run(env)
            if outer is None:
                env.pop(index, None)
            else:
                env[index] = outer

        return repeat

    def check(self, check: Check) -> Run:
        index_of, extent_of = self.value(check.index), self.value(check.extent)

        def assure(env: Env) -> None:
            index, extent = int(index_of(env)), int(extent_of(env))
            if not 0 <= index < extent:
                site = self.nest.checks[check.check]
                raise OutOfBoundsError(
                    f"expected an index of axis {site.axis} of {site.tensor} in 0 <= index < {extent}, got {index}",
                    term=site.access,
                    location=site.location,
                    at=site.definition,
                )

        return assure

    def element(self, name: str, indices: tuple[Expr, ...]) -> Callable[[Env], tuple[np.ndarray, Place]]:
        """The array and the place in it that an access means; that it is not beyond the end is left to NumPy."""
        placed = self.positions.place(indices)

        def place(env: Env) -> tuple[np.ndarray, Place]:
            array, at = self.arrays[name], placed(env)
            if len(at) == 1 < array.ndim:
                array = array.reshape(-1)  # by position
            if len(at) != array.ndim or (at and min(at) < 0):
                raise outside(name, array, at)
            return array, at

        return place

    def value(self, expr: Expr) -> Callable[[Env], Any]:
        found = self.positions.scalar(expr) if isinstance(expr, Apply) else None
        if found is not None:
            return found
        match expr:
            case Const():
                constant = expr.dtype.numpy.type(expr.value)
                return lambda env: constant
            case Index(name):
                return lambda env: np.int64(env[name])
            case Size(name):
                return lambda env: np.int64(self.sizes[name])
            case Access():
                place = self.element(expr.tensor, expr.indices)

                def element(env: Env) -> Any:
                    array, at = place(env)
                    try:
                        return array[at]
                    except IndexError:
                        raise outside(expr.tensor, array, at) from None

                return element
            case Cast():
                inner, cast = self.value(expr.arg), scalar_cast(expr.arg.dtype, expr.dtype)
                return lambda env: cast(inner(env))
            case Apply() if expr.op.name == "where":
                condition, taken, otherwise = map(self.value, expr.args)
                return lambda env: taken(env) if condition(env) else otherwise(env)
            case Apply():
                evaluate, first = scalar_evaluate(expr.op), self.value(expr.args[0])
                if expr.op.arity == 1:
                    return lambda env: evaluate(first(env))
                second = self.value(expr.args[1])
                return lambda env: evaluate(first(env), second(env))
        raise AssertionError(type(expr))


def outside(name: str, array: np.ndarray, at: Place) -> InternalError:
    """The error of an access that leaves its buffer."""
    return InternalError(f"expected an access inside {name} of shape {array.shape}, got indices {tuple(map(int, at))}")
