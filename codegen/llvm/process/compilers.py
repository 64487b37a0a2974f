"""Compilers of LLVM's that work side by side: each has a context, machines and passes of its own, and makes one module at a time.

    with free_compiler() as compiler:
        with closing(compiler.parsed(text)) as module:
            compiler.run_passes(module, machine, "registers")
            image = compiler.emit_object(module, machine)

LLVM works on as many modules at once as there are contexts; its wrapper has one lock for every call of it. The two calls that take nearly
all of the time, passes and machine code, touch nothing but what the compiler owns, and go around that lock (they give up Python's lock,
too). All compilers, and the wrapper's lock, are held while the process forks, so that a child never inherits LLVM in the middle of
something.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tensorexpr.codegen.llvm.text.machine import Machine

SIDE_BY_SIDE = 2
"""Compilers of a process: one beside Python, and one in its place while it waits."""
_MODULES = 32  # that one builder of passes serves
_WALKS_ALL_PATHS = 22
"""The version of LLVM whose passes look for checksums in loops of 8 n steps, along all paths from what a step leaves to where it begins.
A minimum uses its operand three times, so there are 3^32 paths through the 32 minima of `max(min(x[u] * y[v]) for ...)`."""

linking = threading.RLock()
"""Held by who links, or makes what a process has once."""


class Compiler:
    """A context, and what makes code in it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._context: Any = None
        self._machines: dict[tuple[Machine, int], Any] = {}
        self._builders: dict[tuple[Machine, str], tuple[Any, int]] = {}

    def parsed(self, text: str) -> Any:
        """The module of a text, to be closed before the compiler is free. Raises `RuntimeError` where that is not valid."""
        from llvmlite import binding  # noqa: PLC0415

        if self._context is None:
            initialize()
            self._context = binding.create_context()
        module = binding.parse_assembly(text, self._context)
        try:
            module.verify()
        except BaseException:
            module.close()
            raise
        return module

    def run_passes(self, module: Any, machine: Machine, passes: str) -> None:
        """LLVM's passes over a module; over each of its functions by itself with "functions"."""
        from llvmlite import binding  # noqa: PLC0415

        builder = self._builder(machine, passes)
        manager: Any
        if passes == "functions":
            manager, run = builder.getFunctionPassManager(), _unlocked("LLVMPY_RunNewFunctionPassManager")
            over = [function for function in module.functions if not function.is_declaration]
        else:
            manager, run, over = builder.getModulePassManager(), _unlocked("LLVMPY_RunNewModulePassManager"), [module]
        try:
            for part in over:
                run(manager, part, builder)
        finally:
            # Closing it does nothing: its class inherits the empty method in front of the one that frees (50 KiB for each compilation).
            binding.newpassmanagers.NewPassManager._dispose(manager)
            manager.detach()

    def emit_object(self, module: Any, machine: Machine, level: int) -> bytes:
        """The object code of a module."""
        from llvmlite.binding import ffi  # noqa: PLC0415

        with ffi.OutputString() as error:
            buffer = _unlocked("LLVMPY_TargetMachineEmitToMemory")(self._machine(machine, level), module, 1, error)
            if not buffer:
                raise RuntimeError(str(error))
        try:
            return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
        finally:
            ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)

    def emit_assembly(self, module: Any, machine: Machine) -> str:
        """The assembly text of a module."""
        return str(self._machine(machine, 2).emit_assembly(module))

    def _machine(self, machine: Machine, level: int) -> Any:
        if (machine, level) not in self._machines:
            self._machines[machine, level] = target_machine(machine, level)
        return self._machines[machine, level]

    def _builder(self, machine: Machine, passes: str) -> Any:
        """What makes the passes of a name, for one module more.

        Every module leaves callbacks in it that are called for each one after it (10 us a module), and it leaves 1.5 KiB behind when it
        goes, so it is replaced by a new one after some.
        """
        from llvmlite import binding  # noqa: PLC0415

        builder, count = self._builders.get((machine, passes), (None, _MODULES))
        if count >= _MODULES:
            loops = passes == "loops"
            options = binding.PipelineTuningOptions(speed_level=2 if loops else 1)
            options.loop_vectorization = options.slp_vectorization = loops
            options.loop_interleaving = options.loop_unrolling = loops
            builder, count = binding.create_pass_builder(self._machine(machine, 2), options), 0
        self._builders[machine, passes] = builder, count + 1
        return builder


_compilers = [Compiler() for _ in range(SIDE_BY_SIDE)]


@contextmanager
def free_compiler() -> Iterator[Compiler]:
    """A compiler that nobody uses; waits where there is none."""
    compiler = next((one for one in _compilers if one.lock.acquire(blocking=False)), None)
    if compiler is None:
        compiler = _compilers[0]
        compiler.lock.acquire()
    try:
        yield compiler
    finally:
        compiler.lock.release()


_starting = threading.Lock()
_started = False


def initialize() -> None:
    """What LLVM is told once, for the whole process: an option that is given twice, or not known, ends it."""
    global _started
    from llvmlite import binding  # noqa: PLC0415

    with _starting:
        if _started:
            return
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        binding.initialize_native_asmparser()
        if binding.llvm_version_info[0] == _WALKS_ALL_PATHS:
            binding.set_option("tensorexpr", "-disable-loop-idiom-hashrecognize")
        _started = True


def target_machine(machine: Machine, level: int) -> Any:
    """What makes code for a machine at a level of optimization."""
    from llvmlite import binding  # noqa: PLC0415

    initialize()
    target = binding.Target.from_triple(machine.triple)
    return target.create_target_machine(cpu=machine.cpu, features=machine.features, opt=level, reloc="pic", codemodel="small", jit=True)


def _unlocked(name: str) -> Callable[..., Any]:
    """A function of LLVM's wrapper without the wrapper's lock; with it where a version of llvmlite has no such function to find."""
    from llvmlite.binding import ffi  # noqa: PLC0415

    locked = getattr(ffi.lib, name)
    function: Callable[..., Any] = getattr(locked, "_cfn", locked)
    return function


def _before_fork() -> None:
    linking.acquire()
    for compiler in _compilers:
        compiler.lock.acquire()
    _starting.acquire()
    wrapper = sys.modules.get("llvmlite.binding.ffi")  # its lock is taken outside of ours, too: where linked code goes
    if wrapper is not None:
        wrapper.lib._lock.__enter__()


def _after_fork() -> None:
    wrapper = sys.modules.get("llvmlite.binding.ffi")
    if wrapper is not None:
        wrapper.lib._lock.__exit__(None, None, None)
    _starting.release()
    for compiler in _compilers:
        compiler.lock.release()
    linking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
