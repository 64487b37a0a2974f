"""ONNX's operators on tensors: a row each, by kernels of the library or element by element.

A row takes the inputs (tensors, or arrays where they are constants) and the attributes by name. `NATIVE` has those operators that ONNX
itself defines by a function body, and that we have a kernel for; their other forms run from the body.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import helper

from tensorexpr import kernels, language
from tensorexpr.dtypes import dtype
from tensorexpr.graph.values import elementwise
from tensorexpr.language import Tensor, compute

Row = Callable[..., Any]


def _elements(function: Callable[..., Any]) -> Row:
    def row(*inputs: Any) -> Any:
        result = inputs[0]
        if len(inputs) == 1:
            return elementwise(function, result)
        for other in inputs[1:]:
            result = elementwise(function, result, other)
        return result

    return row


def _choose(condition: Any, a: Any, b: Any) -> Any:
    return elementwise(language.where, condition, a, b)


def _pairwise(function: Callable[..., Any]) -> Row:
    """One input as it is, several two by two."""

    def row(first: Any, *others: Any) -> Any:
        for other in others:
            first = elementwise(function, first, other)
        return first

    return row


def _is_infinite(x: Any, *, detect_negative: int = 1, detect_positive: int = 1) -> Any:
    def one(value: Any) -> Any:
        found = language.isinf(value)
        if not detect_negative:
            found = found & (value > 0)
        return found if detect_positive else found & (value < 0)

    return elementwise(one, x)


def _cast(x: Any, *, to: int, saturate: int = 1) -> Any:
    target = dtype(helper.tensor_dtype_to_np_dtype(to))
    return elementwise(lambda value: language.cast(value, target), x)


def _equal(a: Any, b: Any) -> Any:
    return a == b


def _extents(x: Tensor) -> list[int]:
    return [extent for extent in x.shape if isinstance(extent, int)]


def _static(value: Any) -> list[int]:
    return [int(v) for v in np.asarray(value).ravel()]


def _axes(given: Any, rank: int) -> list[int]:
    """Different axes of a tensor with `rank` of them, counted from its front."""
    chosen = _static(given)
    if not all(-rank <= axis < rank for axis in chosen) or len({axis % rank for axis in chosen}) < len(chosen):
        raise ValueError(f"axes {chosen} of {rank}")
    return [axis % rank for axis in chosen]


def _halves(x: Tensor, axis: int) -> tuple[int, int]:
    """How many elements the axes before an axis have together, and those from it on; `axis` may be behind the last."""
    extents, last = _extents(x), max(x.ndim, 1)  # a number is a row of one
    if not -last <= axis <= last:
        raise ValueError(f"axis {axis} of {x.ndim}")
    return math.prod(extents[:axis]), math.prod(extents[axis:])


def _reshape(x: Tensor, shape: Any, *, allowzero: int = 0) -> Any:
    wanted = [x.shape[k] if n == 0 and not allowzero else n for k, n in enumerate(_static(shape))]
    if wanted.count(-1) > 1:
        raise ValueError(f"shape {wanted}")
    if -1 in wanted:
        known = math.prod(n for n in wanted if n != -1)
        wanted[wanted.index(-1)] = math.prod(_extents(x)) // max(known, 1)
    return kernels.reshape(x, shape=tuple(wanted))


def _expand(x: Tensor, shape: Any) -> Any:
    wanted = np.broadcast_shapes(tuple(_extents(x)), tuple(_static(shape)))
    return kernels.broadcast_to(x, shape=tuple(int(n) for n in wanted))


def _unsqueeze(x: Tensor, axes: Any) -> Any:
    rank = x.ndim + len(_static(axes))
    shape = list(x.shape)
    for axis in sorted(_axes(axes, rank)):
        shape.insert(axis, 1)
    return kernels.reshape(x, shape=tuple(shape))


def _squeeze(x: Tensor, axes: Any = None) -> Any:
    gone = set(_axes(axes, x.ndim)) if axes is not None else {k for k, n in enumerate(x.shape) if n == 1}
    return kernels.reshape(x, shape=tuple(n for k, n in enumerate(x.shape) if k not in gone))


def _transpose(x: Tensor, *, perm: Any = None) -> Any:
    return kernels.permute(x, axes=tuple(perm) if perm is not None else tuple(reversed(range(x.ndim))))


def _gather_nd(x: Tensor, places: Any, *, batch_dims: int = 0) -> Any:
    at = places if isinstance(places, Tensor) else language.constant(np.asarray(places))
    width, rest = _extents(at)[-1], at.ndim - 1

    def element(*index: Any) -> Any:
        own = [at[(*index[:rest], k)] for k in range(width)]
        return x[(*index[:batch_dims], *own, *index[rest:])]

    return compute((*at.shape[:-1], *x.shape[batch_dims + width :]), element)


def _slice(x: Tensor, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    chosen = _axes(axes if axes is not None else range(len(_static(starts))), x.ndim)
    strides = _static(steps) if steps is not None else [1] * len(chosen)
    ranges = [range(extent) for extent in _extents(x)]
    for axis, start, end, step in zip(chosen, _static(starts), _static(ends), strides, strict=True):
        ranges[axis] = ranges[axis][start:end:step]
    return compute(tuple(map(len, ranges)), lambda *i: x[tuple(r.start + r.step * k for r, k in zip(ranges, i, strict=True))])


def _pad(x: Tensor, pads: Any, value: Any = None, axes: Any = None, *, mode: str = "constant") -> Any:
    chosen = _axes(axes if axes is not None else range(x.ndim), x.ndim)
    both, before, shape = _static(pads), [0] * x.ndim, _extents(x)
    for k, axis in enumerate(chosen):
        before[axis] = both[k]
        shape[axis] += both[k] + both[k + len(chosen)]
    if mode != "constant" and min(both, default=0) < 0:
        raise ValueError(f"negative pads in mode {mode}")
    fill = 0 if value is None else np.asarray(value).ravel()[0].item()
    outside = {"constant": fill, "edge": "clamp", "reflect": "reflect", "wrap": "wrap"}[mode]
    return compute(tuple(shape), lambda *i: x.read(*(k - b for k, b in zip(i, before, strict=True)), outside=outside))


def _split(x: Tensor, split: Any = None, *, axis: int = 0, num_outputs: int = 0) -> Any:
    extent = _extents(x)[axis]
    widths = _static(split) if split is not None else []
    if not widths:
        width = -(-extent // num_outputs)
        widths = [min(width, extent - start) for start in range(0, extent, width)]
    ends = list(itertools.accumulate(widths))
    return tuple(_slice(x, [end - width], [end], [axis]) for width, end in zip(widths, ends, strict=True))


def _conv(
    x: Tensor,
    w: Tensor,
    b: Any = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    rank, window = x.ndim - 2, _extents(w)[2:]
    if kernel_shape is not None and list(kernel_shape) != window:
        raise ValueError(f"kernel_shape {list(kernel_shape)} for weights of {window}")
    stride, dilation = (tuple(given) if given is not None else (1,) * rank for given in (strides, dilations))
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        reach = [(k - 1) * d + 1 for k, d in zip(window, dilation, strict=True)]
        total = [max((-(-n // s) - 1) * s + r - n, 0) for n, s, r in zip(_extents(x)[2:], stride, reach, strict=True)]
        less, more = [t // 2 for t in total], [t - t // 2 for t in total]
        around = [*less, *more] if auto_pad == "SAME_UPPER" else [*more, *less]
    elif auto_pad in ("NOTSET", "VALID"):
        around = list(pads) if pads is not None and auto_pad == "NOTSET" else [0] * 2 * rank
        if min(around, default=0) < 0:
            raise ValueError(f"negative pads {around}")
    else:
        raise ValueError(f"auto_pad {auto_pad}")
    if any(around):
        x = _pad(x, around, axes=range(2, x.ndim))
    kernel = (kernels.conv1d, kernels.conv2d, kernels.conv3d)[rank - 1]
    given = {"stride": stride[0] if rank == 1 else stride, "dilation": dilation[0] if rank == 1 else dilation}
    return kernel(x, w, *(() if b is None else (b,)), **given, groups=group)


def _reduction(kernel: Row) -> Row:
    def row(x: Tensor, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        chosen = _axes(axes, x.ndim) if axes is not None else []
        if not chosen and noop_with_empty_axes:
            return x
        return kernel(x, axis=tuple(chosen) or tuple(range(x.ndim)), keepdims=bool(keepdims))

    return row


def _mean(x: Any, *, axis: Any, keepdims: bool) -> Any:
    """The mean; of integers truncated toward zero."""
    if x.dtype.is_float:
        return kernels.mean(x, axis=axis, keepdims=keepdims)
    count = math.prod(_extents(x)[a] for a in axis)
    return elementwise(lambda total: _quotient(total, language.cast(count, total.dtype)), kernels.sum(x, axis=axis, keepdims=keepdims))


def _position(kernel: Row) -> Row:
    def row(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
        (along,) = _axes([axis], x.ndim)
        if select_last_index:  # the first from behind
            last = _extents(x)[along] - 1
            found = elementwise(lambda place: last - place, kernel(kernels.flip(x, axes=along), axis=along))
        else:
            found = kernel(x, axis=along)
        return _unsqueeze(found, [along]) if keepdims else found

    return row


def _gemm(a: Tensor, b: Tensor, c: Any = None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0) -> Any:
    left, right = (kernels.transpose(x) if flip else x for x, flip in ((a, transA), (b, transB)))
    product = elementwise(lambda v: v * alpha, kernels.matmul(left, right))
    return product if c is None else elementwise(lambda p, q: p + beta * q, product, c)


def _quotient(a: Any, b: Any) -> Any:
    """ONNX's division: of integers it truncates toward zero."""
    if a.dtype.is_float:
        return a / b
    if not a.dtype.is_signed:
        return a // b
    return a // b + language.cast((a % b != 0) & ((a < 0) != (b < 0)), a.dtype)


