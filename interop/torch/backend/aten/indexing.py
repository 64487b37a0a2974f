"""Definitions of what ATen reads and writes by data: gathers, scatters, rows of tables, and their gradients.

Places are checked as the kernels run. Where several values are written to one place, the last one stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.autodiff import gradient
from tensorexpr.dtypes import dtype
from tensorexpr.interop.torch.backend.table import (
    Result,
    Unsupported,
    aten,
    axis_of,
    cast_to,
    common,
    element,
    filled,
    is_one,
    wide,
    within,
)
from tensorexpr.kernels.conventions.arguments import product
from tensorexpr.kernels.conventions.broadcasting import broadcast_shape, same
from tensorexpr.kernels.rearranging.indexing import place_in
from tensorexpr.kernels.rearranging.segments import rows_of

_BYTE = dtype("uint8")
_MASKS = ("bool", "uint8")


def _wrapped(index: Any, extent: Any) -> Any:
    """A place that may be counted from the end."""
    return te.where(index < 0, index + extent, index)


class _Places:
    """What `x[indices]` reads: some axes by tensors that are stretched to one shape, the others as they are."""

    def __init__(self, x: te.Tensor, indices: Sequence[te.Tensor | None]) -> None:
        self.x = x
        self.given = {axis: index for axis, index in enumerate(indices) if index is not None}
        if any(index.dtype.name in _MASKS for index in self.given.values()):
            raise Unsupported("a size that data decides")
        self.shape = broadcast_shape("index", *(index.shape for index in self.given.values()))
        axes = list(self.given)
        together = axes == list(range(axes[0], axes[0] + len(axes))) if axes else True
        self.first = axes[0] if axes and together else 0
        free = [n for axis, n in enumerate(x.shape) if axis not in self.given]
        self.extents = (*free[: self.first], *self.shape, *free[self.first :])

    def at(self, index: Sequence[Any]) -> tuple[Any, ...]:
        """Where an element of the result comes from."""
        shared = index[self.first : self.first + len(self.shape)]
        free = iter((*index[: self.first], *index[self.first + len(self.shape) :]))
        return tuple(
            _wrapped(te.cast(element(self.given[axis], shared), "int64"), n) if axis in self.given else next(free)
            for axis, n in enumerate(self.x.shape)
        )


@aten("index.Tensor", "_unsafe_index.Tensor")
def _index(result: Result, x: te.Tensor, indices: Sequence[Any]) -> Any:
    places = _Places(x, indices)
    return te.compute(result.shape, lambda *i: x[places.at(i)])


def _put_by_mask(result: Result, x: te.Tensor, indices: Sequence[Any], values: te.Tensor, accumulate: bool) -> Any:
    """`x[.., mask, ..] = values` where the values are the same for all places under the mask."""
    ((axis, mask),) = ((axis, index) for axis, index in enumerate(indices) if index is not None)
    behind = x.ndim - axis - mask.ndim
    if values.ndim > behind and not is_one(values.shape[values.ndim - behind - 1]):
        raise Unsupported("a size that data decides")

    def body(*i: Any) -> Any:
        own = (*i[:axis], te.cast(0, "int64"), *i[axis + mask.ndim :])
        value = te.cast(element(values, own), x.dtype)
        return te.where(te.cast(mask[i[axis : axis + mask.ndim]], "bool"), x[i] + value if accumulate else value, x[i])

    return te.compute(x.shape, body)


@aten("index_put", "_unsafe_index_put")
def _index_put(result: Result, x: te.Tensor, indices: Sequence[Any], values: te.Tensor, accumulate: bool) -> Any:
    given = [index for index in indices if index is not None]
    if len(given) == 1 and given[0].dtype.name in _MASKS:
        return _put_by_mask(result, x, indices, values, accumulate)
    places = _Places(x, indices)
    if accumulate:
        kind = wide(x.dtype)
        sent = te.scatter(x.shape, lambda *t: (places.at(t), te.cast(element(values, t), kind)), places.extents)
        return te.compute(x.shape, lambda *i: te.cast(te.cast(x[i], kind) + sent[i], x.dtype))

    def number(*t: Any) -> Any:
        flat = te.cast(0, "int64")
        for i, n in zip(t, places.extents, strict=True):
            flat = flat * n + i
        return places.at(t), flat

    last = te.scatter(x.shape, number, places.extents, combine="max")

    def body(*i: Any) -> Any:
        flat, at = last[i], []
        for n in reversed(places.extents):
            at.append(flat % n)
            flat = flat // n
        return te.where(last[i] >= 0, te.cast(element(values, tuple(reversed(at))), x.dtype), x[i])

    return te.compute(x.shape, body)


@aten("put")
def _put(result: Result, x: te.Tensor, index: te.Tensor, source: te.Tensor, accumulate: bool) -> Any:
    flat, places, values = (kernels.reshape(one, shape=(-1,)) for one in (x, index, source))
    return kernels.reshape(_index_put(result, flat, [places], values, accumulate), shape=x.shape)


@aten("index_select")
def _index_select(result: Result, x: te.Tensor, dim: int, index: te.Tensor) -> Any:
    if x.ndim == 0:
        return x
    axis = axis_of(dim, x.ndim)
    return te.compute(result.shape, lambda *i: x[(*i[:axis], index[i[axis]] if index.ndim else index[()], *i[axis + 1 :])])


@aten("gather")
def _gather(result: Result, x: te.Tensor, dim: int, index: te.Tensor, _: bool) -> Any:
    if x.ndim == 0 or index.ndim == 0:
        raise Unsupported("a gather of a number")
    axis = axis_of(dim, x.ndim)
    return within(result.shape, x, lambda *i: (*i[:axis], index[i], *i[axis + 1 :]), [k for k in range(x.ndim) if k != axis])


def _may_exceed(n: Any, most: Any) -> bool:
    """Whether an extent is not known to be at most another. Torch has checked it by then, or made a guard of it."""
    return not same(n, most) and not (isinstance(n, int) and isinstance(most, int))


def _own(x: te.Tensor, index: te.Tensor, dim: int, source: te.Tensor) -> tuple[te.Tensor, ...]:
    """The index and the source of a scatter, of extents that are at most those of what is written to."""
    if x.ndim == 0 or index.ndim != x.ndim:
        raise Unsupported("a scatter into a number")
    axis = axis_of(dim, x.ndim)
    shape = list(index.shape)
    for k, most in enumerate(x.shape):
        if k != axis and _may_exceed(shape[k], most):
            shape[k] = te.minimum(shape[k], most)
        if _may_exceed(shape[k], source.shape[k]):
            shape[k] = te.minimum(shape[k], source.shape[k])
    if all(map(same, shape, index.shape)):
        return index, source
    return tuple(te.compute(shape, lambda *i, one=one: one[i]) for one in (index, source))


@aten("scatter.src")
def _scatter(result: Result, x: te.Tensor, dim: int, index: te.Tensor, source: te.Tensor) -> Any:
    if x.dtype.name == "bool":  # what is sent is a number
        return cast_to(_scatter(result, cast_to(x, _BYTE), dim, index, cast_to(source, _BYTE)), x.dtype)
    index, source = _own(x, index, dim, source)
    return kernels.scatter(x, index, source, axis=axis_of(dim, x.ndim))


@aten("scatter.value")
def _scatter_value(result: Result, x: te.Tensor, dim: int, index: te.Tensor, value: Any) -> Any:
    return _scatter(result, x, dim, index, te.compute(index.shape, lambda *i: te.cast(value, x.dtype)))


@aten("scatter_add")
def _scatter_add(result: Result, x: te.Tensor, dim: int, index: te.Tensor, source: te.Tensor) -> Any:
    index, source = _own(x, index, dim, source)
    return kernels.scatter_add(x, index, source, axis=axis_of(dim, x.ndim))


@aten("scatter_reduce.two")
def _scatter_reduce(result: Result, x: te.Tensor, dim: int, index: te.Tensor, source: te.Tensor, how: str, include_self: bool) -> Any:
    index, source = _own(x, index, dim, source)
    return kernels.scatter_reduce(x, index, source, axis=axis_of(dim, x.ndim), reduce=how, include_self=include_self)


@aten("scatter.reduce")
def _scatter_combined(result: Result, x: te.Tensor, dim: int, index: te.Tensor, source: te.Tensor, how: str) -> Any:
    return _scatter_reduce(result, x, dim, index, source, {"add": "sum", "multiply": "prod"}[how], True)


@aten("scatter.value_reduce")
def _scatter_combined_value(result: Result, x: te.Tensor, dim: int, index: te.Tensor, value: Any, how: str) -> Any:
    return _scatter_combined(result, x, dim, index, te.compute(index.shape, lambda *i: te.cast(value, x.dtype)), how)


@aten("index_reduce")
def _index_reduce(result: Result, x: te.Tensor, dim: int, index: te.Tensor, source: te.Tensor, how: str, include_self: bool) -> Any:
    axis = axis_of(dim, x.ndim)
    places = te.compute(source.shape, lambda *i: index[i[axis]] if index.ndim else index[()])
    return _scatter_reduce(result, x, dim, places, source, how, include_self)


def _ranks(mask: te.Tensor, shape: Sequence[Any]) -> te.Tensor:
    """How many elements under a mask, stretched to a shape, stand before each: a running sum."""
    if not all(isinstance(n, int) for n in shape) or not shape:
        raise Unsupported("a masked scatter with open extents, or into a number")
    counted = te.compute(tuple(shape), lambda *i: te.cast(te.cast(element(mask, i), "bool"), "int64"))
    flat = counted if len(shape) == 1 else kernels.reshape(counted, shape=(-1,))
    before = kernels.cumsum(flat, axis=0, exclusive=True)
    return before if len(shape) == 1 else kernels.reshape(before, shape=tuple(shape))


@aten("masked_scatter")
def _masked_scatter(result: Result, x: te.Tensor, mask: te.Tensor, source: te.Tensor) -> Any:
    """The n-th element under the mask is the n-th of the source."""
    place = _ranks(mask, result.shape)
    if 0 in source.shape:
        raise Unsupported("a masked scatter of nothing")
    given = source if source.ndim == 1 else kernels.reshape(source, shape=(-1,))
    return te.compute(result.shape, lambda *i: te.where(te.cast(element(mask, i), "bool"), given[place[i]], element(x, i)))


@aten("masked_scatter_backward")
def _masked_scatter_backward(result: Result, head: te.Tensor, mask: te.Tensor, _: Any) -> Any:
    place, total = _ranks(mask, head.shape), product(result.shape)
    sent = te.scatter((total,), lambda *i: (place[i], head[i]), head.shape, where=lambda *i: te.cast(element(mask, i), "bool"))
    return sent if len(result.shape) == 1 else kernels.reshape(sent, shape=tuple(result.shape))


@aten("index_add")
def _index_add(result: Result, x: te.Tensor, dim: int, index: te.Tensor, source: te.Tensor, alpha: Any) -> Any:
    if x.ndim == 0 or index.ndim != 1:
        raise Unsupported("an index_add into a number")
    return kernels.index_add(x, index, source, axis=axis_of(dim, x.ndim), alpha=alpha)


@aten("searchsorted.Tensor", "searchsorted.Scalar")
def _searchsorted(result: Result, row: te.Tensor, x: Any, _: bool, right: bool, side: str | None, order: te.Tensor | None) -> Any:
    kind, behind = wide(common(row, x)), right or side == "right"
    row = cast_to(row, kind)

    def body(*i: Any) -> Any:
        value = te.cast(x[i] if isinstance(x, te.Tensor) else x, kind)
        return te.cast(place_in(row, value, i[:-1] if row.ndim > 1 else (), behind, order), result.dtype)

    return te.compute(result.shape, body)


@aten("bucketize.Tensor", "bucketize.Scalar")
def _bucketize(result: Result, x: Any, row: te.Tensor, short: bool, right: bool) -> Any:
    return _searchsorted(result, row, x, short, right, None, None)


# ---------------------------------------------------------------------------------------------------- rows of tables


@aten("embedding")
def _embedding(result: Result, table: te.Tensor, ids: te.Tensor, *_: Any) -> Any:
    return te.compute(result.shape, lambda *i: table[ids[i[:-1]], i[-1]])


@aten("embedding_dense_backward")
def _embedding_backward(result: Result, head: te.Tensor, ids: te.Tensor, rows: Any, padding: Any, by_frequency: bool) -> Any:
    table = te.placeholder(result.shape, wide(result.dtype).name, name="table")
    read = te.compute(head.shape, lambda *i: table[ids[i[:-1]], i[-1]])
    (found,) = gradient(read, [table], cast_to(head, table.dtype))
    if by_frequency:
        count = te.scatter((rows,), lambda *i: (ids[i], te.cast(1, table.dtype)), ids.shape)
        summed = found
        found = te.compute(result.shape, lambda r, d: summed[r, d] / te.maximum(count[r], 1))
    if isinstance(padding, int) and padding < 0:
        return cast_to(found, result.dtype)
    return te.compute(result.shape, lambda r, d: te.cast(te.where(r == padding, 0.0, found[r, d]), result.dtype))


_BAGS = ("sum", "mean", "max")


@aten("_embedding_bag", "_embedding_bag_forward_only")
def _embedding_bag(
    result: Result, table: te.Tensor, ids: te.Tensor, offsets: te.Tensor, by_frequency: bool, mode: int, sparse: bool, weights: Any,
    last_given: bool, padding: int,
) -> Any:  # fmt: skip
    if ids.ndim != 1:
        raise Unsupported("bags by rows")
    beside = None if padding < 0 else padding
    bags = kernels.embedding_bag(ids, table, offsets, weights, mode=_BAGS[mode], include_last_offset=last_given, padding_idx=beside)
    first, count, length = rows_of(offsets, ids.shape[0], last_given)

    def counted(b: Any) -> Any:
        return None if beside is None else lambda t: ids[first(b) + t] != beside

    def size_of(b: Any) -> Any:
        return length(b) if beside is None else te.sum(lambda t: te.cast(ids[first(b) + t] != beside, "int64"), length(b))

    size = te.compute((count,), lambda b: te.cast(size_of(b), offsets.dtype))

    def bag_of(t: Any) -> Any:
        return te.sum(lambda b: te.cast(offsets[b] <= t, "int64"), count) - 1

    def greatest(b: Any, d: Any) -> Any:
        place = te.argmax(lambda t: table[ids[first(b) + t], d], length(b), where=counted(b))
        return te.where(size[b] > 0, te.cast(ids[first(b) + te.where(size[b] > 0, place, 0)], "int64"), 0)

    forms = result.forms
    owner = te.compute(forms[1].shape, bag_of) if forms[1] is not None and forms[1].shape != (0,) else filled(result[1], 0)
    sizes = size if len(result[2].shape) == 1 and result[2].shape == size.shape else filled(result[2], 0)
    rows = te.compute(result[3].shape, greatest) if mode == 2 else filled(result[3], 0)
    return bags, cast_to(owner, result[1].dtype), cast_to(sizes, result[2].dtype), cast_to(rows, result[3].dtype)


@aten("_embedding_bag_backward")
def _embedding_bag_backward(result: Result, head: te.Tensor, ids: te.Tensor, offsets: te.Tensor, *given: Any) -> Any:
    _, sizes, greatest, _, by_frequency, mode, *rest = given
    weights, padding = rest[-2:]
    if by_frequency:
        raise Unsupported("gradients by frequency, which torch counts otherwise than it says")
    kind = wide(result.dtype)
    g = cast_to(head, kind)
    if mode == 2:
        found = te.scatter(
            result.shape, lambda b, d: ((greatest[b, d], d), te.where(sizes[b] > 0, g[b, d], 0)), (head.shape[0], head.shape[1])
        )
    else:
        table = te.placeholder(result.shape, kind.name, name="table")  # bags are linear in it
        (found,) = gradient(_bags(head, ids, table, offsets, weights, mode, padding), [table], g)
    return cast_to(found, result.dtype)


@aten("_embedding_bag_per_sample_weights_backward")
def _bag_weights_backward(
    result: Result, head: te.Tensor, table: te.Tensor, ids: te.Tensor, offsets: te.Tensor, _: Any, mode: int, padding: int
) -> Any:
    weights = te.placeholder(ids.shape, wide(result.dtype).name, name="weights")
    bags = _bags(head, ids, cast_to(table, weights.dtype), offsets, weights, mode, padding)
    (found,) = gradient(bags, [weights], cast_to(head, weights.dtype))
    return cast_to(found, result.dtype)


def _bags(head: te.Tensor, ids: te.Tensor, table: te.Tensor, offsets: te.Tensor, weights: Any, mode: int, padding: int) -> te.Tensor:
    """The bags whose gradient is asked for; they are as many as rows of the head."""
    last_given = not same(offsets.shape[0], head.shape[0])
    beside = None if padding < 0 else padding
    return kernels.embedding_bag(ids, table, offsets, weights, mode=_BAGS[mode], include_last_offset=last_given, padding_idx=beside)


# ---------------------------------------------------------------------------------------------------- losses by class


def _class_weight(weight: Any, c: Any, ignored: Any, target: Any, kind: Any) -> Any:
    own = te.cast(1, kind) if weight is None else te.cast(weight[c], kind)
    return te.where(target == ignored, te.cast(0, kind), own)


def _safe(target: Any, ignored: Any) -> Any:
    return te.where(target == ignored, 0, te.cast(target, "int64"))


@aten("nll_loss_forward")
def _nll(result: Result, x: te.Tensor, target: te.Tensor, weight: Any, reduction: int, ignored: Any) -> Any:
    if x.ndim != 2:
        raise Unsupported("the loss of one row")
    kind, rows = wide(x.dtype), x.shape[0]

    def loss(n: Any) -> Any:
        c = _safe(target[n], ignored)
        return te.where(
            target[n] == ignored, te.cast(0, kind), -te.cast(x[n, c], kind) * _class_weight(weight, c, ignored, target[n], kind)
        )

    if reduction == 0:
        return te.compute(result.shape, lambda n: te.cast(loss(n), result.dtype)), filled(result[1], 0)
    count = te.compute(
        (), lambda: te.sum(lambda n: _class_weight(weight, _safe(target[n], ignored), ignored, target[n], kind), rows)
    )  # fmt: skip
    summed = te.compute((), lambda: te.sum(loss, rows))
    mean = te.compute((), lambda: te.cast(summed[()] / count[()] if reduction == 1 else summed[()], result.dtype))
    return mean, cast_to(count, result[1].dtype)


@aten("nll_loss_backward")
def _nll_backward(
    result: Result, head: te.Tensor, x: te.Tensor, target: te.Tensor, weight: Any, reduction: int, ignored: Any, count: te.Tensor
) -> Any:
    if x.ndim != 2:
        raise Unsupported("the loss of one row")
    kind = wide(x.dtype)

    def body(n: Any, c: Any) -> Any:
        seed = te.cast(head[n] if reduction == 0 else head[()], kind)
        seed = seed / te.cast(count[()], kind) if reduction == 1 else seed
        own = -seed * _class_weight(weight, c, ignored, target[n], kind)
        return te.cast(te.where((target[n] == c) & (target[n] != ignored), own, 0.0), result.dtype)

    return te.compute(result.shape, body)
