"""Reductions over boxes go an axis at a time: values are kept, reads stay in bounds, and what does not pay stays as it is."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.algebra import with_boxes_apart
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Program, Reduce, integer
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tensorexpr.traversal import expressions, walk
from tensorexpr.verify import verify
from tests.random_programs import random_inputs, random_program, random_sizes
from tests.seeds import share_of

HEAD = "x: f64[12, 14] = input()\ny: f64[12, 14] = input()\nh: f64[8, 10] = input()\nz: f64[12, 14, 16] = input()\n"
BOX = "t[i, j]: f64[8, 10] = {}({} for p in range(5) for q in range(5))\nreturn t\n"
BACK = (
    "t[u, v]: f64[12, 14] = sum({} for p in range(maximum(u - 7, 0), minimum(u + 1, 5))"
    " for q in range(maximum(v - 9, 0), minimum(v + 1, 5)))\nreturn t\n"
)
APART = {
    "a sum": BOX.format("sum", "x[i + p, j + q]"),
    "of products": BOX.format("sum", "x[i + p, j + q] * y[i + p, j + q]"),
    "a maximum": BOX.format("max", "x[i + p, j + q]"),
    "turned": BOX.format("sum", "x[i + q, j + p]"),
    "a factor of all terms": BOX.format("sum", "x[i + p, j + q] * h[i, j]"),
    "weights of rows": BOX.format("sum", "x[i + p, j + q] * y[p, 0]"),
    "some columns apart": BOX.format("sum", "x[i + p, j // 2 * 2 + q]"),
    "two places along one axis": BOX.format("sum", "x[i + p, j + q] * y[i + p, j + q + 1 - q // 4]"),
    "back": BACK.format("h[u - p, v - q]"),
    "back, times what is there": BACK.format("h[u - p, v - q] * x[u, v]"),
    "back, several": BACK.format("h[u - p, v - q] * x[u, v] - h[u - p, v - q] * y[u, v] + h[u - p, v - q]"),
    "three axes": BOX.format("sum", "z[i + p, j + q, k + r]")
    .replace("[i, j]: f64[8, 10]", "[i, j, k]: f64[8, 10, 12]")
    .replace(" for q", " for r in range(5) for q"),
}
STAY = {
    "few terms": BOX.format("sum", "x[i + p, j + q]").replace("range(5)", "range(2)"),
    "weights of each": BOX.format("sum", "x[i + p, j + q] * y[p, q]"),
    "two places along each axis": BOX.format("sum", "x[i + p, j + q] * y[i + p + 1 - p // 4, j + q + 1 - q // 4]"),
    "its own element": BOX.format("sum", "abs(x[i + p, j + q] - x[i, j])"),
    "every other column": BOX.format("sum", "x[i + p, 2 * j + q]").replace("[8, 10]", "[8, 5]"),
    "one axis": "t[i, j]: f64[8, 10] = sum(x[i + p, j] for p in range(5))\nreturn t\n",
    "the place of a maximum": BOX.format("argmax", "x[i + p, j + q]").replace("f64[8", "i64[8"),
}


def compare(
    program: Program, other: Program, given: Mapping[str, Any], sizes: Mapping[str, int] | None = None, tolerance: float = 1e-12
) -> None:
    verify(other)
    wanted, found = evaluate_program(program, given, sizes), evaluate_program(other, given, sizes)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, tolerance, tolerance)


@pytest.mark.parametrize("name", APART)
def test_an_axis_at_a_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorexpr.algebra.boxes.GAIN", 1.0)
    program = parse_program(HEAD + APART[name])
    apart = with_boxes_apart(program)
    assert apart is not program and with_boxes_apart(apart) is apart
    assert all(len(e.axes) == 1 for d in apart.definitions for value in expressions(d) for e in walk(value) if isinstance(e, Reduce))
    rng = np.random.default_rng(0)
    compare(program, apart, {i.name: rng.standard_normal([integer(e) for e in i.type.shape]) for i in program.inputs})


@pytest.mark.parametrize("name", STAY)
def test_others_stay(name: str) -> None:
    program = parse_program(HEAD + STAY[name])
    assert with_boxes_apart(program) is program


def test_a_factor_stays_with_terms_that_there_may_be_none_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing times infinity is no number, and a sum of nothing is 0."""
    monkeypatch.setattr("tensorexpr.algebra.boxes.GAIN", 1.0)
    text = BACK.format("h[u - p, v - q] * x[u, v]").replace("minimum(u + 1, 5)", "minimum(u - 2, 5)")
    program = parse_program(HEAD + text)
    apart = with_boxes_apart(program)
    rng = np.random.default_rng(0)
    given = {i.name: rng.standard_normal([integer(e) for e in i.type.shape]) for i in program.inputs}
    given["x"][0] = np.inf
    compare(program, apart, given)


@pytest.mark.parametrize("seed", share_of(range(60)))
def test_random_programs_keep_their_values(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorexpr.algebra.boxes.GAIN", 0.0)
    program = simplify(random_program(seed))
    apart = with_boxes_apart(program)
    if apart is program:
        return
    sizes = random_sizes(program, seed)
    arrays = random_inputs(program, seed, exact=True, sizes=sizes)
    try:
        evaluate_program(program, arrays, sizes)
    except IndexError:
        return
    compare(program, apart, arrays, sizes, 1e-5)


@pytest.mark.parametrize("rows", [0, 1, 7, 33, 300])
@pytest.mark.parametrize("border", [None, 0.0, "clamp", "reflect", "wrap"])
def test_windows_of_open_sizes(rows: int, border: Any) -> None:
    n = te.dim("n")
    x = te.placeholder((n + 6, n + 6) if border is None else (n, n), name="x")

    def element(i: te.Scalar, j: te.Scalar) -> te.Scalar:
        def term(p: te.Scalar, q: te.Scalar) -> te.Scalar:
            return x[i + p, j + q] if border is None else x.read(i + p - 3, j + q - 3, outside=border)

        return te.sum(term, (7, 7)) / 49.0

    f = te.build(te.compute((n, n), element, name="y"), [x])
    rng = np.random.default_rng(2)
    given = rng.standard_normal((rows + 6, rows + 6) if border is None else (rows, rows)).astype(np.float32)
    mode: Any = {0.0: "constant", "clamp": "edge", "reflect": "edge" if rows == 1 else "reflect", "wrap": "wrap"}.get(border)
    padded = given if border is None or not rows else np.pad(given, 3, mode)
    windows = np.lib.stride_tricks.sliding_window_view(padded.astype(np.float64), (7, 7)) if rows else np.zeros((0, 0, 7, 7))
    np.testing.assert_allclose(f(given), windows.mean((2, 3)), 1e-4, 1e-5)
