"""Costly terms are swept as definitions of their own: what reaches one is summed before it goes on through the term.

    c[i, j] = sum(exp(a[i, k]) * b[k, j] for k)
    a_bar[i, k] = sum(c_bar[i, j] * b[k, j] * exp(a[i, k]) for j)                                   as written
    a_exp_bar[i, k] = sum(c_bar[i, j] * b[k, j] for j);  a_bar[i, k] = a_exp_bar[i, k] * exp(a[i, k])   so

That is the chain rule at a[i, k] -> exp(a[i, k]), and what comes out where the exponential has a name. Terms are those of which the
simplifier makes tensors (`simplify.passes.terms`), where each of their elements is read: the derivative at one that is not would be
zero times whatever it is. So the conditions under which a term is computed must depend on its own indices: its adjoint goes on under these.
A term may be read at quotients and remainders of an index (`weights[f // 64, i, j]` of merged heads), which are all numbers of a range.
"""

from __future__ import annotations

from collections.abc import Mapping

from tensorexpr.autodiff.local.workspace import Place, Workspace, conditions_of
from tensorexpr.ir import Apply, Axis, Const, Define, Expr, Index, const
from tensorexpr.records import record
from tensorexpr.simplify.passes.terms import pays_alone
from tensorexpr.simplify.passes.terms.found import term_of
from tensorexpr.traversal import bound_names, free_names, fresh_name, substitute, walk

QUOTIENTS = ("floordiv", "mod")


@record
class TermAt:
    """A term where it stands: the definition of it, without a name yet, the indices at which it is read, and when its elements are."""

    definition: Define
    indices: tuple[Expr, ...]
    guards: tuple[Expr, ...]


def term_at(node: Apply, place: Place, outer: int, workspace: Workspace) -> TermAt | None:
    """The term that a node is, None where it is none.

    The first `outer` axes of the place are those of the definition in which the node stands, the others those of reductions.
    """
    free = set(free_names(node))
    if workspace.steps or free.isdisjoint(axis.index for axis in place.axes[outer:]):
        return None
    if len(free) >= len(place.axes) and not any(isinstance(n, Apply) and n.op.name in QUOTIENTS for n in walk(node)):
        return None
    found = term_of(node, place.axes, workspace.types)
    if found is None or not pays_alone(found, node, place.axes, workspace.types):
        return None
    ranges = {axis.index: axis for axis in place.axes}
    plain = {e.name for e in found.subscripts if isinstance(e, Index)}
    taken = {*ranges, *workspace.reserved, *bound_names(found.define.value)}
    met: set[str] = set()
    axes: list[Axis] = []
    for subscript, own in zip(found.subscripts, found.define.axes, strict=True):
        names = free_names(subscript)
        if not _is_onto(subscript, own, ranges) or not met.isdisjoint(names):
            return None
        met.update(names)
        name = subscript.name if isinstance(subscript, Index) else fresh_name(f"{names[0]}_o", taken)
        axes.append(Axis(name, own.start, own.stop))
    others = [condition for axis in place.axes if axis.index not in free for condition in conditions_of(axis, False)]
    guards = tuple(dict.fromkeys((*place.guards, *others)))
    if any(not plain.issuperset(free_names(guard)) for guard in guards):
        return None
    if len(plain) == len(axes):
        return TermAt(Define("", tuple(axes), node), found.subscripts, guards)
    value = substitute(found.define.value, {own.index: Index(axis.index) for own, axis in zip(found.define.axes, axes, strict=True)})
    return TermAt(Define("", tuple(axes), value), found.subscripts, guards)


def _is_onto(subscript: Expr, own: Axis, ranges: Mapping[str, Axis]) -> bool:
    """Whether an index, or a quotient or remainder of one, takes every number of a range and no other."""
    whole: Expr = subscript
    divisor: Expr | None = None
    if isinstance(subscript, Apply) and subscript.op.name in QUOTIENTS:
        whole, divisor = subscript.args
    axis = ranges.get(whole.name) if isinstance(whole, Index) else None
    if axis is None or axis.start != const(0):
        return False
    if divisor is None:
        return axis.stop == own.stop
    if not isinstance(divisor, Const) or not isinstance(axis.stop, Const) or not isinstance(own.stop, Const) or divisor.value <= 0:
        return False
    assert isinstance(subscript, Apply)
    last = -(-axis.stop.value // divisor.value) if subscript.op.name == "floordiv" else min(axis.stop.value, divisor.value)
    return bool(own.stop.value == last)
