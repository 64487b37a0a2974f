"""Kernels large enough to be spread over threads: reductions, a softmax, a scatter, in inexact floats."""

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

    a, b = (rng.standard_normal((300, 200)).astype(np.float32) for _ in range(2))
    return [(matmul, (a, b.T.copy())), (softmax, (a,)), (total, (a,)), (histogram, (a, rng.integers(0, 50, 300)))]


def large_results() -> list[np.ndarray]:
    """What the kernels give."""
    return [op(*arrays) for op, arrays in large_kernels()]
