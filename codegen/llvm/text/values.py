"""Values of emitted code: scalars, ramps and vectors with a lane count, and what is known of integers.

A `Value` is a scalar (the same for all lanes), a ramp (base + lane * stride, kept as its scalar base) or a vector. Integers carry
what is known of them (a constant, an interval, a divisor), which folds the guards and index arithmetic that unrolling leaves behind.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from tensorexpr.records import record

_LIMIT = 1 << 62  # beyond this an interval says nothing: the value may have wrapped around


@record
class Value:
    """An SSA name or literal `text` of LLVM element type `type`, in `lanes` lanes.

    With a nonzero `stride` it is a ramp: `text` is the scalar of lane 0. `const` is the Python value of a literal,
    `low` and `high` bound an integer (all lanes), `multiple` divides it (of a ramp: its base). They are said of its bits read as a signed
    number, of uint64 as well.
    """

    text: str
    type: str
    lanes: int = 1
    stride: int = 0
    const: int | float | bool | None = None
    low: int | None = None
    high: int | None = None
    multiple: int = 1

    @property
    def full_type(self) -> str:
        return self.type if self.lanes == 1 or self.stride else f"<{self.lanes} x {self.type}>"

    @property
    def typed(self) -> str:
        """Type and text, as an operand is written in a call."""
        return f"{self.full_type} {self.text}"

    @property
    def base(self) -> Value:
        """Of a ramp: the scalar value of lane 0."""
        return Value(self.text, self.type, 1, 0, self.const, self.low, self.high, self.multiple)


Operand = Value | int | float


def float_text(value: float, type_: str) -> str:
    """A floating literal, exact: LLVM writes both widths as the hexadecimal bits of a double."""
    if type_ == "float":
        value = struct.unpack("<f", struct.pack("<f", value))[0] if abs(value) != float("inf") and value == value else value
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def literal(value: int | float | bool, type_: str) -> Value:
    """A constant of an LLVM element type."""
    if type_ == "i64":
        return _word(int(value))
    if type_ in ("float", "double"):
        return Value(float_text(float(value), type_), type_, const=float(value))
    if type_ == "i1":
        return Value("true" if value else "false", "i1", const=bool(value))
    bits = int(type_[1:])
    wrapped = ((int(value) + (1 << (bits - 1))) % (1 << bits)) - (1 << (bits - 1))
    return Value(str(wrapped), type_, const=wrapped, low=wrapped, high=wrapped, multiple=abs(wrapped))


@lru_cache(4096)
def _word(value: int) -> Value:
    wrapped = ((value + (1 << 63)) % (1 << 64)) - (1 << 63)
    return Value(str(wrapped), "i64", const=wrapped, low=wrapped, high=wrapped, multiple=abs(wrapped))


def ramp(lanes: int, stride: int) -> Value:
    """The ramp 0, stride, 2 * stride, ..."""
    reach = (lanes - 1) * stride
    return Value("0", "i64", lanes, stride, 0, min(0, reach), max(0, reach), 0)


def bounded(low: int | None, high: int | None) -> tuple[int | None, int | None]:
    """An interval, or none where a value in it may have wrapped around."""
    if low is None or high is None or low < -_LIMIT or high > _LIMIT:
        return None, None
    return low, high


def fits(value: Value, bits: int) -> bool:
    """Whether an integer is known to fit a signed type of so many bits."""
    limit = 1 << (bits - 1)
    return value.low is not None and value.high is not None and value.low >= -limit and value.high < limit


def mangle(value: Value) -> str:
    """The suffix of an overloaded intrinsic: f32, v16f32, i64, ..."""
    short = {"float": "f32", "double": "f64", "half": "f16"}.get(value.type, value.type)
    return short if value.lanes == 1 else f"v{value.lanes}{short}"


def known(value: Value, low: int | None, high: int | None, multiple: int = 1) -> Value:
    """The value with an interval and a divisor that it is known to have."""
    return Value(value.text, value.type, value.lanes, value.stride, value.const, low, high, multiple)


def sum_of(a: Value, b: Value) -> tuple[int | None, int | None]:
    """The interval of a sum of whole numbers."""
    if a.low is None or b.low is None or a.high is None or b.high is None:
        return None, None
    return a.low + b.low, a.high + b.high


def difference_of(a: Value, b: Value) -> tuple[int | None, int | None]:
    """The interval of a difference of whole numbers."""
    if a.low is None or b.low is None or a.high is None or b.high is None:
        return None, None
    return a.low - b.high, a.high - b.low


def product_of(a: Value, b: Value) -> tuple[int | None, int | None]:
    """The interval of a product of whole numbers."""
    if a.low is None or b.low is None or a.high is None or b.high is None:
        return None, None
    corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return min(corners), max(corners)


def negated(value: Value, const: int) -> Value:
    """Minus a constant, or minus a ramp that begins at one."""
    base = literal(-const, "i64")
    low, high = (None, None) if value.high is None or value.low is None else bounded(-value.high, -value.low)
    return Value(base.text, "i64", value.lanes, -value.stride, base.const, low, high, base.multiple)
