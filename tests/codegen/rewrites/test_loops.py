"""Rewrites of loops keep what a nest computes, one after the other, over random programs and at sizes where tails exist."""

from __future__ import annotations

import random
from textwrap import dedent

import numpy as np
import pytest

from tensorexpr.codegen.lowering.context.arithmetic import constant, sub
from tensorexpr.codegen.nest import For
from tensorexpr.codegen.nest.parse import parse_nest
from tensorexpr.codegen.nest.text import print_nest
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.rewrites.loops import (
    bind,
    distribute,
    fuse,
    parallel,
    partition,
    reorder,
    serial,
    simplify,
    split,
    unroll,
    vectorize,
    widen,
)
from tensorexpr.codegen.rewrites.paths import loop_at, loop_paths, walk_nest
from tensorexpr.codegen.rewrites.regions import loops_of, region
from tensorexpr.errors import ScheduleError
from tests.codegen.llvm.nests import run
from tests.codegen.programs import SOFTMAX
from tests.codegen.rewrites import moves
from tests.codegen.rewrites.law import UNITS, Kept, kept_of, near, wandered
from tests.seeds import share_of


@pytest.mark.parametrize("seed", share_of(range(90)))
def test_random_rewrites_keep_what_a_nest_computes(seed):
    kept = kept_of(seed)
    if kept is not None:
        wandered(kept, moves.ALL, random.Random(seed), 6)


@pytest.mark.parametrize("seed", share_of(range(1000, 1012)))
def test_rewritten_nests_compile_to_the_same_values(seed):
    kept = kept_of(seed)
    if kept is None:
        return
    nest, _ = wandered(kept, moves.ALL, random.Random(seed), 6)
    for (arrays, sizes), expected in zip(kept.cases, kept.expected, strict=True):
        if expected is not None:
            found = run(nest, arrays, sizes)
            for name, parameter in zip(kept.program.outputs, nest.writes, strict=True):
                near(found[parameter], expected[name], UNITS, f"{sizes}: {name} of\n{nest}")


def tiled(m: int = 9, n: int = 35, k: int = 3) -> Kept:
    """A product of matrices."""
    return Kept.of_text(f"""
A: f32[{m}, {k}] = input()
B: f32[{k}, {n}] = input()
C[i, j]: f32[{m}, {n}] = sum(A[i, k] * B[k, j] for k in range({k}))
return C
""")


def test_a_product_in_tiles():
    kept = tiled()
    nest = kept.nest
    for rewrite, arguments in (
        (split, ("i", 4)),
        (split, ("j", 16)),
        (reorder, ("i_o", "j_o", "k", "i_i", "j_i")),
        (unroll, ("i_i",)),
        (vectorize, ("j_i",)),
        (fuse, ("i_o", "j_o")),
        (parallel, ("i_o_j_o",)),
        (simplify, ()),
    ):
        nest = kept.check(rewrite(nest, *arguments))
    found = run(nest, kept.cases[0][0])["C"]
    np.testing.assert_array_equal(found, kept.expected[0]["C"])
    text = print_nest(nest)
    assert "sum: local(f32[4, 16])" in text and "sum: local(f32[1, 3])" in text  # the tile, and the corner that is left


@pytest.mark.parametrize("extents", [(9, 35, 3), (4, 16, 2), (3, 5, 1), (1, 1, 0), (5, 0, 2)])
@pytest.mark.parametrize("tail", ["peel", "shift", "guard"])
def test_a_product_in_tiles_at_every_extent(tail, extents):
    kept = tiled(*extents)
    nest = kept.check(split(kept.check(split(kept.nest, "i", 4, tail)), "j", 16, tail))
    nest = kept.check(reorder(nest, "i_o", "j_o", "k", "i_i", "j_i"))
    nest = kept.check(partition(kept.check(partition(nest, "i_o")), "j_o"))
    nest = kept.check(vectorize(kept.check(unroll(nest, "i_i")), "j_i"))
    np.testing.assert_array_equal(run(nest, kept.cases[0][0])["C"], kept.expected[0]["C"])


