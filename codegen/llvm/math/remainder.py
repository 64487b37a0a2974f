"""The remainder of a division that truncates (C's fmod), exact for all floating numbers.

While the quotient q = a / b of magnitudes is below 2^(digits - 1), trunc(q) is the integer wanted or the next, and a - trunc(q) b
is a number of the format either way: one fused step has it without error, and b is added where it fell below zero. Where
some lane's quotient is larger, a loop in a function of its own first takes off multiples of b 2^k, k chosen so
that the quotient is as large as one step allows: a loses `digits - 2` bits each time.
"""

from __future__ import annotations

from tensorexpr.codegen.llvm.math.core import absolute, div, fma, neg, scale, width, with_sign
from tensorexpr.codegen.llvm.text.builder import Builder
from tensorexpr.codegen.llvm.text.values import Value, literal, mangle


def fmod(b: Builder, x: Value, y: Value) -> Value:
    """x - trunc(x / y) y, with the sign of x; NaN where x is infinite or y is 0."""
    x, y = b.unify(x, y)
    dividend, divisor = absolute(b, x), absolute(b, y)
    ratio = div(b, dividend, divisor)
    found = _step(b, dividend, divisor, ratio)
    # Also what is not a number, or divides by 0.
    far = b.negation(b.compare("fcmp olt", ratio, 2.0 ** (width(x).digits - 1)))
    before, slow, after = b.block, b.name("slow"), b.name("after")
    b.branch(b.any(far), slow, after)
    b.begin(slow)
    symbol = f"te.remainder.{mangle(x)}"
    b.module.helper(symbol, lambda: _function(b, symbol, x))
    whole = b.emit(f"call {x.full_type} @{symbol}({dividend.typed}, {divisor.typed})", x.type, x.lanes)
    chosen = b.select(far, whole, found)
    b.jump(after)
    b.begin(after)
    return with_sign(b, b.phi([(found, before), (chosen, slow)]), x)


def _step(b: Builder, dividend: Value, divisor: Value, ratio: Value) -> Value:
    """The remainder of magnitudes whose ratio is small enough."""
    rest = fma(b, neg(b, b.intrinsic("trunc", ratio)), divisor, dividend)
    rest = b.select(b.compare("fcmp olt", rest, 0.0), b.op("fadd", rest, divisor), rest)
    # An infinite divisor takes nothing off.
    return b.select(b.compare("fcmp olt", dividend, divisor), dividend, rest)


def _exponent(b: Builder, x: Value) -> Value:
    """The exponent of a positive number, as if denormals were normal."""
    w = width(x)
    lift = w.digits + 1
    small = b.compare("fcmp olt", x, w.least_normal)
    bits = b.convert("bitcast", b.select(small, b.op("fmul", x, 2.0**lift), x), w.bits)
    return b.op("sub", b.op("lshr", bits, w.digits), b.select(small, literal(w.bias + lift, w.bits), literal(w.bias, w.bits)))


def _function(outer: Builder, symbol: str, like: Value) -> str:
    b = Builder(outer.module)
    w = width(like)
    dividend, divisor = Value("%dividend", like.type, like.lanes), Value("%divisor", like.type, like.lanes)
    finite = b.compare("fcmp olt", dividend, float("inf"))
    valid = b.op("and", finite, b.compare("fcmp ogt", divisor, 0.0))
    # Lanes without a remainder take no part in the loop.
    start = b.select(valid, dividend, 0.0)
    base = b.select(valid, divisor, 1.0)
    base_exponent = _exponent(b, base)
    b.jump("loop")
    b.begin("loop")
    left = Value("%left", like.type, like.lanes)
    at = len(b.lines)
    shift = b.op("sub", b.op("sub", _exponent(b, left), base_exponent), w.digits - 1)
    shift = b.intrinsic("smax", shift, 0)
    multiple = scale(b, base, b.convert("sitofp", shift, base.type), shift)
    rest = _step(b, left, multiple, div(b, left, multiple))
    b.lines.insert(at, f"  {left.text} = phi {left.full_type} [ {start.text}, %entry ], [ {rest.text}, %loop ]")
    b.branch(b.any(b.compare("fcmp oge", rest, base)), "loop", "done")
    b.begin("done")
    result = b.select(valid, rest, literal(float("nan"), like.type))
    b.line(f"ret {result.typed}")
    header = f"define internal {like.full_type} @{symbol}({dividend.typed}, {divisor.typed}) nounwind cold noinline"
    return b.function(header)
