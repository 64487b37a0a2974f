"""Square tiles that are turned around in registers: every side, type and direction, and what is left alone."""

from __future__ import annotations

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.llvm import emit, host
from tensorexpr.codegen.llvm.emit_squares import turned
from tensorexpr.codegen.nest import Alloc, If
from tensorexpr.ir import Const, Expr, Index, apply, const
from tests.codegen.llvm.nests import buffer, loop, nest, read, run, write

i, j = Index("i"), Index("j")


@pytest.mark.parametrize("side", [4, 8, 16])
@pytest.mark.parametrize("block", [1, 2, 4])
def test_shuffles_turn_a_square(side: int, block: int) -> None:
    shuffles, columns = turned(side, block)
    registers = [[(row, column) for column in range(side)] for row in range(side)]
    for a, b, order in shuffles:
        both = registers[a] + registers[b]
        registers.append([both[k] for k in order])
    assert [registers[c] for c in columns] == [[(row, column) for row in range(side)] for column in range(side)]
    assert len(shuffles) == side * (side.bit_length() - 1)


def reversed_or_not(index: Expr, side: int, back: bool) -> Expr:
    return apply("sub", const(side), index) if back else apply("add", index, const(1))


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.int64, dtypes.int32], ids=str)
@pytest.mark.parametrize("side", [4, 8, 16])
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("writes", [False, True])
def test_a_copy_of_rows_to_columns(dtype: dtypes.DType, side: int, back: bool, writes: bool) -> None:
    """i is unrolled, j in lanes; one side has i last, forwards or backwards, behind a border."""
    wide = buffer("W", dtype, side, side + 2)
    square = buffer("S", dtype, side, side)
    across = [j, reversed_or_not(i, side, back)]
    source, target = (square, wide) if writes else (wide, square)
    store = write(target, across if writes else [i, j], read(source, *([i, j] if writes else across)))
    made = nest([source, target], [target], (loop("i", side, loop("j", side, store, kind="vectorize"), kind="unroll"),))
    text = emit(made, host())
    assert "gather" not in text and "scatter" not in text
    shape = (side, side) if writes else (side, side + 2)
    data = np.arange(np.prod(shape)).reshape(shape).astype(dtype.numpy)
    got = run(made, {source.name: data})[target.name]
    if writes:
        rows = data[::-1] if back else data
        assert np.array_equal(got[:, 1:-1], rows.T)
    else:
        columns = data[:, 1:-1][:, ::-1] if back else data[:, 1:-1]
        assert np.array_equal(got, columns.T)


@pytest.mark.parametrize("back", [False, True])
def test_rows_that_leave_the_buffer_are_read_under_a_mask(back: bool) -> None:
    """The pages around are protected."""
    x, y = buffer("X", dtypes.float32, 8, 5), buffer("Y", dtypes.float32, 8, 8)
    place = apply("sub", const(4), i) if back else i
    inside = apply("ge", place, const(0)) if back else apply("lt", place, const(5))
    store = write(y, [i, j], read(x, j, place))
    made = nest([x, y], [y], (loop("i", 8, loop("j", 8, If(inside, (store,)), kind="vectorize"), kind="unroll"),))
    assert "gather" not in emit(made, host())
    data = np.arange(40, dtype=np.float32).reshape(8, 5)
    for before in (False, True):
        got = run(made, {"X": data}, before=before)["Y"]
        assert np.array_equal(got[:5], (data[:, ::-1] if back else data).T)


def test_what_is_no_square_copy_stays_as_it_is() -> None:
    x, y = buffer("X", dtypes.float32, 8, 8), buffer("Y", dtypes.float32, 8, 8)
    data = np.arange(64, dtype=np.float32).reshape(8, 8)
    for value, want in ((read(x, i, j), data), (apply("add", read(x, j, i), read(x, i, j)), data + data.T)):
        made = nest([x, y], [y], (loop("i", 8, loop("j", 8, write(y, [i, j], value), kind="vectorize"), kind="unroll"),))
        assert np.array_equal(run(made, {"X": data})["Y"], want)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