def test_a_tail_of_unknown_length_keeps_its_order():
    kept = Kept.of_text(
        """
sizes(m, n)
X: f32[m, n] = input()
Y[i]: f32[m] = sum(X[k, i] for k in range(m))
return Y
""".replace("Y[i]: f32[m]", "Y[i]: f32[n]"),
        *({"m": 3, "n": n} for n in (0, 1, 4, 6)),
    )
    nest = kept.check(reorder(kept.check(split(kept.nest, "i", 4)), "i_o", "k", "i_i"))
    nest = kept.check(vectorize(nest, "i_i"))
    kinds = [loop_at(nest, path).kind for path in loop_paths(nest, "i_i")]
    assert kinds == ["vectorize"] * 3 + ["serial"]


def test_where_a_buffer_is_computed():
    nest = Kept.of_text(SOFTMAX).nest
    found = region(nest, "s")
    assert found.locals == ("sum",) and len(found.stores) == 3 and found.root == (2, 0)
    assert loops_of(nest, "s") == ("i_2", "k_1")
    split_ = split(nest, "i_2", 4)
    assert len(region(split_, "s").roots) == 2
    with pytest.raises(ScheduleError, match="expected s to be computed in one place, got 2"):
        _ = region(split_, "s").root
    with pytest.raises(ScheduleError, match="expected a buffer that main computes, got 'q'"):
        region(nest, "q")


HEAD = """\
main(n, x, y, z)
n: size
x: parameter(f32[64, 64])
y: parameter(f32[64], written)
z: parameter(f32[64, 64], written)

def kernel_0() -> (y, z):
"""
CHAIN = """\
    for i in range(1, 64):
        y[i] = y[i - 1] + x[i, 0]
"""
ROWS = """\
    for i in range(0, 64):
        for j in range(0, i):
            z[i, j] = x[i, j]
"""
SKEWED = """\
    for i in range(1, 64):
        for j in range(0, 63):
            z[i, j] = z[i - 1, j + 1]
"""
OPEN = """\
    for i in range(0, n):
        y[i] = x[i, 0]
        for j in range(0, n):
            z[i, j] = y[i]
"""
OWN = """\
    for i in range(0, 4):
        t: local(f32[()])
        t[()] = 0.0
        for j in range(0, 64):
            t[()] = t[()] + x[i, j]
        y[i] = t[()]
"""
TABLE = """\
    for i in range(0, 8):
        y[i] = 1.0
        for j in range(0, i64(y[i])):
            y[i] = y[i] + x[i, j]
"""
REFUSED = [
    (OWN, split, ("q", 4), "expected a loop of main, got 'q'"),
    (OWN, split, ("i", 0), "expected a positive int as the factor, got 0"),
    (OWN, split, ("i", 4, "round"), "expected a tail among peel, shift, guard, stride, got 'round'"),
    (OWN, split, ("i", 4, "peel", ("j", "b")), "expected names that nothing has yet, got 'j' again"),
    (OWN, split, ("i", 4, "peel", ("a",)), "expected 2 names, got 1"),
    (CHAIN, split, ("i", 4, "shift"), "expected iterations of i that may run twice in any order: y[i] and y[i - 1] meet"),
    (OPEN.replace("y[i] = x[i, 0]", "y[i] = y[i] + 1.0"), split, ("i", 4, "shift"),
     "expected iterations of i that read nothing that they write, got y"),
    (CHAIN, parallel, ("i",), "expected iterations of i that may run in parallel in any order: y[i] and y[i - 1] meet"),
    (CHAIN, vectorize, ("i",), "expected iterations of i that may run in lanes in any order"),
    (CHAIN, bind, ("i", "block.w"), "expected an axis among block.x, block.y, block.z, thread.x, thread.y, thread.z, warp, got 'block.w'"),
    (OPEN, unroll, ("i",), "expected a constant extent of at most 64 to unroll i, got an extent known only when it runs"),
    (ROWS, fuse, ("i", "j"), "expected bounds of j that do not depend on i"),
    (ROWS, fuse, ("j", "i"), "expected i right inside of j, got none there"),
    (ROWS, reorder, ("i",), "expected two or more loops, each once, got i"),
    (SKEWED, reorder, ("j", "i"), "expected j outside of i to keep what is computed: z[i, j] and z[i - 1, j + 1] meet"),
    (ROWS + "    for k in range(0, 64):\n        y[k] = x[k, 0]\n", reorder, ("i", "k"),
     "expected loops one inside the other, got i, k"),
    (OWN, distribute, ("j",), "expected statements in j that can stand in loops of their own, got one statement"),
    (OWN.replace(" 4)", " n)"), distribute, ("i",),
     "expected a known number of iterations of i, of which each keeps its t, to distribute it"),
    (OWN, parallel, ("j",), "expected no local buffer of what is around j inside to run in parallel, got t"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "rewrite", "arguments", "message"), REFUSED)
