"""Functions of statistics and numerics beside the special ones: tails of the normal distribution, entropies, transforms of Box and Cox,
and differences that would cancel.

Each is a formula in the functions of the language, right where the formula of the textbook overflows or cancels, and so are its
derivatives. The order of arguments is that of SciPy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad
from tensorexpr.kernels.conventions.broadcasting import pointwise
from tensorexpr.kernels.elementwise.special import ndtri, real_function

ROOT_PI = math.sqrt(math.pi)


def _erfcx_slope(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> list[te.Tensor]:
    def slope(x: Any, y: Any, h: Any) -> Any:
        v = te.cast(x, "float64")
        far = 1 / (te.where(v > 100, v, 100) ** 2)  # there the two terms of the formula cancel
        series = far * (far * (1.5 - 3.75 * far) - 1) / ROOT_PI
        return h * te.cast(te.where(v > 100, series, 2 * v * te.cast(y, "float64") - 2 / ROOT_PI), h.dtype)

    return [pointwise("erfcx_bar", slope, inputs[0], output, head)]


@te.op(gradient=_erfcx_slope)
def erfcx(x: te.Tensor) -> te.Tensor:
    """`exp(x^2) erfc(x)`, which is neither 0 nor infinite where x is large.

    >>> kernels.erfcx(np.array([0.0, 1.0, 1000.0])).round(4)
    array([1.000e+00, 4.276e-01, 6.000e-04])
    """
    return pointwise("erfcx", te.erfcx, x)


def _log_ndtr_slope(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> list[te.Tensor]:
    return [pointwise("log_ndtr_bar", lambda x, h: h * math.sqrt(2 / math.pi) / te.erfcx(x * -math.sqrt(0.5)), inputs[0], head)]


@te.op(gradient=_log_ndtr_slope)
def log_ndtr(x: te.Tensor) -> te.Tensor:
    """The logarithm of `ndtr`, the distribution function of the normal distribution, also far to the left, where that is 0.

    >>> kernels.log_ndtr(np.array([0.0, -4.0])).round(4)
    array([ -0.6931, -10.3601])
    """

    def value(v: Any) -> Any:
        left, right = te.where(v < -1, v, -1), te.where(v < -1, 0, v)
        tail = te.log(0.5 * te.erfcx(left * -math.sqrt(0.5))) - 0.5 * left * left
        return te.where(v < -1, tail, te.log1p(-0.5 * te.erfc(right * math.sqrt(0.5))))

    return real_function("log_ndtr", value, x)


@te.op
def erfcinv(x: te.Tensor) -> te.Tensor:
    """The inverse of `erfc`, from 0 to 2: `-ndtri(x / 2) / sqrt(2)`.

    >>> kernels.erfcinv(np.array([1.0, 0.1])).round(4)
    array([-0.    ,  1.1631])
    """
    quantile = ndtri(pointwise("erfcinv", lambda v: v * 0.5, x))
    return pointwise("erfcinv", lambda v: v * -math.sqrt(0.5), quantile)


@te.op
def rel_entr(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`x log(x / y)` of positive numbers, 0 for x = 0 and y >= 0, infinite elsewhere: what a relative entropy sums.

    >>> kernels.rel_entr(np.array([0.5, 0.0, -1.0]), np.array([0.25, 0.0, 1.0])).round(4)
    array([0.3466, 0.    ,    inf])
    """

    def value(a: Any, b: Any) -> Any:
        other = te.where((a == 0) & (b >= 0), 0, te.where(te.isnan(a + b), math.nan, math.inf))
        return te.where((a > 0) & (b > 0), a * te.log(a / b), other)

    return pointwise("rel_entr", value, x, y)


def _exprel(x: Any) -> Any:
    small = te.abs(x) < 1e-2
    series = 1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6 * (1 + x / 7)))))
    return te.where(small, series, te.where(x == math.inf, math.inf, te.expm1(x) / te.where(small, 1, x)))


@te.op
def exprel(x: te.Tensor) -> te.Tensor:
    """`(exp(x) - 1) / x`, 1 at 0.

    >>> kernels.exprel(np.array([0.0, 1.0])).round(4)
    array([1.    , 1.7183])
    """
    return real_function("exprel", _exprel, x)


