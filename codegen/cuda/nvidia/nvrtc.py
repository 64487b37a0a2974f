"""CUDA C++ to cubins by NVRTC, which needs neither a GPU nor a driver nor a toolkit: one library, found by cuda-pathfinder.

The options are ours alone: denormals are kept, divisions and roots are rounded correctly, nothing is approximated that the text
does not ask for. What the assembler says of registers, spills and memory is kept beside the code.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection
from functools import cache
from pathlib import Path

from tensorexpr.codegen.cuda.emitter.source import PRELUDE
from tensorexpr.codegen.cuda.nvidia.cubin import parameters_of
from tensorexpr.errors import InternalError, TargetError
from tensorexpr.records import record, replace

OPTIONS = ("-std=c++17", "-default-device", "-ftz=false", "-prec-div=true", "-prec-sqrt=true", "-fmad=true", "--ptxas-options=-v")
"""How every kernel is compiled."""
_INSTALL = "pip install 'tensorexpr[cuda]' (CUDA 13) or 'tensorexpr[cuda12]'"


@record
class Resources:
    """What a kernel takes: registers per thread; bytes of stack and of spills stored and loaded per thread; bytes of shared memory; offset
    and size in bytes of every parameter, in order."""

    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    shared: int
    parameters: tuple[tuple[int, int], ...] = ()


@record
class Compiled:
    """Machine code for one architecture, its PTX, what NVRTC logged, and the resources of every kernel by name."""

    arch: str
    cubin: bytes
    ptx: str
    log: str
    resources: dict[str, Resources]

    def sass(self) -> str:
        """The machine code as text. Raises `TargetError` where no cuobjdump is found, and where it can be handed no file."""
        program = _cuobjdump()
        try:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "kernels.cubin"
                file.write_bytes(self.cubin)
                done = subprocess.run([program, "-sass", str(file)], capture_output=True, text=True)
        except OSError as error:
            raise TargetError(
                f"expected a folder for temporary files, for cuobjdump to print machine code, got {error}", hint="TMPDIR"
            ) from error
        if done.returncode:
            raise InternalError(f"cuda: cuobjdump failed: {done.stderr[:500]}")
        return done.stdout


def _cuobjdump() -> str:
    """The program that prints machine code: of the toolkit, or of the package nvidia-cuda-cuobjdump."""
    found = shutil.which("cuobjdump")
    if found is None:
        places = [Path(folder) / "nvidia" for folder in sys.path]
        found = next((str(file) for place in places for file in sorted(place.glob("*/bin/cuobjdump*")) if file.is_file()), None)
    if found is None:
        raise TargetError("expected cuobjdump to print machine code, found none", hint="pip install nvidia-cuda-cuobjdump")
    return found


@cache
def _library() -> ctypes.CDLL:
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib  # noqa: PLC0415
    except ImportError:
        raise TargetError(
            "expected NVRTC to compile for 'cuda', found no cuda-pathfinder",
            hint="pip install 'tensorexpr[cuda]' (CUDA 13) or 'tensorexpr[cuda12]'",
        ) from None
    try:
        load_nvidia_dynamic_lib("nvrtc")
        path = load_nvidia_dynamic_lib("nvrtc").abs_path
    except Exception as error:  # the class of this error is not public
        raise TargetError(
            "expected NVRTC to compile for 'cuda', found none",
            at=str(error).splitlines()[0],
            hint="pip install 'tensorexpr[cuda]' (CUDA 13) or 'tensorexpr[cuda12]'",
        ) from None
    return ctypes.CDLL(path)


def available() -> bool:
    """Whether NVRTC is found here."""
    try:
        _library()
    except TargetError:
        return False
    return True


def version() -> tuple[int, int]:
    """NVRTC's version."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _done(_library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return major.value, minor.value


