"""Reductions over one axis, several or all (`axis=None`), whose extents stay as 1 with `keepdims=True`.

`sum` to `any` are the language's own reductions with the axes that users of NumPy expect. Statistics of float16 and bfloat16 are
computed in float32 and rounded once. Where a maximum is taken out for stability it cancels, so no derivative goes through it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad, in_dtype, known, product, same_extent, shaped
from tensorexpr.kernels.conventions.axes import several
from tensorexpr.kernels.conventions.broadcasting import at, stretches


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


def not_empty(name: str, fold: Fold) -> None:
    """`ArgumentError` for an extreme of provably nothing."""
    if known(fold.count) and fold.count == 0 and 0 not in [extent for extent in fold.rows if known(extent)]:
        raise bad(f"{name}: expected at least one element along the axes {fold.axes}, got none")


def _extreme(name: str, reduce: Callable[..., Any], x: te.Tensor, axis: Any, keepdims: bool) -> te.Tensor:
    not_empty(name, Fold(x, axis))
    return _simple(reduce, x, axis, keepdims)


# ---------------------------------------------------------------------------------------------------- sums and extremes


def _masked(
    reduce: Callable[..., Any], x: te.Tensor, where: te.Tensor | None, axis: Any, keepdims: bool, neutral: Any, body: Callable[[Any], Any]
) -> te.Tensor:
    """`reduce` of the elements where a mask is true, which is broadcast to `x`; where it is not, of what changes nothing."""
    fold = Fold(x, axis, keepdims)
    if where is None:
        return fold.each(lambda row: fold.over(reduce, row, lambda i: body(x[i])))
    if not stretches(where.shape, x.shape):
        raise bad(f"where: expected a shape that broadcasts to {x.shape}, got {where.shape}")

    def chosen(i: tuple[Any, ...]) -> Any:
        value = body(x[i])
        return te.where(at(where, i) != 0, value, te.cast(neutral, value.dtype))

    return fold.each(lambda row: fold.over(reduce, row, chosen))


def _begun(found: te.Tensor, initial: Any, combine: Callable[[Any, Any], Any]) -> te.Tensor:
    """The result with `initial`, a number in its dtype, taken in."""
    if initial is None:
        return found
    if isinstance(initial, bool) or not isinstance(initial, (int, float) if found.dtype.is_float else int):
        raise bad(f"initial: expected a number of {found.dtype.name}, got {initial!r}")
    return te.compute(found.shape, lambda *i: combine(te.cast(initial, found.dtype), found[i]))


@te.op
def sum(
    x: te.Tensor, where: te.Tensor | None = None, *, axis: Any = None, keepdims: bool = False, dtype: Any = None, initial: Any = None
) -> te.Tensor:
    """The sum along `axis`, 0 over nothing; integers below 64 bits and bools are summed in 64 bits. Elements are cast to `dtype` first.

    Those where `where` is false, which is broadcast to `x`, do not count. `initial` is a number that is added.

    >>> x = np.array([[1, 2], [3, 4]])
    >>> kernels.sum(x, axis=0, keepdims=True), kernels.sum(x, where=x > 1, initial=10)
    (array([[4, 6]]), array(19))
    """
    found = _masked(te.sum, in_dtype(x, dtype), where, axis, keepdims, 0, lambda v: v)
    return _begun(found, initial, lambda a, b: a + b)


@te.op
def prod(
    x: te.Tensor, where: te.Tensor | None = None, *, axis: Any = None, keepdims: bool = False, dtype: Any = None, initial: Any = None
) -> te.Tensor:
    """The product along `axis`, 1 over nothing; its gradient is exact where elements are 0. `where` and `initial` as in `sum`.

    >>> kernels.prod(np.array([[1, 2], [3, 4]]), axis=1)
    array([ 2, 12])
    """
    found = _masked(te.prod, in_dtype(x, dtype), where, axis, keepdims, 1, lambda v: v)
    return _begun(found, initial, lambda a, b: a * b)


@te.op
def amax(x: te.Tensor, where: te.Tensor | None = None, *, axis: Any = None, keepdims: bool = False, initial: Any = None) -> te.Tensor:
    """The greatest value along `axis`; NaN if one is. The gradient goes to the first of equals in row-major order.

    `initial` is a number that counts too: what there is where no element counts, as with `where`.

    >>> kernels.amax(np.array([[1, 2], [3, 4]]), axis=0), kernels.amax(np.array([1, 2]), initial=5)
    (array([3, 4]), array(5))
    """
    return _outermost("amax", te.max, te.maximum, x, where, axis, keepdims, initial)


@te.op
def amin(x: te.Tensor, where: te.Tensor | None = None, *, axis: Any = None, keepdims: bool = False, initial: Any = None) -> te.Tensor:
    """The least value along `axis`; NaN if one is. The gradient goes to the first of equals in row-major order. See `amax`.

    >>> kernels.amin(np.array([[1, 2], [3, 4]]), axis=0)
    array([1, 2])
    """
    return _outermost("amin", te.min, te.minimum, x, where, axis, keepdims, initial)


def _outermost(
    name: str, reduce: Callable[..., Any], two: Callable[[Any, Any], Any], x: te.Tensor, where: Any, axis: Any, keepdims: bool, initial: Any
) -> te.Tensor:
    if initial is None:
        not_empty(name, Fold(x, axis))
        if where is not None:
            raise bad(f"{name}: expected initial beside where, got none", "it is the result where no element counts")
    elif known(count := Fold(x, axis).count) and count == 0:
        return _begun(Fold(x, axis, keepdims).each(lambda row: te.cast(initial, x.dtype)), initial, lambda a, _: a)
    neutral = 0 if initial is None else te.cast(initial, x.dtype)
    return _begun(_masked(reduce, x, where, axis, keepdims, neutral, lambda v: v), initial, two)


@te.op
def max(
    x: te.Tensor, where: te.Tensor | None = None, *, axis: Any = None, keepdims: bool = False, initial: Any = None
) -> te.Tensor | tuple[te.Tensor, te.Tensor]:
    """`(values, indices)`: the greatest value along `axis` and its place, as in PyTorch (`amax` and `argmax`; NumPy's max is `amax`).

    Without an axis it is the value alone, of all elements, and so it is with `where` or `initial`, which are NumPy's (see `amax`).

    >>> kernels.max(np.array([[1, 5, 2], [7, 7, 0]]), axis=1)
    (array([5, 7]), array([1, 0]))
    """
    if where is not None or initial is not None:
        return _outermost("max", te.max, te.maximum, x, where, axis, keepdims, initial)
    values = _extreme("max", te.max, x, axis, keepdims)
    return values if axis is None else (values, _extreme("max", te.argmax, x, axis, keepdims))


@te.op
def min(
    x: te.Tensor, where: te.Tensor | None = None, *, axis: Any = None, keepdims: bool = False, initial: Any = None
) -> te.Tensor | tuple[te.Tensor, te.Tensor]:
    """`(values, indices)`: the least value along `axis` and its place, as in PyTorch (`amin` and `argmin`; NumPy's min is `amin`).

    Without an axis it is the value alone, of all elements, and so it is with `where` or `initial`, which are NumPy's (see `amin`).

    >>> kernels.min(np.array([3, 1, 2])), kernels.min(np.array([3, 1, 2]), axis=0)
    (array(1), (array(1), array(1)))
    """
    if where is not None or initial is not None:
        return _outermost("min", te.min, te.minimum, x, where, axis, keepdims, initial)
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
def ptp(x: te.Tensor, *, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """`amax - amin` along `axis`: from the least to the greatest.

    >>> kernels.ptp(np.array([[1, 5], [3, 4]]), axis=1)
    array([4, 1])
    """
    fold = Fold(x, axis, keepdims)
    not_empty("ptp", fold)
    return fold.each(lambda row: fold.over(te.max, row, lambda i: x[i]) - fold.over(te.min, row, lambda i: x[i]))


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
def all(x: te.Tensor, where: te.Tensor | None = None, *, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """Whether all elements along `axis` are true (not 0); True over nothing. `where` as in `sum`.

    >>> kernels.all(np.array([[True, True], [True, False]]), axis=1)
    array([ True, False])
    """
    return _masked(te.all, x, where, axis, keepdims, True, lambda v: v != 0)


@te.op
def any(x: te.Tensor, where: te.Tensor | None = None, *, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """Whether some element along `axis` is true (not 0); False over nothing. `where` as in `sum`.

    >>> kernels.any(np.array([[False, True], [False, False]]), axis=1)
    array([ True, False])
    """
    return _masked(te.any, x, where, axis, keepdims, False, lambda v: v != 0)


@te.op
def count_nonzero(x: te.Tensor, *, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """How many elements along `axis` are not 0, int64.

    >>> kernels.count_nonzero(np.array([[0, 1], [2, 3]]), axis=1)
    array([1, 2])
    """
    return _simple(te.sum, x, axis, keepdims, lambda v: te.cast(v != 0, "int64"))


# ---------------------------------------------------------------------------------------------------- moments


@te.op
def mean(x: te.Tensor, where: te.Tensor | None = None, *, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> te.Tensor:
    """The sum along `axis` divided by the number of elements; NaN over nothing. Integers give float64, unless `dtype` says another.

    Elements where `where` is false, which is broadcast to `x`, do not count.

    >>> kernels.mean(np.array([[1, 2], [3, 4]]), axis=1)
    array([1.5, 3.5])
    """
    x, fold = in_dtype(x, dtype), Fold(x, axis, keepdims)
    if where is None:
        return fold.each(lambda row: _mean(x, fold, row))
    total = _masked(te.sum, x, where, axis, keepdims, 0, wide)
    count = _masked(te.sum, x, where, axis, keepdims, 0, lambda v: te.cast(1, total.dtype if total.dtype.is_float else "float64"))
    return te.compute(total.shape, lambda *i: like(total[i] / count[i], x))


def _mean(x: te.Tensor, fold: Fold, row: Sequence[Any]) -> Any:
    return like(over(fold.over(te.sum, row, lambda i: wide(x[i])), fold.count), x)


@te.op
def average(x: te.Tensor, weights: te.Tensor | None = None, *, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """`sum(x * weights) / sum(weights)` along `axis`; the mean without weights. They have the shape of `x`, or are a vector along `axis`.

    >>> kernels.average(np.array([[1.0, 2.0], [3.0, 6.0]]), np.array([3.0, 1.0]), axis=1)
    array([1.25, 3.75])
    """
    if weights is None:
        return mean.function(x, axis=axis, keepdims=keepdims)
    fold = Fold(x, axis, keepdims)
    if weights.ndim == 1 and len(fold.axes) == 1:
        same_extent("average: weights", weights.shape[0], fold.extents[0])
    else:
        shaped(weights, x.shape, "as x")

    def weight(i: tuple[Any, ...]) -> Any:
        value = wide(weights[i if weights.ndim == x.ndim else i[fold.axes[0]]])
        return value if value.dtype.is_float or x.dtype.is_float else te.cast(value, "float64")

    def body(row: Sequence[Any]) -> Any:
        return like(fold.over(te.sum, row, lambda i: wide(x[i]) * weight(i)) / fold.over(te.sum, row, weight), x)

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
    return fold.each(lambda row: like(root(over(total[row], _freedom(fold.count, correction))), x))


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


def root(value: Any) -> te.Scalar:
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
    return _spread("std_mean", ("std", "mean"), x, axis, _correction(correction, unbiased), keepdims, root)


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


# ---------------------------------------------------------------------------------------------------- logsumexp


@te.op
def logsumexp(x: te.Tensor, b: te.Tensor | None = None, *, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """`log sum b exp(x)` along `axis` at any magnitude: `m + log sum b exp(x - m)`, `m` the maximum; minus infinity over nothing.

    `b` are factors that broadcast to `x`, 1 if left out; where one is 0 its element has no influence. A negative sum gives NaN.

    >>> float(kernels.logsumexp(np.array([1000.0, 1000.0]), axis=0).round(4))
    1000.6931
    """
    if b is not None and not stretches(b.shape, x.shape):
        raise bad(f"logsumexp: expected factors b that broadcast to {x.shape}, got {b.shape}")
    fold = Fold(x, axis, keepdims)
    if known(fold.count) and fold.count == 0:
        return fold.each(lambda row: te.cast(-math.inf, x.dtype if x.dtype.is_float else "float64"))
    if b is None:
        top = shift(x, fold)
        return fold.each(lambda row: like(top[row] + te.log(fold.over(te.sum, row, lambda i: te.exp(wide(x[i]) - top[row]))), x))
    x = in_dtype(x, None if x.dtype.is_float else "float64")
    weights = in_dtype(b, None if b.dtype.is_float else x.dtype)
    top = shift(x, fold, lambda i: te.where(at(weights, i) == 0, -math.inf, wide(x[i])))

    def term(i: Any, row: Any) -> Any:
        factor, grown = wide(at(weights, i)), te.exp(wide(x[i]) - top[row])
        return te.where((factor == 0) & ~te.isfinite(grown), 0, factor * grown)

    return fold.each(lambda row: like(top[row] + te.log(fold.over(te.sum, row, lambda i: term(i, row))), x))


def shift(x: te.Tensor, fold: Fold, value: Callable[[Any], Any] | None = None) -> te.Tensor:
    """The maximum of each row (of `value(element)`), 0 where it is infinite: what is taken out before `exp`, and not differentiated."""

    def body(*row: Any) -> Any:
        if known(fold.count) and fold.count == 0:
            return te.cast(0, x.dtype)
        top = fold.over(te.max, row, value or (lambda i: wide(x[i])))
        return te.where(te.isinf(top), 0, top)

    return te.stop_gradient(te.compute(fold.rows, body, name="top"))
