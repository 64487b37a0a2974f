"""Sums of products are taken apart where that makes fewer operations; values are kept, of derived formulas up to rounding."""

import numpy as np
import pytest

from tensorexpr.autodiff.sweep.reverse import reverse
from tensorexpr.codegen.compile import build_program
from tensorexpr.codegen.cost import cost_of
from tensorexpr.codegen.target import host_target
from tensorexpr.codegen.tuning.lookup import REGROUPED, simplified
from tensorexpr.errors import OutOfBoundsError
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Reduce, Scatter
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
        assert print_program(apart).splitlines()[-2].endswith("sum(a[q, i] * sum(b[p, i] * c[p, j] for p in range(64)) for i in range(64))")
        assert cost_of(program).operations == 3 * 64**4
        assert cost_of(apart).operations == cost_of(simplify(apart)).operations == 4 * 64**3
    program = parse_program(CHAIN.format("i32", 64))
    assert cost_of(simplify(program)).operations == 4 * 64**3


@pytest.mark.parametrize(
    "before, after",
    [
        ("sum(a[i] for k in range(5))", "a[i] * 5.0"),
        ("sum(a[k] for k in range(7) for p in range(3))", "sum(a[k] for k in range(7)) * 3.0"),
        ("sum(a[k] for k in range(7) for p in range(k))", "sum(a[k] for k in range(7) for p in range(k))"),
        ("sum(a[i] for k in range(0))", "sum(a[i] for k in range(0))"),
        ("sum(a[i] / 4.0 + a[i] * a[k] for k in range(7))", "a[i] * sum(0.25 + a[k] for k in range(7))"),
    ],
)
def test_what_is_added_up_again_and_again_is_multiplied(before: str, after: str) -> None:
    text = "a: {0}[7] = input()\ny[i]: {0}[7] = {1}\nreturn y\n"
    found = factor_sums(parse_program(text.format("f32", before)), DERIVED)
    assert print_program(found).splitlines()[-2].partition(" = ")[2] == after
    whole = parse_program(text.format("i8", "sum(a[i] for k in range(300))"))
    given = {"a": np.arange(-3, 4, dtype=np.int8)}
    np.testing.assert_array_equal(evaluate_program(factor_sums(whole, DERIVED), given)["y"], evaluate_program(whole, given)["y"])


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


QUADRATIC = (
    "x: {0}[40, 32] = input()\nc: {0}[32, 32] = input()\nw: {0}[40] = input()\nh: {0}[40] = input()\n"
    "y[i]: {0}[40] = sum(w[i] * x[i, a] * c[a, b] * x[i, b] / 3.0 for a in range(32) for b in range(32))\nreturn y\n"
)


def test_a_quadratic_form_is_a_product_and_a_sum_over_its_rows() -> None:
    program = parse_program(QUADRATIC.format("f32"))
    apart = factor_sums(program, REGROUPED)
    assert (
        print_program(apart)
        .splitlines()[-2]
        .endswith("w[i] * sum(x[i, b] * sum(x[i, a] * c[a, b] for a in range(32)) for b in range(32)) / 3.0")
    )
    inputs = random_inputs(program, 3)
    np.testing.assert_allclose(evaluate_program(apart, inputs)["y"], evaluate_program(program, inputs)["y"], 1e-4, 1e-4)
    found = build_program(program, single=True)(*inputs.values())
    np.testing.assert_allclose(found, evaluate_program(program, inputs)["y"], 1e-4, 1e-4)


def test_a_gradient_computes_the_product_in_a_quadratic_form_once() -> None:
    text = QUADRATIC.format("f64").replace("32", "96").replace("sum(", "sqrt(sum(").replace("\nreturn", ")\nreturn")
    derived = simplify(factor_sums(reverse(parse_program(text), [("y", "h")], ["x", "c"]).program, REGROUPED))
    assert print_program(derived).count("x[i, a] * c[a, b]") == 1, print_program(derived)


