"""Sampling between the points of a grid: interpolation at positions that are data, and what is built of it.

A position falls into a cell: the point below it on each axis, and weights of the points around. Cells and weights are tensors of
their own, shared by all channels; a sample is a sum over the points around, each read with a border, so the input may be sampled
anywhere. By the input the gradient sends values to the points read; by the positions it is that of the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import at_least, bad, is_int, known, one_of, per_axis, ranked, same_extent, shaped

_PADDINGS = ("zeros", "border", "reflection")


def _linear(share: Any, k: Any) -> Any:
    return te.where(k == 0, 1.0 - share, share)


def _cubic(share: Any, k: Any) -> Any:
    """Keys' kernel with a = -0.75, for the points 1 below the cell to 2 above."""
    a = -0.75
    distance = te.abs(share + 1.0 - te.cast(k, share.dtype))
    near = ((a + 2.0) * distance - (a + 3.0)) * distance * distance + 1.0
    far = ((a * distance - 5.0 * a) * distance + 8.0 * a) * distance - 4.0 * a
    return te.where((k == 1) | (k == 2), near, far)


def _extent(x: te.Tensor, axis: int, dtype: Any) -> Any:
    """The extent of `x` on an axis of points, as a float: a number where it is known."""
    extent = x.shape[2 + axis]
    return float(extent) if is_int(extent) else te.cast(extent, dtype)


def _interpolated(x: te.Tensor, places: Sequence[te.Tensor], mode: str, outside: Any, item: te.Tensor | None = None) -> te.Tensor:
    """`y[n, c, *p]`: `x[n, c]` (or `x[item[n], c]`) at the positions `places[axis][n, *p]`, in points from 0."""
    rank, shape = len(places), places[0].shape
    taps = {"nearest": 1, "bilinear": 2, "bicubic": 4}[mode]
    below = te.round if mode == "nearest" else te.floor
    cells = [te.compute(shape, lambda *i, p=p: te.cast(below(p[i]), "int64"), name="cell") for p in places]

    def read(n: Any, c: Any, p: tuple[Any, ...], steps: tuple[Any, ...]) -> Any:
        corner = [cell[(n, *p)] + k if mode == "bilinear" else cell[(n, *p)] + (k - 1) for cell, k in zip(cells, steps, strict=True)]
        return x.read(n if item is None else item[n], c, *corner, outside=outside)

    full = (shape[0], x.shape[1], *shape[1:])
    if mode == "nearest":
        return te.compute(full, lambda n, c, *p: read(n, c, p, (1,) * rank))
    kernel = _linear if mode == "bilinear" else _cubic
    shares = [te.compute(shape, lambda *i, p=p: p[i] - te.floor(p[i]), name="share") for p in places]
    weights = [te.compute((*shape, taps), lambda *i, s=s: kernel(s[i[:-1]], i[-1]), name="weight") for s in shares]

    def sample(n: Any, c: Any, *p: Any) -> Any:
        def term(*steps: Any) -> Any:
            value = read(n, c, p, steps)
            for weight, k in zip(weights, steps, strict=True):
                value = value * weight[(n, *p, k)]
            return value

        return te.sum(term, (taps,) * rank)

    return te.compute(full, sample)


def _clipped(place: te.Tensor, extent: Any) -> te.Tensor:
    """Positions brought to the nearest point, where they lie beyond the first or the last."""
    return te.compute(place.shape, lambda *i: te.clip(place[i], 0.0, extent - 1.0), name="clipped")


def _reflected(place: te.Tensor, extent: Any, align_corners: bool) -> te.Tensor:
    """Positions thrown back at the first and last points, or at the borders half a point beyond."""
    beyond = 0.0 if align_corners else 0.5
    last = max(extent - 1.0, 0.5) if isinstance(extent, float) else te.maximum(extent - 1.0, 0.5)
    span = last if align_corners else extent
    away = te.compute(place.shape, lambda *i: te.abs(place[i] + beyond), name="away")
    turns = te.compute(place.shape, lambda *i: te.floor(away[i] / span), name="turns")
    rest = te.compute(place.shape, lambda *i: away[i] - turns[i] * span, name="rest")
    back = te.compute(
        place.shape, lambda *i: te.where(te.cast(turns[i], "int64") % 2 == 0, rest[i], span - rest[i]) - beyond, name="back"
    )  # fmt: skip
    return _clipped(back, extent)


