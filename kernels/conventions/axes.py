"""Axes as the kernels take them: negative ones counted from the end, and index tuples with an axis taken out or put back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad


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
    wanted = range(x.ndim) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
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
