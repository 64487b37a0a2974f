"""Executables: a program through every stage to native code, or its code found in memory or on disk.

Native code is kept in memory per program or schedule: programs with the same definitions share it, and threads that ask for one
at the same time compile it once. Programs are compared by structure, which leaves out the user's lines; where a run-time check
may have to name such a line, the lines are part of the key. Behind that stands the disk (`disk`): there the key is a digest of
the text of the program or schedule, its constants, the machine, LLVM's wrapper and the files of this package.
Code found on disk is linked and run as it is.

An `Executable` holds neither IR nor the data of constants, and neither does the table of them: whoever calls it has the data, and the
stages that led to it (`Look`) are held by functions that are to show them, or made again when someone looks.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from itertools import accumulate, pairwise
from math import prod
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tensorexpr.building.collecting import collecting_less
from tensorexpr.building.fallback import Failure, warn
from tensorexpr.building.progress import task
from tensorexpr.codegen import disk
from tensorexpr.codegen.auto.search.earlier import earlier
from tensorexpr.codegen.handle import Schedule
from tensorexpr.codegen.llvm import Interface, NativeCode, NativeFunction, ObjectCode, compile_ahead, emit, host, nest_assembly, nest_code
from tensorexpr.codegen.llvm.text.abi import ALIGNMENT
from tensorexpr.codegen.memo import Memo
from tensorexpr.codegen.nest import CheckSite, LoopNest
from tensorexpr.codegen.nest.early import taken_apart
from tensorexpr.codegen.schedule import Planned
from tensorexpr.codegen.stages import PLAIN, Stages, made_of_program, made_of_schedule
from tensorexpr.codegen.target import host_target
from tensorexpr.codegen.tuning.lookup import record_for
from tensorexpr.constants import data
from tensorexpr.errors import Location
from tensorexpr.ir import Access, Program, Scatter, Segments, integer
from tensorexpr.records import cached_property, record
from tensorexpr.text import print_program
from tensorexpr.traversal import expressions, walk, with_bodies

_EXECUTABLES_KEPT = 1024
_UNBROKEN = sys.maxsize  # columns: where lines break says nothing about a program, and takes longer than the rest of its text

Made = TypeVar("Made")
Making = Callable[[Callable[[Stages], Any], bool, Callable[[LoopNest], None]], tuple[Stages, Any]]


class Look:
    """The stages that led to code, made when someone asks.

    `make` gives the stages and what a function makes of them, of the default form or plainly, and tells another of the parts of a long
    nest; `failure` says why the default form could not be made, where that is known.
    """

    def __init__(self, make: Making, failure: Failure | None = None) -> None:
        self._make = make
        self.failure = failure

    def made(self, finish: Callable[[Stages], Made], ahead: Callable[[LoopNest], None]) -> Made:
        """What `finish` makes of the stages: of the first form for which it can be done, which is the one that is shown from now on.
        `ahead` is told of parts of the nest as they come."""
        made: Made
        stages, made = self._make(finish, self.failure is not None, ahead)
        self.stages = stages
        self.failure = self.failure or self.stages.failure
        return made

    @cached_property
    def stages(self) -> Stages:
        """Program, schedule and nest."""
        return self._make(lambda stages: None, self.failure is not None, lambda part: None)[0]

    def source(self, stage: str) -> str:
        """The text of the "nest", the "llvm" IR or the "asm"."""
        nest = self.stages.nest
        match stage:
            case "nest":
                return str(nest)
            case "llvm":
                return emit(nest, host())
        return nest_assembly(nest)


def look_at(make: Callable[[], Program], failure: Failure | None = None, searching: bool = True) -> Look:
    """The stages of a program that is made when someone asks."""
    taken = earlier()

    def made(finish: Callable[[Stages], Made], plainly: bool, ahead: Callable[[LoopNest], None]) -> tuple[Stages, Made]:
        with nullcontext() if taken is None else taken.taken():
            return made_of_program(make(), host_target(), finish, plainly, ahead, searching)

    return Look(made, failure)


Results = tuple[tuple[str, str, tuple[int, ...]], ...]
"""Names, dtypes and shapes."""


class Part(NamedTuple):
    """Compiled code of a nest, its interface, and its results."""

    interface: Interface
    code: ObjectCode
    results: Results


class EarlyCode(NamedTuple):
    """Linked code of what is made of constants once (`nest.early`), and its results."""

    code: NativeCode
    results: Results


@record
class Executable:
    """Linked code, what a failed check is to say, what is made of constants before the first call, and why it is not code of the default
    form, where it is not."""

    code: NativeCode
    checks: tuple[CheckSite, ...]
    early: EarlyCode | None = None
    failure: Failure | None = None


class Built(NamedTuple):
    """An executable, the data of its constants in its order, and the way to its stages."""

    executable: Executable
    constants: dict[str, np.ndarray]
    look: Look


_Lines = tuple[Location | None, ...]

_executables: Memo[Executable] = Memo(_EXECUTABLES_KEPT)
_looks: weakref.WeakValueDictionary[object, Look] = weakref.WeakValueDictionary()


def executable_of(program: Program, searching: bool = True) -> Built:
    """The executable of a program: simplified, scheduled (as its record says, where there is one), lowered, compiled, or found."""
    record = record_for(program, host_target())
    tuned: tuple[str, ...] = (*(() if record is None else (record.digest,)), *(() if searching else ("by planners",)))
    if (known := earlier()) is not None and known.where:
        tuned += (known.where,)
    lines = _lines(program)

    def text() -> str:
        return "\n".join((print_program(program, _UNBROKEN), *tuned))

    return _built(("program", *_key(program), lines, *tuned), program, lines, text, look_at(lambda: program, searching=searching))


def executable_of_schedule(schedule: Schedule | Planned) -> Built:
    """The executable of a schedule: lowered, compiled for this machine, or found. Of nests the text counts, in which instructions are what
    they do and not a name."""
    program, lines = schedule.program, _lines(schedule.program)
    words = str(schedule.nest) if isinstance(schedule, Schedule) else schedule.as_python()

    def text() -> str:
        return f"{print_program(program, _UNBROKEN)}\n{words}"

    key = ("schedule", *_key(program), lines, words, schedule.target)
    look = Look(lambda finish, plainly, _: made_of_schedule(schedule, finish, plainly))
    return _built(key, program, lines, text, look)


def _key(program: Program) -> tuple[object, ...]:
    """What tells programs apart beside their lines, without the program and the data of its constants."""
    constants = tuple((c.name, c.content) for c in program.constants)
    inputs = tuple((i.name, i.type) for i in program.inputs)  # without what initialises them
    return (inputs, constants, program.definitions, program.outputs, program.sizes)


def _built(key: Hashable, program: Program, lines: _Lines, text: Callable[[], str], look: Look) -> Built:
    look = _looks.setdefault(key, look)
    executable = _executables.get(key, lambda: _found(text, program, lines, look))
    look.failure = executable.failure
    constants = {c.name: c.data for c in program.constants}
    if executable.early is not None:
        constants |= _made_early(executable.early, constants, key)
    return Built(executable, {name: constants[name] for name in executable.code.interface.constants}, look)


def _made_early(early: EarlyCode, constants: Mapping[str, np.ndarray], key: Hashable) -> dict[str, np.ndarray]:
    """What is made of constants once, by name: what another function of this program still has, else made."""
    kept = [data.known((key, name)) for name, _, _ in early.results]
    found = [array for array in kept if array is not None]
    if len(found) < len(kept):
        found = [_aligned(np.dtype(kind), shape) for _, kind, shape in early.results]
        function = NativeFunction(early.code, [constants[name] for name in early.code.interface.constants])
        block = _aligned(np.dtype(np.uint8), (function.workspace_size(()),))
        function([array.ctypes.data for array in found], (), block.ctypes.data)
        for array in found:
            array.flags.writeable = False
        found = [data.shared((key, name), array) for (name, _, _), array in zip(early.results, found, strict=True)]
    return {name: array for (name, _, _), array in zip(early.results, found, strict=True)}


def _aligned(kind: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """A new array that begins with a line of the caches."""
    size = prod(shape) * kind.itemsize
    block = np.empty(size + ALIGNMENT, np.uint8)
    start = -block.ctypes.data % ALIGNMENT
    return block[start : start + size].view(kind).reshape(shape)


def _found(text: Callable[[], str], program: Program, named: _Lines, look: Look) -> Executable:
    """The executable whose code is on disk under its key, or made and kept there."""
    lines = list(dict.fromkeys(named))
    key = None
    if disk.folder() is not None:  # a long text takes as long as a pass of the simplifier
        places = [lines.index(line) for line in named]  # the lines differ between processes, where they are equal does not
        key = disk.key_of(text(), repr(places), *(c.content for c in program.constants), repr(host()), repr(host_target()))
    entry = None if key is None else disk.load(key)
    if entry is not None:
        about = entry.about
        checks = tuple(
            CheckSite(access, tensor, axis, definition, None if place is None else lines[place], unsigned)
            for access, tensor, axis, definition, place, unsigned in about["checks"]
        )
        failure = None if about["failure"] is None else Failure(*about["failure"])
        if failure is not None:
            warn(", ".join(program.outputs), failure, PLAIN)
        return _linked(_parts(entry), checks, failure)
    with task(", ".join(program.outputs)), collecting_less():
        made = look.made(lambda stages: [_part(nest) for nest in reversed(taken_apart(stages.nest)) if nest is not None], _compile_ahead)
    nest = look.stages.nest
    if key is not None:
        checks_ = [
            (c.access, c.tensor, c.axis, c.definition, lines.index(c.location) if c.location in lines else None, c.unsigned)
            for c in nest.checks
        ]
        about = {"checks": checks_, "failure": look.failure, "verdict": str(look.stages.verdict)}
        about["parts"] = [
            {"interface": p.interface.as_data(), "exports": p.code.exports, "bytes": [len(i) for i in p.code.images], "results": p.results}
            for p in made
        ]
        disk.save(key, disk.Entry(about, b"".join(image for part in made for image in part.code.images)))
    return _linked(made, nest.checks, look.failure)


def _compile_ahead(part: LoopNest) -> None:
    compile_ahead(part, host())


def _part(nest: LoopNest) -> Part:
    """The code of a nest."""
    results = [b for b in nest.parameters if not nest.sizes and b.name in nest.writes]
    return Part(Interface.of(nest), nest_code(nest), tuple((b.name, b.dtype.numpy.name, tuple(map(integer, b.shape))) for b in results))


def _parts(entry: disk.Entry) -> list[Part]:
    """The code that was kept on disk."""
    found, start = [], 0
    for about in entry.about["parts"]:
        ends = list(accumulate(about["bytes"], initial=start))
        first, *others = (entry.image[a:b] for a, b in pairwise(ends))
        code = ObjectCode(first, tuple(about["exports"]), tuple(others))
        results = tuple((name, kind, tuple(shape)) for name, kind, shape in about["results"])
        found.append(Part(Interface.from_data(about["interface"]), code, results))
        start = ends[-1]
    return found


def _linked(parts: Sequence[Part], checks: tuple[CheckSite, ...], failure: Failure | None) -> Executable:
    """Code of what a call runs, and of what is made before where there is any, linked."""
    linked = [NativeCode(part.interface, part.code, host()) for part in parts]
    early = EarlyCode(linked[1], parts[1].results) if len(parts) > 1 else None
    return Executable(linked[0], checks, early, failure)


def _lines(program: Program) -> _Lines:
    """The lines that a run-time error of the program could name: where some index depends on data, those of accesses and definitions."""
    accesses = [node for definition in program.definitions for e in expressions(definition) for node in walk(e) if type(node) is Access]
    indices = {id(index): index for node in accesses for index in node.indices}  # each once: they are shared all over
    for definition in with_bodies(program.definitions):
        keys = definition.keys if isinstance(definition, Segments) else definition.indices if isinstance(definition, Scatter) else ()
        indices |= {id(index): index for index in keys}
    if not any(type(inner) is Access for index in indices.values() for inner in walk(index)):
        return ()
    return (*(node.location for node in accesses), *(definition.location for definition in with_bodies(program.definitions)))
