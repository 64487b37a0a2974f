"""All rounds of all derived loops: what the report says, and as many as there are reads, whatever is read beyond a border."""

import random

import pytest

import tensorexpr as te
from tests.autodiff.reads import random_read
from tests.autodiff.rounds import rounds_of
from tests.seeds import share_of


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
