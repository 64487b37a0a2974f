"""Products with zero beyond a border: summed once for all rows of a tile, and every bit is kept."""

import random

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.lowering.kernels.zeros import with_zeros_once
from tensorexpr.codegen.nest import Alloc, Buffer, LoopNest
from tensorexpr.codegen.nest.interpret import run_nest
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.target import Target
from tensorexpr.ir import Const, Expr, Index, apply, const
from tensorexpr.parse import parse_program
from tensorexpr.records import replace
from tests.codegen.llvm.nests import buffer, loop, nest, read, write
from tests.codegen.programs import assert_means, statements

W, OUT = buffer("W", dtypes.float32, 3, 8, 4), buffer("Y", dtypes.float32, 2, 3, 4)
HARD = np.array([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan, 1e-45], np.float32)


def transformed(made: LoopNest) -> LoopNest:
    names = iter(f"t{k}" for k in range(100))
    return replace(
        made, kernels=tuple(replace(k, body=with_zeros_once(k.body, lambda stem: f"{stem}_{next(names)}")) for k in made.kernels)
    )


def tile(value: Expr, begun: float) -> LoopNest:
    """Rows times lanes of one accumulator each, to which a loop adds a value."""
    acc = Buffer("acc", dtypes.float32, (const(3), const(4)), "local")
    at = (Index("u"), Index("q"))

    def rows(statement):
        return loop("u", 3, loop("q", 4, statement, kind="vectorize"), kind="unroll")

    added = loop("c", 8, loop("s", 3, rows(write(acc, at, apply("add", read(acc, *at), value))), kind="unroll"))
    stored = rows(write(OUT, (Index("o"), *at), read(acc, *at)))
    return nest([W, OUT], [OUT], (loop("o", 2, Alloc(acc, (rows(write(acc, at, Const(begun, dtypes.float32))), added, stored))),))


@pytest.mark.parametrize("begun", [0.0, -0.0, 2.5, np.inf, np.nan])
def test_every_bit_is_kept(begun):
    w = read(W, Index("s"), Index("c"), Index("q"))
    zero = Const(0.0, dtypes.float32)
    for value in (apply("mul", zero, w), apply("mul", w, zero), apply("mul", w, apply("mul", zero, w))):
        before = tile(value, begun)
        after = transformed(before)
        verify_nest(after)
        assert sum(isinstance(s, Alloc) for s in statements(after.kernels)) == 2
        for seed in range(6):
            rng = random.Random(seed)
            chosen = rng.sample(list(HARD), rng.randint(1, len(HARD)))
            given = np.array([rng.choice(chosen) for _ in range(96)], np.float32).reshape(3, 8, 4)
            with np.errstate(invalid="ignore"):
                want, got = (run_nest(n, {"W": given, "Y": np.empty((2, 3, 4), np.float32)})["Y"] for n in (before, after))
            assert np.array_equal(np.isnan(want), np.isnan(got))
            assert np.array_equal(want.view(np.int32)[~np.isnan(want)], got.view(np.int32)[~np.isnan(got)])


def test_what_is_not_zero_or_differs_between_rows_stays():
    w = read(W, Index("s"), Index("c"), Index("q"))
    for value in (
        w,
        apply("mul", Const(2.0, dtypes.float32), w),
        apply("mul", Const(0.0, dtypes.float32), read(W, Index("u"), Index("c"), Index("q"))),
    ):
        before = tile(value, 0.0)
        assert str(transformed(before)) == str(before)


def test_a_convolution_leaves_out_what_lies_beyond_its_border():
    """Images beside each other have the same border, so its taps are a sum for all of them; columns of one image only share its rows."""
    text = """
x: f32[8, 5, 5, 4] = input()
w: f32[3, 3, 4, 32] = input()
y[n, p, q, k]: f32[8, 5, 5, 32] = sum(
    where(i + p >= 1 and i + p < 6 and j + q >= 1 and j + q < 6, x[n, i + p - 1, j + q - 1, c], 0.0) * w[i, j, c, k]
    for i in range(3)
    for j in range(3)
    for c in range(4)
)
return y
"""
    made = autoschedule(parse_program(text), Target("test", vector_bits=512, registers=32, cores=1, l2_bytes=1 << 20, multiplies=1))
    assert made["y"].loops[-2:] == ("n", "k_i") or made["y"].loops[-2:] == ("n", "k")
    assert "y_sum_zeros" in str(lower(made))
    inputs = {"x": np.ones((8, 5, 5, 4), np.float32), "w": np.ones((3, 3, 4, 32), np.float32)}
    inputs["w"][0, 1, 3, 5] = np.nan
    inputs["w"][2, 0, 3, 7] = np.inf
    with np.errstate(invalid="ignore"):
        assert_means(made, inputs=inputs)
