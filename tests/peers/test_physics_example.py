"""The physics-informed network of the examples: it finds the solution, and its derivatives are JAX's own. Skipped without JAX."""

import re

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed (make test-peers installs it)")

from tensorexpr.examples import physics_jax as example  # noqa: E402


def test_the_network_finds_the_solution(capsys):
    assert example.main(["--steps", "1000"]) == 0
    out = capsys.readouterr().out
    losses = [float(loss) for loss in re.findall(r"loss (\S+)", out)]
    assert losses[-1] < 1e-3 * losses[0]
    assert float(re.search(r"largest error of the solution (\S+),", out)[1]) < 5e-3


def test_third_derivatives_are_those_of_jax(monkeypatch):
    jax.config.update("jax_enable_x64", True)
    weights = tuple(w.astype("float64") for w in example.start(5, 1))
    x = jax.numpy.linspace(0.0, 1.0, 7, dtype="float64")
    ours = jax.jit(jax.value_and_grad(example.loss))(weights, x)
    monkeypatch.setattr(example, "u", lambda x, w, b, v: jax.numpy.tanh(x[:, None] * w + b) @ v)
    theirs = jax.jit(lambda w, x: jax.value_and_grad(example.loss)(w, x))(weights, x)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
