"""Sums over the segments of a sort plan with few keys go over all points, under a condition.

    offsets, order = segments[4](key[i] for i in range(20000))
    t[m, p] = sum(h[m, order[k]] for k in range(offsets[p], offsets[p + 1]))
    -->   t[m, p] = sum(h[m, i] for i in range(20000) if key[i] == p)

A plan is made point by point, and what it lists is read in any order. A register compares a key of sixteen points with one that is looked
for, reads them side by side and adds those that have it, so a few times as many additions cost less. Points come in increasing order for
each key, as before. Only where every sum of a plan can be changed so, for each of its segments once, with keys known to be in range.
"""

from __future__ import annotations

from tensorexpr.algebra.keyed.places import flat_position, is_each, keys_of_segment, plan_of
from tensorexpr.bounds import PROVED, check_access
from tensorexpr.dtypes import int32
from tensorexpr.ir import (
    Access,
    Axis,
    Cast,
    Const,
    Define,
    Definition,
    Expr,
    Index,
    Program,
    Reduce,
    Segments,
    apply,
    conjunction,
    integer,
    product,
)
from tensorexpr.records import replace
from tensorexpr.simplify import remove_dead_definitions, simplify_indices
from tensorexpr.traversal import bound_names, expressions, free_names, fresh_name, replaced, substitute, walk

FEW = 8
"""Keys up to which a plan is not worth it."""


def with_few_keys(program: Program) -> Program:
    """The program without the plans of few keys whose sums go over all points.

    Requires: a simplified program. Ensures: every value is kept, but for the order in which sums add up.
    """
    plans = {d.names[0]: d for d in program.definitions if isinstance(d, Segments) and _is_small(d)}
    while plans:
        found = program
        for plan in plans.values():
            found = _over_points(found, plan)
        found = remove_dead_definitions(found)
        left = {d.names[0] for d in found.definitions if isinstance(d, Segments)}
        if left.isdisjoint(plans):
            return simplify_indices(found)
        plans = {name: plan for name, plan in plans.items() if name not in left}
    return program


def _is_small(plan: Segments) -> bool:
    extent = product(plan.extents)
    if not isinstance(extent, Const) or integer(extent) > FEW or len(plan.axes) == 0:
        return False
    guards = () if plan.where is None else (plan.where,)
    return all(verdict is PROVED for verdict in check_access(plan.keys, plan.extents, plan.loops, guards))


def _over_points(program: Program, plan: Segments) -> Program:
    """The program in which each sum over the segments of a plan, one for each point of a definition, goes over the plan's points."""
    definitions: list[Definition] = []
    for d in program.definitions:
        if isinstance(d, Define):
            sums = [e for e in walk(d.value) if isinstance(e, Reduce) and plan_of(e) == plan.name]
            made: dict[Expr, Expr] = {e: one for e in sums if (one := _over_all(e, plan, d)) is not None}
            d = replace(d, value=replaced(d.value, made)) if made else d
        definitions.append(d)
    return replace(program, definitions=tuple(definitions))


def _over_all(e: Reduce, plan: Segments, d: Define) -> Expr | None:
    """A sum over a segment as one over all points of the plan; None where it has no segment for each point of the definition."""
    assert isinstance(e.axes[0].start, Access)
    *batch, at = e.axes[0].start.indices
    keys = keys_of_segment(at, plan, d.axes)
    if not keys or not is_each((*batch, *keys), plan, d.axes):
        return None
    taken = {*(a.index for a in d.axes), *(n for x in (*expressions(d), *expressions(plan)) for n in (*bound_names(x), *free_names(x)))}
    axes = tuple(Axis(fresh_name(f"{a.index}", taken), a.start, a.stop) for a in plan.axes)
    names: dict[str, Expr] = {a.index: b for a, b in zip(plan.batch, batch, strict=True)}
    names |= {a.index: Index(b.index) for a, b in zip(plan.axes, axes, strict=True)}
    element = Access(plan.names[1], (*batch, Index(e.axes[0].index)), e.axes[0].start.dtype)
    value = replaced(e.values[0], {element: flat_position(axes)})
    if e.axes[0].index in free_names(value) or not all(_is_along(x, axes[-1].index) for x in walk(value) if isinstance(x, Access)):
        return None
    found = [_equal(substitute(key, names), own) for key, own in zip(plan.keys, keys, strict=True)]
    rest = () if plan.where is None else (substitute(plan.where, names),)
    return Reduce(e.combiner, (value,), axes, conjunction([*rest, *found]))


def _is_along(access: Access, point: str) -> bool:
    """Whether points that follow each other are read side by side, if different ones are. Rows of points are read whole in both forms."""
    moving = [i for i in access.indices if not isinstance(i, Const)]
    return not any(point in free_names(i) for i in moving) or point in free_names(moving[-1])


def _equal(key: Expr, own: Expr) -> Expr:
    """Whether a key is the one looked for, compared in the type that it was made in: the fewer bits, the more at once."""
    if isinstance(key, Cast) and key.arg.dtype is int32:
        return apply("eq", key.arg, Cast(int32, own))
    return apply("eq", key, own)
