"""Iterations of loops around a statement, as a weighted sample: how often bounds and conditions say that something runs.

Loops whose indices matter to a bound or a condition are listed iteration by iteration while there are few; beyond, each point of the sample
takes one place in the range of its own, spread evenly (an additive recurrence, Kronecker's), and weighs as many iterations as the range
has. So extents of rectangular and small triangular loops are exact, others means over the sample. What data decides is assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from tensorexpr.codegen.nest import Buffer, LoopNest
from tensorexpr.errors import ArgumentError
from tensorexpr.interpret import extent_value
from tensorexpr.ir import Access, Apply, Cast, Const, Expr, Index, Size, greatest_size
from tensorexpr.traversal import size_names

MOST = 512
"""Points of a sample."""
TYPICAL = 1 << 20
"""Elements of the largest argument where sizes are open and none are said: more than caches near a core hold, less than the last one."""
DATA_EXTENT = 8.0
"""Iterations that a loop is assumed to have whose bounds are data."""
DATA_SHARE = 0.5
"""Share of iterations in which a condition on data is assumed to hold."""
_STEP = 0.6180339887498949
"""The golden ratio's fraction, whose multiples fill the unit interval most evenly."""


def typical(nest: LoopNest) -> Mapping[str, int]:
    """What open sizes of a nest count as where they are not said: all extents alike, odd, and so long that the largest argument has no more
    than `TYPICAL` elements; but within what is known of them. Of two forms of a nest, that for small sizes counts those as small ones, of
    them the `few_rows` alone where there are any."""
    if not nest.sizes:
        return {}
    found = _typical(nest.sizes, tuple(b.shape for b in nest.parameters))
    least = {} if nest.rest is None else dict(nest.rest.least)
    small = {name: max(1, size * 3 // 4 - 1) for name, size in least.items() if name in (few_rows(nest) or least)}
    return {name: min(value, small.get(name, value)) for name, value in found.items()}


def few_rows(nest: LoopNest) -> frozenset[str]:
    """Of the sizes one of which is small in a form for small sizes, those that results do not lie along: a product of a few rows reads and
    writes rows as long as any other."""
    return frozenset() if nest.rest is None else frozenset(name for name, _ in nest.rest.least) - sizes_along(nest)


def sizes_along(nest: LoopNest) -> frozenset[str]:
    """The sizes in the last extents of results."""
    return frozenset(name for b in nest.parameters if b.name in nest.writes for e in b.shape[-1:] for name in size_names(e))


@lru_cache(maxsize=1024)
def _typical(names: tuple[str, ...], shapes: tuple[tuple[Expr, ...], ...]) -> Mapping[str, int]:
    steps = {name: _step(name, shapes) for name in names}

    def sizes(extent: int) -> dict[str, int]:
        found = {name: max(1, extent // step) for name, step in steps.items()}
        return {name: min(value, greatest_size(name) or value) for name, value in found.items()}

    def is_small(extent: int) -> bool:
        known = sizes(extent)
        try:
            return all(prod(max(1, extent_value(e, known)) for e in shape) <= TYPICAL for shape in shapes)
        except ArgumentError:  # beyond int64
            return False

    low, high = 1, TYPICAL
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_small(middle) else (low, middle)
    return sizes(low - (low > 1 and low % 2 == 0))


def _step(name: str, shapes: Iterable[tuple[Expr, ...]]) -> int:
    """How much an extent that is made of a size alone grows with it."""
    own = (e for shape in shapes for e in shape if size_names(e) == (name,))
    try:
        return max((extent_value(e, {name: 2}) - extent_value(e, {name: 1}) for e in own), default=1) or 1
    except ArgumentError:  # beyond int64
        return 1


class Points:
    """A sample: values of indices by name (a number for all points, or one for each), and iterations that each point stands for."""

    def __init__(self, weights: np.ndarray, values: dict[str, Any], sizes: Mapping[str, int], tables: Mapping[str, Buffer]) -> None:
        self.weights, self.values, self.sizes, self.tables = weights, values, sizes, tables

    @property
    def total(self) -> float:
        """Iterations in all."""
        return float(self.weights.sum())

    def inside(self, name: str, start: Expr, stop: Expr, matters: bool) -> tuple[Points, float]:
        """The points inside of a loop, and its mean extent. Where its index matters to nothing, points stay as many."""
        first, last = self.value(start), self.value(stop)
        if first is None or last is None:
            return self._with(self.weights * DATA_EXTENT, name, np.int64(0) if first is None else first), DATA_EXTENT
        extents = np.maximum(np.asarray(last, float) - first, 0.0)
        weights = self.weights * extents
        total = self.total
        mean = float(weights.sum()) / total if total else 0.0
        if not matters:
            return self._with(weights, name, first), mean
        whole = np.broadcast_to(extents, self.weights.shape).astype(np.int64)
        count = int(whole.sum())
        if 0 < count <= MOST:
            chosen = np.repeat(np.arange(len(whole)), whole)
            place = np.arange(count) - np.repeat(np.cumsum(whole) - whole, whole)
            kept = {n: v if np.ndim(v) == 0 else v[chosen] for n, v in self.values.items()}
            begin = first if np.ndim(first) == 0 else first[chosen]
            return Points(self.weights[chosen], {**kept, name: begin + place}, self.sizes, self.tables), mean
        points = self._spread()
        first, last = (np.broadcast_to(points.value(bound), points.weights.shape) for bound in (start, stop))
        extents = np.maximum(last - first, 0)
        fractions = ((np.arange(len(points.weights)) + 0.5) * _STEP * (len(self.values) + 1)) % 1.0
        place = (fractions * extents).astype(np.int64)
        return points._with(points.weights * extents, name, first + place), mean

    def where(self, condition: Expr) -> tuple[Points, Points, float]:
        """The points where a condition holds, those where it does not, and the share of the former."""
        held = self.value(condition)
        share: Any = self._assumed(condition) if held is None else np.asarray(held, float)
        yes, no = self.weights * share, self.weights * (1.0 - share)
        total = self.total
        return self._weighing(yes), self._weighing(no), float(yes.sum()) / total if total else 0.0

    def _assumed(self, condition: Expr) -> float:
        """The share of iterations in which a condition on data holds: that an index is a certain one in one of as many as it has."""
        if isinstance(condition, Apply) and condition.op.name == "eq":
            known = [v for v in map(self.value, condition.args) if v is not None]
            return 1.0 / max([2, *(len(np.unique(v)) for v in known)]) if known else DATA_SHARE
        return DATA_SHARE

    def _with(self, weights: np.ndarray, name: str, value: Any) -> Points:
        return Points(weights, {**self.values, name: value}, self.sizes, self.tables)

    def _weighing(self, weights: np.ndarray) -> Points:
        """The points under other weights, without those that weigh nothing."""
        chosen = np.flatnonzero(weights)
        return self if len(chosen) == 0 else self._chosen(chosen, weights)

    def _spread(self) -> Points:
        """The points several times over, as many as a sample may have, each standing for so many times fewer iterations."""
        copies = max(1, MOST // len(self.weights))
        return self._chosen(np.repeat(np.arange(len(self.weights)), copies), self.weights / copies)

    def _chosen(self, chosen: np.ndarray, weights: np.ndarray) -> Points:
        values = {n: v if np.ndim(v) == 0 else v[chosen] for n, v in self.values.items()}
        return Points(weights[chosen], values, self.sizes, self.tables)

    def value(self, e: Expr) -> Any:
        """The value of an expression at each point; None where data decides it. A table that holds bounds is taken for evenly spaced."""
        match e:
            case Const():
                return e.dtype.numpy.type(e.value)
            case Index():
                return self.values[e.name]
            case Size():
                return np.int64(self.sizes[e.name])
            case Cast():
                inner = self.value(e.arg)
                return None if inner is None else np.asarray(inner).astype(e.dtype.numpy)
            case Access():
                return self._entry(e)
            case Apply():
                arguments = [self.value(a) for a in e.args]
                if any(a is None for a in arguments):
                    known = [a for a in arguments if a is not None]  # of a conjunction with data: what is known of it
                    return known[0] if known and e.op.name == "and" else None
                if e.op.name == "where":
                    return np.where(*arguments)
                with np.errstate(all="ignore"):
                    return e.op.evaluate(*arguments)
        raise AssertionError(type(e))

    def _entry(self, e: Access) -> Any:
        """An element of a table whose bounds are known: as if the elements of each of its rows were spread evenly between them."""
        table = self.tables.get(e.tensor)
        if table is None or table.within is None or not e.indices:
            return None
        place, high, length = self.value(e.indices[-1]), self.value(table.within[1]), self.value(table.shape[-1])
        if place is None or high is None or length is None:
            return None
        return np.int64(table.within[0]) + (high - table.within[0]) * place // np.maximum(length - 1, 1)
