"""Special functions of mathematics: roots, quantiles, modified Bessel and zeta functions, common divisors, element by element.

Each is a formula in the functions of the language, and its derivative that of the formula; float16 and bfloat16 are computed in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import at_least, integral
from tensorexpr.kernels.conventions.broadcasting import at, pointwise

# Coefficients of Chebyshev polynomials: of e^-x I0(x) and e^-x I1(x) / x in x / 4 - 1 up to 8, of sqrt(x) e^-x I(x) in 16 / x - 1 beyond.
I0_NEAR = (
    0.33839763720473803, -0.3046826723431984, 0.17162090152220877, -0.09490109704804764, 0.04930528423967071, -0.02373741480589947,
    0.010546460394594998, -0.004324309995050576, 0.001639475616941336, -0.0005763755745385825, 0.00018850288509584173,
    -5.7541950100821094e-05, 1.644844807072883e-05, -4.416738358458745e-06, 1.1173875391200808e-06, -2.6707938539416215e-07,
    6.04699502254998e-08, -1.3000250099943513e-08, 2.6598237247387987e-09, -5.189795604102951e-10, 9.675809055004528e-11,
    -1.7268263187918912e-11, 2.955053135037509e-12, -4.856450934757547e-13, 7.676190937636008e-14, -1.1685361608459316e-14,
    1.7153399740118397e-15, -2.430967617960897e-16, 3.3395120978448045e-17, -4.414735721089413e-18,
)  # fmt: skip
I0_FAR = (
    0.4022452055070544, 0.0033691164782556943, 6.889758346916825e-05, 2.891370520834717e-06, 2.048918589469326e-07, 2.266668990498735e-08,
    3.396232025691549e-09, 4.940602387788892e-10, 1.1889147129869168e-11, -3.149916534000313e-11, -1.3215811829808539e-11,
    -1.7941785481357525e-12, 7.180124083549651e-13, 3.8527786240223974e-13, 1.540085934961257e-14, -4.1505793485323295e-14,
    -9.554775590517317e-15, 3.8116347101171955e-15, 1.7725694374557213e-15, -3.426112746372084e-16, -2.826904698825447e-16,
    3.4447135898937886e-17, 4.491911010496121e-17, -5.045775266793867e-18, -7.247213896707794e-18,
)  # fmt: skip
I1_NEAR = (
    0.12629359322181682, -0.17641651835783406, 0.1026436586898471, -0.05294598120809499, 0.024726449030626516, -0.010564084894626197,
    0.004156422944312888, -0.0015135724506312532, 0.0005122859561685758, -0.0001617608158258968, 4.781565107550059e-05,
    -1.3273163656039465e-05, 3.4702513081376425e-06, -8.568720264695478e-07, 2.0032947535520316e-07, -4.44505912880041e-08,
    9.381537386522851e-09, -1.8872497517592626e-09, 3.625590281861361e-10, -6.663489737136655e-11, 1.1736186407608354e-11,
    -1.983974531834026e-12, 3.223795657373218e-13, -5.042205361734369e-14, 7.600718015046692e-15, -1.1056219416556712e-15,
    1.553416073617024e-16, -2.1094508518421096e-17, 2.8104553189897685e-18,
)  # fmt: skip
I1_FAR = (
    0.38928811750914005, -0.009761097491361469, -0.00011058893876262371, -3.882564808877703e-06, -2.5122362378698346e-07,
    -2.6314688468901334e-08, -3.8353803859812504e-09, -5.589743462476766e-10, -1.8974958082784927e-11, 3.252603575880494e-11,
    1.412580747205455e-11, 2.035628528804581e-12, -7.198552370578132e-13, -4.0835508531480297e-13, -2.101541448763062e-14,
    4.27243147544526e-14, 1.0420321289866807e-14, -3.814467188292814e-15, -1.8803602033453434e-15, 3.307697540345933e-16,
    2.9631075967439385e-16, -3.227195529038884e-17, -4.6237040431329696e-17, 4.198742319539567e-18, 7.490524110806591e-18,
    -8.732909686191836e-19, -1.3139598594282334e-18,
)  # fmt: skip
# Of the quantiles of the normal distribution, rational functions: in the middle, near the ends and at the ends (Wichura, 1988, AS 241).
MIDDLE = (
    (3.3871328727963666080, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4, 4.5921953931549871457e4,
     6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3, 2.1213794301586595867e4, 3.9307895800092710610e4,
     2.8729085735721942674e4, 5.2264952788528545610e3),
)  # fmt: skip
NEAR = (
    (1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550, 3.64784832476320460504, 1.27045825245236838258,
     2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187, 1.67638483018380384940, 6.89767334985100004550e-1, 1.48103976427480074590e-1, 1.51986665636164571966e-2,
     5.47593808499534494600e-4, 1.05075007164441684324e-9),
)  # fmt: skip
FAR = (
    (6.65790464350110377720, 5.46378491116411436990, 1.78482653991729133580, 2.96560571828504891230e-1, 2.65321895265761230930e-2,
     1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7),
    (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2, 7.86869131145613259100e-4,
     1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15),
)  # fmt: skip
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330, 854513 / 138)
"""Bernoulli's numbers of even index, from the second on."""
TERMS = 11
"""Terms of a zeta function that are added one by one; for the rest stands Euler and Maclaurin's formula."""


