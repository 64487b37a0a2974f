"""All pairs of points: distances, kernel products and what is built of them, in the manner of KeOps.

Points are rows: x (..., N, D), y (..., M, D). A product with a kernel, `sum_j k(x_i, y_j) b_j`, is one definition in which the pairs
are summed as they are computed: forward, no tensor of N x M is stored. Distances are sums of squared differences, not of Gram's
products, so near points do not cancel. At distance 0 roots have gradient 0, as in PyTorch.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import at_least_axes, bad, known, ranked, same_extent, shaped
from tensorexpr.kernels.conventions.broadcasting import broadcast_shape, is_one
from tensorexpr.kernels.reductions.norms import norm


def _points(name: str, x: te.Tensor, y: te.Tensor) -> None:
    """x and y are points of one dimension, in batches of one shape."""
    at_least_axes(name, x, 2, "..., points, coordinates")
    if x.ndim != y.ndim:
        raise bad(f"{name}: expected x and y of one rank, got {x.shape} and {y.shape}")
    for axis in (*range(x.ndim - 2), x.ndim - 1):
        same_extent(f"axis {axis} of {y.name}", y.shape[axis], x.shape[axis])


def _root(square: Any) -> Any:
    """The root, with gradient 0 at 0."""
    return te.where(square > 0, te.sqrt(square), 0.0)


def _squares(x: te.Tensor, y: te.Tensor) -> Callable[..., Any]:
    """The squared distance of the points i of x and j of y, at an index of the batch."""
    return lambda b, i, j: te.sum(lambda k: te.square(x[(*b, i, k)] - y[(*b, j, k)]), x.shape[-1])


@te.op
def squared_distance(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`r[.., i, j] = sum_k (x[.., i, k] - y[.., j, k])^2` for x (..., N, D), y (..., M, D).

    >>> kernels.squared_distance(np.array([[0.0, 0.0], [3.0, 0.0]]), np.array([[3.0, 4.0]]))
    array([[25.],
           [16.]])
    """
    _points("squared_distance", x, y)
    square = _squares(x, y)
    return te.compute((*x.shape[:-1], y.shape[-2]), lambda *i: square(i[:-2], i[-2], i[-1]))


@te.op
def cdist(x: te.Tensor, y: te.Tensor, *, p: float = 2.0, compute_mode: str | None = None) -> te.Tensor:
    """`r[.., i, j] = (sum_k |x[.., i, k] - y[.., j, k]|^p)^(1/p)`, `p` positive or inf; x (..., N, D), y (..., M, D).

    p = 0 counts the coordinates that differ. At a distance of 0 the gradient is 0; for p = inf the first of equal coordinates gets it.
    Batches are broadcast. `compute_mode` is PyTorch's and changes nothing: distances are sums of squared differences.

    >>> kernels.cdist(np.array([[0.0, 0.0], [3.0, 0.0]]), np.array([[3.0, 4.0]]))
    array([[5.],
           [4.]])
    """
    for points in (x, y):
        at_least_axes("cdist", points, 2, "..., points, coordinates")
    same_extent(f"axis {y.ndim - 1} of {y.name}", y.shape[-1], x.shape[-1])
    batch = broadcast_shape("cdist", x.shape[:-2], y.shape[:-2])
    if isinstance(p, bool) or not isinstance(p, (int, float)) or not p >= 0:
        raise bad(f"p: expected a number of at least 0 or infinity, got {p!r}")

    def gap(i: tuple[Any, ...], k: Any) -> Any:
        return read(x, i[:-2], i[-2], k) - read(y, i[:-2], i[-1], k)

    def read(points: te.Tensor, b: tuple[Any, ...], i: Any, k: Any) -> Any:
        own = zip(points.shape[:-2], b[len(b) - points.ndim + 2 :], strict=True)
        return points[(*(0 if is_one(n) else j for n, j in own), i, k)]

    shape, features = (*batch, x.shape[-2], y.shape[-2]), x.shape[-1]
    if p == 0:
        return te.compute(shape, lambda *i: te.sum(lambda k: te.cast(gap(i, k) != 0, x.dtype), features))
    if p == 1:
        return te.compute(shape, lambda *i: te.sum(lambda k: te.abs(gap(i, k)), features))
    if p == math.inf:
        return te.compute(shape, lambda *i: te.max(lambda k: te.abs(gap(i, k)), features))

    def term(value: Any) -> Any:
        return te.square(value) if p == 2 else te.where(value == 0, 0.0, te.power(te.abs(value), p))

    total = te.compute(shape, lambda *i: te.sum(lambda k: term(gap(i, k)), features), name="total")
    if p == 2:
        return te.compute(shape, lambda *i: _root(total[i]))
    return te.compute(shape, lambda *i: te.where(total[i] > 0, te.power(total[i], 1 / p), 0.0))


