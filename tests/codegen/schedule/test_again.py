"""Attention of any layout in blocks of rows, forward and gradient: what is as large as rows times columns is stored nowhere. `clone`."""

import random

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.planners.programs import again as auto_again
from tensorexpr.codegen.planners.programs import rows as auto_rows
from tensorexpr.codegen.planners.tiles import contraction as auto_contraction
from tensorexpr.codegen.target import Target
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tests.codegen.programs import as_built, assert_means, plain, planned
from tests.codegen.schedule.test_laws import assert_same_meaning
from tests.seeds import is_campaign, share_of

SMALL = Target("test", vector_bits=256, registers=16, cores=2, l1_bytes=4 << 10, l2_bytes=32 << 10, l3_bytes=1 << 20)
BATCH, HEADS, ROWS, COLUMNS, INNER, CHANNELS = 2, 4, 101, 97, 8, 9
FIRST = {"bhtc": (0, 1, 2, 3), "bthc": (0, 2, 1, 3), "htbc": (2, 0, 1, 3)}  # where batch, head, row and channel stand


def laid_out(name, order, *extents):
    shape = [0] * 4
    for place, extent in zip(order, extents, strict=True):
        shape[place] = extent
    return te.placeholder(tuple(shape), name=name)


def placed(order, *indices):
    found = [None] * 4
    for place, index in zip(order, indices, strict=True):
        found[place] = index
    return tuple(found)


