"""Chains of contractions and rows: blocks of an axis in the loops of a reader, workspace of an iteration, triangles cut at their border."""

import random

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest import For
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.planners.programs import rows as auto_rows
from tensorexpr.codegen.schedule import Planned
from tensorexpr.codegen.target import Target
from tensorexpr.parse import parse_program
from tensorexpr.records import replace
from tests.codegen.programs import as_built, assert_means, plain, statements

SMALL = Target("test", vector_bits=256, registers=16, cores=2, l1_bytes=4 << 10, l2_bytes=32 << 10, l3_bytes=1 << 20)
PRODUCTS = """
A: f32[11, 5] = input()
B: f32[5, 7] = input()
P[i, k]: f32[11, 7] = sum(A[i, e] * B[e, k] for e in range(5))
C[i, j]: f32[11, 6] = sum(P[i, k] * B[j % 5, k] for k in range(7)) + P[i, 3]
return C
"""


def text(s: Planned) -> str:
    return str(lower(s))


@pytest.mark.parametrize(("factor", "tail", "kept"), [(4, "shift", 4), (11, "peel", 11), (4, "peel", 4), (4, "guard", 4)])
def test_a_block_of_an_axis_is_computed_as_long_as_all_blocks_are_but_a_rest(factor, tail, kept):
    s = plain(PRODUCTS)
    s["C"].split("i", factor, tail)
    s["P"].compute_at("C", "i_o")
    s["P"].split("i", 3, "shift")
    assert f"P_1: local(f32[{kept}, 7])" in text(s)
    assert_means(s)


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("kept", [False, True])
def test_the_last_block_of_an_axis_of_open_length_is_what_is_left(parallel, kept):
    s = plain(
        """
sizes(m, n)
A: f32[m, 5] = input()
B: f32[5, n] = input()
P[i, k]: f32[m, n] = sum(A[i, e] * B[e, k] for e in range(5))
C[i, j]: f32[m, 6] = sum(P[i, k] * B[j % 5, k] for k in range(n))
return {}
""".format("C, P" if kept else "C")
    )
    s["C"].split("i", 4, "peel")
    s["P"].compute_at("C", "i_o")
    s["P"].split("i", 3, "shift")
    s["P"].split("k", 8, "shift")
    if parallel:
        s["C"].parallel("i_o")
    assert kept or f"P_1: workspace(f32[{s.target.cores}, 4, n])" in text(s)
    for m, n in ((0, 3), (1, 1), (3, 0), (4, 7), (7, 9), (33, 17), (3, 33)):
        nest = assert_means(s, m=m, n=n)
    assert not prove(nest).refuted


def open_attention(b, n, m, channels=16):
    q, k, v = (te.placeholder((b, 2, rows, channels), name=name) for name, rows in (("q", n), ("k", m), ("v", m)))
    return kernels.scaled_dot_product_attention(q, k, v), [q, k, v]


def test_an_attention_of_open_lengths_keeps_scores_of_a_few_rows_for_a_core():
    made, inputs = open_attention(te.dim("b"), te.dim("n"), te.dim("m"))
    found = te.build(made, inputs)
    found.versions = None
    small, large = (found.workspace_bytes(b=2, n=rows, m=rows) for rows in (512, 4096))
    assert large <= 8 * small, "memory grows with the rows, not with their square"
    for b, n, m in ((0, 3, 4), (1, 0, 3), (1, 1, 1), (3, 7, 33), (1, 33, 7), (2, 300, 17), (2, 16, 300)):
        fixed, own = open_attention(b, n, m)
        given = [np.random.default_rng(7).standard_normal(tuple(int(e) for e in x.shape)).astype(np.float32) for x in own]
        np.testing.assert_allclose(found(*given), te.build(te.schedule(fixed, inputs=own), own)(*given), rtol=1e-4, atol=1e-5)


