"""Reductions that a definition holds already are read, not computed again: only where that is the same value, and in an order that runs."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Program, Reduce
from tensorexpr.parse import parse_program
from tensorexpr.simplify import share_reductions, simplify
from tensorexpr.text import print_program
from tensorexpr.traversal import expressions, walk
from tensorexpr.verify import verify
from tests.random_programs import assert_same_bits, random_program
from tests.seeds import share_of


def reductions(program: Program) -> int:
    return sum(isinstance(n, Reduce) for d in program.definitions for e in expressions(d) for n in walk(e))


def test_a_reduction_inside_an_expression_reads_the_definition_that_comes_later() -> None:
    program = parse_program(
        "x: f64[4, 9] = input()\n"
        "scale[a]: f64[4] = 1.0 / sum(exp(x[a, k]) for k in range(9))\n"
        "y[i, j]: f64[4, 9] = x[i, j] * scale[i] + max(x[i, r] for r in range(9))\n"
        "total[n]: f64[4] = sum(exp(x[n, m]) for m in range(9))\n"
        "top[n]: f64[4] = max(x[n, m] for m in range(9))\n"
        "return y, total, top\n"
    )
    shared = share_reductions(program)
    verify(shared)
    assert reductions(program) == 4 and reductions(shared) == 2
    assert print_program(shared) == (
        "x: f64[4, 9] = input()\n"
        "total[n]: f64[4] = sum(exp(x[n, m]) for m in range(9))\n"
        "scale[a]: f64[4] = 1.0 / total[a]\n"
        "top[n]: f64[4] = max(x[n, m] for m in range(9))\n"
        "y[i, j]: f64[4, 9] = x[i, j] * scale[i] + top[i]\n"
        "return y, total, top"
    )
    assert share_reductions(shared) is shared
    x = {"x": np.random.default_rng(0).standard_normal((4, 9))}
    for name, value in evaluate_program(program, x).items():
        np.testing.assert_array_equal(value, evaluate_program(shared, x)[name])


@pytest.mark.parametrize(
    "other",
    [
        "y[i]: f64[3] = 1.0 + sum(x[i, k] for k in range(4))",  # another range of rows
        "y[i]: f64[4] = 1.0 + sum(x[i, k] for k in range(3))",  # of terms
        "y[i]: f64[4] = 1.0 + sum(x[k, i] for k in range(4))",  # another element
        "y[i]: f64[4] = 1.0 + max(x[i, k] for k in range(4))",  # another combiner
    ],
)
def test_what_differs_is_computed(other: str) -> None:
    program = parse_program(f"x: f64[4, 4] = input()\nt[i]: f64[4] = sum(x[i, k] for k in range(4))\n{other}\nreturn t, y\n")
    assert share_reductions(program) is program


def test_a_definition_that_depends_on_the_reader_is_not_read() -> None:
    program = parse_program(
        "x: f64[4] = input()\n"
        "y[a]: f64[4] = 2.0 * sum(x[k] for k in range(4))\n"
        "s[a]: f64[4] = sum(y[k] * x[a] for k in range(4))\n"
        "z[a]: f64[4] = sum(y[k] * x[a] for k in range(4)) + s[a]\n"
        "return z\n"
    )
    shared = share_reductions(program)
    verify(shared)
    assert reductions(program) == 3 and reductions(shared) == 2


def test_the_gradient_of_a_softmax_sums_its_exponentials_once() -> None:
    x, head = te.placeholder((4, 9), name="x"), te.placeholder((4, 9), name="head")
    total = te.compute((4,), lambda i: 1.0 / te.sum(lambda k: te.exp(x[i, k]), 9), name="scale")
    y = te.compute((4, 9), lambda i, j: te.exp(x[i, j]) * total[i], name="y")
    program = simplify(te.program_of([y, te.gradient(y, x, head)[0]], [x, head]))
    assert reductions(program) == 2, print_program(program)


@pytest.mark.parametrize("seed", share_of(range(30)))
def test_random_programs_keep_their_values(seed: int) -> None:
    program = random_program(seed)
    assert_same_bits(program, share_reductions(program), seed)


def test_a_product_written_the_other_way_around_is_its_transpose() -> None:
    """Two products of a contrastive loss, each with its temperature, are one."""
    program = parse_program(
        "a: f64[3, 4] = input()\nb: f64[3, 4] = input()\n"
        "s[i, j]: f64[3, 3] = sum(a[i, k] * b[j, k] for k in range(4)) * 10.0\n"
        "t[i, j]: f64[3, 3] = sum(b[i, k] * a[j, k] for k in range(4)) * 10.0\nreturn s, t\n"
    )
    shared = share_reductions(program)
    verify(shared)
    assert reductions(program) == 2 and reductions(shared) == 1
    rng = np.random.default_rng(0)
    given = {name: rng.standard_normal((3, 4)) for name in "ab"}
    for name, value in evaluate_program(program, given).items():
        np.testing.assert_array_equal(value, evaluate_program(shared, given)[name])
