"""Circular functions: sin, cos, tan, asin, acos, atan, atan2.

x = n pi/2 + r + t with pi/2 in three parts: the first fused step is exact, and what the second loses goes into the tail t,
so r + t is right to more bits than the result has, however close x comes to a multiple of pi/2. That holds for |x|
below `_LIMIT`; where any lane is beyond (or not a number), a cold path takes those lanes apart by `turns`.
"""

from __future__ import annotations

from tensorexpr.codegen.llvm.math.core import absolute, add, div, fma, keep_tiny, mul, nearest, neg, polynomial, sub, width, with_sign
from tensorexpr.codegen.llvm.math.turns import turns
from tensorexpr.codegen.llvm.text.builder import Builder
from tensorexpr.codegen.llvm.text.values import Value, literal

_LIMIT = {"float": 1e5, "double": 1e6}


def _reduced(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """r, its tail t, and the integer n of x = n pi/2 + r + t."""
    high, middle, low = width(x).table["half_pi"]
    whole, n = nearest(b, x, width(x).table["two_over_pi"][0])
    first = fma(b, whole, -high, x)
    step = mul(b, whole, middle)
    r = sub(b, first, step)
    lost = fma(b, whole, middle, neg(b, step))
    tail = sub(b, sub(b, sub(b, first, r), step), fma(b, whole, low, lost))
    far = b.negation(b.compare("fcmp olt", absolute(b, x), _LIMIT[x.type]))
    before, slow, after = b.block, b.name("slow"), b.name("after")
    b.branch(b.any(far), slow, after)
    b.begin(slow)
    chosen = [b.select(far, exact, plain) for exact, plain in zip(turns(b, x), (r, tail, n), strict=True)]
    b.jump(after)
    b.begin(after)
    r, tail, n = (b.phi([(plain, before), (other, slow)]) for plain, other in zip((r, tail, n), chosen, strict=True))
    return r, tail, n


def _sine(b: Builder, r: Value, tail: Value, z: Value) -> Value:
    return add(b, r, fma(b, mul(b, r, z), polynomial(b, "sin", z), mul(b, tail, fma(b, z, -0.5, 1.0))))


def _cosine(b: Builder, r: Value, tail: Value, z: Value) -> Value:
    half = mul(b, z, 0.5)
    head = sub(b, 1.0, half)
    rest = fma(b, mul(b, z, z), polynomial(b, "cos", z), neg(b, mul(b, r, tail)))
    return add(b, head, add(b, sub(b, sub(b, 1.0, head), half), rest))


def _flipped(b: Builder, value: Value, flag: Value) -> Value:
    """The value, negated where bit 1 of the flag is set."""
    w = width(value)
    sign = b.op("shl", b.op("and", flag, 2), w.digits + w.bias.bit_length())
    return b.convert("bitcast", b.op("xor", b.convert("bitcast", value, w.bits), sign), w.type)


def _wave(b: Builder, x: Value, quarter: int) -> Value:
    """sin(x + quarter * pi/2)."""
    r, tail, n = _reduced(b, x)
    z = mul(b, r, r)
    n = b.op("add", n, quarter) if quarter else n
    odd = b.compare("icmp ne", b.op("and", n, 1), 0)
    return _flipped(b, b.select(odd, _cosine(b, r, tail, z), _sine(b, r, tail, z)), n)


def sin(b: Builder, x: Value) -> Value:
    return keep_tiny(b, x, _wave(b, x, 0))


def cos(b: Builder, x: Value) -> Value:
    return _wave(b, x, 1)


def tan(b: Builder, x: Value) -> Value:
    r, tail, n = _reduced(b, x)
    z = mul(b, r, r)
    sine, cosine = _sine(b, r, tail, z), _cosine(b, r, tail, z)
    odd = b.compare("icmp ne", b.op("and", n, 1), 0)
    quotient = div(b, b.select(odd, cosine, sine), b.select(odd, sine, cosine))
    return keep_tiny(b, x, b.select(odd, neg(b, quotient), quotient))


def _arc(b: Builder, name: str, t: Value) -> Value:
    """t + t^3 P(t^2)."""
    z = mul(b, t, t)
    return fma(b, mul(b, t, z), polynomial(b, name, z), t)


def _from_constant(b: Builder, name: str, value: Value) -> Value:
    """pi or pi/2 minus the value, with the constant in two parts."""
    high, low = width(value).table[name][:2]
    return sub(b, high, sub(b, value, low))


def atan(b: Builder, x: Value) -> Value:
    a = absolute(b, x)
    steep = b.compare("fcmp ogt", a, 1.0)
    angle = _arc(b, "atan", b.select(steep, div(b, 1.0, a), a))
    return with_sign(b, b.select(steep, _from_constant(b, "half_pi", angle), angle), x)


def atan2(b: Builder, y: Value, x: Value) -> Value:
    w = width(x)
    across, up = absolute(b, x), absolute(b, y)
    steep = b.compare("fcmp ogt", up, across)
    low, high = b.select(steep, across, up), b.select(steep, up, across)
    ratio = div(b, low, high)
    ratio = b.select(b.compare("fcmp oeq", high, 0.0), 0.0, ratio)
    ratio = b.select(b.compare("fcmp oeq", low, float("inf")), 1.0, ratio)
    angle = _arc(b, "atan", ratio)
    angle = b.select(steep, _from_constant(b, "half_pi", angle), angle)
    behind = b.compare("icmp slt", b.convert("bitcast", x, w.bits), 0)
    angle = b.select(behind, _from_constant(b, "pi", angle), angle)
    return with_sign(b, b.select(b.compare("fcmp uno", x, y), literal(float("nan"), x.type), angle), y)


def _half_arc(b: Builder, a: Value) -> Value:
    """asin(sqrt((1 - a) / 2)), for a in [0.5, 1]."""
    return _arc(b, "asin", b.intrinsic("sqrt", fma(b, a, -0.5, 0.5)))


def asin(b: Builder, x: Value) -> Value:
    a = absolute(b, x)
    far = _half_arc(b, a)
    result = b.select(b.compare("fcmp ole", a, 0.5), _arc(b, "asin", a), _from_constant(b, "half_pi", add(b, far, far)))
    return with_sign(b, result, x)


def acos(b: Builder, x: Value) -> Value:
    a = absolute(b, x)
    near = _from_constant(b, "half_pi", _arc(b, "asin", x))
    far = _half_arc(b, a)
    double = add(b, far, far)
    outer = b.select(b.compare("fcmp olt", x, 0.0), _from_constant(b, "pi", double), double)
    return b.select(b.compare("fcmp ole", a, 0.5), near, outer)
