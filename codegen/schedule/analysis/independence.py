"""Which loops of a definition that writes where its data say never make two of their iterations touch the same element."""

from __future__ import annotations

from functools import lru_cache

from tensorexpr.codegen.target import Target
from tensorexpr.ir import Definition, Scatter, Segments
from tensorexpr.regions import affine_of
from tensorexpr.traversal import size_names


def may_collide(definition: Definition, axes: tuple[str, ...], target: Target, owners: tuple[str, ...] = ()) -> bool:
    """Whether iterations of a loop over these axes may touch one element in a way that matters; those of `owners` are known not to."""
    match definition:
        case Scatter():
            return not set(axes) <= free_axes(definition, target) | set(owners)
        case Segments():
            return not set(axes) <= {axis.index for axis in definition.batch}
    return False


def free_axes(scatter: Scatter, target: Target) -> frozenset[str]:
    """Axes whose iterations may run side by side and in any order: the disjoint ones, and all of a scatter in any order where a GPU
    adds to elements in one piece."""
    if is_atomic(scatter, target):
        return frozenset(axis.index for axis in scatter.axes)
    return disjoint_axes(scatter)


def is_atomic(scatter: Scatter, target: Target) -> bool:
    """Whether what a scatter adds is added in one piece each, as seen by all threads."""
    return scatter.lowering == "atomics" and target.is_gpu


@lru_cache(maxsize=1024)
def disjoint_axes(scatter: Scatter) -> frozenset[str]:
    """Axes of which different values certainly lead to different elements, whatever the other axes are.

    An axis is one where some index of the target is affine in it alone: it then differs wherever the axis does. The bounds
    of the other axes do not matter.
    """
    names = {a.index for a in scatter.axes}
    found = set()
    for index in scatter.indices:
        form = affine_of(index)
        if form is None or form.has_division():
            continue
        mentioned = [n for n in form.names() if n not in size_names(index)]
        if len(mentioned) == 1 and mentioned[0] in names and form.coefficient(mentioned[0]):
            found.add(mentioned[0])
    return frozenset(found)
