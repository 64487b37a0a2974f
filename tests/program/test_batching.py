"""The law of batching: a batched program gives what the program gives for every sample, and sums what is to be summed."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tensorexpr.batching import batched
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tensorexpr.verify import verify
from tests.generators import random_inputs, random_program, random_sizes


def expected(program, samples, sizes):
    """The results of a program for each sample, stacked output by output."""
    runs = [evaluate_program(program, sample, sizes) for sample in samples]
    return [np.stack([run[name] for run in runs]) for name in program.outputs]


def check(program, size, marks, samples, sizes):
    program_of_all = batched(program, size, marks, [True] * len(program.outputs))
    verify(program_of_all)
    arrays = {
        item.name: np.stack([sample[item.name] for sample in samples]) if many else samples[0][item.name]
        for item, many in zip(program.inputs, marks, strict=True)
    }
    results = evaluate_program(program_of_all, arrays, sizes)
    for name, value in zip(program_of_all.outputs, expected(program, samples, sizes), strict=True):
        np.testing.assert_array_equal(results[name], value)
    return program_of_all, arrays


@pytest.mark.parametrize("seed", range(150))
def test_a_batched_program_gives_what_the_program_gives_for_each_sample(seed):
    rng = random.Random(seed)
    program = random_program(seed)
    sizes = random_sizes(program, seed)
    marks = [rng.random() < 0.7 for _ in program.inputs]
    size = rng.choice((1, 2, 3))
    samples = [random_inputs(program, seed + 1000 * k, sizes=sizes) for k in range(size)]
    shared = {item.name for item, many in zip(program.inputs, marks, strict=True) if not many}
    samples = [{name: samples[0][name] if name in shared else value for name, value in sample.items()} for sample in samples]
    program_of_all, arrays = check(program, size, marks, samples, sizes)
    # A batch of batches: the first batch axis stands behind the second.
    twice = batched(program_of_all, 2, [True] * len(marks), [True] * len(program.outputs))
    verify(twice)
    results = evaluate_program(twice, {name: np.stack([value, value]) for name, value in arrays.items()}, sizes)
    for name, value in zip(twice.outputs, expected(program, samples, sizes), strict=True):
        np.testing.assert_array_equal(results[name], np.stack([value, value]))


def test_every_construct_is_met():
    kinds = {type(d).__name__ for seed in range(150) for d in random_program(seed).definitions}
    assert kinds == {"Define", "Scatter", "Scan", "Segments"}


MATMUL = """
x: f32[5, 7] = input()
g: f32[5, 3] = input()
w[k, j]: f32[7, 3] = sum(x[i, k] * g[i, j] for i in range(5))
return w
"""


def test_outputs_are_summed_over_the_batch_in_the_same_loops():
    program_of_all = batched(parse_program(MATMUL), 4, [True, True], [False])
    verify(program_of_all)
    rng = np.random.default_rng(0)
    x, g = rng.integers(-4, 5, (4, 5, 7)).astype("f"), rng.integers(-4, 5, (4, 5, 3)).astype("f")
    result = evaluate_program(program_of_all, {"x": x, "g": g})
    np.testing.assert_array_equal(result[program_of_all.outputs[0]], np.einsum("bik,bij->kj", x, g))
    # No tensor of all samples' gradients is ever made.
    assert len(simplify(program_of_all).definitions) == 1


@pytest.mark.parametrize("seed", range(60))
def test_sums_over_the_batch_are_those_of_the_samples(seed):
    program = random_program(seed, floats_only=True, without=("max", "min", "where"))
    sizes = random_sizes(program, seed)
    samples = [random_inputs(program, seed + 1000 * k, sizes=sizes) for k in range(3)]
    program_of_all = batched(program, 3, [True] * len(program.inputs), [False] * len(program.outputs))
    verify(program_of_all)
    arrays = {item.name: np.stack([sample[item.name] for sample in samples]) for item in program.inputs}
    results = evaluate_program(program_of_all, arrays, sizes)
    for name, value in zip(program_of_all.outputs, expected(program, samples, sizes), strict=True):
        np.testing.assert_allclose(results[name], value.sum(0), rtol=1e-6)


SCATTER = """
x: f32[4] = input()
i: i64[4] = input()
s: f32[3] = scatter({i[k]: x[k] for k in range(4)}, combine="sum")
return s
"""


def test_scatters_sum_over_the_batch_by_themselves():
    program_of_all = batched(parse_program(SCATTER), 2, [True, True], [False])
    verify(program_of_all)
    assert len(program_of_all.definitions) == 1
    x, i = np.arange(8.0, dtype="f").reshape(2, 4), np.array([[0, 1, 2, 0], [2, 2, 2, 0]])
    (result,) = evaluate_program(program_of_all, {"x": x, "i": i}).values()
    np.testing.assert_array_equal(result, np.bincount(i.ravel(), x.ravel(), 3))


def test_what_no_sample_changes_is_computed_once():
    program = parse_program("x: f32[3] = input()\ny: f32[3] = input()\na[i]: f32[3] = exp(x[i])\nz[i]: f32[3] = a[i] + y[i]\nreturn z, a\n")
    program_of_all = batched(program, 2, [False, True], [True, True])
    assert program_of_all.definitions[0] is program.definitions[0]
    results = evaluate_program(program_of_all, {"x": np.zeros(3, "f"), "y": np.ones((2, 3), "f")})
    assert [results[name].shape for name in program_of_all.outputs] == [(2, 3), (2, 3)]
    summed = batched(program, 2, [False, True], [False, False])
    results = evaluate_program(summed, {"x": np.zeros(3, "f"), "y": np.ones((2, 3), "f")})
    np.testing.assert_array_equal(results[summed.outputs[1]], [2.0, 2.0, 2.0])