@te.op
def grid_sample(
    input: te.Tensor, grid: te.Tensor, *, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False
) -> te.Tensor:
    """`y[n, c, *p] = input[n, c]` interpolated at `grid[n, *p]`; input (N, C, H, W), grid (N, P, Q, 2), y (N, C, P, Q), or one axis more.

    The last axis of `grid` holds x, y (and z), from -1 to 1 across the input: to the centers of the outermost points if
    `align_corners`, else to their outer edges. `mode`: "nearest" (halves to even, no gradient to the grid), "bilinear" (trilinear in
    3-D), "bicubic" (2-D, a = -0.75). `padding_mode`: beyond the border "zeros", the nearest point ("border"), or the input thrown back
    ("reflection"). Jaderberg et al. 2015.

    >>> kernels.grid_sample(np.array([[[[0.0, 10.0]]]]), np.array([[[[0.0, 0.0]]]]))  # the middle
    array([[[[5.]]]])
    """
    ranked(input, 4, 5)
    rank = input.ndim - 2
    one_of("mode", mode, ("nearest", "bilinear", "bicubic") if rank == 2 else ("nearest", "bilinear"))
    one_of("padding_mode", padding_mode, _PADDINGS)
    if grid.ndim != input.ndim or not known(grid.shape[-1]) or grid.shape[-1] != rank:
        raise bad(f"grid: expected {rank + 2} axes, the last of {rank} coordinates, got shape {grid.shape}")
    same_extent("batch of grid", grid.shape[0], input.shape[0])

    def place(axis: int) -> te.Tensor:
        extent = _extent(input, axis, grid.dtype)

        def raw(*i: Any) -> Any:
            at = grid[(*i, rank - 1 - axis)] + 1.0
            return at * ((extent - 1.0) * 0.5) if align_corners else (at * extent - 1.0) * 0.5

        found = te.compute(grid.shape[:-1], raw, name="place")
        if mode == "bicubic" or padding_mode == "zeros":
            return found
        return _clipped(found, extent) if padding_mode == "border" else _reflected(found, extent, align_corners)

    outside: Any = 0.0
    if mode == "bicubic":  # whose points lie beyond the border where the position does not
        outside = {"zeros": 0.0, "border": "clamp", "reflection": "reflect" if align_corners else "symmetric"}[padding_mode]
    return _interpolated(input, [place(axis) for axis in range(rank)], mode, outside)


@te.op
def affine_grid(theta: te.Tensor, *, size: Any, align_corners: bool = False) -> te.Tensor:
    """`grid[n, *p, :] = theta[n] (x, y, 1)` for the points of an output of `size` (N, C, H, W), x and y from -1 to 1; or one axis more.

    theta (N, 2, 3), or (N, 3, 4) for x, y, z; coordinates as in `grid_sample`.

    >>> kernels.affine_grid(np.array([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]), size=(1, 1, 1, 2), align_corners=True)  # the identity
    array([[[[-1.,  0.],
             [ 1.,  0.]]]])
    """
    if not isinstance(size, tuple) or len(size) not in (4, 5) or not all(is_int(n) and n > 0 for n in size):
        raise bad(f"size: expected (N, C, H, W) or (N, C, D, H, W), got {size!r}")
    rank = len(size) - 2
    shaped(theta, (size[0], rank, rank + 1), "one affine map per item")

    def coordinate(k: int, p: tuple[Any, ...]) -> Any:
        steps, i = size[-1 - k], te.cast(p[-1 - k], theta.dtype)
        if align_corners:
            return (2.0 * i - (steps - 1)) / max(steps - 1, 1)
        return (2.0 * i + (1 - steps)) / steps

    def value(n: Any, *i: Any) -> Any:
        *p, row = i
        total = theta[n, row, rank]
        for k in range(rank):
            total = total + theta[n, row, k] * coordinate(k, tuple(p))
        return total

    return te.compute((size[0], *size[2:], rank), value)


