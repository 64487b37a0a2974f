"""Emitted CUDA kernels on a CPU: for tests, and for whoever wants to look into a kernel without a GPU.

The unchanged text is compiled by the machine's C++ compiler against `host.h`, which stands in for CUDA, and run by `runtime.cpp`,
where threads are fibers, and `asynchronous.cpp`, what goes on beside them; what the PTX ISA says of instructions comes from its table
(`ptx.py`). Nothing here is about speed.

With `checked` memory every access is looked at (`checker.cpp`): two threads or two blocks that meet without a barrier, reads of what
nothing has been written to, accesses outside of all arguments, copies that nobody waited for.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tensorexpr.codegen.cuda.emitter.source import PRELUDE, Launch, Source
from tensorexpr.codegen.cuda.nvidia.ptx import host_header
from tensorexpr.codegen.disk import warn_once
from tensorexpr.errors import InternalError, TargetError
from tensorexpr_runtime.places import check_status, make_own

_HERE = Path(__file__).parent
_FLAGS = ("-std=c++17", "-fPIC", "-w", "-fno-gnu-unique", "-fvisibility=hidden", "-ffp-contract=off")
_PLAIN = (*_FLAGS, "-fwrapv")
_CHECKED = (
    *_FLAGS,
    "-g1",
    "-fno-optimize-sibling-calls",
    "-fsanitize=thread",
    "-fsanitize=bounds,signed-integer-overflow,integer-divide-by-zero,shift",
    "-ftrivial-auto-var-init=pattern",
)
"""What calls the checker at each access; only the compiler's part of it is used, not its run-time. What a thread has not set is no number
that is likely, in place of what the thread before it left there, which is right too often."""
_RUNTIME = ("runtime.h", "fibers.h", "runtime.cpp", "asynchronous.cpp", "checker.cpp")
_TEXT = "kernels.cpp"
ORDERS = {"forward": 0, "backward": 1}
"""Orders in which the threads of a block run; any greater number is the seed of a permutation."""


@cache
def compiler() -> str | None:
    """The C++ compiler of this machine, or None."""
    return next((found for name in ("g++", "clang++", "c++") if (found := shutil.which(name))), None)


@cache
def _folder() -> Path:
    """Where libraries are kept: a folder of this user's own for all its processes or, where another user has its name, for this one."""
    try:
        shared = os.path.join(tempfile.gettempdir(), f"tensorexpr-host-{os.getuid()}")
        try:
            return Path(make_own(shared))
        except OSError as error:
            warn_once(shared, f"{shared}: not used for the kernels of this process: {error}")
        made = tempfile.mkdtemp(prefix="tensorexpr-host-")
        atexit.register(shutil.rmtree, made, ignore_errors=True)
        return Path(make_own(made))
    except OSError as error:
        raise TargetError(
            f"expected a folder for temporary files that only this user can write to, to run CUDA kernels on a CPU, got none: {error}",
            hint="TMPDIR names one",
        ) from error


def _compiled(files: dict[str, str], flags: tuple[str, ...] = _PLAIN) -> Path:
    """A shared library made of C++ files, kept by content for as long as the folder of temporary files is."""
    program = compiler()
    if program is None:
        raise TargetError("expected a C++ compiler to run CUDA kernels on a CPU, found none of g++, clang++, c++")
    digest = hashlib.sha256("\0".join((program, *flags, *files, *files.values())).encode()).hexdigest()[:32]
    library = _folder() / f"{digest}.so"
    if _is_own(library):
        return library
    try:
        with tempfile.TemporaryDirectory(dir=_folder()) as work:
            objects = []
            for name, text in files.items():
                source = Path(work) / name
                source.write_text(text)
                if source.suffix == ".cpp":
                    objects.append(str(source.with_suffix(".o")))
                    _done([program, *flags, "-c", str(source), "-o", objects[-1]])
            made = Path(work) / "made.so"
            _done([program, "-shared", *objects, "-o", str(made)])
            made.chmod(0o700)
            made.replace(library)
    except OSError as error:
        raise TargetError(f"expected a folder for the kernels of this process that can be written, got {error}", hint="TMPDIR") from error
    return library


def _is_own(library: Path) -> bool:
    """Whether a library is there that this user made: the folder is one that nobody else can put anything in."""
    try:
        status = library.lstat()
        check_status(library, status)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode)


