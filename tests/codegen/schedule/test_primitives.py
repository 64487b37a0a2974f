"""What each primitive does to the loops, and what it refuses."""

import itertools
import random

import numpy as np
import pytest

from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest.interpret import run_nest
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.schedule import schedule
from tensorexpr.errors import ScheduleError
from tensorexpr.parse import parse_program
from tests.codegen.programs import MATMUL, SOFTMAX, WIDE, assert_means, loops, plain, tile
from tests.seeds import share_of

WINNERS = """
A: f32[6, 6] = input()
C[i]: f32[6] = sum(A[i, k] for k in range(i + 1))
M[i]: i64[6] = argmax(A[i, k] for k in range(6))
return C, M
"""
SCATTER = """
V: f32[8, 4] = input()
ids: i64[8] = input()
Y: f32[10, 4] = scatter({(ids[t], d): V[t, d] for t in range(8) for d in range(4)})
return Y
"""
SCAN = """
X: f32[5, 4] = input()
h0: f32[4] = input()
for t in range(5):
    h: f32[4] = state(h0)
    g[i]: f32[4] = h[i] + X[t, i]
    H[t] = h = g
return H
"""
CHAIN = """
X: f32[6, 6] = input()
P[i, j]: f32[6, 6] = X[i, j] * 2.0
Q[i, j]: f32[6, 6] = P[i, j] + P[j, i]
R[i, j]: f32[6, 6] = P[i, j] * 3.0
return Q, R
"""
SIZES = """
sizes(n)
X: f32[n, 8] = input()
Y[i, j]: f32[n, 8] = X[i, j] + 1.0
Z[i]: f32[n] = sum(X[i, k] for k in range(8))
return Y, Z
"""


def test_split_makes_two_loops_and_a_rest():
    s = plain(MATMUL)
    assert s["C"].split("i", 5) == ("i_o", "i_i")
    assert s["C"].loops == ("i_o", "i_i", "j", "k")
    nest = assert_means(s)
    assert [x for x, _ in loops(nest)] == ["i_o", "i_i", "j", "k", "i_i", "j", "k"]


def test_a_shifted_tail_needs_no_rest():
    s = plain(MATMUL)
    s["C"].split("i", 5, "shift")
    nest = assert_means(s)
    assert "minimum(i_o * 5, 7)" in str(nest)
    assert [x for x, _ in loops(nest)] == ["i_o", "i_i", "j", "k"]


def test_a_shifted_tail_of_a_size_chooses_when_it_runs():
    for n in (0, 1, 3, 4, 5, 9):
        s = plain(SIZES)
        s["Y"].split("i", 4, "shift")
        assert_means(s, n=n)


def test_a_guarded_tail_skips_points():
    s = plain(MATMUL)
    s["C"].split("k", 3, "guard")
    assert "if k_i + k_o * 3 < 8:" in str(assert_means(s))


def test_a_stride_runs_each_residue_class_as_a_loop_of_its_own():
    s = plain(MATMUL)
    assert s["C"].split("i", 5, "stride") == ("i_o", "i_i")
    assert s["C"].loops == ("i_i", "i_o", "j", "k")
    assert "for i_o in range(0, 3 - (i_i + 3) // 5):" in str(assert_means(s))
    s["C"].split("i_o", 2, "shift")  # 12 rows: two classes of three, three of two
    s["C"].unroll("i_i")
    assert_means(s)
    for n in (0, 1, 3, 4, 9):
        s = plain(SIZES)
        s["Y"].split("i", 4, "stride")
        assert_means(s, n=n)


def test_fuse_runs_two_loops_as_one():
    s = plain(MATMUL)
    assert s["C"].fuse("i", "j") == "i_j"
    s["C"].parallel("i_j")
    assert loops(assert_means(s))[0] == ("i_j", "parallel")


def test_data_loops_inside_a_reduction_have_an_accumulator_each():
    s = plain(MATMUL)
    tile(s["C"], "i", "j", (4, 8))
    s["C"].reorder("i_o", "j_o", "k", "i_i", "j_i")
    s["C"].unroll("i_i")
    s["C"].vectorize("j_i")
    nest = assert_means(s)
    assert "C_sum: local(f32[4, 8])" in str(nest)
    assert [kind for _, kind in loops(nest)] == ["serial", "serial", *["unroll", "vectorize"], "serial", *["unroll", "vectorize"] * 2]


