"""Functions of one number, element by element: arithmetic, roots, exponentials, angles, rounding.

What the language has for one element, for whole tensors of any shape. Accuracy is that of the compiled functions (docs/accuracy.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorexpr as te
from tensorexpr.kernels.conventions.broadcasting import pointwise


@te.op
def neg(x: te.Tensor) -> te.Tensor:
    """`-x`."""
    return pointwise("neg", lambda v: -v, x)


@te.op
def abs(x: te.Tensor) -> te.Tensor:
    """`|x|`; derivative 0 at 0."""
    return pointwise("abs", te.abs, x)


@te.op
def sign(x: te.Tensor) -> te.Tensor:
    """-1, 0 or 1; derivative 0."""
    return pointwise("sign", te.sign, x)


@te.op
def sgn(x: te.Tensor) -> te.Tensor:
    """PyTorch's other name of `sign`."""
    return pointwise("sgn", te.sign, x)


@te.op
def positive(x: te.Tensor) -> te.Tensor:
    """`x` itself."""
    return pointwise("positive", lambda v: v, x)


@te.op
def square(x: te.Tensor) -> te.Tensor:
    """`x^2`."""
    return pointwise("square", lambda v: v * v, x)


@te.op
def reciprocal(x: te.Tensor) -> te.Tensor:
    """`1 / x`."""
    return pointwise("reciprocal", lambda v: 1 / v, x)


@te.op
def sqrt(x: te.Tensor) -> te.Tensor:
    """`sqrt(x)`; the derivative at 0 is infinite."""
    return pointwise("sqrt", te.sqrt, x)


@te.op
def rsqrt(x: te.Tensor) -> te.Tensor:
    """`1 / sqrt(x)`."""
    return pointwise("rsqrt", te.rsqrt, x)


@te.op
def exp(x: te.Tensor) -> te.Tensor:
    """`e^x`."""
    return pointwise("exp", te.exp, x)


@te.op
def exp2(x: te.Tensor) -> te.Tensor:
    """`2^x`."""
    return pointwise("exp2", te.exp2, x)


@te.op
def expm1(x: te.Tensor) -> te.Tensor:
    """`e^x - 1`, exact near 0."""
    return pointwise("expm1", te.expm1, x)


@te.op
def log(x: te.Tensor) -> te.Tensor:
    """The natural logarithm."""
    return pointwise("log", te.log, x)


@te.op
def log2(x: te.Tensor) -> te.Tensor:
    """The logarithm to base 2."""
    return pointwise("log2", te.log2, x)


@te.op
def log1p(x: te.Tensor) -> te.Tensor:
    """`log(1 + x)`, exact near 0."""
    return pointwise("log1p", te.log1p, x)


@te.op
def sin(x: te.Tensor) -> te.Tensor:
    """The sine of `x` in radians."""
    return pointwise("sin", te.sin, x)


@te.op
def cos(x: te.Tensor) -> te.Tensor:
    """The cosine of `x` in radians."""
    return pointwise("cos", te.cos, x)


@te.op
def tan(x: te.Tensor) -> te.Tensor:
    """The tangent of `x` in radians."""
    return pointwise("tan", te.tan, x)


@te.op
def asin(x: te.Tensor) -> te.Tensor:
    """The angle in `-pi/2 .. pi/2` whose sine is `x`."""
    return pointwise("asin", te.asin, x)


@te.op
def acos(x: te.Tensor) -> te.Tensor:
    """The angle in `0 .. pi` whose cosine is `x`."""
    return pointwise("acos", te.acos, x)


@te.op
def atan(x: te.Tensor) -> te.Tensor:
    """The angle in `-pi/2 .. pi/2` whose tangent is `x`."""
    return pointwise("atan", te.atan, x)


@te.op
def sinh(x: te.Tensor) -> te.Tensor:
    """`(e^x - e^-x) / 2`."""
    return pointwise("sinh", te.sinh, x)


@te.op
def cosh(x: te.Tensor) -> te.Tensor:
    """`(e^x + e^-x) / 2`."""
    return pointwise("cosh", te.cosh, x)


@te.op
def tanh(x: te.Tensor) -> te.Tensor:
    """`(e^x - e^-x) / (e^x + e^-x)`, without overflow."""
    return pointwise("tanh", te.tanh, x)


@te.op
def sigmoid(x: te.Tensor) -> te.Tensor:
    """`1 / (1 + e^-x)`, without overflow."""
    return pointwise("sigmoid", te.sigmoid, x)


@te.op
def erf(x: te.Tensor) -> te.Tensor:
    """The error function, `2 / sqrt(pi)` times the integral of `e^(-t^2)` from 0 to `x`."""
    return pointwise("erf", te.erf, x)


@te.op
def floor(x: te.Tensor) -> te.Tensor:
    """The greatest whole number not above `x`; derivative 0."""
    return pointwise("floor", te.floor, x)


@te.op
def ceil(x: te.Tensor) -> te.Tensor:
    """The least whole number not below `x`; derivative 0."""
    return pointwise("ceil", te.ceil, x)