@pytest.mark.parametrize(
    "value, wanted",
    [
        ("w[i] * x[i, k] * c[k, j] for k in range(32)", "w[i] * sum(x[i, k] * c[k, j] for k in range(32))"),
        ("x[i, k] * c[k, j] / w[i] for k in range(32)", "sum(x[i, k] * c[k, j] for k in range(32)) / w[i]"),
        ("x[i, k] / w[i] for k in range(32)", "sum(x[i, k] for k in range(32)) / w[i]"),
        ("x[i, k] * (w[i] * c[k, j] + w[i] * x[i, k]) for k in range(32)", "w[i] * sum(x[i, k] * (c[k, j] + x[i, k]) for k in range(32))"),
        ("x[i, k] * (c[k, j] * 2.0 - c[k, j] * w[i]) for k in range(32)", "(2.0 - w[i]) * sum(x[i, k] * c[k, j] for k in range(32))"),
        ("x[i, k] * (c[k, j] * 2.0 - x[i, k] * w[i]) for k in range(32)", None),
        ("w[i] * x[i, k] for k in range(32)", None),  # the product and the sum are one operation
        ("w[k] * x[i, k] * c[k, j] for k in range(32)", None),  # w[k] * c[k, j] is a tensor of its own
        ("w[i] * x[i, k] * c[k, j] for k in range(32) if k != j", None),  # perhaps no points
    ],
)
def test_what_depends_on_no_axis_leaves_a_sum(value: str, wanted: str | None) -> None:
    program = parse_program(
        f"x: f32[40, 32] = input()\nc: f32[32, 48] = input()\nw: f32[40] = input()\ny[i, j]: f32[40, 48] = sum({value})\nreturn y\n"
    )
    apart = factor_sums(program, REGROUPED)
    if wanted is None:
        assert apart is program
    else:
        assert print_program(apart).splitlines()[-2].endswith(f"= {wanted}")


def test_a_core_and_three_matrices_are_three_products() -> None:
    program = parse_program(
        "g: f32[5, 6, 7] = input()\na: f32[31, 5] = input()\nb: f32[37, 6] = input()\nc: f32[41, 7] = input()\n"
        "y[i, j, k]: f32[31, 37, 41] = sum(g[x, y, z] * a[i, x] * b[j, y] * c[k, z]"
        " for x in range(5) for y in range(6) for z in range(7))\n"
        "return y\n"
    )
    apart = simplify(factor_sums(program, REGROUPED))
    assert len(apart.definitions) == 3
    assert cost_of(apart).operations <= 2 * (30 * 41 * 7 + 5 * 37 * 41 * 6 + 31 * 37 * 41 * 5)
    inputs = random_inputs(program, 5)
    expected = np.einsum("xyz,ix,jy,kz->ijk", *(value.astype(np.float64) for value in inputs.values()))
    np.testing.assert_allclose(evaluate_program(apart, inputs)["y"], expected, 1e-4, 1e-4)


def test_quotients_stay_in_range() -> None:
    """The product of divisors may be too large or too small a number where no quotient is."""
    program = parse_program(
        "x: f32[7, 40] = input()\nz: f32[7, 40] = input()\ns: f32[7] = input()\nt: f32[7] = input()\n"
        "y[i]: f32[7] = sum(x[i, k] / s[i] / t[i] * (z[i, k] / t[i]) for k in range(40))\nreturn y\n"
    )
    apart = factor_sums(program, DERIVED)
    assert print_program(apart).splitlines()[-2].endswith("sum(x[i, k] * z[i, k] for k in range(40)) / s[i] / t[i] / t[i]")
    for scale in (1e-15, 1e15):
        inputs = {n: (np.abs(v) + 1) * np.float32(scale) for n, v in random_inputs(program, 5).items()}
        before, after = (evaluate_program(p, inputs)["y"] for p in (program, apart))
        np.testing.assert_allclose(after, before, 1e-5)


