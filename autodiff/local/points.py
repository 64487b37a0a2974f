"""Adjoints that are 0 but at one place of each row, as that of `x[i, t[i]]` is: `where(t[i] == j, e(i, j), 0)`.

A sum over the row reads the one place, and what takes something to compute there is computed once for each row:

    b[i, j] = where(t[i] == j, g[i] / p[i, j], 0)         -->   a[i] = where(t[i] >= 0 and t[i] < n, g[i] / p[i, t[i]], 0)
    s[i] = sum(b[i, j] * p[i, j] for j in range(n))             b[i, j] = where(t[i] == j, a[i], 0)
                                                                s[i] = where(t[i] >= 0 and t[i] < n, a[i] * p[i, t[i]], 0)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tensorexpr.ir import Access, Apply, Axis, Const, Define, Definition, Expr, Index, Reduce, apply, conjunction, conjuncts
from tensorexpr.records import replace
from tensorexpr.simplify.passes.inline.places import fixed_by
from tensorexpr.traversal import bottom_up, free_names, rename_bound, substitute, tensors_read, walk

CHEAP = 3
"""What a value may cost (`Op.cost`; a division costs 4) and is still computed at all places of a row, of which all but one are 0."""


def points_of(definitions: Iterable[Definition]) -> dict[str, Define]:
    """The definitions that are 0 but at one place of an axis."""
    return {d.name: d for d in definitions if isinstance(d, Define) and _place(d) is not None}


def _place(definition: Define) -> tuple[Axis, Expr] | None:
    """The axis along which a definition is 0 but at one place, and that place; None where there is none, or sums are computed there."""
    value = definition.value
    if not isinstance(value, Apply) or value.op.name != "where" or value.args[2] != Const(0, value.dtype):
        return None
    fixed = fixed_by(value.args[0])
    axis = next((axis for axis in reversed(definition.axes) if axis.index in fixed), None)
    return None if axis is None or any(isinstance(node, Reduce) for node in walk(value)) else (axis, fixed[axis.index])


def at_point(definition: Definition, new_name: Callable[[str, str], str]) -> tuple[Definition, ...]:
    """A definition with what it takes to compute its one place as one of its own before it, where that is something."""
    found = _place(definition) if isinstance(definition, Define) else None
    if found is None or not isinstance(definition, Define) or not isinstance(definition.value, Apply):
        return (definition,)
    (axis, place), (condition, value, zero) = found, definition.value.args
    along = [n for n in walk(value) if isinstance(n, Apply) and n.dtype.is_float and axis.index in free_names(n)]
    others = tuple(a for a in definition.axes if a is not axis)
    rest = [c for c in conjuncts(condition) if fixed_by(c).get(axis.index) != place]
    if sum(node.op.cost for node in along) <= CHEAP or not others or any(tensors_read(c) and axis.index in free_names(c) for c in rest):
        return (definition,)
    inside = [apply("ge", place, axis.start), apply("lt", place, axis.stop)]
    guards = conjunction([*inside, *(substitute(c, {axis.index: place}) for c in rest)])
    once = replace(
        definition,
        name=new_name(definition.name, "_at"),
        axes=others,
        value=apply("where", guards, substitute(value, {axis.index: place}), zero),
    )
    read = Access(once.name, tuple(Index(a.index) for a in others), once.value.dtype)
    return once, replace(definition, value=apply("where", condition, read, zero))


def with_points(node: Expr, points: Mapping[str, Define]) -> Expr:
    """A sum over the axis along which `points` are 0 but at one place, with their values in place of what it reads of them."""
    if not isinstance(node, Reduce) or node.combiner.name != "sum" or not node.combiner.is_builtin:
        return node
    own = {axis.index for axis in node.axes}

    def written(read: Expr) -> Expr:
        point = points.get(read.tensor) if isinstance(read, Access) else None
        if point is None or not isinstance(read, Access):
            return read
        at = {axis.index: index for axis, index in zip(point.axes, read.indices, strict=True)}
        found = substitute(rename_bound(point.value, set(free_names(read)) | own), at)
        return found if isinstance(found, Apply) and not own.isdisjoint(fixed_by(found.args[0])) else read

    values = tuple(bottom_up(value, written) for value in node.values)
    return node if all(a is b for a, b in zip(values, node.values, strict=True)) else replace(node, values=values)
