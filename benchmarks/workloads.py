"""The workloads that tensorexpr is measured on, beside the same in every peer that has it.

Each is an operation of the library (or of `operations`) on float32 arrays of a stated size, forward and forward with gradient.
The same workloads exist at sizes of a few elements, where tests hold ours and the peers' against the interpreter in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.benchmarks import operations
from tensorexpr.benchmarks.spec import Spec


def specs(tiny: bool = False) -> list[Spec]:
    """All workloads, in the order of the table; `tiny`: each at a size of a few elements."""
    return [*_gemms(tiny), *_convolutions(tiny), *_rows(tiny), *_fused(tiny), *_resampling(tiny), *_others(tiny), *_small(tiny)]


def _gemms(tiny: bool) -> Iterator[Spec]:
    def gemm(label: str, key: str, op: te.Op, n: int, k: int, m: int) -> Spec:
        a = (k, n) if key == "matmul_at" else (n, k)
        b = (m, k) if key == "matmul_bt" else (k, m)
        return Spec(label, "contraction", key, op, (a, b), 2.0 * n * k * m, 4.0 * (n * k + k * m + n * m))

    side = 9 if tiny else 1024
    yield gemm("gemm 1024", "matmul", operations.matmul, side, side, side)
    yield gemm("gemm 1000x777x333", "matmul", operations.matmul, *((7, 5, 3) if tiny else (1000, 777, 333)))
    yield gemm("gemm At 1024", "matmul_at", operations.matmul_at, side, side, side)
    yield gemm("gemm Bt 1024", "matmul_bt", operations.matmul_bt, side, side, side)
    count, n, k, m = (3, 5, 4, 6) if tiny else (64, 128, 128, 64)
    moved = 4.0 * count * (n * k + k * m + n * m)
    yield Spec("gemm 64 x (128x128x64)", "contraction", "bmm", kernels.bmm, ((count, n, k), (count, k, m)), 2.0 * count * n * k * m, moved)


def _convolutions(tiny: bool) -> Iterator[Spec]:
    n, c, side = (2, 4, 6) if tiny else (8, 64, 56)
    pixels = n * side * side

    def conv(label: str, outputs: float, **static: Any) -> Iterator[Spec]:
        """In both layouts; `outputs` is the share of the pixels that there are results for."""
        inner = c // static.get("groups", 1)
        static = {"padding": 1, **static}
        work, moved = 2.0 * pixels * outputs * c * inner * 9, 4.0 * (pixels * c * (1 + outputs) + c * inner * 9)
        yield Spec(f"conv 3x3{label}", "contraction", "conv2d", kernels.conv2d, ((n, c, side, side), (c, inner, 3, 3)), work, moved, static)
        nhwc = ((n, side, side, c), (3, 3, inner, c))
        yield Spec(f"conv 3x3{label} NHWC", "contraction", "conv2d_nhwc", operations.conv2d_nhwc, nhwc, work, moved, static)

    yield from conv(" 8x64x56x56", 1.0)
    yield from conv(" stride 2", 0.25, stride=2)
    yield from conv(" dilation 2", 1.0, dilation=2, padding=2)
    yield from conv(" depthwise", 1.0, groups=c)
    half = side // 2
    work, moved = 2.0 * pixels / 4 * c * c * 9, 4.0 * (1.25 * pixels * c + c * c * 9)
    static = {"stride": 2, "padding": 1, "output_padding": 1}
    name = "conv transposed stride 2"
    yield Spec(
        name, "contraction", "conv_transpose2d", kernels.conv_transpose2d, ((n, c, half, half), (c, c, 3, 3)), work, moved, static
    )  # fmt: skip
    yield Spec(
        f"{name} NHWC", "contraction", "conv_transpose2d_nhwc", operations.conv_transpose2d_nhwc,
        ((n, half, half, c), (3, 3, c, c)), work, moved, static,
    )  # fmt: skip


def _rows(tiny: bool) -> Iterator[Spec]:
    row = (5, 20) if tiny else (4096, 1024)
    elements = float(np.prod(row))
    length = 1000 if tiny else 1 << 24
    yield Spec("softmax 4096x1024", "memory", "softmax", kernels.softmax, (row,), 5 * elements, 8 * elements)
    yield Spec("logsumexp 4096x1024", "memory", "logsumexp", kernels.logsumexp, (row,), 4 * elements, 4 * elements, {"axis": -1})
    weights = (row[1:], row[1:])
    yield Spec("layer norm 4096x1024", "memory", "layer_norm", kernels.layer_norm, (row, *weights), 8 * elements, 8 * elements)
    yield Spec("GELU(a x + b) 2^24", "memory", "scale_gelu", operations.scale_gelu, ((length,), (), ()), 25.0 * length, 8.0 * length)


def _fused(tiny: bool) -> Iterator[Spec]:
    heads, length, inner = (2, 8, 4) if tiny else (32, 512, 64)
    work, moved = 4.0 * heads * length * length * inner, 16.0 * heads * length * inner
    for label, causal in (("", False), (" causal", True)):
        yield Spec(
            f"attention 32x512x64{label}", "fused", "attention", kernels.scaled_dot_product_attention, ((heads, length, inner),) * 3,
            work / 2 if causal else work, moved, {"is_causal": causal}, products=True,
        )  # fmt: skip
    points = 12 if tiny else 8192
    shapes = ((points, 3), (points, 3), (points, 1))
    yield Spec(
        "Gaussian product 8192", "fused", "gaussian_product", kernels.gaussian_product, shapes, 30.0 * points**2, 4.0 * points * 8
    )  # fmt: skip


def _resampling(tiny: bool) -> Iterator[Spec]:
    picture = (2, 3, 8, 8) if tiny else (8, 64, 112, 112)
    pixels = float(np.prod(picture))
    overlapping = {"kernel_size": 3, "stride": 2}
    yield Spec("max-pool 2x2", "memory", "max_pool2d", kernels.max_pool2d, (picture,), pixels, 5 * pixels, {"kernel_size": 2})
    yield Spec("max-pool 3x3/2", "memory", "max_pool2d", kernels.max_pool2d, (picture,), 2.25 * pixels, 5 * pixels, overlapping)
    yield Spec("average pool 3x3/2", "memory", "avg_pool2d", kernels.avg_pool2d, (picture,), 2.25 * pixels, 5 * pixels, overlapping)
    twice = {"scale_factor": 2, "mode": "bilinear"}
    yield Spec("bilinear x2", "memory", "interpolate", kernels.interpolate, (picture,), 28 * pixels, 20 * pixels, twice)


def _others(tiny: bool) -> Iterator[Spec]:
    rows, inner, ids = (10, 4, 7) if tiny else (50000, 128, 16384)
    for label, chosen in (("uniform", ((ids,), rows)), ("equal", np.full(ids, 7 if tiny else 77))):
        yield Spec(
            f"embedding 50000x128, 16384 {label}", "memory", "embedding", kernels.embedding, (chosen, (rows, inner)), 0.0, 8.0 * ids * inner
        )
    side = 9 if tiny else 2048
    yield Spec("heat 10 steps 2048", "fused", "heat", operations.heat, ((side, side),), 60.0 * side**2, 8.0 * side**2)
    side = 9 if tiny else 4096
    yield Spec(
        "cumulative sum 4096", "memory", "cumsum", kernels.cumsum, ((side, side),), 1.0 * side**2, 8.0 * side**2, {"axis": 1}
    )  # fmt: skip
    c, side = (3, 7) if tiny else (64, 96)
    work, moved = 2.0 * 81 * c * side**2, 4.0 * (2 * c + 81) * side**2
    yield Spec(
        "local correlation 64x96x96", "fused", "correlation", operations.correlation, ((c, side, side),) * 2, work, moved, products=True
    )
    side = 10 if tiny else 1024
    yield Spec("bilateral 9x9 1024", "fused", "bilateral", operations.bilateral, ((side, side),), 81.0 * 30 * side**2, 8.0 * side**2)


def _small(tiny: bool) -> Iterator[Spec]:
    count = 5 if tiny else 100000
    yield Spec(
        "100000 x (8x8x8)", "small", "bmm", kernels.bmm, ((count, 8, 8), (count, 8, 8)), 2.0 * count * 512, 12.0 * count * 64
    )  # fmt: skip
    yield Spec("add of 16", "small", "add", kernels.add, ((16,), (16,)), 16.0, 192.0)
