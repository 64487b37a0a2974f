"""What rows have in common: integers and axes given as arrays, places that count from the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorexpr import kernels, language
from tensorexpr.language import Scalar, Tensor, cast, compute


def integers(value: Any) -> list[Any]:
    """The elements of an array as integers; open extents as they are."""
    return [item if isinstance(item, Scalar) else int(item) for item in np.asarray(value).ravel()]


def number(value: Any) -> Any:
    """The one element of an array as a Python number."""
    return np.asarray(value).ravel()[0].item()


def axes_of(given: Any, rank: int) -> list[int]:
    """Different axes of a tensor with `rank` of them, counted from its front."""
    chosen = integers(given)
    if not all(-rank <= axis < rank for axis in chosen) or len({axis % rank for axis in chosen}) < len(chosen):
        raise ValueError(f"axes {chosen} of {rank}")
    return [axis % rank for axis in chosen]


def axis_of(axis: int, rank: int) -> int:
    """An axis of a tensor, counted from its front."""
    return axes_of([axis], rank)[0]


def sizes(x: Tensor) -> list[int]:
    """The extents of a tensor, which are numbers."""
    if not all(isinstance(extent, int) for extent in x.shape):
        raise ValueError(f"open extents {x.shape}")
    return [int(extent) for extent in x.shape]


def size(x: Tensor) -> int:
    """How many elements a tensor has."""
    return math.prod(sizes(x))


def from_end(place: Any, extent: Any) -> Any:
    """A place that may count from the end, as an index."""
    index = cast(place, "int64")
    return language.where(index < 0, index + extent, index)


def reshaped(x: Tensor, shape: Sequence[Any]) -> Tensor:
    """The elements of a tensor in another shape."""
    same = len(shape) == x.ndim and all(map(same_extent, x.shape, shape))
    return x if same else kernels.reshape(x, shape=tuple(shape))


def same_extent(a: Any, b: Any) -> bool:
    """Whether two extents are the same number, or the same expression of sizes."""
    if isinstance(a, Scalar) and isinstance(b, Scalar):
        return bool(a.expr == b.expr)
    return not isinstance(a, Scalar) and not isinstance(b, Scalar) and a == b


def quotient_of(extents: Sequence[Any], others: Sequence[Any]) -> Any:
    """The product of extents over that of others, without those that are in both."""
    rest, below = list(extents), []
    for other in others:
        at = next((k for k, own in enumerate(rest) if same_extent(own, other)), None)
        if at is None:
            below.append(other)
        else:
            rest.pop(at)
    total, divisor = math.prod(rest), math.prod(below)
    return total // (max(divisor, 1) if isinstance(divisor, int) else divisor) if below else total


def flattened(x: Tensor) -> Tensor:
    """The elements of a tensor along one axis."""
    return reshaped(x, (size(x),))


def in_rows(x: Tensor, axis: int) -> Tensor:
    """A tensor as a matrix: the axes before one make its rows, those from it on its columns; it may be behind the last."""
    last = max(x.ndim, 1)  # a number is a row of one
    if not -last <= axis <= last:
        raise ValueError(f"axis {axis} of {x.ndim}")
    at = axis % last if axis < 0 else axis
    return reshaped(x, (math.prod(x.shape[:at]), math.prod(x.shape[at:])))


def filled(shape: Sequence[Any], value: Any, dtype: Any) -> Tensor:
    """A tensor of one value."""
    return compute(tuple(shape), lambda *i: cast(value, dtype))


def as_float(x: Tensor) -> Tensor:
    """A tensor in float32 if it has fewer bits, which is what sums of it are kept in."""
    return compute(x.shape, lambda *i: cast(x[i], "float32")) if x.dtype.bits < 32 else x


def cast_to(x: Tensor, dtype: Any) -> Tensor:
    """A tensor in another dtype."""
    return x if x.dtype == dtype else compute(x.shape, lambda *i: cast(x[i], dtype))
