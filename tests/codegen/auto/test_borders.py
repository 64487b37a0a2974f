"""Loops of planners' nests cut where tests of lanes and copies change: what runs means the same, and tests nothing between borders."""

import random

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import dtypes
from tensorexpr.codegen.auto.tiles.borders import FEWEST, with_clear_middles
from tensorexpr.codegen.nest import Alloc, Buffer, For, If, LoopNest
from tensorexpr.codegen.nest.interpret import run_nest
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.schedule import Planned, schedule
from tensorexpr.ir import Const, Expr, Index, apply, conjunction, const
from tensorexpr.parse import parse_program
from tests.codegen.llvm.nests import buffer, loop, nest, read, write
from tests.codegen.programs import WIDE, assert_means, statements
from tests.seeds import share_of

PADDED = """
x: f32[2, 12, 6] = input()
w: f32[3, 6, 8] = input()
y[n, z, k]: f32[2, 12, 8] = sum(where(z + s >= 1 and z + s < 13, x[n, z + s - 1, c], 0.0) * w[s, c, k] for s in range(3) for c in range(6))
return y
"""
A, OUT = buffer("A", dtypes.float64, 40), buffer("Y", dtypes.float64, 3, 4, 2)


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
        want, got = (run_nest(verify_nest(n), arrays)["Y"] for n in (made, with_clear_middles(made, WIDE)))
        np.testing.assert_array_equal(want, got, err_msg=f"{seed}\n{made}\n{with_clear_middles(made, WIDE)}")


def ranges(body: str, extent: int, tail: str = "peel") -> list[tuple[int, int]]:
    """Start and stop of the loops over blocks of 4 lanes of a definition; one of a single block is none."""
    s = schedule(parse_program(f"X: f32[{extent}] = input()\nY[i]: f32[{extent}] = {body}\nreturn Y"), WIDE)
    _, lanes = s["Y"].split("i", 4, tail)
    s["Y"].reorder(*(x for x in s["Y"].loops if x != lanes), lanes)
    s["Y"].vectorize(lanes)
    nest = assert_means(s)
    return [(s.start.value, s.stop.value) for s in statements(nest.kernels) if isinstance(s, For) and s.index == "i_o"]


def test_a_border_on_either_side_is_cut_off():
    assert ranges("where(i >= 1 and i < 62, X[i - 1] + X[i + 1], X[i])", 64) == [(1, 15)]


def test_a_condition_that_changes_between_blocks_is_cut_there():
    assert ranges("where(i >= 8, X[i - 8], 0.0 - X[i])", 64) == [(0, 2), (2, 16)]


def test_indices_held_inside_are_decided_in_the_middle():
    """As many cuts as there are borders, though each window has its own."""
    assert ranges("sum(X[minimum(maximum(i + k - 3, 0), 63)] for k in range(7))", 64) == [(1, 15)]


@pytest.mark.parametrize(("extent", "tail"), [(64, "peel"), (62, "shift")])
def test_indices_that_go_around_are_decided_in_the_middle(extent: int, tail: str):
    """Those of blocks that are moved back, too, whose place is the least of two."""
    n = (extent + 3) // 4
    text = f"X[(i + {extent - 1}) % {extent}] + X[(i + 1) % {extent}]"
    assert ranges(text, extent, tail) == [(1, n - 1)]
    assert ranges(f"where(i >= 1, X[maximum(i - 1, 0)], 0.0) + X[(i + 1) // {extent}]", extent, tail) == [(1, n - 1)]


@pytest.mark.parametrize("body", ["where(i % 2 == 0, X[i], 0.0)", "where(X[i] > 0.0, X[i], 0.0)"])
def test_what_no_range_decides_is_left(body: str):
    assert ranges(body, 64) == [(0, 16)]


def test_short_loops_are_left():
    assert ranges("where(i >= 1, X[maximum(i - 1, 0)], X[i])", 4 * (FEWEST - 1)) == [(0, FEWEST - 1)]


def test_a_triangle_is_cut_along_its_inner_loop_also_beside_a_block_that_is_moved_back():
    """The place of the block is the least of two: the border is beside it, wherever that is."""
    text = "A: f32[45, 45] = input()\nX: f32[45, 16] = input()\n"
    text += "Y[i, k]: f32[45, 16] = sum(where(j <= i, A[i, j], 0.0) * X[j, k] for j in range(45))\nreturn Y"
    s = schedule(parse_program(text), WIDE)
    _, rows = s["Y"].split("i", 6, "shift")
    s["Y"].reorder("i_o", "j", rows, "k")
    s["Y"].unroll(rows)
    s["Y"].vectorize("k")
    s["Y"].parallel("i_o")
    assert "for j in range(0, minimum(i_o * 6, 39) + 1):" in str(assert_means(s))


