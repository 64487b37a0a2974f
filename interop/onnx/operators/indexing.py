"""Gathers and scatters, whose places may count from the end."""

from __future__ import annotations

import math
from typing import Any

from tensorexpr import kernels, language
from tensorexpr.interop.onnx.operators.common import axis_of, from_end, in_rows, number, reshaped, sizes
from tensorexpr.interop.onnx.table import Known, operator
from tensorexpr.language import Tensor, cast, compute


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
    best = kernels.argmax(x, axis=at)
    return compute(x.shape, lambda *i: cast(i[at] == best[(*i[:at], *i[at + 1 :])], x.dtype))


@operator("Hardmax", until=13)
def _flat_hardmax(x: Tensor, *, axis: int = 1) -> Any:
    return reshaped(_hardmax(in_rows(x, axis), axis=1), tuple(x.shape))
