"""Tests inside of innermost loops: loops cut where they begin or cease to hold, and tests made in front of loops."""

import random
from dataclasses import replace

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.lowering.kernels.tiles import cut_at_borders
from tensorexpr.codegen.lowering.kernels.unswitch import unswitched
from tensorexpr.codegen.nest import Alloc, Buffer, If, LoopNest
from tensorexpr.codegen.nest.interpret import run_nest
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.schedule import schedule
from tensorexpr.ir import Const, Expr, Index, apply, conjunction, const
from tensorexpr.parse import parse_program
from tests.codegen.llvm.nests import buffer, loop, nest, read, write
from tests.codegen.programs import WIDE, assert_means
from tests.seeds import share_of

PADDED = """
x: f32[2, 12, 6] = input()
w: f32[3, 6, 8] = input()
y[n, z, k]: f32[2, 12, 8] = sum(where(z + s >= 1 and z + s < 13, x[n, z + s - 1, c], 0.0) * w[s, c, k] for s in range(3) for c in range(6))
return y
"""
A, OUT = buffer("A", dtypes.float64, 40), buffer("Y", dtypes.float64, 3, 4, 2)


def transformed(made: LoopNest) -> LoopNest:
    return replace(made, kernels=tuple(replace(k, body=unswitched(cut_at_borders(k.body))) for k in made.kernels))


def random_tile(seed: int) -> LoopNest:
    """A sum over taps and channels in tiles of points, of which random comparisons leave out some."""
    rng = random.Random(seed)

    def form() -> Expr:
        total: Expr = const(rng.randint(-4, 4))
        for name, factors in (("o", (0, 2, 4, -4)), ("s", (0, 1, 1, -1)), ("u", (0, 1, 1, 2, -1)), ("q", (0, 0, 1))):
            total = apply("add", total, apply("mul", Index(name), const(rng.choice(factors))))
        if rng.random() < 0.3:
            total = apply("minimum", total, apply("mul", Index("o"), const(rng.randint(1, 5))))
        return total

    tests = [apply(rng.choice(("lt", "le", "gt", "ge")), form(), const(rng.randint(-3, 14))) for _ in range(rng.randint(1, 3))]
    held = form()
    if rng.random() < 0.5:  # an index held between bounds, which a test may decide
        held = apply(rng.choice(("minimum", "maximum")), *(apply("add", e, const(rng.randint(-1, 1))) for e in rng.choice(tests).args))
    at = apply("mod", apply("add", held, apply("mul", Index("c"), const(3))), const(40))
    element = read(A, at)
    value = apply("where", conjunction(tests), element, Const(0.5, dtypes.float64)) if rng.random() < 0.5 else element
    acc = Buffer("acc", dtypes.float64, (const(4), const(2)), "local")
    added = write(acc, (Index("u"), Index("q")), apply("add", read(acc, Index("u"), Index("q")), value))
    body = added if value is not element else If(conjunction(tests), (added,), (added, added) if rng.random() < 0.2 else ())
    tile = loop("u", 4, loop("q", 2, body, kind="vectorize"), kind="unroll")
    reduced = loop("s", 3, loop("c", rng.choice((2, 5)), tile))
    zeros = loop("u", 4, loop("q", 2, write(acc, (Index("u"), Index("q")), Const(0.0, dtypes.float64)), kind="vectorize"), kind="unroll")
    stored = write(OUT, (Index("o"), Index("u"), Index("q")), read(acc, Index("u"), Index("q")))
    stores = loop("u", 4, loop("q", 2, stored, kind="vectorize"), kind="unroll")
    return nest([A, OUT], [OUT], (loop("o", 3, Alloc(acc, (zeros, reduced, stores))),))


@pytest.mark.parametrize("block", range(4))
def test_random_tiles_keep_their_values(block):
    for seed in share_of(range(block * 40, (block + 1) * 40)):
        made = random_tile(seed)
        arrays = {"A": np.random.default_rng(seed).integers(-9, 9, 40).astype(np.float64)}
        want, got = (run_nest(verify_nest(n), arrays)["Y"] for n in (made, transformed(made)))
        np.testing.assert_array_equal(want, got, err_msg=f"{seed}\n{made}\n{transformed(made)}")


def test_tiles_inside_test_nothing_and_those_at_borders_only_their_own():
    s = schedule(parse_program(PADDED), WIDE)
    s["y"].split("z", 4)
    s["y"].reorder("n", "z_o", "s", "c", "z_i", "k")
    s["y"].unroll("z_i")
    s["y"].vectorize("k")
    assert_means(s)
    text = str(lower(s))
    assert text.count("for c in") == 3 and "for z_o in range(1, 2):" in text
    assert "y_sum[z_i, k] + x[n, s + z_i + z_o * 4 - 1, c] * w[s, c, k]" in text.replace("\n", " ").replace("  ", "")


def test_tests_decide_the_indices_held_inside_that_say_the_same():
    text = """
x: f32[12, 8] = input()
y[z, k]: f32[12, 8] = sum(x[minimum(maximum(z + s - 1, 0), 11), k]
    + where(z + s >= 1 and z + s < 13, x[z + s - 1, k], 0.0) for s in range(3) for c in range(6))
return y
"""
    s = schedule(parse_program(text), WIDE)
    s["y"].reorder("z", "s", "c", "k")
    s["y"].vectorize("k")
    inside, outside = str(assert_means(s)).split("else:")
    assert "if s + z - 1 >= 0 and 13 - s - z > 0:" in inside and "x[s + z - 1, k] + x[s + z - 1, k]" in inside
    assert "x[minimum(maximum(s + z - 1, 0), 11), k]" in outside and "minimum" not in inside


def test_a_test_that_a_loop_does_not_change_stands_in_front_of_it():
    s = schedule(parse_program(PADDED), WIDE)
    s["y"].reorder("z", "s", "c", "n", "k")
    s["y"].unroll("n")
    s["y"].vectorize("k")
    text = str(assert_means(s))
    assert "if s + z - 1 >= 0 and 13 - s - z > 0:" in text and "0.0 * w[s, c, k]" in text and "where" not in text


def test_infinities_meet_the_zeros_around_a_tensor():
    s = schedule(parse_program(PADDED), WIDE)
    s["y"].split("z", 4)
    s["y"].reorder("n", "z_o", "s", "c", "z_i", "k")
    s["y"].unroll("z_i")
    s["y"].vectorize("k")
    x = np.ones((2, 12, 6), np.float32)
    w = np.full((3, 6, 8), np.inf, np.float32)
    assert_means(s, inputs={"x": x, "w": w})
