"""Definitions that do not wait for each other are one kernel, and compute what they compute one at a time, bit for bit."""

import random
import re

import numpy as np
import pytest

from tensorexpr.codegen.cuda.emitter.nest import emit
from tensorexpr.codegen.executable import executable_of_schedule
from tensorexpr.codegen.llvm import compile_nest
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.lowering import program as lowering
from tensorexpr.codegen.nest import For, Kernel, Store
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import schedule
from tensorexpr.codegen.target import H200
from tensorexpr.errors import InternalError
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tensorexpr.records import replace
from tests.codegen.programs import WIDE, assert_means, plain
from tests.random_programs import random_inputs

TWO = """
X: f32[8, 4] = input()
V: f32[6] = input()
Y[i, j]: f32[8, 4] = X[i, j] * 2.0
W[i]: f32[6] = V[i] + 1.0
S[()]: f32[()] = sum(Y[i, 0] for i in range(8))
T[()]: f32[()] = S[()] + 1.0
Z[i]: f32[6] = W[i] * 3.0
return Y, W, T, Z
"""


def side_by_side():
    s = plain(TWO)
    s["Y"].parallel("i")
    s["W"].parallel("i")
    return s


def test_loops_of_any_length_are_one_kernel():
    nest = assert_means(side_by_side())
    assert next((k.name, len(k.body), k.together) for k in nest.kernels) == ("Y W", 2, True)
    assert "def kernel_0() -> together(Y, W):" in str(nest)


def test_definitions_without_loops_are_one_iteration_in_order():
    s = plain("A: f32[()] = input()\nB[()]: f32[()] = A[()] + 1.0\nC[()]: f32[()] = B[()] * 2.0\nreturn B, C")
    nest = assert_means(s)
    assert [(k.name, k.together) for k in nest.kernels] == [("B C", False)]


def test_one_that_something_in_between_waits_for_stays_by_itself():
    s = plain(TWO)
    s["Y"].parallel("i")
    s["Z"].parallel("i")
    nest = assert_means(s)  # S waits for Y, and stands before Z
    assert [k.name for k in nest.kernels] == ["Y W", "S", "T Z"]


def test_a_nest_whose_loops_wait_for_each_other_is_found():
    nest = lower(side_by_side())
    first, second = nest.kernels[0].body
    with pytest.raises(InternalError, match="expected loops that run together not to touch what another writes, got Y"):
        verify_nest(replace(nest, kernels=(Kernel("Y Y", (first, first), True),)))
    with pytest.raises(InternalError, match="expected parallel loops alone to run together"):
        verify_nest(replace(nest, kernels=(Kernel("Y W", (first, replace(second, kind="serial")), True),)))


def elementwise(seed: int) -> str:
    """A program of definitions that go element by element over random shapes; some read an earlier one of their shape, or a scalar."""
    rng = random.Random(seed)
    shapes = [tuple(rng.choice((1, 2, 3, 5, 19)) for _ in range(rng.randint(0, 3))) for _ in range(rng.randint(1, 3))]
    lines, made, results = [], {}, []
    for k, shape in enumerate(shapes):
        lines.append(f"X{k}: f32[{', '.join(map(str, shape)) or '()'}] = input()")
        made[shape] = [f"X{k}", *made.get(shape, [])]
    lines.append("R: f32[()] = input()")
    for k in range(rng.randint(2, 9)):
        shape = rng.choice(shapes)
        axes = ", ".join(f"i{a}" for a in range(len(shape))) or "()"
        first, second = rng.choice(made[shape]), rng.choice(made[shape])
        scale = rng.choice(("R[()]", "2.0", *(f"{n}[()]" for n in made.get((), []))))
        lines.append(f"D{k}[{axes}]: f32[{', '.join(map(str, shape)) or '()'}] = {first}[{axes}] * {scale} - {second}[{axes}]")
        made[shape] = [f"D{k}", *made[shape]]
        results.append(f"D{k}")
    return "\n".join((*lines, f"return {', '.join(r for r in results if rng.random() < 0.8) or results[-1]}"))


@pytest.mark.parametrize("target", [WIDE, H200], ids=["cpu", "cuda"])
def test_default_schedules_of_elementwise_definitions_mean_the_same(target):
    regions = 0
    for seed in range(30):
        program = parse_program(elementwise(seed))
        s = autoschedule(program, target)
        again = schedule(program, target)
        exec(s.as_python(), {"s": again})
        assert again == s
        regions += any(k.together or " " in k.name for k in assert_means(s, seed).kernels)
    assert regions > 10


