"""What was measured, as JSON: every run of every row, so that a measure that was interrupted goes on where it stopped.

    {"format": 1, "measure": "regret", "machine": {...}, "rows": {"softmax | forward | 1": [run, ...]}}

A run is what a worker found, with its date and the digest of the package that found it (`code`). A row counts as measured when it has a
run by the code that runs now; its last run is the one that is quoted, the others stay beside it and are told. Written whole after each
run: a file is never half there.
"""

from __future__ import annotations

import datetime
import hashlib
import importlib
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

from tensorexpr.benchmarks.harness import machine
from tensorexpr.errors import ArgumentError

FORMAT = 1
MAKERS = ("tensorexpr.errors", "tensorexpr.autodiff", "tensorexpr.codegen", "tensorexpr.kernels")
"""Modules in whose folders everything is that makes code."""
Run = dict[str, Any]


@cache
def code_digest() -> str:
    """What tells apart the states of this package, as far as they may make other code."""
    found = hashlib.sha256()
    for name in MAKERS:
        root = Path(str(importlib.import_module(name).__file__)).parent
        for file in sorted(root.rglob("*.py")):
            found.update(f"{file.relative_to(root)} ".encode() + file.read_bytes())
    return found.hexdigest()[:12]


class Journal:
    """The runs of one measure; kept in memory alone without a path.

    Raises `ArgumentError` for a file that is no journal, one of another measure, and one of another machine: times of two do not mix.
    """

    def __init__(self, measure: str, path: str | None = None) -> None:
        self.measure, self.path = measure, None if path is None else Path(path)
        self.code = code_digest()
        self.machine = machine()
        self.rows: dict[str, list[Run]] = {}
        if self.path is not None and self.path.exists():
            self._read(self.path)

    def _read(self, path: Path) -> None:
        try:
            kept = json.loads(path.read_text())
            found, rows, cpu = kept["measure"], kept["rows"], kept["machine"]["cpu"]["name"]
        except (ValueError, KeyError, TypeError) as error:
            raise ArgumentError(
                f"bench {self.measure}: expected the results of a measure in {path}, got {type(error).__name__}: {error}",
                hint="name another file",
            ) from None
        if found != self.measure:
            raise ArgumentError(f"bench {self.measure}: expected results of {self.measure} in {path}, got those of {found}")
        if cpu != self.machine["cpu"]["name"]:
            raise ArgumentError(
                f"bench {self.measure}: expected results of this machine in {path}, got those of {cpu}", hint="name another file"
            )
        self.rows = rows

    def has(self, key: str) -> bool:
        """Whether a row was measured with the code that runs now."""
        return any(run["code"] == self.code for run in self.rows.get(key, ()))

    def add(self, key: str, found: Run) -> None:
        """Keeps a run, and writes the file."""
        date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self.rows.setdefault(key, []).append({"date": date, "code": self.code, **found})
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            beside = self.path.with_name(f"{self.path.name}.{os.getpid()}")
            beside.write_text(json.dumps(self.as_json(), indent=1) + "\n")
            beside.replace(self.path)

    def as_json(self) -> dict[str, Any]:
        """The document."""
        return {"format": FORMAT, "measure": self.measure, "machine": self.machine, "rows": self.rows}

    def quoted(self) -> dict[str, Run]:
        """The run of each row that is quoted: the last."""
        return {key: runs[-1] for key, runs in self.rows.items()}

    def others(self, key: str) -> list[Run]:
        """The other runs of a row."""
        return self.rows[key][:-1]
