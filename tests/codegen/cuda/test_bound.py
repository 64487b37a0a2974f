"""Loops bound to the blocks and threads of a GPU: what the text says, how it is launched, and the same values."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.auto.search.memory import lowered as lower
from tensorexpr.codegen.cuda.block.arena import arena
from tensorexpr.codegen.cuda.emitter.nest import emit
from tensorexpr.codegen.cuda.emitter.source import Repeat
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import schedule
from tensorexpr.codegen.target import H200
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tests.codegen.cuda.device import Program, needs_compiler
from tests.codegen.programs import planned, tile
from tests.random_programs import random_inputs

pytestmark = needs_compiler
MATMUL = """
A: f32[13, 9] = input()
B: f32[9, 37] = input()
C[i, j]: f32[13, 37] = sum(A[i, k] * B[k, j] for k in range(9))
return C
"""
ROWS = """
x: f32[6, 5, 40] = input()
m[a, b]: f32[6, 5] = max(x[a, b, j] for j in range(40))
y[a, b, j]: f32[6, 5, 40] = x[a, b, j] - m[a, b]
return y
"""


def means(s) -> Program:
    """Runs the schedule in several orders of threads; gives its text."""
    inputs, made = random_inputs(s.program, 5), Program(verify_nest(lower(s)))
    (want,) = evaluate_program(s.program, inputs).values()
    for order in (0, 1, 5):
        (got,) = made(inputs, order=order).values()
        np.testing.assert_array_equal(got, want)
    return made


def test_a_grid_of_two_axes_with_blocks_of_two():
    s = schedule(parse_program(MATMUL), H200)
    tile(s["C"], "i", "j", (4, 16), "guard")
    for loop, axis in (("i_o", "block.y"), ("j_o", "block.x"), ("i_i", "thread.y"), ("j_i", "thread.x")):
        s["C"].bind(loop, axis)
    made = means(s)
    (launch,) = made.source.launches
    assert launch.threads == (16, 4, 1) and launch.blocks([e.value for e in launch.iterations]) == (3, 4, 1) and not launch.cut
    for line in ("i_o = (int)blockIdx.y;", "j_o = (int)blockIdx.x;", "i_i = (int)threadIdx.y;", "j_i = (int)threadIdx.x;"):
        assert line in made.source.text
    assert "__launch_bounds__(64)" in made.source.text and "__sync" not in made.source.text


def test_three_axes_and_what_is_computed_in_a_block():
    s = schedule(parse_program(ROWS), H200)
    s["m"].compute_at("y", "b")
    s["y"].bind("a", "block.z")
    s["y"].bind("b", "block.y")
    s["y"].bind("j", "thread.z")
    (launch,) = means(s).source.launches
    assert launch.threads == (1, 1, 40) and launch.blocks([e.value for e in launch.iterations]) == (1, 5, 6)


def test_threads_of_fewer_axes_leave_the_others_idle():
    s = schedule(parse_program(ROWS), H200)
    s["m"].compute_at("y", "a")
    for name, loop, axis in (("y", "a", "block.x"), ("y", "b", "thread.y"), ("y", "j", "thread.x"), ("m", "b", "thread.y")):
        s[name].bind(loop, axis)
    text = means(s).source.text
    assert "if (threadIdx.x == 0) {" in text and "b = (int)threadIdx.y;" in text and "__syncthreads();" in text


def test_loops_longer_than_the_third_axis_of_a_block_go_round():
    x = te.placeholder((3, 150), name="x")
    s = te.schedule(te.compute((3, 150), lambda i, j: x[i, j] * 2.0, name="y"), "cuda")
    s["y"].bind("i", "block.x")
    s["y"].bind("j", "thread.z")
    made = Program(verify_nest(s.nest))
    given = np.arange(450, dtype=np.float32).reshape(3, 150)
    np.testing.assert_array_equal(made({"x": given})["y"], 2 * given)
    assert made.source.launches[0].threads == (1, 1, 64)


def test_what_is_declared_has_room_for_where_it_begins():
    """The assembler takes 48 KiB, gaps between buffers included."""
    assert arena({"a": 24 << 10, "b": 24 << 10}) == ({}, 0)
    assert arena({"a": 1, "b": (48 << 10) - 1}) == ({"a": 0, "b": 128}, 128 + (48 << 10))


def test_blocks_without_threads_and_threads_without_blocks():
    s = schedule(parse_program(MATMUL), H200)
    s["C"].bind("i", "block.x")
    assert means(s).source.launches[0].threads == (1, 1, 1)
    s = schedule(parse_program(MATMUL), H200)
    s["C"].bind("j", "thread.x")
    (launch,) = means(s).source.launches
    assert launch.threads == (37, 1, 1) and launch.blocks([e.value for e in launch.iterations]) == (1, 1, 1)


def test_a_grid_of_sizes_known_when_it_runs(monkeypatch):
    monkeypatch.setenv("TENSOREXPR_CUDA", "host")
    n = te.dim("n")
    x = te.placeholder((n, 33), name="x")
    s = planned(te.compute((n, 33), lambda i, j: x[i, j] + 1, name="y"), "cuda")
    s["y"].bind("i", "block.x")
    s["y"].bind("j", "thread.x")
    f = te.build(s, [x])
    for count in (0, 1, 5):
        a = np.arange(count * 33, dtype=np.float32).reshape(count, 33)
        np.testing.assert_array_equal(f(a), a + 1)


@pytest.mark.parametrize("axis", ["block.x", "thread.y"])
def test_the_look_of_it(axis):
    s = schedule(parse_program(MATMUL), H200)
    s["C"].bind("i", axis)
    assert f"{axis.split('.')[0]}Idx.{axis[-1]}" in Program(verify_nest(lower(s))).source.text


def test_one_block_goes_through_the_steps_of_a_small_state():
    """A grid that is a block at most in every step is launched once for all steps; a larger one once a step."""
    h0, w, x = te.placeholder((50,), name="h0"), te.placeholder((50, 50), name="w"), te.placeholder((40, 50), name="x")

    def cell(t: te.Tensor, h: te.Tensor) -> te.Tensor:
        wide = te.compute((90,), lambda i: h[i % 50] + x[t, i // 2], name="wide")
        return te.compute((50,), lambda i: te.sum(lambda k: w[i, k] * wide[k + 40], 50) % 7.0, name="cell")

    program = simplify(te.program_of([te.scan(cell, h0, 40, name="h")], [h0, w, x]))
    run = Program(verify_nest(lower(autoschedule(program, H200))))
    assert not any(isinstance(step, Repeat) for step in run.source.plan) and "__syncthreads();" in run.source.text
    rng = np.random.default_rng(0)
    shapes = {"h0": (50,), "w": (50, 50), "x": (40, 50)}
    arrays = {i.name: rng.integers(-2, 3, shapes[i.name]).astype(np.float32) for i in program.inputs}
    (want,) = evaluate_program(program, arrays).values()
    for order in range(4):
        (got,) = run(arrays, order=order).values()
        np.testing.assert_array_equal(got, want)
    u0 = te.placeholder((300,), name="u0")
    large = te.scan(lambda t, u: te.compute((300,), lambda i: u[i] + u[299 - i]), u0, 40)
    plan = emit(verify_nest(lower(autoschedule(simplify(te.program_of([large], [u0])), H200)))).plan
    assert any(isinstance(step, Repeat) for step in plan)
