"""What a program of XLA computes, with the ops in it: XLA counts a custom call as unknown, and has no place to tell it otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from tensorexpr.codegen.cost import cost_of
from tensorexpr.hints import checked
from tensorexpr.interop.jax.primitive import primitive, types_of

_UNKNOWN = -1.0
"""What XLA counts for a custom call."""


@checked()
def cost_analysis(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> dict[str, float]:
    """What `jax.jit(function).lower(...).compile().cost_analysis()` gives, with the scalar operations of ops in "flops" and their bytes in
    "bytes accessed".

    `function` is one of arrays of JAX, jitted or not, and the arguments are as in a call of it. Operations are counted exactly, as
    `f.cost` of a compiled function counts them. As in XLA's own count, the body of a loop counts once, and of the branches of a
    condition the largest.

    >>> import jax.numpy as jnp
    >>> from tensorexpr.interop.jax import as_jax, cost_analysis
    >>> double = as_jax(te.op(lambda x: te.compute(x.shape, lambda i: 2 * x[i])))
    >>> found = cost_analysis(lambda x: double(x), jnp.ones(8))
    >>> found["flops"], found["bytes accessed"] >= 64
    (8.0, True)
    """
    jitted: Any = function if hasattr(function, "lower") else jax.jit(function)
    traced = jitted.trace(*arguments, **keywords)
    found: dict[str, float] = dict(traced.lower().compile().cost_analysis() or {})
    operations, moved = _counts(traced.jaxpr)
    for name, more in (("flops", operations), ("bytes accessed", moved)):
        found[name] = found.get(name, 0.0) + more
    return found


def _counts(jaxpr: Any) -> tuple[float, float]:
    """Scalar operations and bytes of the ops in a program, beyond what XLA counted for them."""
    total = (0.0, 0.0)
    for equation in jaxpr.eqns:
        inner = [_counts(leaf) for leaf in jax.tree.leaves(equation.params) if hasattr(leaf, "eqns")]
        if equation.primitive is primitive:
            call = equation.params["call"]
            cost = cost_of(call.program(types_of([operand.aval for operand in equation.invars], call)))
            operations, moved = (each if isinstance(each, int) else each() for each in (cost.operations, cost.bytes))
            inner = [(operations - _UNKNOWN, moved - _UNKNOWN * (len(equation.invars) + len(equation.outvars)))]
        elif equation.primitive.name == "cond":
            inner = [max(inner, default=(0.0, 0.0))]
        total = (total[0] + sum(each[0] for each in inner), total[1] + sum(each[1] for each in inner))
    return total
