"""Factors that are 0 or 1 become conditions: the same values, where a product with 0 is NaN as well."""

import numpy as np
import pytest

from tensorexpr.algebra import without_masks
from tensorexpr.codegen.compile import build_program
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tensorexpr.text import print_program
from tensorexpr.verify import verify
from tests.random_programs import random_inputs, random_program, random_sizes
from tests.seeds import share_of

INPUTS = "x: f32[12, 9] = input()\nt: i64[12] = input()\nb: f32[30, 12] = input()\n"
MASKS = {
    "by key": "y[s, d]: f32[30, 9] = sum(where(t[i] == s, 1.0, 0.0) * x[i, d] for i in range(12))\nreturn y\n",
    "a cast": "y[s, d]: f32[30, 9] = sum(x[i, d] * f32(t[i] == s) for i in range(12))\nreturn y\n",
    "a tensor": "o[i, s]: f32[12, 30] = where(t[i] == s, 1.0, 0.0)\n"
    "y[s, d]: f32[30, 9] = sum(o[i, s] * x[i, d] for i in range(12))\nreturn y\n",
    "zeros where it holds": "y[i, j]: f32[9, 12] = sum(where(k > j, 0.0, 1.0) * x[k, i] for k in range(12))\nreturn y\n",
    "one row of many": "y[n, d]: f32[12, 9] = sum(x[v, d] * where(t[n] == v, 1.0, 0.0) for v in range(12))\nreturn y\n",
    "prefixes": "y[i, j]: f32[9, 12] = 2.0 * sum(where(k <= j, 1.0, 0.0) * x[k, i] for k in range(12))\nreturn y\n",
    "suffixes": "y[i, j]: f32[9, 12] = sum(where(k > j, 1.0, 0.0) * x[k, i] for k in range(12))\nreturn y\n",
    "one in the other": "y[j]: f32[12] = sum(where(k >= j, 1.0, 0.0) * where(k < 7, x[k, 0], x[k, 1]) for k in range(12))\nreturn y\n",
    "a band": "y[j]: f32[12] = sum(where(k >= j - 1 and k < j + 3, 1.0, 0.0) * (x[k, 1] * x[k, 2]) for k in range(12))\nreturn y\n",
    "each point in a block": "y[s, i]: f32[8, 30] = sum(f32(j // 3 == s) * b[i, j] for j in range(12))\nreturn y\n",
    "not each point in a block": "y[s, i]: f32[8, 30] = sum(f32(j == s) * b[i, j] for j in range(12))\nreturn y\n",
    "of two axes": "y[s]: f32[30] = sum(where(t[i] + d == s, 1.0, 0.0) * x[i, d] for i in range(12) for d in range(9))\nreturn y\n",
}
SCALED = {
    "a mean of a prefix": "y[i, j]: f32[9, 12] = sum(x[k, i] * where(k <= j, 1.0 / f32(j + 1), 0.0) for k in range(12))\nreturn y\n",
    "a tensor of weights": "o[k, j]: f32[12, 12] = where(k <= j, 1.0 / f32(j + 1), 0.0)\n"
    "y[i, j]: f32[9, 12] = sum(x[k, i] * o[k, j] for k in range(12))\nreturn y\n",
    "weights of points": "y[i, j]: f32[9, 12] = sum(where(k < j, 0.0, 1.0 / f32(k + 2)) * x[k, i] for k in range(12))\nreturn y\n",
    "a literal": "y[s, d]: f32[30, 9] = sum(where(t[i] == s, 0.5, 0.0) * x[i, d] for i in range(12))\nreturn y\n",
}
MASKED = {
    "a triangle": "y[i, k]: f32[30, 9] = sum(where(j >= i, b[i, j], 0.0) * x[j, k] for j in range(12))\nreturn y\n",
    "a tensor of a band": "o[i, j]: f32[30, 12] = where(j >= i - 2 and j <= i, exp(b[i, j]), 0.0)\n"
    "y[k, i]: f32[9, 30] = sum(x[j, k] * o[i, j] for j in range(12))\nreturn y\n",
    "blocks of a product": "y[i, k]: f32[30, 9] = sum(b[i, j] * f32(i // 8 == j // 3) * x[j, k] for j in range(12))\nreturn y\n",
    "a tensor that is a product": "o[i, j]: f32[30, 12] = b[i, j] * where(j > i, 1.0, 0.0)\n"
    "y[i, k]: f32[30, 9] = sum(o[i, j] * x[j, k] for j in range(12))\nreturn y\n",
    "a mean of blocks": "y[s, k]: f32[30, 9] = sum(f32(i // 3 == s) / 3.0 * x[i, k] for i in range(12))\nreturn y\n",
    "a tensor of two masks": "m[i, j]: f32[30, 12] = f32(j > i)\no[i, j]: f32[30, 12] = b[i, j] * m[i, j]\n"
    "y[i, k]: f32[30, 9] = sum(o[i, j] * m[i, j] * x[j, k] for j in range(12))\nreturn y\n",
}
NOT_MASKS = {
    "as many points": "y[i]: f32[30] = sum(where(k <= i, 1.0, 0.0) * b[i, k] for k in range(12))\nreturn y\n",
    "other numbers": "y[s, d]: f32[30, 9] = sum(where(t[i] == s, 1.0, 0.5) * x[i, d] for i in range(12))\nreturn y\n",
    "few results": "y[s, d]: f32[4, 9] = sum(where(t[i] == s, 1.0, 0.0) * x[i, d] for i in range(12))\nreturn y\n",
    "what is read": "y[s, d]: f32[30, 9] = sum(where(t[i] == s, x[s % 12, 0], 0.0) * x[i, d] for i in range(12))\nreturn y\n",
    "infinite over no points": "y[i, j]: f32[9, 12] = sum(x[k, i] * where(k < j, 1.0 / f32(j), 0.0) for k in range(12))\nreturn y\n",
    "nearly all of a tensor": "y[i, k]: f32[30, 9] = sum(where(j != i, b[i, j], 0.0) * x[j, k] for j in range(12))\nreturn y\n",
    "no range": "y[i, k]: f32[30, 9] = sum(where(j * j % 5 == i % 5, b[i, j], 0.0) * x[j, k] for j in range(12))\nreturn y\n",
    "a factor that is read once": "y[i]: f32[30] = sum(f32(k == i) * (b[i, k] * x[k, j]) for k in range(12) for j in range(9))\nreturn y\n",
    "a mask alone": "y[s]: f32[30] = sum(where(t[i] == s, 1.0, 0.0) for i in range(12))\nreturn y\n",
}


