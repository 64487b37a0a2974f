"""Triton, where it is installed: kernels of ours for rows and matrix products, as functions that PyTorch's autograd goes through.

They are what its tutorials teach: a row per program with the row in registers, tiles of `tl.dot` in groups that share rows in the cache.
The precision of products of float32 is said explicitly: "ieee", or "tf32" on request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def _softmax(x, y, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    e = tl.exp(value - tl.max(value, 0))
    tl.store(y + row * columns + at, e / tl.sum(e, 0), mask=at < columns)


@triton.jit
def _softmax_back(y, head, dx, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    p = tl.load(y + row * columns + at, mask=at < columns, other=0.0)
    h = tl.load(head + row * columns + at, mask=at < columns, other=0.0)
    tl.store(dx + row * columns + at, p * (h - tl.sum(p * h, 0)), mask=at < columns)


@triton.jit
def _layer_norm(x, g, b, y, means, inverses, columns, eps, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    mean = tl.sum(value, 0) / columns
    centered = tl.where(at < columns, value - mean, 0.0)
    inverse = 1.0 / tl.sqrt(tl.sum(centered * centered, 0) / columns + eps)
    scale, shift = tl.load(g + at, mask=at < columns), tl.load(b + at, mask=at < columns)
    tl.store(y + row * columns + at, centered * inverse * scale + shift, mask=at < columns)
    tl.store(means + row, mean)
    tl.store(inverses + row, inverse)


@triton.jit
def _layer_norm_back(x, g, head, means, inverses, dx, dg, db, rows, columns, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    program, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    scale = tl.load(g + at, mask=inside, other=0.0)
    of_scale, of_shift = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for row in range(program, rows, PROGRAMS):
        start = row * columns
        inverse = tl.load(inverses + row)
        normal = (tl.load(x + start + at, mask=inside, other=0.0) - tl.load(means + row)) * inverse
        normal = tl.where(inside, normal, 0.0)
        h = tl.load(head + start + at, mask=inside, other=0.0)
        of_scale += h * normal
        of_shift += h
        w = h * scale
        tl.store(dx + start + at, (w - tl.sum(w, 0) / columns - normal * (tl.sum(w * normal, 0) / columns)) * inverse, mask=inside)
    tl.store(dg + program * columns + at, of_scale, mask=inside)
    tl.store(db + program * columns + at, of_shift, mask=inside)


@triton.jit
def _product(
    a, b, c, n, m, k, a_row, a_column, b_row, b_column,
    PRECISION: tl.constexpr, N: tl.constexpr, M: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    tiles_n, tiles_m = tl.cdiv(n, N), tl.cdiv(m, M)
    program = tl.program_id(0)
    first = program // (GROUP * tiles_m) * GROUP
    height = tl.minimum(tiles_n - first, GROUP)
    tile_n, tile_m = first + program % (GROUP * tiles_m) % height, program % (GROUP * tiles_m) // height
    i, j, r = tile_n * N + tl.arange(0, N), tile_m * M + tl.arange(0, M), tl.arange(0, K)
    a_at = a + (i[:, None].to(tl.int64) * a_row + r[None, :] * a_column)
    b_at = b + (r[:, None] * b_row + j[None, :].to(tl.int64) * b_column)
    total = tl.zeros((N, M), tl.float32)
    for start in range(0, k, K):
        left = tl.load(a_at, mask=(i[:, None] < n) & (r[None, :] + start < k), other=0.0)
        right = tl.load(b_at, mask=(r[:, None] + start < k) & (j[None, :] < m), other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION)
        a_at += K * a_column
        b_at += K * b_row
    where = (i[:, None] < n) & (j[None, :] < m)
    tl.store(c + i[:, None].to(tl.int64) * m + j[None, :], total.to(c.dtype.element_ty), mask=where)


def _warps(block: int) -> int:
    return min(16, max(1, block // 512))


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y, block = torch.empty_like(x), triton.next_power_of_2(x.shape[1])
        _softmax[(x.shape[0],)](x, y, x.shape[1], BLOCK=block, num_warps=_warps(block))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, head: Any) -> Any:
        (y,) = ctx.saved_tensors
        dx, block = torch.empty_like(y), triton.next_power_of_2(y.shape[1])
        _softmax_back[(y.shape[0],)](y, head, dx, y.shape[1], BLOCK=block, num_warps=_warps(block))
        return dx


class _LayerNorm(torch.autograd.Function):
    PROGRAMS = 264
    """Two for each multiprocessor of an H200: each adds up the gradients of the weights over its rows."""

    @staticmethod
    def forward(ctx: Any, x: Any, g: Any, b: Any) -> Any:
        rows, columns = x.shape
        y, means, inverses, block = torch.empty_like(x), x.new_empty(rows), x.new_empty(rows), triton.next_power_of_2(columns)
        _layer_norm[(rows,)](x, g, b, y, means, inverses, columns, 1e-5, BLOCK=block, num_warps=_warps(block))
        ctx.save_for_backward(x, g, means, inverses)
        return y

    @staticmethod
    def backward(ctx: Any, head: Any) -> Any:
        x, g, means, inverses = ctx.saved_tensors
        (rows, columns), block = x.shape, triton.next_power_of_2(x.shape[1])
        programs = min(rows, _LayerNorm.PROGRAMS)
        dx, dg, db = torch.empty_like(x), x.new_empty(programs, columns), x.new_empty(programs, columns)
        _layer_norm_back[(programs,)](
            x, g, head, means, inverses, dx, dg, db, rows, columns, PROGRAMS=programs, BLOCK=block, num_warps=_warps(block)
        )
        return dx, dg.sum(0), db.sum(0)


def _multiplied(a: Any, b: Any, precision: str) -> Any:
    (n, k), m = a.shape, b.shape[1]
    c = a.new_empty(n, m)
    tile = {"N": 128, "M": 256, "K": 64} if a.dtype == torch.bfloat16 else {"N": 128, "M": 128, "K": 32 if precision == "tf32" else 16}
    grid = (triton.cdiv(n, tile["N"]) * triton.cdiv(m, tile["M"]),)
    _product[grid](a, b, c, n, m, k, *a.stride(), *b.stride(), PRECISION=precision, **tile, GROUP=8, num_warps=8, num_stages=3)
    return c


class _Matmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Any, b: Any, precision: str) -> Any:
        ctx.save_for_backward(a, b)
        ctx.precision = precision
        return _multiplied(a, b, precision)

    @staticmethod
    def backward(ctx: Any, head: Any) -> Any:
        a, b = ctx.saved_tensors
        return _multiplied(head, b.T, ctx.precision), _multiplied(a.T, head, ctx.precision), None


def functions(precision: str | None) -> dict[str, Callable[..., Any]]:
    """By the keys of the workloads, on tensors of torch; multiplications of float32 in full unless "tf32" is asked for."""
    chosen = "tf32" if precision == "tf32" else "ieee"
    return {"softmax": _Softmax.apply, "layer_norm": _LayerNorm.apply, "matmul": lambda a, b: _Matmul.apply(a, b, chosen)}
