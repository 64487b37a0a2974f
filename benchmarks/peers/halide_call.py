"""Calls of Halide's compiled pipelines through `ctypes`, on buffers described as its runtime wants them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np


class _Dimension(ctypes.Structure):
    _fields_ = (("min", ctypes.c_int32), ("extent", ctypes.c_int32), ("stride", ctypes.c_int32), ("flags", ctypes.c_uint32))


class _Buffer(ctypes.Structure):
    """`halide_buffer_t`."""

    _fields_ = (
        ("device", ctypes.c_uint64), ("device_interface", ctypes.c_void_p), ("host", ctypes.c_void_p), ("flags", ctypes.c_uint64),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("dimensions", ctypes.c_int32),
        ("dim", ctypes.POINTER(_Dimension)), ("padding", ctypes.c_void_p),
    )  # fmt: skip


def _buffer(array: np.ndarray) -> _Buffer:
    """A view of a C-contiguous float32 array; the caller keeps the array."""
    steps = [stride // array.itemsize for stride in array.strides]
    dimensions = (_Dimension * max(array.ndim, 1))(
        *(_Dimension(0, extent, step, 0) for extent, step in zip(reversed(array.shape), reversed(steps), strict=True))
    )
    return _Buffer(0, None, array.ctypes.data, 0, 2, 32, 1, array.ndim, dimensions, None)  # 2: floating


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)
def _said(context: int, text: bytes) -> None:
    """In place of Halide's own handler of errors, which ends the process."""
    del context
    _errors.append(text.decode(errors="replace").strip())


_errors: list[str] = []


def caller(path: Path, given: Sequence[np.ndarray], results: Sequence[Sequence[int]]) -> Callable[[], Any]:
    """A call of a library's kernel on arrays, which gives new arrays of the shapes `results`, or the only one."""
    library = ctypes.CDLL(str(path))
    library.halide_set_error_handler(_said)
    kernel = library.kernel
    inputs = [ctypes.byref(_buffer(array)) for array in given]

    def call(held: Sequence[np.ndarray] = given) -> Any:  # buffers point into arrays that must stay alive
        del held
        made = [np.empty(shape, np.float32) for shape in results]
        _errors.clear()
        status = kernel(*inputs, *(ctypes.byref(_buffer(array)) for array in made))
        if status != 0:
            raise RuntimeError(f"expected status 0 of the pipeline, got {status}: {'; '.join(_errors)}")
        return tuple(made) if len(made) > 1 else made[0]

    return call
