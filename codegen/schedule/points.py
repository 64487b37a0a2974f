"""The number of a point among those of some axes, and the point of a number."""

from __future__ import annotations

from tensorexpr.ir import Axis, Expr, apply


def places_of(axes: tuple[Axis, ...], number: Expr) -> dict[str, Expr]:
    """The indices of the point that has a row-major number; axes start at 0."""
    places: dict[str, Expr] = {}
    left = number
    for axis in reversed(axes[1:]):
        places[axis.index] = apply("mod", left, axis.stop)
        left = apply("floordiv", left, axis.stop)
    if axes:
        places[axes[0].index] = left
    return places
