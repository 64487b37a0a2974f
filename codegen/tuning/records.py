"""What tuning found, in a file: one line of JSON per record, the first line says what the file is.

A record belongs to an operation (see `operation`), a machine (CPU by name and features, cores, threads, caches; a GPU by its
architecture, multiprocessors and memories), a target and a version of this package; of two with the same, the younger counts. Files
are merged by concatenation of what they hold, so they can be passed on, kept beside a project, and combined: TENSOREXPR_TUNING names
the files to read (separated like PATH), of which the first is written. Without it there is one file beside the object code; where
it is empty, or nothing is kept on disk, there is none.

A file is written beside its place and moved there whole, one writer at a time. What is no record is passed over and told in the log
`tensorexpr.tuning`; a file that is not ours is left alone, and one that another user can write to is not read: records choose what
code is made.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tensorexpr.codegen.disk import expanded, folder
from tensorexpr.codegen.llvm.process.pool import default_threads
from tensorexpr.codegen.llvm.text.machine import host
from tensorexpr.codegen.schedule.decisions import Choices
from tensorexpr.codegen.target import Target
from tensorexpr.codegen.tuning.operation import short_digest
from tensorexpr.errors import ArgumentError
from tensorexpr.records import as_dict, fields, record
from tensorexpr_runtime.places import ForeignPlaceError, make_own, read_own

log = logging.getLogger("tensorexpr.tuning")

VARIABLE = "TENSOREXPR_TUNING"
FILE = "tuning.jsonl"
FORMAT, FORMAT_VERSION = "tensorexpr tuning", 1
_LARGEST = 64 << 20  # bytes of a file that is read, of which it takes some twenty times as much memory


@record
class Record:
    """What was found for an operation on a machine.

    `choices` make the schedule whose calls are `schedule`, for the `program` (a digest of its text with all numbers) with inputs `shapes`,
    where the model's own has the calls with digest `baseline`. Seconds are of one call, side by side. `reassociated` says that sums
    may be added up in another order than the model's.
    """

    operation: str
    machine: Mapping[str, Any]
    target: str
    version: str
    choices: Choices
    schedule: tuple[str, ...]
    program: str
    shapes: tuple[str, ...]
    baseline: str
    seconds: float
    baseline_seconds: float
    reassociated: bool
    tried: int
    date: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Records with the same key replace one another."""
        return self.operation, machine_digest(self.machine), self.target, self.version

    @property
    def speedup(self) -> float:
        """How many times faster than the model's schedule."""
        return self.baseline_seconds / self.seconds

    @property
    def digest(self) -> str:
        """Of what it asks for: records that ask for the same choices lead to the same code."""
        return short_digest(json.dumps([dict(self.choices), self.program, self.baseline, list(self.schedule), self.reassociated]))

    def as_data(self) -> dict[str, Any]:
        """The record in JSON's types."""
        data = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            **data,
            "machine": dict(self.machine),
            "choices": dict(self.choices),
            "schedule": list(self.schedule),
            "shapes": list(self.shapes),
        }


@cache
def _features() -> dict[str, Any]:
    machine = host()
    return {"cpu": machine.cpu, "features": short_digest(machine.features)}


def machine_facts(target: Target) -> dict[str, Any]:
    """The facts of a machine that a schedule may be better or worse for; of a CPU, this one and its threads."""
    facts = {name: _plain(value) for name, value in as_dict(target).items() if name != "name"}
    return facts if target.is_gpu else {**facts, **_features(), "threads": default_threads()}


def _plain(value: Any) -> object:
    """A fact in JSON's types: names of features are told by a digest."""
    return value if isinstance(value, str | int | float) else short_digest(" ".join(sorted(map(str, value))))


def machine_digest(machine: Mapping[str, Any]) -> str:
    """Equal for machines that share records."""
    return short_digest(json.dumps(dict(machine), sort_keys=True))


# ------------------------------------------------------------------------------------------------------------ places


