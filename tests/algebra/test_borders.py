"""Maxima over windows with repeated borders are those over what there is of the windows."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.algebra import without_clamps
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tensorexpr.text import print_program
from tensorexpr.verify import verify

CUT = {
    "both ends": "y[i]: f32[20] = max(x[minimum(maximum(i + a - 1, 0), 19), 0] for a in range(3))",
    "the other way around": "y[i]: f32[20] = min(x[maximum(minimum(i + a - 2, 19), 0), 1] for a in range(5))",
    "backwards": "y[i]: f32[20] = max(x[minimum(maximum(i - a + 2, 0), 19), 0] for a in range(4))",
    "one end": "y[i]: f32[20] = max(x[maximum(i - a, 0), 2] for a in range(7))",
    "two axes": "y[i, j]: f32[20, 6] = max("
    "x[minimum(maximum(i + a - 1, 0), 19), minimum(maximum(j + b - 1, 0), 5)] for a in range(3) for b in range(3))",
    "strides": "y[i]: f32[10] = max(x[minimum(maximum(i * 2 + a - 1, 0), 19), 0] for a in range(3))",
    "a part of the tensor": "y[i]: f32[9] = max(x[minimum(maximum(i + a, 3), 11), 0] for a in range(4))",
    "of a function": "y[i]: f32[20] = max(exp(x[minimum(maximum(i + a - 1, 0), 19), 0]) * x[i, 1] for a in range(3))",
}
STAYS = {
    "sums": "y[i]: f32[20] = sum(x[minimum(maximum(i + a - 1, 0), 19), 0] for a in range(3))",
    "weights of places": "y[i]: f32[20] = max(x[minimum(maximum(i + a - 1, 0), 19), 0] * f32(a) for a in range(3))",
    "steps of two": "y[i]: f32[20] = max(x[minimum(maximum(i + a * 2 - 2, 0), 19), 0] for a in range(3))",
    "windows beyond": "y[i]: f32[20] = max(x[minimum(maximum(i + a - 5, 0), 19), 0] for a in range(3))",
    "no room between the limits": "y[i]: f32[20] = max(x[minimum(maximum(i + a - 1, 7), 3), 0] for a in range(3))",
    "two windows": "y[i]: f32[19] = max(x[minimum(maximum(i + a - 1, 0), 19), 0] + x[minimum(maximum(i + a, 0), 19), 0] for a in range(3))",
    "positions": "y[i]: i64[20] = argmax(x[minimum(maximum(i + a - 1, 0), 19), 0] for a in range(3))",
}


def program_of_text(text):
    return simplify(parse_program(f"x: f32[20, 6] = input()\n{text}\nreturn y\n"))


@pytest.mark.parametrize("name", CUT)
def test_windows_end_at_borders(name):
    program = program_of_text(CUT[name])
    found = without_clamps(program)
    simple = simplify(found)
    verify(found)
    assert "x[min" not in print_program(simple) and "x[max" not in print_program(simple), print_program(simple)
    rng = np.random.default_rng(0)
    for number in range(6):
        x = rng.standard_normal((20, 6)).astype(np.float32)
        for _ in range(number):
            x[rng.integers(20), rng.integers(6)] = rng.choice([np.nan, np.inf, -np.inf])
        expected = evaluate_program(program, {"x": x})["y"]
        for other in (found, simple):
            np.testing.assert_array_equal(evaluate_program(other, {"x": x})["y"], expected)
    assert without_clamps(simple) is simple


@pytest.mark.parametrize("name", STAYS)
def test_what_counts_more_than_once_stays(name):
    program = program_of_text(STAYS[name])
    assert without_clamps(program) is program


def test_windows_of_open_sizes():
    n = te.dim("n")
    x = te.placeholder((n, 5), name="x")
    y = te.compute((n, 5), lambda i, j: te.max(lambda a: x[te.clip(i + a - 1, 0, n - 1), j], 3), name="y")
    head = te.placeholder((n, 5), name="h")
    run = te.build([y, *te.gradient(y, [x], head)], [x, head])
    for size in (0, 1, 2, 7, 33, 300):
        given = np.random.default_rng(size).standard_normal((size, 5)).astype(np.float32)
        padded = np.pad(given, ((1, 1), (0, 0)), mode="edge") if size else given
        expected = np.max([padded[a : a + size] for a in range(3)], axis=0) if size else given
        forward, backward = run(given, np.ones_like(given))
        np.testing.assert_array_equal(forward, expected)
        np.testing.assert_allclose(backward.sum(), given.size, rtol=1e-5)
