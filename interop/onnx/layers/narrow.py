"""Types that are storage alone: float8, and floats and integers of four and two bits, one element to a byte.

A tensor of such a type is one of codes. A code has its value from a table; the code of a value is found by counting: codes that stand for
numbers above zero are in order, so the nearest one is the number of midpoints between neighbors that lie below the value, halves to even
codes. Both are exact, and on every backend the same.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tensorexpr import kernels, language
from tensorexpr.dtypes import dtype
from tensorexpr.interop.onnx.layers.windows import convolved
from tensorexpr.interop.onnx.operators.common import cast_to
from tensorexpr.interop.onnx.table import Raw, operator
from tensorexpr.interop.onnx.values import Coded, is_constant, is_narrow, is_text, kind_of, known, on_host, tensor_of, texts
from tensorexpr.ir import TensorType
from tensorexpr.language import Tensor, cast, compute, constant

_INTEGERS = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}


def is_small_integer(kind: np.dtype) -> bool:
    """Whether a type is one of integers of four or two bits."""
    return np.dtype(kind).name in _INTEGERS


def range_of(kind: Any) -> tuple[int, int]:
    """The least and the greatest value of a type of integers."""
    name = np.dtype(kind).name
    if name in _INTEGERS:
        return _INTEGERS[name]
    info = np.iinfo(kind)
    return int(info.min), int(info.max)


@cache
def _values(kind: np.dtype) -> np.ndarray:
    """The value of each code; of integers, what its low bits say."""
    return np.arange(256, dtype=np.uint8).view(kind).astype(np.float32)


@cache
def _numbers(kind: np.dtype) -> tuple[np.ndarray, int, int]:
    """The numbers from zero on in the order of their codes, from 0; the bit of the sign; the code of what is beyond (-1: there is none)."""
    values = _values(kind)
    half = 8 if kind.name.startswith("float4") else 256 if kind.name == "float8_e8m0fnu" else 128
    finite = [float(v) for v in values[:half] if np.isfinite(v)]
    beyond = len(finite) if len(finite) < half else (128 if kind.name.endswith("fnuz") else -1)
    return np.asarray(finite, np.float64), half, beyond


def decoded(x: Coded) -> Tensor:
    """The values of codes, in float32, of integers in int32."""
    values = _values(x.kind)
    table = constant(values.astype(np.int32) if is_small_integer(x.kind) else values)
    return compute(x.shape, lambda *i: table[cast(x.codes[i], "int64")])


def encoded(x: Tensor, kind: np.dtype, saturate: bool = True, round_mode: str = "up") -> Coded:
    """Floating values in a narrow floating type. Without `saturate` what is beyond the greatest number is infinite, or no number."""
    if x.dtype != "float64":
        x = cast_to(x, "float32")
    if kind.name == "float8_e8m0fnu":
        return Coded(_exponents(x, saturate, round_mode), kind)
    numbers, half, beyond = _numbers(kind)
    step = numbers[-1] - numbers[-2]
    between = np.append((numbers[1:] + numbers[:-1]) / 2, numbers[-1] + step / 2)
    even = np.arange(len(between)) % 2 == 0  # a half goes up to an even code, so it counts above odd ones
    middles, ties = constant(between.astype(x.dtype.numpy)), constant(~even)
    last = len(numbers) - 1
    not_a_number = _not_a_number(kind)
    over = beyond if beyond >= 0 and not saturate else last
    unsigned_zero = kind.name.endswith("fnuz")

    def element(*i: Any) -> Any:
        value = x[i]
        size = language.abs(value)

        def above(k: Any) -> Any:
            return cast(language.where(ties[k], size >= middles[k], size > middles[k]), "int32")

        place = language.sum(above, len(between))
        code = language.where(place > last, over, place)
        if unsigned_zero:
            signed = language.where((value < 0) & (code > 0) & (code < half), code + half, code)
        else:
            # The sign of a zero is that of its reciprocal.
            negative = (value < 0) | ((value == 0) & (1 / value < 0))
            signed = language.where(negative, code + half, code)
        found = language.where(language.isnan(value), not_a_number, signed) if not_a_number >= 0 else signed
        return cast(found, "uint8")

    return Coded(compute(x.shape, element), kind)


def _not_a_number(kind: np.dtype) -> int:
    """The code of what is no number; -1 where there is none."""
    if kind.name.startswith("float4"):
        return -1
    return int(np.asarray(np.nan, np.float32).astype(kind).view(np.uint8))


def _exponents(x: Tensor, saturate: bool, round_mode: str) -> Tensor:
    """Powers of two from 2^-127: up, down, or to the nearest one, halves up."""
    powers = np.ldexp(1.0, np.arange(-127, 128))
    marks = {"up": powers, "down": powers, "nearest": np.append(powers[:-1] * 1.5, np.inf)}[round_mode].astype(x.dtype.numpy)
    table = constant(marks)

    def element(*i: Any) -> Any:
        value = x[i]

        def below(k: Any) -> Any:
            return cast(table[k] < value if round_mode == "up" else table[k] <= value, "int32")

        count = language.sum(below, len(marks))
        code = language.clip(count - 1 if round_mode == "down" else count, 0, 254 if saturate else 255)
        return cast(language.where(language.isnan(value) | (value < 0), 255, code), "uint8")

    return compute(x.shape, element)


def small_integers(x: Tensor, kind: np.dtype) -> Coded:
    """Integers in a type of four or two bits, of which the low bits are kept."""
    low, high = range_of(kind)
    codes = constant(np.arange(low, high + 1).astype(kind).view(np.uint8))
    width = high - low + 1

    def element(*i: Any) -> Any:
        return codes[(cast(x[i], "int64") - low) % width]

    return Coded(compute(x.shape, element), kind)


def typed_as(x: Any, kind: np.dtype, saturate: bool = True, round_mode: str = "up") -> Any:
    """A value in another type, as ONNX's Cast."""
    kind = np.dtype(kind)
    if kind.kind in "OUS" or (isinstance(x, np.ndarray) and x.dtype == np.dtype(object) and (is_text(x) or not x.size)):
        return _by_text(known(x), kind)
    given = tensor_of(x)
    if isinstance(given, Coded):
        given = decoded(given)
    if not is_narrow(kind):
        return _plain(given, kind)
    if not is_small_integer(kind):
        return encoded(given, kind, saturate, round_mode)
    if given.dtype.is_float:
        given = compute(given.shape, lambda *i: cast(language.trunc(given[i]), "int64"))
    return small_integers(given, kind)