def test_a_vectorized_reduction_has_an_accumulator_per_lane():
    s = plain(MATMUL)
    s["C"].split("k", 4)
    s["C"].vectorize("k_i")
    assert "C_sum_lanes: local(f32[4])" in str(assert_means(s))


def test_lanes_of_argmax_keep_the_first_winner():
    for data in ([3, 7, 1, 7, 0, 7], [np.nan, 1, np.nan, 2, 0, 1], [-np.inf] * 6):
        s = plain(WINNERS)
        s["M"].split("k", 4)
        s["M"].vectorize("k_i")
        assert_means(s, inputs={"A": np.tile(np.array(data, np.float32), (6, 1))})


def test_inline_writes_a_definition_into_its_readers():
    s = plain(CHAIN)
    s["P"].inline()
    assert s.stages == ("Q", "R")
    assert "P" not in str(assert_means(s)).replace("P_", "")


def test_compute_at_shares_loops_and_keeps_a_row_near():
    s = plain(SOFTMAX)
    s["s"].compute_at("Y", "i")
    s["e"].compute_at("Y", "i")
    s["m"].compute_at("Y", "i")
    nest = assert_means(s, exact=False)
    assert len(nest.kernels) == 1 and not nest.workspace
    assert "e_1: local(f32[40])" in str(nest)


def test_a_definition_that_others_read_is_kept_whole():
    s = plain(SOFTMAX.replace("return Y", "return Y, m"))
    s["s"].compute_at("Y", "i")
    s["e"].compute_at("Y", "i")
    s["m"].compute_at("Y", "i")
    nest = assert_means(s, exact=False)
    assert len(nest.kernels) == 1 and "    m[i] = " in str(nest)


def test_a_copy_is_not_affected_by_what_follows():
    s = plain(MATMUL)
    copy = s.copy()
    s["C"].split("i", 2)
    assert copy["C"].loops == ("i", "j", "k") and copy != s


def test_printing_shows_the_loop_nest():
    assert "for i in range(0, 12):" in str(plain(MATMUL))


