"""Threads, several GPUs and the streams of other libraries, on stand-ins for CuPy and for a device: no GPU is needed."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen import compile
from tensorexpr.codegen.auto.gpus import facts_of
from tensorexpr.codegen.cuda.host.device import HostDevice
from tensorexpr.codegen.cuda.launch import device as devices
from tensorexpr.codegen.cuda.launch.device import CupyDevice
from tensorexpr.codegen.target import H200
from tests.codegen.cuda.device import needs_compiler


class Array(np.ndarray):
    """An array of the stand-in for CuPy; `data.device_id` is where it lies."""

    number = 0
    data = property(lambda self: SimpleNamespace(ptr=self.ctypes.data, device_id=self.number))  # type: ignore[assignment]


class Runtime:
    """CUDA's runtime: each thread has a current device, 0 at first, and a context only once something was done on it."""

    def __init__(self) -> None:
        self._of_thread = threading.local()

    @property
    def context(self) -> int | None:
        return getattr(self._of_thread, "context", None)

    def getDevice(self) -> int:
        return getattr(self._of_thread, "device", 0)

    def setDevice(self, number: int) -> None:
        self._of_thread.device = number
        if self.context is not None:
            self._of_thread.context = number

    def free(self, address: int) -> None:
        assert address == 0
        self._of_thread.context = self.getDevice()


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    driver = SimpleNamespace(cuLaunchKernel=SimpleNamespace(), cuFuncSetAttribute=SimpleNamespace())
    driver.cuThreadExchangeStreamCaptureMode = lambda mode: 0
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    runtime = Runtime()
    return SimpleNamespace(
        ndarray=Array,
        cuda=SimpleNamespace(
            runtime=runtime,
            Device=lambda: SimpleNamespace(id=runtime.getDevice(), compute_capability="90"),
            get_current_stream=lambda: SimpleNamespace(ptr=0, synchronize=lambda: None),
        ),
        asarray=lambda value: ("interface", value),
        from_dlpack=lambda value: ("dlpack", value),
    )


