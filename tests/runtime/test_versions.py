"""Functions of open sizes at sizes with versions: values are those of fixed sizes, in any way of calling; and where there are none."""

import pickle
import threading

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.compiled import versions
from tensorexpr.codegen.compiled.function import MOST_LINKED
from tensorexpr.codegen.compiled.versions import MOST, WORTH
from tensorexpr.codegen.llvm.process import call

RNG = np.random.default_rng(5)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def placed(name, *shape):
    return te.placeholder(shape, "float64", name=name)


def turned(n, m):
    x = placed("x", n, m)
    return [te.compute((m, n), lambda j, i: x[i, j] * 2, name="turned")], [x]


def rolled(n, m):
    x = placed("x", n, m)
    return [te.compute((n, m), lambda i, j: x[(i + n - 1) % n, (j + 2) % m], name="rolled")], [x]


def normalised(n, m):
    x = placed("x", n, m)
    return [te.compute((n, m), lambda i, j: te.exp(x[i, j]) / te.sum(lambda k: te.exp(x[i, k]), m), name="normalised")], [x]


def heated(n, m):
    x = placed("x", n, m)

    def at(i, j):
        return x[te.maximum(te.minimum(i, n - 1), 0), te.maximum(te.minimum(j, m - 1), 0)]

    return [te.compute((n, m), lambda i, j: at(i - 1, j) + at(i + 1, j) + at(i, j - 1) + at(i, j + 1) - 4 * x[i, j], name="heated")], [x]


def blurred_gradient(n, m):
    x, w = placed("x", n, m), placed("w", 3)
    blur = te.compute((n, m - 2), lambda i, j: te.sum(lambda r: x[i, j + r] * w[r], 3), name="blur")
    head = placed("head", n, m - 2)
    return [*te.gradient(blur, [x, w], head)], [x, w, head]


MADE = (turned, rolled, normalised, heated, blurred_gradient)


def at_extents(make, n, m):
    """Arrays for a program at these sizes."""
    return [RNG.standard_normal(t.shape) for t in make(n, m)[1]]


@pytest.mark.parametrize("make", MADE)
def test_values_are_those_of_fixed_sizes(make):
    function = te.build(*make(te.dim("n"), te.dim("m")))
    for n, m in ((257, 263), (3, 30011), (30011, 3)):
        arrays = at_extents(make, n, m)
        results = function(*arrays)
        assert function.at(n=n, m=m) is not function
        for found, wanted in zip(results, te.build(*make(n, m))(*arrays), strict=True):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("make", MADE)
def test_small_sizes_have_the_code_for_all(make, monkeypatch):
    function, other = (te.build(*make(te.dim("n"), te.dim("m"))) for _ in range(2))
    for n, m in ((0, 5), (1, 3), (40, 33)):
        arrays = at_extents(make, n, m)
        results = function(*arrays)
        assert function.at(n=n, m=m) is function
        with monkeypatch.context() as all_sizes:
            all_sizes.setattr(versions, "WORTH", 0)
            for found, wanted in zip(other(*arrays), results, strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)
        assert other.at(n=n, m=m) is not other


def test_the_first_sizes_have_versions_and_calls_stay_as_they_were():
    function = te.build(*normalised(te.dim("n"), te.dim("m")))
    given = [RNG.standard_normal((300 + k, 301)) for k in range(MOST + 2)]
    first = [function(x)[0] for x in given]
    assert [function.at(n=300 + k, m=301) is not function for k in range(MOST + 2)] == [True] * MOST + [False] * 2
    for x, before in zip(given, first, strict=True):
        np.testing.assert_array_equal(function(x)[0], before)
        np.testing.assert_allclose(before.sum(1), 1, rtol=1e-9)


def test_a_long_program_has_one_version():
    n = te.dim("n")
    x = te.placeholder((n,), name="x")
    tensors = [x]
    for k in range(70):
        before = tensors[-1]
        tensors.append(te.compute((n,), lambda i, b=before: te.tanh(b[i]) + 1, name=f"t{k}"))
    function = te.build(tensors[-1], [x])
    function(floats(40_000)), function(floats(40_001))
    assert function.at(n=40_000) is not function and function.at(n=40_001) is function


