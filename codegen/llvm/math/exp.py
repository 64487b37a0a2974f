"""Exponentials and what is made of them: exp, exp2, expm1, sinh, cosh, tanh, sigmoid, erf.

exp(x) = 2^k (1 + r + r^2 P(r)) with x = k ln 2 + r, |r| <= ln(2) / 2: two fused steps take k ln 2 off without error. The
argument is clamped to where the result is neither 0 nor infinite for good, so k stays in range; NaN passes the clamps. A result that is 0
is no product: one that underflows takes 25 times as long as others (measured on AVX-512), and every softmax under a mask is full of them.

Accuracy in ULP over the whole range (tested): see `functions`.
"""

from __future__ import annotations

from tensorexpr.codegen.llvm.math.core import (
    absolute,
    add,
    at_least,
    at_most,
    blended_polynomial,
    div,
    fma,
    keep_tiny,
    masked,
    mul,
    nearest,
    neg,
    polynomial,
    power_of_two,
    scale,
    scale_normal,
    sub,
    width,
    with_sign,
)
from tensorexpr.codegen.llvm.text.builder import Builder
from tensorexpr.codegen.llvm.text.values import Value

# Beyond these exp is 0 (half of the least number, or less: ln 2 times -150 and -1075) and infinite.
_LEAST = {"float": -103.97208, "double": -745.1332191019412}
_GREATEST = {"float": 89.0, "double": 710.0}


