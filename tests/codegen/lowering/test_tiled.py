"""Accumulators of one tile among many, under a condition: kept by themselves along the reduction, and put back behind it."""

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.lowering.kernels.tiled import with_tiles
from tensorexpr.codegen.nest import Alloc, Buffer, If, LoopNest
from tensorexpr.codegen.nest.interpret import run_nest
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.target import Target
from tensorexpr.ir import Expr, Index, apply, const
from tensorexpr.parse import parse_program
from tensorexpr.records import replace
from tests.codegen.llvm.nests import buffer, loop, nest, read, write
from tests.codegen.programs import assert_means, statements

X, OUT = buffer("X", dtypes.float64, 6, 9), buffer("Y", dtypes.float64, 5, 3, 4)
P, C, U, Q = (Index(n) for n in ("p", "c", "u", "q"))


def transformed(made: LoopNest) -> LoopNest:
    names = iter(f"t{k}" for k in range(100))
    return replace(made, kernels=tuple(replace(k, body=with_tiles(k.body, lambda stem: f"{stem}_{next(names)}")) for k in made.kernels))


def tiles(place: Expr = P, length: int = 4, test: bool = True, reads: Expr | None = None) -> LoopNest:
    """Five tiles of accumulators, to each of which a loop adds what a condition leaves."""
    acc = Buffer("acc", dtypes.float64, (const(5), const(3), const(4)), "local")

    def rows(statement, count=4):
        return loop("u", 3, loop("q", count, statement, kind="vectorize"), kind="unroll")

    def at(e):
        return read(acc, e, U, Q)

    added = rows(write(acc, (place, U, Q), apply("add", at(place if reads is None else reads), read(X, C, apply("add", P, Q)))), length)
    if test:
        added = If(apply("lt", apply("add", P, C), const(7)), (added,))
    begun = loop("p", 5, rows(write(acc, (P, U, Q), read(X, const(0), U))))
    stored = loop("p", 5, rows(write(OUT, (P, U, Q), read(acc, P, U, Q))))
    return nest([X, OUT], [OUT], (Alloc(acc, (begun, loop("p", 5, loop("c", 6, added)), stored)),))


def test_a_tile_is_kept_by_itself_along_the_reduction():
    before = tiles()
    after = transformed(before)
    verify_nest(after)
    assert [s.buffer.name for s in statements(after.kernels) if isinstance(s, Alloc)] == ["acc", "acc_t0"]
    assert "acc_t0[u, q] = acc[p, u, q]" in str(after) and "acc[p, u, q] = acc_t0[u, q]" in str(after)
    given = {"X": np.random.default_rng(0).standard_normal((6, 9)), "Y": np.empty((5, 3, 4))}
    want, got = (run_nest(n, {k: v.copy() for k, v in given.items()})["Y"] for n in (before, after))
    assert np.array_equal(want, got)


@pytest.mark.parametrize(
    "made",
    [
        tiles(test=False),
        tiles(place=const(2)),
        tiles(place=apply("minimum", C, const(4))),
        tiles(length=3),
        tiles(reads=const(0)),
    ],
    ids=["no condition", "one place for all", "a place for each step", "a part of a tile", "another tile is read"],
)
def test_what_is_no_such_tile_stays(made):
    assert str(transformed(made)) == str(made)


def test_the_weights_of_a_long_convolution_come_in_parts_that_a_cache_holds():
    """512 channels of nine taps are more than the second level keeps for 32 lanes: tiles wait for each other every so many channels."""
    text = """
x: f32[512, 16, 16] = input()
w: f32[64, 512, 3, 3] = input()
y[o, p, q]: f32[64, 16, 16] = sum(
    where(a + p >= 1 and a + p < 17 and b + q >= 1 and b + q < 17, x[i, a + p - 1, b + q - 1], 0.0) * w[o, i, a, b]
    for i in range(512)
    for a in range(3)
    for b in range(3)
)
return y
"""
    target = Target("test", vector_bits=512, registers=32, cores=1, l2_bytes=1 << 20, multiplies=1)
    made = autoschedule(parse_program(text), target)
    calls = made.as_python()
    assert "s['y'].split('i', 171, 'peel')" in calls and made["y"].loops[:4] == ("o_o", "i_o", "p", "q_o")
    assert "s['w_staged'].fuse('a1_a2', 'a3')" in calls and "s['w_staged'].vectorize('a1_a2_a3_i')" in calls
    assert "y_sum_1[q_i, o_i] = y_sum[p, 0, q_i, o_i]" in str(lower(made))


def test_a_convolution_in_parts_means_what_it_says():
    text = """
x: f32[40, 6, 8] = input()
w: f32[16, 40, 3, 3] = input()
y[o, p, q]: f32[16, 6, 8] = sum(
    where(a + p >= 1 and a + p < 7 and b + q >= 1 and b + q < 9, x[i, a + p - 1, b + q - 1], 0.0) * w[o, i, a, b]
    for i in range(40)
    for a in range(3)
    for b in range(3)
)
return y
"""
    made = autoschedule(
        parse_program(text), Target("test", vector_bits=128, registers=32, cores=1, l1_bytes=1 << 10, l2_bytes=1 << 12, multiplies=1)
    )
    assert "y_sum_1" in str(lower(made)) and "split('i'" in made.as_python()
    assert_means(made)
