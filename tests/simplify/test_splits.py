"""What takes an index apart has several axes, and what only rearranges goes where it is put together: one program for all spellings."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify, split_reductions
from tensorexpr.text import print_program
from tensorexpr.verify import verify
from tests.codegen.programs import as_built
from tests.random_programs import random_inputs, random_program, random_sizes
from tests.seeds import share_of

X = "x: f32[8, 12] = input()\nw: f32[12] = input()\n"
SPLIT = {
    "a window": "y[i, j]: f32[4, 6] = max(x[2 * i + t // 2, 2 * j + t % 2] for t in range(4))\nreturn y\n",
    "the place of the greatest": "y[i, j]: i64[4, 6] = argmax(x[2 * i + t // 2, 2 * j + t % 2] for t in range(4))\nreturn y\n",
    "three in one": "y[i]: f32[6] = sum(x[t // 6, t // 3 % 2 + i] * w[t % 3] for t in range(24))\nreturn y\n",
    "what is read whole, too": "y[i]: f32[6] = sum(x[t // 3, t % 3 + i] * w[t] for t in range(12))\nreturn y\n",
    "a condition": "y[i]: f32[6] = sum(x[t // 3, t % 3 + i] for t in range(12) if t // 3 <= i)\nreturn y\n",
    "an axis that depends on it": "y[i]: f32[6] = sum(x[t // 3, t % 3 + i] * w[k] for t in range(12) for k in range(t + 1))\nreturn y\n",
}
WHOLE = {
    "rows that do not fit": "y[i]: f32[6] = sum(x[t // 3, t % 3 + i] for t in range(11))\nreturn y\n",
    "no division": "y[i]: f32[8] = sum(x[i, t] * w[t] for t in range(12))\nreturn y\n",
}


@pytest.mark.parametrize("name", SPLIT)
def test_axes_that_are_several_in_one_are_several(name: str) -> None:
    program = parse_program(X + SPLIT[name])
    found = split_reductions(program)
    verify(found)
    assert found is not program and "%" not in print_program(simplify(found)), print_program(found)
    rng = np.random.default_rng(0)
    inputs = {"x": rng.standard_normal((8, 12)).astype(np.float32), "w": rng.standard_normal(12).astype(np.float32)}
    np.testing.assert_array_equal(evaluate_program(found, inputs)["y"], evaluate_program(program, inputs)["y"])


@pytest.mark.parametrize("name", WHOLE)
def test_other_axes_stay(name: str) -> None:
    program = parse_program(X + WHOLE[name])
    assert split_reductions(program) is program


@pytest.mark.parametrize("block", range(4))
def test_random_programs_keep_every_bit(block: int) -> None:
    for seed in share_of(range(47000 + 100 * block, 47000 + 100 * block + 30)):
        program = random_program(seed)
        found = split_reductions(program)
        if found is not program:
            sizes = random_sizes(program, seed)
            inputs = random_inputs(program, seed, sizes=sizes)
            verify(found)
            expected = evaluate_program(program, inputs, sizes)
            for name, value in evaluate_program(found, inputs, sizes).items():
                np.testing.assert_array_equal(value, expected[name], err_msg=f"seed {seed}: {name} of\n{print_program(found)}")


def test_a_convolution_by_windows_in_rows_is_one_without_forward_and_gradient() -> None:
    def plain(x, w):
        return te.compute((4, 8, 28), lambda n, k, y: te.sum(lambda c, i: x[n, c, y + i] * w[k, c, i], (16, 3)), name="r")

    def by_rows(x, w):
        u = te.compute((4, 28, 48), lambda n, y, q: x[n, q // 3, y + q % 3])
        return te.compute((4, 8, 28), lambda n, k, y: te.sum(lambda q: u[n, y, q] * w[k, q // 3, q % 3], 48), name="r")

    texts = []
    for way in (plain, by_rows):
        x, w, h = te.placeholder((4, 16, 30), name="x"), te.placeholder((8, 16, 3), name="w"), te.placeholder((4, 8, 28), name="h")
        y = way(x, w)
        texts.append([print_program(as_built(y, [x, w])), print_program(as_built(list(te.gradient(y, [x, w], h)), [x, w, h]))])
    for one, other in zip(*texts, strict=True):
        assert one.count("[") == other.count("[") and one.count("sum(") == other.count("sum(") and "//" not in other + one, one + other
