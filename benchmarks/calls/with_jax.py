"""Calls on JAX arrays: as they are, compiled by XLA, and with the way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from tensorexpr.benchmarks.calls.square import COUNT, square
from tensorexpr.interop.jax import as_jax


def calls() -> dict[str, Callable[[], object]]:
    """JAX's own multiplication and the op in the same places."""
    x = jax.numpy.linspace(0, 1, COUNT, dtype="float32")
    ours = as_jax(square)

    def own(x: Any) -> Any:
        return x * x

    jitted = [jax.jit(f) for f in (own, ours)]
    gradients = [jax.jit(jax.grad(lambda x, f=f: f(x).sum())) for f in (own, ours)]
    return {
        "x * x": lambda: x * x,
        "as_jax(op)": lambda: ours(x),
        "op": lambda: square(x),
        "x * x, jit": lambda: jitted[0](x),
        "as_jax(op), jit": lambda: jitted[1](x),
        "x * x, jit, and back": lambda: gradients[0](x),
        "as_jax(op), jit, and back": lambda: gradients[1](x),
    }
