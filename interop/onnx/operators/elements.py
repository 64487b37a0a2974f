"""Operators element by element, whose operands broadcast."""

from __future__ import annotations

import operator as python
from collections.abc import Callable
from typing import Any

import numpy as np

from tensorexpr import kernels, language
from tensorexpr.graph.trace.values import elementwise
from tensorexpr.interop.onnx.table import Known, Raw, operator
from tensorexpr.interop.onnx.values import is_text, known, tensor_of, texts
from tensorexpr.language import Tensor, cast


def quotient(a: Any, b: Any) -> Any:
    """ONNX's division: of integers it truncates toward zero."""
    if a.dtype.is_float:
        return a / b
    if not a.dtype.is_signed:
        return a // b
    return a // b + cast((a % b != 0) & ((a < 0) != (b < 0)), a.dtype)


def _asinh(x: Any) -> Any:
    a = language.abs(x)
    near = language.log1p(a + a * a / (language.sqrt(a * a + 1) + 1))
    return language.where(x < 0, -1, 1) * language.where(a > 1e4, language.log(a) + 0.6931471805599453, near)


def _acosh(x: Any) -> Any:
    t = x - 1
    return language.where(x > 1e4, language.log(x) + 0.6931471805599453, language.log1p(t + language.sqrt(2 * t + t * t)))


def _atanh(x: Any) -> Any:
    return 0.5 * language.log1p(2 * x / (1 - x))


def _reciprocal(x: Any) -> Any:
    return 1 / x


def _equal(a: Any, b: Any) -> Any:
    return a == b


_ELEMENTS: dict[str, Callable[..., Any]] = {
    "Add": python.add, "Sub": python.sub, "Mul": python.mul, "Neg": python.neg, "Abs": language.abs,
    "Exp": language.exp, "Log": language.log, "Sqrt": language.sqrt, "Sin": language.sin, "Cos": language.cos, "Tan": language.tan,
    "Sinh": language.sinh, "Cosh": language.cosh, "Tanh": language.tanh, "Asin": language.asin, "Acos": language.acos,
    "Atan": language.atan, "Sigmoid": language.sigmoid, "Erf": language.erf, "Floor": language.floor, "Ceil": language.ceil,
    "Round": language.round, "Sign": language.sign, "Asinh": _asinh, "Acosh": _acosh, "Atanh": _atanh, "Less": python.lt,
    "LessOrEqual": python.le, "Greater": python.gt, "GreaterOrEqual": python.ge,
    "And": python.and_, "Or": python.or_, "Xor": python.xor, "Not": python.invert, "BitwiseAnd": python.and_,
    "BitwiseOr": python.or_, "BitwiseXor": python.xor, "BitwiseNot": python.invert, "IsNaN": language.isnan,
    "Reciprocal": _reciprocal, "Div": quotient,
}  # fmt: skip


def _put(names: tuple[str, ...], function: Callable[..., Any], until: int, since: int) -> None:
    @operator(*names, since=since, until=until)
    def row(*inputs: Any) -> Any:
        return elementwise(function, *inputs)


def _legacy(name: str, function: Callable[..., Any]) -> None:
    """Operators as they were before version 7: shapes broadcast by an attribute, the second operand laid along the axes from `axis` on."""

    @operator(name, until=7)
    def row(a: Any, b: Any, *, axis: int | None = None, broadcast: int = 0, consumed_inputs: Any = None) -> Any:
        if broadcast and axis is not None and axis >= 0:
            b = kernels.reshape(b, shape=(*b.shape, *[1] * (a.ndim - axis - b.ndim)))
        return elementwise(function, a, b)


_OPERANDS = ("Add", "Sub", "Mul", "Div", "And", "Or", "Xor", "Less", "Greater")
for _name, _function in _ELEMENTS.items():
    _put((_name,), _function, 1 << 30, 7 if _name in _OPERANDS else 1)
    if _name in _OPERANDS:
        _legacy(_name, _function)


@operator("Equal", since=7)
def _are_equal(a: Raw, b: Raw) -> Any:
    if is_text(a) or is_text(b):
        return np.asarray(texts(known(a)) == texts(known(b)), bool)
    return elementwise(_equal, tensor_of(a), tensor_of(b))