def test_the_number_of_versions_may_be_set(monkeypatch):
    monkeypatch.setenv("TENSOREXPR_VERSIONS", "0")
    function = te.build(*turned(te.dim("n"), te.dim("m")))
    x = RNG.standard_normal((300, 300))
    np.testing.assert_array_equal(function(x)[0], x.T * 2)
    assert function.at(n=300, m=300) is function
    monkeypatch.setenv("TENSOREXPR_VERSIONS", "few")
    with pytest.raises(te.ArgumentError, match="TENSOREXPR_VERSIONS: expected a number of versions, got 'few'"):
        function(RNG.standard_normal((301, 300)))


def test_every_way_of_calling():
    function = te.build(*turned(te.dim("n"), te.dim("m")))
    x = RNG.standard_normal((300, 310))
    out = np.empty((310, 300))
    assert function(x, out=(out,))[0] is out
    np.testing.assert_array_equal(out, x.T * 2)
    np.testing.assert_array_equal(function(np.asfortranarray(x))[0], out)
    lent = np.empty(function.workspace_bytes(n=300, m=310) + 64, np.uint8)
    np.testing.assert_array_equal(function.run(te.Context({"x": x}, workspace=lent))[0], out)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(function))(x)[0], out)
    assert function.profile(x, seconds=0.01).kernels
    with pytest.raises(te.ArgumentError, match="expected 2 axes"):
        function(x[0])


