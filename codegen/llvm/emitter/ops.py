"""Every scalar operation of the language as instructions: one row per name of `tensorexpr.ops`, generic in dtype and lanes.

The rows of transcendental functions are in `functions`; an operation that has a formula in its own row needs none here. `where` is not
here: it decides what is evaluated, so the statement emitter owns it. Sums of products become fused multiply-adds (`expressions`) and that
is the only liberty taken: NaN, infinities and signed zeros behave as IEEE-754 and NumPy say.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import gcd

from tensorexpr import dtypes
from tensorexpr.codegen.llvm.emitter import integers as emit_integers
from tensorexpr.codegen.llvm.math.functions import FUNCTIONS
from tensorexpr.codegen.llvm.math.log import is_root, is_short_power, root_power, whole_power
from tensorexpr.codegen.llvm.math.remainder import fmod
from tensorexpr.codegen.llvm.text.builder import Builder
from tensorexpr.codegen.llvm.text.casts import register_type, rounded
from tensorexpr.codegen.llvm.text.values import Value, literal
from tensorexpr.dtypes import DType, accumulator
from tensorexpr.errors import InternalError
from tensorexpr.ops import OPS, expand

_PREDICATES = {
    "eq": ("icmp eq", "icmp eq", "fcmp oeq"),
    "ne": ("icmp ne", "icmp ne", "fcmp une"),
    "lt": ("icmp slt", "icmp ult", "fcmp olt"),
    "le": ("icmp sle", "icmp ule", "fcmp ole"),
    "gt": ("icmp sgt", "icmp ugt", "fcmp ogt"),
    "ge": ("icmp sge", "icmp uge", "fcmp oge"),
}
# What is exact in the wider register form needs no rounding to a 16-bit type.
_EXACT = {"neg", "abs", "sign", "minimum", "maximum", "floor", "ceil", "round", "trunc", "stop_gradient", "recompute"}


def apply(b: Builder, name: str, dtype: DType, operands: list[Value]) -> Value:
    """The operation `name` on operands of `dtype`. Raises `InternalError` for a name without a row."""
    if name in _PREDICATES:
        return _compare(b, name, dtype, *operands)
    row = _ROWS.get(name)
    if row is not None:
        result = row(b, dtype, *operands)
    elif name in FUNCTIONS:
        result = FUNCTIONS[name](b, *operands)
    elif (formula := OPS[name].formula) is not None:
        result = _expanded(b, formula, dtype, operands)
    else:
        raise InternalError(f"llvm: expected an operation that the emitter knows, got {name!r}")
    if dtype.is_float and dtype.bits == 16 and name not in _EXACT and result.type != "i1":
        return rounded(b, result, dtype)
    return result


def operations() -> frozenset[str]:
    """The names that `apply` takes."""
    return frozenset({*_PREDICATES, *_ROWS, *FUNCTIONS, *(name for name, op in OPS.items() if op.formula is not None)})


def _expanded(b: Builder, formula: str, dtype: DType, operands: list[Value]) -> Value:
    """What an operation is made of; 16-bit floats are numbers of 32 bits until the end."""
    wide = accumulator(dtype)

    def applied(name: str, *values: Value) -> Value:
        if name == "where":
            return b.select(*values)
        return apply(b, name, wide, list(values))

    return expand(formula, dict(zip("ab", operands)), lambda value: literal(value, register_type(wide)), applied)


def _compare(b: Builder, name: str, dtype: DType, x: Value, y: Value) -> Value:
    known = _decide(name, x, y) if dtype is dtypes.int64 else None
    if known is not None:
        return literal(known, "i1")
    if dtype is dtypes.int64:
        lanes = _compare_lanes(b, name, x, y)
        if lanes is not None:
            return lanes
        half, other = b.half(x), b.half(y)
        if half is not None and other is not None and (x.lanes > 1 or y.lanes > 1):
            x, y = half, other
    signed, unsigned, floating = _PREDICATES[name]
    return b.compare(floating if dtype.is_float else signed if dtype.kind == "int" else unsigned, x, y)


_HOLDS = {"eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}
_MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


def _compare_lanes(b: Builder, name: str, x: Value, y: Value) -> Value | None:
    """A ramp of stride 1 or -1 against a scalar: lane numbers in 32 bits against one clamped distance (the mask of a tail)."""
    if x.lanes == 1:
        name, x, y = _MIRRORED[name], y, x
    if abs(x.stride) != 1 or y.lanes != 1 or x.low is None or y.low is None:
        return None
    if x.stride == 1:
        distance = b.sub(y, x.base)
    else:
        name, distance = _MIRRORED[name], b.sub(x.base, y)
    if distance.const is not None:
        holds = ("true" if _HOLDS[name](lane, distance.const) else "false" for lane in range(x.lanes))
        return Value(f"<{', '.join(f'i1 {one}' for one in holds)}>", "i1", x.lanes)
    # Both sides have known bounds, so the distance has not wrapped; beyond the lanes on either side it decides alike.
    near = b.intrinsic("smin", b.intrinsic("smax", distance, -1), x.lanes)
    numbers = Value(f"<{', '.join(f'i32 {lane}' for lane in range(x.lanes))}>", "i32", x.lanes)
    return b.compare(_PREDICATES[name][0], numbers, b.convert("trunc", near, "i32"))


def _decide(name: str, x: Value, y: Value) -> bool | None:
    """The outcome of a comparison of int64 values where their intervals decide it for all lanes."""
    if x.low is None or x.high is None or y.low is None or y.high is None:
        return None
    first, second = (x.low, x.high), (y.low, y.high)
    if name in ("gt", "ge"):
        name, first, second = ("lt" if name == "gt" else "le"), second, first
    (low, high), (least, greatest) = first, second
    if name == "lt":
        return True if high < least else False if low >= greatest else None
    if name == "le":
        return True if high <= least else False if low > greatest else None
    apart = high < least or greatest < low
    same = low == high == least == greatest
    if not apart and not same:
        return None
    return apart == (name == "ne")


def _is_index(dtype: DType) -> bool:
    return dtype is dtypes.int64


def _add(b: Builder, dtype: DType, x: Value, y: Value) -> Value:
    if _is_index(dtype):
        return b.add(x, y)
    return b.op("fadd" if dtype.is_float else "add", x, y)


def _sub(b: Builder, dtype: DType, x: Value, y: Value) -> Value:
    if _is_index(dtype):
        return b.sub(x, y)
    return b.op("fsub" if dtype.is_float else "sub", x, y)


def _mul(b: Builder, dtype: DType, x: Value, y: Value) -> Value:
    if _is_index(dtype):
        return b.mul(x, y)
    return b.op("fmul" if dtype.is_float else "mul", x, y)


def _div(b: Builder, dtype: DType, x: Value, y: Value) -> Value:
    return b.op("fdiv", x, y)


def _neg(b: Builder, dtype: DType, x: Value) -> Value:
    if dtype.is_float:
        return b.emit(f"fneg {x.typed}", x.type, x.lanes)
    return b.sub(literal(0, "i64"), x) if _is_index(dtype) else b.op("sub", literal(0, x.type), x)


def _abs(b: Builder, dtype: DType, x: Value) -> Value:
    if dtype.is_float:
        return b.intrinsic("fabs", x)
    if _is_index(dtype) and x.low is not None and x.high is not None:
        bounds = max(x.low, -x.high, 0), max(-x.low, x.high)
        found = b.halved(lambda half: b.intrinsic("abs", b.vector(half, half.lanes), extra=", i1 false"), (x,), *bounds)
        if found is not None:
            return found
    return b.intrinsic("abs", b.vector(x, x.lanes), extra=", i1 false") if dtype.is_signed else x


def _sign(b: Builder, dtype: DType, x: Value) -> Value:
    zero = literal(0, register_type(dtype))
    if dtype.is_float:
        positive = b.select(b.compare("fcmp ogt", x, zero), literal(1.0, x.type), zero)
        result = b.select(b.compare("fcmp olt", x, zero), literal(-1.0, x.type), positive)
        return b.select(b.compare("fcmp uno", x, x), x, result)
    if not dtype.is_signed:
        return b.convert("zext", b.compare("icmp ne", x, zero), x.type)
    above, below = b.compare("icmp sgt", x, zero), b.compare("icmp slt", x, zero)
    return b.op("sub", b.convert("zext", above, x.type), b.convert("zext", below, x.type))


def _extreme(b: Builder, dtype: DType, x: Value, y: Value, greater: bool) -> Value:
    if dtype.is_bool:
        return b.op("or" if greater else "and", x, y)
    if dtype.is_float:
        # Compare-and-select is one instruction that returns y where either is NaN, so only x is left to look at. It is asked whether x is a
        # number: were it asked whether it is none, LLVM would make one choice of both, which is two comparisons and no extreme.
        x, y = b.unify(x, y)
        chosen = b.select(b.compare("fcmp ogt" if greater else "fcmp olt", x, y), x, y)
        return b.select(b.compare("fcmp ord", x, x), chosen, x)
    if _is_index(dtype) and x.low is not None and y.low is not None and x.high is not None and y.high is not None:
        if (x.low >= y.high) if greater else (x.high <= y.low):
            return x
        if (y.low >= x.high) if greater else (y.high <= x.low):
            return y
        pick, opcode = (max, "smax") if greater else (min, "smin")
        low, high = pick(x.low, y.low), pick(x.high, y.high)
        made = b.halved(lambda p, q: b.intrinsic(opcode, p, q), (x, y), low, high)
        if made is not None:
            return made
        found = b.intrinsic(opcode, x, y)
        return Value(found.text, "i64", found.lanes, 0, None, low, high, gcd(x.multiple, y.multiple) if found.lanes == 1 else 1)
    return b.intrinsic(("s" if dtype.is_signed else "u") + ("max" if greater else "min"), x, y)


def _rounding(intrinsic: str) -> Callable[..., Value]:
    return lambda b, dtype, x: b.intrinsic(intrinsic, x)


def _float_divmod(b: Builder, x: Value, y: Value, modulo: bool) -> Value:
    """NumPy's floor_divide and remainder: from the exact C remainder, moved to the sign of the divisor."""
    remainder = fmod(b, x, y)
    zero = literal(0.0, remainder.type)
    divisor_zero = b.compare("fcmp oeq", y, zero)
    nonzero = b.compare("fcmp une", remainder, zero)
    differ = b.op("xor", b.compare("fcmp olt", y, zero), b.compare("fcmp olt", remainder, zero))
    adjust = b.op("and", nonzero, differ)
    if modulo:
        moved = b.select(adjust, b.op("fadd", remainder, y), remainder)
        moved = b.select(nonzero, moved, b.intrinsic("copysign", zero, y))
        return b.select(divisor_zero, remainder, moved)
    quotient = b.op("fdiv", b.op("fsub", x, remainder), y)
    quotient = b.select(adjust, b.op("fsub", quotient, 1.0), quotient)
    whole = b.intrinsic("floor", quotient)
    whole = b.select(b.compare("fcmp ogt", b.op("fsub", quotient, whole), 0.5), b.op("fadd", whole, 1.0), whole)
    plain = b.op("fdiv", x, y)
    whole = b.select(b.compare("fcmp une", quotient, zero), whole, b.intrinsic("copysign", zero, plain))
    return b.select(divisor_zero, plain, whole)


