"""The files of a bundle, each checked before it is used."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tensorexpr_runtime.errors import BundleError
from tensorexpr_runtime.places import ForeignPlaceError, read_own

FILE, FORMAT, VERSION = "bundle.json", "tensorexpr bundle", 3
_START, _END = b'{"sha256": "', b'",\n'
_MARK = b"tensorexpr table sha256 "
_LARGEST = 256 << 20  # bytes of a table, of which it takes some twenty times as much memory

MALFORMED = (AttributeError, KeyError, IndexError, TypeError, ValueError, OverflowError, RecursionError)
"""What reading a table raises that is not as the compiler writes it."""


def read_table(folder: Path, trusted: bool) -> dict[str, Any]:
    """The table of a bundle. Raises `BundleError` where there is none, any of its bytes is not as it was written, or another user could
    have written the files that it names (which `trusted` leaves out)."""
    try:
        data = (folder / FILE).read_bytes() if trusted else read_own(folder / FILE, _LARGEST)
    except ForeignPlaceError as error:
        raise foreign(folder, error) from None
    except OSError as error:
        raise BundleError(f"{folder}: expected a bundle, got no {FILE} that can be read: {error.strerror}") from None
    line_end = len(_START) + 64 + len(_END)
    if not data.startswith(_START):
        raise BundleError(f"{folder / FILE}: expected the table of a bundle, got another file")
    body = data[line_end:]
    if data[:line_end] != _START + hashlib.sha256(body).hexdigest().encode() + _END:
        raise BundleError(f"{folder / FILE}: expected the contents that were written, got others: the file is damaged or cut off")
    try:
        table: dict[str, Any] = json.loads(data)
    except MALFORMED as error:
        raise malformed(folder, error) from None
    if table.get("format") != FORMAT or table.get("version") != VERSION:
        found = f"{table.get('format')!r}, version {table.get('version')!r}"
        raise BundleError(f"{folder / FILE}: expected {FORMAT!r}, version {VERSION}, got {found}: made by {table.get('made_by')}")
    return table


def foreign(folder: Path, error: ForeignPlaceError) -> BundleError:
    """The error of a place that another user can write to."""
    return BundleError(
        f"{folder}: expected a place that no other user can write to, as code is loaded from it, got {error.filename}: {error.strerror}; "
        "load(path, trusted=True) takes it all the same"
    )


def malformed(folder: Path, error: Exception) -> BundleError:
    """The error of a table that the compiler has not written so."""
    return BundleError(f"{folder / FILE}: expected a table as the compiler writes it, got another one ({type(error).__name__}: {error})")


def mark_of(table: Mapping[str, Any]) -> bytes:
    """What the code of a bundle has in it: a digest of all that its table says of how to call it."""
    functions = {
        name: {**row, "gpu": row["gpu"] and {**row["gpu"], "images": [{**i, "offset": 0} for i in row["gpu"]["images"]]}}
        for name, row in table["functions"].items()
    }
    said = {key: value for key, value in table.items() if key not in ("sha256", "files")} | {"functions": functions}
    return _MARK + hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest().encode()


def check_library(folder: Path, table: Mapping[str, Any]) -> None:
    """Raises `BundleError` where the code was not made with this table: another one would call it with other shapes."""
    if table["library"] not in table["files"]:
        raise BundleError(f"{folder}: expected the library to be one of the files of the bundle, got {table['library']!r}")
    if mark_of(table) not in (folder / table["library"]).read_bytes():
        raise BundleError(f"{folder / FILE}: expected the table that {table['library']} was made with, got another one")


def check_file(folder: Path, name: str, said: dict[str, Any]) -> None:
    """Raises `BundleError` where a file has not the contents that the table says."""
    path, digest, size = folder / name, hashlib.sha256(), 0
    check_name(folder, name)
    try:
        with open(path, "rb") as file:
            while size <= said["bytes"] and (block := file.read(1 << 20)):
                digest.update(block)
                size += len(block)
    except OSError as error:
        raise BundleError(f"{path}: expected a file of {said['bytes']} bytes, got none that can be read: {error.strerror}") from None
    if size != said["bytes"]:
        raise BundleError(f"{path}: expected {said['bytes']} bytes, got {size}")
    if digest.hexdigest() != said["sha256"]:
        raise BundleError(f"{path}: expected the contents that were written, got others: the file is damaged")


def check_name(folder: Path, name: str) -> None:
    """Raises `BundleError` where a name leads out of the folder."""
    if name in ("", ".", "..") or "\0" in name or Path(name).name != name:
        raise BundleError(f"{folder}: expected files in the folder, got {name!r}")


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
    bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return bfloat16
