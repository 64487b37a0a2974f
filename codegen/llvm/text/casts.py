"""How a dtype is held in registers and in memory, and conversions between dtypes (`ops.cast_value`, exactly).

In registers a bool is an i1, and the 16-bit floats are float32 values that are exact in their type: arithmetic runs in
float32 and rounds once after every operation (32 bits hold more than twice the digits of either, so this is the
correctly rounded result). In memory a bool is a byte and a bfloat16 sixteen plain bits: the machine's own bfloat16
conversion flushes denormals, so rounding (to nearest even) is done on integers.
"""

from __future__ import annotations

from tensorexpr import dtypes
from tensorexpr.codegen.llvm.text.builder import Builder
from tensorexpr.codegen.llvm.text.values import Value, fits, literal
from tensorexpr.dtypes import DType

_FLOATS = {dtypes.float16: "float", dtypes.bfloat16: "float", dtypes.float32: "float", dtypes.float64: "double"}

EXACT = 1 << 24
"""Up to here float32 holds all integers."""


def register_type(dtype: DType) -> str:
    """The LLVM type of a value of `dtype` in registers."""
    return "i1" if dtype.is_bool else _FLOATS[dtype] if dtype.is_float else f"i{dtype.bits}"


def memory_type(dtype: DType) -> str:
    """The LLVM type of an element of `dtype` in memory."""
    if dtype.is_bool:
        return "i8"
    if dtype is dtypes.bfloat16:
        return "i16"
    return "half" if dtype is dtypes.float16 else register_type(dtype)


def from_memory(b: Builder, value: Value, dtype: DType) -> Value:
    """The register form of a loaded element."""
    if dtype.is_bool:
        return b.compare("icmp ne", value, literal(0, "i8"))
    if dtype is dtypes.float16:
        return b.convert("fpext", value, "float")
    if dtype is dtypes.bfloat16:
        return b.convert("bitcast", b.op("shl", b.convert("zext", value, "i32"), 16), "float")
    return value


def to_memory(b: Builder, value: Value, dtype: DType) -> Value:
    """The memory form of a register value."""
    if dtype.is_bool:
        return b.convert("zext", value, "i8")
    if dtype is dtypes.float16:
        return b.convert("fptrunc", value, "half")
    if dtype is dtypes.bfloat16:
        return b.convert("trunc", b.op("lshr", b.convert("bitcast", value, "i32"), 16), "i16")
    return value


def rounded(b: Builder, value: Value, dtype: DType) -> Value:
    """A float32 result rounded to a 16-bit type (unchanged for the others)."""
    if dtype is dtypes.float16:
        return b.convert("fpext", b.convert("fptrunc", value, "half"), "float")
    if dtype is dtypes.bfloat16:
        bits = b.convert("bitcast", value, "i32")
        odd = b.op("and", b.op("lshr", bits, 16), 1)
        near = b.op("add", b.op("add", bits, 0x7FFF), odd)
        # Adding to a NaN's bits could carry into the sign or make it infinite: keep its top bits and make it quiet.
        quiet = b.op("or", bits, 0x400000)
        chosen = b.select(b.compare("fcmp uno", value, value), quiet, near)
        return b.convert("bitcast", b.op("and", chosen, -0x10000), "float")
    return value


def cast(b: Builder, value: Value, source: DType, target: DType) -> Value:
    """The value of register form `source` as `target`."""
    if source is target:
        return value
    if target.is_bool:
        zero = literal(0, register_type(source))
        return b.compare("fcmp une" if source.is_float else "icmp ne", value, zero)
    if source.is_float:
        return _float_to_float(b, value, source, target) if target.is_float else _float_to_integer(b, value, target)
    if target.is_float:
        type_ = register_type(target)
        if value.const is not None and not value.stride and source.is_signed and target.bits >= 32 and abs(value.const) <= EXACT:
            return b.vector(literal(float(value.const), type_), value.lanes)
        opcode = "sitofp" if source.kind == "int" else "uitofp"
        if source.bits == 64 and value.lanes > 1 and fits(value, 32) and (source.is_signed or value.low >= 0):  # type: ignore[operator]  # a value that fits has bounds
            # Indices: half the width converts in half the time, and is all that a machine before AVX-512 can do.
            value, opcode = b.half(value) or b.convert("trunc", value, "i32"), "sitofp"
        return rounded(b, b.convert(opcode, value, type_), target)
    return _integer_to_integer(b, value, source, target)