@te.op
def cosm1(x: te.Tensor) -> te.Tensor:
    """`cos(x) - 1` without cancellation near 0.

    >>> kernels.cosm1(np.array([0.0, 1e-4]))
    array([-0.e+00, -5.e-09])
    """
    return real_function("cosm1", lambda v: -2 * te.sin(v * 0.5) ** 2, x)


@te.op
def exp10(x: te.Tensor) -> te.Tensor:
    """`10^x`.

    >>> kernels.exp10(np.array([2.0, -1.0]))
    array([100. ,   0.1])
    """
    return real_function("exp10", lambda v: te.cast(10, v.dtype) ** v, x)


@te.op
def ldexp(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`x * 2^y`; for integers `y` without overflow in between.

    >>> kernels.ldexp(np.array([0.75, 1.0]), np.array([2, -1]))
    array([3. , 0.5])
    """

    def value(a: Any, n: Any) -> Any:
        mantissa = a if a.dtype.is_float else te.cast(a, "float64")
        if n.dtype.is_float:
            return mantissa * te.exp2(n)
        exponent = te.maximum(te.minimum(te.cast(n, "int64"), 2200), -2200)
        half = exponent // 2
        first, second = (te.cast(te.exp2(te.cast(part, "float64")), mantissa.dtype) for part in (half, exponent - half))
        return mantissa * first * second

    return pointwise("ldexp", value, x, y)


@te.op
def boxcox(x: te.Tensor, lmbda: te.Tensor) -> te.Tensor:
    """`(x^lmbda - 1) / lmbda`, and `log x` for lmbda = 0; NaN below 0.

    >>> kernels.boxcox(np.array([4.0, 4.0]), np.array([0.5, 0.0])).round(4)
    array([2.    , 1.3863])
    """
    return pointwise("boxcox", lambda v, p: _power_transform(te.log(v), p), x, lmbda)


@te.op
def boxcox1p(x: te.Tensor, lmbda: te.Tensor) -> te.Tensor:
    """`boxcox` of `1 + x`, without rounding where x is small.

    >>> kernels.boxcox1p(np.array([3.0]), np.array([0.5]))
    array([2.])
    """
    return pointwise("boxcox1p", lambda v, p: _power_transform(te.log1p(v), p), x, lmbda)


def _power_transform(log: Any, p: Any) -> Any:
    return te.where(te.isinf(log), te.where((log < 0) & (p > 0), -1 / te.where(p == 0, 1, p), log), log * _exprel(p * log))


@te.op
def huber(delta: te.Tensor, r: te.Tensor) -> te.Tensor:
    """`r^2 / 2` up to `delta`, beyond it `delta (|r| - delta / 2)`; infinite for a negative delta. `huber_loss` is PyTorch's.

    >>> kernels.huber(1.0, np.array([0.5, -3.0]))
    array([0.125, 2.5  ])
    """

    def value(d: Any, v: Any) -> Any:
        return te.where(d < 0, math.inf, te.where(te.abs(v) <= d, 0.5 * v * v, d * (te.abs(v) - 0.5 * d)))

    return pointwise("huber", value, delta, r)


@te.op
def pseudo_huber(delta: te.Tensor, r: te.Tensor) -> te.Tensor:
    """`delta^2 (sqrt(1 + (r / delta)^2) - 1)`, which is smooth; 0 for delta = 0, infinite for a negative one.

    >>> kernels.pseudo_huber(1.0, np.array([0.0, 3.0])).round(4)
    array([0.    , 2.1623])
    """

    def value(d: Any, v: Any) -> Any:
        own = te.where(d > 0, d, 1)
        square = (v / own) ** 2
        return te.where(d > 0, own * own * (square / (1 + te.sqrt(1 + square))), te.where(d == 0, 0, math.inf))

    return pointwise("pseudo_huber", value, delta, r)


@te.op
def angle(x: te.Tensor) -> te.Tensor:
    """The angle of a real number in the plane: pi below 0, else 0; NaN stays. Its derivative is 0.

    >>> kernels.angle(np.array([1.0, -2.0])).round(4)
    array([0.    , 3.1416])
    """
    if x.dtype.is_bool:
        raise bad("angle: expected numbers, got bools")
    return real_function("angle", lambda v: te.where(te.isnan(v), v, te.where(v < 0, math.pi, 0)), x)
