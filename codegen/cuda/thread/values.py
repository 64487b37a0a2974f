"""Values as C++ text, with what is known of index arithmetic: 32 bits where they hold every value, 64 elsewhere.

An int64 of the language that comes from loop indices, sizes and constants alone has an interval; where it fits 32 bits and its
operands are held in 32, it is computed in an `int`. The rest is `int64_t`. What is read from data is `wild`: it may be
anything, and its arithmetic wraps as the language says, through unsigned types, since C++ leaves overflow undefined.
"""

from __future__ import annotations

from tensorexpr import dtypes
from tensorexpr.dtypes import DType
from tensorexpr.records import record, replace

# Precedences of C++, loosest first: what stands inside a tighter operator needs parentheses.
CHOICE, OR, AND, BIT_OR, BIT_XOR, BIT_AND, EQUAL, ORDER, SHIFT, SUM, PRODUCT, PREFIX, ATOM = range(13)
_INT = (-(1 << 31), (1 << 31) - 1)


@record
class Value:
    """C++ text of a value of `dtype`, how tightly it binds, and of an int64: whether it is an `int` in C++ (`narrow`), its
    interval as far as it is known, and whether it comes from data."""

    text: str
    dtype: DType
    rank: int = ATOM
    narrow: bool = False
    low: int | None = None
    high: int | None = None
    wild: bool = False

    def inside(self, rank: int) -> str:
        """The text as an operand of an operator of this precedence."""
        return self.text if self.rank >= rank else f"({self.text})"

    @property
    def constant(self) -> int | None:
        """The one value that an int64 has, where it is known."""
        return self.low if self.low is not None and self.low == self.high else None


def c_type(dtype: DType) -> str:
    """The C++ type of a value of `dtype` in registers."""
    if dtype.is_bool:
        return "bool"
    if dtype.is_float:
        return "double" if dtype is dtypes.float64 else "float"
    return f"{'u' if dtype.kind == 'uint' else ''}int{dtype.bits}_t"


def memory_type(dtype: DType) -> str:
    """The C++ type of an element of `dtype` in memory."""
    return {"float16": "te_f16", "bfloat16": "te_bf16"}.get(dtype.name) or c_type(dtype)


def type_of(value: Value) -> str:
    """The C++ type that a value is held in."""
    return "int" if value.narrow else c_type(value.dtype)


def fits(low: int | None, high: int | None) -> bool:
    """Whether an interval lies in 32 bits."""
    return low is not None and high is not None and _INT[0] <= low and high <= _INT[1]


def integer(value: int) -> Value:
    """An int64 constant."""
    narrow = fits(value, value)
    text = str(value) if narrow else f"{value}ll" if value > -(1 << 63) else "(-9223372036854775807ll - 1)"
    return Value(text, dtypes.int64, ATOM if value >= 0 else PREFIX, narrow, value, value)


def index(name: str, low: int | None, high: int | None) -> Value:
    """A loop index or a size of which bounds are known or not."""
    return Value(name, dtypes.int64, ATOM, fits(low, high), low, high)


def interval(name: str, x: Value, y: Value) -> tuple[int | None, int | None]:
    """The interval of a sum, a difference or a product, where both of its operands have one."""
    if x.low is None or x.high is None or y.low is None or y.high is None:
        return None, None
    match name:
        case "add":
            return x.low + y.low, x.high + y.high
        case "sub":
            return x.low - y.high, x.high - y.low
    corners = [a * b for a in (x.low, x.high) for b in (y.low, y.high)]
    return min(corners), max(corners)


def widened(value: Value) -> Value:
    """An int64 as C++'s int64_t."""
    if not value.narrow:
        return value
    if value.constant is not None:
        return replace(value, text=f"{value.constant}ll", narrow=False)
    return replace(value, text=f"(int64_t){value.inside(PREFIX)}", rank=PREFIX, narrow=False)


def narrowed(value: Value, low: int, high: int) -> Value:
    """An int64 that is known to lie in an interval (an index where it is used), in an `int` where that holds it."""
    low = low if value.low is None else max(low, value.low)
    high = high if value.high is None else min(high, value.high)
    if value.narrow or not fits(low, high):
        return replace(value, low=low, high=high)
    return Value(f"(int){value.inside(PREFIX)}", value.dtype, PREFIX, True, low, high)


def _combined(text: str, rank: int, x: Value, y: Value, low: int | None, high: int | None, narrow: bool) -> Value:
    return Value(text, dtypes.int64, rank, narrow, low, high, x.wild or y.wild)


def _wrapping(symbol: str, x: Value, y: Value) -> Value:
    text = f"(int64_t)((uint64_t){x.inside(PREFIX)} {symbol} (uint64_t){y.inside(PREFIX)})"
    return Value(text, dtypes.int64, PREFIX, wild=True)


def _folded(value: int) -> Value | None:
    """A result that is known as a number, where it is an int64."""
    return integer(value) if -(1 << 63) <= value < 1 << 63 else None


