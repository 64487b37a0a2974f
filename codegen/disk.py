"""Object code kept on disk between processes: what compiling took a tenth of a second for is linked in a few milliseconds.

One file per entry, named by the key: a digest of everything that the code depends on, the files of this package among it. A file carries
a digest of its key and contents, is written beside its place and moved there whole, and is read only from a place that no other user can
write to (`tensorexpr_runtime.places`). What is damaged, foreign, or not to be read counts as not there and is made anew; what cannot
be written is not kept. None of this is an error: a folder that cannot be used is told once, by a `CacheWarning`.
The folder is bounded in size: entries not used for longest go first (reading marks an entry as used). Its files are counted at the
first save of a process, and again once the process has added a sixteenth of the bound or thinks that it is reached: other processes
add, too, so that the folder may be larger by so much for each of them. What a process that was killed had begun to write is removed then.

TENSOREXPR_CACHE_DIR names the folder (empty: nothing is kept), TENSOREXPR_CACHE_SIZE its bound in MiB. The log
`tensorexpr.cache` tells hits and misses.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from tensorexpr import errors
from tensorexpr.building.environment import number_of
from tensorexpr.errors import CacheWarning, Location, user_location
from tensorexpr_runtime.places import ForeignPlaceError, make_own, own, read_own

log = logging.getLogger("tensorexpr.cache")

_FOLDER, _SIZE = "TENSOREXPR_CACHE_DIR", "TENSOREXPR_CACHE_SIZE"
_DEFAULT_SIZE = 512
_MAGIC = b"tensorexpr object 2\n"
_SUFFIX, _NEW = ".teo", ".new-"
_KEPT_SHARE = 0.8  # of the bound, after entries had to go
_UNSEEN_SHARE = 1 / 16  # of the bound, that a process adds without looking at what others did
_LONG_AGO = 3600.0  # seconds after which nobody is writing a file any more

_fill: dict[Path, tuple[int, int]] = {}  # of a folder: its bytes when its files were counted, and those added since
_warned: set[str] = set()  # the places that a warning was given of


class Entry(NamedTuple):
    """What is kept: a description in JSON's types, and the object code."""

    about: dict[str, Any]
    image: bytes


class Usage(NamedTuple):
    """The folder (None: nothing is kept), how many entries it has, their bytes, and the bound in bytes."""

    folder: Path | None
    entries: int
    bytes: int
    bound: int


def folder() -> Path | None:
    """Where entries are kept, or None where they are not."""
    named = os.environ.get(_FOLDER)
    if named is not None:
        return expanded(named, _FOLDER) if named.strip() else None
    match sys.platform:
        case "win32":
            base = os.environ.get("LOCALAPPDATA")
        case "darwin":
            base = "~/Library/Caches"
        case _:
            base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return expanded(f"{base}/tensorexpr", f"the cache of compiled code, for which {_FOLDER} names a folder,") if base else None


def expanded(named: str, what: str) -> Path | None:
    """A path with the user's home in place of `~`; None, with one warning that says what is off, where there is no home."""
    try:
        return Path(named).expanduser()
    except RuntimeError:
        warn_once(named, f"{what} is off: {named}: the home of the user is unknown")
        return None


def warn_once(place: str, message: str) -> None:
    """A warning, of each place one in a process; what is told of it later is for those who look for it."""
    log.debug("%s", message)
    if place not in _warned:
        _warned.add(place)
        at = user_location() or Location("tensorexpr", 1)
        warnings.warn_explicit(message, CacheWarning, at.file, at.line)


def bound() -> int:
    """The most bytes that the folder may hold. Raises `ArgumentError` where the environment does not name a number of MiB."""
    said = number_of(_SIZE, "a number of MiB")
    return (_DEFAULT_SIZE if said is None else said) << 20


def digest(*parts: str | bytes) -> str:
    """What tells parts apart, each of which counts with its length."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "little"))
        found.update(data)
    return found.hexdigest()


def key_of(*parts: str | bytes) -> str:
    """The key of what is made of some parts, by LLVM and by this package as they are."""
    return digest(*parts, makers())


@cache
def makers() -> str:
    """What makes code: LLVM by its wrapper's version, and the files of this package as they are."""
    files = []
    for root in sorted({Path(module).resolve().parent for module in (__file__, errors.__file__)}):
        for folder, _, names in sorted(os.walk(root)):
            for name in sorted(names):
                if name.endswith((".py", ".cuh")):
                    status = os.stat(os.path.join(folder, name))
                    files.append(f"{folder}/{name} {status.st_size} {status.st_mtime_ns}")
    return "\n".join((version("llvmlite"), version("tensorexpr"), *files))


