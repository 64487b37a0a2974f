"""Running sums, products, extremes and recurrences along an axis, as scans: linear time forward, and backward one scan the other way.

`reverse` runs from the end; `exclusive` leaves the element itself out, so the first result is the start of the recurrence. A scan
steps along its first axis: where that is not the axis asked for, the result is read in its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import at_least, bad, in_dtype, known, shaped
from tensorexpr.kernels.conventions.axes import along, drop, normalized, numbers_too
from tensorexpr.kernels.conventions.broadcasting import at, stretches


def _running(
    x: te.Tensor,
    axis: int,
    start: tuple[Any, ...],
    step: Callable[[tuple[Any, ...], tuple[Any, ...], Any], tuple[Any, ...]],
    names: tuple[str, ...],
    exclusive: bool = False,
    reverse: bool = False,
    given: te.Tensor | None = None,
) -> tuple[te.Tensor, ...]:
    """States of a recurrence along `axis` for every index of the others: `step(old, place in x, position)` from scalars `start`.

    `given`: a tensor that is the start of the first state in place of a scalar.
    """
    length, rest = x.shape[axis], drop(x.shape, axis)
    init = tuple(te.compute(rest, lambda *i, v=v: v, name=f"{name}_start") for name, v in zip(names, start, strict=True))
    init = init if given is None else (given, *init[1:])

    def position(t: Any) -> Any:
        return length - 1 - t if reverse else t

    def body(t: Any, state: Any) -> Any:
        old = state if isinstance(state, tuple) else (state,)
        made = te.compute(rest, lambda *i: step(tuple(s[i] for s in old), along(i, axis, position(t)), position(t)))
        return made if len(old) > 1 else made[0]

    # A body that returns a tuple gives a tuple of tensors, also of length 1.
    found = te.scan(body, init[0] if len(init) == 1 else init, length, name=names[0] if len(names) == 1 else names)
    states = found if isinstance(found, tuple) else (found,)
    if axis == 0 and not reverse and not exclusive:
        return states

    def placed(number: int) -> te.Tensor:
        def value(*i: Any) -> Any:
            t, others = position(i[axis]), drop(i, axis)
            return te.where(t > 0, states[number][(t - 1, *others)], init[number][others]) if exclusive else states[number][(t, *others)]

        return te.compute(x.shape, value)

    return tuple(placed(number) for number in range(len(states)))


def _summed(x: te.Tensor) -> str:
    """The dtype of sums and products: 64 bits for integers and bools, as in NumPy."""
    if x.dtype.is_float:
        return x.dtype.name
    return "uint64" if x.dtype.is_integer and not x.dtype.is_signed else "int64"


@te.op
@numbers_too
def cumsum(
    x: te.Tensor, *, axis: Any = -1, exclusive: bool = False, reverse: bool = False, dtype: Any = None, include_initial: bool = False
) -> te.Tensor:
    """`y[.., i, ..] = sum of x[.., k, ..] over k <= i` along `axis` (k < i if `exclusive`; k >= i or k > i in `reverse`).

    Elements are cast to `dtype` first. With `include_initial` there is one more, the sum of nothing, where counting begins.

    >>> kernels.cumsum(np.array([1, 2, 3])), kernels.cumsum(np.array([1, 2, 3]), exclusive=True)
    (array([1, 3, 6]), array([0, 1, 3]))
    """
    x = in_dtype(x, dtype)
    wide = _summed(x)
    axis = normalized(axis, x)
    found = _running(x, axis, (te.cast(0, wide),), lambda s, p, _: (s[0] + te.cast(x[p], wide),), ("sums",), exclusive, reverse)[0]
    return _with_initial(found, axis, 0, exclusive, reverse) if include_initial else found


@te.op
@numbers_too
def cumprod(
    x: te.Tensor, *, axis: Any = -1, exclusive: bool = False, reverse: bool = False, dtype: Any = None, include_initial: bool = False
) -> te.Tensor:
    """`y[.., i, ..] = product of x[.., k, ..] over k <= i` along `axis`; options as in `cumsum`. Zeros have exact gradients.

    >>> kernels.cumprod(np.array([1.0, 2.0, 3.0, 4.0]))
    array([ 1.,  2.,  6., 24.])
    """
    x = in_dtype(x, dtype)
    wide = _summed(x)
    axis = normalized(axis, x)
    found = _running(x, axis, (te.cast(1, wide),), lambda s, p, _: (s[0] * te.cast(x[p], wide),), ("products",), exclusive, reverse)[0]
    return _with_initial(found, axis, 1, exclusive, reverse) if include_initial else found


def _with_initial(found: te.Tensor, axis: int, start: int, exclusive: bool, reverse: bool) -> te.Tensor:
    """Running results with the one of no element in front, or behind where they run from the end."""
    if exclusive:
        raise bad("include_initial: expected exclusive=False, got both", "an exclusive result begins with that of nothing already")
    length = found.shape[axis]

    def element(*i: Any) -> Any:
        t, rest = i[axis], drop(i, axis)
        here, place = (t < length, t) if reverse else (t > 0, t - 1)
        return te.where(here, found[along(rest, axis, place)], te.cast(start, found.dtype))

    return te.compute(along(drop(found.shape, axis), axis, length + 1), element)


def _extremes(x: te.Tensor, axis: int, greatest: bool, reverse: bool) -> tuple[te.Tensor, ...]:
    axis = normalized(axis, x)

    def step(old: tuple[Any, ...], place: tuple[Any, ...], position: Any) -> tuple[Any, ...]:
        taken = x[place] >= old[0] if greatest else x[place] <= old[0]
        if x.dtype.is_float:
            taken = taken | te.isnan(x[place])
        return te.where(taken, x[place], old[0]), te.where(taken, position, old[1])

    start = te.cast(x.dtype.least if greatest else x.dtype.greatest, x.dtype), te.cast(0, "int64")
    return _running(x, axis, start, step, ("values", "indices"), reverse=reverse)


@te.op
@numbers_too
def cummax(x: te.Tensor, *, axis: Any = -1, reverse: bool = False) -> tuple[te.Tensor, ...]:
    """`(values, indices)`: the greatest of x[.., k, ..] over k <= i along `axis`, and its position (int64).

    The last of equals wins and gets the gradient, as in PyTorch; from a NaN on, values are NaN.

    >>> kernels.cummax(np.array([1, 3, 2, 5]))
    (array([1, 3, 3, 5]), array([0, 1, 1, 3]))
    """
    return _extremes(x, axis, True, reverse)


@te.op
@numbers_too
def cummin(x: te.Tensor, *, axis: Any = -1, reverse: bool = False) -> tuple[te.Tensor, ...]:
    """`(values, indices)`: the least of x[.., k, ..] over k <= i along `axis`, and its position; see `cummax`.

    >>> kernels.cummin(np.array([3, 5, 1, 2]))
    (array([3, 3, 1, 1]), array([0, 0, 2, 2]))
    """
    return _extremes(x, axis, False, reverse)


@te.op
@numbers_too
def logcumsumexp(x: te.Tensor, *, axis: Any = -1, reverse: bool = False) -> te.Tensor:
    """`y[.., i, ..] = log(sum of exp(x[.., k, ..]) over k <= i)` along `axis`, stable; minus infinities are empty terms.

    >>> kernels.logcumsumexp(np.array([0.0, 0.0, 100.0])).round(4)
    array([  0.    ,   0.6931, 100.    ])
    """
    axis = normalized(axis, x)

    def step(old: tuple[Any, ...], place: tuple[Any, ...], _: Any) -> tuple[Any, ...]:
        a, b = old[0], x[place]
        top = te.maximum(a, b)
        return (te.where(a == b, top + math.log(2.0), top + te.log1p(te.exp(-te.abs(a - b)))),)

    return _running(x, axis, (te.cast(-np.inf, x.dtype),), step, ("sums",), reverse=reverse)[0]


@te.op
def linear_recurrence(a: te.Tensor, b: te.Tensor, initial: te.Tensor | None = None, *, axis: Any = 0, reverse: bool = False) -> te.Tensor:
    """`h_t = a_t * h_{t-1} + b_t` along `axis`, for every index of the others; a and b of one shape.

    `initial`, of that shape without `axis`, is the state before the first step (0 if left out); `reverse` steps from the end.

    >>> kernels.linear_recurrence(np.array([0.5, 0.5, 0.5]), np.array([1.0, 1.0, 1.0]))
    array([1.  , 1.5 , 1.75])
    """
    axis = normalized(axis, b)
    shaped(a, b.shape, "that of b")
    if initial is not None:
        shaped(initial, drop(b.shape, axis), "that of b without the axis")
    return _running(
        b, axis, (te.cast(0, b.dtype),), lambda s, p, _: (a[p] * s[0] + b[p],), ("states",), reverse=reverse, given=initial
    )[0]  # fmt: skip


@te.op
def ema(x: te.Tensor, *, alpha: Any, axis: Any = -1) -> te.Tensor:
    """The exponential moving average along `axis`: `y_0 = x_0`, `y_t = alpha * x_t + (1 - alpha) * y_{t-1}`.

    >>> kernels.ema(np.array([0.0, 1.0, 1.0]), alpha=0.5)
    array([0.  , 0.5 , 0.75])
    """
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not 0 < alpha <= 1:
        raise bad(f"alpha: expected a number above 0 and at most 1, got {alpha!r}")
    axis = normalized(axis, x)

    def step(old: tuple[Any, ...], place: tuple[Any, ...], position: Any) -> tuple[Any, ...]:
        return (te.where(position == 0, x[place], alpha * x[place] + (1 - alpha) * old[0]),)

    return _running(x, axis, (te.cast(0, x.dtype),), step, ("averages",))[0]


def _extended(x: te.Tensor, front: te.Tensor | None, behind: te.Tensor | None, axis: int) -> te.Tensor:
    """`x` with tensors in front and behind along an axis."""
    for part in (front, behind):
        if part is not None:
            shaped(part, along(drop(x.shape, axis), axis, part.shape[axis] if part.ndim == x.ndim else 1), "that of x but for the axis")
    if front is None and behind is None:
        return x
    first = 0 if front is None else front.shape[axis]
    last = first + x.shape[axis]
    extent = last if behind is None else last + behind.shape[axis]

    def body(*i: Any) -> Any:
        rest, place = drop(i, axis), i[axis]
        found = x[along(rest, axis, place - first)]
        if behind is not None:
            found = te.where(place < last, found, behind[along(rest, axis, place - last)])
        return found if front is None else te.where(place < first, front[i], found)

    return te.compute(along(drop(x.shape, axis), axis, extent), body)


@te.op
def diff(x: te.Tensor, prepend: te.Tensor | None = None, append: te.Tensor | None = None, *, n: Any = 1, axis: Any = -1) -> te.Tensor:
    """`y[.., i, ..] = x[.., i + 1, ..] - x[.., i, ..]` along `axis`, `n` times over; the extent falls by `n`, to 0 at the least.

    `prepend` and `append` stand in front of `x` and behind it along `axis`.

    >>> kernels.diff(np.array([1, 4, 9, 16])), kernels.diff(np.array([1, 4, 9, 16]), n=2)
    (array([3, 5, 7]), array([2, 2]))
    """
    at_least("n", n, 0)
    axis = normalized(axis, x)
    x = _extended(x, prepend, append, axis)
    for _ in range(n):
        extent = x.shape[axis]
        shorter = max(extent - 1, 0) if known(extent) else te.maximum(extent - 1, 0)
        x = te.compute(
            along(drop(x.shape, axis), axis, shorter), lambda *i, x=x: x[along(drop(i, axis), axis, i[axis] + 1)] - x[i]
        )  # fmt: skip
    return te.compute(x.shape, lambda *i: x[i]) if n == 0 else x


@te.op
def unwrap(x: te.Tensor, *, discont: Any = None, axis: Any = -1, period: Any = 2 * math.pi) -> te.Tensor:
    """`x` with multiples of `period` added along `axis`, so that no step is longer than half of it.

    Steps shorter than `discont` (half of the period at the least, and by default) stay as they are.

    >>> kernels.unwrap(np.array([0.0, 3.0, -3.0])).round(4)
    array([0.    , 3.    , 3.2832])
    """
    if isinstance(period, bool) or not isinstance(period, (int, float)) or not period > 0:
        raise bad(f"period: expected a number above 0, got {period!r}")
    axis, half = normalized(axis, x), period / 2
    shortest = half if discont is None else max(discont, half)
    kind = x.dtype if x.dtype.is_float else te.dtype("float64")

    def turns(*i: Any) -> Any:
        step = te.cast(x[i], kind) - te.cast(x[along(drop(i, axis), axis, te.maximum(i[axis] - 1, 0))], kind)
        rest = (step + half) % period - half
        rest = te.where((rest == -half) & (step > 0), half, rest)
        return te.where((i[axis] == 0) | (te.abs(step) < shortest), 0, rest - step)

    found = cumsum.function(te.compute(x.shape, turns, name="turns"), axis=axis)
    return te.compute(x.shape, lambda *i: x[i] + found[i])


def _panels(y: te.Tensor, x: te.Tensor | None, dx: float, axis: int) -> tuple[Any, Callable[[tuple[Any, ...]], Any]]:
    """How many panels lie between the points of `axis`, and the area of the one at an index."""
    if x is not None and (x.ndim == 1 or x.ndim != y.ndim or not stretches(drop(x.shape, axis), drop(y.shape, axis))):
        shaped(x, (y.shape[axis],) if x.ndim == 1 else y.shape, "one point per value along the axis, or what broadcasts to the shape of y")

    def area(i: tuple[Any, ...]) -> Any:
        after = along(drop(i, axis), axis, i[axis] + 1)
        if x is None:
            return (y[i] + y[after]) * (dx / 2)
        width = x[i[axis] + 1] - x[i[axis]] if x.ndim == 1 else at(x, after) - at(x, i)
        return (y[i] + y[after]) * width * 0.5

    extent = y.shape[axis]
    return (max(extent - 1, 0) if known(extent) else te.maximum(extent - 1, 0)), area


@te.op
def trapezoid(y: te.Tensor, x: te.Tensor | None = None, *, dx: float = 1.0, axis: Any = -1) -> te.Tensor:
    """`sum_k (y[k] + y[k + 1]) / 2 * (x[k + 1] - x[k])` along `axis`; points `dx` apart without x; x a vector or of the shape of y.

    >>> kernels.trapezoid(np.array([0.0, 1.0, 4.0]), np.array([0.0, 1.0, 3.0]))
    array(5.5)
    """
    axis = normalized(axis, y)
    panels, area = _panels(y, x, dx, axis)
    return te.compute(drop(y.shape, axis), lambda *i: te.sum(lambda k: area(along(i, axis, k)), panels))


@te.op
def cumulative_trapezoid(y: te.Tensor, x: te.Tensor | None = None, *, dx: float = 1.0, axis: Any = -1) -> te.Tensor:
    """`z[i] = sum over k <= i of (y[k] + y[k + 1]) / 2 * (x[k + 1] - x[k])` along `axis`, whose extent falls by 1; see `trapezoid`.

    >>> kernels.cumulative_trapezoid(np.array([0.0, 2.0, 4.0]), dx=0.5)
    array([0.5, 2. ])
    """
    axis = normalized(axis, y)
    panels, area = _panels(y, x, dx, axis)
    areas = te.compute(along(drop(y.shape, axis), axis, panels), lambda *i: area(i), name="areas")
    return _running(areas, axis, (te.cast(0, y.dtype),), lambda s, p, _: (s[0] + areas[p],), ("sums",))[0]


@te.op
def trapz(y: te.Tensor, x: te.Tensor | None = None, *, dx: float = 1.0, axis: Any = -1) -> te.Tensor:
    """`trapezoid` under its older name.

    >>> kernels.trapz(np.array([0.0, 1.0, 4.0]))
    array(3.)
    """
    return trapezoid.function(y, x, dx=dx, axis=axis)
