"""Tensors on the way are turned as those around them: values are kept, and what is read along its rows stays."""

import numpy as np
import pytest

from tensorexpr.algebra import with_axes_turned
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tensorexpr.verify import verify
from tests.random_programs import assert_same_bits, random_program
from tests.seeds import share_of

HEAD = "x: f64[5, 7] = input()\nw: f64[5, 3] = input()\nm[j]: f64[7] = max(x[i, j] for i in range(5))\n"
EXPONENTIAL = HEAD + "e[j, i]: f64[7, 5] = exp(x[i, j] - m[j])\n"
TURNED = {
    "a softmax turned around": EXPONENTIAL
    + "t[j]: f64[7] = sum(e[j, i] for i in range(5))\ny[i, j]: f64[5, 7] = e[j, i] / t[j]\nreturn y\n",
    "a product with itself": HEAD
    + "c[j, i]: f64[7, 5] = tanh(x[i, j])\ny[a, b]: f64[7, 7] = sum(c[a, i] * c[b, i] for i in range(5))\nreturn y\n",
    "three axes": (
        "x: f64[4, 5, 7] = input()\ne[b, j, i]: f64[4, 7, 5] = exp(x[b, i, j])\n"
        "y[b, i, j]: f64[4, 5, 7] = e[b, j, i] / sum(e[b, j, k] for k in range(5))\nreturn y\n"
    ),
}
STAY = {
    "an output": EXPONENTIAL + "y[i, j]: f64[5, 7] = e[j, i] * 2.0\nreturn y, e\n",
    "read along its rows": EXPONENTIAL + "y[j, i]: f64[7, 5] = e[j, i] * 2.0\nz[i, j]: f64[5, 7] = e[j, i]\nreturn y, z\n",
    "summed along its rows": EXPONENTIAL + "y[j, k]: f64[7, 3] = sum(e[j, i] * w[i, k] for i in range(5))\nreturn y\n",
    "made along both": EXPONENTIAL.replace("input()\nm", "input()\nv: f64[7, 5] = input()\nm").replace(
        "exp(x[i, j]", "exp(v[j, i] * x[i, j]"
    )
    + "y[i, j]: f64[5, 7] = e[j, i] * 2.0\nreturn y\n",
    "a row at a place that is counted": EXPONENTIAL + "y[k, j]: f64[2, 7] = e[j, k * 2] + e[k, j // 2]\nreturn y\n",
}


def same_values(program, other) -> None:
    verify(other)
    rng = np.random.default_rng(0)
    given = {i.name: rng.standard_normal([int(e.value) for e in i.type.shape]) for i in program.inputs}
    for one, two in zip(evaluate_program(program, given).values(), evaluate_program(other, given).values(), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("name", TURNED)
def test_what_is_made_and_read_along_another_axis_is_turned(name: str) -> None:
    program = parse_program(TURNED[name])
    turned = with_axes_turned(program)
    assert turned is not program and with_axes_turned(turned) is turned
    same_values(program, turned)


@pytest.mark.parametrize("name", STAY)
def test_others_stay(name: str) -> None:
    program = parse_program(STAY[name])
    assert with_axes_turned(program) is program


@pytest.mark.parametrize("seed", share_of(range(40)))
def test_random_programs_keep_their_values(seed: int) -> None:
    program = simplify(random_program(seed))
    assert_same_bits(program, with_axes_turned(program), seed)