def test_what_would_change_the_result_is_refused(body, rewrite, arguments, message):
    nest = parse_nest(HEAD + body)
    with pytest.raises(ScheduleError) as raised:
        rewrite(nest, *arguments)
    assert message in str(raised.value)


TESTED = """
main(x, y)
x: parameter(f32[5, 7])
y: parameter(f32[5, 7], written)

def kernel_0() -> y:
    for i in range(0, 8):
        if i < 5:
            for j in range(0, 7):
                y[i, j] = x[i, j] + x[0, j]
"""


def test_what_is_asked_between_two_loops_is_asked_in_the_one_of_both():
    nest = parse_nest(TESTED)
    made = fuse(nest, "i", "j")
    assert "for i_j in range(0, 56):" in print_nest(made) and "if i_j // 7 < 5:" in print_nest(made)
    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    np.testing.assert_array_equal(run(verify_nest(made), {"x": x})["y"], x + x[0])
    with pytest.raises(ScheduleError, match="expected j right inside of i, got none there"):
        fuse(parse_nest(TESTED.replace("i < 5", "x[i % 5, 0] < 9.0 and i < 5")), "i", "j")


def test_a_parallel_loop_and_what_may_run_in_any_order_inside_are_one():
    made = fuse(parallel(parse_nest(TESTED), "i"), "i", "j")
    assert [s.kind for _, s in walk_nest(made) if isinstance(s, For)] == ["parallel"]
    summed = TESTED.replace("y[i, j] = x[i, j] + x[0, j]", "y[i, 0] = y[i, 0] + x[i, j]")
    with pytest.raises(ScheduleError, match="expected iterations of j that may run in parallel in any order"):
        fuse(parallel(parse_nest(summed), "i"), "i", "j")


def test_kinds_around_each_other():
    nest = parse_nest(HEAD + ROWS.replace("0, i)", "0, 64)"))
    cores = parallel(nest, "j")
    for rewrite, arguments, message in (
        (parallel, ("i",), "expected no parallel loop inside of i to run in parallel, got j"),
        (vectorize, ("j",), "expected a serial loop to vectorize, got parallel j"),
        (split, ("j", 4), "expected a serial loop, got one to parallel"),
        (fuse, ("i", "j"), "expected serial loops, got parallel j"),
        (distribute, ("j",), "expected a serial loop to distribute, got parallel j"),
    ):
        with pytest.raises(ScheduleError) as raised:
            rewrite(cores, *arguments)
        assert message in str(raised.value)
    assert serial(cores, "j") == nest
    lanes = unroll(nest, "i")
    with pytest.raises(ScheduleError, match="expected serial loops around j to run it in parallel, got i"):
        parallel(lanes, "j")
    with pytest.raises(ScheduleError, match="expected a loop that may stand around parallel i, got vectorize j"):
        reorder(vectorize(parallel(nest, "i"), "j"), "j", "i")
    blocks = bind(bind(nest, "i", "block.x"), "j", "thread.x")
    assert [s.kind for _, s in walk_nest(blocks) if isinstance(s, For)] == ["block.x", "thread.x"]
    with pytest.raises(ScheduleError, match=r"expected block\.x once, got it around j already"):
        bind(bind(nest, "i", "block.x"), "j", "block.x")
    with pytest.raises(ScheduleError, match=r"expected nothing but blocks around j, which is to be block\.x"):
        bind(nest, "j", "block.x")
    warps = split(nest, "j", 32)
    with pytest.raises(ScheduleError, match=r"expected lanes of a warp or threads along thread\.x once, got j_i and i"):
        bind(bind(warps, "j_i", "warp"), "i", "thread.x")
    with pytest.raises(ScheduleError, match=r"expected lanes of a warp or threads along thread\.x once, got i and j_i"):
        bind(bind(warps, "i", "thread.x"), "j_i", "warp")
    many = parse_nest("""
main(n, x, y)
n: size
x: parameter(f32[n, 65536, 64, 32])
y: parameter(f32[n, 65536, 64, 32], written)

def kernel_0() -> y:
    for n_0 in range(0, n):
        for b in range(0, 65536):
            for i in range(0, 64):
                for j in range(0, 32):
                    y[n_0, b, i, j] = x[n_0, b, i, j]
""")
    with pytest.raises(ScheduleError, match=r"expected at most 65535 blocks along block\.y, got an extent known only when it runs"):
        bind(many, "n_0", "block.y")
    with pytest.raises(
        ScheduleError, match=r"(?s)expected at most 65535 blocks along block\.z, got 65536.*there may be more along block\.x"
    ):
        bind(bind(many, "n_0", "block.x"), "b", "block.z")
    for first, second in ((("i", "thread.y"), ("j", "warp")), (("j", "warp"), ("i", "thread.z"))):
        with pytest.raises(ScheduleError, match="expected at most 1024 threads in a block, got 2048"):
            bind(bind(many, *first), *second)