def in_a_thread(work: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    assert found, "it failed"
    return found[0]


@pytest.mark.parametrize("shape", [(), (0, 2), (3, 4)])
def test_elements_that_numpy_has_no_type_for_are_uploaded_as_their_bits(cupy: Any, shape: tuple[int, ...]) -> None:
    """CuPy has arrays of them, but a list of the types that it takes from NumPy."""

    def asarray(value: np.ndarray) -> np.ndarray:
        assert value.dtype.char in "?bhilqBHILQefdFD" and value.flags.c_contiguous
        return value.copy()

    cupy.asarray = asarray
    for dtype in (te.dtypes.bfloat16.numpy, np.dtype(np.float16)):
        for given in (np.ones(shape, dtype), np.ones(shape, dtype).T):
            found = CupyDevice(cupy).upload(given)
            assert found.dtype == dtype and found.shape == given.shape and (found == given).all()


def test_a_new_thread_has_the_context_of_the_function_while_it_launches(cupy: Any) -> None:
    device = CupyDevice(cupy)
    runtime = cupy.cuda.runtime

    def launched() -> tuple[int | None, ...]:
        before = runtime.context
        with device.entered():
            first = runtime.context
        with device.entered():
            return before, first, runtime.context

    assert in_a_thread(launched) == (None, 0, 0)


def test_threads_that_meet_a_gpu_at_once_have_one_device(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`te.synchronize()` settles the devices that are known: a function on another one would never say what its checks found."""
    cupy.cuda.is_available = lambda: True
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(devices, "_devices", {})
    monkeypatch.delenv("TENSOREXPR_CUDA", raising=False)
    both, made = threading.Barrier(2), CupyDevice

    def meets(cupy: Any) -> CupyDevice:
        both.wait()  # each of the threads has found none
        return made(cupy)

    monkeypatch.setattr(devices, "CupyDevice", meets)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(devices.current_device())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] is found[1] is devices._devices[0]


def test_the_device_of_the_caller_is_put_back(cupy: Any) -> None:
    runtime = cupy.cuda.runtime
    runtime.setDevice(1)
    first = CupyDevice(cupy)
    assert first.name == "cuda:1"

    def elsewhere() -> list[Any]:
        runtime.setDevice(2)
        runtime.free(0)
        seen = []
        for _ in range(2):
            with pytest.raises(ZeroDivisionError), first.entered():
                seen.append((runtime.getDevice(), runtime.context))
                raise ZeroDivisionError
            seen.append((runtime.getDevice(), runtime.context))
        return seen

    assert in_a_thread(elsewhere) == [(1, 1), (2, 2)] * 2


def test_what_nobody_asked_for_is_said_of_the_device_that_found_it(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the process ends another one may be current."""
    device, seen = CupyDevice(cupy), []
    monkeypatch.setattr(device, "_ledger", SimpleNamespace(farewell=lambda: seen.append(cupy.cuda.runtime.getDevice())))
    cupy.cuda.runtime.setDevice(1)
    device._farewell()
    assert seen == [0] and cupy.cuda.runtime.getDevice() == 1


def test_dlpack_comes_before_the_interface_without_a_stream(cupy: Any) -> None:
    """As a tensor of PyTorch has both: by DLPack its stream is waited for."""
    device = CupyDevice(cupy)

    class Tensor:
        def __init__(self, kind: int) -> None:
            self.kind, self.__cuda_array_interface__ = kind, {"version": 2}

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.kind, 0

        def __dlpack__(self, stream: int | None = None) -> object:
            return object()

    bare = SimpleNamespace(__cuda_array_interface__={"version": 3})
    there, here, own = Tensor(2), Tensor(1), np.zeros(3).view(Array)
    assert device.array(there) == ("dlpack", there) and device.array(bare) == ("interface", bare)
    assert device.array(own) is own and device.array(here) is None and device.array(np.zeros(3)) is None


def test_arrays_have_a_place(cupy: Any) -> None:
    device, there, empty = CupyDevice(cupy), np.zeros(3).view(Array), np.zeros(0).view(Array)
    there.number = empty.number = 3
    assert device.place(there) == "cuda:3" and device.place(np.zeros(3).view(Array)) == "cuda:0"
    assert device.place(empty) == "cuda:0"  # it lies nowhere


def test_schedules_are_made_for_the_gpu_that_is_there(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its multiprocessors and its second cache, not those of an H200; of an architecture alone, what is shipped for it."""
    said = {"name": b"NVIDIA T1000", "multiProcessorCount": 14, "l2CacheSize": 1 << 20}
    cupy.cuda.runtime.getDeviceProperties = lambda number: said
    device = CupyDevice(cupy)
    assert (device.facts.cores, device.facts.l2_bytes, device.facts.clock) == (14, 1 << 20, facts_of("sm_90").clock)
    monkeypatch.setattr(compile, "current_device", lambda: device)
    machine = compile.machine_of("cuda", "tf32")
    assert (machine.cores, machine.l2_bytes, machine.l3_bytes, machine.arch, machine.precision) == (14, 1 << 20, 1 << 20, "sm_90a", "tf32")
    x = te.placeholder((1 << 16, 256), name="x")
    sums = te.compute((256,), lambda j: te.sum(lambda i: x[i, j], 1 << 16), name="y")
    found = [str(te.autoschedule(sums, "cuda"))]
    said["multiProcessorCount"] = 132
    monkeypatch.setattr(compile, "current_device", lambda: CupyDevice(cupy))
    found.append(str(te.autoschedule(sums, "cuda")))
    assert found[0] != found[1]  # more parts for more multiprocessors
    ampere = compile.machine_of("cuda", arch="sm_80")
    assert (ampere.cores, ampere.l2_bytes, ampere.shared_bytes) == (108, 40 << 20, 163 << 10)
    assert compile.machine_of("cuda", arch="sm_90") == H200


# --------------------------------------------------------------------------------------------------- compiled functions


class StandIn(HostDevice):
    """This CPU as a device that a thread has to have entered for whatever is made, launched or copied there."""

    def __init__(self) -> None:
        self._of_thread = threading.local()
        self.elsewhere: list[np.ndarray] = []

    @contextmanager
    def entered(self) -> Iterator[None]:
        self._of_thread.depth = getattr(self._of_thread, "depth", 0) + 1
        yield
        self._of_thread.depth -= 1

    def _check(self) -> None:
        assert getattr(self._of_thread, "depth", 0), "expected a thread that has entered the device"

    def place(self, array: Any) -> str:
        return "another" if any(array is other for other in self.elsewhere) else self.name

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        self._check()
        return super().empty(shape, dtype)

    def read(self, array: Any) -> np.ndarray:
        self._check()
        return super().read(array)

    def load(self, source: Any, compiled: Any) -> Any:
        kernels = super().load(source, compiled)
        ready = kernels.ready

        def checked(*given: Any) -> Callable[..., None]:
            launch = ready(*given)

            def launched(addresses: Any, stream: int) -> None:
                self._check()
                launch(addresses, stream)

            return launched

        kernels.ready = checked  # type: ignore[method-assign]
        return kernels


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    found = StandIn()
    monkeypatch.setenv("TENSOREXPR_CUDA", "host")
    monkeypatch.setattr(devices, "_host", lambda: found)
    return found


def gathered() -> tuple[te.CompiledFunction, list[np.ndarray]]:
    """A function with a constant, a workspace and a check."""
    x, ids = te.placeholder((6, 300), name="x"), te.placeholder((4,), "int64", name="ids")
    table = te.constant(np.arange(300, dtype=np.float32), name="table")
    total = te.compute((6,), lambda i: te.sum(lambda j: x[i, j] * table[j], 300), name="total")
    y = te.compute((4, 6), lambda t, i: x[ids[t], i] / total[i], name="y")
    return te.compile(y, [x, ids], target="cuda"), [np.ones((6, 300), np.float32), np.arange(4)]


@needs_compiler
def test_calls_from_any_thread_are_on_the_device_of_the_function(stand_in: StandIn) -> None:
    f, given = gathered()
    wanted = f(*given)
    out = np.empty_like(wanted)
    np.testing.assert_array_equal(in_a_thread(lambda: f(*given)), wanted)
    np.testing.assert_array_equal(in_a_thread(lambda: f(*given, out=out)), wanted)
    context = te.Context({"x": given[0], "ids": given[1]})
    np.testing.assert_array_equal(in_a_thread(lambda: f.run(context)), wanted)


@needs_compiler
def test_arrays_of_another_device_are_refused(stand_in: StandIn) -> None:
    f, given = gathered()
    out = np.empty((4, 6), np.float32)
    for label, other in (("argument x", given[0]), ("argument ids", given[1]), ("out", out)):
        stand_in.elsewhere = [other]
        message = f"y: {label}: expected an array on host, which the function was compiled on, got one on another"
        with pytest.raises(te.ArgumentError, match=message) as caught:
            f(*given, out=out)
        assert "hint: copy it to host, or compile the function while another is the current device" in str(caught.value)


@needs_compiler
def test_results_go_to_arrays_of_other_libraries_wherever_they_lie(stand_in: StandIn) -> None:
    """What is computed beside an array that kernels cannot write to is copied by our view of it: the array may have no such words."""
    x = te.placeholder((6,), name="x")
    f = te.compile(te.compute((6,), lambda i: x[i] * 2.0, name="y"), [x], target="cuda")
    memory = np.zeros(40, np.float32)
    for place in (memory[1:7], memory[8:20:2], memory[20:26]):
        describes = {"shape": place.shape, "typestr": "<f4", "data": (place.ctypes.data, False), "strides": place.strides, "version": 3}
        out = SimpleNamespace(__cuda_array_interface__=describes)
        assert f(np.arange(6, dtype=np.float32), out=out) is out
        np.testing.assert_array_equal(place, 2 * np.arange(6, dtype=np.float32))