@pytest.mark.parametrize("name", [*MASKS, *SCALED, *MASKED])
def test_masks_become_conditions_and_what_is_not_finite_is_found(name: str) -> None:
    program = simplify(parse_program(INPUTS + {**MASKS, **SCALED, **MASKED}[name]))
    found = simplify(without_masks(program))
    verify(found)
    assert len(found.definitions) > len(program.definitions) and "1.0, 0.0)" not in print_program(found), print_program(found)
    rng = np.random.default_rng(0)
    compiled = build_program(found, single=True)
    for number in range(12):
        x = rng.standard_normal((12, 9)).astype(np.float32)
        for _ in range(number // 2):
            x[rng.integers(12), rng.integers(9)] = rng.choice([np.nan, np.inf, -np.inf, -0.0])
        b = rng.standard_normal((30, 12)).astype(np.float32)
        for _ in range(number % 3):
            b[rng.integers(30), rng.integers(12)] = rng.choice([np.nan, np.inf, -np.inf])
        arrays = {"x": x, "t": rng.integers(-1, 13, 12), "b": b}
        with np.errstate(invalid="ignore"):
            (expected,), (value,) = (evaluate_program(p, arrays).values() for p in (program, found))
        if name in MASKS:
            np.testing.assert_array_equal(expected, value)
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(compiled(*arrays.values()), expected, rtol=1e-5, atol=1e-6)


def test_where_each_point_is_in_a_sum_the_sums_are_looked_at() -> None:
    for name, there in (("each point in a block", True), ("not each point in a block", False), ("prefixes", False)):
        assert ("y_chosen" in print_program(without_masks(simplify(parse_program(INPUTS + MASKS[name]))))) == there


@pytest.mark.parametrize("name", NOT_MASKS)
def test_products_that_no_mask_shortens_stay(name: str) -> None:
    program = simplify(parse_program(INPUTS + NOT_MASKS[name]))
    assert without_masks(program) is program


@pytest.mark.parametrize("block", range(4))
def test_random_programs_keep_their_values(block: int) -> None:
    for seed in share_of(range(93000 + 100 * block, 93000 + 100 * block + 30)):
        program = simplify(random_program(seed))
        found = without_masks(program)
        if found is not program:
            sizes = random_sizes(program, seed)
            inputs = random_inputs(program, seed, sizes=sizes)
            verify(found)
            expected = evaluate_program(program, inputs, sizes)
            for name, value in evaluate_program(found, inputs, sizes).items():
                np.testing.assert_array_equal(value, expected[name], err_msg=f"seed {seed}: {name} of\n{print_program(found)}")
