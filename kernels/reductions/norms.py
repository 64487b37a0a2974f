"""Norms of vectors and of matrices by the sums of their rows and columns."""

from __future__ import annotations

import math
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad, in_dtype
from tensorexpr.kernels.conventions.axes import normalized
from tensorexpr.kernels.conventions.broadcasting import pointwise
from tensorexpr.kernels.reductions.reductions import Fold, like, not_empty, root, wide


@te.op
def norm(x: te.Tensor, *, p: Any = 2, axis: Any = None, keepdims: bool = False, ord: Any = None) -> te.Tensor:
    """The vector norm `(sum |x|^p)^(1/p)` along `axis`; p = 0 counts what is not 0, inf and -inf are the extremes of `|x|`, "fro" is 2.

    `ord` is p as NumPy and `torch.linalg` mean it: over two axes the norm of a matrix, of which 1 and inf are the largest sum of a
    column and of a row, -1 and -inf the smallest, and those of singular values are refused.
    A zero vector has gradient 0, and so has an element that is 0 (for `p >= 0`).

    >>> kernels.norm(np.array([[3.0, 4.0], [0.0, 2.0]]), axis=1), kernels.norm(np.array([[3.0, 4.0], [0.0, 2.0]]), ord=1)
    (array([5., 2.]), array(6.))
    """
    if ord is not None:
        return _norm_of_order(x, ord, axis, keepdims)
    if isinstance(p, str) and p == "fro":
        p = 2
    if isinstance(p, bool) or not isinstance(p, (int, float)) or math.isnan(p):
        raise bad(f"norm: expected a number p, or 'fro', got {p!r}", "p may be 0, math.inf and -math.inf")
    fold = Fold(x, axis, keepdims)
    if math.isinf(p):
        not_empty("norm", fold)
        return fold.each(lambda row: fold.over(te.max if p > 0 else te.min, row, lambda i: te.abs(x[i])))
    if p == 0:
        return fold.each(lambda row: like(fold.over(te.sum, row, lambda i: te.where(x[i] != 0, wide(x[i]) * 0 + 1, 0)), x))
    if p == 1:
        return fold.each(lambda row: like(fold.over(te.sum, row, lambda i: te.abs(wide(x[i]))), x))

    def power(v: Any) -> Any:
        if p == 2:
            return v**2
        return te.where(v == 0, 0, te.abs(v) ** p) if p > 0 else te.abs(v) ** p

    total = te.compute(fold.rows, lambda *r: fold.over(te.sum, r, lambda i: power(wide(x[i]))), name="total")
    if p == 2:
        return fold.each(lambda row: like(root(total[row]), x))
    return fold.each(lambda row: like(te.where(total[row] > 0, total[row] ** (1 / p), total[row]), x))


def _norm_of_order(x: te.Tensor, order: Any, axis: Any, keepdims: bool) -> te.Tensor:
    """`norm` along one axis, that of matrices along two."""
    axes = tuple(range(x.ndim)) if axis is None else tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    if len(axes) > 2:
        raise bad(f"norm: expected one axis or two for ord, got {len(axes)}", "p is for any number of axes")
    if len(axes) < 2 or order == "fro":
        return norm.function(x, p=order, axis=axis, keepdims=keepdims)
    if order not in (1, -1, math.inf, -math.inf):
        raise bad(f"norm: expected ord 1, -1, inf, -inf or 'fro' for matrices, got {order!r}", "p=2 is the norm of all elements")
    sums = norm.function(x, p=1, axis=axes[0 if abs(order) == 1 else 1], keepdims=True)
    return norm.function(sums, p=math.copysign(math.inf, order), axis=axes, keepdims=keepdims)


@te.op
def vector_norm(x: te.Tensor, *, ord: Any = 2, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> te.Tensor:
    """`norm` under PyTorch's other name; elements are cast to `dtype` first.

    >>> kernels.vector_norm(np.array([1.0, -2.0]), ord=1)
    array(3.)
    """
    return norm.function(in_dtype(x, dtype), p=ord, axis=axis, keepdims=keepdims)


@te.op
def dist(x: te.Tensor, y: te.Tensor, *, p: Any = 2) -> te.Tensor:
    """The `norm` of `x - y`, the two broadcast.

    >>> kernels.dist(np.array([3.0, 4.0]), np.array([0.0, 0.0]))
    array(5.)
    """
    return norm.function(pointwise("dist", lambda a, b: a - b, x, y, result="apart"), p=p)


@te.op
def renorm(x: te.Tensor, *, p: Any, axis: Any, maxnorm: Any) -> te.Tensor:
    """Each slice at a place on `axis` scaled down to the norm `maxnorm`, where its `norm` of order `p` is greater.

    >>> kernels.renorm(np.array([[3.0, 4.0], [0.3, 0.4]]), p=2, axis=0, maxnorm=1.0).round(4)
    array([[0.6, 0.8],
           [0.3, 0.4]])
    """
    own = normalized(axis, x)
    if isinstance(maxnorm, bool) or not isinstance(maxnorm, (int, float)) or maxnorm < 0:
        raise bad(f"maxnorm: expected a number of at least 0, got {maxnorm!r}")
    lengths = norm.function(x, p=p, axis=tuple(d for d in range(x.ndim) if d != own))

    def body(*i: Any) -> Any:
        length = lengths[i[own]]
        return x[i] * te.where(length > maxnorm, maxnorm / (length + 1e-7), te.cast(1, length.dtype))

    return te.compute(x.shape, body)