def real_function(name: str, function: Callable[[Any], Any], x: te.Tensor) -> te.Tensor:
    """A function of one number in at least float32; integers give float64."""

    def element(v: Any) -> Any:
        value = function(wide(v))
        return te.cast(value, v.dtype) if v.dtype.is_float else value

    return pointwise(name, element, x)


def wide(value: Any) -> Any:
    """A number in the dtype that it is computed in."""
    return te.cast(value, "float64" if not value.dtype.is_float else "float32" if value.dtype.bits == 16 else value.dtype)


def _horner(x: Any, coefficients: Sequence[float]) -> Any:
    value: Any = te.cast(coefficients[-1], x.dtype)
    for c in reversed(coefficients[:-1]):
        value = value * x + c
    return value


def _chebyshev(t: Any, coefficients: Sequence[float]) -> Any:
    """Clenshaw's sum."""
    one, two = t * (2 * coefficients[-1]) + coefficients[-2], te.cast(coefficients[-1], t.dtype)
    for c in reversed(coefficients[1:-2]):
        one, two = 2 * t * one - two + c, one
    return t * one - two + coefficients[0]


def _bessel(near: Sequence[float], far: Sequence[float], order: int, scaled: bool) -> Callable[[Any], Any]:
    def value(x: Any) -> Any:
        a = te.abs(x)
        small = _chebyshev(te.minimum(a, 8) / 4 - 1, near)
        big = te.maximum(a, 8)
        found = te.where(a <= 8, small * x if order else small, _chebyshev(16 / big - 1, far) / te.sqrt(big) * (te.sign(x) if order else 1))
        return found if scaled else found * te.exp(a)

    return value


@te.op
def cbrt(x: te.Tensor) -> te.Tensor:
    """The real cube root of `x`, of the sign of `x`; its derivative at 0 is infinite.

    >>> kernels.cbrt(np.array([-8.0, 27.0]))
    array([-2.,  3.])
    """

    def value(v: Any) -> Any:
        a = te.abs(v)
        root = a ** (1 / 3)
        # One step of Newton's method takes back what the exponent, no third, leaves out.
        step = te.where((a > 0) & te.isfinite(a), (root - a / (root * root)) / (3 * root), 0)
        return te.where((v < 0) | (1 / v < 0), -root, root) * (1 - te.stop_gradient(step))

    return real_function("cbrt", value, x)


@te.op
def i0(x: te.Tensor) -> te.Tensor:
    """The modified Bessel function of the first kind of order 0.

    >>> kernels.i0(np.array([0.0, 1.0])).round(4)
    array([1.    , 1.2661])
    """
    return real_function("i0", _bessel(I0_NEAR, I0_FAR, 0, False), x)


@te.op
def i0e(x: te.Tensor) -> te.Tensor:
    """`exp(-|x|) i0(x)`, which does not overflow.

    >>> kernels.i0e(np.array([0.0, 1000.0])).round(4)
    array([1.    , 0.0126])
    """
    return real_function("i0e", _bessel(I0_NEAR, I0_FAR, 0, True), x)


@te.op
def i1(x: te.Tensor) -> te.Tensor:
    """The modified Bessel function of the first kind of order 1: the derivative of `i0`.

    >>> kernels.i1(np.array([0.0, 1.0])).round(4)
    array([0.    , 0.5652])
    """
    return real_function("i1", _bessel(I1_NEAR, I1_FAR, 1, False), x)


@te.op
def i1e(x: te.Tensor) -> te.Tensor:
    """`exp(-|x|) i1(x)`, which does not overflow.

    >>> kernels.i1e(np.array([0.0, 1000.0])).round(4)
    array([0.    , 0.0126])
    """
    return real_function("i1e", _bessel(I1_NEAR, I1_FAR, 1, True), x)


