"""A bundle in this process: its table, its code, its constants."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tensorexpr_runtime.cuda import driver
from tensorexpr_runtime.errors import ArgumentError, BundleError
from tensorexpr_runtime.files import MALFORMED, array_type, check_file, check_library, check_name, foreign, malformed, mapped, read_table
from tensorexpr_runtime.function import BundleFunction
from tensorexpr_runtime.gpu import Gpus
from tensorexpr_runtime.places import ForeignPlaceError, own

_THREADS = "TENSOREXPR_NUM_THREADS"
_files: dict[Path, list[tuple[int, int]]] = {}  # the files, by device and number, that were loaded by a path so far


class Bundle:
    """The functions of a bundle, by name: `bundle.forward(x)` or `bundle["forward"](x)`.

    `table` is all that the bundle says of itself, `constants` its constants by name, read-only and not copied, `variant` the
    name of the code that was chosen for this CPU (None: there is none for CPUs), `gpus` the GPUs that it has code for.
    """

    def __init__(self, folder: Path, verify: bool, trusted: bool) -> None:
        self.folder = folder
        self.table = read_table(folder, trusted)
        try:
            self._check_files(verify, trusted)
            self._open()
        except MALFORMED as error:
            raise malformed(folder, error) from None

    def _check_files(self, verify: bool, trusted: bool) -> None:
        """Raises `BundleError` for what is not to be loaded; nothing of the bundle has run by then."""
        folder, table = self.folder, self.table
        self._check_machine()
        constants_file = table["constants_file"]["name"]
        for name in (*table["files"], constants_file):
            check_name(folder, name)
            if trusted:
                continue
            try:
                own(folder / name)
            except ForeignPlaceError as error:
                raise foreign(folder, error) from None
            except OSError:
                pass  # told below, with what was expected
        for name, said in table["files"].items():
            if verify or name != constants_file:
                check_file(folder, name, said)
            elif not (folder / name).is_file() or (folder / name).stat().st_size != said["bytes"]:
                raise BundleError(f"{folder / name}: expected a file of {said['bytes']} bytes, got another one")
        check_library(folder, table)

    def _open(self) -> None:
        folder, table = self.folder, self.table
        self._set_threads: Any = None
        try:
            self._library = ctypes.CDLL(_spelled((folder / table["library"]).resolve()))
        except OSError as error:
            raise BundleError(f"{folder}: expected code that the system loads, got: {error}") from None
        self._data = mapped(folder / table["constants_file"]["name"], table["constants_file"]["offset"])
        number = self._chosen() if table["variants"] else None
        self.variant: str | None = None if number is None else table["variants"][number]["name"]
        self.gpus: tuple[str, ...] = tuple(table["gpus"])
        gpus = Gpus(folder, table, self._library, self._data) if self.gpus else None
        if number is None:
            driver()
        self.constants: dict[str, np.ndarray] = {c["name"]: self._constant(c) for c in table["constants"]}
        self._functions = {n: BundleFunction(n, t, self._library, number, self._data, gpus) for n, t in table["functions"].items()}

    def _chosen(self) -> int:
        """The number of the code for this CPU, with its threads made ready."""
        prefix = self.table["name"]
        number = int(getattr(self._library, f"{prefix}_variant")())
        if number < 0:
            needs = "; ".join(f"{v['name']}: {', '.join(v['needs'])}" for v in self.table["variants"])
            raise BundleError(f"{self.folder}: expected a CPU with the features of one of its variants ({needs}), got one without")
        self._set_threads = getattr(self._library, f"{prefix}_threads")
        self._set_threads.argtypes, self._set_threads.restype = [ctypes.c_int32], None
        self.threads(_default_threads())
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=getattr(self._library, f"{prefix}_after_fork"))
        return number

    def _check_machine(self) -> None:
        wanted = self.table["platform"]
        if not sys.platform.startswith("linux") or platform.machine().lower() not in ("x86_64", "amd64") or not wanted.startswith("x86_64"):
            raise BundleError(f"{self.folder}: expected a machine like {wanted}, got {sys.platform} on {platform.machine()}")

    def _constant(self, row: dict[str, Any]) -> np.ndarray:
        array = self._data[row["offset"] : row["offset"] + row["size"]].view(array_type(row["dtype"])).reshape(row["shape"])
        return array.view(np.ndarray)

    def threads(self, count: int) -> None:
        """Uses `count` threads for a call from now on (at first TENSOREXPR_NUM_THREADS, else the CPUs that this process may use)."""
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise BundleError(f"{self.folder}: expected a positive number of threads, got {count!r}")
        if self._set_threads is not None:
            self._set_threads(count)

    def __getitem__(self, name: str) -> BundleFunction:
        try:
            return self._functions[name]
        except KeyError:
            raise BundleError(f"{self.folder}: expected a function among {', '.join(self._functions)}, got {name}") from None

    def __getattr__(self, name: str) -> BundleFunction:
        functions: dict[str, BundleFunction] = self.__dict__.get("_functions", {})
        if name not in functions:
            raise AttributeError(f"the bundle {self.__dict__.get('folder')} has no function {name!r}: it has {', '.join(functions)}")
        return functions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __repr__(self) -> str:
        places = ", ".join([*([] if self.variant is None else [self.variant]), *self.gpus])
        return f"<bundle {self.folder} for {places}: {', '.join(map(repr, self._functions.values()))}>"


def load(path: str | os.PathLike[str], *, verify: bool = True, trusted: bool = False) -> Bundle:
    """The bundle in a folder. With `verify=False` the contents of the constants, which may be large, are taken on trust.

    A bundle is code: the folder, those above it and the files must be such that no other user can write to them (the system's own user
    can), unless `trusted` says that all who can are trusted. A GPU is looked for when arrays on one are given, or now where the bundle
    has no code for CPUs. Raises `BundleError` that says why where it is damaged, cut off, none at all, of another version, for other
    machines, or where others may write.

    >>> import tempfile, pathlib
    >>> double = te.op(lambda x: te.compute(x.shape, lambda i: 2 * x[i])).compile(((3,), "float32"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bundle = te.load(te.export(pathlib.Path(folder, "model"), double=double), trusted=True)
    ...     list(bundle), bundle.double(np.float32([1, 2, 3])).tolist()
    (['double'], [2.0, 4.0, 6.0])
    """
    if not isinstance(path, str | os.PathLike):
        raise ArgumentError(f"load: expected the path of a bundle, got {path!r}")
    return Bundle(Path(path), verify, trusted)


def _spelled(path: Path) -> str:
    """A path by which the system loads the file that is there now.

    It takes a path that it has loaded before for the same library, whatever is there by now: a bundle that took the place of
    another one is spelled in a way of its own.
    """
    status = path.stat()
    known = _files.setdefault(path, [])
    if (status.st_dev, status.st_ino) not in known:
        known.append((status.st_dev, status.st_ino))
    return f"{path.parent}/{'./' * known.index((status.st_dev, status.st_ino))}{path.name}"


def _default_threads() -> int:
    text = os.environ.get(_THREADS, "").strip()
    if text:
        if not (text.isascii() and text.isdecimal()) or int(text) < 1:
            raise BundleError(f"{_THREADS}: expected a positive integer, got {text!r}")
        return int(text)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
