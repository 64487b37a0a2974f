"""The derivative of a product by one of its factors: the product of the others, without a division.

`prod_k v[k]` has the derivative `prod_{l != k} v[l]` by `v[k]`, right also where factors are zero. Over several axes it is
taken axis by axis: the rows of a product are the factors of an outer one. Along one axis it is the product of what stands
before times the product of what stands behind; both run as a recurrence over the axis, so the gradient costs a few products,
not one for each factor. Short axes multiply afresh, which costs less than two recurrences.
"""

from __future__ import annotations

from tensorexpr.autodiff.local.derivatives import widened
from tensorexpr.autodiff.local.spans import Span, spans
from tensorexpr.autodiff.local.workspace import Place, Workspace, guarded
from tensorexpr.ir import (
    Access,
    Axis,
    Combiner,
    Const,
    Define,
    Expr,
    Index,
    Reduce,
    Scan,
    TensorType,
    apply,
    conjuncts,
    const,
)
from tensorexpr.records import replace
from tensorexpr.traversal import bound_names, free_names, fresh_name, rename_bound, substitute, tensors_read

SHORT = 4
"""An axis of at most this many factors multiplies them afresh for each."""

PROD = Combiner("prod")


def leave_one_out(node: Reduce, place: Place, workspace: Workspace, owner: str) -> Expr:
    """The product of all factors of `node` (a product at `place`) but the one at the point of its axes; of 16-bit floats a float32."""
    node = replace(node, values=tuple(map(widened, node.values)))
    first, rest = node.axes[0], node.axes[1:]
    if not rest:
        return _along(first, node.values[0], node.where, place, workspace, owner)
    row = Reduce(PROD, node.values, rest, node.where)
    within = leave_one_out(row, place.under((first,)), workspace, owner)
    row_value = workspace.save(row, place.under((first,)), owner, "_prod")
    return apply("mul", within, _along(first, row_value, None, place, workspace, owner))


def _along(axis: Axis, value: Expr, where: Expr | None, place: Place, workspace: Workspace, owner: str) -> Expr:
    """The product of the other factors along one axis."""
    short = isinstance(axis.stop, Const) and isinstance(axis.start, Const) and axis.stop.value - axis.start.value <= SHORT
    found = None if short else _recurrences(axis, value, where, place, workspace, owner)
    return _afresh(axis, value, where, place) if found is None else found


def _afresh(axis: Axis, value: Expr, where: Expr | None, place: Place) -> Expr:
    taken = {a.index for a in place.axes} | {axis.index} | set(bound_names(value)) | set(free_names(value))
    other = Index(fresh_name(axis.index, taken))
    move = {axis.index: other}
    condition = apply("ne", other, Index(axis.index))
    if where is not None:
        condition = apply("and", condition, rename_bound(substitute(where, move), taken))
    return Reduce(PROD, (rename_bound(substitute(value, move), taken),), (Axis(other.name, axis.start, axis.stop),), condition)


def _recurrences(axis: Axis, value: Expr, where: Expr | None, place: Place, workspace: Workspace, owner: str) -> Expr | None:
    """Products before and behind as two scans, for an axis whose extent has a limit that is the same at every point of `place`."""
    found = spans((axis,), place, (value,) if where is None else (where,), workspace)
    if found is None:
        return None
    (span,) = found
    dtype = value.dtype
    factor = guarded(value, [*place.guards, *span.conditions, *conjuncts(where)], Const(1, dtype))
    base = span.base
    names = set(free_names(factor)) | set(free_names(base))
    around = tuple(a for a in place.axes if a.index in names)
    if any(a.start != const(0) or free_names(a.stop) or _reads(a.stop) for a in around) or _reads(span.extent):
        return None
    position = Index(axis.index) if base == const(0) else apply("sub", Index(axis.index), base)
    behind = apply("sub", apply("sub", span.extent, const(1)), position)
    at = tuple(Index(a.index) for a in around)
    sides = []
    for suffix, forward, place_of in (("_before", True, position), ("_behind", False, behind)):
        name = _scan(axis.index, span, factor, around, forward, workspace, owner, suffix)
        previous = Access(name, (apply("sub", place_of, const(1)), *at), dtype)
        sides.append(apply("where", apply("gt", place_of, const(0)), previous, Const(1, dtype)))
    return apply("mul", *sides)


def _reads(expr: Expr) -> bool:
    return bool(tensors_read(expr))


def _scan(
    index: str, span: Span, factor: Expr, around: tuple[Axis, ...], forward: bool, workspace: Workspace, owner: str, suffix: str
) -> str:
    """A tensor whose entry t is the product of the first (or last) t + 1 factors."""
    carried = factor.dtype
    name = workspace.new_name(owner, suffix)
    start, state, following = (workspace.new_name(owner, f"{suffix}_{part}") for part in ("init", "state", "next"))
    type_ = TensorType(tuple(a.stop for a in around), carried)
    workspace.add(Define(start, around, Const(1, carried)))
    used = {a.index for a in around} | set(free_names(factor)) | set(bound_names(factor)) | set(workspace.reserved)
    step = Index(fresh_name("t", used))
    position: Expr = step if forward else apply("sub", apply("sub", span.extent, const(1)), step)
    if span.base != const(0):
        position = apply("add", span.base, position)
    at = tuple(Index(a.index) for a in around)
    grown = apply("mul", Access(state, at, carried), substitute(factor, {index: position}))
    body = Define(following, around, grown)
    workspace.add(Scan((name,), span.extent, step.name, ((state, type_),), (start,), (body,), (following,)))
    return name
