"""The rounds of all loops of derived gathers, gone through one by one."""

from tensorexpr.autodiff.invert.components import invert_read
from tensorexpr.autodiff.invert.counts import count_of, rounds_in_vain
from tensorexpr.ir import Axis, const
from tensorexpr.text import print_expr
from tensorexpr.traversal import free_names, fresh_name, read_occurrences

SCOPE = {"maximum": max, "minimum": min, "abs": abs, "where": lambda c, a, b: a if c else b}


def evaluated(expr, values):
    return eval(print_expr(expr), SCOPE, values)


def gone_through(loops, guards, values):
    """Visits of the innermost loop and rounds of others in which a loop that they bound is empty, one by one."""
    if not all(evaluated(guard, values) for guard in guards):
        return 0, 0

    def inside(at, values):
        if at == len(loops):
            return 1, 0
        loop = loops[at]
        found = range(evaluated(loop.start, values), evaluated(loop.stop, values))
        own = {*free_names(loop.start), *free_names(loop.stop)}
        if not found:
            return 0, int(not own.isdisjoint(axis.index for axis in loops[:at]))
        visits, vain = zip(*(inside(at + 1, {**values, loop.index: value}) for value in found), strict=True)
        return sum(visits), sum(vain)

    return inside(0, values)


def elements(target, values=None):
    if not target:
        yield dict(values or {})
        return
    for value in range(int(target[0].stop.value)):
        yield from elements(target[1:], {**(values or {}), target[0].index: value})


def rounds_of(output, x):
    """For each read of x in a definition: visits, vain rounds, and what counting says."""
    found = []
    definition = output.definition
    for access, axes, guards in read_occurrences(definition.value, definition.axes):
        if access.tensor != x.key:
            continue
        taken = {axis.index for axis in axes}
        target = tuple(Axis(fresh_name("p", taken), const(0), extent) for extent in x.extents)
        inverse = invert_read(access.indices, tuple(axes), tuple(guards), target)
        if inverse is None:
            continue
        visits = vain = 0
        spaces = []
        for gather in inverse.gathers:
            spaces.append(((*target, *gather.axes), gather.outer))
            spaces += rounds_in_vain(target, gather.axes, gather.outer)
            for values in elements(target):
                more, nothing = gone_through(gather.axes, gather.outer, values)
                visits, vain = visits + more, vain + nothing
        found.append((visits, vain, count_of(spaces)))
    return found


def check_rounds(output, x, gradient):
    """Innermost points are the reads, one by one; loops around them go around in vain at most twice for each read.

    Some reads have no order without: how often they wind around has gaps at some elements.
    """
    rows = gradient.report().rows
    found = rounds_of(output, x)
    if not found:  # sorted: each read once
        assert all(row.lowering == "segments" and row.iterations == row.reads for row in rows)
        return
    visits, vain, counted = (sum(column) for column in zip(*found, strict=True))
    assert visits == sum(row.reads for row in rows) and counted == visits + vain == sum(row.iterations for row in rows)
    assert vain <= 2 * visits