def _floordiv(b: Builder, dtype: DType, x: Value, y: Value) -> Value:
    return _float_divmod(b, x, y, False) if dtype.is_float else emit_integers.floordiv(b, dtype, x, y)


def _mod(b: Builder, dtype: DType, x: Value, y: Value) -> Value:
    return _float_divmod(b, x, y, True) if dtype.is_float else emit_integers.mod(b, dtype, x, y)


def _pow(b: Builder, dtype: DType, x: Value, y: Value) -> Value:
    if not dtype.is_float:
        return emit_integers.power(b, dtype, x, y)
    if y.const in (0.0, 1.0, 2.0) and not y.stride:
        return literal(1.0, x.type) if y.const == 0.0 else x if y.const == 1.0 else b.op("fmul", x, x)
    if y.const is not None and not y.stride and is_short_power(x.type, y.const):
        return whole_power(b, x, int(y.const))
    if y.const is not None and not y.stride and is_root(y.const):
        return root_power(b, x, y.const)
    return FUNCTIONS["pow"](b, *b.unify(x, y))


def _logic(opcode: str) -> Callable[..., Value]:
    def row(b: Builder, dtype: DType, x: Value, y: Value) -> Value:
        if dtype.is_bool and opcode != "xor":
            absorbing = opcode == "or"
            for one, other in ((x, y), (y, x)):
                if one.const is not None:
                    return one if one.const is absorbing else other
        return b.op(opcode, x, y)

    return row