_legacy("Equal", _equal)


@operator("Pow", since=7)
def _pow(a: Any, b: Any) -> Any:
    if a.dtype.is_integer and b.dtype.is_integer:
        return elementwise(lambda p, q: language.power(p, cast(q, p.dtype)), a, b)
    return elementwise(language.power, a, b)


_legacy("Pow", language.power)


def _pairwise(name: str, function: Callable[..., Any]) -> None:
    """One input as it is, several two by two."""

    @operator(name)
    def row(first: Any, *others: Any) -> Any:
        for other in others:
            first = elementwise(function, first, other)
        return first


for _name, _function in (("Sum", python.add), ("Min", language.minimum), ("Max", language.maximum)):
    _pairwise(_name, _function)


@operator("Mean")
def _mean(first: Any, *others: Any) -> Any:
    for other in others:
        first = elementwise(python.add, first, other)
    return elementwise(lambda total: total / (1 + len(others)), first)


@operator("Clip", since=11)
def _clip(x: Any, min: Any = None, max: Any = None) -> Any:
    for bound, function in ((min, language.maximum), (max, language.minimum)):
        if bound is not None:
            x = elementwise(lambda v, b, function=function: function(v, cast(b, v.dtype)), x, bound)
    return x


@operator("Clip", until=11)
def _clip_by_attributes(x: Any, *, min: float | None = None, max: float | None = None, consumed_inputs: Any = None) -> Any:
    low, high = (None if bound is None else x.dtype.numpy.type(bound) for bound in (min, max))
    return elementwise(lambda v: _held(v, low, high), x)


def _held(value: Any, low: Any, high: Any) -> Any:
    value = value if low is None else language.maximum(value, low)
    return value if high is None else language.minimum(value, high)


@operator("IsInf")
def _is_infinite(x: Any, *, detect_negative: int = 1, detect_positive: int = 1) -> Any:
    def one(value: Any) -> Any:
        found = language.isinf(value)
        if not detect_negative:
            found = found & (value > 0)
        return found if detect_positive else found & (value < 0)

    return elementwise(one, x)


@operator("Where", moves=True)
def _where(condition: Any, a: Any, b: Any) -> Any:
    return elementwise(language.where, condition, a, b)


@operator("Mod")
def _mod(a: Any, b: Any, *, fmod: int = 0) -> Any:
    if not fmod:
        return elementwise(python.mod, a, b)
    if a.dtype.is_float:
        return kernels.fmod(a, b)
    return elementwise(lambda p, q: p - q * quotient(p, q), a, b)


@operator("BitShift")
def _bit_shift(a: Any, b: Any, *, direction: str) -> Any:
    bits = a.dtype.bits

    def one(p: Any, q: Any) -> Any:
        fits = (q >= 0) & (q < bits)  # a negative number of places is read as one without a sign
        held = language.where(fits, q, bits - 1)
        if direction == "RIGHT" and a.dtype.is_signed:  # the sign fills what becomes free
            return p >> held
        return language.where(fits, p << held if direction == "LEFT" else p >> held, cast(0, a.dtype))

    return elementwise(one, a, b)


@operator("PRelu")
def _prelu(x: Any, slope: Any) -> Any:
    if slope.ndim == 1 and x.ndim > 1 and slope.shape[0] != 1 and slope.shape[0] != x.shape[-1]:  # before version 9: one for each channel
        slope = kernels.reshape(slope, shape=(slope.shape[0], *[1] * (x.ndim - 2)))
    return elementwise(lambda v, s: language.where(v < 0, v * s, v), x, slope)


@operator("HardSigmoid")
def _hard_sigmoid(x: Any, *, alpha: float = 0.2, beta: float = 0.5) -> Any:
    return elementwise(lambda v: language.maximum(language.minimum(alpha * v + beta, 1.0), 0.0), x)


@operator("Softplus")
def _softplus(x: Any) -> Any:
    return elementwise(lambda v: language.maximum(v, 0) + language.log1p(language.exp(-language.abs(v))), x)


@operator("ThresholdedRelu")
def _thresholded(x: Any, *, alpha: float = 1.0) -> Any:
    return elementwise(lambda v: language.where(v > alpha, v, 0), x)


