"""Random reads of one tensor whose indices are affine by cases: what users write with //, %, clamps, mirrors and selections."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tensorexpr as te

Values = dict[str, Any]
Body = Callable[[Values], Any]
MOST_ELEMENTS = 80


@dataclass(frozen=True)
class RandomRead:
    """An output that is linear in `x`."""

    output: te.Tensor
    x: te.Tensor


class _Generator:
    """Random integer expressions over the indices `names`, as functions of their values."""

    def __init__(self, rng: random.Random, names: list[str]) -> None:
        self.rng, self.names = rng, names

    def affine(self) -> Body:
        rng = self.rng
        terms = [(rng.choice((-3, -2, -1, 1, 1, 2, 2, 3)), name) for name in self.names if rng.random() < 0.6]
        terms = terms or [(1, rng.choice(self.names))]
        constant = rng.randint(-6, 6)
        return lambda v: sum(factor * v[name] for factor, name in terms) + constant

    def expression(self, depth: int) -> Body:
        rng = self.rng
        if depth <= 0 or rng.random() < 0.2:
            return self.affine()
        a, constant = self.expression(depth - 1), rng.choice((2, 2, 3, 4, 5, 7))
        match rng.choice(("div", "mod", "abs", "scale", "low", "high", "clamp", "mirror", "where", "minimum", "maximum", "add")):
            case "div":
                return lambda v: a(v) // constant
            case "mod":
                return lambda v: a(v) % constant
            case "abs":
                return lambda v: abs(a(v))
            case "scale":
                return lambda v: a(v) * (2 - constant)
            case "low":
                return lambda v: te.minimum(a(v), constant)
            case "high":
                return lambda v: te.maximum(a(v), constant - 4)
            case "clamp":
                return lambda v: te.minimum(te.maximum(a(v), 0), constant)
            case "mirror":
                return lambda v: constant - abs(a(v) % (2 * constant) - constant)
            case "where":
                condition, b = self.condition(depth - 1), self.expression(depth - 1)
                return lambda v: te.where(condition(v), a(v), b(v))
            case "minimum":
                b = self.expression(depth - 1)
                return lambda v: te.minimum(a(v), b(v))
            case "maximum":
                b = self.expression(depth - 1)
                return lambda v: te.maximum(a(v), b(v))
        b = self.expression(depth - 1)
        return lambda v: a(v) + b(v)

    def condition(self, depth: int) -> Body:
        rng = self.rng
        a, constant = self.expression(depth - 1), rng.randint(-3, 6)
        compare = rng.choice((lambda p, q: p < q, lambda p, q: p >= q, lambda p, q: p == q, lambda p, q: p != q))
        if depth < 2 or rng.random() < 0.7:
            return lambda v: compare(a(v), constant)
        other = self.condition(depth - 1)
        return lambda v: compare(a(v), constant) | other(v)


def _over(names: list[str], body: Body) -> Callable[..., Any]:
    """`body` as a function whose parameters are called `names`, as `te.compute` wants it."""
    scope: dict[str, Any] = {"body": body}
    arguments = ", ".join(names)
    exec(f"made = lambda {arguments}: body(dict({', '.join(f'{n}={n}' for n in names)}))", scope)
    return scope["made"]


def random_read(seed: int) -> RandomRead:
    """One to three reads, perhaps neighbors, under a guard perhaps, weighted, summed over up to two loops."""
    rng = random.Random(seed)
    while True:
        found = _random_read(rng)
        if found is not None:
            return found


def _random_read(rng: random.Random) -> RandomRead | None:
    outputs, sums = rng.choice((1, 1, 2)), rng.choice((0, 1))
    names = ["i", "j"][:outputs] + ["r"][:sums]
    extents = [rng.randint(1, 6) for _ in names]
    generator, ndim, depth = _Generator(rng, names), rng.choice((1, 1, 2)), rng.choice((1, 2, 2, 3))
    first = [generator.expression(depth) for _ in range(ndim)]
    reads = [first]
    for at in range(1, rng.choice((1, 1, 2, 3))):
        near = rng.random() < 0.6
        reads.append([(lambda v, f=f, at=at: f(v) + at) if near else generator.expression(depth) for f in first])
    guard = generator.condition(2) if rng.random() < 0.3 else None
    weights = [[rng.randint(-3, 3) for _ in names] for _ in reads]

    def values(index: Body) -> np.ndarray:
        return te.evaluate(te.compute(extents, _over(names, lambda v: te.cast(index(v), "int64")), name="t"), {})

    lows, sizes = [], []
    for axis in range(ndim):
        found = [values(read[axis]) for read in reads]
        lows.append(int(min(array.min() for array in found)))
        sizes.append(int(max(array.max() for array in found)) - lows[-1] + 1 + rng.choice((0, 1)))
    if np.prod(sizes) > MOST_ELEMENTS:
        return None
    x = te.placeholder(sizes, "float64", name="x")

    def body(v: Values) -> Any:
        total: Any = 0.0
        for read, factors in zip(reads, weights, strict=True):
            weight = te.cast(sum(factor * v[name] for factor, name in zip(factors, names, strict=True)) + 5, "float64")
            total = total + x[tuple(index(v) - low for index, low in zip(read, lows, strict=True))] * weight
        return total if guard is None else te.where(guard(v), total, 0.0)

    def summed(v: Values) -> Any:
        return te.sum(_over(names[outputs:], lambda inner: body(v | inner)), extents[outputs]) if sums else body(v)

    return RandomRead(te.compute(extents[:outputs], _over(names[:outputs], summed), name="y"), x)


def strange_read(seed: int) -> RandomRead:
    """One read with three levels of such operations in each of two or three positions: what no kernel has."""
    rng = random.Random(seed)
    while True:
        found = _strange_read(rng)
        if found is not None:
            return found


def _strange_read(rng: random.Random) -> RandomRead | None:
    names = ["i", "j", "k"][: rng.choice((1, 2, 2, 3))]
    extents = [rng.randint(1, 8) for _ in names]
    generator, ndim = _Generator(rng, names), rng.choice((2, 2, 3))
    found = [generator.expression(3) for _ in range(ndim)]
    places = [te.compute(extents, _over(names, lambda v, f=f: te.cast(f(v), "int64")), name="t") for f in found]
    values = [te.evaluate(place, {}) for place in places]
    lows = [int(array.min()) for array in values]
    sizes = [int(array.max()) - low + 1 for array, low in zip(values, lows, strict=True)]
    if np.prod(sizes) > 3000:
        return None
    x = te.placeholder(sizes, "float64", name="x")
    body = _over(names, lambda v: x[tuple(f(v) - low for f, low in zip(found, lows, strict=True))])
    return RandomRead(te.compute(extents, body, name="y"), x)


BORDERS = ("wrap", "reflect", "symmetric", "clamp", 0.0)


def stepwise_read(seed: int, checkpoint: int | None) -> RandomRead:
    """A recurrence whose step reads one or two places by cases that depend on the step, inside of `x` or beyond its borders."""
    rng = random.Random(seed)
    names = ["t", "i", "j"][: rng.choice((2, 2, 3))]
    extents = [rng.randint(4, 7), *(rng.randint(1, 4) for _ in names[1:])]
    generator, ndim = _Generator(rng, names), rng.choice((1, 1, 2))

    def index() -> Body:
        found, still = generator.expression(rng.choice((0, 1, 2))), _Generator(rng, names[1:])
        axis = rng.choice(names[1:])
        match rng.choice(("any", "at the step", "one axis", "step in some cases", "step in some cases")):
            case "at the step":
                return lambda v: v["t"]
            case "one axis":
                return lambda v: v[axis]
            case "step in some cases":
                last, stays = rng.randint(0, 2), rng.choice((still.affine(), lambda v: 1))
                moves = rng.choice((found, lambda v: v["t"]))
                return lambda v: te.where(v[axis] <= last, moves(v), stays(v))
        return found

    reads = [[index() for _ in range(ndim)] for _ in range(rng.choice((1, 2)))]
    border = rng.choice(BORDERS)
    sizes = [rng.randint(1, 6) for _ in range(ndim)]
    guard = generator.condition(2) if rng.random() < 0.3 else None
    x = te.placeholder(sizes, "float64", name="x")

    def body(t: Any, state: te.Tensor) -> te.Tensor:
        def element(v: Values) -> Any:
            v = {"t": t, **v}
            total = sum(x.read(*(index(v) for index in read), outside=border) * factor for factor, read in enumerate(reads, 2))
            return (total if guard is None else te.where(guard(v), total, 0.0)) - state[tuple(v[n] for n in names[1:])]

        return te.compute(extents[1:], _over(names[1:], element), name="step")

    start = te.compute(extents[1:], _over(names[1:], lambda v: te.cast(0, "float64")), name="start")
    return RandomRead(te.scan(body, start, extents[0], checkpoint=checkpoint), x)
