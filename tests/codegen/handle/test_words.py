"""What the words of a schedule do to the nest, in the names that users say, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.auto.candidate import plain as plain_candidate
from tensorexpr.codegen.handle import Schedule
from tensorexpr.errors import ScheduleError
from tensorexpr.parse import parse_program
from tests.codegen.programs import MATMUL, SOFTMAX, WIDE, by_planners
from tests.codegen.rewrites.law import UNITS, Kept

CHAIN = """
X: f32[6, 6] = input()
P[i, j]: f32[6, 6] = X[i, j] * 2.0
Q[i, j]: f32[6, 6] = P[i, j] + P[j, i]
R[i, j]: f32[6, 6] = P[i, j] * 3.0
return Q, R
"""
SCATTER = """
V: f32[8, 4] = input()
ids: i64[8] = input()
Y: f32[10, 4] = scatter({(ids[t], d): V[t, d] for t in range(8) for d in range(4)})
return Y
"""
SIZES = """
sizes(n)
X: f32[n, 8] = input()
Y[i, j]: f32[n, 8] = X[i, j] + 1.0
Z[i]: f32[n] = sum(X[i, k] for k in range(8))
return Y, Z
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
BLUR = """
X: f32[20, 9] = input()
P[i, j]: f32[20, 9] = X[i, j] * 0.5 + 1.0
C[i, j]: f32[18, 9] = P[i, j] + P[i + 1, 8 - j] + P[i + 2, j]
return C
"""
LARGE = """
X: f32[3, 9000] = input()
P[i, j]: f32[3, 9000] = X[i, j] * 2.0
Q[i, j]: f32[3, 9000] = P[i, j] + P[i, 8999 - j]
return Q
"""


def schedule(text: str) -> Schedule:
    return Schedule.plain(parse_program(text), WIDE)


def means(s: Schedule, text: str, *sizes: dict[str, int], exact: bool = True) -> str:
    """Checks that a schedule computes what its program means, and that its calls rebuild it; gives its text."""
    kept = Kept.of_text(text, *sizes, exact=exact)
    kept.check(s.nest, UNITS)
    again = schedule(text)
    exec(s.as_python(), {"s": again})
    assert again == s and str(again) == str(s) and s.copy() == s
    return str(s)


def test_each_definition_has_names_of_its_own():
    s = schedule(SOFTMAX)
    assert s.stages == ("m", "e", "s", "Y") and all(s[name].loops[0] == "i" for name in s.stages)
    assert s["Y"].split("i", 4) == ("i_o", "i_i") and s["Y"].loops == ("i_o", "i_i", "j")
    assert "for i_3_o in range(0, 1):" in str(s.form.nest) and repr(s["Y"]) == "<loops of Y: i_o, i_i, j>"
    s["Y"].vectorize("j_1")  # the name in the nest is understood as well
    assert repr(s["Y"]) == "<loops of Y: i_o, i_i, j (vectorize)>"
    means(s, SOFTMAX, exact=False)
    with pytest.raises(ScheduleError, match="expected a loop of Y, got 'i', which was split") as refused:
        s["Y"].split("i", 2)
    assert refused.value.location.file == __file__ and refused.value.hint == "loops: i_o, i_i, j"
    with pytest.raises(ScheduleError, match="expected a serial loop, got one to vectorize"):
        s["Y"].split("j", 2)


def test_errors_are_in_the_names_of_the_definition():
    s = schedule(CHAIN)
    with pytest.raises(ScheduleError) as refused:
        s["R"].fuse("j", "i")
    assert refused.value.message == "expected i right inside of j, got none there"


def test_a_product_in_tiles():
    s = schedule(MATMUL)
    assert s["C"].tile("i", "j", 5, 16) == ("i_o", "j_o", "i_i", "j_i")
    s["C"].reorder("i_o", "j_o", "k", "i_i", "j_i")
    s["C"].unroll("i_i")
    s["C"].vectorize("j_i")
    s["C"].parallel("i_o")
    assert s["C"].loops == ("i_o", "j_o", "k", "i_i", "j_i")
    assert "sum: local(f32[5, 16])" in means(s, MATMUL)
    assert s.as_python().splitlines()[0] == "s['C'].tile('i', 'j', 5, 16, 'peel')"


def test_lanes_of_a_sum_have_an_accumulator_each():
    s = schedule(MATMUL)
    s["C"].split("k", 3)
    s["C"].vectorize("k_i")
    assert "sum_parts: local(f32[3])" in means(s, MATMUL)


@pytest.mark.parametrize("tail", ("peel", "shift", "guard", "stride"))
def test_every_tail_at_every_size(tail):
    s = schedule(SIZES)
    s["Y"].split("i", 4, tail)
    means(s, SIZES, *({"n": n} for n in (0, 1, 3, 4, 5, 9)))


def test_rows_of_a_softmax_are_computed_together():
    s = schedule(SOFTMAX)
    for name in ("s", "e", "m"):
        s[name].compute_at("Y", "i")
    text = means(s, SOFTMAX, exact=False)
    assert len(s.nest.kernels) == 1 and not s.nest.workspace and "e: local(f32[40])" in text


