"""Axes as the kernels take them: negative ones counted from the end, and index tuples with an axis taken out or put back."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad, product


def normalized(axis: int, x: te.Tensor) -> int:
    """`axis` of `x` counted from the front; `ArgumentError` where `x` has no such axis."""
    rank = len(x.shape)
    if isinstance(axis, bool) or not isinstance(axis, int) or not -rank <= axis < rank:
        if rank == 0:
            raise bad(f"expected a tensor with axes, got {x.name} without any and axis {axis!r}")
        raise bad(f"expected an axis of {x.name} between {-rank} and {rank - 1}, got {axis!r}")
    return axis % rank


def several(axis: int | Sequence[int] | None, x: te.Tensor) -> tuple[int, ...]:
    """The axes meant by one axis, a sequence of them, or None (all), from the front and in order; `ArgumentError` for one named twice.

    A tensor without axes has, as in PyTorch, an axis 0 of one element, which is its only one.
    """
    wanted: Any = range(x.ndim) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
    if x.ndim == 0 and len(wanted) <= 1 and all(type(one) is int and one in (0, -1) for one in wanted):
        return ()
    found = sorted(normalized(one, x) for one in wanted)
    if len(set(found)) < len(found):
        raise bad(f"expected different axes of {x.name}, got {axis!r}")
    return tuple(found)


def drop(items: Sequence[Any], axis: int) -> tuple[Any, ...]:
    """`items` (extents or indices) without the one at `axis`."""
    return (*items[:axis], *items[axis + 1 :])


def along(rest: Sequence[Any], axis: int, item: Any) -> tuple[Any, ...]:
    """`rest` with `item` put in at `axis`: the opposite of `drop`."""
    return (*rest[:axis], item, *rest[axis:])


def vector(x: te.Tensor) -> te.Tensor:
    """A tensor without axes as a vector of one element; any other as it is."""
    return x if x.ndim else te.compute((1,), lambda _: x[()])


def flat(x: te.Tensor) -> te.Tensor:
    """The elements along one axis, in row-major order."""
    if x.ndim < 2:
        return vector(x)
    inner = [product(x.shape[d + 1 :]) for d in range(x.ndim)]
    return te.compute((product(x.shape),), lambda f: x[tuple(f // step % n for step, n in zip(inner, x.shape, strict=True))])


def number(x: te.Tensor) -> te.Tensor:
    """The first element of a vector, as a tensor without axes; any other as it is."""
    return te.compute((), lambda: x[0]) if x.ndim == 1 else x


def numbers_too(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel along an `axis` of its first tensor that takes tensors without axes too: those have an axis 0 of one element."""

    @functools.wraps(kernel)
    def kernel_of_any(x: te.Tensor, *others: Any, **static: Any) -> Any:
        if x.ndim or static["axis"] not in (0, -1):
            return kernel(x, *others, **static)
        found = kernel(*(t if t is None else vector(t) for t in (x, *others)), **static)
        return tuple(map(number, found)) if isinstance(found, tuple) else number(found)

    return kernel_of_any
