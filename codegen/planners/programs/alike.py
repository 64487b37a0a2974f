"""Reductions whose loops came out alike, and which compute the same costly value at each point (the exponential of a distance, for a result
and for gradients by it): they run in the same loops (`compute_with`), where the value is computed once."""

from __future__ import annotations

from collections.abc import Mapping

from tensorexpr.codegen.schedule.analysis.state import Stage
from tensorexpr.codegen.schedule.definitions.recompute import DEAR
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Apply, Axis, Define, Expr, Index, Reduce
from tensorexpr.records import replace
from tensorexpr.traversal import children, map_children


def join_alike(s: Planned) -> None:
    """Runs reductions whose loops are alike in the same ones, where they compute the same costly values of what they go through."""
    if s.target.is_gpu:
        return
    hosts: list[tuple[str, frozenset[Expr]]] = []
    for definition in s.state.program.definitions:
        name = definition.results[0][0]
        stage = s.state.table.get(name)
        if (
            not isinstance(definition, Define)
            or stage is None
            or stage.place is not None
            or stage.scan is not None
            or stage.joins is not None
        ):
            continue
        if not stage.parts.groups or stage.parts.unproved or any(other.joins == name for other in s.state.stages):
            continue
        values = _dear_values(stage, definition)
        host = next((n for n, theirs in hosts if values & theirs and s.decisions.wanted(f"{name}: with {n}") and _joined(s, name, n)), None)
        if host is None and values:
            hosts.append((name, values))


def _joined(s: Planned, name: str, host: str) -> bool:
    before = s.state
    try:
        s[name].compute_with(host)
    except ScheduleError:
        s.state = before
        return False
    return True


def _dear_values(stage: Stage, definition: Define) -> frozenset[Expr]:
    """The costly values inside the reductions of a definition, with the places of loops for indices: equal ones are computed at the same
    iterations of loops that are alike."""
    lanes = [stage.extent(loop) for loop in stage.order if stage.kind(loop) == "vectorize"]
    axes = (*stage.parts.axes, *(a for g in stage.parts.groups if g.scope is None for a in g.axes))
    places = {a.index: Index(f"{stage.order.index(stage.loops_of(a.index)[0])} {stage.extent(a.index)} {lanes}") for a in axes}
    found: set[Expr] = set()

    def canonical(node: Expr, names: Mapping[str, Expr], depth: int) -> Expr:
        if isinstance(node, Index):
            return names.get(node.name, node)
        if isinstance(node, Reduce):
            bound = {a.index: Index(f"bound {depth} {k}") for k, a in enumerate(node.axes)}
            inner = {**names, **bound}
            made = replace(node, axes=tuple(Axis(bound[a.index].name, a.start, a.stop) for a in node.axes))
            return map_children(made, lambda child: canonical(child, inner, depth + 1))
        return map_children(node, lambda child: canonical(child, names, depth))

    def visit(node: Expr, inside: bool) -> None:
        if inside and isinstance(node, Apply) and node.dtype.is_float and node.op.cost >= DEAR:
            found.add(canonical(node, places, 0))
        for child in children(node):
            visit(child, inside or isinstance(node, Reduce))

    visit(definition.value, False)
    return frozenset(found)
