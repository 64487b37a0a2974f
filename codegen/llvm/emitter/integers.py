"""Integer operations as NumPy has them: floor division and modulo, shifts of any distance, wrapping powers.

No instruction here can trap: a zero divisor gives 0 and the least value divided by -1 wraps, both by dividing by a
divisor that was made safe first. For int64 (index arithmetic) what is known of the operands picks the cheap form: a
shift or a mask for powers of two, an unsigned division for a non-negative dividend, no division at all for a ramp
whose lanes all fall into one quotient.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from tensorexpr.codegen.llvm.text.builder import Builder
from tensorexpr.codegen.llvm.text.casts import register_type
from tensorexpr.codegen.llvm.text.values import Value, literal, ramp
from tensorexpr.dtypes import DType
from tensorexpr.ir import Apply, Const, Expr


def quotient_of(e: Expr) -> tuple[Expr, int]:
    """The dividend and the divisor, which is positive, of an index that is a quotient; else it, and 1."""
    match e:
        case Apply(args=(x, Const(value=int(divisor)))) if e.op.name == "floordiv" and divisor > 0:
            return x, divisor
    return e, 1


def without_digits(indices: Sequence[Expr], strides: Sequence[Value]) -> list[tuple[Expr, Value]]:
    """Indices with their strides, those that are the digits of one position as that position: `q // 12`, `q // 4 % 3`, `q % 4` by strides
    12, 4, 1 are `q`."""
    found = list(zip(indices, strides, strict=True))
    if not found or strides[-1].const != 1:
        return found
    for first in range(len(found) - 1):
        step = strides[first].const
        whole, divisor = quotient_of(indices[first])
        if step is None or divisor != step or divisor == 1:
            continue
        rest = [(indices[k], strides[k].const, strides[k - 1].const) for k in range(first + 1, len(found))]
        if all(own is not None and above is not None and _is_digit(e, whole, int(own), int(above)) for e, own, above in rest):
            return [*found[:first], (whole, strides[-1])]
    return found


def _is_digit(e: Expr, whole: Expr, stride: int, above: int) -> bool:
    """Whether an index is what `whole` has at this stride, below that of the axis above."""
    if not (isinstance(e, Apply) and e.op.name == "mod" and isinstance(e.args[1], Const)) or above % stride:
        return False
    return int(e.args[1].value) * stride == above and quotient_of(e.args[0]) == (whole, stride)


def floordiv(b: Builder, dtype: DType, x: Value, y: Value) -> Value:
    """x // y, rounding to minus infinity; 0 where y is 0."""
    return _divide(b, dtype, x, y, modulo=False)


def mod(b: Builder, dtype: DType, x: Value, y: Value) -> Value:
    """x % y with the sign of y; 0 where y is 0."""
    return _divide(b, dtype, x, y, modulo=True)


