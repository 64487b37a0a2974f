"""The C library's scalar functions, called lane by lane: the slow paths and the rarely used functions.

`SYMBOLS` is everything that emitted code may call by name; the loader imports the addresses.
"""

from __future__ import annotations

from tensorexpr.codegen.llvm.builder import Builder, Value

_UNARY = ("exp", "exp2", "expm1", "log", "log2", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "erf")
_BINARY = ("pow", "atan2", "fmod")
# What LLVM may call of itself: for instructions that a machine lacks, or where it finds a shorter form of a call.
_IMPLIED = ("fma", "floor", "ceil", "trunc", "roundeven", "rint", "sqrt", "sincos", "exp10", "ldexp", "fabs", "copysign", "cbrt")
SYMBOLS = (
    *(f"{name}{suffix}" for name in (*_UNARY, *_BINARY, *_IMPLIED) for suffix in ("", "f")),
    *("memset", "memcpy", "memmove", "memcmp", "bcmp"),
    *("__extendhfsf2", "__truncsfhf2"),  # float16 on x86 before F16C; in libgcc
)


def unary(b: Builder, name: str, x: Value) -> Value:
    """The C library's `name` of every lane."""
    symbol = _declared(b, name, x, "({0})")
    return b.call(symbol, x.type, x)


def binary(b: Builder, name: str, x: Value, y: Value) -> Value:
    """The C library's `name` of every pair of lanes."""
    symbol = _declared(b, name, x, "({0}, {0})")
    return b.call(symbol, x.type, *b.unify(x, y))


def _declared(b: Builder, name: str, x: Value, arguments: str) -> str:
    symbol = f"{name}f" if x.type == "float" else name
    b.module.declare(symbol, f"{x.type} {arguments.format(x.type)}")
    return symbol
