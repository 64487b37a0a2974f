"""A stand-in for CuPy whose streams are queues: work waits until someone waits for it, or for nothing at all.

What CUDA promises is all that it keeps. Streams that do not block have nothing to do with each other nor with the default stream, so what
one of them was given may be done long before, or long behind, what another one was given earlier. A capture takes the work of its stream,
and the device may not be waited for while it lasts; nor may streams, events and memory, where it is one of mode "global" and the thread has
not said that it knows that. New memory holds what no test expects, and nobody may write to memory that was given back."""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from tensorexpr.codegen.cuda.host import HostKernels
from tensorexpr.codegen.cuda.host.device import HostDevice
from tensorexpr.codegen.cuda.launch.captures import Captures
from tensorexpr.codegen.cuda.launch.device import CupyDevice
from tensorexpr.codegen.cuda.launch.lifetimes import Kept

Work = Callable[[], None]


class Stream:
    """What was given to it and is not done yet, or captured."""

    all: dict[int, Stream]
    given_back: list[np.ndarray]
    """Memory that nobody holds any more. CuPy takes it back in the order of its stream, behind the work that was given before."""
    at_once = False
    """Whether work is done as it comes."""
    _of_thread = threading.local()

    def __init__(self, non_blocking: bool = False, ptr: int | None = None) -> None:
        assert non_blocking or ptr == 0, "streams that block are not played"
        self.ptr = 16 * len(Stream.all) if ptr is None else ptr
        self.queue: list[Work] = []
        self.captured: list[Work] | None = None
        self.mode = Runtime.streamCaptureModeRelaxed
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
            self.run()

    def run(self) -> None:
        while self.queue:
            self.queue.pop(0)()

    def synchronize(self) -> None:
        assert self.captured is None, "a stream that is captured cannot be waited for"
        no_capture_of_all()
        self.run()

    def begin_capture(self, mode: int | None = None) -> None:
        assert self.ptr, "the default stream cannot be captured"
        self.captured, self.mode = [], Runtime.streamCaptureModeRelaxed if mode is None else mode

    def end_capture(self) -> SimpleNamespace:
        work, self.captured = self.captured, None
        assert work is not None
        return SimpleNamespace(launch=lambda stream: [stream.put(one) for one in work])


_relaxed = threading.local()


def no_capture(mode: int | None = None) -> None:
    captured = [stream for stream in Stream.all.values() if stream.captured is not None and mode in (None, stream.mode)]
    assert not captured, "a capture ends by this"


def no_capture_of_all() -> None:
    """Nothing of what threads may not ask for while a stream is captured for all of them."""
    if getattr(_relaxed, "mode", Runtime.streamCaptureModeGlobal) != Runtime.streamCaptureModeRelaxed:
        no_capture(Runtime.streamCaptureModeGlobal)


class Driver:
    """What is asked of the driver itself."""

    def cuThreadExchangeStreamCaptureMode(self, place: Any) -> int:
        mode = ctypes.cast(place, ctypes.POINTER(ctypes.c_int))
        before, _relaxed.mode = getattr(_relaxed, "mode", Runtime.streamCaptureModeGlobal), mode[0]
        mode[0] = before
        return 0


class Memory(np.ndarray):
    """Bytes of the device."""

    device_id = 0
    ptr = property(lambda self: self.ctypes.data)


class Array(np.ndarray):
    """An array whose elements the current stream writes, and which the host reads by `get`."""

    given: object = None
    """Who holds the memory, where another library does."""
    data: Any = property(lambda self: bytes_at(self.ctypes.data, self.nbytes, self).view(Memory))

    def get(self) -> np.ndarray:
        Stream.current().synchronize()
        return np.array(self)

    def __setitem__(self, place: Any, value: Any) -> None:
        Stream.current().put(lambda: np.ndarray.__setitem__(self, place, value))

    def fill(self, value: Any) -> None:
        Stream.current().put(lambda: np.ndarray.fill(self, value))

    def __iadd__(self, value: float) -> Array:
        Stream.current().put(lambda: np.add(np.asarray(self), value, out=np.asarray(self)))
        return self

    def __matmul__(self, other: Array) -> Array:
        return self

    def __mul__(self, number: float) -> Array:
        return self

    def __dlpack__(self, **options: Any) -> Any:
        return "capsule"


class Owner:
    """Who holds memory: all views of it are of him."""

    def __init__(self, memory: np.ndarray) -> None:
        self.__array_interface__ = memory.__array_interface__


def empty(shape: Any, dtype: Any = np.float32) -> Array:
    no_capture_of_all()
    shape = shape if isinstance(shape, tuple) else tuple(np.atleast_1d(shape))
    memory = HostDevice().empty((int(np.prod(shape)) * np.dtype(dtype).itemsize,), np.dtype(np.uint8))
    memory[...] = 77
    owner, stream = Owner(memory), Stream.current()
    weakref.finalize(owner, give_back, memory, stream)
    return np.asarray(owner).view(dtype).reshape(shape).view(Array)


