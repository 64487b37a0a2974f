"""A stand-in for CuPy whose streams are queues: work waits until someone waits for it, or for nothing at all.

What CUDA promises is all that it keeps. Streams that do not block have nothing to do with each other nor with the default stream, so what
one of them was given may be done long before, or long behind, what another one was given earlier. A capture takes the work of its stream,
and nothing may be waited for while it lasts. New memory holds what no test expects."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from tensorexpr.codegen.cuda.host import HostKernels
from tensorexpr.codegen.cuda.launch.device import CupyDevice, HostDevice

Work = Callable[[], None]


class Stream:
    """What was given to it and is not done yet, or captured."""

    all: dict[int, Stream]
    memory: list[np.ndarray]
    """What was ever handed out: CuPy gives memory back in the order of its stream, behind the work that was given before."""
    at_once = False
    """Whether work is done as it comes."""
    _of_thread = threading.local()

    def __init__(self, non_blocking: bool = False, ptr: int | None = None) -> None:
        assert non_blocking or ptr == 0, "streams that block are not played"
        self.ptr = 16 * len(Stream.all) if ptr is None else ptr
        self.queue: list[Work] = []
        self.captured: list[Work] | None = None
        Stream.all[self.ptr] = self

    @classmethod
    def current(cls) -> Stream:
        entered = getattr(cls._of_thread, "entered", [])
        return entered[-1] if entered else cls.all[0]

    def __enter__(self) -> Stream:
        self._of_thread.entered = [*getattr(self._of_thread, "entered", []), self]
        return self

    def __exit__(self, *of: object) -> None:
        self._of_thread.entered = self._of_thread.entered[:-1]

    def put(self, work: Work) -> None:
        if self.captured is not None:
            self.captured.append(work)
            return
        self.queue.append(work)
        if self.at_once:
            self.synchronize()

    def synchronize(self) -> None:
        no_capture()
        while self.queue:
            self.queue.pop(0)()

    def begin_capture(self) -> None:
        assert self.ptr, "the default stream cannot be captured"
        self.captured = []

    def end_capture(self) -> SimpleNamespace:
        work, self.captured = self.captured, None
        assert work is not None
        return SimpleNamespace(launch=lambda stream: [stream.put(one) for one in work])


def no_capture() -> None:
    assert all(stream.captured is None for stream in Stream.all.values()), "nothing is waited for in a capture"


class Memory(np.ndarray):
    """Bytes of the device."""

    device_id = 0
    ptr = property(lambda self: self.ctypes.data)


class Array(np.ndarray):
    """An array whose elements the current stream writes, and which the host reads by `get`."""

    data: Any = property(lambda self: np.ndarray(self.nbytes, np.uint8, np.ndarray.data.__get__(self)).view(Memory))

    def get(self) -> np.ndarray:
        Stream.current().synchronize()
        return np.array(self)

    def __setitem__(self, place: Any, value: Any) -> None:
        Stream.current().put(lambda: np.ndarray.__setitem__(self, place, value))

    def __iadd__(self, value: float) -> Array:
        Stream.current().put(lambda: np.add(np.asarray(self), value, out=np.asarray(self)))
        return self

    def __matmul__(self, other: Array) -> Array:
        return self

    def __mul__(self, number: float) -> Array:
        return self

    def __dlpack__(self, **options: Any) -> Any:
        return "capsule"


def empty(shape: Any, dtype: Any = np.float32) -> Array:
    no_capture()
    made = HostDevice().empty(tuple(np.atleast_1d(shape)), np.dtype(dtype))
    Stream.memory.append(made)
    made.view(np.uint8)[...] = 77
    return made.view(Array)


def filled(shape: Any, dtype: Any, value: Any) -> Array:
    made = empty(shape, dtype)
    made[...] = value
    return made


class Event:
    """Where a stream has come to."""

    all: dict[int, Event]

    def __init__(self, disable_timing: bool) -> None:
        self.ptr, self.passed, self.stream = len(Event.all), False, Stream.all[0]
        Event.all[self.ptr] = self

    @property
    def done(self) -> bool:
        no_capture()
        return self.passed

    def record(self, stream: Stream) -> None:
        assert stream.captured is None, "an event of a graph says nothing outside of it"
        self.stream, self.passed = stream, False
        stream.put(lambda: setattr(self, "passed", True))

    def synchronize(self) -> None:
        no_capture()
        while not self.passed:
            self.stream.queue.pop(0)()


class Runtime:
    """CUDA's runtime."""

    memcpyDeviceToHost = 2

    def getDevice(self) -> int:
        return 0

    def getDeviceCount(self) -> int:
        return 1

    def setDevice(self, number: int) -> None:
        assert number == 0

    def free(self, address: int) -> None:
        assert address == 0

    def memsetAsync(self, address: int, value: int, size: int, stream: int) -> None:
        Stream.all[stream].put(lambda: bytes_at(address, size).fill(value))

    def memcpyAsync(self, to: int, address: int, size: int, kind: int, stream: int) -> None:
        def copied() -> None:
            bytes_at(to, size)[...] = bytes_at(address, size)

        Stream.all[stream].put(copied)

    def eventRecord(self, event: int, stream: int) -> None:
        Event.all[event].record(Stream.all[stream])

    def streamIsCapturing(self, stream: int) -> bool:
        return Stream.all[stream].captured is not None

    def deviceSynchronize(self) -> None:
        for stream in reversed([*Stream.all.values()]):
            stream.synchronize()


def bytes_at(address: int, size: int) -> np.ndarray:
    interface = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}
    return np.asarray(SimpleNamespace(__array_interface__=interface))


class Rehearsed(CupyDevice):
    """A GPU of the stand-in: its kernels are those of this CPU, in the order of streams."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self.arch, self.number, self.name, self.facts = None, 0, "cuda:0", None
        self._of_thread, self._lock = threading.local(), threading.Lock()
        self._ledger = self._checked = None

    def load(self, source: Any, compiled: Any) -> Any:
        if any(launch.reports for launch in source.launches):
            self._reports()
        kernels = HostKernels(source)
        ready = kernels.ready

        def queued(*given: Any) -> Callable[..., None]:
            launch = ready(*given)
            return lambda addresses, stream: Stream.all[stream].put(lambda a=list(addresses): launch(a, stream))

        kernels.ready = queued
        kernels.stream = lambda: Stream.current().ptr
        return kernels


@contextmanager
def stand_in(at_once: bool) -> Iterator[Any]:
    """CuPy, for a while, with one device."""
    Stream.all, Stream.memory, Event.all, Stream.at_once = {}, [], {}, at_once
    Stream(ptr=0)

    def pinned(size: int) -> Memory:
        return np.full(size, 77, np.uint8).view(Memory)

    cuda = SimpleNamespace(runtime=Runtime(), Event=Event, Stream=Stream, get_current_stream=Stream.current, alloc_pinned_memory=pinned)
    yield SimpleNamespace(
        ndarray=Array,
        cuda=cuda,
        empty=empty,
        zeros=lambda shape, dtype: filled(shape, dtype, 0),
        ones=lambda shape, dtype: filled(shape, dtype, 1),
        arange=lambda count, dtype=np.int64: filled(count, dtype, np.arange(count, dtype=dtype)),
        asarray=lambda value: filled(value.shape, value.dtype, value),
        asnumpy=lambda array: array.get(),
        ascontiguousarray=lambda array: filled(array.shape, array.dtype, np.asarray(array)),
    )
