"""What steps of scans, and sums of a few columns, reduce across its rows is turned around in front of them: values are kept, and all else
stays as it is."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.algebra import turned_operands, with_operands_turned
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Program, integer
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tensorexpr.verify import verify
from tests.random_programs import assert_same_bits, random_program
from tests.seeds import share_of

HEAD = "w: f64[6, 5] = input()\nx: f64[9, 8, 6] = input()\ni[a, b]: f64[8, 5] = 0.0\n"
SQUARE = HEAD.replace("f64[6, 5]", "f64[5, 5]")
LOOP = "for t in range(9):\n    s: f64[8, 5] = state(i)\n"
READS = "    n[a, b]: f64[8, 5] = sum(tanh(s[a, k]) * {w} for k in range({k}))\n    h[t] = s = n\nreturn h\n"
TURNED = {
    "a cell": HEAD
    + LOOP
    + "    g[a, b]: f64[8, 6] = x[t, a, b] + sum(s[a, k] * w[b, k] for k in range(5))\n"
    + "    n[a, b]: f64[8, 5] = tanh(g[a, b + 1] * g[a, b])\n    h[t] = s = n\nreturn h\n",
    "some rows of it": HEAD + LOOP + READS.format(w="w[b + 1, k]", k=5),
    "the best of sums": SQUARE + LOOP + READS.format(w="w[b, k]", k=5).replace("sum(tanh", "max(tanh").replace(") * w", ") + w"),
    "two scans": SQUARE
    + LOOP
    + READS.format(w="w[b, k]", k=5).replace("return h\n", "")
    + LOOP.replace("t in", "u in").replace(" s:", " r:")
    + READS.format(w="w[b, k]", k=5).replace("[t]", "[u]").replace("s", "r").replace("rum", "sum").replace("h", "q").replace("tanq", "tanh")
    .replace("n[a", "m[a").replace("= n\n", "= m\n").replace("return q", "return h, q"),
}  # fmt: skip
WIDE = "a: f64[40, 70] = input()\nb: f64[70, 3] = input()\nc: f64[70, 4] = input()\nd: f64[2, 70, 3] = input()\n"
COLUMNS = {
    "a product": "h[i, j]: f64[40, 3] = sum(a[i, k] * b[k, j] for k in range(70))\nreturn h",
    "the other way around": "h[i, j]: f64[40, 3] = a[i, 0] + max(b[k, j] * a[i, k] for k in range(70))\nreturn h",
    "some of a sum": "h[i, j]: f64[40, 3] = sum(a[i, k] * b[k, j] for k in range(i, 70) if a[i, k] > 0.0)\nreturn h",
    "a batch": "h[p, i, j]: f64[2, 40, 3] = sum(a[i, k] * d[p, k, j] for k in range(70))\nreturn h",
}
STAY_AS_THEY_ARE = {
    "half a vector": "h[i, j]: f64[40, 4] = sum(a[i, k] * c[k, j] for k in range(70))\nreturn h",
    "a short sum": "h[i, j]: f64[40, 3] = sum(a[i, k] * b[k, j] for k in range(63))\nreturn h",
    "few rows": "h[i, j]: f64[9, 3] = sum(a[i, k] * b[k, j] for k in range(70))\nreturn h",
    "across both": "h[i, j]: f64[70, 3] = sum(a[k, i] * b[k, j] for k in range(40))\nreturn h",
    "rows from memory": "e: f64[40000, 70] = input()\nh[i, j]: f64[40000, 3] = sum(e[i, k] * b[k, j] for k in range(70))\nreturn h",
    "a picture": "p: f64[70, 5, 3] = input()\nh[i, y, j]: f64[40, 5, 3] = sum(a[i, k] * p[k, y, j] for k in range(70))\nreturn h",
    "a diagonal": "h[i, j]: f64[40, 3] = sum(a[i, k] * b[k, (j + k) % 3] for k in range(70))\nreturn h",
}
STAY = {
    "read along its rows": SQUARE + LOOP + READS.format(w="w[k, b]", k=5),
    "once each": HEAD.replace("x: f64[9, 8, 6]", "x: f64[6, 5]").replace("i[a, b]: f64[8", "i[a, b]: f64[1")
    + LOOP.replace("range(9)", "range(2)").replace("8, 5", "1, 5")
    + READS.format(w="w[b, k]", k=5).replace("8, 5", "1, 5"),
    "made in the step": SQUARE + LOOP + "    v[a, b]: f64[5, 5] = w[a, b] + s[a, b]\n" + READS.format(w="v[b, k]", k=5),
    "no scan": SQUARE + "h[a, b]: f64[8, 5] = sum(x[0, a, k] * w[b, k] for k in range(5))\nreturn h\n",
}


def same_values(program: Program, other: Program, given: Mapping[str, Any]) -> None:
    verify(other)
    for one, two in zip(evaluate_program(program, given).values(), evaluate_program(other, given).values(), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("name", TURNED)
def test_what_steps_read_across_its_rows_is_turned_once(name: str) -> None:
    program = parse_program(TURNED[name])
    turned = with_operands_turned(program)
    assert turned_operands(turned) == {"w_turned"} and with_operands_turned(turned) is turned
    rng = np.random.default_rng(0)
    same_values(program, turned, {i.name: rng.standard_normal([integer(e) for e in i.type.shape]) for i in program.inputs})


@pytest.mark.parametrize("name", COLUMNS)
def test_few_columns_lie_along_their_sum(name: str) -> None:
    program = parse_program(WIDE + COLUMNS[name])
    turned = with_operands_turned(program)
    (made,) = turned_operands(turned)
    assert made in ("b_turned", "d_turned") and with_operands_turned(turned) is turned
    rng = np.random.default_rng(0)
    same_values(program, turned, {i.name: rng.standard_normal([integer(e) for e in i.type.shape]) for i in program.inputs})


@pytest.mark.parametrize("name", STAY_AS_THEY_ARE)
def test_other_columns_stay(name: str) -> None:
    program = parse_program(WIDE + STAY_AS_THEY_ARE[name])
    assert with_operands_turned(program) is program


@pytest.mark.parametrize("rows", [0, 1, 7, 33, 300])
def test_few_columns_of_any_number_of_rows(rows: int) -> None:
    m = te.dim("m")
    a, b = te.placeholder((m, 70), name="a"), te.placeholder((70, 3), name="b")
    product = te.compute((m, 3), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], 70))
    f = te.build(product, [a, b])
    assert "b_turned" in f.source("nest")
    rng = np.random.default_rng(1)
    given = {a: rng.standard_normal((rows, 70)).astype(np.float32), b: rng.standard_normal((70, 3)).astype(np.float32)}
    np.testing.assert_allclose(f(*given.values()), given[a] @ given[b], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", STAY)
def test_others_stay(name: str) -> None:
    program = parse_program(STAY[name])
    assert with_operands_turned(program) is program


@pytest.mark.parametrize("seed", share_of(range(40)))
def test_random_programs_keep_their_values(seed: int) -> None:
    program = simplify(random_program(seed))
    assert_same_bits(program, with_operands_turned(program), seed)


@pytest.mark.parametrize("length", [0, 1, 7, 33])
def test_a_cell_of_any_length(length: int) -> None:
    """The copy stays in front of the steps, and the values are those of the interpreter."""
    t = te.dim("t")
    x, w = te.placeholder((t, 3, 20), name="x"), te.placeholder((20, 20), name="w")
    start = te.compute((3, 20), lambda i, j: te.cast(0, "float32"))

    def step(t: te.Scalar, s: te.Tensor) -> te.Tensor:
        return te.compute((3, 20), lambda i, j: te.tanh(x[t, i, j] + te.sum(lambda k: s[i, k] * w[j, k], 20)))

    states = te.scan(step, start, t)
    f = te.build(states, [x, w])
    assert "w_turned" in f.source("nest")
    rng = np.random.default_rng(1)
    given = {x: rng.standard_normal((length, 3, 20)).astype(np.float32), w: rng.uniform(-0.2, 0.2, (20, 20)).astype(np.float32)}
    np.testing.assert_allclose(f(*given.values()), te.evaluate(states, given), rtol=1e-4, atol=1e-5)
