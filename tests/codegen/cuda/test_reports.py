"""Checks that do not stop the stream: their reports are read when a result is used, by a later call, or at synchronisation.

A stand-in for a GPU runs the kernels of this CPU as a stream does: what it is given happens when someone waits for it, or when it has come
so far. A graph is captured and replayed; what a captured stream may not be asked ends the test."""

from __future__ import annotations

import ctypes
import importlib
import threading
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.cuda.host import HostKernels
from tensorexpr.codegen.cuda.host.device import HostDevice
from tensorexpr.codegen.cuda.launch import device as devices
from tensorexpr.codegen.cuda.launch.captures import Captures
from tensorexpr.codegen.cuda.launch.device import Report, _ReadLater
from tensorexpr.codegen.cuda.launch.reports import WORDS, CupyPort, Ledger, Pending, checked_class
from tests.codegen.cuda.device import needs_compiler

pytestmark = needs_compiler
Work = Callable[[], None]


class Array(np.ndarray):
    """An array as CuPy's are: what it holds comes by `get`."""

    def get(self) -> np.ndarray:
        return np.array(self)

    def __dlpack__(self, **options: Any) -> Any:  # type: ignore[override]
        return "capsule"

    __cuda_array_interface__ = property(lambda self: {"version": 3})


class Stream(HostDevice):
    """A device whose kernels, copies and clears wait in a queue, and its port for reports."""

    def __init__(self, slots: int = 8) -> None:
        self.queue: list[Work] = []
        self.graph: list[Work] | None = None
        self.device, self.host = np.full((slots, WORDS), 77), np.full((slots, WORDS), 77)
        self.passed: set[int] = set()
        self.waits = 0
        self._kind = checked_class(Array)
        self.ledger = Ledger(self)

    # as a stream
    def put(self, work: Work) -> None:
        (self.queue if self.graph is None else self.graph).append(work)

    def run(self, count: int | None = None) -> None:
        """What the GPU does by itself while the host goes on."""
        for _ in range(len(self.queue) if count is None else count):
            self.queue.pop(0)()

    def begin_capture(self) -> None:
        self.graph = []

    def end_capture(self) -> Work:
        graph, self.graph = self.graph, None
        assert graph is not None
        return lambda: self.queue.extend(graph)

    # as a port
    def address(self, array: Any) -> int:
        return self.device.ctypes.data + 8 * WORDS * array if isinstance(array, int) else super().address(array)

    def clear(self, slot: int, stream: int) -> None:
        def work() -> None:
            self.device[slot] = 0

        self.put(work)

    def fetch(self, slot: int, stream: int) -> None:
        def work() -> None:
            self.host[slot] = self.device[slot]

        self.put(work)

    def mark(self, slot: int, stream: int) -> None:
        assert self.graph is None, "an event of a graph says nothing outside of it"
        self.passed.discard(slot)
        self.put(lambda: self.passed.add(slot))

    def done(self, slot: int) -> bool:
        assert self.graph is None, "to ask an event ends a capture"
        return slot in self.passed

    def wait(self, slot: int) -> None:
        assert self.graph is None, "nothing can be waited for in a capture"
        self.waits += 1
        while slot not in self.passed:
            self.run(1)

    def capturing(self, stream: int) -> bool:
        return self.graph is not None

    def finish(self) -> None:
        assert self.graph is None, "nothing can be waited for in a capture"
        self.waits += 1
        self.run()

    # as a device
    def array(self, value: object) -> Any:
        return value if isinstance(value, np.ndarray) else None

    def load(self, source: Any, compiled: Any) -> Any:
        kernels = HostKernels(source)
        ready = kernels.ready

        def queued(*given: Any) -> Callable[..., None]:
            launch = ready(*given)
            return lambda addresses, stream: self.put(lambda a=list(addresses): launch(a, stream))

        kernels.ready = queued  # type: ignore[method-assign, assignment]
        return kernels

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        assert self.graph is None, "there is no memory to be had in a capture"
        return super().empty(shape, dtype).view(Array)

    def report(self, stream: int) -> Report:
        return _ReadLater(self.ledger, stream)

    def poll(self, stream: int) -> None:
        self.ledger.poll(stream)

    def settle(self) -> None:
        self.ledger.settle()

    def checked(self, array: Any, pending: Pending) -> Any:
        made = array.view(self._kind)
        made.pending = pending
        return made


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    found = Stream()
    monkeypatch.setenv("TENSOREXPR_CUDA", "host")
    monkeypatch.setattr(devices, "_host", lambda: found)
    monkeypatch.setattr(devices, "_devices", {0: found})
    return found


def gather(name: str = "y") -> te.CompiledFunction:
    x, ids = te.placeholder((4,), name="x"), te.placeholder((3,), "int64", name="ids")
    return te.build(te.compute((3,), lambda i: x[ids[i]] * 2.0, name=name), [x, ids], target="cuda")


