"""Logarithms and float32 powers: log, log2, log1p, pow.

x = 2^k m with m in [2/3, 4/3), found by subtracting the bits of 2/3 and keeping the exponent; f = m - 1. In float32 the
logarithm of 1 + f is a polynomial; in float64 one in s^2, s = f / (2 + f), as in fdlibm. Denormals are scaled up first.

float32 pow runs in float64 throughout, where 2^(y log2 |x|) to 36 bits is enough for half an ULP. float64 pow carries
log2 |x| in two doubles.
"""

from __future__ import annotations

from tensorexpr.codegen.llvm.math.core import (
    absolute,
    add,
    at_least,
    at_most,
    div,
    fma,
    mul,
    nearest,
    neg,
    polynomial,
    scale,
    scale_normal,
    sub,
    width,
)
from tensorexpr.codegen.llvm.text.builder import Builder
from tensorexpr.codegen.llvm.text.values import Operand, Value, literal

_INFINITY = float("inf")
_NAN = float("nan")
LONGEST = 32
"""The largest whole exponent that is multiplied out: five squares, and at most five products."""
PRODUCTS = {3: 1.3, 4: 1.95, **{n: n - 1.5 for n in range(5, 17)}, **{-n: 2.0 * n - 1 for n in range(1, 17)}}
"""Exponents of products in the own type of x, or of 1 / x, which cost what products that are written out do, and how far from the exact
result these may round in ULP: that of each factor x but two may have been rounded by one unit of the result, the last product is by half
of one; each factor 1 / x is rounded, too."""

ROOTS = {-2.5: 10.0, -1.5: 6.0, -0.5: 1.5, 0.5: 0.5, 1.5: 1.5, 2.5: 2.5}
"""Exponents of products with a square root, or with one over it, and how far these may round in ULP."""


def _decomposed(b: Builder, x: Value) -> tuple[Value, Value]:
    """k as a float, and f = m - 1, for positive finite x."""
    w = width(x)
    small = b.compare("fcmp olt", x, w.least_normal)
    lift = w.digits + 2
    bits = b.convert("bitcast", b.select(small, mul(b, x, 2.0**lift), x), w.bits)
    k = b.op("ashr", b.op("sub", bits, w.as_bits(2 / 3)), w.digits)
    m = b.convert("bitcast", b.op("sub", bits, b.op("shl", k, w.digits)), w.type)
    exponent = b.op("add", k, b.select(small, literal(-lift, w.bits), literal(0, w.bits)))
    if w.bits == "i64":
        exponent = b.convert("trunc", exponent, "i32")
    return b.convert("sitofp", exponent, w.type), sub(b, m, 1.0)


def _with_specials(b: Builder, x: Value, result: Value) -> Value:
    """The result for positive finite x; minus infinity at 0, infinity at infinity, NaN below 0 and for NaN."""
    zero = b.compare("fcmp oeq", x, 0.0)
    special = b.select(zero, -_INFINITY, b.select(b.compare("fcmp ogt", x, 0.0), x, literal(_NAN, x.type)))
    regular = b.op("and", b.compare("fcmp ogt", x, 0.0), b.compare("fcmp olt", x, _INFINITY))
    return b.select(regular, result, special)


def _natural(b: Builder, x: Value, correction: Value | None) -> Value:
    """log(x) for positive finite x, plus a small correction."""
    k, f = _decomposed(b, x)
    high, low = width(x).table["ln2"]
    square = mul(b, f, f)
    if x.type == "float":
        rest = fma(b, k, low, fma(b, mul(b, f, square), polynomial(b, "log", f), mul(b, square, -0.5)))
        if correction is not None:
            rest = add(b, rest, correction)
        return fma(b, k, high, add(b, f, rest))
    half, product = _atanh_parts(b, f, square)
    tail = fma(b, k, low, product)
    if correction is not None:
        tail = add(b, tail, correction)
    return fma(b, k, high, sub(b, f, sub(b, half, tail)))


def _atanh_parts(b: Builder, f: Value, square: Value) -> tuple[Value, Value]:
    """h = f^2 / 2 and q = s (h + s^2 P(s^2)): log(1 + f) = f - (h - q)."""
    s = div(b, f, add(b, f, 2.0))
    z = mul(b, s, s)
    half = mul(b, square, 0.5)
    return half, mul(b, s, fma(b, z, polynomial(b, "atanh", z), half))


