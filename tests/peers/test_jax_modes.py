"""JAX's modes for finding mistakes: programs run operation by operation, and NaNs are traced to what made them."""

import numpy as np
import pytest

import tensorexpr as te

jax = pytest.importorskip("jax", reason="JAX is not installed (make test-peers installs it)")
jnp = jax.numpy

from tensorexpr.interop.jax import as_jax  # noqa: E402


@te.op
def logarithm(x):
    return te.compute(x.shape, lambda i: te.log(x[i]))


X = np.arange(1, 5, dtype=np.float32)
USES = {
    "alone": lambda f: f,
    "jit": jax.jit,
    "gradient": lambda f: jax.grad(lambda x: f(x).sum()),
    "gradient in jit": lambda f: jax.jit(jax.grad(lambda x: f(x).sum())),
    "tangent": lambda f: lambda x: jax.jvp(f, (x,), (x,))[1],
    "batch": lambda f: lambda x: jax.vmap(f)(jnp.stack([x, x])),
    "gradients of a batch": lambda f: lambda x: jax.vmap(jax.grad(lambda y: f(y).sum()))(jnp.stack([x, x])),
    "scan": lambda f: lambda x: jax.lax.scan(lambda c, row: (c + f(row).sum(), f(row)), jnp.float32(0), jnp.stack([x, x])),
    "remat": lambda f: jax.grad(jax.checkpoint(lambda x: f(x).sum())),
}


@pytest.mark.parametrize("ours", [as_jax(logarithm), logarithm, as_jax(te.function(logarithm.function))], ids=["as_jax", "op", "function"])
@pytest.mark.parametrize("name", USES)
def test_without_jit(name, ours):
    expected = USES[name](jnp.log)(jnp.asarray(X))
    with jax.disable_jit():
        found = USES[name](ours)(jnp.asarray(X))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("name", USES)
def test_what_makes_a_nan_is_named(name):
    ours = USES[name](as_jax(logarithm))
    with jax.debug_nans(True):
        ours(jnp.asarray(X))
        if "gradient in" in name:  # whose value is no part of its program
            return
        with pytest.raises(FloatingPointError, match=f"encountered in {'scan' if name == 'scan' else 'logarithm'}"):
            ours(jnp.asarray(-X))


def test_what_makes_an_infinity_is_named():
    with jax.debug_infs(True), pytest.raises(FloatingPointError, match="encountered in logarithm"):
        as_jax(logarithm)(jnp.zeros(3))
