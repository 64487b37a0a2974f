"""Programs for several devices: `jax.shard_map` around our ops and around the same in jax.numpy; run by `test_jax_devices`.

The law: whatever JAX does with its own operation it does with ours; the same numbers, or a refusal.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import tensorexpr as te
from tensorexpr.interop.jax import as_jax
from tests.seeds import share_of

jax.config.update("jax_enable_x64", True)
AXES = ("d", "m")
MESH = jax.make_mesh((2, 2), AXES, axis_types=(AxisType.Auto, AxisType.Auto))


@te.op
def layer(x, w, b):
    (n, k), (_, m) = x.shape, w.shape
    z = te.compute((n, m), lambda i, j: te.sum(lambda r: x[i, r] * w[r, j], k) + b[j])
    return te.compute((n, m), lambda i, j: te.where(z[i, j] > 0, z[i, j], 0.25 * z[i, j]) + te.sin(z[i, j]))


def jax_layer(x, w, b):
    z = x @ w + b
    return jnp.where(z > 0, z, 0.25 * z) + jnp.sin(z)


@te.op
def scaled(x, w):
    return te.compute(x.shape, lambda i: x[i] * te.exp(w[()]))


@te.op
def looked_up(table, ids):
    return te.compute((ids.shape[0], table.shape[1]), lambda i, d: table[ids[i], d] ** 2)


@te.op
def moments(x):
    (n,) = x.shape
    mean = te.compute((), lambda: te.sum(lambda i: x[i], n) / n)
    return mean, te.compute((n,), lambda i: te.square(x[i] - mean[()])), te.compute((), lambda: te.argmax(lambda i: x[i], n))


@te.function
def decay(x, a):
    state = te.compute((x.shape[1],), lambda d: 0.0 * a[d])
    return te.scan(lambda t, s: te.compute((x.shape[1],), lambda d: te.tanh(a[d] * s[d]) + x[t, d]), state, x.shape[0])


def jax_decay(x, a):
    def step(s, row):
        s = jnp.tanh(a * s) + row
        return s, s

    return jax.lax.scan(step, 0.0 * a + 0.0 * x[0], x)[1]


def normal(*shape):
    return jnp.asarray(np.random.default_rng(shape).standard_normal(shape))


LAYER = (normal(8, 3), normal(3, 4), normal(4))
CASES = {
    "rows": (as_jax(layer), jax_layer, LAYER, (P("d"), P(), P())),
    "rows and columns": (as_jax(layer), jax_layer, LAYER, (P("d"), P(None, "m"), P("m"))),
    "rows over both axes": (layer, jax_layer, LAYER, (P(AXES), P(), P())),
    "everything on all": (as_jax(layer), jax_layer, LAYER, (P(), P(), P())),
    "a scalar": (scaled, lambda x, w: x * jnp.exp(w), (normal(8), normal()), (P("d"), P())),
    "scalars by a replicated array": (
        as_jax(lambda x, w: te.compute(x.shape, lambda i: x[i] * te.exp(w[0]))),
        lambda x, w: x * jnp.exp(w[0]),
        (normal(3), normal(4)),
        (P(), P("m")),
    ),
    "integers": (as_jax(looked_up), lambda t, i: t[i] ** 2, (normal(5, 3), jnp.array([4, 0, 2, 2, 1, 4, 0, 3])), (P(), P("m"))),
    "several results": (as_jax(moments), lambda x: (x.mean(), (x - x.mean()) ** 2, jnp.argmax(x)), (normal(12),), (P("d"),)),
    "a function": (as_jax(decay), jax_decay, (normal(6, 4), normal(4)), (P(None, "d"), P("d"))),
    "a function, shared": (as_jax(decay), jax_decay, (normal(4, 3), normal(3)), (P("d"), P())),
}


def split_over(specs):
    """The axes that arguments are split over."""
    return tuple(axis for axis in AXES if any(axis in (part if isinstance(part, tuple) else (part,)) for spec in specs for part in spec))


def total(results, specs):
    """A number that all floating results go into, the same on all devices."""
    floating = [r for r in jax.tree.leaves(results) if jnp.issubdtype(r.dtype, jnp.floating)]
    return jax.lax.psum(sum(jnp.sum(jnp.sin(r) * (1 + jnp.arange(r.size).reshape(r.shape))) for r in floating), split_over(specs))


def floats(arrays):
    return tuple(k for k, array in enumerate(arrays) if jnp.issubdtype(array.dtype, jnp.floating))


def directions(arrays):
    return tuple(jnp.cos(a) if jnp.issubdtype(a.dtype, jnp.floating) else np.zeros(a.shape, jax.dtypes.float0) for a in arrays)


def apart(body, specs, outs, check):
    """Each device on its own, on its part."""
    return jax.shard_map(body, mesh=MESH, in_specs=specs, out_specs=outs, check_vma=check)


def loss(f, specs, check):
    return apart(lambda *a: total(f(*a), specs), specs, P(), check)


def value(f, arrays, specs, check):
    return jax.jit(loss(f, specs, check))(*arrays)


def value_op_by_op(f, arrays, specs, check):
    return loss(f, specs, check)(*arrays)


def gradient(f, arrays, specs, check):
    return jax.jit(jax.grad(loss(f, specs, check), floats(arrays)))(*arrays)


def gradient_op_by_op(f, arrays, specs, check):
    return jax.grad(loss(f, specs, check), floats(arrays))(*arrays)


def gradient_inside(f, arrays, specs, check):
    """Of replicated arguments: a sum over devices; of others: each device has its own."""
    chosen = floats(arrays)
    inside = jax.grad(lambda *a: total(f(*a), specs), chosen)
    return jax.jit(apart(inside, specs, tuple(specs[k] for k in chosen), check))(*arrays)


def gradient_inside_of_own_sum(f, arrays, specs, check):
    chosen = floats(arrays)
    inside = jax.grad(lambda *a: sum(jnp.sum(r) for r in jax.tree.leaves(f(*a)) if jnp.issubdtype(r.dtype, jnp.floating)), chosen)
    return jax.jit(apart(inside, specs, tuple(specs[k] for k in chosen), check))(*arrays)


def forward(f, arrays, specs, check):
    return jax.jit(lambda *a: jax.jvp(loss(f, specs, check), a, directions(a)))(*arrays)


def forward_inside(f, arrays, specs, check):
    body = lambda *a: jax.jvp(lambda *b: total(f(*b), specs), a, directions(a))  # noqa: E731
    return jax.jit(apart(body, specs, P(), check))(*arrays)


def second_order(f, arrays, specs, check):
    chosen = floats(arrays)
    slope = lambda *a: sum(jnp.sum(jnp.cos(g)) for g in jax.grad(loss(f, specs, check), chosen)(*a))  # noqa: E731
    return jax.jit(jax.grad(slope, chosen))(*arrays)


def batch_inside(f, arrays, specs, check):
    """Three of the first argument, gradients taken one by one."""
    body = lambda first, *rest: total(jax.vmap(f, (0, *[None] * len(rest)))(jnp.stack([first, 2 * first, jnp.sin(first)]), *rest), specs)  # noqa: E731
    return jax.jit(jax.grad(apart(body, specs, P(), check), floats(arrays)))(*arrays)


def batch_outside(f, arrays, specs, check):
    many = jax.vmap(loss(f, specs, check), (0, *[None] * (len(arrays) - 1)))
    first, *rest = arrays
    return jax.jit(many)(jnp.stack([first, 2 * first]), *rest)


def remembered_nothing(f, arrays, specs, check):
    return jax.jit(jax.grad(loss(jax.checkpoint(f), specs, check), floats(arrays)))(*arrays)


def in_a_loop(f, arrays, specs, check):
    def body(*a):
        start = sum(0.0 * jnp.sum(jnp.asarray(b, float)) for b in a)
        step = lambda c, _: (c + sum(jnp.sum(jnp.asarray(r, float)) for r in jax.tree.leaves(f(*a))), None)  # noqa: E731
        return jax.lax.psum(jax.lax.scan(step, start, None, 3)[0], split_over(specs))

    return jax.jit(jax.grad(apart(body, specs, P(), check), floats(arrays)))(*arrays)


def kept_apart(f, arrays, specs, check):
    """Results that differ from device to device, one row per device."""
    body = lambda *a: jax.tree.map(lambda r: jnp.asarray(r)[None], f(*a))  # noqa: E731
    return jax.jit(apart(body, specs, P(AXES), check))(*arrays)


def taken_for_equal(f, arrays, specs, check):
    """`out_specs=P()`: refused where results differ from device to device."""
    return jax.jit(apart(f, specs, P(), check))(*arrays)


def outcome(act, f, arrays, specs, check):
    try:
        return act(f, arrays, specs, check)
    except (ValueError, TypeError) as error:
        return type(error)


ACTS = (
    value, value_op_by_op, gradient, gradient_op_by_op, gradient_inside, gradient_inside_of_own_sum, forward, forward_inside, second_order,
    batch_inside, batch_outside, remembered_nothing, in_a_loop, kept_apart, taken_for_equal,
)  # fmt: skip


UNTYPED = (gradient, gradient_inside)  # without check_vma JAX knows nothing of axes
PROGRAMS = [(name, act, True) for name in CASES for act in ACTS] + [(name, act, False) for name in CASES for act in UNTYPED]
SHARE = [PROGRAMS[k % len(PROGRAMS)] for k in share_of(range(len(PROGRAMS)))]


@pytest.mark.parametrize(
    "name, act, check", SHARE, ids=[f"{name}-{act.__name__}{'' if check else '-untyped'}" for name, act, check in SHARE]
)
def test_as_jax_numpy_does(name, act, check):
    ours, theirs, arrays, specs = CASES[name]
    expected, found = outcome(act, theirs, arrays, specs, check), outcome(act, ours, arrays, specs, check)
    if isinstance(expected, type):
        assert found is expected
        return
    assert not isinstance(found, type), found
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_results_that_differ_are_not_taken_for_equal():
    ours, _, arrays, specs = CASES["rows"]
    with pytest.raises(ValueError, match="require replication"):
        taken_for_equal(ours, arrays, specs, True)


def test_a_mean_over_devices_has_the_gradient_of_the_whole():
    """Data parallelism, as people write it, beside one device."""
    ours, theirs, (x, w, b), specs = CASES["rows over both axes"]

    def step(f, w, b):
        return apart(lambda x, w, b: jax.lax.pmean(jnp.mean(f(x, w, b) ** 2), AXES), specs, P(), True)(x, w, b)

    found = jax.grad(step, (1, 2))(ours, w, b)
    expected = jax.grad(lambda w, b: jnp.mean(theirs(x, w, b) ** 2), (0, 1))(w, b)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_a_sum_yet_to_be_taken_is_refused():
    def body(x, w):
        return as_jax(scaled)(jax.lax.pcast(x, ("d", "m"), to="unreduced"), w)

    message = "scaled: argument x: expected an array of values, got one that is a sum over 'd', 'm' yet to be taken"
    with pytest.raises(te.ArgumentError, match=message):
        jax.jit(jax.shard_map(body, mesh=MESH, in_specs=(P(AXES), P()), out_specs=P(AXES)))(normal(8), normal())


@pytest.mark.parametrize("name", ["rows", "rows and columns", "integers", "a function, shared"])
def test_explicit_axes_are_gathered_and_gradients_split_again(name):
    ours, theirs, arrays, specs = CASES[name]
    mesh = jax.make_mesh((2, 2), AXES, axis_types=(AxisType.Explicit, AxisType.Explicit))
    with jax.set_mesh(mesh):
        placed = [jax.device_put(array, NamedSharding(mesh, spec)) for array, spec in zip(arrays, specs, strict=True)]
        run = lambda f: jax.jit(jax.value_and_grad(lambda *a: jnp.sum(jnp.sin(f(*a))), floats(arrays)))  # noqa: E731
        found = run(ours)(*placed)
    expected = run(theirs)(*arrays)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    for gradient, k in zip(found[1], floats(arrays), strict=True):
        assert gradient.sharding.is_equivalent_to(placed[k].sharding, gradient.ndim)
