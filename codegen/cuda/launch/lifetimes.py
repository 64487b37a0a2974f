"""What streams may still work on when Python lets go of it: code and constants of functions, and arrays of other libraries.

CuPy's pool gives memory out again in the order of the stream on which it was asked for: that of the one call that uses a workspace or a
result. Constants and code are used on every stream on which a function was launched. They are kept when a function is collected, until all
those streams have come past its calls, and for good where a graph has its kernels. Nothing is waited for.

Another library has streams of its own, on which it writes to an array, or gives its memory out again, after a call. Where it says which
one, by DLPack's exchange or the array interface, that stream is told to wait for the call. Where it does not, the array is kept until the
call is done, and one that was written to is waited for.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tensorexpr.codegen.cuda.launch.captures import Captures

MOST_STREAMS = 16
"""Streams that a function remembers; of those before it has events."""
_OF_THREAD = 2
"""CUDA's handle for the default stream of each thread, another one in every thread."""
_EXCHANGE, _VERSION, _WORK_STREAM = b"dlpack_exchange_api", 1, 6
"""DLPack's table of the exchange, its major version, and the place of `current_work_stream` in words of eight bytes."""
_CUDA = 2
"""kDLCUDA."""


class Uses:
    """The streams that something was used on, and whether it stays for good: graphs run later, and a stream that is gone tells nothing."""

    def __init__(self, cupy: Any, captures: Captures) -> None:
        self._cuda, self._captures = cupy.cuda, captures
        self._streams: dict[int, Any] = {}
        self._events: list[Any] = []
        self._lock = threading.Lock()
        self.for_good = False

    def on(self, stream: int) -> None:
        """Behind what was launched on the current stream."""
        if self._captures.taking(stream):
            self.for_good = True
        elif stream not in self._streams:
            with self._lock:
                self._streams[stream] = self._cuda.get_current_stream()  # an object, so that the stream is there as long as it may be asked
                if len(self._streams) > MOST_STREAMS or stream == _OF_THREAD:
                    self._mark()

    def over(self) -> bool:
        """Whether all streams have come past the last use, behind which there is none."""
        with self._lock:
            self._mark()
            return not self._streams and not self._events

    def _mark(self) -> None:
        """Puts an event behind what each stream was given, but for those that are captured now, and forgets them and what is past."""
        for stream in list(self._streams):
            try:
                if not self._captures.taking(stream):
                    # Forgotten first: who finds the stream forgotten adds it again, who does not has launched before the event.
                    del self._streams[stream]
                    self._events.append(marked(self._cuda, self._captures, stream))
            except Exception:  # of the device: whoever made the stream has destroyed it
                self.for_good = True
        with self._captures.beside():
            self._events = [event for event in self._events if not event.done]


class Kept:
    """What is kept until its uses are over."""

    def __init__(self, captures: Captures) -> None:
        self._captures = captures
        self._waiting: deque[tuple[Uses, Any]] = deque()
        self._for_good: list[Any] = []

    def add(self, uses: Uses, held: Any) -> None:
        """Keeps `held`. The collector calls it, in whatever a thread is doing: the device is not asked for anything here."""
        self._waiting.append((uses, held))

    def sweep(self) -> None:
        """Lets go of what is over."""
        for _ in range(len(self._waiting)):
            try:
                uses, held = self._waiting.popleft()
            except IndexError:  # another thread has had it
                return
            if not uses.for_good and not uses.over() and not uses.for_good:
                self._waiting.append((uses, held))
            elif uses.for_good:
                self._for_good.append(held)
            with self._captures.beside():  # code is unloaded here
                del held


def marked(cuda: Any, captures: Captures, stream: int) -> Any:
    """An event behind all that a stream was given."""
    with captures.beside():
        event = cuda.Event(disable_timing=True)
    cuda.runtime.eventRecord(event.ptr, stream)
    return event


def followed(cuda: Any, captures: Captures, values: Sequence[Any], stream: int) -> list[Any]:
    """Has the libraries of arrays go on behind what a stream was given; those whose library does not say on which stream it works."""
    streams = [work_stream(value) for value in values]
    # The handles 0 and 1 are both the default stream's. A stream outside of a capture waits for none inside, and the other way round.
    taking = captures.taking(stream)
    others = {s for s in streams if s is not None and max(s, 1) != max(stream, 1) and captures.taking(s) == taking}
    if others:
        event = marked(cuda, captures, stream)
        for other in others:
            cuda.runtime.streamWaitEvent(other, event.ptr)
    return [value for value, s in zip(values, streams, strict=True) if s is None]


def work_stream(value: Any) -> int | None:
    """The stream on which the library of an array works now, in this thread; None where it does not say."""
    kind: Any = type(value)
    asks = _current_work_stream(kind)
    if asks is not None:
        found = ctypes.c_void_p()
        return None if asks(_CUDA, value.__dlpack_device__()[1], ctypes.addressof(found)) else found.value or 0
    if hasattr(value, "__dlpack_device__"):
        return None
    stream = value.__cuda_array_interface__.get("stream")
    return None if stream is None else int(stream)


@lru_cache(64)
def _current_work_stream(kind: Any) -> Any:
    """What a library has for that by DLPack's exchange."""
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    table = int(pointer(capsule, _EXCHANGE))
    if ctypes.c_uint32.from_address(table).value != _VERSION:
        return None
    address = ctypes.c_void_p.from_address(table + 8 * _WORK_STREAM).value
    return address and ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.c_void_p)(address)
