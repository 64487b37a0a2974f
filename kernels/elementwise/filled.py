"""Tensors in the shape of another: of one value, or of its elements in another dtype."""

from __future__ import annotations

from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad, in_dtype


@te.op
def full_like(x: te.Tensor, *, fill_value: Any, dtype: Any = None) -> te.Tensor:
    """`fill_value`, a number, for every element of `x`, in its dtype or in `dtype`.

    >>> kernels.full_like(np.array([1, 2]), fill_value=7)
    array([7, 7])
    """
    if not isinstance(fill_value, (bool, int, float)):
        raise bad(f"fill_value: expected a number, got {fill_value!r}")
    kind = x.dtype if dtype is None else in_dtype(x, dtype).dtype
    return te.compute(x.shape, lambda *i: te.cast(fill_value, kind))


@te.op
def zeros_like(x: te.Tensor, *, dtype: Any = None) -> te.Tensor:
    """0 for every element of `x`, in its dtype or in `dtype`.

    >>> kernels.zeros_like(np.array([1.0, 2.0]))
    array([0., 0.])
    """
    return full_like.function(x, fill_value=0, dtype=dtype)


@te.op
def ones_like(x: te.Tensor, *, dtype: Any = None) -> te.Tensor:
    """1 for every element of `x`, in its dtype or in `dtype`.

    >>> kernels.ones_like(np.array([1.0, 2.0]), dtype="int32")
    array([1, 1], dtype=int32)
    """
    return full_like.function(x, fill_value=1, dtype=dtype)


@te.op
def astype(x: te.Tensor, *, dtype: Any) -> te.Tensor:
    """The elements in another dtype, as NumPy casts them.

    >>> kernels.astype(np.array([1.5, -2.5]), dtype="int64")
    array([ 1, -2])
    """
    return te.compute(x.shape, lambda *i: in_dtype(x, dtype)[i])
