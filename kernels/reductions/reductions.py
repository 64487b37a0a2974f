"""Reductions over one axis, several or all (`axis=None`), whose extents stay as 1 with `keepdims=True`.

`sum` to `any` are the language's own reductions with the axes that users of NumPy expect. Statistics of float16 and bfloat16 are
computed in float32 and rounded once. Where a maximum is taken out for stability it cancels, so no derivative goes through it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad, in_dtype, known, product
from tensorexpr.kernels.conventions.axes import several
from tensorexpr.kernels.conventions.broadcasting import pointwise


class Fold:
    """The axes of `x` that a reduction takes: `extents`, `count` of elements per result, `rows` (the shape left over)."""

    def __init__(self, x: te.Tensor, axis: Any, keepdims: bool = False) -> None:
        self.axes = several(axis, x)
        self.rank = x.ndim
        self.extents = tuple(x.shape[d] for d in self.axes)
        self.count = product(self.extents)
        self.rows = tuple(extent for d, extent in enumerate(x.shape) if d not in self.axes)
        self.shape = tuple(1 if d in self.axes else extent for d, extent in enumerate(x.shape)) if keepdims else self.rows
        self._keepdims = keepdims

    def row(self, index: Sequence[Any]) -> tuple[Any, ...]:
        """The place among the rows of an element of `x`."""
        return tuple(i for d, i in enumerate(index) if d not in self.axes)

    def element(self, row: Sequence[Any], inner: Sequence[Any]) -> tuple[Any, ...]:
        """The element of `x` at a place among the rows and one along the axes."""
        outer, along = iter(row), iter(inner)
        return tuple(next(along) if d in self.axes else next(outer) for d in range(self.rank))

    def each(self, body: Callable[..., Any], name: Any = None) -> Any:
        """The tensor (or tensors) of the result's shape whose element is `body(row)`."""
        return te.compute(self.shape, lambda *i: body(self.row(i) if self._keepdims else i), name=name)

    def over(self, reduce: Callable[..., Any], row: Sequence[Any], body: Callable[[tuple[Any, ...]], Any]) -> Any:
        """`reduce` (te.sum and its kin) of `body(element)` over the elements of a row, which is a single one where no axis is taken."""
        if not self.extents:
            return reduce(lambda _: body(self.element(row, ())), 1)
        return reduce(lambda *k: body(self.element(row, k)), self.extents)


def wide(value: Any) -> Any:
    """A float16 or bfloat16 in float32, anything else as it is: what sums are carried in."""
    return te.cast(value, "float32") if value.dtype.is_float and value.dtype.bits == 16 else value


def like(value: Any, x: te.Tensor) -> Any:
    """The value in the dtype of a floating `x`."""
    return te.cast(value, x.dtype) if x.dtype.is_float and value.dtype != x.dtype else value


def over(value: Any, count: Any) -> Any:
    """The value divided by a number of elements, in its own dtype also where the number is known only at run time."""
    if known(count):
        return value / count
    return value / te.cast(count, value.dtype if value.dtype.is_float else "float64")


def _simple(reduce: Callable[..., Any], x: te.Tensor, axis: Any, keepdims: bool, body: Callable[[Any], Any] = lambda v: v) -> te.Tensor:
    fold = Fold(x, axis, keepdims)
    return fold.each(lambda row: fold.over(reduce, row, lambda i: body(x[i])))


def _not_empty(name: str, fold: Fold) -> None:
    """`ArgumentError` for an extreme of provably nothing."""
    if known(fold.count) and fold.count == 0 and 0 not in [extent for extent in fold.rows if known(extent)]:
        raise bad(f"{name}: expected at least one element along the axes {fold.axes}, got none")


def _extreme(name: str, reduce: Callable[..., Any], x: te.Tensor, axis: Any, keepdims: bool) -> te.Tensor:
    _not_empty(name, Fold(x, axis))
    return _simple(reduce, x, axis, keepdims)


# ---------------------------------------------------------------------------------------------------- sums and extremes


