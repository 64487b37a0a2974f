"""Very many small products: operands that lie across the lanes are turned around, and a product and its gradients share one loop."""

from __future__ import annotations

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.target import Target
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tests.codegen.programs import by_planners, planned

TARGET = Target("test", vector_bits=512, registers=32, cores=2)


def products(shape: tuple, dtype: str = "float32") -> tuple[list[te.Tensor], list[te.Tensor]]:
    """A product of matrices over a batch with both gradients, and their inputs."""
    *batch, n, k, m = shape
    x, y = te.placeholder((*batch, n, k), dtype, name="x"), te.placeholder((*batch, k, m), dtype, name="y")
    head = te.placeholder((*batch, n, m), dtype, name="head")
    out = kernels.matmul(x, y)
    return [out, *te.gradient(out, [x, y], head)], [x, y, head]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(70, 8, 8, 8), (65, 3, 3, 3), (65, 5, 7, 9), (64, 4, 16, 4), (64, 12, 6, 2), (5, 13, 2, 6, 3)], ids=str)
def test_a_product_and_its_gradients(shape, dtype):
    outputs, inputs = products(shape, dtype)
    s = by_planners(outputs)
    assert len([n for n in s.stages if s.state.stage(n).place is None]) == 1  # one loop over the batch
    rng = np.random.default_rng(0)
    x, y, head = (rng.integers(-3, 4, t.shape).astype(dtype) for t in inputs)
    turned = np.swapaxes
    want = (x @ y, head @ turned(y, -1, -2), turned(x, -1, -2) @ head)
    for given, got in zip(want, te.build(s)(x, y, head), strict=True):
        assert np.array_equal(got, given)


def test_the_operand_across_the_lanes_is_turned_around_for_one_element_at_a_time():
    s = autoschedule(planned(products((100, 6, 6, 6))[0]).program, TARGET)
    assert "y_staged_1: local(f32[6, 8])" in str(s) and "s['x_bar'].stage('y', (0, 2, (1, 8)))" in s.as_python()
    assert {n: s.state.stage(n).place.stage for n in s.stages[:-1]} == dict.fromkeys(["matmul", "y_staged", "x_bar"], "y_bar")


def test_a_matrix_by_a_column_reads_its_rows_side_by_side():
    s = autoschedule(planned(products((100, 8, 8, 1))[0][0]).program, TARGET)
    assert s.stages == ("x_staged", "matmul") and s.state.stage("x_staged").place.stage == "matmul"


@pytest.mark.parametrize("shape", [(40, 8, 8, 8), (100, 16, 16, 16), (100, 8, 40, 8)], ids=str)
def test_few_elements_and_larger_matrices_have_loops_of_their_own(shape):
    s = autoschedule(planned(products(shape)[0]).program, TARGET)
    assert "y_bar" not in {m.place.stage for m in s.state.stages if m.place is not None}


def test_the_batch_may_be_as_long_as_it_turns_out():
    """One function for any number of elements, also for fewer than are worth a loop."""
    outputs, _ = products((te.dim("n"), 5, 6, 7))
    s = by_planners(outputs)
    assert [n for n in s.stages if s.state.stage(n).place is None] == ["y_bar"]
    function, rng = te.build(s), np.random.default_rng(2)
    for count in (0, 1, 70):
        x, y, head = (rng.integers(-3, 4, (count, *sides)).astype(np.float32) for sides in ((5, 6), (6, 7), (5, 7)))
        for given, got in zip((x @ y, head @ y.swapaxes(1, 2), x.swapaxes(1, 2) @ head), function(x, y, head), strict=True):
            assert np.array_equal(got, given)


CHAIN = """
A: f32[70, 4, 5] = input()
B: f32[70, 5, 6] = input()
C: f32[70, 6, 4] = input()
D: f32[70, 4, 4] = input()
P[b, i, j]: f32[70, 4, 6] = sum(A[b, i, k] * B[b, k, j] for k in range(5))
Q[b, i, j]: f32[70, 4, 4] = sum(P[b, i, k] * C[b, {place}] for k in range(6))
R[b, i, j]: f32[70, 4, 4] = {own} + D[b, i, j]
S[b, i, j]: f32[70, 4, 4] = sum(R[b, i, k] * Q[b, k, j] for k in range(4))
return R, S
"""


@pytest.mark.parametrize("place", ["k, j", "5 - k, j"])
@pytest.mark.parametrize("own", ["Q[b, i, j]", "Q[69 - b, i, j]"])
def test_chains_of_products(place, own):
    """What lies between, read at its own element, is a local; read at another one it is there before."""
    program = parse_program(CHAIN.replace("{place}", place).replace("{own}", own))
    s = autoschedule(program, TARGET)
    rng = np.random.default_rng(1)
    arrays = [rng.integers(-3, 4, [int(e.value) for e in i.type.shape]).astype(np.float32) for i in program.inputs]
    want = evaluate_program(program, {i.name: a for i, a in zip(program.inputs, arrays, strict=True)})
    for given, got in zip(want.values(), te.build(s)(*arrays), strict=True):
        assert np.array_equal(got, given)


def test_a_long_thin_product_of_each_element_is_not_taken_apart():
    """Each element of the batch has operands of its own: parts of the sum would make none of them nearer."""
    assert autoschedule(planned(products((50000, 2, 64, 2))[0][0]).program, TARGET).stages == ("matmul",)