def give_back(memory: np.ndarray, stream: Stream) -> None:
    def work() -> None:
        memory[...] = 99
        Stream.given_back.append(memory)

    stream.queue.append(work)


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
        no_capture_of_all()
        return self.passed

    def record(self, stream: Stream) -> None:
        assert stream.captured is None, "an event of a graph says nothing outside of it"
        self.stream, self.passed = stream, False
        stream.put(lambda: setattr(self, "passed", True))

    def synchronize(self) -> None:
        no_capture_of_all()
        while not self.passed:
            self.stream.queue.pop(0)()


class Runtime:
    """CUDA's runtime."""

    memcpyDeviceToHost = 2
    streamCaptureModeGlobal, streamCaptureModeThreadLocal, streamCaptureModeRelaxed = range(3)

    def getDevice(self) -> int:
        return 0

    def getDeviceCount(self) -> int:
        return 1

    def setDevice(self, number: int) -> None:
        assert number == 0

    def free(self, address: int) -> None:
        assert address == 0
        no_capture_of_all()

    def memsetAsync(self, address: int, value: int, size: int, stream: int) -> None:
        Stream.all[stream].put(lambda: bytes_at(address, size).fill(value))

    def memcpyAsync(self, to: int, address: int, size: int, kind: int, stream: int) -> None:
        def copied() -> None:
            bytes_at(to, size)[...] = bytes_at(address, size)

        Stream.all[stream].put(copied)

    def eventRecord(self, event: int, stream: int) -> None:
        Event.all[event].record(Stream.all[stream])

    def streamWaitEvent(self, stream: int, event: int) -> None:
        Stream.all[stream].put(Event.all[event].synchronize)

    def streamIsCapturing(self, stream: int) -> bool:
        return Stream.all[stream].captured is not None

    def deviceSynchronize(self) -> None:
        no_capture()
        for stream in reversed([*Stream.all.values()]):
            stream.synchronize()


def bytes_at(address: int, size: int, of: object = None) -> np.ndarray:
    interface = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}
    return np.asarray(SimpleNamespace(__array_interface__=interface, of=of))


class Loaded:
    """Kernels in the order of streams, none of which has to run one when the code is unloaded."""

    def __init__(self, source: Any) -> None:
        self._kernels, self._loaded = HostKernels(source), [True]
        weakref.finalize(self, self._loaded.clear)

    def ready(self, *given: Any) -> Callable[..., None]:
        launch, loaded = self._kernels.ready(*given), self._loaded

        def run(addresses: list[int], stream: int) -> None:
            assert loaded, "the code of a kernel is unloaded before it has run"
            launch(addresses, stream)

        return lambda addresses, stream: Stream.all[stream].put(lambda a=list(addresses): run(a, stream))

    def stream(self) -> int:
        return Stream.current().ptr


class Tensor:
    """An array of another library, which works on a stream of its own: one that says so by DLPack's exchange, or says nothing."""

    stream: Stream

    def __init__(self, shape: Any, value: float, dtype: Any = np.float32) -> None:
        with self.stream:
            self.array = filled(shape, dtype, value)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def taken(self) -> Array:
        """What CuPy makes of it, once the current stream waits for that of the library."""
        event = Event(True)
        event.record(self.stream)
        Stream.current().put(event.synchronize)
        made = self.array.view(Array)
        made.given = self
        return made


def told(stream: Stream) -> type[Tensor]:
    """A library that says which stream it works on."""

    def work_stream(kind: int, number: int, place: int) -> int:
        ctypes.c_void_p.from_address(place).value = stream.ptr
        return 0

    function = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.c_void_p)(work_stream)
    table = (ctypes.c_void_p * 7)(1, 0, 0, 0, 0, 0, ctypes.cast(function, ctypes.c_void_p).value)
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(("PyCapsule_New", ctypes.pythonapi))
    name = b"dlpack_exchange_api"
    capsule = make(ctypes.addressof(table), name, None)
    return type("Told", (Tensor,), {"stream": stream, "__dlpack_c_exchange_api__": capsule, "held": (function, table, name)})


def silent(stream: Stream) -> type[Tensor]:
    """A library that does not."""
    return type("Silent", (Tensor,), {"stream": stream})


class Rehearsed(CupyDevice):
    """A GPU of the stand-in: its kernels are those of this CPU, in the order of streams."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self.arch, self.number, self.name, self.facts = None, 0, "cuda:0", None
        self._of_thread, self._lock = threading.local(), threading.Lock()
        self._captures = Captures(Driver(), cupy.cuda.runtime)
        self._ledger = self._checked = None
        self._kept = Kept(self._captures)

    def load(self, source: Any, compiled: Any) -> Any:
        if any(launch.reports for launch in source.launches):
            self._reports()
        return Loaded(source)


@contextmanager
def stand_in(at_once: bool) -> Iterator[Any]:
    """CuPy, for a while, with one device."""
    Stream.all, Stream.given_back, Event.all, Stream.at_once = {}, [], {}, at_once
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
        from_dlpack=lambda tensor: tensor.taken(),
        ascontiguousarray=lambda array: filled(array.shape, array.dtype, np.asarray(array)),
    )
    gc.collect()
    Runtime().deviceSynchronize()
    assert all((memory == 99).all() for memory in Stream.given_back), "someone wrote to memory that is no longer his"
