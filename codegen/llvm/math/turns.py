"""Huge angles taken apart exactly (Payne and Hanek): x = n pi/2 + r + t for any x, as the circular functions want it.

x = m 2^e with an integer m of 53 bits. Of x * 2/pi only what is below 4 counts, so of the bits of 2/pi only those from place
e - 1 on: 192 of them, cut out of a table, times m, modulo 2^192. The two top bits of the product are n, and the
rest, which keeps 64 good bits in the worst case (a double comes as close as 2^-62 to a multiple of pi/2), is r + t in two
doubles. A float is a double here. All of it is vector arithmetic; it stands in a function of its own, apart from
the loops, which come here when some lane is beyond the reach of the plain reduction.
"""

from __future__ import annotations

from tensorexpr.codegen.llvm.math.core import add, fma, mul, neg, sub, width
from tensorexpr.codegen.llvm.math.tables import TWO_OVER_PI
from tensorexpr.codegen.llvm.text.builder import Builder
from tensorexpr.codegen.llvm.text.values import Value, literal, mangle

_LOW = (1 << 32) - 1
_TABLE = "te.two_over_pi"


def turns(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """r, t and n of x = n pi/2 + r + t, |r| <= pi/4, by a call; NaN for what is not finite. n counts modulo 4."""
    w = width(x)
    symbol = f"te.turns.{mangle(x)}"
    number = Value("", w.bits, x.lanes).full_type
    result = f"{{ {x.full_type}, {x.full_type}, {number} }}"
    b.module.helper(symbol, lambda: _function(b, symbol, x, result))
    found = b.emit(f"call {result} @{symbol}({x.typed})", x.type).text
    r = b.emit(f"extractvalue {result} {found}, 0", x.type, x.lanes)
    tail = b.emit(f"extractvalue {result} {found}, 1", x.type, x.lanes)
    return r, tail, b.emit(f"extractvalue {result} {found}, 2", w.bits, x.lanes)


def _function(outer: Builder, symbol: str, like: Value, result: str) -> str:
    words = ", ".join(f"i64 {literal(word, 'i64').text}" for word in TWO_OVER_PI)
    outer.module.helper(_TABLE, lambda: f"@{_TABLE} = internal constant [{len(TWO_OVER_PI)} x i64] [{words}], align 64")
    b = Builder(outer.module)
    x = Value("%x", like.type, like.lanes)
    if x.type == "double":
        r, tail, n = _reduced(b, x)
    else:
        wide, rest, n = _reduced(b, b.convert("fpext", x, "double"))
        r = b.convert("fptrunc", wide, "float")
        tail = b.convert("fptrunc", add(b, sub(b, wide, b.convert("fpext", r, "double")), rest), "float")
        n = b.convert("trunc", n, "i32")
    whole = "poison"
    for place, part in enumerate((r, tail, n)):
        whole = b.emit(f"insertvalue {result} {whole}, {part.typed}, {place}", x.type).text
    b.line(f"ret {result} {whole}")
    return b.function(f"define internal {result} @{symbol}({x.typed}) nounwind cold noinline")


def _word(b: Builder, place: Value) -> Value:
    """Words of the table, lane by lane."""
    pointers = b.emit(f"getelementptr i64, ptr @{_TABLE}, {place.typed}", "ptr", place.lanes)
    if place.lanes == 1:
        return b.emit(f"load i64, ptr {pointers.text}, align 8", "i64")
    n = place.lanes
    mask, rest = f"<{n} x i1> splat (i1 true)", f"<{n} x i64> zeroinitializer"
    return b.emit(f"call <{n} x i64> @llvm.masked.gather.v{n}i64.v{n}p0(<{n} x ptr> align 8 {pointers.text}, {mask}, {rest})", "i64", n)


def _high_product(b: Builder, x: Value, y: Value) -> Value:
    """The upper half of a product of unsigned 64-bit numbers, by four products of halves."""
    (x0, x1), (y0, y1) = ((b.op("and", v, _LOW), b.op("lshr", v, 32)) for v in (x, y))
    across, back = b.op("mul", x0, y1), b.op("mul", x1, y0)
    middle = b.op("add", b.op("lshr", b.op("mul", x0, y0), 32), b.op("and", across, _LOW))
    middle = b.op("add", middle, b.op("and", back, _LOW))
    high = b.op("add", b.op("mul", x1, y1), b.op("lshr", across, 32))
    return b.op("add", b.op("add", high, b.op("lshr", back, 32)), b.op("lshr", middle, 32))


def _reduced(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """r, t and n of a double."""
    w = width(x)
    bits = b.convert("bitcast", x, "i64")
    size = b.op("and", bits, (1 << 63) - 1)
    mantissa = b.op("or", b.op("and", size, (1 << w.digits) - 1), 1 << w.digits)
    # The table begins with 64 zeros, so place e - 1 of 2/pi is e + 62 there; lanes that are near are only kept inside.
    exponent = b.op("sub", b.op("lshr", size, w.digits), w.bias + w.digits)
    place = b.intrinsic("smax", b.op("add", exponent, 62), 0)
    first, shift = b.op("lshr", place, 6), b.op("and", place, 63)
    words = [_word(b, b.op("add", first, k)) for k in range(4)]
    top, middle, low = (b.intrinsic("fshl", words[k], words[k + 1], shift) for k in range(3))
    plain = b.op("mul", mantissa, middle)
    below = b.op("add", plain, _high_product(b, mantissa, low))
    carry = b.convert("zext", b.compare("icmp ult", below, plain), "i64")
    above = b.op("add", b.op("add", b.op("mul", mantissa, top), _high_product(b, mantissa, middle)), carry)
    n = b.op("lshr", b.op("add", above, 1 << 61), 62)
    above = b.op("sub", above, b.op("shl", n, 62))
    # The fraction as a magnitude (its complement is one unit of 2^-126 off) in three pieces that doubles hold exactly.
    negative = b.op("ashr", above, 63)
    above, below = b.op("xor", above, negative), b.op("xor", below, negative)
    head = b.convert("sitofp", b.op("and", above, ~_LOW), "double")
    next_ = b.convert("sitofp", b.op("and", above, _LOW), "double")
    last = mul(b, b.convert("sitofp", b.op("lshr", below, 12), "double"), 2.0**-52)
    total = add(b, head, next_)
    rest = add(b, sub(b, next_, sub(b, total, head)), last)
    high = add(b, total, rest)
    rest = sub(b, rest, sub(b, high, total))
    angle, angle_rest = (c * 2.0**-62 for c in w.table["half_pi"][:2])
    r = mul(b, high, angle)
    tail = add(b, fma(b, high, angle, neg(b, r)), fma(b, high, angle_rest, mul(b, rest, angle)))
    sign = b.op("and", b.op("xor", bits, negative), -1 << 63)
    r, tail = (b.convert("bitcast", b.op("xor", b.convert("bitcast", v, "i64"), sign), "double") for v in (r, tail))
    backwards = b.compare("icmp slt", bits, 0)
    # x - x is NaN for what is not finite, and else 0.
    return add(b, r, sub(b, x, x)), tail, b.select(backwards, b.op("sub", literal(0, "i64"), n), n)
