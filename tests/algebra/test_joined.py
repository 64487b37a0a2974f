"""Sums of several products of matrices are one product: values are kept, and other sums stay as they are."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.algebra import with_products_joined
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import integer
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tensorexpr.verify import verify
from tests.random_programs import random_inputs, random_program, random_sizes
from tests.seeds import share_of

HEAD = "a: f64[40, 9, 4] = input()\nb: f64[9, 48, 4] = input()\nr: f64[40, 9] = input()\nq: f64[3, 40, 9] = input()\n"
SUM = "y[i, j]: f64[40, 48] = sum({} for k in range(9))\nreturn y\n"
JOINED = {
    "a real part": (SUM.format("a[i, k, 0] * b[k, j, 0] - a[i, k, 1] * b[k, j, 1]"), 1),
    "an imaginary part": (SUM.format("a[i, k, 0] * b[k, j, 1] + b[k, j, 0] * a[i, k, 1]"), 1),
    "components in order": (SUM.format("a[i, k, 0] * b[k, j, 0] + a[i, k, 1] * b[k, j, 1]"), 0),
    "four components": (
        SUM.format("a[i, k, 0] * b[k, j, 3] + a[i, k, 1] * b[k, j, 2] - a[i, k, 2] * b[k, j, 1] + a[i, k, 3] * b[k, j, 0]"), 1
    ),
    "other tensors": (SUM.format("a[i, k, 0] * b[k, j, 0] + r[i, k] * b[k, j, 1]"), 1),
    "another element of each": (SUM.format("a[i, k, 0] * b[k, j, 0] - r[39 - i, 8 - k] * b[k, j, 2]"), 2),
    "a batch": ("y[n, i, j]: f64[3, 40, 48] = sum(q[n, i, k] * b[k, j, 0] - q[2 - n, i, k] * b[k, j, 1] for k in range(9))\nreturn y\n", 2),
    "lanes along the rows": (
        "y[j, i]: f64[48, 40] = tanh(sum(a[i, k, 0] * b[k, j, 1] - a[i, k, 1] * b[k, j, 0] for k in range(9)))\nreturn y\n", 1
    ),
    "rows that a condition keeps": (
        "y[i, j]: f64[60, 48] = where(5 <= i and i - 5 < 40, sum(a[i - 5, k, 0] * b[k, j, 0] - r[i - 5, k] * b[k, j, 1] "
        "for k in range(9)), 1.0)\nreturn y\n", 2
    ),
    "two sums that share an operand": (
        SUM.format("a[i, k, 0] * b[k, j, 0] - r[i, k] * b[k, j, 1]").replace("return y\n", "")
        + "z[p, j]: f64[40, 48] = sum(a[p, k, 0] * b[k, j, 0] + r[p, k] * b[k, j, 2] for k in range(9))\nreturn y, z\n", 3
    ),
}  # fmt: skip
STAY = {
    "one product": SUM.format("a[i, k, 0] * b[k, j, 0]"),
    "a term that is no product": SUM.format("a[i, k, 0] * b[k, j, 0] + a[i, k, 1]"),
    "other rows": "y[i, j]: f64[40, 40] = sum(r[i, k] * r[j, k] - a[i, k, 0] * a[i, k, 1] for k in range(9))\nreturn y\n",
    "few columns": "y[i, j]: f64[40, 4] = sum(a[i, k, 0] * b[k, j, 0] - a[i, k, 1] * b[k, j, 1] for k in range(9))\nreturn y\n",
    "a maximum": SUM.format("a[i, k, 0] * b[k, j, 0] - a[i, k, 1] * b[k, j, 1]").replace("sum", "max"),
    "rows that a condition on lanes keeps": (
        "y[i, j]: f64[60, 48] = where(i + j < 40, sum(a[i, k, 0] * b[k, j, 0] - r[i, k] * b[k, j, 1] for k in range(9)), 0.0)\nreturn y\n"
    ),
    "a range that grows": SUM.format("a[i, k, 0] * b[k, j, 0] - a[i, k, 1] * b[k, j, 1]").replace("range(9)", "range(minimum(i, 9))"),
}


@pytest.mark.parametrize("name", JOINED)
def test_one_product_of_several(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorexpr.algebra.layouts.joined.LEAST_WORK", 1)
    text, operands = JOINED[name]
    program = parse_program(HEAD + text)
    joined = with_products_joined(program)
    verify(joined)
    assert len(joined.definitions) == len(program.definitions) + operands and with_products_joined(joined) is joined
    rng = np.random.default_rng(0)
    given = {i.name: rng.standard_normal([integer(e) for e in i.type.shape]) for i in program.inputs}
    for one, two in zip(evaluate_program(program, given).values(), evaluate_program(joined, given).values(), strict=True):
        np.testing.assert_allclose(one, two, 1e-12, 1e-12)


@pytest.mark.parametrize("name", STAY)
def test_others_stay(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorexpr.algebra.layouts.joined.LEAST_WORK", 1)
    program = parse_program(HEAD + STAY[name])
    assert with_products_joined(program) is program


@pytest.mark.parametrize("seed", share_of(range(40)))
def test_random_programs_keep_their_values(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorexpr.algebra.layouts.joined.LEAST_WORK", 1)
    monkeypatch.setattr("tensorexpr.algebra.layouts.joined.REUSED", 1)
    program = simplify(random_program(seed))
    joined = with_products_joined(program)
    if joined is program:
        return
    verify(joined)
    sizes = random_sizes(program, seed)
    arrays = random_inputs(program, seed, exact=True, sizes=sizes)
    wanted, found = evaluate_program(program, arrays, sizes), evaluate_program(joined, arrays, sizes)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, 1e-5, 1e-5)


@pytest.mark.parametrize("rows", [0, 1, 7, 33, 300])
def test_complex_pairs_of_open_sizes(rows: int) -> None:
    n = te.dim("n")
    a, b = te.placeholder((n, 24, 2), name="a"), te.placeholder((24, n, 2), name="b")

    def element(i: te.Scalar, j: te.Scalar, c: te.Scalar) -> te.Scalar:
        real = te.sum(lambda k: a[i, k, 0] * b[k, j, 0] - a[i, k, 1] * b[k, j, 1], 24)
        return te.where(c == 0, real, te.sum(lambda k: a[i, k, 0] * b[k, j, 1] + a[i, k, 1] * b[k, j, 0], 24))

    f = te.build(te.compute((n, n, 2), element, name="y"), [a, b])
    rng = np.random.default_rng(2)
    x, y = rng.standard_normal((rows, 24, 2)), rng.standard_normal((24, rows, 2))
    z = (x[..., 0] + 1j * x[..., 1]) @ (y[..., 0] + 1j * y[..., 1])
    found = f(x.astype(np.float32), y.astype(np.float32))
    np.testing.assert_allclose(found, np.stack([z.real, z.imag], -1), 1e-4, 1e-4)
