"""Less garbage collection while programs are derived and compiled.

Compilation makes millions of small objects, nearly all of which live to its end or go with their last reference. Python's collector
of cycles would look at all of them again and again, for a quarter of the time of long programs. Inside of `collecting_less` it begins only
after many more new objects than by default; where it is off it stays off.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_MANY = 1_000_000
"""New objects from which on those that are young are looked at."""

_lock = threading.Lock()
_inside = 0
_before: tuple[int, int, int] | None = None


@contextmanager
def collecting_less() -> Iterator[None]:
    """The collector of cycles looks at young objects less often, in all threads; as before when the last thread has left."""
    global _inside, _before
    with _lock:
        _inside += 1
        if _inside == 1:
            _before = gc.get_threshold()
            if 0 < _before[0] < _MANY:
                gc.set_threshold(_MANY, *_before[1:])
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0 and _before is not None and gc.get_threshold()[0] == _MANY:
                gc.set_threshold(*_before)
