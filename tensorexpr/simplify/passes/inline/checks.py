"""What inlining must not lose: the check of a place that depends on data.

In `t[i] = X[i + 1] * 2 for i < 5` read as `t[K[j]]`, the index `K[j]` is checked against 5. Written where it is read, `X[K[j] + 1]` is
checked against the extent of X, which is another question, and `t[i] = 1.0` leaves nothing to check. So a definition is inlined into such
reads only where the index is proved to be inside, or where every evaluation of its value reads a tensor at that very index, along an
axis of the same extent: then the same check is made there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorexpr.bounds import PROVED, check_access
from tensorexpr.ir import Access, Apply, Axis, Define, Definition, Expr, Index, Reduce, TensorType
from tensorexpr.records import record
from tensorexpr.simplify.facts.sort_ranges import Ranges, known_of
from tensorexpr.traversal import children, has_points, tensors_read


@record
class Place:
    """A read of a definition: where it stands, the axes and the conditions around it."""

    reader: Definition
    access: Access
    axes: tuple[Axis, ...]
    guards: tuple[Expr, ...]


Checked = dict[str, frozenset[int]]
"""Of definitions that are inlined: their axes whose index is checked wherever their value is written."""


def checked_axes(definition: Define, types: Mapping[str, TensorType], inlined: Checked) -> frozenset[int]:
    """The axes of a definition at whose very index every evaluation of its value reads along an axis of the same extent."""
    extents = {axis.index: (at, axis.stop) for at, axis in enumerate(definition.axes)}
    found: set[int] = set()
    stack = [definition.value]
    while stack:
        node = stack.pop()
        if isinstance(node, Reduce):
            if node.where is None and all(map(has_points, node.axes)):
                stack.extend(node.values)
            continue  # perhaps over nothing
        if isinstance(node, Apply) and node.op.name == "where":
            stack.append(node.args[0])
            continue
        stack.extend(children(node))
        if not isinstance(node, Access) or node.tensor not in types:
            continue
        for at, (index, extent) in enumerate(zip(node.indices, types[node.tensor].shape, strict=True)):
            if isinstance(index, Index) and index.name in extents and extents[index.name][1] == extent:
                if node.tensor not in inlined or at in inlined[node.tensor]:
                    found.add(extents[index.name][0])
    return frozenset(found)


def unchecked(definition: Define, places: Sequence[Place], checked: frozenset[int], ranges: Ranges) -> Place | None:
    """A place at which inlining would lose a check, None where there is none; `ranges` is known of what is read."""
    shape = tuple(axis.stop for axis in definition.axes)
    for place in places:
        indices = place.access.indices
        left = [at for at, e in enumerate(indices) if at not in checked and tensors_read(e)]
        if left:
            left_over, extents = (tuple(each[at] for at in left) for each in (indices, shape))
            bounds = [bound for axis in place.axes for bound in (axis.start, axis.stop)]
            verdicts = check_access(left_over, extents, place.axes, (*place.guards, *known_of((*bounds, *indices), ranges)))
            if any(verdict is not PROVED for verdict in verdicts):
                return place
    return None
