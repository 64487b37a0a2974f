"""Calls through machine code: the same as through Python for every kind of argument, with nothing leaked."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref

import ml_dtypes
import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.llvm.process import call


def affine_function(shape=(4, 6), dtype="float32"):
    a, b = te.placeholder(shape, dtype, name="a"), te.placeholder(shape, dtype, name="b")
    return te.build(te.compute(shape, lambda *i: a[i] + b[i] * 2, name="c"), [a, b])


@pytest.fixture
def calls(monkeypatch):
    """Counts the calls that come by way of Python."""
    found = []
    slow = te.CompiledFunction.call

    def counted(self, *arrays, out=None):
        found.append(arrays)
        return slow(self, *arrays, out=out)

    monkeypatch.setattr(te.CompiledFunction, "call", counted)
    return found


@pytest.mark.parametrize("shape", [(4, 6), (), (0, 3), (5,)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, ml_dtypes.bfloat16], ids=lambda d: np.dtype(d).name)
def test_arrays_that_fit_never_enter_python(calls, shape, dtype):
    f = affine_function(shape, np.dtype(dtype).name)
    x = np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)
    result, out = f(x, x), np.empty(shape, dtype)
    assert f(x, x, out=out) is out
    assert not calls
    assert type(result) is np.ndarray and result.dtype == dtype and result.shape == shape and result.flags.owndata
    np.testing.assert_array_equal(result, x + x * np.asarray(2, dtype))
    np.testing.assert_array_equal(result, out)
    # By way of Python it is the same, where strides are 0 because there are no elements, too.
    assert f.call(x, x, out=out) is out
    np.testing.assert_array_equal(result, out)


def test_everything_else_is_left_to_python(calls):
    f, x = affine_function(), np.arange(24, dtype=np.float32).reshape(4, 6)
    expected = 3 * x

    class Sub(np.ndarray):
        pass

    unaligned = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(4, 6)
    swapped = x.astype(x.dtype.newbyteorder())
    strided, reversed_ = np.repeat(x, 2, axis=1)[:, ::2], x[::-1].copy()[::-1]
    for other in (strided, reversed_, np.asfortranarray(x), unaligned, swapped, x.view(Sub)):
        np.testing.assert_array_equal(f(other, x), expected)
    out = np.empty((8, 6), np.float32)[::2]
    np.testing.assert_array_equal(f(x, x, out=out), expected)
    # A Python that is not known (a free-threaded one) has no other way.
    assert len(calls) == 7 or call.Callable is object


def test_what_does_not_fit_is_refused_with_nothing_written():
    f, x = affine_function(), np.arange(24, dtype=np.float32).reshape(4, 6)
    readonly = np.zeros((4, 6), np.float32)
    readonly.flags.writeable = False
    block = np.arange(30, dtype=np.float32)
    before = block.copy()
    for message, arguments, out in [
        ("expected 2 arguments", (x,), None),
        ("expected 2 arguments", (x, x, x), None),
        ("expected extent 6, got 5", (x, x[:, :5].copy()), None),
        ("expected dtype float32, got float64", (x, x.astype(np.float64)), None),
        ("a read-only one", (x, x), readonly),
        ("an array that overlaps argument a", (block[:24].reshape(4, 6), x), block[6:].reshape(4, 6)),
        ("expected a NumPy array", (x, x), [1.0]),
    ]:
        with pytest.raises(te.ArgumentError, match=message):
            f(*arguments, out=out)
    with pytest.raises(TypeError, match=r"expected arrays by position \(a, b\) and out, got the keyword into"):
        f(x, x, into=x)
    np.testing.assert_array_equal(block, before)
    beside = f(block[:24].reshape(4, 6), x, out=np.empty((4, 6), np.float32))
    np.testing.assert_array_equal(beside, before[:24].reshape(4, 6) + 2 * x)


def test_inputs_in_another_order_several_results_constants_and_workspace(calls):
    a, b = te.placeholder((64, 32), name="a"), te.placeholder((32,), name="b")
    table = te.constant(np.linspace(0, 1, 32, dtype=np.float32))
    mean = te.compute((64,), lambda i: te.sum(lambda k: a[i, k] * table[k], 32), name="mean")
    column = te.compute((32,), lambda j: te.sum(lambda i: te.exp(mean[i]) * a[i, j], 64) + b[j])
    f = te.build([column, mean], [b, a])
    x, y = np.random.default_rng(0).random((64, 32), np.float32), np.ones(32, np.float32)
    expected_mean = x @ np.linspace(0, 1, 32, dtype=np.float32)
    for _ in range(3):
        got = f(y, x)
        assert type(got) is tuple and len(got) == 2
        np.testing.assert_allclose(got[1], expected_mean, rtol=1e-5)
        np.testing.assert_allclose(got[0], np.exp(expected_mean) @ x + y, rtol=1e-4)
    assert not calls


def test_several_results_into_given_arrays(calls):
    a, b = te.placeholder((4, 6), name="a"), te.placeholder((4, 6), name="b")
    both = [te.compute((4, 6), lambda i, j: a[i, j] + b[i, j], name="c"), te.compute((6,), lambda j: a[1, j] * b[2, j], name="d")]
    f, x = te.build(both, [a, b]), np.arange(24, dtype=np.float32).reshape(4, 6)
    counted = c, d = np.empty((4, 6), np.float32), np.empty(6, np.float32)
    before = [sys.getrefcount(item) for item in counted]
    for _ in range(100):
        got = f(x, x, out=(c, d))
        assert type(got) is tuple and got[0] is c and got[1] is d
    del got
    assert [sys.getrefcount(item) for item in counted] == before
    assert not calls
    np.testing.assert_array_equal(c, 2 * x)
    np.testing.assert_array_equal(d, x[1] * x[2])
    assert f(x, x, out=[c, d])[0] is c
    assert len(calls) == 1 or call.Callable is object
    block = np.zeros(30, np.float32)
    for message, out in [
        ("expected a tuple of 2 arrays, got 1", (c,)),
        ("overlaps", (block[:24].reshape(4, 6), block[20:26])),
        ("overlaps argument a", (x, d)),
        (r"expected shape \[6\], got \[4\]", (c, d[:4].copy())),
        ("float64", (c.astype(np.float64), d)),
    ]:
        with pytest.raises(te.ArgumentError, match=message):
            f(x, x, out=out)
    np.testing.assert_array_equal(block, 0)


def test_a_bad_index_is_reported_and_the_next_call_is_fine():
    w, ids = te.placeholder((5, 3), name="w"), te.placeholder((4,), "int64", name="ids")
    f = te.build(te.compute((4, 3), lambda t, d: w[ids[t], d], name="rows"), [w, ids])
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    with pytest.raises(IndexError, match="rows: expected an index of w from 0 to 4, got 7"):
        f(x, np.array([0, 7, 1, 2]))
    np.testing.assert_array_equal(f(x, np.array([4, 0, 1, 2])), x[[4, 0, 1, 2]])


def test_nothing_is_leaked():
    f, x = affine_function(), np.ones((4, 6), np.float32)
    out = np.empty_like(x)
    counted = (x, out, x.dtype, np.ndarray, "out")
    before = [sys.getrefcount(item) for item in counted]
    for _ in range(1000):
        f(x, x)
        f(x, x, out=out)
        with pytest.raises(te.ArgumentError):
            f(x, out=x)
    after = [sys.getrefcount(item) for item in counted]
    assert all(abs(b - a) < 50 for a, b in zip(before, after, strict=True)), (before, after)
    alive = weakref.ref(f)
    del f
    gc.collect()
    assert alive() is None


def test_ops_link_their_signatures(calls, monkeypatch):
    monkeypatch.setenv("TENSOREXPR_LENGTHS", "0")  # code for all lengths is linked at its second call

    @te.op
    def double(x, *, by=2.0):
        return te.compute(x.shape, lambda *i: x[i] * by)

    arrays = [np.full((n, n), float(n), np.float32) for n in range(1, 13)]
    for _ in range(2):
        for array in arrays:  # more signatures than are linked
            np.testing.assert_array_equal(double(array), 2 * array)
    np.testing.assert_array_equal(double(arrays[3], by=3.0), 3 * arrays[3])
    assert double(arrays[2], out=np.empty((3, 3), np.float32)).sum() == 54
    assert not calls
    x = te.placeholder((3,))
    assert isinstance(double(x), te.Tensor)
    assert double(1.5) == 3.0


def test_threads_share_a_function_with_workspace():
    rng = np.random.default_rng(1)
    x = te.placeholder((128, 64), name="x")
    norm = te.compute((128,), lambda i: te.sqrt(te.sum(lambda k: x[i, k] * x[i, k], 64)), name="norm")
    f = te.build(te.compute((64, 64), lambda j, k: te.sum(lambda i: x[i, j] * x[i, k] / norm[i], 128)), [x])
    data = [rng.random((128, 64), np.float32) for _ in range(8)]
    expected = [f(d) for d in data]
    wrong = []

    def work(position):
        for _ in range(200):
            if not np.array_equal(f(data[position]), expected[position]):
                wrong.append(position)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_where_the_interpreter_is_not_known_calls_go_through_python():
    code = """
import sysconfig
known = sysconfig.get_config_var
sysconfig.get_config_var = lambda name: 1 if name == "Py_GIL_DISABLED" else known(name)
import numpy as np, tensorexpr as te
from tensorexpr.codegen.llvm.process import call
assert call.Callable is object
op = te.op(lambda x: te.compute(x.shape, lambda i: x[i] + 1))
print(op(np.zeros(2)), op(np.zeros(2), out=np.empty(2)), op.compile(((2,), "float64"))(np.ones(2)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "[1. 1.] [1. 1.] [2. 2.]\n", done.stderr