def _reduced(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """r and the integer k of x = k ln 2 + r, k as a float and as an integer."""
    high, low = width(x).table["ln2"]
    whole, k = nearest(b, x, width(x).table["log2e"][0])
    return fma(b, whole, -low, fma(b, whole, -high, x)), whole, k


def _exp_of_reduced(b: Builder, r: Value) -> Value:
    """exp(r) near 0."""
    return add(b, fma(b, mul(b, r, r), polynomial(b, "exp", r), r), 1.0)


def exp(b: Builder, x: Value) -> Value:
    return _zero_below(b, x, at_most(b, x, _GREATEST[x.type]))


def _zero_below(b: Builder, x: Value, clamped: Value) -> Value:
    """exp(x), of x clamped from above."""
    some = b.compare("fcmp uge", x, _LEAST[x.type])
    r, whole, k = _reduced(b, b.select(some, clamped, 0.0))
    return b.select(some, scale(b, _exp_of_reduced(b, r), whole, k), 0.0)


def _exp_of_negative(b: Builder, x: Value) -> Value:
    """exp(x) for x <= 0."""
    return _zero_below(b, x, x)


def exp2(b: Builder, x: Value) -> Value:
    limits = (-151.0, 129.0) if x.type == "float" else (-1076.0, 1025.0)
    x = at_most(b, at_least(b, x, limits[0]), limits[1])
    whole, k = nearest(b, x, 1.0)
    r = sub(b, x, whole)
    return scale(b, fma(b, r, polynomial(b, "exp2", r), 1.0), whole, k)


def expm1(b: Builder, x: Value) -> Value:
    clamped = at_most(b, at_least(b, x, -26.0 if x.type == "float" else -56.0), _GREATEST[x.type])
    return keep_tiny_exactly(b, x, _expm1(b, clamped))


def keep_tiny_exactly(b: Builder, x: Value, result: Value) -> Value:
    """x where x + x^2 / 2 rounds to x."""
    limit = 2.0 ** -(width(x).digits + 2)
    return b.select(b.compare("fcmp olt", absolute(b, x), limit), x, result)


def _expm1(b: Builder, x: Value) -> Value:
    """2^k p + (2^k - 1) with p = exp(r) - 1, halved on the way so that 2^k does not overflow before the result does."""
    r, _, k = _reduced(b, x)
    p = fma(b, mul(b, r, r), polynomial(b, "exp", r), r)
    half = power_of_two(b, width(x), b.op("sub", k, 1))
    return mul(b, fma(b, half, p, sub(b, half, 0.5)), 2.0)


def _half_exp(b: Builder, a: Value) -> Value:
    """exp(a) / 2 for a >= 0: infinite only where that is."""
    r, whole, k = _reduced(b, at_most(b, a, 1.0 + _GREATEST[a.type]))
    return scale(b, _exp_of_reduced(b, r), sub(b, whole, 1.0), b.op("sub", k, 1))


def cosh(b: Builder, x: Value) -> Value:
    half = _half_exp(b, absolute(b, x))
    return add(b, half, div(b, 0.25, half))


def sinh(b: Builder, x: Value) -> Value:
    a = absolute(b, x)
    half = _half_exp(b, a)
    large = sub(b, half, div(b, 0.25, half))
    z = mul(b, a, a)
    small = fma(b, mul(b, a, z), polynomial(b, "sinh", z), a)
    return with_sign(b, b.select(b.compare("fcmp olt", a, 1.0), small, large), x)


# Below this tanh is a polynomial in float32.
_TANH_SMALL = 0.55


def tanh(b: Builder, x: Value) -> Value:
    a = absolute(b, x)
    if x.type == "double":
        # Through expm1, whose relative error near 0 is as small as elsewhere.
        e = _expm1(b, at_most(b, add(b, a, a), 44.0))
        return keep_tiny(b, x, with_sign(b, div(b, e, add(b, e, 2.0)), x))
    if masked(b, x):
        return with_sign(b, _tanh_blended(b, a), x)
    r, whole, k = _reduced(b, at_most(b, add(b, a, a), 20.0))
    e = scale_normal(b, _exp_of_reduced(b, r), whole, k)
    large = sub(b, 1.0, div(b, 2.0, add(b, e, 1.0)))
    z = mul(b, x, x)
    small = fma(b, mul(b, a, z), polynomial(b, "tanh", z), a)
    return with_sign(b, b.select(b.compare("fcmp olt", a, _TANH_SMALL), small, large), x)


def _tanh_blended(b: Builder, a: Value) -> Value:
    """The same bits for a >= 0 by one sequence of multiply-adds: 13 instructions that multiply, compare or divide, for 19.

    Both branches are r + r u P(u): tanh(a) where r = a and u = r^2, and (exp(2 a) 2^-k - 1) / 2 where r = a - k ln(2) / 2
    and u = r. Constants that differ by a power of two from those above round alike.
    """
    table = width(a).table
    small = b.compare("fcmp olt", a, _TANH_SMALL)
    c = at_most(b, a, 10.0)
    high, low = table["ln2"]
    whole, k = nearest(b, c, 2.0 * table["log2e"][0])
    whole = b.select(small, 0.0, whole)
    r = fma(b, whole, -low / 2, fma(b, whole, -high / 2, c))
    u = b.select(small, mul(b, r, r), r)
    doubled = [c * 2.0 ** (n + 1) for n, c in enumerate(table["exp"])]
    f = fma(b, mul(b, r, u), blended_polynomial(b, small, table["tanh"], doubled, u), r)
    half = scale_normal(b, add(b, f, 0.5), whole, k)
    return b.select(small, f, sub(b, 1.0, div(b, 1.0, add(b, half, 0.5))))


def sigmoid(b: Builder, x: Value) -> Value:
    e = _exp_of_negative(b, neg(b, absolute(b, x)))
    top = b.select(b.compare("fcmp oge", x, 0.0), 1.0, e)
    return div(b, top, add(b, e, 1.0))


# Where erf rounds to 1, and below what it is a polynomial.
_ERF_ONE = {"float": 4.0, "double": 5.95}
_ERF_SMALL = 0.92


def erf(b: Builder, x: Value) -> Value:
    """x + x P(x^2) below 0.92, 1 - exp(-x Q(x)) above."""
    a = absolute(b, x)
    small = b.compare("fcmp olt", a, _ERF_SMALL)
    c = at_most(b, a, _ERF_ONE[x.type])
    if masked(b, x):
        # One polynomial for both, and one product: c P + c or c Q + 0.
        table = width(x).table
        u = b.select(small, mul(b, c, c), c)
        low = product = fma(b, c, blended_polynomial(b, small, table["erf_low"], table["erf_high"], u), b.select(small, c, 0.0))
    else:
        low = fma(b, a, polynomial(b, "erf_low", mul(b, x, x)), a)
        product = mul(b, c, polynomial(b, "erf_high", c))
    r, whole, k = _reduced(b, neg(b, product))
    e = scale_normal(b, _exp_of_reduced(b, r), whole, k)
    return with_sign(b, b.select(small, low, sub(b, 1.0, e)), x)
