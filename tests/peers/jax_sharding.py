"""Programs that stay split, on four devices: run by `test_jax_sharding`. Every case compares with one device, and counts collectives."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.interop.jax import as_jax
from tensorexpr.interop.sharding.jax import planner_of, shard_map

MESH = jax.make_mesh((2, 2), ("d", "m"), axis_types=(AxisType.Auto, AxisType.Auto))
LINE = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,))
COLLECTIVES = ("all-reduce", "all-gather", "collective-permute", "all-to-all", "reduce-scatter")


@te.op
def ring(x):
    n, m = x.shape
    return te.compute((n, m), lambda i, j: x[i, j] * (x.read(i - 2, j, outside="wrap") + x.read(i + 1, j, outside="wrap")))


@te.op
def weighted(x, w):
    n, m = x.shape
    return te.compute((m,), lambda j: te.sum(lambda i: x[i, j] * w[i] * i, n) / n + 1.0)


def draw(*shape):
    return jnp.asarray(np.random.default_rng(shape).standard_normal(shape), jnp.float32)


@te.op
def around_often(x, w):
    (n,), (m,) = x.shape, w.shape
    return te.compute((n,), lambda i: x[i] * w[(3 * i + 1) % m])


def padded(x, w):
    return as_jax(kernels.conv2d)(x, w, padding=1)


def perceptron(x, w, v):
    return as_jax(kernels.matmul)(as_jax(kernels.gelu)(as_jax(kernels.matmul)(x, w)), v)


def causal(q, k, v):
    return as_jax(kernels.scaled_dot_product_attention)(q, k, v, is_causal=True)


IDS = jnp.asarray([3, 19, 0, 7, 7, 12, 5, 1])
HEADS = tuple(draw(2, 4, 6, 8) + k for k in range(3))
ROWS = (draw(2, 4, 8, 4), draw(2, 4, 8, 4), draw(2, 4, 8, 4))
LAYERS = (draw(4, 32), draw(32, 64) / 8, draw(64, 32) / 8)
IMAGE = (draw(2, 3, 16, 8), draw(4, 3, 3, 3))
TALL = P(None, None, "d")
CASES = {
    "rows and columns": (as_jax(kernels.matmul), (draw(8, 4), draw(4, 6)), MESH, (P("d"), P(None, "m")), P("d", "m"), {}),
    "both axes of a sum": (as_jax(kernels.matmul), (draw(8, 64), draw(64, 6)), MESH, (P("d", "m"), P("m")), P("d"), {"all-reduce": 1}),
    "a mean by positions": (as_jax(weighted), (draw(64, 4), draw(64)), LINE, (P("d"), P("d")), P(), {"all-reduce": 1}),
    "a stencil": (as_jax(kernels.laplacian), (draw(16, 12),), MESH, (P("d", "m"),), P("d", "m"), {"collective-permute": 4}),
    "a ring": (as_jax(ring), (draw(16, 3),), LINE, (P("d"),), P("d"), {"collective-permute": 2}),
    "a ring over both": (as_jax(ring), (draw(16, 3),), MESH, (P(("d", "m")),), P(("d", "m")), {"collective-permute": 2}),
    "a convolution": (padded, IMAGE, LINE, (TALL, P()), TALL, {"collective-permute": 2}),
    "layers by columns and rows": (perceptron, LAYERS, LINE, (P(), P(None, "d"), P("d")), P(), {"all-reduce": 1}),
    "heads of attention": (causal, HEADS, LINE, (P(None, "d"),) * 3, P(None, "d"), {}),
    "rows of attention": (causal, ROWS, LINE, (TALL, P(), P()), TALL, {}),
    "rows of a table": (lambda w: as_jax(kernels.embedding)(IDS, w), (draw(200, 4),), LINE, (P("d"),), P(), {"all-reduce": 1}),
    "columns of a table": (lambda w: as_jax(kernels.embedding)(IDS, w), (draw(20, 8),), LINE, (P(None, "d"),), P(None, "d"), {}),
}  # fmt: skip


def trimmed(spec):
    parts = list(spec)
    while parts and parts[-1] is None:
        parts.pop()
    return tuple(parts)


def close(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=5e-5)


def loss(f):
    return lambda *a: jnp.sum(jnp.sin(f(*a)))


@pytest.mark.parametrize("name", CASES)
def test_under_jit(name):
    f, arrays, mesh, specs, spec, collectives = CASES[name]
    shards = [jax.device_put(a, NamedSharding(mesh, s)) for a, s in zip(arrays, specs, strict=True)]
    compiled = jax.jit(f).lower(*shards).compile()
    got = compiled(*shards)
    close(got, f(*arrays))
    assert trimmed(got.sharding.spec) == trimmed(spec)
    text = compiled.as_text()
    found = {word: len(re.findall(rf"= \S+ {word}(?:-start)?\(", text)) for word in COLLECTIVES}
    assert {word: count for word, count in found.items() if count} == collectives
    every = tuple(range(len(arrays)))
    slopes = jax.jit(jax.grad(loss(f), every))(*shards)
    for ours, theirs in zip(slopes, jax.grad(loss(f), every)(*arrays), strict=True):
        close(ours, theirs)


@pytest.mark.parametrize("op, name", [(kernels.matmul, "both axes of a sum"), (kernels.laplacian, "a stencil"), (ring, "a ring")])
def test_shard_map(op, name):
    _, arrays, mesh, specs, spec, _ = CASES[name]
    shards = [jax.device_put(a, NamedSharding(mesh, s)) for a, s in zip(arrays, specs, strict=True)]
    mapped = shard_map(op, mesh, specs)
    got = jax.jit(mapped)(*shards)
    close(got, as_jax(op)(*arrays))
    assert trimmed(got.sharding.spec) == trimmed(spec)
    every = tuple(range(len(arrays)))
    slopes = jax.jit(jax.grad(loss(mapped), every))(*shards)
    for ours, theirs, lies in zip(slopes, jax.grad(loss(as_jax(op)), every)(*arrays), specs, strict=True):
        close(ours, theirs)
        assert trimmed(ours.sharding.spec) == trimmed(lies)


@pytest.mark.parametrize(("mesh", "spec"), [(LINE, P()), (MESH, P("d")), (MESH, P())])
def test_a_part_reads_around_the_end_of_an_axis_that_is_not_split(mesh, spec):
    x = draw(2, 3)
    place, mapped = jax.device_put(x, NamedSharding(mesh, spec)), shard_map(kernels.resize, mesh, [spec], shape=(4, 2))
    close(jax.jit(mapped)(place), jnp.resize(x, (4, 2)))
    close(jax.jit(jax.grad(loss(mapped)))(place), jax.grad(loss(lambda a: jnp.resize(a, (4, 2))))(x))


@pytest.mark.parametrize(("given", "spec"), [(P("d"), P()), (P("d"), P("m")), (P("m"), P("d"))])
def test_a_part_reads_what_is_several_times_around(given, spec):
    x, w = draw(4), draw(2)
    shards = [jax.device_put(a, NamedSharding(MESH, s)) for a, s in ((x, given), (w, spec))]
    close(jax.jit(shard_map(around_often, MESH, [given, spec]))(*shards), as_jax(around_often)(x, w))
    close(jax.jit(as_jax(around_often))(*shards), as_jax(around_often)(x, w))


def test_what_does_not_divide_is_computed_as_it_lies():
    x, w = draw(8, 6), draw(6, 5)
    place = jax.device_put(x, NamedSharding(LINE, P("d")))
    close(jax.jit(as_jax(kernels.matmul))(place, w), as_jax(kernels.matmul)(x, w))
    close(jax.jit(lambda a: as_jax(kernels.softmax)(a, axis=0))(place), as_jax(kernels.softmax)(x, axis=0))


def test_the_rule_for_shardy():
    program = kernels.matmul.trace(((8, 4), "float32"), ((4, 6), "float32"))
    assert planner_of(program).factors() == ("a b, b c -> a c", ("b",))
