"""Rows on a GPU: several axes of a reduction are one row where the last is short; few long rows have a block for each of their parts."""

from __future__ import annotations

import numpy as np
import pytest

from tensorexpr.codegen.auto.search.memory import lowered as lower
from tensorexpr.codegen.cuda.emitter.nest import emit
from tensorexpr.codegen.cuda.emitter.source import Source
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.planners.tiles import parts as auto_parts
from tensorexpr.codegen.planners.tiles import threads as auto_gpu_rows
from tensorexpr.codegen.target import H200
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tensorexpr.records import replace
from tests.codegen.cuda.device import Program, needs_compiler, run
from tests.random_programs import random_inputs

ODD = """
x: f32[5, 9, 11] = input()
w: f32[11] = input()
s[i]: f32[5] = sum(x[i, h, k] * w[k] for h in range(9) for k in range(11))
y[i, h, k]: f32[5, 9, 11] = x[i, h, k] - s[i]
return y
"""


def softmax(rows: int, length: int) -> str:
    top = f"max(x[i, k] for k in range({length}))"
    return f"""
x: f32[{rows}, {length}] = input()
top[i]: f32[{rows}] = where(isinf({top}), 0.0, {top})
scale[i]: f32[{rows}] = sum(exp(x[i, k] - top[i]) for k in range({length}))
y[i, j]: f32[{rows}, {length}] = exp(x[i, j] - top[i]) / scale[i]
return y
"""


def channels(n: int, c: int, h: int, w: int) -> str:
    return f"""
x: f32[{n}, {c}, {h}, {w}] = input()
s[c]: f32[{c}] = sum(x[n, c, h, w] * x[n, c, h, w] for n in range({n}) for h in range({h}) for w in range({w}))
return s
"""


def made(text: str) -> tuple[Source, tuple[str, ...]]:
    s = autoschedule(parse_program(text), H200)
    return emit(verify_nest(lower(s))), s.stages


@pytest.mark.parametrize("rows", [512, 1 << 14])
def test_a_softmax_is_one_kernel_a_block_or_a_warp_for_each_row(rows):
    source, stages = made(softmax(rows, 1000))
    (launch,) = source.launches
    assert stages == ("top", "scale", "y") and launch.blocks([int(n.value) for n in launch.iterations])[0] in (rows, rows // 8)


def test_few_long_rows_have_many_blocks_each_of_which_reads_its_part_alone():
    source, stages = made(softmax(8, 1 << 20))
    assert stages == ("top_parts", "top", "scale_parts", "scale", "y")
    (parts, _, _), *_ = ([int(n.value) for n in launch.iterations] for launch in source.launches)
    assert parts == 1024 and source.text.count("te_load(") >= 3


@needs_compiler
def test_a_sum_over_a_triangle_has_parts(monkeypatch):
    monkeypatch.setattr(auto_gpu_rows, "PART_OF_ROW", 64)
    program = parse_program("x: f32[90, 90] = input()\nS: f32 = sum(x[k, j] for k in range(90) for j in range(k))\nreturn S")
    monkeypatch.setattr(auto_parts, "LEAST_WORK", 64)
    s = autoschedule(program, H200)
    assert s.stages == ("S_parts", "S")
    inputs = random_inputs(program, 0)
    got = run(verify_nest(lower(s)), inputs)["S"]
    np.testing.assert_allclose(got, np.tril(inputs["x"], -1).sum(dtype=np.float64), rtol=1e-5)


def test_the_elements_of_a_channel_are_one_row():
    source, stages = made(channels(32, 64, 56, 56))
    assert stages == ("s_parts", "s")
    parts = source.text.split("}\n\n")[0]
    assert source.launches[0].threads == (256, 1, 1) and "te_load(t0, &x[" in parts and " % " not in parts.split("te_load")[1].split(";")[0]


WINNERS = "x: f32[4, 300] = input()\ny[i]: i64[4] = argmax(x[i, k] for k in range(300))\nreturn y"


def test_argmax_has_a_block_for_each_row_too():
    source, _ = made(WINNERS)
    (launch,) = source.launches
    assert launch.threads == (256, 1, 1) and "te_shuffle_down" in source.text
    assert "? k_i + k_o * 256 :" in made(WINNERS.replace("300", "1000"))[0].text  # numbers of points are plain 32-bit arithmetic


@needs_compiler
def test_the_first_of_equal_ones_wins_and_nan_before_all():
    program = Program(verify_nest(lower(autoschedule(parse_program(WINNERS), H200))))
    x = np.zeros((4, 300), np.float32)
    x[1, 290], x[2, [40, 270]], x[3, [7, 263, 264]] = 1, np.nan, [5, 5, 5]
    for order in range(3):
        (got,) = program({"x": x}, order=order).values()
        np.testing.assert_array_equal(got, [0, 290, 40, 7])


@needs_compiler
@pytest.mark.parametrize("text", [ODD, channels(3, 2, 6, 7), softmax(3, 300)])
@pytest.mark.parametrize("parts", [1 << 12, 8])
def test_results_are_those_of_the_interpreter(text, parts, monkeypatch):
    monkeypatch.setattr(auto_gpu_rows, "LONG", 8)
    monkeypatch.setattr(auto_gpu_rows, "PART_OF_ROW", parts)
    monkeypatch.setattr(auto_gpu_rows, "FEW_PARTS", 2)
    s = autoschedule(parse_program(text), H200)
    inputs = random_inputs(s.program, 3)
    (want,) = evaluate_program(s.program, inputs).values()
    (got,) = run(verify_nest(lower(s)), inputs, order=1).values()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def softmax_of_triangles(batch: int, rows: int) -> str:
    """What causal attention makes of its scores: rows that end at the diagonal, of several batches."""
    return f"""
score: f32[{batch}, {rows}, {rows}] = input()
v: f32[{batch}, {rows}, 3] = input()
top[b, i]: f32[{batch}, {rows}] = max(score[b, i, d] for d in range(i + 1))
weight[b, i, k]: f32[{batch}, {rows}, {rows}] = where(k <= i, exp(score[b, i, k] - top[b, i]), 0.0)
total[b, i]: f32[{batch}, {rows}] = sum(weight[b, i, d] for d in range(i + 1))
y[b, i, e]: f32[{batch}, {rows}, 3] = sum(weight[b, i, d] * v[b, d, e] for d in range(i + 1)) / total[b, i]
return y
"""


@pytest.mark.parametrize("batch, rows", [(4, 130), (64, 260), (1, 600)])
@needs_compiler
def test_rows_of_several_batches_that_end_at_the_diagonal_are_a_block_each(batch, rows):
    """The softmax of causal attention was one kernel of one thread: what all rows need was computed between the loops over the batch and
    over rows, which were then neither a grid nor one loop."""
    program = parse_program(softmax_of_triangles(batch, rows))
    nest = lower(autoschedule(program, replace(H200, cores=1)))  # a GPU for which these rows are many
    source = emit(verify_nest(nest))
    sizes = [(step.blocks([int(e.value) for e in step.iterations]), step.threads) for step in source.launches]
    assert all(threads != (1, 1, 1) for _, threads in sizes) and any(blocks[0] * blocks[1] >= batch * rows for blocks, _ in sizes)
    if batch == 4:
        arrays = random_inputs(program, 0)
        score = np.where(np.tri(rows, dtype=bool), arrays["score"].astype(np.float64), -np.inf)
        weight = np.exp(score - score.max(-1, keepdims=True))
        np.testing.assert_allclose(run(nest, arrays)["y"], weight @ arrays["v"] / weight.sum(-1, keepdims=True), rtol=2e-5, atol=1e-6)