@pytest.mark.parametrize("rows", [4, 14, 16, 21])
@pytest.mark.parametrize("ends", ["", "lanes", "rows", "both"])
def test_results_across_the_lanes_are_stored_as_squares(dtype: dtypes.DType, rows: int, ends: str) -> None:
    """Rows i of a tile lie side by side, lanes j far apart; conditions leave out some of either. The pages around are protected."""
    wide, high = (27 if ends in ("lanes", "both") else 32), (rows - 1 if ends in ("rows", "both") else rows)
    x, bias = buffer("X", dtype, rows, 32), buffer("B", dtype, wide)
    y = buffer("Y", dtype, wide, 3 + high)
    conditions = [*([apply("lt", j, const(wide))] if wide < 32 else []), *([apply("lt", i, const(high))] if high < rows else [])]
    body = write(y, [j, apply("add", i, const(3))], apply("add", read(x, i, j), read(bias, j)))
    for condition in conditions:
        body = If(condition, (body,))
    fill = loop("a", wide, loop("b", 3 + high, write(y, [Index("a"), Index("b")], Const(0.0, dtype))))
    made = nest([x, bias, y], [y], (fill, loop("i", rows, loop("j", 32, body, kind="vectorize"), kind="unroll")))
    text = emit(made, host())
    assert "scatter" not in text or host().vector_bits // dtype.bits < 4
    data, extra = np.arange(rows * 32).reshape(rows, 32).astype(dtype.numpy), np.arange(wide).astype(dtype.numpy)
    for before in (False, True):
        got = run(made, {"X": data, "B": extra}, before=before)["Y"]
        assert np.array_equal(got[:, 3:], (data[:high, :wide] + extra).T) and not got[:, :3].any()


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("ends", [False, True])
def test_results_of_residue_classes_are_rows_together(classes: int, ends: bool) -> None:
    """A store for each class, side by side: 3 * i, 3 * i + 1, 3 * i + 2."""
    rows, wide = 7, 30 if ends else 32
    made = [buffer(f"X{k}", dtypes.float32, rows, 32) for k in range(classes)]
    y = buffer("Y", dtypes.float32, wide, rows * classes)
    place = apply("mul", i, const(classes))
    stores = tuple(write(y, [j, apply("add", place, const(k))], read(x, i, j)) for k, x in enumerate(made))
    body = (If(apply("lt", j, const(wide)), stores),) if ends else stores
    text = nest([*made, y], [y], (loop("i", rows, loop("j", 32, *body, kind="vectorize"), kind="unroll"),))
    assert "scatter" not in emit(text, host()) or host().vector_bits < 128
    data = np.arange(classes * rows * 32, dtype=np.float32).reshape(classes, rows, 32)
    for before in (False, True):
        got = run(text, {f"X{k}": data[k] for k in range(classes)}, before=before)["Y"]
        assert np.array_equal(got, data.transpose(2, 1, 0).reshape(32, rows * classes)[:wide])


@pytest.mark.parametrize(("length", "asked"), [(1 << 15, 32), (1 << 10, 0)])
def test_lines_of_a_large_buffer_are_asked_for_before_a_tile_is_computed(length: int, asked: int) -> None:
    """The last element of each row of a tile: what lies before it was asked for with the tile before."""
    if host().vector_bits < 128:
        pytest.skip("squares need vectors")
    a, y, x = buffer("A", dtypes.float32, 7, 32, memory="local"), buffer("Y", dtypes.float32, 32, length), Index("x")
    total = loop(
        "t",
        9,
        loop(
            "i",
            7,
            loop("j", 32, write(a, [i, j], apply("add", read(a, i, j), Const(4.0, dtypes.float32))), kind="vectorize"),
            kind="unroll",
        ),
    )
    zero = loop("i", 7, loop("j", 32, write(a, [i, j], Const(0.0, dtypes.float32)), kind="vectorize"), kind="unroll")
    results = loop("i", 7, loop("j", 32, write(y, [j, apply("add", i, x)], read(a, i, j)), kind="vectorize"), kind="unroll")
    made = nest([y], [y], (loop("x", length - 6, Alloc(a, (zero, total, results))),))
    assert emit(made, host()).count("call void @llvm.prefetch") == asked
    assert (run(made, {})["Y"] == 36.0).all()
