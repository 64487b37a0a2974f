"""Operations on the bits of integers, of which a bool has one; tensors are broadcast as in NumPy, and there is no derivative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad
from tensorexpr.kernels.conventions.broadcasting import pointwise


def _bitwise(name: str, body: Callable[..., Any], *tensors: te.Tensor, bools: bool = True) -> te.Tensor:
    for x in tensors:
        if not x.dtype.is_integer and not (bools and x.dtype.kind == "bool"):
            raise bad(f"{name}: expected integers{' or bools' if bools else ''}, got {x.name} of {x.dtype.name}")
    return pointwise(name, body, *tensors)


@te.op
def bitwise_and(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """The bits that both have.

    >>> kernels.bitwise_and(np.array([6, -1]), 3)
    array([2, 3])
    """
    return _bitwise("bitwise_and", lambda a, b: a & b, x, y)


@te.op
def bitwise_or(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """The bits that one at least has.

    >>> kernels.bitwise_or(np.array([6, -1]), 3)
    array([ 7, -1])
    """
    return _bitwise("bitwise_or", lambda a, b: a | b, x, y)


@te.op
def bitwise_xor(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """The bits that exactly one has.

    >>> kernels.bitwise_xor(np.array([6, -1]), 3)
    array([ 5, -4])
    """
    return _bitwise("bitwise_xor", lambda a, b: a ^ b, x, y)


@te.op
def bitwise_not(x: te.Tensor) -> te.Tensor:
    """All bits turned: `-x - 1` of a signed integer.

    >>> kernels.bitwise_not(np.array([6, -1])), kernels.bitwise_not(np.array([True, False]))
    (array([-7,  0]), array([False,  True]))
    """
    return _bitwise("bitwise_not", lambda a: ~a, x)


@te.op
def bitwise_left_shift(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """The bits of `x` moved up by `y` places; 0 from the width of the dtype on.

    >>> kernels.bitwise_left_shift(np.array([1, -3]), np.array([4, 1]))
    array([16, -6])
    """
    return _bitwise("bitwise_left_shift", lambda a, b: a << b, x, y, bools=False)


@te.op
def bitwise_right_shift(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """The bits of `x` moved down by `y` places, `x // 2^y`; from the width of the dtype on 0, or -1 of a negative number.

    >>> kernels.bitwise_right_shift(np.array([16, -3]), np.array([4, 1]))
    array([ 1, -2])
    """
    return _bitwise("bitwise_right_shift", lambda a, b: a >> b, x, y, bools=False)


@te.op
def bitwise_count(x: te.Tensor) -> te.Tensor:
    """How many bits of `|x|` are 1, an uint8.

    >>> kernels.bitwise_count(np.array([0, 7, -8]))
    array([0, 3, 1], dtype=uint8)
    """

    def count(v: Any) -> Any:
        if v.dtype.is_bool:
            return te.cast(v, "uint8")
        magnitude = te.abs(v) if v.dtype.is_signed else v
        return te.cast(te.sum(lambda k: te.cast((magnitude >> te.cast(k, v.dtype)) & 1, "int32"), v.dtype.bits), "uint8")

    return _bitwise("bitwise_count", count, x)
