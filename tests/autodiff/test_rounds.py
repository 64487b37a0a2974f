"""All rounds of all derived loops: what the report says, and as many as there are reads, whatever is read beyond a border."""

import random

import pytest

import tensorexpr as te
from tensorexpr.autodiff.components import invert_read
from tensorexpr.autodiff.counts import count_of, rounds_in_vain
from tensorexpr.ir import Axis, const
from tensorexpr.text import print_expr
from tensorexpr.traversal import free_names, fresh_name, read_occurrences
from tests.autodiff.reads import random_read
from tests.seeds import share_of

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


@pytest.mark.parametrize("seed", share_of(range(40)))
def test_the_report_counts_all_rounds_of_random_reads(seed):
    case = random_read(seed)
    for visits, vain, counted in rounds_of(case.output, case.x):
        assert counted == visits + vain


BORDERS = ("wrap", "reflect", "symmetric", "clamp")


def bordered(seed):
    """A pool, a stencil or a correlation of one or two axes that reads beyond the border."""
    rng = random.Random(seed)
    n, k, stride, dilation = rng.randint(3, 24), rng.randint(1, 4), rng.randint(1, 3), rng.randint(1, 3)
    pad, axes, border = rng.randint(0, k * dilation), rng.choice((1, 1, 2)), BORDERS[seed % 4]
    outputs = -(-n // stride) + rng.randint(0, 3)
    x = te.placeholder((n,) * axes, "float64", name="x")
    if axes == 1:
        y = te.compute((outputs,), lambda i: te.sum(lambda a: x.read(i * stride + a * dilation - pad, outside=border), k))
    else:
        y = te.compute((outputs, 3), lambda i, j: te.sum(
            lambda a, b: x.read(i * stride + a * dilation - pad, j + b - 1, outside=border), (k, 2)))  # fmt: skip
    return y, x


@pytest.mark.parametrize("seed", share_of(range(48)))
def test_no_loop_goes_around_in_vain_beyond_a_border(seed):
    """The rounds of a gradient are those of its reads, and a few where a read may or may not wind around once more."""
    y, x = bordered(seed)
    for visits, vain, counted in rounds_of(y, x):
        assert counted == visits + vain
        assert vain <= 2 * visits + 8


@pytest.mark.parametrize("border", BORDERS)
def test_a_pool_over_a_large_image_costs_what_it_reads(border):
    x, head = te.placeholder((56, 56), name="x"), te.placeholder((28, 28), name="head")
    y = te.compute((28, 28), lambda i, j: te.max(lambda a, b: x.read(i * 2 + a - 1, j * 2 + b - 1, outside=border), (3, 3)))
    (row,) = te.gradient(y, [x], head).report().rows
    assert row.iterations == row.reads == 28 * 28 * 9
