"""Definitions of what ATen computes element by element: arithmetic, comparisons, functions of real numbers, activations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.dtypes import DType, dtype
from tensorexpr.interop.torch.backend.table import Result, Unsupported, aten, cast_to, common, element, pointwise, real

# ---------------------------------------------------------------------------------------------------- arithmetic


@aten("add.Tensor", "add.Scalar")
def _add(result: Result, a: Any, b: Any, alpha: Any) -> Any:
    if result.dtype.name == "bool":
        return pointwise(result, te.logical_or, a, b)
    return pointwise(result, lambda x, y: x + (y if alpha == 1 else y * alpha), a, b)


@aten("sub.Tensor", "sub.Scalar")
def _sub(result: Result, a: Any, b: Any, alpha: Any) -> Any:
    return pointwise(result, lambda x, y: x - (y if alpha == 1 else y * alpha), a, b)


@aten("rsub.Tensor", "rsub.Scalar")
def _rsub(result: Result, a: Any, b: Any, alpha: Any) -> Any:
    return pointwise(result, lambda x, y: y - (x if alpha == 1 else x * alpha), a, b)


@aten("mul.Tensor", "mul.Scalar")
def _mul(result: Result, a: Any, b: Any) -> Any:
    return pointwise(result, te.logical_and if result.dtype.name == "bool" else lambda x, y: x * y, a, b)


@aten("div.Tensor", "div.Scalar", "true_divide.Tensor")
def _div(result: Result, a: Any, b: Any) -> Any:
    return pointwise(result, lambda x, y: x / y, a, b, kind=real(a, b))


@aten("div.Tensor_mode", "div.Scalar_mode")
def _div_mode(result: Result, a: Any, b: Any, mode: str | None) -> Any:
    if mode is None:
        return _div(result, a, b)
    floats = common(a, b).is_float
    if mode == "floor":
        return pointwise(result, _floor_quotient if floats else lambda x, y: x // y, a, b)
    return pointwise(result, (lambda x, y: te.trunc(x / y)) if floats else _truncated, a, b)


@aten("floor_divide", "floor_divide.Scalar")
def _floor_divide(result: Result, a: Any, b: Any) -> Any:
    return _div_mode(result, a, b, "floor")


def _floor_quotient(x: Any, y: Any) -> Any:
    """Python's and torch's: that of the exact quotient, which rounding may take to the next integer."""
    rest = x % y
    quotient = te.round((x - rest) / y)
    return te.where((y == 0) | ~te.isfinite(x) | te.isinf(y), te.floor(x / y), quotient)


def _truncated(x: Any, y: Any) -> Any:
    floor = x // y
    return te.where((floor < 0) & (floor * y != x), floor + 1, floor)


@aten("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def _remainder(result: Result, a: Any, b: Any) -> Any:
    return pointwise(result, lambda x, y: x % y, a, b)


@aten("fmod.Tensor", "fmod.Scalar")
def _fmod(result: Result, a: Any, b: Any) -> Any:
    def rest(x: Any, y: Any) -> Any:
        found = te.abs(x) % te.abs(y)
        return te.where(x < 0, -found, found)

    return pointwise(result, rest, a, b)


@aten("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar")
def _pow(result: Result, a: Any, b: Any) -> Any:
    if isinstance(b, (int, float)) and not isinstance(b, bool):
        if result.dtype.is_float and b in _POWERS:
            return pointwise(result, _POWERS[b], a, kind=common(a, b))
        if b == int(b) and 0 <= b <= 4 and not result.dtype.is_float:
            return pointwise(result, lambda x: math.prod([x] * int(b), start=x * 0 + 1), a, kind=common(a, b))
    return pointwise(result, lambda x, y: x**y, a, b)


_POWERS: dict[float, Callable[[Any], Any]] = {
    0: lambda x: te.cast(1, x.dtype),
    1: lambda x: x,
    2: lambda x: x * x,
    3: lambda x: x * x * x,
    0.5: te.sqrt,
    -0.5: lambda x: 1 / te.sqrt(x),
    -1: lambda x: 1 / x,
    -2: lambda x: 1 / (x * x),
}


@aten("neg")
def _neg(result: Result, x: Any) -> Any:
    return pointwise(result, lambda v: -v, x)


@aten("reciprocal")
def _reciprocal(result: Result, x: Any) -> Any:
    return pointwise(result, lambda v: 1 / v, x, kind=real(x))


@aten("maximum")
def _maximum(result: Result, a: Any, b: Any) -> Any:
    return pointwise(result, te.maximum, a, b)


@aten("minimum")
def _minimum(result: Result, a: Any, b: Any) -> Any:
    return pointwise(result, te.minimum, a, b)


@aten("fmax")
def _fmax(result: Result, a: Any, b: Any) -> Any:
    return pointwise(result, lambda x, y: te.where(te.isnan(x), y, te.where(te.isnan(y), x, te.maximum(x, y))), a, b)


@aten("fmin")
def _fmin(result: Result, a: Any, b: Any) -> Any:
    return pointwise(result, lambda x, y: te.where(te.isnan(x), y, te.where(te.isnan(y), x, te.minimum(x, y))), a, b)


def _clamped(v: Any, low: Any, high: Any) -> Any:
    v = v if low is None else te.maximum(v, low)
    return v if high is None else te.minimum(v, high)


@aten("clamp", "clamp.Tensor")
def _clamp(result: Result, x: Any, low: Any, high: Any) -> Any:
    return pointwise(result, _clamped, x, low, high)


@aten("clamp_min", "clamp_min.Tensor")
def _clamp_min(result: Result, x: Any, low: Any) -> Any:
    return pointwise(result, _clamped, x, low, None)


@aten("clamp_max", "clamp_max.Tensor")
def _clamp_max(result: Result, x: Any, high: Any) -> Any:
    return pointwise(result, _clamped, x, None, high)


@aten("addcmul")
def _addcmul(result: Result, x: Any, a: Any, b: Any, value: Any) -> Any:
    return pointwise(result, lambda v, p, q: v + (p * q if value == 1 else p * q * value), x, a, b)


@aten("addcdiv")
def _addcdiv(result: Result, x: Any, a: Any, b: Any, value: Any) -> Any:
    return pointwise(result, lambda v, p, q: v + (p / q if value == 1 else p / q * value), x, a, b)


@aten("lerp.Scalar", "lerp.Tensor")
def _lerp(result: Result, a: Any, b: Any, weight: Any) -> Any:
    def between(x: Any, y: Any, w: Any) -> Any:
        return te.where(te.abs(w) < 0.5, x + w * (y - x), y - (y - x) * (1 - w))

    if isinstance(weight, (int, float)):
        near = abs(weight) < 0.5
        return pointwise(result, lambda x, y: x + weight * (y - x) if near else y - (y - x) * (1 - weight), a, b)
    return pointwise(result, between, a, b, weight)


@aten("prims::fma")
def _fma(result: Result, a: Any, b: Any, c: Any) -> Any:
    return pointwise(result, lambda x, y, z: x * y + z, a, b, c)


@aten("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def _where(result: Result, condition: Any, a: Any, b: Any) -> Any:
    return _chosen(result, condition, a, b, common(a, b))


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(result: Result, x: Any, mask: Any, value: Any) -> Any:
    return _chosen(result, mask, value, x, x.dtype)


def _chosen(result: Result, condition: Any, a: Any, b: Any, kind: DType) -> Any:
    """One or the other, in a dtype to which the condition adds nothing."""
    asked = cast_to(condition, dtype("bool"))

    def value(operand: Any, index: Any) -> Any:
        return te.cast(element(operand, index) if isinstance(operand, te.Tensor) else operand, kind)

    def body(*index: Any) -> Any:
        return te.cast(te.where(element(asked, index), value(a, index), value(b, index)), result.dtype)

    return te.compute(result.shape, body)


# ---------------------------------------------------------------------------------------------------- comparisons, logic, bits


def _comparison(name: str, compare: Callable[[Any, Any], Any]) -> None:
    @aten(f"{name}.Tensor", f"{name}.Scalar")
    def rule(result: Result, a: Any, b: Any) -> Any:
        return pointwise(result, compare, a, b)


_comparison("eq", lambda x, y: x == y)
_comparison("ne", lambda x, y: x != y)
_comparison("lt", lambda x, y: x < y)
_comparison("le", lambda x, y: x <= y)
_comparison("gt", lambda x, y: x > y)
_comparison("ge", lambda x, y: x >= y)


def _logic(name: str, function: Callable[..., Any]) -> None:
    @aten(name)
    def rule(result: Result, *operands: Any) -> Any:
        return pointwise(result, function, *operands)


_logic("logical_and", te.logical_and)
_logic("logical_or", te.logical_or)
_logic("logical_xor", te.logical_xor)
_logic("logical_not", te.logical_not)
_logic("bitwise_not", lambda x: ~x)
_logic("isnan", te.isnan)
_logic("isinf", te.isinf)
_logic("isfinite", te.isfinite)
_logic("signbit", lambda x: _is_negative(x))


def _is_negative(x: Any) -> Any:
    """Whether a number has the sign, as -0.0 has it."""
    return (x < 0) | ((x == 0) & (1 / x < 0)) if x.dtype.is_float else x < 0


def _bits(function: Callable[..., Any], name: str, scalar: str = "Scalar", *others: str) -> None:
    @aten(f"{name}.Tensor", f"{name}.{scalar}", f"{name}.Scalar_Tensor", *others)
    def rule(result: Result, a: Any, b: Any) -> Any:
        return pointwise(result, function, a, b)


_bits(lambda x, y: x & y, "bitwise_and")
_bits(lambda x, y: x | y, "bitwise_or")
_bits(lambda x, y: x ^ y, "bitwise_xor")
_bits(lambda x, y: x << y, "bitwise_left_shift", "Tensor_Scalar", "__lshift__.Tensor", "__lshift__.Scalar")
_bits(lambda x, y: x >> y, "bitwise_right_shift", "Tensor_Scalar", "__rshift__.Tensor", "__rshift__.Scalar")


# ---------------------------------------------------------------------------------------------------- functions of one number


def _asinh(x: Any) -> Any:
    """Small arguments keep their digits; squares of large ones do not overflow."""
    size = te.abs(x)
    large = te.log(size) + math.log(2.0)
    small = te.log1p(size + size * size / (1 + te.sqrt(size * size + 1)))
    return te.where(x == 0, x, te.sign(x) * te.where(size > 1e8, large, small))


def _acosh(x: Any) -> Any:
    ahead = x - 1
    return te.where(x > 1e8, te.log(x) + math.log(2.0), te.log1p(ahead + te.sqrt(2 * ahead + ahead * ahead)))


def _atanh(x: Any) -> Any:
    size = te.abs(x)
    return te.where(x == 0, x, te.sign(x) * 0.5 * te.log1p(2 * size / (1 - size)))


def _real(name: str, function: Callable[[Any], Any]) -> None:
    @aten(name)
    def rule(result: Result, x: Any) -> Any:
        return pointwise(result, function, x, kind=real(x))


for _name, _function in {
    "acos": te.acos, "acosh": _acosh, "asin": te.asin, "asinh": _asinh, "atan": te.atan, "atanh": _atanh, "cos": te.cos, "cosh": te.cosh,
    "digamma": te.digamma, "erf": te.erf, "erfc": te.erfc, "erfinv": te.erfinv, "exp": te.exp, "exp2": te.exp2, "expm1": te.expm1,
    "lgamma": te.lgamma, "log": te.log, "log1p": te.log1p, "log2": te.log2, "log10": lambda x: te.log(x) * (1 / math.log(10.0)),
    "rsqrt": lambda x: 1 / te.sqrt(x), "sigmoid": te.sigmoid, "sin": te.sin, "sinh": te.sinh, "sqrt": te.sqrt, "tan": te.tan,
    "tanh": te.tanh,
}.items():  # fmt: skip
    _real(_name, _function)


def _sign(x: Any) -> Any:
    """The sign of a number as torch has it: 0 of NaN, so that the derivative of `abs` there is none."""
    return te.where(te.isnan(x), 0, te.sign(x)) if x.dtype.is_float else te.sign(x)


def _same(name: str, function: Callable[[Any], Any]) -> None:
    @aten(name)
    def rule(result: Result, x: Any) -> Any:
        return pointwise(result, function, x)


for _name, _function in {
    "abs": te.abs, "ceil": te.ceil, "floor": te.floor, "round": te.round, "sign": _sign, "sgn": _sign, "trunc": te.trunc,
    "square": lambda x: x * x, "relu": lambda x: te.maximum(x, 0),
}.items():  # fmt: skip
    _same(_name, _function)


@aten("copysign.Tensor", "copysign.Scalar")
def _copysign(result: Result, x: Any, y: Any) -> Any:
    return pointwise(result, lambda v, w: te.where(_is_negative(w), -te.abs(v), te.abs(v)), x, y, kind=real(x, y))


@aten("hypot")
def _hypot(result: Result, x: te.Tensor, y: te.Tensor) -> Any:
    return kernels.hypot(cast_to(x, result.dtype), cast_to(y, result.dtype))


@aten("round.decimals")
def _round_decimals(result: Result, x: te.Tensor, decimals: int) -> Any:
    power = 10.0 ** abs(decimals)
    return pointwise(result, lambda v: te.round(v * power) / power if decimals >= 0 else te.round(v / power) * power, x)


@aten("atan2")
def _atan2(result: Result, y: Any, x: Any) -> Any:
    return pointwise(result, te.atan2, y, x, kind=real(y, x))


# ---------------------------------------------------------------------------------------------------- activations

_SQRT_HALF, _DENSITY, _TANH, _CUBE = math.sqrt(0.5), 1 / math.sqrt(2 * math.pi), math.sqrt(2 / math.pi), 0.044715


@aten("gelu")
def _gelu(result: Result, x: Any, approximate: str) -> Any:
    if approximate == "tanh":
        return pointwise(result, lambda v: 0.5 * v * (1 + te.tanh(_TANH * (v + _CUBE * (v * v * v)))), x)
    return pointwise(result, lambda v: 0.5 * v * (1 + te.erf(v * _SQRT_HALF)), x)


@aten("gelu_backward")
def _gelu_backward(result: Result, head: Any, x: Any, approximate: str) -> Any:
    def exact(g: Any, v: Any) -> Any:
        return g * (0.5 * (1 + te.erf(v * _SQRT_HALF)) + v * (_DENSITY * te.exp(-0.5 * (v * v))))

    def by_tanh(g: Any, v: Any) -> Any:
        t = te.tanh(_TANH * (v + _CUBE * (v * v * v)))
        return g * (0.5 * (1 + t) + 0.5 * v * (1 - t * t) * (_TANH * (1 + 3 * _CUBE * (v * v))))

    return pointwise(result, by_tanh if approximate == "tanh" else exact, head, x)


@aten("silu")
def _silu(result: Result, x: Any) -> Any:
    return pointwise(result, lambda v: v * te.sigmoid(v), x)


@aten("silu_backward")
def _silu_backward(result: Result, head: Any, x: Any) -> Any:
    def slope(g: Any, v: Any) -> Any:
        s = te.sigmoid(v)
        return g * (s * (1 + v * (1 - s)))

    return pointwise(result, slope, head, x)


@aten("elu")
def _elu(result: Result, x: Any, alpha: Any, scale: Any, input_scale: Any) -> Any:
    return pointwise(result, lambda v: te.where(v > 0, v * scale, te.expm1(v * input_scale) * (alpha * scale)), x)


@aten("leaky_relu")
def _leaky_relu(result: Result, x: Any, slope: Any) -> Any:
    return pointwise(result, lambda v: te.where(v > 0, v, v * slope), x)


@aten("leaky_relu_backward")
def _leaky_relu_backward(result: Result, head: Any, x: Any, slope: Any, _: Any) -> Any:
    return pointwise(result, lambda g, v: te.where(v > 0, g, g * slope), head, x)


@aten("hardtanh")
def _hardtanh(result: Result, x: Any, low: Any, high: Any) -> Any:
    return pointwise(result, lambda v: _clamped(v, low, high), x)


@aten("hardtanh_backward")
def _hardtanh_backward(result: Result, head: Any, x: Any, low: Any, high: Any) -> Any:
    return pointwise(result, lambda g, v: te.where((v > low) & (v < high), g, 0.0), head, x)


@aten("threshold_backward")
def _threshold_backward(result: Result, head: Any, x: Any, threshold: Any) -> Any:
    return pointwise(result, lambda g, v: te.where(v <= threshold, 0.0, g), head, x)


@aten("sigmoid_backward")
def _sigmoid_backward(result: Result, head: Any, y: Any) -> Any:
    return pointwise(result, lambda g, s: g * (s * (1 - s)), head, y)


@aten("tanh_backward")
def _tanh_backward(result: Result, head: Any, y: Any) -> Any:
    return pointwise(result, lambda g, t: g * (1 - t * t), head, y)


@aten("native_dropout_backward")
def _native_dropout_backward(result: Result, head: Any, mask: Any, scale: Any) -> Any:
    return pointwise(result, lambda g, m: g * (m * scale), head, mask, kind=head.dtype)


@aten("native_dropout")
def _native_dropout(result: Result, x: Any, p: float, train: bool | None) -> Any:
    """What needs no random numbers; the rest has been made a draw and a product before (`graphs`)."""
    if train is not None and not train:
        return x, te.compute(x.shape, lambda *i: te.cast(1, "bool"))
    if p == 1:
        return te.compute(x.shape, lambda *i: te.cast(0, x.dtype)), te.compute(x.shape, lambda *i: te.cast(0, "bool"))
    raise Unsupported("random numbers are torch's")
