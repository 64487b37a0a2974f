"""Scatters whose sends are sorted by blocks of elements first (`partition`): the same sums in the same order, whatever collides."""

from dataclasses import replace

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.llvm import set_threads
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest import For
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.errors import OutOfBoundsError, ScheduleError
from tensorexpr.parse import parse_program
from tests.codegen.programs import WIDE, outputs
from tests.codegen.schedule.test_own import GUARDED, POINTERS, ROWS, TABLE, check, numbers, scattered

PLANE = """
ids: i64[50] = input()
w: f32[50, 3] = input()
S: f32[4, 5] = scatter({(ids[t] // 7, (ids[t] + d) % 5): w[t, d] for t in range(50) for d in range(3) if ids[t] % 4 != 1})
return S
"""
SUMMED = """
ids: i64[50] = input()
w: f32[50, 3] = input()
S: f32[28] = scatter({ids[t]: sum(w[t, d] for d in range(3)) for t in range(50)})
return S
"""
NUMBERS = "expected a width of blocks, room for sends and a share of them of at least 1, got "
PLACES = {"random": np.random.default_rng(3).integers(0, 28, 50), "equal": np.full(50, 16), "sorted": np.sort(np.arange(50) % 28)}


@pytest.mark.parametrize("pointers", POINTERS)
@pytest.mark.parametrize(("block", "width", "room"), [(None, 7, 100), (2, 1, 30), (3, 16, 12), (50, 64, 1)])
def test_rows_of_data_have_the_bits_of_plain_loops(pointers, block, width, room):
    """Also where more is sent than there is room for: then plain loops run."""
    for text in (ROWS, GUARDED):
        s = scattered(text)
        loop = "i" if block is None else s["S"].split("i", block)[0]
        s["S"].partition(loop, width, room)
        s["S"].parallel(loop)
        check(s, {"p": np.minimum(np.array(POINTERS[pointers]), 30 if text is ROWS else 14), "v": numbers(30)})