BOTH = """\
    for i in range(0, 8):
        if y[i] > 0.0:
            for j in range(0, 8):
                z[i, j] = x[i, j]
        else:
            y[i] = 0.0
"""
MIXED = """\
    for i in range(1, 8):
        y[i] = z[i - 1, 0]
        for j in range(0, 8):
            z[i, j] = x[i, j] + y[i]
"""
HELD = """\
    for i in range(1, 8):
        y[i] = 1.0
        for j in range(0, 8):
            z[i, j] = x[i, j] + z[i - 1, 63]
        z[i, 63] = 0.0
"""
COPIED = """\
    for i in range(0, 8):
        s: local(f32[()])
        s[()] = 0.0
        for j in range(0, 8):
            s[()] = s[()] + x[i, j]
        y[i] = s[()]
        del s
        for k in range(0, 2):
            s: local(f32[()])
            s[()] = x[i, k]
            z[i, k] = s[()] * 2.0
"""
STAYING = [
    (COPIED, "expected s of i once, got a copy of it in a statement beside"),
    (HELD, "expected j alone in i, where it cannot be taken apart"),
    (BOTH, "expected j right inside of i"),
    (TABLE, "expected bounds of j that its iterations do not change"),
    (ROWS.replace("i)", "i64(x[i, 0]))", 1).replace("0, 64)", "0, 64)"), "expected bounds of j that depend on no data inside of i"),
    (ROWS.replace("(0, i)", "(0, i * i)"), "expected bounds of a loop that grow evenly with i"),
    (MIXED, "expected statements in i that can stand in loops of their own, got z[i, j] and z[i - 1, 0] meet in iterations of i"),
]


@pytest.mark.parametrize(("body", "message"), STAYING)
def test_loops_that_stay_in_their_order(body, message):
    nest = parse_nest(HEAD + body)
    with pytest.raises(ScheduleError) as raised:
        reorder(nest, "j", "i")
    assert message in str(raised.value)


GUARDED = """
main(a, x, y, z)
a: size
x: parameter(f32[a])
y: parameter(f32[16, 2], written)
z: parameter(f32[a, 2], written)

def kernel_0() -> (y, z):
    for p in range(0, 16):
        for q in range(0, 2):
            y[p, q] = 0.0
    for p in range(0, a):
        for q in range(0, 2):
            z[p, q] = 0.0
    for i in range(0, 16):
        if i < a:
            if x[minimum(a * 2 - 2, 1)] > 0.0:
                for j in range(0, 2):
                    y[i, j] = 1.0
    for k in range(0, a):
        if x[minimum(a * 2 - 2, 1)] > 0.0:
            for j in range(0, 2):
                z[k, j] = 1.0
"""


@pytest.mark.parametrize("outer", ["i", "k"])
def test_a_test_that_reads_what_may_be_missing_stays_where_it_was_asked(outer):
    nest = reorder(parse_nest(GUARDED), "j", outer)
    assert prove(nest).is_clean
    for a, value in ((0, 0.0), (1, 1.0), (1, -1.0), (3, 1.0), (20, -1.0), (20, 1.0)):
        found = run(nest, {"x": np.full(a, value, np.float32)}, {"a": a})
        assert (found["y"] == (np.arange(16)[:, None] < a) * (value > 0)).all() and (found["z"] == (value > 0)).all()


