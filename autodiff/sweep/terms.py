"""Costly terms are swept as definitions of their own: what reaches one is summed before it goes on through the term.

    c[i, j] = sum(exp(a[i, k]) * b[k, j] for k)
    a_bar[i, k] = sum(c_bar[i, j] * b[k, j] * exp(a[i, k]) for j)                                   as written
    a_exp_bar[i, k] = sum(c_bar[i, j] * b[k, j] for j);  a_bar[i, k] = a_exp_bar[i, k] * exp(a[i, k])   so

That is the chain rule at a[i, k] -> exp(a[i, k]), and what comes out where the exponential has a name. Terms are those of which the
simplifier makes tensors (`simplify.passes.terms`), where each of their elements is read: the derivative at one that is not would be
zero times whatever it is. So the conditions under which a term is computed must depend on its own indices: its adjoint goes on under these.
"""

from __future__ import annotations

from tensorexpr.autodiff.local.workspace import Place, Workspace, conditions_of
from tensorexpr.ir import Apply, Axis, Define, Expr, Index, const
from tensorexpr.records import record
from tensorexpr.simplify.passes.terms import pays_alone, term_of
from tensorexpr.traversal import free_names


@record
class TermAt:
    """A term where it stands: the definition of it, without a name yet, that is read there at its own axes, and when its elements are."""

    definition: Define
    guards: tuple[Expr, ...]


def term_at(node: Apply, place: Place, outer: int, workspace: Workspace) -> TermAt | None:
    """The term that a node is, None where it is none.

    The first `outer` axes of the place are those of the definition in which the node stands, the others those of reductions.
    """
    free = set(free_names(node))
    if workspace.steps or len(free) >= len(place.axes) or free.isdisjoint(axis.index for axis in place.axes[outer:]):
        return None
    found = term_of(node, place.axes, workspace.types)
    if found is None or not pays_alone(found, node, place.axes, workspace.types):
        return None
    ranges = {axis.index: axis for axis in place.axes}
    axes: list[Axis] = []
    for subscript, own in zip(found.subscripts, found.define.axes, strict=True):
        axis = ranges.get(subscript.name) if isinstance(subscript, Index) else None
        if axis is None or axis.start != const(0) or axis.stop != own.stop:
            return None
        axes.append(axis)
    others = [condition for axis in place.axes if axis.index not in free for condition in conditions_of(axis, False)]
    guards = tuple(dict.fromkeys((*place.guards, *others)))
    if any(not set(free_names(guard)) <= free for guard in guards):
        return None
    return TermAt(Define("", tuple(axes), node), guards)
