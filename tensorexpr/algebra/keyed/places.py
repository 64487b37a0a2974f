"""Sums over the segments of a sort plan, an element for each point, as sums sent to their places.

    offsets, order = segments[3000](key[i] for i in range(50000))           y = scatter({key[i]: h[i] * g[key[i]] for i in range(50000)})
    t[p] = f(p) - sum(h[order[k]] * g[p] for k in range(offsets[p], offsets[p + 1]))  -->  t[p] = f(p) - y[p]

A plan is counted, added up and filled point by point, and each segment read by a loop of its own, whose elements lie apart; what is sent
is computed in lanes, and added up as often as a plan counts. What each plan of a batch sums is sent to places of its own. Rows stay: their
elements are many at a time in both forms, and segments run on all cores. A plan that something else reads stays too, unless most of its
segments are empty. Points come in increasing order for each key. All points are sent: what only some segments read, those that a condition
chooses or that the definition is about, must exist for every point.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from tensorexpr.algebra.keyed.keys import is_plain, sums_evaluated
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
    integer,
)
from tensorexpr.records import replace
from tensorexpr.regions import affine_of
from tensorexpr.simplify import remove_dead_definitions, simplify_indices
from tensorexpr.simplify.passes.terms.found import all_exist
from tensorexpr.traversal import bottom_up, free_names, fresh_name, replaced, walk

SPARSE = 4
"""Keys for each point of a plan from which most segments are empty."""


def with_sums_by_place(program: Program) -> Program:
    """The program with sums over segments of plans as scatters.

    Requires: a simplified program. Ensures: every value is kept, but for the order in which scatters add up; a key out of its extent is an
    error as before.
    """
    plans = {d.names[0]: d for d in program.definitions if isinstance(d, Segments) and _has_places(d)}
    found = _with_sums_sent(program, plans)
    left = {d.names[0] for d in found.definitions if isinstance(d, Segments) and not _is_sparse(d)}
    return found if left.isdisjoint(plans) else _with_sums_sent(program, {name: d for name, d in plans.items() if name not in left})


def _with_sums_sent(program: Program, plans: Mapping[str, Segments]) -> Program:
    taken = {*program.types, *program.sizes}
    made: dict[tuple[str, Expr], Scatter] = {}
    definitions: list[Definition] = []
    for d in program.definitions:
        if isinstance(d, Define):
            sums = {e: plans[name] for e in walk(d.value) if (name := plan_of(e)) in plans}
            found: dict[Expr, Expr] = {}
            everywhere = set(sums_evaluated(d.value))
            for e, plan in sums.items():
                assert isinstance(e, Reduce) and isinstance(e.axes[0].start, Access)
                *batch, at = e.axes[0].start.indices
                keys = keys_of_segment(at, plan, d.axes)
                whole = e in everywhere and is_each((*batch, *keys), plan, d.axes)
                if (value := _at_points(e, plan, keys, None if whole else program.types)) is not None:
                    key = (plan.name, value)
                    shape = (*(a.stop for a in plan.batch), *plan.extents)
                    if key not in made:
                        is_all = e == d.value and [(Index(a.index), a.stop) for a in d.axes] == list(
                            zip((*batch, *keys), shape, strict=True)
                        )
                        made[key] = Scatter(
                            d.name if is_all else fresh_name(f"{d.name}_places", taken),
                            TensorType(shape, e.dtype),
                            plan.loops,
                            (*(Index(a.index) for a in plan.batch), *plan.keys),
                            value,
                            plan.where,
                            location=plan.location,
                        )
                        definitions.append(made[key])
                    found[e] = Access(made[key].name, (*batch, *keys), e.dtype)
            if found:
                d = replace(d, value=replaced(d.value, found))
        if not definitions or definitions[-1].results[0][0] != d.results[0][0]:  # what a scatter is as a whole
            definitions.append(d)
    if not made:
        return program
    return simplify_indices(remove_dead_definitions(replace(program, definitions=tuple(definitions))))


def _has_places(plan: Segments) -> bool:
    """Whether the numbers of points are affine, and those of keys: only the first axis may be open, and one key."""
    known = (*(a.stop for a in plan.axes[1:]), *(plan.extents if len(plan.extents) > 1 else ()))
    return all(map(is_plain, plan.batch)) and all(isinstance(e, Const) for e in known)


def _is_sparse(plan: Segments) -> bool:
    """Whether a plan is known to have far more keys than points."""
    extents = [*(a.stop for a in plan.axes), *plan.extents]
    if not all(isinstance(e, Const) for e in extents):
        return False
    points, keys = (prod(map(integer, own)) for own in (extents[: len(plan.axes)], plan.extents))
    return keys >= SPARSE * points


def plan_of(e: Expr) -> str:
    """The offsets of the segment that a sum runs over; nothing where it is something else."""
    if not (isinstance(e, Reduce) and e.combiner.is_builtin and e.combiner.name == "sum" and len(e.axes) == 1 and e.where is None):
        return ""
    start, stop = e.axes[0].start, e.axes[0].stop
    if not (isinstance(start, Access) and isinstance(stop, Access) and start.tensor == stop.tensor):
        return ""
    (*batch, at), (*same, behind) = start.indices, stop.indices
    following = (apply("add", at, const(1)), _after(at))
    return start.tensor if batch == same and behind in following and e.dtype.bits >= 32 else ""


def _after(e: Expr) -> Expr:
    """The index one further, as sums of indices with a literal are written."""
    match e:
        case Apply(op, (rest, Const(value))) if op.name == "add":
            return apply("add", rest, const(int(value) + 1))
    return apply("add", e, const(1))


def is_each(places: tuple[Expr, ...], plan: Segments, around: tuple[Axis, ...]) -> bool:
    """Whether a definition of these axes has each segment of a plan at one of its points."""
    stops: dict[Expr, Expr] = {Index(a.index): a.stop for a in around if is_plain(a)}
    extents = (*(a.stop for a in plan.batch), *plan.extents)
    return len(set(places)) == len(places) == len(extents) and all(stops.get(p) == e for p, e in zip(places, extents, strict=True))


def _at_points(e: Reduce, plan: Segments, keys: tuple[Expr, ...], types: Mapping[str, TensorType] | None) -> Expr | None:
    """What a sum over the segment of these keys adds up, at the points of the plan; None where it depends on more than these or, with types
    of what it reads, where something may not exist for some point and key."""
    assert isinstance(e.axes[0].start, Access)
    name, batch = e.axes[0].index, e.axes[0].start.indices[:-1]
    if not keys or not all(isinstance(at, Index) for at in batch) or len({*batch, *keys}) < len(batch) + len(keys):
        return None
    row = [Index(a.index) for a in plan.batch]
    element = Access(plan.names[1], (*row, Index(name)), e.axes[0].start.dtype)
    point = flat_position(plan.axes)
    names = {Index(n) for n in free_names(e.values[0])}
    own = keys if all(isinstance(k, Index) for k in keys) else ()
    if not names <= {Index(name), *own, *batch} or names & {Index(a.index) for a in plan.axes}:
        return None

    def moved(keys: Iterable[Expr]) -> Expr:
        found: dict[Expr, Expr] = {**dict(zip(own, keys, strict=False)), **dict(zip(batch, row, strict=True)), element: point}
        return bottom_up(e.values[0], lambda node: found.get(node, node))

    value = moved(plan.keys)
    if any(isinstance(n, Reduce) for n in walk(value)) or name in free_names(value):
        return None
    if types is not None:
        taken = {a.index for a in plan.loops}
        each = [Axis(fresh_name("key", taken), const(0), extent) for extent in plan.extents]
        one = moved(Index(a.index) for a in each)
        if not all_exist(one if plan.where is None else apply("where", plan.where, one, Const(0, one.dtype)), (*plan.loops, *each), types):
            return None
    return value


def keys_of_segment(at: Expr, plan: Segments, around: tuple[Axis, ...]) -> tuple[Expr, ...]:
    """The keys of the segment at a place of a plan: the place itself, or axes of the definition around; none where it is neither."""
    if len(plan.extents) == 1:
        return (at,)
    form = affine_of(at)
    extents = [int(e.value) for e in plan.extents if isinstance(e, Const)]
    strides = [prod(extents[k + 1 :]) for k in range(len(extents))]
    axes = {a.index: a.stop for a in around if is_plain(a)}
    if form is None or form.constant or len(form.terms) != len(extents):
        return ()
    found = [
        Index(atom)
        for stride, extent in zip(strides, plan.extents, strict=True)
        for atom, factor in form.terms
        if factor == stride and isinstance(atom, str) and axes.get(atom) == extent
    ]
    return tuple(found) if len(found) == len(extents) else ()


def flat_position(axes: tuple[Axis, ...]) -> Expr:
    """The number of a point, row-major."""
    result: Expr = Index(axes[0].index) if axes else const(0)
    for axis in axes[1:]:
        result = apply("add", apply("mul", result, axis.stop), Index(axis.index))
    return result