def places() -> tuple[Path, ...]:
    """The files that are read, the one that is written first; none where nothing is kept."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        found = (expanded(part, f"the file of {VARIABLE}") for part in named.split(os.pathsep) if part.strip())
        return tuple(path for path in found if path is not None)
    beside = folder()
    return () if beside is None else (beside / FILE,)


_tables: dict[tuple[tuple[str, int, int], ...], dict[tuple[str, str, str, str], tuple[Record, Path]]] = {}


def table() -> Mapping[tuple[str, str, str, str], tuple[Record, Path]]:
    """The records of all files by key, each with its file; those of earlier files count. Read again where a file has changed."""
    stamps = []
    for path in places():
        with contextlib.suppress(OSError):
            status = os.stat(path)
            stamps.append((str(path), status.st_mtime_ns, status.st_size))
    key = tuple(stamps)
    if not key:
        return {}
    known = _tables.get(key)
    if known is None:
        known = {}
        for name, _, _ in reversed(key):
            known.update({record.key: (record, Path(name)) for record in read(Path(name))})
        _tables.clear()
        _tables[key] = known
    return known


def find(operation: str, target: Target) -> tuple[Record, Path] | None:
    """The record of an operation on a machine by this version, and its file; None where there is none."""
    found = table()
    return found.get((operation, machine_digest(machine_facts(target)), target.name, version("tensorexpr"))) if found else None


# ------------------------------------------------------------------------------------------------- reading and writing


def read(path: Path) -> list[Record]:
    """The records of a file, in its order. What is no record, and a file that is none of ours, is passed over with a line in the log."""
    try:
        lines = _lines(path)
    except ForeignPlaceError as error:
        log.warning("%s: not read: %s: %s; a copy of one's own is", path, error.filename, error.strerror)
        return []
    except OSError as error:
        log.warning("%s: not read: %s", path, error.strerror or error)
        return []
    if not lines:
        return []
    reason = _foreign(lines[0])
    if reason is not None:
        log.warning("%s: not read: %s", path, reason)
        return []
    return _records(path, lines)


def _lines(path: Path) -> list[str]:
    return read_own(path, _LARGEST).decode("utf-8", "replace").splitlines()


def _records(path: Path, lines: Sequence[str]) -> list[Record]:
    """The records in the lines of a file of ours."""
    found = []
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        try:
            found.append(_parsed(json.loads(line)))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            log.warning("%s:%d: passed over, no record: %s", path, number, error)
    return found


def _foreign(head: str) -> str | None:
    """Why a file with this first line is not read; None where it is ours."""
    try:
        data = json.loads(head)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        return f"expected a file of format {FORMAT!r}, got something else"
    if data.get("version") != FORMAT_VERSION:
        return f"expected version {FORMAT_VERSION} of the format, got {data.get('version')!r}"
    return None


_KINDS: dict[str, type | tuple[type, ...]] = {
    "operation": str,
    "machine": dict,
    "target": str,
    "version": str,
    "choices": dict,
    "schedule": list,
    "program": str,
    "shapes": list,
    "baseline": str,
    "seconds": (int, float),
    "baseline_seconds": (int, float),
    "reassociated": bool,
    "tried": int,
    "date": str,
}


def _parsed(data: Any) -> Record:
    if not isinstance(data, dict):
        raise TypeError(f"expected an object, got {type(data).__name__}")
    for name, kind in _KINDS.items():
        if not isinstance(data[name], kind):
            raise TypeError(f"{name}: got a {type(data[name]).__name__}")
    for name, texts in (("choices", data["choices"].values()), ("schedule", data["schedule"]), ("shapes", data["shapes"])):
        if not all(isinstance(text, str) for text in texts):
            raise TypeError(f"{name}: got something that is no text")
    if not all(0 < data[name] < float("inf") for name in ("seconds", "baseline_seconds")):
        raise ValueError("seconds: got a number that is no time")
    known = {name: data[name] for name in _KINDS}
    return Record(**{**known, "choices": Choices(known["choices"]), "schedule": tuple(known["schedule"]), "shapes": tuple(known["shapes"])})


def merged(records: Iterable[Record]) -> list[Record]:
    """One record per key, the youngest, in the order of keys."""
    best: dict[tuple[str, str, str, str], Record] = {}
    for one in records:
        known = best.get(one.key)
        if known is None or (known.date, json.dumps(known.as_data())) <= (one.date, json.dumps(one.as_data())):
            best[one.key] = one
    return [best[key] for key in sorted(best)]


def write(path: Path, records: Sequence[Record]) -> int:
    """Adds records to a file, which may not be there yet; gives the number that it holds then.

    Raises `ArgumentError` where it cannot be written, or holds something else.
    """
    try:
        make_own(path.parent)
        with _alone(path):
            lines = _lines(path) if path.exists() else []
            reason = _foreign(lines[0]) if lines else None
            if reason is not None:
                raise ArgumentError(f"{path}: {reason}", hint="name another file, or remove it")
            kept = merged([*_records(path, lines), *records])
            _replace(path, kept)
    except ForeignPlaceError as error:
        raise ArgumentError(f"{path}: expected a file that no other user can write to, got {error.filename}: {error.strerror}") from error
    except OSError as error:
        raise ArgumentError(f"{path}: expected a file that can be written, got {error.strerror or error}") from error
    return len(kept)


def _replace(path: Path, records: Sequence[Record]) -> None:
    lines = [json.dumps({"format": FORMAT, "version": FORMAT_VERSION}), *(json.dumps(record.as_data()) for record in records)]
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One writer at a time, where the system has locks on files; elsewhere the last one to move its file there counts."""
    try:
        import fcntl  # noqa: PLC0415 -- not on every system
    except ImportError:
        yield
        return
    with open(path.with_name(f".{path.name}.lock"), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
