"""Other sizes of a sample, by rule: which axes change together, which make it larger, and by how much.

Nothing is known of an operation but what it refuses. An axis that can be made larger alone is free; others are tried together with axes
of the same extent (the columns of one factor and the rows of the other), and the first set that the operation takes changes as one.
What no set is found for keeps its extent (channels that an option counts, pairs of coordinates).

An axis makes a sample *larger* where the bytes that it moves grow with it, at least a third as fast as its operations (in logarithms):
rows, channels, pixels do, the window of a convolution does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

from tensorexpr.benchmarks.samples.sample import Sample, Shape, Traced
from tensorexpr.codegen.cost import cost_of
from tensorexpr.errors import TensorExprError
from tensorexpr.ir import Apply
from tensorexpr.language import program_of
from tensorexpr.traversal import expressions, walk

Joint = tuple[tuple[int, int], ...]
"""Axes that have to change together, each a tensor's position and the axis."""
FACTORS = (2, 3)
"""By what axes are made larger to see whether an operation takes it; an axis of one element that is repeated takes any one alone."""
SHARE = 1 / 3
"""How fast bytes have to grow with an axis, as a share of how fast operations do."""
ROUND = 8
"""What extents are made multiples of, from twice that on."""


def joints(sample: Sample) -> list[Joint]:
    """Sets of axes that can change, in the order of the tensors; each axis is in one of them at most."""
    axes = [(tensor, axis) for tensor, shape in enumerate(sample.shapes) for axis in range(len(shape))]
    extents = {(tensor, axis): sample.shapes[tensor][axis] for tensor, axis in axes}
    conditions = _conditions(sample.traced())
    found: list[Joint] = [(axis,) for axis in axes if _moves(sample, (axis,), conditions)]
    for first in axes:
        if any(first in joint for joint in found):
            continue
        # An axis that is free may be larger than what is read of it: it goes along with one that is not.
        taken = {axis for joint in found if len(joint) > 1 for axis in joint}
        alike = [axis for axis in axes if axis != first and extents[axis] == extents[first] and axis not in taken]
        sets = (tuple(sorted((first, *some))) for count in range(1, len(alike) + 1) for some in combinations(alike, count))
        joint = next((joint for joint in sets if _moves(sample, joint, conditions)), None)
        if joint is not None:
            found = [other for other in found if other[0] not in joint] + [joint]
    return sorted(_alike(sample, found))


def _alike(sample: Sample, found: Sequence[Joint]) -> list[Joint]:
    """Free axes of tensors of one shape, as pictures that are compared, change together, where all other axes of these tensors do."""
    of = {axis: joint for joint in found for axis in joint}
    groups: dict[Shape, list[int]] = {}
    for tensor, shape in enumerate(sample.shapes):
        groups.setdefault(shape, []).append(tensor)
    merged: list[Joint] = []
    for shape, group in groups.items():
        sets = [tuple((tensor, axis) for tensor in group) for axis in range(len(shape))]
        if all(of.get(own[0]) == own or all(of.get(axis) == (axis,) for axis in own) for own in sets):
            merged += sets
    covered = {axis for joint in merged for axis in joint}
    return [*merged, *(joint for joint in found if joint[0] not in covered)]


def _moves(sample: Sample, joint: Joint, conditions: int) -> bool:
    """Whether the operation takes other extents there, without tests for what it then reads beyond another tensor."""
    extent = sample.shapes[joint[0][0]][joint[0][1]]
    for factor in FACTORS:
        try:
            traced = sample.traced(changed(sample.shapes, joint, max(1, extent) * factor))
        except (TensorExprError, ValueError):
            return False
        if _conditions(traced) > conditions:
            return False
    return True


def _conditions(traced: Traced) -> int:
    """How many comparisons a program makes."""
    values = [value for definition in program_of(traced.outputs, traced.inputs).definitions for value in expressions(definition)]
    return sum(isinstance(node, Apply) and node.op.name in ("lt", "le", "gt", "ge") for value in values for node in walk(value))


def changed(shapes: Sequence[Shape], joint: Joint, extent: int) -> list[Shape]:
    """The shapes with another extent on a set of axes."""
    return [tuple(extent if (tensor, axis) in joint else kept for axis, kept in enumerate(shape)) for tensor, shape in enumerate(shapes)]


def work(traced: Traced) -> tuple[int, int]:
    """Operations and bytes, counted from the program as it is written; loops that depend on data count as one iteration."""
    cost = cost_of(program_of(traced.outputs, traced.inputs))
    assert isinstance(cost.operations, int) and isinstance(cost.bytes, int)
    return cost.operations, cost.bytes


def larger(sample: Sample, found: Sequence[Joint]) -> list[Joint]:
    """The sets among `found` that make the sample larger."""
    operations, moved = work(sample.traced())

    def grows(joint: Joint) -> bool:
        extent = sample.shapes[joint[0][0]][joint[0][1]]
        more, more_moved = work(sample.at(changed(sample.shapes, joint, 2 * extent)).traced())
        faster = math.log(max(more, 1) / max(operations, 1))
        return more_moved > moved and math.log(more_moved / moved) >= SHARE * faster

    return [joint for joint in found if grows(joint)]


def grown(sample: Sample, moved: int, operations: int, odd: bool = False) -> Sample | None:
    """The sample with all axes that make it larger in proportion, so that it moves `moved` bytes, or does `operations`, whichever is
    reached first; `odd`: at prime extents. None where it cannot be made so large."""
    free = larger(sample, joints(sample))
    if not free:
        return None

    def at(factor: float) -> Sample:
        shapes = sample.shapes
        for joint in free:
            extent = sample.shapes[joint[0][0]][joint[0][1]]
            for wanted in _extents(extent, factor, odd):
                tried = changed(shapes, joint, wanted)
                if sample.takes(tried):
                    shapes = tried
                    break
        return sample.at(shapes)

    def reached(candidate: Sample) -> bool:
        done, read = work(candidate.traced())
        held = sum(4 * math.prod(shape) for shape in candidate.shapes)  # of what is read by data little may count as moved
        return max(read, held) >= moved or done >= operations

    low, high = 1.0, 2.0
    while not reached(at(high)):
        low, high = high, 4 * high
        if high > moved:
            return None
    while high / low > 1.1:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if reached(at(middle)) else (middle, high)
    return at(high)


def _extents(extent: int, factor: float, odd: bool) -> Iterator[int]:
    """Extents to try for one that is to be so much larger: a prime or a round one, else a multiple of what it is."""
    wanted = max(extent, round(extent * factor))
    if odd and wanted > ROUND:
        yield prime_up_to(wanted)
    if wanted >= 2 * ROUND:
        yield ROUND * round(wanted / ROUND)
    yield wanted
    yield extent * max(1, round(factor))


def prime_up_to(number: int) -> int:
    """The largest prime up to a number, which is 2 at least."""
    return next(n for n in range(number, 1, -1) if all(n % d for d in range(2, math.isqrt(n) + 1)))
