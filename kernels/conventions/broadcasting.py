"""NumPy's broadcasting for kernels of several tensors: the common shape, and how each operand is read at an index of it.

Shapes are aligned at their last axes; an extent of 1 stretches to any other, a missing axis counts as 1. An operand is read where
it stands, so nothing is copied, and its gradient sums over what it was stretched to. Extents known only as the program runs
must be equal by their form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad, known


def is_one(extent: Any) -> bool:
    """Whether an extent is known to be 1, so that it stretches."""
    return known(extent) and extent == 1


def same(a: Any, b: Any) -> bool:
    """Whether two extents are known to be equal: numbers by value, sizes by their form."""
    try:
        return bool(a == b)
    except te.DefinitionError:
        return False


def broadcast_shape(name: str, *shapes: Sequence[Any]) -> tuple[Any, ...]:
    """The shape that all `shapes` stretch to; `ArgumentError` where they do not fit."""
    rank = max(map(len, shapes), default=0)
    result: list[Any] = [1] * rank
    for shape in shapes:
        for axis, extent in enumerate(shape, rank - len(shape)):
            if is_one(result[axis]):
                result[axis] = extent
            elif not is_one(extent) and not same(extent, result[axis]):
                given = " and ".join(str(tuple(shape)) for shape in shapes)
                hint = "aligned at the last axis, extents are equal or one of them is 1; a te.dim is equal to itself alone"
                raise bad(f"{name}: expected shapes that broadcast, got {given}", hint)
    return tuple(result)


def stretches(shape: Sequence[Any], wanted: Sequence[Any]) -> bool:
    """Whether a shape broadcasts to the other without changing that."""
    missing = len(wanted) - len(shape)
    return missing >= 0 and all(is_one(n) or same(n, m) for n, m in zip(shape, wanted[missing:], strict=True))


def at(x: te.Tensor, index: Sequence[Any]) -> te.Scalar:
    """`x` read at an index of the common shape."""
    own = index[len(index) - x.ndim :]
    return x[tuple(0 if is_one(extent) else i for extent, i in zip(x.shape, own, strict=True))]


def pointwise(name: str, function: Callable[..., Any], *tensors: te.Tensor | None, result: str | None = None) -> te.Tensor:
    """`y[i] = function(a[i], b[i], ..)` with the tensors broadcast; a tensor that is None is given to `function` as None.

    `name` is the operation's, for errors; `result` that of the tensor where it is an intermediate one.
    """
    shape = broadcast_shape(name, *(x.shape for x in tensors if x is not None))
    return te.compute(shape, lambda *i: function(*(None if x is None else at(x, i) for x in tensors)), name=result)


def summed_to(x: te.Tensor, shape: Sequence[Any], dtype: Any = None) -> te.Tensor:
    """The sums of a tensor over the axes that one of `shape` was stretched along: what a gradient does with broadcasting."""
    missing = x.ndim - len(shape)
    over = [d for d, n in enumerate(x.shape) if d < missing or (is_one(shape[d - missing]) and not is_one(n))]
    if not over and dtype in (None, x.dtype):
        return x

    def value(*i: Any) -> Any:
        def element(*s: Any) -> Any:
            own: list[Any] = [None] * missing + list(i)
            for d, k in zip(over, s, strict=True):
                own[d] = k
            return x[tuple(own)]

        total = te.sum(element, tuple(x.shape[d] for d in over)) if over else element()
        return te.cast(total, dtype or x.dtype)

    return te.compute(tuple(shape), value)
