"""Values sent to numbered places, and sums over segments and ragged rows.

What sends has a gradient that reads by data. An index out of range, negative ones included, is an `OutOfBoundsError` (an `IndexError`)
as the kernel runs. Values that meet are combined in the order of the sending tensor: the same bits on every run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import at_least, bad, integral, ranked, same_extent, shaped

Place = Callable[[tuple[Any, ...]], tuple[Any, ...]]
"""Indices of what is sent, to the place that receives it."""


def sent_to(shape: Any, place: Place, src: te.Tensor, combine: str, extents: Any, name: str) -> te.Tensor:
    return te.scatter(shape, lambda *i: (place(i), src[i]), extents, combine=combine, name=name)


def counts_of(shape: Any, place: Place, extents: Any) -> te.Tensor:
    """How many values each place receives."""
    return te.scatter(shape, lambda *i: (place(i), 1), extents, name="counts")


def rows_of(offsets: te.Tensor, total: Any, last_given: bool) -> tuple[Callable[[Any], Any], Any, Callable[[Any], Any]]:
    """Where a ragged row starts, how many there are, and how long one is."""
    integral(offsets, "starts of rows")
    ranked(offsets, 1)
    rows = offsets.shape[0] - 1 if last_given else offsets.shape[0]

    def stop(r: Any) -> Any:
        return offsets[r + 1] if last_given else te.where(r + 1 < rows, offsets[te.minimum(r + 1, rows - 1)], total)

    return (lambda r: offsets[r]), rows, (lambda r: stop(r) - offsets[r])


@te.op
def bincount(input: te.Tensor, weights: te.Tensor | None = None, *, num_bins: Any = None) -> te.Tensor:
    """`y[b] = sum_t weights[t] over input[t] == b`, or their number (int64) without weights; `num_bins` is what `minlength` cannot be:
    the length of the result, fixed when the op is compiled.

    >>> kernels.bincount(np.array([0, 2, 2, 3]), num_bins=5)
    array([1, 0, 2, 1, 0])
    """
    integral(input, "bins")
    ranked(input, 1)
    if num_bins is None:
        hint = "otherwise it would be the greatest number given and one, and depend on data"
        raise bad("bincount: expected num_bins (minlength), the length of the result, got none", hint)
    at_least("num_bins", num_bins, 1)
    if weights is None:
        return counts_of((num_bins,), lambda i: (input[i],), input.shape)
    shaped(weights, input.shape, "one weight per item")
    return sent_to((num_bins,), lambda i: (input[i],), weights, "sum", input.shape, "bins")


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
    return sent_to(shape, place, data, combine, data.shape, "segments")


@te.op
def segment_sum(data: te.Tensor, segment_ids: te.Tensor, *, num_segments: Any) -> te.Tensor:
    """`y[s, ..] = sum of data[t, ..] over segment_ids[t] == s`; the ids in any order, an empty segment is 0.

    >>> kernels.segment_sum(np.array([1, 2, 4]), np.array([1, 0, 1]), num_segments=3)
    array([2, 5, 0])
    """
    return _of_segments(data, segment_ids, num_segments, "sum")


@te.op
def segment_prod(data: te.Tensor, segment_ids: te.Tensor, *, num_segments: Any) -> te.Tensor:
    """`y[s, ..] = product of data[t, ..] over segment_ids[t] == s`; an empty segment is 1. Zeros have exact gradients.

    >>> kernels.segment_prod(np.array([2.0, 3.0, 4.0]), np.array([0, 0, 1]), num_segments=2)
    array([6., 4.])
    """
    return _of_segments(data, segment_ids, num_segments, "prod")


@te.op
def segment_max(data: te.Tensor, segment_ids: te.Tensor, *, num_segments: Any) -> te.Tensor:
    """`y[s, ..] = max of data[t, ..] over segment_ids[t] == s`; an empty segment is -inf. The first of equals gets the gradient.

    >>> kernels.segment_max(np.array([1.0, 3.0, 2.0]), np.array([0, 0, 1]), num_segments=2)
    array([3., 2.])
    """
    return _of_segments(data, segment_ids, num_segments, "max")


@te.op
def segment_min(data: te.Tensor, segment_ids: te.Tensor, *, num_segments: Any) -> te.Tensor:
    """`y[s, ..] = min of data[t, ..] over segment_ids[t] == s`; an empty segment is inf. The first of equals gets the gradient.

    >>> kernels.segment_min(np.array([1.0, 3.0, 2.0]), np.array([0, 0, 1]), num_segments=2)
    array([1., 2.])
    """
    return _of_segments(data, segment_ids, num_segments, "min")


@te.op
def segment_mean(data: te.Tensor, segment_ids: te.Tensor, *, num_segments: Any) -> te.Tensor:
    """`y[s, ..] = mean of data[t, ..] over segment_ids[t] == s`; an empty segment is 0.

    >>> kernels.segment_mean(np.array([1.0, 3.0, 2.0]), np.array([0, 0, 1]), num_segments=2)
    array([2., 2.])
    """
    total = _of_segments(data, segment_ids, num_segments, "sum")
    counts = counts_of((num_segments,), lambda i: (segment_ids[i],), segment_ids.shape)
    return te.compute(total.shape, lambda *i: total[i] / te.cast(te.maximum(counts[i[0]], 1), data.dtype))


@te.op
def segment_softmax(data: te.Tensor, segment_ids: te.Tensor, *, num_segments: Any) -> te.Tensor:
    """`y[t, ..] = exp(data[t, ..]) / sum of exp(data[u, ..]) over segment_ids[u] == segment_ids[t]`, stable; the shape of `data`.

    >>> kernels.segment_softmax(np.array([0.0, 0.0, 5.0]), np.array([0, 0, 1]), num_segments=2)
    array([0.5, 0.5, 1. ])
    """
    shape, place = _by_segment(data, segment_ids, num_segments)
    top = te.stop_gradient(sent_to(shape, place, data, "max", data.shape, "top"))
    weight = te.compute(data.shape, lambda *i: te.exp(data[i] - top[place(i)]), name="weight")
    total = sent_to(shape, place, weight, "sum", data.shape, "total")
    return te.compute(data.shape, lambda *i: weight[i] / total[place(i)])


@te.op
def ragged_row_sum(values: te.Tensor, offsets: te.Tensor) -> te.Tensor:
    """`y[r, ..] = sum of values[t, ..] over offsets[r] <= t < offsets[r + 1]`; values (N, ...), offsets (R + 1,) ascending from 0 to N.

    >>> kernels.ragged_row_sum(np.array([1, 2, 4, 8]), np.array([0, 1, 1, 4]))
    array([ 1,  0, 14])
    """
    if values.ndim == 0:
        raise bad("values: expected a tensor whose first axis is in rows, got one without axes")
    start, rows, length = rows_of(offsets, values.shape[0], True)
    return te.compute(
        (rows, *values.shape[1:]), lambda *i: te.sum(lambda k: values[(start(i[0]) + k, *i[1:])], length(i[0]))
    )  # fmt: skip


@te.op
def csr_matmul(data: te.Tensor, indices: te.Tensor, indptr: te.Tensor, dense: te.Tensor) -> te.Tensor:
    """`y[r, d] = sum of data[t] * dense[indices[t], d] over indptr[r] <= t < indptr[r + 1]`: a sparse matrix in CSR form times a dense one.

    data and indices (N,), indptr (R + 1,) ascending from 0 to N, dense (C, D) or (C,).

    >>> data, indices, indptr = np.array([2.0, 3.0]), np.array([1, 0]), np.array([0, 1, 2])  # [[0, 2], [3, 0]]
    >>> kernels.csr_matmul(data, indices, indptr, np.array([[1.0], [10.0]]))
    array([[20.],
           [ 3.]])
    """
    integral(indices, "columns")
    ranked(data, 1)
    ranked(dense, 1, 2)
    shaped(indices, data.shape, "one column per value")
    start, rows, length = rows_of(indptr, data.shape[0], True)

    def row(*i: Any) -> Any:
        return te.sum(lambda k: data[start(i[0]) + k] * dense[(indices[start(i[0]) + k], *i[1:])], length(i[0]))

    return te.compute((rows, *dense.shape[1:]), row)