X, GOOD, BAD = np.arange(4, dtype=np.float32), np.array([3, 0, 1]), np.array([0, 9, 0])
MESSAGE = "expected an index of x from 0 to 3, got 9"


def test_a_call_waits_for_nothing_and_its_result_says_what_was_wrong(stream: Stream) -> None:
    f = gather()
    good, bad = f(X, GOOD), f(X, BAD)
    assert stream.waits == 0 and len(stream.queue) == 8 and isinstance(bad, Array)
    np.testing.assert_array_equal(good.get(), 2 * X[GOOD])
    assert stream.waits == 1  # for that call alone
    for use in (bad.get, bad.__dlpack__, lambda: bad.__cuda_array_interface__, bad[1:].get, bad.reshape(3, 1).get):
        with pytest.raises(te.OutOfBoundsError, match=MESSAGE) as caught:
            use()
        assert __file__ in str(caught.value)
    np.testing.assert_array_equal(good.get(), 2 * X[GOOD])
    te.synchronize()  # it has been said


def test_the_next_call_says_what_has_arrived_and_waits_for_nothing(stream: Stream) -> None:
    f, g = gather("y"), gather("z")
    f(X, BAD)
    g(X, GOOD)
    assert stream.waits == 0  # nothing has arrived yet
    stream.run()
    with pytest.raises(te.OutOfBoundsError, match=f"y: {MESSAGE}"):
        g(X, GOOD)
    assert stream.waits == 0 and not stream.queue  # nothing was launched
    np.testing.assert_array_equal(g(X, GOOD).get(), 2 * X[GOOD])


def test_functions_without_checks_say_it_too(stream: Stream) -> None:
    f = gather()
    x = te.placeholder((4,), name="x")
    plain = te.build(te.compute((4,), lambda i: x[i] + 1.0, name="plain"), [x], target="cuda")
    f(X, BAD)
    stream.run()
    with pytest.raises(te.OutOfBoundsError, match=MESSAGE):
        plain(X)
    assert type(plain(X)) is Array


def test_synchronize_waits_and_says_the_first(stream: Stream) -> None:
    f, g = gather("y"), gather("z")
    f(X, GOOD), g(X, BAD), f(X, BAD)
    with pytest.raises(te.OutOfBoundsError, match="z: expected"):
        te.synchronize()
    te.synchronize()


def test_what_a_caller_gave_to_compute_into(stream: Stream) -> None:
    f, out = gather(), stream.empty((3,), np.dtype(np.float32))
    assert f(X, BAD, out=out) is out
    with pytest.raises(te.OutOfBoundsError, match=MESSAGE):
        te.synchronize()


def test_more_calls_than_places_wait_for_the_oldest(stream: Stream) -> None:
    f = gather()
    results = [f(X, GOOD) for _ in range(20)]
    assert 0 < stream.waits <= 12
    for result in results:
        np.testing.assert_array_equal(result.get(), 2 * X[GOOD])
    f(X, BAD)
    with pytest.raises(te.OutOfBoundsError, match=MESSAGE):
        [f(X, GOOD) for _ in range(20)]


def test_from_many_threads(stream: Stream) -> None:
    f, found = gather(), []

    def work() -> None:
        for _ in range(3):
            found.append(f(X, GOOD))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    te.synchronize()
    assert len(found) == 12 and all((r.get() == 2 * X[GOOD]).all() for r in found)


def test_checked_kernels_stand_in_graphs(stream: Stream) -> None:
    f, ids = gather(), GOOD.copy()
    out, other = (stream.empty((3,), np.dtype(np.float32)) for _ in range(2))
    f(X, BAD)  # under way while the graph is captured
    stream.begin_capture()
    f(X, ids, out=out)
    f(X, ids, out=other)
    replay = stream.end_capture()
    with pytest.raises(te.OutOfBoundsError, match=MESSAGE):
        te.synchronize()
    replay()
    te.synchronize()
    np.testing.assert_array_equal(out, 2 * X[ids])
    ids[2] = 9
    replay()
    with pytest.raises(te.OutOfBoundsError, match=MESSAGE):
        te.synchronize()
    ids[2] = 1
    replay()
    stream.run()
    f(X, GOOD)  # says nothing: the second call of the graph is not the one that failed
    ids[2] = 9
    replay()
    stream.run()
    with pytest.raises(te.OutOfBoundsError, match=MESSAGE):
        f(X, GOOD)


def test_graphs_keep_their_places(stream: Stream) -> None:
    f, out = gather(), stream.empty((3,), np.dtype(np.float32))
    stream.begin_capture()
    for _ in range(8):
        f(X, GOOD, out=out)
    with pytest.raises(te.TargetError, match="expected at most 8 checked calls under way or captured into graphs, got one more"):
        f(X, GOOD, out=out)


