"""Functions of one number, element by element: arithmetic, roots, exponentials, angles, rounding.

What the language has for one element, for whole tensors of any shape. Accuracy is that of the compiled functions (docs/accuracy.md).
"""

from __future__ import annotations

import math

import tensorexpr as te
from tensorexpr.kernels.conventions.broadcasting import pointwise


@te.op
def neg(x):
    """`-x`."""
    return pointwise("neg", lambda v: -v, x)


@te.op
def abs(x):
    """`|x|`; derivative 0 at 0."""
    return pointwise("abs", te.abs, x)


@te.op
def sign(x):
    """-1, 0 or 1; derivative 0."""
    return pointwise("sign", te.sign, x)


@te.op
def square(x):
    """`x^2`."""
    return pointwise("square", lambda v: v * v, x)


@te.op
def reciprocal(x):
    """`1 / x`."""
    return pointwise("reciprocal", lambda v: 1 / v, x)


@te.op
def sqrt(x):
    """`sqrt(x)`; the derivative at 0 is infinite."""
    return pointwise("sqrt", te.sqrt, x)


@te.op
def rsqrt(x):
    """`1 / sqrt(x)`."""
    return pointwise("rsqrt", te.rsqrt, x)


@te.op
def exp(x):
    """`e^x`."""
    return pointwise("exp", te.exp, x)


@te.op
def exp2(x):
    """`2^x`."""
    return pointwise("exp2", te.exp2, x)


@te.op
def expm1(x):
    """`e^x - 1`, exact near 0."""
    return pointwise("expm1", te.expm1, x)


@te.op
def log(x):
    """The natural logarithm."""
    return pointwise("log", te.log, x)


@te.op
def log2(x):
    """The logarithm to base 2."""
    return pointwise("log2", te.log2, x)


@te.op
def log1p(x):
    """`log(1 + x)`, exact near 0."""
    return pointwise("log1p", te.log1p, x)


@te.op
def sin(x):
    """The sine of `x` in radians."""
    return pointwise("sin", te.sin, x)


@te.op
def cos(x):
    """The cosine of `x` in radians."""
    return pointwise("cos", te.cos, x)


@te.op
def tan(x):
    """The tangent of `x` in radians."""
    return pointwise("tan", te.tan, x)


@te.op
def asin(x):
    """The angle in `-pi/2 .. pi/2` whose sine is `x`."""
    return pointwise("asin", te.asin, x)


@te.op
def acos(x):
    """The angle in `0 .. pi` whose cosine is `x`."""
    return pointwise("acos", te.acos, x)


@te.op
def atan(x):
    """The angle in `-pi/2 .. pi/2` whose tangent is `x`."""
    return pointwise("atan", te.atan, x)


@te.op
def sinh(x):
    """`(e^x - e^-x) / 2`."""
    return pointwise("sinh", te.sinh, x)


@te.op
def cosh(x):
    """`(e^x + e^-x) / 2`."""
    return pointwise("cosh", te.cosh, x)


@te.op
def tanh(x):
    """`(e^x - e^-x) / (e^x + e^-x)`, without overflow."""
    return pointwise("tanh", te.tanh, x)


@te.op
def sigmoid(x):
    """`1 / (1 + e^-x)`, without overflow."""
    return pointwise("sigmoid", te.sigmoid, x)


@te.op
def erf(x):
    """The error function, `2 / sqrt(pi)` times the integral of `e^(-t^2)` from 0 to `x`."""
    return pointwise("erf", te.erf, x)


@te.op
def floor(x):
    """The greatest whole number not above `x`; derivative 0."""
    return pointwise("floor", te.floor, x)


@te.op
def ceil(x):
    """The least whole number not below `x`; derivative 0."""
    return pointwise("ceil", te.ceil, x)


@te.op
def round(x):
    """The nearest whole number, of two the even one; derivative 0."""
    return pointwise("round", te.round, x)


@te.op
def trunc(x):
    """`x` without its fraction; derivative 0."""
    return pointwise("trunc", te.trunc, x)


@te.op
def log10(x):
    """The logarithm to base 10."""
    return pointwise("log10", te.log10, x)


@te.op
def asinh(x):
    """The inverse of sinh."""
    return pointwise("asinh", te.asinh, x)


@te.op
def acosh(x):
    """The inverse of cosh; NaN below 1."""
    return pointwise("acosh", te.acosh, x)


@te.op
def atanh(x):
    """The inverse of tanh; NaN beyond 1."""
    return pointwise("atanh", te.atanh, x)


def _erfc_slope(output, inputs, head):
    return [pointwise("erfc_bar", lambda x, h: h * (-2 / math.sqrt(math.pi)) * te.exp(-x * x), inputs[0], head)]


@te.op(gradient=_erfc_slope)
def erfc(x):
    """`1 - erf(x)`, accurate where that is small."""
    return pointwise("erfc", te.erfc, x)


def _erfinv_slope(output, inputs, head):
    return [pointwise("erfinv_bar", lambda y, h: h * (0.5 * math.sqrt(math.pi)) * te.exp(y * y), output, head)]


@te.op(gradient=_erfinv_slope)
def erfinv(x):
    """The inverse of the error function; NaN beyond 1."""
    return pointwise("erfinv", te.erfinv, x)


def _ndtr_slope(output, inputs, head):
    return [pointwise("ndtr_bar", lambda x, h: h * (1 / math.sqrt(2 * math.pi)) * te.exp(-0.5 * x * x), inputs[0], head)]


@te.op(gradient=_ndtr_slope)
def ndtr(x):
    """The distribution function of the normal distribution, `erfc(-x / sqrt(2)) / 2`."""
    return pointwise("ndtr", te.ndtr, x)


def _lgamma_slope(output, inputs, head):
    return [pointwise("lgamma_bar", lambda x, h: h * te.digamma(x), inputs[0], head)]


@te.op(gradient=_lgamma_slope)
def lgamma(x):
    """The logarithm of the absolute value of the gamma function."""
    return pointwise("lgamma", te.lgamma, x)


def _digamma_slope(output, inputs, head):
    return [pointwise("digamma_bar", lambda x, h: h * te.trigamma(x), inputs[0], head)]


@te.op(gradient=_digamma_slope)
def digamma(x):
    """The derivative of `lgamma`."""
    return pointwise("digamma", te.digamma, x)


@te.op
def deg2rad(x):
    """`pi / 180 * x`."""
    return pointwise("deg2rad", lambda v: v * (math.pi / 180), x)


@te.op
def rad2deg(x):
    """`180 / pi * x`."""
    return pointwise("rad2deg", lambda v: v * (180 / math.pi), x)


@te.op
def frac(x):
    """`x - trunc(x)`."""
    return pointwise("frac", lambda v: v - te.trunc(v), x)


@te.op
def isnan(x):
    """Whether an element is NaN."""
    return pointwise("isnan", te.isnan, x)


@te.op
def isinf(x):
    """Whether an element is infinite."""
    return pointwise("isinf", te.isinf, x)


@te.op
def isfinite(x):
    """Whether an element is neither infinite nor NaN."""
    return pointwise("isfinite", te.isfinite, x)


@te.op
def logical_not(x):
    """Whether an element is 0."""
    return pointwise("logical_not", te.logical_not, x)
