"""Reductions, softmaxes and norms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tensorexpr import kernels, language
from tensorexpr.graph.trace.values import elementwise
from tensorexpr.interop.onnx.operators.common import as_float, axes_of, axis_of, cast_to, filled, in_rows, reshaped, sizes
from tensorexpr.interop.onnx.operators.elements import quotient
from tensorexpr.interop.onnx.table import Known, operator
from tensorexpr.language import Tensor, cast, compute

Reduction = Callable[[Tensor, tuple[int, ...], bool], Tensor]


def _put(name: str, reduce: Reduction) -> None:
    @operator(name)
    def row(x: Tensor, axes: Known = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        chosen = axes_of(axes, x.ndim) if axes is not None else []
        if not chosen and noop_with_empty_axes:
            chosen = []
        else:
            chosen = chosen or list(range(x.ndim))
        found = reduce(x, tuple(chosen), bool(keepdims)) if chosen or not x.ndim else _noop(name, reduce, x)
        return cast_to(found, x.dtype)


def _noop(name: str, reduce: Reduction, x: Tensor) -> Tensor:
    """Over no axes what is done to each element is done still: a square, a logarithm."""
    if name in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"):
        return x
    return reduce(reshaped(x, (*x.shape, 1)), (x.ndim,), False)


def _by(kernel: Callable[..., Any]) -> Reduction:
    return lambda x, axis, keepdims: kernel(x, axis=axis, keepdims=keepdims) if x.ndim else x


def _mean(x: Tensor, axis: tuple[int, ...], keepdims: bool) -> Tensor:
    """The mean; of integers truncated toward zero."""
    if not x.ndim:
        return x
    if x.dtype.is_float:
        return kernels.mean(x, axis=axis, keepdims=keepdims)
    count = math.prod(sizes(x)[a] for a in axis)
    return elementwise(lambda total: quotient(total, cast(count, total.dtype)), kernels.sum(x, axis=axis, keepdims=keepdims))


def _after(before: Callable[[Any], Any], after: Callable[[Any], Any]) -> Reduction:
    """A sum of a function of the elements, and a function of it, in float32 at least."""

    def reduce(x: Tensor, axis: tuple[int, ...], keepdims: bool) -> Tensor:
        given = as_float(x) if x.dtype.is_float else cast_to(x, "float64") if after is not _same else x
        terms = elementwise(before, given)
        return elementwise(after, kernels.sum(terms, axis=axis, keepdims=keepdims) if x.ndim else terms)

    return reduce


def _same(value: Any) -> Any:
    return value


def _log_sum_exp(x: Tensor, axis: tuple[int, ...], keepdims: bool) -> Tensor:
    given = as_float(x) if x.dtype.is_float else cast_to(x, "float64")
    return kernels.logsumexp(given, axis=axis, keepdims=keepdims) if x.ndim else x


def _extreme(kernel: Callable[..., Any], both: str) -> Reduction:
    def reduce(x: Tensor, axis: tuple[int, ...], keepdims: bool) -> Tensor:
        if x.dtype.is_bool:
            return getattr(kernels, both)(x, axis=axis, keepdims=keepdims)
        if any(isinstance(x.shape[a], int) and x.shape[a] == 0 for a in axis):
            shape = [1 if k in axis else n for k, n in enumerate(x.shape) if keepdims or k not in axis]
            return filled(shape, x.dtype.least if both == "any" else x.dtype.greatest, x.dtype)
        return kernel(x, axis=axis, keepdims=keepdims) if x.ndim else x

    return reduce


for _name, _reduce in {
    "ReduceSum": _by(kernels.sum), "ReduceProd": _by(kernels.prod), "ReduceMax": _extreme(kernels.amax, "any"),
    "ReduceMin": _extreme(kernels.amin, "all"), "ReduceMean": _mean, "ReduceL1": _after(language.abs, _same),
    "ReduceL2": _after(lambda v: v * v, language.sqrt), "ReduceSumSquare": _after(lambda v: v * v, _same),
    "ReduceLogSum": _after(_same, language.log), "ReduceLogSumExp": _log_sum_exp,
}.items():  # fmt: skip
    _put(_name, _reduce)


def _position(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def row(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
        along = axis_of(axis, x.ndim)
        if select_last_index:  # the first from behind
            last = sizes(x)[along] - 1
            found = elementwise(lambda place: last - place, kernel(kernels.flip(x, axes=along), axis=along))
        else:
            found = kernel(x, axis=along)
        return reshaped(found, (*x.shape[:along], 1, *x.shape[along + 1 :])) if keepdims else found

    return row


operator("ArgMax")(_position(kernels.argmax))
operator("ArgMin")(_position(kernels.argmin))


# ---------------------------------------------------------------------------------------------------- softmaxes


def _put_softmax(name: str, kernel: Callable[..., Any]) -> None:
    @operator(name, since=13)
    def row(x: Tensor, *, axis: int = -1) -> Any:
        return kernel(x, axis=axis)

    @operator(name, until=13)
    def older(x: Tensor, *, axis: int = 1) -> Any:
        """Over all axes from `axis` on."""
        return reshaped(kernel(in_rows(x, axis), axis=1), tuple(x.shape))


_put_softmax("Softmax", kernels.softmax)
_put_softmax("LogSoftmax", kernels.log_softmax)


# ---------------------------------------------------------------------------------------------------------- norms


def _normalized(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, epsilon: float) -> Tensor:
    """`x * factor + shift`, both of a channel: constants where a network is done learning."""
    at = 1 if x.ndim > 1 else 0
    wide = max((mean, x, scale), key=lambda tensor: tensor.dtype.bits).dtype

    def factor(c: Any) -> Any:
        return cast(scale[c], wide) / language.sqrt(cast(variance[c], wide) + epsilon)

    factors = compute(scale.shape, factor, name="factor")
    shifts = compute(scale.shape, lambda c: cast(bias[c], wide) - cast(mean[c], wide) * factors[c], name="shift")

    def element(*i: Any) -> Any:
        c = i[at] if x.ndim > 1 else 0
        return cast(cast(x[i], wide) * factors[c] + shifts[c], x.dtype)

    return compute(x.shape, element)


@operator("BatchNormalization", since=14)
def _batch_norm(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, *, epsilon: float = 1e-5, momentum: float = 0.9,
    training_mode: int = 0,
) -> Any:  # fmt: skip
    if not training_mode:
        return _normalized(x, scale, bias, mean, variance, epsilon)
    over = tuple(k for k in range(x.ndim) if k != 1)
    wide = as_float(x)
    own = kernels.mean(wide, axis=over)
    spread = kernels.var(wide, axis=over, correction=0)
    kept = [elementwise(lambda a, b: cast(a * momentum + cast(b, a.dtype) * (1 - momentum), a.dtype), *pair)
            for pair in ((mean, own), (variance, spread))]  # fmt: skip
    return _normalized(x, scale, bias, own, spread, epsilon), *kept


@operator("BatchNormalization", until=14)
def _older_batch_norm(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, *, epsilon: float = 1e-5, momentum: float = 0.9,
    is_test: int = 1, spatial: int = 1, consumed_inputs: Any = None, outputs: int,
) -> Any:  # fmt: skip
    if outputs > 1:
        raise ValueError("statistics of a batch before version 14")
    if not spatial and scale.ndim > 1:
        values = [elementwise(lambda v: v, t) for t in (mean, variance, scale, bias)]
        return elementwise(lambda v, m, s, w, b: (v - m) / language.sqrt(s + epsilon) * w + b, x, *values)
    return _normalized(x, scale, bias, mean, variance, epsilon)


@operator("InstanceNormalization")
def _instance_norm(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5, consumed_inputs: Any = None) -> Any:
    return kernels.instance_norm(x, weight=scale, bias=bias, eps=epsilon)


@operator("LayerNormalization")
def _layer_norm(
    x: Tensor, scale: Tensor, bias: Any = None, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1, outputs: int
) -> Any:
    first = axis_of(axis, x.ndim)
    over = tuple(range(first, x.ndim))
    wide = as_float(x)
    mean = kernels.mean(wide, axis=over, keepdims=True)
    centered = elementwise(lambda v, m: v - m, wide, mean)
    variance = kernels.mean(elementwise(lambda v: v * v, centered), axis=over, keepdims=True)
    deviation = elementwise(lambda v: 1 / language.sqrt(v + epsilon), variance)
    normal = elementwise(lambda v, d: cast(v * d, x.dtype), centered, deviation)
    scaled = elementwise(lambda v, s: v * s, normal, scale)
    found = scaled if bias is None else elementwise(lambda v, b: v + b, scaled, bias)
    return (found, mean, deviation)[:outputs] if outputs > 1 else found


@operator("LRN")
def _lrn(x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Any:
    def element(*i: Any) -> Any:
        def square(k: Any) -> Any:
            value = x.read(i[0], i[1] + k - (size - 1) // 2, *i[2:], outside=0)
            return value * value

        return x[i] / (bias + alpha / size * language.sum(square, size)) ** beta

    return compute(x.shape, element)


@operator("LpNormalization")
def _lp_norm(x: Tensor, *, axis: int = -1, p: int = 2) -> Any:
    at = (axis_of(axis, x.ndim),)
    wide = as_float(x)
    norm = _after(language.abs, _same)(wide, at, True) if p == 1 else _after(lambda v: v * v, language.sqrt)(wide, at, True)
    return cast_to(elementwise(lambda v, n: language.where(n == 0, 0, v / language.where(n == 0, 1, n)), wide, norm), x.dtype)


@operator("GlobalLpPool")
def _global_lp_pool(x: Tensor, *, p: int = 2) -> Any:
    over = tuple(range(2, x.ndim))
    total = kernels.sum(elementwise(lambda v: language.abs(v) ** float(p), x), axis=over, keepdims=True)
    return elementwise(lambda v: v ** (1.0 / p), total)


@operator("GlobalAveragePool")
def _global_average(x: Tensor) -> Any:
    return kernels.mean(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@operator("GlobalMaxPool")
def _global_max(x: Tensor) -> Any:
    return kernels.amax(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@operator("MeanVarianceNormalization", since=9)
def _mean_variance(x: Tensor, *, axes: Any = (0, 2, 3)) -> Any:
    over = tuple(axes_of(axes, x.ndim))
    mean = kernels.mean(x, axis=over, keepdims=True)
    centered = elementwise(lambda v, m: v - m, x, mean)
    spread = kernels.mean(elementwise(lambda v: v * v, centered), axis=over, keepdims=True)
    return elementwise(lambda v, s: v / (language.sqrt(s) + 1e-9), centered, spread)
