"""Functions of one number, element by element: arithmetic, roots, exponentials, angles, rounding.

What the language has for one element, for whole tensors of any shape. Accuracy is that of the compiled functions (docs/accuracy.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad
from tensorexpr.kernels.conventions.broadcasting import pointwise


@te.op
def neg(x: te.Tensor) -> te.Tensor:
    """`-x`.

    >>> kernels.neg(np.array([1, -2]))
    array([-1,  2])
    """
    return pointwise("neg", lambda v: -v, x)


@te.op
def abs(x: te.Tensor) -> te.Tensor:
    """`|x|`; derivative 0 at 0.

    >>> kernels.abs(np.array([-2.0, 0.0, 3.0]))
    array([2., 0., 3.])
    """
    return pointwise("abs", te.abs, x)


@te.op
def sign(x: te.Tensor) -> te.Tensor:
    """-1, 0 or 1; derivative 0.

    >>> kernels.sign(np.array([-3.0, 0.0, 2.0]))
    array([-1.,  0.,  1.])
    """
    return pointwise("sign", te.sign, x)


@te.op
def sgn(x: te.Tensor) -> te.Tensor:
    """PyTorch's other name of `sign`.

    >>> kernels.sgn(np.array([-3, 0, 2]))
    array([-1,  0,  1])
    """
    return pointwise("sgn", te.sign, x)


@te.op
def positive(x: te.Tensor) -> te.Tensor:
    """`x` itself.

    >>> kernels.positive(np.array([1, -2]))
    array([ 1, -2])
    """
    return pointwise("positive", lambda v: v, x)


@te.op
def square(x: te.Tensor) -> te.Tensor:
    """`x^2`.

    >>> kernels.square(np.array([-3.0, 2.0]))
    array([9., 4.])
    """
    return pointwise("square", lambda v: v * v, x)


@te.op
def reciprocal(x: te.Tensor) -> te.Tensor:
    """`1 / x`.

    >>> kernels.reciprocal(np.array([2.0, 0.0]))
    array([0.5, inf])
    """
    return pointwise("reciprocal", lambda v: 1 / v, x)


@te.op
def sqrt(x: te.Tensor) -> te.Tensor:
    """`sqrt(x)`; the derivative at 0 is infinite.

    >>> kernels.sqrt(np.array([4.0, -1.0]))
    array([ 2., nan])
    """
    return pointwise("sqrt", te.sqrt, x)


@te.op
def rsqrt(x: te.Tensor) -> te.Tensor:
    """`1 / sqrt(x)`.

    >>> kernels.rsqrt(np.array([4.0, 16.0]))
    array([0.5 , 0.25])
    """
    return pointwise("rsqrt", te.rsqrt, x)


@te.op
def exp(x: te.Tensor) -> te.Tensor:
    """`e^x`.

    >>> kernels.exp(np.array([0.0, 1.0])).round(4)
    array([1.    , 2.7183])
    """
    return pointwise("exp", te.exp, x)


@te.op
def exp2(x: te.Tensor) -> te.Tensor:
    """`2^x`.

    >>> kernels.exp2(np.array([-1.0, 3.0]))
    array([0.5, 8. ])
    """
    return pointwise("exp2", te.exp2, x)


@te.op
def expm1(x: te.Tensor) -> te.Tensor:
    """`e^x - 1`, exact near 0.

    >>> kernels.expm1(np.array([1e-20, 1.0]))
    array([1.00000000e-20, 1.71828183e+00])
    """
    return pointwise("expm1", te.expm1, x)


@te.op
def log(x: te.Tensor) -> te.Tensor:
    """The natural logarithm.

    >>> kernels.log(np.array([1.0, np.e, 0.0]))
    array([  0.,   1., -inf])
    """
    return pointwise("log", te.log, x)


@te.op
def log2(x: te.Tensor) -> te.Tensor:
    """The logarithm to base 2.

    >>> kernels.log2(np.array([1.0, 8.0]))
    array([0., 3.])
    """
    return pointwise("log2", te.log2, x)


@te.op
def log1p(x: te.Tensor) -> te.Tensor:
    """`log(1 + x)`, exact near 0.

    >>> kernels.log1p(np.array([1e-20, 1.0])).round(24)
    array([1.00000000e-20, 6.93147181e-01])
    """
    return pointwise("log1p", te.log1p, x)


@te.op
def sin(x: te.Tensor) -> te.Tensor:
    """The sine of `x` in radians.

    >>> kernels.sin(np.array([0.0, np.pi / 2]))
    array([0., 1.])
    """
    return pointwise("sin", te.sin, x)


@te.op
def cos(x: te.Tensor) -> te.Tensor:
    """The cosine of `x` in radians.

    >>> kernels.cos(np.array([0.0, np.pi])).round(4)
    array([ 1., -1.])
    """
    return pointwise("cos", te.cos, x)


@te.op
def tan(x: te.Tensor) -> te.Tensor:
    """The tangent of `x` in radians.

    >>> kernels.tan(np.array([0.0, np.pi / 4])).round(4)
    array([0., 1.])
    """
    return pointwise("tan", te.tan, x)


@te.op
def asin(x: te.Tensor) -> te.Tensor:
    """The angle in `-pi/2 .. pi/2` whose sine is `x`.

    >>> kernels.asin(np.array([-1.0, 0.0, 1.0])).round(4)
    array([-1.5708,  0.    ,  1.5708])
    """
    return pointwise("asin", te.asin, x)


@te.op
def acos(x: te.Tensor) -> te.Tensor:
    """The angle in `0 .. pi` whose cosine is `x`.

    >>> kernels.acos(np.array([-1.0, 0.0, 1.0])).round(4)
    array([3.1416, 1.5708, 0.    ])
    """
    return pointwise("acos", te.acos, x)


@te.op
def atan(x: te.Tensor) -> te.Tensor:
    """The angle in `-pi/2 .. pi/2` whose tangent is `x`.

    >>> kernels.atan(np.array([-1.0, 0.0, np.inf])).round(4)
    array([-0.7854,  0.    ,  1.5708])
    """
    return pointwise("atan", te.atan, x)


@te.op
def sinh(x: te.Tensor) -> te.Tensor:
    """`(e^x - e^-x) / 2`.

    >>> kernels.sinh(np.array([0.0, 1.0])).round(4)
    array([0.    , 1.1752])
    """
    return pointwise("sinh", te.sinh, x)


@te.op
def cosh(x: te.Tensor) -> te.Tensor:
    """`(e^x + e^-x) / 2`.

    >>> kernels.cosh(np.array([0.0, 1.0])).round(4)
    array([1.    , 1.5431])
    """
    return pointwise("cosh", te.cosh, x)


@te.op
def tanh(x: te.Tensor) -> te.Tensor:
    """`(e^x - e^-x) / (e^x + e^-x)`, without overflow.

    >>> kernels.tanh(np.array([-1000.0, 0.0, 1.0])).round(4)
    array([-1.    ,  0.    ,  0.7616])
    """
    return pointwise("tanh", te.tanh, x)


@te.op
def sigmoid(x: te.Tensor) -> te.Tensor:
    """`1 / (1 + e^-x)`, without overflow.

    >>> kernels.sigmoid(np.array([-1000.0, 0.0, 1.0])).round(4)
    array([0.    , 0.5   , 0.7311])
    """
    return pointwise("sigmoid", te.sigmoid, x)


@te.op
def erf(x: te.Tensor) -> te.Tensor:
    """The error function, `2 / sqrt(pi)` times the integral of `e^(-t^2)` from 0 to `x`.

    >>> kernels.erf(np.array([0.0, 1.0])).round(4)
    array([0.    , 0.8427])
    """
    return pointwise("erf", te.erf, x)


@te.op
def floor(x: te.Tensor) -> te.Tensor:
    """The greatest whole number not above `x`; derivative 0.

    >>> kernels.floor(np.array([-1.5, 0.5, 2.0]))
    array([-2.,  0.,  2.])
    """
    return pointwise("floor", te.floor, x)


@te.op
def ceil(x: te.Tensor) -> te.Tensor:
    """The least whole number not below `x`; derivative 0.

    >>> kernels.ceil(np.array([-1.5, 0.5, 2.0]))
    array([-1.,  1.,  2.])
    """
    return pointwise("ceil", te.ceil, x)


@te.op
def round(x: te.Tensor, *, decimals: int = 0) -> te.Tensor:
    """The nearest whole number, of two the even one; derivative 0. With `decimals` the nearest multiple of `10^-decimals`, as
    `round(x * 10^decimals) / 10^decimals` has it. Integers are rounded to whole numbers alone.

    >>> kernels.round(np.array([0.5, 1.5, 2.4]))
    array([0., 2., 2.])
    >>> kernels.round(np.array([0.126, 1.5]), decimals=2)
    array([0.13, 1.5 ])
    """
    if isinstance(decimals, bool) or not isinstance(decimals, int):
        raise bad(f"round: expected a whole number of decimals, got {decimals!r}")
    if decimals == 0:
        return pointwise("round", te.round, x)
    if not x.dtype.is_float:
        raise bad(f"round: expected a floating {x.name} to round to {decimals} decimals, got {x.dtype.name}", "te.cast(x, 'float64')")
    unit = float(10 ** min(max(decimals, -decimals), 308))
    if decimals > 0:
        return pointwise("round", lambda v: te.round(v * unit) / unit, x)
    return pointwise("round", lambda v: te.round(v / unit) * unit, x)


@te.op
def trunc(x: te.Tensor) -> te.Tensor:
    """`x` without its fraction; derivative 0.

    >>> kernels.trunc(np.array([-1.5, 2.7]))
    array([-1.,  2.])
    """
    return pointwise("trunc", te.trunc, x)


@te.op
def log10(x: te.Tensor) -> te.Tensor:
    """The logarithm to base 10.

    >>> kernels.log10(np.array([1.0, 1000.0])).round(4)
    array([0., 3.])
    """
    return pointwise("log10", te.log10, x)


@te.op
def asinh(x: te.Tensor) -> te.Tensor:
    """The inverse of sinh.

    >>> kernels.asinh(np.array([0.0, 1.0])).round(4)
    array([0.    , 0.8814])
    """
    return pointwise("asinh", te.asinh, x)


@te.op
def acosh(x: te.Tensor) -> te.Tensor:
    """The inverse of cosh; NaN below 1.

    >>> kernels.acosh(np.array([1.0, 2.0])).round(4)
    array([0.   , 1.317])
    """
    return pointwise("acosh", te.acosh, x)


@te.op
def atanh(x: te.Tensor) -> te.Tensor:
    """The inverse of tanh; NaN beyond 1.

    >>> kernels.atanh(np.array([0.0, 0.5, 2.0])).round(4)
    array([0.    , 0.5493,    nan])
    """
    return pointwise("atanh", te.atanh, x)


def _erfc_slope(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> list[te.Tensor]:
    return [pointwise("erfc_bar", lambda x, h: h * (-2 / math.sqrt(math.pi)) * te.exp(-x * x), inputs[0], head)]


@te.op(gradient=_erfc_slope)
def erfc(x: te.Tensor) -> te.Tensor:
    """`1 - erf(x)`, accurate where that is small.

    >>> kernels.erfc(np.array([0.0, 1.0])).round(4)
    array([1.    , 0.1573])
    """
    return pointwise("erfc", te.erfc, x)


def _erfinv_slope(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> list[te.Tensor]:
    return [pointwise("erfinv_bar", lambda y, h: h * (0.5 * math.sqrt(math.pi)) * te.exp(y * y), output, head)]


@te.op(gradient=_erfinv_slope)
def erfinv(x: te.Tensor) -> te.Tensor:
    """The inverse of the error function; NaN beyond 1.

    >>> kernels.erfinv(np.array([0.0, 0.5, 1.0])).round(4)
    array([0.    , 0.4769,    inf])
    """
    return pointwise("erfinv", te.erfinv, x)


def _ndtr_slope(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> list[te.Tensor]:
    return [pointwise("ndtr_bar", lambda x, h: h * (1 / math.sqrt(2 * math.pi)) * te.exp(-0.5 * x * x), inputs[0], head)]


@te.op(gradient=_ndtr_slope)
def ndtr(x: te.Tensor) -> te.Tensor:
    """The distribution function of the normal distribution, `erfc(-x / sqrt(2)) / 2`.

    >>> kernels.ndtr(np.array([-np.inf, 0.0, 1.0])).round(4)
    array([0.    , 0.5   , 0.8413])
    """
    return pointwise("ndtr", te.ndtr, x)


def _lgamma_slope(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> list[te.Tensor]:
    return [pointwise("lgamma_bar", lambda x, h: h * te.digamma(x), inputs[0], head)]


@te.op(gradient=_lgamma_slope)
def lgamma(x: te.Tensor) -> te.Tensor:
    """The logarithm of the absolute value of the gamma function.

    >>> kernels.lgamma(np.array([1.0, 5.0])).round(4)
    array([0.    , 3.1781])
    """
    return pointwise("lgamma", te.lgamma, x)


def _digamma_slope(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> list[te.Tensor]:
    return [pointwise("digamma_bar", lambda x, h: h * te.trigamma(x), inputs[0], head)]


@te.op(gradient=_digamma_slope)
def digamma(x: te.Tensor) -> te.Tensor:
    """The derivative of `lgamma`.

    >>> kernels.digamma(np.array([1.0, 2.0])).round(4)
    array([-0.5772,  0.4228])
    """
    return pointwise("digamma", te.digamma, x)


@te.op
def deg2rad(x: te.Tensor) -> te.Tensor:
    """`pi / 180 * x`.

    >>> kernels.deg2rad(np.array([90.0, 180.0])).round(4)
    array([1.5708, 3.1416])
    """
    return pointwise("deg2rad", lambda v: v * (math.pi / 180), x)


@te.op
def rad2deg(x: te.Tensor) -> te.Tensor:
    """`180 / pi * x`.

    >>> kernels.rad2deg(np.array([np.pi / 2, np.pi]))
    array([ 90., 180.])
    """
    return pointwise("rad2deg", lambda v: v * (180 / math.pi), x)


@te.op
def modf(x: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    """`(x - trunc(x), trunc(x))`, both of the sign of `x`.

    >>> kernels.modf(np.array([2.5, -1.25]))
    (array([ 0.5 , -0.25]), array([ 2., -1.]))
    """
    rest = pointwise("modf", lambda v: te.where(te.isinf(v), 0 * te.sign(v), v - te.trunc(v)), x)
    return rest, pointwise("modf", te.trunc, x)


@te.op
def frac(x: te.Tensor) -> te.Tensor:
    """`x - trunc(x)`.

    >>> kernels.frac(np.array([-1.5, 2.25]))
    array([-0.5 ,  0.25])
    """
    return pointwise("frac", lambda v: v - te.trunc(v), x)
