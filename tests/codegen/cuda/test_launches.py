"""Launches without a GPU: what the driver is given, and that a call which may stand in a graph asks the device for nothing else."""

from __future__ import annotations

import ctypes
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.cuda.emitter.source import Launch, Source
from tensorexpr.codegen.cuda.host import HostKernels
from tensorexpr.codegen.cuda.host.device import HostDevice
from tensorexpr.codegen.cuda.launch import device, run
from tensorexpr.codegen.cuda.launch.device import _CupyKernels
from tensorexpr.codegen.cuda.nvidia.nvrtc import Compiled, Resources
from tensorexpr.ir import const
from tests.codegen.cuda.device import needs_compiler


class Driver:
    """Notes what it is given."""

    def __init__(self, status: int = 0) -> None:
        self.status, self.launches, self.told = status, [], []

    def cuLaunchKernel(self, function, *rest):
        *numbers, shared, stream, pointers, packed = rest
        size = ctypes.c_size_t.from_address(packed[3]).value
        values = list((ctypes.c_int64 * (size // 8)).from_address(packed[1]))
        marks = (packed[0], packed[2], packed[4])
        self.launches.append((function, tuple(numbers), shared, stream, pointers, marks, values))
        return self.status

    def cuFuncSetAttribute(self, function, attribute, value):
        self.told.append((function, attribute, value))
        return self.status

    def cuGetErrorString(self, status, text):
        text._obj.value = b"too many resources"


def kernels(driver: Driver, *launches: Launch) -> _CupyKernels:
    module = types.SimpleNamespace(load=lambda cubin: None, get_function=lambda name: types.SimpleNamespace(ptr=77))
    cuda = types.SimpleNamespace(
        get_current_stream=lambda: types.SimpleNamespace(ptr=5), function=types.SimpleNamespace(Module=lambda: module)
    )
    compiled = Compiled("sm_90", b"", "", "", {"k": Resources(1, 0, 0, 0, 0)})
    return _CupyKernels(types.SimpleNamespace(cuda=cuda), driver, Source("", launches), compiled)


def test_arguments_go_as_one_block_to_the_callers_stream():
    driver = Driver()
    launch = Launch("k", ("a",), ("n",), False, (16, 4, 1), (const(3), const(2), const(1)), False)
    kernels(driver).launch(launch, (3, 2, 1), [1 << 40, -7])
    assert driver.launches == [(77, (3, 2, 1, 16, 4, 1), 0, 5, None, (1, 2, None), [1 << 40, -7])]


def test_a_driver_is_told_at_load_how_much_shared_memory_launches_ask_for():
    driver, large = Driver(), Launch("k", (), (), False, (16, 4, 1), (const(3),), False, 100 << 10)
    made = kernels(driver, large)
    assert driver.told == [(77, 8, 100 << 10)]
    made.launch(large, (3, 1, 1), [1])
    assert [shared for _, _, shared, *_ in driver.launches] == [100 << 10]
    with pytest.raises(te.TensorExprError, match="cuda: expected 102400 bytes of shared memory for k: too many resources"):
        kernels(Driver(1), large)


def test_a_launch_that_fails_says_which():
    launch = Launch("k", (), (), False, (16, 4, 1), (const(3),), False)
    with pytest.raises(te.TensorExprError, match="the launch of k with 3 x 2 x 1 blocks failed: too many resources"):
        kernels(Driver(1)).launch(launch, (3, 2, 1), [1])


class Counting(HostDevice):
    """Notes what it is asked for but addresses and launches."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def empty(self, shape, dtype):
        self.asked.append("empty")
        return super().empty(shape, dtype)

    def read(self, array):
        self.asked.append("read")
        return super().read(array)


@needs_compiler
def test_a_call_with_out_allocates_nothing_and_waits_for_nothing(monkeypatch):
    counting = Counting()
    monkeypatch.setenv("TENSOREXPR_CUDA", "host")
    monkeypatch.setattr(device, "_host", lambda: counting)
    x, ids = te.placeholder((64, 8), name="x"), te.placeholder((5,), "int64", name="ids")
    plain = te.build(te.compute((64,), lambda i: te.sum(lambda j: x[i, j], 8), name="y"), [x], target="cuda")
    a, out = counting.upload(np.ones((64, 8), np.float32)), counting.empty((64,), np.dtype(np.float32))
    counting.asked.clear()
    assert plain(a, out=out) is out and counting.asked == [] and (out == 8).all()
    checked = te.build(te.compute((5, 8), lambda i, j: x[ids[i], j], name="z"), [x, ids], target="cuda")
    result, wanted = counting.empty((5, 8), np.dtype(np.float32)), counting.upload(np.arange(5))
    counting.asked.clear()
    assert checked(a, wanted, out=result) is result and counting.asked == []  # what it reports lies elsewhere: see `test_reports`


def test_scalars_stand_between_buffers_and_the_report():
    driver = Driver()
    launch = Launch("k", ("a", "b"), ("n",), True, (16, 1, 1), (const(3),), False)
    run = kernels(driver).ready(launch, (3, 1, 1), [2, 0, 3], [9])
    for base in (10, 20):
        run([base, base + 1, base + 2, base + 3], 5)
    assert [values for *_, values in driver.launches] == [[12, 10, 9, 13], [22, 20, 9, 23]]


@needs_compiler
def test_launches_are_worked_out_once_for_all_calls_of_some_sizes(monkeypatch):
    monkeypatch.setenv("TENSOREXPR_CUDA", "host")
    made, ready = [], HostKernels.ready
    monkeypatch.setattr(HostKernels, "ready", lambda self, launch, *rest: made.append(launch.kernel) or ready(self, launch, *rest))
    n = te.dim("n")
    u0 = te.placeholder((n,), name="u0")
    u = te.scan(lambda t, u: te.compute((n,), lambda i: u[i] + u.read(i - 1, outside=0.0)), u0, 5, name="u")
    f = te.build(u, [u0], target="cuda")

    def called(size: int) -> None:
        np.testing.assert_array_equal(f(np.ones(size, np.float32))[0], [1.0, *[2.0] * (size - 1)])

    counts = []
    for size in (8, 8, 9, 8, 9):
        called(size)
        counts.append(len(made))
    assert counts[0] == counts[1] == 5 and counts[2:] == [10, 10, 10]
    monkeypatch.setattr(run, "MOST_KEPT", 3)  # more steps than are kept are worked out in each call
    called(10)
    called(10)
    assert len(made) > 19
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(called, [7, 8, 9, 10] * 5))
