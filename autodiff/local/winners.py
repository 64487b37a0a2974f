"""Which point of a maximum or minimum receives its gradient: the first winner in row-major order, saved as a position.

The position of the winner is a tensor over the indices around the reduction (`argmax` over the same points), and the
gradient is a read at that position only: `winner[o] == position` guards the point. No point is decoded, nothing is
scattered, and each element receives from the winners of the windows that hold it, in a fixed order.
"""

from __future__ import annotations

from tensorexpr.autodiff.local.workspace import Place, Workspace
from tensorexpr.ir import Axis, Combiner, Expr, Index, Reduce, apply, conjunction, conjuncts, const
from tensorexpr.records import replace
from tensorexpr.regions import affine_of, alternatives
from tensorexpr.traversal import free_names


def winner_guards(node: Reduce, place: Place, workspace: Workspace, owner: str) -> tuple[Expr, ...]:
    """The conditions under which a point of `node` (a maximum or minimum that stands at `place`) is its winner."""
    kind = "argmax" if node.combiner.name == "max" else "argmin"
    node = _over_whole_windows(node)
    first, rest = node.axes[0], node.axes[1:]
    if any(first.index in free_names(bound) for axis in rest for bound in (axis.start, axis.stop)) or _dependent(rest):
        # The winner of the first axis by the best of each of its points, then the winner among the rest at that point.
        best = Reduce(node.combiner, node.values, rest, node.where)
        outer = Reduce(Combiner(kind), (best,), (first,))
        inner = Reduce(node.combiner, node.values, rest, node.where)
        return (
            apply("eq", workspace.save(outer, place, owner, f"_{kind}"), _position((first,))),
            *winner_guards(inner, place.under((first,)), workspace, owner),
        )
    winner = Reduce(Combiner(kind), node.values, node.axes, node.where)
    return (apply("eq", workspace.save(winner, place, owner, f"_{kind}"), _position(node.axes)),)


def _over_whole_windows(node: Reduce) -> Reduce:
    """The same points, under conditions where that makes an axis equally long at all places: windows at a border keep their numbers."""
    axes, conditions = [], []
    for axis in node.axes:
        low, high = alternatives(axis.start, "maximum"), alternatives(axis.stop, "minimum")
        lengths = {_length(start, stop): (start, stop) for start in low for stop in high}
        known = [length for length in lengths if length is not None]
        if len(lengths) > 1 and known:
            start, stop = lengths[min(known)]
            conditions += [apply("ge", Index(axis.index), bound) for bound in low if bound != start]
            conditions += [apply("lt", Index(axis.index), bound) for bound in high if bound != stop]
            axis = replace(axis, start=start, stop=stop)
        axes.append(axis)
    if not conditions:
        return node
    return replace(node, axes=tuple(axes), where=conjunction([*conditions, *conjuncts(node.where)]))


def _length(start: Expr, stop: Expr) -> int | None:
    """The points from `start` to `stop`, where that is a number."""
    first, last = affine_of(start), affine_of(stop)
    length = None if first is None or last is None else last - first
    return length.constant if length is not None and not length.terms else None


def _dependent(axes: tuple[Axis, ...]) -> bool:
    names = {axis.index for axis in axes}
    return any(name in names for axis in axes for bound in (axis.start, axis.stop) for name in free_names(bound))


def _position(axes: tuple[Axis, ...]) -> Expr:
    """The flat row-major position of a point, counted from 0."""
    position: Expr | None = None
    for axis in axes:
        plain = axis.start == const(0)
        own = Index(axis.index) if plain else apply("sub", Index(axis.index), axis.start)
        if position is None:
            position = own
        else:
            extent = axis.stop if plain else apply("sub", axis.stop, axis.start)
            position = apply("add", apply("mul", position, extent), own)
    assert position is not None
    return position
