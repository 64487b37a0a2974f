"""Sums of products are taken apart where that makes fewer operations; values are kept, of derived formulas up to rounding."""

import numpy as np
import pytest

from tensorexpr.autodiff.sweep.reverse import reverse
from tensorexpr.codegen.cost import cost_of
from tensorexpr.errors import OutOfBoundsError
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tensorexpr.simplify import Options, factor_sums, simplify
from tensorexpr.simplify.passes import factors
from tensorexpr.text import print_program
from tensorexpr.verify import verify
from tests.random_programs import random_inputs, random_program, random_sizes
from tests.seeds import share_of

DERIVED = Options(derived=True)
CHAIN = (
    "a: {0}[64, 64] = input()\nb: {0}[64, 64] = input()\nc: {0}[64, 64] = input()\nh: {0}[64, 64] = input()\n"
    "y[q, j]: {0}[64, 64] = sum(a[q, i] * b[p, i] * c[p, j] for i in range(64) for p in range({1}))\nreturn y\n"
)


@pytest.mark.parametrize("block", range(3))
def test_sums_taken_apart_keep_their_values(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factors, "GAIN", 0)
    monkeypatch.setattr(factors, "pays_alone", lambda *_: True)
    for seed in share_of(range(30000 + 100 * block, 30000 + 100 * block + 45)):
        program = random_program(seed)
        apart = factor_sums(program, DERIVED)
        if apart is program:
            continue
        verify(apart)
        sizes = random_sizes(program, seed)
        inputs = random_inputs(program, seed, sizes=sizes)
        text = f"seed {seed}\n{print_program(program)}\n-->\n{print_program(apart)}"
        try:
            before = evaluate_program(program, inputs, sizes)
        except OutOfBoundsError:
            with pytest.raises(OutOfBoundsError):
                evaluate_program(apart, inputs, sizes)
            continue
        after = evaluate_program(apart, inputs, sizes)
        for name, value in before.items():
            if value.dtype.kind in "biu":
                np.testing.assert_array_equal(after[name], value, err_msg=text)
                continue
            tolerance = {2: 2e-2, 4: 1e-5, 8: 1e-9}[value.dtype.itemsize]
            found, expected = after[name].astype(np.float64), value.astype(np.float64)
            np.testing.assert_allclose(found, expected, tolerance, tolerance, err_msg=text)


def test_a_product_of_three_matrices_is_two_products() -> None:
    for dtype, options in (("f64", DERIVED), ("f32", Options(reassociate=True)), ("i32", Options())):
        program = parse_program(CHAIN.format(dtype, 64))
        apart = factor_sums(program, options)
        assert print_program(apart).splitlines()[-2].endswith("sum(c[p, j] * sum(a[q, i] * b[p, i] for i in range(64)) for p in range(64))")
        assert cost_of(program).operations == 3 * 64**4
        assert cost_of(apart).operations == cost_of(simplify(apart)).operations == 4 * 64**3
    program = parse_program(CHAIN.format("i32", 64))
    assert cost_of(simplify(program)).operations == 4 * 64**3


@pytest.mark.parametrize(
    "text, options",
    [
        (CHAIN.format("f32", 64), Options()),  # another rounding, which nobody allowed
        (CHAIN.format("bf16", 64), DERIVED),  # an inner sum would be rounded to 16 bits
        (CHAIN.format("f32", "q"), DERIVED),  # perhaps no points
        ("a: f32[64, 64] = input()\ny[i, j]: f32[64, 64] = sum(a[i, k] * a[k, j] for k in range(64))\nreturn y\n", DERIVED),
    ],
)
def test_other_sums_stay_whole(text: str, options: Options) -> None:
    program = parse_program(text)
    assert factor_sums(program, options) is program


def test_gradients_of_products_of_three_matrices_are_products_of_two() -> None:
    derived = reverse(parse_program(CHAIN.format("f64", 64)), [("y", "h")], ["a", "b", "c"]).program
    assert cost_of(simplify(derived)).operations <= 12 * 64**3, print_program(derived)
    program = parse_program(CHAIN.format("f64", 64).replace("64", "8").replace("f8", "f64"))
    derived = reverse(program, [("y", "h")], ["a", "b", "c"]).program
    inputs = random_inputs(program, 1)
    a, b, c, h = (inputs[name] for name in "abch")
    found = list(evaluate_program(derived, inputs).values())
    for value, expected in zip(found, (h @ c.T @ b, c @ h.T @ a, b @ a.T @ h), strict=True):
        np.testing.assert_allclose(value, expected, 1e-9, 1e-9)


ROWS = (
    "x: {0}[7, 40] = input()\nz: {0}[7, 40] = input()\nh: {0}[7] = input()\ns: {0}[7] = input()\nt: {0}[7] = input()\n"
    "u[i, k]: {0}[7, 40] = x[i, k] / s[i]\nv[i, k]: {0}[7, 40] = h[i] * z[i, k]\n"
)


def test_rows_that_were_divided_are_looked_through() -> None:
    text = ROWS + "y[i]: {0}[7] = sum(v[i, k] / t[i] * u[i, k] for k in range(40))\nreturn y\n"
    program = parse_program(text.format("f64"))
    apart = factor_sums(program, DERIVED)
    assert print_program(apart).splitlines()[-2].endswith("sum(x[i, k] * z[i, k] for k in range(40)) / s[i] / t[i] * h[i]")
    assert factor_sums(program, Options()) is program
    inputs = {name: np.abs(value) + 1 for name, value in random_inputs(program, 5).items()}
    np.testing.assert_allclose(*(evaluate_program(p, inputs)["y"] for p in (program, apart)), 1e-12)


def test_rows_are_divided_by_once() -> None:
    text = ROWS + "y[i, k]: {0}[7, 40] = v[i, k] / t[i] / s[i] + u[i, k] * z[i, k]\nreturn y\n"
    program = parse_program(text.format("f64"))
    apart = factor_sums(program, DERIVED)
    assert print_program(apart).splitlines()[-2].endswith("h[i] / t[i] / s[i] * z[i, k] + u[i, k] * z[i, k]")
    assert factor_sums(apart, DERIVED) is apart
    inputs = {name: np.abs(value) + 1 for name, value in random_inputs(program, 5).items()}
    np.testing.assert_allclose(*(evaluate_program(p, inputs)["y"] for p in (program, apart)), 1e-12)


def test_quotients_stay_in_range() -> None:
    """The product of divisors may be too large or too small a number where no quotient is."""
    program = parse_program((ROWS + "y[i]: {0}[7] = sum(v[i, k] / t[i] * u[i, k] for k in range(40))\nreturn y\n").format("f32"))
    apart = factor_sums(program, DERIVED)
    for scale in (1e-15, 1e15):
        inputs = {n: (np.abs(v) + 1) * np.float32(scale if n in "xzst" else 1) for n, v in random_inputs(program, 5).items()}
        before, after = (evaluate_program(p, inputs)["y"] for p in (program, apart))
        np.testing.assert_allclose(after, before, 1e-5)