@te.op
def pdist(x: te.Tensor, *, p: float = 2.0) -> te.Tensor:
    """`cdist(x, x)` above the diagonal, row by row, as one vector: the distances of all pairs of rows of a matrix.

    >>> kernels.pdist(np.array([[0.0], [1.0], [3.0]]))
    array([1., 3., 2.])
    """
    ranked(x, 2)
    rows = x.shape[0]
    if not known(rows):
        raise bad(f"pdist: expected a number of rows known when the op is traced, got {x.shape}")
    if isinstance(p, bool) or not isinstance(p, (int, float)) or not p >= 0:
        raise bad(f"p: expected a number of at least 0 or infinity, got {p!r}")
    pairs = list(itertools.combinations(range(rows), 2))
    first, second = (te.constant(np.array([pair[k] for pair in pairs], "int64")) for k in (0, 1))
    apart = te.compute((len(pairs), x.shape[1]), lambda n, k: x[first[n], k] - x[second[n], k], name="apart")
    return norm.function(apart, p=p, axis=1)


# --------------------------------------------------------------------------------------------------- kernel products


def _product(name: str, x: te.Tensor, y: te.Tensor, b: te.Tensor, kernel: Callable[[Any], Any]) -> te.Tensor:
    """`z[.., i, c] = sum_j kernel(|x_i - y_j|^2) b[.., j, c]`, summed as the pairs are computed; b may have no last axis."""
    _points(name, x, y)
    vector = b.ndim == x.ndim - 1
    if not vector and b.ndim != x.ndim:
        raise bad(f"{name}: expected b of shape {y.shape[:-1]}, or with an axis more, got {b.shape}")
    for axis in range(x.ndim - 1):
        same_extent(f"axis {axis} of {b.name}", b.shape[axis], y.shape[axis])
    square, lead = _squares(x, y), x.ndim - 2

    def value(*i: Any) -> Any:
        return te.sum(lambda j: kernel(square(i[:lead], i[lead], j)) * b[(*i[:lead], j, *i[lead + 1 :])], y.shape[-2])

    return te.compute((*x.shape[:-1], *b.shape[lead + 1 :]), value)


@te.op
def gaussian_product(x: te.Tensor, y: te.Tensor, b: te.Tensor, *, gamma: float = 1.0) -> te.Tensor:
    """`z[.., i, c] = sum_j exp(-gamma * |x_i - y_j|^2) b[.., j, c]`; x (..., N, D), y (..., M, D), b (..., M) or (..., M, C).

    >>> x, y = np.array([[0.0]]), np.array([[0.0], [1.0]])
    >>> kernels.gaussian_product(x, y, np.array([1.0, 1.0])).round(4)  # 1 + exp(-1)
    array([1.3679])
    """
    return _product("gaussian_product", x, y, b, lambda square: te.exp(-gamma * square))


@te.op
def laplacian_product(x: te.Tensor, y: te.Tensor, b: te.Tensor, *, gamma: float = 1.0) -> te.Tensor:
    """`z[.., i, c] = sum_j exp(-gamma * |x_i - y_j|) b[.., j, c]`; shapes as in `gaussian_product`.

    >>> x, y = np.array([[0.0]]), np.array([[0.0], [2.0]])
    >>> kernels.laplacian_product(x, y, np.array([1.0, 1.0])).round(4)  # 1 + exp(-2)
    array([1.1353])
    """
    return _product("laplacian_product", x, y, b, lambda square: te.exp(-gamma * _root(square)))


