"""The workloads that tensorexpr is measured on, beside the same in every peer that has it.

Each is an operation of the library (or of a few lines here) on float32 arrays of a stated size, forward and forward with
gradient. Peers are text, evaluated in `peers` where they are installed, so that this file imports none of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.benchmarks.operations import matmul


@dataclass(frozen=True, slots=True)
class Spec:
    """One workload.

    `arrays` are shapes (normal float32), pairs (shape, high) of int64 in range(high), or arrays. `op` with its `static`
    arguments is ours; `numpy`, `torch`, `jax`, `numba`, `keops` are texts of functions of the arrays (numba: the body of a module
    that defines `f`). `operations` and `bytes` are the least that a perfect forward executes and moves. `group` says what
    bounds it: "contraction", "memory", "fused" (what array frameworks must materialize), "small".
    """

    name: str
    group: str
    op: te.Op
    arrays: tuple[Any, ...]
    operations: float
    bytes: float
    static: dict[str, Any] = field(default_factory=dict)
    numpy: str | None = None
    torch: str | None = None
    jax: str | None = None
    numba: str | None = None
    keops: str | None = None
    differentiable: bool = True
    tolerance: float = 1e-3

    def draw(self) -> list[np.ndarray]:
        """The arrays, the same on every call."""
        rng = np.random.default_rng(0)
        made = []
        for item in self.arrays:
            if isinstance(item, np.ndarray):
                made.append(item)
            elif len(item) == 2 and isinstance(item[0], tuple):
                made.append(rng.integers(0, item[1], item[0]))
            else:
                made.append(rng.standard_normal(item, np.float32))
        return made


# ------------------------------------------------------------------------------------------------ operations of our own


@te.op
def matmul_at(a, b):
    """a[k, i] b[k, j]: the first operand transposed."""
    (k, n), (_, m) = a.shape, b.shape
    return te.compute((n, m), lambda i, j: te.sum(lambda r: a[r, i] * b[r, j], k))


@te.op
def matmul_bt(a, b):
    """a[i, k] b[j, k]: the second operand transposed."""
    (n, k), (m, _) = a.shape, b.shape
    return te.compute((n, m), lambda i, j: te.sum(lambda r: a[i, r] * b[j, r], k))


@te.op
def conv_nhwc(x, w):
    """3 x 3, padding 1, channels last: x[n, y, z, c] with w[i, j, c, k]."""
    n, h, l, c = x.shape
    r, s, _, k = w.shape
    return te.compute(
        (n, h, l, k),
        lambda n, y, z, k: te.sum(lambda i, j, c: x.read(n, y + i - 1, z + j - 1, c, outside=0.0) * w[i, j, c, k], (r, s, c)),
    )


@te.op
def scale_gelu(x, a, b):
    """GELU of a x + b, in the form by tanh."""
    return te.compute(
        x.shape,
        lambda i: 0.5 * (y := a[()] * x[i] + b[()]) * (1.0 + te.tanh(0.7978845608 * (y + 0.044715 * y * y * y))),
    )


@te.op
def heat(u, *, steps=10):
    """Steps of the 5-point stencil with a fixed border."""
    h, l = u.shape

    def step(t, v):
        del t
        return te.compute(
            (h, l),
            lambda i, j: te.where(
                (i > 0) & (i < h - 1) & (j > 0) & (j < l - 1),
                v[i, j] + 0.2 * (v[i - 1, j] + v[i + 1, j] + v[i, j - 1] + v[i, j + 1] - 4.0 * v[i, j]),
                v[i, j],
            ),
        )

    states = te.scan(step, u, steps)
    return te.compute((h, l), lambda i, j: states[steps - 1, i, j])


@te.op
def correlation(a, b, *, radius=4):
    """Cost volume: products of features within a window of displacements, mean over channels."""
    c, h, l = a.shape
    size = 2 * radius + 1
    return te.compute(
        (size, size, h, l),
        lambda u, v, y, z: te.sum(lambda k: a[k, y, z] * b.read(k, y + u - radius, z + v - radius, outside=0.0), c) / c,
    )


@te.op
def bilateral(x, *, radius=4):
    """Weights by distance in space and value over a window, borders clamped."""
    h, l = x.shape
    size = 2 * radius + 1

    def weight(i, j, dy, dx):
        d = x.read(i + dy - radius, j + dx - radius, outside="clamp") - x[i, j]
        r = te.cast((dy - radius) * (dy - radius) + (dx - radius) * (dx - radius), "float32")
        return te.exp(-0.5 * d * d - r * 0.05)

    total = te.compute((h, l), lambda i, j: te.sum(lambda dy, dx: weight(i, j, dy, dx), (size, size)), name="total")
    return te.compute(
        (h, l),
        lambda i, j: (
            te.sum(lambda dy, dx: weight(i, j, dy, dx) * x.read(i + dy - radius, j + dx - radius, outside="clamp"), (size, size))
            / total[i, j]
        ),
    )


# ------------------------------------------------------------------------------------------------------------ peers' side

_HEAT = """
from numba import njit, prange
@njit(parallel=True, fastmath=True)
def step(u, v):
    for i in prange(1, u.shape[0] - 1):
        for j in range(1, u.shape[1] - 1):
            v[i, j] = u[i, j] + 0.2 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - 4 * u[i, j])
