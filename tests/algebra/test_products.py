"""Products that one definition adds up are definitions: the same bits, each with a tile of its own."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.algebra import with_factors_grouped, with_products_apart, with_products_in_order
from tensorexpr.codegen.target import host_target
from tensorexpr.codegen.tuning.lookup import REGROUPED, simplified
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Define, Reduce
from tensorexpr.language import program_of
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tensorexpr.simplify.facts.indices import factors_of
from tensorexpr.text import print_program
from tensorexpr.traversal import expressions, walk
from tensorexpr.verify import verify
from tests.random_programs import random_inputs, random_program, random_sizes
from tests.seeds import share_of

INPUTS = "x: f32[6, 70] = input()\nw: f32[70, 9] = input()\nh: f32[6, 40] = input()\nu: f32[40, 9] = input()\n"
FIRST, SECOND = "sum(x[i, k] * w[k, j] for k in range(70))", "sum(h[i, r] * u[r, j] for r in range(40))"
STAYS = {
    "one product": f"y[i, j]: f32[6, 9] = tanh({FIRST}) + h[i, j]\nreturn y\n",
    "a short sum": f"y[i, j]: f32[6, 9] = {FIRST} + sum(h[i, r] * u[r, j] for r in range(4))\nreturn y\n",
    "under a condition": f"y[i, j]: f32[6, 9] = where(i > j, {FIRST}, {SECOND})\nreturn y\n",
    "sums of rows": f"y[i, j]: f32[6, 9] = {FIRST} + sum(x[i, k] * x[i, k] for k in range(70))\nreturn y\n",
}


def test_products_that_are_added_up_are_definitions() -> None:
    program = simplify(parse_program(f"{INPUTS}y[i, j]: f32[6, 9] = tanh({FIRST} + {SECOND} * 2.0)\nreturn y\n"))
    found = with_products_apart(program)
    verify(found)
    assert [sum(isinstance(n, Reduce) for n in walk(d.value)) for d in found.definitions if isinstance(d, Define)] == [1, 1, 0]
    inputs = random_inputs(program, 0)
    np.testing.assert_array_equal(evaluate_program(program, inputs)["y"], evaluate_program(found, inputs)["y"])


GROUPED = {
    "x[i, k] * w[k, j] * s[k // 10, j]": "x[i, k] * (w[k, j] * s[k // 10, j])",
    "s[k // 10, j] * x[i, k] * w[k, j]": "s[k // 10, j] * w[k, j] * x[i, k]",
    "x[i, k] * w[k, j] * h[i, 1]": "x[i, k] * h[i, 1] * w[k, j]",
    "x[i, k] * w[k, j]": "x[i, k] * w[k, j]",
    "x[i, k] * x[i, k] * tanh(x[i, k] * w[k, j])": "x[i, k] * x[i, k] * tanh(x[i, k] * w[k, j])",
}


@pytest.mark.parametrize("given", GROUPED)
def test_factors_are_multiplied_with_those_that_share_their_points(given: str) -> None:
    text = f"{INPUTS}s: f32[7, 9] = input()\ny[i, j]: f32[6, 9] = sum({given} for k in range(70))\nreturn y\n"
    program = parse_program(text)
    found = with_factors_grouped(program)
    verify(found)
    assert f"sum({GROUPED[given]} for k in range(70))" in print_program(found)
    assert (found is program) == (GROUPED[given] == given)
    inputs = random_inputs(program, 0)
    np.testing.assert_allclose(evaluate_program(program, inputs)["y"], evaluate_program(found, inputs)["y"], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", STAYS)
def test_other_sums_stay_where_they_are(name: str) -> None:
    program = simplify(parse_program(INPUTS + STAYS[name]))
    assert with_products_apart(program) is program


@pytest.mark.parametrize("block", range(4))
def test_random_programs_keep_their_bits(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorexpr.algebra.products.STORED", 2)
    for seed in share_of(range(95000 + 100 * block, 95000 + 100 * block + 60)):
        program = simplify(random_program(seed))
        found = with_products_apart(program)
        if found is not program:
            sizes = random_sizes(program, seed)
            inputs = random_inputs(program, seed, sizes=sizes)
            verify(found)
            expected = evaluate_program(program, inputs, sizes)
            for name, value in evaluate_program(found, inputs, sizes).items():
                np.testing.assert_array_equal(value, expected[name], err_msg=f"seed {seed}")


def test_terms_have_thousands_of_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step of compiling them goes one call deeper for each."""
    monkeypatch.setenv("TENSOREXPR_STRICT", "1")
    x, w = te.placeholder((3, 4), name="X"), te.placeholder((4,), name="W")

    def term(i, k):
        found = x[i, k]
        for number in range(2000):
            found = found * (te.cos(w[k] * float(number % 7)) if number % 2 else x[i, k] + float(number % 5))
        return found

    y = te.compute((3,), lambda i: te.sum(lambda k: term(i, k), 4))
    found = te.build([y], [x, w])(np.full((3, 4), -1.0, np.float32), np.zeros(4, np.float32))[0]
    np.testing.assert_array_equal(found, 0.0)  # 1 - 1 is among the factors


