"""Lanes that read and write elements of less than 32 bits here and there, under a mask: right, and without a branch for each."""

import re
import warnings

import ml_dtypes
import numpy as np
import pytest

import tensorexpr as te
from tests.seeds import share_of

DTYPES = ("int8", "uint8", "bool", "int16", "uint16", "float16", "bfloat16")
FAR = 2**40
"""No index that a lane with a true condition has."""


def drawn(rng, shape, dtype):
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(0, 100, shape).astype(getattr(ml_dtypes, dtype, None) or dtype)


def kernel(s, inputs):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f = te.build(s, inputs)
    masked = re.findall(r"@llvm\.masked\.(?:gather|scatter)\.v\d+(?:i8|i16|f16)\.[^\n]*", f.source("llvm"))
    assert all("splat (i1 true)" in call for call in masked)
    return f, len(masked)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lanes", share_of((3, 8, 16, 33, 64)))
def test_lanes_that_are_off_read_nothing(dtype, lanes):
    rng, n = np.random.default_rng(lanes), 5 * lanes - 2
    x, p = te.placeholder((7,), dtype, name="x"), te.placeholder((n,), "int64", name="p")
    y = te.compute((n,), lambda i: te.where((p[i] >= 0) & (p[i] < 7), x[p[i]], te.cast(1, dtype)), name="y")
    s = te.schedule(y, inputs=[x, p])
    s["y"].split("i", lanes, "guard")
    s["y"].vectorize("i_i")
    f, count = kernel(s, [x, p])
    assert count
    given, at = drawn(rng, 7, dtype), rng.integers(-3, 10, n)
    at[at < 0] *= FAR
    at[at >= 7] *= FAR
    expected = np.where((at >= 0) & (at < 7), given[np.clip(at, 0, 6)], np.ones((), given.dtype))
    np.testing.assert_array_equal(f(given, at), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("rows", "columns", "lanes"), share_of(((3, 5, 4), (17, 3, 16), (61, 2, 64), (33, 70, 32), (1, 4, 8), (64, 3, 64)))
)
def test_lanes_that_are_off_write_nothing(dtype, rows, columns, lanes):
    """Columns in lanes: what lies behind the last row, and between two columns of a wider array, stays as it was."""
    rng = np.random.default_rng(rows)
    x = te.placeholder((columns, rows), dtype, name="x")
    y = te.compute((rows, columns), lambda i, j: x[j, i], name="y")
    s = te.schedule(y, inputs=[x])
    s["y"].split("i", lanes, "guard")
    s["y"].reorder("j", "i_o", "i_i")
    s["y"].vectorize("i_i")
    f, _ = kernel(s, [x])
    given = drawn(rng, (columns, rows), dtype)
    around = drawn(rng, (rows + 2, columns), dtype)
    before = around.copy()
    f(given, out=around[1:-1])
    np.testing.assert_array_equal(around[1:-1], given.T)
    np.testing.assert_array_equal(around[[0, -1]], before[[0, -1]])