def f(u):
    u, v = u.copy(), u.copy()
    for _ in range(10):
        step(u, v)
        u, v = v, u
    return u
"""
_TORCH_HEAT = (
    "lambda u: functools.reduce(lambda v, _: F.pad(v[1:-1, 1:-1] + 0.2 * (v[:-2, 1:-1] + v[2:, 1:-1] + v[1:-1, :-2] + v[1:-1, 2:]"
    " - 4 * v[1:-1, 1:-1]), (1, 1, 1, 1)) + v * border(v), range(10), u)"
)
_JAX_HEAT = (
    "lambda u: jax.lax.fori_loop(0, 10, lambda t, v: v.at[1:-1, 1:-1].add(0.2 * (v[:-2, 1:-1] + v[2:, 1:-1] + v[1:-1, :-2]"
    " + v[1:-1, 2:] - 4 * v[1:-1, 1:-1])), u)"
)
_BILATERAL = """
from numba import njit, prange
import math
@njit(parallel=True, fastmath=True)
def f(x):
    h, l = x.shape
    out = x.copy()
    for i in prange(h):
        for j in range(l):
            total = np.float32(0)
            value = np.float32(0)
            for dy in range(-4, 5):
                for dx in range(-4, 5):
                    p = x[min(max(i + dy, 0), h - 1), min(max(j + dx, 0), l - 1)]
                    d = p - x[i, j]
                    w = math.exp(np.float32(-0.5) * d * d - np.float32(0.05) * (dy * dy + dx * dx))
                    total += w
                    value += w * p
            out[i, j] = value / total
    return out
"""
_WINDOWS = "F.unfold(F.pad(x[None, None], (4, 4, 4, 4), mode='replicate'), 9).reshape(81, *x.shape)"
_DISTANCES = "torch.tensor([[(i - 4) ** 2 + (j - 4) ** 2] for i in range(9) for j in range(9)], dtype=torch.float32)[:, :, None]"
_GAUSS_NUMBA = """
from numba import njit, prange
import math
@njit(parallel=True, fastmath=True)
def f(x, y, b):
    out = np.zeros((x.shape[0], b.shape[1]), np.float32)
    for i in prange(x.shape[0]):
        for j in range(y.shape[0]):
            d0, d1, d2 = x[i, 0] - y[j, 0], x[i, 1] - y[j, 1], x[i, 2] - y[j, 2]
            out[i, 0] += math.exp(-(d0 * d0 + d1 * d1 + d2 * d2)) * b[j, 0]
    return out
