"""Loops of any shape as boxes: ranges 0 ... extent - 1 known before the program runs, and conditions on the points in them.

A loop that starts at others is counted from where it starts, so that a window of 3 points is 3 long; other bounds that depend on
loops are replaced by their hull. Where a bound depends on data, the extents of what is read at every point say how far it can run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensorexpr.autodiff.local.workspace import Place, Workspace, as_extent, shifted
from tensorexpr.ir import Access, Axis, Const, Expr, Index, apply, const
from tensorexpr.records import record
from tensorexpr.traversal import free_names, substitute, tensors_read, walk


@record
class Box:
    """The range of an axis as 0 ... extent - 1; `value` is its index over these, `conditions` (on the index) say where it is meant."""

    extent: Expr
    value: Expr
    conditions: tuple[Expr, ...]


def boxes_of(
    boxed: Sequence[str], known: set[str], axes: Sequence[Axis], evaluated: Sequence[Expr], workspace: Workspace
) -> dict[str, Box] | None:
    """A box for each of the axes `boxed`, in the order of `axes`; None where one has none.

    `known` are the axes that are known together with them, `evaluated` what is computed at every point.
    """
    found: dict[str, Box] = {}
    for axis in axes:
        if axis.index in boxed:
            box = _box(axis, boxed, known, axes, evaluated, workspace)
            if box is None:
                return None
            found[axis.index] = box
    return found


def unboxed(boxes: dict[str, Box]) -> dict[str, Expr]:
    """Each axis over the ranges of the boxes, which have the same names."""
    found: dict[str, Expr] = {}
    for name, box in boxes.items():  # a window starts at axes before it
        found[name] = substitute(box.value, {other: value for other, value in found.items() if other != name})
    return found


def reads(exprs: Iterable[Expr]) -> bool:
    """Whether any of the expressions reads an element."""
    return any(map(tensors_read, exprs))


def _box(
    axis: Axis, boxed: Sequence[str], known: set[str], axes: Sequence[Axis], evaluated: Sequence[Expr], workspace: Workspace
) -> Box | None:
    name = axis.index
    moving = {other.index for other in (*axes, *workspace.steps)}
    names = {n for bound in (axis.start, axis.stop) for n in free_names(bound)} & moving
    if not names and not reads((axis.start, axis.stop)) and isinstance(axis.start, Const):
        low = int(axis.start.value)
        return Box(as_extent(shifted(axis.stop, -low)), shifted(Index(name), low), ())
    before = free_names(axis.start)
    if before and set(before) <= known and not reads((axis.start,)):
        length = apply("sub", axis.stop, axis.start)
        outside = Place(tuple(axes[: [other.index for other in axes].index(name)]))
        hull = workspace.hull_of(Axis(name, const(0), length), outside)
        if hull is not None and hull[0] == 0:
            inside = apply("lt", apply("sub", Index(name), axis.start), length)
            return Box(as_extent(hull[1]), apply("add", axis.start, Index(name)), (inside,))
    ends = (apply("ge", Index(name), axis.start), apply("lt", Index(name), axis.stop))
    hull = workspace.hull_of(axis, Place(tuple(axes)))
    if hull is not None:
        low, stop = hull
        return Box(as_extent(shifted(stop, -low)), shifted(Index(name), low), ends)
    if not names <= known:
        return None  # which of the points outside it belongs to would have to be searched for
    needed = {name, *(names & set(boxed))}
    for access in (node for e in evaluated for node in walk(e) if isinstance(node, Access)):
        plain = {index.name: at for at, index in enumerate(access.indices) if isinstance(index, Index)}
        if needed <= plain.keys():  # no point lies beyond its extents, and it is as large as the box
            return Box(workspace.types[access.tensor].shape[plain[name]], Index(name), ends)
    return None
