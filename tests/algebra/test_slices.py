"""Parts of a tensor that products read apart are tensors: the same bits, and the schedule of operands of their own."""

import numpy as np
import pytest

from tensorexpr.algebra import with_slices
from tensorexpr.codegen.compile import build_program
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Program
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tensorexpr.text import print_program
from tensorexpr.verify import verify
from tests.random_programs import random_inputs, random_program, random_sizes
from tests.seeds import share_of

X = "x: f32[48, 3, 40] = input()\n"
PARTS = {
    "literal places": X + "y[i, j]: f32[48, 48] = sum(x[i, 0, k] * x[j, 1, k] for k in range(40))\nreturn y\n",
    "ranges": "x: f32[48, 120] = input()\ny[i, j]: f32[48, 48] = sum(x[i, k] * x[j, k + 40] for k in range(40))\nreturn y\n",
    "of what is made": X + "e[i, p, k]: f32[48, 3, 40] = exp(x[i, p, k])\n"
    "y[i, j]: f32[48, 48] = sum(e[i, 0, k] * e[j, 1, k] for k in range(40))\n"
    "z[k]: f32[40] = max(e[i, 2, k] for i in range(48))\nreturn y, z\n",
}
WHOLE = {
    "as a whole": X + "y[i, j]: f32[48, 48] = sum(x[i, 0, k] * x[j, 1, k] for k in range(40))\nz[p]: f32[3] = x[0, p, 0]\nreturn y, z\n",
    "parts that meet": "x: f32[48, 120] = input()\ny[i, j]: f32[48, 48] = sum(x[i, k] * x[j, k + 39] for k in range(40))\nreturn y\n",
    "no product": X + "y[i, j]: f32[48, 48] = sum(x[i, 0, k] + x[j, 1, k] for k in range(40))\nreturn y\n",
    "few reads": "x: f32[48, 3, 40] = input()\ny[i]: f32[48] = sum(x[i, 0, k] * x[i, 1, k] for k in range(40))\nreturn y\n",
    "by data": X + "t: i64[48] = input()\ny[i, j]: f32[48, 48] = sum(x[i, t[i], k] * x[j, 1, k] for k in range(40))\nreturn y\n",
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_that_products_read_apart_are_tensors(name: str) -> None:
    program = simplify(parse_program(PARTS[name]))
    found = with_slices(program)
    verify(found)
    assert print_program(found).count("_part") > 4 and "range(40)" in print_program(found)
    x = np.random.default_rng(0).standard_normal(tuple(int(e.value) for e in program.inputs[0].type.shape)).astype(np.float32)  # type: ignore[union-attr]
    for one, other in zip(evaluate_program(program, {"x": x}).values(), evaluate_program(found, {"x": x}).values(), strict=True):
        np.testing.assert_array_equal(one, other)
    made = build_program(program, single=len(program.outputs) == 1)(x)
    for value, expected in zip(made if isinstance(made, tuple) else (made,), evaluate_program(program, {"x": x}).values(), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_read_as_a_whole_or_seldom_stays(name: str) -> None:
    program = simplify(parse_program(WHOLE[name]))
    assert with_slices(program) is program


@pytest.mark.parametrize("block", range(4))
def test_random_programs_keep_their_bits(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorexpr.algebra.layouts.slices.REUSED", 1)
    for seed in share_of(range(94000 + 100 * block, 94000 + 100 * block + 60)):
        program: Program = simplify(random_program(seed))
        found = with_slices(program)
        if found is not program:
            sizes = random_sizes(program, seed)
            inputs = random_inputs(program, seed, sizes=sizes)
            verify(found)
            expected = evaluate_program(program, inputs, sizes)
            for name, value in evaluate_program(found, inputs, sizes).items():
                np.testing.assert_array_equal(value, expected[name], err_msg=f"seed {seed}: {name} of\n{print_program(found)}")


def test_a_part_ends_where_its_tensor_does() -> None:
    program = simplify(
        parse_program(
            """
h: f64[2, 40] = input()
x: f64[64, 64] = input()
y[i, k]: f64[64, 40] = (
    where(k >= 1, sum(h[0, k - 1] * x[m, i] for m in range(64)), 0.0)
    + where(k < 39, sum(h[1, k + 1] * x[m, i] for m in range(64)), 0.0)
)
return y
"""
        )
    )
    found = with_slices(program)
    assert found is not program
    inputs = random_inputs(program, 0)
    (expected,) = evaluate_program(program, inputs).values()
    np.testing.assert_array_equal(*evaluate_program(found, inputs).values(), expected)
    np.testing.assert_allclose(build_program(program, single=True)(inputs["h"], inputs["x"]), expected, rtol=1e-12)
