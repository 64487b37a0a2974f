"""Random programs for the laws of every room: small shapes, every construct, in bounds by construction.

`random_program(seed)` gives the same program for the same seed and options. With `exact` (the default) every float is a
small multiple of a power of two, so sums and products are exact in any order and results can be compared bit for bit;
the writer keeps a bound on the magnitude of every value and clips it where it would grow too large. `differentiable`
keeps to float64 and to what reverse mode covers. `without` leaves out constructs by name (see `CONSTRUCTS`; `casts` are
those of tensors' values, an index as a value is cast all the same).

Inputs called `pick3_...` hold indices below 3 and are read as indices without a check.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping

import numpy as np

from tensorexpr import dtypes
from tensorexpr.interpret import extent
from tensorexpr.ir import (
    Access,
    Axis,
    Combiner,
    Const,
    Constant,
    Define,
    Definition,
    Index,
    Program,
    Reduce,
    Scan,
    Scatter,
    Segments,
    Size,
    TensorType,
    apply,
    const,
    product,
)
from tensorexpr.text import print_definition
from tests.generator_indices import Loop, Source
from tests.generator_values import ValueWriter

CONSTRUCTS = (
    "symbolic", "zero", "casts", "where", "guard", "divmod", "clamp", "data", "nested", "dependent", "mask",
    "sum", "prod", "max", "min", "all", "any", "argmax", "combiner", "scatter", "scan", "constant",
    "segments",
)  # fmt: skip
_NOT_DIFFERENTIABLE = ("casts", "data", "prod", "all", "any", "argmax", "combiner", "scatter", "scan", "zero", "segments")
_DTYPES = (
    *[dtypes.float32] * 8, *[dtypes.float64] * 4, *[dtypes.int64] * 3, dtypes.int32, dtypes.int8, dtypes.uint8, dtypes.uint32,
    dtypes.int16, dtypes.uint16, dtypes.uint64, dtypes.float16, dtypes.bfloat16, dtypes.bool_, dtypes.bool_,
)  # fmt: skip


def random_program(
    seed: int | random.Random,
    *,
    exact: bool = True,
    floats_only: bool = False,
    differentiable: bool = False,
    without: Collection[str] = (),
    definitions: int | None = None,
) -> Program:
    """A random program of `definitions` definitions (by default one to five); the last is an output, others may be."""
    rng = seed if isinstance(seed, random.Random) else random.Random(seed)
    left_out = set(without) | (set(_NOT_DIFFERENTIABLE) if differentiable else set()) | ({"segments"} if floats_only else set())
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


class _Writer(ValueWriter):
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
        self.rng = random.Random("".join(map(print_definition, definitions)))  # what follows leaves the definitions so far as they are
        if self.may("segments", 0.12):
            definitions += self.segments()
        self.rng = rng
        names = [name for d in definitions for name, _ in d.results]
        outputs = [name for name in names[:-1] if rng.random() < 0.3] + names[-1:]
        return Program(tuple(self.inputs), tuple(self.constants), tuple(definitions), tuple(outputs), tuple(self.sizes))

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

    def segments(self) -> list[Definition]:
        """A sort plan, and a sum of positions over each of its segments."""
        rng = self.rng
        extents = tuple(const(rng.randint(1, 3)) for _ in range(rng.choice((1, 1, 2))))
        scope = self.loops(tuple(self.extent() for _ in range(rng.choice((1, 2, 2)))))
        batch = 1 if len(scope) > 1 and rng.random() < 0.3 else 0
        keys = tuple(self.bounded(e, scope) for e in extents)
        where = self.condition(scope) if self.may("mask", 0.4) else None
        names, axes = (self.fresh("offsets"), self.fresh("order")), self.axes(scope)
        plan = Segments(names, extents, axes[:batch], axes[batch:], keys, where)
        v, k = Index("v"), Index("k")
        lead = tuple(Index(axis.index) for axis in plan.batch)
        bounds = (Access(names[0], (*lead, place), dtypes.int64) for place in (v, apply("add", v, const(1))))
        total = Reduce(Combiner("sum"), (Access(names[1], (*lead, k), dtypes.int64),), (Axis("k", *bounds),))
        return [plan, Define(self.fresh("T"), (*plan.batch, Axis("v", const(0), product(extents))), total)]

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
