"""Exponentials of logarithms of sums are quotients: the same values up to rounding, and one exponential for each element."""

import numpy as np
import pytest

from tensorexpr.algebra import without_logarithms
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tensorexpr.text import print_program
from tensorexpr.verify import verify

X = "x: f64[6, 9] = input()\nm[i]: f64[6] = max(x[i, j] for j in range(9))\n"
SUM = "sum(exp(x[i, j] - m[i]) for j in range(9))"
QUOTIENTS = {
    "by its logsumexp": f"l[i]: f64[6] = m[i] + log({SUM})\np[i, j]: f64[6, 9] = exp(x[i, j] - l[i])\nreturn p\n",
    "of a log_softmax": f"s[i]: f64[6] = {SUM}\np[i, j]: f64[6, 9] = exp(x[i, j] - m[i] - log(s[i]))\nreturn p\n",
    "with both results": f"l[i]: f64[6] = log({SUM}) + m[i]\np[i, j]: f64[6, 9] = 2.0 * exp(x[i, j] - l[i])\nreturn l, p\n",
    "in a sum": f"l[i]: f64[6] = m[i] + log({SUM})\nq[i]: f64[6] = sum(x[i, j] * exp(x[i, j] - l[i]) for j in range(9))\nreturn q\n",
    "in other axes": f"l[i]: f64[6] = m[i] + log({SUM})\np[k, i]: f64[9, 6] = exp(x[i, k] - l[i])\nreturn p\n",
}
STAYS = {
    "a logarithm of something else": "p[i, j]: f64[6, 9] = exp(x[i, j] - log(m[i])) + exp(x[i, j])\nreturn p\n",
    "no other exponential": f"l[i]: f64[6] = log({SUM})\np[i, j]: f64[6, 9] = exp(x[i, j] - l[i])\nreturn p\n",
    "under a condition": f"l[i]: f64[6] = m[i] + log({SUM})\np[i, j]: f64[6, 9] = where(j <= i, exp(x[i, j] - l[i]), 0.0)\nreturn p\n",
    "a logarithm that is added": f"s[i]: f64[6] = {SUM}\np[i, j]: f64[6, 9] = exp(x[i, j] - m[i] + log(s[i]))\nreturn p\n",
}


@pytest.mark.parametrize("name", QUOTIENTS)
def test_exponentials_of_logarithms_are_quotients(name: str) -> None:
    program = simplify(parse_program(X + QUOTIENTS[name]))
    found = without_logarithms(program)
    verify(found)
    text = print_program(found)
    assert text.count("exp(") == 1 and " / " in text, text
    assert simplify(found) is found, print_program(simplify(found))
    for scale in (1.0, 200.0):
        inputs = {"x": np.random.default_rng(0).standard_normal((6, 9)) * scale}
        before, after = evaluate_program(program, inputs), evaluate_program(found, inputs)
        for result, value in before.items():
            np.testing.assert_allclose(after[result], value, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("name", STAYS)
def test_other_exponentials_stay(name: str) -> None:
    program = simplify(parse_program(X + STAYS[name]))
    assert without_logarithms(program) is program