REFUSED = [
    (MATMUL, "s['D']", "expected a definition of the program, got 'D'"),
    (MATMUL, "s[3]", "expected a tensor or the name of a definition, got 3"),
    (MATMUL, "s['C'].split('q', 2)", "expected a loop of C, got 'q'"),
    (MATMUL, "s['C'].split('i', 2); s['C'].split('i', 2)", "expected a loop of C, got 'i'"),
    (MATMUL, "s['C'].split('i', 0)", "expected a positive int as the factor, got 0"),
    (MATMUL, "s['C'].split('i', 2, 'round')", "expected a tail among peel, shift, guard, stride, got 'round'"),
    (MATMUL, "s['C'].split('k', 3, 'shift')",
     "expected a data loop of a plain definition for tail 'shift', got k: points would count twice"),
    (MATMUL, "s['C'].parallel('i'); s['C'].split('i', 2)", "expected a serial loop to split, got i, marked parallel"),
    (MATMUL, "s['C'].fuse('i', 'k')", "expected two loops directly inside each other to fuse, got i and k"),
    (MATMUL, "s['C'].fuse('j', 'k')", "expected loops of one reduction, or data loops, to fuse, got j and k"),
    (MATMUL, "s['C'].vectorize('j'); s['C'].fuse('i', 'j')", "expected serial loops to fuse, got j, marked vectorize"),
    (MATMUL, "s['C'].split('i', 5); s['C'].fuse('i_i', 'j')", "expected loops without a rest to fuse, got i_i of a split of i by 5"),
    ("A: f32[4, 4] = input()\nS: f32 = sum(A[i, k] for i in range(4) for k in range(i))\nreturn S",
     "s['S'].fuse('i', 'k')", "expected bounds of k that do not depend on i to fuse them, got ones that do"),
    (MATMUL, "s['C'].reorder('i', 'i')", "expected each loop once to reorder, got i, i"),
    (MATMUL, "s['C'].split('i', 5); s['C'].reorder('i_i', 'i_o')", "expected i_o outside of i_i, got it inside"),
    (MATMUL, "s['C'].split('i', 5, 'stride'); s['C'].reorder('i_o', 'i_i')", "expected i_i outside of i_o, got it inside"),
    (MATMUL, "s['C'].parallel('j')", "expected the outermost data loop to run in parallel, got j inside i"),
    (MATMUL, "s['C'].parallel('k')", "expected a data loop to run in parallel, got k of a reduction"),
    (MATMUL, "s['C'].reorder('k', 'i', 'j'); s['C'].parallel('i')",
     "expected a loop outside of the reduction over k to run in parallel, got i inside"),
    ("A: f32[4, 4] = input()\nC[i]: f32[4] = sum(A[i, k] for k in range(i * i // 4))\nreturn C",
     "s['C'].reorder('k', 'i')", "expected i outside of k, whose bounds depend on it, got it inside"),
    ("sizes(n)\nX: f32[n] = input()\nY: f32[n, 6] = input()\nP[b, i]: f32[(n + 7) // 8, 6] = "
     "max(sum(X[k + 8 * b] for l in range(3)) * Y[k + 8 * b, i] for k in range(minimum(8, n - 8 * b)))\nreturn P",
     "s['P'].split('b', 2, 'shift'); s['P'].reorder('b_o', 'i', 'k', 'l', 'b_i')",
     "expected b_i outside of k, whose bounds depend on it, got it inside"),  # the inner sum would read past the end
    (WINNERS, "s['M'].split('k', 2); s['M'].reorder('k_i', 'k_o')",
     "expected the loops of argmax in the order k_o, k_i: it depends on the order of its points"),
    (WINNERS, "s['C'].vectorize('k')", "expected a constant extent of at most 256 to vectorize k, got an extent known only when it runs"),
    (MATMUL, "s['C'].split('k', 4); s['C'].reorder('k_i', 'k_o'); s['C'].vectorize('k_i')",
     "expected the innermost loop of the reduction to vectorize, got k_i outside of k_o"),
    ("A: f32[9] = input()\nS: f32 = reduce(lambda a, b: a * b + a + b, (f32(0.0),), (A[k] for k in range(9)), name='law')\nreturn S",
     "s['S'].vectorize('k')", "expected a reduction that commutes to vectorize k, got law"),
    (SCATTER, "s['Y'].split('t', 2); s['Y'].reorder('t_i', 't_o')",
     "expected the loops t_o, t_i in this order, got t_i, t_o: contributions to one element combine in order"),
    (SCATTER, "s['Y'].parallel('t')", "expected iterations that touch different elements to run in parallel, got t: two may touch one"),
    (SCATTER, "s['Y'].vectorize('t')", "expected iterations that touch different elements to vectorize, got t: two may touch one"),
    (SCATTER, "s['Y'].compute_at('Y', 't')", "expected a plain definition to compute inside another, got a scatter"),
    (SIZES, "s['Z'].reorder('k', 'i')", "expected a constant extent of i, inside the reduction over k, got one known only when it runs"),
    (SIZES, "s['Y'].unroll('i')", "expected a constant extent of at most 64 to unroll i, got an extent known only when it runs"),
    ("A: f32[20000] = input()\nS[i]: f32[20000] = sum(A[i] for k in range(2))\nreturn S",
     "s['S'].reorder('k', 'i')", "expected accumulators of at most 32768 bytes for the loops inside a reduction, got 80000"),
    ("A: f16[4000, 3] = input()\nS[i]: i64[4000] = argmax(A[i, k] for k in range(3))\nreturn S",
     "s['S'].reorder('k', 'i')", "expected accumulators of at most 32768 bytes for the loops inside a reduction, got 40000"),
    ("A: f32[8, 4] = input()\nS[i]: f32[8] = max(A[i, k] - sum(A[k, l] for l in range(4)) for k in range(4))\nreturn S",
     "s['S'].reorder('l', 'k')", "expected k outside of the reduction over l, which depends on it, got it inside"),
    ("A: f32[8, 4] = input()\nS[i, j]: f32[8, 4] = A[i, j] - max(A[i, k] - min(A[i, l] for l in range(4)) for k in range(4))\nreturn S",
     "s['S'].reorder('k', 'l')", "expected the reduction over l before the one over k, which uses it, got it after"),
    ("A: f32[8, 4] = input()\n"
     "S[i]: f32[8] = max(A[i, k] - where(k > 1, sum(A[i + 2 - k, l] for l in range(4)), 0.0) for k in range(2))\n"
     "return S",
     "s['S'].reorder('l', 'k')", "expected k outside of the reduction over l, which depends on it, got it inside"),
    (SOFTMAX, "s['e'].fuse('i', 'j'); s['s'].compute_at('Y', 'i'); s['e'].compute_at('Y', 'i')",
     "expected i_j to run over axes that are computed whole, got one of which i asks for one element"),
    ("h0: f32[4] = input()\nS[i]: f32[4] = h0[i] * 2.0\nfor t in range(3):\n    h: f32[4] = state(S)\n"
     "    g[i]: f32[4] = h[i]\n    H[t] = h = g\nreturn H",
     "s['S'].inline()", "expected a definition that is read by index, got the start of a scan"),
    (SCAN, "s['g'].inline()", "expected a definition outside of scans to inline, got g"),
    (SCAN, "s['g'].compute_at('g', 'i')", "expected definitions outside of scans to compute one in the other"),
    (CHAIN, "s['Q'].inline()", "expected a definition between others to inline, got the output Q"),
    (CHAIN, "s['P'].inline(); s['P'].split('i', 2)", "expected a definition with loops, got 'P', which is inlined"),
    (CHAIN, "s['Q'].split('i', 2); s['P'].inline()", "expected plain loops of Q, which reads what is inlined, got changed ones"),
    (SOFTMAX, "s['m'].compute_at('e', 'i'); s['m'].inline()", "expected a definition that shares no loops to inline, got m"),
    (CHAIN, "s['P'].compute_at('Q', 'i')",
     "expected iterations that make each element of P once, since it is kept whole: an output, read elsewhere or large"),
    (CHAIN, "s['P'].compute_at('R', 'i')", "expected every other reader after R, got Q before it"),
    (CHAIN, "s['R'].compute_at('Q', 'i')", "expected a definition that Q reads, got R, which it does not"),
    (CHAIN, "s['P'].compute_at('Q', 'k')", "expected a data loop of Q, got k"),
    (SOFTMAX, "s['m'].compute_at('e', 'i'); s['e'].compute_at('Y', 'i')", "expected every other reader after Y, got s before it"),
    (SOFTMAX, "s['m'].compute_at('e', 'i'); s['X'].split('i', 2)", "expected a definition of the program, got 'X'"),
    (SOFTMAX, "s['s'].compute_at('Y', 'i'); s['e'].compute_at('s', 'i')",
     "expected a definition with loops of its own, got s, computed in Y"),
    (SOFTMAX, "s['m'].compute_at('e', 'i'); s['m'].parallel('i')",
     "expected a definition with loops of its own to run in parallel, got one inside e"),
    (SOFTMAX, "s['m'].parallel('i'); s['m'].compute_at('e', 'i')",
     "expected a definition with loops of its own to run in parallel, got one inside e"),
    (SOFTMAX, "s['s'].reorder('k', 'i'); s['e'].compute_at('s', 'i')", "expected a loop outside of the reduction over k, got i"),
    (SOFTMAX, "s['s'].compute_at('Y', 'i'); s['e'].compute_at('Y', 'j')", "expected its readers in the same loop or deeper, got s in i"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "calls", "message"), REFUSED)