@te.op
def round(x: te.Tensor) -> te.Tensor:
    """The nearest whole number, of two the even one; derivative 0."""
    return pointwise("round", te.round, x)


@te.op
def trunc(x: te.Tensor) -> te.Tensor:
    """`x` without its fraction; derivative 0."""
    return pointwise("trunc", te.trunc, x)


@te.op
def log10(x: te.Tensor) -> te.Tensor:
    """The logarithm to base 10."""
    return pointwise("log10", te.log10, x)


@te.op
def asinh(x: te.Tensor) -> te.Tensor:
    """The inverse of sinh."""
    return pointwise("asinh", te.asinh, x)


@te.op
def acosh(x: te.Tensor) -> te.Tensor:
    """The inverse of cosh; NaN below 1."""
    return pointwise("acosh", te.acosh, x)


@te.op
def atanh(x: te.Tensor) -> te.Tensor:
    """The inverse of tanh; NaN beyond 1."""
    return pointwise("atanh", te.atanh, x)


def _erfc_slope(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> list[te.Tensor]:
    return [pointwise("erfc_bar", lambda x, h: h * (-2 / math.sqrt(math.pi)) * te.exp(-x * x), inputs[0], head)]


@te.op(gradient=_erfc_slope)
def erfc(x: te.Tensor) -> te.Tensor:
    """`1 - erf(x)`, accurate where that is small."""
    return pointwise("erfc", te.erfc, x)


def _erfinv_slope(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> list[te.Tensor]:
    return [pointwise("erfinv_bar", lambda y, h: h * (0.5 * math.sqrt(math.pi)) * te.exp(y * y), output, head)]


@te.op(gradient=_erfinv_slope)
def erfinv(x: te.Tensor) -> te.Tensor:
    """The inverse of the error function; NaN beyond 1."""
    return pointwise("erfinv", te.erfinv, x)


def _ndtr_slope(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> list[te.Tensor]:
    return [pointwise("ndtr_bar", lambda x, h: h * (1 / math.sqrt(2 * math.pi)) * te.exp(-0.5 * x * x), inputs[0], head)]


@te.op(gradient=_ndtr_slope)
def ndtr(x: te.Tensor) -> te.Tensor:
    """The distribution function of the normal distribution, `erfc(-x / sqrt(2)) / 2`."""
    return pointwise("ndtr", te.ndtr, x)


def _lgamma_slope(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> list[te.Tensor]:
    return [pointwise("lgamma_bar", lambda x, h: h * te.digamma(x), inputs[0], head)]


@te.op(gradient=_lgamma_slope)
def lgamma(x: te.Tensor) -> te.Tensor:
    """The logarithm of the absolute value of the gamma function."""
    return pointwise("lgamma", te.lgamma, x)


def _digamma_slope(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> list[te.Tensor]:
    return [pointwise("digamma_bar", lambda x, h: h * te.trigamma(x), inputs[0], head)]


@te.op(gradient=_digamma_slope)
def digamma(x: te.Tensor) -> te.Tensor:
    """The derivative of `lgamma`."""
    return pointwise("digamma", te.digamma, x)


@te.op
def deg2rad(x: te.Tensor) -> te.Tensor:
    """`pi / 180 * x`."""
    return pointwise("deg2rad", lambda v: v * (math.pi / 180), x)


@te.op
def rad2deg(x: te.Tensor) -> te.Tensor:
    """`180 / pi * x`."""
    return pointwise("rad2deg", lambda v: v * (180 / math.pi), x)


@te.op
def frac(x: te.Tensor) -> te.Tensor:
    """`x - trunc(x)`."""
    return pointwise("frac", lambda v: v - te.trunc(v), x)


@te.op
def isnan(x: te.Tensor) -> te.Tensor:
    """Whether an element is NaN."""
    return pointwise("isnan", te.isnan, x)


@te.op
def isinf(x: te.Tensor) -> te.Tensor:
    """Whether an element is infinite."""
    return pointwise("isinf", te.isinf, x)


@te.op
def isfinite(x: te.Tensor) -> te.Tensor:
    """Whether an element is neither infinite nor NaN."""
    return pointwise("isfinite", te.isfinite, x)


@te.op
def isposinf(x: te.Tensor) -> te.Tensor:
    """Whether an element is plus infinity."""
    return pointwise("isposinf", lambda v: te.isinf(v) & (v > 0), x)


@te.op
def isneginf(x: te.Tensor) -> te.Tensor:
    """Whether an element is minus infinity."""
    return pointwise("isneginf", lambda v: te.isinf(v) & (v < 0), x)


@te.op
def signbit(x: te.Tensor) -> te.Tensor:
    """Whether an element is negative, the negative zero included; False for NaN."""
    return pointwise("signbit", lambda v: (v < 0) | ((v == 0) & (1 / v < 0)) if v.dtype.is_float else v < 0, x)


@te.op
def logical_not(x: te.Tensor) -> te.Tensor:
    """Whether an element is 0."""
    return pointwise("logical_not", te.logical_not, x)