@te.op
def cauchy_product(x: te.Tensor, y: te.Tensor, b: te.Tensor, *, gamma: float = 1.0) -> te.Tensor:
    """`z[.., i, c] = sum_j b[.., j, c] / (1 + gamma * |x_i - y_j|^2)`; shapes as in `gaussian_product`.

    >>> x, y = np.array([[0.0]]), np.array([[0.0], [1.0]])
    >>> kernels.cauchy_product(x, y, np.array([1.0, 1.0]))  # 1 + 1 / 2
    array([1.5])
    """
    return _product("cauchy_product", x, y, b, lambda square: 1.0 / (1.0 + gamma * square))


def _log_sum(x: te.Tensor, y: te.Tensor, exponent: Callable[[Any, Any, Any], Any]) -> te.Tensor:
    """`l[.., i] = log sum_j exp(exponent(b, i, j))`, stable, in two passes over the pairs."""
    rows, columns = x.shape[:-1], y.shape[-2]
    top = te.compute(rows, lambda *i: te.max(lambda j: exponent(i[:-1], i[-1], j), columns), name="top")
    top = te.stop_gradient(top)
    total = te.compute(rows, lambda *i: te.sum(lambda j: te.exp(exponent(i[:-1], i[-1], j) - top[i]), columns), name="total")
    return te.compute(rows, lambda *i: top[i] + te.log(total[i]))


@te.op
def gaussian_logsumexp(x: te.Tensor, y: te.Tensor, b: te.Tensor, *, gamma: float = 1.0) -> te.Tensor:
    """`z[.., i] = log sum_j exp(b[.., j] - gamma * |x_i - y_j|^2)`, stable; x (..., N, D), y (..., M, D), b (..., M).

    >>> x, y = np.array([[0.0]]), np.array([[0.0], [1.0]])
    >>> kernels.gaussian_logsumexp(x, y, np.array([0.0, 0.0])).round(4)  # log(1 + exp(-1))
    array([0.3133])
    """
    _points("gaussian_logsumexp", x, y)
    shaped(b, y.shape[:-1], "one number per point of y")
    square = _squares(x, y)
    return _log_sum(x, y, lambda p, i, j: b[(*p, j)] - gamma * square(p, i, j))


@te.op
def sinkhorn_step(x: te.Tensor, y: te.Tensor, g: te.Tensor, log_weight: te.Tensor, *, eps: Any) -> te.Tensor:
    """Half a step of Sinkhorn's iteration for the cost `|x_i - y_j|^2 / 2` and entropy `eps`: the potential f of the points x from g of y.

    `f[.., i] = -eps log sum_j exp(log_weight[.., j] + (g[.., j] - |x_i - y_j|^2 / 2) / eps)`; x (..., N, D), y (..., M, D), the others
    (..., M). Cuturi 2013; Feydy et al. 2019.

    >>> x, y = np.array([[0.0], [1.0]]), np.array([[0.0], [1.0]])
    >>> kernels.sinkhorn_step(x, y, np.array([0.0, 0.0]), np.log(np.array([0.5, 0.5])), eps=0.1).round(4)
    array([0.0686, 0.0686])
    """
    _points("sinkhorn_step", x, y)
    shaped(g, y.shape[:-1], "one potential per point of y")
    shaped(log_weight, y.shape[:-1], "one weight per point of y")
    if isinstance(eps, bool) or not isinstance(eps, (int, float)) or not eps > 0:
        raise bad(f"eps: expected a positive number, got {eps!r}")
    square = _squares(x, y)
    sums = _log_sum(x, y, lambda p, i, j: log_weight[(*p, j)] + (g[(*p, j)] - 0.5 * square(p, i, j)) / eps)
    return te.compute(sums.shape, lambda *i: -eps * sums[i])


# ------------------------------------------------------------------------------------------------- nearest and means


