"""LLVM IR text to machine code in this process, through LLVM's ORC JIT.

The text is verified first (LLVM is built with assertions here: an invalid module would end the process), optimized,
compiled to an object and linked; externals are imported by address. A `NativeModule` owns its code: dropping it frees
the memory.
"""

from __future__ import annotations

import ctypes
import itertools
import re
from collections.abc import Mapping
from contextlib import closing, suppress
from functools import cache
from typing import Any, NamedTuple

from tensorexpr.codegen import disk
from tensorexpr.codegen.llvm.process.compilers import Compiler, free_compiler, linking, target_machine
from tensorexpr.codegen.llvm.runtime import memory_text, pool_text
from tensorexpr.codegen.llvm.text.builder import INTRINSIC
from tensorexpr.codegen.llvm.text.fences import fenced, may_need_fences
from tensorexpr.codegen.llvm.text.machine import Machine
from tensorexpr.codegen.llvm.text.routines import Routines
from tensorexpr.errors import InternalError, ScheduleError

_libraries = itertools.count()
_LIBRARIES = 64  # that one linker links

# What LLVM calls of itself: for instructions that a machine lacks, and for copies.
_IMPLIED = (
    *(
        f"{name}{suffix}"
        for name in ("fma", "floor", "ceil", "trunc", "roundeven", "rint", "sqrt", "fabs", "copysign")
        for suffix in ("", "f")
    ),
    *("memset", "memcpy", "memmove", "memcmp", "bcmp"),
    *("__extendhfsf2", "__truncsfhf2"),  # float16 on x86 before F16C; in libgcc
)

_LOADER = ("dlopen", "dlsym", "getenv")  # what launches on a GPU find the driver with

_linkers: dict[Machine, tuple[Any, int]] = {}


def _linker(machine: Machine) -> Any:
    """A linker of LLVM's for one library more, under the lock.

    A linker keeps 10 KiB for every library that it ever linked, unloaded ones too, so it is replaced by a new one after some. It
    goes, with all that it kept, when the last of its libraries does.
    """
    from llvmlite import binding  # noqa: PLC0415

    linker, count = _linkers.get(machine, (None, _LIBRARIES))
    if count >= _LIBRARIES:
        # JITLink puts all parts of a library side by side; the older linker may put constants further from code than 2 GiB, where a
        # process has much else mapped (PyTorch, JAX), and then ends it.
        linker, count = binding.create_lljit_compiler(target_machine(machine, 2), use_jit_link=True), 0
    _linkers[machine] = linker, count + 1
    return linker


@cache
def _library_addresses() -> dict[str, int]:
    """Addresses of the C library's functions that emitted code may call, as far as this process has them."""
    libraries = [ctypes.CDLL(None)]
    for name in ("libm.so.6", "libgcc_s.so.1"):
        with suppress(OSError):
            libraries.append(ctypes.CDLL(name))
    found: dict[str, int] = {}
    for name in (*_IMPLIED, *_LOADER, *pool_text.SYMBOLS, *memory_text.SYMBOLS):
        function = next((f for f in (getattr(library, name, None) for library in libraries) if f is not None), None)
        if function is not None:
            found[name] = ctypes.cast(function, ctypes.c_void_p).value or 0
    return found


class ObjectCode(NamedTuple):
    """Machine code that is not linked yet, good for any process on the same machine: an object file, what it exports, and other object
    files that are linked with it, whose functions it calls."""

    image: bytes
    exports: tuple[str, ...]
    others: tuple[bytes, ...] = ()

    @property
    def images(self) -> tuple[bytes, ...]:
        """All of the object files."""
        return (self.image, *self.others)


def object_code(ir: str, machine: Machine, passes: str) -> ObjectCode:
    """Compiles the text of a module.

    `passes` is what LLVM does before it makes code: "calls" (nothing, and what is fastest to make, for functions that only call
    others); "none"; "registers" (what explicit vectors need: stack slots to
    registers, common subexpressions, loop invariants); "functions" (the same for each function by itself, in two thirds of
    the time: nothing is inlined, and of a function nothing is known where it is called); "loops" (all, with its vectorizers and
    unroller, at two to three times the time). Raises `InternalError` where the text is not valid IR.
    """
    with free_compiler() as compiler, closing(_optimized(compiler, ir, machine, passes)) as module:
        image = compiler.emit_object(module, machine, 0 if passes == "calls" else 2)
        return ObjectCode(image, tuple(f.name for f in module.functions if not f.is_declaration and f.linkage.name == "external"))