def test_a_factor_of_both_branches_leaves_a_choice() -> None:
    head = "".join(f"{name}: f32[{shape}] = input()\n" for name, shape in (("u", "64"), ("v", "64"), ("a", "64, 32"), ("b", "64, 32")))
    chosen = "where(u[i] + v[j] > 0.0, a[i, d] * b[j, d] * exp(u[i] + v[j]), a[i, d] * b[j, d] * exp((u[i] + v[j]) * 0.2) * 0.2)"
    program = parse_program(f"{head}y[i]: f32[64] = sum({chosen} for d in range(32) for j in range(64))\nreturn y\n")
    apart = factor_sums(program, DERIVED)
    choice = "where(u[i] + v[j] > 0.0, exp(u[i] + v[j]), exp((u[i] + v[j]) * 0.2) * 0.2)"
    assert "".join(print_program(apart).split()).endswith(
        "".join(f"y[i]:f32[64]=sum({choice}*sum(a[i,d]*b[j,d]fordinrange(32))forjinrange(64))returny".split())
    )  # the function is computed once for each i and j
    inputs = {
        n: np.random.default_rng(k).standard_normal(s).astype(np.float32)
        for k, (n, s) in enumerate({"u": 64, "v": 64, "a": (64, 32), "b": (64, 32)}.items())
    }
    found, expected = (evaluate_program(p, inputs)["y"] for p in (apart, program))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("parts", "whole", "wanted"),
    [
        ("p[r, i]: f32[5, 96] = sum(x[i, 7 * r + k] for k in range(7))", "sum(p[r, i] for r in range(5))", "x[i, r * 7 + k]"),
        ("p[r, i]: f32[5, 96] = sum(x[i, r + 5 * k] for k in range(7)) / 7.0", "sum(p[r, i] for r in range(5)) / 5.0", "x[i, r + k * 5]"),
        ("p[r, i]: f32[5, 96] = sum(x[i, 7 * r + k] for k in range(7)) * 0.3", "sum(p[4 - r, i] / 7.0 for r in range(5))", "x[i, "),
        ("p[i, r]: f32[96, 5] = max(x[i, 7 * r + k] for k in range(7))", "max(p[i, r] for r in range(5))", "x[i, r * 7 + k]"),
    ],
)
def test_a_reduction_of_parts_is_one_reduction(parts: str, whole: str, wanted: str) -> None:
    """However a mean is made: of means of rows, of strided parts, with their literals."""
    program = parse_program(f"x: f32[96, 35] = input()\n{parts}\ny[i]: f32[96] = {whole}\nreturn y\n")
    found = simplified(program, host_target())
    assert len(found.definitions) == 1 and wanted in print_program(found)
    inputs = random_inputs(program, 3)
    before, after = (evaluate_program(p, inputs)["y"] for p in (program, found))
    np.testing.assert_allclose(after, before, 1e-5, 1e-5)


@pytest.mark.parametrize(
    "parts",
    [
        "p[i, r]: f32[96, 5] = sum(x[i, k] for k in range(7 * r))",  # of different lengths
        "p[i, r]: f32[96, 5] = sum(x[i, 7 * r + k] for k in range(7)) + 1.0",
        "p[i, r]: f32[96, 5] = max(x[i, 7 * r + k] for k in range(7))",
    ],
)
def test_what_is_no_part_of_a_reduction_stays_by_itself(parts: str) -> None:
    program = parse_program(f"x: f32[96, 35] = input()\n{parts}\ny[i]: f32[96] = sum(p[i, r] for r in range(5))\nreturn y\n")
    assert len(simplify(factor_sums(simplify(program), REGROUPED)).definitions) == 2


@pytest.mark.parametrize("value", ["x[i, 34 - k]", "x[i, 34 - k] * w[34 - k]", "x[i, 34 - k] * w[k]", "x[i, 34 - k] * f32(k)"])
def test_sums_go_forwards_where_all_that_they_read_lies_backwards(value: str) -> None:
    program = parse_program(f"x: f32[9, 35] = input()\nw: f32[35] = input()\ny[i]: f32[9] = sum({value} for k in range(35))\nreturn y\n")
    found = simplify(factor_sums(program, REGROUPED))
    assert ("34 - k" in print_program(found)) == ("k]" in value.replace("- k", "") or "(k)" in value)
    inputs = random_inputs(program, 3)
    before, after = (evaluate_program(p, inputs)["y"] for p in (program, found))
    np.testing.assert_allclose(after, before, 1e-5, 1e-5)


@pytest.mark.parametrize(
    "value",
    [
        "sum((x[i, j] - w[i, j]) / 7.0 for j in range(7) for i in range(5))",  # the columns first
        "sum(sum(log(abs(x[i, j] - w[i, j]) + 1.0) / 7.0 for j in range(7)) / 5.0 for i in range(5))",  # a literal leaves a function
        "sum(-(x[i, j] * w[i, j] / 7.0) for j in range(7) for i in range(5))",
    ],
)
def test_a_sum_over_all_is_one_sum_in_the_order_of_memory(value: str) -> None:
    program = parse_program(f"x: f32[5, 7] = input()\nw: f32[5, 7] = input()\ny: f32 = {value}\nreturn y\n")
    found = simplified(program, host_target())
    assert "for i in range(35)" in print_program(found), print_program(found)
    inputs = random_inputs(program, 3)
    before, after = (evaluate_program(program, inputs)["y"], evaluate_program(found, {k: v.reshape(-1) for k, v in inputs.items()})["y"])
    np.testing.assert_allclose(after, before, 1e-5, 1e-5)


def test_axes_that_tensors_disagree_about_keep_their_order() -> None:
    text = "x: f32[5, 5] = input()\ny: f32 = sum(x[i, j] * {} for j in range(5) for i in range(5))\nreturn y\n"
    for kept in ("x[j, i]", "x[i, i]"):
        program = parse_program(text.format(kept))
        assert factor_sums(program, REGROUPED) is program


