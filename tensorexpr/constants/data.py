"""The data of constants: read-only arrays, each kept once however many programs and compiled functions have it.

`shared` gives for equal contents one array; it is known here as long as someone else has it, so a pool of constants dies
with its last user.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref

import numpy as np

_known: weakref.WeakValueDictionary[object, np.ndarray] = weakref.WeakValueDictionary()
_lock = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def is_frozen(array: np.ndarray) -> bool:
    """Whether nobody can write to the array: it is read-only, so is every array that it is a view of, and the memory is NumPy's
    or that of a file (of other memory nobody knows who else has it)."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        owner = owner.base
    return owner is None or isinstance(owner, bytes | mmap.mmap)


def frozen(array: np.ndarray, dtype: np.dtype | None = None) -> np.ndarray:
    """The elements of an array in row-major order, read-only: the array itself where nobody can write to it, else a copy."""
    dtype = array.dtype if dtype is None else dtype
    if type(array) is np.ndarray and array.dtype == dtype and array.flags.c_contiguous and array.flags.aligned and is_frozen(array):
        return array
    data = np.array(array, dtype=dtype, order="C", copy=True, subok=False)
    data.flags.writeable = False
    return data


def shared(key: object, array: np.ndarray) -> np.ndarray:
    """The array that is known under a key (the digest of its contents, or of what it was computed from), else this one."""
    with _lock:
        return _known.setdefault(key, array)


def known(key: object) -> np.ndarray | None:
    """The array that is known under a key, or None."""
    return _known.get(key)
