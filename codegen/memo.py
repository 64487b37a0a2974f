"""Values made once per key and kept in memory: compiled code per program, compiled functions per signature of an op.

Threads that ask for a key while another makes its value wait for that one; different keys are made side by side, no lock
is held while a value is made. A failure is raised to its own caller, the next one tries again. Readers of finished values
take no lock. The oldest entries are dropped beyond a bound. After a fork the child starts with the finished values only:
whoever was making one stayed in the parent.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, Generic, TypeVar

from tensorexpr.errors import DefinitionError, user_location

Key = TypeVar("Key")
Value = TypeVar("Value")


class _Pending:
    """A value being made: who makes it, and an event that is set when it is finished or has failed."""

    __slots__ = ("done", "owner")

    def __init__(self) -> None:
        self.owner = threading.get_ident()
        self.done = threading.Event()


class Memo(Generic[Value]):
    """A bounded table from keys to values that are each made once."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._lock = threading.Lock()
        self._pending: dict[Hashable, _Pending] = {}
        self._values: dict[Hashable, Value] = {}
        self.find: Callable[[Hashable], Value | None] = self._values.get
        """The finished value of a key, or None; for paths that must be short."""
        _MEMOS.add(self)

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of `key`, made by `make` if there is none yet. What `make` raises passes through."""
        while True:
            found = self._values.get(key)
            if found is not None:
                return found
            with self._lock:
                pending = self._pending.get(key)
                mine = pending is None and key not in self._values
                if mine:
                    pending = self._pending[key] = _Pending()
            if mine:
                return self._make(key, make)
            if pending is not None:
                if pending.owner == threading.get_ident():
                    raise DefinitionError(
                        "expected a definition that ends, got an operation that calls itself with the same arguments",
                        location=user_location(),
                        hint="call it on smaller arrays, or write the recurrence as te.scan",
                    )
                pending.done.wait()

    def _make(self, key: Hashable, make: Callable[[], Value]) -> Value:
        try:
            value = make()
            with self._lock:
                while len(self._values) >= self._bound:
                    del self._values[next(iter(self._values))]
                self._values[key] = value
            return value
        finally:
            with self._lock:
                pending = self._pending.pop(key, None)
            if pending is not None:
                pending.done.set()

    def values(self) -> list[Value]:
        """The finished values, oldest first."""
        with self._lock:
            return list(self._values.values())

    def clear(self) -> None:
        """Forgets all finished values."""
        with self._lock:
            self._values.clear()

    def __len__(self) -> int:
        return len(self._values)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        self._pending.clear()


_MEMOS: weakref.WeakSet[Memo[Any]] = weakref.WeakSet()


def remembered(function: Callable[[Key], Value]) -> Callable[[Key], Value]:
    """The function, with its value for an object kept as long as the object is there. Requires: a value that is not None."""
    kept: weakref.WeakKeyDictionary[Key, Value] = weakref.WeakKeyDictionary()

    @wraps(function)
    def found(key: Key) -> Value:
        value = kept.get(key)
        if value is None:
            value = kept[key] = function(key)
        return value

    return found


def forget() -> None:
    """Forgets all finished values of all tables: for processes that compile much that never comes again."""
    for memo in list(_MEMOS):
        memo.clear()


def _reset_after_fork() -> None:
    for memo in list(_MEMOS):
        memo._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