def _divide(b: Builder, dtype: DType, x: Value, y: Value, modulo: bool) -> Value:
    type_ = register_type(dtype)
    if y.const is not None and not y.stride:
        divisor = int(y.const) if dtype.is_signed or int(y.const) >= 0 else int(y.const) + (1 << dtype.bits)
        if divisor == 0:
            return literal(0, type_)
        if divisor == 1:
            return literal(0, type_) if modulo else x
        if divisor > 0 and x.const is not None and not x.stride:
            number = int(x.const) if dtype.is_signed or int(x.const) >= 0 else int(x.const) + (1 << dtype.bits)
            return literal(number % divisor if modulo else number // divisor, type_)
        if divisor > 0:
            return _by_constant(b, dtype, x, divisor, modulo)
    if not dtype.is_signed:
        zero = b.compare("icmp eq", y, 0)
        safe = b.select(zero, literal(1, type_), y)
        found = b.op("urem" if modulo else "udiv", x, safe)
        return b.select(zero, literal(0, type_), found)
    # A divisor of -1 is taken out with 0: the least value divided by -1 would trap. Negation wraps.
    zero, minus = b.compare("icmp eq", y, 0), b.compare("icmp eq", y, -1)
    safe = b.select(b.op("or", zero, minus), literal(1, type_), y)
    quotient = b.op("sdiv", x, safe)
    remainder = b.op("sub", x, b.op("mul", quotient, safe))
    wrong = b.op("and", b.compare("icmp ne", remainder, 0), b.compare("icmp slt", b.op("xor", remainder, safe), 0))
    if modulo:
        # With a divisor of 1 in place of 0 and -1 the remainder is 0, which is right for both.
        return b.select(wrong, b.op("add", remainder, safe), remainder)
    found = b.op("sub", quotient, b.convert("zext", wrong, type_))
    found = b.select(minus, b.op("sub", literal(0, type_), x), found)
    return b.select(zero, literal(0, type_), found)


def _by_constant(b: Builder, dtype: DType, x: Value, divisor: int, modulo: bool) -> Value:
    """Floor division or modulo by a constant above 1."""
    type_ = register_type(dtype)
    if not dtype.is_signed and (x.low is None or x.low < 0):
        x = b.vector(x, x.lanes)
        x = Value(x.text, x.type, x.lanes)  # what is known is said of its bits as a signed number
    low, high = x.low, x.high
    if low is not None and high is not None and (turns := low // divisor) == high // divisor and (not turns or type_ == "i64"):
        return (b.sub(x, turns * divisor) if turns else x) if modulo else literal(turns, type_)
    if x.stride:
        found = _ramp_by_constant(b, dtype, x, divisor, modulo)
        if found is not None:
            return found
        x = b.vector(x, x.lanes)
    low, high = x.low, x.high
    range_: tuple[int | None, int | None] = (0, divisor - 1) if divisor <= 1 << 63 else (None, None)
    if not modulo:
        range_ = (None if low is None else low // divisor, None if high is None else high // divisor)
    if modulo and x.lanes == 1 and x.multiple % divisor == 0:
        return literal(0, type_)
    if not dtype.is_signed or (low is not None and low >= 0):
        opcode = "urem" if modulo else "udiv"
        if divisor < 1 << 31:
            half = b.halved(lambda v: b.op(opcode, v, divisor), (x,), *range_)
            if half is not None:
                return half
        narrow = x.lanes > 1 and type_ == "i64" and high is not None and high < 1 << 31 and divisor < 1 << 31
        # There is no vector division, and no high half of a 64-bit vector product: 32 bits do where they hold the values.
        wide = b.convert("trunc", x, "i32") if narrow else x
        found = b.op(opcode, wide, divisor)
        found = b.convert("zext", found, "i64") if narrow else found
    elif divisor & (divisor - 1) == 0:
        found = b.op("and", x, divisor - 1) if modulo else b.op("ashr", x, divisor.bit_length() - 1)
    else:
        quotient = b.op("sdiv", x, divisor)
        remainder = b.op("sub", x, b.op("mul", quotient, divisor))
        wrong = b.op("ashr", remainder, dtype.bits - 1)
        found = b.op("add", remainder, b.op("and", wrong, divisor)) if modulo else b.op("add", quotient, wrong)
    if type_ != "i64" or range_[0] is None or range_[1] is None:
        return found
    multiple = 1
    if x.lanes == 1:
        multiple = gcd(x.multiple, divisor) if modulo else (x.multiple // divisor if x.multiple % divisor == 0 else 1)
    return Value(found.text, found.type, found.lanes, 0, None, range_[0], range_[1], multiple)


def _ramp_by_constant(b: Builder, dtype: DType, x: Value, divisor: int, modulo: bool) -> Value | None:
    """A ramp whose lanes share one quotient (then the remainder is a ramp), or whose stride the divisor divides."""
    base, common = x.base, gcd(x.multiple, divisor)
    reach = (x.lanes - 1) * x.stride
    if x.stride % divisor == 0:
        first = _divide(b, dtype, base, literal(divisor, "i64"), modulo)
        return first if modulo else b.add(first, ramp(x.lanes, x.stride // divisor))
    # base % divisor is a multiple of `common`: at most divisor - common, at least 0.
    if 0 <= reach < common:
        first = _divide(b, dtype, base, literal(divisor, "i64"), modulo)
        if not modulo:
            return first
        return Value(first.text, "i64", x.lanes, x.stride, first.const, 0, divisor - 1, first.multiple)
    return None


def shift(b: Builder, dtype: DType, x: Value, y: Value, left: bool) -> Value:
    """x << y or x >> y; beyond the width of the type what is left is 0, or -1 of a negative value."""
    type_ = register_type(dtype)
    small = b.compare("icmp ult", y, dtype.bits)
    distance = b.select(small, y, literal(0, type_))
    if left:
        return b.select(small, b.op("shl", x, distance), literal(0, type_))
    if not dtype.is_signed:
        return b.select(small, b.op("lshr", x, distance), literal(0, type_))
    return b.op("ashr", x, b.select(small, y, literal(dtype.bits - 1, type_)))


def power(b: Builder, dtype: DType, x: Value, y: Value) -> Value:
    """x ** y, wrapping; a negative power is 0 but for bases 1 and -1."""
    if y.const is not None and not y.stride and 0 <= int(y.const) <= 64:
        return _small_power(b, x, int(y.const))
    type_ = register_type(dtype)
    name = f"te.pow.{dtype.short}"
    b.module.helper(name, lambda: _power_function(name, type_, dtype.is_signed))
    return b.call(name, type_, x, y)


def _small_power(b: Builder, x: Value, exponent: int) -> Value:
    result: Value | None = None
    square = x
    while exponent:
        if exponent & 1:
            result = square if result is None else b.op("mul", result, square)
        exponent >>= 1
        if exponent:
            square = b.op("mul", square, square)
    return literal(1, x.type) if result is None else result


def _power_function(name: str, type_: str, signed: bool) -> str:
    """Square and multiply. Of a negative exponent: 1 for a base of 1, 1 or -1 by parity for a base of -1, else 0."""
    negative = f"""
  %negative = icmp slt {type_} %y, 0
  br i1 %negative, label %inverse, label %loop
inverse:
  %one = icmp eq {type_} %x, 1
  %minus = icmp eq {type_} %x, -1
  %parity = and {type_} %y, 1
  %odd = icmp ne {type_} %parity, 0
  %sign = select i1 %odd, {type_} -1, {type_} 1
  %unit = select i1 %minus, {type_} %sign, {type_} 0
  %result = select i1 %one, {type_} 1, {type_} %unit
  ret {type_} %result"""
    return f"""define internal {type_} @{name}({type_} %x, {type_} %y) nounwind memory(none) {{
entry:{negative if signed else f"{chr(10)}  br label %loop"}
loop:
  %power = phi {type_} [ 1, %entry ], [ %next, %body ]
  %square = phi {type_} [ %x, %entry ], [ %squared, %body ]
  %left = phi {type_} [ %y, %entry ], [ %rest, %body ]
  %done = icmp eq {type_} %left, 0
  br i1 %done, label %exit, label %body
body:
  %bit = trunc {type_} %left to i1
  %times = mul {type_} %power, %square
  %next = select i1 %bit, {type_} %times, {type_} %power
  %squared = mul {type_} %square, %square
  %rest = lshr {type_} %left, 1
  br label %loop
exit:
  ret {type_} %power
}}
"""