class NativeModule:
    """Machine code in this process: `address(name)` gives its functions, `code` the object that was linked.

    Made of text by `compiled`, or of object code. `imports` are addresses of externals besides those of the C library.
    Raises `InternalError` where the code calls what is not there.
    """

    def __init__(self, code: ObjectCode, machine: Machine, imports: Mapping[str, int] | None = None) -> None:
        from llvmlite import binding  # noqa: PLC0415

        with linking:
            builder = binding.JITLibraryBuilder()
            for image in code.images:
                builder.add_object_img(image)
            # Only what the code names: the linker keeps some memory for each symbol that was ever given to it.
            for name, address in {**_library_addresses(), **(imports or {})}.items():
                if any(name.encode() in image for image in code.images):
                    builder.import_symbol(name, address)
            for name in code.exports:
                builder.export_symbol(name)
            # The tracker keeps the code alive; dropping it unloads the library.
            try:
                self._tracker = builder.link(_linker(machine), f"tensorexpr{next(_libraries)}")
            except RuntimeError as error:
                raise InternalError(f"llvm: expected code that links, got {str(error).strip()}") from None
            self._addresses: dict[str, int] = {name: self._tracker[name] for name in code.exports}

    @staticmethod
    def compiled(text: Routines | str, machine: Machine, passes: str, imports: Mapping[str, int] | None = None) -> NativeModule:
        """The module of a text, found on disk where it was compiled before; `passes` as in `object_code`, whose errors it raises."""
        key = disk.key_of("text", repr(text), passes, repr(machine))
        entry = disk.load(key)
        if entry is not None:
            code = ObjectCode(entry.image, tuple(entry.about["exports"]))
        else:
            code = object_code(text if isinstance(text, str) else text.text(), machine, passes)
            disk.save(key, disk.Entry({"exports": code.exports}, code.image))
        return NativeModule(code, machine, imports)

    def keep_forever(self) -> None:
        """The code stays until the process ends, whatever the interpreter frees before that."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))

    def address(self, name: str) -> int:
        """The address of an exported function."""
        return self._addresses[name]


def assembly(ir: str, machine: Machine, passes: str) -> str:
    """What `object_code` makes of a text, as assembly text."""
    with free_compiler() as compiler, closing(_optimized(compiler, ir, machine, passes)) as module:
        return compiler.emit_assembly(module, machine)


def _intrinsic_at(ir: str, error: str) -> str | None:
    """The name of the instruction, declared by the user, whose text holds the line of an error of LLVM's parser."""
    place = re.match(r"LLVM IR parsing error\n<string>:(\d+):", error)
    if place is None:
        return None
    heads = [line for line in ir.splitlines()[: int(place[1])] if line.startswith("define ")]
    _, found, rest = heads[-1].partition(f"@{INTRINSIC}") if heads else ("", "", "")
    return rest.partition("(")[0] if found else None


def _optimized(compiler: Compiler, ir: str, machine: Machine, passes: str) -> Any:
    try:
        module = compiler.parsed(ir)
    except RuntimeError as error:
        said = str(error).strip()
        name = _intrinsic_at(ir, said)
        if name is not None:
            raise ScheduleError(f"intrinsic {name}: expected a body that LLVM reads, got {said}") from None
        raise InternalError(f"llvm: expected valid IR, got {said}") from None
    try:
        if passes not in ("calls", "none"):
            compiler.run_passes(module, machine, passes)
        if not may_need_fences(ir, (f.name for f in module.functions if f.is_declaration)):
            return module
        written = str(module)
        put = fenced(written)
        if put == written:
            return module
        again = compiler.parsed(put)
    except BaseException:
        module.close()
        raise
    module.close()
    return again
