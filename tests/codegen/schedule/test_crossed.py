"""Sums over the rows and over the columns of the same pairs: one pass, where the default schedule finds both."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import Planned
from tensorexpr.codegen.target import Target
from tensorexpr.parse import parse_program
from tests.codegen.programs import assert_means, by_planners

PAIR = "exp(-(x[i] - y[j]) * (x[i] - y[j]))"
BOTH = """
x: f32[{n}] = input()
y: f32[{m}] = input()
w: f32[{n}, {m}] = input()
A[i]: f32[{n}] = sum({a} for j in range({m}){where})
B[j]: f32[{m}] = sum({b} for i in range({n}))
return A, B
"""


def both(n: int = 512, m: int = 32, a: str = PAIR, b: str = f"{PAIR} * x[i]", where: str = "", cores: int = 2) -> Planned:
    program = parse_program(BOTH.format(n=n, m=m, a=a, b=b, where=where))
    return autoschedule(program, Target("test", vector_bits=512, registers=32, cores=cores))


def kernel_names(s: Planned) -> list[str]:
    return [kernel.name for kernel in lower(s).kernels]


def test_rows_and_columns_have_one_pass_in_parts_of_the_rows():
    s = both()
    assert kernel_names(s) == ["A B_parts", "B"]
    assert "B_parts[i_o, j]: f32[16, 32]" in str(s.state.program)
    assert s["A"].loops == ("i_o", "j_o", "i_i_o", "j_i", "i_i_i")
    assert s["B_parts"].loops == ("i_o", "j_o", "i_i_o", "j_i", "i_i_i")


def test_the_longer_side_is_cut_whichever_comes_first():
    assert kernel_names(both(32, 512)) == ["A_parts B", "A"]


def test_cores_have_no_say_in_the_parts():
    assert str(both(cores=1).state.program) == str(both(cores=2).state.program) == str(both(cores=64).state.program)


@pytest.mark.parametrize(("n", "m"), [(512, 32), (32, 544)])
def test_values_are_those_of_the_interpreter(n, m):
    s = both(n, m)
    assert len(kernel_names(s)) == 2
    assert_means(s, exact=False)


@pytest.mark.parametrize(
    "changes",
    [
        {"n": 500},  # rows that are no whole vectors
        {"m": 257},  # columns that are no whole blocks
        {"n": 256, "m": 64},  # parts of too few rows
        {"b": "exp((x[i] - y[j]) * (x[i] - y[j])) * x[i]"},  # another value
        {"b": "(x[i] - y[j]) * (x[i] - y[j])", "a": "(x[i] - y[j]) * (x[i] - y[j])"},  # a value that costs nothing
        {"b": f"{PAIR} * w[i, j]"},  # a matrix of pairs, which is read along its rows
        {"b": f"{PAIR} * A[i]"},  # one sum waits for the other
        {"where": " if x[0] < y[j]"},  # some of the pairs alone
    ],
)
def test_what_keeps_its_own_passes(changes):
    assert all("A" not in name or "B" not in name for name in kernel_names(both(**changes)))


def test_all_gradients_of_a_kernel_product_have_one_pass():
    n = 2048
    shapes = ((n, 3), (n, 3), (n, 1))
    inputs = [te.placeholder(shape, name=name) for shape, name in zip(shapes, "xyb", strict=True)]
    output = kernels.gaussian_product(*inputs)
    head = te.placeholder(output.shape, name="head")
    outputs = [output, *te.gradient(output, inputs, head)]
    schedule = by_planners(outputs)
    (pairs, *_) = kernel_names(schedule)
    assert pairs == "gaussian_product x_bar y_bar_parts b_bar_parts"
    rng = np.random.default_rng(7)
    x, y, b, h = (rng.standard_normal(t.shape) for t in (*inputs, head))
    e = np.exp(-((x[:, None] - y) ** 2).sum(-1))
    w = -2 * e * h * b.T
    wanted = (e @ b, (w.sum(1)[:, None] * x - w @ y), (w.sum(0)[:, None] * y - w.T @ x), e.T @ h)
    found = te.build(schedule, [*inputs, head])(*(v.astype(np.float32) for v in (x, y, b, h)))
    for value, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