@pytest.mark.parametrize("combine", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize(("dtype", "block", "width"), [("f64", None, 1), ("f16", 7, 4), ("i32", 64, 6)])
def test_every_combination_in_every_kind_of_number(combine, dtype, block, width):
    s = scattered(TABLE.format(dtype, combine))
    s["S"].partition("t" if block is None else s["S"].split("t", block)[0], width)
    values = np.random.default_rng(1).integers(1, 3, 40).astype({"f64": "f8", "f16": "f2", "i32": "i4"}[dtype])
    check(s, {"ids": np.arange(40) ** 3, "w": values})


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("width", [1, 6, 100])
def test_indices_of_several_axes_under_a_condition(places, width):
    s = scattered(PLANE)
    s["S"].partition(s["S"].split("t", 8)[0], width)
    check(s, {"ids": PLACES[places], "w": numbers(50, 3).astype(np.float32)})
    again = scattered(PLANE)
    exec(s.as_python(), {"s": again})
    assert again == s and str(again) == str(s)


@pytest.mark.parametrize("share", [1, 2, 5, 39, 100])
@pytest.mark.parametrize("combine", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize(("dtype", "width"), [("f64", 1), ("f16", 4), ("i32", 6)])
def test_a_block_that_receives_more_than_a_share_has_several_owners(combine, dtype, width, share):
    """The sums are the same, exactly so where no order of them makes a difference; nothing is left out of a share or counted twice."""
    s = scattered(TABLE.format(dtype, combine))
    s["S"].partition(s["S"].split("t", 7)[0], width, share=share)
    s["S"].parallel("t_o")
    for places in (np.arange(40) ** 3, np.full(40, 3), np.minimum(np.arange(40), 5)):
        values = np.random.default_rng(1).integers(1, 3, 40).astype({"f64": "f8", "f16": "f2", "i32": "i4"}[dtype])
        if combine == "prod":
            values[places % 6 == 3] = 1
        check(s, {"ids": places, "w": values})
    again = scattered(TABLE.format(dtype, combine))
    exec(s.as_python(), {"s": again})
    assert again == s and str(again) == str(s)


@pytest.mark.parametrize("pointers", POINTERS)
@pytest.mark.parametrize(("room", "share"), [(100, 3), (100, 1), (12, 4), (1, 1)])
def test_shares_of_rows_of_data(pointers, room, share):
    """Also where more is sent than there is room for, and where a block of a table of several axes ends with the table."""
    for text in (ROWS, GUARDED):
        s = scattered(text)
        s["S"].partition(s["S"].split("i", 3)[0], 7, room, share)
        check(s, {"p": np.minimum(np.array(POINTERS[pointers]), 30 if text is ROWS else 14), "v": np.arange(30.0)})


def test_a_place_out_of_bounds_is_an_error_before_anything_is_sent():
    s = scattered(PLANE)
    s["S"].partition("t", 5)
    with pytest.raises(OutOfBoundsError):
        outputs(lower(s), s.program, {"ids": np.full(50, 28), "w": numbers(50, 3).astype(np.float32)}, {})


def test_by_default_tables_with_more_elements_than_points_are_partitioned():
    """By a rule of extents, not of cores; both passes over the points, owners, and what those of one block have apart run on all cores."""
    program = parse_program(
        """
p: i64[8193] = input()
cols: i32[262144] = input()
v: f32[262144] = input()
S: f32[600000] = scatter({i64(cols[p[i] + k]): v[p[i] + k] for i in range(8192) for k in range(p[i + 1] - p[i])})
return S
"""
    )
    for cores in (2, 64):
        s = autoschedule(program, replace(WIDE, cores=cores))
        found = s.state.stage("S").partition
        assert (found.chunks, found.width, found.room, found.share) == (32, 8192, 262144, 8192)
        parallel = [k for k in lower(s).kernels if isinstance(k.body[0], For) and k.body[0].kind == "parallel"]
        assert len(parallel) == 4


def test_shares_have_the_same_bits_on_any_number_of_threads():
    """Compiled, on sums of floats whose order makes a difference."""
    text = TABLE.format("f32", "sum").replace("40", "40000").replace("[6]", "[999]").replace("% 6", "% 999")
    s = scattered(text)
    s["S"].partition(s["S"].split("t", 1250)[0], 64, share=512)
    s["S"].parallel("t_o")
    f = te.build(s, [te.placeholder((40000,), "int64", name="ids"), te.placeholder((40000,), name="w")])
    values = numbers(40000).astype(np.float32)
    try:
        for places in (np.arange(40000) ** 2, np.full(40000, 7), np.arange(40000) // 300):
            found = [f(places, values)[0] for threads in (1, 2, 5) if set_threads(threads)]
            assert all(same.tobytes() == found[0].tobytes() for same in found)
            np.testing.assert_allclose(found[0], np.bincount(places % 999, values.astype("f8"), 999), atol=1e-3)
    finally:
        set_threads()


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("x: f32[4] = input()\nS[i]: f32[4] = x[i]\nreturn S", "s['S'].partition('i', 2)",
         "expected a scatter outside of scans to partition what it sends, got S"),
        (PLANE, "s['S'].partition('t', 0)", f"{NUMBERS}0, None and None"),
        (PLANE, "s['S'].partition('t', 4, share=0)",
         f"{NUMBERS}4, None and 0"),
        (SUMMED, "s['S'].partition('t', 4)",
         "expected a value of S without reductions, which would run for places and for values, got some"),
        (ROWS, "s['S'].partition('i', 4)", "expected room= for the sends of S, whose number is not known before, got None"),
        (ROWS, "s['S'].partition('i', 4, 1 << 31)", "expected fewer than 2147483648 sends of S, got 2147483648"),
        ("sizes(n)\nids: i64[9] = input()\nS: f32[n] = scatter({ids[t]: 1.0 for t in range(9)})\nreturn S", "s['S'].partition('t', 4)",
         "expected a number of elements of S and of iterations of t that are constants, got open ones"),
    ],
)  # fmt: skip
def test_what_is_refused(text, code, message):
    s = scattered(text)
    with pytest.raises(ScheduleError) as caught:
        exec(code, {"s": s})
    assert message in str(caught.value)
