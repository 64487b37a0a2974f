"""Reductions in which a NaN is an element that is missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad, in_dtype
from tensorexpr.kernels.reductions.cumulative import cumprod, cumsum
from tensorexpr.kernels.reductions.reductions import Fold, like, not_empty, root, wide


def _present(x: te.Tensor, i: tuple[Any, ...], missing: Any) -> Any:
    return te.where(te.isnan(x[i]), missing, x[i]) if x.dtype.is_float else x[i]


def _filled(x: te.Tensor, missing: int) -> te.Tensor:
    return te.compute(x.shape, lambda *i: _present(x, i, missing)) if x.dtype.is_float else x


def _count(x: te.Tensor, fold: Fold, row: Sequence[Any], dtype: Any) -> Any:
    """How many elements of a row are there."""
    return te.cast(fold.over(te.sum, row, lambda i: te.cast(~te.isnan(x[i]), "int64") if x.dtype.is_float else te.cast(1, "int64")), dtype)


@te.op
def nansum(x: te.Tensor, *, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> te.Tensor:
    """The sum of the elements that are no NaN; they are cast to `dtype` first.

    >>> kernels.nansum(np.array([1.0, np.nan, 3.0]))
    array(4.)
    """
    x, fold = in_dtype(x, dtype), Fold(x, axis, keepdims)
    return fold.each(lambda row: fold.over(te.sum, row, lambda i: _present(x, i, 0)))


@te.op
def nanprod(x: te.Tensor, *, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> te.Tensor:
    """The product of the elements that are no NaN; they are cast to `dtype` first.

    >>> kernels.nanprod(np.array([2.0, np.nan, 3.0]))
    array(6.)
    """
    x, fold = in_dtype(x, dtype), Fold(x, axis, keepdims)
    return fold.each(lambda row: fold.over(te.prod, row, lambda i: _present(x, i, 1)))


@te.op
def nanmax(x: te.Tensor, *, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """The greatest element that is no NaN; NaN where all are.

    >>> kernels.nanmax(np.array([1.0, np.nan, 3.0]))
    array(3.)
    """
    return _outermost("nanmax", te.max, -math.inf, x, axis, keepdims)


@te.op
def nanmin(x: te.Tensor, *, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """The least element that is no NaN; NaN where all are.

    >>> kernels.nanmin(np.array([1.0, np.nan, 3.0]))
    array(1.)
    """
    return _outermost("nanmin", te.min, math.inf, x, axis, keepdims)


def _outermost(name: str, reduce: Callable[..., Any], last: float, x: te.Tensor, axis: Any, keepdims: bool) -> te.Tensor:
    fold = Fold(x, axis, keepdims)
    not_empty(name, fold)

    def body(row: Sequence[Any]) -> Any:
        found = fold.over(reduce, row, lambda i: _present(x, i, last))
        return te.where(fold.over(te.all, row, lambda i: te.isnan(x[i])), math.nan, found) if x.dtype.is_float else found

    return fold.each(body)


@te.op
def nanargmax(x: te.Tensor, *, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """The place of the greatest element that is no NaN, as `argmax`; 0 where all are.

    >>> kernels.nanargmax(np.array([1.0, np.nan, 3.0]))
    array(2)
    """
    return _place("nanargmax", te.argmax, x, axis, keepdims)


@te.op
def nanargmin(x: te.Tensor, *, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """The place of the least element that is no NaN, as `argmin`; 0 where all are.

    >>> kernels.nanargmin(np.array([np.nan, 1.0, 3.0]))
    array(1)
    """
    return _place("nanargmin", te.argmin, x, axis, keepdims)


def _place(name: str, reduce: Callable[..., Any], x: te.Tensor, axis: Any, keepdims: bool) -> te.Tensor:
    fold = Fold(x, axis, keepdims)
    not_empty(name, fold)

    def among_numbers(body: Callable[..., Any], extents: Any) -> Any:
        return reduce(body, extents, where=(lambda *k: ~te.isnan(body(*k))) if x.dtype.is_float else None)

    return fold.each(lambda row: fold.over(among_numbers, row, lambda i: x[i]))


@te.op
def nanmean(x: te.Tensor, *, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """The mean of the elements that are no NaN.

    >>> kernels.nanmean(np.array([1.0, np.nan, 3.0]))
    array(2.)
    """
    fold = Fold(x, axis, keepdims)
    return fold.each(lambda row: like(_mean(x, fold, row), x))


def _mean(x: te.Tensor, fold: Fold, row: Sequence[Any]) -> Any:
    total = fold.over(te.sum, row, lambda i: wide(_present(x, i, 0)))
    return total / _count(x, fold, row, total.dtype if total.dtype.is_float else "float64")


@te.op
def nanvar(x: te.Tensor, *, axis: Any = None, correction: Any = 0, keepdims: bool = False) -> te.Tensor:
    """The variance of the elements that are no NaN, in two passes; NaN where there are no more than `correction` (`ddof`, 0 as in NumPy).

    >>> kernels.nanvar(np.array([1.0, np.nan, 3.0]))
    array(1.)
    """
    return _spread(x, axis, correction, keepdims, lambda v: v)


@te.op
def nanstd(x: te.Tensor, *, axis: Any = None, correction: Any = 0, keepdims: bool = False) -> te.Tensor:
    """The square root of `nanvar`.

    >>> kernels.nanstd(np.array([1.0, np.nan, 3.0]))
    array(1.)
    """
    return _spread(x, axis, correction, keepdims, root)


def _spread(x: te.Tensor, axis: Any, correction: Any, keepdims: bool, value: Callable[[Any], Any]) -> te.Tensor:
    if isinstance(correction, bool) or not isinstance(correction, (int, float)):
        raise bad(f"correction: expected a number, got {correction!r}")
    fold = Fold(x, axis, keepdims)
    mean = te.compute(fold.rows, lambda *r: _mean(x, fold, r), name="mean")

    def body(row: Sequence[Any]) -> Any:
        total = fold.over(te.sum, row, lambda i: _square(x, mean, i, row))
        left = _count(x, fold, row, total.dtype) - correction
        return like(te.where(left > 0, value(total / left), math.nan), x)

    def _square(x: te.Tensor, mean: te.Tensor, i: tuple[Any, ...], row: Sequence[Any]) -> Any:
        apart = (wide(x[i]) - mean[tuple(row)]) ** 2
        return te.where(te.isnan(x[i]), 0, apart) if x.dtype.is_float else apart

    return fold.each(body)


@te.op
def nancumsum(x: te.Tensor, *, axis: Any = -1) -> te.Tensor:
    """The running sum along `axis` of the elements that are no NaN.

    >>> kernels.nancumsum(np.array([1.0, np.nan, 3.0]))
    array([1., 1., 4.])
    """
    return cumsum.function(_filled(x, 0), axis=axis)


@te.op
def nancumprod(x: te.Tensor, *, axis: Any = -1) -> te.Tensor:
    """The running product along `axis` of the elements that are no NaN.

    >>> kernels.nancumprod(np.array([2.0, np.nan, 3.0]))
    array([2., 2., 6.])
    """
    return cumprod.function(_filled(x, 1), axis=axis)
