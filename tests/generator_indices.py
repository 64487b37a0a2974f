"""The lower half of the random programs: what is in scope, and index expressions that stay in bounds (see `generators`)."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

from tensorexpr import dtypes
from tensorexpr.dtypes import DType
from tensorexpr.ir import (
    Access,
    Apply,
    Axis,
    Combiner,
    Const,
    Constant,
    Expr,
    Index,
    Input,
    Reduce,
    Size,
    TensorType,
    apply,
    const,
)

_LETTERS = "ijklpqrsuvwxyz"


class Loop(NamedTuple):
    """An index in scope: what it runs to, and its range where that is constant (`high` None: it ends with a size)."""

    name: str
    stop: Expr
    low: int
    high: int | None


class Value(NamedTuple):
    """An expression with a bound on its magnitude, and `grain`: it is a multiple of 2 ** -grain (floats of exact programs)."""

    expr: Expr
    magnitude: float = 0.0
    grain: int = 0


@dataclass(slots=True)
class Source:
    """A tensor that can be read."""

    shape: tuple[Expr, ...]
    dtype: DType
    magnitude: float
    grain: int = 0


class IndexWriter(ABC):
    """Names, tensors and loops of the program being written, and index expressions over them."""

    def __init__(self, rng: random.Random, exact: bool, differentiable: bool, without: frozenset[str], pool: tuple[DType, ...]) -> None:
        self.rng, self.exact, self.differentiable, self.without, self.pool = rng, exact, differentiable, without, pool
        self.sources: dict[str, Source] = {}
        self.inputs: list[Input] = []
        self.constants: list[Constant] = []
        self.sizes: list[str] = []
        self.serial = 0

    def may(self, construct: str, probability: float) -> bool:
        return construct not in self.without and self.rng.random() < probability

    def fresh(self, stem: str) -> str:
        self.serial += 1
        return f"{stem}{self.serial}"

    @abstractmethod
    def value(self, dtype: DType, scope: tuple[Loop, ...], depth: int, budget: int) -> Value:
        """An expression of `dtype`; `budget` bounds the points of the reductions inside."""

    @abstractmethod
    def leaf(self, dtype: DType, scope: tuple[Loop, ...]) -> Value:
        """A read, an index or a literal."""

    @abstractmethod
    def read(self, dtype: DType, scope: tuple[Loop, ...]) -> Value | None:
        """A read of some tensor of this dtype, None if none can be read here."""

    def extent(self) -> Expr:
        rng = self.rng
        if self.sizes and rng.random() < 0.5:
            return self.symbolic(rng.choice(self.sizes), rng.choice((1, 1, 1, 2, 3)), rng.choice((0, 0, 0, 1, 2)))
        return const(0 if self.may("zero", 0.015) else rng.choice((1, 2, 2, 3, 3, 4, 4, 5, 6)))

    @staticmethod
    def symbolic(size: str, factor: int, offset: int) -> Expr:
        expr: Expr = Size(size) if factor == 1 else apply("mul", const(factor), Size(size))
        return expr if offset == 0 else apply("add", expr, const(offset))

    def shape(self, most: int) -> tuple[Expr, ...]:
        return tuple(self.extent() for _ in range(self.rng.choice((0, 1, 1, 2, 2, 2, 3)[: 2 * most + 1])))

    def input(self, dtype: DType, shape: tuple[Expr, ...], name: str | None = None) -> str:
        name = name or self.fresh("X")
        self.inputs.append(Input(name, TensorType(shape, dtype)))
        self.sources[name] = Source(shape, dtype, 3.0)
        return name

    def loops(self, shape: tuple[Expr, ...]) -> tuple[Loop, ...]:
        scope: tuple[Loop, ...] = ()
        for stop in shape:
            scope = (*scope, self.loop(stop, scope))
        return scope

    def loop(self, stop: Expr, scope: tuple[Loop, ...]) -> Loop:
        taken = {outer.name for outer in scope}
        name = next(letter for letter in _LETTERS if letter not in taken)
        return Loop(name, stop, 0, max(0, stop.value - 1) if isinstance(stop, Const) else None)

    @staticmethod
    def axes(scope: tuple[Loop, ...]) -> tuple[Axis, ...]:
        return tuple(Axis(o.name, const(0), o.stop) for o in scope)

    # -------------------------------------------------------------------------------------------------- indices

    def points(self, scope: tuple[Loop, ...]) -> int:
        """A bound on the number of points (sizes are at most 5, extents of them at most 17)."""
        total = 1
        for loop in scope:
            total *= 17 if loop.high is None else loop.high + 1
        return total

    def exactly(self, stop: Expr, scope: tuple[Loop, ...]) -> Expr | None:
        """An index that stays below a symbolic (or zero) extent because of the loops in scope, if there is one."""
        rng = self.rng
        found: list[Expr] = []
        for loop in scope:
            if loop.stop == stop and loop.low == 0:
                i = Index(loop.name)
                found += [i, i, i, apply("sub", apply("sub", stop, const(1)), i)]
                if "divmod" not in self.without:
                    found.append(apply("mod", apply("add", i, const(rng.randint(1, 3))), stop))
                if "clamp" not in self.without:
                    found.append(apply("minimum", apply("add", i, const(1)), apply("sub", stop, const(1))))
            elif _linear(stop) is not None and _linear(loop.stop) is not None:
                found += self.strided(_linear(stop), _linear(loop.stop), Index(loop.name), scope)  # type: ignore[arg-type]
        return rng.choice(found) if found else None

    def strided(self, wide: tuple[str, int, int], narrow: tuple[str, int, int], i: Expr, scope: tuple[Loop, ...]) -> list[Expr]:
        found = []
        for stride in (1, 2, 3):
            slack = wide[2] - stride * narrow[2] + stride - 1
            if wide[0] == narrow[0] and stride * narrow[1] <= wide[1] and slack >= 0:
                scaled = i if stride == 1 else apply("mul", const(stride), i)
                found.append(scaled if slack == 0 else apply("add", scaled, const(self.rng.randint(0, slack))))
                found += [apply("add", scaled, Index(k.name)) for k in scope if k.high is not None and k.low >= 0 and k.high <= slack]
        return found

    def bounded(self, stop: Expr, scope: tuple[Loop, ...]) -> Expr:
        """An index below a constant extent of at least 1, of every shape the language has."""
        rng = self.rng
        assert isinstance(stop, Const)
        length = stop.value
        if not scope and "data" in self.without:
            return const(rng.randint(0, length - 1))
        form, low, high = self.form(scope) if scope else (const(0), None, None)
        if low is not None and high is not None and high - low < length:
            return shifted(form, rng.randint(-low, length - 1 - high))
        if low is not None and high is not None and low >= 0 and self.may("divmod", 0.4):
            return apply("floordiv", form, const((high + length) // length))
        if self.may("data", 0.25):
            found = self.picked(length, scope)
            if found is not None:
                return found
        if not scope:
            return const(rng.randint(0, length - 1))
        if self.may("clamp", 0.3):
            return apply("maximum", apply("minimum", form, const(length - 1)), const(0))
        if self.may("divmod", 0.7):
            return apply("mod", form, stop)
        return const(rng.randint(0, length - 1))

    def form(self, scope: tuple[Loop, ...]) -> tuple[Expr, int | None, int | None]:
        """A random sum of multiples of indices, with its range."""
        rng = self.rng
        chosen = rng.sample(scope, min(len(scope), rng.choice((1, 1, 1, 2, 2))))
        form: Expr | None = None
        low: int | None = 0
        high: int | None = 0
        for loop in chosen:
            factor = rng.choice((1, 1, 1, 1, 2, 3, -1))
            term: Expr = Index(loop.name)
            if factor == -1:
                form = apply("neg", term) if form is None else apply("sub", form, term)
            else:
                term = term if factor == 1 else apply("mul", term, const(factor))
                form = term if form is None else apply("add", form, term)
            if loop.high is None or low is None or high is None:
                low = high = None
            else:
                ends = (factor * loop.low, factor * loop.high)
                low, high = low + min(ends), high + max(ends)
        assert form is not None
        return form, low, high

    def picked(self, length: int, scope: tuple[Loop, ...]) -> Expr | None:
        """An index that comes from data: from an input made for it, another integer tensor, or an argmax."""
        rng = self.rng
        kind = rng.random()
        if kind < 0.2 and not {"argmax", "nested"} & self.without:
            loop = self.loop(const(length), scope)
            value = self.leaf(rng.choice(self.pool), (*scope, loop))
            return Reduce(Combiner("argmax"), (value.expr,), (Axis(loop.name, const(0), const(length)),))
        if kind < 0.6:
            usable = [o for o in scope if o.low == 0 and (isinstance(o.stop, Const) or _linear(o.stop) is not None)]
            loop = rng.choice(usable) if usable and rng.random() < 0.9 else None
            name = self.fresh(f"pick{length}_")
            self.input(dtypes.int64, () if loop is None else (loop.stop,), name)
            self.sources[name].magnitude = length
            return Access(name, () if loop is None else (Index(loop.name),), dtypes.int64)
        found = self.read(dtypes.int64, scope)
        return None if found is None else apply("mod", found.expr, const(length))

    def condition(self, scope: tuple[Loop, ...]) -> Expr:
        rng = self.rng
        if not scope:
            return Const(rng.random() < 0.5, dtypes.bool_) if "data" in self.without else self.leaf(dtypes.bool_, scope).expr
        form, low, high = self.form(scope)
        kind = rng.random()
        if kind < 0.2 and "data" not in self.without:
            found = self.value(rng.choice([d for d in self.pool if not d.is_bool] or [dtypes.int32]), scope, 1, 1)
            zero = Const(0, found.expr.dtype)
            return apply(rng.choice(("lt", "ge", "ne")), found.expr, zero)
        if kind < 0.4 and low is not None and low >= 0 and "divmod" not in self.without:
            return apply(rng.choice(("eq", "ne")), apply("mod", form, const(2)), const(rng.randint(0, 1)))
        middle = rng.randint(-1, 3) if low is None or high is None else rng.randint(low, high + 1)
        first = apply(rng.choice(("lt", "le", "gt", "ge", "ge", "eq")), form, const(middle))
        if kind > 0.8:
            return apply(rng.choice(("and", "and", "or")), first, self.condition(scope))
        return apply("invert", first) if kind > 0.75 else first


def _linear(expr: Expr) -> tuple[str, int, int] | None:
    """(n, a, b) for an extent a * n + b as this module writes them."""
    offset = 0
    if isinstance(expr, Apply) and expr.op.name == "add" and isinstance(expr.args[1], Const):
        expr, offset = expr.args[0], expr.args[1].value
    if isinstance(expr, Size):
        return expr.name, 1, offset
    if isinstance(expr, Apply) and expr.op.name == "mul" and isinstance(expr.args[0], Const) and isinstance(expr.args[1], Size):
        return expr.args[1].name, expr.args[0].value, offset
    return None


def shifted(form: Expr, by: int) -> Expr:
    """`form` plus a constant."""
    if by == 0:
        return form
    return apply("add" if by > 0 else "sub", form, const(abs(by)))
