"""Reductions down columns: neighboring threads read neighboring elements, and there are parts enough for all multiprocessors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tensorexpr.codegen.auto.search.memory import lowered as lower
from tensorexpr.codegen.cuda.emitter.nest import emit
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule.decisions import Choices, Decisions
from tensorexpr.codegen.target import H200
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tests.codegen.cuda.device import needs_compiler, run
from tests.random_programs import random_inputs


def columns(rows: int, count: int, reduction: str = "sum(X[i, j] for i in range(ROWS))") -> str:
    return f"""
X: f32[{rows}, {count}] = input()
y[j]: f32[{count}] = {reduction.replace("ROWS", str(rows))}
return y
"""


def test_there_are_parts_for_all_multiprocessors():
    s = autoschedule(parse_program(columns(4096, 4096)), H200)
    launches = emit(verify_nest(lower(s))).launches
    assert s.stages == ("y_parts", "y") and all(launch.cut for launch in launches)
    assert launches[0].iterations[0].value >= 64 * 1024
    assert "y_parts[i_o, j]" in str(s.state.program)


def test_many_columns_or_short_ones_are_left_whole():
    for text in (columns(4096, 1 << 18), columns(64, 4096), columns(4096, 8)):
        assert autoschedule(parse_program(text), H200).stages == ("y",), text
    asked = Decisions(Choices({"y: columns in parts": "no"}))
    assert autoschedule(parse_program(columns(4096, 4096)), H200, asked).stages == ("y",)


@needs_compiler
@pytest.mark.parametrize(
    "text",
    [
        columns(300, 40),
        columns(257, 33, "max(X[i, j] for i in range(ROWS))"),
        columns(300, 40, "sum(X[i, j] * X[i, j] for i in range(ROWS)) + max(X[i, j] for i in range(ROWS))"),
    ],
)
def test_results_are_those_of_the_interpreter(text):
    s = autoschedule(parse_program(text), replace(H200, cores=2))
    assert len(s.stages) > 1
    inputs = random_inputs(s.program, 3)
    (want,) = evaluate_program(s.program, inputs).values()
    (got,) = run(verify_nest(lower(s)), inputs, order=1).values()
    np.testing.assert_array_equal(got, want)


WEIGHTS = """
x: f32[4, 30, 30, 40] = input()
g: f32[4, 30, 30, 40] = input()
y[i, j, p, k]: f32[3, 3, 1, 40] = sum(
    g[n, r, s, k] * x[n, i + r - 1, j + s - 1, k]
    for n in range(4)
    for r in range(maximum(1 - i, 0), minimum(31 - i, 30))
    for s in range(maximum(1 - j, 0), minimum(31 - j, 30))
)
return y
"""
GAUSSIAN = """
x: f32[50, 3] = input()
z: f32[300, 3] = input()
b: f32[300] = input()
y[i, c]: f32[50, 1] = sum(exp(-sum((x[i, k] - z[j, k]) * (x[i, k] - z[j, k]) for k in range(3))) * b[j] for j in range(300))
return y
"""
SPREAD = """
x: f32[300, 50, 7] = input()
y[j, k]: f32[50, 3] = sum(x[i, j, k] for i in range(300))
return y
"""


@needs_compiler
@pytest.mark.parametrize(("text", "stages"), [(WEIGHTS, 3), (GAUSSIAN, 2)])
def test_sums_over_several_axes_and_for_neighbors_along_several(text, stages):
    s = autoschedule(parse_program(text), H200)
    assert len(s.stages) == stages, s.stages
    inputs = random_inputs(s.program, 3)
    (want,) = evaluate_program(s.program, inputs).values()
    (got,) = run(verify_nest(lower(s)), inputs, order=1).values()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_neighbors_far_apart_are_no_columns():
    assert autoschedule(parse_program(SPREAD), H200).stages == ("y",)


TWO_IN_A_ROW = """
x: f32[ROWS, COLUMNS] = input()
mean[j]: f32[COLUMNS] = sum(x[i, j] for i in range(ROWS)) / ROWS.0
scaled[j]: f32[COLUMNS] = mean[j] * 0.5
var[j]: f32[COLUMNS] = sum((x[i, j] - scaled[j]) * (x[i, j] - mean[j]) for i in range(ROWS))
return var, mean
"""


def test_sums_in_a_row_are_each_in_parts():
    """No block has a column: it would read lines of 32 bytes for one element each."""
    text = TWO_IN_A_ROW.replace("ROWS", "4096").replace("COLUMNS", "4096")
    launches = emit(verify_nest(lower(autoschedule(parse_program(text), H200)))).launches
    assert all(launch.cut for launch in launches) and len(launches) >= 4, launches


@needs_compiler
def test_results_of_sums_in_a_row(monkeypatch):
    monkeypatch.setattr("tensorexpr.codegen.planners.default.LONG_SUM", 1 << 12)
    s = autoschedule(parse_program(TWO_IN_A_ROW.replace("ROWS", "301").replace("COLUMNS", "37")), replace(H200, cores=2))
    assert any(name.startswith("mean_parts") for name in s.stages)
    inputs = random_inputs(s.program, 3)
    want = evaluate_program(s.program, inputs)
    for name, array in run(verify_nest(lower(s)), inputs, order=1).items():
        np.testing.assert_allclose(array, want[name], rtol=1e-5, atol=1e-5)
