"""A differential equation solved by a network in JAX, whose loss has second derivatives of a kernel of ours.

    python -m tensorexpr.examples.physics_jax

The equation is u'' + u = f on [0, 1] with u = 0 at both ends, f such that u = x (1 - x) exp(x) solves it. The network u(x) is one
operation in index notation; JAX takes its first and second derivative by x in forward mode, and the gradient of the squared residual
by the weights: third derivatives in all, each a compiled kernel that was derived from the one definition. `jit`, `vmap` and
`grad` treat it as they treat JAX's own functions.
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp

import tensorexpr as te
from tensorexpr.interop.jax import as_jax


@te.op
def network(x: te.Tensor, w: te.Tensor, b: te.Tensor, v: te.Tensor) -> te.Tensor:
    """sum_k v[k] tanh(w[k] x + b[k]) for every point."""
    (n,), (width,) = x.shape, w.shape
    return te.compute((n,), lambda i: te.sum(lambda k: v[k] * te.tanh(w[k] * x[i] + b[k]), width))


u = as_jax(network)


def solution(x: Any) -> Any:
    """What is to be found."""
    return x * (1 - x) * jnp.exp(x)


def residual(weights: tuple[Any, ...], x: Any) -> Any:
    """How far u'' + u is from its right side, at every point."""

    def value(x: Any) -> Any:
        return u(x, *weights)

    def slope(x: Any) -> Any:
        # Every point has a tangent of its own, so ones give the derivative at each.
        return jax.jvp(value, (x,), (jnp.ones_like(x),))[1]

    second = jax.jvp(slope, (x,), (jnp.ones_like(x),))[1]
    wanted = jax.vmap(jax.grad(jax.grad(solution)))(x) + solution(x)
    return second + value(x) - wanted


def loss(weights: tuple[Any, ...], x: Any) -> Any:
    """Mean square of the residual, and of the values at the ends."""
    ends = u(jnp.array([0.0, 1.0], x.dtype), *weights)
    return jnp.mean(residual(weights, x) ** 2) + 10.0 * jnp.sum(ends**2)


def start(width: int, seed: int) -> tuple[Any, ...]:
    """The first weights."""
    keys = jax.random.split(jax.random.key(seed), 3)
    scale = (4.0, 2.0, width**-0.5)
    return tuple(s * jax.random.normal(key, (width,)) for s, key in zip(scale, keys, strict=True))


def fit(weights: tuple[Any, ...], x: Any, steps: int, rate: float = 0.01) -> tuple[tuple[Any, ...], Any]:
    """The weights after so many steps of Adam, and the loss before each: one compiled program, the steps in it."""

    def step(state: Any, number: Any) -> tuple[Any, Any]:
        weights, mean, square = state
        value, slope = jax.value_and_grad(loss)(weights, x)
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, slope)
        square = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g * g, square, slope)
        pace = rate * jnp.sqrt(1 - 0.999**number) / (1 - 0.9**number) * jnp.minimum(1.0, 2 * (1 - number / (steps + 1)))
        weights = jax.tree.map(lambda w, m, s: w - pace * m / (jnp.sqrt(s) + 1e-8), weights, mean, square)
        return (weights, mean, square), value

    zeros = jax.tree.map(jnp.zeros_like, weights)
    numbers = jnp.arange(1, steps + 1, dtype=x.dtype)
    (weights, _, _), losses = jax.jit(lambda state: jax.lax.scan(step, state, numbers))((weights, zeros, zeros))
    return weights, losses


def main(arguments: list[str] | None = None) -> int:
    """Trains, and prints how far the network is from the solution."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--points", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    x = jnp.linspace(0.0, 1.0, options.points)
    weights, losses = fit(start(options.width, options.seed), x, options.steps)
    for step in range(0, options.steps, max(1, options.steps // 6)):
        print(f"step {step:5d}  loss {losses[step]:.2e}")
    print(f"largest error of the solution {jnp.abs(u(x, *weights) - solution(x)).max():.1e}, of values up to {solution(x).max():.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
