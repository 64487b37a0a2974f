"""Gathers and scatters, whose places may count from the end, and results whose size depends on data: these are counted, then filled when
their number is known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorexpr import kernels, language
from tensorexpr.interop.onnx.operators.common import axis_of, filled, flattened, from_end, in_rows, number, reshaped, size, sizes
from tensorexpr.interop.onnx.table import Known, operator
from tensorexpr.interop.onnx.values import known
from tensorexpr.language import Tensor, cast, compute, scatter


@operator("Gather", moves=True)
def _gather(x: Tensor, index: Tensor, *, axis: int = 0) -> Any:
    at = axis_of(axis, x.ndim)
    rank, extent = index.ndim, x.shape[at]
    shape = (*x.shape[:at], *index.shape, *x.shape[at + 1 :])
    plain = index.data is not None and bool((index.data >= 0).all())

    def element(*i: Any) -> Any:
        place = index[i[at : at + rank]]
        return x[(*i[:at], cast(place, "int64") if plain else from_end(place, extent), *i[at + rank :])]

    return compute(shape, element)


@operator("GatherElements", moves=True)
def _gather_elements(x: Tensor, index: Tensor, *, axis: int = 0) -> Any:
    at = axis_of(axis, x.ndim)
    return compute(index.shape, lambda *i: x[(*i[:at], from_end(index[i], x.shape[at]), *i[at + 1 :])])


@operator("GatherND", moves=True)
def _gather_nd(x: Tensor, places: Tensor, *, batch_dims: int = 0) -> Any:
    width, rest = sizes(places)[-1], places.ndim - 1

    def element(*index: Any) -> Any:
        own = [from_end(places[(*index[:rest], k)], x.shape[batch_dims + k]) for k in range(width)]
        return x[(*index[:batch_dims], *own, *index[rest:])]

    return compute((*places.shape[:-1], *x.shape[batch_dims + width :]), element)


_KINDS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@operator("ScatterElements", "Scatter", moves=True)
def _scatter_elements(x: Tensor, index: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none") -> Any:
    at = axis_of(axis, x.ndim)
    places = compute(index.shape, lambda *i: from_end(index[i], x.shape[at]))
    if reduction == "none":
        return kernels.scatter(x, places, updates, axis=at)
    return kernels.scatter_reduce(x, places, updates, axis=at, reduce=_KINDS[reduction], include_self=True)


@operator("ScatterND", moves=True)
def _scatter_nd(x: Tensor, places: Tensor, updates: Tensor, *, reduction: str = "none") -> Any:
    """Rows of a matrix whose columns are what places do not name."""
    *lead, width = sizes(places)
    own = sizes(x)
    count, rows, columns = math.prod(lead), math.prod(own[:width]), math.prod(own[width:])
    flat = reshaped(places, (count, width))

    def place(t: Any, d: Any) -> Any:
        found: Any = 0
        for k in range(width):
            found = found * own[k] + from_end(flat[t, k], own[k])
        return found

    if not width or not count:
        return x if not count else reshaped(updates, own)
    index = compute((count, columns), place)
    matrix, values = reshaped(x, (rows, columns)), reshaped(updates, (count, columns))
    if reduction == "none":
        return reshaped(kernels.scatter(matrix, index, values, axis=0), own)
    return reshaped(kernels.scatter_reduce(matrix, index, values, axis=0, reduce=_KINDS[reduction], include_self=True), own)


@operator("TensorScatter", moves=True)
def _tensor_scatter(past: Tensor, update: Tensor, first: Any = None, *, axis: int = -2, mode: str = "linear") -> Any:
    """Each place asks whether it is written to: `update` lies along an axis from `first` of its batch on, or around the end."""
    at = axis_of(axis, past.ndim)
    extent, width = past.shape[at], update.shape[at]

    def element(*i: Any) -> Any:
        start = cast(first[i[0]], "int64") if first is not None else 0
        away = i[at] - start
        if mode == "circular":
            away = away % extent
        inside = (away >= 0) & (away < width)
        held = language.clip(away, 0, width - 1)
        return language.where(inside, update[(*i[:at], held, *i[at + 1 :])], past[i])

    return compute(past.shape, element)


@operator("TopK", since=10)
def _topk(x: Tensor, k: Known, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    return _best(x, int(number(k)), axis, bool(largest))


@operator("TopK", until=10)
def _topk_by_attribute(x: Tensor, *, k: int, axis: int = -1) -> Any:
    return _best(x, k, axis, True)


def _best(x: Tensor, k: int, axis: int, largest: bool) -> Any:
    return kernels.topk(x, k=k, axis=axis, largest=largest)


@operator("ReverseSequence", moves=True)
def _reverse_sequence(x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0) -> Any:
    def element(*i: Any) -> Any:
        length, t = cast(lengths[i[batch_axis]], "int64"), i[time_axis]
        at = list(i)
        at[time_axis] = language.where(t < length, length - 1 - t, t)
        return x[tuple(at)]

    return compute(x.shape, element)


@operator("ArrayFeatureExtractor", domain="ai.onnx.ml", moves=True)
def _features(x: Tensor, places: Tensor) -> Any:
    flat = reshaped(places, (sizes(places)[-1] if places.ndim == 1 else math.prod(sizes(places)),))
    given = x if x.ndim > 1 else reshaped(x, (1, *x.shape))
    return compute((*given.shape[:-1], flat.shape[0]), lambda *i: given[(*i[:-1], from_end(flat[i[-1]], given.shape[-1]))])


@operator("Binarizer", domain="ai.onnx.ml")
def _binarizer(x: Tensor, *, threshold: float = 0.0) -> Any:
    return compute(x.shape, lambda *i: cast(x[i] > threshold, x.dtype))


@operator("Hardmax", since=13)
def _hardmax(x: Tensor, *, axis: int = -1) -> Any:
    at = axis_of(axis, x.ndim)
    if isinstance(x.shape[at], int) and x.shape[at] == 0:
        return x
    best = kernels.argmax(x, axis=at)
    return compute(x.shape, lambda *i: cast(i[at] == best[(*i[:at], *i[at + 1 :])], x.dtype))


@operator("Hardmax", until=13)
def _flat_hardmax(x: Tensor, *, axis: int = 1) -> Any:
    return reshaped(_hardmax(in_rows(x, axis), axis=1), tuple(x.shape))


# ------------------------------------------------------------------------------------------------ counted, then filled


def chosen(mask: Tensor) -> Tensor:
    """The places of a mask that hold, in their order."""
    extent = mask.shape[0]
    numbers = compute((extent,), lambda i: cast(mask[i], "int64"), name="one")
    count = int(number(known(kernels.sum(numbers))))
    before = kernels.cumsum(numbers, axis=0, exclusive=True)
    # A place that is not chosen is not sent, and what it is held at is not used.
    return scatter(
        (count,), lambda i: (language.clip(before[i], 0, max(count - 1, 0)), i), (extent,), where=lambda i: mask[i], name="places"
    ) if count else filled((0,), 0, "int64")  # fmt: skip


def _truth(x: Tensor) -> Tensor:
    return x if x.dtype.is_bool else compute(x.shape, lambda *i: x[i] != 0)


@operator("NonZero")
def _non_zero(x: Tensor) -> Any:
    own = sizes(x)
    places = chosen(_truth(flattened(x)))
    steps = [int(np.prod(own[k + 1 :], dtype=np.int64)) for k in range(len(own))]

    def element(k: Any, t: Any) -> Any:
        found: Any = places[t] // steps[-1] % own[-1] if own else places[t]
        for axis in reversed(range(len(own) - 1)):
            found = language.where(k == axis, places[t] // steps[axis] % own[axis], found)
        return found

    return compute((len(own), *places.shape), element)


@operator("Compress", moves=True)
def _compress(x: Tensor, condition: Tensor, *, axis: int | None = None) -> Any:
    given = flattened(x) if axis is None else x
    at = 0 if axis is None else axis_of(axis, x.ndim)
    places = chosen(condition)
    shape = (*given.shape[:at], places.shape[0], *given.shape[at + 1 :])
    return compute(shape, lambda *i: given[(*i[:at], places[i[at]], *i[at + 1 :])])


@operator("Unique")
def _unique(x: Tensor, *, axis: int | None = None, sorted: int = 1) -> Any:
    """Slices along an axis, each a row; a row is unique where no row before is equal, and its place is how many of these are less."""
    at = 0 if axis is None else axis_of(axis, x.ndim)
    given = flattened(x) if axis is None else kernels.moveaxis(x, source=at, destination=0)
    count, width = given.shape[0], size(given) // max(int(given.shape[0]), 1)
    rows = reshaped(given, (count, width))
    fresh = compute((count,), lambda i: ~language.any(lambda j: language.all(lambda d: rows[i, d] == rows[j, d], width), i), name="fresh")
    first = chosen(fresh)
    found = first.shape[0]
    if sorted:

        def is_less(u: Any, v: Any) -> Any:
            d = language.argmax(lambda d: rows[u, d] != rows[v, d], width)
            return rows[u, d] < rows[v, d]

        rank = compute((found,), lambda u: language.sum(lambda v: cast(is_less(first[v], first[u]), "int64"), found), name="rank")
        first = scatter((found,), lambda u: (language.clip(rank[u], 0, found - 1), first[u]), (found,), name="first") if found else first
    of_row = compute(
        (count,),
        lambda i: language.argmax(lambda u: language.all(lambda d: rows[i, d] == rows[first[u], d], width), found),
        name="inverse",
    )
    counts = compute((found,), lambda u: language.sum(lambda i: cast(of_row[i] == u, "int64"), count), name="counts")
    values = compute((found, width), lambda u, d: rows[first[u], d])
    shaped = reshaped(values, (found, *given.shape[1:]))
    return (shaped if axis is None else kernels.moveaxis(shaped, source=0, destination=at)), first, of_row, counts


@operator("NonMaxSuppression")
def _non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    most: Known = None,
    overlap: Any = None,
    least: Any = None,
    *,
    center_point_box: int = 0,
) -> Any:
    """Boxes from the highest score down, one at each step of a scan: taken where it overlaps with none that was taken."""
    batches, classes, n = sizes(scores)
    limit = int(number(most)) if most is not None else 0
    if min(limit, n, batches, classes) <= 0:
        return filled((0, 3), 0, "int64")

    def side(b: Any, k: Any, axis: int) -> tuple[Any, Any]:
        p, q = boxes[b, k, axis], boxes[b, k, axis + 2]
        if center_point_box:
            return p - q / 2, p + q / 2
        return language.minimum(p, q), language.maximum(p, q)

    def shared(b: Any, i: Any, j: Any) -> Any:
        area: Any = 1.0
        both: list[Any] = [1.0, 1.0]
        for axis in range(2):
            (a, z), (c, e) = side(b, i, axis), side(b, j, axis)
            area = area * language.maximum(language.minimum(z, e) - language.maximum(a, c), 0.0)
            both = [both[0] * (z - a), both[1] * (e - c)]
        union = both[0] + both[1] - area
        return language.where(union > 0, area / language.where(union > 0, union, 1.0), 0.0)

    limit_of = overlap[(0,) * overlap.ndim] if overlap is not None else 0.0
    order = kernels.argsort(scores, axis=-1, descending=True)
    near = compute((batches, n, n), lambda b, i, j: shared(b, i, j) > limit_of, name="near")

    def step(t: Any, taken: Any) -> Any:
        def element(b: Any, c: Any, k: Any) -> Any:
            own = order[b, c, t]
            hidden = language.any(lambda j: taken[b, c, j] & near[b, own, j], n)
            full = language.sum(lambda j: cast(taken[b, c, j], "int64"), n) >= limit
            low = scores[b, c, own] <= least[(0,) * least.ndim] if least is not None else cast(0, "bool")
            return taken[b, c, k] | ((k == own) & ~hidden & ~full & ~low)

        return compute((batches, classes, n), element)

    states = language.scan(step, filled((batches, classes, n), 0, "bool"), n)
    total = batches * classes * n

    def box(f: Any) -> Any:
        """The box in a place of the order, from the front of all batches and classes."""
        return order[f // (classes * n), f // n % classes, f % n]

    places = chosen(compute((total,), lambda f: states[n - 1, f // (classes * n), f // n % classes, box(f)], name="mask"))

    def result(t: Any, k: Any) -> Any:
        f = language.clip(places[t], 0, total - 1)
        return language.where(k == 0, f // (classes * n), language.where(k == 1, f // n % classes, box(f)))

    return compute((places.shape[0], 3), result)
