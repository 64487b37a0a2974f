"""Operations written in index notation with the same in PyTorch and JAX: one row, compared in value and gradients.

Each case: name, the op, shapes of the float64 inputs, and the peers' functions as text evaluated with `torch`, `F`
(torch.nn.functional), `jax` and `jnp` in scope, so that this file imports neither.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tensorexpr as te


@dataclass(frozen=True)
class Case:
    """`torch` and `jax` are lambdas as text over the inputs (None where the peer has no such operation)."""

    name: str
    op: Any
    shapes: tuple[tuple[int, ...], ...]
    torch: str | None = None
    jax: str | None = None
    static: dict[str, Any] = field(default_factory=dict)
    positive: bool = False


@te.op
def matmul(a, b):
    (n, k), (_, m) = a.shape, b.shape
    return te.compute((n, m), lambda i, j: te.sum(lambda r: a[i, r] * b[r, j], k))


@te.op
def smooth(x):
    return te.compute(
        x.shape,
        lambda *i: (
            te.tanh(x[i]) * te.sigmoid(x[i])
            + te.exp(-x[i] * x[i])
            + te.log(te.abs(x[i]) + 1.0)
            + te.erf(x[i])
            + te.sin(x[i]) * te.cos(x[i])
        ),
    )


@te.op
def powers(x, y):
    return te.compute(x.shape, lambda *i: x[i] ** y[i] + te.sqrt(x[i]) + te.rsqrt(y[i]) + x[i] ** 3 + te.atan2(x[i], y[i]))


@te.op
def conv(x, w, *, stride=1, dilation=1, padding=0):
    n, c, h, l = x.shape
    k, _, r, s = w.shape

    def extent(size, taps):
        return (size + 2 * padding - dilation * (taps - 1) - 1) // stride + 1

    return te.compute(
        (n, k, extent(h, r), extent(l, s)),
        lambda n, k, y, z: te.sum(
            lambda c, i, j: (
                w[k, c, i, j] * x.read(n, c, y * stride + i * dilation - padding, z * stride + j * dilation - padding, outside=0.0)
            ),
            (c, r, s),
        ),
    )


@te.op
def max_pool(x, *, size=2, stride=2):
    n, c, h, l = x.shape
    return te.compute(
        (n, c, (h - size) // stride + 1, (l - size) // stride + 1),
        lambda n, c, y, z: te.max(lambda i, j: x[n, c, y * stride + i, z * stride + j], (size, size)),
    )


@te.op
def average_pool(x, *, size=3, stride=1):
    n, c, h, l = x.shape
    return te.compute(
        (n, c, (h - size) // stride + 1, (l - size) // stride + 1),
        lambda n, c, y, z: te.sum(lambda i, j: x[n, c, y * stride + i, z * stride + j], (size, size)) / size**2,
    )


@te.op
def softmax(x):
    n, m = x.shape
    top = te.compute((n,), lambda i: te.max(lambda k: x[i, k], m))
    total = te.compute((n,), lambda i: te.sum(lambda k: te.exp(x[i, k] - top[i]), m))
    return te.compute((n, m), lambda i, j: te.exp(x[i, j] - top[i]) / total[i])


@te.op
def layer_norm(x, g, b):
    n, m = x.shape
    mean = te.compute((n,), lambda i: te.sum(lambda k: x[i, k], m) / m)
    var = te.compute((n,), lambda i: te.sum(lambda k: (x[i, k] - mean[i]) ** 2, m) / m)
    return te.compute((n, m), lambda i, j: (x[i, j] - mean[i]) * te.rsqrt(var[i] + 1e-5) * g[j] + b[j])


@te.op
def flatten_product(x, w):
    n, c, h = x.shape
    flat = te.compute((n, c * h), lambda n, f: x[n, f // h, f % h])
    return te.compute((n, w.shape[1]), lambda n, k: te.sum(lambda f: flat[n, f] * w[f, k], c * h))


@te.op
def outer_sum(a, b):
    return te.compute((a.shape[0], b.shape[0]), lambda i, j: te.tanh(a[i] + b[j]) + a[i] * a[i])


@te.op
def transpose_sum(a):
    n, _ = a.shape
    return te.compute((n, n), lambda i, j: a[i, j] + a[j, i] * a[i, i])


@te.op
def extremes(x):
    n, m = x.shape
    return te.compute((n,), lambda i: te.max(lambda k: x[i, k], m) * te.min(lambda k: x[i, k], m))


@te.op
def upsample(x):
    h, l = x.shape
    return te.compute((2 * h, 3 * l), lambda i, j: x[i // 2, j // 3])


CASES = [
    Case("matmul", matmul, ((5, 7), (7, 4)), "lambda a, b: a @ b", "lambda a, b: a @ b"),
    Case(
        "smooth", smooth, ((4, 5),),
        "lambda x: torch.tanh(x) * torch.sigmoid(x) + torch.exp(-x * x) + torch.log(torch.abs(x) + 1)"
        " + torch.erf(x) + torch.sin(x) * torch.cos(x)",
        "lambda x: jnp.tanh(x) * jax.nn.sigmoid(x) + jnp.exp(-x * x) + jnp.log(jnp.abs(x) + 1)"
        " + jax.scipy.special.erf(x) + jnp.sin(x) * jnp.cos(x)",
    ),
    Case(
        "powers", powers, ((6,), (6,)),
        "lambda x, y: x ** y + torch.sqrt(x) + torch.rsqrt(y) + x ** 3 + torch.atan2(x, y)",
        "lambda x, y: x ** y + jnp.sqrt(x) + jax.lax.rsqrt(y) + x ** 3 + jnp.arctan2(x, y)", positive=True,
    ),
    *(
        Case(
            f"conv stride {s} dilation {d} padding {p}", conv, ((2, 3, 9, 8), (4, 3, 3, 2)),
            f"lambda x, w: F.conv2d(x, w, stride={s}, dilation={d}, padding={p})",
            f"lambda x, w: jax.lax.conv_general_dilated(x, w, ({s}, {s}), [({p}, {p})] * 2, rhs_dilation=({d}, {d}))",
            {"stride": s, "dilation": d, "padding": p},
        )
        for s in (1, 2, 3) for d in (1, 2, 3) for p in (0, 1)
    ),
    Case("max pool", max_pool, ((2, 3, 6, 8),), "lambda x: F.max_pool2d(x, 2, 2)"),
    Case("max pool overlapping", max_pool, ((2, 3, 7, 9),), "lambda x: F.max_pool2d(x, 3, 2)", None, {"size": 3, "stride": 2}),
    Case("average pool", average_pool, ((2, 3, 7, 9),), "lambda x: F.avg_pool2d(x, 3, 1)"),
    Case("softmax", softmax, ((4, 9),), "lambda x: torch.softmax(x, 1)", "lambda x: jax.nn.softmax(x, 1)"),
    Case("layer norm", layer_norm, ((4, 9), (9,), (9,)), "lambda x, g, b: F.layer_norm(x, (9,), g, b)"),
    Case(
        "flatten", flatten_product, ((3, 4, 5), (20, 6)),
        "lambda x, w: x.reshape(3, 20) @ w", "lambda x, w: x.reshape(3, 20) @ w",
    ),
    Case(
        "broadcast", outer_sum, ((5,), (6,)),
        "lambda a, b: torch.tanh(a[:, None] + b) + (a * a)[:, None]", "lambda a, b: jnp.tanh(a[:, None] + b) + (a * a)[:, None]",
    ),
    Case(
        "transpose and diagonal", transpose_sum, ((5, 5),),
        "lambda a: a + a.T * torch.diagonal(a)[:, None]", "lambda a: a + a.T * jnp.diagonal(a)[:, None]",
    ),
    Case("extremes", extremes, ((5, 8),), "lambda x: x.amax(1) * x.amin(1)", "lambda x: x.max(1) * x.min(1)"),
    Case(
        "upsample", upsample, ((3, 4),),
        "lambda x: x.repeat_interleave(2, 0).repeat_interleave(3, 1)", "lambda x: x.repeat(2, 0).repeat(3, 1)",
    ),
]  # fmt: skip
