"""From a schedule for a GPU to kernels: the loop nest, its text, and a cubin, kept on disk by content.

A cubin depends on the text, the prelude, the options, the architecture and NVRTC's version, and on nothing else: one made on a machine
without a GPU serves a machine with one.
"""

from __future__ import annotations

from tensorexpr.codegen import disk
from tensorexpr.codegen.cuda import nvrtc
from tensorexpr.codegen.cuda.emit import emit
from tensorexpr.codegen.cuda.source import PRELUDE, Source
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.nest_verify import verify_nest
from tensorexpr.codegen.schedule import Schedule
from tensorexpr.ir import Program
from tensorexpr.records import as_dict, cached_property


class GpuCode:
    """A program on its way to a GPU: each stage is made when it is asked for."""

    def __init__(self, program: Program, schedule: Schedule) -> None:
        self.program = program
        self.schedule = schedule

    @cached_property
    def nest(self) -> LoopNest:
        """The loops."""
        return verify_nest(lower(self.schedule))

    @cached_property
    def source(self) -> Source:
        """CUDA C++, and what to launch."""
        return emit(self.nest)

    def compiled(self, arch: str) -> nvrtc.Compiled:
        """Machine code for an architecture, from the disk where it is there."""
        version = nvrtc.version()
        key = disk.digest("cubin", PRELUDE.read_text(), self.source.text, repr(nvrtc.OPTIONS), arch, repr(version))
        entry = disk.load(key)
        if entry is not None:
            about = entry.about
            resources = {name: _resources(**r) for name, r in about["resources"].items()}
            return nvrtc.Compiled(arch, entry.image, about["ptx"], about["log"], resources)
        made = nvrtc.compile_text(self.source.text, arch)
        about = {"ptx": made.ptx, "log": made.log, "resources": {name: as_dict(r) for name, r in made.resources.items()}}
        disk.save(key, disk.Entry(about, made.cubin))
        return made


def _resources(parameters: list[list[int]], **numbers: int) -> nvrtc.Resources:
    """Resources as they come back from a file."""
    return nvrtc.Resources(**numbers, parameters=tuple((offset, size) for offset, size in parameters))
