"""Indexing by data: reading rows by number, sending values to numbered places, and sums over segments and ragged rows.

What reads by data (`embedding`, `gather`) has a gradient that sends values to places; what sends (`scatter_add`, `segment_sum`) has one
that reads. An index out of range, negative ones included, is an `OutOfBoundsError` (an `IndexError`) as the kernel runs. Values
that meet are combined in the order of the sending tensor: the same bits on every run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import at_least, bad, integral, is_int, known, one_of, product, ranked, same_extent, shaped
from tensorexpr.kernels.conventions.axes import along, drop, normalized, number, numbers_too, vector
from tensorexpr.kernels.conventions.broadcasting import at, broadcast_shape
from tensorexpr.kernels.reductions.reductions import norm

Place = Callable[[tuple[Any, ...]], tuple[Any, ...]]
"""Indices of what is sent, to the place that receives it."""


# ------------------------------------------------------------------------------------------------------- reading


def _padding(row: Any, rows: Any) -> Any:
    """A row of a table that is padding, counted from the front."""
    if not is_int(row) or (known(rows) and not -rows <= row < rows) or (row < 0 and not known(rows)):
        raise bad(f"padding_idx: expected a row of weight, between -{rows} and {rows} - 1, got {row!r}")
    return row + rows if row < 0 else row


def _table(weight: te.Tensor, input: te.Tensor, max_norm: Any, norm_type: Any, scale_grad_by_freq: bool) -> te.Tensor:
    """The rows of `weight` as they are looked up: not longer than `max_norm`, their gradients divided by how often each is read.

    Rows that are shortened pass their gradients on as they are, as in PyTorch (which shortens them in place).
    """
    still = te.stop_gradient(weight)
    if scale_grad_by_freq:
        counts = _counts((weight.shape[0],), lambda i: (input[i],), input.shape)
        own = weight

        def shared(v: Any, d: Any) -> Any:
            return still[v, d] + (own[v, d] - still[v, d]) / te.cast(te.maximum(counts[v], 1), own.dtype)

        weight = te.compute(weight.shape, shared, name="shared")
    if max_norm is None:
        return weight
    length = te.stop_gradient(norm.function(weight, p=norm_type, axis=1))

    def short(v: Any, d: Any) -> Any:
        value = still[v, d]
        return te.where(length[v] > max_norm, value * (max_norm / (length[v] + 1e-7)), value) + (weight[v, d] - value)

    return te.compute(weight.shape, short, name="short")


@te.op
def embedding(
    input: te.Tensor,
    weight: te.Tensor,
    *,
    padding_idx: Any = None,
    max_norm: Any = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> te.Tensor:
    """`y[.., d] = weight[input[..], d]` for integers `input` of any shape and a table `weight` (V, D).

    The row `padding_idx` is read like any other, but receives no gradient. Rows longer than `max_norm` (in the norm of `norm_type`) are
    read as if they had this length. `scale_grad_by_freq` divides the gradient of a row by how often it is read. Gradients are dense
    whatever `sparse` says.
    """
    integral(input, "rows of weight")
    ranked(weight, 2)
    rows, features = weight.shape
    weight = _table(weight, input, max_norm, norm_type, scale_grad_by_freq)
    if padding_idx is None:
        return te.compute((*input.shape, features), lambda *i: weight[input[i[:-1]], i[-1]])
    padding = _padding(padding_idx, rows)
    still = te.stop_gradient(weight)

    def row(*i: Any) -> Any:
        number = input[i[:-1]]
        return te.where(number == padding, still[padding, i[-1]], weight[number, i[-1]])

    return te.compute((*input.shape, features), row)


@te.op
def embedding_bag(
    input: te.Tensor,
    weight: te.Tensor,
    offsets: te.Tensor | None = None,
    per_sample_weights: te.Tensor | None = None,
    *,
    max_norm: Any = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    include_last_offset: bool = False,
    padding_idx: Any = None,
) -> te.Tensor:
    """`y[b, d]` = the sum, mean or max over the bag b of `weight[input[t], d]`, never storing the rows; 0 for an empty bag.

    `input` (B, T): each row is a bag. Or `input` (N,) with `offsets` (B,): bag b is `offsets[b] <= t < offsets[b + 1]`, the last one
    up to N (with `include_last_offset` the last offset says where the last bag ends). `per_sample_weights`, of the shape of
    `input`, multiplies the rows of a sum. What is the row `padding_idx` is not in the bag. Other options are those of `embedding`.
    """
    integral(input, "rows of weight")
    ranked(input, 1, 2)
    ranked(weight, 2)
    one_of("mode", mode, ("sum", "mean", "max"))
    if (offsets is None) != (input.ndim == 2):
        raise bad(f"offsets: expected one with an input of 1 axis and none with 2, got an input of {input.ndim}")
    if per_sample_weights is not None:
        shaped(per_sample_weights, input.shape, "one weight per item")
        if mode != "sum":
            raise bad(f"per_sample_weights: expected mode 'sum', got {mode!r}")
    padding = None if padding_idx is None else _padding(padding_idx, weight.shape[0])
    weight = _table(weight, input, max_norm, norm_type, scale_grad_by_freq)

    if offsets is None:
        bags = input.shape[0]
    else:
        start, bags, counted = _rows_of(offsets, input.shape[0], include_last_offset)

    def length(b: Any) -> Any:
        return input.shape[1] if offsets is None else counted(b)

    def item(b: Any, k: Any) -> tuple[Any, ...]:
        return (b, k) if offsets is None else (start(b) + k,)

    def row(b: Any, k: Any, d: Any) -> Any:
        value = weight[input[item(b, k)], d]
        return value if per_sample_weights is None else value * per_sample_weights[item(b, k)]

    def inside(b: Any) -> Any:
        """Which items of a bag count."""
        return None if padding is None else lambda k: input[item(b, k)] != padding

    def size(b: Any) -> Any:
        return length(b) if padding is None else te.sum(lambda k: te.cast(input[item(b, k)] != padding, "int64"), length(b))

    def bag(b: Any, d: Any) -> Any:
        reduction = te.max if mode == "max" else te.sum
        value = reduction(lambda k: row(b, k, d), length(b), where=inside(b))
        if mode == "max":
            return te.where(size(b) > 0, value, 0.0) if offsets is not None or padding is not None else value
        return value / te.cast(te.maximum(size(b), 1), weight.dtype) if mode == "mean" else value

    return te.compute((bags, weight.shape[1]), bag)


def _rows_of(offsets: te.Tensor, total: Any, last_given: bool) -> tuple[Callable[[Any], Any], Any, Callable[[Any], Any]]:
    """Where a ragged row starts, how many there are, and how long one is."""
    integral(offsets, "starts of rows")
    ranked(offsets, 1)
    rows = offsets.shape[0] - 1 if last_given else offsets.shape[0]

    def stop(r: Any) -> Any:
        return offsets[r + 1] if last_given else te.where(r + 1 < rows, offsets[te.minimum(r + 1, rows - 1)], total)

    return (lambda r: offsets[r]), rows, (lambda r: stop(r) - offsets[r])


@te.op
def gather(x: te.Tensor, index: te.Tensor, *, axis: Any) -> te.Tensor:
    """`y[.., i, ..] = x[.., index[.., i, ..], ..]` along `axis`, of the shape of `index`: `torch.gather`.

    `index` has the rank of `x` and, on the other axes, at most its extents.
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
    """`take_along_axis`; without an axis `x` and `index` count as flattened."""
    if axis is None:
        return take.function(x, _flat(index))
    return take_along_axis.function(x, index, axis=axis)


