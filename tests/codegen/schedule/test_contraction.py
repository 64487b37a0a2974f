"""Contractions in the default schedule: copies in panels, tiles that fill the registers, blocks that fit the caches."""

import re
from math import prod

import numpy as np
import pytest

from tensorexpr.codegen.auto.search.memory import lowered
from tensorexpr.codegen.llvm import emit, host
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest.interpret import run_nest
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.planners.tiles import contraction as auto_contraction
from tensorexpr.codegen.schedule import schedule
from tensorexpr.codegen.target import Target
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tensorexpr.records import replace
from tests.codegen.programs import WIDE, assert_means

SERVER = Target("test", vector_bits=512, registers=32, cores=2, l1_bytes=48 << 10, l2_bytes=2 << 20)


def product(n: int, k: int, m: int, a: str = "A[i, k]", b: str = "B[k, j]") -> str:
    left, right = (f"{n}, {k}" if a == "A[i, k]" else f"{k}, {n}"), (f"{k}, {m}" if b == "B[k, j]" else f"{m}, {k}")
    return f"""
A: f32[{left}] = input()
B: f32[{right}] = input()
C[i, j]: f32[{n}, {m}] = sum({a} * {b} for k in range({k}))
return C
"""


WEIGHTS_GRADIENT = """
x: f32[4, 7, 20] = input()
g: f32[4, 32, 18] = input()
w[k, c, i]: f32[32, 7, 3] = sum(g[n, k, z] * x[n, c, z + i] for n in range(4) for z in range(18))
return w
"""


def taps(dilation: int, x: str = "x[n, c, {}, {}]") -> str:
    """A convolution with a border, or with `x` of other axes one with channels last."""
    y, z = f"y + r * {dilation}", f"z + s * {dilation}"
    inside = f"{y} >= {dilation} and {z} >= {dilation} and {z} < {24 + dilation}"
    return f"""
x: f32[{"1, 4, 8, 24" if x.startswith("x[n, c") else "1, 8, 24, 4"}] = input()
w: f32[16, 4, 3, 3] = input()
C[n, k, y, z]: f32[1, 16, 2, 24] = sum(
    where({inside}, {x.format(f"{y} - {dilation}", f"{z} - {dilation}")}, 0.0) * w[k, c, r, s]
    for c in range(4) for r in range(3) for s in range(3)
)
return C
"""


TAPS_GRADIENT = """
g: f32[1, 4, 3, 24] = input()
w: f32[4, 16, 3, 3] = input()
C[n, c, p, q]: f32[1, 16, 3, 24] = sum(
    g[n, k, p - r + 1, q - s + 1] * w[k, c, r, s]
    for k in range(4)
    for r in range(maximum(p - 1, 0), minimum(p + 2, 3))
    for s in range(maximum(q - 22, 0), minimum(q + 2, 3))
)
return C
"""


def lines(text: str, target: Target = SERVER) -> str:
    return autoschedule(parse_program(text), target).as_python()


def test_operands_of_a_large_product_are_read_from_panels_as_wide_as_the_tile():
    found = lines(product(1024, 1024, 1024))
    assert "s['C'].stage('B', ((1, 64), 0))" in found and "s['C'].split('j', 64, 'guard')" in found and "stage('A'" not in found


def test_large_copies_are_made_a_panel_at_a_time_in_the_loops_of_the_product():
    """Each panel once, kept by a thread while all rows go by; of panels too few for all cores, rows are taken in blocks."""
    s = autoschedule(parse_program(product(1024, 1024, 1024)), SERVER)
    assert s["C"].loops[:2] == ("j_o", "i_o") and "s['B_staged'].compute_at('C', 'j_o')" in s.as_python()
    assert "B_staged_1: workspace(f32[4, 1, 1024, 64])" in str(lower(s))
    assert "compute_at('C', 'j_o')" in lines(product(1000, 777, 333)) and "split('i_o', 28, 'guard')" in lines(product(1000, 777, 333))


def test_copies_are_not_made_again_and_again():
    assert "compute_at" not in lines(product(20000, 128, 64))


def test_an_operand_whose_columns_are_rows_of_the_tile_is_read_as_it_lies():
    """A line or two for each step, however far apart the steps are, are asked for ahead: a copy of all of it is not worth its memory."""
    found = autoschedule(parse_program(product(1024, 1024, 1024, a="A[k, i]")), SERVER)
    assert "s['C'].stage('B', ((1, " in found.as_python() and "stage('A'" not in found.as_python()
    workspace = sum(prod(int(e.value) for e in b.shape) * 4 for b in lower(found).workspace)
    assert workspace * 10 < 3 * 1024 * 1024 * 4