def test_what_does_not_read_a_definition_shares_its_loops_all_the_same():
    s = schedule(CHAIN)
    s["R"].compute_at("Q", "i")
    assert [k.name for k in s.nest.kernels] == ["P", "Q R"] and s["R"].loops == ("i", "j")
    means(s, CHAIN)
    s["R"].split("j", 4)
    means(s, CHAIN)


def test_the_body_of_a_scan_has_loops():
    s = schedule(SCAN)
    assert s.stages == ("g", "H") and s["g"].loops == ("i",) and s["H"].loops == ("t", "x0")
    s["g"].vectorize("i")
    assert "for i in vectorize(range(0, 4)):" in means(s, SCAN)


def test_a_ring_and_a_pipeline():
    s = schedule(BLUR)
    s["P"].compute_at("C", "i")
    ring, ahead = s.copy(), s.copy()
    ring["P"].slide()
    assert "P[i % 3, j] = X[i, j] * 0.5 + 1.0" in means(ring, BLUR)
    ahead["C"].pipeline("i", 3)
    assert "P: local(f32[3, 3, 9])" in means(ahead, BLUR)
    with pytest.raises(ScheduleError, match="expected a loop in which something is computed first to pipeline, got j"):
        s["C"].pipeline("j")
    s["C"].parallel("i")
    with pytest.raises(ScheduleError, match="expected a serial loop for P to slide in, got i, marked parallel"):
        s["P"].slide()


def test_large_local_buffers_have_room_in_memory():
    s = schedule(LARGE)
    s["P"].compute_at("Q", "i")
    assert "P: local(f32[9000])" in str(s.form.nest) and "P: workspace(f32[9000])" in means(s, LARGE)
    s["Q"].parallel("i")
    assert "P: workspace(f32[3, 9000])" in means(s, LARGE)


def test_an_operand_in_panels_and_a_sum_in_parts():
    s = schedule(MATMUL)
    assert s["C"].stage("B", ((1, 16), 0)) == "B_staged" and s["B_staged"].loops == ("a1_o", "a0", "a1_i")
    s["B_staged"].vectorize("a1_i")
    s["C"].split("k", 3)
    assert s["C"].rfactor("k_o") == ("C_k_o",) and s["C_k_o"].loops == ("k_o", "i", "j", "k_i")
    s["C_k_o"].parallel("k_o")
    assert s.stages == ("B_staged", "C_k_o", "C")
    means(s, MATMUL)


def test_a_search_is_a_schedule():
    program = parse_program(SOFTMAX)
    found = plain_candidate(program).then("fuse_at", "m", "i_1").then("split", "j_1", 8).then("partition", "i_3", None, None, 2)
    s = Schedule.of_candidate(program, WIDE, found, origin="a search")
    assert s.origin == "a search" and s["Y"].loops == ("i", "j_o", "j_i")
    assert s.as_python().splitlines()[1:3] == ["s.rewrite('fuse_at', 'm', 'i_1')", "s.rewrite('split', 'j_1', 8)"]
    again = schedule(SOFTMAX)
    for call in s.as_python().splitlines()[1:]:
        exec(call, {"s": again})
    assert again == s


def test_expressions_are_text_in_calls():
    s = schedule(SOFTMAX)
    s.rewrite("hoist", "j", "m[i_1]")
    s.rewrite("partition", "i_3", (2,))
    s.rewrite("partition", "j_1", None, "j_1 < 7")
    means(s, SOFTMAX, exact=False)
    with pytest.raises(ScheduleError, match="expected the name of a rewrite, got 'splitt'"):
        s.rewrite("splitt", "i", 2)


def test_what_planners_made_is_rebuilt():
    a = te.placeholder((50, 70), name="a")
    y = te.compute((50,), lambda i: te.sum(lambda k: te.exp(a[i, k] - te.max(lambda l: a[i, l], 70)), 70), name="y")
    s = Schedule.of_planned(by_planners(y), single=True, written=te.program_of([y]))
    again = te.schedule(y)
    exec(s.as_python(), {"s": again})
    assert again == s and str(again) == str(s)
    with pytest.raises(ScheduleError, match="expected simplify before all other calls"):
        s.simplify()
    with pytest.raises(ScheduleError, match="expected a call such as"):
        te.schedule(y).planned("import os")
    x = np.random.default_rng(0).normal(size=(50, 70)).astype(np.float32)
    np.testing.assert_allclose(te.build(s)(x), te.evaluate(y, {a: x}), rtol=1e-5)


