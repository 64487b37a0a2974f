"""Loops bound to the lanes of a warp: what the text says, the same values in any order of threads, no barrier of the block, no spill."""

from __future__ import annotations

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.codegen.auto.search.memory import lowered as lower
from tensorexpr.codegen.cuda.emitter.source import Source
from tensorexpr.codegen.cuda.nvidia import nvrtc
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import Planned, schedule
from tensorexpr.codegen.target import H200
from tensorexpr.errors import InternalError
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tests.codegen.cuda.device import Program, compiled_together, needs_compiler
from tests.codegen.programs import planned
from tests.random_programs import random_inputs

# Rows that no thread has alone, and reductions of several dtypes.
ROWS = """
X: f32[13, 70] = input()
m[i]: f32[13] = max(X[i, k] for k in range(70))
e[i, j]: f32[13, 70] = X[i, j] - m[i]
s[i]: f32[13] = sum(e[i, 69 - k] for k in range(70))
Y[i, j]: f32[13, 70] = e[i, j] * s[i]
return Y
"""
SEVERAL = """
X: f16[2, 3, 40] = input()
a[p, q]: i64[2, 3] = argmax(X[p, q, k] for k in range(40))
b[p, q]: f16[2, 3] = sum(X[p, q, k] for k in range(40) if k != 7)
c[p, q]: bool[2, 3] = any(X[p, q, k] > f16(2.0) for k in range(40))
d[p, q]: f64[2, 3] = prod(f64(X[p, q, k % 40]) for k in range(20))
return a, b, c, d
"""


def rows(*around: tuple[str, str], of: str = "i") -> Planned:
    """Softmax-like rows, in the loops `around` and the lanes of warps."""
    s = schedule(parse_program(ROWS), H200)
    for name in ("s", "e", "m"):
        s[name].compute_at("Y", of)
    for name, axis in (("m", "k"), ("e", "j"), ("s", "k"), ("Y", "j")):
        s[name].bind(s[name].split(axis, 32, "guard")[-1], "warp")
    for loop, axis in around:
        s["Y"].parallel(loop) if axis == "parallel" else s["Y"].bind(loop, axis)
    return s


def several() -> Planned:
    """Lanes of one warp, of a part of one, and warps along two axes of a block."""
    s = schedule(parse_program(SEVERAL), H200)
    for name, axes in (
        ("a", ("block.y", "block.x")),
        ("b", ("thread.z", "thread.y")),
        ("c", ("block.x", "thread.y")),
        ("d", ("thread.z", "block.x")),
    ):
        for loop, axis in zip(("p", "q"), axes, strict=True):
            if name != "d":
                s[name].bind(loop, axis)
        lane = "k" if name == "d" else s[name].split("k", 16 if name == "b" else 32, "peel")[-1]
        s[name].bind(lane, "warp")
    return s


def mixed() -> Planned:
    """Beside lanes of a warp a definition with threads of its own: then all are loops of threads."""
    s = rows(("i", "block.x"))
    stage = s.state.stage("e")
    s["e"].bind(stage.order[-1], "thread.x")
    return s


def program(s: Planned, prefix: str = "") -> Program:
    return Program(verify_nest(lower(s)), prefix)


@needs_compiler
def test_warps_give_the_results_of_the_interpreter():
    given = [rows(("i", "parallel")), rows(("i", "block.x")), rows(("i", "thread.y")), rows(), several(), mixed()]
    made = [program(s, f"w{k}_") for k, s in enumerate(given)]
    compiled_together(made)
    for number, (s, run) in enumerate(zip(given, made, strict=True)):
        inputs = random_inputs(s.program, number)
        want = evaluate_program(s.program, inputs)
        for order in (0, 1, 5):
            got = run(inputs, order=order)
            for name in s.program.outputs:
                np.testing.assert_array_equal(got[name].astype(np.float64), want[name].astype(np.float64), err_msg=f"{number} {name}")


