"""Sums over the segments of a sort plan that has few points and many keys, as sums sent to their places.

    offsets, order = segments[2048000](key[i] for i in range(4096))               y = scatter({key[i]: h[i] for i in range(4096)})
    g[p] = f(p) - sum(h[order[k]] for k in range(offsets[p], offsets[p + 1]))  -->  g[p] = f(p) - y[p]

A plan is read at every key, the empty ones too, by a loop of its own for each. Where almost all are empty one load in lanes is less.
Points come in increasing order for each key, so sums add up in the same order.
"""

from __future__ import annotations

from math import prod

from tensorexpr.ir import (
    Access,
    Apply,
    Axis,
    Const,
    Define,
    Definition,
    Expr,
    Index,
    Program,
    Reduce,
    Scatter,
    Segments,
    TensorType,
    apply,
    const,
)
from tensorexpr.records import replace
from tensorexpr.simplify import remove_dead_definitions, simplify_indices
from tensorexpr.traversal import bottom_up, free_names, fresh_name, replaced, walk

SPARSE = 4
"""Keys for each point of a plan from which most segments are empty."""


def with_sums_by_place(program: Program) -> Program:
    """The program with sums over segments of plans that are sparse as scatters.

    Requires: a simplified program. Ensures: every value is kept; a key out of its extent is an error as before.
    """
    plans = {d.names[0]: d for d in program.definitions if isinstance(d, Segments) and _is_sparse(d)}
    taken = {*program.types, *program.sizes}
    made: dict[tuple[str, Expr], Scatter] = {}
    definitions: list[Definition] = []
    for d in program.definitions:
        if isinstance(d, Define):
            sums = {e: plans[name] for e in walk(d.value) if (name := _plan_of(e)) in plans}
            found: dict[Expr, Expr] = {}
            for e, plan in sums.items():
                assert isinstance(e, Reduce) and isinstance(e.axes[0].start, Access)
                if (value := _at_points(e, plan)) is not None:
                    key = (plan.name, value)
                    if key not in made:
                        made[key] = Scatter(
                            fresh_name(f"{d.name}_places", taken),
                            TensorType(plan.extents, e.dtype),
                            plan.axes,
                            plan.keys,
                            value,
                            plan.where,
                            location=plan.location,
                        )
                        definitions.append(made[key])
                    found[e] = Access(made[key].name, e.axes[0].start.indices, e.dtype)
            if found:
                d = replace(d, value=replaced(d.value, found))
        definitions.append(d)
    if not made:
        return program
    return simplify_indices(remove_dead_definitions(replace(program, definitions=tuple(definitions))))


def _is_sparse(plan: Segments) -> bool:
    """Whether a plan, of one key, has far more keys than points."""
    extents = [a.stop for a in plan.axes]
    if plan.batch or len(plan.extents) != 1 or not all(isinstance(e, Const) for e in (*extents, *plan.extents)):
        return False
    points, keys = (prod(int(e.value) for e in own if isinstance(e, Const)) for own in (extents, plan.extents))
    return keys >= SPARSE * points


def _plan_of(e: Expr) -> str:
    """The offsets of the segment that a sum runs over; nothing where it is something else."""
    if not (isinstance(e, Reduce) and e.combiner.is_builtin and e.combiner.name == "sum" and len(e.axes) == 1 and e.where is None):
        return ""
    start, stop = e.axes[0].start, e.axes[0].stop
    if not (isinstance(start, Access) and isinstance(stop, Access) and start.tensor == stop.tensor and len(start.indices) == 1):
        return ""
    following = apply("add", start.indices[0], const(1))
    return start.tensor if stop.indices[0] in (following, _after(start.indices[0])) and e.dtype.bits >= 32 else ""


def _after(e: Expr) -> Expr:
    """The index one further, as sums of indices with a literal are written."""
    match e:
        case Apply(op, (rest, Const(value))) if op.name == "add":
            return apply("add", rest, const(int(value) + 1))
    return apply("add", e, const(1))


def _at_points(e: Reduce, plan: Segments) -> Expr | None:
    """What a sum over a segment adds up, at the points of the plan; None where it depends on more than these."""
    name = e.axes[0].index
    element = Access(plan.names[1], (Index(name),), e.axes[0].start.dtype)
    point = _position(plan.axes)

    def moved(node: Expr) -> Expr:
        return point if node == element else node

    value = bottom_up(e.values[0], moved)
    if any(isinstance(n, Reduce) for n in walk(value)) or not set(free_names(e.values[0])) <= {name} or name in free_names(value):
        return None
    return value


def _position(axes: tuple[Axis, ...]) -> Expr:
    """The number of a point, row-major."""
    result: Expr = Index(axes[0].index) if axes else const(0)
    for axis in axes[1:]:
        result = apply("add", apply("mul", result, axis.stop), Index(axis.index))
    return result
