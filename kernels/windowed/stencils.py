"""Stencils on regular grids: differences, smoothing, and steps of partial differential equations.

All act on some or all axes of a tensor of any rank, on which neighbors stand `spacing` apart. Beyond the edge stands what `mode`
says: "constant" (a value, 0 if not given), "edge", "reflect", "symmetric" or "wrap", as in `pad`; for a differential operator these
are a border held at a value, one without flux, mirrors in an element or between two, and a periodic grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import at_least, bad, is_int, known, one_of
from tensorexpr.kernels.conventions.axes import normalized
from tensorexpr.kernels.conventions.windows import linear, named
from tensorexpr.kernels.windowed.padding import border, padded

MODES = ("constant", "edge", "reflect", "symmetric", "wrap")


def _axes(axes: Any, x: te.Tensor) -> tuple[int, ...]:
    """`axes` (one, several, or None for all) counted from the front."""
    wanted = range(x.ndim) if axes is None else (axes,) if is_int(axes) else axes
    return tuple(dict.fromkeys(normalized(axis, x) for axis in wanted))


def _spacings(spacing: Any, count: int) -> tuple[float, ...]:
    """The distance of neighbors on each of `count` axes."""
    values = tuple(spacing) if isinstance(spacing, (tuple, list)) else (spacing,) * count
    if len(values) != count or any(isinstance(v, bool) or not isinstance(v, (int, float)) or v <= 0 for v in values):
        raise bad(f"spacing: expected a number above 0, or {count} of them, one per axis, got {spacing!r}")
    return values


def _moved(x: te.Tensor, at: Sequence[Any], axis: int, by: Any, mode: str, value: float) -> Any:
    """The element of `x` that stands `by` behind `at` on an axis."""
    place = [*at[:axis], at[axis] + by if not is_int(by) or by >= 0 else at[axis] - -by, *at[axis + 1 :]]
    return x.read(*place, outside=border(mode, value, x.dtype))


def _laplacian(x: te.Tensor, at: Sequence[Any], axes: Sequence[int], spacings: Sequence[float], mode: str, value: float) -> Any:
    """`sum_d (x[i + 1] - 2 * x[i] + x[i - 1]) / h ** 2` at an element, which is taken out once."""
    even = len(set(spacings)) == 1
    total: Any = None
    for axis, h in zip(axes, spacings, strict=True):
        pair = _moved(x, at, axis, 1, mode, value) + _moved(x, at, axis, -1, mode, value)
        pair = pair if even else pair / (h * h)
        total = pair if total is None else total + pair
    if even:
        total = total - x[tuple(at)] * (2 * len(axes))
        return total if spacings[0] == 1 else total / (spacings[0] * spacings[0])
    return total - x[tuple(at)] * sum(2 / (h * h) for h in spacings)


def _central(x: te.Tensor, at: Sequence[Any], axis: int, h: float, mode: str, value: float) -> Any:
    """`(x[i + 1] - x[i - 1]) / (2 * h)` at an element."""
    return (_moved(x, at, axis, 1, mode, value) - _moved(x, at, axis, -1, mode, value)) / (2 * h)


@te.op
def laplacian(x: te.Tensor, *, axes: Any = None, spacing: Any = 1.0, mode: str = "edge", value: float = 0.0) -> te.Tensor:
    """`y[i] = sum_d (x[i + e_d] - 2 * x[i] + x[i - e_d]) / h_d ** 2` over `axes` (None: all): 5 points of a plane, 7 of a volume.

    >>> kernels.laplacian(np.array([0.0, 1.0, 4.0, 9.0]))
    array([ 1.,  2.,  2., -5.])
    """
    one_of("mode", mode, MODES)
    chosen = _axes(axes, x)
    return te.compute(x.shape, lambda *i: _laplacian(x, i, chosen, _spacings(spacing, len(chosen)), mode, value))


@te.op
def spatial_gradient(
    x: te.Tensor, *, axes: Any = None, spacing: Any = 1.0, mode: str = "edge", value: float = 0.0
) -> tuple[te.Tensor, ...]:
    """Central differences, one tensor per axis of `axes` (None: all): `y_d[i] = (x[i + e_d] - x[i - e_d]) / (2 * h_d)`.

    With mode "one-sided" the outermost elements have the difference to their one neighbor over h, as `numpy.gradient` and
    `torch.gradient`; the axes then have at least 2 elements.

    >>> kernels.spatial_gradient(np.array([[0.0, 1.0, 2.0], [10.0, 11.0, 12.0]]))
    (array([[5., 5., 5.],
           [5., 5., 5.]]), array([[0.5, 1. , 0.5],
           [0.5, 1. , 0.5]]))
    """
    one_of("mode", mode, (*MODES, "one-sided"))
    chosen = _axes(axes, x)
    spacings = _spacings(spacing, len(chosen))
    if mode != "one-sided":
        return tuple(
            te.compute(x.shape, lambda *i, d=d, h=h: _central(x, i, d, h, mode, value)) for d, h in zip(chosen, spacings, strict=True)
        )
    short = [d for d in chosen if known(x.shape[d]) and x.shape[d] < 2]
    if short:
        raise bad(f"spatial_gradient: expected at least 2 elements along axis {short[0]}, got {x.shape[short[0]]}")

    def difference(i: Sequence[Any], d: int, h: float) -> Any:
        def at(place: Any) -> Any:
            return x[(*i[:d], place, *i[d + 1 :])]

        last = x.shape[d] - 1
        inner = te.where(i[d] == last, (at(last) - at(last - 1)) / h, (at(i[d] + 1) - at(i[d] - 1)) / (2 * h))
        return te.where(i[d] == 0, (at(1) - at(0)) / h, inner)

    return tuple(te.compute(x.shape, lambda *i, d=d, h=h: difference(i, d, h)) for d, h in zip(chosen, spacings, strict=True))


@te.op
def divergence(fields: te.Tensor, *, axes: Any = None, spacing: Any = 1.0, mode: str = "edge", value: float = 0.0) -> te.Tensor:
    """`y[i] = sum_d (fields[d][i + e_d] - fields[d][i - e_d]) / (2 * h_d)`: tensors of one shape, one per axis of `axes` (None: all).

    >>> kernels.divergence((np.array([0.0, 1.0, 4.0, 9.0]),))
    array([0.5, 2. , 4. , 2.5])
    """
    one_of("mode", mode, MODES)
    given = tuple(fields) if isinstance(fields, (tuple, list)) else (fields,)
    chosen = _axes(axes, given[0])
    if len(given) != len(chosen) or any(field.ndim != given[0].ndim for field in given):
        raise bad(f"divergence: expected {len(chosen)} fields of {given[0].ndim} axes, one per axis, got {len(given)}")
    spacings = _spacings(spacing, len(chosen))

    def element(*i: Any) -> Any:
        parts = [_central(field, i, d, h, mode, value) for field, d, h in zip(given, chosen, spacings, strict=True)]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    return te.compute(given[0].shape, element)


# ---------------------------------------------------------------------------------------------------- steps in time


def _heat(u: te.Tensor, rate: te.Tensor, axes: Sequence[int], mode: str, value: float, name: str | None = None) -> te.Tensor:
    if rate.ndim not in (0, u.ndim):
        raise bad(f"rate: expected a tensor without axes, or one of the {u.ndim} axes of {u.name}, got {rate.ndim}")

    def element(*i: Any) -> Any:
        return u[i] + rate[i if rate.ndim else ()] * _laplacian(u, i, axes, (1.0,) * len(axes), mode, value)

    return te.compute(u.shape, element, name=name)


@te.op
def heat_step(u: te.Tensor, rate: te.Tensor, *, axes: Any = None, mode: str = "edge", value: float = 0.0) -> te.Tensor:
    """An explicit step of the heat equation: `y = u + rate * laplacian(u)`, with `rate = diffusivity * dt / h ** 2`.

    `rate` is a tensor without axes or a value per element; the step is stable up to `1 / (2 * number of axes)`.

    >>> kernels.heat_step(np.array([0.0, 8.0, 0.0]), 0.25)
    array([2., 4., 2.])
    """
    one_of("mode", mode, MODES)
    return _heat(u, rate, _axes(axes, u), mode, value)


@te.op
def heat_steps(u: te.Tensor, rate: te.Tensor, *, steps: Any, axes: Any = None, mode: str = "edge", value: float = 0.0) -> te.Tensor:
    """The state after `steps` of `heat_step`, as one loop.

    >>> kernels.heat_steps(np.array([0.0, 8.0, 0.0]), 0.25, steps=2)
    array([2.5, 3. , 2.5])
    """
    one_of("mode", mode, MODES)
    at_least("steps", steps, 1)
    chosen = _axes(axes, u)
    states = te.scan(lambda _, state: _heat(state, rate, chosen, mode, value, "next"), u, steps, name="states")
    return te.compute(u.shape, lambda *i: states[(steps - 1, *i)])


def _wave(u: te.Tensor, before: te.Tensor, courant: te.Tensor, axes: Sequence[int], mode: str, value: float) -> te.Tensor:
    if courant.ndim not in (0, u.ndim):
        raise bad(f"courant: expected a tensor without axes, or one of the {u.ndim} axes of {u.name}, got {courant.ndim}")

    def element(*i: Any) -> Any:
        speed = te.square(courant[i if courant.ndim else ()])
        return 2 * u[i] - before[i] + speed * _laplacian(u, i, axes, (1.0,) * len(axes), mode, value)

    return te.compute(u.shape, element, name="next")


@te.op
def wave_step(
    u: te.Tensor, before: te.Tensor, courant: te.Tensor, *, axes: Any = None, mode: str = "constant", value: float = 0.0
) -> te.Tensor:
    """A leapfrog step of the wave equation: `y = 2 * u - before + courant ** 2 * laplacian(u)`, `courant = speed * dt / h`.

    `u` and `before` are the two latest states, `courant` a tensor without axes or a value per element.

    >>> u = np.array([0.0, 1.0, 0.0])
    >>> kernels.wave_step(u, u, 0.5)
    array([0.25, 0.5 , 0.25])
    """
    one_of("mode", mode, MODES)
    return _wave(u, before, courant, _axes(axes, u), mode, value)


@te.op
def wave_steps(
    u: te.Tensor, before: te.Tensor, courant: te.Tensor, *, steps: Any, axes: Any = None, mode: str = "constant", value: float = 0.0
) -> te.Tensor:
    """The state after `steps` of `wave_step`, as one loop.

    >>> u = np.array([0.0, 1.0, 0.0])
    >>> kernels.wave_steps(u, u, 0.5, steps=2)
    array([ 0.5  , -0.125,  0.5  ])
    """
    one_of("mode", mode, MODES)
    at_least("steps", steps, 1)
    chosen = _axes(axes, u)
    states, _ = te.scan(lambda _, s: (_wave(s[0], s[1], courant, chosen, mode, value), s[0]), (u, before), steps, name="states")
    return te.compute(u.shape, lambda *i: states[(steps - 1, *i)])


# ---------------------------------------------------------------------------------------------------- filters


def _weighted(x: te.Tensor, weights: te.Tensor, axes: Sequence[int], mode: str, value: float, name: str | None = None) -> te.Tensor:
    """`y[i] = sum_k weights[k] * x[i + k - K // 2]` over `axes`."""
    reach: dict[int, Any] = {d: (k // 2, (k - 1) // 2) for d, k in zip(axes, weights.shape, strict=True)}
    source = x if mode == "constant" else padded(x, reach, mode, name="padded")

    def element(*i: Any) -> Any:
        def tap(*k: Any) -> Any:
            at = list(i)
            for d, own in zip(axes, k, strict=True):
                at[d] = linear((i[d], 1), (own, 1), plus=-reach[d][0] if mode == "constant" else 0)
            return weights[k] * source.read(*at, outside=border("constant", value, x.dtype))

        return te.sum(named(tap, *(f"k{d}" for d in range(weights.ndim))), weights.shape)

    return te.compute(x.shape, element, name=name)


@te.op
def stencil(x: te.Tensor, weights: te.Tensor, *, axes: Any = None, mode: str = "constant", value: float = 0.0) -> te.Tensor:
    """`y[i] = sum_k weights[k] * x[i + k - K // 2]`: the correlation with any weights, of the extent of `x` (`scipy.ndimage.correlate`).

    `weights` has an axis for each of `axes` (None: the last ones of `x`), of extents known when the op is traced.

    >>> kernels.stencil(np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.0, -1.0]))
    array([-2., -2.,  2.])
    """
    one_of("mode", mode, MODES)
    chosen = _axes(tuple(range(-weights.ndim, 0)) if axes is None else axes, x)
    if len(chosen) != weights.ndim or not known(*weights.shape):
        raise bad(f"stencil: expected {len(chosen)} axes of weights, of known extents, got {weights}")
    return _weighted(x, weights, chosen, mode, value)


def _separable(x: te.Tensor, filters: dict[int, np.ndarray], mode: str, value: float) -> te.Tensor:
    """The filters one after the other, each along its axis."""
    for d, weights in filters.items():
        constant = te.constant(weights.astype(x.dtype.numpy), name="weights")
        x = _weighted(x, constant, (d,), mode, value, name=None if d == list(filters)[-1] else "rows")
    return x


@te.op
def sobel(x: te.Tensor, *, axis: Any = -1, axes: Any = (-2, -1), mode: str = "symmetric", value: float = 0.0) -> te.Tensor:
    """The Sobel derivative along `axis`: differences `[-1, 0, 1]` along it and means `[1, 2, 1]` along the others of `axes`.

    >>> kernels.sobel(np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]))
    array([[0., 4., 4.],
           [0., 4., 4.]])
    """
    one_of("mode", mode, MODES)
    along = normalized(axis, x)
    chosen = _axes(axes, x)
    if along not in chosen:
        raise bad(f"sobel: expected an axis among {tuple(axes)}, got {axis}")
    filters = {d: np.array([-1.0, 0.0, 1.0] if d == along else [1.0, 2.0, 1.0]) for d in chosen}
    return _separable(x, filters, mode, value)


@te.op
def box_blur(x: te.Tensor, *, size: Any = 3, axes: Any = (-2, -1), mode: str = "reflect", value: float = 0.0) -> te.Tensor:
    """The mean over `size` elements (odd) on each of `axes`, around each element.

    >>> kernels.box_blur(np.array([0.0, 3.0, 0.0]), axes=0)
    array([2., 1., 2.])
    """
    one_of("mode", mode, MODES)
    if at_least("size", size, 1) % 2 == 0:
        raise bad(f"size: expected an odd number, got {size}")
    return _separable(x, {d: np.full(size, 1 / size) for d in _axes(axes, x)}, mode, value)


@te.op
def gaussian_blur(
    x: te.Tensor, *, sigma: Any, size: Any = None, axes: Any = (-2, -1), mode: str = "reflect", value: float = 0.0
) -> te.Tensor:
    """A weighted mean over `size` elements (odd; None: within 4 sigma) on each of `axes`, by `exp(-k ** 2 / (2 * sigma ** 2))`.

    >>> kernels.gaussian_blur(np.array([0.0, 0.0, 1.0, 0.0, 0.0]), sigma=0.6, axes=0).round(4)
    array([0.0051, 0.1655, 0.6638, 0.1655, 0.0051])
    """
    one_of("mode", mode, MODES)
    if isinstance(sigma, bool) or not isinstance(sigma, (int, float)) or sigma <= 0:
        raise bad(f"sigma: expected a number above 0, got {sigma!r}")
    count = 2 * math.ceil(4 * sigma) + 1 if size is None else at_least("size", size, 1)
    if count % 2 == 0:
        raise bad(f"size: expected an odd number, got {size}")
    places = np.arange(count) - count // 2
    bell = np.exp(-0.5 * (places / sigma) ** 2)
    weights = bell / bell.sum()
    return _separable(x, {axis: weights for axis in _axes(axes, x)}, mode, value)