def load(key: str) -> Entry | None:
    """The entry of a key, or None."""
    place = folder()
    if place is None:
        return None
    path = place / f"{key}{_SUFFIX}"
    try:
        data = read_own(os.path.join(own(place), path.name), bound() + len(_MAGIC) + 32)
    except ForeignPlaceError as error:
        warn_once(str(place), f"{path}: not read, the folder is not this user's own: {_reason(error)}")
        return None
    except OSError:
        return None
    entry = _parsed(key, data)
    if entry is None:
        log.debug("%s: damaged, made anew", path)
        return None
    with suppress(OSError):
        os.utime(path)
    log.debug("%s: found", path)
    return entry


def _reason(error: OSError) -> str:
    """What is wrong, and with which part of a path."""
    what = error.strerror or str(error)
    return what if error.filename is None else f"{error.filename}: {what}"


def save(key: str, entry: Entry) -> None:
    """Keeps an entry, as far as the folder can be written."""
    place = folder()
    if place is None:
        return
    about = json.dumps(entry.about, sort_keys=True).encode()
    body = len(about).to_bytes(8, "little") + about + entry.image
    limit = bound()
    if len(body) > limit:
        return
    try:
        real = make_own(place)
        handle, temporary = tempfile.mkstemp(prefix=_NEW, dir=real)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + _seal(key, body) + body)
            os.replace(temporary, os.path.join(real, f"{key}{_SUFFIX}"))
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        _added(place, len(body), limit)
    except OSError as error:
        warn_once(str(place), f"{place}: not kept, compiled code will be made again by the next process: {_reason(error)}")


def _added(place: Path, size: int, limit: int) -> None:
    """Notes so many bytes more in the folder; makes room where there may be too many.

    Without a lock, which a fork could take along: threads that save at once may lose a note, and files are counted that much later.
    """
    known, added = _fill.get(place, (0, limit))
    added += size
    if added > limit * _UNSEEN_SHARE or known + added > limit:
        known, added = _shrink(place, limit), 0
    _fill[place] = known, added


def usage() -> Usage:
    """How full the folder is."""
    place = folder()
    files = [] if place is None else _files(place)
    return Usage(place, len(files), sum(size for _, size, _ in files), bound())


def clear() -> int:
    """Removes every entry; gives their number."""
    place = folder()
    files = [] if place is None else _files(place)
    for _, _, path in files:
        with suppress(OSError):
            os.unlink(path)
    return len(files)


def _seal(key: str, body: bytes) -> bytes:
    """What tells that a file is whole, and that of its key: one that was copied to another name is not."""
    return hashlib.sha256(key.encode() + b"\n" + body).digest()


def _parsed(key: str, data: bytes) -> Entry | None:
    start = len(_MAGIC) + 32
    body = data[start:]
    if not data.startswith(_MAGIC) or _seal(key, body) != data[len(_MAGIC) : start]:
        return None
    length = int.from_bytes(body[:8], "little")
    return Entry(json.loads(body[8 : 8 + length]), body[8 + length :])


def _files(place: Path) -> list[tuple[int, int, str]]:
    """When each entry was last used, its size, its path."""
    found = []
    with suppress(OSError), os.scandir(place) as entries:
        for item in entries:
            if item.name.endswith(_SUFFIX):
                with suppress(OSError):
                    status = item.stat()
                    found.append((status.st_mtime_ns, status.st_size, item.path))
    return found


def _remove_begun(place: Path) -> None:
    """Removes files that were never finished."""
    with suppress(OSError), os.scandir(place) as entries:
        for item in entries:
            if item.name.startswith(_NEW):
                with suppress(OSError):
                    if time.time() - item.stat().st_mtime > _LONG_AGO:
                        os.unlink(item.path)


def _shrink(place: Path, limit: int) -> int:
    """Removes entries where the folder holds more than its bound; gives the bytes that are left."""
    _remove_begun(place)
    files = _files(place)
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files) if total > limit else ():
        if total <= limit * _KEPT_SHARE:
            break
        with suppress(OSError):
            os.unlink(path)
            total -= size
    return total
