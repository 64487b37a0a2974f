"""Sums over the rows and over the columns of the same pairs: one pass, where the default schedule finds both."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import Planned
from tensorexpr.codegen.target import Target
from tensorexpr.parse import parse_program
from tests.codegen.llvm.nests import run
from tests.codegen.programs import WIDE, assert_means, by_planners

PAIR = "exp(-(x[i] - y[j]) * (x[i] - y[j]))"
BOTH = """
x: f32[{n}] = input()
y: f32[{m}] = input()
w: f32[{n}, {m}] = input()
A[i]: f32[{n}] = sum({a} for j in range({m}){where})
B[j]: f32[{m}] = sum({b} for i in range({n}))
return A, B
"""

PAIRS = """
x: f32[{n}] = input()
g: f32[{m}] = input()
h: f32[{m}] = input()
a[i]: f32[{n}] = sum(h[j] * exp(x[i] - g[j]) * cos(x[i] - g[j]) for j in range({m}))
b[j]: f32[{m}] = sum(exp(x[i] - g[j]) * cos(x[i] - g[j]) for i in range({n}))
return a, b
"""
ITSELF = """
x: f32[n] = input()
y: f32[n] = input()
a[j]: f32[n] = sum(tanh(y[j] - y[k]) * cos(x[j] - x[k]) for k in range(n)) - sum(tanh(y[k] - y[j]) * cos(x[k] - x[j]) for k in range(n))
b[j]: f32[n] = sum(tanh(y[j] - y[k]) * exp(x[j] - x[k]) for k in range(n)) - sum(tanh(y[k] - y[j]) * exp(x[k] - x[j]) for k in range(n))
return a, b
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


@pytest.mark.parametrize(("n", "m"), [(512, 32), (32, 544), (509, 32), (512, 31)])
def test_values_are_those_of_the_interpreter(n, m):
    s = both(n, m)
    assert len(kernel_names(s)) == 2
    assert_means(s, exact=False)


@pytest.mark.parametrize(
    "changes",
    [
        {"m": 13},  # too few columns for a block
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


def computed(text, *inputs):
    """The nest of a program by default, and what its machine code gives."""
    program = parse_program(text.lstrip())
    nest = lower(autoschedule(program, WIDE))
    assert not prove(nest, quick=True).refuted
    given = dict(zip((i.name for i in program.inputs), inputs, strict=True))
    return nest, run(nest, given)


def drawn(*lengths):
    rng = np.random.default_rng(1)
    return [rng.standard_normal(n).astype("f") for n in lengths]


@pytest.mark.parametrize(("n", "m"), [(1024, 512), (1021, 512), (1024, 499), (1201, 499)])
def test_rows_and_columns(n, m):
    x, g, h = drawn(n, m, m)
    nest, found = computed(PAIRS.format(n=n, m=m), x, g, h)
    assert any(" " in kernel.name for kernel in nest.kernels)
    pairs = np.exp(np.subtract.outer(x, g, dtype="d")) * np.cos(np.subtract.outer(x, g, dtype="d"))
    np.testing.assert_allclose(found["a"], pairs @ h, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(found["b"], pairs.sum(0), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("n", [1024, 1009])
def test_pairs_of_one_set(n):
    x, y = drawn(n, n)
    nest, found = computed(ITSELF.replace("(n)", f"({n})").replace("[n]", f"[{n}]"), x, y)
    assert any(sorted(kernel.name.split(" ")) == ["a_parts", "a_parts_1", "b_parts", "b_parts_1"] for kernel in nest.kernels)
    dx, dy = (np.subtract.outer(v, v, dtype="d") for v in (x, y))
    for name, pairs in (("a", np.tanh(dy) * np.cos(dx)), ("b", np.tanh(dy) * np.exp(dx))):
        np.testing.assert_allclose(found[name], pairs.sum(1) - pairs.sum(0), rtol=1e-4, atol=1e-2)
