"""Loops over open extents that are below zero run not at all, whatever they are split, fused or tiled into."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.compile import build_program
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest import For
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import Planned
from tensorexpr.codegen.schedule.analysis.state import TAILS
from tensorexpr.errors import ScheduleError
from tensorexpr.interpret import evaluate_program, extent_value
from tensorexpr.ir import integer
from tensorexpr.parse import parse_program
from tests.codegen.programs import WIDE, assert_means, outputs, plain, statements
from tests.random_programs import random_inputs
from tests.runtime.pages import guarded_copy

HEAD = """
sizes(m, n)
A: f32[m, n] = input()
B: f32[m, n + 1] = input()
X: f32[n] = input()
"""
BODIES = (
    "Y[i]: f32[m] = sum(A[i, j + 1] - A[i, j] + 1.0 for j in range(n - 1))",
    "Y[i]: f32[m] = sum(where(j + 3 < n, A[i, j], 0.0) for j in range(n))",
    "Y[i]: f32[m] = sum(1.0 for j in range(n - m))",
    "Y[i]: f32[m] = max(A[i, j] for j in range(minimum(n, m) - 2))",
    "Y[i]: bool[m] = any(A[i, j] > -9.0 for j in range(n - 5))",
    "Y[i]: f32[m] = sum(X[j] + A[k, 0] for j in range(n - 2) for k in range(m - 3))",
    "Y[i]: f32[m] = prod(B[i, j] for j in range(i + 2, n - 1))",
    "T[k, j]: f32[m - 3, n - 2] = A[k, j] * 2.0\nY[i]: f32[m] = sum(T[k, j] for k in range(m - 3) for j in range(n - 2))",
    "T[k]: f32[n - 40] = X[k]\nU[k]: f32[n + 1] = 2.0\nY[i]: f32[m] = U[n] + sum(T[k] for k in range(n - 40))",
    "Y[i, j]: f32[m, maximum(n - 2, 0)] = sum(A[i, j] * A[i, k] for k in range(n - 3))",
)


def _schedules(text: str, tail: str) -> list[Planned]:
    """The plain schedule with every loop split, the blocks split again, and neighbors fused, as far as that is legal."""
    found = []
    for fused in (False, True):
        s = plain(text)
        for name in s.stages:
            loops = s[name].loops
            try:
                if fused and len(loops) > 1:
                    s[name].fuse(loops[-2], loops[-1])
            except ScheduleError:
                pass
            for loop in s[name].loops:
                try:
                    outer, _ = s[name].split(loop, 2, tail)
                    s[name].split(outer, 2, tail)
                except ScheduleError:
                    pass
        found.append(s)
    return found


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("body", BODIES)
def test_split_loops_that_end_before_they_begin(body, tail):
    text = HEAD + body + "\nreturn Y\n"
    for s in _schedules(text, tail):
        nest = lower(s)
        for m, n in ((0, 0), (1, 0), (2, 1), (4, 0), (3, 2), (1, 4), (5, 7)):
            sizes = {"m": m, "n": n}
            inputs = random_inputs(s.program, m, sizes=sizes)
            want = evaluate_program(s.program, inputs, sizes)
            np.testing.assert_array_equal(outputs(nest, s.program, inputs, sizes)["Y"], want["Y"], err_msg=s.as_python())


@pytest.mark.parametrize("body", BODIES)
def test_default_schedules_at_sizes_below_each_constant(body):
    program = parse_program((HEAD + body + "\nreturn Y\n").lstrip())
    function = build_program(program)
    for m, n in (*product((0, 1, 3), (0, 1, 2, 3)), (5, 6), (2, 37), (4, 65), (3, 67)):
        inputs = random_inputs(program, n, sizes={"m": m, "n": n})
        want = evaluate_program(program, inputs, {"m": m, "n": n})["Y"]
        arrays = [guarded_copy(inputs[i.name], True) for i in program.inputs]
        np.testing.assert_array_equal(function(*arrays)[0], want, err_msg=f"{m}, {n}")


@pytest.mark.parametrize("body", BODIES)
def test_default_schedules_of_a_gpu(body):
    program = parse_program((HEAD + body + "\nreturn Y\n").lstrip())
    nest = lower(autoschedule(program, replace(WIDE, kind="cuda")))
    for m, n in ((0, 0), (2, 1), (3, 2), (5, 7)):
        inputs = random_inputs(program, n, sizes={"m": m, "n": n})
        want = evaluate_program(program, inputs, {"m": m, "n": n})["Y"]
        np.testing.assert_array_equal(outputs(nest, program, inputs, {"m": m, "n": n})["Y"], want)


def test_intermediates_below_zero_take_no_memory():
    program = parse_program((HEAD + BODIES[8] + "\nreturn Y\n").lstrip())
    for buffer in lower(plain(HEAD + BODIES[8] + "\nreturn Y\n")).workspace:
        assert all(extent_value(e, {"m": 1, "n": 2}) >= 0 for e in buffer.shape)
    assert build_program(program).workspace_bytes(m=1, n=2) >= 0


def test_the_rest_of_parallel_blocks_of_a_scatter_is_parallel_along_axes_that_do_not_meet():
    text = """
