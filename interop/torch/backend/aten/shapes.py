"""Definitions of what ATen does to shapes: views, pieces and joins, borders, and tensors made of nothing.

All of it is index arithmetic, which the compiler carries into whoever reads: a view costs nothing, and what is stored is what is needed.
`VIEWS` are the overloads whose results share memory with their first argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.autodiff import gradient
from tensorexpr.interop.torch.backend.table import Form, Result, Unsupported, aten, axis_of, cast_to, element, filled, is_one, within
from tensorexpr.kernels.conventions.arguments import product
from tensorexpr.kernels.conventions.broadcasting import same
from tensorexpr.op.transforms import vjp

_ATEN = torch.ops.aten
VIEWS = frozenset(
    (
        _ATEN.view.default, _ATEN.t.default, _ATEN.transpose.int, _ATEN.permute.default, _ATEN.expand.default, _ATEN.unsqueeze.default,
        _ATEN.squeeze.default, _ATEN.squeeze.dim, _ATEN.squeeze.dims, _ATEN.slice.Tensor, _ATEN.select.int, _ATEN.alias.default,
        _ATEN.detach.default, _ATEN.diagonal.default, _ATEN.split_with_sizes.default, _ATEN.split.Tensor, _ATEN.unbind.int,
        _ATEN.as_strided.default, _ATEN._unsafe_view.default, _ATEN.unfold.default,
    )
)  # fmt: skip


@aten("clone", "alias", "detach", "lift_fresh_copy", "lift_fresh", "contiguous")
def _same(result: Result, x: te.Tensor, *_: Any) -> Any:
    return x


@aten("_to_copy", "prims::convert_element_type")
def _cast(result: Result, x: te.Tensor, *_: Any) -> Any:
    return cast_to(x, result.dtype)


@aten("copy")
def _copy(result: Result, x: te.Tensor, source: te.Tensor, _: bool) -> Any:
    return te.compute(result.shape, lambda *i: te.cast(element(source, i), result.dtype))


@aten("view", "_unsafe_view", "reshape")
def _view(result: Result, x: te.Tensor, _: Any) -> Any:
    kept = [n for n in x.shape if not is_one(n)]
    wanted = [n for n in result.shape if not is_one(n)]
    if len(kept) == len(wanted) and all(same(a, b) for a, b in zip(kept, wanted, strict=True)):
        return _renamed(result, x)
    return kernels.reshape(x, shape=tuple(result.shape))


def _renamed(result: Result, x: te.Tensor) -> Any:
    """The tensor with axes of extent 1 put in or left out."""

    def body(*index: Any) -> Any:
        rest = iter([i for i, n in zip(index, result.shape, strict=True) if not is_one(n)])
        return x[tuple(0 if is_one(n) else next(rest) for n in x.shape)]

    return te.compute(result.shape, body)


@aten("unsqueeze", "squeeze", "squeeze.dim", "squeeze.dims")
def _squeezed(result: Result, x: te.Tensor, *_: Any) -> Any:
    return _renamed(result, x)


@aten("expand")
def _expand(result: Result, x: te.Tensor, *_: Any) -> Any:
    return te.compute(result.shape, lambda *i: element(x, i))


@aten("t")
def _t(result: Result, x: te.Tensor) -> Any:
    return x if x.ndim < 2 else te.compute(result.shape, lambda i, j: x[j, i])


@aten("transpose.int")
def _transpose(result: Result, x: te.Tensor, a: int, b: int) -> Any:
    order = list(range(x.ndim))
    if order:
        a, b = a % x.ndim, b % x.ndim
        order[a], order[b] = order[b], order[a]
    return _permute(result, x, order)


@aten("permute")
def _permute(result: Result, x: te.Tensor, order: Sequence[int]) -> Any:
    place = {axis % x.ndim: k for k, axis in enumerate(order)}
    return te.compute(result.shape, lambda *i: x[tuple(i[place[axis]] for axis in range(x.ndim))])


def _from_front(position: Any, extent: Any, least: int = 0) -> Any:
    """An index or a bound counted from the front, brought into the axis."""
    if isinstance(position, int) and isinstance(extent, int):
        return max(least, min(position + extent if position < 0 else position, extent))
    if isinstance(position, int):
        return position + extent if position < 0 else position
    return position


@aten("slice.Tensor")
def _slice(result: Result, x: te.Tensor, dim: int, start: Any, _: Any, step: Any) -> Any:
    axis = axis_of(dim, x.ndim)
    first = 0 if start is None else _from_front(start, x.shape[axis])
    return within(result.shape, x, lambda *i: (*i[:axis], first + i[axis] * step, *i[axis + 1 :]), [axis])


@aten("select.int")
def _select(result: Result, x: te.Tensor, dim: int, index: Any) -> Any:
    axis = axis_of(dim, x.ndim)
    at = _from_front(index, x.shape[axis])
    return te.compute(result.shape, lambda *i: x[(*i[:axis], at, *i[axis:])])


@aten("split_with_sizes", "split.Tensor")
def _split(result: Result, x: te.Tensor, _: Any, dim: int) -> Any:
    axis = axis_of(dim, x.ndim)
    start: Any = 0
    parts = []
    for position in range(len(result.forms)):
        form = result[position]
        parts.append(within(form.shape, x, lambda *i, at=start: (*i[:axis], at + i[axis], *i[axis + 1 :]), [axis]))
        start = start + form.shape[axis]
    return tuple(parts)


@aten("unbind.int")
def _unbind(result: Result, x: te.Tensor, dim: int) -> Any:
    axis = axis_of(dim, x.ndim)
    return tuple(
        te.compute(result[k].shape, lambda *i, at=k: x[(*i[:axis], at, *i[axis:])]) for k in range(len(result.forms))
    )  # fmt: skip


@aten("diagonal")
def _diagonal(result: Result, x: te.Tensor, offset: int, dim1: int, dim2: int) -> Any:
    return kernels.diagonal(x, offset=offset, axis1=axis_of(dim1, x.ndim), axis2=axis_of(dim2, x.ndim))


@aten("unfold")
def _unfold(result: Result, x: te.Tensor, dim: int, _: Any, step: Any) -> Any:
    """Windows along an axis; places within them are the last axis."""
    if x.ndim == 0:
        return _renamed(result, x)
    axis = axis_of(dim, x.ndim)
    return te.compute(result.shape, lambda *i: x[(*i[:axis], i[axis] * step + i[-1], *i[axis + 1 : -1])])


@aten("unfold_backward")
def _unfold_backward(result: Result, head: te.Tensor, _: Any, dim: int, size: Any, step: Any) -> Any:
    windows = Result((Form(head.shape, head.dtype),), result.node)
    x = te.placeholder(result.shape, head.dtype.name, name="x")
    return cast_to(gradient(_unfold(windows, x, dim, size, step), [x], head)[0], result.dtype)


@aten("as_strided")
def _as_strided(result: Result, x: te.Tensor, _: Any, strides: Sequence[Any], offset: Any) -> Any:
    """Of tensors without gaps, whose place in memory is their number."""
    _lies_in_order(result, x)
    flat = kernels.reshape(x, shape=(-1,)) if x.ndim != 1 else x

    def body(*index: Any) -> Any:
        place = 0 if offset is None else offset
        for i, step in zip(index, strides, strict=True):
            place = place + i * step
        return flat[place]

    return te.compute(result.shape, body)


def _lies_in_order(result: Result, x: te.Tensor) -> None:
    value = result.node.args[0].meta["val"]  # type: ignore[union-attr]  # results come of nodes
    start = value.storage_offset()
    if not all(isinstance(n, int) for n in (*x.shape, start)) or start or not value.is_contiguous():
        raise Unsupported("a view by strides of a tensor that is itself one")


# ---------------------------------------------------------------------------------------------------- pieces and joins


@aten("cat")
def _cat(result: Result, tensors: Sequence[te.Tensor], dim: int) -> Any:
    parts = [cast_to(x, result.dtype) for x in tensors if x.ndim == len(result.shape)]  # an empty one of one axis counts for nothing
    return parts[0] if len(parts) == 1 else kernels.concatenate(tuple(parts), axis=axis_of(dim, len(result.shape)))


@aten("stack")
def _stack(result: Result, tensors: Sequence[te.Tensor], dim: int) -> Any:
    return kernels.stack(tuple(cast_to(x, result.dtype) for x in tensors), axis=axis_of(dim, len(result.shape)))


@aten("flip")
def _flip(result: Result, x: te.Tensor, dims: Sequence[int]) -> Any:
    turned = {axis_of(dim, x.ndim) for dim in dims}

    def body(*i: Any) -> Any:
        return x[tuple(n - 1 - j if k in turned else j for k, (j, n) in enumerate(zip(i, x.shape, strict=True)))]

    return te.compute(x.shape, body)


@aten("roll")
def _roll(result: Result, x: te.Tensor, shifts: Sequence[Any], dims: Sequence[int]) -> Any:
    if not dims:
        if x.ndim == 1:
            return _roll(result, x, shifts, [0])
        flat = kernels.reshape(x, shape=(-1,))
        turned = te.compute(flat.shape, lambda i: flat[(i - shifts[0]) % flat.shape[0]])
        return kernels.reshape(turned, shape=tuple(x.shape))
    by = {axis_of(dim, x.ndim): shift for dim, shift in zip(dims, shifts, strict=True)}
    return te.compute(
        x.shape, lambda *i: x[tuple((j - by[k]) % n if k in by else j for k, (j, n) in enumerate(zip(i, x.shape, strict=True)))]
    )


@aten("repeat")
def _repeat(result: Result, x: te.Tensor, _: Any) -> Any:
    def body(*index: Any) -> Any:
        own = index[len(index) - x.ndim :]
        return x[tuple(0 if is_one(n) else i if same(n, m) else i % n for i, n, m in zip(own, x.shape, wanted, strict=True))]

    wanted = result.shape[len(result.shape) - x.ndim :]
    return te.compute(result.shape, body)


def _shifted(x: te.Tensor, padding: Sequence[Any], outside: Any, shape: Sequence[Any]) -> Any:
    """The tensor with borders: `padding` in front and behind, of the last axis first; what is below 0 cuts."""
    before: list[Any] = [0] * x.ndim
    for k in range(len(padding) // 2):
        before[x.ndim - 1 - k] = padding[2 * k]
    return te.compute(tuple(shape), lambda *i: x.read(*(j - b for j, b in zip(i, before, strict=True)), outside=outside))


@aten("constant_pad_nd")
def _constant_pad(result: Result, x: te.Tensor, padding: Sequence[Any], value: Any) -> Any:
    kind = result.dtype
    filling = bool(value) if kind.name == "bool" else value if kind.is_float else int(value)
    return _shifted(x, padding, filling, result.shape)


@aten("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def _reflection_pad(result: Result, x: te.Tensor, padding: Sequence[Any]) -> Any:
    return _shifted(x, padding, "reflect", result.shape)


@aten("replication_pad1d", "replication_pad2d", "replication_pad3d")
def _replication_pad(result: Result, x: te.Tensor, padding: Sequence[Any]) -> Any:
    return _shifted(x, padding, "clamp", result.shape)


@aten("reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward")
def _reflection_pad_backward(result: Result, head: te.Tensor, x: te.Tensor, padding: Sequence[Any]) -> Any:
    return _unpadded(result, head, x, padding, "reflect")


@aten("replication_pad1d_backward", "replication_pad2d_backward", "replication_pad3d_backward")
def _replication_pad_backward(result: Result, head: te.Tensor, x: te.Tensor, padding: Sequence[Any]) -> Any:
    return _unpadded(result, head, x, padding, "clamp")


def _unpadded(result: Result, head: te.Tensor, x: te.Tensor, padding: Sequence[Any], outside: str) -> Any:
    """The gradient of borders, for a head of them; the values of `x` are not read."""
    return vjp(te.op(lambda x: _shifted(x, padding, outside, head.shape)), "x")(x, head)


@aten("diagonal_scatter")
def _diagonal_scatter(result: Result, x: te.Tensor, source: te.Tensor, offset: int, dim1: int, dim2: int) -> Any:
    first, second = axis_of(dim1, x.ndim), axis_of(dim2, x.ndim)
    count = source.shape[-1]

    def body(*i: Any) -> Any:
        along = i[first] if offset >= 0 else i[second]
        on = (i[second] - i[first] == offset) & (along < count)
        rest = tuple(j for k, j in enumerate(i) if k not in (first, second))
        return te.where(on, te.cast(source[(*rest, te.minimum(along, count - 1))], x.dtype), x[i])

    return te.compute(x.shape, body)


@aten("as_strided_scatter")
def _as_strided_scatter(result: Result, x: te.Tensor, source: te.Tensor, size: Any, strides: Sequence[Any], offset: Any) -> Any:
    """Of tensors without gaps, as `as_strided`: each place asks which element of the view, if any, was the last to be written to it."""
    _lies_in_order(result, x)
    total, numbers = product(x.shape), source.shape

    def send(*t: Any) -> Any:
        place, number = te.cast(0 if offset is None else offset, "int64"), te.cast(0, "int64")
        for i, step, n in zip(t, strides, numbers, strict=True):
            place, number = place + i * step, number * n + i
        return place, number

    last = te.scatter((total,), send, numbers, combine="max")
    flat = source if source.ndim == 1 else kernels.reshape(source, shape=(-1,))
    given = x if x.ndim == 1 else kernels.reshape(x, shape=(-1,))
    merged = te.compute(
        (total,), lambda f: te.where(last[f] >= 0, te.cast(flat[te.maximum(last[f], 0)], x.dtype), given[f])
    )  # fmt: skip
    return merged if x.ndim == 1 else kernels.reshape(merged, shape=tuple(x.shape))


@aten("select_scatter")
def _select_scatter(result: Result, x: te.Tensor, source: te.Tensor, dim: int, index: Any) -> Any:
    axis = axis_of(dim, x.ndim)
    at = _from_front(index, x.shape[axis])
    return te.compute(x.shape, lambda *i: te.where(i[axis] == at, te.cast(source[(*i[:axis], *i[axis + 1 :])], x.dtype), x[i]))


@aten("slice_scatter")
def _slice_scatter(result: Result, x: te.Tensor, source: te.Tensor, dim: int, start: Any, _: Any, step: Any) -> Any:
    axis = axis_of(dim, x.ndim)
    first = 0 if start is None else _from_front(start, x.shape[axis])
    count = source.shape[axis]

    def body(*i: Any) -> Any:
        own = i[axis] - first
        place = own if is_one(step) else own // step
        inside = (own >= 0) & (place < count)
        inside = inside if is_one(step) else inside & (own % step == 0)
        return te.where(inside, te.cast(source[(*i[:axis], place, *i[axis + 1 :])], x.dtype), x[i])

    return te.compute(x.shape, body)


@aten("tril", "triu")
def _triangle(result: Result, x: te.Tensor, diagonal: Any) -> Any:
    upper = "triu" in str(result.node.target)

    def body(*i: Any) -> Any:
        away = i[-1] - i[-2]
        return te.where(away >= diagonal if upper else away <= diagonal, x[i], te.cast(0, x.dtype))

    return te.compute(x.shape, body)


# ---------------------------------------------------------------------------------------------------- made of nothing


@aten("full", "full_like", "new_full")
def _full(result: Result, _: Any, *rest: Any) -> Any:
    return filled(result, rest[1] if "new_full" in str(result.node.target) else rest[0])


@aten("zeros", "zeros_like", "new_zeros", "_efficientzerotensor", "_new_zeros_with_same_feature_meta")
def _zeros(result: Result, *_: Any) -> Any:
    return filled(result, 0)


@aten("empty.memory_format", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")
def _empty(result: Result, *_: Any) -> Any:
    """Of anything: whoever reads it before it is written reads zeros."""
    return filled(result, 0)


@aten("ones", "ones_like", "new_ones")
def _ones(result: Result, *_: Any) -> Any:
    return filled(result, 1)


@aten("scalar_tensor")
def _scalar(result: Result, value: Any, *_: Any) -> Any:
    return filled(result, value)


@aten("fill.Scalar", "fill.Tensor")
def _fill(result: Result, x: te.Tensor, value: Any) -> Any:
    return te.compute(x.shape, lambda *i: te.cast(value[()] if isinstance(value, te.Tensor) else value, x.dtype))


@aten("arange.start_step", "arange.start", "arange", "prims::iota")
def _arange(result: Result, *given: Any) -> Any:
    name = str(result.node.target)
    if "iota" in name:
        start, step = given[1], given[2]
    else:
        numbers = given[: {"aten.arange.start_step": 3, "aten.arange.start": 2}.get(name, 1)]
        start, step = (numbers[0] if len(numbers) > 1 else 0), (numbers[2] if len(numbers) > 2 else 1)
    kind = "float64" if result.dtype.is_float else "int64"
    return te.compute(result.shape, lambda i: te.cast(te.cast(start, kind) + te.cast(i, kind) * te.cast(step, kind), result.dtype))


@aten("eye", "eye.m")
def _eye(result: Result, *_: Any) -> Any:
    return te.compute(result.shape, lambda i, j: te.cast(i == j, result.dtype))
