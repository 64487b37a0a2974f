"""Definitions in the same loops compute what they compute in loops of their own; the default schedule finds them."""

import re

import numpy as np
import pytest

from tensorexpr.codegen.llvm import compile_nest, workspace_size
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest import Alloc, For, Store
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import schedule
from tensorexpr.codegen.target import H200
from tensorexpr.errors import ScheduleError
from tensorexpr.parse import parse_program
from tensorexpr.records import replace
from tests.codegen.programs import WIDE, assert_means, loops, plain, statements
from tests.random_programs import random_inputs

SUMS = """
X: f32[8, 6] = input()
Y[i, j]: f32[8, 6] = exp(X[i, j]) + 1.0
R[i]: f32[8] = sum(exp(X[i, k]) for k in range(6))
C[j]: f32[6] = sum(X[i, j] for i in range(8))
M[i]: f32[8] = R[i] * 2.0
Z[i]: f32[8] = sum(Y[i, k] * M[i] for k in range(6))
return Y, R, C, Z
"""


def test_loops_of_data_and_of_reductions_are_one():
    s = plain(SUMS)
    s["R"].compute_with("Y")
    nest = assert_means(s)
    assert nest.kernels[0].name == "Y R"
    assert loops(nest)[:2] == [("i", "serial"), ("j", "serial")]
    (outer,) = nest.kernels[0].body
    assert isinstance(outer, For) and [type(x) for x in statements(outer.body)] == [Alloc, Store, For, Store, Store, Store]


def test_what_no_loops_are_alike_with_follows():
    s = plain(SUMS)
    s["C"].compute_with("Y")
    nest = assert_means(s)
    assert [k.name for k in nest.kernels][:2] == ["Y C", "R"]
    s["Y"].parallel("i")
    assert [k.name for k in assert_means(s).kernels][:3] == ["Y", "R", "C"]


def test_a_definition_that_reads_another_finds_its_element_there():
    s = plain(
        "X: f32[9] = input()\nA[i]: f32[9] = exp(X[i])\nB[i]: f32[9] = A[i] * 2.0\n"
        "S[()]: f32[()] = sum(A[k] for k in range(9))\nreturn B, S"
    )
    s["B"].compute_with("A")
    s["S"].compute_with("A")
    nest = assert_means(s)
    assert [k.name for k in nest.kernels] == ["A B S"]
    assert not nest.workspace  # the element is all that is kept of A


@pytest.mark.parametrize("index, split", [("8 - i", 0), ("i", 3), ("(i + 1) % 9", 0)])
def test_a_definition_that_reads_other_elements_keeps_its_loops(index, split):
    s = plain(f"X: f32[9] = input()\nA[i]: f32[9] = exp(X[i])\nB[i]: f32[9] = A[{index}] * 2.0\nreturn B")
    if split:
        s["B"].split("i", split)
    s["B"].compute_with("A")
    assert [k.name for k in assert_means(s).kernels] == ["A", "B"]


def test_what_is_computed_in_the_loops_of_another_is_read_there():
    s = plain(SUMS)
    s["M"].compute_at("Z", "i")
    s["R"].compute_at("Z", "i")
    s["Y"].compute_with("Z")
    nest = assert_means(s)
    assert [k.name for k in nest.kernels] == ["Y Z", "C"]
    t = plain("X: f32[6, 4] = input()\nM[i]: f32[6] = sum(X[i, k] for k in range(4))\nY[i, j]: f32[6, 4] = X[i, j] - M[i]\n"
              "P[j]: f32[4] = sum(X[i, j] * M[i] for i in range(6))\nreturn Y, P")  # fmt: skip
    t["M"].compute_at("Y", "i")
    t["P"].reorder("i", "j")
    t["P"].compute_with("Y")
    nest = assert_means(t)
    assert [k.name for k in nest.kernels] == ["Y P"] and not nest.workspace


@pytest.mark.parametrize(
    "use, message",
    [
        (lambda s: s["R"].compute_with("R"), "expected another definition to compute R with, got itself"),
        (lambda s: s["Z"].compute_with("R"), "expected nothing between Z and R that one waits for and that waits for the other, got some"),
        (lambda s: (s["R"].compute_with("Y"), s["C"].compute_with("R")), "expected the first of those in the same loops, got R"),
        (lambda s: (s["R"].compute_with("Y"), s["Y"].compute_with("C")), "expected a definition that nothing is computed with yet, got Y"),
        (
            lambda s: (s["M"].compute_at("Z", "i"), s["M"].compute_with("Y")),
            "expected plain definitions with loops of their own to run in the same ones, got M",
        ),
    ],
)
def test_what_is_refused(use, message):
    with pytest.raises(ScheduleError, match=re.escape(message)):
        use(plain(SUMS))


def test_a_gpu_is_refused():
    s = schedule(parse_program(SUMS), H200)
    with pytest.raises(ScheduleError, match=re.escape("expected a CPU as the target to run R in the loops of Y, got a GPU")):
        s["R"].compute_with("Y")


def run(s, inputs):
    nest = lower(s)
    results = {b.name: np.zeros([e.value for e in b.shape], b.dtype.numpy) for b in nest.parameters if b.name in nest.writes}
    arrays = {**{n: np.ascontiguousarray(a) for n, a in inputs.items()}, **results}
    workspace = np.zeros(workspace_size(nest, {}) + 64, np.uint8)
    assert compile_nest(nest)([arrays[b.name].ctypes.data for b in nest.parameters], [], -(-workspace.ctypes.data // 64) * 64) is None
    return results


def test_two_results_of_pairs_share_the_value_of_each_pair():
    text = (
        "X: f32[2048, 2] = input()\nV: f32[2048] = input()\n"
        "P[i, j]: f32[2048, 2048] = exp(-sum((X[i, d] - X[j, d]) * X[j, d] for d in range(2)))\n"
        "Y[i]: f32[2048] = sum(P[i, j] * V[j] for j in range(2048))\n"
        "Z[i]: f32[2048] = sum(P[i, j] * V[j] * V[j] for j in range(2048))\nreturn Y, Z"
    )
    s = autoschedule(parse_program(text), WIDE)
    assert "s['Z'].compute_with('Y')" in s.as_python()
    nest = lower(s)
    assert [k.name for k in nest.kernels] == ["Y Z"]
    inputs = random_inputs(s.program, 0, exact=False)
    apart = s.copy()
    apart.state = replace(s.state, table={stage.name: replace(stage, joins=None) for stage in s.state.stages})
    for name, value in run(s, inputs).items():
        np.testing.assert_allclose(value, run(apart, inputs)[name], rtol=1e-5)  # multiply-adds may be fused otherwise


def test_a_loop_that_is_paired_stays_behind_the_element_that_it_reads():
    s = plain(
        "X: f32[4, 6] = input()\nV: f32[4] = input()\nA[i, j]: f32[4, 6] = X[i, j] * 2.0\nB[i]: f32[4] = V[i] + 1.0\n"
        "C[i, j]: f32[4, 6] = A[i, j] - B[i]\nreturn C"
    )
    s["A"].compute_at("B", "i")
    s["B"].compute_with("C")
    assert_means(s)
