"""Reports with symbolic sizes: formulas, against brute force at many sizes; counts where bounds depend on data."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import sympy

import tensorexpr as te
from tensorexpr.autodiff.api.report import Report, Row
from tensorexpr.autodiff.invert.counts import Count, count_of
from tensorexpr.errors import ArgumentError
from tensorexpr.ir import Axis, Index, apply, const
from tensorexpr.ir import Size as IrSize
from tests.autodiff.laws import count_reads, gather_of, head_of

F64 = "float64"
N, M, H, W = (te.dim(name) for name in ("n", "m", "h", "w"))


def rows_of(output, wrt):
    return {row.tensor: row for row in te.gradient(output, wrt, te.placeholder(output.shape, F64, name="head")).report().rows}


def check(row, formula, brute, sizes):
    """The row's counts are `formula`, and the numbers that going through the loops gives, at all these sizes."""
    assert str(row.reads) == str(row.iterations) == formula
    for values in itertools.product(*sizes.values()):
        at = dict(zip(sizes, values, strict=True))
        expected = brute(**at)
        assert row.reads(**at) == row.iterations(**at) == expected
        assert row.reads.formula.subs({sympy.Symbol(n, integer=True, nonnegative=True): v for n, v in at.items()}) == expected


def test_a_triangle():
    a = te.placeholder((N, N), F64, name="A")
    row = rows_of(te.compute((N,), lambda i: te.sum(lambda k: a[i, k], i + 1), name="y"), [a])["A"]
    check(row, "n*(n + 1)/2", lambda n: count_reads((n, n), lambda i, k: k <= i), {"n": range(7)})


def test_a_batched_product():
    a, b = te.placeholder((N, 3, M), F64, name="A"), te.placeholder((M, 4), F64, name="B")
    rows = rows_of(te.compute((N, 3, 4), lambda t, i, j: te.sum(lambda k: a[t, i, k] * b[k, j], M), name="y"), [a, b])
    for row in rows.values():
        check(row, "12*m*n", lambda n, m: 12 * n * m, {"n": range(4), "m": range(4)})


