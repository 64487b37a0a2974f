"""The files of a bundle, each checked before it is used."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from tensorexpr_runtime.errors import BundleError

FILE, FORMAT, VERSION = "bundle.json", "tensorexpr bundle", 2
_START, _END = b'{"sha256": "', b'",\n'


def read_table(folder: Path) -> dict[str, Any]:
    """The table of a bundle. Raises `BundleError` where there is none, or any of its bytes is not as it was written."""
    try:
        data = (folder / FILE).read_bytes()
    except OSError as error:
        raise BundleError(f"{folder}: expected a bundle, got no {FILE} that can be read: {error.strerror}") from None
    line_end = len(_START) + 64 + len(_END)
    if not data.startswith(_START):
        raise BundleError(f"{folder / FILE}: expected the table of a bundle, got another file")
    body = data[line_end:]
    if data[:line_end] != _START + hashlib.sha256(body).hexdigest().encode() + _END:
        raise BundleError(f"{folder / FILE}: expected the contents that were written, got others: the file is damaged or cut off")
    table: dict[str, Any] = json.loads(data)
    if table.get("format") != FORMAT or table.get("version") != VERSION:
        found = f"{table.get('format')!r}, version {table.get('version')!r}"
        raise BundleError(f"{folder / FILE}: expected {FORMAT!r}, version {VERSION}, got {found}: made by {table.get('made_by')}")
    return table


def check_file(folder: Path, name: str, said: dict[str, Any]) -> None:
    """Raises `BundleError` where a file has not the contents that the table says."""
    path, digest, size = folder / name, hashlib.sha256(), 0
    if Path(name).name != name:
        raise BundleError(f"{folder}: expected files in the folder, got {name!r}")
    try:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
                size += len(block)
    except OSError as error:
        raise BundleError(f"{path}: expected a file of {said['bytes']} bytes, got none that can be read: {error.strerror}") from None
    if size != said["bytes"]:
        raise BundleError(f"{path}: expected {said['bytes']} bytes, got {size}")
    if digest.hexdigest() != said["sha256"]:
        raise BundleError(f"{path}: expected the contents that were written, got others: the file is damaged")


def mapped(path: Path, offset: int) -> np.ndarray:
    """The bytes of a file from an offset on, mapped read-only: processes that have the file share the memory."""
    size = path.stat().st_size - offset
    if size <= 0:
        return np.empty(0, np.uint8)
    return np.memmap(path, np.uint8, "r", offset, (size,))


def array_type(name: str) -> np.dtype:
    """The NumPy type of an element type; bfloat16 is that of ml_dtypes. Raises `BundleError` where that is not installed."""
    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes  # noqa: PLC0415 -- only where it is needed
    except ImportError:
        raise BundleError("bfloat16: expected the package ml_dtypes, which NumPy takes it from, got none installed") from None
    return np.dtype(ml_dtypes.bfloat16)