def open_block(b, n):
    x, w = te.placeholder((b, n, 16), name="x"), te.placeholder((2, 8, 16), name="w")
    q = te.compute((b, 2, n, 8), lambda b, h, i, d: te.sum(lambda e: x[b, i, e] * w[h, d, e], 16), name="q")
    s = te.compute((b, 2, n, n), lambda b, h, i, j: te.sum(lambda d: q[b, h, i, d] * q[b, h, j, d], 8), name="s")
    m = te.compute((b, 2, n), lambda b, h, i: te.max(lambda j: s[b, h, i, j], n), name="m")
    p = te.compute((b, 2, n, n), lambda b, h, i, j: te.exp(s[b, h, i, j] - m[b, h, i]), name="p")
    o = te.compute((b, n, 2, 8), lambda b, i, h, d: te.sum(lambda j: p[b, h, i, j] * q[b, h, j, d], n), name="o")
    y = te.compute((b, n, 16), lambda b, i, f: te.sum(lambda h, d: o[b, i, h, d] * w[h, d, f], (2, 8)), name="y")
    return y, [x, w]


def test_blocks_are_of_rows_that_leave_one_open_length_not_of_a_batch():
    made, inputs = open_block(te.dim("b"), te.dim("n"))
    found = te.build(made, inputs)
    found.versions = None
    small, large = (found.workspace_bytes(b=2, n=rows) for rows in (512, 4096))
    assert large <= 8.1 * small
    for b, n in ((0, 3), (1, 1), (3, 7), (2, 16), (1, 33), (17, 9)):
        fixed, own = open_block(b, n)
        given = [np.random.default_rng(7).standard_normal(tuple(int(e) for e in x.shape)).astype(np.float32) * 0.3 for x in own]
        np.testing.assert_allclose(found(*given), te.build(te.schedule(fixed, inputs=own), own)(*given), rtol=1e-3, atol=1e-4)


def test_an_axis_that_is_read_at_another_place_as_well_is_computed_whole():
    s = plain(PRODUCTS.replace("P[i, 3]", "P[10 - i, 3]"))
    s["C"].split("i", 4, "shift")
    s["P"].compute_at("C", "i_o")
    assert "P_1: local(f32[11, 7])" in text(s)
    assert_means(s)


def test_what_is_too_large_for_a_stack_stands_in_slots_of_the_workspace():
    s = plain("""
A: f32[66, 90, 100] = input()
P[b, i, k]: f32[66, 90, 100] = A[b, i, k] * 2
C[b, i]: f32[66, 90] = sum(P[b, j, k] for j in range(90) for k in range(100)) + P[b, i, 0]
return C
""")
    s["P"].compute_at("C", "b")
    s["C"].parallel("b")
    found = text(s)
    assert "P_1: workspace(f32[4, 90, 100])" in found
    assert "for slot in parallel(range(0, 4)):" in found
    assert "for b in range(slot * 16 + slot // 2, slot * 16 + (slot + 1) // 2 + 16):" in found


PANELS = """
A: f32[10, 5] = input()
B: f32[5, 23] = input()
C[i, j]: f32[10, 23] = sum(A[i, k] * B[k, j] for k in range(5))
return C
"""


@pytest.mark.parametrize(
    ("group", "loops", "at", "panels"),
    [
        (1, ("j_o", "i_o"), "j_o", 1),
        (2, ("j_o_o", "j_o_i", "i_o"), "j_o_o", 2),
        (4, ("i_o", "j_o_o", "j_o_i"), "j_o_o", 4),
        (4, ("j_o_i", "j_o_o", "i_o"), "j_o_i", 6),
    ],
)
@pytest.mark.parametrize("fuse", [False, True])
def test_of_a_copy_in_blocks_the_panels_that_a_loop_stands_in_are_made_there(group, loops, at, panels, fuse):
    """Also where the last panel, or the last group of them, is not full; blocks that lie apart are no block."""
    s = plain(PANELS)
    s["C"].stage("B", ((1, 4), 0))
    s["C"].split("j", 4, "guard")
    if group > 1:
        s["C"].split("j_o", group, "guard")
    s["C"].split("i", 3, "shift")
    s["C"].reorder(*loops, "k", "i_i", "j_i")
    if fuse and loops[0] != at:
        at = s["C"].fuse(loops[0], at)
    s["B_staged"].compute_at("C", at)
    s["C"].parallel(s["C"].loops[0])
    assert f"B_staged_1: local(f32[{panels}, 5, 4])" in text(s)
    assert_means(s)


