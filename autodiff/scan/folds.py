"""Reductions by a user's combiner as recurrences: a scan folds the values one after the other, its partial results are stored.

The points of a reduction become a row-major sequence of steps. A bound that depends on data gives no length, but where every
point reads a tensor at an index that moves with the axis, the extent of that tensor limits how many points there can be:
the scan has that length and skips the steps that are no points.
"""

from __future__ import annotations

from collections.abc import Collection

from tensorexpr.autodiff.local.spans import spans
from tensorexpr.autodiff.local.workspace import Place, Workspace, guarded, shifted
from tensorexpr.errors import DifferentiationError
from tensorexpr.ir import (
    Access,
    Axis,
    Const,
    Define,
    Expr,
    Index,
    Param,
    Reduce,
    Scan,
    TensorType,
    apply,
    const,
    product,
)
from tensorexpr.language.core.tensor import name_of
from tensorexpr.records import replace
from tensorexpr.traversal import bottom_up, bound_names, fresh_name, substitute, walk


def fold_steps(node: Reduce, place: Place, step: Expr, workspace: Workspace) -> tuple[Expr, dict[str, Expr], list[Expr]] | None:
    """The points of a reduction as one row-major sequence: its length, each index as a function of `step`, conditions for a point.

    None where an axis has no bound that holds at every point of `place`.
    """
    found = spans(node.axes, place, strict_parts(node), workspace)
    if found is None:
        return None
    length = product(tuple(span.extent for span in found))
    own: list[Expr] = []
    rest = step
    for span in reversed(found[1:]):
        own.insert(0, apply("mod", rest, span.extent))
        rest = apply("floordiv", rest, span.extent)
    own.insert(0, rest)
    values: dict[str, Expr] = {}
    conditions: list[Expr] = []
    for axis, span, place_of in zip(node.axes, found, own, strict=True):
        base = substitute(span.base, values)
        values[axis.index] = place_of if base == const(0) else apply("add", base, place_of)
        conditions += [substitute(condition, values) for condition in span.conditions]
    return length, values, conditions


def strict_parts(node: Reduce) -> tuple[Expr, ...]:
    """The expressions that every point of a reduction evaluates."""
    return node.values if node.where is None else (node.where,)


def expand_reduction(node: Reduce, place: Place, workspace: Workspace, owner: str, but: Collection[str] = ()) -> tuple[Expr, Scan]:
    """A read of the last state of a scan that folds the values of `node`, and that scan, which has no name in `but`.

    The scan is added to the workspace; the components of one fold share one scan.
    """
    around, guards, offsets = workspace.hull(node, place)
    if around is None:
        raise _unbounded(node, owner)
    key = (replace(node, component=0), around, tuple(guards), tuple(offsets))
    scan = workspace.folds.get(key)
    if scan is None or scan.names[0] in but:
        scan = workspace.folds[key] = _fold(node, place, around, guards, offsets, workspace, owner)
    dtype, identity = node.values[node.component].dtype, node.combiner.identity[node.component]
    read_at = tuple(shifted(Index(a.index), -offset) for a, offset in zip(around, offsets, strict=True))
    last = Access(scan.names[node.component], (apply("sub", scan.length, const(1)), *read_at), dtype)
    if isinstance(scan.length, Const):
        return (last if scan.length.value > 0 else identity), scan
    return apply("where", apply("gt", scan.length, const(0)), last, identity), scan


def _fold(
    node: Reduce, place: Place, around: tuple[Axis, ...], guards: list[Expr], offsets: list[int], workspace: Workspace, owner: str
) -> Scan:
    """Adds the scan over the points of a reduction, one state per component, for all points of `around`."""
    taken = {*workspace.reserved, *(axis.index for axis in place.axes), *bound_names(node)}
    step = Index(fresh_name("t", taken))
    steps = fold_steps(node, place, step, workspace)
    if steps is None:
        raise _unbounded(node, owner)
    length, values, conditions = steps
    shift = {a.index: shifted(Index(a.index), offset) for a, offset in zip(around, offsets, strict=True) if offset}

    def here(expr: Expr) -> Expr:
        return substitute(substitute(expr, values), shift)

    at = tuple(Index(axis.index) for axis in around)
    shape = tuple(a.stop for a in around)
    names = tuple(workspace.new_name(owner, f"_{node.combiner.name}") for _ in node.values)
    states = tuple((workspace.new_name(name, "_state"), TensorType(shape, v.dtype)) for name, v in zip(names, node.values, strict=True))
    inits, body, nexts = [], [], []
    for name, identity in zip(names, node.combiner.identity, strict=True):
        inits.append(workspace.new_name(name, "_init"))
        workspace.add(Define(inits[-1], around, identity))
    operands: dict[str, Expr] = {p.name: Access(state, at, p.dtype) for p, (state, _) in zip(node.combiner.left, states, strict=True)}
    operands |= {p.name: here(value) for p, value in zip(node.combiner.right, node.values, strict=True)}
    tests = [*(substitute(c, shift) for c in (*guards, *conditions)), *(() if node.where is None else (here(node.where),))]
    for name, result, (state, _) in zip(names, node.combiner.results, states, strict=True):
        combined = bottom_up(result, lambda e: operands[e.name] if isinstance(e, Param) else e)
        nexts.append(workspace.new_name(name, "_next"))
        body.append(Define(nexts[-1], around, guarded(combined, tests, Access(state, at, combined.dtype))))
    scan = Scan(names, length, step.name, states, tuple(inits), tuple(body), tuple(nexts))
    workspace.add(scan)
    return scan


def _unbounded(node: Reduce, owner: str) -> DifferentiationError:
    return DifferentiationError(
        f"expected the axes of a reduction by {node.combiner.name!r} to have a bound known beforehand, got one that depends on data alone",
        term=name_of(owner) or owner,
        location=next((e.location for e in walk(node) if isinstance(e, Access) and e.location is not None), None),
        hint="its steps are stored, so their number must have a limit: read a tensor at every point, or te.minimum(extent, limit)",
    )
