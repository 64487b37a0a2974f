"""Products with few results and long reductions, taken apart so that all multiprocessors have tiles: the same results, and no spills."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tensorexpr.codegen.auto.search.memory import lowered as lower
from tensorexpr.codegen.cuda.emitter.nest import emit
from tensorexpr.codegen.cuda.nvidia import nvrtc
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.planners.gpu import parts as parts_of
from tensorexpr.codegen.schedule.decisions import Choices, Decisions
from tensorexpr.codegen.target import H200
from tensorexpr.errors import TargetError
from tensorexpr.parse import parse_program
from tests.codegen.cuda.device import needs_compiler
from tests.codegen.cuda.test_products import assert_means

FEW = replace(H200, cores=24)
PRODUCT = """
A: {dtype}[{m}, {k}] = input()
B: {dtype}[{k}, {n}] = input()
C[i, j]: {dtype}[{m}, {n}] = sum(A[i, r] * B[r, j] for r in range({k}))
return C
"""
WEIGHTS = """
X: bf16[{n}, 32, 6, 34] = input()
G: bf16[{n}, 32, 6, 32] = input()
W[k, c, r]: f32[32, 32, 3] = sum(
    f32(G[n, k, y, z]) * f32(X[n, c, y, z + r]) for n in range({n}) for y in range(6) for z in range(32)
)
return W
"""
"""The gradient of a convolution by its weights: few results, of all points of all images."""


TRANSPOSED = """
G: f32[2, 32, 36, 36] = input()
X: f32[2, 32, 18, 18] = input()
W[c, k, p, q]: f32[32, 32, 3, 3] = sum(
    G[n, k, r * 2 - p + 1, s * 2 - q + 1] * X[n, c, r - p + 1, s - q + 1]
    for n in range(2)
    for r in range(p // 2, p + 17)
    for s in range(q // 2, q + 17)
)
return W
"""
"""The same of a transposed convolution: bounds are those of a block, which tests a step's points for all its threads."""


def product(dtype: str, m: int, k: int, n: int) -> str:
    return PRODUCT.format(dtype=dtype, m=m, k=k, n=n)


@needs_compiler
@pytest.mark.parametrize(
    "text, tensor_cores",
    [
        (product("bf16", 16, 512, 128), True),  # thin: one row of an instruction
        (product("bf16", 64, 512, 64), True),
        (product("f16", 13, 512, 72), True),  # with ends
        (product("f32", 64, 512, 64), False),
        (product("f64", 64, 512, 32), True),
        (WEIGHTS.format(n=8), True),
        (TRANSPOSED, False),
    ],
    ids=["16 rows", "bf16", "ends", "f32", "f64", "weights", "transposed"],
)
def test_a_long_product_with_few_results_has_parts(text, tensor_cores, monkeypatch):
    monkeypatch.setattr(parts_of, "LAUNCH", 10)  # small ones count as large
    s = autoschedule(parse_program(text), FEW)
    (name,) = [n for n in s.state.table if n.endswith("_parts")]
    found = assert_means(s)
    assert ("te_mma_" in found) == tensor_cores
    assert f"_{name}(" in found
    (parts, *_) = s.state.program.types[name].shape
    assert 2 <= int(parts.value) <= 256


@pytest.mark.parametrize(
    "text",
    [product("bf16", 2048, 256, 2048), product("f32", 1024, 1024, 1024), product("bf16", 64, 96, 64), product("f32", 64, 96, 64)],
    ids=["many results", "many results f32", "short", "short f32"],
)
def test_products_that_fill_the_machine_or_are_short_are_left_whole(text):
    s = autoschedule(parse_program(text), FEW)
    assert not [name for name in s.state.table if name.endswith("_parts")]


def test_one_may_ask_for_the_whole():
    program = parse_program(product("bf16", 64, 8192, 64))
    assert "C_parts" in autoschedule(program, FEW).state.table
    asked = Decisions(Choices({"C: product in parts": "no", "C: columns in parts": "no"}))
    assert "C_parts" not in autoschedule(program, FEW, asked).state.table


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")
@pytest.mark.parametrize("m, k, n", [(16, 4096, 4096), (256, 8192, 256)])
def test_parts_are_on_tensor_cores_without_spills(m, k, n):
    s = autoschedule(parse_program(product("bf16", m, k, n)), H200)
    made = nvrtc.compile_text(emit(verify_nest(lower(s))).text, "sm_90")
    assert all(r.spill_stores + r.spill_loads + r.stack == 0 for r in made.resources.values())
    try:
        assert made.sass().count("HMMA") >= 8
    except TargetError:
        assert "te_mma_bf16" in emit(lower(s)).text
    assert np.prod([int(e.value) for e in s.state.program.types["C_parts"].shape]) <= m * n * 64
