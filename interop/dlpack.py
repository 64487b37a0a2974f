"""DLPack without a library: a NumPy array on the memory of a producer, in every type of the language, read-only where that is.

NumPy's own `from_dlpack` knows no bfloat16 and, before 2.1, no read-only memory. A capsule is a C structure with pointer, shape,
strides (in elements), type and device, and a function to call when the memory is no longer looked at (DLPack 1.0, `dlpack.h`).
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np

from tensorexpr import dtypes
from tensorexpr.dtypes import DType
from tensorexpr.errors import DefinitionError

_READ_ONLY = 1
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}


class _Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_kind", ctypes.c_int32),
        ("device_number", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("type", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    """DLManagedTensor, of capsules called "dltensor"."""

    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned, of capsules called "dltensor_versioned"."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_PLAIN, _USED = (b"dltensor", b"dltensor_versioned"), (b"used_dltensor", b"used_dltensor_versioned")
_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_api = ctypes.pythonapi
_api.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", _api))


class _Memory:
    """Memory of a producer, as NumPy's array interface describes it."""

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


def read_dlpack(producer: Any) -> np.ndarray:
    """A NumPy array on the memory of an object with `__dlpack__` that lies on the CPU. The producer's memory lives as long as the array.

    Raises `DefinitionError` for a type that the language does not have; what the producer raises passes through.
    """
    try:
        capsule = producer.__dlpack__(max_version=(1, 0))
    except TypeError:  # from before version 1
        capsule = producer.__dlpack__()
    versioned = bool(_api.PyCapsule_IsValid(capsule, _PLAIN[1]))
    address = _get_pointer(capsule, _PLAIN[versioned])
    managed: Any = (_Versioned if versioned else _Managed).from_address(address)
    if versioned and managed.major != 1:
        raise DefinitionError(f"expected DLPack of version 1, got {managed.major}.{managed.minor}")
    tensor = managed.tensor
    kind = _type_of(tensor.type)
    shape = tuple(tensor.shape[k] for k in range(tensor.rank))
    strides = tuple(tensor.strides[k] * kind.itemsize for k in range(tensor.rank)) if tensor.strides else None
    # From here on the memory is ours to give back: who looks at the capsule sees that it was taken.
    _set_name(capsule, _USED[versioned])
    memory = _Memory(
        {
            "version": 3,
            "shape": shape,
            "strides": strides,
            "typestr": f"|V{kind.itemsize}",
            "data": ((tensor.data or 0) + tensor.offset, bool(versioned and managed.flags & _READ_ONLY)),
        }
    )
    if managed.deleter:
        weakref.finalize(memory, _DELETER(managed.deleter), address).atexit = False
    return np.asarray(memory).view(kind.numpy)


def _type_of(given: _Type) -> DType:
    """The element type of DLPack's description."""
    kind = _KINDS.get(given.code)
    name = {"bool": "bool", "bfloat": "bfloat16"}.get(kind or "", f"{kind}{given.bits}")
    if kind is None or given.lanes != 1 or name not in {one.name for one in dtypes.DTYPES}:
        text = f"DLPack's type {given.code} of {given.bits} bits" + (f" in groups of {given.lanes}" if given.lanes != 1 else "")
        raise DefinitionError(f"expected a dtype of the language, got {text}")
    return dtypes.dtype(name)
