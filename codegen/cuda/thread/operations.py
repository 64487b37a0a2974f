"""Operations on values as C++ text: constants, casts, and a row for each operation of the language."""

from __future__ import annotations

import math

from tensorexpr import dtypes
from tensorexpr.codegen.cuda.thread import values as v
from tensorexpr.codegen.cuda.thread.values import Value, c_type
from tensorexpr.codegen.llvm.math.log import PRODUCTS
from tensorexpr.dtypes import DType
from tensorexpr.errors import InternalError
from tensorexpr.ir import Const
from tensorexpr.ops import OPS, expand

_SYMBOLS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
# Exact in float32 for 16-bit floats: no rounding afterwards.
_EXACT = frozenset({"neg", "abs", "sign", "minimum", "maximum", "floor", "ceil", "round", "trunc", "stop_gradient", "recompute", "where"})
_LIBRARY = {op.name: op.c for op in OPS.values() if op.c is not None}
RESERVED = frozenset(n for name in (*_LIBRARY.values(), "fmod", "copysign") for n in (name, f"{name}f"))
"""Names that emitted text uses as functions."""
_OURS = frozenset({"sigmoid", "rsqrt", "sign", "minimum", "maximum", "floordiv", "mod"})


def operations() -> frozenset[str]:
    """The names of operations that expressions may have."""
    arithmetic = {"add", "sub", "mul", "div", "neg", "and", "or", "xor", "invert", "shift_left", "shift_right", "where"}
    made = (name for name, op in OPS.items() if op.formula is not None)
    return frozenset({*arithmetic, *_SYMBOLS, *_LIBRARY, *_OURS, "isnan", "isinf", "isfinite", "stop_gradient", "recompute", *made})


def stored(value: Value) -> str:
    """The text of a value as an element in memory."""
    if value.dtype.is_float and value.dtype.bits == 16:
        word = f"te_round_{value.dtype.short}"
        # To become an element is to be rounded.
        inner = value.text[len(word) :] if value.text.startswith(f"{word}(") and _closes_at(value.text, len(word)) else f"({value.text})"
        return f"te_to_{value.dtype.short}{inner}"
    return value.text