@te.op
def sum(x: te.Tensor, *, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> te.Tensor:
    """The sum along `axis`, 0 over nothing; integers below 64 bits and bools are summed in 64 bits. Elements are cast to `dtype` first.

    >>> kernels.sum(np.array([[1, 2], [3, 4]]), axis=0, keepdims=True)
    array([[4, 6]])
    """
    return _simple(te.sum, in_dtype(x, dtype), axis, keepdims)


@te.op
def nansum(x: te.Tensor, *, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> te.Tensor:
    """The sum of the elements that are no NaN; they are cast to `dtype` first.

    >>> kernels.nansum(np.array([1.0, np.nan, 3.0]))
    array(4.)
    """
    return _simple(te.sum, in_dtype(x, dtype), axis, keepdims, lambda v: te.where(te.isnan(v), 0, v))


@te.op
def prod(x: te.Tensor, *, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> te.Tensor:
    """The product along `axis`, 1 over nothing; its gradient is exact where elements are 0.

    >>> kernels.prod(np.array([[1, 2], [3, 4]]), axis=1)
    array([ 2, 12])
    """
    return _simple(te.prod, in_dtype(x, dtype), axis, keepdims)


@te.op
def amax(x: te.Tensor, *, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """The greatest value along `axis`; NaN if one is. The gradient goes to the first of equals in row-major order.

    >>> kernels.amax(np.array([[1, 2], [3, 4]]), axis=0)
    array([3, 4])
    """
    return _extreme("amax", te.max, x, axis, keepdims)


@te.op
def amin(x: te.Tensor, *, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """The least value along `axis`; NaN if one is. The gradient goes to the first of equals in row-major order.

    >>> kernels.amin(np.array([[1, 2], [3, 4]]), axis=0)
    array([1, 2])
    """
    return _extreme("amin", te.min, x, axis, keepdims)


@te.op
def max(x: te.Tensor, *, axis: Any = None, keepdims: bool = False) -> te.Tensor | tuple[te.Tensor, te.Tensor]:
    """`(values, indices)`: the greatest value along `axis` and its place, as in PyTorch (`amax` and `argmax`; NumPy's max is `amax`).

    Without an axis it is the value alone, of all elements.

    >>> kernels.max(np.array([[1, 5, 2], [7, 7, 0]]), axis=1)
    (array([5, 7]), array([1, 0]))
    """
    values = _extreme("max", te.max, x, axis, keepdims)
    return values if axis is None else (values, _extreme("max", te.argmax, x, axis, keepdims))


@te.op
def min(x: te.Tensor, *, axis: Any = None, keepdims: bool = False) -> te.Tensor | tuple[te.Tensor, te.Tensor]:
    """`(values, indices)`: the least value along `axis` and its place, as in PyTorch (`amin` and `argmin`; NumPy's min is `amin`).

    Without an axis it is the value alone, of all elements.

    >>> kernels.min(np.array([3, 1, 2])), kernels.min(np.array([3, 1, 2]), axis=0)
    (array(1), (array(1), array(1)))
    """
    values = _extreme("min", te.min, x, axis, keepdims)
    return values if axis is None else (values, _extreme("min", te.argmin, x, axis, keepdims))


@te.op
def aminmax(x: te.Tensor, *, axis: Any = None, keepdims: bool = False) -> tuple[te.Tensor, te.Tensor]:
    """`(amin, amax)` along `axis`.

    >>> kernels.aminmax(np.array([3, 1, 2]))
    (array(1), array(3))
    """
    return _extreme("aminmax", te.min, x, axis, keepdims), _extreme("aminmax", te.max, x, axis, keepdims)


@te.op
def argmax(x: te.Tensor, *, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """The place of the greatest value along `axis`, int64: over several axes their flat place. The first of equals, a NaN before all.

    >>> kernels.argmax(np.array([[1, 5, 2], [7, 7, 0]]), axis=1)
    array([1, 0])
    """
    return _extreme("argmax", te.argmax, x, axis, keepdims)


@te.op
def argmin(x: te.Tensor, *, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """The place of the least value along `axis`; see `argmax`.

    >>> kernels.argmin(np.array([3, 1, 2]))
    array(1)
    """
    return _extreme("argmin", te.argmin, x, axis, keepdims)


@te.op
def all(x: te.Tensor, *, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """Whether all elements along `axis` are true (not 0); True over nothing.

    >>> kernels.all(np.array([[True, True], [True, False]]), axis=1)
    array([ True, False])
    """
    return _simple(te.all, x, axis, keepdims)


@te.op
def any(x: te.Tensor, *, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """Whether some element along `axis` is true (not 0); False over nothing.

    >>> kernels.any(np.array([[False, True], [False, False]]), axis=1)
    array([ True, False])
    """
    return _simple(te.any, x, axis, keepdims)


@te.op
def count_nonzero(x: te.Tensor, *, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """How many elements along `axis` are not 0, int64.

    >>> kernels.count_nonzero(np.array([[0, 1], [2, 3]]), axis=1)
    array([1, 2])
    """
    return _simple(te.sum, x, axis, keepdims, lambda v: te.cast(v != 0, "int64"))


# ---------------------------------------------------------------------------------------------------- moments


@te.op
def mean(x: te.Tensor, *, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> te.Tensor:
    """The sum along `axis` divided by the number of elements; NaN over nothing. Integers give float64, unless `dtype` says another.

    >>> kernels.mean(np.array([[1, 2], [3, 4]]), axis=1)
    array([1.5, 3.5])
    """
    x, fold = in_dtype(x, dtype), Fold(x, axis, keepdims)
    return fold.each(lambda row: _mean(x, fold, row))


def _mean(x: te.Tensor, fold: Fold, row: Sequence[Any]) -> Any:
    return like(over(fold.over(te.sum, row, lambda i: wide(x[i])), fold.count), x)


@te.op
def nanmean(x: te.Tensor, *, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """The mean of the elements that are no NaN.

    >>> kernels.nanmean(np.array([1.0, np.nan, 3.0]))
    array(2.)
    """
    fold = Fold(x, axis, keepdims)

    def body(row: Sequence[Any]) -> Any:
        total = fold.over(te.sum, row, lambda i: te.where(te.isnan(x[i]), 0, wide(x[i])))
        return like(total / te.cast(fold.over(te.sum, row, lambda i: ~te.isnan(x[i])), total.dtype), x)

    return fold.each(body)


@te.op
def var(x: te.Tensor, *, axis: Any = None, correction: Any = 1, keepdims: bool = False, unbiased: Any = None) -> te.Tensor:
    """`sum (x - mean)^2 / max(0, n - correction)` along `axis`: in two passes, the differences squared, not the squares subtracted.

    `unbiased` True or False is PyTorch's word for a correction of 1 or 0.

    >>> kernels.var(np.array([[1.0, 3.0], [2.0, 2.0]]), axis=1)
    array([2., 0.])
    """
    correction, fold = _correction(correction, unbiased), Fold(x, axis, keepdims)
    total = _squares(x, fold)
    return fold.each(lambda row: like(over(total[row], _freedom(fold.count, correction)), x))


@te.op
def std(x: te.Tensor, *, axis: Any = None, correction: Any = 1, keepdims: bool = False, unbiased: Any = None) -> te.Tensor:
    """The square root of `var`; gradient 0 where all elements are equal.

    >>> kernels.std(np.array([1.0, 3.0]), correction=0)
    array(1.)
    """
    correction, fold = _correction(correction, unbiased), Fold(x, axis, keepdims)
    total = _squares(x, fold)
    return fold.each(lambda row: like(_root(over(total[row], _freedom(fold.count, correction))), x))


def _squares(x: te.Tensor, fold: Fold) -> te.Tensor:
    """`sum (x - mean)^2` of each row."""
    floating = x if x.dtype.is_float else te.compute(x.shape, lambda *i: te.cast(x[i], "float64"))
    mean = te.compute(fold.rows, lambda *r: over(fold.over(te.sum, r, lambda i: wide(floating[i])), fold.count), name="mean")
    return te.compute(fold.rows, lambda *r: fold.over(te.sum, r, lambda i: (wide(floating[i]) - mean[r]) ** 2), name="squares")


def _correction(correction: Any, unbiased: Any) -> Any:
    """What is taken from the number of elements, 1 where neither says; `unbiased` goes before."""
    found = (1 if correction is None else correction) if unbiased is None else unbiased
    return int(found) if isinstance(found, bool) else found


def _freedom(count: Any, correction: float) -> Any:
    """`max(0, count - correction)`, a divisor."""
    if isinstance(correction, bool) or not isinstance(correction, (int, float)):
        raise bad(f"correction: expected a number, got {correction!r}")
    left = count - correction
    return (left if left > 0 else 0) if known(count) else te.maximum(left, 0)


def _root(value: Any) -> te.Scalar:
    """The square root, whose derivative at 0 is taken to be 0 (as of a norm), not infinite."""
    return te.where(value > 0, te.sqrt(value), value)


def _parts(x: te.Tensor, fold: Fold, row: Sequence[Any]) -> Any:
    """Count, mean and sum of squared deviations of a row, merged from those of its parts."""

    def merge(a: Any, b: Any) -> tuple[Any, ...]:
        count, apart = a[0] + b[0], b[1] - a[1]
        share = te.where(b[0] == 0, 0, b[0] / te.where(count == 0, 1, count))
        return count, a[1] + apart * share, a[2] + b[2] + apart * apart * (a[0] * share)

    def one(*inner: Any) -> tuple[Any, ...]:
        value = wide(x[fold.element(row, inner if fold.extents else ())])
        return te.cast(1, value.dtype), value, te.cast(0, value.dtype)

    return te.reduce(merge, (0.0, 0.0, 0.0), one, fold.extents or 1)


def _of_mean(output: Any, inputs: Any, head: Any, *, axis: Any) -> Any:
    """Every element has its share of the mean."""
    (x,), fold = inputs, Fold(inputs[0], axis)
    return [te.compute(x.shape, lambda *i: like(over(wide(head[fold.row(i)]), fold.count), x))]


@te.op(gradient=_of_mean)
def _running_mean(x: te.Tensor, *, axis: Any) -> te.Tensor:
    fold = Fold(x, axis)
    return te.compute(fold.rows, lambda *row: like(_parts(x, fold, row)[1], x))


def _of_squares(output: Any, inputs: Any, head: Any, *, axis: Any) -> Any:
    """Twice the deviation; nothing through the mean, from which the deviations sum to 0."""
    (x, mean), fold = inputs, Fold(inputs[0], axis)
    slope = te.compute(x.shape, lambda *i: like(wide(head[fold.row(i)]) * 2 * (wide(x[i]) - wide(mean[fold.row(i)])), x))
    return [slope, te.compute(mean.shape, lambda *row: te.cast(0, mean.dtype))]


@te.op(gradient=_of_squares)
def _running_squares(x: te.Tensor, mean: te.Tensor, *, axis: Any) -> te.Tensor:
    fold = Fold(x, axis)
    return te.compute(fold.rows, lambda *row: like(_parts(x, fold, row)[2], x))


@te.op
def var_mean(x: te.Tensor, *, axis: Any = None, correction: Any = 1, keepdims: bool = False, unbiased: Any = None) -> tuple[te.Tensor, ...]:
    """Variance and mean of a floating `x` along `axis` from running sums, in any grouping of the elements: a tuple.

    Counts, means and sums of squares of parts are merged (Welford, 1962; Chan, Golub & LeVeque, 1979):
    `mean = (n1 m1 + n2 m2) / n`, `squares = s1 + s2 + (m2 - m1)^2 n1 n2 / n`, with `n = n1 + n2`. The gradient is the closed form.

    >>> kernels.var_mean(np.array([1.0, 3.0]))
    (array(2.), array(2.))
    """
    return _spread("var_mean", ("var", "mean"), x, axis, _correction(correction, unbiased), keepdims, lambda v: v)


@te.op
def std_mean(x: te.Tensor, *, axis: Any = None, correction: Any = 1, keepdims: bool = False, unbiased: Any = None) -> tuple[te.Tensor, ...]:
    """The square root of the variance, and the mean, of a floating `x` along `axis`: see `var_mean`; gradient 0 where all are equal.

    >>> kernels.std_mean(np.array([1.0, 3.0]), correction=0)
    (array(1.), array(2.))
    """
    return _spread("std_mean", ("std", "mean"), x, axis, _correction(correction, unbiased), keepdims, _root)


def _spread(
    name: str, names: tuple[str, str], x: te.Tensor, axis: Any, correction: Any, keepdims: bool, value: Callable[[Any], Any]
) -> tuple[te.Tensor, ...]:
    """`value(variance)` and mean of each row."""
    if not x.dtype.is_float:
        raise bad(f"{name}: expected a floating tensor, got {x.name} of {x.dtype.name}", "te.cast its elements to a float first")
    fold = Fold(x, axis, keepdims)
    mean = _running_mean(x, axis=fold.axes)
    squares = _running_squares(x, mean, axis=fold.axes)

    def of(row: Sequence[Any]) -> tuple[Any, Any]:
        middle = mean[row]
        if not known(fold.count) or fold.count == 0:  # running sums are 0 over nothing
            middle = te.where(fold.count == 0, te.cast(math.nan, middle.dtype), middle)
        return value(over(squares[row], _freedom(fold.count, correction))), middle

    found: tuple[te.Tensor, ...] = fold.each(of, names)
    return found


# ---------------------------------------------------------------------------------------------------- norms, logsumexp


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
        _not_empty("norm", fold)
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
        return fold.each(lambda row: like(_root(total[row]), x))
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
def logsumexp(x: te.Tensor, *, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """`log sum exp(x)` along `axis` at any magnitude: `m + log sum exp(x - m)`, `m` the maximum; minus infinity over nothing.

    >>> float(kernels.logsumexp(np.array([1000.0, 1000.0]), axis=0).round(4))
    1000.6931
    """
    fold = Fold(x, axis, keepdims)
    if known(fold.count) and fold.count == 0:
        return fold.each(lambda row: te.cast(-math.inf, x.dtype if x.dtype.is_float else "float64"))
    top = shift(x, fold)
    return fold.each(lambda row: like(top[row] + te.log(fold.over(te.sum, row, lambda i: te.exp(wide(x[i]) - top[row]))), x))


def shift(x: te.Tensor, fold: Fold, value: Callable[[Any], Any] | None = None) -> te.Tensor:
    """The maximum of each row (of `value(element)`), 0 where it is infinite: what is taken out before `exp`, and not differentiated."""

    def body(*row: Any) -> Any:
        if known(fold.count) and fold.count == 0:
            return te.cast(0, x.dtype)
        top = fold.over(te.max, row, value or (lambda i: wide(x[i])))
        return te.where(te.isinf(top), 0, top)

    return te.stop_gradient(te.compute(fold.rows, body, name="top"))