@pytest.mark.parametrize("value", ["w[i] * x[k] * c[k]", "x[k] * c[k] / w[i]", "x[k] * c[k] * -2.0", "w[at[i]] * x[k] * c[k]"])
def test_what_leaves_a_sum_that_may_be_empty_does_so_where_it_has_points(value: str) -> None:
    """Over none it is 0, whatever its factors are: infinite, below zero, outside of their tensor."""
    inputs = "w: f32[4] = input()\nx: f32[m] = input()\nc: f32[m] = input()\nat: i64[4] = input()\n"
    program = parse_program(f"sizes(m)\n{inputs}y[i]: f32[4] = sum({value} for k in range(m))\nreturn y\n")
    apart = factor_sums(program, DERIVED)
    verify(apart)
    assert "sum(x[k] * c[k] for k in range(m))" in print_program(apart)
    w = np.array([np.inf, 0, np.nan, -1], np.float32)
    empty = {"w": w, "x": w[:0], "c": w[:0], "at": np.full(4, 9)}
    found = evaluate_program(apart, empty, {"m": 0})["y"]
    assert not found.any() and not np.signbit(found).any()
    some = {"w": w, "x": np.arange(1, 4, dtype=np.float32), "c": np.ones(3, np.float32), "at": np.arange(4)}
    wanted = evaluate_program(program, some, {"m": 3})["y"]
    np.testing.assert_array_equal(evaluate_program(apart, some, {"m": 3})["y"], wanted)


@pytest.mark.parametrize("factor", ["exp(where(h[e] > 0.0, h[e], h[e] * 0.5))", "h[e]"])
@pytest.mark.parametrize("size", ["40", "n"])
def test_a_function_leaves_a_sum_that_is_sent(factor: str, size: str) -> None:
    """It is computed once for each point that is sent; a factor that is at hand stays in the sum."""
    text = (
        f"{'sizes(n)' * (size == 'n')}\nx: f32[{size}, 6] = input()\ny: f32[9, 6] = input()\n"
        f"h: f32[{size}] = input()\nt: i32[{size}] = input()\n"
        f"z: f32[9] = scatter({{i64(minimum(maximum(t[e], 0), 8)): sum(where(h[e] > 0.0, x[e, d] * y[3, d] * {factor}, "
        f"x[e, d] * y[3, d] * {factor} * 0.5) for d in range(6)) for e in range({size})}})\nreturn z\n"
    )
    program = parse_program(text)
    apart = factor_sums(simplify(program), DERIVED)
    (sent,) = apart.definitions
    assert isinstance(sent, Scatter) and isinstance(sent.value, Reduce) == (factor == "h[e]"), print_program(apart)
    rng = np.random.default_rng(1)
    for n in (40,) if size == "40" else (0, 1, 7, 33, 300):
        arrays = {"x": rng.standard_normal((n, 6)), "y": rng.standard_normal((9, 6)), "h": rng.standard_normal(n)}
        given = {name: a.astype(np.float32) for name, a in arrays.items()} | {"t": rng.integers(-2, 11, n).astype(np.int32)}
        want = evaluate_program(program, given)["z"]
        np.testing.assert_allclose(evaluate_program(apart, given)["z"], want, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(build_program(apart)(*given.values())[0], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("places", ["k, p, b", "p, k, b", "p, b, k"])
def test_a_common_factor_keeps_sums_inside_apart(places: str) -> None:
    """A sum in the other one may go through its points under the name of the axis that both become."""
    sums = f"sum(x[i, a] * x[i, b] * w[a, b, p] for a in range(9) for b in range(9)) + sum(x[i, b] * x[i, k] * w[{places}] {{}})"
    program = parse_program(
        "x: f64[9, 9] = input()\nw: f64[9, 9, 9] = input()\ny[i, p]: f64[9, 9] = "
        f"{sums.format('for b in range(9) for k in range(9)')}\nz[i, p]: f64[9, 9] = {sums.format('for k in range(9) for b in range(9)')}\n"
        "return y, z\n"
    )
    apart = factor_sums(program, DERIVED)
    verify(apart)
    rng = np.random.default_rng(0)
    given = {"x": rng.standard_normal((9, 9)), "w": rng.standard_normal((9, 9, 9))}
    want, found = evaluate_program(program, given), evaluate_program(apart, given)
    for name in ("y", "z"):
        np.testing.assert_allclose(found[name], want[name], rtol=1e-12)