sizes(b)
Y: f64[b] = scatter({(i,): 1.0 for i in range(b) for j in range(b)}, combine="sum")
return Y
"""
    s = plain(text)
    s["Y"].split("i", 4, "peel")
    s["Y"].reorder("i_o", "j", "i_i")
    s["Y"].parallel("i_o")
    assert str(lower(s)).count("parallel(") == 1
    assert not prove(lower(s)).refuted


@pytest.mark.parametrize("shift", range(1, 10))
def test_loops_that_differ_in_a_size_and_a_literal_are_two_functions(shift):
    """A loop up to a literal, and one up to a size that would be the name of that number: as one they wrote behind the end."""
    b = te.dim("b")
    x = te.placeholder((b,), name="x")
    function = te.build(te.compute((b,), lambda i: x.read(i - shift, outside="clamp"), name="y"), [x])
    for count in (*range(1, 12), 31, 32, 70):
        given = np.arange(count, dtype=np.float32)
        memory = np.full(count + 16, -1.0, np.float32)
        function(guarded_copy(given, True), out=memory[:count])
        np.testing.assert_array_equal(memory[:count], given[np.maximum(np.arange(count) - shift, 0)])
        assert (memory[count:] == -1.0).all()


PRODUCT = """
sizes(b, m, k, n)
x: f32[b, m, k] = input()
y: f32[b, k, n] = input()
z[s, i, j]: f32[b, m, n] = sum(x[s, i, q] * y[s, q, j] for q in range(k))
return z
"""


def test_sizes_below_a_block_have_single_rows_and_half_the_lanes():
    """Rows that are each tested, and all lanes under a mask, took 3.3 times as long as fixed code for products of 8 x 8."""
    s = plain(PRODUCT)
    s["z"].split("i", 4, "shift")
    s["z"].split("j", 16, "shift")
    s["z"].reorder("s", "j_o", "i_o", "q", "i_i", "j_i")
    s["z"].unroll("i_i")
    s["z"].vectorize("j_i")
    nest = lower(s)
    text = str(nest)
    assert "i_i < m" not in text and "n - 15" not in text and "m - 3" not in text
    assert "if n > 8:" in text and "vectorize(range(0, 8))" in text
    assert prove(nest).is_clean
    for m, n in (*product((0, 1, 2, 3, 4, 5, 9), (0, 1, 7, 8, 9, 15, 16, 17, 33)), (8, 8)):
        for k in (0, 3):
            sizes = {"b": 2, "m": m, "k": k, "n": n}
            inputs = random_inputs(s.program, m + n, sizes=sizes)
            want = evaluate_program(s.program, inputs, sizes)
            np.testing.assert_allclose(outputs(nest, s.program, inputs, sizes)["z"], want["z"], rtol=1e-5, atol=1e-6, err_msg=str(sizes))


def test_a_sum_over_open_taps_goes_over_the_taps():
    """It went over all places of the other operand, a number of iterations that grows with their square."""
    text = """
sizes(n, r)
head: f32[n] = input()
w: f32[r] = input()
y[p]: f32[n + r - 1] = sum(head[p - q] * w[q] for q in range(maximum(p - n + 1, 0), minimum(p + 1, r)))
return y
"""
    program = parse_program(text.lstrip())
    assert "for q in range(0, n" not in str(lower(autoschedule(program, WIDE)))
    function = build_program(program)
    for n, r in ((1, 1), (0, 3), (1, 9), (7, 3), (33, 40), (70, 2), (64, 1), (200, 65)):
        inputs = random_inputs(program, n, sizes={"n": n, "r": r})
        arrays = [guarded_copy(inputs[i.name], True) for i in program.inputs]
        want = evaluate_program(program, inputs, {"n": n, "r": r})["y"]
        np.testing.assert_allclose(function(*arrays)[0], want, rtol=1e-4, atol=1e-5, err_msg=f"{n}, {r}")


@pytest.mark.parametrize("lanes", [16, 32, 64])
@pytest.mark.parametrize("kind", ["sum", "max", "prod", "any"])
def test_the_rest_of_a_sum_in_lanes_runs_in_parts_of_them(kind, lanes):
    value = "B[i, j + 3] > 4.0" if kind == "any" else "B[i, j + 3]"
    s = plain(HEAD + f"Y[i]: {'bool' if kind == 'any' else 'f32'}[m] = {kind}({value} for j in range(n - 2))\nreturn Y")
    s["Y"].split("j", lanes, "guard")
    s["Y"].vectorize("j_i")
    nest = lower(s)
    summed = [s.body[0] for s in statements(nest.kernels[0].body) if isinstance(s, For) and s.index == "j_o"]
    assert {integer(s.stop) for s in summed} == ({lanes, lanes // 4} if lanes >= 32 else {lanes})
    assert prove(nest).is_clean
    for n in (0, 1, 2, 3, 9, lanes + 1, lanes + 2, lanes + 3, 2 * lanes + lanes // 4 + 2, 130):
        assert_means(s, m=2, n=n)
