"""What may be asked of CUDA while streams are captured into graphs.

A capture that PyTorch begins is one of mode "global": until it ends no thread may ask for an event or wait for one, or that capture fails,
whoever it belongs to. CUDA's way out is a thread that says for itself that it knows what it does (`cuThreadExchangeStreamCaptureMode`):
then all may be asked that has nothing to do with what is captured.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_RELAXED = 2
"""CU_STREAM_CAPTURE_MODE_RELAXED."""


class Captures:
    """The captures of streams, by the driver and by CuPy's runtime."""

    def __init__(self, driver: Any, runtime: Any) -> None:
        self._exchange, self._runtime = driver.cuThreadExchangeStreamCaptureMode, runtime

    def taking(self, stream: int) -> bool:
        """Whether the stream is captured into a graph."""
        # The default stream of old is never captured, and to ask it while another one is would end that capture.
        return stream > 1 and bool(self._runtime.streamIsCapturing(stream))

    @contextmanager
    def beside(self) -> Iterator[None]:
        """While it lasts this thread may ask for events and memory of its own, whoever captures what."""
        mode = ctypes.c_int(_RELAXED)
        self._exchange(ctypes.byref(mode))  # and has what it was
        try:
            yield
        finally:
            self._exchange(ctypes.byref(mode))
