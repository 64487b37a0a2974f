"""What JAX says that a program computes, with the ops in it."""

from __future__ import annotations

import doctest
import inspect

import numpy as np
import pytest

import tensorexpr as te

jax = pytest.importorskip("jax", reason="JAX is not installed (make test-peers installs it)")
jnp = jax.numpy
from tensorexpr.interop.jax import as_jax, cost_analysis  # noqa: E402

X, Y = np.ones((64, 32), np.float32), np.ones((32, 16), np.float32)


@te.op
def product(a, b):
    return te.compute((a.shape[0], b.shape[1]), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], a.shape[1]))


ours = as_jax(product)


def theirs(function):
    return jax.jit(function).lower(X, Y).compile().cost_analysis()


@pytest.mark.parametrize("around", [lambda f: lambda x, y: jnp.sin(f(x, y)).sum(), lambda f: jax.grad(lambda x, y: (f(x, y) ** 2).sum())])
def test_operations_are_those_of_the_same_program_of_jax(around):
    assert cost_analysis(around(ours), X, Y)["flops"] == pytest.approx(theirs(around(jnp.matmul))["flops"], rel=0.02)


def test_a_call_alone_counts_what_the_compiled_function_does():
    cost = product.compile(X, Y).cost
    found = cost_analysis(jax.jit(ours), X, Y)
    assert found["flops"] == cost.operations and found["bytes accessed"] == pytest.approx(cost.bytes, rel=0.01)


def test_bodies_of_loops_count_once_and_of_branches_the_largest():
    once = product.compile(X, Y).cost.operations
    looped = cost_analysis(lambda x, y: jax.lax.scan(lambda c, _: (c + ours(x, y), None), jnp.zeros((64, 16)), None, length=5)[0], X, Y)
    either = cost_analysis(lambda x, y: jax.lax.cond(x[0, 0] > 0, lambda: ours(x, y), lambda: ours(x, y) + 1), X, Y)
    assert once <= looped["flops"] < 1.1 * once and once <= either["flops"] < 1.1 * once


def test_the_example_runs():
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(cost_analysis) or "", {"te": te}, "cost_analysis", None, None)
    assert doctest.DocTestRunner().run(test).failed == 0
