"""Reads beyond the border: `A.read(i - 1, j, outside=...)` as exact index arithmetic.

A value guards the access with those conditions that the loops do not already ensure. The other modes replace the index
by one inside: clamped, mirrored or periodic. Where the loops ensure that the index strays by less than one period the
mirror is an absolute value and a minimum; only at greater distances a modulo.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorexpr.bounds import implied
from tensorexpr.errors import DefinitionError, user_location
from tensorexpr.hints import suggestion
from tensorexpr.language.core.scalar import Scalar, binary, build, common_dtype, converted, is_strong, operand, unary, weakly_promoted
from tensorexpr.language.core.tracing import active_axes
from tensorexpr.regions import normal_form
from tensorexpr.traversal import free_names

if TYPE_CHECKING:
    from tensorexpr.language.core.tensor import Tensor

MODES = ("clamp", "reflect", "symmetric", "wrap")


def read(tensor: Tensor, indices: list[Scalar], outside: Any) -> Scalar:
    """The element of `tensor` at `indices`, with what `outside` says beyond its border."""
    if isinstance(outside, str):
        if outside not in MODES:
            raise DefinitionError(
                f"{tensor.name}.read: expected outside to be a value or one of {', '.join(map(repr, MODES))}, got {outside!r}",
                location=user_location(),
                hint=suggestion(outside, MODES, "numbers are given as they are: outside=0.0"),
            )
        inside = [_MODES[outside](index, Scalar(extent)) for index, extent in zip(indices, tensor.extents, strict=True)]
        return tensor[tuple(inside)]
    value = operand(outside)
    if not is_strong(value) and weakly_promoted(tensor.dtype, value) is not tensor.dtype:
        raise DefinitionError(
            f"{tensor.name}.read: expected outside to be of the tensor's dtype {tensor.dtype.name}, got {outside!r}",
            location=user_location(),
            hint="te.where with te.cast mixes dtypes",
        )
    conditions = []
    for index, extent in zip(indices, tensor.extents, strict=True):
        for condition in (index >= 0, index < Scalar(extent)):
            if not _holds(condition):
                conditions.append(condition)
    element = tensor[tuple(indices)]
    if not conditions:
        return element
    guard = conditions[0]
    for condition in conditions[1:]:
        guard = build("and", guard, condition)
    dtype = common_dtype((element, value))
    return build("where", guard, converted(element, dtype), converted(value, dtype))


def _holds(condition: Scalar) -> bool:
    """Whether the loops that the condition is about ensure it (others may be empty, or not be around it in the end)."""
    wanted = set(free_names(condition.expr))
    axes = []
    for axis in reversed(active_axes()):
        if axis.index in wanted:
            axes.append(axis)
            wanted.update((*free_names(axis.start), *free_names(axis.stop)))
    return implied(condition.expr, tuple(reversed(axes)))


def _clamp(index: Scalar, extent: Scalar) -> Scalar:
    if not _holds(index >= 0):
        index = binary("maximum", index, 0)
    if not _holds(index < extent):
        index = binary("minimum", index, _tidy(extent - 1))
    return index


def _wrap(index: Scalar, extent: Scalar) -> Scalar:
    return index if _holds(index >= 0) and _holds(index < extent) else index % extent


def _reflect(index: Scalar, extent: Scalar) -> Scalar:
    last = _tidy(extent - 1)
    period = _tidy(2 * last)
    if _holds(index >= -last) and _holds(index <= period):
        if not _holds(index >= 0):
            index = unary("abs", index)
        return index if _holds(index <= last) else binary("minimum", index, period - index)
    # One element reflects into itself, with a period of one.
    index = index % (period if _holds(period >= 1) else binary("maximum", period, 1))
    return binary("minimum", index, period - index)


def _symmetric(index: Scalar, extent: Scalar) -> Scalar:
    period = _tidy(2 * extent)
    if _holds(index >= -extent) and _holds(index < period):
        if not _holds(index >= 0):
            index = binary("maximum", index, -1 - index)
    else:
        index = index % period
    return index if _holds(index < extent) else binary("minimum", index, _tidy(period - 1) - index)


_MODES = {"clamp": _clamp, "reflect": _reflect, "symmetric": _symmetric, "wrap": _wrap}


def _tidy(extent: Scalar) -> Scalar:
    return Scalar(normal_form(extent.expr))
