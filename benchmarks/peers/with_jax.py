"""JAX: functions under `jax.jit`, gradients by `jax.vjp` inside of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def _conv(layout: tuple[str, str, str]) -> Callable[..., Any]:
    def conv(x: Any, w: Any, padding: int, stride: int = 1, dilation: int = 1, groups: int = 1) -> Any:
        return lax.conv_general_dilated(
            x, w, (stride,) * 2, [(padding, padding)] * 2, rhs_dilation=(dilation,) * 2, feature_group_count=groups,
            dimension_numbers=layout,
        )  # fmt: skip

    return conv


def _conv_transpose(layout: tuple[str, str, str], places: tuple[int, int]) -> Callable[..., Any]:
    def conv(x: Any, w: Any, stride: int, padding: int, output_padding: int) -> Any:
        border = w.shape[places[0]] - 1 - padding
        pads = [(border, border + output_padding)] * 2
        return lax.conv_general_dilated(x, jnp.flip(w, places), (1, 1), pads, lhs_dilation=(stride,) * 2, dimension_numbers=layout)

    return conv


def _layer_norm(x: Any, g: Any, b: Any) -> Any:
    return (x - x.mean(1, keepdims=True)) * lax.rsqrt(x.var(1, keepdims=True) + 1e-5) * g + b


def _attention(q: Any, k: Any, v: Any, is_causal: bool) -> Any:
    return jax.nn.dot_product_attention(*(t[:, :, None] for t in (q, k, v)), is_causal=is_causal)[:, :, 0]


def _windows(start: float, combine: Callable[..., Any]) -> Callable[..., Any]:
    def pool(x: Any, kernel_size: int, stride: int | None = None) -> Any:
        window, steps = (1, 1, kernel_size, kernel_size), (1, 1, *(stride or kernel_size,) * 2)
        return lax.reduce_window(x, start, combine, window, steps, "VALID")

    return pool


def _avg_pool(x: Any, kernel_size: int, stride: int | None = None) -> Any:
    return _windows(0.0, lax.add)(x, kernel_size, stride) / kernel_size**2


def _interpolate(x: Any, scale_factor: int, mode: str) -> Any:
    n, c, h, l = x.shape
    return jax.image.resize(x, (n, c, scale_factor * h, scale_factor * l), mode)


def _heat(u: Any, steps: int = 10) -> Any:
    def step(_: Any, v: Any) -> Any:
        inside = v[1:-1, 1:-1]
        return v.at[1:-1, 1:-1].add(0.2 * (v[:-2, 1:-1] + v[2:, 1:-1] + v[1:-1, :-2] + v[1:-1, 2:] - 4 * inside))

    return lax.fori_loop(0, steps, step, u)


def _correlation(a: Any, b: Any, radius: int = 4) -> Any:
    size, (_, h, l) = 2 * radius + 1, a.shape
    padded = jnp.pad(b, ((0, 0), (radius, radius), (radius, radius)))
    rows = [jnp.stack([(a * padded[:, u : u + h, v : v + l]).mean(0) for v in range(size)]) for u in range(size)]
    return jnp.stack(rows)


def _bilateral(x: Any, radius: int = 4) -> Any:
    """Window by window in one expression, which is compiled to one loop."""
    h, l = x.shape
    padded = jnp.pad(x, radius, mode="edge")
    total, value = jnp.zeros_like(x), jnp.zeros_like(x)
    for dy in range(2 * radius + 1):
        for dx in range(2 * radius + 1):
            near = padded[dy : dy + h, dx : dx + l]
            weight = jnp.exp(-0.5 * (near - x) ** 2 - 0.05 * ((dy - radius) ** 2 + (dx - radius) ** 2))
            total, value = total + weight, value + weight * near
    return value / total


def _bilateral_scan(x: Any, radius: int = 4) -> Any:
    """Window by window in a loop: of the one expression, the gradient takes seconds."""
    h, l = x.shape
    padded = jnp.pad(x, radius, mode="edge")

    def step(sums: Any, at: Any) -> Any:
        dy, dx = at // (2 * radius + 1), at % (2 * radius + 1)
        near = lax.dynamic_slice(padded, (dy, dx), (h, l))
        weight = jnp.exp(-0.5 * (near - x) ** 2 - 0.05 * ((dy - radius) ** 2 + (dx - radius) ** 2))
        return (sums[0] + weight, sums[1] + weight * near), None

    start = (jnp.zeros_like(x), jnp.zeros_like(x))
    (total, value), _ = lax.scan(jax.checkpoint(step), start, jnp.arange((2 * radius + 1) ** 2))
    return value / total


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "matmul": jnp.matmul,
    "matmul_at": lambda a, b: a.T @ b,
    "matmul_bt": lambda a, b: a @ b.T,
    "bmm": jnp.matmul,
    "conv2d": _conv(("NCHW", "OIHW", "NCHW")),
    "conv2d_nhwc": _conv(("NHWC", "HWIO", "NHWC")),
    "conv_transpose2d": _conv_transpose(("NCHW", "IOHW", "NCHW"), (2, 3)),
    "conv_transpose2d_nhwc": _conv_transpose(("NHWC", "HWIO", "NHWC"), (0, 1)),
    "softmax": lambda x: jax.nn.softmax(x, -1),
    "logsumexp": lambda x, axis: jax.nn.logsumexp(x, axis),
    "layer_norm": _layer_norm,
    "rms_norm": lambda x, g: x * lax.rsqrt((x * x).mean(1, keepdims=True) + jnp.finfo(x.dtype).eps) * g,
    "scale_gelu": lambda x, a, b: jax.nn.gelu(a * x + b, approximate=True),
    "attention": _attention,
    "gaussian_product": lambda x, y, b: jnp.exp(-((x[:, None] - y) ** 2).sum(-1)) @ b,
    "max_pool2d": _windows(-jnp.inf, lax.max),
    "avg_pool2d": _avg_pool,
    "interpolate": _interpolate,
    "embedding": lambda ids, table: table.at[ids].get(mode="promise_in_bounds"),
    "heat": _heat,
    "cumsum": lambda x, axis: jnp.cumsum(x, axis),
    "correlation": _correlation,
    "bilateral": _bilateral,
    "add": jnp.add,
}

FOR_GRADIENTS: dict[str, Callable[..., Any]] = {"bilateral": _bilateral_scan}
"""Other ways to write a function, whose gradients are faster."""


def has(key: str, static: dict[str, Any], gradient: bool) -> bool:
    """Whether there is a function for the workload."""
    del static, gradient
    return key in FUNCTIONS


def candidate(key: str, static: dict[str, Any], arrays: Sequence[np.ndarray], head: np.ndarray | None) -> Callable[[], Any]:
    """The compiled function, or the compiled function and its gradients; a call returns when the results are there."""

    def function(*given: Any) -> Any:
        chosen = FUNCTIONS[key] if head is None else FOR_GRADIENTS.get(key, FUNCTIONS[key])
        return chosen(*given, **static)

    given = [jnp.asarray(a) for a in arrays]
    if head is None:
        forward = jax.jit(function)
        return lambda: jax.block_until_ready(forward(*given))
    floating = tuple(k for k, a in enumerate(arrays) if jnp.issubdtype(a.dtype, jnp.floating))

    @jax.jit
    def both(seed: Any, *inputs: Any) -> Any:
        def of(*moved: Any) -> Any:
            full = list(inputs)
            for position, value in zip(floating, moved, strict=True):
                full[position] = value
            return function(*full)

        output, pull = jax.vjp(of, *(inputs[k] for k in floating))
        return (output, *pull(seed))

    seed = jnp.asarray(head)
    return lambda: jax.block_until_ready(both(seed, *given))
