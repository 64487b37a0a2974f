"""Scatters that run side by side: rows that own their elements where the data keeps them apart (`own`), parts with results of their own."""

from dataclasses import replace

import numpy as np
import pytest

from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest import For
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import schedule
from tensorexpr.errors import OutOfBoundsError, ScheduleError
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Scatter
from tensorexpr.parse import parse_program
from tensorexpr.text import print_expr
from tests.codegen.programs import WIDE, outputs

ROWS = """
p: i64[8] = input()
v: f64[30] = input()
S: f64[30] = scatter({p[i] + k: v[p[i] + k] * f64(i + 1) for i in range(7) for k in range(p[i + 1] - p[i])})
return S
"""
ZIGZAG = ROWS.replace("{p[i] + k:", "{p[i] + k % 2:")
GUARDED = """
p: i64[8] = input()
v: f64[30] = input()
S: f64[32, 2] = scatter(
    {(p[i] + 2 * k, d): v[k] + f64(i * d) for i in range(7) for d in range(2) for k in range(p[i + 1] // 2 - p[i] // 2) if i != 3}
)
return S
"""
OPEN = """
sizes(n, m)
p: i64[n + 1] = input()
v: f64[m] = input()
S: f64[m] = scatter({p[i] + k: v[p[i] + k] * f64(i + 1) for i in range(n) for k in range(p[i + 1] - p[i])})
return S
"""
TABLE = """
ids: i64[40] = input()
w: {0}[40] = input()
S: {0}[6] = scatter({{ids[t] % 6: w[t] for t in range(40)}}, combine="{1}")
return S
"""
POINTERS = {
    "one after the other": [0, 3, 3, 9, 14, 15, 15, 28],
    "apart": [2, 2, 6, 6, 20, 22, 22, 30],
    "no rows": [5] * 8,
    "overlapping": [0, 10, 4, 14, 8, 20, 12, 30],
    "backwards": [30, 20, 12, 11, 6, 6, 1, 0],
}


def scattered(text):
    return schedule(parse_program(text), WIDE)


def check(s, arrays, sizes=None):
    """The compiled schedule gives the interpreter's bits."""
    want = evaluate_program(s.program, arrays, sizes or {})
    for name, found in outputs(lower(s), s.program, arrays, sizes or {}).items():
        np.testing.assert_array_equal(found, want[name])


def numbers(*shape):
    return np.random.default_rng(4).standard_normal(shape)