WIDENED = [
    (TABLE, "expected bounds of j that depend on no data to widen it"),
    (ROWS.replace("(0, i)", "(0, i * i)"), "expected bounds of j that grow evenly with i to widen it"),
    (ROWS.replace("range(0, i)", "unroll(range(0, i))"), "expected a serial loop to widen, got unroll j"),
]


@pytest.mark.parametrize(("body", "message"), WIDENED)
def test_loops_that_are_not_widened(body, message):
    with pytest.raises(ScheduleError) as raised:
        widen(parse_nest(HEAD + body), "j", "i")
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("bounds", "length"),
    [
        ("maximum(i - 2, 0), minimum(i + 1, 20)", 3),  # of both ends
        ("maximum((i + 1) // 2 - 1, 0), minimum(i // 2 + 1, 30)", 2),  # one iteration or two
        ("maximum(i - 2, 0), minimum(i, 32)", 2),
        ("maximum(i - 2, 30), minimum(i, 32)", 2),  # often none
    ],
)
def test_a_range_that_moves_on_gets_one_length(bounds, length):
    nest = parse_nest(HEAD + ROWS.replace("0, i", bounds))
    made = widen(nest, "j")
    s = loop_at(made, loop_paths(made, "j")[0])
    assert constant(sub(s.stop, s.start)) == length and widen(made, "j") == made
    assert {finding.kind for finding in prove(made).findings} == {"coverage"}  # of what the loops leave out
    given = np.arange(1.0, 4097.0, dtype=np.float32).reshape(64, 64)
    np.testing.assert_array_equal(*(run(one, {"x": given}, {"n": 1})["z"] for one in (nest, made)))


def test_a_range_without_an_end_near_its_start_gets_none():
    with pytest.raises(ScheduleError, match="expected a start of j at most 16 before its stop to give it one length"):
        widen(parse_nest(HEAD + ROWS), "j")


def test_a_quotient_is_widened_by_its_range():
    nest = parse_nest(HEAD + ROWS.replace("(0, i)", "(0, (i + 1) // 2)"))
    assert "for j in range(0, 32):" in str(widen(nest, "j", "i"))


def test_a_check_stays_with_what_it_stands_for():
    kept = Kept.of_text("""
X: f32[4, 3] = input()
K: i64[5] = input()
Y[t]: f32[5] = sum(X[K[t], j] for j in range(3))
return Y
""")
    kept.check(reorder(kept.check(distribute(kept.nest, "t")), "j", "t"))
    with pytest.raises(ScheduleError, match="expected statements in j that can stand in loops of their own"):
        distribute(kept.nest, "j")


def test_bounds_that_iterations_change():
    nest = parse_nest(HEAD + TABLE)
    assert partition(nest, "j") == nest
    with pytest.raises(ScheduleError, match="expected bounds of j that its iterations do not change"):
        distribute(parse_nest(HEAD + TABLE + "            z[i, j] = 0.0\n"), "j")


def test_what_is_left_of_loops_that_ran_together_runs_in_order():
    """A loop of one iteration goes; the rest of its kernel may not run beside what is no loop."""
    nest = parse_nest("""main(x, y, z)
x: parameter(f32[8])
y: parameter(f32[8], written)
z: parameter(f32[1], written)

def kernel_0() -> together(y, z):
    for i in parallel(range(0, 8)):
        y[i] = x[i]
    for j in parallel(range(0, 1)):
        z[j] = x[j]
""")
    verify_nest(simplify(nest))
    (kernel,) = simplify(nest).kernels
    assert not kernel.together and len(kernel.body) == 2


def test_what_is_known_of_a_remainder_is_not_taken_for_what_another_place_calls_by_its_name():
    text = """
    main(b, x, y)
    b: size
    x: parameter(f32[b, 31])
    y: parameter(f32[b, 31], written)

    def kernel_0() -> y:
        for i in range(0, b):
            if 2 % b < 8:
                for lo in range(0, 2):
                    for li in range(0, 16):
                        y[i, minimum(lo * 16, 15) + li] = x[i, (minimum(lo * 16, 15) + li + 1) % 31]
    """
    nest = parse_nest(dedent(text).strip())
    assert "(minimum(lo * 16, 15) + li + 1) % 31" in str(simplify(nest, "y"))
