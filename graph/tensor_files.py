"""Tensors in a file: the safetensors format, in the thirteen dtypes of this package.

A file is eight bytes with the length of the header, the header (JSON: for each tensor dtype, shape and where its bytes begin and end;
texts under `__metadata__`), and the bytes in row-major order, little-endian as every machine that this package compiles for. Nothing in
it is code. A file is written beside its place and then moved there, so a reader sees the old file or the new one; one that does not hold
what its header says is refused.
"""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tensorexpr.dtypes import dtype
from tensorexpr.errors import ArgumentError, user_location

_NAMES = {
    "BOOL": "bool", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64", "U8": "uint8", "U16": "uint16", "U32": "uint32",
    "U64": "uint64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
}  # fmt: skip
_CODES = {name: code for code, name in _NAMES.items()}
_METADATA = "__metadata__"
_LENGTH = 8
_LONGEST_HEADER = 100_000_000
_ALIGNMENT = 8


def write_tensors(file: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Writes arrays of any layout under their names, and texts beside them; a file that was there is replaced at the end."""
    header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    end = 0
    # Wide elements first: then each tensor begins at a multiple of its element's size.
    order = sorted(tensors, key=lambda name: -tensors[name].dtype.itemsize)
    for name in order:
        array = tensors[name]
        header[name] = {
            "dtype": _CODES[dtype(array.dtype).name],
            "shape": list(array.shape),
            "data_offsets": [end, end + array.nbytes],
        }
        end += array.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    beside = file.with_name(f".{file.name}.{secrets.token_hex(6)}")
    try:
        with open(beside, "xb") as target:  # with the permissions of any new file, which tempfile would not give
            target.write(len(text).to_bytes(_LENGTH, "little") + text)
            for name in order:
                target.write(tensors[name].tobytes())
            target.flush()
            os.fsync(target.fileno())
        os.replace(beside, file)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def read_tensors(file: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays of a file by name, in the order of the file, and its texts. Raises `ArgumentError` for a file that is not whole."""
    data = file.read_bytes()
    length = int.from_bytes(data[:_LENGTH], "little")
    body = memoryview(data)[_LENGTH + length :]
    if len(data) < _LENGTH or length > min(len(data) - _LENGTH, _LONGEST_HEADER):
        raise _refused(file, f"{len(data)} bytes with a header of {length}")
    try:
        header = json.loads(data[_LENGTH : _LENGTH + length])
        metadata = header.pop(_METADATA, {})
        tensors = {name: _entry(file, name, entry, body) for name, entry in header.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _refused(file, f"a header that does not read ({type(error).__name__}: {error})") from None
    return tensors, metadata


def _entry(file: Path, name: str, entry: Any, body: memoryview) -> np.ndarray:
    if entry["dtype"] not in _NAMES:
        raise _refused(file, f"{name} of dtype {entry['dtype']}, which has no counterpart here")
    kind, shape = dtype(_NAMES[entry["dtype"]]), tuple(entry["shape"])
    begin, end = entry["data_offsets"]
    size = math.prod(shape) * kind.numpy.itemsize
    if not all(isinstance(extent, int) and extent >= 0 for extent in shape) or not 0 <= begin <= end <= len(body) or end - begin != size:
        raise _refused(file, f"{name} of shape {list(shape)} at bytes {begin} to {end} of {len(body)}")
    return np.frombuffer(body[begin:end], dtype=kind.numpy).reshape(shape)


def _refused(file: Path, found: str) -> ArgumentError:
    return ArgumentError(f"{file.name}: expected a whole safetensors file, got {found}", location=user_location())
