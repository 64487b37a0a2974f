"""CUDA's driver by way of ctypes: devices, memory and streams, without CuPy and without a toolkit.

The library is the one that TENSOREXPR_CUDA_DRIVER names, else `libcuda.so.1`; it is loaded when a GPU is asked for first. Every device
is used by its primary context, which is what PyTorch, CuPy and JAX use, too.
"""

from __future__ import annotations

import ctypes
import os
import threading
from functools import cache
from typing import Any

from tensorexpr_runtime.errors import ArgumentError, BundleError

LIBRARY = "TENSOREXPR_CUDA_DRIVER"
_USUAL = "libcuda.so.1"
_MAJOR, _MINOR, _ORDINAL = 75, 76, 9  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_..., CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
_POINTER, _SIZE, _WORD = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint
_FUNCTIONS = {
    "cuInit": [_WORD],
    "cuDeviceGetCount": [_POINTER],
    "cuDeviceGetName": [_POINTER, ctypes.c_int, ctypes.c_int],
    "cuDeviceGetAttribute": [_POINTER, ctypes.c_int, ctypes.c_int],
    "cuDevicePrimaryCtxRetain": [_POINTER, ctypes.c_int],
    "cuCtxPushCurrent_v2": [_POINTER],
    "cuCtxPopCurrent_v2": [_POINTER],
    "cuMemAllocAsync": [_POINTER, _SIZE, _POINTER],
    "cuMemFreeAsync": [_POINTER, _POINTER],
    "cuMemcpyHtoDAsync_v2": [_POINTER, _POINTER, _SIZE, _POINTER],
    "cuMemcpyDtoHAsync_v2": [_POINTER, _POINTER, _SIZE, _POINTER],
    "cuMemcpyDtoDAsync_v2": [_POINTER, _POINTER, _SIZE, _POINTER],
    "cuPointerGetAttribute": [_POINTER, ctypes.c_int, _POINTER],
    "cuStreamSynchronize": [_POINTER],
    "cuEventCreate": [_POINTER, _WORD],
    "cuEventRecord": [_POINTER, _POINTER],
    "cuEventDestroy_v2": [_POINTER],
    "cuStreamWaitEvent": [_POINTER, _POINTER, _WORD],
    "cuGetErrorString": [ctypes.c_int, _POINTER],
}
_NO_TIMING = 2


class Driver:
    """The driver's functions, with what they refuse as errors."""

    def __init__(self, path: str) -> None:
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise BundleError(f"expected a GPU with its driver, got no library {path}: {error}") from None
        self._functions: dict[str, Any] = {}
        for name, types in _FUNCTIONS.items():
            try:
                function = getattr(self._library, name)
            except AttributeError:
                raise BundleError(f"expected a driver of CUDA 11.2 or later, got one without {name}: {path}") from None
            function.argtypes, function.restype = types, ctypes.c_int
            self._functions[name] = function
        self.call("cuInit", 0)
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        self.count = count.value
        if not self.count:
            raise BundleError("expected a GPU, got a driver that finds none")
        self._contexts: dict[int, int] = {}
        self._lock = threading.Lock()

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function of the driver. Raises `BundleError` with its words where it refuses."""
        status = self._functions[name](*arguments)
        if status:
            raise BundleError(f"CUDA refused {name}: {self.words(status)}")

    def words(self, status: int) -> str:
        """What the driver says of a result."""
        text = ctypes.c_char_p()
        self._functions["cuGetErrorString"](status, ctypes.byref(text))
        return (text.value or b"unknown").decode(errors="replace")

    def on(self, device: int) -> _Current:
        """The context of a device is current within."""
        context = self._contexts.get(device)
        if context is None:
            with self._lock:
                made = _POINTER()
                self.call("cuDevicePrimaryCtxRetain", ctypes.byref(made), device)
                context = self._contexts[device] = made.value or 0
        return _Current(self, context)

    def described(self, device: int) -> str:
        """A device in words: its name and its architecture."""
        name, major, minor = ctypes.create_string_buffer(256), ctypes.c_int(), ctypes.c_int()
        self.call("cuDeviceGetName", name, 256, device)
        self.call("cuDeviceGetAttribute", ctypes.byref(major), _MAJOR, device)
        self.call("cuDeviceGetAttribute", ctypes.byref(minor), _MINOR, device)
        return f"{name.value.decode(errors='replace')} (sm_{major.value}{minor.value})"

    def device_of(self, address: int) -> int:
        """The device that memory belongs to."""
        device = ctypes.c_int()
        self.call("cuPointerGetAttribute", ctypes.byref(device), _ORDINAL, address)
        return device.value

    def allocated(self, size: int, stream: int) -> int:
        """New memory of the current device, from its pool, in the order of a stream."""
        address = _POINTER()
        self.call("cuMemAllocAsync", ctypes.byref(address), max(1, size), stream)
        return address.value or 0

    def free(self, address: int, stream: int) -> None:
        """Gives memory back once what stands on the stream has run. Never raises: it may be said while the process ends."""
        if self._functions["cuMemFreeAsync"](address, stream):
            self._functions["cuMemFreeAsync"](address, 0)  # the stream may be gone

    def wait(self, stream: int, other: int) -> None:
        """What is put on `stream` from now on waits for what `other` has."""
        event = _POINTER()
        self.call("cuEventCreate", ctypes.byref(event), _NO_TIMING)
        try:
            self.call("cuEventRecord", event, other)
            self.call("cuStreamWaitEvent", stream, event, 0)
        finally:
            self.call("cuEventDestroy_v2", event)


class _Current:
    """A context that is current while this is entered."""

    __slots__ = ("_context", "_driver")

    def __init__(self, driver: Driver, context: int) -> None:
        self._driver, self._context = driver, context

    def __enter__(self) -> None:
        self._driver.call("cuCtxPushCurrent_v2", self._context)

    def __exit__(self, *_: object) -> None:
        self._driver.call("cuCtxPopCurrent_v2", ctypes.byref(_POINTER()))


@cache
def driver() -> Driver:
    """The driver of this machine, found once. Raises `BundleError` where there is none, or no GPU."""
    return Driver(os.environ.get(LIBRARY, "").strip() or _USUAL)


def stream_of(value: Any) -> int:
    """The driver's number of a stream: None (the legacy default stream), a number, or a stream of PyTorch, CuPy or `__cuda_stream__`.

    Raises `ArgumentError` for anything else.
    """
    if value is None:
        return 0
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    pair = getattr(value, "__cuda_stream__", None)
    if pair is not None:
        return int(pair()[1])
    for name in ("cuda_stream", "ptr"):
        if isinstance(getattr(value, name, None), int):
            return int(getattr(value, name))
    raise ArgumentError(f"stream: expected a stream of CUDA, got {value!r}")
