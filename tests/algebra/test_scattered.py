"""Scatters in the order in which they are read."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.algebra import with_scatters_turned
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Scatter
from tensorexpr.parse import parse_program
from tensorexpr.text import print_program
from tensorexpr.verify import verify

TEXT = """
X: f32[7, 5] = input()
K: i64[7] = input()
S: f32[{shape}] = scatter({{{body}}})
{rest}
return {outputs}
"""


def changed(body, shape="5, 4", rest="T[r, j]: f32[4, 5] = S[j, r]", outputs="T"):
    program = parse_program(TEXT.format(shape=shape, body=body, rest=rest, outputs=outputs))
    found = with_scatters_turned(program)
    verify(found)
    rng = np.random.default_rng(0)
    inputs = {"X": (10.0 ** rng.integers(-6, 7, (7, 5))).astype(np.float32), "K": rng.integers(0, 4, 7)}
    for name, array in evaluate_program(program, inputs).items():
        assert array.tobytes() == evaluate_program(found, inputs)[name].tobytes()
    assert with_scatters_turned(found) is found
    return found if found is not program else None


@pytest.mark.parametrize("axes", ["for j in range(5) for i in range(7)", "for i in range(7) for j in range(5)"])
@pytest.mark.parametrize("where", ["", " if X[i, j] < 1.0"])
def test_a_scatter_that_is_turned_is_made_as_it_is_read(axes, where):
    found = changed(f"(j, K[i]): X[i, j] {axes}{where}")
    (scatter,) = found.definitions
    assert isinstance(scatter, Scatter) and scatter.name == "T" and [a.index for a in scatter.axes] == ["i", "j"]


def test_rows_are_the_innermost_loop():
    plain = {"shape": "4, 5", "rest": "", "outputs": "S"}
    assert "for i in range(7) for j in range(5)" in print_program(
        changed("(K[i], j): X[i, j] for j in range(5) for i in range(7)", **plain)
    )


@pytest.mark.parametrize(
    "other",
    [
        {"rest": "T[r, j]: f32[4, 5] = S[j, r] * 2.0"},
        {"rest": "T[r, j]: f32[4, 5] = S[4 - j, r]"},
        {"rest": "T[r, j]: f32[3, 5] = S[j, r]"},
        {"rest": "T[r, j]: f32[4, 5] = S[j, r]\nU[j, r]: f32[5, 4] = exp(S[j, r])", "outputs": "T, U"},
        {"outputs": "S, T"},
        {"body": "(K[i], i): X[i, 0] for i in range(5)", "shape": "4, 5", "rest": "", "outputs": "S"},
        {"body": "(K[i], j): X[i, j] for j in range(5) for i in range(j, 7)", "shape": "4, 5", "rest": "", "outputs": "S"},
        {"body": "(K[i], j + 0 * i): X[i, j] for j in range(5) for i in range(7)", "shape": "4, 5", "rest": "", "outputs": "S"},
    ],
)
def test_others_stay(other):
    assert changed(**{"body": "(j, K[i]): X[i, j] for j in range(5) for i in range(7)", **other}) is None


@pytest.mark.parametrize("n", [0, 1, 7, 33, 300])
def test_built_with_open_sizes(n):
    size = te.dim("n")
    x, k = te.placeholder((size, 5), "float32", name="x"), te.placeholder((size,), "int64", name="k")
    s = te.scatter((5, 4), lambda j, i: ((j, k[i]), x[i, j]), (5, x.shape[0]))
    f = te.build([te.compute((4, 5), lambda r, j: s[j, r])], [x, k])
    rng = np.random.default_rng(n)
    xs, ks = rng.integers(-9, 9, (n, 5)).astype(np.float32), rng.integers(0, 4, n)
    want = np.zeros((4, 5), np.float32)
    np.add.at(want, ks, xs)
    np.testing.assert_array_equal(f(xs, ks)[0], want)
