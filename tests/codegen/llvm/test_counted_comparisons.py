"""Comparisons that lanes add up under a mask of fixed lanes: LLVM's code generation ended the process over some of them."""

import numpy as np
import pytest

from tensorexpr.codegen.auto.machine import ZEN_4
from tensorexpr.codegen.auto.search import searched
from tensorexpr.codegen.nest.parse import parse_nest
from tensorexpr.parse import parse_program
from tests.codegen.llvm.nests import run

NEST = """main(T)
T: parameter(i32[9], written)

def kernel_0() -> T:
    for i in range(0, 9):
        parts: local(i32[8])
        for z in vectorize(range(0, 8)):
            parts[z] = 0
        for r in vectorize(range(0, 8)):
            if r < LANES:
                parts[r] = parts[r] + i32(i64(i * 3 + r * 2 < LIMIT))
        for u in vectorize(range(0, 4)):
            parts[u] = parts[u] + parts[u + 4]
        for v in vectorize(range(0, 2)):
            parts[v] = parts[v] + parts[v + 2]
        T[i] = parts[0] + parts[1]
"""


@pytest.mark.parametrize("limit", (31, 32, 33))
@pytest.mark.parametrize("lanes", (5, 7, 8))
def test_comparisons_are_counted(lanes, limit):
    nest = parse_nest(NEST.replace("LANES", str(lanes)).replace("LIMIT", str(limit)))
    found = run(nest, {"T": np.empty(9, np.int32)}, {})
    np.testing.assert_array_equal(found["T"], [sum(i * 3 + r * 2 < limit for r in range(lanes)) for i in range(9)])


POOL = """
x: f32[32, 32, 32] = input()
t[i, j, k]: f32[9, 9, 9] = (
    sum(
        x[i * 3 + a * 2, j * 3 + b * 2, k * 3 + c * 2]
        for a in range(minimum(16 - i * 3 // 2, 5)) for b in range(minimum(16 - j * 3 // 2, 5)) for c in range(minimum(16 - k * 3 // 2, 5))
    )
    / f32(
        i64(sum(i32(i64(i * 3 + r * 2 < 32)) for r in range(5)))
        * i64(sum(i32(i64(j * 3 + r * 2 < 32)) for r in range(5)))
        * i64(sum(i32(i64(k * 3 + r * 2 < 32)) for r in range(5)))
    )
)
return t
"""


def test_averages_over_windows_that_end_at_the_border():
    """ONNX's AveragePool with dilations and ceil_mode, whose nest ended the process."""
    nest = searched(parse_program(POOL), ZEN_4).nest
    x = np.random.default_rng(0).standard_normal((32, 32, 32), np.float32)
    found = run(nest, {nest.parameters[0].name: x, nest.parameters[1].name: np.empty((9, 9, 9), np.float32)}, {})
    windows = [[i * 3 + r * 2 for r in range(5) if i * 3 + r * 2 < 32] for i in range(9)]
    expected = np.array([[[x[np.ix_(a, b, c)].mean(dtype=np.float64) for c in windows] for b in windows] for a in windows])
    np.testing.assert_allclose(found[nest.writes[0]], expected, rtol=1e-5, atol=1e-6)
