"""Scatters backwards: what is written by scattering is differentiated by reading.

The value at a point of a sum-scatter receives the adjoint of the element that it was added to. Of a maximum or minimum
the first point, in row-major order, whose value is the result receives it: its position is found by a scatter of positions.
Of a product it receives the product of the other values of its element, which zeros among them are counted for: without
zeros that is the product divided by its own value; only a single zero leaves anything to the point at which it stands.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorexpr import dtypes
from tensorexpr.autodiff.local.derivatives import widened
from tensorexpr.autodiff.local.spans import spans
from tensorexpr.autodiff.local.workspace import Place, Workspace, all_of
from tensorexpr.errors import DifferentiationError
from tensorexpr.ir import Access, Const, Expr, Index, Scatter, TensorType, apply, conjuncts, const
from tensorexpr.language.core.tensor import name_of
from tensorexpr.records import replace
from tensorexpr.traversal import bound_names, rename_bound


def scattered_adjoint(definition: Scatter, adjoint: Callable[[tuple[Expr, ...]], Expr], workspace: Workspace) -> tuple[Expr, Place]:
    """What the value of a scatter receives at a point, and where that is."""
    factor, place = scattered_slope(definition, workspace)
    seed = adjoint(_element_indices(definition, workspace))
    if isinstance(seed, Access):  # the place is checked where it is read: the error is about the scatter that the user wrote
        seed = replace(seed, location=definition.location)
    return seed if factor is None else apply("mul", widened(seed), widened(factor)), place


def scattered_slope(definition: Scatter, workspace: Workspace) -> tuple[Expr | None, Place]:
    """The derivative of an element of the result by the value at a point (None for 1), and the points where it is not 0."""
    place = Place(definition.axes)
    place = place.under(guards=[workspace.without_reductions(g, place, definition.name) for g in conjuncts(definition.where)])
    if definition.combine in ("max", "min"):
        return None, place.under(guards=(_wins(definition, place, workspace),))
    if definition.combine == "prod":
        return _others(definition, place, workspace), place
    return None, place


def _element_indices(definition: Scatter, workspace: Workspace) -> tuple[Expr, ...]:
    return tuple(workspace.without_reductions(index, Place(definition.axes), definition.name) for index in definition.indices)


def _wins(definition: Scatter, place: Place, workspace: Workspace) -> Expr:
    """Whether a point is the first that gave its element the greatest (or least) value."""
    position, indices = _position(definition, workspace), _element_indices(definition, workspace)
    element = Access(definition.name, indices, definition.value.dtype)
    equal = apply("eq", definition.value, element)
    if element.dtype.is_float:
        equal = apply("or", equal, apply("isnan", definition.value))
    name = workspace.new_name(definition.name, f"_arg{definition.combine}")
    type_ = TensorType(definition.type.shape, dtypes.int64)
    where = all_of((*place.guards, equal))
    workspace.add(Scatter(name, type_, definition.axes, indices, position, where, "min", location=definition.location))
    return apply("eq", Access(name, indices, dtypes.int64), position)


def _others(definition: Scatter, place: Place, workspace: Workspace) -> Expr:
    """The product of all other values that went to the element of a point."""
    indices, dtype = _element_indices(definition, workspace), definition.value.dtype
    zero, one = Const(0, dtype), Const(1, dtype)
    again = rename_bound(definition.value, set(bound_names(definition.value)) | {axis.index for axis in definition.axes})
    is_zero = apply("eq", definition.value, zero)
    where = all_of(place.guards)
    product, zeros = (workspace.new_name(definition.name, suffix) for suffix in ("_nonzero", "_zeros"))
    nonzero = apply("where", is_zero, one, again)
    workspace.add(Scatter(product, definition.type, definition.axes, indices, nonzero, where, "prod", location=definition.location))
    count = TensorType(definition.type.shape, dtypes.int64)
    counted = apply("where", is_zero, Const(1, dtypes.int64), Const(0, dtypes.int64))
    workspace.add(Scatter(zeros, count, definition.axes, indices, counted, where, "sum", location=definition.location))
    rest, number = Access(product, indices, dtype), Access(zeros, indices, dtypes.int64)
    value = workspace.without_reductions(definition.value, place, definition.name)

    def if_zeros_are(expected: int, result: Expr) -> Expr:
        return apply("where", apply("eq", number, Const(expected, dtypes.int64)), result, zero)

    return apply("where", apply("eq", value, zero), if_zeros_are(1, rest), if_zeros_are(0, apply("div", rest, value)))


def _position(definition: Scatter, workspace: Workspace) -> Expr:
    """A number for every point of the axes that grows in row-major order."""
    place = Access(definition.name, definition.indices, definition.type.dtype)
    strict = (place, definition.value) if definition.where is None else (definition.where,)
    found = spans(definition.axes, Place(()), strict, workspace)
    if found is None:
        raise DifferentiationError(
            f"expected the axes of a scatter by {definition.combine} to have a bound known beforehand, got one that depends on data alone",
            term=name_of(definition.name) or definition.name,
            location=definition.location,
            hint="its points are numbered, so their number must have a limit: read a tensor at every point, or te.minimum(extent, limit)",
        )
    position: Expr = Const(0, dtypes.int64)
    for axis, span in zip(definition.axes, found, strict=True):
        own = Index(axis.index) if span.base == const(0) else apply("sub", Index(axis.index), span.base)
        position = own if axis is definition.axes[0] else apply("add", apply("mul", position, span.extent), own)
    return position
