"""Definitions of what ATen reduces over axes: sums and their kin, extremes, softmax and its gradient, running sums, sorting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.dtypes import DType
from tensorexpr.interop.torch.backend.table import (
    Form,
    Result,
    Unsupported,
    aten,
    axes_of,
    axis_of,
    cast_to,
    filled,
    real,
    wide,
)
from tensorexpr.kernels.conventions.arguments import product
from tensorexpr.kernels.conventions.axes import along, drop

_LONGEST_SORT = 1024  # kernels compare all with all: beyond it torch's sort is faster


def over(form: Form | Result, x: te.Tensor, dims: Any, keep: bool, body: Callable[[Callable[..., Any], tuple[Any, ...]], Any]) -> te.Tensor:
    """A tensor of the shape that is promised, each element `body(read, extents)`: `read` gives the element of `x` at indices of what is
    reduced, whose extents are `extents`."""
    axes = axes_of(dims, x.ndim)
    extents = tuple(x.shape[axis] for axis in axes)

    def one(*index: Any) -> Any:
        kept = iter(index)

        def read(*inner: Any) -> Any:
            along = dict(zip(axes, inner, strict=True))
            return x[tuple(along[k] if k in along else outer[k] for k in range(x.ndim))]

        outer = {}
        for k in range(x.ndim):
            if k not in axes:
                outer[k] = next(kept)
            elif keep:
                next(kept)
        return te.cast(body(read, extents), form.dtype)

    return te.compute(form.shape, one)


def total(read: Callable[..., Any], extents: Sequence[Any], kind: DType) -> Any:
    """The sum, in a dtype; over no axes the element."""
    return te.sum(lambda *i: te.cast(read(*i), kind), extents) if extents else te.cast(read(), kind)


@aten("sum", "sum.dim_IntList")
def _sum(result: Result, x: te.Tensor, *options: Any) -> Any:
    dims, keep = (options[0], options[1]) if len(options) == 3 else (None, False)
    return over(result, x, dims, keep, lambda read, extents: total(read, extents, wide(result.dtype)))


@aten("mean", "mean.dim")
def _mean(result: Result, x: te.Tensor, *options: Any) -> Any:
    dims, keep = (options[0], options[1]) if len(options) == 3 else (None, False)
    kind = wide(result.dtype)
    return over(result, x, dims, keep, lambda read, extents: total(read, extents, kind) / te.cast(product(extents), kind))


@aten("prod", "prod.dim_int")
def _prod(result: Result, x: te.Tensor, *options: Any) -> Any:
    dims, keep = (options[0], options[1]) if len(options) == 3 else (None, False)
    kind = wide(result.dtype)

    def body(read: Any, extents: Any) -> Any:
        return te.prod(lambda *i: te.cast(read(*i), kind), extents) if extents else read()

    return over(result, x, dims, keep, body)


def _variance(form: Form | Result, x: te.Tensor, dims: Any, keep: bool, correction: Any) -> te.Tensor:
    kind = wide(x.dtype)
    axes = axes_of(dims, x.ndim)
    kept = tuple(1 if k in axes else n for k, n in enumerate(x.shape))
    mean = over(Form(kept, kind), x, axes, True, lambda read, extents: total(read, extents, kind) / te.cast(product(extents), kind))
    centered = te.compute(x.shape, lambda *i: te.square(te.cast(x[i], kind) - mean[tuple(0 if k in axes else j for k, j in enumerate(i))]))

    def body(read: Any, extents: Any) -> Any:
        count = te.cast(product(extents), kind) - correction
        return total(read, extents, kind) / te.maximum(count, 0)

    return over(form, centered, axes, keep, body)


@aten("var", "var.dim", "var.correction")
def _var(result: Result, x: te.Tensor, *options: Any) -> Any:
    if len(options) == 1:
        return _variance(result, x, None, False, int(options[0]))
    dims, correction, keep = options
    return _variance(result, x, dims, keep, 1 if correction is None else float(correction))


@aten("var_mean.correction")
def _var_mean(result: Result, x: te.Tensor, dims: Any, correction: Any, keep: bool) -> Any:
    variance = _variance(result[0], x, dims, keep, 1 if correction is None else float(correction))
    kind = wide(x.dtype)
    mean = over(result[1], x, dims, keep, lambda read, extents: total(read, extents, kind) / te.cast(product(extents), kind))
    return variance, mean


# ---------------------------------------------------------------------------------------------------- extremes


def _extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda read, extents: function(read, extents) if extents else read()


@aten("amax")
def _amax(result: Result, x: te.Tensor, dims: Any, keep: bool) -> Any:
    return over(result, x, dims, keep, _extreme(te.max))


@aten("amin")
def _amin(result: Result, x: te.Tensor, dims: Any, keep: bool) -> Any:
    return over(result, x, dims, keep, _extreme(te.min))


@aten("max", "min")
def _whole(result: Result, x: te.Tensor) -> Any:
    return over(result, x, None, False, _extreme(te.max if "max" in str(result.node.target) else te.min))


@aten("argmax", "argmin")
def _argument(result: Result, x: te.Tensor, dim: int | None, keep: bool) -> Any:
    function = te.argmax if "argmax" in str(result.node.target) else te.argmin
    return over(result, x, dim, keep, lambda read, extents: function(read, extents) if extents else 0)


@aten("max.dim", "min.dim")
def _with_place(result: Result, x: te.Tensor, dim: int, keep: bool) -> Any:
    value, place = (te.max, te.argmax) if "max" in str(result.node.target) else (te.min, te.argmin)
    found = over(result[0], x, dim, keep, _extreme(value))
    return found, over(result[1], x, dim, keep, lambda read, extents: place(read, extents) if extents else 0)


@aten("any", "any.dim", "any.dims")
def _any(result: Result, x: te.Tensor, dims: Any = None, keep: bool = False) -> Any:
    return over(result, x, dims, keep, lambda read, extents: te.any(lambda *i: te.cast(read(*i), "bool"), extents) if extents else read())


@aten("all", "all.dim", "all.dims")
def _all(result: Result, x: te.Tensor, dims: Any = None, keep: bool = False) -> Any:
    return over(result, x, dims, keep, lambda read, extents: te.all(lambda *i: te.cast(read(*i), "bool"), extents) if extents else read())


# ---------------------------------------------------------------------------------------------------- softmax


def _along(x: te.Tensor, dim: int, kind: DType) -> tuple[te.Tensor, int]:
    return cast_to(x, kind), axis_of(dim, x.ndim)


def _softened(result: Result, x: te.Tensor, dim: int, kernel: Any) -> Any:
    if x.ndim == 0:
        raise Unsupported("a softmax of a number")
    given, axis = _along(x, dim, wide(x.dtype))
    return cast_to(kernel(given, axis=axis), result.dtype)


@aten("_softmax")
def _softmax(result: Result, x: te.Tensor, dim: int, _: bool) -> Any:
    return _softened(result, x, dim, kernels.softmax)


@aten("_log_softmax")
def _log_softmax(result: Result, x: te.Tensor, dim: int, _: bool) -> Any:
    return _softened(result, x, dim, kernels.log_softmax)


def _row_sum(x: te.Tensor, axis: int) -> te.Tensor:
    kept = tuple(1 if k == axis else n for k, n in enumerate(x.shape))
    return over(Form(kept, x.dtype), x, axis, True, lambda read, extents: total(read, extents, x.dtype))


@aten("_softmax_backward_data")
def _softmax_backward(result: Result, head: te.Tensor, y: te.Tensor, dim: int, _: Any) -> Any:
    kind = wide(y.dtype)
    g, axis = _along(head, dim, kind)
    weighted = te.compute(y.shape, lambda *i: g[i] * te.cast(y[i], kind))
    row = _row_sum(weighted, axis)

    def body(*i: Any) -> Any:
        return te.cast(te.cast(y[i], kind) * (g[i] - row[(*i[:axis], 0, *i[axis + 1 :])]), result.dtype)

    return te.compute(result.shape, body)


@aten("_log_softmax_backward_data")
def _log_softmax_backward(result: Result, head: te.Tensor, y: te.Tensor, dim: int, _: Any) -> Any:
    kind = wide(y.dtype)
    g, axis = _along(head, dim, kind)
    row = _row_sum(g, axis)

    def body(*i: Any) -> Any:
        return te.cast(g[i] - te.exp(te.cast(y[i], kind)) * row[(*i[:axis], 0, *i[axis + 1 :])], result.dtype)

    return te.compute(result.shape, body)


@aten("logsumexp")
def _logsumexp(result: Result, x: te.Tensor, dims: Any, keep: bool) -> Any:
    found = kernels.logsumexp(cast_to(x, wide(real(x))), axis=axes_of(dims, x.ndim), keepdims=keep)
    return cast_to(found, result.dtype)


# ---------------------------------------------------------------------------------------------------- running, sorted


@aten("cumsum")
def _cumsum(result: Result, x: te.Tensor, dim: int, _: Any) -> Any:
    if x.ndim == 0:
        return cast_to(x, result.dtype)
    return cast_to(kernels.cumsum(cast_to(x, wide(result.dtype)), axis=axis_of(dim, x.ndim)), result.dtype)


@aten("cumprod")
def _cumprod(result: Result, x: te.Tensor, dim: int, _: Any) -> Any:
    if x.ndim == 0:
        return cast_to(x, result.dtype)
    return cast_to(kernels.cumprod(cast_to(x, wide(result.dtype)), axis=axis_of(dim, x.ndim)), result.dtype)


@aten("logcumsumexp")
def _logcumsumexp(result: Result, x: te.Tensor, dim: int) -> Any:
    if x.ndim == 0:
        return x
    return cast_to(kernels.logcumsumexp(cast_to(x, wide(x.dtype)), axis=axis_of(dim, x.ndim)), result.dtype)


@aten("cummax", "cummin")
def _running(result: Result, x: te.Tensor, dim: int) -> Any:
    if x.ndim == 0:
        return x, filled(result[1], 0)
    kernel = kernels.cummax if "cummax" in str(result.node.target) else kernels.cummin
    values, places = kernel(x, axis=axis_of(dim, x.ndim))
    return values, cast_to(places, result[1].dtype)


def _sortable(x: te.Tensor, dim: int) -> int:
    axis = axis_of(dim, x.ndim)
    if x.ndim == 0 or not isinstance(x.shape[axis], int) or x.shape[axis] > _LONGEST_SORT:
        raise Unsupported(f"a sort of more than {_LONGEST_SORT} elements")
    return axis


@aten("sort", "sort.stable")
def _sort(result: Result, x: te.Tensor, *options: Any) -> Any:
    dim, descending = options[-2:]
    axis = _sortable(x, dim)
    order = kernels.argsort(x, axis=axis, descending=descending)
    return _taken(x, order, axis), cast_to(order, result[1].dtype)


@aten("topk")
def _topk(result: Result, x: te.Tensor, k: Any, dim: int, largest: bool, _: bool) -> Any:
    axis = _sortable(x, dim)
    order = kernels.argsort(x, axis=axis, descending=largest)
    head = te.compute(result.shape, lambda *i: order[i])
    return _taken(x, head, axis), cast_to(head, result[1].dtype)


def _taken(x: te.Tensor, order: te.Tensor, axis: int) -> te.Tensor:
    return te.compute(order.shape, lambda *i: x[(*i[:axis], order[i], *i[axis + 1 :])])


@aten("kthvalue")
def _kthvalue(result: Result, x: te.Tensor, k: int, dim: int, keep: bool) -> Any:
    values, places = kernels.kthvalue(x, k=k, axis=_sortable(x, dim), keepdims=keep)
    return values, cast_to(places, result[1].dtype)


@aten("median", "median.dim")
def _median(result: Result, x: te.Tensor, *options: Any) -> Any:
    """The lower of two in the middle; NaN, the first of them, where there is one."""
    dim, keep = options or (0, False)
    row = x if options or x.ndim == 1 else kernels.reshape(x, shape=(-1,))
    axis = _sortable(row, dim)
    found = kernels.median(row, axis=axis, keepdims=keep)
    if x.dtype.is_float:
        top = over(Form(found[0].shape, x.dtype), row, axis, keep, te.max)
        first = over(Form(top.shape, found[1].dtype), row, axis, keep, te.argmax)
        odd = (top, first)
        own = found
        found = tuple(te.compute(top.shape, lambda *i, k=k: te.where(te.isnan(top[i]), odd[k][i], own[k][i])) for k in (0, 1))
    return (found[0], cast_to(found[1], result[1].dtype)) if options else found[0]


@aten("nanmedian", "nanmedian.dim")
def _nanmedian(result: Result, x: te.Tensor, *options: Any) -> Any:
    """The lower of two in the middle of what is no NaN, which stands in front; a NaN where all is."""
    if not x.dtype.is_float:
        return _median(result, x, *options)
    dim, keep = options or (0, False)
    row = x if options or x.ndim == 1 else kernels.reshape(x, shape=(-1,))
    axis = _sortable(row, dim)
    sorted_ = kernels.sort(row, axis=axis)
    count = te.compute(
        drop(row.shape, axis),
        lambda *i: te.sum(lambda k: te.where(te.isnan(row[along(i, axis, k)]), 0, 1), row.shape[axis]),
        name="count",
    )

    def middle(position: int) -> te.Tensor:
        def at(*i: Any) -> Any:
            rest = drop(i, axis) if keep else i
            return te.cast(sorted_[position][along(rest, axis, te.maximum(count[rest] - 1, 0) // 2)], result[position].dtype)

        return te.compute(result[position].shape, at)

    return (middle(0), middle(1)) if options else middle(0)