def test_updates_are_made_behind_their_checks(stream: Stream) -> None:
    """A run that fails leaves what it would have updated as it was."""
    w, ids = te.placeholder((4,), name="w"), te.placeholder((4,), "int64", name="ids")
    new = te.compute((4,), lambda i: w[ids[i]] + 1.0, name="new")
    step = te.compile(new, [w, ids], target="cuda", mode="training", updates={w: new})
    weights = X.copy().view(Array)
    context = te.Context({"w": weights})
    with pytest.raises(te.OutOfBoundsError):
        step.run(context, ids=np.array([0, 1, 9, 3]))
    np.testing.assert_array_equal(weights, X)
    step.run(context, ids=np.array([1, 0, 3, 2]))
    np.testing.assert_array_equal(weights, X[[1, 0, 3, 2]] + 1)


def test_a_launch_that_fails_gives_its_place_back(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    f = gather()
    with monkeypatch.context() as broken:
        broken.setattr(f, "_launches", lambda layout: ([], lambda: [lambda addresses, stream: 1 // 0]))
        for _ in range(20):
            with pytest.raises(ZeroDivisionError):
                f(X, GOOD)
    np.testing.assert_array_equal(f(X, GOOD).get(), 2 * X[GOOD])


def test_what_nobody_asked_for_is_a_warning_at_the_end(stream: Stream) -> None:
    gather()(X, BAD)
    with pytest.warns(RuntimeWarning, match=f"nobody asked for the result of a check: y: {MESSAGE}"):
        stream.ledger.farewell()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stream.ledger.farewell()


class Runtime:
    """CUDA's runtime, as CuPy binds it, that notes what it is asked."""

    memcpyDeviceToHost = 2

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *given: self.asked.append((name, *given)) or 0


class Driver:
    """The driver's own word for how threads mind captures, noted among what the runtime is asked."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._mode = runtime, 0

    def cuThreadExchangeStreamCaptureMode(self, place: Any) -> int:
        mode = ctypes.cast(place, ctypes.POINTER(ctypes.c_int))
        self._runtime.asked.append(("mode", mode[0]))
        self._mode, mode[0] = mode[0], self._mode
        return 0


def test_the_words_of_cupy() -> None:
    """What is asked of CuPy's runtime, argument by argument (its binding of CUDA's functions)."""
    runtime, block = Runtime(), np.zeros((3, WORDS), np.int64)

    class Pinned(np.ndarray):
        ptr = 5000

    class Event:
        ptr, done = 7, False

        def __init__(self, disable_timing: bool) -> None:
            assert disable_timing

    pinned = lambda size: np.full(size, 1, np.uint8).view(Pinned)  # noqa: E731
    cuda = SimpleNamespace(alloc_pinned_memory=pinned, runtime=runtime, Event=Event)
    cupy = SimpleNamespace(cuda=cuda, empty=lambda shape, dtype: SimpleNamespace(data=SimpleNamespace(ptr=1000)))
    port = CupyPort(cupy, Captures(Driver(runtime), runtime), len(block))
    assert port.host.shape == block.shape and not port.host.any()
    port.clear(2, 9)
    port.fetch(2, 9)
    port.mark(2, 9)
    port.finish()
    assert not port.done(2) and not port.capturing(0) and not port.capturing(1) and not port.capturing(9)
    assert runtime.asked == [
        ("memsetAsync", 1064, 0, 24, 9), ("memcpyAsync", 5064, 1064, 24, 2, 9), ("eventRecord", 7, 9), ("deviceSynchronize",),
        ("mode", 2), ("mode", 0), ("streamIsCapturing", 9),
    ]  # fmt: skip


@pytest.mark.skipif(find_spec("cupy") is None, reason="CuPy is not installed")
def test_arrays_of_cupy_itself_ask_wherever_they_leave_the_gpu() -> None:
    """Arrays of memory that CuPy does not look into, so that no driver is needed."""
    cupy = importlib.import_module("cupy")
    memory = np.arange(6, dtype=np.float32)
    place = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(memory.ctypes.data, memory.nbytes, memory, 0), 0)
    ledger = Ledger(Stream())
    made = checked_class(cupy.ndarray)((2, 3), np.float32, place)
    made.pending = Pending(ledger, 0, lambda *numbers: IndexError(*numbers))
    made.pending.known, made.pending.error = True, IndexError("planted")
    assert isinstance(made, cupy.ndarray)
    one = made[0, 0]
    for use in (made.get, made.tolist, lambda: str(made), one.item, lambda: float(one), lambda: bool(one), made.T.get, made.__dlpack__,
                made.reshape(6).get, lambda: made.__cuda_array_interface__, lambda: cupy.asnumpy(made[1:])):  # fmt: skip
        with pytest.raises(IndexError, match="planted"):
            use()