def _closes_at(text: str, start: int) -> bool:
    """Whether the parenthesis at a place is closed by the last character."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if not depth:
            return place == len(text) - 1
    return False


def literal(e: Const) -> Value:
    """A constant; floats so that they read back the same."""
    if e.dtype is dtypes.int64:
        return v.integer(int(e.value))
    if e.dtype.is_bool:
        return Value("true" if e.value else "false", e.dtype)
    if e.dtype.is_integer:
        value = int(e.value)
        suffix = {"uint32": "u", "uint64": "ull"}.get(e.dtype.name, "")
        text = "(-2147483647 - 1)" if value == -(1 << 31) else f"{value}{suffix}"
        if e.dtype is dtypes.int32:
            return Value(text, e.dtype, v.PREFIX if value < 0 else v.ATOM, low=value, high=value)
        return Value(
            f"({c_type(e.dtype)}){text}" if e.dtype.bits < 32 else text, e.dtype, v.PREFIX if value < 0 or e.dtype.bits < 32 else v.ATOM
        )
    number, double = float(e.value), e.dtype is dtypes.float64
    width = "F64" if double else "F32"
    if math.isnan(number):
        return Value(f"TE_NAN_{width}", e.dtype)
    if math.isinf(number):
        return Value(f"TE_INF_{width}" if number > 0 else f"-TE_INF_{width}", e.dtype, v.ATOM if number > 0 else v.PREFIX)
    text = repr(number) if double else _shortest(number)
    text = text if any(c in text for c in ".en") else f"{text}.0"
    return Value(text if double else f"{text}f", e.dtype, v.PREFIX if text.startswith("-") else v.ATOM)


def _shortest(number: float) -> str:
    """The shortest decimal that reads as this float32."""
    for digits in range(1, 10):
        text = f"{number:.{digits}g}"
        if float(dtypes.float32.numpy.type(text)) == number:
            return text
    return repr(number)


def cast(x: Value, target: DType) -> Value:
    """A value in another dtype (`ops.cast_value`)."""
    source = x.dtype
    if source is target:
        return x
    if target.is_bool:
        return Value(f"{x.inside(v.EQUAL + 1)} != 0", target, v.EQUAL)
    if target.is_float:
        return _to_float(x, target)
    if source.is_float:
        least, greatest = integer_literal(int(target.least), target), integer_literal(int(target.greatest), target)
        return Value(f"te_saturate<{c_type(target)}>({x.text}, {least}, {greatest})", target, wild=target is dtypes.int64)
    if target is dtypes.int32 and x.narrow:
        return Value(x.text, target, x.rank, low=x.low, high=x.high)
    text = f"({c_type(target)}){x.inside(v.PREFIX)}"
    if target is dtypes.int64:
        if source is dtypes.uint64:
            return Value(text, target, v.PREFIX, wild=True)
        low, high = int(source.least), 1 if source.is_bool else int(source.greatest)
        if v.fits(low, high):
            return Value(f"(int){x.inside(v.PREFIX)}", target, v.PREFIX, True, low, high)
        return Value(text, target, v.PREFIX, False, low, high)
    return Value(text, target, v.PREFIX)


def integer_literal(value: int, dtype: DType) -> str:
    """An integer constant of a dtype as text."""
    return v.integer(value).text if dtype is dtypes.int64 else literal(Const(value, dtype)).text


def _to_float(x: Value, target: DType) -> Value:
    if target.bits == 16:
        if x.dtype is dtypes.float64:
            inner = x.text if target is dtypes.float16 else f"(float){x.inside(v.PREFIX)}"
        else:
            inner = x.text if x.dtype.is_float else f"(float){x.inside(v.PREFIX)}"
        return Value(f"te_round_{target.short}({inner})", target)
    if x.dtype.is_float and x.dtype is not dtypes.float64 and target is dtypes.float32:
        return Value(x.text, target, x.rank)
    return Value(f"({c_type(target)}){x.inside(v.PREFIX)}", target, v.PREFIX)


def apply(name: str, dtype: DType, args: list[Value]) -> Value:
    """An operation on operands of `dtype`."""
    if name in _SYMBOLS:
        return _compare(name, *args)
    if name in ("stop_gradient", "recompute"):
        return args[0]
    if dtype is dtypes.int64:
        return _on_int64(name, args)
    if dtype.is_bool:
        return logical(name, dtype, args)
    if dtype.is_integer:
        return _on_integers(name, dtype, args)
    made = _on_floats(name, dtype, args)
    if dtype.bits == 16 and name not in _EXACT and not made.dtype.is_bool:
        return Value(f"te_round_{dtype.short}({made.text})", dtype)
    return made


def _compare(name: str, x: Value, y: Value) -> Value:
    rank = v.EQUAL if name in ("eq", "ne") else v.ORDER
    known = _decided(name, x, y)
    if known is not None:
        return literal(Const(known, dtypes.bool_))
    return Value(f"{x.inside(rank + 1)} {_SYMBOLS[name]} {y.inside(rank + 1)}", dtypes.bool_, rank)


def _decided(name: str, x: Value, y: Value) -> bool | None:
    """What an order of two integers is by their intervals alone, where these say it."""
    if x.dtype is not dtypes.int64:
        return None
    if name in ("gt", "le"):
        return _decided("lt" if name == "gt" else "ge", y, x)
    if name not in ("lt", "ge"):
        return None
    less = x.high is not None and y.low is not None and x.high < y.low
    not_less = x.low is not None and y.high is not None and x.low >= y.high
    return (less if name == "lt" else not_less) if less or not_less else None


def logical(name: str, dtype: DType, args: list[Value]) -> Value:
    known = next((a for a in args if a.text in ("true", "false")), None)
    if name in ("and", "or") and known is not None:
        other = args[1] if args[0] is known else args[0]
        return other if (known.text == "true") == (name == "and") else known
    if name == "invert":
        return Value(f"!{args[0].inside(v.PREFIX)}", dtype, v.PREFIX)
    symbol, rank = {
        "and": ("&&", v.AND), "or": ("||", v.OR), "minimum": ("&&", v.AND), "maximum": ("||", v.OR), "xor": ("!=", v.EQUAL)
    }[name]  # fmt: skip
    # An `and` inside an `or` gets parentheses it does not need: compilers and readers ask for them.
    sides = [a.text if a.rank > v.AND or a.rank == rank else f"({a.text})" for a in args]
    if name == "xor":
        sides = [a.inside(rank + 1) for a in args]
    return Value(f" {symbol} ".join(sides), dtype, rank)


def _on_int64(name: str, args: list[Value]) -> Value:
    match name:
        case "add":
            return v.add(*args)
        case "sub":
            return v.sub(*args)
        case "mul":
            return v.mul(*args)
        case "neg":
            return v.sub(v.integer(0), args[0])
        case "floordiv" | "mod":
            return v.divide(args[0], args[1], modulo=name == "mod")
        case "minimum" | "maximum":
            return v.extreme(args[0], args[1], greater=name == "maximum")
        case "abs":
            return v.absolute(args[0])
    return _on_integers(name, dtypes.int64, [v.widened(a) for a in args])


_ARITHMETIC = {"add": ("+", v.SUM), "sub": ("-", v.SUM), "mul": ("*", v.PRODUCT)}
_BITWISE = {"and": ("&", v.BIT_AND), "or": ("|", v.BIT_OR), "xor": ("^", v.BIT_XOR)}


def _on_integers(name: str, dtype: DType, args: list[Value]) -> Value:
    type_ = c_type(dtype)
    wild = dtype is dtypes.int64
    if name in _ARITHMETIC:
        symbol, rank = _ARITHMETIC[name]
        low, high = v.interval(name, *args)
        if dtype is dtypes.int32 and v.fits(low, high):
            right = args[1].inside(rank + 1)
            return Value(f"{args[0].inside(rank)} {symbol} {right}", dtype, rank, low=low, high=high)
        wide = "uint64_t" if dtype.bits == 64 else "uint32_t"
        text = f"({type_})(({wide}){args[0].inside(v.PREFIX)} {symbol} ({wide}){args[1].inside(v.PREFIX)})"
        return Value(text, dtype, v.PREFIX, wild=wild)
    if name in _BITWISE:
        symbol, rank = _BITWISE[name]
        text = f"{args[0].inside(v.PREFIX)} {symbol} {args[1].inside(v.PREFIX)}"
        return Value(f"({type_})({text})", dtype, v.PREFIX, wild=wild) if dtype.bits < 32 else Value(text, dtype, rank, wild=wild)
    match name:
        case "neg":
            wide = "uint64_t" if dtype.bits == 64 else "uint32_t"
            return Value(f"({type_})(0 - ({wide}){args[0].inside(v.PREFIX)})", dtype, v.PREFIX, wild=wild)
        case "invert":
            return Value(f"({type_})~{args[0].inside(v.PREFIX)}", dtype, v.PREFIX, wild=wild)
        case "shift_left" | "shift_right":
            return Value(f"te_{name}<{type_}>({args[0].text}, {args[1].text}, {dtype.bits})", dtype, wild=wild)
        case "pow":
            return Value(f"te_power<{type_}>({args[0].text}, {args[1].text})", dtype, wild=wild)
        case "abs" if not dtype.is_signed:
            return args[0]
        case "abs" | "sign" | "minimum" | "maximum" | "floordiv" | "mod":
            return Value(f"te_{name}<{type_}>({', '.join(a.text for a in args)})", dtype, wild=wild)
    raise InternalError(f"cuda: expected an operation on integers, got {name!r}")


def _on_floats(name: str, dtype: DType, args: list[Value]) -> Value:
    suffix = "" if dtype is dtypes.float64 else "f"
    one = f"1.0{suffix}"
    if name in _ARITHMETIC:
        symbol, rank = _ARITHMETIC[name]
        tighter = rank + 1 if name == "sub" else rank
        # a + (b + c) is another sum than a + b + c.
        right = args[1].inside(max(tighter, rank + 1))
        return Value(f"{args[0].inside(rank)} {symbol} {right}", dtype, rank)
    match name:
        case "div":
            return Value(f"{args[0].inside(v.PRODUCT)} / {args[1].inside(v.PREFIX)}", dtype, v.PRODUCT)
        case "neg":
            return Value(f"-{args[0].inside(v.ATOM)}", dtype, v.PREFIX)
        case "isnan":
            return Value(f"{args[0].inside(v.PREFIX)} != {args[0].inside(v.PREFIX)}", dtypes.bool_, v.EQUAL)
        case "isinf":
            return Value(f"fabs{suffix}({args[0].text}) == TE_INF_{'F64' if not suffix else 'F32'}", dtypes.bool_, v.EQUAL)
        case "isfinite":
            return Value(f"fabs{suffix}({args[0].text}) < TE_INF_{'F64' if not suffix else 'F32'}", dtypes.bool_, v.ORDER)
        case "pow" if args[1].text in (f"2.0{suffix}", f"2{suffix}"):
            return Value(f"{args[0].inside(v.PRODUCT)} * {args[0].inside(v.PREFIX)}", dtype, v.PRODUCT)
        case "pow" if args[1].text == one:
            return args[0]
        case "pow" if args[1].text in (whole := {f"{n}.0{suffix}": n for n in PRODUCTS}):
            return Value(f"te_whole_power<{whole[args[1].text]}>({args[0].text})", dtype)
    if name in _LIBRARY:
        return Value(f"{_LIBRARY[name]}{suffix}({', '.join(a.text for a in args)})", dtype)
    if name in _OURS:
        return Value(f"te_{name}({', '.join(a.text for a in args)})", dtype)
    if (formula := OPS[name].formula) is not None:
        return _expanded(formula, dtype, args)
    raise InternalError(f"cuda: expected an operation on floats, got {name!r}")


def _expanded(formula: str, dtype: DType, args: list[Value]) -> Value:
    """What an operation is made of; 16-bit floats are numbers of 32 bits until the end."""
    wide = dtypes.accumulator(dtype)

    def applied(name: str, *values: Value) -> Value:
        if name != "where":
            return apply(name, values[0].dtype if name in ("and", "or", "invert") else wide, list(values))
        condition, taken, otherwise = values
        return Value(f"{condition.inside(v.OR)} ? {taken.inside(v.OR)} : {otherwise.inside(v.CHOICE)}", wide, v.CHOICE)

    made = expand(formula, dict(zip("ab", args)), lambda value: literal(Const(value, wide)), applied)
    return Value(made.text, dtype, made.rank)
