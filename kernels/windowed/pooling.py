"""Pooling over one to three axes: maxima, averages and norms of windows of a given size.

Inputs are `[.., places..]`: all axes in front of the places (batch and channels, or none) are pooled separately. One
definition per kind for every rank. Padding is never read: the windows are cut where they leave the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import at_least_axes, bad, is_int, per_axis, product, shaped
from tensorexpr.kernels.conventions.windows import PLACES, TAPS, Windows, batch, digits_of, flat_place, named


class _Pool:
    """The windows of one pooling of `x`: `shape` of the result, and `reduce` over what a window sees."""

    def __init__(
        self, what: str, x: te.Tensor, rank: int, size: Any, stride: Any, padding: Any = 0, dilation: Any = 1, ceil: bool = False
    ) -> None:
        at_least_axes(what, x, rank, f"{rank} of places, after any others")
        self.x, self.rank, self.lead = x, rank, tuple(x.shape[: x.ndim - rank])
        self.size = per_axis("kernel_size", size, rank, 1)
        border = per_axis("padding", padding, rank, 0)
        spread = per_axis("dilation", dilation, rank, 1)
        for width, taps, step in zip(border, self.size, spread, strict=True):
            if 2 * width > (taps - 1) * step + 1:
                raise bad(f"padding: expected at most half of the window of {(taps - 1) * step + 1}, got {width}")
        self.windows = Windows(
            x.shape[x.ndim - rank :], self.size, stride if stride or is_int(stride) else size, spread, border, border, ceil
        )
        self.shape = (*self.lead, *self.windows.extents)

    def each(self, body: Callable[[Sequence[Any], Sequence[Any]], Any], name: str | None = None) -> te.Tensor:
        """The tensor with `body(n, o)` for each window."""
        count = len(self.lead)
        element = named(lambda *at: body(at[:count], at[count:]), *batch(count), *PLACES[self.rank])
        return te.compute(self.shape, element, name=name)

    def reduce(self, function: Callable[..., Any], n: Sequence[Any], o: Sequence[Any], body: Callable[[Any], Any]) -> Any:
        """`function` (te.max and its kin) over `body` of the elements that the window `o` sees."""
        names, windows = TAPS[self.rank], self.windows
        where = named(lambda *r: windows.inside(windows.see(o, r)), *names) if windows.padded else None
        return function(named(lambda *r: body(self.x[(*n, *windows.see(o, r))]), *names), self.size, where=where)

    def count(self, o: Sequence[Any], include_pad: bool) -> Any:
        """How many elements the window `o` sees, or with `include_pad` how many of it lie within the padded axes."""
        windows, fixed, varying = self.windows, 1, []
        for d, start in enumerate(windows.see(o, (0,) * self.rank)):
            if not windows.padded or (include_pad and not windows.ceil):
                fixed *= self.size[d]
                continue
            end = te.minimum(start + self.size[d], windows.sizes[d] + (windows.after[d] if include_pad else 0))
            varying.append(te.cast(end - (start if include_pad else te.maximum(start, 0)), self.x.dtype))
        return product([*varying, fixed] if fixed > 1 or not varying else varying)


# ---------------------------------------------------------------------------------------------------- maxima


def _max_pool(what: str, x: Any, rank: int, size: Any, stride: Any, padding: Any, dilation: Any, ceil: bool, indices: bool) -> Any:
    pool = _Pool(what, x, rank, size, stride, padding, dilation, ceil)
    best = pool.each(lambda n, o: pool.reduce(te.max, n, o, lambda value: value))
    if not indices:
        return best
    tap = pool.each(lambda n, o: pool.reduce(te.argmax, n, o, lambda value: value), name="tap")

    def place(n: Sequence[Any], o: Sequence[Any]) -> Any:
        return flat_place(pool.windows.see(o, digits_of(tap[(*n, *o)], pool.size)), pool.windows.sizes)

    return best, pool.each(place)


@te.op
def max_pool1d(
    x: te.Tensor,
    *,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> te.Tensor:
    """`y[.., o] = max_r x[.., o * stride + r * dilation - padding]` over the taps r that lie within `x`.

    `x [.., places]`; `stride` is `kernel_size` if not given; the number of outputs is as for a convolution, or rounded up with
    `ceil_mode` (a window must begin within `x` or its front padding). `return_indices`: also the places (int64) of the maxima; of
    equal ones the first. `ArgumentError` for numbers that do not fit, among them a padding of more than half a window.

    >>> kernels.max_pool1d(np.array([[[1.0, 3.0, 2.0, 5.0]]]), kernel_size=2, return_indices=True)
    (array([[[3., 5.]]]), array([[[1, 3]]]))
    """
    return _max_pool("max_pool1d", x, 1, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@te.op
def max_pool2d(
    x: te.Tensor,
    *,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> te.Tensor:
    """`max_pool1d` over two axes: `x [.., h, w]`; indices count row-major within the two axes.

    >>> kernels.max_pool2d(np.arange(8.0).reshape(1, 1, 2, 4), kernel_size=2)
    array([[[[5., 7.]]]])
    """
    return _max_pool("max_pool2d", x, 2, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@te.op
def max_pool3d(
    x: te.Tensor,
    *,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> te.Tensor:
    """`max_pool1d` over three axes: `x [.., d, h, w]`; indices count row-major within the three axes.

    >>> kernels.max_pool3d(np.arange(8.0).reshape(1, 1, 2, 2, 2), kernel_size=(1, 2, 2)).ravel()
    array([3., 7.])
    """
    return _max_pool("max_pool3d", x, 3, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def _unpool(what: str, x: Any, indices: Any, rank: int, size: Any, stride: Any, padding: Any, output_size: Any) -> te.Tensor:
    at_least_axes(what, x, rank, f"{rank} of places, after any others")
    shaped(indices, x.shape, "a place for each value")
    if not indices.dtype.is_integer:
        raise bad(f"{what}: expected indices of an integer dtype, got {indices.dtype.name}")
    sizes = per_axis("kernel_size", size, rank, 1)
    steps, border = per_axis("stride", stride if stride or is_int(stride) else size, rank, 1), per_axis("padding", padding, rank, 0)
    first = x.ndim - rank
    if output_size is None:
        extents = tuple((x.shape[first + d] - 1) * steps[d] - 2 * border[d] + sizes[d] for d in range(rank))
    else:
        whole = isinstance(output_size, tuple) and len(output_size) > rank  # a shape, of which the last extents are meant
        extents = per_axis("output_size", output_size[-rank:] if whole else output_size, rank, 1)

    def target(at: Sequence[Any]) -> tuple[Any, ...]:
        return (*at[:first], *digits_of(te.cast(indices[tuple(at)], "int64"), extents))

    def sent(value: Callable[[tuple[Any, ...]], Any], **options: Any) -> te.Tensor:
        body = named(lambda *at: (target(at), value(at)), *batch(first), *PLACES[rank])
        return te.scatter((*x.shape[:first], *extents), body, x.shape, **options)

    if all(step >= taps for step, taps in zip(steps, sizes, strict=True)):  # windows that do not overlap have places of their own
        return sent(lambda at: x[at])

    def number(at: Sequence[Any]) -> Any:
        found: Any = 0
        for d in range(first, x.ndim):
            found = found * x.shape[d] + at[d]
        return te.cast(found, "int64")

    last = sent(number, combine="max", name="last")
    own = named(lambda *at: last[target(at)] == number(at), *batch(first), *PLACES[rank])
    return sent(lambda at: x[at], where=own)


@te.op
def max_unpool1d(
    x: te.Tensor, indices: te.Tensor, *, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> te.Tensor:
    """`y[.., indices[.., o]] = x[.., o]`, zero elsewhere: the values of a maximum pooling put back to their places.

    `indices` as `max_pool1d(..., return_indices=True)` gives them (integers of the shape of `x`); of values sent to one place, by
    windows that overlap, the last in row-major order stays. The extent is `(outputs - 1) * stride - 2 * padding + kernel_size`, or
    `output_size`, which may be the whole shape. `IndexError` as it runs for an index outside.

    >>> kernels.max_unpool1d(np.array([[[3.0, 5.0]]]), np.array([[[1, 3]]]), kernel_size=2)
    array([[[0., 3., 0., 5.]]])
    """
    return _unpool("max_unpool1d", x, indices, 1, kernel_size, stride, padding, output_size)


@te.op
def max_unpool2d(
    x: te.Tensor, indices: te.Tensor, *, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> te.Tensor:
    """`max_unpool1d` over two axes: indices count row-major within them.

    >>> kernels.max_unpool2d(np.array([[[[5.0]]]]), np.array([[[[2]]]]), kernel_size=2)
    array([[[[0., 0.],
             [5., 0.]]]])
    """
    return _unpool("max_unpool2d", x, indices, 2, kernel_size, stride, padding, output_size)


@te.op
def max_unpool3d(
    x: te.Tensor, indices: te.Tensor, *, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> te.Tensor:
    """`max_unpool1d` over three axes: indices count row-major within them.

    >>> kernels.max_unpool3d(np.array([[[[[5.0]]]]]), np.array([[[[[1]]]]]), kernel_size=(1, 1, 2))
    array([[[[[0., 5.]]]]])
    """
    return _unpool("max_unpool3d", x, indices, 3, kernel_size, stride, padding, output_size)


# ---------------------------------------------------------------------------------------------------- averages and norms


def _avg_pool(what: str, x: Any, rank: int, size: Any, stride: Any, padding: Any, ceil: bool, include_pad: bool, divisor: Any) -> te.Tensor:
    pool = _Pool(what, x, rank, size, stride, padding, 1, ceil)
    if divisor is not None and (not is_int(divisor) or divisor == 0):
        raise bad(f"divisor_override: expected an integer other than 0, got {divisor!r}")

    def mean(n: Sequence[Any], o: Sequence[Any]) -> Any:
        number = pool.count(o, include_pad) if divisor is None else divisor
        return pool.reduce(te.sum, n, o, lambda value: value) / number

    return pool.each(mean)


@te.op
def avg_pool1d(
    x: te.Tensor,
    *,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> te.Tensor:
    """`y[.., o] = sum_r x[.., o * stride + r - padding] / count` over the taps r that lie within `x`.

    `count` is the number of taps within the padded `x`, or with `count_include_pad=False` within `x`, or `divisor_override`.
    Shapes, options and errors as `max_pool1d`.

    >>> kernels.avg_pool1d(np.array([[[1.0, 3.0, 5.0, 7.0]]]), kernel_size=2)
    array([[[2., 6.]]])
    """
    return _avg_pool("avg_pool1d", x, 1, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@te.op
def avg_pool2d(
    x: te.Tensor,
    *,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> te.Tensor:
    """`avg_pool1d` over two axes: `x [.., h, w]`.

    >>> kernels.avg_pool2d(np.arange(8.0).reshape(1, 1, 2, 4), kernel_size=2)
    array([[[[2.5, 4.5]]]])
    """
    return _avg_pool("avg_pool2d", x, 2, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@te.op
def avg_pool3d(
    x: te.Tensor,
    *,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> te.Tensor:
    """`avg_pool1d` over three axes: `x [.., d, h, w]`.

    >>> kernels.avg_pool3d(np.arange(8.0).reshape(1, 1, 2, 2, 2), kernel_size=(1, 2, 2)).ravel()
    array([1.5, 5.5])
    """
    return _avg_pool("avg_pool3d", x, 3, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _lp_pool(what: str, x: Any, rank: int, norm_type: Any, size: Any, stride: Any, ceil: bool) -> te.Tensor:
    if isinstance(norm_type, bool) or not isinstance(norm_type, (int, float)) or norm_type <= 0:
        raise bad(f"norm_type: expected a number above 0, got {norm_type!r}")
    pool = _Pool(what, x, rank, size, stride, 0, 1, ceil)

    def power(value: Any) -> Any:
        even = is_int(norm_type) and norm_type % 2 == 0
        return (value if even else te.abs(value)) ** norm_type

    def total(n: Sequence[Any], o: Sequence[Any]) -> Any:
        """The sum of the powers; of a window that is cut at the edge, scaled to that of a whole one."""
        powers = pool.reduce(te.sum, n, o, power)
        return powers * (product(pool.size) / pool.count(o, False)) if pool.windows.padded else powers

    powers = pool.each(total, name="powers")
    # The root has no derivative at 0: nothing flows back into a window of zeros.
    return pool.each(lambda n, o: te.where(powers[(*n, *o)] == 0, 0.0, powers[(*n, *o)] ** (1 / norm_type)))


@te.op
def lp_pool1d(x: te.Tensor, *, norm_type: Any, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> te.Tensor:
    """`y[.., o] = (sum_r |x[.., o * stride + r]| ** norm_type) ** (1 / norm_type)`; a window cut by `ceil_mode` counts as a whole one.

    Of an odd `norm_type` PyTorch takes the powers without absolute values, which is the same for positive `x`. The gradient at a
    window of zeros is 0. Shapes and errors as `max_pool1d`, and for a `norm_type` that is not above 0.

    >>> kernels.lp_pool1d(np.array([[[3.0, 4.0, 6.0, 8.0]]]), norm_type=2, kernel_size=2)
    array([[[ 5., 10.]]])
    """
    return _lp_pool("lp_pool1d", x, 1, norm_type, kernel_size, stride, ceil_mode)


@te.op
def lp_pool2d(x: te.Tensor, *, norm_type: Any, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> te.Tensor:
    """`lp_pool1d` over two axes: `x [.., h, w]`.

    >>> kernels.lp_pool2d(np.ones((1, 1, 2, 4)), norm_type=2, kernel_size=2)
    array([[[[2., 2.]]]])
    """
    return _lp_pool("lp_pool2d", x, 2, norm_type, kernel_size, stride, ceil_mode)