def _invert(b: Builder, dtype: DType, x: Value) -> Value:
    return b.negation(x) if dtype.is_bool else b.op("xor", x, literal(-1, x.type))


def _class(b: Builder, x: Value, mask: int) -> Value:
    suffix = ("f32" if x.type == "float" else "f64") if x.lanes == 1 else f"v{x.lanes}f{32 if x.type == 'float' else 64}"
    result = "i1" if x.lanes == 1 else f"<{x.lanes} x i1>"
    return b.emit(f"call {result} @llvm.is.fpclass.{suffix}({x.typed}, i32 {mask})", "i1", x.lanes)


_ROWS: dict[str, Callable[..., Value]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "floordiv": _floordiv,
    "mod": _mod,
    "pow": _pow,
    "neg": _neg,
    "abs": _abs,
    "sign": _sign,
    "minimum": lambda b, dtype, x, y: _extreme(b, dtype, x, y, False),
    "maximum": lambda b, dtype, x, y: _extreme(b, dtype, x, y, True),
    "floor": _rounding("floor"),
    "ceil": _rounding("ceil"),
    "round": _rounding("roundeven"),
    "trunc": _rounding("trunc"),
    "sqrt": _rounding("sqrt"),
    "rsqrt": lambda b, dtype, x: b.op("fdiv", literal(1.0, x.type), b.intrinsic("sqrt", x)),
    "stop_gradient": lambda b, dtype, x: x,
    "recompute": lambda b, dtype, x: x,
    "isnan": lambda b, dtype, x: _class(b, x, 0x3),
    "isinf": lambda b, dtype, x: _class(b, x, 0x204),
    "isfinite": lambda b, dtype, x: _class(b, x, 0x1F8),
    "and": _logic("and"),
    "or": _logic("or"),
    "xor": _logic("xor"),
    "invert": _invert,
    "shift_left": lambda b, dtype, x, y: emit_integers.shift(b, dtype, x, y, True),
    "shift_right": lambda b, dtype, x, y: emit_integers.shift(b, dtype, x, y, False),
}