@te.op
def warp(input: te.Tensor, flow: te.Tensor, *, mode: str = "bilinear", padding_mode: str = "zeros") -> te.Tensor:
    """`y[n, c, i, j] = input[n, c]` interpolated at row `i + flow[n, 1, i, j]`, column `j + flow[n, 0, i, j]`: a warp by optical flow.

    input (N, C, H, W), flow (N, 2, P, Q) in points, y (N, C, P, Q). `mode` "nearest" or "bilinear"; `padding_mode` "zeros" or "border".

    >>> flow = np.zeros((1, 2, 1, 3))
    >>> flow[:, 0] = 1.0  # one column to the right
    >>> kernels.warp(np.array([[[[1.0, 2.0, 3.0]]]]), flow)
    array([[[[2., 3., 0.]]]])
    """
    ranked(input, 4)
    one_of("mode", mode, ("nearest", "bilinear"))
    one_of("padding_mode", padding_mode, ("zeros", "border"))
    ranked(flow, 4)
    shaped(flow, (input.shape[0], 2, *flow.shape[2:]), "one flow per item, columns first")

    def place(axis: int) -> te.Tensor:
        shape = (flow.shape[0], *flow.shape[2:])
        found = te.compute(shape, lambda n, *p: te.cast(p[axis], flow.dtype) + flow[(n, 1 - axis, *p)], name="place")
        return found if padding_mode == "zeros" else _clipped(found, _extent(input, axis, flow.dtype))

    return _interpolated(input, [place(0), place(1)], mode, 0.0)


@te.op
def bilinear_lookup(input: te.Tensor, points: te.Tensor) -> te.Tensor:
    """`y[n, c, *p] = input[n, c]` interpolated at column `points[n, *p, 0]`, row `points[n, *p, 1]`, zeros beyond the border.

    input (N, C, H, W), points (N, ..., 2) in points of the input, y (N, C, ...).

    >>> kernels.bilinear_lookup(np.array([[[[0.0, 10.0]]]]), np.array([[[0.25, 0.0]]]))  # a quarter of the way
    array([[[2.5]]])
    """
    ranked(input, 4)
    if points.ndim < 2 or not known(points.shape[-1]) or points.shape[-1] != 2:
        raise bad(f"points: expected a batch of positions, the last axis of 2 coordinates, got shape {points.shape}")
    same_extent("batch of points", points.shape[0], input.shape[0])
    places = [te.compute(points.shape[:-1], lambda *i, k=k: points[(*i, k)], name="place") for k in (1, 0)]
    return _interpolated(input, places, "bilinear", 0.0)


@te.op
def roi_align(
    input: te.Tensor, boxes: te.Tensor, *, output_size: Any, spatial_scale: float = 1.0, sampling_ratio: Any = 2, aligned: bool = False
) -> te.Tensor:
    """Boxes of feature maps brought to one size: bins of the mean of `sampling_ratio`^2 samples each, as torchvision's `roi_align`.

    input (N, C, H, W); boxes (K, 5): the item, then x1, y1, x2, y2, times `spatial_scale` in points of the input (shifted by half a
    point if `aligned`, else at least one point wide); y (K, C, *output_size). Samples within a point of the border take the nearest
    point, beyond it 0. Also differentiable by the boxes. He et al. 2017.

    >>> kernels.roi_align(np.array([[[[0.0, 2.0], [4.0, 6.0]]]]), np.array([[0.0, 0.0, 0.0, 1.0, 1.0]]), output_size=1)
    array([[[[3.]]]])
    """
    ranked(input, 4)
    bins = per_axis("output_size", output_size, 2, 1)
    at_least("sampling_ratio", sampling_ratio, 1)
    shaped(boxes, (boxes.shape[0], 5), "an item and four corners per box")
    shift, ratio = (0.5 if aligned else 0.0), sampling_ratio

    def corner(r: Any, axis: int, last: bool) -> Any:
        return boxes[r, 2 - axis + (2 if last else 0)] * spatial_scale - shift

    extents = [
        te.compute(
            boxes.shape[:1], lambda r, a=a: corner(r, a, True) - corner(r, a, False) if aligned
            else te.maximum(corner(r, a, True) - corner(r, a, False), 1.0), name=name,
        )
        for a, name in enumerate(("height", "width"))
    ]  # fmt: skip
    samples = (boxes.shape[0], bins[0] * ratio, bins[1] * ratio)

    def raw(axis: int) -> te.Tensor:
        def value(*i: Any) -> Any:
            share = (te.cast(i[1 + axis], boxes.dtype) + 0.5) / (bins[axis] * ratio)
            return corner(i[0], axis, False) + share * extents[axis][i[0]]

        return te.compute(samples, value, name="place")

    places = [raw(0), raw(1)]
    sizes = [_extent(input, axis, boxes.dtype) for axis in (0, 1)]

    def inside(*i: Any) -> Any:
        near = [(place[i] >= -1.0) & (place[i] <= size) for place, size in zip(places, sizes, strict=True)]
        return near[0] & near[1]

    item = te.compute(boxes.shape[:1], lambda r: te.cast(boxes[r, 0], "int64"), name="item")
    clipped = [_clipped(place, size) for place, size in zip(places, sizes, strict=True)]
    values = _interpolated(input, clipped, "bilinear", 0.0, item)

    def mean(r: Any, c: Any, y: Any, x: Any) -> Any:
        def sample(a: Any, b: Any) -> Any:
            i, j = y * ratio + a, x * ratio + b
            return te.where(inside(r, i, j), values[r, c, i, j], 0.0)

        return te.sum(sample, (ratio, ratio)) / ratio**2

    return te.compute((boxes.shape[0], input.shape[1], *bins), mean)


