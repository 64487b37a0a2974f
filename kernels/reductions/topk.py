"""Order statistics without sorting: every element counts how many stand before it, and goes to that place.

The rank of an element is the number of those that are greater (or less), plus equal ones before it: ranks are a permutation, so
each place receives one value as it is, and the gradient reads the place an element went to. Counting takes n^2 comparisons
along the axis, without branches, in vectors, all rows at once. Of equal elements the first stands first. NaN counts as the greatest,
as in PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad, is_int, known, one_of, product
from tensorexpr.kernels.conventions.axes import along, drop, flat, normalized, numbers_too


def _ranks(x: te.Tensor, axis: int, descending: bool) -> te.Tensor:
    """How many elements along `axis` stand before each: an int64 tensor of the shape of `x`."""

    def above(a: Any, b: Any) -> Any:
        """Whether a is greater than b, NaN the greatest."""
        return (a > b) | (te.isnan(a) & ~te.isnan(b)) if x.dtype.is_float else a > b

    def at_most(a: Any, b: Any) -> Any:
        """Whether a is not above b."""
        return te.isnan(b) | (a <= b) if x.dtype.is_float else a <= b

    def rank(*i: Any) -> Any:
        rest, own = drop(i, axis), x[i]

        def before(k: Any) -> Any:
            low, high = (own, x[along(rest, axis, k)])[:: 1 if descending else -1]
            return te.cast(te.where(k < i[axis], at_most(low, high), above(high, low)), "int64")

        return te.sum(before, x.shape[axis])

    return te.compute(x.shape, rank, name="rank")


def _placed(x: te.Tensor, rank: te.Tensor, axis: int, count: Any, first: Any = 0) -> tuple[te.Tensor, te.Tensor]:
    """Values and positions of those `count` elements along `axis` whose rank is `first` and on, in order of rank."""
    shape = along(drop(x.shape, axis), axis, count)

    def place(i: tuple[Any, ...]) -> Any:
        return rank[i] if is_int(first) and first == 0 else rank[i] - first

    def sent(value: Callable[[tuple[Any, ...]], Any], name: str) -> te.Tensor:
        return te.scatter(
            shape, lambda *i: (along(drop(i, axis), axis, place(i)), value(i)), x.shape, name=name,
            where=lambda *i: (place(i) >= 0) & (place(i) < count),
        )  # fmt: skip

    return sent(lambda i: x[i], "values"), sent(lambda i: i[axis], "indices")


@te.op
@numbers_too
def sort(x: te.Tensor, *, axis: Any = -1, descending: bool = False, stable: bool = True) -> tuple[te.Tensor, te.Tensor]:
    """`(values, indices)`: the elements along `axis` in order, and where they stood (int64). Always stable; n^2 comparisons.

    Without an axis (None) all elements are one row.

    >>> kernels.sort(np.array([3, 1, 2]), descending=True)
    (array([3, 2, 1]), array([0, 2, 1]))
    """
    x, axis = (flat(x), 0) if axis is None else (x, normalized(axis, x))
    return _placed(x, _ranks(x, axis, descending), axis, x.shape[axis])


@te.op
def msort(x: te.Tensor) -> te.Tensor:
    """The elements along axis 0 in order.

    >>> kernels.msort(np.array([[3, 1], [2, 4]]))
    array([[2, 1],
           [3, 4]])
    """
    return sort.function(x, axis=0)[0]


@te.op
@numbers_too
def argsort(x: te.Tensor, *, axis: Any = -1, descending: bool = False, stable: bool = True) -> te.Tensor:
    """The positions (int64) of the elements along `axis` in order; see `sort`.

    >>> kernels.argsort(np.array([3, 1, 2]))
    array([1, 2, 0])
    """
    x, axis = (flat(x), 0) if axis is None else (x, normalized(axis, x))
    return _placed(x, _ranks(x, axis, descending), axis, x.shape[axis])[1]


@te.op
@numbers_too
def topk(x: te.Tensor, *, k: Any, axis: Any = -1, largest: bool = True, sorted: bool = True) -> tuple[te.Tensor, te.Tensor]:
    """`(values, indices)`: the `k` greatest (or least) elements along `axis` in order, and where they stood (int64).

    They are in order whatever `sorted` says. Of equal elements the first comes first. Gradients go to the elements chosen.

    >>> kernels.topk(np.array([1, 5, 3]), k=2)
    (array([5, 3]), array([1, 2]))
    """
    axis = normalized(axis, x)
    extent = x.shape[axis]
    if not is_int(k) or k < 0 or (known(extent) and k > extent):
        raise bad(f"k: expected a number of elements of axis {axis} of x, from 0 to {extent}, got {k!r}")
    return _placed(x, _ranks(x, axis, largest), axis, k)


def _one(x: te.Tensor, axis: int, place: Any, keepdims: bool) -> tuple[te.Tensor, te.Tensor]:
    """The element of rank `place` along `axis`, and its position; the axis is left out, or kept with an extent of 1."""
    values, indices = _placed(x, _ranks(x, axis, False), axis, 1, place)
    if keepdims:
        return values, indices
    rest = drop(x.shape, axis)
    return (
        te.compute(rest, lambda *i: values[along(i, axis, 0)]),
        te.compute(rest, lambda *i: indices[along(i, axis, 0)]),
    )


@te.op
@numbers_too
def kthvalue(x: te.Tensor, *, k: Any, axis: Any = -1, keepdims: bool = False) -> tuple[te.Tensor, te.Tensor]:
    """`(values, indices)`: the k-th least element along `axis` (k counted from 1) and its position; the axis is left out or kept as 1.

    >>> kernels.kthvalue(np.array([5, 3, 9]), k=2)
    (array(5), array(0))
    """
    axis = normalized(axis, x)
    extent = x.shape[axis]
    if not is_int(k) or k < 1 or (known(extent) and k > extent):
        raise bad(f"k: expected a rank on axis {axis} of x, from 1 to {extent}, got {k!r}")
    return _one(x, axis, k - 1, keepdims)


@te.op
@numbers_too
def median(x: te.Tensor, *, axis: Any = None, keepdims: bool = False) -> te.Tensor | tuple[te.Tensor, te.Tensor]:
    """`(values, indices)`: the element in the middle along `axis`, of two the lower, and its position; the axis is left out or kept as 1.

    Without an axis it is the value alone, of all elements. NaN counts as the greatest (`torch.median` gives NaN as soon as there is one).

    >>> kernels.median(np.array([[5, 3, 9], [1, 2, 4]]), axis=1)
    (array([5, 2]), array([0, 1]))
    """
    over, place = (flat(x), 0) if axis is None else (x, normalized(axis, x))
    extent = over.shape[place]
    if known(extent) and extent == 0:
        raise bad(f"median: expected at least one element on axis {place} of x, got shape {x.shape}")
    found = _one(over, place, (extent - 1) // 2, keepdims and axis is not None)
    return found[0] if axis is None else found


@te.op
def quantile(x: te.Tensor, *, q: Any, axis: Any = None, keepdims: bool = False, interpolation: str = "linear") -> te.Tensor:
    """The value below which a share `q` of the elements along `axis` (None: of all) lies; the axis is left out or kept as 1.

    A tuple `q` gives one more axis, in front. Between two elements `interpolation` is "linear", "lower", "higher", "midpoint" or "nearest".

    >>> kernels.quantile(np.array([1.0, 2.0, 4.0]), q=0.75)
    array(3.)
    """
    one_of("interpolation", interpolation, ("linear", "lower", "higher", "midpoint", "nearest"))
    if axis is None or (x.ndim == 0 and axis in (0, -1)):
        found = quantile.function(flat(x), q=q, axis=0, interpolation=interpolation)
        return te.compute((*found.shape, *(1,) * x.ndim), lambda *i: found[i[: found.ndim]]) if keepdims else found
    if isinstance(q, tuple) and q:
        return _side_by_side([quantile.function(x, q=one, axis=axis, keepdims=keepdims, interpolation=interpolation) for one in q])
    if isinstance(q, bool) or not isinstance(q, (int, float)) or not 0 <= q <= 1:
        raise bad(f"q: expected a number from 0 to 1, got {q!r}")
    axis = normalized(axis, x)
    extent = x.shape[axis]
    if not known(extent) or extent == 0:
        raise bad(f"quantile: expected a known number of elements on axis {axis} of x, at least 1, got shape {x.shape}")
    place = q * (extent - 1)
    low = min(int(place), max(extent - 2, 0))
    values, _ = _placed(x, _ranks(x, axis, False), axis, min(2, extent), low)
    share = place - low
    if interpolation != "linear":
        rounded = {"lower": math.floor(share), "higher": math.ceil(share), "nearest": round(place) - low}
        share = rounded[interpolation] if interpolation in rounded else 0.5 if share % 1 else share

    def between(*i: Any) -> Any:
        row = drop(i, axis) if keepdims else i
        a, b = (values[along(row, axis, min(k, extent - 1))] for k in (0, 1))
        return a + share * (b - a)

    rest = drop(x.shape, axis)
    return te.compute(along(rest, axis, 1) if keepdims else rest, between)


def _side_by_side(parts: Sequence[te.Tensor]) -> te.Tensor:
    """Tensors of one shape along a new axis in front."""

    def one_of_them(n: Any, *i: Any) -> Any:
        value = parts[-1][i]
        for k in reversed(range(len(parts) - 1)):
            value = te.where(n == k, parts[k][i], value)
        return value

    return te.compute((len(parts), *parts[0].shape), one_of_them)


def _among_numbers(
    x: te.Tensor, axis: Any, keepdims: bool, between: Callable[[Any, Callable[[Any], Any]], Any], indices: bool = False
) -> te.Tensor:
    """For each row `between(last, at)` of its elements that are no NaN, in order: the place of the last one, and what stands at a place,
    or where that stood (`indices`). NaN, which stands last, is the element of rows without any number.
    """
    own, place = (flat(x), 0) if axis is None else (x, normalized(axis, x))
    extent = own.shape[place]
    if not known(extent) or extent == 0:
        raise bad(f"expected a known number of elements on axis {place} of x, at least 1, got shape {x.shape}")
    values = sort.function(own, axis=place)[indices]
    rest = drop(own.shape, place)

    def last(*row: Any) -> Any:
        present = te.sum(lambda k: te.cast(~te.isnan(own[along(row, place, k)]), "int64") if own.dtype.is_float else 1, extent)
        return te.maximum(present - 1, 0)

    lasts = te.compute(rest, last, name="last")

    def found(*row: Any) -> Any:
        return between(lasts[row], lambda k: values[along(row, place, te.maximum(te.minimum(k, extent - 1), 0))])

    result = te.compute(rest, found)
    if not keepdims:
        return result
    shape = along(rest, place, 1) if axis is not None else (1,) * x.ndim
    return te.compute(shape, lambda *i: result[drop(i, place) if axis is not None else ()])


@te.op
def nanquantile(x: te.Tensor, *, q: Any, axis: Any = None, keepdims: bool = False, interpolation: str = "linear") -> te.Tensor:
    """`quantile` of the elements that are no NaN; NaN where all are. `interpolation` as in `quantile`.

    >>> kernels.nanquantile(np.array([1.0, np.nan, 2.0, 4.0]), q=0.75)
    array(3.)
    """
    one_of("interpolation", interpolation, ("linear", "lower", "higher", "midpoint", "nearest"))
    if isinstance(q, tuple) and q:
        return _side_by_side([nanquantile.function(x, q=one, axis=axis, keepdims=keepdims, interpolation=interpolation) for one in q])
    if isinstance(q, bool) or not isinstance(q, (int, float)) or not 0 <= q <= 1:
        raise bad(f"q: expected a number from 0 to 1, got {q!r}")
    kind = x.dtype if x.dtype.is_float else te.dtype("float64")

    def between(last: Any, at: Callable[[Any], Any]) -> Any:
        place = te.cast(last, "float64") * q
        low = te.floor(place)
        share = place - low
        if interpolation != "linear":
            nearest = te.round(place) - low
            share = {"lower": 0 * share, "higher": te.ceil(share), "midpoint": te.ceil(share) / 2, "nearest": nearest}[interpolation]
        a, b = (te.cast(at(te.cast(low, "int64") + k), kind) for k in (0, 1))
        return te.where(share > 0, a + te.cast(share, kind) * (b - a), a)

    return _among_numbers(x, axis, keepdims, between)


@te.op
def nanpercentile(x: te.Tensor, *, q: Any, axis: Any = None, keepdims: bool = False, interpolation: str = "linear") -> te.Tensor:
    """`nanquantile` of `q / 100`.

    >>> kernels.nanpercentile(np.array([1.0, np.nan, 2.0, 4.0]), q=75)
    array(3.)
    """
    shares = tuple(one / 100 for one in q) if isinstance(q, tuple) else q / 100 if isinstance(q, (int, float)) else q
    return nanquantile.function(x, q=shares, axis=axis, keepdims=keepdims, interpolation=interpolation)


@te.op
@numbers_too
def nanmedian(x: te.Tensor, *, axis: Any = None, keepdims: bool = False) -> te.Tensor | tuple[te.Tensor, te.Tensor]:
    """`median` of the elements that are no NaN; NaN where all are. (NumPy's, between two in the middle, is `nanquantile` of 0.5.)

    >>> kernels.nanmedian(np.array([[1.0, np.nan, 2.0], [3.0, 9.0, 4.0]]), axis=1)
    (array([1., 4.]), array([0, 2]))
    """

    def middle(last: Any, at: Callable[[Any], Any]) -> Any:
        return at(last // 2)

    values = _among_numbers(x, axis, keepdims and axis is not None, middle)
    return values if axis is None else (values, _among_numbers(x, axis, keepdims, middle, indices=True))


@te.op
def percentile(x: te.Tensor, *, q: Any, axis: Any = None, keepdims: bool = False, interpolation: str = "linear") -> te.Tensor:
    """`quantile` of `q / 100`.

    >>> kernels.percentile(np.array([1.0, 2.0, 4.0]), q=75)
    array(3.)
    """
    shares = tuple(one / 100 for one in q) if isinstance(q, tuple) else q / 100 if isinstance(q, (int, float)) else q
    return quantile.function(x, q=shares, axis=axis, keepdims=keepdims, interpolation=interpolation)


@te.op
@numbers_too
def mode(x: te.Tensor, *, axis: Any = -1, keepdims: bool = False) -> tuple[te.Tensor, te.Tensor]:
    """`(values, indices)`: the value that stands most often along `axis`, of several the least, and the last place where it stands.

    Counting takes n^2 comparisons. NaN is equal to nothing.

    >>> kernels.mode(np.array([3, 1, 3, 1, 2]))
    (array(1), array(3))
    """
    axis = normalized(axis, x)
    extent = x.shape[axis]
    if known(extent) and extent == 0:
        raise bad(f"mode: expected at least one element on axis {axis} of x, got shape {x.shape}")

    def often(*i: Any) -> Any:
        return te.sum(lambda k: te.cast(x[along(drop(i, axis), axis, k)] == x[i], "int64"), extent)

    counts = te.compute(x.shape, often, name="counts")
    rest = drop(x.shape, axis)
    most = te.compute(rest, lambda *r: te.max(lambda k: counts[along(r, axis, k)], extent), name="most")

    def first(*r: Any) -> Any:
        return te.argmin(lambda k: x[along(r, axis, k)], extent, where=lambda k: counts[along(r, axis, k)] == most[r])

    least = te.compute(rest, first, name="least")

    def last(*r: Any) -> Any:
        own = x[along(r, axis, least[r])]
        return te.maximum(te.max(lambda k: te.where(x[along(r, axis, k)] == own, te.cast(k, "int64"), -1), extent), least[r])

    places = te.compute(rest, last, name="places")
    shape = along(rest, axis, 1) if keepdims else rest

    def row(i: Sequence[Any]) -> tuple[Any, ...]:
        return drop(i, axis) if keepdims else tuple(i)

    return te.compute(shape, lambda *i: x[along(row(i), axis, places[row(i)])]), te.compute(shape, lambda *i: places[row(i)])


@te.op
@numbers_too
def partition(x: te.Tensor, *, kth: Any, axis: Any = -1) -> te.Tensor:
    """The elements along `axis` with the `kth` in its place: all are in order, as those of `sort`.

    >>> kernels.partition(np.array([3, 1, 2]), kth=1)
    array([1, 2, 3])
    """
    _kth(x, kth, axis)
    return sort.function(x, axis=axis)[0]


@te.op
@numbers_too
def argpartition(x: te.Tensor, *, kth: Any, axis: Any = -1) -> te.Tensor:
    """The positions of `partition`.

    >>> kernels.argpartition(np.array([3, 1, 2]), kth=1)
    array([1, 2, 0])
    """
    _kth(x, kth, axis)
    return argsort.function(x, axis=axis)


def _kth(x: te.Tensor, kth: Any, axis: Any) -> None:
    extent = product(x.shape) if axis is None else x.shape[normalized(axis, x)]
    for one in kth if isinstance(kth, tuple) else (kth,):
        if not is_int(one) or (known(extent) and not -extent <= one < extent):
            raise bad(f"kth: expected places from {-extent} to {extent - 1}, got {one!r}")
