"""Memory of results: handed out again when an array dies, and never before."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorexpr as te
from tensorexpr.codegen.llvm.process import call
from tensorexpr.codegen.llvm.process.memory import POOLED, default_bound
from tensorexpr.codegen.llvm.runtime.memory_text import SLOTS
from tensorexpr.errors import ArgumentError

pytestmark = pytest.mark.skipif(call.Callable is object, reason="this interpreter is not known")

F32 = np.dtype(np.float32)


def fill(shape):
    """A function that gives arrays of this shape, all elements of a value."""
    x = te.placeholder((), name="x")
    return te.build(te.compute(shape, lambda *i: x[()] + 0.0, name="filled"), [x])


@pytest.fixture
def fresh():
    """An empty pool of a known bound."""
    te.build(te.compute((3,), lambda i: i, name="one"), [])()  # the code is there
    call.memory.bound(0)
    call.memory.bound(64 << 20)
    yield call.memory
    call.memory.bound(default_bound())


def name_of(array):
    core = np._core if hasattr(np, "_core") else np.core
    return core.multiarray.get_handler_name(array)


@pytest.mark.parametrize("shape", [(5000,), (1, 5000), (70, 71), (70, 1, 71), (300, 1000), (1025, 1024)], ids=str)
def test_large_results_are_arrays_like_any_other(shape):
    y = fill(shape)(3.0)
    plain = np.empty(shape, np.float32)
    assert y.ctypes.data % 64 == 0 and name_of(y) == "tensorexpr"
    assert y.base is None and y.flags.num == plain.flags.num and y.strides == plain.strides and y.nbytes == plain.nbytes
    assert (y == 3).all()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(y)), y)
    view = y[..., 1:]
    del y
    gc.collect()
    assert (view == 3).all()


def test_small_results_are_left_to_numpy():
    assert name_of(fill((16,))(1.0)) != "tensorexpr"
    assert fill((POOLED // 4,))(1.0).ctypes.data % 64 == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pages are mapped on Linux")
def test_results_of_mapped_pages_are_off_the_places_in_a_page_where_other_libraries_have_theirs():
    """Loads of an argument near a page's start would wait for stores to a result that lies the same way in its page."""
    for shape in ((512, 512), (1025, 1024)):
        assert fill(shape)(3.0).ctypes.data % 4096 == 2048


def test_memory_comes_back_with_the_array(fresh):
    f = fill((256, 1024))
    y = f(1.0)
    place = y.ctypes.data
    assert fresh.kept == 0
    view = y[5:]
    del y
    assert fresh.kept == 0  # the view needs it
    del view
    assert fresh.kept >= 1 << 20
    again = f(2.0)
    assert again.ctypes.data == place and fresh.kept == 0
    other = f(3.0)
    assert (again == 2).all() and (other == 3).all()


def test_not_more_is_kept_than_allowed(fresh):
    arrays = [call.empty((size, 1024), F32) for size in (512, 1024, 2048, 4096, 8192, 16384, 32768)]
    while arrays:
        arrays.pop()
        assert fresh.kept <= 64 << 20
    assert fresh.kept > 0
    many = [call.empty((8192 + 1024 * k,), F32) for k in range(2 * SLOTS)]
    del many
    assert 0 < fresh.kept <= 64 << 20
    fresh.bound(1 << 20)
    assert fresh.kept <= 1 << 20
    fresh.bound(0)
    del arrays
    assert fresh.kept == 0
    array = call.empty((1 << 20,), F32)
    del array
    assert fresh.kept == 0


def test_a_request_takes_no_block_that_is_much_larger(fresh):
    array = call.empty((4 << 20,), F32)
    del array
    kept = fresh.kept
    small = call.empty((1 << 20,), F32)
    assert fresh.kept == kept
    near = call.empty(((4 << 20) - 1000,), F32)
    assert fresh.kept == 0
    del small, near


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(POOLED // 4, 600_000)), min_size=1, max_size=40))
def test_living_arrays_never_share_memory(steps):
    """Law: whatever is made, resized and dropped in whatever order, every array that is alive keeps its values."""
    living: dict[int, tuple[np.ndarray, float]] = {}
    for number, (slot, length) in enumerate(steps):
        if slot in living and number % 5 == 4:
            array, value = living[slot]
            array.resize((length,), refcheck=False)
            array[:] = value
            continue
        living.pop(slot, None)
        array = call.empty((length,), F32)
        array[:] = number
        living[slot] = array, float(number)
        for kept, value in living.values():
            assert kept[0] == value and kept[-1] == value and (kept == value).all()


def test_threads_make_and_drop_results():
    functions = [fill((size,)) for size in (6000, 40_000, 300_000)]
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        held = []
        for step in range(150):
            value = float(seed * 1000 + step)
            held.append((functions[rng.integers(3)](value), value))
            if len(held) > 4:
                array, expected = held.pop(rng.integers(len(held)))
                if not (array == expected).all():
                    wrong.append((seed, step))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_results_beyond_memory_are_refused_and_the_next_call_is_fine():
    f = fill((1 << 31, 1 << 11))
    with pytest.raises(ArgumentError, match="filled: expected"):
        f(1.0)
    assert (fill((300, 300))(1.0) == 1).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_forked_child_has_memory_of_its_own():
    code = """
import os, threading, numpy as np, tensorexpr as te
x = te.placeholder((), name="x")
f = te.build(te.compute((100_000,), lambda i: x[()] + 0.0), [x])
stop = False
def hammer():
    while not stop:
        f(1.0)
threads = [threading.Thread(target=hammer) for _ in range(2)]
for t in threads: t.start()
kept, bad = [f(float(k)) for k in range(5)], 0
for k in range(10):
    pid = os.fork()
    if pid == 0:
        made = [f(10.0 + j) for j in range(5)]
        fine = all((a == j).all() for j, a in enumerate(kept)) and all((a == 10 + j).all() for j, a in enumerate(made))
        os._exit(0 if fine else 1)
    bad += os.waitpid(pid, 0)[1] != 0
stop = True
for t in threads: t.join()
print(bad, all((a == j).all() for j, a in enumerate(kept)))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "0 True\n", done.stderr


def test_arrays_may_outlive_everything():
    """At exit they die after functions, modules and machine code."""
    code = """
import sys, numpy as np, tensorexpr as te
x = te.placeholder((), name="x")
f = te.build(te.compute((1 << 19,), lambda i: x[()] + 0.0), [x])
np.kept = f(1.0)
sys.kept = [f(2.0)]
sys.kept.append(sys.kept)
class Late:
    def __init__(self, array): self.array = array
    def __del__(self): assert float(self.array[-1]) == 3.0; del self.array
import builtins
builtins.late = Late(f(3.0))
print("done")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_the_bound_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("TENSOREXPR_MEMORY_POOL", "3")
    assert default_bound() == 3 << 20
    monkeypatch.setenv("TENSOREXPR_MEMORY_POOL", "all")
    with pytest.raises(ArgumentError, match="TENSOREXPR_MEMORY_POOL: expected a number of MiB, got 'all'"):
        default_bound()
    monkeypatch.delenv("TENSOREXPR_MEMORY_POOL")
    assert 0 < default_bound() <= 512 << 20