@te.op
def deform_conv2d(
    input: te.Tensor,
    offset: te.Tensor,
    weight: te.Tensor,
    bias: te.Tensor | None = None,
    mask: te.Tensor | None = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
) -> te.Tensor:
    """A convolution whose taps are moved by data: tap (r, s) of output (i, j) is sampled at its place plus `offset`, times `mask`.

    `y[n, k, i, j] = bias[k] + sum_crs weight[k, c, r, s] mask[n, t, i, j] input[n, c]` at row
    `i stride - padding + r dilation + offset[n, 2 t, i, j]`, column `j stride - padding + s dilation + offset[n, 2 t + 1, i, j]`, with
    `t = r S + s` and zeros beyond the border. input (N, C, H, W), offset (N, 2 R S, P, Q), weight (K, C, R, S), mask (N, R S, P, Q).
    Dai et al. 2017; Zhu et al. 2019.

    >>> x = np.array([[[[1.0, 2.0, 3.0]]]])
    >>> offset = np.zeros((1, 2, 1, 3))
    >>> offset[:, 1] = 0.5  # half a column to the right
    >>> kernels.deform_conv2d(x, offset, np.ones((1, 1, 1, 1)))
    array([[[[1.5, 2.5, 1.5]]]])
    """
    ranked(input, 4)
    ranked(weight, 4)
    ranked(offset, 4)
    (n, channels, height, width), (outputs, _, rows, columns) = input.shape, weight.shape
    steps, edges, gaps = per_axis("stride", stride, 2, 1), per_axis("padding", padding, 2, 0), per_axis("dilation", dilation, 2, 1)
    same_extent("channels of weight", weight.shape[1], channels)
    high, wide = (
        (extent + 2 * edge - gap * (taps - 1) - 1) // step + 1
        for extent, edge, gap, taps, step in zip((height, width), edges, gaps, (rows, columns), steps, strict=True)
    )
    shaped(offset, (n, 2 * rows * columns, high, wide), "two offsets per tap and place")
    if mask is not None:
        shaped(mask, (n, rows * columns, high, wide), "one factor per tap and place")
    if bias is not None:
        shaped(bias, (outputs,), "one bias per output channel")

    def place(axis: int) -> te.Tensor:
        def value(n: Any, r: Any, s: Any, i: Any, j: Any) -> Any:
            fixed = (i, j)[axis] * steps[axis] - edges[axis] + (r, s)[axis] * gaps[axis]
            return te.cast(fixed, offset.dtype) + offset[n, 2 * (r * columns + s) + axis, i, j]

        return te.compute((n, rows, columns, high, wide), value, name="place")

    taken = _interpolated(input, [place(0), place(1)], "bilinear", 0.0)

    def tap(n: Any, c: Any, r: Any, s: Any, i: Any, j: Any) -> Any:
        return taken[n, c, r, s, i, j] if mask is None else taken[n, c, r, s, i, j] * mask[n, r * columns + s, i, j]

    def value(n: Any, k: Any, i: Any, j: Any) -> Any:
        total = te.sum(lambda c, r, s: weight[k, c, r, s] * tap(n, c, r, s, i, j), (channels, rows, columns))
        return total if bias is None else total + bias[k]

    return te.compute((n, outputs, high, wide), value)