def architectures() -> tuple[int, ...]:
    """The capabilities, ten times the first number plus the second, that NVRTC makes code for."""
    library, count = _library(), ctypes.c_int()
    _done(library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
    numbers = (ctypes.c_int * count.value)()
    _done(library.nvrtcGetSupportedArchs(numbers))
    return tuple(numbers)


def _done(status: int) -> None:
    if status:
        library = _library()
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise InternalError(f"cuda: NVRTC failed: {library.nvrtcGetErrorString(status).decode()}")


def compile_text(text: str, arch: str) -> Compiled:
    """Kernels, in the dialect of the prelude, as a cubin for an architecture such as "sm_90".

    Raises `TargetError` where NVRTC is not found, `InternalError` with its log where it refuses the text.
    """
    made = _compiled(text, arch)
    # The assembler spills a little, not always by that name, rather than run fewer threads at once, unless one block is said to be enough.
    kept = {name: _in_memory(r) for name, r in made.resources.items() if _in_memory(r)}
    if not kept:
        return made
    one = _compiled(_for_one_block(text, kept), arch)
    helped = [name for name, size in kept.items() if _in_memory(one.resources[name]) < size]
    if len(helped) == len(kept):
        return one
    return _compiled(_for_one_block(text, helped), arch) if helped else made  # arrays that a thread keeps stay there


def _in_memory(r: Resources) -> int:
    return r.spill_stores + r.spill_loads + r.stack


def _for_one_block(text: str, names: Collection[str]) -> str:
    return _BOUNDS.sub(lambda m: f"__launch_bounds__({m[1]}, 1) {m[2]}(" if m[2] in names else m[0], text)


_BOUNDS = re.compile(r"__launch_bounds__\((\d+)\) (\w+)\(")


def _compiled(text: str, arch: str) -> Compiled:
    library, known, number = _library(), architectures(), int("".join(filter(str.isdigit, arch)))
    # Of a GPU that came later than NVRTC: what an earlier one of its generation runs, it runs.
    near = number if number in known else max((n for n in known if n // 10 == number // 10 and n < number), default=None)
    if near is None:
        major, minor = version()
        raise TargetError(
            f"expected a GPU that NVRTC {major}.{minor} makes code for, of sm_{min(known)} to sm_{max(known)}, got one of {arch}",
            hint="another version of NVRTC: tensorexpr[cuda] takes that of CUDA 13, tensorexpr[cuda12] that of CUDA 12",
        )
    arch = arch if near == number else f"sm_{near}"
    program = ctypes.c_void_p()
    source = f"{PRELUDE.read_text()}\n{text}"
    _done(library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"tensorexpr.cu", 0, None, None))
    try:
        options = (*OPTIONS, f"-arch={arch}")
        given = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        status = library.nvrtcCompileProgram(program, len(options), given)
        log = _read(program, "ProgramLog").decode(errors="replace")
        if status:
            raise InternalError(f"cuda: expected text that NVRTC takes, got {log[:3000]}")
        cubin, ptx = _read(program, "CUBIN"), _read(program, "PTX").rstrip(b"\0").decode()
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
    parameters = parameters_of(cubin)
    resources = {name: replace(r, parameters=parameters[name]) for name, r in resources_of(log).items()}
    return Compiled(arch, cubin, ptx, log, resources)


def _read(program: ctypes.c_void_p, what: str) -> bytes:
    library, size = _library(), ctypes.c_size_t()
    _done(getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _done(getattr(library, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw.rstrip(b"\0") if what == "ProgramLog" else buffer.raw


_FUNCTION = re.compile(r"Compiling entry function '(\w+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


def resources_of(log: str) -> dict[str, Resources]:
    """The resources of each kernel from the assembler's log, which says nothing of parameters."""
    found: dict[str, Resources] = {}
    name, stack = "", (0, 0, 0)
    for line in log.splitlines():
        if match := _FUNCTION.search(line):
            name, stack = match[1], (0, 0, 0)
        elif match := _STACK.search(line):
            stack = (int(match[1]), int(match[2]), int(match[3]))
        elif name and (match := _USED.search(line)):
            found[name] = Resources(int(match[1]), *stack, int(match[2] or 0))
    return found
