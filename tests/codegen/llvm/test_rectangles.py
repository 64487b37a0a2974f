"""Small matrices copied to their transpose: every number of rows and columns, and what is left alone."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.llvm import emit, host
from tensorexpr.codegen.nest import If, Stmt
from tensorexpr.ir import Const, Expr, Index, apply, const
from tests.codegen.llvm.below import Case, assert_agree, machines
from tests.codegen.llvm.nests import buffer, loop, nest, read, run, write
from tests.seeds import share_of

i, j = Index("i"), Index("j")
SHAPES = [(rows, columns) for rows in (1, 3, 5, 8, 11, 16) for columns in (2, 3, 7, 9, 16)]


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.int32], ids=str)
def test_rows_become_columns_filled_up_with_zeros(dtype: dtypes.DType) -> None:
    """i is unrolled, j in lanes of which some have no row; the pages around are protected."""
    for rows, columns in SHAPES:
        lanes = 1 << (rows - 1).bit_length()
        x, y = buffer("X", dtype, 3, rows, columns), buffer("Y", dtype, 3, columns, lanes)
        inside: Expr = read(x, Index("b"), j, i)
        value = apply("where", apply("lt", j, const(rows)), inside, Const(0, dtype)) if rows < lanes else inside
        copy = loop("i", columns, loop("j", lanes, write(y, [Index("b"), i, j], value), kind="vectorize"), kind="unroll")
        made = nest([x, y], [y], (loop("b", 3, copy),))
        if lanes > 1:
            assert "gather" not in emit(made, host()), (rows, columns)
        data = np.arange(1, 1 + 3 * rows * columns).reshape(3, rows, columns).astype(dtype.numpy)
        for before in (False, True):
            got = run(made, {"X": data}, before=before)["Y"]
            assert np.array_equal(got[:, :, :rows], data.transpose(0, 2, 1)) and not got[:, :, rows:].any(), (rows, columns)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.int32], ids=str)
def test_rows_become_columns_and_what_is_behind_stays(dtype: dtypes.DType) -> None:
    """As above, but lanes that have no row are not stored to."""
    for rows, columns in SHAPES:
        lanes = 1 << (rows - 1).bit_length()
        if rows == lanes:
            continue
        x, y = buffer("X", dtype, 3, rows, columns), buffer("Y", dtype, 3, columns, lanes)
        store = If(apply("lt", j, const(rows)), (write(y, [Index("b"), i, j], read(x, Index("b"), j, i)),))
        copy = loop("i", columns, loop("j", lanes, store, kind="vectorize"), kind="unroll")
        clear = loop("c", 3, loop("p", columns, loop("q", lanes, write(y, [Index("c"), Index("p"), Index("q")], Const(7, dtype)))))
        made = nest([x, y], [y], (clear, loop("b", 3, copy)))
        assert "gather" not in emit(made, host()), (rows, columns)
        data = np.arange(1, 1 + 3 * rows * columns).reshape(3, rows, columns).astype(dtype.numpy)
        got = run(made, {"X": data})["Y"]
        assert np.array_equal(got[:, :, :rows], data.transpose(0, 2, 1)) and (got[:, :, rows:] == 7).all(), (rows, columns)


@pytest.mark.parametrize("word, other", [("le", 0.0), ("lt", 1.0), ("lt", -0.0)])
def test_what_is_filled_up_otherwise_is_computed_as_it_stands(word: str, other: float) -> None:
    x, y = buffer("X", dtypes.float32, 8, 3), buffer("Y", dtypes.float32, 3, 8)
    value = apply("where", apply(word, j, const(4)), read(x, j, i), Const(other, dtypes.float32))
    made = nest([x, y], [y], (loop("i", 3, loop("j", 8, write(y, [i, j], value), kind="vectorize"), kind="unroll"),))
    data = np.arange(24, dtype=np.float32).reshape(8, 3)
    rows = np.arange(8)[:, None] <= 4 if word == "le" else np.arange(8)[:, None] < 4
    want = np.where(rows, data, np.float32(other)).T
    assert run(made, {"X": data})["Y"].tobytes() == np.ascontiguousarray(want).tobytes()


def rectangles(dtype: dtypes.DType, name: str, draw: random.Random) -> Iterator[Case]:
    """Copies of pieces of a source to pieces of a target, rows filled up or not, behind offsets, some under conditions, some twice."""
    for at, (lanes, back) in enumerate(itertools.product((2, 4, 8, 16), (0, 0.0, -0.0, 1))):
        columns, rows, before, room = draw.randint(2, 16), draw.randint(1, lanes), draw.randint(0, 2), draw.randint(0, 2)
        o = Index("o")
        x = buffer(f"X_{name}{at}", dtype, 2, rows, before + columns + room)
        y = buffer(f"Y_{name}{at}", dtype, 2, draw.choice((columns, columns // 2 + 1)), lanes + room)
        inside: Expr = read(x, o, j, apply("add", i, const(before)))
        value = apply("where", apply("lt", j, const(rows)), inside, Const(back if dtype.is_float else int(back), dtype))
        row = i if int(y.shape[1].value) == columns else apply("floordiv", i, const(2))  # type: ignore[attr-defined]
        store: Stmt = write(y, [o, row, apply("add", j, const(draw.randint(0, room)))], inside if rows == lanes else value)
        if rows < lanes and draw.random() < 0.3:
            store = If(apply("lt", j, const(rows)), (write(y, [o, row, j], inside),))
        elif draw.random() < 0.3:
            store = If(apply("ne", apply("add", o, i), const(1)), (store,))
        yield Case([x], y, (loop("o", 2, loop("i", columns, loop("j", lanes, store, kind="vectorize"), kind="unroll")),))


@pytest.mark.parametrize("number", share_of(range(24)))
def test_rectangles_write_what_the_nest_writes(number: int) -> None:
    dtype = (dtypes.float32, dtypes.int64, dtypes.float64, dtypes.int32)[number % 4]
    draw = random.Random(number)
    cases = list(rectangles(dtype, f"{number}_", draw))
    assert_agree(cases, machines()[number // 4 % len(machines())], streams=number % 5 == 0, ahead=number % 2)