def _nearest(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    square = _squares(x, y)
    return te.compute(x.shape[:-1], lambda *i: te.argmin(lambda j: square(i[:-1], i[-1], j), y.shape[-2]), name="nearest")


@te.op
def nearest_neighbor(x: te.Tensor, y: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    """`(indices, distances)`: for each point of x the nearest of y (the first of equals, int64), and the squared distance to it.

    Differentiable by the distances. x (..., N, D), y (..., M, D).

    >>> kernels.nearest_neighbor(np.array([[0.0], [5.0]]), np.array([[4.0], [1.0]]))
    (array([1, 0]), array([1., 1.]))
    """
    _points("nearest_neighbor", x, y)
    square = _squares(x, y)
    distance = te.compute(x.shape[:-1], lambda *i: te.min(lambda j: square(i[:-1], i[-1], j), y.shape[-2]))
    return _nearest(x, y), distance


@te.op
def kmeans_step(x: te.Tensor, centers: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    """`(new_centers, labels)`: each point of x (N, D) goes to the nearest of the centers (K, D), which move to the mean of theirs.

    A center without points stays. Lloyd 1982.

    >>> kernels.kmeans_step(np.array([[0.0], [2.0], [9.0]]), np.array([[0.0], [8.0]]))
    (array([[1.],
           [9.]]), array([0, 0, 1]))
    """
    ranked(x, 2)
    _points("kmeans_step", x, centers)
    labels = _nearest(x, centers)
    count = te.scatter(centers.shape[:1], lambda i: (labels[i], 1), x.shape[:1], name="count")
    total = te.scatter(centers.shape, lambda i, k: ((labels[i], k), x[i, k]), x.shape, name="total")
    moved = te.compute(
        centers.shape, lambda c, k: te.where(count[c] > 0, total[c, k] / te.cast(te.maximum(count[c], 1), x.dtype), centers[c, k])
    )  # fmt: skip
    return moved, labels


@te.op
def soft_dtw(cost: te.Tensor, *, gamma: float = 1.0) -> te.Tensor:
    """Soft dynamic time warping: the soft minimum, over the paths from (0, 0) to (N - 1, M - 1), of the sum of `cost` along them.

    `r[i, j] = cost[i, j] - gamma log(exp(-r[i-1, j] / gamma) + exp(-r[i, j-1] / gamma) + exp(-r[i-1, j-1] / gamma))`; the result is
    `r[N-1, M-1]` of each matrix of cost (..., N, M). One scan over the antidiagonals, each computed at once. Cuturi, Blondel 2017.

    >>> float(kernels.soft_dtw(np.array([[0.0, 1.0], [1.0, 0.0]]), gamma=0.01).round(4))  # along the diagonal
    0.0
    """
    at_least_axes("soft_dtw", cost, 2, "..., rows, columns")
    if isinstance(gamma, bool) or not isinstance(gamma, (int, float)) or not gamma > 0:
        raise bad(f"gamma: expected a positive number, got {gamma!r}")
    *batch, rows, columns = cost.shape
    line = (*batch, rows)
    far = te.cast(math.inf, cost.dtype)

    def step(t: Any, state: tuple[te.Tensor, te.Tensor]) -> tuple[te.Tensor, te.Tensor]:
        """The antidiagonal t by row, from the two before it; what lies outside is infinite."""
        last, before = state

        def element(*p: Any) -> Any:
            *b, i = p
            j = t - i
            above = te.where(i > 0, last[(*b, te.maximum(i - 1, 0))], far)
            corner = te.where(i > 0, before[(*b, te.maximum(i - 1, 0))], far)
            left = last[p]
            least = te.minimum(te.minimum(above, left), corner)
            total = te.exp((least - above) / gamma) + te.exp((least - left) / gamma) + te.exp((least - corner) / gamma)
            value = cost[(*b, i, te.clip(j, 0, columns - 1))]
            path = te.where(t == 0, value, value + least - gamma * te.log(total))
            return te.where((j >= 0) & (j < columns), path, far)

        return te.compute(line, element), te.compute(line, lambda *p: last[p])

    start = tuple(te.compute(line, lambda *p: far, name=name) for name in ("last_start", "before_start"))
    lasts, _ = te.scan(step, start, rows + columns - 1, name=("lasts", "befores"))
    return te.compute(tuple(batch), lambda *b: lasts[(rows + columns - 2, *b, rows - 1)])