def _integer_to_integer(b: Builder, value: Value, source: DType, target: DType) -> Value:
    if value.const is not None and not value.stride:
        number = int(value.const)
        if not source.is_signed and number < 0:
            number += 1 << source.bits
        return b.vector(literal(number, register_type(target)), value.lanes)
    if target.bits == source.bits and not source.is_bool:
        return value
    if target.bits < source.bits:
        return b.convert("trunc", value, register_type(target))
    opcode = "sext" if source.kind == "int" else "zext"
    if target is dtypes.int64 and value.lanes > 1 and int(source.greatest) <= int(dtypes.int32.greatest):
        wide = b.widened(value if source is dtypes.int32 else b.convert(opcode, value, "i32"))
    else:
        wide = b.convert(opcode, value, register_type(target))
    low = int(source.least)
    high = 1 if source.is_bool else int(source.greatest)
    if target.bits == 64 and source.bits < 64:
        return Value(wide.text, wide.type, wide.lanes, 0, None, low, high)
    return wide


def _float_to_integer(b: Builder, value: Value, target: DType) -> Value:
    type_ = register_type(target)
    if value.lanes > 1:
        return _floats_to_integers(b, value, target, type_)
    name = "fptosi.sat" if target.kind == "int" else "fptoui.sat"
    suffix = f"{type_}.f{32 if value.type == 'float' else 64}"
    return b.emit(f"call {type_} @llvm.{name}.{suffix}({value.typed})", type_)


def _floats_to_integers(b: Builder, value: Value, target: DType, type_: str) -> Value:
    """Lanes of which those beyond the ends of a dtype become its ends, and NaN 0: LLVM converts lane by lane where it is asked for that, so
    what comes of such lanes is chosen behind a plain conversion."""
    opcode = "fptosi" if target.kind == "int" else "fptoui"
    beyond = float(2 ** (target.bits - 1 if target.is_signed else target.bits))
    low, high = int(target.least), int(target.greatest)
    found = b.convert(opcode, value, type_)
    least = literal(-beyond if target.is_signed else 0.0, value.type)
    found = b.select(b.compare("fcmp oge", value, literal(beyond, value.type)), literal(high, type_), found)
    if low == 0:
        return b.select(b.compare("fcmp ogt", value, least), found, literal(0, type_))
    found = b.select(b.compare("fcmp olt", value, least), literal(low, type_), found)
    return b.select(b.compare("fcmp uno", value, value), literal(0, type_), found)


def _float_to_float(b: Builder, value: Value, source: DType, target: DType) -> Value:
    if target is dtypes.float64:
        return b.convert("fpext", value, "double")
    if source is dtypes.float64:
        if target is dtypes.float16:
            return rounded(b, _to_odd(b, value), target)
        # To bfloat16 by way of float32, rounding twice, as ml_dtypes does.
        return rounded(b, b.convert("fptrunc", value, "float"), target)
    return value if target is dtypes.float32 else rounded(b, value, target)


def _to_odd(b: Builder, value: Value) -> Value:
    """A double as a float rounded to odd: a second rounding, to 16 bits, then gives what one rounding would have."""
    near = b.convert("fptrunc", value, "float")
    back = b.convert("fpext", near, "double")
    above = b.compare("fcmp ogt", b.intrinsic("fabs", back), b.intrinsic("fabs", value))
    inexact = b.compare("fcmp one", back, value)
    bits = b.convert("bitcast", near, "i32")
    bits = b.op("sub", bits, b.convert("zext", above, "i32"))
    return b.convert("bitcast", b.op("or", bits, b.convert("zext", inexact, "i32")), "float")
