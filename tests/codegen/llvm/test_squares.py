"""Square tiles that are turned around in registers: every side, type and direction, and what is left alone."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.llvm import emit, host
from tensorexpr.codegen.llvm.emitter.squares import turned
from tensorexpr.codegen.llvm.process import native
from tensorexpr.codegen.nest import Alloc, Buffer, If
from tensorexpr.ir import Const, Expr, Index, apply, const
from tests.codegen.llvm.below import Case, assert_agree, machines
from tests.codegen.llvm.nests import buffer, loop, nest, read, run, write
from tests.seeds import share_of

i, j, o = Index("i"), Index("j"), Index("o")
MOVED = tuple(getattr(dtypes, name) for name in ("float32", "float64", "int32", "int64", "int8", "uint16", "float16", "bfloat16"))


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


@pytest.mark.parametrize("dtype", MOVED, ids=str)
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


@pytest.mark.parametrize("step", [15, 16, 24])
def test_rows_along_one_axis_are_turned_where_they_do_not_overlap(step: int) -> None:
    """Both indices are in the one index of the target: i next to each other, j so far apart; rows that overlap keep their order."""
    x, y = buffer("X", dtypes.float32, 16, 16), buffer("Y", dtypes.float32, 15 * step + 16)
    store = write(y, [apply("add", i, apply("mul", j, const(step)))], read(x, i, j))
    made = nest([x, y], [y], (loop("i", 16, loop("j", 16, store, kind="vectorize"), kind="unroll"),))
    assert ("scatter" in emit(made, host())) == (step < 16)
    data, want = np.arange(256, dtype=np.float32).reshape(16, 16), np.zeros(15 * step + 16, np.float32)
    for a, b in itertools.product(range(16), range(16)):
        want[a + b * step] = data[a, b]
    np.testing.assert_array_equal(run(made, {"X": data})["Y"], want)


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_quotients_and_remainders_of_loops_around_move_a_square_as_a_whole(writes: bool, own: bool) -> None:
    """Loops around are fused, as where operands are staged in panels of 32; where the `own` loops are, each row lies for itself."""
    part = apply("mul", apply("mod", o, const(2)), const(16))
    place = [apply("add", j, const(2)), apply("add", i, part)]
    if own:
        place[0] = apply("mul", apply("floordiv", apply("add", j, apply("mod", o, const(2))), const(2)), const(2))
    panels = buffer("P", dtypes.float32, 3, 20, 32)
    rows = buffer("X", dtypes.float32, 96, 16)
    in_panels = [apply("floordiv", o, const(2)), *place]
    in_rows = [apply("add", i, apply("mul", o, const(16))), j]
    source, target = (rows, panels) if writes else (panels, rows)
    store = write(target, in_panels if writes else in_rows, read(source, *(in_rows if writes else in_panels)))
    square = loop("i", 16, loop("j", 16, store, kind="vectorize"), kind="unroll")
    fill = loop("a", 3, loop("b", 20, loop("c", 32, write(panels, [Index("a"), Index("b"), Index("c")], const(0.0, dtypes.float32)))))
    made = nest([source, target], [target], (*((fill,) if writes else ()), loop("o", 6, square)))
    assert own or ("gather" not in (text := emit(made, host())) and "scatter" not in text)
    data = np.arange(96 * 16 if writes else 3 * 20 * 32, dtype=np.float32).reshape((96, 16) if writes else (3, 20, 32))
    got = run(made, {source.name: data})[target.name]
    want = np.zeros((3, 20, 32) if writes else (96, 16), np.float32)
    for n, a, b in itertools.product(range(6), range(16), range(16)):
        at = (n // 2, (b + n % 2) // 2 * 2 if own else b + 2, a + n % 2 * 16)
        if writes:
            want[at] = data[a + 16 * n, b]
        else:
            want[a + 16 * n, b] = data[at]
    np.testing.assert_array_equal(got, want)


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


@pytest.mark.parametrize("rows", [4, 14, 16])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("apart", [False, True])
def test_what_a_tile_is_added_to_comes_by_rows(rows: int, own: bool, apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lies across the lanes as the results do; they may take its place. Squares may be turned around by functions beside the module."""
    monkeypatch.setattr(native, "MOST_TOGETHER", 0 if apart else 8)
    x, y, r = buffer("X", dtypes.float32, rows, 32), buffer("Y", dtypes.float32, 32, rows), buffer("R", dtypes.float32, 32, rows)
    store = write(y, [j, i], apply("add", read(y if own else r, j, i), read(x, i, j)))
    sources = [x] if own else [x, r]
    case = Case(sources, y, (loop("i", rows, loop("j", 32, store, kind="vectorize"), kind="unroll"),))
    for machine in machines():
        assert_agree([case], machine)
    text = emit(nest([*sources, y], [y], case.body), host())
    assert ("scatter" not in text and "gather" not in text) or host().vector_bits < 128


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


