"""`te.export`: compiled functions to a folder of files, written whole or not at all."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from tensorexpr.codegen.bundle.elf_shared import Input, shared_object
from tensorexpr.codegen.bundle.entries import Code
from tensorexpr.codegen.bundle.entries import entries as entry_points
from tensorexpr.codegen.bundle.gpus import GpuEntry, GpuPart, architectures, gpu_part, gpu_routines
from tensorexpr.codegen.bundle.gpus import exports as gpu_exports
from tensorexpr.codegen.bundle.header import c_name, header_text, is_taken
from tensorexpr.codegen.bundle.table import function_table, table_file
from tensorexpr.codegen.bundle.tensors import tensors_file
from tensorexpr.codegen.bundle.variants import Variant, detection_text, variants_of
from tensorexpr.codegen.compiled.function import CompiledFunction
from tensorexpr.codegen.compiled.gpu_function import GpuFunction
from tensorexpr.codegen.llvm import Interface, Machine, host, nest_code
from tensorexpr.codegen.llvm.process.jit import object_code
from tensorexpr.codegen.llvm.runtime.pool_text import pool_routines
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.stages import made_of_program
from tensorexpr.errors import ArgumentError, TargetError, user_location
from tensorexpr.hints import checked
from tensorexpr.ir import Constant
from tensorexpr_runtime.files import FILE, FORMAT, VERSION, mark_of

_CONSTANTS = "constants.safetensors"
_DEVICE_ALIGNMENT = 16  # bytes, of every argument of a kernel on a GPU
_LIBRARIES = {
    **dict.fromkeys(("memset", "memcpy", "memmove", "memcmp", "bcmp"), "libc.so.6"),
    **dict.fromkeys(("pthread_create", "pthread_join", "pthread_self", "pthread_sigmask", "syscall", "clock_gettime"), "libc.so.6"),
    **dict.fromkeys(("sched_yield", "sched_getcpu", "sched_getaffinity"), "libc.so.6"),
    **dict.fromkeys(("pthread_getaffinity_np", "pthread_setaffinity_np"), "libc.so.6"),
    **{f"{name}{end}": "libm.so.6" for name in ("fma", "floor", "ceil", "trunc", "roundeven", "rint", "sqrt") for end in ("", "f")},
    **dict.fromkeys(("__extendhfsf2", "__truncsfhf2"), "libgcc_s.so.1"),
    **dict.fromkeys(("dlopen", "dlsym"), "libdl.so.2"),  # where they are before glibc 2.34; the library is there after it, too
    **dict.fromkeys(("getenv", "malloc", "free"), "libc.so.6"),
}
_THREADS = """
def te_bundle_threads(count: i32):
    te_pool_set(min(max(count, 1), LIMIT + 1) - 1)