@operator("Shrink")
def _shrink(x: Any, *, bias: float = 0.0, lambd: float = 0.5) -> Any:
    return elementwise(lambda v: cast(language.where(v < -lambd, v + bias, language.where(v > lambd, v - bias, 0)), v.dtype), x)


@operator("Selu")
def _selu(x: Any, *, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323, consumed_inputs: Any = None) -> Any:
    return elementwise(lambda v: gamma * language.where(v > 0, v, alpha * language.expm1(language.minimum(v, 0))), x)


@operator("Affine")
def _affine(x: Any, *, alpha: float = 1.0, beta: float = 0.0) -> Any:
    return elementwise(lambda v: alpha * v + beta, x)


@operator("ScaledTanh")
def _scaled_tanh(x: Any, *, alpha: float = 1.0, beta: float = 1.0) -> Any:
    return elementwise(lambda v: alpha * language.tanh(beta * v), x)


@operator("ParametricSoftplus")
def _parametric(x: Any, *, alpha: float = 1.0, beta: float = 1.0) -> Any:
    return elementwise(lambda v: alpha * (language.maximum(beta * v, 0) + language.log1p(language.exp(-language.abs(beta * v)))), x)


def _native(name: str, function: Callable[..., Any]) -> None:
    operator(name)(function)


_native("Relu", lambda x, *, consumed_inputs=None: kernels.relu(x))
_native("Gelu", lambda x, *, approximate="none": kernels.gelu(x, approximate=approximate))
_native("Mish", lambda x: kernels.mish(x))
_native("HardSwish", lambda x: kernels.hardswish(x))
_native("Softsign", lambda x: kernels.softsign(x))
_native("Elu", lambda x, *, alpha=1.0, consumed_inputs=None: kernels.elu(x, alpha=alpha))
_native("Celu", lambda x, *, alpha=1.0: kernels.celu(x, alpha=alpha))
_native("LeakyRelu", lambda x, *, alpha=0.01, consumed_inputs=None: kernels.leaky_relu(x, negative_slope=alpha))


@operator("Swish")
def _swish(x: Any, *, alpha: float = 1.0) -> Any:
    return elementwise(lambda v: v * language.sigmoid(alpha * v), x)


# ---------------------------------------------------------------------------------------------------- products


@operator("MatMul")
def _matmul(a: Any, b: Any) -> Any:
    return kernels.matmul(a, b)


@operator("Gemm")
def _gemm(
    a: Tensor, b: Tensor, c: Any = None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0, broadcast: int = 0
) -> Any:
    left, right = (kernels.transpose(x) if flip else x for x, flip in ((a, transA), (b, transB)))
    product = kernels.matmul(left, right)
    if not a.dtype.is_float:
        return _integer_gemm(product, c, alpha, beta)
    if alpha != 1:
        product = elementwise(lambda v: v * alpha, product)
    return product if c is None else elementwise(lambda p, q: p + (q if beta == 1 else beta * q), product, c)


def _integer_gemm(product: Any, c: Any, alpha: float, beta: float) -> Any:
    scaled = elementwise(lambda v: cast(cast(v, "float64") * alpha, v.dtype), product) if alpha != 1 else product
    return scaled if c is None else elementwise(lambda p, q: p + (q if beta == 1 else cast(cast(q, "float64") * beta, q.dtype)), scaled, c)


@operator("Einsum")
def _einsum(*tensors: Any, equation: str) -> Any:
    return kernels.einsum(tensors, equation=equation.replace(" ", ""))


@operator("Det")
def _det(x: Tensor) -> Any:
    return kernels.det(x)


@operator("CumSum")
def _cumsum(x: Any, axis: Known, *, exclusive: int = 0, reverse: int = 0) -> Any:
    return kernels.cumsum(x, axis=int(np.asarray(axis).ravel()[0]), exclusive=bool(exclusive), reverse=bool(reverse))


@operator("CumProd")
def _cumprod(x: Any, axis: Known, *, exclusive: int = 0, reverse: int = 0) -> Any:
    return kernels.cumprod(x, axis=int(np.asarray(axis).ravel()[0]), exclusive=bool(exclusive), reverse=bool(reverse))