CONDITIONS = ("none", "first", "last", "some", "outer")


def squares(dtype: dtypes.DType, side: int) -> list[Case]:
    """Copies of rows to columns: either side lies along the unrolled loop, forwards or backwards, under conditions on its rows."""
    found = []
    for lies, back, kind in itertools.product(("source", "target"), (False, True), CONDITIONS):
        for limit in range(0, side + 1, 1 if side < 16 else 3) if kind in ("first", "last") else (0,):
            name = f"{lies}_{back}_{kind}_{limit}"
            square = buffer(f"S_{name}", dtype, 2, side, side)
            wide = buffer(f"W_{name}", dtype, 2, side, side + 2)
            across = [o, j, apply("sub", const(side), i) if back else apply("add", i, o)]
            plain = [o, i, j]
            source, target = (wide, square) if lies == "source" else (square, wide)
            store = write(target, plain if lies == "source" else across, read(source, *(across if lies == "source" else plain)))
            # Rows of the source lie along this one; only it may be in the condition.
            row = i if lies == "source" else j
            tests = {
                "first": apply("lt", row, const(limit)),
                "last": apply("ge", row, const(limit)),
                "some": apply("eq", apply("mod", row, const(2)), o),
                "outer": apply("lt", apply("add", row, o), const(side - 1)),
            }
            body = store if kind == "none" else If(tests[kind], (store,))
            copy = loop("o", 2, loop("i", side, loop("j", side, body, kind="vectorize"), kind="unroll"))
            found.append(Case([source], target, (copy,)))
    return found


