"""What checked kernels report, read without stopping the stream.

A kernel notes the first index that left its tensor in 24 bytes of the device: the number of the check plus 1 (0: none), the index, the
extent. Behind the kernels of a call these are copied to memory of the host, an event is recorded, and the call returns. They are read

- when a result leaves the GPU (`checked_class`): that call alone is waited for;
- by the next call of any function on the device, as far as they have come: nothing is waited for;
- by `te.synchronize()`, which waits for all;
- when the process ends, where an error that nobody asked for becomes a warning.

An error is raised once by whoever asks first, and again by every use of the results it spoils. While a stream is captured into a graph
nothing is asked in its calls: such a call has its place in memory for good, each replay of the graph writes to it, and it is read whenever
others are. What is asked in calls on other streams meanwhile does not disturb the capture (`captures`).
"""

from __future__ import annotations

import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from tensorexpr.codegen.cuda.launch.captures import Captures
from tensorexpr.errors import TargetError

SLOTS = 256
"""Calls whose reports may be under way at once; those captured into graphs have theirs for good."""
WORDS = 4
"""Of eight bytes in a slot, one of which keeps slots apart from each other's lines."""
BYTES = 24
_COPY = 1e-3
"""Seconds in which a copy of a report that has begun to arrive is there."""
Say = Callable[[int, int, int], Exception]
"""Makes the error of a check, an index and an extent."""


class Port(Protocol):
    """Memory for reports on a device and on the host, and the device's streams."""

    host: np.ndarray
    """What has arrived: a row of `WORDS` for each slot."""

    def address(self, slot: int) -> int:
        """Where the report of a slot is on the device."""
        ...

    def clear(self, slot: int, stream: int) -> None:
        """Sets a report to zeros, in the order of the stream."""

    def fetch(self, slot: int, stream: int) -> None:
        """Copies a report to the host, in the order of the stream."""

    def mark(self, slot: int, stream: int) -> None:
        """Records the event of a slot."""

    def done(self, slot: int) -> bool:
        """Whether the stream has come to the event."""
        ...

    def wait(self, slot: int) -> None:
        """Waits for the event."""

    def capturing(self, stream: int) -> bool:
        """Whether the stream is captured into a graph."""
        ...

    def finish(self) -> None:
        """Waits for all that the device has been given."""


class Pending:
    """The report of one call, which may be under way. `error` is what it said, once it is known."""

    __slots__ = ("_ledger", "error", "known", "say", "slot")

    def __init__(self, ledger: Ledger, slot: int, say: Say) -> None:
        self._ledger, self.slot, self.say = ledger, slot, say
        self.known = False
        self.error: Exception | None = None

    def settle(self) -> None:
        """Waits for the call and raises its error, each time."""
        if not self.known:
            self._ledger.settle(self)
        if self.error is not None:
            raise self.error


