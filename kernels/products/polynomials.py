"""Polynomials whose coefficients are a vector, the one of the highest power first, as NumPy has them."""

from __future__ import annotations

from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import at_least, bad, known, products, ranked
from tensorexpr.kernels.reductions.cumulative import cumprod

MOST = 256
"""Coefficients that are written out, one product after the other."""


@te.op
def polyval(p: te.Tensor, x: te.Tensor) -> te.Tensor:
    """`p[0] x^(n-1) + .. + p[n-1]` at each element of `x`, by Horner's scheme; 0 without coefficients.

    >>> kernels.polyval(np.array([1.0, 0.0, -2.0]), np.array([3.0, 0.5]))
    array([ 7.  , -1.75])
    """
    ranked(p, 1)
    count = p.shape[0]
    if not known(count) or count > MOST:
        raise bad(f"polyval: expected a known number of coefficients, at most {MOST}, got {count}")

    def element(*i: Any) -> Any:
        value = x[i] * 0 + (p[0] if count else 0)
        for k in range(1, count):
            value = value * x[i] + p[k]
        return value

    return te.compute(x.shape, element)


@te.op
def vander(x: te.Tensor, *, n: Any = None, increasing: bool = False) -> te.Tensor:
    """The powers of each element of a vector as a row, `n` of them (by default as many as elements), the highest first or `increasing`.

    >>> kernels.vander(np.array([2, 3]), n=3)
    array([[4, 2, 1],
           [9, 3, 1]])
    """
    ranked(x, 1)
    rows = x.shape[0]
    columns = rows if n is None else n
    if not known(columns) or isinstance(columns, bool) or columns < 0:
        raise bad(f"n: expected a number of powers, got {columns!r}")

    stretched = te.compute((rows, columns), lambda i, j: x[i])
    return cumprod.function(stretched, axis=1, exclusive=True, reverse=not increasing)


@te.op
def polyadd(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """The coefficients of the sum of two polynomials.

    >>> kernels.polyadd(np.array([1, 2, 3]), np.array([10, 20]))
    array([ 1, 12, 23])
    """
    return _together(x, y, 1)


@te.op
def polysub(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """The coefficients of the difference of two polynomials.

    >>> kernels.polysub(np.array([1, 2, 3]), np.array([10, 20]))
    array([  1,  -8, -17])
    """
    return _together(x, y, -1)


def _together(x: te.Tensor, y: te.Tensor, sign: int) -> te.Tensor:
    ranked(x, 1)
    ranked(y, 1)
    m, n = x.shape[0], y.shape[0]
    if not known(m, n):
        raise bad(f"expected known numbers of coefficients, got {m} and {n}")
    size = max(m, n)
    return te.compute((size,), lambda k: x.read(k - (size - m), outside=0) + sign * y.read(k - (size - n), outside=0))


@te.op
def polymul(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """The coefficients of the product of two polynomials.

    >>> kernels.polymul(np.array([1, 2]), np.array([1, 0, 3]))
    array([1, 2, 3, 6])
    """
    ranked(x, 1)
    ranked(y, 1)
    m, n = x.shape[0], y.shape[0]
    if known(m, n) and min(m, n) == 0:
        raise bad(f"polymul: expected at least one coefficient of each, got {m} and {n}")
    return te.compute((m + n - 1,), lambda k: products(lambda j: x[j] * y.read(k - j, outside=0), m))


@te.op
def polyder(p: te.Tensor, *, m: int = 1) -> te.Tensor:
    """The coefficients of the `m`-th derivative of a polynomial: none of a constant.

    >>> kernels.polyder(np.array([1.0, 2.0, 3.0, 4.0]))
    array([3., 4., 3.])
    """
    ranked(p, 1)
    at_least("m", m, 0)
    count = p.shape[0]
    if not known(count):
        raise bad(f"polyder: expected a known number of coefficients, got {count}")

    def coefficient(k: Any) -> Any:
        value = p[k]
        for step in range(m):
            value = value * te.cast(count - 1 - step - k, value.dtype)
        return value

    return te.compute((max(count - m, 0),), coefficient)


@te.op
def polyint(p: te.Tensor, *, m: int = 1, k: Any = 0) -> te.Tensor:
    """The coefficients of the `m`-th antiderivative of a polynomial, whose constants are `k`, one number or one for each integration.

    >>> kernels.polyint(np.array([3.0, 4.0, 3.0]), k=4)
    array([1., 2., 3., 4.])
    """
    ranked(p, 1)
    at_least("m", m, 0)
    constants = (k,) * m if isinstance(k, (int, float)) else tuple(k)
    if not known(p.shape[0]) or len(constants) != m:
        raise bad(f"polyint: expected a known number of coefficients and {m} constants, got shape {p.shape} and {k!r}")
    found = p
    for constant in constants:
        count = found.shape[0]

        def coefficient(j: Any, own: te.Tensor = found, count: Any = count, constant: float = constant) -> Any:
            inside = own.read(j, outside=0)
            kind = inside.dtype if inside.dtype.is_float else te.dtype("float64")
            return te.where(j == count, te.cast(constant, kind), te.cast(inside, kind) / te.cast(te.maximum(count - j, 1), kind))

        found = te.compute((count + 1,), coefficient)
    return found