def test_tests_that_are_seldom_made_are_left():
    """A cut copies the sum in front of the test that it decides, which takes nearly all of the time."""
    text = "A: f32[40, 64] = input()\nY[i]: f32[40] = sum(A[i, j] for j in range(64)) * where(i >= 3, A[i, 0], 2.0)\nreturn Y"
    s = schedule(parse_program(text), WIDE)
    _, lanes = s["Y"].split("i", 4)
    s["Y"].reorder("i_o", "j", lanes)
    s["Y"].vectorize(lanes)
    nest = assert_means(s)
    assert [(s.start.value, s.stop.value) for s in statements(nest.kernels) if isinstance(s, For) and s.index == "i_o"] == [(0, 10)]


def in_tiles() -> Planned:
    """A padded convolution in tiles of four rows, all channels side by side."""
    s = schedule(parse_program(PADDED), WIDE)
    s["y"].split("z", 4)
    s["y"].reorder("n", "z_o", "s", "c", "z_i", "k")
    s["y"].unroll("z_i")
    s["y"].vectorize("k")
    return s


def test_tiles_inside_test_nothing_and_those_at_borders_only_their_own():
    s = in_tiles()
    text = str(assert_means(s))
    assert text.count("for c in") == 5 and text.count("where") == 2 and "y_sum[z_i, k] + x[n, s + z_i + 3, c] * w[s, c, k]" in text


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
    assert "if s + z - 1 >= 0 and 12 - s - z >= 0:" in inside and "x[s + z - 1, k] + x[s + z - 1, k]" in inside
    assert "x[minimum(maximum(s + z - 1, 0), 11), k]" in outside and "minimum" not in inside


def test_a_test_that_a_loop_does_not_change_stands_in_front_of_it():
    s = schedule(parse_program(PADDED), WIDE)
    s["y"].reorder("z", "s", "c", "n", "k")
    s["y"].unroll("n")
    s["y"].vectorize("k")
    text = str(assert_means(s))
    assert "if s + z - 1 >= 0 and 12 - s - z >= 0:" in text and "0.0 * w[s, c, k]" in text and "where" not in text


@pytest.mark.parametrize("rows", [2, 8])
def test_a_test_that_all_of_many_copies_make_alike_stands_in_front_of_them(rows: int):
    """The body stands twice. Where the test does not hold copies are a loop again, if they choose no element that is stored to."""
    s = schedule(parse_program(PADDED.replace("z + s", "z + c").replace("[2, 12", f"[{rows}, 12")), WIDE)
    s["y"].reorder("z", "c", "s", "n", "k")
    s["y"].unroll("s")
    s["y"].unroll("n")
    s["y"].vectorize("k")
    inside, test, outside = str(assert_means(s)).partition("else:")
    assert bool(test) == ("if c + z - 1 >= 0 and 12 - c - z >= 0:" in inside) == ("for s in range(0, 3):" in outside) == (rows > 2)
    assert ("where" in inside + outside) == (rows == 2)


def test_infinities_meet_the_zeros_around_a_tensor():
    s = in_tiles()
    x = np.ones((2, 12, 6), np.float32)
    w = np.full((3, 6, 8), np.inf, np.float32)
    assert_means(s, inputs={"x": x, "w": w})


@pytest.mark.parametrize("mode", ["clamp", "wrap", 0.5])
def test_windows_at_borders_mean_the_same(mode: str | float):
    """Compiled, against the interpreter, with gradients: the middle reads side by side, the borders do not."""
    shape = (6, 70)
    x = te.placeholder(shape, "float64", name="x")
    y = te.compute(shape, lambda i, j: te.sum(lambda a, b: x.read(i + a - 1, j + b - 2, outside=mode) * (a + 2.0 * b), (2, 5)))
    head = te.placeholder(shape, "float64", name="head")
    (x_bar,) = te.gradient(y, [x], head)
    rng = np.random.default_rng(0)
    arrays = rng.standard_normal(shape), rng.standard_normal(shape)
    for got, want in zip(te.build([y, x_bar], [x, head])(*arrays), te.evaluate([y, x_bar], {x: arrays[0], head: arrays[1]}), strict=True):
        assert np.allclose(got, want, rtol=1e-13, atol=1e-13)


def test_steps_around_a_circle_read_side_by_side():
    """States of a scan that are read around a border: no lane divides or gathers but at the borders."""
    x = te.placeholder((5, 70), "float32", name="x")
    steps = te.scan(
        lambda t, u: te.compute(u.shape, lambda i, j: u.read(i, j - 1, outside="wrap") * 0.5 + u.read(i, j + 1, outside="wrap")), x, 3
    )
    built = te.build([steps], [x])
    given = np.random.default_rng(0).standard_normal((5, 70)).astype(np.float32)
    want, rows = given, []
    for _ in range(3):
        want = np.roll(want, 1, 1) * np.float32(0.5) + np.roll(want, -1, 1)
        rows.append(want)
    assert np.allclose(built(given), np.stack(rows), rtol=1e-6, atol=1e-6)
    nest = str(built.schedule.nest)
    assert "for j_o in range(1, 4)" in nest and "t0[t - 1, i, j_i + j_o * 16 - 1] * 0.5 + t0[t - 1, i, j_i + j_o * 16 + 1]" in nest
