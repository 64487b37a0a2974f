"""Memory of results for NumPy: the handler by which arrays give blocks back (see `memory_text`), and how much is kept.

TENSOREXPR_MEMORY_POOL is how many MiB of memory given back may be kept for the results to come: by default a sixteenth of the
machine's, at most 512 MiB; with 0 everything goes back to the system at once.

Arrays outlive everything else, up to the end of the process, and give back their memory then: machine code, handler and
capsule are never freed.
"""

from __future__ import annotations

import ctypes
import os

from tensorexpr.building.environment import number_of
from tensorexpr.codegen.llvm.process.jit import NativeModule

_VARIABLE = "TENSOREXPR_MEMORY_POOL"
_MOST, _SHARE = 512 << 20, 16
POOLED = 16 << 10
"""Bytes of a result, or of workspace, from which on it is a block of ours; smaller ones are left to NumPy."""


class _Handler(ctypes.Structure):
    """PyDataMem_Handler."""

    _fields_ = [
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    ]


class Memory:
    """The memory of this process; `capsule` is what arrays that own a block refer to."""

    def __init__(self) -> None:
        """`attach` makes it whole: the machine code is linked to the capsule first."""
        self._handler = _Handler(b"tensorexpr", 1)
        make = ctypes.pythonapi.PyCapsule_New
        make.argtypes, make.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p], ctypes.py_object
        self.capsule: object = make(ctypes.addressof(self._handler), b"mem_handler", None)

    def attach(self, module: NativeModule) -> None:
        """Fills the handler with the functions of a module, and keeps all of it forever."""
        for name in ("malloc", "calloc", "realloc", "free"):
            setattr(self._handler, name, module.address(f"te_memory_{name}"))
        self._set_bound = ctypes.CFUNCTYPE(None, ctypes.c_int64)(module.address("te_memory_bound"))
        self._kept = ctypes.CFUNCTYPE(ctypes.c_int64)(module.address("te_memory_kept"))
        self._reset = ctypes.CFUNCTYPE(None)(module.address("te_memory_reset"))
        self._module = module
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        module.keep_forever()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)
        self.bound(default_bound())

    def bound(self, size: int) -> None:
        """Keeps at most `size` bytes from now on."""
        self._set_bound(size)

    @property
    def kept(self) -> int:
        """Bytes that are kept now."""
        return int(self._kept())


def default_bound() -> int:
    """The bytes that may be kept. Raises `ArgumentError` where the environment does not name a number of MiB."""
    said = number_of(_VARIABLE, "a number of MiB")
    if said is not None:
        return said << 20
    try:
        return min(_MOST, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _SHARE)
    except (AttributeError, ValueError, OSError):
        return _MOST