class Ledger:
    """The reports of a device that are under way, oldest first."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._lock = threading.RLock()
        self._free = deque(range(len(port.host)))
        self._under_way: deque[Pending] = deque()
        self._captured: list[Pending] = []

    def open(self, stream: int) -> int:
        """A slot whose report is zeros when the stream comes to what is launched next."""
        with self._lock:
            if not self._free:
                if not self._under_way or self._port.capturing(stream):
                    raise TargetError(
                        f"expected at most {len(self._port.host)} checked calls under way or captured into graphs, got one more",
                        hint="te.synchronize() before a capture; calls in graphs have their place for good",
                    )
                self._port.wait(self._under_way[0].slot)
                self.poll()
            slot = self._free.popleft()
        self._port.clear(slot, stream)
        return slot

    def address(self, slot: int) -> int:
        """Where kernels report."""
        return self._port.address(slot)

    def close(self, slot: int, stream: int, say: Say) -> Pending:
        """Sends a report on its way to the host, behind all that was launched on the stream."""
        captured = self._port.capturing(stream)
        if captured:
            self._port.host[slot] = 0
        self._port.fetch(slot, stream)
        found = Pending(self, slot, say)
        with self._lock:
            if captured:
                found.known = True  # of the capture itself, which runs nothing
                self._captured.append(found)
            else:
                self._port.mark(slot, stream)
                self._under_way.append(found)
        return found

    def drop(self, slot: int) -> None:
        """Gives a slot back whose call failed to be launched, once all before it is done."""
        with self._lock, suppress(Exception):  # of the device: what failed is said already
            self._port.finish()
            self._free.append(slot)

    def poll(self, stream: int | None = None) -> None:
        """Raises the first error that has arrived; waits for nothing, and asks nothing while the stream is captured."""
        if not self._under_way and not self._captured:
            return
        if stream is not None and self._port.capturing(stream):
            return
        with self._lock:
            while self._under_way and self._port.done(self._under_way[0].slot):
                self._raise(self._read(self._under_way.popleft()))
            self._raise(self._of_graphs())

    def settle(self, pending: Pending | None = None) -> None:
        """Waits for one call, or for all that the device has been given, and raises the first error of the latter."""
        if pending is not None:
            with self._lock:
                if not pending.known:
                    self._port.wait(pending.slot)
                    self._under_way.remove(pending)
                    self._read(pending)
            return
        self._port.finish()
        with self._lock:
            errors = list(self.errors())
        self._raise(next(iter(errors), None))

    def errors(self) -> Iterator[Exception]:
        """What is found of all calls, whose streams have come to an end."""
        while self._under_way:
            error = self._read(self._under_way.popleft())
            if error is not None:
                yield error
        error = self._of_graphs()
        if error is not None:
            yield error

    def farewell(self) -> None:
        """What nobody asked for, when the process ends."""
        try:
            self._port.finish()
            left = list(self.errors())
        except Exception:  # the device may be gone by then
            return
        for error in left:
            warnings.warn(f"nobody asked for the result of a check: {error}", RuntimeWarning, stacklevel=1)

    def _read(self, pending: Pending) -> Exception | None:
        """The error of a call that is done, whose slot is free from now on."""
        check, index, extent = (int(n) for n in self._port.host[pending.slot, :3])
        pending.known = True
        pending.error = pending.say(check - 1, index, extent) if check else None
        self._free.append(pending.slot)
        return pending.error

    def _of_graphs(self) -> Exception | None:
        """The error of a replay of a graph, forgotten with that."""
        for captured in self._captured:
            if self._port.host[captured.slot, 0]:
                # The words behind the first may be under way. The device is not waited for: another stream may be captured now.
                time.sleep(_COPY)
                check, index, extent = (int(n) for n in self._port.host[captured.slot, :3])
                self._port.host[captured.slot] = 0
                return captured.say(check - 1, index, extent)
        return None

    @staticmethod
    def _raise(error: Exception | None) -> None:
        if error is not None:
            raise error


class CupyPort:
    """Memory and events by way of CuPy, on its current device."""

    def __init__(self, cupy: Any, captures: Captures, slots: int = SLOTS) -> None:
        self._runtime, self._event, self._captures = cupy.cuda.runtime, cupy.cuda.Event, captures
        self._device = cupy.empty((slots, WORDS), np.int64)
        self._pinned = cupy.cuda.alloc_pinned_memory(8 * slots * WORDS)
        self.host = np.frombuffer(self._pinned, np.int64, slots * WORDS).reshape(slots, WORDS)
        self.host[...] = 0
        self._events: list[Any] = [None] * slots

    def address(self, slot: int) -> int:
        return int(self._device.data.ptr) + 8 * WORDS * slot

    def clear(self, slot: int, stream: int) -> None:
        self._runtime.memsetAsync(self.address(slot), 0, BYTES, stream)

    def fetch(self, slot: int, stream: int) -> None:
        to = int(self._pinned.ptr) + 8 * WORDS * slot
        self._runtime.memcpyAsync(to, self.address(slot), BYTES, self._runtime.memcpyDeviceToHost, stream)

    def mark(self, slot: int, stream: int) -> None:
        event = self._events[slot]
        if event is None:
            event = self._events[slot] = self._event(disable_timing=True)
        self._runtime.eventRecord(event.ptr, stream)

    def done(self, slot: int) -> bool:
        with self._captures.beside():
            return bool(self._events[slot].done)

    def wait(self, slot: int) -> None:
        with self._captures.beside():
            self._events[slot].synchronize()

    def capturing(self, stream: int) -> bool:
        return self._captures.taking(stream)

    def finish(self) -> None:
        self._runtime.deviceSynchronize()


def checked_class(base: type) -> type:
    """Arrays of CuPy that ask for the check of the call that made them when what they hold leaves the GPU: copies to the host, DLPack and
    the array interface. Views ask too; what CuPy computes of them does not."""

    class Checked(base):  # type: ignore[misc]  # the class is known only where CuPy is
        pending: Pending | None = None

        def __array_finalize__(self, given: Any) -> None:
            self.pending = getattr(given, "pending", None)

        def get(self, *arguments: Any, **options: Any) -> Any:
            self.settle()
            return super().get(*arguments, **options)

        def __dlpack__(self, *arguments: Any, **options: Any) -> Any:
            self.settle()
            return super().__dlpack__(*arguments, **options)

        @property
        def __cuda_array_interface__(self) -> Any:
            self.settle()
            return super().__cuda_array_interface__

        def settle(self) -> None:
            """Waits for the call that made the array, and raises what its check found."""
            if self.pending is not None:
                self.pending.settle()

    Checked.__name__ = Checked.__qualname__ = base.__name__
    Checked.__module__ = base.__module__
    return Checked
