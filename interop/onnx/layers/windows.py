"""Convolutions, poolings and what else goes over windows, with uneven pads and ONNX's rules for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tensorexpr import kernels, language
from tensorexpr.graph.trace.values import elementwise
from tensorexpr.interop.onnx.operators.common import flattened, integers, reshaped, size, sizes
from tensorexpr.interop.onnx.operators.shapes import padded
from tensorexpr.interop.onnx.table import Known, operator
from tensorexpr.kernels.conventions.windows import Windows
from tensorexpr.language import Tensor, cast, compute, scatter


def around(
    extents: Sequence[Any], window: Sequence[int], strides: Sequence[int], dilations: Sequence[int], pads: Any, auto_pad: str
) -> tuple[list[int], list[int]]:
    """The pads before and behind each axis."""
    rank = len(window)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        reach = [(k - 1) * d + 1 for k, d in zip(window, dilations, strict=True)]
        total = [max((-(-n // s) - 1) * s + r - n, 0) for n, s, r in zip(extents, strides, reach, strict=True)]
        less, more = [t // 2 for t in total], [t - t // 2 for t in total]
        return (less, more) if auto_pad == "SAME_UPPER" else (more, less)
    if auto_pad not in ("NOTSET", "VALID", ""):
        raise ValueError(f"auto_pad {auto_pad}")
    both = list(pads) if pads is not None and auto_pad != "VALID" else [0] * 2 * rank
    if min(both, default=0) < 0:
        raise ValueError(f"negative pads {both}")
    if len(both) != 2 * rank:
        raise ValueError(f"{len(both)} pads of {rank} axes")
    return both[:rank], both[rank:]


def _or_ones(given: Any, rank: int) -> tuple[int, ...]:
    return tuple(given) if given is not None else (1,) * rank


# ---------------------------------------------------------------------------------------------------- convolutions


@operator("Conv")
def _conv(
    x: Tensor, w: Tensor, b: Any = None, *, auto_pad: str = "NOTSET", dilations: Any = None, group: int = 1, kernel_shape: Any = None,
    pads: Any = None, strides: Any = None,
) -> Any:  # fmt: skip
    return convolved(x, w, b, auto_pad, dilations, group, kernel_shape, pads, strides, 0)


def convolved(
    x: Tensor, w: Tensor, b: Any, auto_pad: str, dilations: Any, group: int, kernel_shape: Any, pads: Any, strides: Any, fill: Any
) -> Tensor:
    """A convolution, of `x` with `fill` around it."""
    rank, window = x.ndim - 2, sizes(w)[2:]
    if kernel_shape is not None and list(kernel_shape) != window:
        raise ValueError(f"kernel_shape {list(kernel_shape)} for weights of {window}")
    stride, dilation = _or_ones(strides, rank), _or_ones(dilations, rank)
    before, after = around(x.shape[2:], window, stride, dilation, pads, auto_pad)
    if before != after or not isinstance(fill, int):
        if any(before) or any(after):
            x = padded(x, [*before, *after], fill, range(2, x.ndim))
        before = [0] * rank
    if rank > 3:
        return _wide_conv(x, w, b, stride, dilation, before, group)
    kernel = (kernels.conv1d, kernels.conv2d, kernels.conv3d)[rank - 1]

    def one(values: Sequence[int]) -> Any:
        return values[0] if rank == 1 else tuple(values)

    given = {"stride": one(stride), "dilation": one(dilation), "padding": one(before)}
    return kernel(x, w, *(() if b is None else (b,)), **given, groups=group)


def _wide_conv(x: Tensor, w: Tensor, b: Any, stride: Any, dilation: Any, before: Any, group: int) -> Tensor:
    windows = Windows(x.shape[2:], sizes(w)[2:], stride, dilation, before, before)
    per, width = sizes(w)[0] // group, sizes(w)[1]

    def element(n: Any, k: Any, *o: Any) -> Any:
        def term(c: Any, *r: Any) -> Any:
            return x.read(n, k // per * width + c, *windows.see(o, r), outside=0) * w[(k, c, *r)]

        total = language.sum(term, (width, *sizes(w)[2:]))
        return total if b is None else total + b[k]

    return compute((x.shape[0], w.shape[0], *windows.extents), element)


@operator("ConvTranspose")
def _conv_transpose(
    x: Tensor, w: Tensor, b: Any = None, *, auto_pad: str = "NOTSET", dilations: Any = None, group: int = 1, kernel_shape: Any = None,
    output_padding: Any = None, output_shape: Any = None, pads: Any = None, strides: Any = None,
) -> Any:  # fmt: skip
    """All that is sent, of which pads cut something off; what is padded beyond gets nothing but the bias."""
    rank, window = x.ndim - 2, sizes(w)[2:]
    stride, dilation = _or_ones(strides, rank), _or_ones(dilations, rank)
    extra = list(output_padding) if output_padding is not None else [0] * rank
    full = [s * (n - 1) + (k - 1) * d + 1 for n, k, s, d in zip(x.shape[2:], window, stride, dilation, strict=True)]
    if output_shape is not None or auto_pad.startswith("SAME"):
        wanted = list(output_shape)[-rank:] if output_shape is not None else [n * s for n, s in zip(x.shape[2:], stride, strict=True)]
        total = [f + e - n for f, e, n in zip(full, extra, wanted, strict=True)]
        less, more = [max(t, 0) // 2 for t in total], [t - max(t, 0) // 2 for t in total]
        before = less if auto_pad == "SAME_UPPER" else more
        if auto_pad != "SAME_UPPER":
            before = [max(m, 0) for m in before]
    else:
        both = list(pads) if pads is not None and auto_pad != "VALID" else [0] * 2 * rank
        before = both[:rank]
        wanted = [f + e - p - q for f, e, p, q in zip(full, extra, before, both[rank:], strict=True)]
    kernel = (kernels.conv_transpose1d, kernels.conv_transpose2d, kernels.conv_transpose3d)[rank - 1]

    def one(values: Sequence[int]) -> Any:
        return values[0] if rank == 1 else tuple(values)

    found = kernel(x, w, stride=one(stride), dilation=one(dilation), groups=group)

    def element(n: Any, k: Any, *o: Any) -> Any:
        value = found.read(n, k, *(i + p for i, p in zip(o, before, strict=True)), outside=0)
        return value if b is None else value + b[k]

    if b is None and wanted == full and not any(before):
        return found
    return compute((*found.shape[:2], *wanted), element)


@operator("Col2Im")
def _col2im(x: Tensor, image: Known, block: Known, *, dilations: Any = None, pads: Any = None, strides: Any = None) -> Any:
    """Each column is sent to the places that it was taken from."""
    extents, taps = integers(image), integers(block)
    rank = len(extents)
    stride, dilation = _or_ones(strides, rank), _or_ones(dilations, rank)
    both = list(pads) if pads is not None else [0] * 2 * rank
    windows = Windows(extents, taps, stride, dilation, both[:rank], both[rank:])
    n, wide, count = sizes(x)
    channels, places = wide // math.prod(taps), [int(e) for e in windows.extents]
    if math.prod(places) != count:
        raise ValueError(f"{count} columns for {places} places")
    given = reshaped(x, (n, channels, *taps, *places))
    whole = [e + p + q for e, p, q in zip(extents, both[:rank], both[rank:], strict=True)]

    def sent(b: Any, c: Any, *i: Any) -> Any:
        at = [o * s + r * d for r, o, s, d in zip(i[:rank], i[rank:], stride, dilation, strict=True)]
        return (b, c, *at), given[(b, c, *i)]

    found = scatter((n, channels, *whole), sent, sizes(given))
    return compute((n, channels, *extents), lambda b, c, *i: found[(b, c, *(k + p for k, p in zip(i, both[:rank], strict=True)))])


@operator("DeformConv")
def _deform_conv(
    x: Tensor, w: Tensor, offset: Tensor, b: Any = None, mask: Any = None, *, dilations: Any = None, group: int = 1,
    kernel_shape: Any = None, offset_group: int = 1, pads: Any = None, strides: Any = None,
) -> Any:  # fmt: skip
    """A convolution whose taps are moved by data, between elements: each is a sum over the four around it."""
    n, c, _, _ = sizes(x)
    k, per, rows, columns = sizes(w)
    stride, dilation = _or_ones(strides, 2), _or_ones(dilations, 2)
    both = list(pads) if pads is not None else [0] * 4
    out = sizes(offset)[2:]
    taps = rows * columns
    share = c // offset_group

    def place(axis: int) -> Tensor:
        def element(b_: Any, g: Any, t: Any, y: Any, z: Any) -> Any:
            o, r = (y, t // columns) if axis == 0 else (z, t % columns)
            base = o * stride[axis] + r * dilation[axis] - both[axis]
            return cast(base, x.dtype) + offset[b_, (g * taps + t) * 2 + axis, y, z]

        return compute((n, offset_group, taps, *out), element, name="place")

    places = [place(0), place(1)]
    cells = [compute(p.shape, lambda *i, p=p: cast(language.floor(p[i]), "int64"), name="cell") for p in places]

    def sampled(b_: Any, ch: Any, t: Any, y: Any, z: Any) -> Any:
        at = (b_, ch // share, t, y, z)

        def corner(i: Any, j: Any) -> Any:
            value = x.read(b_, ch, cells[0][at] + i, cells[1][at] + j, outside=0)
            for p, cell, step in ((places[0], cells[0], i), (places[1], cells[1], j)):
                value = value * (1 - language.abs(p[at] - cast(cell[at] + step, x.dtype)))
            return value

        value = language.sum(corner, (2, 2))
        return value if mask is None else value * mask[b_, ch // share * taps + t, y, z]

    columns_of = compute((n, c, taps, *out), sampled, name="columns")
    width_of = k // group

    def element(b_: Any, o: Any, y: Any, z: Any) -> Any:
        total = language.sum(
            lambda i, t: columns_of[b_, o // width_of * per + i, t, y, z] * w[o, i, t // columns, t % columns], (per, taps)
        )
        return total if b is None else total + b[o]

    return compute((n, k, *out), element)


# -------------------------------------------------------------------------------------------------------- poolings


class _Pool:
    """Windows over the places of `x`, cut where they leave it."""

    def __init__(self, x: Tensor, kernel_shape: Any, strides: Any, dilations: Any, pads: Any, auto_pad: str, ceil_mode: int) -> None:
        self.x, self.rank = x, x.ndim - 2
        self.taps = tuple(kernel_shape)
        stride, dilation = _or_ones(strides, self.rank), _or_ones(dilations, self.rank)
        before, after = around(x.shape[2:], self.taps, stride, dilation, pads, auto_pad)
        self.windows = Windows(x.shape[2:], self.taps, stride, dilation, before, after, bool(ceil_mode))
        self.shape = (*x.shape[:2], *self.windows.extents)

    def each(self, body: Callable[..., Any], name: str | None = None) -> Tensor:
        return compute(self.shape, lambda n, c, *o: body(n, c, o), name=name)

    def reduce(self, function: Callable[..., Any], n: Any, c: Any, o: Sequence[Any], body: Callable[[Any], Any]) -> Any:
        windows = self.windows
        where = (lambda *r: windows.inside(windows.see(o, r))) if windows.padded else None
        return function(lambda *r: body(self.x[(n, c, *windows.see(o, r))]), self.taps, where=where)

    def count(self, o: Sequence[Any], include_pad: bool) -> Any:
        """How many elements a window has: within `x`, or with its pads."""
        windows, total = self.windows, None
        for d in range(self.rank):
            first = o[d] * windows.stride[d] - windows.before[d]
            low, high = (-windows.before[d], windows.sizes[d] + windows.after[d]) if include_pad else (0, windows.sizes[d])
            step = windows.dilation[d]

            def inside(r: Any, first: Any = first, low: Any = low, high: Any = high, step: int = step) -> Any:
                at = first + r * step
                return cast((at >= low) & (at < high), "int64")

            part = language.sum(inside, self.taps[d])
            total = part if total is None else total * part
        return cast(total, self.x.dtype)


@operator("MaxPool")
def _max_pool(
    x: Tensor, *, kernel_shape: Any, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Any = None, pads: Any = None,
    storage_order: int = 0, strides: Any = None, outputs: int,
) -> Any:  # fmt: skip
    pool = _Pool(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    best = pool.each(lambda n, c, o: pool.reduce(language.max, n, c, o, lambda value: value))
    if outputs == 1:
        return best
    tap = pool.each(lambda n, c, o: pool.reduce(language.argmax, n, c, o, lambda value: value), name="tap")
    own = pool.windows.sizes

    def place(n: Any, c: Any, o: Any) -> Any:
        flat, digits = tap[(n, c, *o)], []
        for extent in reversed(pool.taps):
            digits.append(flat % extent)
            flat = flat // extent
        seen = pool.windows.see(o, digits[::-1])
        found = n * x.shape[1] + c
        for at, extent in zip(seen, own, strict=True) if not storage_order else ():
            found = found * extent + at
        if storage_order:
            step: Any = 1
            inner: Any = 0
            for at, extent in zip(seen, own, strict=True):
                inner, step = inner + at * step, step * extent
            found = found * step + inner
        return found

    return best, pool.each(place)


@operator("AveragePool")
def _average_pool(
    x: Tensor, *, kernel_shape: Any, auto_pad: str = "NOTSET", ceil_mode: int = 0, count_include_pad: int = 0, dilations: Any = None,
    pads: Any = None, strides: Any = None,
) -> Any:  # fmt: skip
    pool = _Pool(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)

    def mean(n: Any, c: Any, o: Any) -> Any:
        total = pool.reduce(language.sum, n, c, o, lambda value: value)
        if not pool.windows.padded or (count_include_pad and not pool.windows.ceil):
            return total / math.prod(pool.taps)
        return total / pool.count(o, bool(count_include_pad))

    return pool.each(mean)


@operator("LpPool", since=2)
def _lp_pool(
    x: Tensor, *, kernel_shape: Any, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Any = None, p: int = 2, pads: Any = None,
    strides: Any = None,
) -> Any:  # fmt: skip
    pool = _Pool(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    powers = pool.each(lambda n, c, o: pool.reduce(language.sum, n, c, o, lambda v: v * v if p == 2 else language.abs(v) ** float(p)))
    return elementwise(lambda v: language.sqrt(v) if p == 2 else v ** (1.0 / p), powers)


@operator("MaxUnpool")
def _max_unpool(x: Tensor, places: Tensor, output_shape: Known = None, *, kernel_shape: Any, pads: Any = None, strides: Any = None) -> Any:
    """Elements go to the places that they were the maxima at; places are counted in the tensor that was pooled."""
    rank = x.ndim - 2
    stride = _or_ones(strides, rank)
    both = list(pads) if pads is not None else [0] * 2 * rank
    inferred = [(n - 1) * s + k - p - q for n, s, k, p, q in zip(sizes(x)[2:], stride, kernel_shape, both[:rank], both[rank:], strict=True)]
    own = [*sizes(x)[:2], *inferred]
    wanted = own if output_shape is None else integers(output_shape)
    flat, at = flattened(x), flattened(places)
    if wanted == own or rank == 0:
        return reshaped(scatter((math.prod(own),), lambda t: (at[t], flat[t]), (size(x),)), own)
    found = reshaped(scatter((math.prod(own),), lambda t: (at[t], flat[t]), (size(x),)), own)
    return compute(tuple(wanted), lambda *i: found.read(*i, outside=0))