def _reciprocal(x: Any) -> Any:
    return 1 / x


_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Neg": operator.neg, "Abs": language.abs,
    "Exp": language.exp, "Log": language.log, "Sqrt": language.sqrt, "Sin": language.sin, "Cos": language.cos, "Tan": language.tan,
    "Sinh": language.sinh, "Cosh": language.cosh, "Tanh": language.tanh, "Asin": language.asin, "Acos": language.acos,
    "Atan": language.atan, "Sigmoid": language.sigmoid, "Erf": language.erf, "Floor": language.floor, "Ceil": language.ceil,
    "Round": language.round, "Sign": language.sign, "Pow": language.power,
    "Equal": _equal, "Less": operator.lt, "LessOrEqual": operator.le, "Greater": operator.gt, "GreaterOrEqual": operator.ge,
    "And": operator.and_, "Or": operator.or_, "Xor": operator.xor, "Not": operator.invert, "BitwiseAnd": operator.and_,
    "BitwiseOr": operator.or_, "BitwiseXor": operator.xor, "BitwiseNot": operator.invert, "IsNaN": language.isnan,
    "Reciprocal": _reciprocal, "Div": _quotient,
}  # fmt: skip

OPERATORS: dict[str, Row] = {name: _elements(function) for name, function in _ELEMENTWISE.items()} | {
    "Sum": _pairwise(operator.add), "Min": _pairwise(language.minimum), "Max": _pairwise(language.maximum), "IsInf": _is_infinite,
    "Identity": lambda x: x, "Where": _choose, "Slice": _slice, "Pad": _pad, "Split": _split, "Conv": _conv,
    "GatherElements": lambda x, index, axis=0: kernels.gather(x, _tensor(index), axis=axis),
    "Cast": _cast, "Reshape": _reshape, "Expand": _expand, "Unsqueeze": _unsqueeze, "Squeeze": _squeeze, "Transpose": _transpose,
    "GatherND": _gather_nd, "Concat": lambda *tensors, axis: kernels.concatenate(tuple(map(_tensor, tensors)), axis=axis),
    "Flatten": lambda x, axis=1: kernels.reshape(x, shape=_halves(x, axis)),
    "Gather": lambda x, index, axis=0: kernels.take(x, index if isinstance(index, Tensor) else np.asarray(index), axis=axis),
    "ReduceSum": _reduction(kernels.sum), "ReduceProd": _reduction(kernels.prod), "ReduceMax": _reduction(kernels.amax),
    "ReduceMin": _reduction(kernels.amin), "ReduceMean": _reduction(_mean), "ArgMax": _position(kernels.argmax),
    "ArgMin": _position(kernels.argmin), "MatMul": kernels.matmul, "Gemm": _gemm,
    "Mod": lambda a, b, fmod=0: kernels.fmod(a, b) if fmod else elementwise(operator.mod, a, b),
}  # fmt: skip

