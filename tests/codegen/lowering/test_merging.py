"""Definitions whose loops came out alike and that sum the same costly values run as one kernel; all others keep their own."""

import pytest

from tensorexpr.codegen.planners import autoschedule
from tensorexpr.parse import parse_program
from tests.codegen.programs import WIDE, assert_means, plain

HEAD = "X: f32[8, 6] = input()\nV: f32[8] = input()\nK: i64[6] = input()\nA[i]: f32[8] = sum(exp(X[i, k]) for k in range(6))\n"


def kernels(text: str, change=lambda s: None) -> list[str]:
    s = plain(HEAD + text)
    change(s)
    return [kernel.name for kernel in assert_means(s).kernels]


def test_a_value_that_two_sums_need_is_computed_in_one_loop():
    assert kernels("B[i]: f32[8] = sum(exp(X[i, k]) * V[k] for k in range(6)) * 2.0\nreturn A, B") == ["A B"]


def test_a_definition_that_reads_another_finds_its_element_there():
    assert kernels("B[i]: f32[8] = sum(exp(X[i, k]) * V[k] for k in range(6)) / A[i]\nreturn A, B") == ["A B"]


def test_values_are_told_apart_by_what_is_summed_for_them():
    pairs = "B[i]: f32[8] = sum(exp(sum(X[i, d] * X[k, d] for d in range({})) / 8.0) for k in range(8))\n"
    more = "C[i]: f32[8] = sum(exp(sum(X[i, d] * X[k, d] for d in range(6)) / 8.0) * V[k] for k in range(8))\nreturn A, B, C"
    assert kernels(pairs.format(6) + more) == ["A", "B C"]
    assert kernels(pairs.format(5) + more) == ["A", "B", "C"]


@pytest.mark.parametrize(
    "text",
    [
        "B[i]: f32[8] = sum(X[i, k] * V[k] for k in range(6))\nreturn A, B",  # nothing costly
        "B[i]: f32[8] = sum(exp(X[7 - i, k]) for k in range(6))\nreturn A, B",  # other values
        "B[i]: f32[6] = sum(exp(X[k, i]) for k in range(8))\nreturn A, B",  # at other iterations
        "B[i]: f32[8] = sum(exp(X[i, k]) for k in range(6)) / A[7 - i]\nreturn A, B",  # reads what is not there yet
    ],
)
def test_what_stays_apart(text):
    assert kernels(text) == ["A", "B"]


def test_what_something_on_the_way_waits_for_stays_apart():
    text = "M[()]: f32[()] = sum(A[k] for k in range(8))\nB[i]: f32[8] = sum(exp(X[i, k]) * M[()] for k in range(6))\nreturn A, B"
    assert kernels(text) == ["A", "M", "B"]


def test_loops_that_are_split_otherwise_stay_apart():
    text = "B[i]: f32[8] = sum(exp(X[i, k]) * V[k] for k in range(6))\nreturn A, B"
    assert kernels(text, lambda s: s["B"].split("k", 2)) == ["A", "B"]


def test_two_results_of_pairs_share_the_value_of_each_pair():
    text = (
        "X: f32[512, 2] = input()\nV: f32[512] = input()\n"
        "P[i, j]: f32[512, 512] = exp(-sum((X[i, d] - X[j, d]) * X[j, d] for d in range(2)))\n"
        "Y[i]: f32[512] = sum(P[i, j] * V[j] for j in range(512))\n"
        "Z[i]: f32[512] = sum(P[i, j] * V[j] * V[j] for j in range(512))\nreturn Y, Z"
    )
    nest = assert_means(autoschedule(parse_program(text), WIDE), exact=False)
    assert nest.kernels[0].name == "Y_parts Z_parts"
