"""Pieces of reads that are affine by cases: merged again where that is cheaper, exact in value and count, whatever the cases."""

import itertools
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.ir import Apply, Define, Reduce
from tensorexpr.language import program_of
from tensorexpr.regions import domain_of
from tensorexpr.traversal import children, walk
from tests.autodiff.laws import by_unit_vectors, gather_of, head_of, integers, scatters
from tests.autodiff.reads import random_read
from tests.autodiff.rounds import check_rounds
from tests.seeds import share_of

F64 = "float64"


def sums_of(gradient) -> list[Reduce]:
    """The sums of the one definition that the gradient is."""
    (definition,) = [d for d in program_of(list(gradient)).definitions if isinstance(d, Define) and d.name.endswith("_bar")]
    return [node for node in walk(definition.value) if isinstance(node, Reduce)]


def visited(gradient) -> int:
    """The points of all loops of the gradient under the guards around them."""

    def count(expr, axes, guards) -> int:
        if isinstance(expr, Reduce):
            return domain_of((*axes, *expr.axes), guards).domain.count()
        if isinstance(expr, Apply) and expr.op.name == "where" and expr.dtype.is_float:
            return count(expr.args[1], axes, (*guards, expr.args[0]))
        return sum(count(child, axes, guards) for child in children(expr))

    (definition,) = [d for d in program_of(list(gradient)).definitions if isinstance(d, Define) and d.name.endswith("_bar")]
    return count(definition.value, definition.axes, ())


def axis_of(i, size, length, scale, corners):
    """Two neighbors and the weight of the second, at point `i` of an axis of `length` resampled to `size`."""
    a, b = scale
    top, bottom = (i * (length - 1), size - 1) if corners else (te.maximum((2 * i + 1) * b - a, 0), 2 * a)
    return top // bottom, te.minimum(top // bottom + 1, length - 1), te.cast(top % bottom, F64) / float(bottom)