def test_panels_whose_blocks_begin_where_the_loops_do_not_are_those_that_a_block_meets():
    s = plain(PANELS)
    s["C"].stage("B", ((1, 4), 0))
    s["C"].split("j", 4, "shift")
    s["C"].reorder("j_o", "i", "k", "j_i")
    s["B_staged"].compute_at("C", "j_o")
    assert "B_staged_1: local(f32[2, 5, 4])" in text(s)
    assert_means(s)


@pytest.mark.parametrize("bound", ["i + 1", "minimum(i + 2, 20)", "maximum(9 - i, 0)"])
@pytest.mark.parametrize("start", ["0", "i // 1", "maximum(i - 3, 0)"])
def test_a_triangle_runs_from_the_least_to_the_greatest_of_its_bounds(start, bound):
    s = plain(f"""
A: f32[24, 30] = input()
B: f32[30, 8] = input()
C[i, j]: f32[24, 8] = sum(A[i, k] * B[k, j] for k in range({start}, {bound}))
return C
""")
    s["C"].split("i", 5, "shift")
    s["C"].reorder("i_o", "k", "i_i", "j")
    s["C"].unroll("i_i")
    s["C"].vectorize("j")
    assert_means(s)


def test_a_triangle_is_tested_at_its_border_alone():
    s = plain("""
A: f32[24, 24] = input()
B: f32[24, 4] = input()
C[i, j]: f32[24, 4] = sum(A[i, k] * B[k, j] for k in range(i + 1))
return C
""")
    s["C"].split("i", 4, "shift")
    s["C"].reorder("i_o", "k", "i_i", "j")
    s["C"].unroll("i_i")
    s["C"].vectorize("j")
    inner = [x for x in statements(assert_means(s).kernels) if isinstance(x, For) and x.index == "k"]
    assert len(inner) == 2 and "if" not in str(inner[0].body)


def attended(q, k, v, causal):
    """Attention in float64."""
    scores = np.einsum("bie,bje->bij", q, k) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.arange(k.shape[1]) <= np.arange(q.shape[1])[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)) @ v


@pytest.mark.parametrize("seed", range(2))
def test_attention_is_computed_in_blocks_of_rows(seed):
    rng = random.Random(seed)
    heads, rows, columns, inner = rng.randint(8, 10), rng.randint(30, 50), rng.randint(50, 60), 16
    causal = bool(seed % 2)
    q, k, v = (te.placeholder((heads, n, inner), name=name) for n, name in ((rows, "q"), (columns, "k"), (columns, "v")))
    out = kernels.scaled_dot_product_attention(q, k, v, is_causal=causal)
    plans = [autoschedule(as_built(out, [q, k, v]), replace(SMALL, cores=cores)) for cores in (1, 3)]
    assert all("compute_at('scaled_dot_product_attention', 'i1_o')" in s.as_python() for s in plans)
    values = [np.random.default_rng(seed).standard_normal(x.shape).astype("f") for x in (q, k, v)]
    first, other = (te.build(s, [q, k, v])(*values)[0] for s in plans)
    np.testing.assert_allclose(first, attended(*(x.astype("d") for x in values), causal), rtol=1e-4, atol=1e-5)
    assert np.array_equal(first, other)


ROWS, COLUMNS, INNER = 83, 130, 9


def _logits(x, w):
    return te.compute((ROWS, COLUMNS), lambda n, v: te.sum(lambda d: x[n, d] * w[v, d], INNER), name="s")


def _maxima(s):
    return te.compute((ROWS,), lambda n: te.max(lambda v: s[n, v], COLUMNS), name="m")


def _log_sum_exp(s, y):
    m = _maxima(s)
    return te.compute((ROWS,), lambda n: te.log(te.sum(lambda v: te.exp(s[n, v] - m[n]), COLUMNS)) + m[n])


def _cross_entropy(s, y):
    m = _maxima(s)
    return te.compute((ROWS,), lambda n: te.log(te.sum(lambda v: te.exp(s[n, v] - m[n]), COLUMNS)) + m[n] - s[n, y[n]])


def _softmax(s, y):
    m = _maxima(s)
    e = te.compute((ROWS, COLUMNS), lambda n, v: te.exp(s[n, v] - m[n]), name="e")
    z = te.compute((ROWS,), lambda n: te.sum(lambda v: e[n, v], COLUMNS), name="z")
    return te.compute((ROWS, COLUMNS), lambda n, v: e[n, v] / z[n])


