"""Transpositions through shared memory: whole lines on both sides, the same results at any extent, no spills."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.auto.gpus import H200 as H200_FACTS
from tensorexpr.codegen.auto.search.memory import lowered as lower
from tensorexpr.codegen.cuda.emitter.nest import emit
from tensorexpr.codegen.cuda.model.report import predictions
from tensorexpr.codegen.cuda.nvidia import nvrtc
from tensorexpr.codegen.gpu_code import GpuCode
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.target import H200
from tensorexpr.parse import parse_program
from tests.codegen.cuda.device import Program, needs_compiler
from tests.codegen.cuda.grids import evaluated
from tests.random_programs import random_inputs

SMALL = replace(H200, cores=1)
MATRIX = """
x: {dtype}[{m}, {n}] = input()
y[i, j]: {dtype}[{n}, {m}] = x[j, i]
return y
"""
LAST = """
x: {dtype}[3, 40, 7, 33] = input()
y[n, h, w, c]: {dtype}[3, 7, 33, 40] = x[n, c, h, w]
return y
"""
MIXED = """
x: f32[50, 70] = input()
b: f32[70, 50] = input()
c: f32[50] = input()
y[i, j]: f32[70, 50] = x[j, i] * 2.0 + b[i, j] + c[j]
return y
"""
REVERSED = """
x: f32[2, 64, 64] = input()
y[p, i, j]: f32[2, 64, 64] = x[p, 63 - j, i]
return y
"""
TWO = """
x: f32[64, 64] = input()
z: f32[64, 64] = input()
y[i, j]: f32[64, 64] = x[j, i] + z[j, i]
return y
"""


def matrix(m: int, n: int, dtype: str = "f32") -> str:
    return MATRIX.format(m=m, n=n, dtype=dtype)


@needs_compiler
@pytest.mark.parametrize(
    "text",
    [
        matrix(64, 96), matrix(65, 97), matrix(33, 130, "bf16"), matrix(128, 64, "f16"), matrix(70, 70, "i8"), matrix(40, 64, "f64"),
        LAST.format(dtype="f32"), LAST.format(dtype="bf16"), MIXED, REVERSED, TWO,
    ],
    ids=["whole", "ends", "bf16", "f16", "i8", "f64", "channels last", "channels last bf16", "mixed", "reversed", "two"],
)  # fmt: skip
def test_results_are_those_of_the_interpreter(text):
    s = autoschedule(parse_program(text), SMALL)
    inputs, made = random_inputs(s.program, 3), Program(verify_nest(lower(s)))
    assert "__shared__" in made.source.text
    (want,) = evaluated(s.program, inputs).values()
    for order in (0, 1, 5):
        (got,) = made(inputs, order=order).values()
        assert got.dtype == want.dtype and (got == want).all()


@needs_compiler
def test_open_extents_are_turned_around_too():
    n, m = te.dim("n"), te.dim("m")
    x = te.placeholder((n, m), name="x")
    y = te.compute((m, n), lambda i, j: x[j, i], name="y")
    s = autoschedule(te.program_of([y], [x]), SMALL)
    made = Program(verify_nest(lower(s)))
    assert "__shared__" in made.source.text
    for shape in ((1, 1), (40, 33), (3, 100), (0, 5)):
        data = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
        (got,) = made({"x": data}, {"n": shape[0], "m": shape[1]}).values()
        np.testing.assert_array_equal(got, data.T)


@pytest.mark.parametrize(
    "text",
    [
        matrix(64, 64).replace("x[j, i]", "x[i, j]"),
        matrix(4096, 8),
        matrix(64, 64).replace("x[j, i]", "x[j, i] + x[i, j]"),
        matrix(64, 64).replace("x[j, i]", "x[i // 2, j]"),
    ],
    ids=["straight", "short", "both ways", "rows"],
)
def test_others_are_not_turned_around(text):
    assert "__shared__" not in emit(verify_nest(lower(autoschedule(parse_program(text), SMALL)))).text


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")
@pytest.mark.parametrize("text, share", [(matrix(8192, 8192), 0.9), (matrix(8191, 8193), 0.9), (matrix(8192, 8192, "bf16"), 0.6)])
def test_lines_are_whole_by_prediction(text, share):
    s = autoschedule(parse_program(text), H200)
    code = GpuCode.of_schedule(s)
    made = code.compiled("sm_90")
    (one,) = predictions(code.source, made, code.nest, H200_FACTS)
    assert one.share(H200_FACTS) > share
    assert all(r.spill_stores + r.spill_loads == 0 for r in made.resources.values())
    assert "__shared__" in emit(lower(s)).text
