"""Definitions of ATen's products, convolutions, pools and resamplings, by the kernels of the library, and of their gradients.

A gradient is one of what torch saved: of a linear operation by the derivative of its kernel, in which nothing of the forward pass is
left; of a maximum by the places that were kept. No forward is computed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.dtypes import DType
from tensorexpr.interop.torch.backend.table import Result, Unsupported, aten, cast_to, element, is_one, wide
from tensorexpr.kernels.conventions.windows import senders
from tensorexpr.language import program_of
from tensorexpr.op.transforms import vjp


def contracted(a: Any, b: Any, extent: Any, kind: DType) -> Any:
    """The sum over k of `a(k) * b(k)`, in a dtype."""
    return te.sum(lambda k: te.cast(a(k), kind) * te.cast(b(k), kind), extent)


@aten("mm")
def _mm(result: Result, a: te.Tensor, b: te.Tensor) -> Any:
    kind = wide(a.dtype)
    return te.compute(result.shape, lambda i, j: te.cast(contracted(lambda k: a[i, k], lambda k: b[k, j], a.shape[1], kind), result.dtype))


@aten("addmm")
def _addmm(result: Result, bias: te.Tensor, a: te.Tensor, b: te.Tensor, beta: Any, alpha: Any) -> Any:
    kind = wide(a.dtype)

    def value(i: Any, j: Any) -> Any:
        found = contracted(lambda k: a[i, k], lambda k: b[k, j], a.shape[1], kind)
        found = found if alpha == 1 else found * alpha
        if beta == 0:
            return te.cast(found, result.dtype)
        own = te.cast(element(bias, (i, j)), kind)
        return te.cast(found + (own if beta == 1 else own * beta), result.dtype)

    return te.compute(result.shape, value)


@aten("bmm")
def _bmm(result: Result, a: te.Tensor, b: te.Tensor) -> Any:
    kind = wide(a.dtype)
    return te.compute(
        result.shape, lambda n, i, j: te.cast(contracted(lambda k: a[n, i, k], lambda k: b[n, k, j], a.shape[2], kind), result.dtype)
    )


@aten("baddbmm")
def _baddbmm(result: Result, bias: te.Tensor, a: te.Tensor, b: te.Tensor, beta: Any, alpha: Any) -> Any:
    kind = wide(a.dtype)

    def value(n: Any, i: Any, j: Any) -> Any:
        found = contracted(lambda k: a[n, i, k], lambda k: b[n, k, j], a.shape[2], kind) * alpha
        return te.cast(found if beta == 0 else found + te.cast(element(bias, (n, i, j)), kind) * beta, result.dtype)

    return te.compute(result.shape, value)


@aten("addbmm")
def _addbmm(result: Result, bias: te.Tensor, a: te.Tensor, b: te.Tensor, beta: Any, alpha: Any) -> Any:
    kind = wide(a.dtype)

    def value(i: Any, j: Any) -> Any:
        found = te.sum(lambda n, k: te.cast(a[n, i, k], kind) * te.cast(b[n, k, j], kind), (a.shape[0], a.shape[2])) * alpha
        return te.cast(found if beta == 0 else found + te.cast(element(bias, (i, j)), kind) * beta, result.dtype)

    return te.compute(result.shape, value)


@aten("_trilinear")
def _trilinear(result: Result, a: te.Tensor, b: te.Tensor, c: te.Tensor, new_a: Any, new_b: Any, new_c: Any, summed: Any, _: int) -> Any:
    """The product of three tensors, each with new axes of extent 1, summed along some; of `nn.Bilinear`."""
    rank, kind = a.ndim + len(new_a), wide(a.dtype)
    stretched = [(x, tuple(d for d in range(rank) if d not in new)) for x, new in ((a, new_a), (b, new_b), (c, new_c))]
    extents: list[Any] = [1] * rank
    for x, axes in stretched:
        for d, extent in zip(axes, x.shape, strict=True):
            extents[d] = extent if is_one(extents[d]) else extents[d]
    kept = [d for d in range(rank) if d not in summed]

    def value(*i: Any) -> Any:
        def term(*k: Any) -> Any:
            place = dict(zip([*kept, *summed], [*i, *k], strict=True))
            parts = [te.cast(element(x, tuple(place[d] for d in axes)), kind) for x, axes in stretched]
            return parts[0] * parts[1] * parts[2]

        return te.cast(te.sum(term, tuple(extents[d] for d in summed)) if summed else term(), result.dtype)

    return te.compute(result.shape, value)


@aten("mv")
def _mv(result: Result, a: te.Tensor, b: te.Tensor) -> Any:
    kind = wide(a.dtype)
    return te.compute(result.shape, lambda i: te.cast(contracted(lambda k: a[i, k], lambda k: b[k], a.shape[1], kind), result.dtype))


@aten("dot")
def _dot(result: Result, a: te.Tensor, b: te.Tensor) -> Any:
    kind = wide(a.dtype)
    return te.compute((), lambda: te.cast(contracted(lambda k: a[k], lambda k: b[k], a.shape[0], kind), result.dtype))


# ---------------------------------------------------------------------------------------------------- convolutions


def _spread(values: Sequence[Any], rank: int) -> tuple[int, ...]:
    """Numbers per axis; one counts for all."""
    found = tuple(values) if len(values) == rank else tuple(values) * rank
    if not all(isinstance(v, int) for v in found):
        raise Unsupported("open numbers of a window")
    return found


def _convolution(x: te.Tensor, weight: te.Tensor, bias: Any, options: Sequence[Any]) -> te.Tensor:
    stride, padding, dilation, transposed, output_padding, groups = options
    rank = weight.ndim - 2
    if not 1 <= rank <= 3:
        raise Unsupported(f"a convolution over {rank} axes")
    named = {"stride": _spread(stride, rank), "padding": _spread(padding, rank), "dilation": _spread(dilation, rank), "groups": groups}
    if transposed:
        kernel: Any = (kernels.conv_transpose1d, kernels.conv_transpose2d, kernels.conv_transpose3d)[rank - 1]
        found: te.Tensor = kernel(x, weight, bias, output_padding=_spread(output_padding, rank), **named)
        return found
    kernel = (kernels.conv1d, kernels.conv2d, kernels.conv3d)[rank - 1]
    found = kernel(x, weight, bias, **named)
    return found


@aten("convolution")
def _convolved(result: Result, x: te.Tensor, weight: te.Tensor, bias: Any, *options: Any) -> Any:
    return cast_to(_convolution(x, weight, bias, options), result.dtype)


def _apart(*tensors: te.Tensor) -> list[te.Tensor]:
    """The tensors, as copies where some are made of the same: the derivative by one is that with the others held."""
    copies = [te.compute(x.shape, lambda *i, x=x: x[i]) for x in tensors]
    sources = [given.name for copy in copies for given in program_of([copy], keys=True).inputs]
    return list(tensors) if len(sources) == len(set(sources)) else copies


@aten("convolution_backward")
def _convolution_backward(
    result: Result, head: te.Tensor, x: te.Tensor, weight: te.Tensor, bias_sizes: Any, *options: Any
) -> tuple[te.Tensor | None, ...]:
    *options_, mask = options
    wanted = [name for name, want in zip(("x", "weight"), mask, strict=False) if want]
    found: dict[str, te.Tensor] = {}
    if wanted:
        operation = te.op(lambda x, weight: _convolution(x, weight, None, options_))
        x, weight = _apart(x, weight)
        found = dict(zip(wanted, vjp(operation, tuple(wanted))(x, weight, cast_to(head, x.dtype)), strict=True))
    kind = wide(head.dtype)
    if mask[2]:
        extents = (head.shape[0], *head.shape[2:])
        found["bias"] = te.compute(
            result[2].shape, lambda k: te.cast(te.sum(lambda n, *at: te.cast(head[(n, k, *at)], kind), extents), result[2].dtype)
        )
    return found.get("x"), found.get("weight"), found.get("bias")


# ---------------------------------------------------------------------------------------------------- pools


def _window(size: Sequence[int], rank: int, **others: Sequence[int]) -> dict[str, Any]:
    named: dict[str, Any] = {"kernel_size": _spread(size, rank)}
    for name, values in others.items():
        if values or name != "stride":
            named[name] = _spread(values, rank)
    return named


@aten("max_pool2d_with_indices", "max_pool3d_with_indices")
def _max_pool(result: Result, x: te.Tensor, size: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> Any:
    rank = 3 if "pool3d" in str(result.node.target) else 2
    kernel = kernels.max_pool3d if rank == 3 else kernels.max_pool2d
    window = _window(size, rank, stride=stride, padding=padding, dilation=dilation)
    return kernel(x, **window, ceil_mode=ceil, return_indices=True)


@aten("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def _max_pool_backward(
    result: Result, head: te.Tensor, x: te.Tensor, size: Any, stride: Any, padding: Any, dilation: Any, ceil: bool, indices: te.Tensor
) -> Any:
    """Every place sums the heads of the windows over it that chose it."""
    rank = 3 if "pool3d" in str(result.node.target) else 2
    taps = _spread(size, rank)
    steps, border, apart = _spread(stride or size, rank), _spread(padding, rank), _spread(dilation, rank)
    first, kind = x.ndim - rank, wide(head.dtype)

    def body(*at: Any) -> Any:
        lead, own = at[:first], at[first:]
        flat = own[0]
        for i, n in zip(own[1:], x.shape[first + 1 :], strict=True):
            flat = flat * n + i

        def chosen(*r: Any) -> Any:
            places, exact = senders(own, r, steps, apart, border)
            inside = None if exact is None else exact
            for place, n in zip(places, head.shape[first:], strict=True):
                condition = (place >= 0) & (place < n)
                inside = condition if inside is None else inside & condition
            clipped = tuple(te.clip(place, 0, n - 1) for place, n in zip(places, head.shape[first:], strict=True))
            return inside & (indices[(*lead, *clipped)] == flat)

        def sent(*r: Any) -> Any:
            places, _ = senders(own, r, steps, apart, border)
            clipped = tuple(te.clip(place, 0, n - 1) for place, n in zip(places, head.shape[first:], strict=True))
            return te.cast(head[(*lead, *clipped)], kind)

        return te.cast(te.sum(sent, taps, where=chosen), result.dtype)

    return te.compute(result.shape, body)


@aten("adaptive_max_pool2d", "adaptive_max_pool3d")
def _adaptive_max_pool(result: Result, x: te.Tensor, size: Sequence[Any]) -> Any:
    kernel = kernels.adaptive_max_pool3d if len(size) == 3 else kernels.adaptive_max_pool2d
    batch = x if x.ndim > len(size) + 1 else te.compute((1, *x.shape), lambda _, *i: x[i])
    found = kernel(batch, output_size=tuple(size), return_indices=True)
    return found if batch is x else tuple(te.compute(one.shape[1:], lambda *i, one=one: one[(0, *i)]) for one in found)


@aten("adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward")
def _adaptive_max_pool_backward(result: Result, head: te.Tensor, x: te.Tensor, indices: te.Tensor) -> Any:
    first, kind = x.ndim - (3 if "pool3d" in str(result.node.target) else 2), wide(head.dtype)

    def send(*i: Any) -> Any:
        flat, place = te.cast(indices[i], "int64"), []
        for n in reversed(x.shape[first:]):
            place.append(flat % n)
            flat = flat // n
        return (*i[:first], *reversed(place)), te.cast(head[i], kind)

    return cast_to(te.scatter(x.shape, send, head.shape), result.dtype)


def _averages(rank: int, x: te.Tensor, size: Any, stride: Any, padding: Any, ceil: bool, include: bool, divisor: Any = None) -> Any:
    kernel: Any = (kernels.avg_pool1d, kernels.avg_pool2d, kernels.avg_pool3d)[rank - 1]
    window = _window(size, rank, stride=stride, padding=padding)
    return kernel(x, **window, ceil_mode=ceil, count_include_pad=include, divisor_override=divisor)


@aten("avg_pool1d")
def _avg_pool1d(result: Result, x: te.Tensor, size: Any, stride: Any, padding: Any, ceil: bool, include: bool) -> Any:
    return _averages(1, x, size, stride, padding, ceil, include)


@aten("avg_pool2d", "avg_pool3d")
def _avg_pool(result: Result, x: te.Tensor, *options: Any) -> Any:
    return _averages(3 if "pool3d" in str(result.node.target) else 2, x, *options)


@aten("avg_pool2d_backward", "avg_pool3d_backward")
def _avg_pool_backward(result: Result, head: te.Tensor, x: te.Tensor, *options: Any) -> Any:
    rank = 3 if "pool3d" in str(result.node.target) else 2
    return vjp(te.op(lambda x: _averages(rank, x, *options)), "x")(x, head)


def _adaptive(x: te.Tensor, rank: int, size: Any) -> Any:
    kernel: Any = (kernels.adaptive_avg_pool1d, kernels.adaptive_avg_pool2d, kernels.adaptive_avg_pool3d)[rank - 1]
    if not all(isinstance(n, int) for n in size):
        raise Unsupported("open extents")
    return kernel(x, output_size=tuple(size))


@aten("adaptive_avg_pool1d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def _adaptive_avg_pool(result: Result, x: te.Tensor, size: Any) -> Any:
    name = str(result.node.target)
    return _adaptive(x, 1 if "pool1d" in name else 2 if "pool2d" in name else 3, size)


@aten("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward")
def _adaptive_avg_pool_backward(result: Result, head: te.Tensor, x: te.Tensor) -> Any:
    rank = 3 if "pool3d" in str(result.node.target) else 2
    return vjp(te.op(lambda x: _adaptive(x, rank, head.shape[-rank:])), "x")(x, head)


# ---------------------------------------------------------------------------------------------------- resampling


def _resized(x: te.Tensor, size: Any, factors: Any, mode: str, corners: bool) -> Any:
    """As torch does it: by the factors where they are given (they are not looked at with `corners`), else by the ratio of extents."""
    if factors is not None and not corners:
        named: dict[str, Any] = {"scale_factor": tuple(Fraction(factor).limit_denominator(10**6) for factor in factors)}
    elif all(isinstance(n, int) for n in size):
        named = {"size": tuple(size)}
    else:
        raise Unsupported("open extents")
    return kernels.interpolate(x, **named, mode=mode, align_corners=corners)


@aten("upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec")
def _nearest(result: Result, x: te.Tensor, size: Any, factors: Any) -> Any:
    return _resized(x, size, factors, "nearest", False)


@aten("upsample_linear1d.vec", "upsample_bilinear2d.vec", "upsample_trilinear3d.vec")
def _linear(result: Result, x: te.Tensor, size: Any, corners: bool, factors: Any) -> Any:
    mode = {3: "linear", 4: "bilinear", 5: "trilinear"}[x.ndim]
    return _resized(x, size, factors, mode, corners)


@aten("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def _nearest_by(result: Result, x: te.Tensor, size: Any, *scales: Any) -> Any:
    return _resized(x, result.shape[2:], _factors(scales), "nearest", False)


@aten("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")
def _linear_by(result: Result, x: te.Tensor, size: Any, corners: bool, *scales: Any) -> Any:
    mode = {3: "linear", 4: "bilinear", 5: "trilinear"}[x.ndim]
    return _resized(x, result.shape[2:], _factors(scales), mode, corners)


def _factors(scales: Sequence[Any]) -> list[Any] | None:
    return None if any(scale is None for scale in scales) else list(scales)


def _pulled(result: Result, head: te.Tensor, size: Sequence[Any], scales: Sequence[Any], mode: str, corners: bool) -> Any:
    """The gradient of a resampling of a tensor of shape `size`, whose values it does not know."""
    like = te.placeholder(tuple(size), head.dtype.name, name="like")
    return vjp(te.op(lambda x: _resized(x, head.shape[2:], _factors(scales), mode, corners)), "x")(like, head)


@aten(*(f"{kind}{rank}d_backward" for kind in ("upsample_nearest", "_upsample_nearest_exact") for rank in (1, 2, 3)))
def _nearest_backward(result: Result, head: te.Tensor, out: Any, size: Any, *scales: Any) -> Any:
    return _pulled(result, head, size, scales, "nearest-exact" if "exact" in str(result.node.target) else "nearest", False)


@aten("upsample_linear1d_backward", "upsample_bilinear2d_backward", "upsample_bicubic2d_backward", "upsample_trilinear3d_backward")
def _linear_backward(result: Result, head: te.Tensor, out: Any, size: Any, corners: bool, *scales: Any) -> Any:
    mode = "bicubic" if "bicubic" in str(result.node.target) else {3: "linear", 4: "bilinear", 5: "trilinear"}[head.ndim]
    return _pulled(result, head, size, scales, mode, corners)


_GRID_MODES, _GRID_PADDING = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


@aten("grid_sampler_2d", "grid_sampler_3d")
def _grid_sampler(result: Result, x: te.Tensor, grid: te.Tensor, mode: int, padding: int, corners: bool) -> Any:
    return kernels.grid_sample(x, grid, mode=_GRID_MODES[mode], padding_mode=_GRID_PADDING[padding], align_corners=corners)


@aten("grid_sampler_2d_backward", "grid_sampler_3d_backward")
def _grid_sampler_backward(
    result: Result, head: te.Tensor, x: te.Tensor, grid: te.Tensor, mode: int, padding: int, corners: bool, mask: Any
) -> Any:
    wanted = [name for name, want in zip(("x", "grid"), mask, strict=True) if want]
    operation = te.op(lambda x, grid: _grid_sampler(result, x, grid, mode, padding, corners))
    x, grid = _apart(x, grid)
    found = dict(zip(wanted, vjp(operation, tuple(wanted))(x, grid, head), strict=True))
    return found.get("x"), found.get("grid")


@aten("col2im")
def _col2im(result: Result, x: te.Tensor, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    if x.ndim != 3:
        raise Unsupported("columns without a batch")
    return kernels.fold(
        x, output_size=_spread(size, 2), kernel_size=_spread(kernel, 2), dilation=_spread(dilation, 2), padding=_spread(padding, 2),
        stride=_spread(stride, 2),
    )  # fmt: skip


@aten("im2col")
def _im2col(result: Result, x: te.Tensor, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    if x.ndim != 4:
        raise Unsupported("an image without a batch")
    return kernels.unfold(
        x, kernel_size=_spread(kernel, 2), dilation=_spread(dilation, 2), padding=_spread(padding, 2), stride=_spread(stride, 2)
    )


# ---------------------------------------------------------------------------------------------------- distances


def _distance(a: te.Tensor, b: te.Tensor, p: float, lead: Any) -> Any:
    """`distance(n, i, j)` between rows, by differences."""
    extent = a.shape[-1]

    def between(n: Sequence[Any], i: Any, j: Any) -> Any:
        def apart(k: Any) -> Any:
            return te.abs(a[(*lead(a, n), i, k)] - b[(*lead(b, n), j, k)])

        if p == 0:
            return te.sum(lambda k: te.cast(apart(k) != 0, a.dtype), extent)
        if p == float("inf"):
            return te.max(apart, extent)
        if p == 1:
            return te.sum(apart, extent)
        if p == 2:
            return te.sqrt(te.sum(lambda k: te.square(apart(k)), extent))
        return te.sum(lambda k: apart(k) ** p, extent) ** (1 / p)

    return between


@aten("_cdist_forward")
def _cdist(result: Result, a: te.Tensor, b: te.Tensor, p: float, _: Any) -> Any:
    def lead(x: te.Tensor, n: Sequence[Any]) -> tuple[Any, ...]:
        own = n[len(n) - (x.ndim - 2) :] if x.ndim > 2 else ()
        return tuple(0 if isinstance(e, int) and e == 1 else i for i, e in zip(own, x.shape, strict=False))

    between = _distance(a, b, p, lead)
    return te.compute(result.shape, lambda *i: between(i[:-2], i[-2], i[-1]))


@aten("_cdist_backward")
def _cdist_backward(result: Result, head: te.Tensor, a: te.Tensor, b: te.Tensor, p: float, found: te.Tensor) -> Any:
    def body(*i: Any) -> Any:
        n, own, k = i[:-2], i[-2], i[-1]

        def term(j: Any) -> Any:
            return te.cast(head[(*n, own, j)], a.dtype) * _slope(a[(*n, own, k)] - element(b, (*n, j, k)), found[(*n, own, j)], p)

        return te.sum(term, b.shape[-2])

    return te.compute(result.shape, body)


def _slope(apart: Any, distance: Any, p: float) -> Any:
    """The derivative of a distance by a difference that is part of it."""
    if p == 0:
        return apart * 0
    if p == 1:
        return te.sign(apart)
    if p == float("inf"):
        return te.where(te.abs(apart) == distance, te.sign(apart), 0.0)
    away = apart / distance if p == 2 else te.sign(apart) * te.abs(apart) ** (p - 1) / distance ** (p - 1)
    return te.where((distance == 0) | (apart == 0), 0.0, away)


@aten("_pdist_forward")
def _pdist(result: Result, x: te.Tensor, p: float) -> Any:
    """The pairs i < j row by row, looked up in two lists."""
    rows = x.shape[0]
    if not isinstance(rows, int) or rows < 2:
        raise Unsupported("an open number of rows")
    between = _distance(x, x, p, lambda _x, _n: ())
    low, high = np.triu_indices(rows, 1)
    first, second = te.constant(low.astype(np.int64), name="first"), te.constant(high.astype(np.int64), name="second")
    return te.compute(result.shape, lambda t: between((), first[t], second[t]))


@aten("_pdist_backward")
def _pdist_backward(result: Result, head: te.Tensor, x: te.Tensor, p: float, found: te.Tensor) -> Any:
    rows = x.shape[0]
    if not isinstance(rows, int) or rows < 2:
        raise Unsupported("an open number of rows")
    numbers = np.zeros((rows, rows), np.int64)
    numbers[np.triu_indices(rows, 1)] = np.arange(rows * (rows - 1) // 2)
    pair = te.constant(numbers + numbers.T, name="pair")

    def body(i: Any, k: Any) -> Any:
        def term(j: Any) -> Any:
            return head[pair[i, j]] * _slope(x[i, k] - x[j, k], found[pair[i, j]], p)

        return te.sum(term, rows, where=lambda j: j != i)

    return te.compute(result.shape, body)
