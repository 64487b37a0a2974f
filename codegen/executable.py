"""Executables: a program through every stage to native code, or its code found in memory or on disk.

Native code is kept in memory per program or schedule: programs with the same definitions share it, and threads that ask for one
at the same time compile it once. Programs are compared by structure, which leaves out the user's lines; where a run-time check
may have to name such a line, the lines are part of the key. Behind that stands the disk (`disk`): there the key is a digest of
the text of the program or schedule, its constants, the machine, and the versions of LLVM's wrapper and of this package.
Code found on disk is linked and run as it is; the stages that led to it are made again only when someone looks at them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from tensorexpr.codegen import disk
from tensorexpr.codegen.llvm import Interface, NativeFunction, ObjectCode, emit, host, nest_assembly, nest_code
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.memo import Memo
from tensorexpr.codegen.nest import Alloc, Block, For, If, LoopNest
from tensorexpr.codegen.nest_verify import verify_nest
from tensorexpr.codegen.schedule import Schedule
from tensorexpr.codegen.target import host_target
from tensorexpr.codegen.tuning.lookup import record_for, scheduled
from tensorexpr.ir import Access, Const, Program
from tensorexpr.simplify import simplify
from tensorexpr.text import print_program
from tensorexpr.traversal import expressions, walk

_EXECUTABLES_KEPT = 1024
_SHORT = 20_000  # statements; code that runs fewer keeps Python's lock


class Stages(NamedTuple):
    """What leads to native code: the simplified program, its schedule, the loop nest."""

    program: Program
    schedule: Schedule
    nest: LoopNest


class Executable:
    """Native code, and each stage that led to it (made when asked for where the code was found on disk).

    `long` says that a call takes longer than giving up Python's lock and having it back.
    """

    def __init__(self, native: NativeFunction, long: bool, make: Callable[[], Stages]) -> None:
        self.native = native
        self.long = long
        self._make = make

    @cached_property
    def stages(self) -> Stages:
        """Program, schedule and nest."""
        return self._make()

    def source(self, stage: str) -> str:
        """The text of the "nest", the "llvm" IR or the "asm"."""
        nest = self.stages.nest
        match stage:
            case "nest":
                return str(nest)
            case "llvm":
                return emit(nest, host())
        return nest_assembly(nest)


_executables: Memo[Executable] = Memo(_EXECUTABLES_KEPT)


def executable_of(program: Program) -> Executable:
    """The executable of a program: simplified, scheduled (as its record says, where there is one), lowered, compiled, or found."""
    record = record_for(program, (_environment(),), host_target())
    tuned = () if record is None else (record.digest,)

    def stages() -> Stages:
        simplified = simplify(program)
        return _lowered(simplified, scheduled(simplified, host_target()))

    def make() -> Executable:
        return _found("program", "\n".join((print_program(program), *tuned)), program, stages)

    return _executables.get((program, _lines(program), *tuned), make)


def executable_of_schedule(schedule: Schedule) -> Executable:
    """The executable of a schedule: lowered, compiled for this machine, or found."""
    program = schedule.program

    def make() -> Executable:
        text = f"{print_program(program)}\n{schedule.as_python()}"
        return _found("schedule", text, program, lambda: _lowered(program, schedule))

    return _executables.get((schedule, _lines(program)), make)


def _lowered(program: Program, schedule: Schedule) -> Stages:
    nest = lower(schedule)
    verify_nest(nest)
    return Stages(program, schedule, nest)


def _found(kind: str, text: str, program: Program, make: Callable[[], Stages]) -> Executable:
    """The executable whose code is on disk under its key, or made and kept there."""
    constants = {c.name: c.data for c in program.constants}
    key = disk.digest(kind, text, *(data.tobytes() for data in constants.values()), _environment())
    entry = disk.load(key)
    if entry is not None:
        interface = Interface.from_data(entry.about["interface"])
        code = ObjectCode(entry.image, tuple(entry.about["exports"]))
        data = [constants[name] for name in interface.constants]
        return Executable(NativeFunction(interface, code, data, host()), entry.about["long"], make)
    stages = make()
    nest = stages.nest
    interface, code = Interface.of(nest), nest_code(nest)
    long = sum(_work(kernel.body) for kernel in nest.kernels) > _SHORT
    # Constants that simplification made are not the program's own, and would have to be kept as well.
    if all(c.name in constants and c.data is constants[c.name] for c in nest.constants):
        disk.save(key, disk.Entry({"interface": interface.as_data(), "exports": code.exports, "long": long}, code.image))
    native = NativeFunction(interface, code, [c.data for c in nest.constants], host())
    made = Executable(native, long, make)
    made.__dict__["stages"] = stages
    return made


@cache
def _environment() -> str:
    """All that code depends on beside its program: the machine, LLVM, and the files of this package as they are."""
    roots = {Path(module).resolve().parent for module in (__file__, disk.__file__, print_program.__code__.co_filename)}
    files = []
    for root in sorted(roots):
        for folder, _, names in sorted(os.walk(root)):
            for name in sorted(names):
                if name.endswith(".py"):
                    status = os.stat(os.path.join(folder, name))
                    files.append(f"{folder}/{name} {status.st_size} {status.st_mtime_ns}")
    return "\n".join((repr(host()), repr(host_target()), version("llvmlite"), version("tensorexpr"), *files))


def _lines(program: Program) -> tuple[object, ...]:
    """The user's lines that a run-time error of the program could name: those of accesses whose indices depend on data."""
    accesses = [node for definition in program.definitions for e in expressions(definition) for node in walk(e) if isinstance(node, Access)]
    if not any(isinstance(inner, Access) for node in accesses for index in node.indices for inner in walk(index)):
        return ()
    return tuple(node.location for node in accesses)


def _work(body: Block) -> float:
    """How many statements a block runs; infinity where the bounds of a loop are not constants."""
    total = 0.0
    for statement in body:
        match statement:
            case For():
                known = isinstance(statement.start, Const) and isinstance(statement.stop, Const)
                trips = max(0, statement.stop.value - statement.start.value) if known else float("inf")  # type: ignore[attr-defined]
                total += trips * _work(statement.body) if trips else 0
            case If():
                total += max(_work(statement.then), _work(statement.otherwise))
            case Alloc():
                total += _work(statement.body)
            case _:
                total += 1
    return total
