"""Threads for loops over data, by the search: the values of the interpreter without races, and what a thread or a block does of it."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from tensorexpr.codegen.auto.search.memory import lowered
from tensorexpr.codegen.cuda.emitter.nest import emit
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import schedule
from tensorexpr.codegen.target import H200
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import integer
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tests.codegen.cuda.device import Program, needs_compiler
from tests.random_programs import random_inputs

SMALL = replace(H200, cores=1)
SHORT_ROWS = """
x: f32[640, 7] = input()
y: f32[640, 7] = input()
z[i, j]: f32[640, 7] = x[i, j] * y[i, j] + 1.0
return z
"""
BORDERS = """
x: f32[64, 64] = input()
y[i, j]: f32[64, 64] = where(i >= 1 and i < 63, where(j >= 1 and j < 63, x[i - 1, j] + x[i + 1, j] + x[i, j - 1], 0.0), x[i, j])
return y
"""
PIECES = """
x: f32[20, 16] = input()
y[i, j]: f32[24, 16] = where(i < 20, sum(x[i, k] for k in range(16)), max(x[j, k] for k in range(16)))
return y
"""
GATHER = """
x: f32[30, 64] = input()
p: i64[40] = input()
y[i, j]: f32[40, 64] = x[p[i], j]
return y
"""
SUMS = """
x: f32[40, 30] = input()
w: f32[16, 40] = input()
y[k, j]: f32[16, 30] = sum(x[i, j] * w[k, i] for i in range(40))
return y
"""
BESIDE = """
x: f32[64, 64] = input()
w: f32[8, 3] = input()
y[i, j]: f32[64, 64] = x[j, i] * 2.0
v[i]: f32[64] = x[i, 0] + 1.0
u[i, j]: f32[3, 8] = w[j, i]
return y, v, u
"""
WINDOW = """
x: f32[3, 40] = input()
y[i, j]: f32[3, 40] = sum(x[i, j + s - 2] for s in range(maximum(2 - j, 0), minimum(42 - j, 5))) * 0.2
z[i, j]: f32[3, 40] = max(x[r, j] for r in range(maximum(i - 1, 0), minimum(i + 2, 3)))
return y, z
"""
MOVING = """
x: f32[3, 40] = input()
k: i8[3, 40] = input()
y[i, p]: f32[3, 79] = sum(x[i, j] for j in range(maximum((p + 1) // 2 - 1, 0), minimum(p // 2 + 1, 40)))
z[i, p]: f32[3, 79] = sum(x[i, j] for j in range(maximum((p + 1) // 2 - 1, 0), minimum(p // 2 + 1, 40)) if i64(k[i, j]) == p - 2 * j)
w[i, p]: f32[3, 79] = sum(x[i, j] * f32(3 - abs(2 * j - p)) for j in range(maximum((p + 1) // 2 - 1, 0), minimum((p + 1) // 2 + 1, 40)))
return y, z, w
"""
PROGRAMS = {
    "window": WINDOW,
    "moving": MOVING,
    "short rows": SHORT_ROWS,
    "borders": BORDERS,
    "pieces": PIECES,
    "gather": GATHER,
    "sums": SUMS,
    "beside": BESIDE,
}


@needs_compiler
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_the_interpreter(name: str) -> None:
    s = autoschedule(simplify(parse_program(PROGRAMS[name])), SMALL)
    nest = verify_nest(lowered(s))
    assert prove(nest, launched=True).refuted == ()
    inputs, made = random_inputs(s.program, 3), Program(nest)
    if name == "gather":
        inputs = {**inputs, "p": np.arange(40) % 30}
    want = evaluate_program(s.program, inputs)
    for order in (0, 1, 5):
        for output, array in made(inputs, order=order).items():
            np.testing.assert_allclose(array, want[output], rtol=1e-5, atol=1e-5)


def launched(text: str) -> str:
    return emit(verify_nest(lowered(autoschedule(simplify(parse_program(text)), SMALL)))).text


def test_neighbors_go_across_short_rows() -> None:
    text = launched(SHORT_ROWS)
    assert "te_store(&z[" in text and "te_load" in text


def test_what_a_thread_loads_is_used_for_several_rows() -> None:
    assert "y_sum[2]" in launched(SUMS)


def test_a_block_is_a_kernel_of_its_own() -> None:
    """What runs together are threads; a square that a block turns around stands beside."""
    kernels = emit(verify_nest(lowered(autoschedule(simplify(parse_program(BESIDE)), SMALL)))).launches
    assert [launch.buffers for launch in kernels] == [("x", "y"), ("x", "w", "v", "u")] or len(kernels) == 2
    assert sum("__shared__" in part for part in launched(BESIDE).split('extern "C"')) == 1


def test_windows_that_borders_cut_off_are_copied_out() -> None:
    text = launched(WINDOW)
    assert text.count("#pragma unroll") == 2 and "s < 5" in text and "r < 3" in text and "te_minimum" not in text


def test_windows_that_move_on_by_halves_are_copied_out() -> None:
    """As those of a pool's gradient: one point or two, read at once, and what they are checked for behind the test of their place."""
    text = launched(MOVING)
    assert text.count("#pragma unroll") == 3 and text.count("< 2; ++j") == 3 and "te_minimum" not in text
    assert "3 - te_abs(" in text and "int64_t)" not in text


STEPS_OF_TWO = """
x: f32[4, 226, 226] = input()
w: f32[64, 3, 3] = input()
y[n, k, i, j]: f32[4, 64, 112, 112] = sum(x[n, 2 * i + r, 2 * j + s] * w[k, r, s] for r in range(3) for s in range(3))
return y
"""


def test_threads_beside_each_other_read_beside_each_other() -> None:
    """Rows are not taken along an axis on whose neighbours operands lie a few elements apart, but along one that they stay in place on."""
    text = emit(verify_nest(lowered(autoschedule(simplify(parse_program(STEPS_OF_TWO)), H200)))).text
    assert "k_i" in text and "j_i" not in text


ONE_COLUMN = """
x: bf16[4096, 4096] = input()
w: bf16[4096, 1] = input()
y[i, j]: bf16[4096, 1] = sum(x[i, k] * w[k, 0] for k in range(4096))
return y
"""
FEW_LONG_ROWS = """
x: f32[4, 1000003] = input()
g: f32[4, 1000003] = input()
top[i]: f32[4] = max(x[i, j] for j in range(1000003))
y[i, j]: f32[4, 1000003] = exp(x[i, j] - top[i])
z[i, j]: f32[4, 1000003] = exp(x[i, j] - top[i]) * g[i, j] - top[i]
return y, z
"""


@pytest.mark.parametrize("text", [ONE_COLUMN, FEW_LONG_ROWS], ids=["one column", "few long rows"])
def test_what_has_many_points_has_many_blocks(text: str) -> None:
    source = emit(verify_nest(lowered(autoschedule(simplify(parse_program(text)), H200))))
    for launch in source.launches:
        threads = prod(integer(e) for e in launch.iterations) * (1 if launch.cut else prod(launch.threads))
        assert threads >= 132 * 64 or launch.kernel.endswith("_top"), launch  # which adds up parts


def test_what_a_schedule_says_stays() -> None:
    s = schedule(simplify(parse_program(SHORT_ROWS)), SMALL)
    s["z"].parallel("i")
    assert lowered(s) == lower(s)


LONG_LOOPS = """
x: f32[{steps}, {points}] = input()
y[i]: f32[{points}] = sum(x[t, i] * x[t, i] for t in range({steps}))
return y
"""


@needs_compiler
@pytest.mark.parametrize(
    ("points", "steps", "threads"), [(40, 300, 32), (4097, 300, 32), (20000, 300, 128), (40000, 300, 256), (40, 200, 32), (40, 20, 256)]
)
def test_few_threads_with_long_loops_are_in_small_blocks(points: int, steps: int, threads: int) -> None:
    """So that they are on many multiprocessors."""
    program = parse_program(LONG_LOOPS.format(points=points, steps=steps))
    s = schedule(program, H200)
    s["y"].parallel("i")
    made = Program(verify_nest(lower(s)))
    (launch,) = made.source.launches
    assert launch.cut and launch.threads == (threads, 1, 1) and launch.blocks([points])[0] == -(-points // threads)
    if points < 100:
        arrays = random_inputs(program, points)
        np.testing.assert_allclose(made(arrays)["y"], evaluate_program(program, arrays)["y"], rtol=1e-5)


OPEN = """
sizes(n, m, k)
x: f32[n, m, k] = input()
y: f32[n, m, 5] = input()
b: f32[k] = input()
w: f32[m, k] = input()
z[i, j, l]: f32[n, m, k] = x[i, j, l] * 2.0 + 1.0
v[i, j, l]: f32[n, m, 5] = y[i, j, l] * 2.0
u[i, j, l]: f32[n, m, k] = x[i, j, l] + b[l] * w[j, l]
t[l, j]: f32[k, m] = w[j, l] + 1.0
return z, v, u, t
"""


@needs_compiler
def test_elements_of_open_tensors_go_by_their_number():
    """Nothing is divided where all indices are digits of it."""
    program = parse_program(OPEN)
    made = Program(verify_nest(lowered(autoschedule(program, SMALL))))
    text = made.source.text
    assert "z[i_j_l] = x[i_j_l] * 2.0f + 1.0f;" in text and "te_mod<uint64_t>" in text and "te_mod<int64_t>" not in text
    rng = np.random.default_rng(0)
    for n, m, k in ((3, 5, 7), (1, 1, 1), (2, 0, 3), (0, 2, 3), (4, 3, 0), (2, 33, 40)):
        shapes = {"x": (n, m, k), "y": (n, m, 5), "b": (k,), "w": (m, k)}
        given = {name: rng.integers(-4, 5, shape).astype(np.float32) for name, shape in shapes.items()}
        x, y, b, w = given.values()
        wanted = {"z": x * 2 + 1, "v": y * 2, "u": x + b * w, "t": w.T + 1}
        found = made(given, {"n": n, "m": m, "k": k})
        for name, want in wanted.items():
            np.testing.assert_array_equal(found[name], want)
