"""Indexing by data: places in what is sorted, reading by number, and sending values to numbered places.

What reads by data (`gather`) has a gradient that sends values to places; what sends (`scatter_add`) has one that reads. An index out of
range, negative ones included, is an `OutOfBoundsError` (an `IndexError`) as the kernel runs. Values that meet are combined in the order
of the sending tensor: the same bits on every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import at_least, bad, integral, is_int, known, one_of, product, ranked, same_extent, shaped
from tensorexpr.kernels.conventions.axes import along, drop, flat, normalized, number, numbers_too, vector
from tensorexpr.kernels.conventions.broadcasting import at, broadcast_shape
from tensorexpr.kernels.rearranging.segments import Place, counts_of, sent_to

# ------------------------------------------------------------------------------------------------------- searching


@te.op
def searchsorted(
    x: te.Tensor, values: te.Tensor, sorter: te.Tensor | None = None, *, side: Any = "left", right: bool = False, out_int32: bool = False
) -> te.Tensor:
    """Where each of `values` goes in the sorted last axis of `x`, int64: in front of equal ones, with `side` "right" (or `right`) behind.

    `x` is a vector, or has rows for those of `values`. `sorter` says the order of an `x` that is not sorted (`argsort`). NaN goes
    behind all, and a NaN in `x` stands behind all numbers. Rows of known length are halved, others counted.

    >>> kernels.searchsorted(np.array([1, 3, 5, 7]), np.array([[0, 3], [4, 9]]), side="right")
    array([[0, 2],
           [2, 4]])
    """
    one_of("side", side, (None, "left", "right"))
    if x.ndim == 0:
        raise bad("searchsorted: expected a tensor with axes, got x without any")
    if x.ndim > 1:
        if values.ndim != x.ndim:
            raise bad(f"searchsorted: values: expected {x.ndim} axes, as x has, got {values.ndim}")
        for d in range(x.ndim - 1):
            same_extent(f"searchsorted: values, axis {d}", values.shape[d], x.shape[d])
    if sorter is not None:
        integral(sorter, "places of x")
        shaped(sorter, x.shape, "as x")
    behind, front = right or side == "right", x.ndim - 1
    kind = "int32" if out_int32 else "int64"
    return te.compute(values.shape, lambda *i: te.cast(place_in(x, values[i], i[:front], behind, sorter), kind))


@te.op
def bucketize(x: te.Tensor, boundaries: te.Tensor, *, right: bool = False, out_int32: bool = False) -> te.Tensor:
    """The number of the bucket of each element, of those that sorted `boundaries` divide, int64; a boundary is in the one that it ends,
    with `right` in the next.

    >>> kernels.bucketize(np.array([0, 3, 4, 9]), np.array([1, 3, 5]))
    array([0, 1, 2, 3])
    """
    ranked(boundaries, 1)
    return searchsorted.function(boundaries, x, right=right, out_int32=out_int32)


@te.op
def digitize(x: te.Tensor, bins: te.Tensor, *, right: bool = False) -> te.Tensor:
    """`bucketize` as NumPy has it: a boundary of the sorted `bins` begins the next bucket, or ends its own with `right`.

    >>> kernels.digitize(np.array([0, 3, 4, 9]), np.array([1, 3, 5]))
    array([0, 2, 2, 3])
    """
    ranked(bins, 1)
    return searchsorted.function(bins, x, right=not right)


def place_in(x: te.Tensor, value: Any, front: Sequence[Any], behind: bool, order: te.Tensor | None) -> Any:
    """How many elements of the sorted row `front` of `x` stand before a value, or before its end where `behind`."""
    count = x.shape[-1]

    def before(k: Any) -> Any:
        own = x[(*front, k if order is None else order[(*front, k)])]
        found = own <= value if behind else own < value
        return found | te.isnan(value) if value.dtype.is_float else found

    if not is_int(count):
        return te.sum(lambda k: te.cast(before(k), "int64"), count)
    found = te.cast(0, "int64")
    for step in (1 << bit for bit in reversed(range(count.bit_length()))):
        ahead = found + step
        found = te.where((ahead <= count) & before(te.minimum(ahead, count) - 1), ahead, found)
    return found


@te.op
def isin(x: te.Tensor, values: te.Tensor, *, invert: bool = False, assume_unique: bool = False) -> te.Tensor:
    """Whether an element is one of `values` (with `invert` none of them), of any shape; all are compared, whether they are unique or not.

    >>> kernels.isin(np.array([[1, 2], [3, 4]]), np.array([2, 3]))
    array([[False,  True],
           [ True, False]])
    """

    def found(i: tuple[Any, ...]) -> Any:
        one = te.any(lambda *k: x[i] == values[k], values.shape) if values.ndim else x[i] == values[()]
        return ~one if invert else one

    return te.compute(x.shape, lambda *i: found(i))


@te.op
def interp(x: te.Tensor, xp: te.Tensor, fp: te.Tensor, *, left: Any = None, right: Any = None) -> te.Tensor:
    """The line through the points `(xp, fp)` at each element of `x`; `xp` is a vector in ascending order.

    In front of the first point it is `left`, behind the last `right`, by default the values there. NaN stays NaN.

    >>> kernels.interp(np.array([0.5, 2.5, 9.0]), np.array([0.0, 1.0, 3.0]), np.array([0.0, 10.0, 30.0]))
    array([ 5., 25., 30.])
    """
    ranked(xp, 1)
    shaped(fp, xp.shape, "a value for each point")
    count = xp.shape[0]
    if not known(count) or count < 1:
        raise bad(f"interp: expected a known number of points, at least 1, got {count}")

    def element(*i: Any) -> Any:
        v = x[i] if x[i].dtype.is_float else te.cast(x[i], "float64")
        k = te.minimum(te.maximum(place_in(xp, v, (), True, None) - 1, 0), max(count - 2, 0))
        after = te.minimum(k + 1, count - 1)
        width = xp[after] - xp[k]
        # A step has no width: its upper value counts from there on.
        inside = fp[k] + (fp[after] - fp[k]) / te.where(width == 0, 1, width) * (v - xp[k])
        before, behind = fp[0] if left is None else left, fp[count - 1] if right is None else right
        found = te.where(v < xp[0], before, te.where(v > xp[count - 1], behind, te.where(v == xp[count - 1], fp[count - 1], inside)))
        return te.where(te.isnan(v), v, found)

    return te.compute(x.shape, element)


# ------------------------------------------------------------------------------------------------------- reading


@te.op
def gather(x: te.Tensor, index: te.Tensor, *, axis: Any) -> te.Tensor:
    """`y[.., i, ..] = x[.., index[.., i, ..], ..]` along `axis`, of the shape of `index`: `torch.gather`.

    `index` has the rank of `x` and, on the other axes, at most its extents.

    >>> kernels.gather(np.array([[1, 2], [3, 4]]), np.array([[1], [0]]), axis=1)
    array([[2],
           [3]])
    """
    if x.ndim == 0 or index.ndim == 0:  # numbers are vectors of one element, as in PyTorch
        found = gather.function(vector(x), vector(index), axis=axis)
        return found if index.ndim else number(found)
    axis = normalized(axis, x)
    if any(known(n) and n == 0 for n in index.shape):
        return te.compute(index.shape, lambda *i: te.cast(0, x.dtype))
    _fits("index", index, x, axis)
    return te.compute(index.shape, lambda *i: x[along(drop(i, axis), axis, index[i])])


def _fits(name: str, index: te.Tensor, x: te.Tensor, axis: int) -> None:
    """`index` holds integers, has the rank of `x` and at most its extents beside `axis`."""
    integral(index, f"positions on axis {axis} of {x.name}")
    wide = index.ndim == x.ndim and any(known(a, b) and a > b for a, b in zip(drop(index.shape, axis), drop(x.shape, axis), strict=True))
    if index.ndim != x.ndim or wide:
        raise bad(f"{name}: expected the rank of {x.name} and at most its extents beside axis {axis}, got {index.shape} for {x.shape}")


@te.op
def take_along_axis(x: te.Tensor, index: te.Tensor, *, axis: Any) -> te.Tensor:
    """`y[.., i, ..] = x[.., index[.., i, ..], ..]` along `axis`, the other axes broadcast: `numpy.take_along_axis`.

    Negative positions count from the end.

    >>> x = np.array([[30, 10, 20]])
    >>> kernels.take_along_axis(x, np.argsort(x), axis=1)
    array([[10, 20, 30]])
    """
    axis = normalized(axis, x)
    integral(index, f"positions on axis {axis} of x")
    if index.ndim != x.ndim:
        raise bad(f"index: expected the rank of x, {x.ndim}, got {index.ndim}")
    rest = broadcast_shape("take_along_axis", drop(x.shape, axis), drop(index.shape, axis))

    def element(*i: Any) -> Any:
        own = tuple(0 if n == 1 and k != axis else j for k, (n, j) in enumerate(zip(x.shape, i, strict=True)))
        return x[along(drop(own, axis), axis, _from_the_end(at_axis(index, i, axis), x.shape[axis]))]

    def at_axis(tensor: te.Tensor, i: tuple[Any, ...], kept: int) -> Any:
        return tensor[tuple(0 if n == 1 and k != kept else j for k, (n, j) in enumerate(zip(tensor.shape, i, strict=True)))]

    return te.compute(along(rest, axis, index.shape[axis]), element)


@te.op
def take_along_dim(x: te.Tensor, index: te.Tensor, *, axis: Any = None) -> te.Tensor:
    """`take_along_axis`; without an axis `x` and `index` count as flattened.

    >>> kernels.take_along_dim(np.array([[1, 2], [3, 4]]), np.array([3, 0]))
    array([4, 1])
    """
    if axis is None:
        return take.function(x, flat(index))
    return take_along_axis.function(x, index, axis=axis)


@te.op
def take(x: te.Tensor, index: te.Tensor, *, axis: Any = None, mode: str = "raise") -> te.Tensor:
    """`y[.., *i, ..] = x[.., index[*i], ..]` along `axis`; without an axis `x` counts as flattened. `numpy.take`. Negative positions count
    from the end. With `mode` "wrap" positions are taken modulo the extent, with "clip" brought into it (negative ones to 0).

    >>> kernels.take(np.array([10, 20, 30]), np.array([[0, -1]]))
    array([[10, 30]])
    """
    integral(index, "positions in x")
    one_of("mode", mode, ("raise", "wrap", "clip"))

    def inside(position: Any, extent: Any) -> Any:
        if mode == "raise":
            return _from_the_end(position, extent)
        wide = te.cast(position, "int64")
        return wide % extent if mode == "wrap" else te.maximum(te.minimum(wide, extent - 1), 0)

    if axis is None:
        inner = [product(x.shape[k + 1 :]) for k in range(x.ndim)]
        if x.ndim == 0:
            single = te.compute((1,), lambda _: x[()])
            return te.compute(index.shape, lambda *i: single[inside(index[i], 1)])

        def places(flat: Any) -> tuple[Any, ...]:
            return tuple(flat // step if k == 0 else flat // step % n for k, (n, step) in enumerate(zip(x.shape, inner, strict=True)))

        return te.compute(index.shape, lambda *i: x[places(inside(index[i], product(x.shape)))])
    axis = normalized(axis, x)
    shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    stop = axis + index.ndim
    return te.compute(shape, lambda *i: x[(*i[:axis], inside(index[i[axis:stop]], x.shape[axis]), *i[stop:])])


def _from_the_end(position: Any, extent: Any) -> te.Scalar:
    """A position, or one that counts from the end where it is negative."""
    wide = te.cast(position, "int64")
    return te.where(wide < 0, wide + extent, wide)


@te.op
@numbers_too
def index_select(x: te.Tensor, index: te.Tensor, *, axis: Any) -> te.Tensor:
    """`y[.., i, ..] = x[.., index[i], ..]` along `axis`, for a vector `index`.

    >>> kernels.index_select(np.array([[1, 2, 3], [4, 5, 6]]), np.array([2, 0]), axis=1)
    array([[3, 1],
           [6, 4]])
    """
    axis = normalized(axis, x)
    integral(index, f"positions on axis {axis} of x")
    ranked(index, 1)
    return te.compute(along(drop(x.shape, axis), axis, index.shape[0]), lambda *i: x[along(drop(i, axis), axis, index[i[axis]])])


@te.op
def gather_nd(x: te.Tensor, index: te.Tensor) -> te.Tensor:
    """`y[*i, *j] = x[index[*i, 0], .., index[*i, K-1], *j]`: the last axis of `index`, of known extent K, holds leading positions in x.

    >>> kernels.gather_nd(np.array([[1, 2], [3, 4]]), np.array([[0, 1], [1, 0]]))
    array([2, 3])
    """
    integral(index, "positions in x")
    if index.ndim == 0 or not known(index.shape[-1]) or not 0 < index.shape[-1] <= x.ndim:
        raise bad(f"index: expected a last axis of 1 to {x.ndim} positions, got shape {index.shape}")
    deep, lead = index.shape[-1], index.ndim - 1
    shape = (*index.shape[:-1], *x.shape[deep:])
    return te.compute(shape, lambda *i: x[(*(index[(*i[:lead], k)] for k in range(deep)), *i[lead:])])


@te.op
def one_hot(input: te.Tensor, *, num_classes: Any, dtype: str = "int64") -> te.Tensor:
    """`y[.., c] = 1 where input[..] == c else 0` in `dtype`; a number out of range gives a row of zeros.

    >>> kernels.one_hot(np.array([0, 2]), num_classes=3)
    array([[1, 0, 0],
           [0, 0, 1]])
    """
    integral(input, "classes")
    at_least("num_classes", num_classes, 1)
    return te.compute((*input.shape, num_classes), lambda *i: te.cast(input[i[:-1]] == i[-1], dtype))


@te.op
def masked_fill(x: te.Tensor, mask: te.Tensor, *, value: Any) -> te.Tensor:
    """`y[i] = value where mask[i] else x[i]`; `x` and `mask`, of bools, are broadcast.

    >>> kernels.masked_fill(np.array([1.0, 2.0]), np.array([False, True]), value=-1.0)
    array([ 1., -1.])
    """
    if not mask.dtype.is_bool:
        raise bad(f"mask: expected bools, got {mask.dtype.name}")
    shape = broadcast_shape("masked_fill", x.shape, mask.shape)
    return te.compute(shape, lambda *i: te.where(at(mask, i), te.cast(value, x.dtype), at(x, i)))


# ------------------------------------------------------------------------------------------------------- sending


def _last(x: te.Tensor, place: Place, src: te.Tensor, axis: int, extents: Any) -> te.Tensor:
    """`x` with `src` written over it; of those that meet along `axis`, the last. One value at most is sent to a place."""
    winner = te.scatter(x.shape, lambda *i: (place(i), i[axis]), extents, combine="max", name="winner")
    values = te.scatter(x.shape, lambda *i: (place(i), src[i]), extents, where=lambda *i: winner[place(i)] == i[axis], name="values")
    return te.compute(x.shape, lambda *i: te.where(winner[i] >= 0, values[i], x[i]))


def _by_index(x: te.Tensor, index: te.Tensor, src: te.Tensor, axis: int) -> tuple[int, Place]:
    """The axis, and the place of each element of `src`, for `index` of the rank of `x`."""
    axis = normalized(axis, x)
    _fits("index", index, x, axis)
    fits = src.ndim == index.ndim and not any(known(a, b) and a < b for a, b in zip(src.shape, index.shape, strict=True))
    if not fits or src.dtype != x.dtype:
        raise bad(f"src: expected {x.dtype.name} of at least the extents of index, {index.shape}, got {src.dtype.name} of {src.shape}")
    return axis, lambda i: along(drop(i, axis), axis, index[i])


@te.op
@numbers_too
def scatter(x: te.Tensor, index: te.Tensor, src: te.Tensor, *, axis: Any, reduce: str | None = None) -> te.Tensor:
    """`y = x`, then `y[.., index[.., i, ..], ..] = src[.., i, ..]` along `axis`; where several meet, the last one stays.

    A number `src` is sent from everywhere. With `reduce` "add" or "multiply" all that meet are combined with what is there.

    `index` has the rank of `x` and at most its extents on the other axes; of `src` the elements at the indices of `index` are sent.
    Gradients are exact where values meet too: what was overwritten gets none.

    >>> kernels.scatter(np.array([1, 2, 3]), np.array([2, 0]), np.array([30, 10]), axis=0)
    array([10,  2, 30])
    """
    one_of("reduce", reduce, (None, "add", "multiply"))
    if src.ndim == 0 and index.ndim:
        number = src
        src = te.compute(index.shape, lambda *i: te.cast(number[()], x.dtype))
    if reduce is not None:
        return scatter_reduce.function(x, index, src, axis=axis, reduce="sum" if reduce == "add" else "prod")
    axis, place = _by_index(x, index, src, axis)
    return _last(x, place, src, axis, index.shape)


@te.op
@numbers_too
def scatter_add(x: te.Tensor, index: te.Tensor, src: te.Tensor, *, axis: Any) -> te.Tensor:
    """`y = x`, then `y[.., index[.., i, ..], ..] += src[.., i, ..]` along `axis`; shapes as in `scatter`.

    >>> kernels.scatter_add(np.array([0, 0, 0]), np.array([1, 1, 2]), np.array([1, 2, 4]), axis=0)
    array([0, 3, 4])
    """
    axis, place = _by_index(x, index, src, axis)
    total = sent_to(x.shape, place, src, "sum", index.shape, "total")
    return te.compute(x.shape, lambda *i: x[i] + total[i])


@te.op
@numbers_too
def scatter_reduce(x: te.Tensor, index: te.Tensor, src: te.Tensor, *, axis: Any, reduce: Any, include_self: bool = True) -> te.Tensor:
    """`y[p]` = `reduce` ("sum", "prod", "mean", "amax", "amin") of `x[p]` and all `src` sent to p along `axis`; shapes as in `scatter`.

    Without `include_self`, `x[p]` stands only where nothing is sent. The first of equal extremes of `src` gets the gradient; an
    extreme of `src` equal to `x[p]` shares it half and half.

    >>> kernels.scatter_reduce(np.array([5, 5]), np.array([0, 0, 1]), np.array([7, 9, 1]), axis=0, reduce="amax")
    array([9, 5])
    """
    axis, place = _by_index(x, index, src, axis)
    one_of("reduce", reduce, ("sum", "prod", "mean", "amax", "amin"))
    combine = {"sum": "sum", "prod": "prod", "mean": "sum", "amax": "max", "amin": "min"}[reduce]
    sent = sent_to(x.shape, place, src, combine, index.shape, "sent")
    counts = None if include_self and reduce != "mean" else counts_of(x.shape, place, index.shape)

    def joined(own: Any, other: Any) -> Any:
        match reduce:
            case "prod":
                return own * other
            case "amax":
                return te.maximum(own, other)
            case "amin":
                return te.minimum(own, other)
        return own + other

    def element(*i: Any) -> Any:
        value = joined(x[i], sent[i]) if include_self else sent[i]
        if reduce == "mean" and counts is not None:
            value = value / te.cast(te.maximum(counts[i], 1) if not include_self else counts[i] + 1, x.dtype)
        return value if include_self or counts is None else te.where(counts[i] > 0, value, x[i])

    return te.compute(x.shape, element)


def _by_vector(x: te.Tensor, index: te.Tensor, source: te.Tensor, axis: int) -> tuple[int, Place]:
    """The axis, and the place of each element of `source`, for a vector `index` of positions on one axis."""
    axis = normalized(axis, x)
    integral(index, f"positions on axis {axis} of x")
    ranked(index, 1)
    shaped(source, along(drop(x.shape, axis), axis, index.shape[0]), "that of x with one slice per index")
    return axis, lambda i: along(drop(i, axis), axis, index[i[axis]])


@te.op
@numbers_too
def index_add(x: te.Tensor, index: te.Tensor, source: te.Tensor, *, axis: Any, alpha: Any = 1) -> te.Tensor:
    """`y = x`, then `y[.., index[i], ..] += alpha * source[.., i, ..]` along `axis`, for a vector `index`.

    >>> kernels.index_add(np.array([0, 0, 0]), np.array([2, 2, 0]), np.array([1, 10, 100]), axis=0)
    array([100,   0,  11])
    """
    axis, place = _by_vector(x, index, source, axis)
    total = sent_to(x.shape, place, source, "sum", source.shape, "total")
    return te.compute(x.shape, lambda *i: x[i] + alpha * total[i])


@te.op
@numbers_too
def index_copy(x: te.Tensor, index: te.Tensor, source: te.Tensor, *, axis: Any) -> te.Tensor:
    """`y = x`, then `y[.., index[i], ..] = source[.., i, ..]` along `axis`, for a vector `index`; of those that meet, the last stays.

    >>> kernels.index_copy(np.array([1, 2, 3]), np.array([2, 0]), np.array([30, 10]), axis=0)
    array([10,  2, 30])
    """
    axis, place = _by_vector(x, index, source, axis)
    return _last(x, place, source, axis, source.shape)


@te.op
@numbers_too
def index_fill(x: te.Tensor, index: te.Tensor, *, axis: Any, value: Any) -> te.Tensor:
    """`y = x`, then `y[.., index[i], ..] = value` along `axis`, for a vector `index`; negative positions count from the end.

    >>> kernels.index_fill(np.array([1, 2, 3]), np.array([0, -1]), axis=0, value=9)
    array([9, 2, 9])
    """
    axis = normalized(axis, x)
    integral(index, f"positions on axis {axis} of x")
    ranked(index, 0, 1)
    size = x.shape[axis]
    counts = counts_of((size,), lambda i: (_from_the_end(index[i], size),), index.shape)
    return te.compute(x.shape, lambda *i: te.where(counts[i[axis]] > 0, te.cast(value, x.dtype), x[i]))
