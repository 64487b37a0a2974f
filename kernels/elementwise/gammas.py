"""The gamma function and its kin: products and quotients of factorials, by Lanczos's series (g = 607/128, 15 terms, about 1e-15).

Everything is a formula, and its derivatives are those of the formula; float16 and bfloat16 are computed in float32, integers in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import at_least
from tensorexpr.kernels.conventions.broadcasting import pointwise, summed_to
from tensorexpr.kernels.elementwise.special import real_function, wide

G = 607 / 128
LANCZOS = (
    0.99999999999999709182, 57.156235665862923517, -59.597960355475491248, 14.136097974741747174, -0.49191381609762019978,
    0.33994649984811888699e-4, 0.46523628927048575665e-4, -0.98374475304879564677e-4, 0.15808870322491248884e-3,
    -0.21026444172410488319e-3, 0.21743961811521264320e-3, -0.16431810653676389022e-3, 0.84418223983852743293e-4,
    -0.26190838401581408670e-4, 0.36899182659531622704e-5,
)  # fmt: skip


def _series(z: Any) -> Any:
    """Gamma(z) over sqrt(2 pi) (z + g - 1/2)^(z - 1/2) exp(1/2 - g - z)."""
    total = te.cast(LANCZOS[0], z.dtype)
    for k, c in enumerate(LANCZOS[1:]):
        total = total + c / (z + k)
    return total


def _gamma_slope(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> list[te.Tensor]:
    return [pointwise("gamma_bar", lambda y, x, h: h * (te.digamma(x) * y), output, inputs[0], head)]


@te.op(gradient=_gamma_slope)
def gamma(x: te.Tensor) -> te.Tensor:
    """The gamma function, `(x - 1)!` of positive integers; infinite at 0, NaN at negative integers, by its reflection below 1/2.

    >>> kernels.gamma(np.array([5.0, 0.5, -0.5])).round(4)
    array([24.    ,  1.7725, -3.5449])
    """

    def value(v: Any) -> Any:
        left = v < 0.5
        z = te.minimum(te.where(left, 1 - v, v), 200)  # where it is infinite
        t = z + (G - 0.5)
        half = t ** ((z - 0.5) * 0.5)  # its square may be infinite where the whole is not
        whole = math.sqrt(2 * math.pi) * half * te.exp(-t) * half * _series(z)
        turn = te.where(left, v - 2 * te.round(v * 0.5), 0.25)
        reflected = te.where(v == te.round(v), te.where(v == 0, 1 / v, math.nan), math.pi / (te.sin(math.pi * turn) * whole))
        return te.where(left, reflected, whole)

    return real_function("gamma", value, x)


def _betaln_slope(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> list[te.Tensor | None]:
    def toward(own: te.Tensor) -> te.Tensor | None:
        if not own.dtype.is_float:
            return None
        whole = pointwise("betaln_bar", lambda a, b, v, h: h * (te.digamma(v) - te.digamma(a + b)), *inputs, own, head)
        return summed_to(whole, own.shape, own.dtype)

    return [toward(x) for x in inputs]


@te.op(gradient=_betaln_slope)
def betaln(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """The logarithm of `beta`, of positive numbers, without cancellation where they are large; NaN of others.

    >>> kernels.betaln(np.array([2.0, 1e6]), np.array([3.0, 1e6])).round(4)
    array([-2.4849e+00, -1.3863e+06])
    """
    return pointwise("betaln", lambda a, b: _as_given(_log_beta, a, b), x, y)


@te.op
def beta(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`gamma(x) gamma(y) / gamma(x + y)` of positive numbers; NaN of others.

    >>> kernels.beta(np.array([2.0, 0.5]), np.array([3.0, 0.5])).round(4)
    array([0.0833, 3.1416])
    """
    return pointwise("beta", te.exp, betaln(x, y))


def _as_given(function: Any, *values: Any) -> Any:
    """A function of several numbers in the dtype that they have together."""
    together = values[0]
    for value in values[1:]:
        together = together + value  # for its dtype
    kind = together.dtype if together.dtype.is_float else te.dtype("float64")
    return te.cast(function(*(wide(te.cast(value, kind)) for value in values)), kind)


def _log_beta(p: Any, q: Any) -> Any:
    defined = (p > 0) & (q > 0)
    a, b = (te.where(defined, v, 1) for v in (te.maximum(p, q), te.minimum(p, q)))
    far, near = a + b + (G - 0.5), b + (G - 0.5)
    series = te.log(_series(a) / _series(a + b) * _series(b)) + 0.5 * te.log(2 * math.pi / near) + (0.5 - G)
    return te.where(defined, series + (a - 0.5) * te.log1p(-b / far) + b * te.log(near / far), math.nan)


@te.op
def multigammaln(x: te.Tensor, *, p: int) -> te.Tensor:
    """The logarithm of the gamma function of `p` dimensions: `p (p - 1) / 4 log(pi)` and the sum over j < p of `lgamma(x - j / 2)`.

    >>> kernels.multigammaln(np.array([2.0, 3.0]), p=2).round(4)
    array([0.4516, 1.5502])
    """
    at_least("p", p, 1)

    def value(v: Any) -> Any:
        total = te.lgamma(v) + p * (p - 1) / 4 * math.log(math.pi)
        for j in range(1, p):
            total = total + te.lgamma(v - j / 2)
        return total

    return real_function("multigammaln", value, x)


@te.op
def comb(n: te.Tensor, k: te.Tensor) -> te.Tensor:
    """How many choices of `k` out of `n` there are, as a floating number: exact for integers up to about 1e13; 0 unless 0 <= k <= n.

    >>> kernels.comb(np.array([5, 10]), np.array([2, 3]))
    array([ 10., 120.])
    """

    whole = not (n.dtype.is_float or k.dtype.is_float)

    def inside(p: Any, q: Any) -> Any:
        return (q >= 0) & (q <= p)

    def above(p: Any, q: Any, first: bool) -> Any:
        together = p + q  # for its dtype
        kind = together.dtype if together.dtype.is_float else te.dtype("float64")
        rest, taken = te.where(inside(p, q), p - q, 1), te.where(inside(p, q), q, 0)
        return te.cast(rest if first else taken, kind) + 1

    logs = betaln(*(pointwise("comb", lambda p, q, first=first: above(p, q, first), n, k) for first in (True, False)))

    def choices(p: Any, q: Any, log: Any) -> Any:
        own = te.where(inside(p, q), p, 1)
        found = te.exp(-log) / (te.cast(own, log.dtype) + 1)
        nothing = te.where(te.isnan(te.cast(p, log.dtype) + te.cast(q, log.dtype)), math.nan, 0)
        return te.where(inside(p, q), te.round(found) if whole else found, nothing)

    return pointwise("comb", choices, n, k, logs)