def log(b: Builder, x: Value) -> Value:
    return _with_specials(b, x, _natural(b, x, None))


def log1p(b: Builder, x: Value) -> Value:
    """log(u) + e / u with u = 1 + x rounded and e what the rounding lost."""
    u = add(b, x, 1.0)
    lost = b.select(b.compare("fcmp oge", x, 1.0), sub(b, 1.0, sub(b, u, x)), sub(b, x, sub(b, u, 1.0)))
    result = _with_specials(b, u, _natural(b, u, div(b, lost, u)))
    return b.select(b.compare("fcmp olt", absolute(b, x), 2.0 ** -(width(x).digits + 2)), x, result)


def log2(b: Builder, x: Value) -> Value:
    k, f = _decomposed(b, x)
    high, low = width(x).table["log2e"]
    square = mul(b, f, f)
    if x.type == "float":
        rest = fma(b, square, polynomial(b, "log2", f), mul(b, f, low))
        return _with_specials(b, x, _compensated_sum(b, k, mul(b, f, high), fma(b, f, high, neg(b, mul(b, f, high))), rest))
    half, product = _atanh_parts(b, f, square)
    head = sub(b, f, half)
    tail = add(b, sub(b, sub(b, f, head), half), product)
    main = mul(b, head, high)
    rest = fma(b, tail, high, fma(b, head, low, fma(b, head, high, neg(b, main))))
    return _with_specials(b, x, add(b, add(b, k, main), add(b, add(b, sub(b, k, add(b, k, main)), main), rest)))


def _compensated_sum(b: Builder, k: Value, main: Value, error: Value, rest: Value) -> Value:
    """k + main + error + rest, where |k| > |main| or k = 0."""
    total = add(b, k, main)
    lost = add(b, sub(b, k, total), main)
    return add(b, total, add(b, lost, add(b, error, rest)))


def pow(b: Builder, x: Value, y: Value) -> Value:
    magnitude = _single_power(b, x, y) if x.type == "float" else _double_power(b, x, y)
    halved = mul(b, y, 0.5)
    integral = b.compare("fcmp oeq", b.intrinsic("floor", y), y)
    odd = b.op("and", integral, b.compare("fcmp une", b.intrinsic("floor", halved), halved))
    negative = b.compare("icmp slt", b.convert("bitcast", x, width(x).bits), 0)
    result = b.select(b.op("and", negative, odd), neg(b, magnitude), magnitude)
    below = b.op("and", b.compare("fcmp olt", x, 0.0), b.compare("fcmp ogt", x, -_INFINITY))
    undefined = b.op("and", below, b.negation(integral))
    result = b.select(b.op("or", undefined, b.compare("fcmp uno", x, y)), literal(_NAN, x.type), result)
    # 1 to any power, and -1 to an infinite one, is 1; so is anything to the power 0, NaN included.
    unit = b.op("and", b.compare("fcmp oeq", absolute(b, x), 1.0), b.compare("fcmp oeq", absolute(b, y), _INFINITY))
    one = b.op("or", b.compare("fcmp oeq", x, 1.0), b.compare("fcmp oeq", y, 0.0))
    return b.select(b.op("or", unit, one), 1.0, result)


def is_short_power(type_: str, exponent: float) -> bool:
    """Whether an exponent is a whole number up to which products are used: of its own type, or of doubles, as exact as a logarithm."""
    return exponent in PRODUCTS or (type_ == "float" and 0 < abs(exponent) <= LONGEST and exponent == int(exponent))


def whole_power(b: Builder, x: Value, exponent: int) -> Value:
    """x ** exponent by squares and products: of its own type (`PRODUCTS`), else of doubles for floats, to half an ULP.

    Products of 1 / x are in range wherever the power is, as those of x, which are divided by, are not.
    """
    wide = exponent not in PRODUCTS
    square, result, left = b.convert("fpext", x, "double") if wide else x, None, abs(exponent)
    if exponent < 0:
        square = div(b, literal(1.0, square.type), square)
    while True:
        if left & 1:
            result = square if result is None else mul(b, result, square)
        left >>= 1
        if not left:
            break
        square = mul(b, square, square)
    assert result is not None
    return b.convert("fptrunc", result, "float") if wide else result


