"""Kernels large enough to be spread over threads: reductions, a softmax, a scatter, and their gradients, in inexact floats."""

from __future__ import annotations

import numpy as np

import tensorexpr as te


def large_kernels() -> list[tuple[te.op, tuple[np.ndarray, ...]]]:
    """Ops with their arguments."""
    rng = np.random.default_rng(7)

    @te.op
    def matmul(a, b):
        return te.compute((a.shape[0], b.shape[1]), lambda i, j: te.sum(lambda r: a[i, r] * b[r, j], a.shape[1]))

    @te.op
    def softmax(x):
        n, m = x.shape
        e = te.compute((n, m), lambda i, j: te.exp(x[i, j] - te.max(lambda k: x[i, k], m)))
        return te.compute((n, m), lambda i, j: e[i, j] / te.sum(lambda k: e[i, k], m))

    @te.op
    def total(x):
        return te.compute((), lambda: te.sum(lambda i, j: x[i, j] * x[i, j], x.shape))

    @te.op
    def histogram(x, ids):
        return te.scatter((50, x.shape[1]), lambda i, j: ((ids[i], j), x[i, j]), x.shape)

    @te.op
    def conv(x, w):
        n, c, h, l = x.shape
        k, _, r, s = w.shape
        return te.compute(
            (n, k, (h - r) // 2 + 1, (l - s) // 2 + 1),
            lambda n, k, y, z: te.sum(lambda c, i, j: x[n, c, 2 * y + i, 2 * z + j] * w[k, c, i, j], (c, r, s)),
        )

    @te.op
    def standardize(x):
        n, m = x.shape
        mean = te.compute((m,), lambda j: te.sum(lambda i: x[i, j], n) / n)
        variance = te.compute((m,), lambda j: te.sum(lambda i: (x[i, j] - mean[j]) ** 2, n) / n)
        return te.compute((n, m), lambda i, j: (x[i, j] - mean[j]) * te.rsqrt(variance[j] + 1e-5))

    a, b = (rng.standard_normal((300, 200)).astype(np.float32) for _ in range(2))
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((4, 8, 33, 31), (16, 8, 3, 3)))
    forward = [
        (matmul, (a, b.T.copy())), (softmax, (a,)), (total, (a,)), (standardize, (a,)),
        (histogram, (a, rng.integers(0, 50, 300))), (conv, (x, w)),
    ]  # fmt: skip
    return forward + [(te.vjp(op), (*arrays, np.ones_like(op(*arrays)))) for op, arrays in forward]


def large_results() -> list[np.ndarray]:
    """What the kernels give."""
    return [result for op, arrays in large_kernels() for result in as_tuple(op(*arrays))]


def as_tuple(results: np.ndarray | tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """The results of an op, in a tuple where there is one."""
    return results if isinstance(results, tuple) else (results,)
