"""Lines asked for ahead by sums whose steps read far apart: where, and that values are what they are without it."""

import re

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.llvm import emit
from tensorexpr.codegen.llvm.emitter import ahead as emit_ahead
from tensorexpr.codegen.llvm.text.machine import Machine
from tensorexpr.codegen.nest import Alloc, LoopNest
from tensorexpr.ir import Const, Expr, Index, apply, const, integer
from tests.codegen.llvm.nests import buffer, loop, nest, read, run, write

MACHINE = Machine("x86_64-unknown-linux-gnu", "znver4", "+avx512f", 512)
ASKED = re.compile(r"@llvm.prefetch.p0\(ptr %\w+, i32 0, i32 3, i32 1\)")
F = dtypes.float32
k, i, j = Index("k"), Index("i"), Index("j")


def across(
    steps: int = 80,
    columns: int = 520,
    rows: int = 13,
    row: Expr = i,
    more: Expr | None = None,
    kind: str = "local",
    wide: int = 32,
    dtype: dtypes.DType = F,
) -> LoopNest:
    """C[i, j] = sum(A[k, row] * B[k, j] for k in range(steps))"""
    a, b, c = buffer("A", dtype, steps, columns), buffer("B", dtype, steps, wide), buffer("C", dtype, rows, 32)
    total = buffer("total", dtype, rows, 32, memory="local") if kind == "local" else c

    def tile(target, value):
        return loop("i", rows, loop("j", 32, write(target, [i, j], value), kind="vectorize"), kind="unroll")

    value = apply("mul", read(a, k, row), read(b, k, j))
    value = value if more is None else apply("mul", value, read(a, k, more))
    steps_ = loop("k", steps, tile(total, apply("add", read(total, i, j), value)))
    body = (tile(total, Const(0, dtype)), steps_)
    return nest([a, b, c], [c], (Alloc(total, (*body, tile(c, read(total, i, j)))),) if kind == "local" else body)


def test_steps_half_a_page_apart_are_asked_for_once_for_all_rows() -> None:
    found = emit(across(), MACHINE)
    assert len(ASKED.findall(found)) == 1
    assert re.search(rf"%t\d+ = add i64 %k\S*, {emit_ahead.STEPS}\b", found)


@pytest.mark.parametrize(
    "change",
    [
        {"columns": 500},
        {"row": apply("mul", i, const(40))},
        {"steps": 60},
        {"rows": 1},
        {"more": apply("add", i, const(20))},
        {"kind": "memory"},
    ],
    ids=str,
)
def test_steps_nearby_and_rows_apart_and_short_or_slight_sums_are_left_alone(change: dict) -> None:
    assert not ASKED.search(emit(across(**change), MACHINE))


@pytest.mark.parametrize(("wide", "lines"), [(520, 2), (768, 2), (512, 0), (1024, 0)])
def test_vectors_of_steps_are_asked_for_where_they_do_not_fall_on_one_place(wide: int, lines: int) -> None:
    """Lines half a page or a page apart fall on two places, or one; a place holds eight of them."""
    assert len(ASKED.findall(emit(across(columns=80, wide=wide), MACHINE))) == lines


def test_steps_that_differ_are_left_alone() -> None:
    assert not ASKED.search(emit(across(row=apply("add", apply("minimum", k, const(3)), i)), MACHINE))


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int16], ids=str)
def test_values_are_what_they_are_without_it(dtype: dtypes.DType) -> None:
    """Inputs end, or begin, where memory does: what is asked for lies beyond."""
    rng, columns = np.random.default_rng(0), 4160 // dtype.itemsize
    rows = (
        (i, 80, slice(0, 13)),
        (apply("sub", const(12), i), 67, slice(12, None, -1)),
        (apply("add", i, const(columns - 13)), 64, slice(-13, None)),
    )
    for row, steps, picked in rows:
        made = across(steps, columns, row=row, dtype=dtype)
        assert ASKED.search(emit(made, MACHINE)), row
        given = {b.name: rng.integers(-9, 9, [integer(e) for e in b.shape]).astype(dtype.numpy) for b in made.parameters[:2]}
        for before in (False, True):
            found = run(made, given, before=before)["C"]
            np.testing.assert_array_equal(found, given["A"].T[picked] @ given["B"])
