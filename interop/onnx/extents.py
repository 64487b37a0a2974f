"""Arithmetic on shapes with open extents: what graphs do between `Shape` and what takes one.

Such a shape is an array of objects, numbers and scalars of the language. A few operators work on them as they do on arrays of numbers,
so that a size that is open stays open.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tensorexpr import language
from tensorexpr.language import Scalar


def is_extents(value: Any) -> bool:
    """Whether a value is an array with open extents."""
    return isinstance(value, np.ndarray) and value.dtype.kind == "O" and any(isinstance(item, Scalar) for item in value.flat)


def of_extents(name: str, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> np.ndarray | None:
    """The result of an operator on shapes; None where it is none of those on shapes, or has other inputs."""
    function = _FUNCTIONS.get(name)
    if function is None or not any(map(is_extents, inputs)) or not all(item is None or isinstance(item, np.ndarray) for item in inputs):
        return None
    if any(item is not None and item.dtype.kind not in "iuOb" for item in inputs):
        return None
    found = _boxed(function(*inputs, **attributes))
    return found.astype(np.int64) if found.dtype.kind == "O" and not is_extents(found) and found.size else found


def _boxed(value: Any) -> np.ndarray:
    """A value as an array, without asking a scalar for its elements."""
    if isinstance(value, np.ndarray):
        return value
    found = np.empty((), object)
    found[()] = value
    return found


def _objects(function: Callable[..., Any]) -> Callable[..., np.ndarray]:
    return lambda *arrays: _boxed(np.frompyfunc(function, len(arrays), 1)(*arrays))


def _least(a: Any, b: Any) -> Any:
    return language.minimum(a, b) if isinstance(a, Scalar) or isinstance(b, Scalar) else min(a, b)


def _greatest(a: Any, b: Any) -> Any:
    return language.maximum(a, b) if isinstance(a, Scalar) or isinstance(b, Scalar) else max(a, b)


def _slice(x: np.ndarray, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> np.ndarray:
    step = 1 if steps is None else int(steps.ravel()[0])
    return x[int(starts.ravel()[0]) : int(ends.ravel()[0]) : step]


def _squeeze(x: np.ndarray, axes: Any = None) -> np.ndarray:
    return x.squeeze() if axes is None else x.squeeze(tuple(int(a) for a in np.ravel(axes)))


def _unsqueeze(x: np.ndarray, axes: Any) -> np.ndarray:
    return np.expand_dims(x, tuple(int(a) for a in np.ravel(axes)))


def _concat(*arrays: np.ndarray, axis: int = 0) -> np.ndarray:
    return np.concatenate([array.astype(object) for array in arrays], axis)


def _product(x: np.ndarray, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> np.ndarray:
    found = np.empty((1,) * x.ndim if keepdims else (), object)
    found.fill(functools.reduce(operator.mul, x.ravel().tolist(), 1))
    return found


def _equal(a: Any, b: Any) -> Any:
    if isinstance(a, Scalar) or isinstance(b, Scalar):
        if any(isinstance(item, int) and item < 0 for item in (a, b)):
            return False  # no extent is negative
        raise TypeError("a comparison of open extents")
    return a == b


def _where(condition: Any, a: Any, b: Any) -> Any:
    return a if condition else b


_FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "Add": _objects(operator.add), "Sub": _objects(operator.sub), "Mul": _objects(operator.mul), "Div": _objects(operator.floordiv),
    "Min": _objects(_least), "Max": _objects(_greatest), "Equal": lambda a, b: _objects(_equal)(a, b).astype(bool),
    "Where": _objects(_where), "Gather": lambda x, index, *, axis=0: x.take(index, axis), "Concat": _concat,
    "Slice": _slice, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze, "Identity": lambda x: x, "ReduceProd": _product,
    "Cast": lambda x, *, to, saturate=1: x, "Reshape": lambda x, shape, *, allowzero=0: x.reshape([int(n) for n in shape]),
}  # fmt: skip
"""Operators on shapes, whose divisions are of numbers that are not negative."""
