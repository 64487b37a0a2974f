"""The softmax family along one axis or several: the maximum of each row is taken out, so nothing overflows; each row is held once.

The maximum cancels, so no derivative goes through it. `logsumexp`, the norm of the family, is in `reductions`.
"""

from __future__ import annotations

import math
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad, in_dtype
from tensorexpr.kernels.conventions.broadcasting import at, stretches
from tensorexpr.kernels.reductions.reductions import Fold, like, shift, wide


def _scaled(x: te.Tensor, temperature: float) -> te.Tensor:
    if isinstance(temperature, bool) or not isinstance(temperature, (int, float)) or not temperature > 0:
        raise bad(f"temperature: expected a number above 0, got {temperature!r}")
    return x if temperature == 1 else te.compute(x.shape, lambda *i: x[i] / temperature, name="scaled")


@te.op
def softmax(x: te.Tensor, where: te.Tensor | None = None, *, axis: Any = -1, temperature: float = 1.0, dtype: Any = None) -> te.Tensor:
    """`y[.., i, ..] = exp(x[i] - m) / sum_k exp(x[k] - m)`, `m = max_k x[k]` along `axis`; shape and dtype of `x`.

    `x` is divided by `temperature` (above 0) first: small ones sharpen, large ones flatten. Several axes are taken as one.
    Elements are cast to `dtype` first. With `where` it is `masked_softmax`.

    >>> kernels.softmax(np.array([[0.0, 0.0], [1000.0, 0.0]]))
    array([[0.5, 0.5],
           [1. , 0. ]])
    """
    x = _scaled(in_dtype(x, dtype), temperature)
    if where is not None:
        return masked_softmax.function(x, where, axis=axis)
    fold = Fold(x, axis)
    top = shift(x, fold)
    # One division per row; total is at least 1, so its inverse loses nothing.
    scale = te.compute(fold.rows, lambda *r: 1 / fold.over(te.sum, r, lambda i: te.exp(wide(x[i]) - top[r])), name="scale")
    return te.compute(x.shape, lambda *i: like(te.exp(wide(x[i]) - top[fold.row(i)]) * scale[fold.row(i)], x))


@te.op
def softmin(x: te.Tensor, *, axis: Any = -1, dtype: Any = None) -> te.Tensor:
    """`softmax(-x)`.

    >>> kernels.softmin(np.array([0.0, 1000.0]))
    array([1., 0.])
    """
    x = in_dtype(x, dtype)
    return softmax(te.compute(x.shape, lambda *i: -x[i]), axis=axis)


@te.op
def log_softmax(x: te.Tensor, *, axis: Any = -1, temperature: float = 1.0, dtype: Any = None) -> te.Tensor:
    """`y[.., i, ..] = x[i] - m - log sum_k exp(x[k] - m)`, `m = max_k x[k]` along `axis`: the logarithm of `softmax`, which is never -inf
    where `x` is finite.

    >>> kernels.log_softmax(np.array([0.0, 0.0])).round(4)
    array([-0.6931, -0.6931])
    """
    x = _scaled(in_dtype(x, dtype), temperature)
    fold = Fold(x, axis)
    top = shift(x, fold)
    total = te.compute(fold.rows, lambda *r: te.log(fold.over(te.sum, r, lambda i: te.exp(wide(x[i]) - top[r]))), name="total")
    return te.compute(x.shape, lambda *i: like(wide(x[i]) - top[fold.row(i)] - total[fold.row(i)], x))


@te.op
def masked_softmax(x: te.Tensor, mask: te.Tensor, *, axis: Any = -1) -> te.Tensor:
    """The softmax of the elements whose `mask` (a bool that broadcasts to `x`) holds; the others are 0 and have no influence.

    What is masked may be NaN or infinite. A row without any element is 0 throughout.

    >>> kernels.masked_softmax(np.array([0.0, 0.0, 9.0]), np.array([True, True, False]))
    array([0.5, 0.5, 0. ])
    """
    if not mask.dtype.is_bool:
        raise bad(f"masked_softmax: expected a bool mask, got {mask.dtype.name}", "True keeps an element")
    if not stretches(mask.shape, x.shape):
        raise bad(f"masked_softmax: expected a mask that broadcasts to {x.shape}, got {mask.shape}")
    fold = Fold(x, axis)

    def kept(i: Any, value: Any, other: float) -> te.Scalar:
        return te.where(at(mask, i), value(i), other)

    top = shift(x, fold, lambda i: kept(i, lambda i: wide(x[i]), -math.inf))

    def grown(i: Any) -> te.Scalar:
        return kept(i, lambda i: te.exp(wide(x[i]) - top[fold.row(i)]), 0)

    total = te.compute(fold.rows, lambda *r: fold.over(te.sum, r, grown), name="total")
    return te.compute(x.shape, lambda *i: kept(i, lambda i: like(te.exp(wide(x[i]) - top[fold.row(i)]) / total[fold.row(i)], x), 0))