"""


def _by_name(what: str, *arguments: Any) -> None:
    """What came by position: a function, which is given by name."""
    if any(callable(argument) for argument in arguments):
        raise ArgumentError(
            f"{what}: expected functions by name, got one by position", location=user_location(), hint="te.export(path, forward=f)"
        )


@checked(_by_name)
def export(
    path: str | os.PathLike[str],
    /,
    *,
    cpus: Sequence[str] | str | None = None,
    gpus: Sequence[str] | str | None = None,
    **functions: CompiledFunction,
) -> Path:
    """Writes compiled functions to a bundle, a folder that runs without the compiler: `te.export("model", forward=f, backward=g)`.

    They share their constants, and each has code for all of `cpus` and `gpus`, whatever it was compiled for. `cpus` names what code
    is made for, in the order in which it is tried when the bundle is loaded: "host" (this machine, with the very code that runs here) and
    the levels x86-64-v4, -v3, -v2; by default the host, where some function is for the CPU. `gpus` names architectures, such as "sm_80"
    and "sm_90" (or "sm_90a", for that one alone), for which NVRTC makes code here, GPU or not; by default that of this machine's GPU,
    where some function is for it.

    The folder is there whole or not at all; a bundle at `path` is replaced, anything else is refused. Gives the path. Names need not be
    identifiers, as `vjp(loss)` is none: Python reads `bundle["vjp(loss)"]`, and C calls `model_vjp_loss_`.

    Raises `ArgumentError` for what is no compiled function and for names that C cannot tell apart or has itself, `TargetError` for CPUs
    and GPUs that are unknown, and where NVRTC is not installed.

    >>> import tempfile, pathlib
    >>> double = te.op(lambda x: te.compute(x.shape, lambda i: 2 * x[i])).compile(((3,), "float32"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bundle = te.load(te.export(pathlib.Path(folder, "model"), double=double), trusted=True)
    ...     bundle.double(np.float32([1, 2, 3]))
    array([2., 4., 6.], dtype=float32)
    """
    if not isinstance(path, str | os.PathLike):
        raise ArgumentError(f"export: expected the path of a folder, got {path!r}", location=user_location())
    place = Path(path)
    if not functions:
        raise ArgumentError("export: expected functions by name, got none", location=user_location(), hint="te.export(path, forward=f)")
    for name, function in functions.items():
        if not isinstance(function, CompiledFunction):
            kind = type(function).__name__
            raise ArgumentError(
                f"export: expected compiled functions, got {'an' if kind[0] in 'AEIOUaeiou' else 'a'} {kind} for {name}",
                location=user_location(),
                hint="op.compile(*specs) and te.build(outputs, inputs) give them",
            )
    if place.exists() and not (place.is_dir() and (not any(place.iterdir()) or (place / FILE).is_file())):
        raise ArgumentError(f"export: expected a new path or a bundle to replace, got {place}", location=user_location())
    if cpus is None:
        cpus = [] if all(isinstance(f, GpuFunction) for f in functions.values()) else ["host"]
    if gpus is None:
        gpus = [_architecture(name, f) for name, f in functions.items() if isinstance(f, GpuFunction)]
    cpus, gpus = _names("CPUs", cpus), _names("GPUs", gpus)
    if not cpus and not gpus:
        raise TargetError("export: expected at least one CPU or GPU to make code for, got none", location=user_location())
    prefix = c_name(place.name.split(".")[0])
    _check_symbols(prefix, functions)
    _write(place, _files(prefix, functions, variants_of(cpus), architectures(gpus)))
    return place


def _names(what: str, given: object) -> Sequence[str]:
    """Names, or one name. Raises `TargetError` for anything else."""
    items = [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else [None]
    names = [item for item in items if isinstance(item, str)]
    if len(names) != len(items):
        raise TargetError(f"export: expected the names of {what}, got {given!r}", location=user_location())
    return names


def _check_symbols(prefix: str, names: Iterable[str]) -> None:
    """Raises `ArgumentError` where the entry points of two functions, or one and what every bundle has, would have one name, or one
    that C, C++ or the system's library has."""
    system = [ctypes.CDLL(name) for name in dict.fromkeys(_LIBRARIES.values())]
    taken = {f"{prefix}_{word}": "that of every bundle" for word in ("variant", "threads", "after_fork", "cuda_load")}
    for name in names:
        for end in ("", "_workspace", "_cuda", "_cuda_workspace"):
            symbol = f"{prefix}_{c_name(name)}{end}"
            if symbol in taken:
                raise ArgumentError(
                    f"export: expected functions that have names of their own in C, got {name}, whose {symbol} is {taken[symbol]}, too",
                    location=user_location(),
                )
            if is_taken(symbol) or any(hasattr(library, symbol) for library in system):
                raise ArgumentError(
                    f"export: expected functions whose names in C are free, got {name}, whose {symbol} is a word of C, C++ or the system's "
                    "library",
                    location=user_location(),
                    hint="another name for the function or the bundle: they are put together",
                )
            taken[symbol] = f"that of {name}"


def _architecture(name: str, function: GpuFunction) -> str:
    """The architecture of the GPU that a function was compiled for."""
    found = function.architecture
    if found is None:
        raise TargetError(
            f"export: expected the GPUs to make code for, got none: here the kernels of {name} run on a CPU",
            location=user_location(),
            hint="te.export(path, gpus=['sm_90'], ...)",
        )
    return found


def _files(
    prefix: str, functions: Mapping[str, CompiledFunction], variants: Sequence[Variant], gpus: Sequence[str]
) -> dict[str, list[Any]]:
    """The contents of the files of a bundle, in parts."""
    made = {name: [_made(function, variant) for variant in variants] for name, function in functions.items()}
    parts = {name: gpu_part(function, gpus) for name, function in functions.items()} if gpus else {}
    needed = {name: [c for nest, _ in made[name] for c in nest.constants] + _constants_of(parts.get(name)) for name in functions}
    names, arrays = _named_constants(needed)
    head, offsets, data = tensors_file(arrays, _DEVICE_ALIGNMENT if gpus else 1)
    inputs: list[Input] = []
    codes: dict[str, list[Code]] = {name: [] for name in functions}
    entries: list[GpuEntry] = []
    tables = {}
    for name, function in functions.items():
        symbol = f"{prefix}_{c_name(name)}"
        said = []
        for number, (nest, image) in enumerate(made[name]):
            interface = Interface.of(nest)
            own = f"te_v{number}_{symbol}"
            inputs.append(Input(image, {interface.entry: own}))
            codes[name].append(Code(own, interface, tuple(offsets[names[name, c]] for c in interface.constants), function.places))
            said.append((interface, nest.checks))
        part = parts.get(name)
        if part is not None:
            entries.append(GpuEntry(symbol, part, tuple(offsets[names[name, c]] for c in part.plan.constants), function.places))
        used = dict.fromkeys(names[name, c.name] for c in needed[name])
        tables[name] = function_table(function, symbol, said, part, list(used))
    library = f"lib{prefix}.so"
    table = {
        "format": FORMAT,
        "version": VERSION,
        "made_by": f"tensorexpr {version('tensorexpr')}",
        "name": prefix,
        "platform": host().triple,
        "library": library,
        "variants": [{"name": v.name, "needs": list(v.needs)} for v in variants],
        "gpus": list(gpus),
        "constants_file": {"name": _CONSTANTS, "offset": len(head)},
        "constants": [_constant(name, array, offsets[name]) for name, array in arrays.items()],
        "functions": tables,
    }
    symbols = [(tables[name]["symbol"], codes[name]) for name in functions]
    image = _library(prefix, library, inputs, symbols, variants, entries, mark_of(table).decode())
    for name, part in parts.items():
        for row in tables[name]["gpu"]["images"]:
            row["offset"] = image.index(part.images[row["name"]])
    files: dict[str, list[Any]] = {library: [image], _CONSTANTS: [head, *data]}
    files[f"{prefix}.h"] = [header_text(prefix, tables, len(head), sum(len(part) for part in data), bool(variants), gpus).encode()]
    return {**files, FILE: [table_file({**table, "files": {name: _described(parts) for name, parts in files.items()}})]}


def _made(function: CompiledFunction, variant: Variant) -> tuple[LoopNest, bytes]:
    """The loops of a function for a variant, those that run here on the host and wherever the user made the schedule, and their code."""

    def code(nest: LoopNest) -> tuple[LoopNest, bytes]:
        return nest, nest_code(nest, variant.machine, whole=True).image

    own = function.target == "cpu" and (variant.name.startswith("host") or function.is_scheduled_by_hand)
    return code(function.nest) if own else made_of_program(function.program, variant.target, lambda stages: code(stages.nest))[1]


def _constants_of(part: GpuPart | None) -> list[Constant]:
    return [] if part is None else list(part.constants)


def _named_constants(needed: Mapping[str, Sequence[Constant]]) -> tuple[dict[tuple[str, str], str], dict[str, np.ndarray]]:
    """The name in the bundle of every constant of a function, and the arrays by these names: equal data is one."""
    names: dict[tuple[str, str], str] = {}
    arrays: dict[str, np.ndarray] = {}
    known: dict[bytes, str] = {}
    for function, several in needed.items():
        for constant in several:
            name = known.get(constant.content)
            if name is None:
                name = constant.name if constant.name not in arrays else f"{function}.{constant.name}"
                while name in arrays:
                    name += "_"
                known[constant.content], arrays[name] = name, constant.data
            names[function, constant.name] = name
    return names, arrays


def _constant(name: str, array: np.ndarray, offset: int) -> dict[str, Any]:
    shape = list(array.shape)
    return {"name": name, "kind": "constant", "dtype": array.dtype.name, "shape": shape, "offset": offset, "size": array.nbytes}


def _library(
    prefix: str,
    soname: str,
    inputs: Sequence[Input],
    functions: Sequence[tuple[str, Sequence[Code]]],
    variants: Sequence[Variant],
    entries: Sequence[GpuEntry],
    mark: str,
) -> bytes:
    """The shared object of all code of a bundle, with what marks its table."""
    triple = host().triple
    plain = Machine(triple, "x86-64", "", 128)
    renamed: dict[str, str] = {}
    texts: list[str] = [f'target triple = "{triple}"\n@te_bundle_table = constant [{len(mark)} x i8] c"{mark}"\n']
    exports: list[str] = []
    if variants:
        renamed = {
            "te_bundle_variant": f"{prefix}_variant",
            "te_bundle_threads": f"{prefix}_threads",
            "te_pool_reset": f"{prefix}_after_fork",
        }
        texts += [pool_routines(plain, _THREADS).text(), detection_text(triple, variants), entry_points(triple, functions).text()]
        exports += [*renamed.values(), *(name for function, _ in functions for name in (function, f"{function}_workspace"))]
    if entries:
        texts.append(gpu_routines(triple, prefix, entries).text())
        exports += gpu_exports(prefix, [entry.symbol for entry in entries])
    own = [Input(object_code(text, plain, "none").image, renamed) for text in texts]
    return shared_object([*inputs, *own], exports, soname, _LIBRARIES, ["te_pool_stop"] if variants else [])


def _described(parts: Sequence[Any]) -> dict[str, Any]:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return {"bytes": sum(len(part) for part in parts), "sha256": digest.hexdigest()}


# ------------------------------------------------------------------------------------------------------------ writing


def _write(place: Path, files: Mapping[str, Sequence[Any]]) -> None:
    """Writes the files to a folder beside the place, and moves it there whole. Only this user may write to it."""
    mask = _umask()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    except OSError as error:
        raise ArgumentError(f"export: expected a path to write to, got {place}: {error.strerror}", location=user_location()) from error
    try:
        for name, parts in files.items():
            with open(made / name, "wb") as file:
                os.chmod(made / name, 0o644 & ~mask)
                for part in parts:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
        made.chmod(0o755 & ~mask)
        _move(made, place)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _move(made: Path, place: Path) -> None:
    """Gives the folder its name; what had it gets that of the folder."""
    if not place.exists():
        os.rename(made, place)
    elif not _exchanged(made, place):
        beside = made.with_name(made.name + ".old")
        os.rename(place, beside)
        try:
            os.rename(made, place)
        except OSError:
            os.rename(beside, place)
            raise
        os.rename(beside, made)


def _exchanged(made: Path, place: Path) -> bool:
    """Whether the system could give two folders each other's names in one step (Linux)."""
    with suppress(AttributeError, OSError):
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
        here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
        return bool(renameat2(here, os.fsencode(made), here, os.fsencode(place), exchange) == 0)
    return False


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