def _ndtri_slope(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> list[te.Tensor]:
    return [pointwise("ndtri_bar", lambda y, h: h * math.sqrt(2 * math.pi) * te.exp(0.5 * y * y), output, head)]


@te.op(gradient=_ndtri_slope)
def ndtri(x: te.Tensor) -> te.Tensor:
    """The quantiles of the normal distribution: `ndtr(ndtri(x)) = x`, infinite at 0 and 1, NaN outside (Wichura, 1988).

    >>> kernels.ndtri(np.array([0.5, 0.975])).round(4)
    array([0.  , 1.96])
    """

    def value(p: Any) -> Any:
        q = p - 0.5
        inside = te.abs(q) <= 0.425
        r = te.where(inside, 0.180625 - q * q, 0.180625)
        middle = q * _horner(r, MIDDLE[0]) / _horner(r, MIDDLE[1])
        tail = te.where(inside | ~((p > 0) & (p < 1)), 0.05, te.minimum(p, 1 - p))
        far = te.sqrt(-te.log(tail))
        near = te.minimum(far, 5) - 1.6
        beyond = te.maximum(far, 5) - 5
        end = te.where(far <= 5, _horner(near, NEAR[0]) / _horner(near, NEAR[1]), _horner(beyond, FAR[0]) / _horner(beyond, FAR[1]))
        known = te.where((p > 0) & (p < 1), end, te.where((p == 0) | (p == 1), math.inf, math.nan))
        return te.where(inside, middle, te.where(q < 0, -known, known))

    return real_function("ndtri", value, x)


def _zeta(s: Any, q: Any) -> Any:
    """The sum over k >= 0 of (q + k)^-s for s > 1, q > 0."""
    total = te.sum(lambda k: (q + te.cast(k, q.dtype)) ** -s, TERMS)
    a = q + TERMS
    last = a**-s
    found = total + last * a / (s - 1) + last / 2
    factor = last * s / a
    for j, b in enumerate(BERNOULLI, start=1):
        found = found + factor * (b / math.factorial(2 * j))
        factor = factor * ((s + (2 * j - 1)) / a) * ((s + 2 * j) / a)
    return found


@te.op
def zeta(x: te.Tensor, q: te.Tensor) -> te.Tensor:
    """Hurwitz's zeta function, the sum over k from 0 on of `(q + k)^-x`, broadcast: infinite at x = 1 and at q = 0, NaN below either.

    >>> kernels.zeta(np.array([2.0, 4.0]), np.array(1.0)).round(4)
    array([1.6449, 1.0823])
    """

    return pointwise("zeta", _hurwitz, x, q)


def _hurwitz(x: Any, q: Any) -> Any:
    given = x + q  # for its dtype
    s, a = (wide(te.cast(v, given.dtype if given.dtype.is_float else "float64")) for v in (x, q))
    defined = (s > 1) & (a > 0)
    found = _zeta(te.where(defined, s, 2), te.where(defined, a, 1))
    other = te.where(((s == 1) & (a > 0)) | ((a == 0) & (s >= 1)), math.inf, math.nan)
    value = te.where(defined, found, other)
    return te.cast(value, given.dtype) if given.dtype.is_float else value


@te.op
def polygamma(x: te.Tensor, *, n: int) -> te.Tensor:
    """The n-th derivative of `digamma`: `(-1)^(n + 1) n! zeta(n + 1, x)` from n = 1 on; by its reflection below 0.

    >>> kernels.polygamma(np.array([1.0, 2.0]), n=1).round(4)
    array([1.6449, 0.6449])
    """
    at_least("n", n, 0)
    if n == 0:
        return real_function("polygamma", te.digamma, x)
    factor, slopes = float((-1) ** (n + 1) * math.factorial(n)), [0.0, 1.0]
    for _ in range(n):  # the derivatives of the cotangent c are polynomials in it: that of c is -(1 + c^2)
        inner = [k * c for k, c in enumerate(slopes)][1:]
        slopes = [-(a + b) for a, b in zip([*inner, 0.0, 0.0], [0.0, 0.0, *inner], strict=True)]

    def value(v: Any) -> Any:
        left = v <= 0
        found = factor * _zeta(te.cast(n + 1, v.dtype), te.where(left, 1 - v, v))
        cotangent = 1 / te.tan(math.pi * te.where(left, v - te.round(v), 0.25))
        return te.where(left, (-1) ** n * found - math.pi ** (n + 1) * _horner(cotangent, slopes), found)

    return real_function("polygamma", value, x)


@te.op
def gcd(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """The greatest common divisor of integers, by Euclid's algorithm; 0 for two zeros.

    >>> kernels.gcd(np.array([12, -4, 0]), np.array([18, 6, 5]))
    array([6, 2, 5])
    """
    return _divisor("gcd", x, y)


@te.op
def lcm(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """The least common multiple of integers; 0 where one is 0.

    >>> kernels.lcm(np.array([4, 0]), np.array([6, 5]))
    array([12,  0])
    """
    divisor = _divisor("lcm", x, y)
    return te.compute(divisor.shape, lambda *i: te.abs(at(x, i) // te.maximum(divisor[i], 1) * at(y, i)))


def _divisor(name: str, x: te.Tensor, y: te.Tensor) -> te.Tensor:
    integral(x, f"{name} of integers")
    integral(y, f"{name} of integers")
    a, b = (pointwise(name, lambda v, w, n=n: te.abs((v + w * 0, v * 0 + w)[n]), x, y, result=f"{name}_{n}") for n in (0, 1))
    # The numbers of Fibonacci take the most steps: they grow by the golden ratio.
    steps = math.ceil(a.dtype.bits / math.log2((1 + math.sqrt(5)) / 2))

    def step(_: Any, state: Any) -> Any:
        first, second = state

        def after(*i: Any) -> Any:
            p, q = first[i], second[i]
            return te.where(q == 0, p, q), te.where(q == 0, 0, p % te.where(q == 0, 1, q))

        return te.compute(a.shape, after)

    found = te.scan(step, (a, b), steps, name=("divisors", "rests"))
    return te.compute(a.shape, lambda *i: found[0][(steps - 1, *i)])
