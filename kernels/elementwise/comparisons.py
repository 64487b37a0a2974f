"""Questions about one number or two, element by element: the result is a bool, which has no derivative.

Tensors are broadcast as in NumPy. A comparison with NaN is False, but for `ne`.
"""

from __future__ import annotations

from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import known
from tensorexpr.kernels.conventions.broadcasting import pointwise


@te.op
def eq(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """Whether `x == y`.

    >>> kernels.eq(np.array([1, 2]), np.array([1, 3]))
    array([ True, False])
    """
    return pointwise("eq", lambda a, b: a == b, x, y)


@te.op
def ne(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """Whether `x != y`.

    >>> kernels.ne(np.array([1, 2]), np.array([1, 3]))
    array([False,  True])
    """
    return pointwise("ne", lambda a, b: a != b, x, y)


@te.op
def lt(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """Whether `x < y`.

    >>> kernels.lt(np.array([1, 2, 3]), 2)
    array([ True, False, False])
    """
    return pointwise("lt", lambda a, b: a < b, x, y)


@te.op
def le(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """Whether `x <= y`.

    >>> kernels.le(np.array([1, 2, 3]), 2)
    array([ True,  True, False])
    """
    return pointwise("le", lambda a, b: a <= b, x, y)


@te.op
def gt(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """Whether `x > y`.

    >>> kernels.gt(np.array([1, 2, 3]), 2)
    array([False, False,  True])
    """
    return pointwise("gt", lambda a, b: a > b, x, y)


@te.op
def ge(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """Whether `x >= y`.

    >>> kernels.ge(np.array([1, 2, 3]), 2)
    array([False,  True,  True])
    """
    return pointwise("ge", lambda a, b: a >= b, x, y)


@te.op
def isclose(x: te.Tensor, y: te.Tensor, *, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> te.Tensor:
    """Whether `|x - y| <= atol + rtol * |y|`, or both are equal infinities; NaNs are close to each other with `equal_nan` only.

    >>> kernels.isclose(np.array([1.0, np.nan]), np.array([1.000001, np.nan]))
    array([ True, False])
    """

    def body(a: Any, b: Any) -> Any:
        near = (
            (a == b) | (te.isfinite(b) & (te.abs(a - b) <= atol + rtol * te.abs(b)))
            if a.dtype.is_float
            else te.abs(a - b) <= atol + rtol * te.abs(b)
        )
        return near | (te.isnan(a) & te.isnan(b)) if equal_nan and a.dtype.is_float else near

    return pointwise("isclose", body, x, y)


@te.op
def allclose(x: te.Tensor, y: te.Tensor, *, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> te.Tensor:
    """Whether all elements are close, as a bool without axes; see `isclose`.

    >>> kernels.allclose(np.array([1.0, 2.0]), np.array([1.0, 2.1]))
    array(False)
    """
    near = isclose.function(x, y, rtol=rtol, atol=atol, equal_nan=equal_nan)
    return te.compute((), lambda: te.all(lambda *i: near[i], near.shape) if near.ndim else near[()])


@te.op
def array_equal(x: te.Tensor, y: te.Tensor, *, equal_nan: bool = False) -> te.Tensor:
    """Whether two tensors have one shape and equal elements, as a bool without axes; NaNs are equal with `equal_nan` only.

    >>> kernels.array_equal(np.array([1, 2]), np.array([1, 2])), kernels.array_equal(np.array([1, 2]), np.array([1]))
    (array(True), array(False))
    """
    if x.ndim != y.ndim or any(known(a, b) and a != b for a, b in zip(x.shape, y.shape, strict=True)):
        return te.compute((), lambda: te.cast(False, "bool"))

    def equal(*i: Any) -> Any:
        a, b = x[i], y[i]
        return (a == b) | (te.isnan(a) & te.isnan(b)) if equal_nan and a.dtype.is_float and b.dtype.is_float else a == b

    return te.compute((), lambda: te.all(equal, x.shape) if x.ndim else equal())


@te.op
def logical_and(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """Whether both are true (not 0).

    >>> kernels.logical_and(np.array([0, 1, 2]), np.array([1, 0, 3]))
    array([False, False,  True])
    """
    return pointwise("logical_and", te.logical_and, x, y)


@te.op
def logical_or(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """Whether one at least is true (not 0).

    >>> kernels.logical_or(np.array([0, 0, 2]), np.array([0, 1, 3]))
    array([False,  True,  True])
    """
    return pointwise("logical_or", te.logical_or, x, y)


@te.op
def logical_xor(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """Whether exactly one is true (not 0).

    >>> kernels.logical_xor(np.array([0, 0, 2]), np.array([0, 1, 3]))
    array([False,  True, False])
    """
    return pointwise("logical_xor", te.logical_xor, x, y)


@te.op
def isnan(x: te.Tensor) -> te.Tensor:
    """Whether an element is NaN.

    >>> kernels.isnan(np.array([1.0, np.inf, np.nan]))
    array([False, False,  True])
    """
    return pointwise("isnan", te.isnan, x)


@te.op
def isinf(x: te.Tensor) -> te.Tensor:
    """Whether an element is infinite.

    >>> kernels.isinf(np.array([1.0, np.inf, np.nan]))
    array([False,  True, False])
    """
    return pointwise("isinf", te.isinf, x)


@te.op
def isfinite(x: te.Tensor) -> te.Tensor:
    """Whether an element is neither infinite nor NaN.

    >>> kernels.isfinite(np.array([1.0, np.inf, np.nan]))
    array([ True, False, False])
    """
    return pointwise("isfinite", te.isfinite, x)


@te.op
def isposinf(x: te.Tensor) -> te.Tensor:
    """Whether an element is plus infinity.

    >>> kernels.isposinf(np.array([np.inf, -np.inf]))
    array([ True, False])
    """
    return pointwise("isposinf", lambda v: te.isinf(v) & (v > 0), x)


@te.op
def isneginf(x: te.Tensor) -> te.Tensor:
    """Whether an element is minus infinity.

    >>> kernels.isneginf(np.array([np.inf, -np.inf]))
    array([False,  True])
    """
    return pointwise("isneginf", lambda v: te.isinf(v) & (v < 0), x)


@te.op
def signbit(x: te.Tensor) -> te.Tensor:
    """Whether an element is negative, the negative zero included; False for NaN.

    >>> kernels.signbit(np.array([-1.0, -0.0, 0.0]))
    array([ True,  True, False])
    """
    return pointwise("signbit", lambda v: (v < 0) | ((v == 0) & (1 / v < 0)) if v.dtype.is_float else v < 0, x)


@te.op
def logical_not(x: te.Tensor) -> te.Tensor:
    """Whether an element is 0.

    >>> kernels.logical_not(np.array([0, 1, 2]))
    array([ True, False, False])
    """
    return pointwise("logical_not", te.logical_not, x)
