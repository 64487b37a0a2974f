"""Convolutions over one to three axes: one definition for every rank, with PyTorch's names, layouts and options.

What PyTorch calls a convolution is a correlation: taps are not turned. Inputs are `[.., c, places..]`, with any number of batch
axes, also none. Depthwise convolutions are those with as many groups as channels. A transposed convolution is defined by what
one output receives, the taps that hit it, not by what an input sends: so it is a gather like all others, and its gradient by
its input is a plain convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import at_least, at_least_axes, bad, known, one_of, per_axis, same_extent
from tensorexpr.kernels.conventions.windows import PLACES, TAPS, Windows, batch, linear, named, senders
from tensorexpr.kernels.windowed.padding import padded

PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


def _borders(padding: Any, taps: Sequence[Any], stride: Any, dilation: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The padding before and after each axis: numbers, "valid" (none) or "same" (outputs as many as inputs, at stride 1)."""
    rank = len(taps)
    if padding == "valid":
        return (0,) * rank, (0,) * rank
    if padding == "same":
        if any(step != 1 for step in per_axis("stride", stride, rank, 1)):
            raise bad(f"padding: expected numbers or 'valid' where the stride is not 1, got 'same' with stride {stride!r}")
        if not known(*taps):
            raise bad("padding: expected numbers where the extents of the weight are known only at run time, got 'same'")
        total = [(t - 1) * step for t, step in zip(taps, per_axis("dilation", dilation, rank, 1), strict=True)]
        return tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    if isinstance(padding, str):
        raise bad(f"padding: expected numbers, 'valid' or 'same', got {padding!r}")
    both = per_axis("padding", padding, rank, 0)
    return both, both


def _channels(what: str, x: te.Tensor, weight: te.Tensor, bias: te.Tensor | None, rank: int, groups: int) -> None:
    """`ArgumentError` unless ranks fit and the groups divide the channels."""
    at_least_axes(what, x, rank + 1, f"channels and {rank} of places, after any batch axes")
    if weight.ndim != rank + 2:
        raise bad(f"{what}: expected a weight of {rank + 2} axes (two of channels, {rank} of taps), got {weight.name} of {weight.ndim}")
    at_least("groups", groups, 1)
    for name, channels in ((x.name, x.shape[-rank - 1]), (weight.name, weight.shape[0])):
        if known(channels) and channels % groups:
            raise bad(f"groups: expected a divisor of the {channels} channels of {name}, got {groups}")
    if bias is not None and bias.ndim != 1:
        raise bad(f"{what}: expected a bias of 1 axis, got {bias.name} of {bias.ndim}")