NATIVE: dict[str, Row] = {
    "Softmax": lambda x, axis=-1: kernels.softmax(x, axis=axis), "LogSoftmax": lambda x, axis=-1: kernels.log_softmax(x, axis=axis),
    "Relu": kernels.relu, "Gelu": lambda x, approximate="none": kernels.gelu(x, approximate=approximate), "Mish": kernels.mish,
    "HardSwish": kernels.hardswish, "Softsign": kernels.softsign, "Elu": lambda x, alpha=1.0: kernels.elu(x, alpha=alpha),
    "Celu": lambda x, alpha=1.0: kernels.celu(x, alpha=alpha),
    "LeakyRelu": lambda x, alpha=0.01: kernels.leaky_relu(x, negative_slope=alpha),
}  # fmt: skip


def _flattened(kernel: Row) -> Row:
    """Softmax as it was before opset 13: over all axes from `axis` on."""

    def row(x: Tensor, *, axis: int = 1) -> Any:
        rows = kernels.reshape(x, shape=_halves(x, axis))
        return kernels.reshape(kernel(rows, axis=1), shape=tuple(_extents(x)))

    return row


OLDER: dict[str, tuple[int, Row]] = {"Softmax": (13, _flattened(kernels.softmax)), "LogSoftmax": (13, _flattened(kernels.log_softmax))}
"""Rows for the versions before a number, where an operator meant something else."""


def native_row(name: str, version: int) -> Row | None:
    """The row of `NATIVE` for a version of an operator."""
    before, older = OLDER.get(name, (0, None))
    return older if version < before else NATIVE.get(name)


def _tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else language.constant(np.asarray(value))