def test_illegal_primitives_are_refused_with_the_reason(text, calls, message):
    s = schedule(parse_program(text), WIDE)
    *before, last = calls.split("; ")
    for call in before:
        exec(call, {"s": s})
    copy = s.copy()
    with pytest.raises(ScheduleError) as refused:
        exec(last, {"s": s})
    assert refused.value.message.startswith(message)
    assert refused.value.location.file == __file__
    assert s == copy


def test_a_definition_may_run_in_the_rows_of_another_that_does_not_read_it():
    s = plain(CHAIN)
    s["Q"].compute_at("R", "i")
    nest = assert_means(s)
    assert [k.name for k in nest.kernels] == ["P", "R"]
    assert [x for x, _ in loops(nest)] == ["i", "j", "i", "j", "j"]
    again = schedule(s.program, WIDE)
    exec(s.as_python(), {"s": again})
    assert again == s


def test_what_runs_in_the_loops_of_a_guarded_split_stays_within_the_extent():
    s = plain(CHAIN)
    s["R"].split("i", 4, "guard")
    s["Q"].compute_at("R", "i_i")
    s["P"].compute_at("R", "i_i")
    assert "if i_i + i_o * 4 < 6:" in str(assert_means(s))


OVERLAPPING = "a: f64[11, 7] = input()\nb: f64[7, 21] = input()\nd[i, j]: f64[11, 21] = sum(a[i, k]*b[k, j] for k in range(7))\nreturn d"