OVERLAP = """
X: f32[6, 8] = input()
Y: f32[33] = scatter({a * 5 + 7 - b: X[a, b] for a in range(6) for b in range(8)})
return Y
"""
REFUSED = [
    (MATMUL, "s['D']", "expected a definition of the program, got 'D'"),
    (MATMUL, "s['A']", "expected a definition of the program, got 'A'"),
    (MATMUL, "s['C'].compute_at('C', 'i')", "expected another definition to compute C in, got itself"),
    (MATMUL, "s[3]", "expected a tensor or the name of a definition, got 3"),
    (MATMUL, "s['C'].split('i', 0)", "expected a positive int as the factor, got 0"),
    (MATMUL, "s['C'].split('i', 2, 'round')", "expected a tail among peel, shift, guard, stride, got 'round'"),
    (MATMUL, "s['C'].split('k', 3, 'shift')", "expected iterations of k that may run twice in any order"),
    (MATMUL, "s['C'].fuse('i', 'k')", "expected k right inside of i"),
    (MATMUL, "s['C'].vectorize('j'); s['C'].fuse('i', 'j')", "expected serial loops, got vectorize j"),
    (MATMUL, "s['C'].reorder('i', 'i')", "expected two or more loops, each once, got i, i"),
    (MATMUL, "s['C'].parallel('k')", "expected no local buffer of what is around k inside to run in parallel, got sum"),
    (SCATTER, "s['Y'].parallel('t')", "expected iterations of t that may run in parallel in any order: Y[ids[t], d] may meet"),
    (SCATTER, "s['Y'].vectorize('t')", "expected iterations of t that may run in lanes in any order"),
    (OVERLAP, "s['Y'].parallel('b'); s['Y'].reorder('b', 'a')", "expected iterations of b that may run in parallel around a in any order"),
    (OVERLAP, "s['Y'].vectorize('b'); s['Y'].reorder('b', 'a')", "expected iterations of b that may run in lanes around a in any order"),
    (SIZES, "s['Y'].unroll('i')", "expected a constant extent of at most 64 to unroll i, got an extent known only when it runs"),
    (SIZES, "s['Z'].reorder('k', 'i')", "expected a known number of iterations of i, of which each keeps its sum"),
    (CHAIN, "s['Q'].inline()", "expected a definition between others to inline, got the output Q"),
    (CHAIN, "s['P'].inline(); s['P'].split('i', 2)", "expected a definition with loops, got 'P', which is inlined"),
    (CHAIN, "s['P'].slide()", "expected a definition computed in a loop of another to slide, got P"),
    (CHAIN, "s['P'].stream()", "expected an output that nothing reads to write past the caches, got P"),
    (CHAIN, "s['P'].prefetch('X', 'i', 0)", "expected at least one row to fetch ahead, got 0"),
    (CHAIN, "s['P'].stage('X', (0,))", "expected the axes 0 to 1 of X, each once, got [0]"),
    (CHAIN, "s['P'].rfactor('i')", "expected a loop of a reduction to take apart, got i, which adds nothing up"),
    (CHAIN, "s['P'].alongside('P')", "expected another definition to run P with, got itself"),
    (CHAIN, "s['Q'].parallel('i'); s['R'].alongside('Q')", "expected parallel loops alone in R to run them side by side"),
    (CHAIN, "s['P'].tensorize('j', 'nothing')", "expected an intrinsic, got 'nothing'"),
    (CHAIN, "s['P'].bind('i', 'block.x')", "expected a GPU as the target to bind i to block.x, got test"),
    (CHAIN, "s['P'].bind('i', 'block.w')",
     "expected an axis of a GPU among block.x, block.y, block.z, thread.x, thread.y, thread.z, warp, got 'block.w'"),
    (MATMUL, "s['C'].split('k', 4); s['C'].rfactor('k_i'); s['C'].rfactor('j')", "expected a loop of a reduction to take apart, got j"),
    ("A: f32[9] = input()\nS: f32 = reduce(lambda a, b: a * b + a + b, (f32(0.0),), (A[k] for k in range(9)), name='law')\nreturn S",
     "s['S'].vectorize('k')", "expected iterations of k that may run in lanes in any order: law[()] meet"),
    ("A: f32[4, 4] = input()\nM[i]: i64[4] = argmax(A[i, k] for k in range(4))\nreturn M",
     "s['M'].split('k', 2); s['M'].reorder('k_i', 'k_o')", "expected k_i outside of k_o to keep what is computed"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("calls", "hint"),
    [
        ("s['A']", "A is an input, which no loops compute; definitions: C"),
        ("s['C'].parallel('k')", "rfactor gives its iterations results of their own"),
    ],
)
def test_refusals_say_what_to_do(calls, hint):
    with pytest.raises(ScheduleError) as refused:
        exec(calls, {"s": schedule(MATMUL)})
    assert refused.value.hint == hint


@pytest.mark.parametrize(("text", "calls", "message"), REFUSED)
def test_illegal_words_are_refused_with_the_reason_and_change_nothing(text, calls, message):
    s = schedule(text)
    *before, last = calls.split("; ")
    for call in before:
        exec(call, {"s": s})
    copy = s.copy()
    with pytest.raises(ScheduleError) as refused:
        exec(last, {"s": s})
    assert refused.value.message.startswith(message)
    assert refused.value.location.file == __file__
    assert s == copy and s.as_python() == copy.as_python()
