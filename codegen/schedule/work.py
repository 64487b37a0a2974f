"""Rough amounts of work: scalar operations of a definition, for what is worth running in parallel or computing again."""

from __future__ import annotations

import math

from tensorexpr.codegen.schedule.reductions import Group, Parts
from tensorexpr.codegen.schedule.windows import alternatives
from tensorexpr.ir import Apply, Axis, Const, Expr, Reduce
from tensorexpr.regions import affine_of
from tensorexpr.traversal import walk

UNKNOWN_EXTENT = 256
"""What an extent counts that is known only at run time."""


def operations(expr: Expr) -> int:
    """The cost of evaluating an expression once, its reductions left out; index arithmetic counts little."""
    return sum(n.op.cost for n in walk(expr) if isinstance(n, Apply)) + 1


def has_reduction(expr: Expr) -> bool:
    return any(isinstance(n, Reduce) for n in walk(expr))


def length(axis: Axis) -> int:
    """About how many iterations an axis has: the least of its constant widths, if there is one."""
    best = None
    for start in alternatives(axis.start, "maximum"):
        for stop in alternatives(axis.stop, "minimum"):
            low, high = affine_of(start), affine_of(stop)
            if low is not None and high is not None and (high - low).is_constant:
                width = max(0, (high - low).constant)
                best = width if best is None else min(best, width)
    return UNKNOWN_EXTENT if best is None else best


def is_long(axis: Axis) -> bool:
    """Whether the number of iterations is known only at run time."""
    return not (isinstance(axis.start, Const) and isinstance(axis.stop, Const))


def points(axes: tuple[Axis, ...]) -> int:
    return math.prod(length(a) for a in axes)


def group_work(parts: Parts, group: Group) -> int:
    """Operations of a group for one evaluation of it, without groups inside."""
    return points(group.axes) * sum(operations(v) for m in group.members for v in m.values)


def total_work(parts: Parts) -> int:
    """Operations of a definition over all of its points."""
    outer = {a.index: length(a) for a in parts.axes}
    lengths = {a.index: length(a) for g in parts.groups for a in g.axes} | outer
    total = points(parts.axes) * sum(operations(v) for v in parts.values)
    for group in parts.groups:
        total += math.prod(lengths[n] for n in group.depends if n in lengths) * group_work(parts, group)
    return total
