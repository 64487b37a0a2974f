"""Sums over segments of a sort plan, read back as sums over the points that the plan sorts.

    sum(Y[order[k]] for k in range(offsets[v], offsets[v + 1]))     is     sum(Y[t] for t in range(n) if ids[t] == v)

so what such a sum reads is turned around as what reads at `t` is, with `v` known to be `ids[t]`: the second derivative of a
read that depends on data is again a read of that kind.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations

from tensorexpr.autodiff.data.digits import with_digits
from tensorexpr.autodiff.data.segments import digits_of, position
from tensorexpr.autodiff.local.contributions import Contribution
from tensorexpr.autodiff.local.workspace import Workspace
from tensorexpr.ir import Access, Axis, Expr, Index, Segments, apply, conjuncts, const
from tensorexpr.records import replace
from tensorexpr.regions import Opaque, affine_of
from tensorexpr.traversal import free_names, fresh_name, map_children, substitute, walk


def unsorted(contribution: Contribution, workspace: Workspace) -> Contribution:
    """The contribution over the points of a plan, where the place that it reads depends on their order; else as it is."""
    plans = {plan.name: plan for plan in (*workspace.plans, *workspace.given_plans)}
    segments = [
        e for axis in contribution.axes if isinstance(axis.start, Access) and axis.start.tensor in plans for e in axis.start.indices
    ]
    contribution = found = with_digits(contribution, segments, workspace.reserved)
    for axis in contribution.axes:
        start = axis.start
        if isinstance(start, Access) and start.tensor in plans and axis.index in _names(contribution.access.indices):
            found = _unsorted(found, axis.index, plans[start.tensor], workspace) or found
    return found


def _names(exprs: Iterable[Expr]) -> set[str]:
    return {name for e in exprs for name in free_names(e)}


def _unsorted(c: Contribution, name: str, plan: Segments, workspace: Workspace) -> Contribution | None:
    """The contribution without the axis `name`, which runs over a segment of the plan; None where it is something else."""
    axis = next(a for a in c.axes if a.index == name)
    start, stop = axis.start, axis.stop
    if not (isinstance(start, Access) and isinstance(stop, Access) and stop.tensor == start.tensor):
        return None
    *batch, segment = start.indices
    if not _equal(stop.indices[-1], apply("add", segment, const(1))) or stop.indices[:-1] != tuple(batch):
        return None
    element = Access(plan.names[1], (*batch, Index(name)), start.dtype)
    taken = {*workspace.reserved, *(a.index for a in c.axes), *_bound(c)}
    new = {a.index: Index(fresh_name(a.index, taken)) for a in plan.axes}
    at: dict[str, Expr] = {**new, **{a.index: e for a, e in zip(plan.batch, batch, strict=True)}}
    axes = tuple(Axis(new[a.index].name, substitute(a.start, at), substitute(a.stop, at)) for a in plan.axes)
    points = tuple(a.stop for a in plan.axes)
    values: dict[Expr, Expr] = dict(zip(digits_of(element, points), new.values(), strict=True))
    values.setdefault(element, position(list(new.values()), points))

    def moved(expr: Expr) -> Expr:
        return _replaced(expr, values)

    equal = _digits(segment, plan, tuple(substitute(key, at) for key in plan.keys), c)
    if equal is None:
        return None
    guards = tuple(substitute(one, at) for one in conjuncts(plan.where))
    at_axis = next(k for k, a in enumerate(c.axes) if a is axis)
    before, behind = (
        tuple(Axis(a.index, moved(a.start), moved(a.stop)) for a in part) for part in (c.axes[:at_axis], c.axes[at_axis + 1 :])
    )
    indices, conditions, value = [moved(index) for index in c.access.indices], [moved(guard) for guard in c.guards], moved(c.value)
    bounds = [bound for a in (*before, *behind) for bound in (a.start, a.stop)]
    if name in _names((*indices, *conditions, value, *bounds)) or set(equal) & _names(bounds):
        return None

    def known(expr: Expr) -> Expr:
        return substitute(expr, equal)

    return replace(
        c,
        access=replace(c.access, indices=tuple(map(known, indices))),
        axes=(*(a for a in before if a.index not in equal), *axes, *(a for a in behind if a.index not in equal)),
        guards=(*guards, *map(known, conditions)),
        value=known(value),
        reads=tuple((access, tuple(known(moved(one)) for one in extra)) for access, extra in c.reads),
    )


def _digits(segment: Expr, plan: Segments, keys: tuple[Expr, ...], c: Contribution) -> dict[str, Expr] | None:
    """The axes that number the segment, each as the key that it equals; None where something else numbers it."""
    whole = {axis.index: axis.stop for axis in c.axes if axis.start == const(0)}
    names = list(dict.fromkeys(name for name in free_names(segment) if name in whole))
    if len(names) != len(keys):
        return None
    for order in permutations(names):
        place = position([Index(name) for name in order], plan.extents)
        fits = all(whole[name] == extent for name, extent in zip(order, plan.extents, strict=True))
        if fits and _equal(place, segment):
            return dict(zip(order, keys, strict=True))
    return None


def _equal(a: Expr, b: Expr) -> bool:
    """Whether two positions are certainly one, products of sizes taken as they stand."""
    opaque = Opaque()
    return affine_of(a, opaque) == affine_of(b, opaque)


def _replaced(expr: Expr, values: dict[Expr, Expr]) -> Expr:
    """`expr` with the outermost parts that are in `values` replaced."""
    found = values.get(expr)
    return map_children(expr, lambda child: _replaced(child, values)) if found is None else found


def _bound(c: Contribution) -> set[str]:
    return {node.name for e in (c.value, *c.guards, *c.access.indices) for node in walk(e) if isinstance(node, Index)}