def _conv(
    what: str,
    x: te.Tensor,
    weight: te.Tensor,
    bias: te.Tensor | None,
    rank: int,
    stride: Any,
    borders: tuple[Sequence[Any], Sequence[Any]],
    dilation: Any,
    groups: int,
    mode: str = "zeros",
    name: str | None = None,
) -> te.Tensor:
    """`y[n, k, o] = bias[k] + sum_{c, r} weight[k, c, r] * x[n, group(k) * C + c, o * stride + r * dilation - padding]`."""
    _channels(what, x, weight, bias, rank, groups)
    before, after = borders
    if mode != "zeros" and (any(before) or any(after)):
        first = x.ndim - rank
        x = padded(x, {first + d: (before[d], after[d]) for d in range(rank)}, mode, name="padded")
        before = after = (0,) * rank
    lead, sizes = tuple(x.shape[: -rank - 1]), x.shape[-rank:]
    filters, inner, *taps = weight.shape
    same_extent(f"{weight.name}: axis 1", inner, x.shape[-rank - 1] // groups, "it is the number of channels of each group")
    if bias is not None:
        same_extent(bias.name, bias.shape[0], filters, "one per filter")
    windows = Windows(sizes, taps, stride, dilation, before, after)
    per_group = filters // groups

    def element(*at: Any) -> Any:
        n, k, o = at[: len(lead)], at[len(lead)], at[len(lead) + 1 :]

        def tap(*inside: Any) -> Any:
            c, r = inside[0], inside[1:]
            channel = c if groups == 1 else _grouped(k, per_group, c, inner)
            return weight[(k, c, *r)] * x.read(*n, channel, *windows.see(o, r), outside=0)

        total = te.sum(named(tap, "c", *TAPS[rank]), (inner, *taps))
        return total if bias is None else total + bias[k]

    return te.compute((*lead, filters, *windows.extents), named(element, *batch(len(lead)), "k", *PLACES[rank]), name=name)


def _grouped(k: Any, per_group: Any, c: Any, inner: Any) -> Any:
    """The channel `c` of the group of filter `k`."""
    group = k if known(per_group) and per_group == 1 else k // per_group
    return linear((group, inner), (c, 1)) if known(inner) else group * inner + c


@te.op
def conv1d(
    x: te.Tensor,
    weight: te.Tensor,
    bias: te.Tensor | None = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
    padding_mode: str = "zeros",
) -> te.Tensor:
    """`y[n, k, o] = bias[k] + sum_{c, r} weight[k, c, r] * x[n, c, o * stride + r * dilation - padding]`, zero beyond the edge.

    `x [.., c, places]`, `weight [k, c / groups, taps]`, `bias [k]` or None; the result is `[.., k, outputs]` with
    `outputs = (places + 2 * padding - dilation * (taps - 1) - 1) // stride + 1`. With groups, filter k sees the channels of
    group `k // (K / groups)` only. `padding`: numbers (one, or one per axis), "valid" or "same" (at stride 1; of an odd total the
    larger part behind). `padding_mode`: "zeros", "reflect", "replicate", "circular", as `torch.nn.Conv1d`.
    `ArgumentError` for ranks, channels, groups or numbers that do not fit, and where a window is longer than the padded input.

    >>> x, w = np.array([[[1.0, 2.0, 3.0, 4.0]]]), np.array([[[1.0, 1.0]]])
    >>> kernels.conv1d(x, w, stride=2)
    array([[[3., 7.]]])
    """
    one_of("padding_mode", padding_mode, PADDING_MODES)
    borders = _borders(padding, weight.shape[2:], stride, dilation)
    return _conv("conv1d", x, weight, bias, 1, stride, borders, dilation, groups, padding_mode)


@te.op
def conv2d(
    x: te.Tensor,
    weight: te.Tensor,
    bias: te.Tensor | None = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
    padding_mode: str = "zeros",
) -> te.Tensor:
    """`conv1d` over two axes: `x [.., c, h, w]`, `weight [k, c / groups, r, s]`.

    >>> x = np.arange(9.0).reshape(1, 1, 3, 3)
    >>> kernels.conv2d(x, np.ones((1, 1, 2, 2)))
    array([[[[ 8., 12.],
             [20., 24.]]]])
    """
    one_of("padding_mode", padding_mode, PADDING_MODES)
    borders = _borders(padding, weight.shape[2:], stride, dilation)
    return _conv("conv2d", x, weight, bias, 2, stride, borders, dilation, groups, padding_mode)


@te.op
def conv3d(
    x: te.Tensor,
    weight: te.Tensor,
    bias: te.Tensor | None = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
    padding_mode: str = "zeros",
) -> te.Tensor:
    """`conv1d` over three axes: `x [.., c, d, h, w]`, `weight [k, c / groups, q, r, s]`.

    >>> kernels.conv3d(np.ones((1, 2, 3, 3, 3)), np.ones((1, 2, 2, 2, 3))).ravel()  # each output sums 24 ones
    array([24., 24., 24., 24.])
    """
    one_of("padding_mode", padding_mode, PADDING_MODES)
    borders = _borders(padding, weight.shape[2:], stride, dilation)
    return _conv("conv3d", x, weight, bias, 3, stride, borders, dilation, groups, padding_mode)


@te.op
def causal_conv1d(
    x: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None, *, stride: Any = 1, dilation: Any = 1, groups: Any = 1
) -> te.Tensor:
    """`conv1d` that sees no later place: `y[n, k, o] = bias[k] + sum weight[k, c, r] * x[n, c, o * stride - (R - 1 - r) * dilation]`.

    All padding stands in front (WaveNet, van den Oord et al. 2016); shapes and errors as `conv1d`.

    >>> x, w = np.array([[[1.0, 2.0, 3.0]]]), np.array([[[10.0, 1.0]]])
    >>> kernels.causal_conv1d(x, w)  # 10 times the one before, and itself
    array([[[ 1., 12., 23.]]])
    """
    (step,) = per_axis("dilation", dilation, 1, 1)
    return _conv("causal_conv1d", x, weight, bias, 1, stride, ((step * (weight.shape[-1] - 1),), (0,)), dilation, groups)


# ---------------------------------------------------------------------------------------------------- separable, local


def _separable(what: str, x: te.Tensor, depthwise: te.Tensor, pointwise: te.Tensor, bias: Any, rank: int, **options: Any) -> te.Tensor:
    at_least_axes(what, x, rank + 1, f"channels and {rank} of places, after any batch axes")
    channels: Any = x.shape[-rank - 1]
    if depthwise.ndim != rank + 2 or not known(channels):
        raise bad(
            f"{what}: expected a depthwise weight of {rank + 2} axes and a known number of channels, got {depthwise.name} and {x.name}"
        )
    stride, dilation = options["stride"], options["dilation"]
    borders = _borders(options["padding"], depthwise.shape[2:], stride, dilation)
    spatial = _conv(what, x, depthwise, None, rank, stride, borders, dilation, channels, name="spatial")
    return _conv(what, spatial, pointwise, bias, rank, 1, ((0,) * rank, (0,) * rank), 1, 1)


@te.op
def separable_conv1d(
    x: te.Tensor,
    depthwise: te.Tensor,
    pointwise: te.Tensor,
    bias: te.Tensor | None = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
) -> te.Tensor:
    """A convolution of each channel by itself, then one across channels: `conv1d(conv1d(x, depthwise, groups=c), pointwise, bias)`.

    `depthwise [c * multiplier, 1, taps]`, `pointwise [k, c * multiplier, 1]`.

    >>> x = np.array([[[1.0, 2.0], [10.0, 20.0]]])
    >>> kernels.separable_conv1d(x, np.ones((2, 1, 2)), np.array([[[1.0], [1.0]]]))
    array([[[33.]]])
    """
    return _separable("separable_conv1d", x, depthwise, pointwise, bias, 1, stride=stride, padding=padding, dilation=dilation)


@te.op
def separable_conv2d(
    x: te.Tensor,
    depthwise: te.Tensor,
    pointwise: te.Tensor,
    bias: te.Tensor | None = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
) -> te.Tensor:
    """`separable_conv1d` over two axes (MobileNet, Howard et al. 2017): `depthwise [c * m, 1, r, s]`, `pointwise [k, c * m, 1, 1]`.

    >>> x = np.arange(8.0).reshape(1, 2, 2, 2)
    >>> kernels.separable_conv2d(x, np.ones((2, 1, 2, 2)), np.array([[[[1.0]], [[10.0]]]]))
    array([[[[226.]]]])
    """
    return _separable("separable_conv2d", x, depthwise, pointwise, bias, 2, stride=stride, padding=padding, dilation=dilation)


def _local(what: str, x: te.Tensor, weight: te.Tensor, bias: Any, rank: int, stride: Any, padding: Any, dilation: Any) -> te.Tensor:
    at_least_axes(what, x, rank + 1, f"channels and {rank} of places, after any batch axes")
    if weight.ndim != 2 * rank + 2:
        raise bad(
            f"{what}: expected a weight of {2 * rank + 2} axes (filters, channels, outputs, taps), got {weight.name} of {weight.ndim}"
        )
    lead, channels, sizes = tuple(x.shape[: -rank - 1]), x.shape[-rank - 1], x.shape[-rank:]
    filters, inner = weight.shape[:2]
    outputs, taps = weight.shape[2 : rank + 2], weight.shape[rank + 2 :]
    same_extent(f"{weight.name}: axis 1", inner, channels, "it is the number of channels")
    windows = Windows(sizes, taps, stride, dilation, *_borders(padding, taps, stride, dilation))
    for d in range(rank):
        same_extent(f"{weight.name}: axis {d + 2}", outputs[d], windows.extents[d], "there is a weight for each output")

    def element(*at: Any) -> Any:
        n, k, o = at[: len(lead)], at[len(lead)], at[len(lead) + 1 :]

        def tap(c: Any, *r: Any) -> Any:
            return weight[(k, c, *o, *r)] * x.read(*n, c, *windows.see(o, r), outside=0)

        total = te.sum(named(tap, "c", *TAPS[rank]), (channels, *taps))
        return total if bias is None else total + bias[(k, *o)]

    return te.compute((*lead, filters, *windows.extents), named(element, *batch(len(lead)), "k", *PLACES[rank]))


@te.op
def local_conv1d(
    x: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1
) -> te.Tensor:
    """`y[n, k, o] = bias[k, o] + sum_{c, r} weight[k, c, o, r] * x[n, c, o * stride + r * dilation - padding]`.

    A convolution whose weights are not shared between places ("locally connected"): `weight [k, c, outputs, taps]`, `bias [k, outputs]`.

    >>> x = np.array([[[1.0, 2.0, 3.0]]])
    >>> w = np.array([[[[1.0, 0.0], [0.0, 1.0]]]])  # a window of weights for each of two places
    >>> kernels.local_conv1d(x, w)
    array([[[1., 3.]]])
    """
    return _local("local_conv1d", x, weight, bias, 1, stride, padding, dilation)


@te.op
def local_conv2d(
    x: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1
) -> te.Tensor:
    """`local_conv1d` over two axes: `weight [k, c, outputs, outputs, r, s]`, `bias [k, outputs, outputs]`.

    >>> kernels.local_conv2d(np.ones((1, 1, 2, 3)), np.arange(8.0).reshape(1, 1, 1, 2, 2, 2))  # sums of 0..3 and of 4..7
    array([[[[ 6., 22.]]]])
    """
    return _local("local_conv2d", x, weight, bias, 2, stride, padding, dilation)


# ---------------------------------------------------------------------------------------------------- transposed


def _transposed(
    what: str,
    x: te.Tensor,
    weight: te.Tensor,
    bias: te.Tensor | None,
    rank: int,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> te.Tensor:
    """`y[n, k, o] = bias[k] + sum weight[c, k, r] * x[n, c, i]` over all c, r, i with `i * stride + r * dilation - padding = o`."""
    _channels(what, x, weight, bias, rank, groups)
    steps, spread = per_axis("stride", stride, rank, 1), per_axis("dilation", dilation, rank, 1)
    border, surplus = per_axis("padding", padding, rank, 0), per_axis("output_padding", output_padding, rank, 0)
    lead, channels, sizes = tuple(x.shape[: -rank - 1]), x.shape[-rank - 1], x.shape[-rank:]
    outer, per_group, *taps = weight.shape
    same_extent(f"{weight.name}: axis 0", outer, channels, "it is the number of channels")
    if bias is not None:
        same_extent(bias.name, bias.shape[0], per_group * groups, "one per output channel")
    extents = []
    for d in range(rank):
        if surplus[d] >= max(steps[d], spread[d]):
            raise bad(f"output_padding: expected less than the stride or the dilation, got {surplus[d]}")
        extents.append((sizes[d] - 1) * steps[d] + (taps[d] - 1) * spread[d] + (1 + surplus[d] - 2 * border[d]))
        if known(extents[d]) and extents[d] < 1:
            raise bad(f"{what}: expected padding that leaves an output, got {border[d]} for an axis of {sizes[d]}")
    inner = channels // groups

    def element(*at: Any) -> Any:
        n, k, o = at[: len(lead)], at[len(lead)], at[len(lead) + 1 :]
        filters = k if groups == 1 else 0 if known(per_group) and per_group == 1 else k % per_group

        def channel(c: Any) -> Any:
            return c if groups == 1 else _grouped(k, per_group, c, inner)

        def tap(c: Any, *r: Any) -> Any:
            places, _ = senders(o, r, steps, spread, border)
            return weight[(channel(c), filters, *r)] * x.read(*n, channel(c), *places, outside=0)

        def hits(_: Any, *r: Any) -> Any:
            return senders(o, r, steps, spread, border)[1]

        if apart:  # r is where it lies in the window, o which window
            r, o = at[len(lead) + 1 : -rank], at[-rank:]
            alone = te.sum(named(lambda c: weight[(channel(c), filters, *r)] * x[(*n, channel(c), *o)], "c"), inner)
            return alone if bias is None else alone + bias[k]
        names = ("c", *TAPS[rank])
        between = any(step > 1 for step in steps)
        total = te.sum(named(tap, *names), (inner, *taps), where=named(hits, *names) if between else None)
        return total if bias is None else total + bias[k]

    # Windows that do not meet are a product, laid out anew.
    apart = max(steps) > 1 and set(spread) == {1} and not any((*border, *surplus)) and all(map(known, taps)) and tuple(taps) == steps
    names = (*batch(len(lead)), "k")
    if not apart:
        return te.compute((*lead, per_group * groups, *extents), named(element, *names, *PLACES[rank]))
    windows = te.compute((*lead, per_group * groups, *taps, *sizes), named(element, *names, *TAPS[rank], *PLACES[rank]))

    def placed(*at: Any) -> Any:
        front, o = at[:-rank], at[-rank:]
        return windows[(*front, *(i % s for i, s in zip(o, steps, strict=True)), *(i // s for i, s in zip(o, steps, strict=True)))]

    return te.compute((*lead, per_group * groups, *extents), named(placed, *names, *PLACES[rank]))


@te.op
def conv_transpose1d(
    x: te.Tensor,
    weight: te.Tensor,
    bias: te.Tensor | None = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: Any = 1,
    dilation: Any = 1,
) -> te.Tensor:
    """`y[n, k, o] = bias[k] + sum weight[c, k, r] * x[n, c, i]` over all c, r, i with `i * stride + r * dilation - padding = o`.

    The transpose of `conv1d`. `x [.., c, places]`, `weight [c, k / groups, taps]`, `bias [k]` or None; the result is `[.., k, outputs]`
    with `outputs = (places - 1) * stride - 2 * padding + dilation * (taps - 1) + output_padding + 1`.
    `ArgumentError` as `conv1d`, and for an `output_padding` of at least both stride and dilation.

    >>> x, w = np.array([[[1.0, 2.0]]]), np.array([[[1.0, 1.0, 1.0]]])
    >>> kernels.conv_transpose1d(x, w, stride=2)
    array([[[1., 1., 3., 2., 2.]]])
    """
    return _transposed("conv_transpose1d", x, weight, bias, 1, stride, padding, output_padding, groups, dilation)


@te.op
def conv_transpose2d(
    x: te.Tensor,
    weight: te.Tensor,
    bias: te.Tensor | None = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: Any = 1,
    dilation: Any = 1,
) -> te.Tensor:
    """`conv_transpose1d` over two axes: `x [.., c, h, w]`, `weight [c, k / groups, r, s]`.

    >>> x = np.array([[[[1.0, 2.0]]]])
    >>> kernels.conv_transpose2d(x, np.ones((1, 1, 2, 2)), stride=2)
    array([[[[1., 1., 2., 2.],
             [1., 1., 2., 2.]]]])
    """
    return _transposed("conv_transpose2d", x, weight, bias, 2, stride, padding, output_padding, groups, dilation)


@te.op
def conv_transpose3d(
    x: te.Tensor,
    weight: te.Tensor,
    bias: te.Tensor | None = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: Any = 1,
    dilation: Any = 1,
) -> te.Tensor:
    """`conv_transpose1d` over three axes: `x [.., c, d, h, w]`, `weight [c, k / groups, q, r, s]`.

    >>> kernels.conv_transpose3d(np.ones((1, 1, 1, 1, 2)), np.ones((1, 1, 1, 1, 2)))
    array([[[[[1., 2., 1.]]]]])
    """
    return _transposed("conv_transpose3d", x, weight, bias, 3, stride, padding, output_padding, groups, dilation)
