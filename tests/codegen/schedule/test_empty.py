"""Extents that are 0 or 1, among others that are long, in every position: the default schedule is made, and computes what it should.

A planner divides by extents and takes shares of them; what is empty has no work that anything could pay for.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.target import H200, Target
from tensorexpr.ir import Program
from tensorexpr.language import program_of
from tests.seeds import share_of

WIDE = Target("test", vector_bits=512, registers=32, cores=8)
EXTENTS = (0, 0, 1, 2, 7, 64, 300)
MOST_POINTS = 3000
Made = tuple[list[te.Tensor], list[te.Tensor]]


def product(a: int, b: int, c: int, d: int) -> Made:
    x, y = te.placeholder((d, a, b), name="x"), te.placeholder((d, b, c), name="y")
    return [te.compute((d, a, c), lambda n, i, j: te.sum(lambda k: x[n, i, k] * y[n, k, j], b), name="z")], [x, y]


def attention(a: int, b: int, c: int, d: int) -> Made:
    q, k, v = (te.placeholder((d, n, c), name=name) for n, name in ((a, "q"), (b, "k"), (b, "v")))
    scores = te.compute((d, a, b), lambda n, i, j: te.sum(lambda f: q[n, i, f] * k[n, j, f], c), name="scores")
    most = te.compute((d, a), lambda n, i: te.max(lambda j: scores[n, i, j], max(b, 1)) if b else te.cast(n * i, "float32"), name="most")
    weights = te.compute((d, a, b), lambda n, i, j: te.exp(scores[n, i, j] - most[n, i]), name="weights")
    total = te.compute((d, a), lambda n, i: te.sum(lambda j: weights[n, i, j], b), name="total")
    return [te.compute((d, a, c), lambda n, i, f: te.sum(lambda j: weights[n, i, j] * v[n, j, f], b) / total[n, i], name="out")], [q, k, v]


def variance(a: int, b: int, c: int, d: int) -> Made:
    x = te.placeholder((a, b, c), name="x")
    mean = te.compute((a, c), lambda i, j: te.sum(lambda k: x[i, k, j], b) / (b + d), name="mean")
    return [te.compute((a, c), lambda i, j: te.sum(lambda k: (x[i, k, j] - mean[i, j]) ** 2, b), name="var"), mean], [x]


def pairs(a: int, b: int, c: int, d: int) -> Made:
    x, y, w = te.placeholder((a, c), name="x"), te.placeholder((b, c), name="y"), te.placeholder((b, d), name="w")
    apart = te.compute((a, b), lambda i, j: te.sum(lambda k: (x[i, k] - y[j, k]) ** 2, c), name="apart")
    return [te.compute((a, d), lambda i, f: te.sum(lambda j: te.exp(-apart[i, j]) * w[j, f], b), name="near")], [x, y, w]


def convolution(a: int, b: int, c: int, d: int) -> Made:
    x, w = te.placeholder((a, b, c + 2, c + 2), name="x"), te.placeholder((d, b, 3, 3), name="w")
    return [
        te.compute(
            (a, d, c, c),
            lambda n, o, i, j: te.sum(lambda k, p, q: x[n, k, i + p, j + q] * w[o, k, p, q], (b, 3, 3)),
            name="y",
        )
    ], [x, w]


def table(a: int, b: int, c: int, d: int) -> Made:
    w, ids = te.placeholder((max(a, 1), b), name="w"), te.placeholder((c, d), "int64", name="ids")
    found = te.compute((c, d, b), lambda i, j, k: w[ids[i, j], k], name="found")
    return [te.compute((c, b), lambda i, k: te.sum(lambda j: te.tanh(found[i, j, k]), d), name="bag")], [w, ids]


def sums(a: int, b: int, c: int, d: int) -> Made:
    x = te.placeholder((a, b, c), name="x")
    shifted = te.compute((a, b, c), lambda i, j, k: te.tanh(x[i, j, k] * 2), name="shifted")
    outputs = [
        te.compute((a,), lambda i: te.sum(lambda j, k: shifted[i, j, k], (b, c)), name="rows"),
        te.compute((c,), lambda k: te.sum(lambda i, j: shifted[i, j, k], (a, b)), name="columns"),
        te.compute((), lambda: te.sum(lambda i, j, k: x[i, j, k] * (i + d), (a, b, c)), name="all"),
    ]
    return outputs, [x]


def steps(a: int, b: int, c: int, d: int) -> Made:
    x = te.placeholder((a, b, c), name="x")
    begun = te.compute((b, c), lambda i, j: te.cast(i * d, "float32"), name="begun")
    return [te.scan(lambda t, s: te.compute((b, c), lambda i, j: s[i, j] * 0.5 + x[t, i, j]), begun, a)], [x]


def least(a: int, b: int, c: int, d: int) -> Made:
    x = te.placeholder((a, b, c), name="x")
    seen = te.compute((a, b, c), lambda i, j, k: te.exp(x[i, j, k]) + d, name="seen")
    return [te.compute((a, c), lambda i, k: te.argmin(lambda j: seen[i, j, k], max(b, 1)) if b else i * k, name="at")], [x]


def stencil(a: int, b: int, c: int, d: int) -> Made:
    x = te.placeholder((b, c), name="x")

    def step(t, s):
        return te.compute((b, c), lambda i, j: s.read(i - 1, j, outside=0.0) + s.read(i + 1, j, outside=0.0) * 0.5)

    return [te.scan(step, x, a)], [x]


def sent(a: int, b: int, c: int, d: int) -> Made:
    x, ids = te.placeholder((a, b), name="x"), te.placeholder((a,), "int64", name="ids")
    return [te.scatter((c, b), lambda i, j: ((ids[i], j * d % max(b, 1)), x[i, j]), (a, b))], [x, ids]


FAMILIES: tuple[Callable[[int, int, int, int], Made], ...] = (
    product,
    attention,
    variance,
    pairs,
    convolution,
    table,
    sums,
    steps,
    least,
    stencil,
    sent,
)


def programs(seed: int) -> tuple[Program, list[te.Tensor], list[te.Tensor], int]:
    """A family at random extents, every other time with its gradients; its outputs and inputs, and how many points it has at most."""
    draw = random.Random(seed)
    family = FAMILIES[seed % len(FAMILIES)]
    extents = tuple(draw.choice(EXTENTS) for _ in range(4))
    outputs, inputs = family(*extents)
    floating = [x for x in inputs if x.dtype.is_float]
    if draw.random() < 0.6 and outputs[0].dtype.is_float:
        heads = [te.placeholder(y.shape, y.dtype, name=f"h{n}") for n, y in enumerate(outputs)]
        outputs, inputs = [*outputs, *te.gradient(outputs, floating, head=heads)], [*inputs, *heads]
    points = 1
    for extent in extents:
        points *= max(extent, 1)
    return program_of(outputs, inputs), outputs, inputs, points


@pytest.mark.parametrize("first", share_of(range(9)))
def test_what_is_empty_is_scheduled_on_every_machine(first: int) -> None:
    for seed in range(first * 30, first * 30 + 30):
        program, outputs, inputs, points = programs(seed)
        for target in (WIDE, H200):
            lower(autoschedule(program, target))
        if points <= MOST_POINTS and seed % 3 == 0:
            data = np.random.default_rng(seed)
            arrays = {
                x: data.integers(0, max(1, min(w.shape[0] if not isinstance(w.shape[0], te.Scalar) else 1 for w in inputs)), x.shape)
                if x.dtype.is_integer
                else data.standard_normal(x.shape).astype("float32")
                for x in inputs
            }
            for got, want in zip(te.build(outputs, inputs)(*arrays.values()), te.evaluate(outputs, arrays), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
