"""Scatters backwards: what is written by scattering is differentiated by reading.

The value at a point of a sum-scatter receives the adjoint of the element that it was added to. Of a maximum or minimum
the first point, in row-major order, whose value is the result receives it: its position is found by a scatter of positions.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorexpr import dtypes
from tensorexpr.autodiff.workspace import Place, Workspace, all_of, hull_of, shifted
from tensorexpr.errors import DifferentiationError
from tensorexpr.ir import Access, Const, Expr, Index, Scatter, TensorType, apply, conjuncts, const


def scattered_adjoint(definition: Scatter, adjoint: Callable[[tuple[Expr, ...]], Expr], workspace: Workspace) -> tuple[Expr, Place]:
    """What the value of a scatter receives at a point, and where that is."""
    guards = tuple(conjuncts(definition.where))
    if definition.combine in ("max", "min"):
        guards += (wins(definition, workspace),)
    elif definition.combine != "sum":
        raise DifferentiationError(
            f"expected a scatter by sum, max or min, got combine={definition.combine!r}, which has no gradient",
            term=definition.name,
            location=definition.location,
            hint="give the tensor a rule: override={tensor: rule}",
        )
    return adjoint(definition.indices), Place(definition.axes, guards)


def wins(definition: Scatter, workspace: Workspace) -> Expr:
    """Whether a point is the first that gave its element the greatest (or least) value."""
    position = _position(definition)
    element = Access(definition.name, definition.indices, definition.value.dtype)
    equal = apply("or", apply("eq", definition.value, element), apply("isnan", definition.value))
    name = workspace.new_name(definition.name, f"_arg{definition.combine}")
    where = all_of([*conjuncts(definition.where), equal])
    type_ = TensorType(definition.type.shape, dtypes.int64)
    workspace.add(Scatter(name, type_, definition.axes, definition.indices, position, where, "min"))
    return apply("eq", Access(name, definition.indices, dtypes.int64), position)


def _position(definition: Scatter) -> Expr:
    """A number for every point of the axes that grows in row-major order."""
    place = Place(definition.axes)
    position: Expr = Const(0, dtypes.int64)
    for axis in definition.axes:
        hull = hull_of(axis, place)
        if hull is None:
            raise DifferentiationError(
                f"expected an axis with a bound known beforehand, got {axis.index} of the scatter", term=definition.name, location=definition.location
            )
        low, stop = hull
        own = shifted(Index(axis.index), -low)
        position = own if position == const(0) else apply("add", apply("mul", position, shifted(stop, -low)), own)
    return position
