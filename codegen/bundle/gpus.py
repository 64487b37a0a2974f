"""The GPUs that a bundle has code for: cubins, and entry points that launch them.

    int64_t NAME_cuda(const void *constants, void *const *placeholders, const int64_t *sizes, void *workspace, int64_t *error, void *stream)
    int64_t NAME_cuda_workspace(const int64_t *sizes)
    int64_t PREFIX_cuda_load(void)

They are those of the CPU (`entries`), with every pointer but `sizes` and `error`, and that of the array of placeholders itself, one to
memory of the device, each a multiple of 16 (of 256 for the workspace). The launches are those of `codegen.cuda.launch_text`: in the
current context, on the stream, with code for the GPU that is there. A function whose kernels look at indices waits for them, and
gives what the CPU's does; the others only launch. Below 0 stands what went wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from tensorexpr.codegen.bundle.entries import gathered
from tensorexpr.codegen.compile import machine_of
from tensorexpr.codegen.compiled.function import CompiledFunction
from tensorexpr.codegen.compiled.gpu_function import GpuFunction
from tensorexpr.codegen.cuda.launch.launch_text import launches, ordered
from tensorexpr.codegen.cuda.launch.plan import ALIGNMENT, Plan
from tensorexpr.codegen.cuda.nvidia import nvrtc
from tensorexpr.codegen.gpu_code import GpuCode
from tensorexpr.codegen.llvm.text.extents import bytes_of, names_of
from tensorexpr.codegen.llvm.text.routines import Routines
from tensorexpr.codegen.nest import CheckSite
from tensorexpr.codegen.target import Gpu
from tensorexpr.errors import TargetError, user_location
from tensorexpr.ir import Constant


@dataclass(frozen=True, slots=True)
class GpuPart:
    """A function for GPUs: its plan, what failed checks say, its constants, and its cubins by architecture."""

    plan: Plan
    checks: tuple[CheckSite, ...]
    constants: tuple[Constant, ...]
    images: dict[str, bytes]

    def as_data(self) -> dict[str, Any]:
        """What the table says of it, without the checks."""
        images = [{"name": arch, "bytes": len(data), "sha256": sha256(data).hexdigest()} for arch, data in self.images.items()]
        return {"reports": self.plan.reports, **self.plan.as_data(), "images": images}


@dataclass(frozen=True, slots=True)
class GpuEntry:
    """What the entry point of a function is made of: its symbol, the part, where each constant begins, and for each parameter the place
    among the placeholders."""

    symbol: str
    part: GpuPart
    constants: tuple[int, ...]
    places: tuple[int, ...]


def architectures(gpus: Sequence[str]) -> tuple[str, ...]:
    """The architectures by name, what a device prefers first. Raises `TargetError` for those that NVRTC makes no code for."""
    names = ordered(list(dict.fromkeys(gpus)))
    known = nvrtc.architectures() if names else ()
    for name in names:
        if int(name[3:].rstrip("a")) not in known:
            numbers = ", ".join(f"sm_{number}" for number in known)
            raise TargetError(f"export: expected GPUs that NVRTC makes code for ({numbers}), got {name!r}", location=user_location())
    return tuple(names)


def gpu_part(function: CompiledFunction, gpus: Sequence[str]) -> GpuPart:
    """A function for GPUs: as it was compiled, where that was for one with no more shared memory than they have and the same products, else
    by the schedule that the least of them gets."""
    code = function.code if isinstance(function, GpuFunction) else None
    machine = machine_of("cuda") if code is None else code.schedule.target
    assert isinstance(machine, Gpu)
    machine = machine.running(*gpus)
    others = code is None or code.nest.warpgroups != machine.warpgroups
    if code is None or others or any(launch.shared > machine.shared_bytes for launch in code.source.launches):
        code = GpuCode.of_program(function.program, machine)
    images = {arch: compiled.cubin for arch, compiled in code.all_compiled(gpus).items()}
    nest = code.nest
    return GpuPart(Plan.of(nest, code.source), nest.checks, nest.constants, images)


def gpu_routines(triple: str, prefix: str, entries: Sequence[GpuEntry]) -> Routines:
    """The entry points of a bundle's functions for GPUs."""
    functions = [(f"te_gpu_{k}_{entry.symbol}", entry.part.plan, entry.part.images) for k, entry in enumerate(entries)]
    loads = [f"    if status == 0:\n        status = {symbol}_load()\n" for symbol, _, _ in functions]
    load = f"\n@exported\ndef {prefix}_cuda_load() -> i64:\n    status = 0\n{''.join(loads)}    return status\n"
    return launches(triple, functions, "".join(_entry(entry, f"te_gpu_{k}_{entry.symbol}") for k, entry in enumerate(entries)) + load)


def exports(prefix: str, symbols: Sequence[str]) -> list[str]:
    """The names of the entry points."""
    return [f"{prefix}_cuda_load", *(name for symbol in symbols for name in (f"{symbol}_cuda", f"{symbol}_cuda_workspace"))]


def _entry(entry: GpuEntry, launcher: str) -> str:
    name, plan = entry.symbol, entry.part.plan
    total = bytes_of(0, [(size, extents) for _, size, extents in plan.workspace], ALIGNMENT, names_of(plan.sizes))
    launch = f"{launcher}(buffers, sizes, workspace, {'report' if plan.reports else 'None'}, stream)"
    lines = [
        "",
        "@exported",
        f"def {name}_cuda(constants: ptr, placeholders: ptr, sizes: ptr, workspace: ptr, error: ptr, stream: ptr) -> i64:",
        *gathered(entry.places, entry.constants),
        *([f"    report = workspace + {total}", _REPORT.replace("LAUNCH", launch)] if plan.reports else [f"    return {launch}"]),
        "@exported",
        f"def {name}_cuda_workspace(sizes: ptr) -> i64:",
        f"    return {total} + {ALIGNMENT if plan.reports else 0}",
        "",
    ]
    return "\n".join(lines)


# The report stands behind the buffers.
_REPORT = """    said = stack(i64, 3)
    status = LAUNCH
    if status == 0:
        status = te_gpu_read(said, report, 24, stream)
    if status != 0:
        return status
    if said.i64[0] != 0:
        error.i64[0] = said.i64[1]
        error.i64[1] = said.i64[2]
    return said.i64[0]"""