def test_few_rows_read_a_large_operand_as_it_lies():
    """A copy of it would be met by no more than two tiles; lanes along the rows would be empty by half."""
    found = lines(product(17, 1024, 1024))
    assert "stage('B'" not in found and "s['C_parts'].vectorize('j_i')" in found


@pytest.mark.parametrize(("columns", "outermost"), [(8192, "j_o"), (1024, "i_o_j_o")])
def test_an_operand_from_memory_goes_by_once_where_the_other_one_stays_in_the_caches(columns, outermost):
    """Few rows in lanes, many columns: all rows meet a tile of columns while it is near; where both stay near, any order does."""
    s = autoschedule(parse_program(product(128, 768, columns)), replace(SERVER, l2_bytes=1 << 20))
    assert s["C"].loops[0] == outermost and "s['C'].vectorize('i_i')" in s.as_python()


def test_an_operand_across_the_lanes_is_turned_around_in_squares():
    found = lines(product(256, 256, 256, b="B[j, k]"))
    assert "s['C'].stage('B', ((0, " in found
    assert "s['B_staged'].unroll('a0_i" in found and "s['B_staged'].vectorize('a1_i')" in found


OPEN = """
sizes(n, m, k)
A: f32[n, k] = input()
B: f32[m, k] = input()
C[i, j]: f32[n, m] = sum((A[i, r] - B[j, r]) * (A[i, r] - B[j, r]) for r in range(k))
return C
"""


def test_an_operand_of_open_size_is_turned_around_and_its_last_panel_computed_whole():
    """Lanes along the sum, or gathered across it, took 1.7 to 6.2 times as long as at fixed sizes; nothing is tested in the sum."""
    program = parse_program(OPEN)
    nest = lower(autoschedule(program, SERVER))
    assert "B_staged: workspace(f32[(m + 31) // 32, k, 32])" in str(nest)
    assert re.search(
        r"for r in range\(0, k\):\n *for i_i in unroll\(range\(0, \d+\)\):\n *for j_i in vectorize\(range\(0, 32\)\):\n *C_sum", str(nest)
    )
    assert prove(nest).is_clean
    rng = np.random.default_rng(0)
    for n, m, k in ((0, 1, 2), (1, 0, 3), (3, 15, 1), (4, 16, 0), (5, 17, 7), (33, 47, 16), (8, 31, 33), (2, 64, 17)):
        a, b = (rng.integers(-3, 4, (rows, k)).astype(np.float32) for rows in (n, m))
        got = run_nest(nest, {"A": a, "B": b}, {"n": n, "m": m, "k": k})["C"]
        assert np.array_equal(got, ((a[:, None] - b[None]) ** 2).sum(-1)), (n, m, k)


def test_of_open_axes_that_cost_alike_lanes_go_along_the_last_one():
    """Lanes along a batch of one took 7 times as long: the axes in front are those that may be short."""
    text = """
sizes(b, n)
x: f32[b, n, 256] = input()
w: f32[768, 256] = input()
y[i, j, h, r]: f32[b, n, 12, 64] = sum(x[i, j, k] * w[h * 64 + r, k] for k in range(256))
return y
"""
    assert "x_staged: workspace(f32[b, (n + 31) // 32, 256, 32])" in str(lower(autoschedule(parse_program(text), SERVER)))


def test_rows_of_open_windows_are_neighbours_not_pictures():
    """Four pictures beside each other took 6 times as long for one picture, and 64 lanes 8 times for rows of 31."""
    text = """
sizes(n, c, h, w)
x: f32[n, c, h, w] = input()
k: f32[c, 3, 3] = input()
y[b, d, i, j]: f32[n, c, h - 2, w - 2] = sum(x[b, d, i + r, j + s] * k[d, r, s] for r in range(3) for s in range(3))
return y
"""
    made = autoschedule(parse_program(text), SERVER).as_python()
    assert "s['y'].split('i', " in made and "split('b'" not in made and "s['y'].split('j', 16, 'shift')" in made


def test_small_products_are_not_copied():
    assert "stage" not in lines(product(16, 24, 32))


