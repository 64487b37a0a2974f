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
