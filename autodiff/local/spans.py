"""How many points an axis can have, where that must be known before the program runs: lengths of scans, positions of points.

Most axes tell it themselves, or the axes that their bounds depend on do. A bound that depends on data tells nothing, but
the reads do: every point of `sum(x[i, k] for k in range(lens[i]))` reads `x` at an index that moves with k and must lie in
bounds, so there are no more points than `x` has columns. Only reads that every point of the axis evaluates count: none in a
branch of `where`, none under an inner reduction, which may be empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tensorexpr.autodiff.local.workspace import Place, Workspace, as_extent, shifted
from tensorexpr.ir import Access, Apply, Axis, Cast, Const, Expr, Index, TensorType, apply, const
from tensorexpr.records import record
from tensorexpr.traversal import children, free_names, tensors_read


@record
class Span:
    """An axis lies in base <= index < base + extent; `conditions` say which of these are its points (none: all)."""

    base: Expr
    extent: Expr
    conditions: tuple[Expr, ...] = ()


def spans(axes: tuple[Axis, ...], place: Place, strict: Iterable[Expr], workspace: Workspace) -> list[Span] | None:
    """The span of each of `axes` around an expression that stands at `place`, None where one has no bound.

    `strict` are the expressions that every point of the axes evaluates.
    """
    given = list(strict)
    found: list[Span] = []
    known: list[Axis] = []
    for at, axis in enumerate(axes):
        span = _plain(axis) or _hull(axis, place.under((*known, axis)), workspace)
        if span is None:
            span = _by_reads(axis, axes[at + 1 :], given, workspace.types)
        if span is None:
            return None
        found.append(span)
        limited = Axis(axis.index, span.base, apply("add", span.base, span.extent)) if span.conditions else axis
        known.append(limited)
    return found


def _plain(axis: Axis) -> Span | None:
    """An axis whose bounds are the same everywhere."""
    if free_names(axis.start) or free_names(axis.stop) or any(map(tensors_read, (axis.start, axis.stop))):
        return None
    return Span(axis.start, as_extent(axis.stop if axis.start == const(0) else apply("sub", axis.stop, axis.start)))


def _hull(axis: Axis, place: Place, workspace: Workspace) -> Span | None:
    """An axis whose bounds follow from those of the axes around it."""
    hull = workspace.hull_of(axis, place)
    if hull is None:
        return None
    low, stop = hull
    conditions = (apply("ge", Index(axis.index), axis.start), apply("lt", Index(axis.index), axis.stop))
    return Span(const(low), as_extent(shifted(stop, -low)), conditions)


def _by_reads(axis: Axis, later: tuple[Axis, ...], strict: list[Expr], types: Mapping[str, TensorType]) -> Span | None:
    """An axis that a tensor read at every point of it limits."""
    filled = all(isinstance(a.start, Const) and isinstance(a.stop, Const) and a.start.value < a.stop.value for a in later)
    reached = [bound for a in later for bound in (a.start, a.stop)] + (strict if filled else [])
    limits: list[Expr] = []
    for access in (access for expr in reached for access in _evaluated(expr)):
        for index, extent in zip(access.indices, types[access.tensor].shape, strict=True):
            pace = _pace(index, axis.index)
            if not pace:
                continue
            if abs(pace) == 1:
                limits.append(extent)
            elif isinstance(extent, Const):
                limits.append(const((int(extent.value) - 1) // abs(pace) + 1))
    if not limits:
        return None
    fixed = [limit for limit in limits if isinstance(limit, Const)]
    best = min(fixed, key=lambda limit: limit.value) if fixed else limits[0]
    return Span(axis.start, best, (apply("lt", Index(axis.index), axis.stop),))


def _evaluated(expr: Expr) -> Iterator[Access]:
    """The reads that are made wherever `expr` is evaluated."""
    if isinstance(expr, Access):
        yield expr
    inner = children(expr)
    if isinstance(expr, Apply):
        inner = expr.args[:1] if expr.op.name == "where" else expr.args
    elif not isinstance(expr, Access | Cast):
        inner = ()
    for child in inner:
        yield from _evaluated(child)


def _pace(expr: Expr, name: str) -> int | None:
    """By how much `expr` grows when the index `name` grows by one; None where that is not always the same."""
    if expr == Index(name):
        return 1
    if name not in free_names(expr):
        return 0
    if not isinstance(expr, Apply):
        return None
    paces = [_pace(arg, name) for arg in expr.args]
    if any(pace is None for pace in paces):
        return None
    steps = [pace for pace in paces if pace is not None]
    match expr.op.name:
        case "neg":
            return -steps[0]
        case "add":
            return steps[0] + steps[1]
        case "sub":
            return steps[0] - steps[1]
        case "mul":
            for factor, pace in ((expr.args[0], steps[1]), (expr.args[1], steps[0])):
                if isinstance(factor, Const):
                    return int(factor.value) * pace
    return None