def _done(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise InternalError(f"cuda: expected text that a C++ compiler takes, got {done.stderr[:2000]}")


_running = threading.Lock()
"""Held while a grid runs: its threads are fibers of one thread of the CPU, which the run-time keeps."""


class _Grid(ctypes.Structure):
    """`te_grid` of runtime.h."""

    _fields_ = (
        ("blocks", ctypes.c_uint * 3),
        ("threads", ctypes.c_uint * 3),
        ("alone", ctypes.c_int),
        ("order", ctypes.c_uint),
        ("late", ctypes.c_int),
        ("checked", ctypes.c_int),
        ("shared", ctypes.c_void_p),
        ("shared_end", ctypes.c_void_p),
        ("asked", ctypes.c_uint),
    )


@cache
def _runtime() -> ctypes.CDLL:
    files = {name: (_HERE / name).read_text() for name in _RUNTIME}
    library = ctypes.CDLL(str(_compiled(files)), mode=ctypes.RTLD_GLOBAL)
    library.te_launch.restype = ctypes.c_char_p
    library.te_launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(_Grid)]
    size = ctypes.c_size_t
    library.te_check_memory.argtypes = [ctypes.c_char_p, ctypes.c_void_p, size, size, ctypes.c_int, ctypes.c_int]
    return library


@dataclass(frozen=True, slots=True)
class Memory:
    """An argument of kernels: where its bytes are, how large an element is, whether it holds values and may be written."""

    name: str
    start: int
    bytes: int
    itemsize: int
    filled: bool
    writable: bool


class HostKernels:
    """The kernels of sources, compiled together for this CPU, `checked` with a checker of every access; their names differ."""

    def __init__(self, *sources: Source, checked: bool = False) -> None:
        _runtime()
        self.checked = checked
        self._text = "\n".join(source.text for source in sources)
        entries = "\n".join(f"TE_ENTRY({name})" for name in dict.fromkeys(n.kernel for source in sources for n in source.launches))
        files = {"instructions.h": host_header()}
        files |= {file.name: file.read_text() for file in (_HERE / "host.h", PRELUDE, _HERE / "matrices.h")}
        includes = " ".join(f'#include "{name}"\n' for name in files)
        text = f"{includes}#line 1\n{self._text}\n{entries}\n"
        self._path = _compiled({**files, _TEXT: text}, _CHECKED if checked else _PLAIN)
        self._library = ctypes.CDLL(str(self._path))
        self._waits = any(word in self._text for word in ("_sync", "te_shuffle", "te_m", "te_group"))
        start, stop = ctypes.c_void_p(), ctypes.c_void_p()
        self._library.te_shared_extent(ctypes.byref(start), ctypes.byref(stop))
        self._shared = (start, stop)

    def launch(self, launch: Launch, blocks: tuple[int, int, int], arguments: Sequence[int], order: int = 0, late: bool = True) -> None:
        """Runs a grid of `blocks`; `arguments` are addresses and int64 in the order of the kernel; `late` says whether asynchronous copies
        arrive when they are waited for or at once. Raises `InternalError` where threads wait for each other in vain, and for what the
        checker finds."""
        values = (ctypes.c_int64 * len(arguments))(*arguments)
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(values) + 8 * k for k in range(len(arguments))))
        enter = ctypes.cast(getattr(self._library, f"te_enter_{launch.kernel}"), ctypes.c_void_p)
        alone = not self._waits and not self.checked
        grid = _Grid(blocks, launch.threads, int(alone), order, int(late), int(self.checked), *self._shared, launch.shared)
        with _running:
            failed = _runtime().te_launch(enter, pointers, ctypes.byref(grid))
        if failed:
            raise InternalError(f"cuda: {launch.kernel}: {self._located(failed.decode())}")

    def stream(self) -> int:
        """There is one order in which all runs."""
        return 0

    def ready(
        self, launch: Launch, blocks: tuple[int, int, int], places: Sequence[int], scalars: Sequence[int]
    ) -> Callable[[Sequence[int], int], None]:
        """A launch to which addresses are given: see `device.Kernels`."""
        buffers, behind = (places[:-1], places[-1:]) if launch.reports else (places, ())

        def launched(addresses: Sequence[int], stream: int) -> None:
            self.launch(launch, blocks, [*(addresses[k] for k in buffers), *scalars, *(addresses[k] for k in behind)])

        return launched

    def watch(self, memory: Iterable[Memory]) -> None:
        """Tells the checker all arguments of the launches that follow, in place of those before."""
        runtime = _runtime()
        runtime.te_check_forget()
        for m in memory:
            runtime.te_check_memory(m.name.encode(), m.start, m.bytes, m.itemsize, int(m.filled), int(m.writable))

    def _located(self, message: str) -> str:
        """A message with the line of the kernel in place of the address of the instruction."""
        found = re.match(r"@([0-9a-f]+): ", message)
        if found is None:
            return message
        rest, number = message[found.end() :], 0
        tool = shutil.which("addr2line")
        if tool is not None:
            lines = subprocess.run([tool, "-i", "-e", str(self._path), found[1]], capture_output=True, text=True).stdout.splitlines()
            numbers = [int(m[1]) for line in lines if (m := re.search(rf"{_TEXT}:(\d+)", line))]
            number = numbers[0] if numbers else 0
        text = self._text.splitlines()
        return f"line {number}: {rest}\n  {text[number - 1].strip()}" if 0 < number <= len(text) else rest
