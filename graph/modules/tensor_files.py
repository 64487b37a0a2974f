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
import stat
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
_MOST_AXES = 32  # that every NumPy has


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
    """The arrays of a file by name, in the order of the file, and its texts. Raises `ArgumentError` for a file that is not whole.

    As the format has it, tensors lie side by side: they neither overlap nor leave bytes out. Reading takes the memory of the file and
    some thirty times that of its header, which is at most 100 MB long.
    """
    try:
        data = _contents(file)
    except MemoryError:
        raise _refused(file, "one that is larger than memory") from None
    length = int.from_bytes(data[:_LENGTH], "little")
    body = memoryview(data)[_LENGTH + length :]
    if len(data) < _LENGTH or length > min(len(data) - _LENGTH, _LONGEST_HEADER):
        raise _refused(file, f"{len(data)} bytes with a header of {length}")
    try:
        header = json.loads(data[_LENGTH : _LENGTH + length], object_pairs_hook=once)
        metadata = header.pop(_METADATA, {})
        spans = sorted((*_offsets(entry), name) for name, entry in header.items())
        tensors = {name: _entry(file, name, entry, body) for name, entry in header.items()}
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _refused(file, f"a header that does not read ({type(error).__name__}: {error})") from None
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise _refused(file, f"{_METADATA} that is not texts by name")
    end = 0
    for begin, stop, name in spans:
        if begin != end:
            raise _refused(file, f"{name} at bytes {begin} to {stop}, where the tensors before it end at {end}")
        end = stop
    if end != len(body):
        raise _refused(file, f"tensors of {end} bytes, and {len(body)} bytes for them")
    return tensors, metadata


def _contents(file: Path) -> bytes:
    """The bytes of a plain file: a pipe would be waited for, a device never ends."""
    if file.is_dir():
        raise _refused(file, "a folder")
    with open(os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb") as source:
        if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            raise _refused(file, "no plain file")
        return source.read()


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Raises `ValueError` where a name stands in it twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands there twice")
    return found


def _offsets(entry: Any) -> tuple[int, int]:
    begin, end = entry["data_offsets"]
    if type(begin) is not int or type(end) is not int:
        raise TypeError(f"bytes {begin!r} to {end!r}")
    return begin, end


def _entry(file: Path, name: str, entry: Any, body: memoryview) -> np.ndarray:
    if entry["dtype"] not in _NAMES:
        raise _refused(file, f"{name} of dtype {entry['dtype']}, which has no counterpart here")
    kind, shape = dtype(_NAMES[entry["dtype"]]), entry["shape"]
    begin, end = _offsets(entry)
    if not isinstance(shape, list) or len(shape) > _MOST_AXES or not all(type(extent) is int and extent >= 0 for extent in shape):
        raise _refused(file, f"{name} of shape {shape}")
    if not 0 <= begin <= end <= len(body) or end - begin != math.prod(shape) * kind.numpy.itemsize:
        raise _refused(file, f"{name} of shape {shape} at bytes {begin} to {end} of {len(body)}")
    found = np.frombuffer(body[begin:end], dtype=np.uint8 if kind.is_bool else kind.numpy)
    if kind.is_bool and found.size and found.max() > 1:
        raise _refused(file, f"{name} of dtype BOOL with a byte of {found.max()}")
    return found.view(kind.numpy).reshape(shape)


def _refused(file: Path, found: str) -> ArgumentError:
    return ArgumentError(f"{file.name}: expected a whole safetensors file, got {found}", location=user_location())
