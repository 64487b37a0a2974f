"""What the mathematical functions share: the two widths, polynomials, exponents, selection of special cases.

Functions are written once for float32 and float64 and for any number of lanes. They use fused multiply-adds explicitly
and no fast-math flags, since their error terms must stay as written.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tensorexpr.codegen.llvm.math.tables import DOUBLE, FLOAT
from tensorexpr.codegen.llvm.text.builder import Builder
from tensorexpr.codegen.llvm.text.values import Operand, Value, literal
from tensorexpr.records import record


@record
class Width:
    """The format of a floating type: LLVM's names, digits after the point, exponent bias, coefficient tables."""

    type: str
    bits: str
    digits: int
    bias: int
    table: dict[str, tuple[float, ...]]

    @property
    def magic(self) -> float:
        """1.5 * 2^digits: adding it to a small number leaves the nearest integer in the low bits."""
        return 1.5 * 2.0**self.digits

    @property
    def least_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    @property
    def tiny(self) -> float:
        """Below this, an odd function of slope 1 equals its argument."""
        return 2.0 ** -(self.digits // 2 + 2)

    def as_bits(self, value: float) -> int:
        """The bits of a number of this width, as a signed integer."""
        narrow = self.digits == 23
        return int.from_bytes(struct.pack("<f" if narrow else "<d", value), "little", signed=True)


SINGLE = Width("float", "i32", 23, 127, FLOAT)
DOUBLE_WIDTH = Width("double", "i64", 52, 1023, DOUBLE)


def width(x: Value) -> Width:
    """The width of a value."""
    return SINGLE if x.type == "float" else DOUBLE_WIDTH


def fma(b: Builder, x: Operand, y: Operand, z: Operand) -> Value:
    """x * y + z, rounded once."""
    return b.intrinsic("fma", x, y, z)


def add(b: Builder, x: Operand, y: Operand) -> Value:
    return b.op("fadd", x, y)


def sub(b: Builder, x: Operand, y: Operand) -> Value:
    return b.op("fsub", x, y)


def mul(b: Builder, x: Operand, y: Operand) -> Value:
    return b.op("fmul", x, y)


def div(b: Builder, x: Operand, y: Operand) -> Value:
    return b.op("fdiv", x, y)


def neg(b: Builder, x: Value) -> Value:
    return b.emit(f"fneg {x.typed}", x.type, x.lanes)


def absolute(b: Builder, x: Value) -> Value:
    return b.intrinsic("fabs", x)


def at_most(b: Builder, x: Value, limit: float) -> Value:
    """min(x, limit), NaN kept."""
    return b.select(b.compare("fcmp ogt", x, limit), limit, x)


def at_least(b: Builder, x: Value, limit: float) -> Value:
    """max(x, limit), NaN kept."""
    return b.select(b.compare("fcmp olt", x, limit), limit, x)


def with_sign(b: Builder, magnitude: Value, sign: Value) -> Value:
    """The magnitude with the sign of another value."""
    return b.intrinsic("copysign", magnitude, sign)


def keep_tiny(b: Builder, x: Value, result: Value) -> Value:
    """x itself where it is so small (or a zero, whose sign counts) that the function of slope 1 equals it."""
    return b.select(b.compare("fcmp olt", absolute(b, x), width(x).tiny), x, result)


def polynomial(b: Builder, name: str, x: Value) -> Value:
    """The tabulated polynomial at x, by Horner's rule."""
    coefficients = width(x).table[name]
    result = fma(b, x, coefficients[-1], coefficients[-2])
    for c in reversed(coefficients[:-2]):
        result = fma(b, x, result, c)
    return result


def masked(b: Builder, x: Value) -> bool:
    """Whether there are AVX-512's instructions for a vector of these lanes: scalef, and choices between two vectors by a mask.

    There all four pipes choose and two of them multiply, so a choice between two coefficients costs less than the
    multiply-add that it saves. Without masks it takes a multiplier's turn, or two.
    """
    return b.module.scales and x.lanes * int(width(x).bits[1:]) >= 128


def blended_polynomial(b: Builder, condition: Value, chosen: Sequence[float], other: Sequence[float], x: Value) -> Value:
    """The polynomial with coefficients `chosen` where `condition` holds, and `other` elsewhere, in the bits of each by Horner's rule."""
    terms = max(len(chosen), len(other))
    # A coefficient of 0 above the others changes no bit of them where x is finite.
    first, second = ((*c, *(0.0,) * (terms - len(c))) for c in (chosen, other))
    blended = [_either(b, condition, p, q, x) for p, q in zip(first, second, strict=True)]
    result = fma(b, x, blended[-1], blended[-2])
    for c in reversed(blended[:-2]):
        result = fma(b, x, result, c)
    return result


def _either(b: Builder, condition: Value, chosen: float, other: float, like: Value) -> Value:
    return b.select(condition, b.vector(literal(chosen, like.type), like.lanes), other)


def nearest(b: Builder, x: Value, factor: float) -> tuple[Value, Value]:
    """The integer nearest to x * factor, as a float and as an integer, while it is below 2^(digits - 1)."""
    w = width(x)
    shifted = fma(b, x, factor, w.magic)
    return sub(b, shifted, w.magic), b.op("sub", b.convert("bitcast", shifted, w.bits), w.as_bits(w.magic))


def power_of_two(b: Builder, w: Width, k: Value) -> Value:
    """2^k for the exponents of normal numbers."""
    return b.convert("bitcast", b.op("shl", b.op("add", k, w.bias), w.digits), w.type)


def scale(b: Builder, x: Value, whole: Value, k: Value) -> Value:
    """x * 2^k for k (`whole` as a float) within twice the exponent range, rounded once.

    Two factors, so that denormals come out right, where there is no instruction for it.
    """
    if masked(b, x):
        return _scaled(b, x, whole)
    w = width(x)
    half = b.op("ashr", k, 1)
    rest = b.op("sub", k, half)
    return mul(b, mul(b, x, power_of_two(b, w, half)), power_of_two(b, w, rest))


def scale_normal(b: Builder, x: Value, whole: Value, k: Value) -> Value:
    """The same where 2^k and the result are normal."""
    if masked(b, x):
        return _scaled(b, x, whole)
    return mul(b, x, power_of_two(b, width(x), k))


def _scaled(b: Builder, x: Value, whole: Value) -> Value:
    """AVX-512's scalef, register by register; `x` has a power of two of lanes."""
    bits = int(width(x).bits[1:])
    if x.lanes * bits > 512:
        half = x.lanes // 2
        halves = (range(half), range(half, x.lanes))
        return b.joined([_scaled(b, b.shuffled(x, lanes), b.shuffled(whole, lanes)) for lanes in halves])
    mask = f"i{max(8, x.lanes)}"
    rounding = ", i32 4" if x.lanes * bits == 512 else ""  # the current one, which the narrow forms always take
    name = f"llvm.x86.avx512.mask.scalef.p{'s' if bits == 32 else 'd'}.{x.lanes * bits}"
    arguments = f"{x.full_type}, {x.full_type}, {x.full_type}, {mask}{', i32' if rounding else ''}"
    b.module.declarations[name] = f"declare {x.full_type} @{name}({arguments})"
    return b.emit(f"call {x.full_type} @{name}({x.typed}, {whole.typed}, {x.full_type} poison, {mask} -1{rounding})", x.type, x.lanes)