def test_tiles_fit_the_registers_of_the_machine():
    narrow = Target("test", vector_bits=256, registers=16, cores=2)
    assert "s['C'].split('j', 64, " in lines(product(1024, 1024, 1024)) and "s['C'].split('i', 6, " in lines(product(1024, 1024, 1024))
    found = lines(product(1024, 1024, 1024), narrow)
    rows = int(found.split("s['C'].split('i', ")[1].split(",")[0])
    vectors = int(found.split("s['C'].split('j', ")[1].split(",")[0]) // 8
    assert rows * vectors + vectors + 1 <= 16 and rows * vectors >= 8


def test_planes_that_come_from_afar_are_gone_through_outermost_and_by_large_tiles():
    """Taps of one plane lie near each other, planes pages apart: a step to the next one waits, and a larger tile has fewer of them."""
    text = """
x: f32[8, 64, 57, 57] = input()
w: f32[64, 64, 3, 3] = input()
y[n, k, p, q]: f32[8, 64, 28, 28] = sum(
    x[n, c, i + 2 * p, j + 2 * q] * w[k, c, i, j] for c in range(64) for i in range(3) for j in range(3)
)
return y
"""
    found = autoschedule(parse_program(text), replace(SERVER, l1_bytes=32 << 10, l2_bytes=1 << 20, multiplies=1))
    assert found["y"].loops[-5:] == ("c", "i", "j", "q_i", "k_i")
    assert "s['y'].split('q', 14, " in found.as_python() and "s['y'].unroll('j')" not in found.as_python()


@pytest.mark.parametrize(
    "text",
    [
        product(15, 26, 50),
        product(15, 26, 50, a="A[k, i]"),
        product(16, 33, 50, b="B[j, k]"),
        product(15, 33, 68, a="A[k, i]", b="B[j, k]"),
        WEIGHTS_GRADIENT,
        taps(1),
        taps(2, "x[n, {}, {}, c]"),
        TAPS_GRADIENT,
    ],
)
@pytest.mark.parametrize("cache", [1, 64])
def test_values_of_contractions(text, cache, monkeypatch):
    monkeypatch.setattr(auto_contraction, "LEAST_WORK", 1 << 12)
    target = Target("test", vector_bits=512, registers=32, cores=2, l1_bytes=cache << 10, l2_bytes=cache << 11)
    assert_means(autoschedule(parse_program(text), target))


def test_a_panel_beyond_the_extent_is_computed_and_not_stored():
    program = parse_program(product(6, 9, 20))
    s = schedule(program, WIDE)
    s["C"].stage("B", ((1, 16), 0))
    s["C"].split("j", 16, "guard")
    s["C"].reorder("i", "j_o", "k", "j_i")
    s["C"].vectorize("j_i")
    text = str(assert_means(s))
    reduction = text[text.index("for k in") :]
    assert "if" not in reduction[: reduction.index("for j_i", reduction.index("+ A"))] and "< 20" in reduction
    inputs = {"A": np.full((6, 9), np.inf, np.float32), "B": np.ones((9, 20), np.float32)}
    assert np.isinf(evaluate_program(program, inputs, {})["C"]).all()
    assert_means(s, inputs=inputs)


FIRST_LAYER = """
x: f32[32, 1, 8, 8] = input()
w: f32[16, 1, 3, 3] = input()
y[n, k, p, q]: f32[32, 16, 8, 8] = sum(
    where(i + p >= 1 and i + p < 9 and j + q >= 1 and j + q < 9, x[n, 0, i + p - 1, j + q - 1], 0.0) * w[k, 0, i, j]
    for i in range(3)
    for j in range(3)
)
return y
"""
FEW_WEIGHTS = """
x: f32[32, 1, 10, 10] = input()
g: f32[32, 16, 8, 8] = input()
w[k, i, j]: f32[16, 3, 3] = sum(g[n, k, p, q] * x[n, 0, p + i, q + j] for n in range(32) for p in range(8) for q in range(8))
return w
"""


def test_results_across_the_lanes_are_turned_around_where_rows_lie_side_by_side():
    """Lanes are channels, rows pixels, of which the results lie side by side: no scatter, and of a plan without such rows only scatters."""
    found = lines(FIRST_LAYER)
    assert "s['y'].stage('w', " in found and "s['y'].unroll('q')" in found and "s['y'].vectorize('k')" in found
    assert "scatter" not in emit(lower(autoschedule(parse_program(FIRST_LAYER), SERVER)), host())


