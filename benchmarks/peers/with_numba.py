"""Numba: loops by hand under `njit(parallel=True, fastmath=True)`, where loops are what one would write.

Gradients are by hand too, with the output, for the stencil, the correlation, the cumulative sum, the embedding and the small
matrix products. Compiled code is kept beside this file by Numba's own cache.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import njit, prange

_loops = njit(parallel=True, fastmath=True, cache=True)


@_loops
def _add(a, b):
    out = np.empty_like(a)
    for i in prange(a.shape[0]):
        out[i] = a[i] + b[i]
    return out


@_loops
def _bmm(a, b):
    count, n, k = a.shape
    m = b.shape[2]
    out = np.zeros((count, n, m), np.float32)
    for t in prange(count):
        for i in range(n):
            for r in range(k):
                for j in range(m):
                    out[t, i, j] += a[t, i, r] * b[t, r, j]
    return out


@_loops
def _bmm_gradient(a, b, head):
    count, n, k = a.shape
    m = b.shape[2]
    out = np.zeros((count, n, m), np.float32)
    a_bar = np.zeros(a.shape, np.float32)
    b_bar = np.zeros(b.shape, np.float32)
    for t in prange(count):
        for i in range(n):
            for r in range(k):
                total = np.float32(0)
                for j in range(m):
                    out[t, i, j] += a[t, i, r] * b[t, r, j]
                    total += head[t, i, j] * b[t, r, j]
                    b_bar[t, r, j] += a[t, i, r] * head[t, i, j]
                a_bar[t, i, r] = total
    return out, a_bar, b_bar


@_loops
def _gaussian(x, y, b):
    out = np.zeros((x.shape[0], b.shape[1]), np.float32)
    for i in prange(x.shape[0]):
        x0, x1, x2 = x[i, 0], x[i, 1], x[i, 2]
        total = np.float32(0)
        for j in range(y.shape[0]):
            d0, d1, d2 = x0 - y[j, 0], x1 - y[j, 1], x2 - y[j, 2]
            total += math.exp(-(d0 * d0 + d1 * d1 + d2 * d2)) * b[j, 0]
        out[i, 0] = total
    return out


@_loops
def _embedding(ids, table):
    out = np.empty((ids.shape[0], table.shape[1]), np.float32)
    for i in prange(ids.shape[0]):
        for c in range(table.shape[1]):
            out[i, c] = table[ids[i], c]
    return out


@_loops
def _embedding_gradient(ids, table, head):
    """Each thread adds up a stripe of the columns: no collisions."""
    out = np.empty((ids.shape[0], table.shape[1]), np.float32)
    table_bar = np.zeros(table.shape, np.float32)
    stripes = 4
    width = (table.shape[1] + stripes - 1) // stripes
    for stripe in prange(stripes):
        first, last = stripe * width, min((stripe + 1) * width, table.shape[1])
        for i in range(ids.shape[0]):
            for c in range(first, last):
                out[i, c] = table[ids[i], c]
                table_bar[ids[i], c] += head[i, c]
    return out, table_bar


@_loops
def _heat_step(u, v):
    h, l = u.shape
    for i in prange(h):
        if i == 0 or i == h - 1:
            v[i] = u[i]
        else:
            v[i, 0] = u[i, 0]
            v[i, l - 1] = u[i, l - 1]
            for j in range(1, l - 1):
                v[i, j] = u[i, j] + np.float32(0.2) * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - np.float32(4) * u[i, j])


@_loops
def _heat_step_gradient(g, v):
    """Gathers: the inner points receive from inner neighbours, the border keeps its own and receives from the inner ones."""
    h, l = g.shape
    for i in prange(h):
        for j in range(l):
            if 1 < i < h - 2 and 1 < j < l - 2:
                v[i, j] = g[i, j] + np.float32(0.2) * (g[i - 1, j] + g[i + 1, j] + g[i, j - 1] + g[i, j + 1] - np.float32(4) * g[i, j])
            else:
                inner = 0 < i < h - 1 and 0 < j < l - 1
                total = g[i, j] * (np.float32(0.2) if inner else np.float32(1))
                if 0 < j < l - 1:
                    if i > 1:
                        total += np.float32(0.2) * g[i - 1, j]
                    if i < h - 2:
                        total += np.float32(0.2) * g[i + 1, j]
                if 0 < i < h - 1:
                    if j > 1:
                        total += np.float32(0.2) * g[i, j - 1]
                    if j < l - 2:
                        total += np.float32(0.2) * g[i, j + 1]
                v[i, j] = total


def _steps(step: Callable[..., None], u: np.ndarray, steps: int) -> np.ndarray:
    out, other = np.empty_like(u), np.empty_like(u)
    step(u, out)
    for _ in range(steps - 1):
        step(out, other)
        out, other = other, out
    return out


def _heat(u: np.ndarray, steps: int = 10) -> np.ndarray:
    return _steps(_heat_step, u, steps)


def _heat_gradient(u: np.ndarray, head: np.ndarray, steps: int = 10) -> tuple[np.ndarray, ...]:
    return _steps(_heat_step, u, steps), _steps(_heat_step_gradient, head, steps)


@_loops
def _cumsum(x):
    out = np.empty_like(x)
    for i in prange(x.shape[0]):
        total = np.float32(0)
        for j in range(x.shape[1]):
            total += x[i, j]
            out[i, j] = total
    return out


@_loops
def _cumsum_gradient(x, head):
    out, x_bar = np.empty_like(x), np.empty_like(x)
    for i in prange(x.shape[0]):
        total, after = np.float32(0), np.float32(0)
        last = x.shape[1] - 1
        for j in range(x.shape[1]):
            total += x[i, j]
            out[i, j] = total
            after += head[i, last - j]
            x_bar[i, last - j] = after
    return out, x_bar


@_loops
def _correlation(a, b):
    channels, h, l = a.shape
    out = np.zeros((9, 9, h, l), np.float32)
    for y in prange(h):
        for u in range(max(0, 4 - y), min(9, h + 4 - y)):
            for v in range(9):
                for k in range(channels):
                    for z in range(max(0, 4 - v), min(l, l + 4 - v)):
                        out[u, v, y, z] += a[k, y, z] * b[k, y + u - 4, z + v - 4]
                for z in range(l):
                    out[u, v, y, z] /= channels
    return out


@_loops
def _correlation_gradient(a, b, head):
    channels, h, l = a.shape
    a_bar, b_bar = np.zeros_like(a), np.zeros_like(b)
    share = np.float32(1 / channels)
    for k in prange(channels):
        for y in range(h):
            for u in range(max(0, 4 - y), min(9, h + 4 - y)):
                for v in range(9):
                    for z in range(max(0, 4 - v), min(l, l + 4 - v)):
                        a_bar[k, y, z] += share * head[u, v, y, z] * b[k, y + u - 4, z + v - 4]
                        b_bar[k, y + u - 4, z + v - 4] += share * head[u, v, y, z] * a[k, y, z]
    return a_bar, b_bar


@_loops
def _bilateral(x):
    h, l = x.shape
    out = np.empty_like(x)
    for i in prange(h):
        total, value = np.zeros(l, np.float32), np.zeros(l, np.float32)
        for dy in range(-4, 5):
            y = min(max(i + dy, 0), h - 1)
            for dx in range(-4, 5):
                space = np.float32(0.05) * np.float32(dy * dy + dx * dx)
                for j in range(l):
                    near = x[y, min(max(j + dx, 0), l - 1)]
                    d = near - x[i, j]
                    weight = math.exp(np.float32(-0.5) * d * d - space)
                    total[j] += weight
                    value[j] += weight * near
        for j in range(l):
            out[i, j] = value[j] / total[j]
    return out


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": _add,
    "bmm": _bmm,
    "gaussian_product": _gaussian,
    "embedding": _embedding,
    "heat": _heat,
    "cumsum": lambda x, axis: _cumsum(x),
    "correlation": _correlation,
    "bilateral": _bilateral,
}
GRADIENTS: dict[str, Callable[..., Any]] = {
    "bmm": _bmm_gradient,
    "embedding": _embedding_gradient,
    "heat": _heat_gradient,
    "cumsum": lambda x, head, axis: _cumsum_gradient(x, head),
    "correlation": lambda a, b, head: (_correlation(a, b), *_correlation_gradient(a, b, head)),
}


def has(key: str, static: dict[str, Any], gradient: bool) -> bool:
    """Whether there are loops for the workload."""
    del static
    return key in (GRADIENTS if gradient else FUNCTIONS)


def candidate(key: str, static: dict[str, Any], arrays: Sequence[np.ndarray], head: np.ndarray | None) -> Callable[[], Any]:
    """The loops on the arrays, for output or for output and gradients."""
    if head is None:
        return functools.partial(FUNCTIONS[key], *arrays, **static)
    return functools.partial(GRADIENTS[key], *arrays, head, **static)