@pytest.mark.parametrize("block", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("pointers", POINTERS)
@pytest.mark.parametrize("text", [ROWS, GUARDED], ids=["rows", "guarded"])
def test_every_element_meets_its_rows_in_order_whatever_the_data(text, pointers, block):
    s = scattered(text)
    outer, _ = s["S"].split("i", block)
    assert s["S"].own(outer) == "S_apart"
    s["S"].parallel(outer)
    check(s, {"p": np.array(POINTERS[pointers]), "v": numbers(30)})


@pytest.mark.parametrize("pointers", POINTERS)
def test_sizes_may_be_open(pointers):
    s = scattered(OPEN)
    outer, _ = s["S"].split("i", 3)
    s["S"].own(outer)
    s["S"].parallel(outer)
    check(s, {"p": np.array(POINTERS[pointers]), "v": numbers(30)}, {"n": 7, "m": 30})
    check(s, {"p": np.array([4]), "v": numbers(5)}, {"n": 0, "m": 5})


def test_what_says_that_rows_are_apart():
    s = scattered(ROWS)
    s["S"].own(s["S"].split("i", 2)[0])
    program = replace(s.state.program, outputs=("S_apart",))
    for name, pointers in POINTERS.items():
        found = evaluate_program(program, {"p": np.array(pointers), "v": numbers(30)})["S_apart"]
        assert bool(found) == (name in ("one after the other", "apart", "no rows"))


def test_a_row_that_leaves_the_result_is_an_error_in_either_form():
    s = scattered(ROWS)
    s["S"].own(s["S"].split("i", 2)[0])
    for last in (31, 5):
        with pytest.raises(OutOfBoundsError):
            outputs(lower(s), s.program, {"p": np.array([0, 3, 3, last, 14, 15, 15, 31]), "v": numbers(30)}, {})


@pytest.mark.parametrize("combine", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", ["f64", "f16", "i32"])
@pytest.mark.parametrize(("block", "turns"), [(None, 1), (1, 3), (7, 2), (64, 4), (64, 1)])
def test_parts_have_results_of_their_own(combine, dtype, block, turns):
    s = scattered(TABLE.format(dtype, combine))
    loop = "t" if block is None else s["S"].split("t", block)[0]
    assert s["S"].rfactor(loop, turns) == ("S_parts",)
    if turns > 1 and block > turns:
        s["S_parts"].unroll(s["S_parts"].split("t_i", turns)[1])
    s["S_parts"].parallel(loop)
    values = np.random.default_rng(1).integers(1, 3, 40).astype({"f64": "f8", "f16": "f2", "i32": "i4"}[dtype])
    check(s, {"ids": np.arange(40) ** 3, "w": values if combine != "prod" else np.where(np.arange(40) % 5, 1, values).astype(values.dtype)})


TURNS = """
p: i64[6] = input()
ids: i64[60] = input()
v: f32[60, 4] = input()
S: f32[1024, 4] = scatter({(ids[p[i] + k], j): v[p[i] + k, j] for i in range(5) for k in range(p[i + 1] - p[i]) for j in range(4)})
return S
"""


@pytest.mark.parametrize("unrolled", [False, True])
def test_neighbors_in_a_row_go_to_other_results(unrolled):
    """Turns go along the axes that may collide, whose last one unrolls; what is a multiple of a page apart is a line further."""
    s = scattered(TURNS)
    s["S"].rfactor(s["S"].split("i", 3)[0], 4)
    (parts,) = (d for d in s.state.program.definitions if d.name == "S_parts")
    assert [print_expr(e) for e in parts.indices[1::2]] == ["(k + i_i) % 4", "j"]
    if unrolled:
        s["S_parts"].unroll(s["S_parts"].split("k", 4)[1])
    s["S_parts"].vectorize("j")
    (kept,) = (b for b in lower(s).workspace if b.name == "S_parts")
    assert [int(e.value) for e in kept.shape] == [2, 4, 1028, 4]
    arrays = {"p": np.array([3, 3, 4, 11, 40, 60]), "v": np.random.default_rng(2).integers(-9, 9, (60, 4)).astype("f4")}
    for ids in (np.full(60, 7), np.arange(60) % 3 * 500):
        check(s, arrays | {"ids": ids})
    for beyond in (1024, 1027, -1):
        with pytest.raises(OutOfBoundsError):
            outputs(lower(s), s.program, arrays | {"ids": np.full(60, beyond)}, {})


def test_python_text_rebuilds_both():
    for text, word in ((ROWS, "own"), (ROWS, "rfactor")):
        s = scattered(text)
        getattr(s["S"], word)(s["S"].split("i", 2)[0], *((3,) if word == "rfactor" else ()))
        again = scattered(text)
        exec(s.as_python(), {"s": again})
        assert again == s and str(again) == str(s)


SPARSE = """
p: i64[4097] = input()
cols: i32[65536] = input()
h: f32[4096] = input()
v: f32[65536] = input()
a: f32[65536] = scatter({{p[i] + k: h[i] for i in range(4096) for k in range(p[i + 1] - p[i])}})
b: f32[{0}] = scatter(
    {{i64(cols[p[i] + k]): h[i] * v[p[i] + k] for i in range(4096) for k in range(p[i + 1] - p[i])}}
)
return a, b
"""


@pytest.mark.parametrize(
    ("columns", "parts", "turns"), [(64, 16, 4), (1024, 8, 4), (8000, 2, 4), (16000, 2, 2), (60000, 2, 1), (70000, 0, 1)]
)
def test_by_default_rows_own_and_tables_with_many_points_are_in_parts(columns, parts, turns):
    """A row is about as long as all that is read along the rows, divided by their number; all results have about as many elements."""
    program = parse_program(SPARSE.format(columns))
    forms = {cores: autoschedule(program, replace(WIDE, cores=cores)) for cores in (2, 64)}
    s = forms[2]
    assert s.state.stage("a").owners == ("i_o",) and s.state.stage("a").kind("i_o") == "parallel"
    made = [d for d in s.state.program.definitions if isinstance(d, Scatter)]
    assert [d.name for d in made] == (["a", "b_parts"] if parts else ["a", "b"])
    if parts:
        shape = [e.value for e in made[1].type.shape]
        assert shape == ([parts, turns, columns] if turns > 1 else [parts, columns]) and s.state.stage("b_parts").kind("i_o") == "parallel"
        assert (s.state.stage("b_parts").kind("k_i") == "unroll") == (turns > 1)
    assert forms[64].state.program == s.state.program  # the order of sums does not depend on cores
    large = [k for k in lower(s).kernels if isinstance(k.body[0], For) and k.body[0].kind == "parallel"]
    assert len(large) >= (2 if parts else 1)


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("x: f32[4] = input()\nS[i]: f32[4] = x[i]\nreturn S", "s['S'].own('i')",
         "expected a scatter outside of scans to own the elements of its rows, got S"),
        (TABLE.format("f32", "sum"), "s['S'].own(s['S'].split('t', 4)[0])",
         "expected places that follow each other from one that data gives for each t, got others"),
        (ZIGZAG, "s['S'].own(s['S'].split('i', 4)[0])",
         "expected places that follow each other from one that data gives for each i, got others"),
        (ROWS, "s['S'].own('i')", "expected places that follow each other from one that data gives for each i, got others"),
        (ROWS, "s['S'].own(s['S'].split('i', 4)[1])", "expected i or the outer loop of its one split to take a scatter apart, got i_i"),
        (ROWS, "s['S'].rfactor('k')", "expected i or the outer loop of its one split to take a scatter apart, got k"),
        ("p: i64[3] = input()\nS: f32[4] = scatter({k % 4: 1.0 for k in range(p[0])})\nreturn S", "s['S'].rfactor('k')",
         "expected bounds of k that are known before the loops run to take S apart, got others"),
        (ROWS, "s['S'].rfactor(s['S'].split('i', 4)[0], 0)", "expected a positive int as the number of turns, got 0"),
        ("x: f32[8] = input()\nS: f32 = sum(x[k] for k in range(8))\nreturn S", "s['S'].rfactor('k', 2)",
         "expected a scatter outside of scans for results that take turns, got S"),
        (ROWS, "s['S'].parallel('i')", "expected iterations that touch different elements to run in parallel, got i: two may touch one"),
    ],
)  # fmt: skip
def test_what_is_refused(text, code, message):
    s = scattered(text)
    with pytest.raises(ScheduleError) as caught:
        exec(code, {"s": s})
    assert message in str(caught.value)