@pytest.mark.parametrize(
    ("text", "order", "panel"),
    [
        (taps(1), ["c", "r", "s"], "((0, 16), 1, 2, 3)"),
        (taps(2, "x[n, {}, {}, c]"), ["r", "c", "s"], "((0, 16), 2, 1, 3)"),
        (TAPS_GRADIENT, ["k", "r", "s"], "((1, 16), 0, 2, 3)"),
    ],
)
def test_taps_along_the_rows_run_innermost_and_share_what_they_read(text, order, panel, monkeypatch):
    """The other axes as the rows lie in memory, panels in that order, too; and a border tests nothing once per point."""
    monkeypatch.setattr(auto_contraction, "LEAST_WORK", 1 << 12)
    s = autoschedule(parse_program(text), SERVER)
    loops = s["C"].loops
    assert [x for x in loops if x in order] == order
    assert f"s['C'].stage('w', {panel})" in s.as_python() and "s['C'].unroll('s')" in s.as_python()
    assert "where" not in text or re.search(r"if [^\n]*\br\b[^\n]*:\n *for (c in range|s in unroll)", str(lowered(s))), (
        "one test for all that is copied out"
    )


def test_few_results_of_a_long_reduction_are_not_worth_a_copy_turned_around():
    found = lines(FEW_WEIGHTS)
    assert "stage" not in found and "s['w'].vectorize('q')" in found


def test_a_reduction_over_two_axes_has_panels_as_over_one():
    """The weights of a dense layer: rows are summed over a batch and its positions, each a memory page from the next."""
    text = """
x: f32[16, 64, 512] = input()
g: f32[16, 64, 128] = input()
w[o, k]: f32[128, 512] = sum(g[b, t, o] * x[b, t, k] for b in range(16) for t in range(64))
return w
"""
    assert "s['w'].stage('g', ((2, 64), 0, 1))" in lines(text)
    flat = text.replace("16, 64, ", "1024, ").replace("b, t, ", "t, ").replace("b in range(16) for t in range(64)", "t in range(1024)")
    assert "s['w'].stage('g', ((1, 64), 0))" in lines(flat)


@pytest.mark.parametrize("n, m, k, r, runs", [(96, 80, 128, 96, False), (40, 40, 24, 16, True)], ids=["large", "small"])
def test_of_two_products_that_are_added_each_has_a_tile_of_its_own(n, m, k, r, runs):
    program = parse_program(
        f"x: f32[{n}, {k}] = input()\nw: f32[{m}, {k}] = input()\nh: f32[{n}, {r}] = input()\nu: f32[{m}, {r}] = input()\n"
        f"a[i, j]: f32[{n}, {m}] = sum(x[i, k] * w[j, k] for k in range({k}))\n"
        f"b[i, j]: f32[{n}, {m}] = sum(h[i, k] * u[j, k] for k in range({r}))\n"
        f"y[i, j]: f32[{n}, {m}] = tanh(a[i, j] + b[i, j])\nreturn y\n"
    )
    s = autoschedule(program, WIDE)
    assert s.stages.count("a") == 1 and "b" not in s.stages and "s.inline('b')" in s.as_python()
    if runs:
        assert_means(s, exact=False)


PLANNED = [
    product(96, 200, 130),
    product(64, 3000, 48, a="A[k, i]"),
    product(50, 64, 64, b="B[j, k]"),
    taps(1),
    taps(2),
    taps(1, "x[n, {}, {}, c]"),
    TAPS_GRADIENT,
]


@pytest.mark.parametrize("text", PLANNED)
def test_tiles_that_are_not_looked_at_cost_more(text, monkeypatch):
    """No step costs less than what is known before of its tile, and the best of all plans is found."""
    plans, step = auto_contraction.Model.plans, auto_contraction.Model._step
    bounds, firsts = [], []

    def recorded(self, vector, vectors, row, rows, copied, order, window):
        cost = step(self, vector, vectors, row, rows, copied, order, window)
        bounds.append((self._least_step(vector, row, copied)(vectors, rows), cost))
        return cost

    def both(self, every=False):
        found, whole = plans(self, every), plans(self, True)
        firsts.append([str(auto_contraction._in_order(some)[:1]) for some in (found, whole)])
        return found

    auto_contraction._plans.clear()
    monkeypatch.setattr(auto_contraction, "LEAST_WORK", 1 << 12)
    monkeypatch.setattr(auto_contraction.Model, "_step", recorded)
    monkeypatch.setattr(auto_contraction.Model, "plans", both)
    autoschedule(parse_program(text), SERVER)
    auto_contraction._plans.clear()
    assert firsts
    assert all(one == other for one, other in firsts)
    assert all(bound <= cost * (1 + 1e-12) for bound, cost in bounds)
