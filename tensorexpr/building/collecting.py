"""Less garbage collection while programs are derived and compiled.

Compilation makes millions of small objects, nearly all of which live to its end or go with their last reference. Python's collector
of cycles would look at all of them again and again, for a quarter of the time of long programs. Inside of `collecting_less` it begins only
after many more new objects than by default; where it is off it stays off.

At the end, all that is new would be looked at once (0.7 s for ResNet-50 with its gradient). It becomes old instead, as by `gc.freeze`,
which takes no time; all is looked at when some millions of objects have become old in this way.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_MANY = 1_000_000
"""New objects from which on those that are young are looked at."""
_MOST_AGED = 2_000_000
"""Objects that became old unseen, from which on all are looked at."""

_lock = threading.Lock()
_inside = 0
_own = threading.local()
_before: tuple[int, int, int] | None = None
_aged = 0


@contextmanager
def collecting_less() -> Iterator[None]:
    """The collector of cycles looks at young objects less often, in all threads; as before when the last thread has left."""
    global _inside, _before
    with _lock:
        _inside += 1
        _own.depth = getattr(_own, "depth", 0) + 1
        if _inside == 1:
            _before = gc.get_threshold()
            if 0 < _before[0] < _MANY:
                gc.set_threshold(_MANY, *_before[1:])
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            _own.depth -= 1
            all_is_looked_at = _left()
        if all_is_looked_at:  # not under the lock: finalizers run, and a process that is forked meanwhile would find it taken
            gc.collect()


def _left() -> bool:
    """What the last thread does that leaves; whether all is to be looked at now."""
    if _inside or _before is None or gc.get_threshold()[0] != _MANY:
        return False
    found = _age(_before[0])
    gc.set_threshold(*_before)
    return found


def _in_child() -> None:
    """A process that was forked has one thread: what others were inside of has ended, and none of them holds the lock."""
    global _lock, _inside
    _lock, _inside = threading.Lock(), getattr(_own, "depth", 0)
    _left()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def _age(threshold: int) -> bool:
    """Makes old what is young, where the collector would look at it now; whether so much became old that all is to be looked at."""
    global _aged
    young = gc.get_count()[0]
    if young <= threshold or not gc.isenabled() or gc.get_freeze_count():  # what a user froze stays so
        return False
    _aged += young
    if _aged > _MOST_AGED:
        _aged = 0
        return True
    gc.freeze()
    gc.unfreeze()
    return False