@pytest.mark.parametrize("seed", share_of(range(90)))
def test_blocks_that_overlap_are_legal_or_refused_around_what_runs_at_once(seed):
    """Blocks of tail "shift", split again or fused, in any order, unrolled, inside of lanes and of loops of several cores: what is no
    `ScheduleError` passes the verifier."""
    rng = random.Random(f"overlap {seed}")
    s = plain(OVERLAPPING)
    s["d"].split("j", rng.randint(4, 9), "shift")
    refused = 0
    if rng.random() < 0.4:
        s["d"].split(rng.choice(("j_o", "j_i")), rng.randint(2, 3), rng.choice(("peel", "guard", "shift")))
    for word in rng.choices(("reorder", "unroll", "vectorize", "parallel", "fuse"), (4, 3, 2, 1, 1), k=6):
        loops = list(s["d"].loops)
        rng.shuffle(loops)
        try:
            getattr(s["d"], word)(*(loops if word == "reorder" else loops[:2] if word == "fuse" else loops[:1]))
        except ScheduleError:
            refused += 1
    verify_nest(lower(s))


@pytest.mark.parametrize("kind", ("vectorize", "parallel"))
def test_blocks_that_overlap_are_not_written_out_inside_of_what_runs_at_once(kind):
    s = plain(OVERLAPPING)
    s["d"].split("j", 8, "shift")
    s["d"].reorder("j_i", "j_o", "i", "k")
    getattr(s["d"], kind)("j_i")
    verify_nest(lower(s))
    with pytest.raises(ScheduleError) as refused:
        s["d"].unroll("j_o")
    how = "vectorize" if kind == "vectorize" else "run in parallel"
    assert f"expected iterations that touch different elements to {how}, got j_i around the blocks of j_o, which overlap" in str(
        refused.value
    )
    assert "hint: reorder j_o outside of j_i, or split j with tail 'guard' or 'peel'" in str(refused.value)
    if kind == "vectorize":  # only the outermost loop runs in parallel
        s["d"].reorder("j_o", "j_i", "i", "k")
        s["d"].unroll("j_o")
        verify_nest(lower(s))


@pytest.mark.parametrize("factors", ((4, 2, 3), (5, 3, 2)))
@pytest.mark.parametrize("extent", (37, 152))
def test_blocks_of_blocks_that_overlap_keep_sums_of_their_own(extent, factors):
    """A sum around blocks has an accumulator for each place in them: the places of the rest of one split are none of the shifted blocks
    of another. Every split of three levels, with the sum around any of the loops, is refused or right."""
    text = f"a: f64[3, {extent}] = input()\nd[j]: f64[{extent}] = sum(a[i, j] for i in range(3))\nreturn d"
    values = np.arange(3.0 * extent).reshape(3, extent)
    ran = 0
    for tails in itertools.product(("peel", "shift", "stride"), repeat=3):
        for at in range(3):
            s = plain(text)
            try:
                for loop, factor, tail in zip(("j", "j_o", "j_o_o"), factors, tails, strict=True):
                    s["d"].split(loop, factor, tail)
                order = [x for x in s["d"].loops if x != "i"]
                s["d"].reorder(*order[:at], "i", *order[at:])
            except ScheduleError:
                continue
            ran += 1
            assert np.array_equal(run_nest(lower(s), {"a": values}, {})["d"], values.sum(0)), (tails, at)
    assert ran > 50


def test_shifted_blocks_of_blocks_inside_of_a_sum_are_refused_with_the_way_out():
    s = plain("a: f64[3, 152] = input()\nd[j]: f64[152] = sum(a[i, j] for i in range(3))\nreturn d")
    s["d"].split("j", 16)
    s["d"].reorder("i", "j_o", "j_i")
    with pytest.raises(ScheduleError) as refused:
        s["d"].split("j_o", 8, "shift")
    assert "expected the rest of j in a loop of its own, got i around it and the blocks of j_o, which overlap" in str(refused.value)
    assert "hint: split j_o with tail 'guard' or 'peel', or reorder i inside" in str(refused.value)