@pytest.mark.parametrize("axis", ["parallel", "block.x"])
def test_iterations_of_the_grid_share_a_block(axis):
    made = program(rows(("i", axis))).source
    (launch,) = made.launches
    assert launch.threads == (32, 8, 1) and launch.blocks([e.value for e in launch.iterations]) == (2, 1, 1)
    for line in ("const int i = (int)(blockIdx.x * 8u + threadIdx.y);", "if (i >= 13) return;", "const int j_i = (int)threadIdx.x;"):
        assert line in made.text
    # A row that several lanes read is the warp's own, behind barriers of warps alone; sums go by shuffles.
    assert "float e_1[8][72];" in made.text and "__syncwarp();" in made.text and "__syncthreads" not in made.text
    assert made.text.count("te_shuffle_down") == 10


def test_warps_that_a_schedule_asks_for():
    (launch,) = program(rows(("i", "thread.y"))).source.launches
    assert launch.threads == (32, 13, 1) and launch.blocks([e.value for e in launch.iterations]) == (1, 1, 1)
    assert [launch.threads for launch in program(several()).source.launches] == [(32, 3, 1), (32, 3, 2), (32, 3, 1), (32, 1, 1)]
    text = program(mixed()).source.text
    assert "te_shuffle" not in text and "__syncthreads();" in text


def test_shared_memory_bounds_the_warps_of_a_block():
    text = ROWS.replace("70", "4000").replace("69", "3999")
    s = schedule(parse_program(text), H200)
    for name in ("s", "e", "m"):
        s[name].compute_at("Y", "i")
    for name, axis in (("m", "k"), ("e", "j"), ("s", "k"), ("Y", "j")):
        s[name].bind(s[name].split(axis, 32)[-1], "warp")
    s["Y"].parallel("i")
    (launch,) = program(s).source.launches
    assert launch.threads == (32, 3, 1)  # 16 KB each


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")
def test_machine_code_of_warps_waits_for_no_barrier_of_the_block():
    made = nvrtc.compile_text(program(rows(("i", "parallel"))).source.text, "sm_80")
    (found,) = made.resources.values()
    assert not found.spill_stores and not found.stack and found.shared == 8 * 72 * 4
    assert "shfl.sync.down" in made.ptx and "bar.warp.sync" in made.ptx and "bar.sync" not in made.ptx


def test_short_rows_are_a_warp_each_by_default():
    """Softmax and a norm with their gradients: where there are rows enough, and where they are no longer than a warp is wide."""
    for (count, length), threads in (
        ((4096, 256), (32, 8, 1)),
        ((4096, 1100), (256, 1, 1)),
        ((300, 256), (64, 1, 1)),
        ((300, 32), (32, 8, 1)),
    ):
        x, g = te.placeholder((count, length), name="x"), te.placeholder((count, length), name="g")
        for y in (kernels.softmax(x), kernels.rms_norm(x, te.placeholder((length,), name="weight"))):
            outputs = [y, *te.gradient(y, [x], g)]
            source = Program(verify_nest(lower(autoschedule(simplify(te.program_of(outputs)), H200)))).source
            assert threads in [launch.threads for launch in source.launches]
            if threads[1] == 8:
                assert "__syncthreads" not in source.text and "te_shuffle_down" in source.text


@needs_compiler
def test_rows_of_a_warp_need_its_barriers():
    s = rows(("i", "parallel"))
    made = Program(verify_nest(lower(s)), on_cpu=True)  # where what is missing is seen
    made.source = Source(made.source.text.replace("__syncwarp();", ""), made.source.plan)
    with pytest.raises(InternalError, match="of shared memory"):
        made(random_inputs(s.program, 0))


@needs_compiler
def test_as_many_rows_as_a_run_has(monkeypatch):
    monkeypatch.setenv("TENSOREXPR_CUDA", "host")
    n = te.dim("n")
    x = te.placeholder((n, 96), name="x")
    s = planned(te.compute((n,), lambda i: te.sum(lambda k: x[i, k], 96), name="y"), "cuda")
    s["y"].bind(s["y"].split("k", 32)[-1], "warp")
    s["y"].bind("i", "block.x")
    f = te.build(s, [x])
    assert "blockIdx.x * 8 + threadIdx.y" in f.source("cuda")
    for count in (0, 1, 8, 13):
        a = np.arange(count * 96, dtype=np.float32).reshape(count, 96) % 7
        np.testing.assert_array_equal(f(a), a.sum(1))
