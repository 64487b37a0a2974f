"""The transcendental functions by name, each generic in width (float32, float64) and lanes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tensorexpr.codegen.llvm import math_libm
from tensorexpr.codegen.llvm.builder import Builder, Value


def _libm(name: str) -> Callable[..., Value]:
    return lambda b, x: math_libm.unary(b, name, x)


def _sigmoid(b: Builder, x: Value) -> Value:
    small = FUNCTIONS["exp"](b, b.emit(f"fneg {x.typed}", x.type, x.lanes))
    return b.op("fdiv", 1.0, b.op("fadd", small, 1.0)) if False else b.op("fdiv", *reversed(b.unify(b.op("fadd", small, 1.0), 1.0)))


FUNCTIONS: dict[str, Callable[..., Value]] = {
    name: _libm(name)
    for name in ("exp", "exp2", "expm1", "log", "log2", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "erf")
}
FUNCTIONS["sigmoid"] = _sigmoid
FUNCTIONS["pow"] = lambda b, x, y: math_libm.binary(b, "pow", x, y)
FUNCTIONS["atan2"] = lambda b, x, y: math_libm.binary(b, "atan2", x, y)
