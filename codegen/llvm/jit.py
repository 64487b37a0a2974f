"""LLVM IR text to machine code in this process, through LLVM's ORC JIT.

The text is verified first (LLVM is built with assertions here: an invalid module would end the process), optimized,
compiled to an object and linked; externals are imported by address. A `NativeModule` owns its code: dropping it frees
the memory.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from tensorexpr.codegen.llvm import math_libm, pool_text
from tensorexpr.codegen.llvm.machine import Machine
from tensorexpr.errors import InternalError

_libraries = itertools.count()

# One compilation at a time: LLVM's wrapper has a global lock anyway. Held while the process forks, so that a child never
# inherits a compiler in the middle of something.
compiling = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=compiling.acquire, after_in_parent=compiling.release, after_in_child=compiling.release)


@cache
def _compiler(machine: Machine) -> tuple[Any, Any]:
    """A target machine and a JIT for it, made once and kept."""
    from llvmlite import binding  # noqa: PLC0415

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_triple(machine.triple)
    target_machine = target.create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=2, reloc="pic", codemodel="small", jit=True
    )
    return target_machine, binding.create_lljit_compiler(target_machine)


@cache
def _library_addresses() -> dict[str, int]:
    """Addresses of the C library's functions that emitted code may call, as far as this process has them."""
    libraries = [ctypes.CDLL(None)]
    for name in ("libm.so.6", "libgcc_s.so.1"):
        with suppress(OSError):
            libraries.append(ctypes.CDLL(name))
    found: dict[str, int] = {}
    for name in (*math_libm.SYMBOLS, *pool_text.SYMBOLS):
        function = next((f for f in (getattr(library, name, None) for library in libraries) if f is not None), None)
        if function is not None:
            found[name] = ctypes.cast(function, ctypes.c_void_p).value or 0
    return found


class NativeModule:
    """Machine code in this process: `ir` is its text, `assembly` what LLVM made of it, `address(name)` its functions.

    `passes` is what LLVM does before it makes code: "none"; "registers" (what explicit vectors need: stack slots to
    registers, common subexpressions, loop invariants); "loops" (all, with its vectorizers and unroller, at two to three
    times the time). `imports` are addresses of externals besides those of the C library. Raises `InternalError` where
    the text is not valid IR or calls what is not there.
    """

    def __init__(self, ir: str, machine: Machine, passes: str, imports: Mapping[str, int] | None = None) -> None:
        from llvmlite import binding  # noqa: PLC0415

        self.ir = ir
        self.machine = machine
        self.passes = passes
        with compiling:
            target_machine, jit = _compiler(machine)
            module = self._optimized()
            functions = [f for f in module.functions if not f.is_declaration and f.linkage == binding.Linkage.external]
            builder = binding.JITLibraryBuilder().add_object_img(target_machine.emit_object(module))
            for name, address in {**_library_addresses(), **(imports or {})}.items():
                builder.import_symbol(name, address)
            for function in functions:
                builder.export_symbol(function.name)
            # The tracker keeps the code alive; dropping it unloads the library.
            try:
                self._tracker = builder.link(jit, f"tensorexpr{next(_libraries)}")
            except RuntimeError as error:
                raise InternalError(f"llvm: expected code that links, got {str(error).strip()}") from None
            self._addresses = {function.name: self._tracker[function.name] for function in functions}

    def address(self, name: str) -> int:
        """The address of an exported function."""
        return self._addresses[name]

    @property
    def assembly(self) -> str:
        """The machine code as assembly text (made anew on each request)."""
        with compiling:
            return str(_compiler(self.machine)[0].emit_assembly(self._optimized()))

    def _optimized(self) -> Any:
        from llvmlite import binding  # noqa: PLC0415

        target_machine, _ = _compiler(self.machine)
        try:
            module = binding.parse_assembly(self.ir)
            module.verify()
        except RuntimeError as error:
            raise InternalError(f"llvm: expected valid IR, got {str(error).strip()}") from None
        if self.passes == "none":
            return module
        loops = self.passes == "loops"
        options = binding.PipelineTuningOptions(speed_level=2 if loops else 1)
        options.loop_vectorization = options.slp_vectorization = loops
        options.loop_interleaving = options.loop_unrolling = loops
        builder = binding.create_pass_builder(target_machine, options)
        builder.getModulePassManager().run(module, builder)
        return module