@pytest.mark.parametrize("number", share_of(range(24)))
@pytest.mark.parametrize("side", [4, 8, 16])
def test_squares_under_every_condition_write_what_the_nest_writes(side: int, number: int) -> None:
    dtype = MOVED[number % len(MOVED)]
    machine = machines()[number // len(MOVED) % len(machines())]
    cases = squares(dtype, side)
    for first in range(0, len(cases), 24):
        assert_agree(cases[first : first + 24], machine)


def tiles(dtype: dtypes.DType, lanes: int, name: str, draw: random.Random) -> list[Case]:
    """Results of tiles whose lanes go across rows: every number of rows and classes, lanes over one axis or two, some together. They
    are added to what is there, to what lies as they do in another buffer, or to the part of it that there is."""
    found = []
    for at, (classes, across, kind) in enumerate(
        itertools.product((1, 2, 3), ("rows", "blocks", "pairs"), ("none", "lanes", "rows", "both", "odd"))
    ):
        added = draw.choice(("nothing", "own", "beside", "part"))
        rows, shift, wide = draw.randint(4, 13) // classes + 1, draw.randint(0, 3), lanes * draw.randint(1, 2)
        first = draw.randint(0, 2)
        x = [buffer(f"X{k}_{name}{at}", dtype, 2, rows + first, wide) for k in range(classes)]
        bias = buffer(f"B_{name}{at}", dtype, wide)
        limit, high = draw.randint(1, wide), draw.randint(1, rows) + first
        shape = {"rows": (wide,), "blocks": (wide // 2, 2), "pairs": (wide // 2,)}[across]
        place = {
            "rows": [j],
            "blocks": [apply("floordiv", j, const(2)), apply("mod", j, const(2))],
            "pairs": [apply("floordiv", j, const(2))],
        }[across]
        y = buffer(f"Y_{name}{at}", dtype, 2, *shape, (rows + first) * classes + shift)
        starts = apply("add", apply("mul", i, const(classes)), const(shift)) if classes > 1 else apply("add", i, const(shift))
        beside = buffer(f"R_{name}{at}", dtype, 2, *shape, (rows + first) * classes + shift - (1 if added == "part" else 0))

        def value(each: Buffer, indices: list[Expr], added: str = added, bias: Buffer = bias, beside: Buffer = beside) -> Expr:
            last = apply("lt", indices[-1], beside.shape[-1])
            total = apply("add", read(each, o, i, j), read(bias, j))
            more = {
                "own": lambda: read(y, *indices),  # noqa: B023
                "beside": lambda: read(beside, *indices),
                "part": lambda: apply("where", last, read(beside, *indices), Const(0, dtype)),
            }
            return total if added == "nothing" else apply("maximum", apply("add", more[added](), total), more[added]())

        places = [[o, *place, apply("add", starts, const(k)) if k else starts] for k in range(classes)]
        stores = tuple(write(y, indices, value(each, indices)) for each, indices in zip(x, places, strict=True))
        tests = {
            "none": [],
            "lanes": [apply("lt", j, const(limit))],
            "rows": [apply("lt", i, const(high))],
            "both": [apply("lt", j, const(limit)), apply("ge", i, const(high - 1))],
            "odd": [apply("eq", apply("mod", apply("add", apply("add", i, j), o), const(2)), const(0))],
        }[kind]
        body: tuple = stores
        for test in tests:
            body = (If(test, body),)
        found.append(
            Case(
                [*x, bias, *([beside] if added in ("beside", "part") else [])],
                y,
                (loop("o", 2, loop("i", rows + first, loop("j", wide, *body, kind="vectorize"), start=first, kind="unroll")),),
            )
        )
    return found


@pytest.mark.parametrize("number", share_of(range(18)))
def test_tiles_across_the_lanes_write_what_the_nest_writes(number: int) -> None:
    dtype = (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64)[number % 4]
    machine = machines()[number // 4 % len(machines())]
    draw = random.Random(number)
    cases = tiles(dtype, max(4, machine.vector_bits // dtype.bits), f"{number}_", draw)
    assert_agree(draw.sample(cases, 15), machine)


@pytest.mark.parametrize("lies", ["source", "target"])
@pytest.mark.parametrize("back", [False, True])
def test_rows_that_fall_together_keep_the_last(lies: str, back: bool) -> None:
    """Two rows of a target are one: the later iteration is the one that stays."""
    x, y = buffer("X", dtypes.float32, 8, 8), buffer("Y", dtypes.float32, 8, 8)
    place = apply("sub", const(7), i) if back else i
    half = apply("floordiv", i if lies == "source" else j, const(2))
    if lies == "source":
        store = write(y, [half, j], read(x, j, place))
    else:
        store = write(y, [half, place], read(x, i, j))
    assert_agree([Case([x], y, (loop("i", 8, loop("j", 8, store, kind="vectorize"), kind="unroll"),))], host())


def test_conditions_that_are_data_are_read_where_they_stand() -> None:
    """A row of results that is filled up has no element to be asked about: the page behind the last one is protected."""
    x, mark, y = buffer("X", dtypes.float32, 5, 16), buffer("M", dtypes.float32, 5), buffer("Y", dtypes.float32, 16, 5)
    store = If(apply("gt", read(mark, i), Const(50.0, dtypes.float32)), (write(y, [j, i], read(x, i, j)),))
    for machine in machines():
        assert_agree([Case([x, mark], y, (loop("i", 5, loop("j", 16, store, kind="vectorize"), kind="unroll"),))], machine)


def test_hints_read_no_index_that_a_condition_leaves_out() -> None:
    """A sum over steps read far apart, through an index array that has one element: the page behind it is protected."""
    x, ids, y = buffer("X", dtypes.float32, 128, 1, 1024), buffer("K", dtypes.int64, 1), buffer("Y", dtypes.float32, 2, 8, 16)
    acc, k, row = buffer("a", dtypes.float32, 8, 16, memory="local"), Index("k"), Index("b")
    there = apply(
        "where", apply("lt", o, const(1)), read(x, k, apply("floordiv", read(ids, o), const(1000)), row), Const(0.0, dtypes.float32)
    )
    clear, total, last = (
        loop("b", 8, loop("j", 16, s, kind="vectorize"), kind="unroll")
        for s in (
            write(acc, [row, j], Const(0.0, dtypes.float32)),
            write(acc, [row, j], apply("add", read(acc, row, j), there)),
            write(y, [o, row, j], read(acc, row, j)),
        )
    )
    body = loop("o", 2, Alloc(acc, (clear, loop("k", 128, total), last)))
    assert_agree([Case([x, ids], y, (body,))], host())
