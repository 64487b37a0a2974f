"""Arrays in the memory of a GPU: results of bundles, and those of other libraries as they lie there.

Other libraries hand theirs over by DLPack (which also makes this side's stream wait for theirs), or by `__cuda_array_interface__`.
"""

from __future__ import annotations

import ctypes
import weakref
from math import prod
from typing import Any

import numpy as np

from tensorexpr_runtime.cuda import Driver, driver
from tensorexpr_runtime.errors import ArgumentError
from tensorexpr_runtime.files import array_type

_LEGACY = 1  # the legacy default stream, as DLPack and the array interface number it
_CUDA, _MANAGED = 2, 13  # kDLCUDA, kDLCUDAManaged
_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}


class DeviceArray:
    """An array on a GPU, row-major without gaps: `numpy()` copies it here, `__cuda_array_interface__` lets other libraries use it.

    Its memory stays as long as it does; work that still uses it has to be on the stream that it was made on.
    """

    def __init__(self, address: int, shape: tuple[int, ...], dtype: np.dtype, device: int, stream: int, owner: Any = None) -> None:
        self.address, self.shape, self.dtype = address, shape, dtype
        self.device, self.stream, self._owner = device, stream, owner

    @staticmethod
    def empty(shape: tuple[int, ...], dtype: np.dtype, device: int, stream: int) -> DeviceArray:
        """A new array with undefined contents; its device is current."""
        found = driver()
        address = found.allocated(prod(shape) * dtype.itemsize, stream)
        made = DeviceArray(address, shape, dtype, device, stream)
        weakref.finalize(made, _free, found, device, address, stream)
        return made

    @staticmethod
    def copied(array: np.ndarray, device: int, stream: int) -> DeviceArray:
        """A new array with the contents of one of NumPy's; its device is current."""
        packed = np.ascontiguousarray(array).reshape(array.shape)
        made = DeviceArray.empty(packed.shape, packed.dtype, device, stream)
        driver().call("cuMemcpyHtoDAsync_v2", made.address, packed.ctypes.data, packed.nbytes, stream)
        return made

    @property
    def nbytes(self) -> int:
        """The bytes of the elements."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        stream = self.stream or _LEGACY
        data = (self.address if self.nbytes else 0, False)
        return {"version": 3, "shape": self.shape, "typestr": self.dtype.str, "data": data, "strides": None, "stream": stream}

    def numpy(self) -> np.ndarray:
        """The contents, once what stands on the stream has run."""
        made, found = np.empty(self.shape, self.dtype), driver()
        with found.on(self.device):
            found.call("cuMemcpyDtoHAsync_v2", made.ctypes.data, self.address, self.nbytes, self.stream)
            found.call("cuStreamSynchronize", self.stream)
        return made

    def __repr__(self) -> str:
        return f"<{self.dtype.name}{list(self.shape)} on cuda:{self.device}>"


def _free(found: Driver, device: int, address: int, stream: int) -> None:
    with found.on(device):
        found.free(address, stream)


def on_gpu(array: Any, device: int = 0) -> DeviceArray:
    """A copy of an array of NumPy's on a GPU. Raises `BundleError` where there is none."""
    found = driver()
    if not isinstance(device, int) or isinstance(device, bool) or not 0 <= device < found.count:
        raise ArgumentError(f"on_gpu: expected the number of a GPU below {found.count}, got {device!r}")
    with found.on(device):
        return DeviceArray.copied(np.asarray(array), device, 0)


def is_device_array(value: Any) -> bool:
    """Whether a value is an array in the memory of a GPU."""
    if isinstance(value, np.ndarray):
        return False
    if isinstance(value, DeviceArray):
        return True
    if hasattr(value, "__dlpack_device__"):
        return int(value.__dlpack_device__()[0]) in (_CUDA, _MANAGED)
    return getattr(value, "__cuda_array_interface__", None) is not None


def view(value: Any, stream: int) -> DeviceArray:
    """An array on a GPU as it lies there, ready for work on a stream.

    Raises `ArgumentError` for one with gaps, or of a type that NumPy does not know.
    """
    if isinstance(value, DeviceArray):
        _after(value.device, value.stream, stream)
        return value
    if hasattr(value, "__dlpack__"):
        return _from_dlpack(value, stream)
    return _from_interface(value.__cuda_array_interface__, value, stream)


def _after(device: int, other: int | None, stream: int) -> None:
    """Lets what is put on a stream of a device wait for what another one has (None: nothing to wait for)."""
    if other is not None and (other or _LEGACY) != (stream or _LEGACY):
        with driver().on(device):
            driver().wait(stream, other)


def _from_interface(said: dict[str, Any], owner: Any, stream: int) -> DeviceArray:
    shape, dtype = tuple(said["shape"]), np.dtype(said["typestr"])
    _without_gaps(shape, said.get("strides"), dtype.itemsize)
    address = int(said["data"][0] or 0)
    device = driver().device_of(address) if prod(shape) else 0
    _after(device, said.get("stream"), stream)
    return DeviceArray(address, shape, dtype, device, stream, owner)


def _without_gaps(shape: tuple[int, ...], strides: Any, unit: int) -> None:
    """Refuses strides (in multiples of `unit` bytes where that is not 1) that leave gaps or another order than the rows'."""
    step = unit
    for extent, stride in zip(reversed(shape), reversed(strides or ()), strict=False):
        if extent > 1 and stride != step and prod(shape):
            raise ArgumentError(f"expected an array that is row-major without gaps, got shape {list(shape)} with strides {list(strides)}")
        step *= extent


class _Tensor(ctypes.Structure):
    """DLTensor of dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    """DLManagedTensor: a tensor, and how its memory is given back."""

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)))


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes, _capsule_pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p


def _from_dlpack(value: Any, stream: int) -> DeviceArray:
    # The capsule is not consumed: it owns its tensor, and the view keeps the capsule.
    capsule = value.__dlpack__(stream=stream or _LEGACY)
    tensor = _Managed.from_address(_capsule_pointer(capsule, b"dltensor")).tensor
    name = _CODES.get(tensor.code, "?") + ("" if tensor.code == 6 else str(tensor.bits))
    if tensor.lanes != 1 or "?" in name:
        raise ArgumentError(f"expected elements of a type that is known, got code {tensor.code} of {tensor.bits} bits in DLPack")
    shape = tuple(tensor.shape[k] for k in range(tensor.ndim))
    if tensor.strides:
        _without_gaps(shape, tuple(tensor.strides[k] for k in range(tensor.ndim)), 1)
    address = (tensor.data or 0) + tensor.byte_offset
    return DeviceArray(address, shape, array_type(name), tensor.device_id, stream, (value, capsule))