def _normalized(s, y):
    m = te.compute((ROWS,), lambda n: te.sum(lambda v: s[n, v], COLUMNS) / COLUMNS, name="m")
    q = te.compute((ROWS,), lambda n: te.sum(lambda v: (s[n, v] - m[n]) * (s[n, v] - m[n]), COLUMNS) / COLUMNS, name="q")
    return te.compute((ROWS, COLUMNS), lambda n, v: (s[n, v] - m[n]) / te.sqrt(q[n] + 1e-5))


def _loss(s, y):
    peak = s.max(1, keepdims=True)
    return np.log(np.exp(s - peak).sum(1)) + peak[:, 0]


BEHIND = {
    "greatest": (lambda s, y: _maxima(s), lambda s, y: s.max(1)),
    "log-sum-exp": (_log_sum_exp, _loss),
    "cross-entropy": (_cross_entropy, lambda s, y: _loss(s, y) - s[np.arange(ROWS), y]),
    "softmax": (_softmax, lambda s, y: np.exp(s - _loss(s, y)[:, None])),
    "norm": (_normalized, lambda s, y: (s - s.mean(1, keepdims=True)) / np.sqrt(s.var(1, keepdims=True) + 1e-5)),
}


@pytest.mark.parametrize("kind", BEHIND)
def test_products_that_rows_are_reduced_of_are_made_in_blocks_of_rows(kind):
    """What stands between a product and what becomes of its rows is held for a block of rows alone."""
    made, wanted = BEHIND[kind]
    x, w = te.placeholder((ROWS, INNER), name="x"), te.placeholder((COLUMNS, INNER), name="w")
    y = te.placeholder((ROWS,), dtype="int64", name="y")
    out = made(_logits(x, w), y)
    ins = [x, w, y] if kind == "cross-entropy" else [x, w]
    plans = [autoschedule(as_built(out, ins), replace(SMALL, cores=cores)) for cores in (1, 3)]
    assert not [b.name for b in lower(plans[1]).workspace if {ROWS, COLUMNS} <= {int(e.value) for e in b.shape}]
    rng = np.random.default_rng(7)
    values = [rng.standard_normal(x.shape).astype("f"), rng.standard_normal(w.shape).astype("f"), rng.integers(0, COLUMNS, ROWS)]
    first, other = (te.build(s, ins)(*values[: len(ins)])[0] for s in plans)
    s = values[0].astype("d") @ values[1].astype("d").T
    np.testing.assert_allclose(first, wanted(s, values[2]), rtol=2e-5, atol=2e-5)
    assert np.array_equal(first, other)


def test_what_a_chain_does_not_take_along_leaves_room_for_what_it_does(monkeypatch):
    """`P` is read before `C` is made, so it is no part of the chain to `C`, and what leads to it takes nobody's place there."""
    monkeypatch.setattr(auto_rows, "MOST_MEMBERS", 2)
    s = plain("""
A: f32[11, 7] = input()
B: f32[7, 7] = input()
X[i, k]: f32[11, 7] = sum(A[i, e] * B[e, k] for e in range(7))
Q[i, k]: f32[11, 7] = A[i, k] * 2
P[i, k]: f32[11, 7] = Q[i, k] + 1
O[i, k]: f32[11, 7] = P[i, k] * 3
C[i, j]: f32[11, 6] = sum((X[i, k] + P[i, k]) * B[j, k] for k in range(7))
return O, C
""")
    assert auto_rows.kept_near(s) == set()
    (chain,) = auto_rows._chains(s, s.state.program.definitions[-1])
    assert chain.members == ("X",)
    assert_means(autoschedule(s.program))


def test_a_vector_times_a_matrix_keeps_its_lanes_where_its_reader_takes_each_element_once():
    """That sums are read one by one is no reason to take them so, down the columns of a matrix."""
    s = autoschedule(
        parse_program("""
v: f32[64] = input()
w: f32[64, 96] = input()
z[j]: f32[96] = sum(v[k] * w[k, j] for k in range(64))
y[j]: f32[96] = where(z[j] <= 1.0, 0.0, z[j] * z[j] + z[j])
return z, y
"""),
        SMALL,
    )
    assert s.state.stage("z").place is None
    assert s["z"].loops[-1].startswith("j") and s.state.stage("z").kind(s["z"].loops[-1]) == "vectorize"
    assert_means(s)