def variables(shapes) -> str:
    """Momentum and value of some variables, as an optimizer has them."""
    lines, steps, results = ["R: f32[()] = input()"], [], []
    for k, shape in enumerate(shapes):
        text, axes = ", ".join(map(str, shape)) or "()", ", ".join(f"i{a}" for a in range(len(shape))) or "()"
        lines += [f"{n}{k}: f32[{text}] = input()" for n in "GMW"]
        steps.append(f"B{k}[{axes}]: f32[{text}] = M{k}[{axes}] * 0.875 + G{k}[{axes}]")
        steps.append(f"V{k}[{axes}]: f32[{text}] = W{k}[{axes}] - R[()] * B{k}[{axes}] / (B{k}[{axes}] * B{k}[{axes}] + 1.0)")
        results += [f"B{k}", f"V{k}"]
    return "\n".join((*lines, *steps, f"return {', '.join(results)}"))


MIXED = ((64, 64), (64,), (16, 3, 3, 3), (10,), (), (33, 7), (512, 40), ())


@pytest.mark.parametrize("shapes", [((48, 48),) * 12, ((30, 20), (600,), (6, 100), (2, 300)), MIXED], ids=["equal", "elements", "mixed"])
def test_updates_of_all_variables_are_one_kernel_and_the_same_bits(shapes, monkeypatch):
    program = parse_program(variables(shapes))
    inputs = random_inputs(program, 0, exact=False)
    s = autoschedule(program, WIDE)
    nest = lower(s)
    assert len(nest.kernels) == 1 and nest.kernels[0].together
    assert all(isinstance(s, For) and s.kind == "parallel" for s in nest.kernels[0].body)
    with monkeypatch.context() as apart:
        apart.setattr(lowering, "side_by_side", lambda state: [])
        alone = lower(s)
    assert len(alone.kernels) > len(shapes) - 1
    results = [run(each, inputs) for each in (nest, alone)]
    want = evaluate_program(program, inputs)
    for name in program.outputs:
        assert results[0][name].tobytes() == results[1][name].tobytes()
        np.testing.assert_allclose(results[0][name], want[name], rtol=1e-5, atol=1e-6)
    launches = emit(lower(autoschedule(program, H200))).launches
    assert len(launches) == 1


def run(nest, inputs):
    results = {n: np.zeros([e.value for e in b.shape], b.dtype.numpy) for b in nest.parameters for n in (b.name,) if n in nest.writes}
    arrays = {**{n: np.ascontiguousarray(a) for n, a in inputs.items()}, **results}
    assert compile_nest(nest)([arrays[b.name].ctypes.data for b in nest.parameters], [], 0) is None
    return results


def test_equal_loops_are_one_function():
    """Layers and variables that are alike but for names: the code is there once."""
    text = executable_of_schedule(autoschedule(parse_program(variables(((48, 48),) * 12)), WIDE)).look.source("llvm")
    assert len(re.findall(r"^define internal void @kernel0\S*range\d+\(", text, re.MULTILINE)) == 1
    assert len(re.findall(r"store ptr @kernel0\S*range0\.part", text)) == 12


def test_an_element_by_its_number():
    """Loops over all elements of arrays of any rank go through memory in order."""
    nest = assert_means(autoschedule(parse_program(variables(((7, 3, 3),))), WIDE))
    assert "floordiv" not in str(nest) and "//" not in str(nest) and "%" not in str(nest)
    (loop,) = nest.kernels[0].body
    stores = [s for s in loop.body[0].body if isinstance(s, Store)]
    assert isinstance(loop.body[0], For) and [len(s.indices) for s in stores] == [1, 1]


@pytest.mark.parametrize("n", [0, 1, 7, 16, 33, 70, 130])
def test_elements_of_columns_are_gone_through_in_lanes(n):
    """Joints of an arm, components of points: columns of a tensor, of which each definition reads some, and the rows of another."""
    program = parse_program(
        f"""
        Q: f32[{n}, 3] = input()
        P: f32[2, {n}] = input()
        A[i]: f32[{n}] = cos(Q[i, 0]) * 0.5 + sin(Q[i, 0])
        B[i]: f32[{n}] = A[i] * Q[i, 2] - P[1, i]
        C[i]: f32[{n}] = cos(Q[i, 1]) * A[i] + B[i]
        return A, B, C
        """.replace("        ", "").strip()
    )
    s = autoschedule(program, WIDE)
    nest = assert_means(s)
    assert [k.name for k in nest.kernels] == ["C"][: min(n, 1)] and (n < 16 or "vectorize" in str(nest))
