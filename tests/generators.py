"""Random programs for the laws of every room: small shapes, every construct, in bounds by construction.

`random_program(seed)` gives the same program for the same seed and options. With `exact` (the default) every float is a
small multiple of a power of two, so sums and products are exact in any order and results can be compared bit for bit;
the writer keeps a bound on the magnitude of every value and clips it where it would grow too large. `differentiable`
keeps to float64 and to what reverse mode covers. `without` leaves out constructs by name (see `CONSTRUCTS`).

Inputs called `pick3_...` hold indices below 3 and are read as indices without a check.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tensorexpr import dtypes
from tensorexpr.dtypes import DType, accumulator
from tensorexpr.interpret import extent
from tensorexpr.ir import (
    Access,
    Apply,
    Axis,
    Cast,
    Combiner,
    Const,
    Constant,
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
    Size,
    TensorType,
    apply,
    const,
)

CONSTRUCTS = (
    "symbolic", "zero", "casts", "where", "guard", "divmod", "clamp", "data", "nested", "dependent", "mask",
    "sum", "prod", "max", "min", "all", "any", "argmax", "combiner", "scatter", "scan", "constant",
)  # fmt: skip
_NOT_DIFFERENTIABLE = ("casts", "data", "prod", "all", "any", "argmax", "combiner", "scatter", "scan", "zero")
_LETTERS = "ijklpqrsuvwxyz"
_DTYPES = (
    *[dtypes.float32] * 8, *[dtypes.float64] * 4, *[dtypes.int64] * 3, dtypes.int32, dtypes.int8, dtypes.uint8, dtypes.uint32,
    dtypes.int16, dtypes.uint16, dtypes.uint64, dtypes.float16, dtypes.bfloat16, dtypes.bool_, dtypes.bool_,
)  # fmt: skip
_LIMIT = {dtypes.float64: 2.0**40, dtypes.float32: 2.0**20, dtypes.float16: 2.0**9, dtypes.bfloat16: 2.0**6}


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


def random_program(
    seed: int | random.Random,
    *,
    exact: bool = True,
    floats_only: bool = False,
    differentiable: bool = False,
    without: Collection[str] = (),
    definitions: int | None = None,
) -> Program:
    """A random program of one to five definitions, all outputs among them, the last one always an output."""
    rng = seed if isinstance(seed, random.Random) else random.Random(seed)
    left_out = set(without) | (set(_NOT_DIFFERENTIABLE) if differentiable else set())
    if differentiable or floats_only:
        pool = (dtypes.float64,) if differentiable else (dtypes.float32, dtypes.float64)
    else:
        main = rng.choice(_DTYPES)  # few dtypes in one program, so that its tensors read each other
        pool = (*[main] * 5, *rng.sample(_DTYPES, 2))
    return _Writer(rng, exact, differentiable, frozenset(left_out), pool).program(definitions or rng.choice((1, 2, 2, 3, 3, 4, 5)))


def random_sizes(program: Program, seed: int | random.Random, least: int = 0) -> dict[str, int]:
    """Values for the symbolic sizes of a program, from `least` to 5."""
    rng = seed if isinstance(seed, random.Random) else random.Random(seed)
    return {name: rng.randint(least, 5) for name in program.sizes}


def random_inputs(
    program: Program, seed: int | random.Random, *, exact: bool = True, sizes: Mapping[str, int] | None = None
) -> dict[str, np.ndarray]:
    """Arrays for the inputs of a program; floats are small integers if `exact`, else normally distributed."""
    rng = seed if isinstance(seed, random.Random) else random.Random(seed)
    sizes = random_sizes(program, rng) if sizes is None else sizes
    noise = np.random.default_rng(rng.getrandbits(32))
    arrays = {}
    for item in program.inputs:
        shape, dtype = tuple(extent(e, sizes) for e in item.type.shape), item.type.dtype
        if item.name.startswith("pick"):
            data = noise.integers(0, int(item.name[4 : item.name.index("_")]), shape)
        elif dtype.is_float and not exact:
            data = noise.standard_normal(shape)
        else:
            data = noise.integers(0, 2, shape) if dtype.is_bool else noise.integers(-3 if dtype.is_signed else 0, 4, shape)
        arrays[item.name] = np.asarray(data).astype(dtype.numpy)
    return arrays


class _Writer:
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

    # ------------------------------------------------------------------------------------------------- programs

    def program(self, count: int) -> Program:
        rng = self.rng
        if self.may("symbolic", 0.25):
            self.sizes = ["n", "m"][: rng.choice((1, 1, 2))]
        for size in self.sizes:
            self.input(rng.choice(self.pool), (Size(size), *self.shape(1))[: rng.choice((1, 2))])
        for _ in range(rng.randint(1, 3)):
            self.input(rng.choice(self.pool), self.shape(3))
        if self.may("constant", 0.25):
            self.constant()
        definitions: list[Definition] = []
        for _ in range(count):
            definitions.append(self.definition())
        names = [name for d in definitions for name, _ in d.results]
        outputs = [name for name in names[:-1] if rng.random() < 0.3] + names[-1:]
        return Program(tuple(self.inputs), tuple(self.constants), tuple(definitions), tuple(outputs), tuple(self.sizes))

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

    def constant(self) -> None:
        name, dtype = self.fresh("W"), self.rng.choice(self.pool)
        shape = self.rng.choice(((3,), (2, 3), (), (6, 6)))
        noise = np.random.default_rng(self.rng.getrandbits(32))
        low = 0 if dtype.is_bool or not dtype.is_signed else -3
        data = noise.integers(low, 2 if dtype.is_bool else 4, shape)
        self.constants.append(Constant(name, np.asarray(data).astype(dtype.numpy)))
        self.sources[name] = Source(tuple(const(e) for e in shape), dtype, 3.0)

    def definition(self) -> Definition:
        if self.may("scatter", 0.12):
            return self.scatter()
        if self.may("scan", 0.1):
            found = self.scan()
            if found is not None:
                return found
        dtype, shape = self.rng.choice(self.pool), self.shape(3)
        name, scope = self.fresh("T"), self.loops(shape)
        value = self.value(dtype, scope, 3, 200)
        self.sources[name] = Source(shape, dtype, value.magnitude, value.grain)
        return Define(name, self.axes(scope), value.expr)

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

    def scatter(self) -> Scatter:
        rng = self.rng
        dtype = rng.choice([d for d in self.pool if not d.is_bool])
        shape = tuple(const(rng.randint(1, 4)) for _ in range(rng.choice((0, 1, 1, 2))))
        name, scope = self.fresh("Y"), self.loops(tuple(self.extent() for _ in range(rng.choice((1, 1, 2)))))
        indices = tuple(self.bounded(e, scope) for e in shape)
        where = self.condition(scope) if self.may("mask", 0.3) else None
        combine = rng.choice(("sum", "sum", "sum", "max", "min", "prod"))
        value = self.value(dtype, scope, 2, 100)
        points = self.points(scope)
        if combine == "prod":
            value = self.tame(value, dtype, 1.0)
        elif combine == "sum":
            value = self.summable(value, dtype, points)
        magnitude = {"prod": 1.0, "sum": value.magnitude * points}.get(combine, value.magnitude)
        self.sources[name] = Source(shape, dtype, magnitude, value.grain)
        lowering = rng.choice(("segments", "segments", "atomics"))
        return Scatter(name, TensorType(shape, dtype), self.axes(scope), indices, value.expr, where, combine, lowering)

    def scan(self) -> Scan | None:
        rng = self.rng
        candidates = [n for n, s in self.sources.items() if len(s.shape) < 3 and s.magnitude <= 4 and s.grain == 0 and not s.dtype.is_bool]
        if not candidates:
            return None
        inits = tuple(rng.choice(candidates) for _ in range(rng.choice((1, 1, 2))))
        length = const(rng.randint(0, 4)) if not self.sizes or rng.random() < 0.7 else Size(self.sizes[0])
        step = Loop("t", length, 0, max(0, length.value - 1) if isinstance(length, Const) else None)
        states = tuple((self.fresh("s"), TensorType(self.sources[i].shape, self.sources[i].dtype)) for i in inits)
        outer = dict(self.sources)
        body: list[Definition] = []
        nexts: list[str] = []
        self.sources.update((name, Source(t.shape, t.dtype, 4.0)) for name, t in states)
        for _, type_ in states:
            scope = self.loops(type_.shape)
            value = self.tame(self.value(type_.dtype, (step, *scope), 2, 60), type_.dtype, 4.0)
            nexts.append(self.fresh("g"))
            body.append(Define(nexts[-1], self.axes(scope), value.expr))
            self.sources[nexts[-1]] = Source(type_.shape, type_.dtype, 4.0)
        self.sources = outer
        names = tuple(self.fresh("H") for _ in states)
        for name, (_, type_) in zip(names, states, strict=True):
            self.sources[name] = Source((length, *type_.shape), type_.dtype, 4.0)
        return Scan(names, length, "t", states, inits, tuple(body), tuple(nexts))

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
            return _shifted(form, rng.randint(-low, length - 1 - high))
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
        if kind < 0.2 and "argmax" not in self.without:
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
            found = self.value(rng.choice([d for d in self.pool if not d.is_bool]), scope, 1, 1)
            zero = Const(0, found.expr.dtype)
            return apply(rng.choice(("lt", "ge", "ne")), found.expr, zero)
        if kind < 0.4 and low is not None and low >= 0 and "divmod" not in self.without:
            return apply(rng.choice(("eq", "ne")), apply("mod", form, const(2)), const(rng.randint(0, 1)))
        middle = rng.randint(-1, 3) if low is None or high is None else rng.randint(low, high + 1)
        first = apply(rng.choice(("lt", "le", "gt", "ge", "ge", "eq")), form, const(middle))
        if kind > 0.8:
            return apply(rng.choice(("and", "and", "or")), first, self.condition(scope))
        return apply("invert", first) if kind > 0.75 else first

    # --------------------------------------------------------------------------------------------------- values

    def value(self, dtype: DType, scope: tuple[Loop, ...], depth: int, budget: int) -> Value:
        """An expression of `dtype`; `budget` bounds the points of the reductions inside."""
        rng = self.rng
        if depth == 0 or rng.random() < 0.15:
            return self.leaf(dtype, scope)
        if rng.random() < 0.4 and budget > 1:
            found = self.reduce(dtype, scope, depth, budget)
            if found is not None:
                return found
        if self.may("where", 0.12):
            taken, other = self.value(dtype, scope, depth - 1, budget), self.value(dtype, scope, depth - 1, budget)
            return Value(
                apply("where", self.condition(scope), taken.expr, other.expr),
                max(taken.magnitude, other.magnitude),
                max(taken.grain, other.grain),
            )
        if self.may("casts", 0.08):
            source = rng.choice([d for d in self.pool if d is not dtype] or [dtype])
            return self.cast(self.value(source, scope, depth - 1, budget), dtype)
        a = self.value(dtype, scope, depth - 1, budget)
        if dtype.is_bool:
            return self.logical(a, scope, depth, budget)
        return self.integer(a, scope, depth, budget) if dtype.is_integer else self.floating(a, dtype, scope, depth, budget)

    def leaf(self, dtype: DType, scope: tuple[Loop, ...]) -> Value:
        rng = self.rng
        if rng.random() < 0.9:
            found = self.read(dtype, scope) or (self.converted(dtype, scope) if "casts" not in self.without else None)
            if found is not None:
                return found
        finite = [loop for loop in scope if loop.high is not None]
        if finite and not dtype.is_bool and rng.random() < 0.2:
            loop = rng.choice(finite)
            bound = float(max(abs(loop.low), loop.high or 0))
            return Value(Index(loop.name) if dtype is dtypes.int64 else Cast(dtype, Index(loop.name)), bound)
        if dtype.is_bool:
            return Value(Const(rng.random() < 0.5, dtype))
        if dtype.is_float and not self.differentiable and rng.random() < 0.3:
            return Value(Const(rng.choice((0.5, -0.5, 1.5, 0.25, -0.0)), dtype), 2.0, 2)
        return Value(Const(rng.randint(-2 if dtype.is_signed else 0, 3), dtype), 3.0)

    def read(self, dtype: DType, scope: tuple[Loop, ...]) -> Value | None:
        """A read of some tensor of this dtype, None if none can be read here."""
        candidates = [name for name, s in self.sources.items() if s.dtype is dtype]
        # Later tensors first more often than not, so that programs are chains rather than stars.
        candidates.sort(key=lambda name: self.rng.random() - 0.1 * list(self.sources).index(name))
        for name in candidates:
            source = self.sources[name]
            indices: list[Expr] = []
            guard: Expr | None = None
            for stop in source.shape:
                matching = [loop for loop in scope if loop.stop == stop and loop.low == 0]
                index: Expr | None
                if matching and self.rng.random() < 0.5:
                    index = Index(self.rng.choice(matching).name)
                elif isinstance(stop, Const) and stop.value > 0:
                    index = self.bounded(stop, scope)
                    if guard is None and scope and self.may("guard", 0.15):
                        index, guard = self.guarded(stop.value, scope)
                else:
                    index = self.exactly(stop, scope)
                if index is None:
                    break
                indices.append(index)
            else:
                access: Expr = Access(name, tuple(indices), dtype)
                if guard is not None:
                    access = apply("where", guard, access, Const(0, dtype))
                return Value(access, source.magnitude, source.grain)
        return None

    def guarded(self, length: int, scope: tuple[Loop, ...]) -> tuple[Expr, Expr]:
        """An index that may leave its tensor, and the condition under which it does not (a border of zeros)."""
        form = _shifted(self.form(scope)[0], self.rng.randint(-2, 1))
        return form, apply("and", apply("ge", form, const(0)), apply("lt", form, const(length)))

    def converted(self, dtype: DType, scope: tuple[Loop, ...]) -> Value | None:
        """A read of a tensor of another dtype, cast."""
        others = list(dict.fromkeys(s.dtype for s in self.sources.values() if s.dtype is not dtype))
        found = self.read(self.rng.choice(others), scope) if others else None
        return None if found is None else self.cast(found, dtype)

    def cast(self, inner: Value, dtype: DType) -> Value:
        source = inner.expr.dtype
        if dtype.is_float and source.is_integer:
            return Value(Cast(dtype, apply("mod", inner.expr, Const(5, source))), 5.0)
        if dtype.is_float and source.is_float:
            # An exact program never casts a value that the narrower type would round in a sum's way of rounding.
            inner = self.tame(inner, source, 4.0)
            return Value(Cast(dtype, inner.expr), inner.magnitude, inner.grain)
        return Value(Cast(dtype, inner.expr), 1.0 if source.is_bool else inner.magnitude)

    def logical(self, a: Value, scope: tuple[Loop, ...], depth: int, budget: int) -> Value:
        kind = self.rng.random()
        if kind < 0.2:
            return Value(apply("invert", a.expr))
        if kind < 0.6:
            dtype = self.rng.choice(self.pool)
            left, right = self.value(dtype, scope, depth - 1, budget), self.value(dtype, scope, depth - 1, budget)
            return Value(apply(self.rng.choice(("eq", "ne", "lt", "le", "gt", "ge")), left.expr, right.expr))
        b = self.value(dtypes.bool_, scope, depth - 1, budget)
        return Value(apply(self.rng.choice(("and", "or", "xor", "maximum", "minimum")), a.expr, b.expr))

    def integer(self, a: Value, scope: tuple[Loop, ...], depth: int, budget: int) -> Value:
        rng, dtype = self.rng, a.expr.dtype
        kind = rng.random()
        if kind < 0.25:
            name, right = rng.choice((("floordiv", 3), ("mod", 3), ("pow", 2), ("shift_left", 1), ("shift_right", 2)))
            return Value(apply(name, a.expr, Const(right, dtype)))
        if kind < 0.4:
            return Value(apply(rng.choice(("neg", "abs", "sign", "invert")), a.expr))
        b = self.value(dtype, scope, depth - 1, budget)
        name = rng.choice(("add", "add", "sub", "mul", "maximum", "minimum", "and", "or", "xor", "floordiv", "mod"))
        return Value(apply(name, a.expr, b.expr))

    def floating(self, a: Value, dtype: DType, scope: tuple[Loop, ...], depth: int, budget: int) -> Value:
        rng = self.rng
        kind = rng.random()
        if not self.exact and kind < 0.35:
            return self.smooth(a, dtype)
        if kind < 0.5:
            unary: tuple[str, ...] = ("neg", "abs") if self.differentiable else ("neg", "abs", "sign", "floor", "ceil", "round", "trunc")
            return Value(apply(rng.choice(unary), a.expr), a.magnitude + 1, a.grain)
        if kind < 0.6 and not self.differentiable:
            name, right = rng.choice((("floordiv", 2), ("mod", 3), ("div", 2), ("div", 4)))
            return Value(apply(name, a.expr, Const(right, dtype)), a.magnitude + 3, a.grain + 2)
        b = self.value(dtype, scope, depth - 1, budget)
        name = rng.choice(("add", "add", "sub", "mul", "mul", "mul", "maximum", "minimum"))
        if name == "mul":
            if a.magnitude * b.magnitude * 2.0 ** (a.grain + b.grain) > _LIMIT[dtype]:
                a, b = self.tame(a, dtype, 4.0), self.tame(b, dtype, 4.0)
            return Value(apply(name, a.expr, b.expr), a.magnitude * b.magnitude, a.grain + b.grain)
        if (a.magnitude + b.magnitude) * 2.0 ** max(a.grain, b.grain) > _LIMIT[dtype]:
            a, b = self.tame(a, dtype, 4.0), self.tame(b, dtype, 4.0)
        return Value(apply(name, a.expr, b.expr), a.magnitude + b.magnitude, max(a.grain, b.grain))

    def smooth(self, a: Value, dtype: DType) -> Value:
        """A function that is smooth at every value, which stays moderate."""
        one = Const(1, dtype)
        positive = apply("add", apply("mul", a.expr, a.expr), one)
        bounded = apply("tanh", a.expr)
        found = self.rng.choice((
            bounded, apply("sin", a.expr), apply("cos", a.expr), apply("sigmoid", a.expr), apply("exp", bounded),
            apply("erf", a.expr), apply("sqrt", positive), apply("rsqrt", positive), apply("log", positive), apply("div", a.expr, positive), apply("atan", a.expr),
        ))  # fmt: skip
        return Value(found, max(3.0, a.magnitude))

    def tame(self, value: Value, dtype: DType, bound: float) -> Value:
        """The value clipped to +-bound and, but for differentiable programs, rounded down to an integer."""
        if value.magnitude <= bound and value.grain == 0 and dtype.is_float:
            return value
        high = Const(bound, dtype)
        low = Const(-bound if dtype.is_signed else 0, dtype)
        expr: Expr = apply("minimum", apply("maximum", value.expr, low), high)
        return Value(apply("floor", expr) if dtype.is_float and value.grain and self.exact else expr, bound)

    def summable(self, value: Value, dtype: DType, points: int) -> Value:
        if dtype.is_float and value.magnitude * points * 2.0**value.grain > _LIMIT[accumulator(dtype)]:
            return self.tame(value, dtype, 4.0)
        return value

    # ----------------------------------------------------------------------------------------------- reductions

    def reduction_loops(self, scope: tuple[Loop, ...], budget: int, nonempty: bool) -> tuple[tuple[Loop, ...], tuple[Axis, ...]] | None:
        rng = self.rng
        axes: list[Axis] = []
        inner = scope
        for _ in range(rng.choice((1, 1, 1, 2))):
            finite = [loop for loop in inner if loop.high is not None and loop.low >= 0]
            if finite and not nonempty and self.may("dependent", 0.25):
                outer = rng.choice(finite)
                start, stop, low, high = self.dependent(outer)
            elif self.sizes and not nonempty and "symbolic" not in self.without and rng.random() < 0.3:
                start, stop, low, high = const(0), Size(rng.choice(self.sizes)), 0, None
            else:
                length = rng.randint(1 if nonempty or "zero" in self.without or rng.random() < 0.95 else 0, 4)
                low = rng.choice((0, 0, 0, 1, -1)) if length else 0
                start, stop, high = const(low), const(low + length), low + max(0, length - 1)
            extent_bound = 5 if high is None else high - low + 1
            if extent_bound > budget:
                break
            budget //= extent_bound
            found = self.loop(stop, inner)
            found = Loop(found.name, stop, low, high)
            axes.append(Axis(found.name, start, stop))
            inner = (*inner, found)
        return (inner, tuple(axes)) if axes else None

    def dependent(self, outer: Loop) -> tuple[Expr, Expr, int, int]:
        """A triangle, its complement, or a window that ends at the border."""
        i, high = Index(outer.name), outer.high or 0
        match self.rng.randint(0, 2):
            case 0:
                return const(0), apply("add", i, const(1)), 0, high
            case 1:
                return i, const(high + 1), outer.low, high
        return const(0), apply("minimum", const(3), apply("sub", const(high + 1), i)), 0, 2

    def reduce(self, dtype: DType, scope: tuple[Loop, ...], depth: int, budget: int) -> Value | None:
        rng = self.rng
        names = ["sum", "sum", "sum", "max", "min", "prod", "combiner"] if not dtype.is_bool else ["all", "any"]
        if dtype is dtypes.int64:
            names += ["argmax", "argmax"]
        name = rng.choice([n for n in names if n not in self.without] or [""])
        found = self.reduction_loops(scope, min(budget, 3 if name == "prod" else budget), self.differentiable and name in ("max", "min"))
        if not name or found is None:
            return None
        inner, axes = found
        points = max(1, self.points(inner) // max(1, self.points(scope)))
        rest = max(1, budget // points) if "nested" not in self.without else 1
        masked = self.may("mask", 0.2) and not (self.differentiable and name in ("max", "min"))
        where = self.condition(inner) if masked else None
        if name == "argmax":
            value = self.value(rng.choice(self.pool), inner, depth - 1, rest)
            return Value(Reduce(Combiner(rng.choice(("argmax", "argmin"))), (value.expr,), axes, where), points)
        value = self.value(dtype, inner, depth - 1, rest)
        if name == "combiner":
            return self.combined(value, dtype, inner, axes, where, points)
        if name == "sum":
            value = self.summable(value, dtype, points)
        if name == "prod":
            value = self.tame(value, dtype, 2.0)
        magnitude = {"sum": value.magnitude * points, "prod": 2.0 ** max(1, points)}.get(name, value.magnitude)
        return Value(Reduce(Combiner(name), (value.expr,), axes, where), magnitude, value.grain)

    def combined(
        self, value: Value, dtype: DType, inner: tuple[Loop, ...], axes: tuple[Axis, ...], where: Expr | None, points: int
    ) -> Value:
        """A reduction by a combiner of our own: greatest with its position, sum with count, composition of affine maps."""
        rng = self.rng
        value = self.tame(value, dtype, 2.0)
        kind = rng.randint(0, 3)
        second = dtypes.int64 if kind < 2 else dtype
        a0, b0, a1, b1 = Param("a0", dtype), Param("b0", dtype), Param("a1", second), Param("b1", second)
        if kind == 3:
            combiner = Combiner("largest", (a0,), (b0,), (apply("maximum", a0, b0),), (Const(dtype.least, dtype),))
            return Value(Reduce(combiner, (value.expr,), axes, where), 2.0)
        if kind == 0:
            wins = apply("gt", b0, a0)
            results: tuple[Expr, ...] = (apply("where", wins, b0, a0), apply("where", wins, b1, a1))
            identity, values = (Const(dtype.least, dtype), const(0)), (value.expr, Index(axes[-1].index))
        elif kind == 1:
            results = (apply("add", a0, b0), apply("add", a1, b1))
            identity, values = (Const(0, dtype), const(0)), (value.expr, const(1))
        else:
            results = (apply("mul", a0, b0), apply("add", apply("mul", a1, b0), b1))
            factor = self.tame(self.leaf(dtype, inner), dtype, 1.0)
            identity, values = (Const(1, dtype), Const(0, dtype)), (factor.expr, value.expr)
        combiner = Combiner("reduce" if kind else "first_largest", (a0, a1), (b0, b1), results, identity)
        first, other = (Reduce(combiner, values, axes, where, component) for component in (0, 1))
        expr = first if second is not dtype else rng.choice((first, other, apply("sub", first, other)))
        return Value(expr, 4.0 * points)


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


def _shifted(form: Expr, by: int) -> Expr:
    if by == 0:
        return form
    return apply("add" if by > 0 else "sub", form, const(abs(by)))
