"""Reads that sizes wind around or stretch: gathers with the exact number of iterations at every size, the smallest included."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.ir import Scatter, Segments
from tensorexpr.language import program_of

F64 = "float64"
Shape = Callable[..., tuple]


def check(
    sizes: dict[str, tuple[int, ...]], x_shape: Shape, y_shape: Shape, body: Callable[..., Any], lowering: str = "pieces"
) -> te.Gradient:
    """The gradient is a gather without sorting. At all sizes it is that of the scatter form, interpreted and compiled, and its
    loops visit each read once.

    `body(x, *sizes)` gives the function of `te.compute`, shapes are functions of the sizes; those at which x has no elements are
    left out.
    """
    dims = [te.dim(name) for name in sizes]
    x = te.placeholder(x_shape(*dims), F64, name="x")
    told = [te.placeholder((dim,), F64, name=f"like_{dim}") for dim in dims]  # so that arrays tell the sizes
    y = te.compute(y_shape(*dims), body(x, *dims), name="y")
    head = te.placeholder(y.shape, F64, name="H")
    gradient = te.gradient(y, [x], head)
    report = gradient.report()
    (row,) = report.rows
    assert row.lowering == lowering and str(report).splitlines()[1].endswith("1.00")
    assert not any(isinstance(d, Scatter | Segments) for d in program_of(list(gradient)).definitions)
    scattered = te.gradient(y, [x], head, lowering="atomics")
    compiled = te.build(list(gradient), [head, x, *told])
    tested = 0
    for values in itertools.product(*sizes.values()):
        if min(x_shape(*values)) < 1:
            continue
        at, like = dict(zip(sizes, values, strict=True)), [np.zeros(value) for value in values]
        data = np.random.default_rng(3).integers(-4, 5, y_shape(*values)).astype(F64)
        arrays = {head: data, x: np.zeros(x_shape(*values))}
        (expected,) = te.evaluate(list(scattered), arrays, at)
        np.testing.assert_array_equal(te.evaluate(list(gradient), arrays, at)[0], expected)
        np.testing.assert_array_equal(compiled(*arrays.values(), *like)[0], expected)
        iterations, reads = (count if isinstance(count, int) else count(**at) for count in (row.iterations, row.reads))
        assert iterations == reads
        tested += 1
    assert tested >= 6
    return gradient


SMALL = (1, 2, 3, 4, 5, 8)


@pytest.mark.parametrize("distance", [1, 3])
@pytest.mark.parametrize("outside", ["clamp", "reflect", "symmetric", "wrap"])
def test_padding_by_more_than_the_tensor_may_have(outside, distance):
    check(
        {"n": SMALL},
        lambda n: (n,),
        lambda n: (n + 2 * distance,),
        lambda x, n: lambda i: x.read(i - distance, outside=outside) * te.cast(i + 1, F64),
    )


@pytest.mark.parametrize("outside", ["reflect", "symmetric", "wrap"])
def test_a_window_over_a_border_in_two_axes(outside):
    check(
        {"h": (1, 2, 5), "w": (1, 3, 4)},
        lambda h, w: (h, w + 1),
        lambda h, w: (h, w),
        lambda x, h, w: (
            lambda i, j: te.sum(lambda a, b: x.read(i + a - 1, 2 * j + b - 1, outside=outside) * te.cast(a + 3 * b + i, F64), (3, 2))
        ),
    )


def test_a_quotient_by_a_size_that_takes_few_values():
    check(
        {"n": SMALL},
        lambda n: (3, n),
        lambda n: (2 * n + 1,),
        lambda x, n: lambda i: x[(i + 1) // (n + 1), (i * 3) % n] * te.cast(i + 1, F64),
    )


def test_a_distance_that_no_size_bounds_is_sorted():
    n, m = te.dim("n"), te.dim("m")
    x = te.placeholder((n,), F64, name="x")
    y = te.compute((m,), lambda i: x.read(i * 2 - m, outside="wrap"), name="y")
    assert {row.lowering for row in te.gradient(y, [x], te.placeholder(y.shape, F64)).report().rows} == {"segments"}


STRIDES = {"n": (0, 1, 2, 4), "s": (0, 1, 2, 3)}


def test_a_stride_that_is_a_size():
    gradient = check(STRIDES, lambda n, s: (n * s + 1,), lambda n, s: (n,), lambda x, n, s: lambda i: x[i * s] * te.cast(i + 1, F64))
    assert "p % s == 0" in str(gradient)


def test_a_stride_of_which_the_extent_says_that_it_is_none():
    check(STRIDES, lambda n, s: (n * s,), lambda n, s: (n,), lambda x, n, s: lambda i: x[i * s] * te.cast(i + 1, F64), "reshape")


def test_windows_at_a_stride_that_is_a_size():
    check(
        STRIDES | {"k": (0, 1, 2, 5)},
        lambda n, s, k: (n * s + k,),
        lambda n, s, k: (n,),
        lambda x, n, s, k: lambda i: te.sum(lambda r: x[i * s + r] * te.cast(3 * i + r + 1, F64), k),
    )
