"""Reads by data along rows of data, through a plan that is handed in: `x[cols[p[i] + k], d]` for k in range(p[i + 1] - p[i]).

How many points such rows have is data, so they have no plan of their own. But each goes through a place in `cols`, `p[i] + k`, and where a
plan of all these places is given (`te.planned(cols, offsets, order)`), what is sent is first added up by place, then along the plan:

    x_places[p[i] + k, d] += y_bar[i, d] * v[p[i] + k]        rows of places that follow each other
    x_bar[c, d] = sum(x_places[order[k], d] for k in range(offsets[c], offsets[c + 1]))

Places may be visited by several rows, or by none.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorexpr.autodiff.local.contributions import Contribution
from tensorexpr.autodiff.local.workspace import Workspace, all_of
from tensorexpr.ir import Access, Axis, Expr, Index, Scatter, Segments, TensorType, const
from tensorexpr.records import replace
from tensorexpr.traversal import children, free_names, fresh_name, substitute


def by_places(c: Contribution, target: Sequence[Axis], workspace: Workspace) -> Contribution | None:
    """The contribution of the places of a given plan, with their sums in the workspace; None where no plan fits."""
    for plan in workspace.given_plans:
        if len(plan.loops) == 1 == len(plan.keys) and not plan.batch and plan.where is None:
            for at, index in enumerate(c.access.indices):
                place = _matched(plan.keys[0], index, plan.axes[0].index)
                if place is not None and target[at].stop == plan.extents[0]:
                    found = _summed(c, target, at, place, plan, workspace)
                    if found is not None:
                        return found
    return None


def _matched(pattern: Expr, expr: Expr, name: str) -> Expr | None:
    """What stands in `expr` where `pattern` has the index `name`; None where they differ elsewhere, or where it is an index by itself."""
    found: list[Expr] = []

    def match(a: Expr, b: Expr) -> bool:
        if a == Index(name):
            found.append(b)
            return True
        if name not in free_names(a):
            return a == b
        pairs = list(zip(children(a), children(b), strict=False))
        return type(a) is type(b) and len(children(a)) == len(children(b)) and _bare(a) == _bare(b) and all(match(x, y) for x, y in pairs)

    return found[0] if match(pattern, expr) and len(set(found)) == 1 and not isinstance(found[0], Index) else None


def _bare(expr: Expr) -> object:
    """What a node is, its children aside."""
    return expr.tensor if isinstance(expr, Access) else (expr.dtype, getattr(expr, "op", None))


def _summed(c: Contribution, target: Sequence[Axis], at: int, place: Expr, plan: Segments, workspace: Workspace) -> Contribution | None:
    """The sums by place, where every other index is an axis of its own over the whole tensor."""
    own = {axis.index: axis for axis in c.axes}
    others = [index for number, index in enumerate(c.access.indices) if number != at]
    names = [index.name for index in others if isinstance(index, Index) and index.name in own]
    bound = {n for axis in c.axes for e in (axis.start, axis.stop) for n in free_names(e)}
    stops = [axis.stop for number, axis in enumerate(target) if number != at]
    if len(set(names)) < len(others) or set(names) & (bound | set(free_names(place))):
        return None
    if any((own[name].start, own[name].stop) != (const(0), stop) for name, stop in zip(names, stops, strict=True)):
        return None
    (axis,) = plan.axes
    type_ = TensorType((axis.stop, *stops), c.value.dtype)
    sums = Scatter(workspace.new_name(c.access.tensor, "_places"), type_, c.axes, (place, *others), c.value, all_of(c.guards))
    workspace.add(replace(sums, location=c.access.location))
    taken = {*workspace.reserved, *(a.index for a in target), *own}
    z = fresh_name(axis.index, taken)
    key = substitute(plan.keys[0], {axis.index: Index(z)})
    indices = (*c.access.indices[:at], key, *c.access.indices[at + 1 :])
    value = Access(sums.name, (Index(z), *others), c.value.dtype)
    return Contribution(replace(c.access, indices=indices), (Axis(z, const(0), axis.stop), *(own[n] for n in names)), (), value, c.reads)