"""


def _gemm(name: str, op: te.Op, n: int, k: int, m: int, a: tuple[int, int], b: tuple[int, int], text: str) -> Spec:
    moved = 4.0 * (n * k + k * m + n * m)
    return Spec(name, "contraction", op, (a, b), 2.0 * n * k * m, moved, numpy=text, torch=text, jax=text)


def _conv(
    name: str, x: tuple[int, ...], w: tuple[int, ...], operations: float, moved: float, torch: str, jax: str | None, **static: Any
) -> Spec:
    return Spec(name, "contraction", kernels.conv2d, (x, w), operations, moved, {"padding": 1, **static}, torch=torch, jax=jax)


def specs() -> list[Spec]:
    """All workloads, in the order of the table."""
    image, taps = (8, 64, 56, 56), (64, 64, 3, 3)
    conv_work, conv_bytes = 2.0 * 8 * 64 * 56 * 56 * 64 * 9, 4.0 * (2 * 8 * 64 * 56 * 56 + 64 * 64 * 9)
    picture = (8, 64, 112, 112)
    pixels = float(np.prod(picture))
    jax_conv = (
        "lambda x, w: jax.lax.conv_general_dilated(x, w, ({s}, {s}), [({p}, {p})] * 2, rhs_dilation=({d}, {d}), feature_group_count={g})"
    )
    row = (4096, 1024)
    elements = float(np.prod(row))
    return [
        _gemm("gemm 1024", matmul, 1024, 1024, 1024, (1024, 1024), (1024, 1024), "lambda a, b: a @ b"),
        _gemm("gemm 1000x777x333", matmul, 1000, 777, 333, (1000, 777), (777, 333), "lambda a, b: a @ b"),
        _gemm("gemm At 1024", matmul_at, 1024, 1024, 1024, (1024, 1024), (1024, 1024), "lambda a, b: a.T @ b"),
        _gemm("gemm Bt 1024", matmul_bt, 1024, 1024, 1024, (1024, 1024), (1024, 1024), "lambda a, b: a @ b.T"),
        Spec(
            "gemm 64 x (128x128x64)", "contraction", kernels.bmm, ((64, 128, 128), (64, 128, 64)), 2.0 * 64 * 128 * 128 * 64,
            4.0 * 64 * (128 * 128 + 2 * 128 * 64), numpy="np.matmul", torch="torch.bmm", jax="jnp.matmul",
        ),
        _conv(
            "conv 3x3 8x64x56x56", image, taps, conv_work, conv_bytes, "lambda x, w: F.conv2d(x, w, padding=1)",
            jax_conv.format(s=1, p=1, d=1, g=1),
        ),
        _conv(
            "conv 3x3 stride 2", image, taps, conv_work / 4, 4.0 * (1.25 * 8 * 64 * 56 * 56 + 64 * 64 * 9),
            "lambda x, w: F.conv2d(x, w, padding=1, stride=2)", jax_conv.format(s=2, p=1, d=1, g=1), stride=2,
        ),
        _conv(
            "conv 3x3 dilation 2", image, taps, conv_work, conv_bytes, "lambda x, w: F.conv2d(x, w, padding=2, dilation=2)",
            jax_conv.format(s=1, p=2, d=2, g=1), dilation=2, padding=2,
        ),
        _conv(
            "conv 3x3 depthwise", image, (64, 1, 3, 3), conv_work / 64, 4.0 * (2 * 8 * 64 * 56 * 56 + 64 * 9),
            "lambda x, w: F.conv2d(x, w, padding=1, groups=64)", jax_conv.format(s=1, p=1, d=1, g=64), groups=64,
        ),
        Spec(
            "conv 3x3 NHWC", "contraction", conv_nhwc, ((8, 56, 56, 64), (3, 3, 64, 64)), conv_work, conv_bytes,
            torch="lambda x, w: F.conv2d(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), padding=1).permute(0, 2, 3, 1)",
            jax="lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), [(1, 1)] * 2, dimension_numbers=('NHWC', 'HWIO', 'NHWC'))",
        ),
        Spec(
            "conv transposed stride 2", "contraction", kernels.conv_transpose2d, ((8, 64, 28, 28), taps), conv_work / 4,
            4.0 * (1.25 * 8 * 64 * 56 * 56 + 64 * 64 * 9), {"stride": 2, "padding": 1, "output_padding": 1},
            torch="lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1)",
        ),
        Spec(
            "softmax 4096x1024", "memory", kernels.softmax, (row,), 5 * elements, 8 * elements,
            numpy="lambda x: (e := np.exp(x - x.max(1, keepdims=True))) / e.sum(1, keepdims=True)",
            torch="lambda x: torch.softmax(x, -1)", jax="lambda x: jax.nn.softmax(x, -1)",
        ),
        Spec(
            "logsumexp 4096x1024", "memory", kernels.logsumexp, (row,), 4 * elements, 4 * elements, {"axis": -1},
            numpy="lambda x: np.log(np.exp(x - (m := x.max(1))[:, None]).sum(1)) + m",
            torch="lambda x: torch.logsumexp(x, -1)", jax="lambda x: jax.nn.logsumexp(x, -1)",
        ),
        Spec(
            "layer norm 4096x1024", "memory", kernels.layer_norm, (row, (1024,), (1024,)), 8 * elements, 8 * elements,
            torch="lambda x, g, b: F.layer_norm(x, (1024,), g, b)",
            jax="lambda x, g, b: (x - x.mean(1, keepdims=True)) * jax.lax.rsqrt(x.var(1, keepdims=True) + 1e-5) * g + b",
        ),
        Spec(
            "GELU(a x + b) 2^24", "memory", scale_gelu, ((1 << 24,), (), ()), 25.0 * (1 << 24), 8.0 * (1 << 24),
            torch="lambda x, a, b: F.gelu(a * x + b, approximate='tanh')", jax="lambda x, a, b: jax.nn.gelu(a * x + b, approximate=True)",
        ),
        *(
            Spec(
                f"attention 32x512x64{label}", "fused", kernels.scaled_dot_product_attention, ((32, 512, 64),) * 3,
                4.0 * 32 * 512 * 512 * 64 * share, 16.0 * 32 * 512 * 64, {"is_causal": causal},
                torch=f"lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal={causal})",
                jax=f"lambda q, k, v: jax.nn.dot_product_attention(*(t[:, :, None] for t in (q, k, v)), is_causal={causal})[:, :, 0]",
            )
            for label, causal, share in (("", False, 1.0), (" causal", True, 0.5))
        ),
        Spec(
            "Gaussian product 8192", "fused", kernels.gaussian_product, ((8192, 3), (8192, 3), (8192, 1)), 30.0 * 8192**2, 4.0 * 8192 * 8,
            torch="lambda x, y, b: torch.exp(-((x[:, None] - y) ** 2).sum(-1)) @ b",
            jax="lambda x, y, b: jnp.exp(-((x[:, None] - y) ** 2).sum(-1)) @ b", numba=_GAUSS_NUMBA,
            keops="lambda x, y, b: (-((LazyTensor(x[:, None]) - LazyTensor(y[None])) ** 2).sum(-1)).exp() @ b",
        ),
        Spec(
            "max-pool 2x2", "memory", kernels.max_pool2d, (picture,), pixels, 5 * pixels, {"kernel_size": 2},
            torch="lambda x: F.max_pool2d(x, 2)",
            jax="lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), 'VALID')",
        ),
        Spec(
            "max-pool 3x3/2", "memory", kernels.max_pool2d, (picture,), 2.25 * pixels, 5 * pixels, {"kernel_size": 3, "stride": 2},
            torch="lambda x: F.max_pool2d(x, 3, 2)",
            jax="lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 3, 3), (1, 1, 2, 2), 'VALID')",
        ),
        Spec(
            "average pool 3x3/2", "memory", kernels.avg_pool2d, (picture,), 2.25 * pixels, 5 * pixels, {"kernel_size": 3, "stride": 2},
            torch="lambda x: F.avg_pool2d(x, 3, 2)",
            jax="lambda x: jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 1, 3, 3), (1, 1, 2, 2), 'VALID') / 9",
        ),
        Spec(
            "bilinear x2", "memory", kernels.interpolate, (picture,), 28 * pixels, 20 * pixels, {"scale_factor": 2, "mode": "bilinear"},
            torch="lambda x: F.interpolate(x, scale_factor=2, mode='bilinear')",
            jax="lambda x: jax.image.resize(x, (8, 64, 224, 224), 'bilinear')",
        ),
        *(
            Spec(
                f"embedding 50000x128, 16384 {label}", "memory", kernels.embedding, (ids, (50000, 128)), 0.0, 8.0 * 16384 * 128,
                torch="lambda i, w: F.embedding(i, w)", jax="lambda i, w: w[i]", numpy="lambda i, w: w[i]",
            )
            for label, ids in (("uniform", ((16384,), 50000)), ("equal", np.full(16384, 77)))
        ),
        Spec(
            "heat 10 steps 2048", "fused", heat, ((2048, 2048),), 60.0 * 2048**2, 8.0 * 2048**2,
            torch=_TORCH_HEAT, jax=_JAX_HEAT, numba=_HEAT,
        ),
        Spec(
            "cumulative sum 4096", "memory", kernels.cumsum, ((4096, 4096),), 4096.0**2, 8.0 * 4096**2, {"axis": 1},
            numpy="lambda x: np.cumsum(x, 1)", torch="lambda x: torch.cumsum(x, 1)", jax="lambda x: jnp.cumsum(x, 1)", tolerance=1e-2,
        ),
        Spec(
            "local correlation 64x96x96", "fused", correlation, ((64, 96, 96), (64, 96, 96)), 2.0 * 81 * 64 * 96 * 96,
            4.0 * (128 + 81) * 96 * 96,
            torch="lambda a, b: (F.unfold(b[None], 9, padding=4).reshape(64, 81, 96, 96) * a[:, None]).mean(0).reshape(9, 9, 96, 96)",
            jax="lambda a, b: (lambda p: jnp.stack([jnp.stack([(a * p[:, u:u + 96, v:v + 96]).mean(0) for v in range(9)])"
            " for u in range(9)]))(jnp.pad(b, ((0, 0), (4, 4), (4, 4))))",
        ),
        Spec(
            "bilateral 9x9 1024", "fused", bilateral, ((1024, 1024),), 81.0 * 30 * 1024**2, 8.0 * 1024**2,
            torch=f"lambda x: (w := torch.exp(-0.5 * ((p := {_WINDOWS}) - x) ** 2 - 0.05 * {_DISTANCES})).mul(p).sum(0) / w.sum(0)",
            numba=_BILATERAL,
        ),
        Spec(
            "100000 x (8x8x8)", "small", kernels.bmm, ((100000, 8, 8), (100000, 8, 8)), 2.0 * 100000 * 512, 12.0 * 100000 * 64,
            numpy="np.matmul", torch="torch.bmm", jax="jnp.matmul",
        ),
        Spec(
            "add of 16", "small", kernels.add, ((16,), (16,)), 16.0, 192.0,
            numpy="np.add", torch="torch.add", jax="jnp.add", differentiable=False,
        ),
    ]  # fmt: skip