def attention(order, shared=1, counts=None, added=None, rows=ROWS):
    """Attention in index notation, its inputs in some layout; `shared` query heads have one head of keys. Gives the log-sum-exp, too."""
    q = laid_out("q", order, BATCH, HEADS, rows, INNER)
    k = laid_out("k", order, BATCH, HEADS // shared, COLUMNS, INNER)
    v = laid_out("v", order, BATCH, HEADS // shared, COLUMNS, CHANNELS)

    def at(b, h, i, c):
        return placed(order, b, h, i, c)

    def score(b, h, i, j):
        found = te.sum(lambda e: q[at(b, h, i, e)] * k[at(b, h // shared, j, e)], INNER) * 0.25
        found = found if added is None else found + added(b, h, i, j)
        return found if counts is None else te.where(counts(b, h, i, j), found, -np.inf)

    s = te.compute((BATCH, HEADS, rows, COLUMNS), score, name="s")
    m = te.compute((BATCH, HEADS, rows), lambda *x: te.max(lambda j: s[(*x, j)], COLUMNS), name="m")
    top = te.stop_gradient(te.compute((BATCH, HEADS, rows), lambda *x: te.where(m[x] == -np.inf, 0.0, m[x]), name="top"))
    p = te.compute(s.shape, lambda *x: te.exp(s[x] - top[x[:-1]]), name="p")
    n = te.compute((BATCH, HEADS, rows), lambda *x: te.sum(lambda j: p[(*x, j)], COLUMNS), name="n")
    out = laid_out("o", order, BATCH, HEADS, rows, CHANNELS).shape

    def mean(*x):
        b, h, i, c = (x[place] for place in order)
        found = te.sum(lambda j: p[b, h, i, j] * v[at(b, h // shared, j, c)], COLUMNS)
        return te.where(n[b, h, i] > 0, found / n[b, h, i], 0.0)

    return te.compute(out, mean, name="o"), te.compute(n.shape, lambda *x: top[x] + te.log(n[x]), name="lse"), [q, k, v]


def reference(order, arrays, head, shared, counts, added):
    """Attention and its gradients in float64; rows of which nothing counts are 0."""
    q, k, v, head = (x.astype("d").transpose(order) for x in (*arrays, head))
    k, v = (np.repeat(x, shared, axis=1) for x in (k, v))
    s = np.einsum("bhie,bhje->bhij", q, k) * 0.25 + added
    s = np.where(counts, s, -np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        lse = np.log(np.exp(s).sum(-1))
        p = np.nan_to_num(np.exp(s - lse[..., None]), nan=0.0)
    o = p @ v
    ds = p * (head @ v.swapaxes(-1, -2) - (head * o).sum(-1, keepdims=True)) * 0.25
    found = [ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ head]
    found[1:] = [x.reshape(BATCH, HEADS // shared, shared, *x.shape[2:]).sum(2) for x in found[1:]]
    back = np.argsort(order)
    return o.transpose(back), lse, [x.transpose(back) for x in found]


def stored(s):
    """The buffers of the workspace that hold all rows and all columns."""
    return [b.name for b in lower(s).workspace if {ROWS, COLUMNS} <= {int(e.value) for e in b.shape}]


def as_inputs(s, arrays):
    """The arrays in the shapes that the inputs of a program have as built: axes that follow each other may be one."""
    shapes = ([int(e.value) for e in given.type.shape] for given in s.state.program.inputs)
    return [array.reshape(shape) for array, shape in zip(arrays, shapes, strict=True)]


KINDS = ("lengths", "causal", "shared heads", "mask", "one head of keys", "plain")
EVERY = [("bthc", "lengths"), ("htbc", "causal"), ("bhtc", "shared heads")]
CASES = [(order, kind) for kind in KINDS for order in FIRST] if is_campaign() else EVERY


@pytest.mark.parametrize(("order", "kind"), CASES)
def test_attention_of_any_layout_stores_nothing_of_rows_times_columns(order, kind):
    order, shared = FIRST[order], {"shared heads": 2, "one head of keys": 4}.get(kind, 1)
    rng = np.random.default_rng(3)
    lengths = te.placeholder((BATCH,), "int64", name="lengths")
    mask = te.placeholder((ROWS, COLUMNS), name="mask")
    counts = {"causal": lambda b, h, i, j: j <= i, "lengths": lambda b, h, i, j: j < lengths[b]}.get(kind)
    added = {"mask": lambda b, h, i, j: mask[i, j]}.get(kind)
    o, lse, wrt = attention(order, shared, counts, added)
    head = te.placeholder(o.shape, name="head")
    more = {"lengths": [lengths], "mask": [mask]}.get(kind, [])
    given = {"lengths": [np.array([COLUMNS // 2, 0])], "mask": [rng.standard_normal((ROWS, COLUMNS)).astype("f")]}.get(kind, [])
    arrays = [rng.standard_normal(x.shape).astype("f") for x in (*wrt, head)]
    b, _, i, j = np.ogrid[:BATCH, :HEADS, :ROWS, :COLUMNS]
    holds = {"causal": j <= i, "lengths": j < np.array([COLUMNS // 2, 0])[b]}.get(kind, np.array(True))
    want_o, want_lse, want = reference(order, arrays[:3], arrays[3], shared, holds, given[0] if kind == "mask" else 0.0)

    forward = autoschedule(as_built([o, lse], [*wrt, *more]), SMALL)
    assert not stored(forward)
    got_o, got_lse = te.build(forward, [*wrt, *more])(*as_inputs(forward, [*arrays[:3], *given]))
    np.testing.assert_allclose(got_o.reshape(want_o.shape), want_o, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got_lse.reshape(want_lse.shape), want_lse, rtol=1e-5, atol=1e-5)

    gradient = autoschedule(as_built(list(te.gradient(o, wrt, head=head)), [*wrt, head, *more]), SMALL)
    assert not stored(gradient) and "clone(" in gradient.as_python()
    for got, expected in zip(te.build(gradient, [*wrt, head, *more])(*as_inputs(gradient, [*arrays, *given])), want, strict=True):
        np.testing.assert_allclose(got.reshape(expected.shape), expected, rtol=2e-4, atol=2e-5)  # as built, heads are groups


SEEN = {  # which columns a row sees
    "all": lambda i, j: None,
    "causal": lambda i, j: j <= i,
    "a window": lambda i, j: abs(i - j) <= 37,
    "a causal window and the first": lambda i, j: (j <= i) & ((j > i - 70) | (j < 4)),
}


@pytest.mark.parametrize(("heads", "kind"), [*((2, kind) for kind in SEEN), (1, "all"), (1, "causal")])
def test_many_rows_are_not_stored_either_where_what_is_made_of_them_is_large_too(heads, kind):
    """Adjoints of means are larger than the second cache, and heads that are too few for the cores run in one loop with blocks of rows.
    Sums over a band that moves with the rows have no panels, and run in blocks all the same."""
    rows, inner = 641 if kind == "a window" else 640, 32
    q, k, v, head = (te.placeholder((heads, rows, inner), name=n) for n in ("q", "k", "v", "head"))

    def score(h, i, j):
        found = te.sum(lambda e: q[h, i, e] * k[h, j, e], inner) * 0.25
        return found if kind == "all" else te.where(SEEN[kind](i, j), found, -1e30)

    s = te.compute((heads, rows, rows), score, name="s")
    m = te.compute((heads, rows), lambda h, i: te.max(lambda j: s[h, i, j], rows), name="m")
    p = te.compute(s.shape, lambda h, i, j: te.exp(s[h, i, j] - m[h, i]), name="p")
    n = te.compute(m.shape, lambda h, i: te.sum(lambda j: p[h, i, j], rows), name="n")
    o = te.compute(q.shape, lambda h, i, c: te.sum(lambda j: p[h, i, j] * v[h, j, c], rows) / n[h, i], name="o")
    schedule = autoschedule(as_built(list(te.gradient(o, [q, k, v], head=head)), [q, k, v, head]), SMALL)
    assert not [b.name for b in lower(schedule).workspace if [int(e.value) for e in b.shape].count(rows) > 1]
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(q.shape).astype("f") for _ in range(4)]
    scores = np.einsum("hie,hje->hij", *(a.astype("d") for a in arrays[:2])) * 0.25
    scores = scores if kind == "all" else np.where(SEEN[kind](*np.ogrid[:rows, :rows]), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    up = arrays[3] @ arrays[2].astype("d").swapaxes(-1, -2)
    down = weights * (up - (weights * up).sum(-1, keepdims=True)) * 0.25
    want = down @ arrays[1], down.swapaxes(-1, -2) @ arrays[0], weights.swapaxes(-1, -2) @ arrays[3]
    given = arrays if heads > 1 else [a[0] for a in arrays]  # as built, a head alone has no axis
    for got, expected in zip(te.build(schedule, [q, k, v, head])(*given), want, strict=True):
        np.testing.assert_allclose(got.reshape(expected.shape), expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("heads", [1, 8, 12])
@pytest.mark.parametrize("rows", [2048, 4099])
def test_long_rows_of_any_number_of_heads_are_not_stored(heads, rows):
    """What lies between for one head is more than the last cache has room for, however little is made of it for each head."""
    q, k, v, head = (te.placeholder((1, heads, rows, 64), name=n) for n in ("q", "k", "v", "head"))
    o = kernels.scaled_dot_product_attention(q, k, v, is_causal=rows > 4096)
    schedule = autoschedule(as_built(list(te.gradient(o, [q, k, v], head=head)), [q, k, v, head]), SMALL)
    assert not [b.name for b in lower(schedule).workspace if [int(e.value) for e in b.shape].count(rows) > 1]


PAIRS = """
X: f32[70, 9] = input()
Y: f32[90, 9] = input()
s[i, j]: f32[70, 90] = sum(X[i, e] * Y[j, e] for e in range(9))
p[i, j]: f32[70, 90] = exp(s[i, j])
rows[i]: f32[70] = sum(p[i, j] for j in range(90))
columns[j]: f32[90] = sum(p[i, j] for i in range(70))
return rows, columns
"""


def test_a_clone_reads_clones_and_runs_behind_what_does_not_read_it():
    s = plain(PAIRS)
    assert s["rows"].clone("p", "s") == ("s_again", "p_again")
    assert s.stages == ("s", "p", "columns", "s_again", "p_again", "rows")
    s["p_again"].compute_at("rows", "i")
    assert "p_again_1: local(f32[90])" in str(s)
    assert_means(s)


def test_what_cannot_be_cloned_is_refused():
    s = plain(PAIRS)
    with pytest.raises(te.ScheduleError, match="expected a definition that rows or another clone reads, got s, which they do not"):
        s["rows"].clone("s")
    with pytest.raises(te.ScheduleError, match="expected a definition that others read, too, to clone it for p, got s"):
        s["p"].clone("s")
    s["p"].split("i", 4)
    with pytest.raises(te.ScheduleError, match="expected plain loops of p to clone it, got changed ones"):
        s["rows"].clone("p")
    x, zero = te.placeholder((4,), name="x"), te.compute((), lambda: te.cast(0.0, "float32"), name="zero")
    steps = te.scan(lambda t, state: te.compute((), lambda: state[()] + x[t], name="step"), zero, 4, name="steps")
    s = planned(te.compute((4,), lambda i: steps[i] * 2.0, name="y"))
    with pytest.raises(te.ScheduleError, match="expected plain definitions outside of scans to clone for y, got step"):
        s["y"].clone("step")


def test_rows_of_blocks_that_overlap_are_kept_where_blocks_run_in_turn():
    s = plain("""
A: f32[11, 5] = input()
P[i, k]: f32[11, 5] = A[i, k] * 2
C[i]: f32[11] = sum(P[i, k] for k in range(5))
D[i]: f32[11] = P[i, 0] + C[i]
return C, D
""")
    s["C"].split("i", 4, "shift")
    s["P"].compute_at("C", "i_o")
    with pytest.raises(te.ScheduleError, match="expected iterations that make each element of P once"):
        s["C"].parallel("i_o")
    assert_means(s)


def test_terms_of_few_features_are_computed_again_where_no_tile_pays():
    x, y = te.placeholder((200, 3), name="x"), te.placeholder((210, 3), name="y")
    w = te.placeholder((210, 3), name="w")
    p = te.compute((200, 210), lambda i, j: te.exp(-te.sum(lambda e: (x[i, e] - y[j, e]) ** 2, 3)), name="p")
    out = te.compute((200, 3), lambda i, c: te.sum(lambda j: p[i, j] * w[j, c], 210), name="out")
    assert "recompute('p')" in autoschedule(as_built(out, [x, y, w]), SMALL).as_python()


def composed(rng):
    """Reductions over pairs composed as in attentions and their gradients, axes in any order, some under a condition, as a program."""
    heads, rows, columns, inner = rng.randint(1, 3), rng.randint(1, 13), rng.randint(1, 13), rng.randint(1, 13)
    extents = {"h": heads, "i": rows, "j": columns, "e": inner, "c": 3}

    def named(name, *axes):
        axes = rng.sample(axes, len(axes))
        return f"{name}[{', '.join(axes)}]", f"f32[{', '.join(str(extents[a]) for a in axes)}]"

    (q, q_type), (k, k_type), (v, v_type), (w, w_type) = (
        named(n, "h", *a) for n, a in (("q", "ie"), ("k", "je"), ("v", "jc"), ("w", "ic"))
    )
    (s, s_type), (m, m_type), (p, p_type), (n, n_type) = (named(x, "h", *a) for x, a in (("s", "ij"), ("m", "i"), ("p", "ij"), ("n", "i")))
    (o, o_type), (g, g_type), (dv, dv_type) = (named(x, "h", *a) for x, a in (("o", "ic"), ("g", "ij"), ("dv", "jc")))
    (dk, dk_type), (dq, dq_type) = (named(x, "h", *a) for x, a in (("dk", "je"), ("dq", "ie")))
    score = f"sum({q} * {k} for e in range({inner})) * 0.3"
    condition = rng.choice(["", "i >= j", "j < t[h]", "z[i, j]"])
    score = f"where({condition}, {score}, {rng.choice(['-inf', '-3.0'])})" if condition else score
    outputs = ["o", *rng.sample(["n", "dv", "dk", "dq"], rng.randint(0, 4))]
    rng.shuffle(outputs)
    return parse_program(f"""
q: {q_type} = input()
k: {k_type} = input()
v: {v_type} = input()
w: {w_type} = input()
t: i64[{heads}] = input()
z: bool[{rows}, {columns}] = input()
{s}: {s_type} = {score}
{m}: {m_type} = max({s} for j in range({columns}))
{p}: {p_type} = exp({s} - where({m} == -inf, 0.0, {m}))
{n}: {n_type} = sum({p} for j in range({columns}))
{o}: {o_type} = where({n} > 0.0, sum({p} * {v} for j in range({columns})) / {n}, 0.0)
{dv}: {dv_type} = sum({p} * {w} for i in range({rows}))
{g}: {g_type} = {p} * (sum({w} * {v} for c in range(3)) - {n})
{dk}: {dk_type} = sum({g} * {q} for i in range({rows}))
{dq}: {dq_type} = sum({g} * {k} for j in range({columns}))
return {", ".join(outputs)}
""")


def test_random_compositions_in_blocks_mean_what_they_say(monkeypatch):
    monkeypatch.setattr(auto_contraction, "LEAST_WORK", 1)
    monkeypatch.setattr(auto_rows, "LEAST_ROWS", 2)
    monkeypatch.setattr(auto_again, "FAR_LARGER", 1)
    for module, name in ((auto_rows, "MOST_WORK"), (auto_rows, "AGAIN"), (auto_again, "MOST_AGAIN")):
        monkeypatch.setattr(module, name, 1 << 30)
    tiny = Target("test", vector_bits=128, registers=16, cores=2, l1_bytes=256, l2_bytes=100, l3_bytes=1 << 20)
    for seed in share_of(range(18)):
        assert_same_meaning(autoschedule(simplify(composed(random.Random(seed))), tiny), seed)