def is_root(exponent: float) -> bool:
    """Whether a power is a root, one over it, or a product with it."""
    return exponent in ROOTS


def root_power(b: Builder, x: Value, exponent: float) -> Value:
    """x ** (n + 0.5) by the root and products in x's own type (`ROOTS`): +0 of both zeros, infinite of both infinities."""
    root = b.intrinsic("sqrt", add(b, x, 0.0))
    root = b.select(b.compare("fcmp oeq", x, -_INFINITY), _INFINITY, root)
    if exponent < 0:
        inverse = div(b, literal(1.0, x.type), root)
        return inverse if exponent == -0.5 else whole_power(b, inverse, int(-2 * exponent))
    whole = int(exponent - 0.5)
    factor = absolute(b, x)
    return mul(b, factor if whole == 1 else mul(b, factor, factor), root) if whole else root


def _single_power(b: Builder, x: Value, y: Value) -> Value:
    """|x| ** y for floats, through double."""
    base, exponent = b.convert("fpext", absolute(b, x), "double"), b.convert("fpext", y, "double")
    k, f = _decomposed(b, base)
    logarithm = _with_specials(b, base, fma(b, f, polynomial(b, "pow_log2", f), k))
    # Past these limits a float is 0 or infinite.
    power = at_most(b, at_least(b, mul(b, exponent, logarithm), -200.0), 200.0)
    whole, n = nearest(b, power, 1.0)
    r = sub(b, power, whole)
    double = scale_normal(b, fma(b, r, polynomial(b, "pow_exp2", r), 1.0), whole, n)
    return b.convert("fptrunc", double, "float")


Pair = tuple[Value, Value]  # a number as the sum of a value and a small rest


def _product(b: Builder, x: Pair, y: Pair) -> Pair:
    high = mul(b, x[0], y[0])
    lost = fma(b, x[0], y[0], neg(b, high))
    return high, fma(b, x[0], y[1], fma(b, x[1], y[0], lost))


def _sum(b: Builder, x: Operand, y: Pair) -> Pair:
    """x + y, where |x| is not below |y| or x is 0."""
    high = add(b, x, y[0])
    return high, add(b, add(b, sub(b, x, high), y[0]), y[1])


def _double_power(b: Builder, x: Value, y: Value) -> Value:
    """|x| ** y for doubles: log2 |x| in two parts, 2 s (1 + z / 3) + s z^2 P(z) of them with all digits twice."""
    base = absolute(b, x)
    k, f = _decomposed(b, base)
    below = add(b, f, 2.0)
    s = div(b, f, below)
    rest = sub(b, fma(b, neg(b, s), below, f), mul(b, s, sub(b, f, sub(b, below, 2.0))))
    ratio = (s, div(b, rest, below))
    square = _product(b, ratio, ratio)
    third, third_rest = (literal(c, "double") for c in width(x).table["two_thirds"])
    series = _sum(b, third, (mul(b, square[0], polynomial(b, "pow_atanh", square[0])), third_rest))
    natural = _product(b, ratio, _sum(b, literal(2.0, "double"), _product(b, square, series)))
    high, low = (literal(c, "double") for c in width(x).table["log2e"])
    binary = _sum(b, k, _product(b, natural, (high, low)))
    finite = b.op("and", b.compare("fcmp ogt", base, 0.0), b.compare("fcmp olt", base, _INFINITY))
    logarithm = (_with_specials(b, base, binary[0]), b.select(finite, binary[1], 0.0))
    power, lost = _product(b, (y, literal(0.0, "double")), logarithm)
    # Past these limits the result is 0 or infinite; an infinite power has no rest.
    inside = b.compare("fcmp olt", absolute(b, power), 1100.0)
    power = at_most(b, at_least(b, power, -1100.0), 1100.0)
    whole, n = nearest(b, power, 1.0)
    r = add(b, sub(b, power, whole), b.select(inside, lost, 0.0))
    return scale(b, fma(b, r, polynomial(b, "exp2", r), 1.0), whole, n)
