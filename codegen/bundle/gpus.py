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
from tensorexpr.codegen.cuda.launch.driver_text import driver_text
from tensorexpr.codegen.cuda.launch.launch_text import launcher_text, ordered
from tensorexpr.codegen.cuda.launch.plan import ALIGNMENT, Plan
from tensorexpr.codegen.cuda.nvidia import nvrtc
from tensorexpr.codegen.gpu_code import GpuCode
from tensorexpr.codegen.llvm.text.arithmetic import Arithmetic
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


def gpu_text(triple: str, prefix: str, entries: Sequence[GpuEntry]) -> str:
    """LLVM IR of the entry points of a bundle's functions for GPUs."""
    parts = [f'target triple = "{triple}"', driver_text()]
    for entry in entries:
        parts += [launcher_text(f"te_gpu_{entry.symbol}", entry.part.plan, entry.part.images), _entry(entry), _workspace(entry)]
    return "\n".join([*parts, _load(prefix, [entry.symbol for entry in entries])]) + "\n"


def exports(prefix: str, symbols: Sequence[str]) -> list[str]:
    """The names of the entry points."""
    return [f"{prefix}_cuda_load", *(name for symbol in symbols for name in (f"{symbol}_cuda", f"{symbol}_cuda_workspace"))]


def _entry(entry: GpuEntry) -> str:
    name, plan = entry.symbol, entry.part.plan
    ir = Arithmetic("t", plan.sizes)
    ir.lines += [
        f"define i64 @{name}_cuda(ptr %constants, ptr %placeholders, ptr %sizes, ptr %workspace, ptr %error, ptr %stream) nounwind {{",
        "entry:",
        "  %said = alloca [3 x i64], align 16",
        *gathered("", entry.places, entry.constants),
    ]
    report = "null"
    if plan.reports:
        report = ir.new(f"getelementptr i8, ptr %workspace, i64 {_buffers(plan, ir)}")
    ir.lines.append(f"  %launched = call i64 @te_gpu_{name}(ptr %b, ptr %sizes, ptr %workspace, ptr {report}, ptr %stream)")
    if not plan.reports:
        return "\n".join([*ir.lines, "  ret i64 %launched", "}"])
    ir.lines += [
        "  %fine = icmp eq i64 %launched, 0",
        "  br i1 %fine, label %read, label %failed",
        "failed:",
        "  ret i64 %launched",
        "read:",
        f"  %got = call i64 @te_gpu_read(ptr %said, ptr {report}, i64 24, ptr %stream)",
        "  %there = icmp eq i64 %got, 0",
        "  br i1 %there, label %look, label %lost",
        "lost:",
        "  ret i64 %got",
        "look:",
        "  %check = load i64, ptr %said, align 8",
        "  %none = icmp eq i64 %check, 0",
        "  br i1 %none, label %done, label %tell",
        "tell:",
        "  %index.at = getelementptr i64, ptr %said, i64 1",
        "  %index = load i64, ptr %index.at, align 8",
        "  store i64 %index, ptr %error, align 8",
        "  %extent.at = getelementptr i64, ptr %said, i64 2",
        "  %extent = load i64, ptr %extent.at, align 8",
        "  %second = getelementptr i64, ptr %error, i64 1",
        "  store i64 %extent, ptr %second, align 8",
        "  ret i64 %check",
        "done:",
        "  ret i64 0",
        "}",
    ]
    return "\n".join(ir.lines)


def _buffers(plan: Plan, ir: Arithmetic) -> str:
    """The bytes of the buffers of a plan, behind which the report stands."""
    return ir.bytes(0, [(size, extents) for _, size, extents in plan.workspace], ALIGNMENT)


def _workspace(entry: GpuEntry) -> str:
    ir = Arithmetic("t", entry.part.plan.sizes)
    ir.lines += [f"define i64 @{entry.symbol}_cuda_workspace(ptr %sizes) nounwind {{"]
    total = _buffers(entry.part.plan, ir)
    if entry.part.plan.reports:
        total = ir.binary("add", total, str(ALIGNMENT))
    return "\n".join([*ir.lines, f"  ret i64 {total}", "}"])


def _load(prefix: str, symbols: Sequence[str]) -> str:
    """Loads the modules of all functions into the current context."""
    lines = [f"define i64 @{prefix}_cuda_load() nounwind {{", "  br label %load0"]
    for k, symbol in enumerate(symbols):
        lines += [
            f"load{k}:",
            f"  %r{k} = call i64 @te_gpu_{symbol}_load()",
            f"  %fine{k} = icmp eq i64 %r{k}, 0",
            f"  br i1 %fine{k}, label %load{k + 1}, label %failed{k}",
            f"failed{k}:",
            f"  ret i64 %r{k}",
        ]
    return "\n".join([*lines, f"load{len(symbols)}:", "  ret i64 0", "}"])
