"""Resampling of grids: Resize in all its modes, GridSample, affine grids, regions of interest.

What a resized axis reads is known while a model is read: for each output a few places and their weights, two tables of constants made
here in float64. An axis that stays is not touched, the others go one after another, as filters that are products do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorexpr import language
from tensorexpr.interop.onnx.operators.common import axes_of, cast_to, integers, sizes
from tensorexpr.interop.onnx.table import Known, operator
from tensorexpr.interop.onnx.values import spend
from tensorexpr.language import Tensor, cast, compute, constant


def _positions(mode: str, count: int, extent: int, scale: float, length: float, roi: tuple[float, float]) -> np.ndarray:
    """Where outputs stand among the elements of an axis; `length` is the number of outputs before it was rounded."""
    o = np.arange(count, dtype=np.float64)
    match mode:
        case "half_pixel":
            return (o + 0.5) / scale - 0.5
        case "half_pixel_symmetric":
            adjusted = count / length
            return extent / 2 * (1 - adjusted) + (o + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return (o + 0.5) / scale - 0.5 if count > 1 else np.zeros(count)
        case "align_corners":
            return o * (extent - 1) / (length - 1) if length != 1 else np.zeros(count)
        case "asymmetric":
            return o / scale
        case "tf_half_pixel_for_nn":
            return (o + 0.5) / scale
        case "tf_crop_and_resize":
            start, end = roi
            if count > 1:
                return start * (extent - 1) + o * (end - start) * (extent - 1) / (count - 1)
            return np.full(count, 0.5 * (start + end) * (extent - 1))
    raise ValueError(f"coordinate_transformation_mode {mode}")


def _nearest(at: np.ndarray, rounding: str) -> np.ndarray:
    match rounding:
        case "round_prefer_floor":
            return np.ceil(at - 0.5)
        case "round_prefer_ceil":
            return np.floor(at + 0.5)
        case "floor":
            return np.floor(at)
        case "ceil":
            return np.ceil(at)
    raise ValueError(f"nearest_mode {rounding}")


def _cubic(d: np.ndarray, a: float) -> np.ndarray:
    d = np.abs(d)
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _taps(at: np.ndarray, extent: int, mode: str, rounding: str, a: float, outside: bool, stretch: float) -> tuple[np.ndarray, np.ndarray]:
    """The places that each output reads, held in the axis, and their weights."""
    if mode == "nearest":
        places = _nearest(at, rounding)[:, None]
        return np.clip(places, 0, extent - 1).astype(np.int64), np.ones(places.shape)
    reach = (1 if mode == "linear" else 2) * stretch
    first = np.floor(at - reach) + 1
    count = math.ceil(2 * reach) + (1 if stretch > 1 else 0)
    places = first[:, None] + np.arange(count)
    distance = (places - at[:, None]) / stretch
    weights = np.maximum(1 - np.abs(distance), 0) if mode == "linear" else _cubic(distance, a)
    if outside:  # as if there were no elements beyond the axis
        weights = np.where((places < 0) | (places > extent - 1), 0.0, weights)
    if outside or stretch > 1:
        total = weights.sum(1, keepdims=True)
        weights = weights / np.where(total == 0, 1, total)
    return np.clip(places, 0, extent - 1).astype(np.int64), weights


def _along(x: Tensor, axis: int, places: np.ndarray, weights: np.ndarray, lost: np.ndarray | None, value: float) -> Tensor:
    """An axis of a tensor resampled; where outputs are lost they are `value`."""
    index, count = constant(places), places.shape[1]
    beyond = None if lost is None or not lost.any() else constant(lost)
    wide = x.dtype if x.dtype.is_float and x.dtype.bits >= 32 else "float32"
    factors = constant(weights.astype(np.float64 if x.dtype == "float64" else np.float32))
    plain = count == 1 and bool((weights == 1).all())

    def element(*i: Any) -> Any:
        def read(k: Any) -> Any:
            return x[(*i[:axis], index[i[axis], k], *i[axis + 1 :])]

        found = read(0) if plain else language.sum(lambda k: cast(read(k), wide) * factors[i[axis], k], count)
        return found if beyond is None else language.where(beyond[i[axis]], cast(value, found.dtype), found)

    return compute((*x.shape[:axis], places.shape[0], *x.shape[axis + 1 :]), element)


@operator("Resize", since=11)
def _resize(
    x: Tensor, roi: Known = None, scales: Known = None, lengths: Known = None, *, antialias: int = 0, axes: Any = None,
    coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75, exclude_outside: int = 0,
    extrapolation_value: float = 0.0, keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Any:  # fmt: skip
    chosen = axes_of(axes, x.ndim) if axes is not None else list(range(x.ndim))
    own = sizes(x)
    if lengths is not None and np.size(lengths):
        wanted: list[float] = [float(n) for n in integers(lengths)]
        factors = [n / own[axis] for n, axis in zip(wanted, chosen, strict=True)]
        if keep_aspect_ratio_policy != "stretch":
            one = min(factors) if keep_aspect_ratio_policy == "not_larger" else max(factors)
            factors = [one] * len(chosen)
            wanted = [float(math.floor(one * own[axis] + 0.5)) for axis in chosen]
        counts = [int(n) for n in wanted]
    else:
        factors = [float(s) for s in np.asarray(scales).ravel()]
        wanted = [s * own[axis] for s, axis in zip(factors, chosen, strict=True)]
        counts = [math.floor(n) for n in wanted]
    spend([sum(counts) * 8])  # the tables
    regions = np.asarray(roi, np.float64).ravel() if roi is not None and np.size(roi) else None
    cropped = coordinate_transformation_mode == "tf_crop_and_resize"
    kind = x.dtype
    found = x
    for k, axis in enumerate(chosen):
        if counts[k] == own[axis] and factors[k] == 1 and not cropped:
            continue
        region = (float(regions[k]), float(regions[k + len(chosen)])) if regions is not None else (0.0, 1.0)
        at = _positions(coordinate_transformation_mode, counts[k], own[axis], factors[k], wanted[k], region)
        stretch = max(1.0, 1 / factors[k]) if antialias else 1.0
        places, weights = _taps(at, own[axis], mode, nearest_mode, cubic_coeff_a, bool(exclude_outside), stretch)
        lost = (at < 0) | (at > own[axis] - 1) if cropped else None
        found = _along(found, axis, places, weights, lost, extrapolation_value)
    if not kind.is_float and found.dtype != kind:
        found = compute(found.shape, lambda *i: language.round(found[i]))
    return cast_to(found, kind)


@operator("Resize", until=11)
def _resize_by_scales(x: Tensor, scales: Known, *, mode: str = "nearest") -> Any:
    return _upsample(x, scales, mode=mode)


@operator("Upsample", since=7)
def _upsample(x: Tensor, scales: Known = None, *, mode: str = "nearest") -> Any:
    return _resize(
        x, None, scales, mode=mode.replace("bilinear", "linear"), coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )


@operator("GridSample")
def _grid_sample(x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros") -> Any:
    """At places that are data: each is a sum over the points around, on each axis two, or four of a cubic."""
    rank = x.ndim - 2
    kind = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    wide = grid.dtype if grid.dtype.bits >= 32 else "float32"
    shape = grid.shape[:-1]

    def place(axis: int) -> Tensor:
        extent = sizes(x)[2 + axis]

        def element(*i: Any) -> Any:
            at = cast(grid[(*i, rank - 1 - axis)], wide)
            return (at + 1) / 2 * (extent - 1) if align_corners else ((at + 1) * extent - 1) / 2

        return compute(shape, element, name="place")

    places = [place(axis) for axis in range(rank)]
    if padding_mode == "border" and kind != "cubic":
        places = [compute(shape, lambda *i, p=p, n=n: language.clip(p[i], 0, n - 1)) for p, n in zip(places, sizes(x)[2:], strict=True)]
    elif padding_mode == "reflection" and kind != "cubic":
        places = [_reflected(p, n, bool(align_corners)) for p, n in zip(places, sizes(x)[2:], strict=True)]
    below = language.round if kind == "nearest" else language.floor
    cells = [compute(shape, lambda *i, p=p: cast(below(p[i]), "int64"), name="cell") for p in places]
    outside: Any = {"zeros": 0, "border": "clamp", "reflection": "reflect" if align_corners else "symmetric"}[padding_mode]

    def read(n: Any, c: Any, at: Sequence[Any]) -> Any:
        return x.read(n, c, *at, outside=outside)

    if kind == "nearest":
        return compute((*x.shape[:2], *shape[1:]), lambda n, c, *o: read(n, c, [cell[(n, *o)] for cell in cells]))
    taps = 2 if kind == "linear" else 4

    def weight(p: Any, cell: Any, k: Any) -> Any:
        distance = language.abs(p - cast(cell + k - (taps // 2 - 1), p.dtype))
        if kind == "linear":
            return 1 - distance
        a = -0.75
        near, far = ((a + 2) * distance - (a + 3)) * distance * distance + 1, ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        return language.where(distance <= 1, near, far)

    weights = [
        compute((*shape, taps), lambda *i, p=p, cell=cell: weight(p[i[:-1]], cell[i[:-1]], i[-1]), name="weight")
        for p, cell in zip(places, cells, strict=True)
    ]

    def element(n: Any, c: Any, *o: Any) -> Any:
        def term(*k: Any) -> Any:
            value = cast(read(n, c, [cell[(n, *o)] + t - (taps // 2 - 1) for cell, t in zip(cells, k, strict=True)]), wide)
            for w, t in zip(weights, k, strict=True):
                value = value * w[(n, *o, t)]
            return value

        return cast(language.sum(term, (taps,) * rank), x.dtype)

    return compute((*x.shape[:2], *shape[1:]), element)


def _reflected(place: Tensor, extent: int, align_corners: bool) -> Tensor:
    """Places thrown back at the outer points, or at borders half a point beyond."""
    low, high = (0.0, extent - 1.0) if align_corners else (-0.5, extent - 0.5)
    span = max(high - low, 1e-9)

    def element(*i: Any) -> Any:
        away = language.abs(place[i] - low)
        turns = language.floor(away / span)
        rest = away - turns * span
        back = language.where(cast(turns, "int64") % 2 == 0, rest + low, high - rest)
        return language.clip(back, 0, extent - 1)

    return compute(place.shape, element)


@operator("AffineGrid")
def _affine_grid(theta: Tensor, lengths: Known, *, align_corners: int = 0) -> Any:
    batch, _, *places = integers(lengths)
    rank = len(places)

    def coordinate(at: Any, extent: int) -> Any:
        value = cast(at, theta.dtype)
        if align_corners:
            return value * (2.0 / max(extent - 1, 1)) - 1.0 if extent > 1 else value * 0.0
        return (value * 2.0 + 1.0) / float(extent) - 1.0

    def element(*i: Any) -> Any:
        n, *at, k = i
        total = theta[n, k, rank]
        for axis in range(rank):
            total = total + theta[n, k, rank - 1 - axis] * coordinate(at[axis], places[axis])
        return total

    return compute((batch, *places, rank), element)


@operator("RoiAlign")
def _roi_align(
    x: Tensor, boxes: Tensor, items: Tensor, *, coordinate_transformation_mode: str | None = None, mode: str = "avg",
    output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0, spatial_scale: float = 1.0, version: int,
) -> Any:  # fmt: skip
    """The mean (or maximum) over samples in each cell of a region; without a ratio a cell of so many elements has as many samples."""
    aligned = (coordinate_transformation_mode or ("half_pixel" if version >= 16 else "output_half_pixel")) == "half_pixel"
    cells = (output_height, output_width)
    extents = sizes(x)[2:]
    away = 0.5 if aligned else 0.0
    count = boxes.shape[0]

    def edge(r: Any, axis: int, end: int) -> Any:
        return boxes[r, 2 * end + 1 - axis] * spatial_scale - away

    def length(r: Any, axis: int) -> Any:
        found = edge(r, axis, 1) - edge(r, axis, 0)
        return found if aligned else language.maximum(found, 1.0)

    def samples(axis: int) -> Tensor:
        def element(r: Any) -> Any:
            if sampling_ratio > 0:
                return cast(sampling_ratio, "int64")
            # No more than there are elements: what lies farther apart is outside.
            most = 2 * extents[axis] + 2
            return cast(language.clip(language.ceil(length(r, axis) / cells[axis]), 1, most), "int64")

        return compute((count,), element, name="samples")

    counts = [samples(0), samples(1)]

    def value(r: Any, c: Any, at: Sequence[Any]) -> Any:
        """The sum of four neighbors of a sample; samples more than an element outside are zero."""
        inside, low, share = None, [], []
        for axis, p in enumerate(at):
            test = (p >= -1.0) & (p <= float(extents[axis]))
            inside = test if inside is None else inside & test
            held = language.clip(p, 0.0, extents[axis] - 1.0)
            first = language.minimum(cast(language.floor(held), "int64"), max(extents[axis] - 2, 0))
            low.append(first)
            share.append(held - cast(first, held.dtype))
        parts = []
        for i in range(min(2, extents[0])):
            for j in range(min(2, extents[1])):
                w = (share[0] if i else 1 - share[0]) * (share[1] if j else 1 - share[1])
                parts.append(w * x[cast(items[r], "int64"), c, low[0] + i, low[1] + j])
        return inside, parts

    def element(r: Any, c: Any, y: Any, z: Any) -> Any:
        def at(i: Any, j: Any) -> list[Any]:
            found = []
            for axis, (o, k) in enumerate(((y, i), (z, j))):
                width = length(r, axis) / cells[axis]
                found.append(edge(r, axis, 0) + width * (cast(o, x.dtype) + (cast(k, x.dtype) + 0.5) / cast(counts[axis][r], x.dtype)))
            return found

        both = (counts[0][r], counts[1][r])
        if mode == "max":

            def best(i: Any, j: Any) -> Any:
                inside, (first, *rest) = value(r, c, at(i, j))
                for other in rest:
                    first = language.maximum(first, other)
                return language.where(inside, first, 0)

            return language.max(best, both)

        def one(i: Any, j: Any) -> Any:
            inside, parts = value(r, c, at(i, j))
            return language.where(inside, sum(parts[1:], parts[0]), 0)

        return language.sum(one, both) / cast(both[0] * both[1], x.dtype)

    return compute((count, x.shape[1], *cells), element)


@operator("MaxRoiPool")
def _max_roi_pool(x: Tensor, boxes: Tensor, *, pooled_shape: Any, spatial_scale: float = 1.0) -> Any:
    extents = sizes(x)[2:]

    def element(r: Any, c: Any, *o: Any) -> Any:
        starts, ends = [], []
        for axis, (place, cells) in enumerate(zip(o, pooled_shape, strict=True)):
            first, last = (cast(language.round(boxes[r, 1 + 2 * end + 1 - axis] * spatial_scale), "int64") for end in (0, 1))
            length = language.maximum(last - first + 1, 1)
            low, high = place * length // cells + first, -(-(place + 1) * length // cells) + first
            starts.append(language.clip(low, 0, extents[axis]))
            ends.append(language.clip(high, 0, extents[axis]))

        def inside(i: Any, j: Any) -> Any:
            return (i >= starts[0]) & (i < ends[0]) & (j >= starts[1]) & (j < ends[1])

        best = language.max(lambda i, j: x[cast(boxes[r, 0], "int64"), c, i, j], tuple(extents), where=inside)
        empty = (ends[0] <= starts[0]) | (ends[1] <= starts[1])
        return language.where(empty, 0, best)

    return compute((boxes.shape[0], x.shape[1], *pooled_shape), element)
