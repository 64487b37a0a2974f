"""Outputs that have the elements of a scan in another order are read in its place."""

import numpy as np
import pytest

from tensorexpr.algebra import with_copies_read
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tensorexpr.verify import verify

TEXT = """
X: f32[2, 3, 4] = input()
zero[i, k]: f32[2, 3] = 0.0
for t in range(4):
    h: f32[2, 3] = state(zero)
    n[i, k]: f32[2, 3] = h[i, k] + X[i, k, t]
    S[t] = h = n
{before}Y[k, t, i]: f32[3, 4, 2] = S[t, i, k]
for u in range(4):
    b: f32[2, 3] = state(zero)
    m[i, k]: f32[2, 3] = b[i, k] * S[3 - u, i, k]
    B[u] = b = m
D[i]: f32[2] = sum(S[t, 1 - i, k] * B[t, i, k] for t in range(4) for k in range(3))
return Y, D
"""


def same_values(program, changed):
    verify(changed)
    given = {"X": np.random.default_rng(0).integers(-3, 4, (2, 3, 4)).astype(np.float32)}
    for name, array in evaluate_program(program, given).items():
        np.testing.assert_array_equal(array, evaluate_program(changed, given)[name])


def test_what_comes_after_the_copy_reads_it_steps_of_scans_as_well():
    program = parse_program(TEXT.format(before="E[i]: f32[2] = S[3, i, 0]\n").replace("Y, D", "Y, D, E"))
    changed = with_copies_read(program)
    assert "S[3, i, 0]" in str(changed) and "Y[k, 3 - u, i]" in str(changed) and "Y[k, t, 1 - i]" in str(changed)
    same_values(program, changed)
    assert with_copies_read(changed) is changed


KEPT = {
    "no output": ("return Y, D", "return D"),
    "the scan is one": ("return Y, D", "return Y, S, D"),
    "turned around": ("= S[t, i, k]\n", "= S[3 - t, i, k]\n"),
    "a part": ("= S[t, i, k]\n", "= S[t, 1, k]\n"),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_no_output_or_no_copy_is_not(name):
    text, (old, new) = TEXT.format(before=""), KEPT[name]
    assert old in text
    program = parse_program(text.replace(old, new))
    assert with_copies_read(program) is program


COPY = "X: f32[2, 3, 4] = input()\nT[i, t, k]: f32[2, 3, 4] = exp(X[i, t, k])\nE[i]: f32[2] = sum(T[i, t, 0] for t in range(3))\n"


def test_an_output_is_no_copy_of_a_definition():
    program = parse_program(COPY + "Y[i, j, k]: f32[2, 3, 4] = T[i, j, k]\nreturn Y, E\n")
    changed = with_copies_read(program)
    assert str(changed) == str(parse_program((COPY + "return T, E\n").replace("T", "Y")))
    same_values(program, changed)
    assert with_copies_read(changed) is changed


@pytest.mark.parametrize("copy", ["Y[i, j, k]: f32[2, 3, 4] = T[1 - i, j, k]", "Y[i, j, k]: f32[2, 3, 4] = X[i, j, k]"])
def test_an_output_that_is_no_copy_or_one_of_an_input_stays(copy):
    program = parse_program(f"{COPY}{copy}\nreturn Y, E\n")
    assert with_copies_read(program) is program
