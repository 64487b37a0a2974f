"""Functions of mathematics that are made of others: error functions, gamma functions, inverse hyperbolic ones.

They are expressions of the language, so every backend has them, and their derivatives follow. All are computed in float64 and
rounded once to the type of the argument; `docs/accuracy.md` states how accurate, and the tests hold them to it.

The complementary error function is exp(-x^2) times a polynomial in (x - 4) / (x + 4) (Schonfelder 1978; coefficients of Chebyshev's
polynomials, computed with 50 digits, by powers), with x^2 taken apart so that the exponential keeps its digits. Its inverse is a step of
Halley's iteration from six digits. The gamma functions are Stirling's series behind eight steps of the recurrence, reflected below zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tensorexpr.hints import checked
from tensorexpr.language.core.scalar import Scalar
from tensorexpr.language.definitions.functions import abs as absolute
from tensorexpr.language.definitions.functions import (
    cast,
    erf,
    exp,
    floor,
    isinf,
    log,
    log1p,
    maximum,
    minimum,
    round,
    sign,
    sin,
    sqrt,
    tan,
    where,
)

__all__ = ["acosh", "asinh", "atanh", "digamma", "erfc", "erfcx", "erfinv", "lgamma", "log10", "ndtr", "trigamma"]

_ERFCX = (
    1.2329951186255526, -0.13962111684056228, 0.015379652102619974, 0.06809705425466839, -0.10103906603631811, 0.09373283499911264,
    -0.06633036581186058, 0.037167515526338006, -0.01619773406293477, 0.005031970069102256, -0.0007577732435942576, -0.0001992571524726518,
    0.00015062142608651945, -2.4397731143023292e-05, -1.1221135665965907e-05, 5.70657829924074e-06, 2.9173425573089733e-07,
    -8.210647933297337e-07, 7.771943241086912e-08, 1.0631817593818149e-07, -2.0725802488181963e-08, -1.2338731403798444e-08,
    3.2323973445082033e-09, 9.297625263709659e-10, -2.764120233734578e-10,
)  # fmt: skip
"""(1 + 2x) exp(x^2) erfc(x), by powers of (x - 4) / (x + 4)."""

_NEAR = (
    1.501409360450329, 0.6166006976365915, -0.02610870547001968, -0.019573849871456703, 0.008529272899990876, -0.00048558786029831555,
    -0.0008456995282308036, 0.00028572469974080887, 3.560786010087296e-05, -3.407259357545556e-05,
)  # fmt: skip
_FAR = (
    4.059939730716656, 2.0016481917286035, 0.0029955841022977297, -0.004923049339909004, 0.003877915742026814, -0.002413270250668931,
    -0.00031208988572917494, -9.947278300895207e-05, 0.0047317782231297845, -0.004286636439928763, -0.0004185179919279886,
    0.0010750771830816716,
)  # fmt: skip
"""erfinv(x) / x to six digits, for w = -log(1 - x^2): by powers of (w - 2.5) / 2.5, and behind w = 5 of sqrt(w), moved to -1 ... 1."""

_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)
"""Of log Gamma(z), by odd powers of 1 / z."""

_SHIFT = 8
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_SMALL, _MOST = 1e-5, 1 - 2.0**-53


def _computed(function: Callable[[Scalar], Scalar], x: Any) -> Scalar:
    """A function in float64, rounded to the floating type that others have for this argument."""
    kind = exp(x).dtype
    return cast(function(cast(x, "float64")), kind.name)


def _polynomial(x: Scalar, coefficients: Sequence[float]) -> Scalar:
    total = coefficients[-1] * x + coefficients[-2]
    for coefficient in reversed(coefficients[:-2]):
        total = total * x + coefficient
    return total


@checked()
def erfc(x: Any) -> Scalar:
    """1 - erf(x), accurate where that is small.

    >>> te.evaluate(te.compute((3,), lambda i: te.erfc(i))).round(4)
    array([1.    , 0.1573, 0.0047])
    """
    return _computed(_erfc, x)


def _erfc(x: Scalar) -> Scalar:
    size = minimum(where(x < 0, -x, x), 30.0)  # no absolute value, which has a derivative of 0 at 0
    tail = _scaled(size) * _bell(size, 1.0)
    return where(x < 0, 2.0 - tail, tail)


@checked()
def erfcx(x: Any) -> Scalar:
    """exp(x^2) erfc(x), which is neither 0 nor infinite where x is large.

    >>> te.evaluate(te.compute((3,), lambda i: te.erfcx(i * 100))).round(4)
    array([1.    , 0.0056, 0.0028])
    """

    def wide(x: Scalar) -> Scalar:
        size = where(x < 0, -x, x)
        tail = where(size > 1e15, 1 / (math.sqrt(math.pi) * size), _scaled(minimum(size, 1e15)))
        return where(x < 0, 2.0 * _bell(minimum(size, 30.0), -1.0) - tail, tail)

    return _computed(wide, x)


def _scaled(size: Scalar) -> Scalar:
    """exp(x^2) erfc(x) for x >= 0."""
    return _polynomial((size - 4.0) / (size + 4.0), _ERFCX) / (1 + 2 * size)


def _bell(size: Scalar, factor: float) -> Scalar:
    """exp(-factor x^2)."""
    high = floor(size * 16) / 16  # of so few digits that its square is exact
    return exp(-factor * (high * high)) * exp(-factor * ((size - high) * (size + high)))


@checked()
def erfinv(x: Any) -> Scalar:
    """The number whose error function is x: infinite at -1 and 1, NaN beyond.

    >>> te.evaluate(te.compute((3,), lambda i: te.erfinv(i / 2))).round(4)
    array([0.    , 0.4769,    inf])
    """
    return _computed(_erfinv, x)


def _erfinv(x: Scalar) -> Scalar:
    size = minimum(maximum(absolute(x), _SMALL), _MOST)
    line = -log1p(-(size * size))
    near = _polynomial(line / 2.5 - 1, _NEAR)
    far = _polynomial((sqrt(maximum(line, 4.0)) - 4.2180339887498945) / 1.9819660112501052, _FAR)
    start = size * where(line < 5, near, far)
    missed = where(size < 0.5, erf(start) - size, (1 - size) - _erfc(start))
    step = missed * (0.5 * math.sqrt(math.pi)) * exp(start * start)
    found = start - step / (1 + start * step)  # Halley's iteration
    series = x * (0.5 * math.sqrt(math.pi) * (1 + math.pi / 12 * x * x))
    inside = where(absolute(x) <= _SMALL, series, sign(x) * found)
    return where(absolute(x) == 1, x * math.inf, where(absolute(x) > 1, math.nan, inside))


@checked()
def ndtr(x: Any) -> Scalar:
    """The distribution function of the normal distribution.

    >>> te.evaluate(te.compute((3,), lambda i: te.ndtr(i))).round(4)
    array([0.5   , 0.8413, 0.9772])
    """

    def wide(x: Scalar) -> Scalar:
        size = minimum(where(x > 0, x, -x), 42.0)
        tail = 0.5 * _scaled(size * math.sqrt(0.5)) * _bell(size, 0.5)
        return where(x > 0, 1.0 - tail, tail)

    return _computed(wide, x)


@checked()
def lgamma(x: Any) -> Scalar:
    """The logarithm of the absolute value of the gamma function: infinite at 0, -1, -2, ...

    >>> te.evaluate(te.compute((3,), lambda i: te.lgamma(i + 1))).round(4)
    array([0.    , 0.    , 0.6931])
    """
    return _computed(_lgamma, x)


def _lgamma(x: Scalar) -> Scalar:
    turned = where(x < 0.5, 1 - x, x)
    z = turned + _SHIFT
    steps = turned
    for k in range(1, _SHIFT):
        steps = steps * (turned + k)
    # Far out the steps do not matter, and their product is too large.
    far = turned > 1e15
    positive = (
        where(far, turned, z) * (log(z) - 1)
        - 0.5 * log(z)
        + _HALF_LOG_2PI
        + _polynomial(1 / (z * z), _STIRLING) / z
        - log(where(far, 1.0, steps))
    )
    sine = sin(math.pi * absolute(x - round(x)))
    reflected = math.log(math.pi) - log(sine) - positive
    return where(isinf(x), math.inf, where(x < 0.5, reflected, positive))


@checked()
def digamma(x: Any) -> Scalar:
    """The derivative of `lgamma`: minus infinity at 0, NaN at -1, -2, ...

    >>> te.evaluate(te.compute((3,), lambda i: te.digamma(i + 1))).round(4)
    array([-0.5772,  0.4228,  0.9228])
    """
    return _computed(_digamma, x)


def _digamma(x: Scalar) -> Scalar:
    turned = where(x < 0.5, 1 - x, x)
    z = turned + _SHIFT
    coefficients = [-(2 * k + 1) * c for k, c in enumerate(_STIRLING)]
    steps: Any = 0.0
    for k in range(_SHIFT):
        steps = steps + 1 / (turned + k)
    positive = log(z) - 0.5 / z + _polynomial(1 / (z * z), coefficients) / (z * z) - steps
    turn = x - round(x)
    reflected = positive - math.pi / tan(math.pi * turn)
    at_pole = where(x == 0, -math.inf, math.nan)
    return where(x < 0.5, where(turn == 0, at_pole, reflected), positive)


@checked()
def trigamma(x: Any) -> Scalar:
    """The derivative of `digamma`: infinite at 0, -1, -2, ...

    >>> te.evaluate(te.compute((3,), lambda i: te.trigamma(i + 1))).round(4)
    array([1.6449, 0.6449, 0.3949])
    """
    return _computed(_trigamma, x)


def _trigamma(x: Scalar) -> Scalar:
    turned = where(x < 0.5, 1 - x, x)
    z = turned + _SHIFT
    coefficients = [-(2 * k + 1) * 2 * (k + 1) * -c for k, c in enumerate(_STIRLING)]
    steps: Any = 0.0
    for k in range(_SHIFT):
        steps = steps + 1 / ((turned + k) * (turned + k))
    positive = 1 / z + 0.5 / (z * z) + _polynomial(1 / (z * z), coefficients) / (z * z * z) + steps
    ratio = math.pi / sin(math.pi * (x - round(x)))
    return where(x < 0.5, ratio * ratio - positive, positive)


@checked()
def asinh(x: Any) -> Scalar:
    """The inverse of sinh.

    >>> te.evaluate(te.compute((3,), lambda i: te.asinh(i))).round(4)
    array([0.    , 0.8814, 1.4436])
    """

    def wide(x: Scalar) -> Scalar:
        size = where(x < 0, -x, x)  # of derivative 1 at 0
        small = minimum(size, 1e9)
        near = log1p(small * (1 + small / (1 + sqrt(small * small + 1))))
        found = where(size < 1e9, near, log(size) + math.log(2))
        return where(x < 0, -found, found)

    return _computed(wide, x)


@checked()
def acosh(x: Any) -> Scalar:
    """The inverse of cosh: NaN below 1.

    >>> te.evaluate(te.compute((3,), lambda i: te.acosh(i + 1))).round(4)
    array([0.    , 1.317 , 1.7627])
    """

    def wide(x: Scalar) -> Scalar:
        beyond = minimum(x, 1e9) - 1
        return where(x < 1e9, log1p(beyond + sqrt(2 * beyond + beyond * beyond)), log(x) + math.log(2))

    return _computed(wide, x)


@checked()
def atanh(x: Any) -> Scalar:
    """The inverse of tanh: infinite at -1 and 1, NaN beyond.

    >>> te.evaluate(te.compute((3,), lambda i: te.atanh(i / 2))).round(4)
    array([0.    , 0.5493,    inf])
    """

    def wide(x: Scalar) -> Scalar:
        size = where(x < 0, -x, x)  # of derivative 1 at 0
        found = 0.5 * log1p(2 * size / (1 - size))
        return where(x < 0, -found, found)

    return _computed(wide, x)


@checked()
def log10(x: Any) -> Scalar:
    """The logarithm to base 10.

    >>> te.evaluate(te.compute((3,), lambda i: te.log10(i + 1))).round(4)
    array([0.    , 0.301 , 0.4771])
    """
    return _computed(lambda wide: log(wide) * (1 / math.log(10)), x)