SQUARE = (
    "q: f32[5, 40, 6] = input()\nk: f32[5, 40, 6] = input()\nv: f32[5, 40, 7] = input()\n"
    "s[b, i, j]: f32[5, 40, 40] = sum(q[b, i, r] * k[b, j, r] for r in range(6)) * 0.5\n"
    "t[b, i]: f32[5, 40] = sum(s[b, i, j] for j in range(40))\n"
    "y[b, i, c]: f32[5, 40, 7] = sum(s[b, i, j] * v[b, j, c] for j in range(40)) / (t[b, i] * t[b, i] + 1.0)\nreturn y\n"
)


def test_attention_without_a_softmax_makes_no_square() -> None:
    program = simplify(parse_program(SQUARE))
    found = with_products_in_order(program, REGROUPED)
    verify(found)
    assert [d.results[0][0] for d in found.definitions] == ["t", "y"]
    assert with_products_in_order(found, REGROUPED) is found
    inputs = random_inputs(program, 3)
    before, after = (evaluate_program(p, inputs)["y"] for p in (program, found))
    np.testing.assert_allclose(after, before, 1e-4, 1e-4)


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("return y", "return y, s"),  # it is made anyway
        ("sum(s[b, i, j] for", "sum(exp(s[b, i, j]) for"),  # no factor
        ("sum(s[b, i, j] for", "sum(s[b, i, i] + s[b, j, i] for"),
        ("range(40)) / ", "range(40) if j <= i) / "),  # a triangle
        ("40, 7]", "40, 70]"),  # no fewer operations
        ("f32", "f16"),
    ],
)
def test_products_of_products_that_stay(text: str, change: str) -> None:
    given = SQUARE.replace(text, change)
    given = given.replace("40, 6]", "40, 60]").replace("range(6)", "range(60)") if "70" in change else given
    assert given != SQUARE
    program = simplify(parse_program(given))
    assert with_products_in_order(program, REGROUPED) is program


def test_products_with_constants_stay() -> None:
    """The difference of rows, as a product, is exact where they are close: what it is the difference of has lost these digits."""
    d = te.constant((np.eye(64) - np.eye(64, k=1)).astype(np.float32))
    x, v = te.placeholder((64, 64), "float32", name="x"), te.placeholder((64,), "float32", name="v")
    s = te.compute((64, 64), lambda i, j: te.sum(lambda r: d[i, r] * x[r, j], 64))
    program = simplify(program_of([te.compute((64,), lambda i: te.sum(lambda j: s[i, j] * v[j], 64))], [x, v]))
    assert with_products_in_order(program, REGROUPED) is program


def test_a_product_inside_of_a_sum_is_a_definition() -> None:
    text = "x: f32[30, 70] = input()\nw: f32[70, 50] = input()\nz: f32[30, 50] = input()\n"
    program = simplify(
        parse_program(f"{text}y[i]: f32[30] = sum(z[i, q] * sum(x[i, p] * w[p, q] for p in range(70)) for q in range(50))\nreturn y\n")
    )
    found = with_products_apart(program)
    verify(found)
    assert len(found.definitions) == 2
    inputs = random_inputs(program, 3)
    np.testing.assert_array_equal(*(evaluate_program(p, inputs)["y"] for p in (program, found)))


def test_factors_of_flattened_axes_come_apart_once_these_are_split() -> None:
    """A Kronecker product of matrices, each of its axes one of two: as many operations as in two steps, forward and gradient."""
    x, a, c = (te.placeholder(shape, name=name) for name, shape in (("x", (8, 32 * 24)), ("a", (32, 32)), ("c", (24, 24))))
    y = te.compute((8, 32 * 24), lambda n, r: te.sum(lambda i, j: a[r // 24, i] * c[r % 24, j] * x[n, i * 24 + j], (32, 24)), name="y")
    head = te.placeholder(y.shape, name="h")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(t.shape).astype(np.float32) for t in (x, a, c, head)]
    for outputs, inputs in (([y], [x, a, c]), (list(te.gradient(y, [x, a, c], head)), [x, a, c, head])):
        program = simplified(program_of(outputs, inputs), host_target())
        sums = [n for d in program.definitions for e in expressions(d) for n in walk(e) if isinstance(n, Reduce)]
        assert max(len(list(factors_of(n.values[0]))) for n in sums) == 2
    wide = [array.astype(np.float64) for array in arrays]
    square = wide[0].reshape(8, 32, 24)
    expected = np.einsum("nij,ki,lj->nkl", square, wide[1], wide[2]).reshape(8, -1)
    np.testing.assert_allclose(te.build(y, [x, a, c])(*arrays[:3]), expected, rtol=1e-3, atol=1e-3)
    found = te.build(list(te.gradient(y, [x, a, c], head)), [x, a, c, head])(*arrays)
    weights = wide[3].reshape(8, 32, 24)
    np.testing.assert_allclose(found[0].reshape(8, 32, 24), np.einsum("nkl,ki,lj->nij", weights, wide[1], wide[2]), rtol=1e-3, atol=1e-2)
    np.testing.assert_allclose(found[1], np.einsum("nkl,nij,lj->ki", weights, square, wide[2]), rtol=1e-3, atol=1e-2)
    np.testing.assert_allclose(found[2], np.einsum("nkl,nij,ki->lj", weights, square, wide[1]), rtol=1e-3, atol=1e-2)