@operator("Cast")
def _cast(x: Raw, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    return typed_as(x, kind_of(to), bool(saturate), round_mode)


@operator("CastLike")
def _cast_like(x: Raw, like: Raw, *, saturate: int = 1, round_mode: str = "up") -> Any:
    if isinstance(like, Coded):
        return typed_as(x, like.kind, bool(saturate), round_mode)
    return typed_as(x, like.dtype.numpy if isinstance(like, Tensor) else like.dtype, bool(saturate), round_mode)


def _plain(x: Tensor, kind: np.dtype) -> Tensor:
    return cast_to(x, dtype(kind))


def _by_text(array: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Numbers as text, and back."""
    if kind.kind not in "OUS":
        values = [float(item) if kind.kind not in "iu" else int(item) for item in texts(array).ravel()]
        return np.asarray(values, np.float64 if kind.kind not in "iu" else np.int64).reshape(array.shape).astype(kind)
    found = np.empty(array.shape, object)
    for k, item in enumerate(array.ravel()):
        found.flat[k] = item if isinstance(item, str) else _text(item)
    return found


def _text(item: Any) -> str:
    if isinstance(item, (bool, np.bool_)):
        return str(int(item))
    kind = np.asarray(item).dtype
    if kind.kind in "iu":
        return str(int(item))
    value = np.float32(item) if kind.itemsize < 4 else item
    return np.format_float_positional(value, trim="-") if np.isfinite(value) else {"nan": "NaN", "inf": "INF", "-inf": "-INF"}[str(value)]


# ---------------------------------------------------------------------------------------------------- quantization


def _laid(parameter: Any, x: Tensor, axis: int, block: int) -> Any:
    """A scale or zero point by the indices of what it belongs to: one for all, for each place of an axis, or for each block of it."""
    if parameter is None:
        return lambda i: 0
    given = decoded(parameter) if isinstance(parameter, Coded) else parameter
    if given.ndim == 0 or (given.ndim == 1 and given.shape[0] == 1 and (block or x.ndim == 0 or x.shape[axis] != 1)):
        return lambda i: given[(0,) * given.ndim]
    if block:
        return lambda i: given[(*i[:axis], i[axis] // block, *i[axis + 1 :])]
    if given.ndim == 1:
        return lambda i: given[i[axis]]
    return lambda i: given[tuple(0 if n == 1 else k for n, k in zip(given.shape, i, strict=True))]


def _kind(parameter: Any) -> np.dtype | None:
    if parameter is None:
        return None
    return parameter.kind if isinstance(parameter, Coded) else parameter.dtype.numpy


def _saturated(x: Tensor, kind: np.dtype, saturate: bool) -> Any:
    """Rounded values in a type, held within it."""
    if is_narrow(kind) and not is_small_integer(kind):
        return encoded(x, kind, saturate)
    low, high = range_of(kind)
    held = compute(x.shape, lambda *i: cast(language.clip(language.round(x[i]), low, high), "int32"))
    return small_integers(held, kind) if is_small_integer(kind) else cast_to(held, dtype(kind))


def quantized(x: Tensor, scale: Any, zero: Any, kind: np.dtype, axis: int, block: int = 0, saturate: bool = True) -> Any:
    """`x / scale + zero`, rounded and held in a type."""
    at = axis % x.ndim if x.ndim else 0
    scales, zeros = _laid(scale, x, at, block), _laid(zero, x, at, block)
    wide = "float64" if x.dtype.is_integer else "float32"
    if is_narrow(kind) and not is_small_integer(kind):
        return encoded(compute(x.shape, lambda *i: cast(x[i], "float32") / cast(scales(i), "float32")), kind, saturate)
    shifted = compute(x.shape, lambda *i: language.round(cast(x[i], wide) / cast(scales(i), wide)) + cast(zeros(i), wide), name="shifted")
    return _saturated(shifted, kind, saturate)


@operator("QuantizeLinear")
def _quantize(
    x: Tensor, scale: Raw, zero: Raw = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0, precision: int = 0,
    saturate: int = 1,
) -> Any:  # fmt: skip
    scale, zero = tensor_of(scale), tensor_of(zero)
    kind = _kind(zero) or (kind_of(output_dtype) if output_dtype else np.dtype(np.uint8))
    if x.ndim <= 1 and not block_size:
        axis = 0
    return quantized(x, scale, zero, kind, axis, block_size, bool(saturate))


@operator("DequantizeLinear")
def _dequantize(x: Raw, scale: Raw, zero: Raw = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0) -> Any:
    given, scale, zero = tensor_of(x), tensor_of(scale), tensor_of(zero)
    kind = dtype(kind_of(output_dtype)) if output_dtype else scale.dtype if isinstance(scale, Tensor) else dtype("float32")
    values = decoded(given) if isinstance(given, Coded) else given
    at = axis % values.ndim if values.ndim and (values.ndim > 1 or block_size) else 0
    scales, zeros = _laid(scale, values, at, block_size), _laid(zero, values, at, block_size)

    def element(*i: Any) -> Any:
        value = cast(values[i], "float32" if values.dtype.is_float or values.dtype.bits < 32 else "float64")
        return cast((value - cast(zeros(i), value.dtype)) * cast(scales(i), value.dtype), kind)

    return compute(values.shape, element)


@operator("DynamicQuantizeLinear")
def _dynamic(x: Tensor) -> Any:
    low = compute((), lambda: language.minimum(language.min(lambda *i: x[i], x.shape), 0), name="low")
    high = compute((), lambda: language.maximum(language.max(lambda *i: x[i], x.shape), 0), name="high")
    scale = compute((), lambda: (high[()] - low[()]) / 255, name="scale")
    safe = compute((), lambda: language.where(scale[()] == 0, 1, scale[()]))
    zero = compute((), lambda: cast(language.clip(language.round(-low[()] / safe[()]), 0, 255), "uint8"), name="zero")
    return quantized(x, safe, zero, np.dtype(np.uint8), 0), scale, zero


def _centered(x: Tensor, zero: Any, axis: int) -> Tensor:
    zeros = _laid(zero, x, axis, 0)
    return compute(x.shape, lambda *i: cast(x[i], "int32") - cast(zeros(i), "int32"))


@operator("MatMulInteger")
def _matmul_integer(a: Tensor, b: Tensor, a_zero: Any = None, b_zero: Any = None) -> Any:
    return cast_to(kernels.matmul(_centered(a, a_zero, max(a.ndim - 2, 0)), _centered(b, b_zero, b.ndim - 1)), "int32")


@operator("ConvInteger")
def _conv_integer(
    x: Tensor, w: Tensor, x_zero: Any = None, w_zero: Any = None, *, auto_pad: str = "NOTSET", dilations: Any = None, group: int = 1,
    kernel_shape: Any = None, pads: Any = None, strides: Any = None,
) -> Any:  # fmt: skip
    found = convolved(_centered(x, x_zero, 1), _centered(w, w_zero, 0), None, auto_pad, dilations, group, kernel_shape, pads, strides, 0)
    return cast_to(found, "int32")


def _requantized(total: Tensor, factor: Any, zero: Any, axis: int) -> Any:
    kind = _kind(zero)
    assert kind is not None
    zeros = _laid(zero, total, axis, 0)
    shifted = compute(total.shape, lambda *i: language.round(cast(total[i], "float64") * factor(i)) + cast(zeros(i), "float64"))
    return _saturated(shifted, kind, True)


@operator("QLinearMatMul")
def _quantized_matmul(
    a: Tensor, a_scale: Tensor, a_zero: Raw, b: Tensor, b_scale: Tensor, b_zero: Raw, y_scale: Tensor, y_zero: Raw
) -> Any:
    first, second, out = (tensor_of(item) for item in (a_zero, b_zero, y_zero))
    total = kernels.matmul(_centered(a, first, max(a.ndim - 2, 0)), _centered(b, second, b.ndim - 1))
    last = total.ndim - 1

    def factor(i: Any) -> Any:
        parts = [
            cast(_laid(scale, total, axis, 0)(i), "float64")
            for scale, axis in ((a_scale, max(last - 1, 0)), (b_scale, last), (y_scale, last))
        ]
        return parts[0] * parts[1] / parts[2]

    return _requantized(total, factor, out, last)


@operator("QLinearConv")
def _quantized_conv(
    x: Tensor, x_scale: Tensor, x_zero: Raw, w: Tensor, w_scale: Tensor, w_zero: Raw, y_scale: Tensor, y_zero: Raw, b: Any = None, *,
    auto_pad: str = "NOTSET", dilations: Any = None, group: int = 1, kernel_shape: Any = None, pads: Any = None, strides: Any = None,
) -> Any:  # fmt: skip
    first, second, out = (tensor_of(item) for item in (x_zero, w_zero, y_zero))
    total = convolved(_centered(x, first, 1), _centered(w, second, 0), b, auto_pad, dilations, group, kernel_shape, pads, strides, 0)

    def factor(i: Any) -> Any:
        parts = [cast(_laid(scale, total, 1, 0)(i), "float64") for scale in (x_scale, w_scale, y_scale)]
        return parts[0] * parts[1] / parts[2]

    return _requantized(total, factor, out, 1)


@operator("BitCast")
def _bit_cast(x: Raw, *, to: int) -> Any:
    """The same bytes as another type of as many: seen so by the host, between kernels."""
    kind, given = kind_of(to), tensor_of(x)
    if isinstance(given, Coded):
        return Coded(given.codes, kind) if is_narrow(kind) else _seen(given.codes, kind)
    return Coded(_seen(given, np.dtype(np.uint8)), kind) if is_narrow(kind) else _seen(given, kind)


def _seen(x: Tensor, kind: np.dtype) -> Tensor:
    if x.dtype.itemsize != kind.itemsize:
        raise ValueError(f"{x.dtype.name} as {kind}")
    if x.dtype == dtype(kind):
        return x
    if is_constant(x):
        return constant(known(x).view(kind))
    return on_host("BitCast", _Seen(kind), [x], [TensorType(x.extents, dtype(kind))])[0]


class _Seen:
    """Arrays seen as another type."""

    def __init__(self, kind: np.dtype) -> None:
        self.kind = kind

    def __call__(self, array: np.ndarray) -> tuple[np.ndarray]:
        return (np.ascontiguousarray(array).view(self.kind).reshape(array.shape),)
