"""Reductions by a user's combiner as recurrences: a scan folds the values one after the other, its partial results are stored.

The points of a reduction become a row-major sequence of steps. A bound that depends on data gives no length, but where every
point reads a tensor at an index that moves with the axis, the extent of that tensor limits how many points there can be:
the scan has that length and skips the steps that are no points.

Rounding adds up along a fold, so a long one goes in parts: folds of a row or a block of points, and a fold of what these come to.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from tensorexpr.autodiff.local.spans import spans
from tensorexpr.autodiff.local.workspace import Place, Workspace, as_extent, guarded, shifted
from tensorexpr.errors import DifferentiationError
from tensorexpr.ir import (
    Access,
    Apply,
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
    conjunction,
    conjuncts,
    const,
    product,
)
from tensorexpr.language.core.tensor import name_of
from tensorexpr.records import replace
from tensorexpr.traversal import bottom_up, bound_names, fresh_name, substitute, walk

LONG = 128
"""So many points are folded one after the other; the rounding of each step stays in all that follow."""
SHORT = 16
"""The least part of an axis: blocks that divide it are preferred from here on."""

LEVELS = 2
"""How often an open extent is divided into parts: 128 * 128 points are one part then."""


def in_parts(node: Reduce, place: Place, workspace: Workspace) -> Reduce | None:
    """A reduction over a box of many points as one of reductions over parts of it, in the same order; None where it is short.

    The parts are rows along the last axis, or blocks of the only one.
    """
    if not all(_is_same(e) for axis in node.axes for e in (axis.start, axis.stop)) or not all(map(_is_same, conjuncts(node.where))):
        return None
    extents = [_extent(axis) for axis in node.axes]
    if all(isinstance(extent, Const) for extent in extents) and math.prod(int(e.value) for e in extents if isinstance(e, Const)) <= LONG:
        return None
    if len(node.axes) != 1:
        filled = () if isinstance(extents[-1], Const) and extents[-1].value > 0 else (apply("gt", extents[-1], const(0)),)
        return _of_parts(node, replace(node, axes=node.axes[-1:]), node.axes[:-1], filled)
    axis, extent = node.axes[0], extents[0]
    if sum(isinstance(part, Apply) and part.op.name == "floordiv" for part in walk(extent)) >= LEVELS:
        return None
    taken = {*workspace.reserved, *(a.index for a in place.axes), *bound_names(node)}
    outer, own = fresh_name(f"{axis.index}_o", taken), fresh_name(f"{axis.index}_i", taken)
    block = _block(int(extent.value)) if isinstance(extent, Const) else LONG
    behind = apply("add", apply("mul", Index(outer), const(block)), Index(own))
    at = {axis.index: behind if axis.start == const(0) else apply("add", axis.start, behind)}
    whole = isinstance(extent, Const) and int(extent.value) % block == 0
    inner = replace(
        node,
        values=tuple(substitute(value, at) for value in node.values),
        axes=(Axis(own, const(0), const(block)),),
        where=node.where if whole else conjunction([*conjuncts(node.where), apply("lt", behind, extent)]),
    )
    blocks = (
        const(-(-int(extent.value) // block))
        if isinstance(extent, Const)
        else apply("floordiv", apply("add", extent, const(block - 1)), const(block))
    )
    return _of_parts(node, inner, (Axis(outer, const(0), blocks),), ())


def _of_parts(node: Reduce, inner: Reduce, axes: tuple[Axis, ...], filled: tuple[Expr, ...]) -> Reduce:
    parts = tuple(replace(inner, component=c) for c in range(len(node.values)))
    conditions = [*conjuncts(node.where), *filled]
    return replace(node, values=parts, axes=axes, where=conjunction(conditions) if conditions else None)


def _is_same(e: Expr) -> bool:
    """Whether a bound or a condition is the same at all points."""
    return not any(isinstance(node, Access | Index) for node in walk(e))


def _extent(axis: Axis) -> Expr:
    if isinstance(axis.start, Const) and isinstance(axis.stop, Const):
        return const(max(int(axis.stop.value) - int(axis.start.value), 0))
    return as_extent(axis.stop if axis.start == const(0) else apply("sub", axis.stop, axis.start))


def _block(extent: int) -> int:
    """How many points of an axis are a part: close to its root, and a divisor of it where there is one."""
    root = min(math.isqrt(extent - 1) + 1, LONG)
    divisors = [d for d in range(SHORT, LONG + 1) if extent % d == 0]
    return min(divisors, key=lambda d: abs(d - root)) if divisors else root


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
