"""Where tensors are read: each read with the definition it stands in, the axes around it, and what holds there."""

from __future__ import annotations

from tensorexpr.ir import (
    Access,
    Apply,
    Axis,
    Cast,
    Const,
    Define,
    Definition,
    Expr,
    Index,
    Program,
    Reduce,
    Scan,
    Scatter,
    Segments,
    conjuncts,
)
from tensorexpr.simplify.passes.inline.checks import Place
from tensorexpr.traversal import free_names, negate, tensors_read


def places_read(program: Program) -> tuple[dict[str, list[Place]], set[str]]:
    """Every read of each tensor, and the tensors that are read as a whole or given."""
    sites: dict[str, list[Place]] = {}
    fixed = set(program.outputs)
    for definition in program.definitions:
        _collect(definition, (), sites, fixed)
    return sites, fixed


def _collect(definition: Definition, outer: tuple[Axis, ...], sites: dict[str, list[Place]], fixed: set[str]) -> None:
    """Every read of every tensor, with the definition it stands in and the axes around it; the inits of scans are fixed."""
    if isinstance(definition, Scan):
        fixed.update(definition.inits)
        step = Axis(definition.step, Const(0, definition.length.dtype), definition.length)
        for inner in definition.body:
            _collect(inner, (*outer, step), sites, fixed)
        return

    axes = (*outer, *axes_of(definition))
    match definition:
        case Define():
            parts: tuple[Expr | None, ...] = (definition.value,)
        case Segments():
            parts = (*definition.keys, definition.where)
        case _:
            parts = (*definition.indices, definition.where, definition.value)
    where = definition.where if isinstance(definition, Scatter | Segments) else None
    for e in parts:
        if e is not None:
            _collect_from(e, definition, axes, () if where is None or e is where else tuple(conjuncts(where)), sites)


def _collect_from(
    expr: Expr, definition: Definition, axes: tuple[Axis, ...], guards: tuple[Expr, ...], sites: dict[str, list[Place]]
) -> None:
    if not tensors_read(expr):
        return
    if isinstance(expr, Access):
        sites.setdefault(expr.tensor, []).append(Place(definition, expr, axes, guards))
    if isinstance(expr, Reduce):
        for axis in expr.axes:
            _collect_from(axis.start, definition, axes, guards, sites)
            _collect_from(axis.stop, definition, axes, guards, sites)
            axes = (*axes, axis)
        if expr.where is not None:
            _collect_from(expr.where, definition, axes, guards, sites)
            guards = (*guards, *conjuncts(expr.where))
        for e in expr.values:
            _collect_from(e, definition, axes, guards, sites)
        return
    if isinstance(expr, Apply) and expr.op.name == "where":
        condition, taken, otherwise = expr.args
        _collect_from(condition, definition, axes, guards, sites)
        _collect_from(taken, definition, without_fixed(axes, condition), (*guards, *conjuncts(condition)), sites)
        _collect_from(otherwise, definition, axes, (*guards, negate(condition)), sites)
        return
    for e in _parts(expr):
        _collect_from(e, definition, axes, guards, sites)


def axes_of(definition: Define | Scatter | Segments) -> tuple[Axis, ...]:
    return definition.loops if isinstance(definition, Segments) else definition.axes


def fixed_by(condition: Expr) -> dict[str, Expr]:
    """The indices that a condition allows one value only, and which: `i == u * 4 + 3`."""
    found: dict[str, Expr] = {}
    for part in conjuncts(condition):
        if isinstance(part, Apply) and part.op.name == "eq":
            for one, other in (part.args, reversed(part.args)):
                if isinstance(one, Index) and one.name not in free_names(other):
                    found.setdefault(one.name, other)
                    break
    return found


def without_fixed(axes: tuple[Axis, ...], condition: Expr) -> tuple[Axis, ...]:
    """The axes without those that the condition allows one value only."""
    fixed = fixed_by(condition)
    return tuple(axis for axis in axes if axis.index not in fixed)


def _parts(expr: Expr) -> tuple[Expr, ...]:
    match expr:
        case Access():
            return expr.indices
        case Apply():
            return expr.args
        case Cast():
            return (expr.arg,)
    return ()
