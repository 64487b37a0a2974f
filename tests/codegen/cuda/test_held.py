"""Rows that a block goes through several times are read once, neighbors at once; and what may not be held is read again."""

from __future__ import annotations

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.codegen.cuda import nvrtc
from tensorexpr.codegen.cuda.emit import emit
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest_verify import verify_nest
from tensorexpr.codegen.schedule import Schedule, autoschedule
from tensorexpr.codegen.target import H200
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Program
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tests.codegen.cuda.device import Program as Made
from tests.codegen.cuda.device import compiled_together, needs_compiler
from tests.random_programs import random_inputs


def softmax(rows: int, columns: int, dtype: str = "float32") -> Program:
    x, g = te.placeholder((rows, columns), dtype, name="x"), te.placeholder((rows, columns), dtype, name="g")
    y = kernels.softmax(x)
    return simplify(te.program_of([y, *te.gradient(y, [x], g)], [x, g]))


def text_of(s: Schedule) -> str:
    return emit(verify_nest(lower(s))).text


NORM = """
x: f32[1, {0}] = input()
m[i]: f32[1] = sum(x[i, j] for j in range({0})) / {0}.0
v[i]: f32[1] = sum((x[i, k] - m[i]) * (x[i, k] - m[i]) for k in range({0})) / {0}.0
y[i, l]: f32[1, {0}] = (x[i, l] - m[i]) * rsqrt(v[i] + 1.0)
return y
"""
SHIFTED = """
x: f32[1, 2049] = input()
m[i]: f32[1] = max(x[i, j] for j in range(2048))
y[i, l]: f32[1, 2048] = x[i, l + 1] - m[i]
return y
"""


@needs_compiler
def test_results_are_those_of_the_interpreter():
    programs = {
        "whole": softmax(2, 1024),
        "part_of_the_lanes": softmax(1, 1000),
        "bf16": softmax(1, 2048, "bfloat16"),
        "norm": parse_program(NORM.format(1536)),
        "shifted": parse_program(SHIFTED),
    }
    made = {name: Made(verify_nest(lower(autoschedule(p, H200))), f"{name}_") for name, p in programs.items()}
    compiled_together(list(made.values()))
    for word, program in programs.items():
        inputs = random_inputs(program, 7)
        want = evaluate_program(program, inputs)
        for order in (0, 5):
            got = made[word](inputs, order=order)
            for name, array in want.items():
                tolerance = 1e-5 if array.dtype == np.float32 else 2e-2
                np.testing.assert_allclose(got[name].astype(np.float64), array.astype(np.float64), rtol=tolerance, atol=tolerance)


def test_every_array_is_gone_through_once():
    text = text_of(autoschedule(softmax(16384, 8192), H200))
    assert text.count("te_load(") == text.count("te_store(") == 2 and text.count("&x[") == text.count("&g[") == 1
    assert "float x_row[8][4];" in text and "float g_row[8][4];" in text


def test_what_is_shifted_or_too_long_is_read_again():
    shifted = text_of(autoschedule(parse_program(SHIFTED), H200))
    assert "x_row" not in shifted and "te_load" not in shifted
    long = text_of(autoschedule(softmax(16384, 1 << 15), H200))
    assert "x_row" not in long and "te_load" in long


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_rows_are_in_registers(arch):
    made = nvrtc.compile_text(text_of(autoschedule(softmax(16384, 8192), H200)), arch)
    (found,) = made.resources.values()
    assert not found.spill_stores and not found.stack and found.registers <= 128
    lines = [line.strip() for line in made.ptx.splitlines()]
    for word in ("ld.global", "st.global"):
        assert sum(line.startswith(word) for line in lines) == sum(line.startswith(word) and ".v4" in line for line in lines) == 16
