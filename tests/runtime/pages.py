"""Arrays that end, or begin, at a page that must not be touched: a stray access ends the process with SIGSEGV."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

_PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class GuardedArray:
    """Memory for one array with a protected page on both sides; the array touches the one after it, or the one before."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, at_end: bool) -> None:
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        inner = max(1, -(-size // _PAGE)) * _PAGE
        self._memory = mmap.mmap(-1, inner + 2 * _PAGE)
        view = np.frombuffer(self._memory, np.uint8)
        start = view.ctypes.data
        for page in (start, start + _PAGE + inner):
            if _libc.mprotect(page, _PAGE, 0) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")
        first = _PAGE + (inner - size if at_end else 0)
        self.array = view[first : first + size].view(dtype).reshape(shape)


def guarded_copy(array: np.ndarray, at_end: bool) -> np.ndarray:
    """A contiguous copy of the array that ends (or begins) at a protected page."""
    copy = GuardedArray(array.shape, array.dtype, at_end).array
    copy[...] = array
    return copy
