"""Operators that make and change shapes: what moves no element, or each to one place, works on every type."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from tensorexpr import kernels, language
from tensorexpr.interop.onnx.operators.common import axes_of, axis_of, filled, in_rows, integers, number, quotient_of, reshaped, sizes
from tensorexpr.interop.onnx.table import Known, Raw, operator
from tensorexpr.interop.onnx.values import Coded, array_of, is_narrow, kind_of, known, tensor_of
from tensorexpr.language import Scalar, Tensor, cast, compute


def extents(values: Sequence[Any]) -> np.ndarray:
    """Extents as a value: an array of numbers, or of objects where some are open."""
    if all(isinstance(n, int) for n in values):
        return np.asarray(values, np.int64)
    return np.fromiter(values, object)


@operator("Shape")
def _shape(x: Raw, *, start: int = 0, end: int | None = None) -> Any:
    return extents(tuple(x.shape)[start:end])


@operator("Size")
def _size(x: Raw) -> Any:
    total = math.prod(x.shape)
    return extents([total]).reshape(())


@operator("Constant")
def _constant(
    *,
    value: TensorProto | None = None,
    value_float: float | None = None,
    value_floats: Any = None,
    value_int: int | None = None,
    value_ints: Any = None,
    value_string: str | None = None,
    value_strings: Any = None,
) -> Any:
    if value is not None:
        return array_of(value)
    for given, kind in ((value_float, np.float32), (value_floats, np.float32), (value_int, np.int64), (value_ints, np.int64)):
        if given is not None:
            return np.asarray(given, kind)
    return np.asarray(value_string if value_string is not None else list(value_strings), object)


@operator("ConstantOfShape")
def _constant_of_shape(shape: Known, *, value: TensorProto | None = None) -> Any:
    item = np.zeros(1, np.float32) if value is None else array_of(value)
    if is_narrow(item.dtype):
        code = int(item.view(np.uint8).ravel()[0])
        return Coded(filled(integers(shape), code, "uint8"), item.dtype)
    return filled(integers(shape), item.ravel()[0], item.dtype)


@operator("Identity")
def _identity(x: Raw, *, consumed_inputs: Any = None) -> Any:
    return x


@operator("Reshape", moves=True)
def _reshape(x: Tensor, shape: Known, *, allowzero: int = 0, consumed_inputs: Any = None) -> Any:
    wanted = [x.shape[k] if isinstance(n, int) and n == 0 and not allowzero else n for k, n in enumerate(integers(shape))]
    unknown = [k for k, n in enumerate(wanted) if isinstance(n, int) and n == -1]
    if len(unknown) > 1:
        raise ValueError(f"shape {wanted}")
    if unknown:
        wanted[unknown[0]] = quotient_of(x.shape, [n for k, n in enumerate(wanted) if k != unknown[0]])
    return reshaped(x, wanted)


@operator("Flatten", moves=True)
def _flatten(x: Tensor, *, axis: int = 1) -> Any:
    return in_rows(x, axis)


@operator("Expand", moves=True)
def _expand(x: Tensor, shape: Known) -> Any:
    wanted = integers(shape)
    rank = max(x.ndim, len(wanted))
    own, wanted = [1] * (rank - x.ndim) + list(x.shape), [1] * (rank - len(wanted)) + wanted
    found = tuple(n if isinstance(w, int) and w == 1 else w for n, w in zip(own, wanted, strict=True))
    return kernels.broadcast_to(x, shape=found)


@operator("Unsqueeze", moves=True)
def _unsqueeze(x: Tensor, axes: Known) -> Any:
    shape = list(x.shape)
    for axis in sorted(axes_of(axes, x.ndim + len(integers(axes)))):
        shape.insert(axis, 1)
    return reshaped(x, shape)


@operator("Squeeze", moves=True)
def _squeeze(x: Tensor, axes: Known = None) -> Any:
    gone = set(axes_of(axes, x.ndim)) if axes is not None else {k for k, n in enumerate(x.shape) if isinstance(n, int) and n == 1}
    if any(isinstance(x.shape[k], int) and x.shape[k] != 1 for k in gone):
        raise ValueError(f"axes {sorted(gone)} of {x.shape}")
    return reshaped(x, [n for k, n in enumerate(x.shape) if k not in gone])


@operator("Transpose", moves=True)
def _transpose(x: Tensor, *, perm: Any = None) -> Any:
    return kernels.permute(x, axes=tuple(perm) if perm is not None else tuple(reversed(range(x.ndim))))


@operator("Concat", moves=True)
def _concat(*tensors: Tensor, axis: int = 1) -> Any:
    return tensors[0] if len(tensors) == 1 else kernels.concatenate(tensors, axis=axis)


def sliced(x: Tensor, ranges: dict[int, range]) -> Tensor:
    """The elements of a tensor at ranges along axes."""
    shape = tuple(len(ranges[k]) if k in ranges else n for k, n in enumerate(x.shape))

    def element(*i: Any) -> Any:
        at = [ranges[k].start + ranges[k].step * place if k in ranges else place for k, place in enumerate(i)]
        return x[tuple(at)]

    return compute(shape, element)


@operator("Slice", since=10, moves=True)
def _slice(x: Tensor, starts: Known, ends: Known, axes: Known = None, steps: Known = None) -> Any:
    chosen = axes_of(axes if axes is not None else range(len(integers(starts))), x.ndim)
    strides = integers(steps) if steps is not None else [1] * len(chosen)
    if any(not isinstance(x.shape[axis], int) for axis in chosen) or any(
        isinstance(n, Scalar) for n in (*integers(starts), *integers(ends))
    ):
        return _open_slice(x, chosen, integers(starts), integers(ends), strides)
    ranges = {}
    for axis, start, end, step in zip(chosen, integers(starts), integers(ends), strides, strict=True):
        ranges[axis] = range(int(x.shape[axis]))[start:end:step]
    return sliced(x, ranges)


def _open_slice(x: Tensor, axes: list[int], starts: list[Any], ends: list[Any], steps: list[Any]) -> Tensor:
    """A slice along open axes, by steps of 1 from a known place, to the end or so many before it."""
    first, shape = [0] * x.ndim, list(x.shape)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        extent = x.shape[axis]
        if step != 1 or (isinstance(start, int) and start < 0) or not isinstance(start, int):
            raise ValueError(f"a slice from {start} by {step} of an open axis")
        far = isinstance(end, int) and end >= 2**31 - 1
        stop = extent if far or end is extent else extent + end if isinstance(end, int) and end < 0 else language.minimum(end, extent)
        first[axis], shape[axis] = start, stop - start
    return compute(tuple(shape), lambda *i: x[tuple(k + f for k, f in zip(i, first, strict=True))])


@operator("Slice", until=10, moves=True)
def _slice_by_attributes(x: Tensor, *, starts: Any, ends: Any, axes: Any = None) -> Any:
    return _slice(x, np.asarray(starts), np.asarray(ends), None if axes is None else np.asarray(axes))


@operator("Split", moves=True)
def _split(x: Tensor, split: Known = None, *, axis: int = 0, num_outputs: int = 0, outputs: int) -> Any:
    at = axis_of(axis, x.ndim)
    extent = sizes(x)[at]
    widths = integers(split) if split is not None else []
    if not widths:
        width = -(-extent // (num_outputs or outputs))
        widths = [max(min(width, extent - k * width), 0) for k in range(num_outputs or outputs)]
    if sum(widths) != extent:
        raise ValueError(f"widths {widths} of {extent}")
    ends = list(itertools.accumulate(widths))
    return tuple(sliced(x, {at: range(end - width, end)}) for width, end in zip(widths, ends, strict=True))


def padded(x: Tensor, pads: Sequence[Any], value: Any = 0, axes: Any = None, mode: str = "constant") -> Tensor:
    """A tensor with elements around it, or fewer where pads are negative."""
    chosen = axes_of(axes if axes is not None else range(x.ndim), x.ndim)
    both, before, shape = list(pads), [0] * x.ndim, list(x.shape)
    if len(both) != 2 * len(chosen):
        raise ValueError(f"{len(both)} pads of {len(chosen)} axes")
    for k, axis in enumerate(chosen):
        before[axis] = both[k]
        shape[axis] += both[k] + both[k + len(chosen)]
    outside: Any = {"constant": value, "edge": "clamp", "reflect": "reflect", "wrap": "wrap"}[mode]
    held = x
    if mode != "constant" and min(both, default=0) < 0:  # what is cut off is gone before the border is continued
        cut = {}
        for k, axis in enumerate(chosen):
            extent = int(x.shape[axis])
            cut[axis] = range(max(-both[k], 0), extent - max(-both[k + len(chosen)], 0))
        held = sliced(x, cut)
        before = [max(b, 0) for b in before]
    return compute(tuple(shape), lambda *i: held.read(*(k - b for k, b in zip(i, before, strict=True)), outside=outside))


@operator("Pad", since=11)
def _pad(x: Tensor, pads: Known, value: Any = None, axes: Known = None, *, mode: str = "constant") -> Any:
    fill: Any = 0 if value is None else (value.data.ravel()[0] if value.data is not None else value[(0,) * value.ndim])
    if isinstance(fill, np.generic):
        fill = fill.item()
    return padded(x, integers(pads), fill, axes, mode)


@operator("Pad", until=11)
def _pad_by_attributes(x: Tensor, *, pads: Any = None, paddings: Any = None, mode: str = "constant", value: float = 0.0) -> Any:
    return padded(x, integers(pads if pads is not None else paddings), value, None, mode)


@operator("Tile", since=6, moves=True)
def _tile(x: Tensor, repeats: Known) -> Any:
    return kernels.tile(x, repeats=tuple(integers(repeats)))


@operator("DepthToSpace", moves=True)
def _depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Any:
    return kernels.depth_to_space(x, block=blocksize, mode=mode)


@operator("SpaceToDepth", moves=True)
def _space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Any:
    if mode != "DCR":  # channels first, then the places within a block
        n, c, h, w = x.shape
        b = blocksize

        def element(i: Any, d: Any, y: Any, z: Any) -> Any:
            return x[i, d // (b * b), y * b + d // b % b, z * b + d % b]

        return compute((n, c * b * b, h // b, w // b), element)
    return kernels.space_to_depth(x, block=blocksize)


@operator("CenterCropPad", moves=True)
def _center_crop_pad(x: Tensor, shape: Known, *, axes: Any = None) -> Any:
    chosen = axes_of(axes if axes is not None else range(x.ndim), x.ndim)
    before, found = [0] * x.ndim, list(x.shape)
    for axis, wanted in zip(chosen, integers(shape), strict=True):
        extent = sizes(x)[axis]
        before[axis] = (wanted - extent) // 2 if wanted >= extent else -((extent - wanted) // 2)
        found[axis] = wanted
    return compute(tuple(found), lambda *i: x.read(*(k - b for k, b in zip(i, before, strict=True)), outside=0))


@operator("Range")
def _range(start: Raw, limit: Known, delta: Known) -> Any:
    if any(np.asarray(item).dtype == object for item in (start, limit, delta) if not isinstance(item, Tensor)):
        (first,), (last,), (step,) = (integers(item) for item in (start, limit, delta))
        if (first, step) != (0, 1):
            raise ValueError("a range of an open extent that does not count from 0")
        return compute((last,), lambda i: cast(i, "int64"))
    stop, step = number(limit), number(delta)
    given = tensor_of(start)
    first = given.data.ravel()[0].item() if given.data is not None else number(known(given))
    count = max(math.ceil((stop - first) / step), 0)
    return compute((count,), lambda i: cast(first, given.dtype) + cast(i, given.dtype) * cast(step, given.dtype))


@operator("EyeLike")
def _eye_like(x: Raw, *, dtype: int | None = None, k: int = 0) -> Any:
    kind = x.dtype if dtype is None else kind_of(dtype)
    return compute(x.shape, lambda i, j: cast(j == i + k, kind))


@operator("Trilu", moves=True)
def _trilu(x: Tensor, k: Known = None, *, upper: int = 1) -> Any:
    offset = 0 if k is None else int(number(k))

    def element(*i: Any) -> Any:
        kept = i[-1] >= i[-2] + offset if upper else i[-1] <= i[-2] + offset
        return language.where(kept, x[i], cast(0, x.dtype))

    return compute(x.shape, element)


@operator("OneHot", since=9)
def _one_hot(places: Tensor, depth: Known, values: Tensor, *, axis: int = -1) -> Any:
    classes = int(number(depth))
    at = axis_of(axis, places.ndim + 1)

    def element(*i: Any) -> Any:
        index = cast(places[(*i[:at], *i[at + 1 :])], "int64")
        return language.where(language.where(index < 0, index + classes, index) == i[at], values[1], values[0])

    return compute((*places.shape[:at], classes, *places.shape[at:]), element)
