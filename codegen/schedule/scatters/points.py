"""Points by number, and scatters by the places that their points are told by."""

from __future__ import annotations

from tensorexpr import dtypes
from tensorexpr.dtypes import accumulator
from tensorexpr.ir import Access, Axis, Cast, Const, Expr, Index, Scatter, TensorType, apply, conjuncts, const
from tensorexpr.records import replace
from tensorexpr.traversal import bottom_up, bound_names, expressions, free_names, fresh_name, walk


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


def through_axes(scatter: Scatter) -> dict[str, int]:
    """The axes that are an index of the result by themselves, over all of it, and which."""
    found: dict[str, int] = {}
    stops = {axis.index: axis.stop for axis in scatter.axes if axis.start == const(0)}
    for at, index in enumerate(scatter.indices):
        if isinstance(index, Index) and stops.get(index.name) == scatter.type.shape[at]:
            elsewhere = [other for k, other in enumerate(scatter.indices) if k != at]
            elsewhere += [e for axis in scatter.axes for e in (axis.start, axis.stop)]
            if not any(index.name in free_names(e) for e in elsewhere):
                found[index.name] = at
    return found


def by_place(scatter: Scatter, shapes: dict[str, tuple[Expr, ...]], names: set[str]) -> tuple[Scatter, Scatter, Scatter] | None:
    """The sums by place, the places that were met, and the scatter of the places; None where the key knows points by more than one."""
    through = through_axes(scatter)
    rest = {axis.index for axis in scatter.axes} - set(through)
    keys = [index for at, index in enumerate(scatter.indices) if at not in through.values()]
    conditions = {n for c in conjuncts(scatter.where) for n in free_names(c)}
    if conditions & set(through):
        return None
    for access in dict.fromkeys(n for key in keys for n in walk(key) if isinstance(n, Access) and len(n.indices) == 1):
        (place,), (extent,) = access.indices, shapes[access.tensor]
        if not set(free_names(place)) & rest:
            continue
        taken = {*names, *(axis.index for axis in scatter.axes), *(n for e in expressions(scatter) for n in bound_names(e))}
        z = fresh_name("z", taken)
        indices = tuple(index if at in through.values() else _at(index, place, z) for at, index in enumerate(scatter.indices))
        if any(set(free_names(index)) & rest for index in indices):
            continue
        kept = accumulator(scatter.type.dtype) if scatter.combine in ("sum", "prod") else scatter.type.dtype
        own = [(name, scatter.type.shape[at]) for name, at in through.items()]
        sums = replace(
            scatter,
            name=fresh_name(f"{scatter.name}_places", names),
            type=TensorType((extent, *(stop for _, stop in own)), kept),
            indices=(place, *(Index(name) for name, _ in own)),
            value=scatter.value if scatter.value.dtype is kept else Cast(kept, scatter.value),
        )
        met = replace(
            scatter,
            name=fresh_name(f"{scatter.name}_met", names),
            type=TensorType((extent,), dtypes.int32),
            axes=tuple(axis for axis in scatter.axes if axis.index in rest),
            indices=(place,),
            value=Const(1, dtypes.int32),
            combine="max",
        )
        axes = (Axis(z, const(0), extent), *(axis for axis in scatter.axes if axis.index in through))
        value: Expr = Access(sums.name, (Index(z), *(Index(name) for name, _ in own)), kept, scatter.location)
        where = apply("gt", Access(met.name, (Index(z),), dtypes.int32, scatter.location), Const(0, dtypes.int32))
        return sums, met, replace(scatter, axes=axes, indices=indices, value=value, where=where)
    return None


def _at(index: Expr, place: Expr, z: str) -> Expr:
    """An index with what is read at a place read at z."""
    return bottom_up(index, lambda n: replace(n, indices=(Index(z),)) if isinstance(n, Access) and n.indices == (place,) else n)
