"""Filters that keep edges: means over a window whose weights depend on the values.

Images are (N, C, H, W). Beyond the border the image is mirrored, the edge not repeated. Smooth
everywhere, so they may stand inside what is learned.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import at_least, bad, floating, known, ranked, shaped


def _positive(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise bad(f"{name}: expected a positive number, got {value!r}")
    return float(value)


def _bilateral(x: te.Tensor, guide: te.Tensor, radius: int, sigma_space: float, sigma_range: float) -> te.Tensor:
    ranked(x, 4)
    at_least("radius", radius, 0)
    space, value = _positive("sigma_space", sigma_space), _positive("sigma_range", sigma_range)
    n, _, height, width = x.shape
    side = 2 * radius + 1
    offsets = np.arange(-radius, radius + 1)
    near = te.constant(np.exp(-(offsets**2) / (2 * space**2)).astype(floating(x).numpy), name="near")

    def weight(n: Any, i: Any, j: Any, a: Any, b: Any) -> Any:
        def gap(c: Any) -> Any:
            return te.square(guide.read(n, c, i + a - radius, j + b - radius, outside="reflect") - guide[n, c, i, j])

        return near[a] * near[b] * te.exp(te.sum(gap, guide.shape[1]) * (-0.5 / value**2))

    total = te.compute((n, height, width), lambda n, i, j: te.sum(lambda a, b: weight(n, i, j, a, b), (side, side)), name="total")

    def mean(n: Any, c: Any, i: Any, j: Any) -> Any:
        def term(a: Any, b: Any) -> Any:
            return weight(n, i, j, a, b) * x.read(n, c, i + a - radius, j + b - radius, outside="reflect")

        return te.sum(term, (side, side)) / total[n, i, j]

    return te.compute(x.shape, mean)


@te.op
def bilateral_filter(x: te.Tensor, *, radius: Any, sigma_space: Any, sigma_range: Any) -> te.Tensor:
    """A mean over the window of `radius` whose weights fall with the distance in space and in value: smooth, but not over edges.

    `y[n, c, p] = sum_q w(p, q) x[n, c, q] / sum_q w(p, q)`,
    `w(p, q) = exp(-|p - q|^2 / (2 sigma_space^2) - sum_c (x[n, c, p] - x[n, c, q])^2 / (2 sigma_range^2))`. Tomasi, Manduchi 1998.

    >>> x = np.array([0.0, 0.0, 0.0, 9.0, 9.0]).reshape(1, 1, 1, 5)  # an edge
    >>> kernels.bilateral_filter(x, radius=1, sigma_space=1.0, sigma_range=0.1).round(4)  # stays
    array([[[[0., 0., 0., 9., 9.]]]])
    """
    return _bilateral(x, x, radius, sigma_space, sigma_range)


@te.op
def joint_bilateral_filter(x: te.Tensor, guide: te.Tensor, *, radius: Any, sigma_space: Any, sigma_range: Any) -> te.Tensor:
    """`bilateral_filter` of x (N, C, H, W) with the values of `guide` (N, G, H, W) in the weights. Petschnigg et al. 2004.

    >>> x = np.array([0.0, 1.0, 8.0, 9.0]).reshape(1, 1, 1, 4)
    >>> edge = np.array([0.0, 0.0, 9.0, 9.0]).reshape(1, 1, 1, 4)
    >>> kernels.joint_bilateral_filter(x, edge, radius=1, sigma_space=1e3, sigma_range=0.1).round(4)  # means of either side
    array([[[[0.6667, 0.5   , 8.5   , 8.3333]]]])
    """
    ranked(guide, 4)
    shaped(guide, (x.shape[0], guide.shape[1], *x.shape[2:]), "batch and places of x")
    return _bilateral(x, guide, radius, sigma_space, sigma_range)


@te.op
def guided_filter(guide: te.Tensor, x: te.Tensor, *, radius: Any, eps: Any) -> te.Tensor:
    """x as a linear function of the guide in each window of `radius`, averaged over the windows that hold a point.

    `a = cov(guide, x) / (var(guide) + eps)`, `b = mean(x) - a mean(guide)` over the window around each point (at the border what there
    is of it), `y = mean(a) guide + mean(b)`. x (N, C, H, W), guide of that shape or (N, 1, H, W). He, Sun, Tang 2010.

    >>> x = np.array([0.0, 0.0, 9.0, 9.0]).reshape(1, 1, 1, 4)
    >>> kernels.guided_filter(x, x, radius=1, eps=1e-9).round(4)
    array([[[[0., 0., 9., 9.]]]])
    """
    ranked(x, 4)
    ranked(guide, 4)
    at_least("radius", radius, 0)
    eps = _positive("eps", eps)
    single = known(guide.shape[1]) and guide.shape[1] == 1
    shaped(guide, (x.shape[0], 1, *x.shape[2:]) if single else x.shape, "that of x, or one channel")
    height, width = x.shape[2:]
    side = 2 * radius + 1

    def own(c: Any) -> Any:
        return 0 if single else c

    def over(i: Any, j: Any, term: Any) -> Any:
        """The mean of `term(p, q)` over the points (p, q) of the window around (i, j)."""

        def inside(a: Any, b: Any) -> Any:
            p, q = i + a - radius, j + b - radius
            return (p >= 0) & (p < height) & (q >= 0) & (q < width)

        total = te.sum(lambda a, b: term(i + a - radius, j + b - radius), (side, side), where=inside)
        return total / (_inside(i, height, radius, x) * _inside(j, width, radius, x))

    level = te.compute(guide.shape, lambda n, c, i, j: over(i, j, lambda p, q: guide[n, c, p, q]), name="level")
    mean = te.compute(x.shape, lambda n, c, i, j: over(i, j, lambda p, q: x[n, c, p, q]), name="mean")
    variance = te.compute(
        guide.shape, lambda n, c, i, j: over(i, j, lambda p, q: te.square(guide[n, c, p, q] - level[n, c, i, j])), name="variance"
    )  # fmt: skip
    shared = te.compute(
        x.shape,
        lambda n, c, i, j: over(i, j, lambda p, q: (guide[n, own(c), p, q] - level[n, own(c), i, j]) * (x[n, c, p, q] - mean[n, c, i, j])),
        name="shared",
    )
    slope = te.compute(x.shape, lambda n, c, i, j: shared[n, c, i, j] / (variance[n, own(c), i, j] + eps), name="slope")
    base = te.compute(x.shape, lambda n, c, i, j: mean[n, c, i, j] - slope[n, c, i, j] * level[n, own(c), i, j], name="base")
    return te.compute(
        x.shape,
        lambda n, c, i, j: over(i, j, lambda p, q: slope[n, c, p, q]) * guide[n, own(c), i, j] + over(i, j, lambda p, q: base[n, c, p, q]),
    )


def _inside(i: Any, extent: Any, radius: int, x: te.Tensor) -> Any:
    """How many points of the window around i there are."""
    return te.cast(te.minimum(i + radius, extent - 1) - te.maximum(i - radius, 0) + 1, x.dtype)


@te.op
def non_local_means(x: te.Tensor, *, patch_radius: Any, search_radius: Any, strength: Any) -> te.Tensor:
    """A mean over the search window whose weights fall with the mean squared difference of the patches around the points.

    `y[n, c, p] = sum_q w(p, q) x[n, c, q] / sum_q w(p, q)`,
    `w(p, q) = exp(-mean over c, o of (x[n, c, p + o] - x[n, c, q + o])^2 / strength^2)`. Buades, Coll, Morel 2005.

    >>> x = np.array([0.0, 0.0, 9.0, 9.0]).reshape(1, 1, 1, 4)
    >>> kernels.non_local_means(x, patch_radius=0, search_radius=1, strength=0.1).round(4)
    array([[[[0., 0., 9., 9.]]]])
    """
    ranked(x, 4)
    patch = 2 * at_least("patch_radius", patch_radius, 0) + 1
    search = 2 * at_least("search_radius", search_radius, 0) + 1
    strength = _positive("strength", strength)
    n, channels, height, width = x.shape
    scale = 1.0 / strength**2

    def weight(n: Any, i: Any, j: Any, a: Any, b: Any) -> Any:
        def gap(c: Any, u: Any, v: Any) -> Any:
            p, q = i + u - patch_radius, j + v - patch_radius
            here = x.read(n, c, p, q, outside="reflect")
            return te.square(here - x.read(n, c, p + a - search_radius, q + b - search_radius, outside="reflect"))

        mean = te.sum(gap, (channels, patch, patch)) / te.cast(channels * patch**2, x.dtype)
        return te.exp(-scale * mean)

    weights = te.compute((n, height, width, search, search), weight, name="weights")
    total = te.compute((n, height, width), lambda *p: te.sum(lambda a, b: weights[(*p, a, b)], (search, search)), name="total")

    def mean(n: Any, c: Any, i: Any, j: Any) -> Any:
        def term(a: Any, b: Any) -> Any:
            return weights[n, i, j, a, b] * x.read(n, c, i + a - search_radius, j + b - search_radius, outside="reflect")

        return te.sum(term, (search, search)) / total[n, i, j]

    return te.compute(x.shape, mean)
