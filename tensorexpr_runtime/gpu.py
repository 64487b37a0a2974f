"""Functions of a bundle on a GPU: the same entry points that C calls, on arrays in the memory of a device."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tensorexpr_runtime.cuda import driver, stream_of
from tensorexpr_runtime.device_array import DeviceArray, is_device_array, view
from tensorexpr_runtime.errors import ArgumentError, BundleError

_ALIGNMENT, _WORKSPACE_ALIGNMENT = 16, 256
_NO_CODE, _DRIVER = -1, -1000


class Gpus:
    """The code of a bundle for GPUs in this process: which devices it is loaded on, with a copy of the constants on each."""

    def __init__(self, folder: Path, table: Mapping[str, Any], library: ctypes.CDLL, constants: np.ndarray) -> None:
        self.folder = folder
        self.names: tuple[str, ...] = tuple(table["gpus"])
        self._load = getattr(library, f"{table['name']}_cuda_load")
        self._load.argtypes, self._load.restype = [], ctypes.c_int64
        self._data = constants
        self._ready: dict[int, DeviceArray] = {}
        self._lock = threading.Lock()

    def constants(self, device: int, stream: int) -> int:
        """Where the constants are on a device, which is current; the code is loaded there. Raises `BundleError` where it does not run."""
        with self._lock:
            found = self._ready.get(device)
            if found is None:
                status = self._load()
                if status:
                    raise self.failure(status, device)
                found = DeviceArray.copied(self._data.view(np.ndarray), device, stream)
                driver().call("cuStreamSynchronize", stream)
                self._ready[device] = found
        return found.address

    def failure(self, status: int, device: int) -> BundleError:
        """The error of a result below 0."""
        if status == _NO_CODE:
            names = ", ".join(self.names)
            return BundleError(f"{self.folder}: expected a GPU that the bundle has code for ({names}), got {driver().described(device)}")
        said = driver().words(_DRIVER - status) if status < _DRIVER else f"result {status}"
        return BundleError(f"{self.folder}: expected code and memory that the driver of CUDA takes, got: {said}")


class GpuEntry:
    """A function on a GPU: `run` checks nothing but where its arrays are, and how they lie there."""

    def __init__(self, name: str, table: Mapping[str, Any], library: ctypes.CDLL, gpus: Gpus) -> None:
        self.name, self.gpus = name, gpus
        self.checks: Sequence[Mapping[str, Any]] = table["gpu"]["checks"]
        self._entry = getattr(library, f"{table['symbol']}_cuda")
        self._entry.argtypes, self._entry.restype = [ctypes.c_void_p] * 6, ctypes.c_int64
        self._size = getattr(library, f"{table['symbol']}_cuda_workspace")
        self._size.argtypes, self._size.restype = [ctypes.c_void_p], ctypes.c_int64

    def place(self, rows: Sequence[Mapping[str, Any]], values: Sequence[Any], stream: Any) -> tuple[int, int, list[DeviceArray | None]]:
        """The device that values are on, the stream, and the values as arrays there; None for what is no array but a number.

        Raises `ArgumentError` for arrays elsewhere and for several devices.
        """
        number = stream_of(stream)
        arrays: list[DeviceArray | None] = []
        first: tuple[str, int] | None = None
        for row, value in zip(rows, values, strict=True):
            label = f"{self.name}: argument {row['path']}"
            if isinstance(value, bool | int | float) and not row["shape"]:
                arrays.append(None)
                continue
            if not is_device_array(value):
                raise ArgumentError(f"{label}: expected an array on a GPU, as the other ones are, got a {type(value).__name__}")
            try:
                array = view(value, number)
            except (ArgumentError, BufferError) as error:  # the latter from its library: a tensor that records gradients, say
                raise ArgumentError(f"{label}: {error}") from None
            if array.nbytes:
                if first is not None and first[1] != array.device:
                    raise ArgumentError(f"{label}: expected an array on cuda:{first[1]} as {first[0]}, got one on cuda:{array.device}")
                first = first or (str(row["path"]), array.device)
            arrays.append(array)
        return first[1] if first else 0, number, arrays

    def size(self, sizes: Any) -> int:
        """Bytes of workspace."""
        return int(self._size(sizes))

    def run(
        self, device: int, stream: int, inputs: Sequence[DeviceArray], results: Sequence[DeviceArray], sizes: Any, workspace: Any
    ) -> tuple[int, int, int]:
        """Launches; gives 0, or the check that failed plus 1, with index and extent. The device is current.

        Raises `BundleError` where the driver refuses.
        """
        aligned = [_aligned(array, stream) for array in inputs]
        direct = [r if r.address % _ALIGNMENT == 0 else DeviceArray.empty(r.shape, r.dtype, device, stream) for r in results]
        size = self._size(sizes)
        block = self._workspace(size, workspace, device, stream)
        pointers = (ctypes.c_void_p * (len(aligned) + len(direct)))(*(a.address for a in (*aligned, *direct)))
        error = (ctypes.c_int64 * 2)()
        start = 0 if block is None else -(-block.address // _WORKSPACE_ALIGNMENT) * _WORKSPACE_ALIGNMENT
        status = self._entry(self.gpus.constants(device, stream), pointers, sizes, start, error, stream)
        if status < 0:
            raise self.gpus.failure(status, device)
        for target, result in zip(results, direct, strict=True):
            if target is not result and not status:
                driver().call("cuMemcpyDtoDAsync_v2", target.address, result.address, result.nbytes, stream)
        return status, error[0], error[1]

    def _workspace(self, size: int, given: Any, device: int, stream: int) -> DeviceArray | None:
        if given is None:
            return DeviceArray.empty((size,), np.dtype(np.uint8), device, stream) if size else None
        block = view(given, stream) if is_device_array(given) else None
        if block is None or block.nbytes < size + -block.address % _WORKSPACE_ALIGNMENT:
            got = f"a {type(given).__name__}" if block is None else f"{block.nbytes} bytes"
            raise ArgumentError(
                f"{self.name}: workspace: expected {size} bytes on the GPU at a multiple of {_WORKSPACE_ALIGNMENT}, got {got}"
            )
        return block


def _aligned(array: DeviceArray, stream: int) -> DeviceArray:
    """The array, or a copy that begins where wide accesses may."""
    if array.address % _ALIGNMENT == 0:
        return array
    made = DeviceArray.empty(array.shape, array.dtype, array.device, stream)
    if array.nbytes:
        driver().call("cuMemcpyDtoDAsync_v2", made.address, array.address, array.nbytes, stream)
    return made
