"""Kinks and edges: the table in docs/language.md holds in every mode, interpreted and compiled; branches not taken; far values."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

import tensorexpr as te

F64 = "float64"
DOCUMENT = Path(__file__).resolve().parent.parent.parent / "docs" / "language.md"
_ROW = re.compile(r"^\| (?P<expressions>`.*`) \| `(?P<at>[^`]*)` \| `(?P<value>[^`]*)` \| `(?P<slope>[^`]*)` \|$")


def table() -> list[tuple[str, float, float, float]]:
    """The rows of the table, one for each expression."""
    text = DOCUMENT.read_text()
    part = text[text.index("| expression | x | value | derivative |") :]
    found = []
    for line in part.splitlines()[2:]:
        row = _ROW.match(line)
        if row is None:
            break
        numbers = [float(row[name]) for name in ("at", "value", "slope")]
        found += [(expression, *numbers) for expression in re.findall(r"`([^`]*)`", row["expressions"])]
    return found


ROWS = table()


def test_the_table_is_found():
    assert len(ROWS) > 40


@pytest.mark.parametrize(("expression", "at", "value", "slope"), ROWS, ids=[f"{e} at {at}" for e, at, _, _ in ROWS])
def test_edges_are_as_documented(expression, at, value, slope):
    x, one = te.placeholder((3,), F64, name="x"), te.constant(np.ones(3))
    y = te.compute((3,), lambda i: eval(expression, {"te": te, "x": x[i]}), name="y")
    wanted = [value, slope, slope, slope]
    derived = [y, te.gradient(y, x, one)[0], te.jvp(y, x, one), te.gradient(te.compute((), lambda: te.sum(lambda i: y[i], 3)), x)[0]]
    data = np.full(3, at)
    with np.errstate(all="ignore"):
        for results in (te.evaluate(derived, {x: data}), te.build(derived, [x])(data)):
            for result, expected in zip(results, wanted, strict=True):
                np.testing.assert_allclose(result, np.full(3, expected), rtol=1e-14, atol=1e-300)


# ------------------------------------------------------------------------------------------------------------ branches

BRANCHES = {
    "square root": (
        lambda x: te.where(x > 0, te.sqrt(x), 0.0),
        lambda x: np.array([0.5, -0.25, 0.375]) * x ** np.array([-0.5, -1.5, -2.5]),
    ),
    "logarithm": (lambda x: te.where(x > 0, te.log(x), -1.0), lambda x: np.array([1 / x, -1 / x**2, 2 / x**3])),
    "quotient": (lambda x: te.where(x > 0, 1.0 / x, 0.0), lambda x: np.array([-1 / x**2, 2 / x**3, -6 / x**4])),
    "power": (lambda x: te.where(x > 0, x**1.5, 0.0), lambda x: np.array([1.5, 0.75, -0.375]) * x ** np.array([0.5, -0.5, -1.5])),
    "x log x": (lambda x: te.where(x > 0, x * te.log(x), 0.0), lambda x: np.array([math.log(x) + 1, 1 / x, -1 / x**2])),
    "nested": (
        lambda x: te.where(x > 0, te.where(x < 100, te.log(x), te.sqrt(-x)), te.log(-1.0 - x * x)),
        lambda x: np.array([1 / x, -1 / x**2, 2 / x**3]),
    ),
}


@pytest.mark.parametrize("name", [name for name in BRANCHES if name != "nested"])
def test_nothing_leaks_out_of_the_branch_not_taken(name):
    """At 0 and below the branch is a constant; its derivatives are zero at every order and in every mode."""
    check_branch(name, np.array([-1.0, 0.0, 1.5]))


def test_nothing_leaks_out_of_nested_branches():
    check_branch("nested", np.array([0.5, 1.5, 2.5]))


def check_branch(name, data):
    body, slopes = BRANCHES[name]
    x, one = te.placeholder((3,), F64, name="x"), te.constant(np.ones(3))
    y = te.compute((3,), lambda i: body(x[i]), name="y")
    expected = np.array([slopes(v) if v > 0 else np.zeros(3) for v in data]).T
    current = [y]
    for order in range(3):
        current = [d for t in current for d in (te.gradient(t, x, one)[0], te.jvp(t, x, one))]
        with np.errstate(all="ignore"):
            for values in (te.evaluate(current, {x: data}), te.build(current, [x])(data)):
                for value in values:
                    np.testing.assert_allclose(value, expected[order], rtol=1e-12)
        current = [current[0], current[-1]]


def test_masks_of_reductions_are_branches():
    x, one = te.placeholder((4,), F64, name="x"), te.placeholder((), F64, name="one")
    data = np.array([-1.0, 0.0, 1.0, 4.0])
    for y, slope in (
        (te.compute((), lambda: te.sum(lambda i: te.log(x[i]), 4, where=lambda i: x[i] > 0)), [0, 0, 1, 0.25]),
        (te.compute((), lambda: te.prod(lambda i: te.sqrt(x[i]), 4, where=lambda i: x[i] > 0)), [0, 0, 1, 0.25]),
        (te.compute((), lambda: te.max(lambda i: te.log(x[i]), 4, where=lambda i: x[i] > 0)), [0, 0, 0, 0.25]),
    ):
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(te.evaluate(te.gradient(y, x, one)[0], {x: data, one: np.array(1.0)}), slope)
            np.testing.assert_allclose(te.evaluate(te.jvp(y, x, x), {x: data}), np.dot(slope, data))


# ---------------------------------------------------------------------------------------------------------- far values

FAR = np.array(
    [[1e4, -1e4, 0.0, 3.0], [-1e4] * 4, [1e4, 1e4, 1e4, -np.inf], [0.0] * 4, [-np.inf, 2.0, -np.inf, -np.inf], [5.0, 5.0, 1.0, 2.0]]
)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_softmax_logsumexp_and_norms_of_far_values(dtype):
    rows, columns = FAR.shape
    kind = te.dtype(dtype).numpy
    x, w = te.placeholder(FAR.shape, dtype, name="x"), te.placeholder(FAR.shape, dtype, name="w")
    v = te.placeholder((rows,), dtype, name="v")

    def near(i, j):
        return te.where(te.isfinite(x[i, j]), x[i, j] * 0.001, 0.0)  # squares of 1e4 are beyond float16

    top = te.compute((rows,), lambda i: te.max(lambda k: x[i, k], columns), name="top")
    total = te.compute((rows,), lambda i: te.sum(lambda k: te.exp(x[i, k] - top[i]), columns), name="total")
    softmax = te.compute(FAR.shape, lambda i, j: te.exp(x[i, j] - top[i]) / total[i], name="softmax")
    whole = te.compute((rows,), lambda i: top[i] + te.log(total[i]), name="whole")
    squares = te.compute((rows,), lambda i: te.sum(lambda k: near(i, k) ** 2, columns), name="squares")
    norm = te.compute((rows,), lambda i: te.where(squares[i] > 0, te.sqrt(squares[i]), 0.0), name="norm")
    data = {
        x: FAR.astype(kind),
        w: np.linspace(0.5, 1.5, FAR.size).reshape(FAR.shape).astype(kind),
        v: np.linspace(1, 2, rows).astype(kind),
    }
    with np.errstate(all="ignore"):
        shares = np.exp(FAR - FAR.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
    heads = {softmax: w, whole: v, norm: v}
    for y, head in heads.items():
        slope = te.gradient(y, x, head)[0]
        derived = [slope, te.jvp(y, x, w), te.gradient(slope, x, w)[0], te.jvp(slope, x, w)]
        with np.errstate(all="ignore"):
            for values in (te.evaluate(derived, data), te.build(derived, list(data))(*data.values())):
                assert all(np.isfinite(np.asarray(value, float)).all() for value in values), y.name
                if y is whole:
                    expected = shares * np.asarray(data[v], float)[:, None]
                    np.testing.assert_allclose(np.asarray(values[0], float), expected, rtol=1e-3, atol=1e-6)
                if y is softmax:
                    weights = np.asarray(data[w], float)
                    expected = shares * (weights - (shares * weights).sum(1, keepdims=True))
                    np.testing.assert_allclose(np.asarray(values[0], float), expected, rtol=2e-3, atol=2e-3)
