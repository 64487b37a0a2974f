"""Emitted CUDA kernels on a CPU: for tests, and for whoever wants to look into a kernel without a GPU.

The unchanged text is compiled by the machine's C++ compiler against `host.h`, which stands in for CUDA, and run by `runtime.cpp`,
where threads are fibers. Nothing here is about speed.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tensorexpr.codegen.cuda.emit import PRELUDE, Launch, Source
from tensorexpr.errors import InternalError, TargetError

_HERE = Path(__file__).parent
_FLAGS = ("-std=c++17", "-O1", "-fPIC", "-shared", "-w", "-fno-gnu-unique", "-fvisibility=hidden", "-ffp-contract=off", "-fwrapv")
ORDERS = {"forward": 0, "backward": 1}
"""Orders in which the threads of a block run; any greater number is the seed of a permutation."""


@cache
def compiler() -> str | None:
    """The C++ compiler of this machine, or None."""
    return next((found for name in ("g++", "clang++", "c++") if (found := shutil.which(name))), None)


def _compiled(text: str, suffix: str = ".cpp") -> Path:
    """A shared library made of C++ text, kept by content for as long as the folder of temporary files is."""
    program = compiler()
    if program is None:
        raise TargetError("expected a C++ compiler to run CUDA kernels on a CPU, found none of g++, clang++, c++")
    digest = hashlib.sha256("\0".join((program, *_FLAGS, text)).encode()).hexdigest()[:32]
    folder = Path(tempfile.gettempdir()) / f"tensorexpr-host-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    library = folder / f"{digest}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=folder) as work:
            source, made = Path(work) / f"source{suffix}", Path(work) / "made.so"
            source.write_text(text)
            done = subprocess.run([program, *_FLAGS, str(source), "-o", str(made)], capture_output=True, text=True)
            if done.returncode:
                raise InternalError(f"cuda: expected text that a C++ compiler takes, got {done.stderr[:2000]}")
            made.replace(library)
    return library


@cache
def _runtime() -> ctypes.CDLL:
    library = ctypes.CDLL(str(_compiled((_HERE / "runtime.cpp").read_text())), mode=ctypes.RTLD_GLOBAL)
    library.te_launch.restype = ctypes.c_char_p
    library.te_launch.argtypes = [
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p,
    ]  # fmt: skip
    return library


class HostKernels:
    """The kernels of sources, compiled together for this CPU; their names differ."""

    def __init__(self, *sources: Source) -> None:
        _runtime()
        kernels = "\n".join(source.text for source in sources)
        entries = "\n".join(f"TE_ENTRY({name})" for name in dict.fromkeys(n.kernel for source in sources for n in source.launches))
        text = "\n".join(((_HERE / "host.h").read_text(), PRELUDE.read_text(), kernels, entries, ""))
        self._library = ctypes.CDLL(str(_compiled(text)))
        self._waits = "__sync" in kernels or "_sync(" in kernels
        start, stop = ctypes.c_void_p(), ctypes.c_void_p()
        self._library.te_shared_extent(ctypes.byref(start), ctypes.byref(stop))
        self._shared = (start, stop)

    def launch(self, launch: Launch, blocks: int, arguments: Sequence[int], order: int = 0) -> None:
        """Runs a grid of `blocks`; `arguments` are addresses and int64 in the order of the kernel. Raises `InternalError` where
        threads wait for each other in vain."""
        if blocks == 0:
            return
        values = (ctypes.c_int64 * len(arguments))(*arguments)
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(values) + 8 * k for k in range(len(arguments))))
        enter = ctypes.cast(getattr(self._library, f"te_enter_{launch.kernel}"), ctypes.c_void_p)
        failed = _runtime().te_launch(enter, pointers, blocks, launch.threads, int(not self._waits), order, *self._shared)
        if failed:
            raise InternalError(f"cuda: {launch.kernel}: {failed.decode()}")
