"""Strips of rows: gradients over pairs of open rows and columns keep a strip of them for a core; law against plain schedules of known
sizes, between protected pages."""

import numpy as np
import pytest

import tensorexpr as te
from tests.runtime.pages import GuardedArray, guarded_copy

SIZES = ((0, 3, 4), (1, 0, 3), (1, 1, 1), (2, 7, 33), (1, 33, 7), (1, 64, 16), (2, 65, 17), (1, 300, 129), (5, 5, 300))
BLOCK = ((0, 3, 3), (1, 0, 0), (1, 1, 1), (2, 7, 7), (3, 33, 33), (1, 65, 65), (1, 300, 300))


def attention(b, n, m, score=lambda s, h, i, j: s, dtype="float32", shared=False):
    q = te.placeholder((b, 2, n, 16), dtype, name="q")
    k, v = (q, q) if shared else (te.placeholder((b, 2, m, 16), dtype, name=name) for name in "kv")

    def scores(c, h, i, j):
        return score(te.sum(lambda d: q[c, h, i, d] * k[c, h, j, d], 16) * 0.25, h, i, j)

    s = te.compute((b, 2, n, m), scores, name="s")
    top = te.compute((b, 2, n), lambda c, h, i: te.max(lambda j: s[c, h, i, j], m), name="top")
    p = te.compute((b, 2, n, m), lambda c, h, i, j: te.exp(s[c, h, i, j] - top[c, h, i]), name="p")
    z = te.compute((b, 2, n), lambda c, h, i: te.sum(lambda j: p[c, h, i, j], m), name="z")
    o = te.compute((b, 2, n, 16), lambda c, h, i, d: te.sum(lambda j: p[c, h, i, j] * v[c, h, j, d], m) / z[c, h, i], name="o")
    inputs = [q] if shared else [q, k, v]
    return o, inputs


def of_attention(b, n, m, **given):
    o, inputs = attention(b, n, m, **given)
    head = te.placeholder(o.shape, o.dtype, name="head")
    return list(te.gradient(o, inputs, head)), [*inputs, head]


def biased(b, n, m):
    """With a bias for each head, and one that depends on the numbers of row and column."""
    bias = te.placeholder((2, n, m), name="bias")
    o, inputs = attention(b, n, m, lambda s, h, i, j: s + bias[h, i, j] - 0.01 * te.abs(te.cast(i - j, "float32")))
    head = te.placeholder(o.shape, name="head")
    return list(te.gradient(o, inputs, head)), [*inputs, bias, head]


def gaussians(b, n, m):
    """Sums of a kernel of points, with gradients by both sets of points and by weights."""
    x, y, w = te.placeholder((b, n, 16), name="x"), te.placeholder((b, m, 16), name="y"), te.placeholder((b, m), name="w")
    d = te.compute((b, n, m), lambda c, i, j: te.sum(lambda e: x[c, i, e] * y[c, j, e], 16), name="d")
    k = te.compute((b, n, m), lambda c, i, j: te.exp(te.tanh(d[c, i, j])) * 0.1, name="k")
    z = te.compute((b, n), lambda c, i: te.sum(lambda j: k[c, i, j] * w[c, j], m), name="z")
    head = te.placeholder(z.shape, name="head")
    return list(te.gradient(z, [x, y, w], head)), [x, y, w, head]


def block(b, n, m):
    """An attention between projections of one tensor, with its result and gradients."""
    x, w = te.placeholder((b, n, 16), name="x"), te.placeholder((4, 2, 8, 16), name="w")

    def projected(number, name):
        return te.compute((b, 2, n, 8), lambda c, h, i, d: te.sum(lambda e: x[c, i, e] * w[number, h, d, e], 16), name=name)

    q, k, v = projected(0, "q"), projected(1, "k"), projected(2, "v")
    s = te.compute((b, 2, n, n), lambda c, h, i, j: te.sum(lambda d: q[c, h, i, d] * k[c, h, j, d], 8), name="s")
    top = te.compute((b, 2, n), lambda c, h, i: te.max(lambda j: s[c, h, i, j], n), name="top")
    p = te.compute((b, 2, n, n), lambda c, h, i, j: te.exp(s[c, h, i, j] - top[c, h, i]), name="p")
    z = te.compute((b, 2, n), lambda c, h, i: te.sum(lambda j: p[c, h, i, j], n), name="z")
    o = te.compute((b, n, 2, 8), lambda c, i, h, d: te.sum(lambda j: p[c, h, i, j] * v[c, h, j, d], n) / z[c, h, i], name="o")
    y = te.compute((b, n, 16), lambda c, i, f: x[c, i, f] + te.sum(lambda h, d: o[c, i, h, d] * w[3, h, d, f], (2, 8)), name="y")
    head = te.placeholder(y.shape, name="head")
    return [y, *te.gradient(y, [x, w], head)], [x, w, head]