def test_a_strided_convolution():
    x, k = te.placeholder((2, H, W), F64, name="x"), te.placeholder((3, 3), F64, name="k")
    y = te.compute(
        (2, (H - 3) // 2 + 1, (W - 3) // 2 + 1),
        lambda c, i, j: te.sum(lambda r, s: x[c, 2 * i + r, 2 * j + s] * k[r, s], (3, 3)),
        name="y",
    )
    for row in rows_of(y, [x, k]).values():
        formula = "18*(((h + 1)//2) - 1)*(((w + 1)//2) - 1)"
        check(row, formula, lambda h, w: 18 * ((h - 3) // 2 + 1) * ((w - 3) // 2 + 1), {"h": range(3, 9), "w": range(3, 8)})


def test_a_padded_convolution():
    x, k = te.placeholder((H,), F64, name="x"), te.placeholder((3,), F64, name="k")
    y = te.compute(((H - 1) // 2 + 1,), lambda i: te.sum(lambda r: x.read(2 * i + r - 1, outside=0.0) * k[r], 3), name="y")
    check(
        rows_of(y, [x, k])["x"],
        "((h + 1)//2) + (h//2) + max((h + 1)//2 - 1, 0)",
        lambda h: count_reads(((h - 1) // 2 + 1, 3), lambda i, r: 0 <= 2 * i + r - 1 < h),
        {"h": range(12)},
    )


@pytest.mark.parametrize("step", [1, 2, 3])
def test_strided_ranges_and_flattened_indices(step):
    x = te.placeholder((step * N,), F64, name="x")
    check(rows_of(te.compute((N,), lambda i: x[step * i], name="y"), [x])["x"], "n", lambda n: n, {"n": range(6)})
    b = te.placeholder((N, M), F64, name="B")
    row = rows_of(te.compute((N * M,), lambda p: b[p // M, p % M], name="y"), [b])["B"]
    check(row, "m*n", lambda n, m: n * m, {"n": range(4), "m": range(1, 4)})


def test_clamped_reads_are_as_many_as_results():
    v = te.placeholder((N,), F64, name="v")
    row = rows_of(te.compute((N,), lambda i: v.read(i - 2, outside="clamp"), name="y"), [v])["v"]
    check(row, "n", lambda n: n, {"n": range(1, 8)})


def test_reads_by_data_count_the_points_at_which_they_stand():
    table, ids = te.placeholder((N, 4), F64, name="table"), te.placeholder((M,), "int64", name="ids")
    (row,) = rows_of(te.compute((M, 4), lambda t, d: table[ids[t], d], name="y"), [table]).values()
    assert row.lowering == "segments"
    check(row, "4*m", lambda m: 4 * m, {"m": range(5)})


def test_bounds_that_depend_on_data_are_counted_with_the_data():
    offsets, v = te.placeholder((M + 1,), "int64", name="offsets"), te.placeholder((N,), F64, name="v")
    y = te.compute((M,), lambda s: te.sum(lambda k: v.read(offsets[s] + k, outside=0.0), offsets[s + 1] - offsets[s]), name="y")
    report = te.gradient(y, v, te.placeholder((M,), F64, name="head")).report()
    (row,) = report.rows
    assert str(row.reads) == "by data" and repr(row.reads) == "<count by data: call it with offsets>"
    assert row.reads(offsets=np.array([0, 2, 2, 7])) == 7
    with pytest.raises(ArgumentError, match="expected an array for every tensor that bounds read, got none for offsets"):
        row.reads(n=3)


def test_the_table_prints_formulas_and_says_where_there_is_none():
    count = Count((((Axis("i", const(0), IrSize("n")),), ()),))
    free = Count((((Axis("i", const(0), IrSize("n")),), (apply("lt", apply("mul", Index("i"), IrSize("m")), const(9)),)),))
    assert free.formula is None and free(n=10, m=3) == 3
    table = str(Report((Row("x", "y", "x[i]", "substitute", count, count), Row("x", "y", "x[i * m]", "pieces", free, free))))
    assert table.splitlines() == [
        "tensor  consumer  access    lowering    iterations    reads  ratio",
        "x       y         x[i]      substitute           n        n   1.00",
        "x       y         x[i * m]  pieces         f(n, m)  f(n, m)   1.00",
        "f(...): no closed form was found; the count is exact when called with the sizes",
    ]
    assert repr(count) == "<count n: call it with n>"
    with pytest.raises(ArgumentError, match="expected a value for every size, got none for n"):
        count()


def test_formulas_that_look_different_are_compared_by_value():
    two = count_of([((Axis("i", const(0), IrSize("n")),), (apply("lt", Index("i"), const(4)),)), ((Axis("i", const(4), IrSize("n")),), ())])
    one = count_of([((Axis("i", const(0), IrSize("n")),), ())])
    less = count_of([((Axis("i", const(1), IrSize("n")),), ())])
    assert two.is_always(one) and not less.is_always(one)


def test_a_reduction_that_is_shared_counts_as_often_as_it_is_written():
    a = te.placeholder((6, 4), F64, name="A")
    y = te.compute((6, 4), lambda i, j: te.exp(a[i, j]) / te.sum(lambda k: te.exp(a[i, k]), 4), name="y")
    found = te.gradient(y, a, te.placeholder((6, 4), F64, name="head")).report().rows
    assert [(row.access, row.iterations, row.reads) for row in found] == [("A[i, j]", 24, 24), ("A[i, k]", 96, 96)]


def test_shared_reductions_within_each_other_under_a_condition():
    a, c = te.placeholder((6, 4), F64, name="A"), te.placeholder((9,), F64, name="C")

    def total():
        return te.sum(lambda l, q: a[l, q] ** 2.0, (6, 4))

    y = te.compute((6, 4), lambda i, j: te.where(i > j, a[i, j] * te.sum(lambda k: te.exp(a[i, k] / total()), 4), 1.0), name="y")
    rows = te.gradient(y, a, te.placeholder((6, 4), F64, name="head")).report().rows
    points = count_reads((6, 4), lambda i, j: i > j)
    assert [(row.access, row.iterations, row.reads) for row in rows] == [
        ("A[i, j]", points, points),
        ("A[i, k]", 4 * points, 4 * points),
        ("A[l, q]", 96 * points, 96 * points),
    ]
    # Where the reduction is shared by some points only, at places that are shifted.
    z = te.compute((5,), lambda i: te.sum(lambda j: c[j] * te.tanh(te.sum(lambda k: c[j + 1 + k] ** 2.0, 3)), i + 1), name="z")
    rows = te.gradient(z, c, te.placeholder((5,), F64, name="head")).report().rows
    assert [(row.access, row.iterations, row.reads) for row in rows] == [("C[j]", 15, 15), ("C[j + 1 + k]", 45, 45)]


def test_shared_reductions_with_sizes():
    b = te.placeholder((N, M), F64, name="B")
    y = te.compute((N, M), lambda i, j: b[i, j] / te.sum(lambda k: te.exp(b[i, k]), M), name="y")
    rows = te.gradient(y, b, te.placeholder((N, M), F64, name="head")).report().rows
    check(rows[1], "m**2*n", lambda n, m: n * m * m, {"n": range(4), "m": range(4)})


def test_bounds_that_are_affine_by_cases():
    x, w = te.placeholder((5,), F64, name="x"), te.placeholder((3,), F64, name="w")

    def ends(o):
        return te.maximum(0, o // 2), te.minimum(5, (o + 1) // 2 + 1)

    def term(o, t):
        return w[o + 1 - (ends(o)[0] + t) * 2] * x[ends(o)[0] + t]

    y = te.compute((10,), lambda o: te.sum(lambda t: term(o, t), te.maximum(ends(o)[1] - ends(o)[0], 0)), name="y")
    expected = sum(max(0, min(5, (o + 1) // 2 + 1) - max(0, o // 2)) for o in range(10))
    assert all(row.reads == expected <= row.iterations for row in rows_of(y, [x, w]).values())
    gather_of(y, [x, w], head_of(y))  # no bound of a loop names the loop itself
    start, stop = apply("minimum", IrSize("n"), const(3)), apply("maximum", apply("sub", IrSize("n"), const(2)), const(0))
    length = Axis("i", const(0), apply("sub", apply("maximum", start, stop), const(1)))
    for n in range(7):
        assert Count((((length,), ()),))(n=n) == max(0, max(min(n, 3), max(n - 2, 0)) - 1)


def test_a_ratio_of_formulas_that_differ():
    whole, half = (Count((((Axis("i", const(0), stop),), ()),)) for stop in (IrSize("n"), apply("floordiv", IrSize("n"), const(2))))
    table = str(Report((Row("x", "y", "x[i]", "pieces", whole, half),)))
    assert table.splitlines()[1].split() == ["x", "y", "x[i]", "pieces", "n", "n//2", "not", "1"]
