"""Memory of a call beyond what stood there before it: the peak of resident pages, as the operating system counts them.

That sees every allocator, of any library. On Linux only (`peak` gives None elsewhere).
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def _trim() -> None:
    """Gives freed memory back to the operating system, where the C library can."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _status(name: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) << 10


def resident() -> int | None:
    """Resident bytes after garbage is gone."""
    if not _RESET.exists():
        return None
    _trim()
    return _status("VmRSS")


def peak(function: Callable[[], Any], before: int | None) -> int | None:
    """Bytes that stand there at the peak of a call beyond those `before`, its results included."""
    if before is None:
        return None
    _trim()
    _RESET.write_text("5")
    result = function()
    found = _status("VmHWM") - before
    del result
    return max(0, found)