def built(make, *sizes):
    """What is made by default, without code for some sizes, and by the plain schedule."""
    results, inputs = make(*sizes)
    found = te.build(results, inputs)
    found.versions = None
    return found, te.build(te.schedule(results, inputs=inputs), inputs)


def agrees(found, plain, make, sizes):
    _, inputs = make(*sizes)
    given = [np.random.default_rng(7).standard_normal(tuple(int(e) for e in x.shape)).astype(np.float32) * 0.3 for x in inputs]
    at_end = bool(sum(sizes) % 2)
    wanted = plain(*given)
    outs = [GuardedArray(w.shape, w.dtype, at_end).array for w in wanted]
    for out in outs:
        out[...] = np.nan
    found(*(guarded_copy(g, at_end) for g in given), out=tuple(outs))
    for got, want in zip(outs, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-4 * (1 + np.abs(want).max(initial=0)), err_msg=str(sizes))


@pytest.mark.parametrize("make", [biased, gaussians])
def test_gradients_over_pairs_of_open_rows_keep_a_strip_of_them(make):
    found, plain = built(make, te.dim("b"), te.dim("n"), te.dim("m"))
    assert "strip" in found.source("nest")
    small, large = (found.workspace_bytes(b=2, n=rows, m=rows) for rows in (512, 4096))
    assert large <= 8 * small, "memory grows with the rows, not with their square"
    for sizes in SIZES:
        agrees(found, plain, make, sizes)


def causal(b, n, m):
    return of_attention(b, n, m, score=lambda s, h, i, j: te.where(j <= i, s, -1e9))


@pytest.mark.parametrize("make", [block, causal])
def test_rows_and_columns_may_be_the_same(make):
    n = te.dim("n")
    found, plain = built(make, te.dim("b"), n, n)
    assert "strip" in found.source("nest")
    for sizes in BLOCK:
        agrees(found, plain, make, sizes)


def shared(b, n, m):
    return of_attention(b, n, n, shared=True)


def normed(b, n, m):
    """Weights that are normed over rows, and summed up over columns as well."""
    q, k = te.placeholder((b, n, 16), name="q"), te.placeholder((b, m, 16), name="k")
    s = te.compute((b, n, m), lambda c, i, j: te.sum(lambda d: q[c, i, d] * k[c, j, d], 16), name="s")
    t = te.compute((b, m), lambda c, j: te.sum(lambda i: te.exp(s[c, i, j]), n), name="t")
    p = te.compute((b, n, m), lambda c, i, j: te.exp(s[c, i, j]) / t[c, j], name="p")
    o = te.compute((b, m, 16), lambda c, j, d: te.sum(lambda i: p[c, i, j] * q[c, i, d], n), name="o")
    r = te.compute((b, n), lambda c, i: te.sum(lambda j: p[c, i, j], m), name="r")
    return [o, r], [q, k]


@pytest.mark.parametrize("make", [shared, normed])
def test_what_needs_other_rows_is_stored_as_it_was(make):
    found, plain = built(make, te.dim("b"), te.dim("n"), te.dim("m"))
    for sizes in ((1, 1, 1), (2, 33, 7), (1, 130, 65)):
        agrees(found, plain, make, sizes)


def test_sums_that_are_carried_in_wider_numbers_are_not_taken_apart():
    made, inputs = of_attention(te.dim("b"), te.dim("n"), te.dim("m"), dtype="float16")
    assert "strip" not in te.build(made, inputs).source("nest")
