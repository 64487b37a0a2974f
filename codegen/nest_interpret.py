"""A naive interpreter of loop nests: the oracle against which schedules, lowering and emitters are tested.

Scalars are NumPy scalars, so every operation means what `ops.evaluate` says; loops of every kind run serially. Each
array is checked on every access, and what a nest leaves uninitialized is poisoned (NaN, or the dtype's least value), so
that a stray read or a read before a write shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorexpr.codegen.nest import Alloc, Block, Buffer, Check, For, If, LoopNest, Store
from tensorexpr.errors import InternalError, OutOfBoundsError
from tensorexpr.ir import Access, Apply, Cast, Const, Expr, Index, Size
from tensorexpr.ops import cast_value


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
        for buffer in (*nest.parameters, *nest.workspace):
            given = arrays.get(buffer.name)
            writes = buffer.memory == "workspace" or buffer.name in nest.writes
            self.arrays[buffer.name] = self.poisoned(buffer) if writes or given is None else np.asarray(given)

    def poisoned(self, buffer: Buffer) -> np.ndarray:
        shape = tuple(int(self.value(e, {})) for e in buffer.shape)
        poison = np.nan if buffer.dtype.is_float else buffer.dtype.least
        return np.full(shape, poison, dtype=buffer.dtype.numpy)

    def block(self, block: Block, env: dict[str, np.int64]) -> None:
        for statement in block:
            match statement:
                case For():
                    start, stop = int(self.value(statement.start, env)), int(self.value(statement.stop, env))
                    for i in range(start, stop):
                        self.visits[statement.index] = self.visits.get(statement.index, 0) + 1
                        self.block(statement.body, {**env, statement.index: np.int64(i)})
                case If():
                    taken = statement.then if self.value(statement.condition, env) else statement.otherwise
                    self.block(taken, env)
                case Store():
                    array, at = self.element(statement.buffer, statement.indices, env)
                    array[at] = self.value(statement.value, env)
                case Alloc():
                    outer = self.arrays.get(statement.buffer.name)
                    self.arrays[statement.buffer.name] = self.poisoned(statement.buffer)
                    self.block(statement.body, env)
                    if outer is not None:
                        self.arrays[statement.buffer.name] = outer
                case Check():
                    index, extent = int(self.value(statement.index, env)), int(self.value(statement.extent, env))
                    if not 0 <= index < extent:
                        site = self.nest.checks[statement.check]
                        raise OutOfBoundsError(
                            f"expected an index of axis {site.axis} of {site.tensor} in 0 <= index < {extent}, got {index}",
                            term=site.access,
                            location=site.location,
                            at=site.definition,
                        )

    def element(self, name: str, indices: tuple[Expr, ...], env: dict[str, np.int64]) -> tuple[np.ndarray, tuple[int, ...]]:
        array = self.arrays[name]
        at = tuple(int(self.value(i, env)) for i in indices)
        if len(at) != array.ndim or not all(0 <= i < n for i, n in zip(at, array.shape, strict=True)):
            raise InternalError(f"expected an access inside {name} of shape {array.shape}, got indices {at}")
        return array, at

    def value(self, expr: Expr, env: dict[str, np.int64]) -> Any:
        match expr:
            case Const():
                return expr.dtype.numpy.type(expr.value)
            case Index():
                return env[expr.name]
            case Size():
                return np.int64(self.sizes[expr.name])
            case Access():
                array, at = self.element(expr.tensor, expr.indices, env)
                return array[at]
            case Cast():
                return cast_value(self.value(expr.arg, env), expr.dtype)
            case Apply() if expr.op.name == "where":
                condition, taken, otherwise = expr.args
                return self.value(taken if self.value(condition, env) else otherwise, env)
            case Apply():
                return expr.op.evaluate(*(self.value(a, env) for a in expr.args))
        raise AssertionError(type(expr))
