"""An index that depends on data is checked against the tensor that it was written for, whatever is inlined."""

import itertools

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.simplify import cheap_names, inline_definitions

X, Y = te.placeholder((9,), "float64", name="X"), te.placeholder((5,), "float64", name="Y")
K = te.placeholder((3,), "int64", name="K")


def chain(value):
    first = te.compute((5,), value, name="first")
    return lambda i: first[i] + 1.0


VALUES = {
    "of a longer one": lambda i: X[i] * 2.0,
    "of one as long": lambda i: Y[i] * 2.0,
    "shifted": lambda i: X[i + 2],
    "turned around": lambda i: Y[4 - i],
    "a number": lambda i: te.cast(3.0, "float64"),
    "its index": lambda i: te.cast(i, "float64"),
    "by cases": lambda i: te.where(i > 0, Y[i - 1], 7.0),
    "in one case": lambda i: te.where(i > 2, Y[i], 7.0),
    "in the condition": lambda i: te.where(Y[i] > 0.5, 1.0, X[i]),
    "of what is by cases": chain(lambda i: te.where(i > 0, X[i], 7.0)),
    "of what is a copy": chain(lambda i: Y[i]),
}
READS = {
    "bare": lambda t, j: t[K[j]],
    "scaled": lambda t, j: t[K[j] * 2 - 1],
    "clipped": lambda t, j: t[te.clip(K[j], 0, t.shape[0] - 1)],
    "guarded": lambda t, j: te.where((K[j] >= 0) & (K[j] < t.shape[0]), t[K[j]], -1.0),
    "half guarded": lambda t, j: te.where(K[j] >= 0, t[K[j]], -1.0),
    "summed": lambda t, j: te.sum(lambda k: t[K[k]] * (k + 1.0), j + 1),
    "beyond": lambda t, j: t.read(K[j] - 1, outside="wrap"),
}


def outcome(run, *arrays):
    try:
        return np.asarray(run(*arrays)).tolist()
    except te.OutOfBoundsError:
        return "out of bounds"


@pytest.mark.parametrize("value", VALUES)
def test_reads_that_leave_a_definition_are_refused_as_they_run(value):
    t = te.compute((5,), VALUES[value], name="t")
    one = te.compute((1,), lambda i: VALUES[value](i), name="one")
    x, y = np.arange(9.0), np.linspace(0, 1, 5)
    for read, tensor in itertools.product(READS.values(), (t, one)):
        result = te.compute((3,), lambda j, read=read, tensor=tensor: read(tensor, j), name="y")
        built = te.build(result, [X, Y, K])
        for k in ([0, 0, 0], [1, 2, 4], [4, 5, 0], [0, -1, 1], [7, 0, 3], [-9, 0, 12]):
            want = outcome(lambda *a, result=result: te.evaluate(result, dict(zip((X, Y, K), a, strict=True))), x, y, np.array(k))
            assert outcome(built, x, y, np.array(k)) == want


def test_what_is_checked_all_the_same_is_inlined():
    for value, read in (("of one as long", "bare"), ("of what is a copy", "bare"), ("by cases", "clipped"), ("a number", "guarded")):
        t = te.compute((5,), VALUES[value], name="t")
        result = te.compute((3,), lambda j, read=read, t=t: READS[read](t, j), name="y")
        assert "t" in cheap_names(te.schedule(result).program)


def test_schedules_inline_what_a_check_depends_on_behind_the_check():
    t = te.compute((5,), VALUES["by cases"], name="t")
    y = te.compute((3,), lambda j: t[K[j]], name="y")
    s = te.schedule(y, inputs=[X, Y, K])
    s["t"].inline()
    assert s.stages == ("y",)
    run, floats = te.build(s), (np.arange(9.0), np.arange(5.0) + 20)
    for index in ([4, 0, 2], [1, 1, 3]):
        k = np.array(index)
        assert np.array_equal(run(*floats, k), te.evaluate(y, {X: floats[0], Y: floats[1], K: k}))
    with pytest.raises(te.OutOfBoundsError):
        run(*floats, np.array([0, 5, 1]))


@pytest.mark.parametrize("open_size", [False, True])
@pytest.mark.parametrize("value", ["windows", "pairs", "distances"])
def test_the_default_schedule_stores_what_a_check_depends_on(value, open_size):
    """Definitions far larger than what they read would be computed again where they are read."""
    n = te.dim("n") if open_size else 150
    x, z, k = (
        te.placeholder((n,), "float64", name="x"),
        te.placeholder((n, 3), "float64", name="z"),
        te.placeholder((n,), "int64", name="k"),
    )
    body = {
        "windows": lambda i, j: x[i],
        "pairs": lambda i, j: te.exp(x[i] - 1.0),
        "distances": lambda i, j: te.exp(-te.sum(lambda d: (z[i, d] - 1.0) ** 2, 3)),
    }[value]
    t = te.compute((n, n), body, name="t")
    rows = te.compute((n,), lambda i: t[i, k[i]], name="rows")
    sums = te.compute((n,), lambda i: te.sum(lambda j: t[i, k[j]] * x[j], n), name="sums")
    rng = np.random.default_rng(0)
    given = rng.standard_normal(150), rng.standard_normal((150, 3))
    function = te.build([rows, sums], [x, z, k])
    for index in (149, 150, -1):  # both outputs read at the same places, and one is enough to say what is out of bounds
        at = np.append(rng.integers(0, 150, 149), index)
        want = outcome(lambda *a: te.evaluate(rows, dict(zip((x, z, k), a, strict=True))), *given, at)
        found = outcome(lambda *a: function(*a)[0], *given, at)
        assert (found == want) if isinstance(want, str) else np.allclose(found, want, rtol=1e-12)


@pytest.mark.parametrize("value", ["shifted", "a number", "in one case"])
def test_inlining_that_would_lose_a_check_is_refused(value):
    t = te.compute((5,), VALUES[value], name="t")
    y = te.compute((3,), lambda j: t[K[j]], name="y")
    expected = "expected reads of t that need no check of their own, got one at a place that depends on data"
    with pytest.raises(te.DefinitionError, match=expected) as caught:
        inline_definitions(te.schedule(y).program, ["t"])
    assert "te.clip bounds an index" in str(caught.value)
