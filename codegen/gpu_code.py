"""From a program or a schedule for a GPU to kernels: the stages, their text, and a cubin, kept on disk by content.

A cubin depends on the text, the prelude, the options, the architecture, NVRTC's version and this package alone: one made on a machine
without a GPU serves a machine with one. Where the default form cannot be made, or NVRTC refuses its text, the plain one is (see `stages`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorexpr.building.fallback import first_sound
from tensorexpr.codegen import disk
from tensorexpr.codegen.cuda.emitter.nest import emit
from tensorexpr.codegen.cuda.emitter.source import PRELUDE, Source
from tensorexpr.codegen.cuda.nvidia import nvrtc
from tensorexpr.codegen.handle import Schedule
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.schedule import Planned
from tensorexpr.codegen.stages import PLAIN, Stages, made_of_program, made_of_schedule
from tensorexpr.codegen.target import Target
from tensorexpr.ir import Program
from tensorexpr.records import as_dict
from tensorexpr.text import print_program


class GpuCode:
    """A program on its way to a GPU: its stages and the text of its kernels, CUDA C++ with what to launch.

    What `compiled` gives belongs to the stages and the text from then on: where NVRTC refuses a text, they become those of the plain form.
    """

    def __init__(self, make: Callable[[bool], tuple[Stages, Source]], plainly: bool = False) -> None:
        self._make = make
        self.stages, self.source = make(plainly)

    @staticmethod
    def of_program(program: Program, machine: Target, plainly: bool = False) -> GpuCode:
        """The code of a program by its default schedule for a machine; or of its plain form."""
        return GpuCode(lambda plain: made_of_program(program, machine, _text, plain), plainly)

    @staticmethod
    def of_schedule(schedule: Schedule | Planned) -> GpuCode:
        """The code of a schedule that a user made."""
        return GpuCode(lambda plainly: made_of_schedule(schedule, _text, plainly))

    @property
    def program(self) -> Program:
        """The simplified program."""
        return self.stages.program

    @property
    def schedule(self) -> Schedule:
        """How it is computed."""
        return self.stages.schedule

    @property
    def nest(self) -> LoopNest:
        """The loops."""
        return self.stages.nest

    def compiled(self, arch: str) -> nvrtc.Compiled:
        """Machine code for an architecture, from the disk where it is there."""
        return self.all_compiled((arch,))[arch]

    def all_compiled(self, archs: Sequence[str]) -> dict[str, nvrtc.Compiled]:
        """Machine code of one text for several architectures."""

        def as_it_is() -> dict[str, nvrtc.Compiled]:
            return {arch: compiled_text(self.source, arch) for arch in archs}

        def plainly() -> dict[str, nvrtc.Compiled]:
            self.stages, self.source = self._make(True)
            return as_it_is()

        what, program = ", ".join(self.program.outputs), self.program
        forms = [("the text of its kernels", as_it_is), (PLAIN, plainly)]
        return first_sound(what, forms if self.stages.failure is None else forms[:1], lambda: print_program(program))[0]


def _text(stages: Stages) -> Source:
    return emit(stages.nest)


def compiled_text(source: Source, arch: str) -> nvrtc.Compiled:
    """Machine code of kernels for an architecture, from the disk where it is there."""
    version = nvrtc.version()
    key = disk.key_of("cubin", PRELUDE.read_text(), source.text, repr(nvrtc.OPTIONS), arch, repr(version))
    entry = disk.load(key)
    if entry is not None:
        about = entry.about
        resources = {name: _resources(**r) for name, r in about["resources"].items()}
        return nvrtc.Compiled(arch, entry.image, about["ptx"], about["log"], resources)
    made = nvrtc.compile_text(source.text, arch)
    about = {"ptx": made.ptx, "log": made.log, "resources": {name: as_dict(r) for name, r in made.resources.items()}}
    disk.save(key, disk.Entry(about, made.cubin))
    return made


def _resources(parameters: list[list[int]], **numbers: int) -> nvrtc.Resources:
    """Resources as they come back from a file."""
    return nvrtc.Resources(**numbers, parameters=tuple((offset, size) for offset, size in parameters))
