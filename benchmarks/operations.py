"""The operations that are timed, in index notation, beside what one writes in NumPy for value and gradient.

Gradients are of sum(output * head) with respect to every floating input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr.benchmarks.harness import Workload


@te.op
def matmul(a, b):
    """a[i, k] b[k, j]."""
    (n, k), (_, m) = a.shape, b.shape
    return te.compute((n, m), lambda i, j: te.sum(lambda r: a[i, r] * b[r, j], k))


@te.op
def conv2d(x, w):
    """3 x 3 convolution, stride 1, no padding, NCHW."""
    n, c, h, l = x.shape
    k, _, r, s = w.shape
    return te.compute(
        (n, k, h - r + 1, l - s + 1),
        lambda n, k, y, z: te.sum(lambda c, i, j: x[n, c, y + i, z + j] * w[k, c, i, j], (c, r, s)),
    )


@te.op
def softmax(x):
    """exp(x - max) / sum along the last axis."""
    n, m = x.shape
    top = te.compute((n,), lambda i: te.max(lambda k: x[i, k], m), name="top")
    e = te.compute((n, m), lambda i, j: te.exp(x[i, j] - top[i]), name="e")
    total = te.compute((n,), lambda i: te.sum(lambda k: e[i, k], m), name="total")
    return te.compute((n, m), lambda i, j: e[i, j] / total[i])


@te.op
def max_pool(x):
    """The maximum of each 2 x 2 block."""
    n, c, h, l = x.shape
    return te.compute((n, c, h // 2, l // 2), lambda n, c, y, z: te.max(lambda i, j: x[n, c, 2 * y + i, 2 * z + j], (2, 2)))


def numpy_softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def numpy_softmax_gradient(x: np.ndarray, head: np.ndarray) -> tuple[np.ndarray, ...]:
    y = numpy_softmax(x)
    return (y * (head - (head * y).sum(1, keepdims=True)),)


def _windows(x: np.ndarray, size: int) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(2, 3))


def numpy_conv2d(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Windows and one BLAS product, the fast way to write it."""
    return np.moveaxis(np.tensordot(_windows(x, 3), w, ((1, 4, 5), (1, 2, 3))), 3, 1)


def numpy_conv2d_gradient(x: np.ndarray, w: np.ndarray, head: np.ndarray) -> tuple[np.ndarray, ...]:
    w_bar = np.tensordot(head, _windows(x, 3), ((0, 2, 3), (0, 2, 3)))
    padded = np.pad(head, ((0, 0), (0, 0), (2, 2), (2, 2)))
    x_bar = np.moveaxis(np.tensordot(_windows(padded, 3), w[:, :, ::-1, ::-1], ((1, 4, 5), (0, 2, 3))), 3, 1)
    return x_bar, w_bar


def _blocks(x: np.ndarray) -> np.ndarray:
    n, c, h, l = x.shape
    return x.reshape(n, c, h // 2, 2, l // 2, 2).swapaxes(3, 4).reshape(n, c, h // 2, l // 2, 4)


def numpy_max_pool(x: np.ndarray) -> np.ndarray:
    return np.maximum(np.maximum(x[:, :, ::2, ::2], x[:, :, ::2, 1::2]), np.maximum(x[:, :, 1::2, ::2], x[:, :, 1::2, 1::2]))


def numpy_max_pool_gradient(x: np.ndarray, head: np.ndarray) -> tuple[np.ndarray, ...]:
    n, c, h, l = x.shape
    blocks = _blocks(x)
    out = np.zeros_like(blocks)
    np.put_along_axis(out, blocks.argmax(-1)[..., None], head[..., None], -1)
    return (out.reshape(n, c, h // 2, l // 2, 2, 2).swapaxes(3, 4).reshape(x.shape),)


def _case(
    name: str, op: Any, forward: Callable[..., Any], backward: Callable[..., Any], shapes: list[tuple[int, ...]], operations: int
) -> list[Workload]:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    head = rng.standard_normal(np.shape(forward(*arrays))).astype(np.float32)
    moved = sum(a.nbytes for a in arrays)
    vjp = te.vjp(op)
    return [
        Workload(
            name,
            {"numpy": lambda: forward(*arrays), "tensorexpr": lambda: op(*arrays)},
            operations,
            moved + head.nbytes,
        ),
        Workload(
            f"{name} gradient",
            {"numpy": lambda: backward(*arrays, head), "tensorexpr": lambda: _as_tuple(vjp(*arrays, head))},
            2 * operations,
            2 * moved + head.nbytes,
        ),
    ]


def _as_tuple(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def workloads() -> list[Workload]:
    """The workloads of the CPU table: matmul, convolution, softmax, max-pool, forward and gradient, float32."""
    return [
        *_case("matmul 512", matmul, np.matmul, lambda a, b, h: (h @ b.T, a.T @ h), [(512, 512), (512, 512)], 2 * 512**3),
        *_case(
            "conv 3x3 8x32x28x28 -> 32",
            conv2d, numpy_conv2d, numpy_conv2d_gradient, [(8, 32, 28, 28), (32, 32, 3, 3)], 2 * 8 * 32 * 26 * 26 * 32 * 9,
        ),
        *_case("softmax 1024x1024", softmax, numpy_softmax, numpy_softmax_gradient, [(1024, 1024)], 5 * 1024**2),
        *_case("max-pool 2x2 8x64x56x56", max_pool, numpy_max_pool, numpy_max_pool_gradient, [(8, 64, 56, 56)], 3 * 8 * 64 * 28 * 28),
    ]  # fmt: skip