def _flat(x: te.Tensor) -> te.Tensor:
    """The elements along one axis, in row-major order."""
    inner = [product(x.shape[d + 1 :]) for d in range(x.ndim)]
    return te.compute((product(x.shape),), lambda f: x[tuple(f // step % n for step, n in zip(inner, x.shape, strict=True))])


@te.op
def take(x: te.Tensor, index: te.Tensor, *, axis: Any = None) -> te.Tensor:
    """`y[.., *i, ..] = x[.., index[*i], ..]` along `axis`; without an axis `x` counts as flattened. `numpy.take`. Negative positions count
    from the end."""
    integral(index, "positions in x")
    if axis is None:
        inner = [product(x.shape[k + 1 :]) for k in range(x.ndim)]
        if x.ndim == 0:
            single = te.compute((1,), lambda _: x[()])
            return te.compute(index.shape, lambda *i: single[_from_the_end(index[i], 1)])

        def places(flat: Any) -> tuple[Any, ...]:
            return tuple(flat // step if k == 0 else flat // step % n for k, (n, step) in enumerate(zip(x.shape, inner, strict=True)))

        return te.compute(index.shape, lambda *i: x[places(_from_the_end(index[i], product(x.shape)))])
    axis = normalized(axis, x)
    shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    stop = axis + index.ndim
    return te.compute(shape, lambda *i: x[(*i[:axis], _from_the_end(index[i[axis:stop]], x.shape[axis]), *i[stop:])])


def _from_the_end(position: Any, extent: Any) -> te.Scalar:
    """A position, or one that counts from the end where it is negative."""
    wide = te.cast(position, "int64")
    return te.where(wide < 0, wide + extent, wide)


@te.op
@numbers_too
def index_select(x: te.Tensor, index: te.Tensor, *, axis: Any) -> te.Tensor:
    """`y[.., i, ..] = x[.., index[i], ..]` along `axis`, for a vector `index`."""
    axis = normalized(axis, x)
    integral(index, f"positions on axis {axis} of x")
    ranked(index, 1)
    return te.compute(along(drop(x.shape, axis), axis, index.shape[0]), lambda *i: x[along(drop(i, axis), axis, index[i[axis]])])


@te.op
def gather_nd(x: te.Tensor, index: te.Tensor) -> te.Tensor:
    """`y[*i, *j] = x[index[*i, 0], .., index[*i, K-1], *j]`: the last axis of `index`, of known extent K, holds leading positions in x."""
    integral(index, "positions in x")
    if index.ndim == 0 or not known(index.shape[-1]) or not 0 < index.shape[-1] <= x.ndim:
        raise bad(f"index: expected a last axis of 1 to {x.ndim} positions, got shape {index.shape}")
    deep, lead = index.shape[-1], index.ndim - 1
    shape = (*index.shape[:-1], *x.shape[deep:])
    return te.compute(shape, lambda *i: x[(*(index[(*i[:lead], k)] for k in range(deep)), *i[lead:])])


@te.op
def one_hot(input: te.Tensor, *, num_classes: Any) -> te.Tensor:
    """`y[.., c] = 1 where input[..] == c else 0`, int64; a number out of range gives a row of zeros."""
    integral(input, "classes")
    at_least("num_classes", num_classes, 1)
    return te.compute((*input.shape, num_classes), lambda *i: te.cast(input[i[:-1]] == i[-1], "int64"))


@te.op
def masked_fill(x: te.Tensor, mask: te.Tensor, *, value: Any) -> te.Tensor:
    """`y[i] = value where mask[i] else x[i]`; `x` and `mask`, of bools, are broadcast."""
    if not mask.dtype.is_bool:
        raise bad(f"mask: expected bools, got {mask.dtype.name}")
    shape = broadcast_shape("masked_fill", x.shape, mask.shape)
    return te.compute(shape, lambda *i: te.where(at(mask, i), te.cast(value, x.dtype), at(x, i)))


# ------------------------------------------------------------------------------------------------------- sending


def _sent(shape: Any, place: Place, src: te.Tensor, combine: str, extents: Any, name: str) -> te.Tensor:
    return te.scatter(shape, lambda *i: (place(i), src[i]), extents, combine=combine, name=name)


def _counts(shape: Any, place: Place, extents: Any) -> te.Tensor:
    """How many values each place receives."""
    return te.scatter(shape, lambda *i: (place(i), 1), extents, name="counts")


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
    """`y = x`, then `y[.., index[.., i, ..], ..] += src[.., i, ..]` along `axis`; shapes as in `scatter`."""
    axis, place = _by_index(x, index, src, axis)
    total = _sent(x.shape, place, src, "sum", index.shape, "total")
    return te.compute(x.shape, lambda *i: x[i] + total[i])


@te.op
@numbers_too
def scatter_reduce(x: te.Tensor, index: te.Tensor, src: te.Tensor, *, axis: Any, reduce: Any, include_self: bool = True) -> te.Tensor:
    """`y[p]` = `reduce` ("sum", "prod", "mean", "amax", "amin") of `x[p]` and all `src` sent to p along `axis`; shapes as in `scatter`.

    Without `include_self`, `x[p]` stands only where nothing is sent. The first of equal extremes of `src` gets the gradient; an
    extreme of `src` equal to `x[p]` shares it half and half.
    """
    axis, place = _by_index(x, index, src, axis)
    one_of("reduce", reduce, ("sum", "prod", "mean", "amax", "amin"))
    combine = {"mean": "sum", "amax": "max", "amin": "min"}.get(reduce, reduce)
    sent = _sent(x.shape, place, src, combine, index.shape, "sent")
    counts = None if include_self and reduce != "mean" else _counts(x.shape, place, index.shape)

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
    """`y = x`, then `y[.., index[i], ..] += alpha * source[.., i, ..]` along `axis`, for a vector `index`."""
    axis, place = _by_vector(x, index, source, axis)
    total = _sent(x.shape, place, source, "sum", source.shape, "total")
    return te.compute(x.shape, lambda *i: x[i] + alpha * total[i])


@te.op
@numbers_too
def index_copy(x: te.Tensor, index: te.Tensor, source: te.Tensor, *, axis: Any) -> te.Tensor:
    """`y = x`, then `y[.., index[i], ..] = source[.., i, ..]` along `axis`, for a vector `index`; of those that meet, the last stays."""
    axis, place = _by_vector(x, index, source, axis)
    return _last(x, place, source, axis, source.shape)


@te.op
@numbers_too
def index_fill(x: te.Tensor, index: te.Tensor, *, axis: Any, value: Any) -> te.Tensor:
    """`y = x`, then `y[.., index[i], ..] = value` along `axis`, for a vector `index`; negative positions count from the end."""
    axis = normalized(axis, x)
    integral(index, f"positions on axis {axis} of x")
    ranked(index, 0, 1)
    size = x.shape[axis]
    counts = _counts((size,), lambda i: (_from_the_end(index[i], size),), index.shape)
    return te.compute(x.shape, lambda *i: te.where(counts[i[axis]] > 0, te.cast(value, x.dtype), x[i]))


@te.op
def bincount(input: te.Tensor, weights: te.Tensor | None = None, *, num_bins: Any) -> te.Tensor:
    """`y[b] = sum_t weights[t] over input[t] == b`, or their number (int64) without weights; `num_bins` is what `minlength` cannot be:
    the length of the result, fixed when the op is compiled."""
    integral(input, "bins")
    ranked(input, 1)
    at_least("num_bins", num_bins, 1)
    if weights is None:
        return _counts((num_bins,), lambda i: (input[i],), input.shape)
    shaped(weights, input.shape, "one weight per item")
    return _sent((num_bins,), lambda i: (input[i],), weights, "sum", input.shape, "bins")


# ------------------------------------------------------------------------------------------------------- segments


def _by_segment(data: te.Tensor, segment_ids: te.Tensor, num_segments: int) -> tuple[tuple[Any, ...], Place]:
    """The shape of what is received, and the place of each element of `data`."""
    integral(segment_ids, "segments")
    ranked(segment_ids, 1)
    at_least("num_segments", num_segments, 1)
    if data.ndim == 0:
        raise bad("data: expected a tensor whose first axis is in segments, got one without axes")
    same_extent("segment_ids", segment_ids.shape[0], data.shape[0], "one segment per row of data")
    return (num_segments, *data.shape[1:]), lambda i: (segment_ids[i[0]], *i[1:])


def _of_segments(data: te.Tensor, segment_ids: te.Tensor, num_segments: int, combine: str) -> te.Tensor:
    shape, place = _by_segment(data, segment_ids, num_segments)
    return _sent(shape, place, data, combine, data.shape, "segments")


@te.op
def segment_sum(data: te.Tensor, segment_ids: te.Tensor, *, num_segments: Any) -> te.Tensor:
    """`y[s, ..] = sum of data[t, ..] over segment_ids[t] == s`; the ids in any order, an empty segment is 0."""
    return _of_segments(data, segment_ids, num_segments, "sum")


@te.op
def segment_prod(data: te.Tensor, segment_ids: te.Tensor, *, num_segments: Any) -> te.Tensor:
    """`y[s, ..] = product of data[t, ..] over segment_ids[t] == s`; an empty segment is 1. Zeros have exact gradients."""
    return _of_segments(data, segment_ids, num_segments, "prod")


@te.op
def segment_max(data: te.Tensor, segment_ids: te.Tensor, *, num_segments: Any) -> te.Tensor:
    """`y[s, ..] = max of data[t, ..] over segment_ids[t] == s`; an empty segment is -inf. The first of equals gets the gradient."""
    return _of_segments(data, segment_ids, num_segments, "max")


@te.op
def segment_min(data: te.Tensor, segment_ids: te.Tensor, *, num_segments: Any) -> te.Tensor:
    """`y[s, ..] = min of data[t, ..] over segment_ids[t] == s`; an empty segment is inf. The first of equals gets the gradient."""
    return _of_segments(data, segment_ids, num_segments, "min")


@te.op
def segment_mean(data: te.Tensor, segment_ids: te.Tensor, *, num_segments: Any) -> te.Tensor:
    """`y[s, ..] = mean of data[t, ..] over segment_ids[t] == s`; an empty segment is 0."""
    total = _of_segments(data, segment_ids, num_segments, "sum")
    counts = _counts((num_segments,), lambda i: (segment_ids[i],), segment_ids.shape)
    return te.compute(total.shape, lambda *i: total[i] / te.cast(te.maximum(counts[i[0]], 1), data.dtype))


@te.op
def segment_softmax(data: te.Tensor, segment_ids: te.Tensor, *, num_segments: Any) -> te.Tensor:
    """`y[t, ..] = exp(data[t, ..]) / sum of exp(data[u, ..]) over segment_ids[u] == segment_ids[t]`, stable; the shape of `data`."""
    shape, place = _by_segment(data, segment_ids, num_segments)
    top = te.stop_gradient(_sent(shape, place, data, "max", data.shape, "top"))
    weight = te.compute(data.shape, lambda *i: te.exp(data[i] - top[place(i)]), name="weight")
    total = _sent(shape, place, weight, "sum", data.shape, "total")
    return te.compute(data.shape, lambda *i: weight[i] / total[place(i)])


@te.op
def ragged_row_sum(values: te.Tensor, offsets: te.Tensor) -> te.Tensor:
    """`y[r, ..] = sum of values[t, ..] over offsets[r] <= t < offsets[r + 1]`; values (N, ...), offsets (R + 1,) ascending from 0 to N."""
    if values.ndim == 0:
        raise bad("values: expected a tensor whose first axis is in rows, got one without axes")
    start, rows, length = _rows_of(offsets, values.shape[0], True)
    return te.compute(
        (rows, *values.shape[1:]), lambda *i: te.sum(lambda k: values[(start(i[0]) + k, *i[1:])], length(i[0]))
    )  # fmt: skip


@te.op
def csr_matmul(data: te.Tensor, indices: te.Tensor, indptr: te.Tensor, dense: te.Tensor) -> te.Tensor:
    """`y[r, d] = sum of data[t] * dense[indices[t], d] over indptr[r] <= t < indptr[r + 1]`: a sparse matrix in CSR form times a dense one.

    data and indices (N,), indptr (R + 1,) ascending from 0 to N, dense (C, D) or (C,).
    """
    integral(indices, "columns")
    ranked(data, 1)
    ranked(dense, 1, 2)
    shaped(indices, data.shape, "one column per value")
    start, rows, length = _rows_of(indptr, data.shape[0], True)

    def row(*i: Any) -> Any:
        return te.sum(lambda k: data[start(i[0]) + k] * dense[(indices[start(i[0]) + k], *i[1:])], length(i[0]))

    return te.compute((rows, *dense.shape[1:]), row)