def test_a_workspace_that_was_lent_is_enough():
    n = te.dim("n")
    a, b = te.placeholder((n, n), name="a"), te.placeholder((n, n), name="b")
    product = te.compute((n, n), lambda i, j: te.sum(lambda k: a[i, k] * b[j, k], n), name="product")
    function = te.build(te.compute((n, n), lambda i, j: te.exp(product[i, j] / n) + product[j, i], name="both"), [a, b])
    x, y = floats(260, 260), floats(260, 260)
    lent = np.empty(function.workspace_bytes(n=260) + 64, np.uint8)
    found = function.run(te.Context({"a": x, "b": y}, workspace=lent))
    wanted = x.astype(float) @ y.T.astype(float)
    np.testing.assert_allclose(found, np.exp(wanted / 260) + wanted.T, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(found, function(x, y))


def test_what_is_checked_as_it_runs_names_the_size():
    n, m = te.dim("n"), te.dim("m")
    k, x = te.placeholder((n,), "int64", name="k"), te.placeholder((m,), name="x")
    function = te.build(te.compute((n,), lambda i: x[k[i]], name="y"), [k, x])
    places = np.arange(60_000) % 50_000
    given = floats(50_000)
    np.testing.assert_array_equal(function(places, given), given[places])
    assert function.at(n=60_000, m=50_000) is not function
    places[777] = 50_000
    with pytest.raises(te.OutOfBoundsError, match="y: expected an index of x from 0 to 49999, got 50000") as info:
        function(places, given)
    assert "test_versions.py:" in str(info.value)


def test_threads_that_call_at_once_make_each_version_once():
    function = te.build(*turned(te.dim("n"), te.dim("m")))
    given = [RNG.standard_normal((300 + k % 2, 300)) for k in range(8)]
    results = [None] * 8

    def call(k):
        results[k] = function(given[k])[0]

    threads = [threading.Thread(target=call, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for x, found in zip(given, results, strict=True):
        np.testing.assert_array_equal(found, x.T * 2)


def test_schedules_of_users_stay_as_they_are():
    (tensor,), inputs = turned(te.dim("n"), te.dim("m"))
    s = te.schedule(tensor, inputs=inputs)
    function = te.build(s)
    x = RNG.standard_normal((300, 300))
    np.testing.assert_array_equal(function(x), x.T * 2)
    assert function.versions is None and function.at(n=300, m=300) is function


def test_facts_of_sizes_and_functions_of_graphs():
    n = te.dim("n", min=1, multiple_of=16)

    @te.function
    def step(x):
        y = te.compute(x.shape, lambda i, j: x[i, j] / x[i, 0])
        loss = te.compute((), lambda: te.sum(lambda i, j: y[i, j] * y[i, j], y.shape))
        return loss, *te.gradients(loss, [x])

    once = step.compiled(te.placeholder((n, 100), name="x"))
    x = floats(WORTH // 400 // 16 * 16 + 160, 100) + 3
    for found, wanted in zip(once([x]), step(x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.skipif(call.Callable is object, reason="this interpreter is not known")
@pytest.mark.parametrize("versions_", ["0", "4"])
def test_sizes_that_come_again_never_enter_python(versions_, monkeypatch):
    """What is linked for one size is not taken for another, whatever was met in between; beyond `MOST_LINKED` calls go through Python."""
    monkeypatch.setenv("TENSOREXPR_VERSIONS", versions_)
    slow, entered = te.CompiledFunction.call, []

    def counted(self, *arrays, **keywords):
        entered.append(arrays)
        return slow(self, *arrays, **keywords)

    monkeypatch.setattr(te.CompiledFunction, "call", counted)
    function = te.build(*blurred_gradient(te.dim("n"), te.dim("m")))
    given = [at_extents(blurred_gradient, n, m) for n, m in ((0, 2), (3, 5), (5, 3), (200, 301), (1, 2), (301, 200))]
    given += [at_extents(blurred_gradient, 7, m) for m in range(2, 2 + MOST_LINKED)]
    first, _ = ([function(*arrays) for arrays in given] for _ in range(2))
    entered.clear()
    again = [function(*arrays) for arrays in given]
    assert [len(arrays[0]) for arrays in entered] == [7] * (len(given) - MOST_LINKED)
    out = tuple(np.empty_like(result) for result in again[3])
    function(*given[3], out=out)
    for before, after in zip([*first, first[3]], [*again, out], strict=True):
        for a, b in zip(before, after, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_check_that_fails_at_a_size_that_came_before_is_an_error():
    n, m = te.dim("n"), te.dim("m")
    x, k = te.placeholder((n,), name="x"), te.placeholder((m,), "int64", name="k")
    picked = te.build(te.compute((m,), lambda i: x[k[i]], name="picked"), [x, k])
    data = np.arange(5, dtype=np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(picked(data, np.array([4, 0])), [4, 0])
    with pytest.raises(te.OutOfBoundsError, match="expected an index of x from 0 to 4, got 5"):
        picked(data, np.array([4, 5]))


def test_more_sizes_than_are_kept_leave_versions_and_bits_as_they_are(monkeypatch):
    """Code of their own is compiled for a few sizes however many come, and not driven out by these."""
    monkeypatch.setattr(versions, "_KEPT", 8)
    function = te.build(*normalised(te.dim("n"), te.dim("m")))
    built, build = [], function.versions._build
    monkeypatch.setattr(function.versions, "_build", lambda program: built.append(program) or build(program))
    x = RNG.standard_normal((300, 200))
    (first,) = function(x)
    for n in range(301, 341):
        function(np.ones((n, 200)))
    assert len(built) == MOST
    assert function.at(n=300, m=200) is not function
    np.testing.assert_array_equal(function(x)[0], first)


def summed_before(n, m):
    x = placed("x", n, m)
    return [te.compute((n, m), lambda i, j: te.sum(lambda k: x[i, k], j + 1), name="before")], [x]


@pytest.mark.parametrize("make", [*MADE, summed_before])
def test_short_runs_keep_the_lock_of_python(make, monkeypatch):
    """They take less time than giving it up."""
    monkeypatch.setattr(versions, "WORTH", 1 << 60)
    function = te.build(*make(te.dim("n"), te.dim("m")))
    for n in (3, 16, 40, 310):
        arrays = at_extents(make, n, n)
        function(*arrays), function(*arrays)
    assert [link[1].release for link in function._links] == [False, False, False, True]


def test_statements_are_counted_at_all_sizes():
    """Those of a batch that cores take turns at among them; calls that run many have versions, however little data they have."""
    q, k = placed("q", te.dim("b"), te.dim("n"), 32), placed("k", te.dim("b"), te.dim("n"), 32)
    b, n, d = q.shape
    s = te.compute((b, n, n), lambda b, i, j: te.sum(lambda r: q[b, i, r] * k[b, j, r], d), name="s")
    e = te.compute((b, n, n), lambda b, i, j: te.exp(s[b, i, j] - te.max(lambda t: s[b, i, t], n)), name="e")
    function = te.build(te.compute((b, n, d), lambda b, i, r: te.sum(lambda j: e[b, i, j] * k[b, j, r], n), name="y"), [q, k])
    for sizes in ((1, 16), (4, 64), (3, 33), (40, 8)):
        assert function.statements(sizes) >= sizes[0] * sizes[1] ** 2 * 64
    assert function.statements((1, 3)) < 20_000
    function(*(RNG.standard_normal((1, 100, 32)) for _ in "qk"))
    assert function.at(b=1, n=100) is not function and WORTH > 2 * 8 * 100 * 32 * 3
