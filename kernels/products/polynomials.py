"""Polynomials whose coefficients are a vector, the one of the highest power first, as NumPy has them."""

from __future__ import annotations

from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad, known, ranked
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
