"""Many threads in one function, compiling side by side, and forked children."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tensorexpr as te
from tests.runtime.threaded import as_tuple, large_kernels


def bits(results):
    return b"".join(array.tobytes() for array in as_tuple(results))


def test_many_threads_in_one_function():
    for op, arrays in large_kernels():
        expected = bits(op(*arrays))
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(lambda _, op=op, arrays=arrays: op(*arrays), range(32)))
        assert all(bits(result) == expected for result in results)


def test_each_thread_has_its_own_arguments_and_errors():
    table, ids = te.placeholder((100,), "float64", name="table"), te.placeholder((te.dim("n"),), "int64", name="ids")
    gather = te.build(te.compute(ids.shape, lambda i: te.sum(lambda k: table[ids[i]] * te.cast(k < 2, "float64"), 5)), [table, ids])
    values = np.arange(100.0)
    wrong = []

    def work(number):
        rng = np.random.default_rng(number)
        for _ in range(50):
            chosen = rng.integers(0, 100, rng.integers(0, 2000))
            if not np.array_equal(gather(values, chosen), 2.0 * chosen):
                wrong.append(number)
            bad = chosen.copy()
            if len(bad):
                bad[rng.integers(len(bad))] = 1000 + number
                try:
                    gather(values, bad)
                    wrong.append(number)
                except te.OutOfBoundsError as error:
                    if f"got {1000 + number}" not in str(error):
                        wrong.append(str(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_eight_threads_thousands_of_calls_of_one_function():
    x, w = te.placeholder((16, 12), "float64", name="x"), te.placeholder((12, 10), "float64", name="w")
    y = te.compute((16, 10), lambda i, j: te.tanh(te.sum(lambda k: x[i, k] * w[k, j], 12)))
    loss = te.compute((), lambda: te.sum(lambda i, j: y[i, j] ** 2, y.shape))
    function = te.build([loss, *te.gradient(loss, [x, w])], [x, w])

    def work(number):
        rng = np.random.default_rng(number)
        arrays = [(rng.standard_normal((16, 12)), rng.standard_normal((12, 10))) for _ in range(4)]
        expected = [bits(function(*pair)) for pair in arrays]
        for pair, result in zip(arrays, expected, strict=True):
            t = np.tanh(pair[0] @ pair[1])
            np.testing.assert_allclose(
                np.frombuffer(result)[1:193].reshape(16, 12), (2 * t * (1 - t * t)) @ pair[1].T, rtol=1e-9, atol=1e-12
            )
        own = function(*arrays[0])
        right = 0
        for call in range(2000):
            k = call % 4
            results = function(*arrays[k], out=own) if call % 3 else function(*arrays[k])
            right += bits(results) == expected[k]
        return right

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [2000] * 8


def test_an_op_called_by_many_threads_at_once_is_traced_once():
    traces = []

    @te.op
    def once(x):
        traces.append(threading.get_ident())
        return te.compute(x.shape, lambda i: te.exp(x[i]) * 1.2345)

    barrier = threading.Barrier(8)

    def work(number):
        barrier.wait()
        return once(np.full(31, float(number)))

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(work, range(8)))
    assert len(traces) == 1
    for number, result in enumerate(results):
        np.testing.assert_allclose(result, np.full(31, np.exp(number) * 1.2345))


def test_different_ops_compile_side_by_side():
    barrier = threading.Barrier(8)

    def work(number):
        @te.op
        def power(x):
            return te.compute(x.shape, lambda i: te.sum(lambda k: x[i] ** number + k, 3))

        barrier.wait()
        x = np.linspace(0.5, 1.5, 40 + number)
        np.testing.assert_allclose(power(x), 3 * x**number + 3)
        (gradient,) = te.vjp(power)(x, np.ones_like(x))
        np.testing.assert_allclose(gradient, 3 * number * x ** (number - 1))
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(1, 9)))


def test_compiling_from_many_threads():
    def make(n):
        x = te.placeholder((n % 4 + 20,), "float64", name="x")
        return te.build(te.compute(x.shape, lambda i: te.sum(lambda k: x[k] * (k + i), x.shape[0])), [x])

    with ThreadPoolExecutor(8) as pool:
        functions = list(pool.map(make, range(32)))
    assert len({id(f._executable) for f in functions}) == 4
    for n, function in enumerate(functions):
        size = n % 4 + 20
        np.testing.assert_allclose(function(np.ones(size)), [sum(k + i for k in range(size)) for i in range(size)])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_runs_and_compiles():
    kernels = large_kernels()
    expected = [bits(op(*arrays)) for op, arrays in kernels]
    child = os.fork()
    if child == 0:
        try:
            again = [bits(op(*arrays)) for op, arrays in kernels]
            x = te.placeholder((123,), "float64", name="x")
            new = te.build(te.compute((123,), lambda i: 2 * x[i]), [x])(np.ones(123))
            os._exit(0 if again == expected and new.sum() == 246 else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