def _sum(x: Value, y: Value, sign: int) -> Value:
    if x.constant is not None and y.constant is not None and (known := _folded(x.constant + sign * y.constant)) is not None:
        return known
    other = (y.low, y.high) if sign > 0 else (_negated(y.high), _negated(y.low))
    low, high = _plus(x.low, other[0]), _plus(x.high, other[1])
    if low is None and high is None and (x.wild or y.wild):
        return _wrapping("+" if sign > 0 else "-", x, y)
    narrow = x.narrow and y.narrow and fits(low, high)
    left, right = (x, y) if narrow or not (x.narrow and y.narrow) else (widened(x), y)
    number = y.constant
    if number is not None and number < 0:
        sign, right = -sign, integer(-number)
    text = f"{left.inside(SUM)} {'+' if sign > 0 else '-'} {right.inside(SUM if sign > 0 else PRODUCT)}"
    return _combined(text, SUM, x, y, low, high, narrow)


def add(x: Value, y: Value) -> Value:
    """x + y of int64."""
    if x.constant == 0:
        return y
    return x if y.constant == 0 else _sum(x, y, 1)


def sub(x: Value, y: Value) -> Value:
    """x - y of int64."""
    return x if y.constant == 0 else _sum(x, y, -1)


def mul(x: Value, y: Value) -> Value:
    """x * y of int64."""
    if x.constant == 1 or y.constant == 0:
        return y
    if y.constant == 1 or x.constant == 0:
        return x
    if x.constant is not None and y.constant is not None and (known := _folded(x.constant * y.constant)) is not None:
        return known
    low, high = interval("mul", x, y)
    if low is None and x.low is not None and x.low >= 0 and y.low is not None and y.low >= 0:
        low = x.low * y.low
    if low is None and (x.wild or y.wild):
        return _wrapping("*", x, y)
    narrow = x.narrow and y.narrow and fits(low, high)
    left = x if narrow or not (x.narrow and y.narrow) else widened(x)
    return _combined(f"{left.inside(PRODUCT)} * {y.inside(PREFIX)}", PRODUCT, x, y, low, high, narrow)


def divide(x: Value, y: Value, modulo: bool) -> Value:
    """x // y or x % y of int64, rounding to minus infinity; plain division where nothing is negative."""
    divisor = y.constant
    if divisor is not None and divisor > 0 and x.constant is not None:
        return integer(x.constant % divisor if modulo else x.constant // divisor)
    low: int | None = None
    high: int | None = None
    if divisor is not None and divisor > 0:
        if modulo:
            low, high = 0, divisor - 1
            if x.low is not None and x.low >= 0 and x.high is not None and x.high < divisor:
                return x
        else:
            if divisor == 1:
                return x
            low, high = (None if x.low is None else x.low // divisor), (None if x.high is None else x.high // divisor)
        if x.low is not None and x.low >= 0:
            if modulo and x.high is not None:
                high = min(high or 0, x.high)
            text = f"{x.inside(PRODUCT)} {'%' if modulo else '/'} {y.inside(PREFIX)}"
            narrow = x.narrow and y.narrow
            return _combined(text, PRODUCT, x, y, low, high, narrow)
    elif y.low is not None and y.low > 0:
        if modulo:
            low, high = 0, None if y.high is None else y.high - 1
        elif x.low is not None and x.low >= 0:
            low, high = 0, x.high
    narrow = x.narrow and y.narrow and fits(low, high)
    if not narrow and x.low is not None and y.low is not None and min(x.low, y.low) >= 0:  # no sign to look at
        word = "te_mod" if modulo else "te_floordiv"
        high = (None if y.high is None else max(0, y.high - 1)) if modulo else x.high
        return _combined(f"(int64_t){word}<uint64_t>({x.text}, {y.text})", PREFIX, x, y, 0, high, False)
    left, right = (x, y) if narrow else (widened(x), widened(y))
    word = ("te_mod" if modulo else "te_floordiv") + ("" if narrow else "<int64_t>")
    return _combined(f"{word}({left.text}, {right.text})", ATOM, x, y, low, high, narrow)


def absolute(x: Value) -> Value:
    """The absolute value of an int64, an `int` where that is one."""
    if x.low is not None and x.low >= 0:
        return x
    if x.narrow and x.low is not None and x.high is not None and x.low > _INT[0]:
        return _combined(f"te_abs({x.text})", ATOM, x, x, max(0, -x.high), max(-x.low, x.high), True)
    return Value(f"te_abs<int64_t>({widened(x).text})", dtypes.int64, wild=True)


def extreme(x: Value, y: Value, greater: bool) -> Value:
    """The larger or the smaller of two int64."""
    if x.low is not None and y.high is not None and x.low >= y.high:
        return x if greater else y
    if y.low is not None and x.high is not None and y.low >= x.high:
        return y if greater else x
    pick = max if greater else min
    # The side that cannot be unbounded: a maximum is at least either operand.
    low = pick(x.low, y.low) if x.low is not None and y.low is not None else (x.low if y.low is None else y.low) if greater else None
    high = (
        pick(x.high, y.high) if x.high is not None and y.high is not None else None if greater else (x.high if y.high is None else y.high)
    )
    narrow = x.narrow and y.narrow
    left, right = (x, y) if narrow else (widened(x), widened(y))
    return _combined(
        f"te_{'maximum' if greater else 'minimum'}{'' if narrow else '<int64_t>'}({left.text}, {right.text})", ATOM, x, y, low, high, narrow
    )


def _plus(x: int | None, y: int | None) -> int | None:
    return None if x is None or y is None else x + y


def _negated(x: int | None) -> int | None:
    return None if x is None else -x
