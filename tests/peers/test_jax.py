"""Values and gradients against JAX, float64, relative 1e-9. Skipped by name where JAX is not installed."""

from __future__ import annotations

import numpy as np
import pytest

import tensorexpr as te
from tests.peers.cases import CASES, Case


@pytest.mark.parametrize("case", [c for c in CASES if c.jax], ids=lambda c: c.name)
def test_value_and_gradients_equal_jax(case: Case) -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed (make test-peers installs it)")
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(7)
    arrays = [rng.standard_normal(s) for s in case.shapes]
    if case.positive:
        arrays = [np.abs(a) + 0.5 for a in arrays]
    function = eval(case.jax, {"jax": jax, "jnp": jax.numpy})
    theirs, pull = jax.vjp(function, *arrays)
    ours = case.op(*arrays, **case.static)
    np.testing.assert_allclose(ours, np.asarray(theirs), rtol=1e-9, atol=1e-12)

    head = rng.standard_normal(ours.shape)
    got = te.vjp(case.op)(*arrays, head, **case.static)
    for g, e in zip(got if isinstance(got, tuple) else (got,), pull(jax.numpy.asarray(head)), strict=True):
        np.testing.assert_allclose(g, np.asarray(e), rtol=1e-9, atol=1e-11)