def bilinear(n, m, scale=(2, 1), corners=False):
    x = te.placeholder((n, m), F64, name="x")
    out = (n * scale[0] // scale[1], m * scale[0] // scale[1])

    def body(i, j):
        (a, b, u), (c, d, v) = (axis_of(at, size, length, scale, corners) for at, size, length in zip((i, j), out, (n, m), strict=True))
        return (1.0 - u) * ((1.0 - v) * x[a, c] + v * x[a, d]) + u * ((1.0 - v) * x[b, c] + v * x[b, d])

    return te.compute(out, body, name="y"), x


def bicubic(n, m):
    x = te.placeholder((n, m), F64, name="x")

    def near(d):
        return (1.25 * d - 2.25) * d * d + 1.0

    def far(d):
        return ((-0.75 * d + 3.75) * d - 6.0) * d + 3.0

    def axis(i):
        t = te.cast((2 * i - 1) % 4, F64) / 4.0
        return (2 * i - 1) // 4 - 1, (far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t))

    def body(i, j):
        (a, rows), (b, columns) = axis(i), axis(j)
        taps = itertools.product(range(4), repeat=2)
        return sum((rows[r] * columns[s] * x.read(a + r, b + s, outside="clamp") for r, s in taps), te.cast(0, F64))

    return te.compute((2 * n, 2 * m), body, name="y"), x


def check(output, x, sums):
    """Exact values up to rounding, exact counts, so many sums, and no loop over a point that no read meets."""
    head = head_of(output)
    gradient, forced = (te.gradient(output, [x], head=head, lowering=form) for form in (None, "segments"))
    rows = gradient.report().rows
    assert all(row.iterations == row.reads for row in rows)
    assert not scatters(program_of(list(gradient)))
    assert len(sums_of(gradient)) == sums
    assert visited(gradient) <= sum(row.reads for row in rows)
    data = np.random.default_rng(0).standard_normal(output.shape)
    inputs = {x: np.zeros(x.shape), head: data}
    np.testing.assert_allclose(te.evaluate(gradient[0], inputs), te.evaluate(forced[0], inputs), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("scale", [(2, 1), (3, 2), (3, 1)])
def test_the_four_reads_of_a_bilinear_interpolation_are_one_sum(scale):
    check(*bilinear(6, 4, scale, corners=True), sums=1)
    # With half-pixel centers the first row reads its second neighbor with weight 0: a border of its own in either direction.
    check(*bilinear(6, 4, scale), sums=3)


def test_the_sixteen_reads_of_a_bicubic_interpolation_are_one_sum():
    check(*bicubic(5, 4), sums=1)


def test_text_and_time_do_not_depend_on_extents():
    def shape_of(n):
        digits = str.maketrans("0123456789", "#" * 10)
        texts = []
        for make in (bilinear, bicubic):
            y, x = make(n, n)
            texts.append("".join(str(program_of(list(te.gradient(y, [x], head=head_of(y))))).translate(digits).split("#")))
        return texts

    assert shape_of(10) == shape_of(10_000)


def test_a_border_that_continues_the_interior_is_a_longer_range():
    x = te.placeholder((6,), F64, name="x")
    y = te.compute((13,), lambda i: x[te.where(i < 10, i // 2, te.maximum(te.minimum(i // 2, 5), 0))], name="y")
    gradient = gather_of(y, [x], head_of(y))
    assert len(sums_of(gradient)) == 1
    (row,) = gradient.report().rows
    assert (row.lowering, row.iterations, row.reads) == ("pieces", 13, 13)


def test_rows_and_columns_are_pieces_of_their_own():
    x = te.placeholder((40, 30), F64, name="x")
    w = te.placeholder((3, 3), F64, name="w")

    def body(i, j):
        return te.sum(lambda r, s: x.read(i + r - 1, j + s - 1, outside="clamp") * w[r, s], (3, 3))

    y = te.compute((40, 30), body, name="y")
    (row,) = [row for row in te.gradient(y, [x], head=head_of(y)).report().rows if row.tensor == "x"]
    assert (row.lowering, row.iterations, row.reads) == ("pieces", 40 * 30 * 9, 40 * 30 * 9)


def test_common_factors_of_different_reads_stay_apart():
    """Reads with loops of their own weights, overlapping: each keeps its points."""
    x = te.placeholder((7,), F64, name="x")
    a, b = te.placeholder((12,), F64, name="a"), te.placeholder((12,), F64, name="b")
    y = te.compute((12,), lambda i: x[i // 2] * a[i] + x[i // 2 + 1] * b[i] - x[te.minimum((i + 1) // 2, 5)] * a[i], name="y")
    gradient = gather_of(y, [x, a, b], head_of(y))
    assert all(row.iterations == row.reads for row in gradient.report().rows)


def test_merged_reads_whose_loops_are_called_as_an_axis_of_the_tensor():
    """The loop over i is another index than the axis i of x, also in the weights that two reads share."""
    x, a, b = (te.placeholder(shape, F64, name=name) for name, shape in (("x", (6, 4)), ("a", (6, 2)), ("b", (6, 2))))
    first = te.compute((2, 6), lambda j, i: x[2, (j + i) // 2] * a[i, j])
    second = te.compute((2, 6), lambda j, i: x[2, (j + i) // 2] * b[i, j])
    y = te.compute((6,), lambda i: te.sum(lambda j: first[j, i] + second[j, i], 2) + x[i, 3], name="y")
    gather_of(y, [x, a, b], head_of(y))


def test_half_precision_weights_are_added_in_single():
    x = te.placeholder((8,), "float16", name="x")
    half = te.cast(0.5, "float16")
    y = te.compute((16,), lambda i: half * x[i // 2] + half * x[te.minimum(i // 2 + 1, 7)], name="y")
    head = head_of(y)
    (gradient,) = te.gradient(y, [x], head=head)
    totals = [
        node for d in program_of([gradient]).definitions if isinstance(d, Define) for node in walk(d.value) if isinstance(node, Reduce)
    ]
    assert totals and all(total.dtype.name == "float32" for total in totals)
    data = np.full(16, 2049.0, "float16")
    np.testing.assert_array_equal(te.evaluate(gradient, {head: data}), np.array([2048] + [4096] * 6 + [6144], "float16"))


@pytest.mark.parametrize("seed", share_of(range(40)))
def test_random_reads_by_cases(seed):
    """Nested //, %, minimum, maximum, abs, where, mirrors at any distance, several reads and guards."""
    case = random_read(seed)
    gradient = gather_of(case.output, [case.x], head_of(case.output))
    for row in gradient.report().rows:
        assert row.lowering != "segments", row
    check_rounds(case.output, case.x, gradient)
    assert gradient.report().rows[0].tensor == "x"


@pytest.mark.parametrize("seed", share_of(range(30)))
def test_random_reads_in_loops_around_ends_that_no_system_holds(seed):
    """An end that is a case, or data, is tested at the points; what the read says of the other loops is, too, and not outside of them."""
    rng = random.Random(seed)
    n, m, a = rng.randint(2, 6), rng.randint(2, 5), rng.randint(3, 15)
    x = te.placeholder((n, m), F64, name="x")
    ends = te.placeholder((4,), "int64", name="ends")
    data = np.array([rng.randint(0, 3) for _ in range(4)], "int64")
    length, step, offset = rng.randint(0, 2), rng.randint(1, 3), rng.randint(-3, 3)
    border = rng.choice(("reflect", "wrap", "clamp", "symmetric"))
    divisor, last = rng.randint(1, 3), rng.choice(("maximum", "case", "data"))

    def body(i, j):
        stop = {"maximum": te.maximum(i - length, 0), "case": te.where(i % 2 == 0, i // 2 + 1, j % 3), "data": te.clip(ends[i], 0, 3)}[last]

        def read(k, l):
            return x.read((step * k + l) // divisor, l + j * (step - 1) + offset, outside=border) * te.cast(k + 2 * l + 1, F64)

        return te.where((i + j) % 4 != 1, te.sum(read, (a, stop)), 0)

    y = te.compute((4, 3), body, name="y")
    head = head_of(y)
    gradient, forced = (te.gradient(y, [x], head=head, lowering=lowering) for lowering in (None, "segments"))
    arrays = {x: integers(x), head: integers(head, 1), ends: data}
    (found,), (scattered,) = gradient, forced
    value = te.evaluate(found, arrays)
    np.testing.assert_array_equal(value, te.evaluate(scattered, arrays))
    np.testing.assert_array_equal(te.build(found, list(arrays))(*arrays.values()), value)
    np.testing.assert_array_equal(value, by_unit_vectors(y, x, arrays, arrays[head]))


def test_bounds_hold_where_loops_further_in_are_empty():
    """A bound was simplified by what holds at the points alone: elements without any read then read beyond the border."""
    x = te.placeholder((5,), F64, name="x")

    def body(i, s):
        inner = te.minimum(te.where(6 + 2 * s - i <= 3, -2 * i - 4, -i - 2), -3)
        return x[3 - abs(inner % 6 - 3)] * te.cast(3 * i + 2 * s + 3, F64)

    y = te.compute((6,), lambda i: te.sum(lambda s: body(i, s), 2), name="y")
    (row,) = gather_of(y, [x], head_of(y)).report().rows
    assert row.iterations == row.reads == 12


def test_a_constant_is_no_digit():
    """Under guards that leave one value of an index, what is divided into digits may be a number."""
    x = te.placeholder((23, 13), F64, name="x")

    def body(i, j):
        return te.where((-3 * j - 2 == -2) & ((-3 * j - 2) * 2 >= -3 * i - 3 * j - 2), x[12 - 6 * j, (i + 3) % 4], 0.0)

    y = te.compute((4, 3), body, name="y")
    (row,) = gather_of(y, [x], head_of(y)).report().rows
    assert row.iterations == row.reads == 3


def test_a_guard_on_a_quotient_is_kept_where_it_settles_the_quotient():
    """`e // 7 >= 0` with e < 7 says that the quotient is 0, which says nothing; that e >= 0 was lost."""
    x = te.placeholder((5,), F64, name="x")
    y = te.compute((3, 4), lambda i, r: te.where((3 * r - i - 6) // 7 >= 0, x[4 - 2 * ((3 * r - i - 6) // 7)], 0.0), name="y")
    (row,) = gather_of(y, [x], head_of(y)).report().rows
    assert row.iterations == row.reads == 4


def test_bounds_that_rely_on_the_element_being_read_come_with_that_condition():
    """The bound of i left out what follows where p > 0; that p > 0 was nowhere (found by chance: a wrong gradient)."""
    x = te.placeholder((8,), F64, name="x")

    def body(i, j, r):
        return x[te.maximum(1 - abs((i + j + 1) % 2 - 1), abs(3 * i + r - 1)) - 1] * te.cast(i - 3 * j + 2 * r + 4, F64)

    y = te.compute((2, 5), lambda i, j: te.sum(lambda r: body(i, j, r), 1), name="y")
    (row,) = gather_of(y, [x], head_of(y)).report().rows
    assert row.iterations == row.reads == 10


SPREAD = """
import random

import numpy as np
import tensorexpr as te
from tests.autodiff.reads import random_read
from tests.autodiff.test_pieces import bicubic, bilinear

cases = [bilinear(6, 5), bilinear(6, 4, (3, 2), True), bicubic(4, 4)]
cases += [(read.output, read.x) for read in map(random_read, range(40))]
x, t = te.placeholder((6, 7), "float64", name="x"), te.placeholder((6,), "int64", name="t")
top = te.compute((6,), lambda i: te.max(lambda k: x[i, k], 7), name="top")
soft = te.compute((6, 7), lambda i, k: te.exp(x[i, k] - top[i]) / te.sum(lambda l: te.exp(x[i, l] - top[i]), 7), name="soft")
cases += [(soft, x), (te.compute((6,), lambda i: te.log(soft[i, t[i]]), name="loss"), x)]
for mode in ("clamp", "reflect", "symmetric", "wrap"):
    cases.append((te.compute((6, 7), lambda i, j: te.sum(lambda r, s: x.read(i + r - 2, j - s, outside=mode), (5, 3)), name="y"), x))
for output, wrt in cases:
    gradient = te.gradient(output, wrt, head=te.placeholder(output.shape, "float64", name="H"))
    print(te.language.program_of(list(gradient)))
    print(gradient.report())
"""


def test_a_spread_of_gradients_is_the_same_text_under_any_hash_seed():
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([root, *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    started = [
        subprocess.Popen(
            [sys.executable, "-c", SPREAD], env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": path}, stdout=subprocess.PIPE, cwd=root
        )
        for seed in ("1", "77")
    ]
    first, second = (process.communicate()[0] for process in started)
    assert all(process.returncode == 0 for process in started)
    assert first == second and first.count(b"x_bar") >= 49
