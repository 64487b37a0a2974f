"""Histograms: how many elements are in bins whose number is fixed when the op is compiled."""

from __future__ import annotations

from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import at_least, bad, shaped
from tensorexpr.kernels.conventions.axes import flat
from tensorexpr.kernels.reductions.reductions import Fold, not_empty


def _bounds(x: te.Tensor, low: Any, high: Any) -> tuple[te.Tensor, te.Tensor]:
    """The outer edges of the bins in float64: numbers, or the extremes of the elements; one apart where they are the same."""
    if low is None:
        not_empty("histogram", Fold(x, None))
    rows = flat(x)

    def end(given: Any, reduce: Any) -> te.Tensor:
        return te.compute((), lambda: te.cast(reduce(lambda k: rows[k], rows.shape[0]) if given is None else given, "float64"))

    first, last = end(low, te.min), end(high, te.max)
    half = te.compute((), lambda: te.where(first[()] == last[()], te.cast(0.5, "float64"), 0), name="half")
    return te.compute((), lambda: first[()] - half[()], name="first"), te.compute((), lambda: last[()] + half[()], name="last")


def _counts(x: te.Tensor, bins: int, first: te.Tensor, last: te.Tensor, weights: te.Tensor | None) -> te.Tensor:
    """What is in each bin; the last one has its upper edge too."""
    rows = flat(x)
    weight = None if weights is None else flat(weights)

    def value(k: Any) -> Any:
        return te.cast(rows[k], "float64")

    def place(k: Any) -> Any:
        share = (value(k) - first[()]) / (last[()] - first[()])
        inside = te.where(share == share, te.maximum(te.minimum(share, 1), 0), 0)
        found = te.minimum(te.cast(te.floor(inside * bins), "int64"), bins - 1)
        # Rounding may have taken it over an edge.
        width = (last[()] - first[()]) / bins
        back = (value(k) < first[()] + te.cast(found, "float64") * width) & (found > 0)
        on = (value(k) >= first[()] + te.cast(found + 1, "float64") * width) & (found < bins - 1)
        return te.where(back, found - 1, te.where(on, found + 1, found))

    def counted(k: Any) -> Any:
        return (value(k) >= first[()]) & (value(k) <= last[()])

    def one(k: Any) -> Any:
        return te.cast(1, "int64") if weight is None else weight[k]

    return te.scatter((bins,), lambda k: (place(k), one(k)), rows.shape, where=counted, name="counts")


def _range(low: Any, high: Any) -> None:
    for v in (low, high):
        if isinstance(v, bool) or not isinstance(v, (int, float)):
            raise bad(f"expected numbers for the ends of the range, got {low!r} and {high!r}")
    if not low <= high or abs(low) == float("inf") or abs(high) == float("inf"):
        raise bad(f"expected a range of finite numbers that does not fall, got {low!r} and {high!r}")


@te.op
def histogram(x: te.Tensor, weights: te.Tensor | None = None, *, bins: int = 10, range: Any = None, density: bool = False) -> Any:
    """`(counts, edges)`: the number of elements (int64), or the sum of `weights`, in each of `bins` bins of one width, and their edges.

    The bins lie between the extremes, or in `range` (two numbers), outside of which nothing counts; the last one has its upper edge too.
    `density` divides by the total and the width.

    >>> kernels.histogram(np.array([1.0, 2.0, 2.5, 5.0]), bins=2)
    (array([3, 1]), array([1., 3., 5.]))
    """
    at_least("bins", bins, 1)
    if range is not None:
        if not isinstance(range, (tuple, list)) or len(range) != 2:
            raise bad(f"range: expected two numbers, got {range!r}")
        _range(*range)
    if weights is not None:
        shaped(weights, x.shape, "a weight for each element")
    first, last = _bounds(x, *(range or (None, None)))
    counts = _counts(x, bins, first, last, weights)
    width = te.compute((), lambda: (last[()] - first[()]) / bins, name="width")
    edges = te.compute((bins + 1,), lambda k: te.where(k == bins, last[()], first[()] + te.cast(k, "float64") * width[()]))
    if not density:
        return counts, edges
    total = te.compute((), lambda: te.sum(lambda k: te.cast(counts[k], "float64"), bins), name="total")
    return te.compute((bins,), lambda k: te.cast(counts[k], "float64") / total[()] / (edges[k + 1] - edges[k])), edges


@te.op
def histc(x: te.Tensor, *, bins: int = 100, min: Any = 0, max: Any = 0) -> te.Tensor:
    """The number of elements in each of `bins` bins between `min` and `max` (both 0: the extremes), in the dtype of `x`.

    >>> kernels.histc(np.array([1.0, 2.0, 2.5, 5.0]), bins=2, min=0, max=4)
    array([1., 2.])
    """
    at_least("bins", bins, 1)
    _range(min, max)
    ends = _bounds(x, *((None, None) if min == 0 and max == 0 else (min, max)))
    counts = _counts(x, bins, *ends, None)
    return te.compute((bins,), lambda k: te.cast(counts[k], x.dtype))
