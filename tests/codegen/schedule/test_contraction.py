"""Contractions in the default schedule: copies in panels, tiles that fill the registers, blocks that fit the caches."""

import numpy as np
import pytest

from tensorexpr.codegen.schedule import autoschedule, schedule
from tensorexpr.codegen.target import Target
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
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
x: f32[4, 12, 40] = input()
g: f32[4, 32, 38] = input()
w[k, c, i]: f32[32, 12, 3] = sum(g[n, k, z] * x[n, c, z + i] for n in range(4) for z in range(38))
return w
"""


def lines(text: str, target: Target = SERVER) -> str:
    return autoschedule(parse_program(text), target).as_python()


def test_operands_of_a_large_product_are_read_from_panels_as_wide_as_the_tile():
    found = lines(product(1024, 1024, 1024))
    assert "s['C'].stage('B', ((1, 64), 0))" in found and "s['C'].split('j', 64, 'guard')" in found and "stage('A'" not in found


def test_an_operand_whose_columns_are_rows_of_the_tile_is_copied_as_well():
    found = lines(product(1024, 1024, 1024, a="A[k, i]"))
    assert "s['C'].stage('B', ((1, " in found and "s['C'].stage('A', ((1, " in found


def test_an_operand_across_the_lanes_is_turned_around_in_squares():
    found = lines(product(256, 256, 256, b="B[j, k]"))
    assert "s['C'].stage('B', ((0, " in found
    assert "s['B_staged'].unroll('a0_i" in found and "s['B_staged'].vectorize('a1_i')" in found


def test_small_products_are_not_copied():
    assert "stage" not in lines(product(16, 24, 32))


def test_tiles_fit_the_registers_of_the_machine():
    narrow = Target("test", vector_bits=256, registers=16, cores=2)
    assert "s['C'].split('j', 64, " in lines(product(1024, 1024, 1024)) and "s['C'].split('i', 6, " in lines(product(1024, 1024, 1024))
    found = lines(product(1024, 1024, 1024), narrow)
    rows = int(found.split("s['C'].split('i', ")[1].split(",")[0])
    vectors = int(found.split("s['C'].split('j', ")[1].split(",")[0]) // 8
    assert rows * vectors + vectors + 1 <= 16 and rows * vectors >= 8


def test_a_long_reduction_has_tiles_inside_of_its_first_loop():
    small = Target("test", vector_bits=512, registers=32, cores=2, l1_bytes=4 << 10, l2_bytes=16 << 10)
    s = autoschedule(parse_program(WEIGHTS_GRADIENT), small)
    loops = s["w"].loops
    assert loops.index("n") < loops.index("i") < loops.index("z")
    assert_means(s)


@pytest.mark.parametrize(
    "text",
    [
        product(52, 26, 50),
        product(52, 26, 50, a="A[k, i]"),
        product(70, 45, 50, b="B[j, k]"),
        product(67, 33, 100, a="A[k, i]", b="B[j, k]"),
        WEIGHTS_GRADIENT,
    ],
)
@pytest.mark.parametrize("cache", [1, 64])
def test_values_of_contractions(text, cache):
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


def test_a_short_reduction_is_not_planned_where_results_would_lie_a_page_apart():
    """Sixteen results a page apart push each other out of the first level: with nine products each, storing them is what costs."""
    found = lines(FIRST_LAYER)
    assert "stage" not in found and "s['y'].vectorize('q')" in found


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
    assert "s['w'].stage('x', ((2, 32), 0, 1))" in lines(text)
    flat = text.replace("16, 64, ", "1024, ").replace("b, t, ", "t, ").replace("b in range(16) for t in range(64)", "t in range(1024)")
    assert "s['w'].stage('x', ((1, 32), 0))" in lines(flat)
