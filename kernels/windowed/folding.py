"""Folding: windows as columns and back, channels as places and back, layouts in blocks of channels.

`unfold` copies every window; `fold` is its transpose and adds what overlaps. Both go through `patches[.., c, r, s, y, z]`, of which the
columns are another count of the same elements, so each half is turned around by itself. The shuffles move elements between
channels and places by mixed-radix digits; each is the gradient of its inverse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import at_least, at_least_axes, bad, known, one_of, per_axis, product, same_extent
from tensorexpr.kernels.conventions.windows import Windows, batch, named, senders

# ---------------------------------------------------------------------------------------------------- columns


@te.op
def unfold(x: te.Tensor, *, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> te.Tensor:
    """The windows of two axes as columns (im2col), zero beyond the edge: `x [.., c, h, w]` to `[.., c * r * s, places]`.

    `y[.., (c * R + r) * S + s, y * Z + z] = x[.., c, y * stride + r * dilation - padding, z * stride + s * dilation - padding]`, for
    windows of `kernel_size = (R, S)` and Z places on the last axis. `ArgumentError` for numbers that do not fit.

    >>> kernels.unfold(np.arange(6.0).reshape(1, 1, 2, 3), kernel_size=2)  # two windows, a column each
    array([[[0., 1.],
            [1., 2.],
            [3., 4.],
            [4., 5.]]])
    """
    at_least_axes("unfold", x, 3, "channels and two of places, after any batch axes")
    lead, channels, sizes = tuple(x.shape[:-3]), x.shape[-3], x.shape[-2:]
    size = per_axis("kernel_size", kernel_size, 2, 1)
    windows = Windows(sizes, size, stride, dilation, padding, padding)
    rows, columns = windows.extents

    def patch(*at: Any) -> Any:
        n, (c, r, s, y, z) = at[: len(lead)], at[len(lead) :]
        return x.read(*n, c, *windows.see((y, z), (r, s)), outside=0)

    names = batch(len(lead))
    patches = te.compute((*lead, channels, *size, rows, columns), named(patch, *names, "c", "r", "s", "y", "z"), name="patches")

    def column(*at: Any) -> Any:
        n, (f, l) = at[: len(lead)], at[len(lead) :]
        return patches[(*n, f // size[1] // size[0], f // size[1] % size[0], f % size[1], l // columns, l % columns)]

    return te.compute((*lead, channels * product(size), rows * columns), named(column, *names, "f", "l"))


@te.op
def fold(x: te.Tensor, *, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> te.Tensor:
    """Columns summed where their windows overlap (col2im): `x [.., c * r * s, places]` to `[.., c, *output_size]`.

    The transpose of `unfold` with the same options: element (h, w) is the sum over all taps and windows that see it.
    `ArgumentError` where the rows are no multiple of the taps, or the columns not the number of windows.

    >>> kernels.fold(np.ones((1, 2, 2)), output_size=(1, 3), kernel_size=(1, 2))  # the place in the middle is in both windows
    array([[[[1., 2., 1.]]]])
    """
    at_least_axes("fold", x, 2, "rows of channels and taps, and columns of places, after any batch axes")
    lead, rows = tuple(x.shape[:-2]), x.shape[-2]
    size, extents = per_axis("kernel_size", kernel_size, 2, 1), per_axis("output_size", output_size, 2, 1)
    windows = Windows(extents, size, stride, dilation, padding, padding)
    if known(rows) and rows % product(size):
        raise bad(f"fold: expected rows in multiples of the {product(size)} taps, got {rows}")
    same_extent("fold: columns", x.shape[-1], product(windows.extents), "one per window")
    channels = rows // product(size)

    def patch(*at: Any) -> Any:
        n, (c, r, s, y, z) = at[: len(lead)], at[len(lead) :]
        return x[(*n, (c * size[0] + r) * size[1] + s, y * windows.extents[1] + z)]

    names = batch(len(lead))
    patches = te.compute((*lead, channels, *size, *windows.extents), named(patch, *names, "c", "r", "s", "y", "z"), name="patches")

    def element(*at: Any) -> Any:
        n, c, at = at[: len(lead)], at[len(lead)], at[len(lead) + 1 :]

        def hit(r: Any, s: Any) -> tuple[list[Any], Any]:
            return senders(at, (r, s), windows.stride, windows.dilation, windows.before)

        between = any(step > 1 for step in windows.stride)
        return te.sum(
            lambda r, s: patches.read(*n, c, r, s, *hit(r, s)[0], outside=0), size, where=(lambda r, s: hit(r, s)[1]) if between else None
        )

    return te.compute((*lead, channels, *extents), named(element, *names, "c", "h", "w"))


# ---------------------------------------------------------------------------------------------------- channels and places


def _image(what: str, x: te.Tensor) -> tuple[tuple[Any, ...], Any, Any, Any]:
    """The batch axes, channels, height and width."""
    at_least_axes(what, x, 3, "channels and two of places, after any batch axes")
    return tuple(x.shape[:-3]), x.shape[-3], x.shape[-2], x.shape[-1]


def _divided(name: str, extent: Any, by: int) -> Any:
    """`extent / by`; `ArgumentError` where it is known that it does not divide."""
    if known(extent) and extent % by:
        raise bad(f"{name}: expected an extent in multiples of {by}, got {extent}")
    return extent // by


def _spread(what: str, x: te.Tensor, block: int, innermost: bool) -> te.Tensor:
    """Channels to places: `y[.., c, h, w]` is at `h // b`, `w // b` in the channel of c and the digits `h % b`, `w % b`, either first."""
    lead, channels, height, width = _image(what, x)
    depth = _divided(f"{what}: channels", channels, block * block)

    def element(*at: Any) -> Any:
        n, (c, h, w) = at[: len(lead)], at[len(lead) :]
        digit = h % block * block + w % block
        return x[(*n, c * (block * block) + digit if innermost else digit * depth + c, h // block, w // block)]

    return te.compute((*lead, depth, height * block, width * block), named(element, *batch(len(lead)), "c", "h", "w"))


def _gather(what: str, x: te.Tensor, block: int, innermost: bool) -> te.Tensor:
    """Places to channels: the inverse of `_spread`."""
    lead, channels, height, width = _image(what, x)
    shape = (*lead, channels * (block * block), _divided(f"{what}: height", height, block), _divided(f"{what}: width", width, block))

    def element(*at: Any) -> Any:
        n, (k, h, w) = at[: len(lead)], at[len(lead) :]
        c, digit = (k // (block * block), k % (block * block)) if innermost else (k % channels, k // channels)
        return x[(*n, c, h * block + digit // block, w * block + digit % block)]

    return te.compute(shape, named(element, *batch(len(lead)), "k", "h", "w"))


@te.op
def pixel_shuffle(x: te.Tensor, *, upscale_factor: Any) -> te.Tensor:
    """`y[.., c, h, w] = x[.., (c * u + h % u) * u + w % u, h // u, w // u]`: channels as places (Shi et al. 2016).

    `x [.., c * u * u, h, w]` to `[.., c, h * u, w * u]`. `ArgumentError` where the channels are no multiple of u * u.

    >>> kernels.pixel_shuffle(np.arange(4).reshape(1, 4, 1, 1), upscale_factor=2)
    array([[[[0, 1],
             [2, 3]]]])
    """
    return _spread("pixel_shuffle", x, at_least("upscale_factor", upscale_factor, 1), True)


@te.op
def pixel_unshuffle(x: te.Tensor, *, downscale_factor: Any) -> te.Tensor:
    """The inverse of `pixel_shuffle`: `x [.., c, h * u, w * u]` to `[.., c * u * u, h, w]`.

    >>> kernels.pixel_unshuffle(np.arange(4).reshape(1, 1, 2, 2), downscale_factor=2).shape
    (1, 4, 1, 1)
    """
    return _gather("pixel_unshuffle", x, at_least("downscale_factor", downscale_factor, 1), True)


@te.op
def depth_to_space(x: te.Tensor, *, block: Any, mode: str = "DCR") -> te.Tensor:
    """`y[.., c, h, w] = x[.., (h % b * b + w % b) * C + c, h // b, w // b]`: ONNX's DepthToSpace, of `[.., c * b * b, h, w]`.

    With mode "CRD" the channel is outermost, which is `pixel_shuffle`.

    >>> kernels.depth_to_space(np.arange(4).reshape(1, 4, 1, 1), block=2)
    array([[[[0, 1],
             [2, 3]]]])
    """
    innermost = one_of("mode", mode, ("DCR", "CRD")) == "CRD"
    return _spread("depth_to_space", x, at_least("block", block, 1), innermost)


@te.op
def space_to_depth(x: te.Tensor, *, block: Any) -> te.Tensor:
    """`y[.., (r * b + s) * C + c, h, w] = x[.., c, h * b + r, w * b + s]`: ONNX's SpaceToDepth, the inverse of `depth_to_space`.

    >>> kernels.space_to_depth(np.arange(4).reshape(1, 1, 2, 2), block=2).shape
    (1, 4, 1, 1)
    """
    return _gather("space_to_depth", x, at_least("block", block, 1), False)


@te.op
def channel_shuffle(x: te.Tensor, *, groups: Any) -> te.Tensor:
    """`y[n, k, ..] = x[n, k % g * (C / g) + k // g, ..]`: the channels, axis 1, dealt out across g groups (Zhang et al. 2018).

    >>> kernels.channel_shuffle(np.arange(6).reshape(1, 6), groups=2)
    array([[0, 3, 1, 4, 2, 5]])
    """
    at_least_axes("channel_shuffle", x, 2, "a batch and channels, before any of places")
    each = _divided("channel_shuffle: channels", x.shape[1], at_least("groups", groups, 1))
    return te.compute(x.shape, lambda n, k, *i: x[(n, k % groups * each + k // groups, *i)])


# ---------------------------------------------------------------------------------------------------- layouts


@te.op
def nchw_to_nchwc(x: te.Tensor, *, block: Any = 4) -> te.Tensor:
    """Channels in blocks that lie innermost: `y[n, k, .., b] = x[n, k * block + b, ..]`, zero for channels that `x` does not have.

    `x [n, c, places..]` to `[n, ceil(c / block), places.., block]` (NCHW4c and the like, for vectors of channels).

    >>> kernels.nchw_to_nchwc(np.arange(3).reshape(1, 3, 1), block=2).squeeze()  # a channel of zeros fills the second block
    array([[0, 1],
           [2, 0]])
    """
    at_least_axes("nchw_to_nchwc", x, 2, "a batch and channels, before any of places")
    at_least("block", block, 1)
    n, channels, *places = x.shape
    blocks = (channels + (block - 1)) // block
    return te.compute((n, blocks, *places, block), lambda n, k, *i: x.read(n, k * block + i[-1], *i[:-1], outside=0))


@te.op
def nchwc_to_nchw(x: te.Tensor, *, channels: Any = None) -> te.Tensor:
    """The inverse: `y[n, c, ..] = x[n, c // block, .., c % block]` for the first `channels` (None: all that the blocks have).

    >>> kernels.nchwc_to_nchw(np.arange(4).reshape(1, 1, 1, 2, 2)).squeeze()
    array([[0, 2],
           [1, 3]])
    """
    at_least_axes("nchwc_to_nchw", x, 3, "a batch, blocks of channels, any of places, and channels of a block")
    n, blocks, *places, block = x.shape
    count = blocks * block if channels is None else at_least("channels", channels, 1)
    if known(blocks, block) and count > blocks * block:
        raise bad(f"channels: expected at most the {blocks * block} that the blocks have, got {channels}")
    return te.compute((n, count, *places), lambda n, c, *i: x[_blocked(n, c, i, block)])


def _blocked(n: Any, c: Any, places: Sequence[Any], block: Any) -> tuple[Any, ...]:
    return (n, c // block, *places, c % block)
