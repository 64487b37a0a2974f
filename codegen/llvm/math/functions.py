"""The transcendental functions by name: one internal function of the module per name, width and lane count.

Whether they are inlined is LLVM's choice, but for the short ones that most kernels are made of.

The rows of `tensorexpr.ops` state the largest errors; `scripts/accuracy.py` measures them over the float32 numbers (docs/accuracy.md).
float16 and bfloat16 run in float32 and round once. Nothing here calls the C library.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorexpr.codegen.llvm.math import exp as math_exp
from tensorexpr.codegen.llvm.math import log as math_log
from tensorexpr.codegen.llvm.math import trig as math_trig
from tensorexpr.codegen.llvm.text.builder import Builder
from tensorexpr.codegen.llvm.text.values import Value, mangle

# Inlined always: then the compiler overlaps them with what stands around, and can vectorize scalar loops over them.
_SHORT = {"exp", "exp2", "log", "log2", "tanh", "sigmoid", "erf"}


_MAKERS: dict[str, Callable[..., Value]] = {
    "exp": math_exp.exp,
    "exp2": math_exp.exp2,
    "expm1": math_exp.expm1,
    "log": math_log.log,
    "log2": math_log.log2,
    "log1p": math_log.log1p,
    "sin": math_trig.sin,
    "cos": math_trig.cos,
    "tan": math_trig.tan,
    "sinh": math_exp.sinh,
    "cosh": math_exp.cosh,
    "tanh": math_exp.tanh,
    "asin": math_trig.asin,
    "acos": math_trig.acos,
    "atan": math_trig.atan,
    "atan2": math_trig.atan2,
    "pow": math_log.pow,
    "sigmoid": math_exp.sigmoid,
    "erf": math_exp.erf,
}


def _called(name: str) -> Callable[..., Value]:
    def call(b: Builder, *operands: Value) -> Value:
        values = b.unify(*operands)
        x = values[0]
        symbol = f"te.{name}.{mangle(x)}"
        b.module.helper(symbol, lambda: _function(b, name, symbol, values))
        return b.emit(f"call {x.full_type} @{symbol}({', '.join(v.typed for v in values)})", x.type, x.lanes)

    return call


def _function(outer: Builder, name: str, symbol: str, operands: list[Value]) -> str:
    b = Builder(outer.module)
    parameters = [Value(f"%x{k}", v.type, v.lanes) for k, v in enumerate(operands)]
    result = _MAKERS[name](b, *parameters)
    b.line(f"ret {result.typed}")
    inline = " alwaysinline" if name in _SHORT else ""
    arguments = ", ".join(p.typed for p in parameters)
    return b.function(f"define internal {result.full_type} @{symbol}({arguments}) nounwind{inline}")


FUNCTIONS: dict[str, Callable[..., Value]] = {name: _called(name) for name in _MAKERS}
