"""What the assembler makes of the GPU benchmark's kernels, where there is no GPU to time them on: registers, spills, shared memory, the
time that the static model gives them (`codegen.cuda.model`) with the share of what the GPU could do, and, where cuobjdump is found, counts
of the machine's instructions that tell how a kernel works, of all of it and of its main loop: the one that multiplies most. Behind the
kernels of a row stands the row: the time of all of them against the least that the workload has to compute and to move.

    python -m tensorexpr bench cuda-resources [--filter gemm] [--json FILE]
    python -m tensorexpr.benchmarks.gpu.resources FILE.json [--arch sm_90,sm_80] [--filter gemm]

Times are predicted from what was compiled and from facts of the GPU; nothing ran.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from typing import Any

import tensorexpr as te
from tensorexpr.benchmarks import keeping
from tensorexpr.benchmarks.gpu import workloads as gpu_workloads
from tensorexpr.benchmarks.gpu.workloads import Workload
from tensorexpr.codegen.auto.gpus import KINDS, GpuFacts, facts_of
from tensorexpr.codegen.compile import fold_constants, machine_of
from tensorexpr.codegen.cuda.model.prediction import Prediction
from tensorexpr.codegen.cuda.model.report import bytes_of, predictions
from tensorexpr.codegen.cuda.nvidia import nvrtc
from tensorexpr.codegen.gpu_code import GpuCode
from tensorexpr.errors import TargetError, TensorExprError
from tensorexpr.records import as_dict, replace

Row = dict[str, Any]
COUNTED = {
    "tensor cores": ("HMMA", "DMMA"),
    "multiply-adds": ("FFMA", "DFMA"),
    "ldmatrix": ("LDSM",),
    "asynchronous copies": ("LDGSTS",),
    "16 bytes from memory": ("LDG.E.128",),
    "16 bytes to memory": ("STG.E.128",),
    "shared reads": ("LDS",),
    "barriers": ("BAR.SYNC",),
    "atomics": ("ATOMG", "RED.E"),
    "spills": ("LDL", "STL"),
}
"""What is counted, by how its instructions begin."""
_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]+)\*/\s+(@!?U?P(?!T)\w+\s+)?([A-Z][A-Z0-9_.]*)([^;]*);", re.MULTILINE)
"""An instruction in a listing: where, its predicate, its name, its operands. What never runs (@!PT), as the assembler puts in front of
asynchronous copies, is none."""
_TENSOR = {"bfloat16": "bf16", "float16": "f16", "float64": "f64"}
"""The kind of operands of tensor cores for elements of a type."""


def code_of(load: Workload, gradient: bool, facts: GpuFacts) -> GpuCode:
    """A workload, or it and its gradients, on its way to a GPU of which no more is known than its facts."""
    outputs, inputs = load.defined(gradient)
    machine = replace(machine_of("cuda", arch=facts.arch), cores=facts.cores, precision=load.precision or "float32")
    return GpuCode.of_program(fold_constants(te.program_of(outputs, inputs)), machine)


def predicted(load: Workload, code: GpuCode, made: nvrtc.Compiled, facts: GpuFacts) -> list[Prediction]:
    """The launches of a workload, each with the time that the model gives it."""
    return predictions(code.source, made, code.nest, facts, load.sizes())


def time_of(found: Sequence[Prediction], facts: GpuFacts) -> float:
    """Nanoseconds of all launches, and of what lies between them."""
    return sum(one.nanoseconds for one in found) + facts.launch * max(0, len(found) - 1)


def limit_of(load: Workload, gradient: bool, facts: GpuFacts) -> float:
    """Nanoseconds that the workload takes at least: its operations on the fastest unit that may do them, or what it reads and gives, each
    once, at the rate of a copy."""
    kind = "tf32" if load.precision == "tf32" else _TENSOR.get(load.spec.dtype)
    products = load.spec.products or load.spec.group == "contraction"
    rate = facts.tensor[KINDS.index(kind)] if kind and products else 64.0 * (facts.fp64 if kind == "f64" else facts.fp32)
    return max(load.spec.work(gradient) / (rate * facts.cores * facts.clock), load.spec.moved(gradient) / facts.memory)


def counts_of(words: Sequence[str]) -> dict[str, int]:
    """How many of the instructions are of each kind that is counted."""
    return {what: sum(w.startswith(begins) for w in words) for what, begins in COUNTED.items()}


def main_loop(text: str) -> dict[str, int]:
    """The counts of the loop of a listing that multiplies most, the shortest of several, and of all its instructions; empty where none
    multiplies."""
    found = [(int(at, 16), word, rest) for at, _, word, rest in _INSTRUCTION.findall(text)]
    best: tuple[int, int, dict[str, int]] = (0, 0, {})
    for end, word, rest in found:
        target = re.search(r"0x([0-9a-f]+)", rest) if word.startswith("BRA") else None
        if target is None or int(target[1], 16) >= end:
            continue
        words = [w for at, w, _ in found if int(target[1], 16) <= at <= end]
        counts = counts_of(words)
        rank = (counts["tensor cores"] + counts["multiply-adds"], -len(words))
        if rank > best[:2]:
            best = (*rank, {"all": len(words), **counts})
    return best[2]


def listing(arch: str, filters: Sequence[str] = ()) -> Iterator[Row]:
    """A row for every kernel of every workload, forward and with its gradient, and one for each of these in all."""
    facts = facts_of(arch)
    for load in gpu_workloads.all_of(False):
        for gradient in (False, True) if load.spec.differentiable else (False,):
            name = f"{load.spec.name}{', gradient' if gradient else ''}"
            if not filters or any(part in name for part in filters):
                try:
                    yield from _rows_of(load, gradient, name, facts)
                except TensorExprError as error:
                    yield {"arch": arch, "workload": name, "failed": str(error)}


def _rows_of(load: Workload, gradient: bool, name: str, facts: GpuFacts) -> Iterator[Row]:
    code = code_of(load, gradient, facts)
    made = code.compiled(facts.arch)
    text, found = _listings(made), predicted(load, code, made, facts)
    for one in {id(one): one for one in found}.values():
        row: Row = {"arch": facts.arch, "workload": name, "kernel": one.kernel, "grid": one.grid, "threads": one.threads}
        row["times"] = sum(other is one for other in found)
        row |= {"asked": one.shared - made.resources[one.kernel].shared, **as_dict(made.resources[one.kernel])}
        if one.kernel in text:
            counts = counts_of([word for _, _, word, _ in _INSTRUCTION.findall(text[one.kernel])])
            row |= {"instructions": counts, "main loop": main_loop(text[one.kernel])}
        row["predicted"] = {
            "us": one.nanoseconds / 1e3,
            "bound": one.bound,
            "share of peak": one.share(facts),
            "us by unit": {unit: t / 1e3 for unit, t in one.times.items() if t >= 0.02 * one.nanoseconds},
            "blocks at once": one.resident.blocks,
            "bytes from L2": one.l2_bytes,
            "bytes of memory": one.memory_bytes,
            "bytes touched": one.least_bytes,
            "by data": one.by_data,
        }
        yield row
    time, limit = time_of(found, facts), limit_of(load, gradient, facts)
    spills = sum(row.spill_loads + row.spill_stores for row in made.resources.values())
    whole = {"us": time / 1e3, "limit us": limit / 1e3, "share of the limit": min(1.0, limit / time), "launches": len(found)}
    whole |= {"spills": spills, "kernels of one thread": sum(one.threads * one.grid[0] * one.grid[1] * one.grid[2] == 1 for one in found)}
    whole["bytes of memory"] = sum(one.memory_bytes for one in found)
    whole["workspace"] = sum(bytes_of(buffer, load.sizes()) for buffer in code.nest.workspace)
    yield {"arch": facts.arch, "workload": name, "whole": whole}


def _listings(made: nvrtc.Compiled) -> dict[str, str]:
    """The machine code of each kernel; none where there is no program that prints it."""
    try:
        parts = re.split(r"\n\s*Function : (\w+)\n", made.sass())
    except TargetError:
        return {}
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def described(row: Row) -> str:
    """A row as a line."""
    if "failed" in row:
        return f"{row['arch']}: {row['workload']}: failed: {row['failed']}"
    if "whole" in row:
        whole = row["whole"]
        extra = [f"{whole[key]:.4g} {key}" for key in ("spills", "kernels of one thread", "workspace") if whole[key]]
        line = f"predicted {whole['us']:.4g} us in {whole['launches']} launches, {whole['share of the limit']:.2f} of the limit"
        return f"{row['arch']}: {row['workload']}: {'; '.join([line, *extra])}"
    predicted = row["predicted"]
    times = f" {row['times']} times" if row["times"] > 1 else ""
    found = [
        f"predicted {predicted['us']:.4g} us{times} by {predicted['bound']}, {predicted['share of peak']:.0%} of peak",
        f"{row['registers']} registers, {row['shared']} bytes shared and {row['asked']} asked for",
        f"{predicted['blocks at once']} blocks at once",
    ]
    for key in ("instructions", "main loop"):
        if counts := ", ".join(f"{n} {what}" for what, n in row.get(key, {}).items() if n):
            found.append(f"{'main loop: ' if key == 'main loop' else ''}{counts}")
    return f"{row['arch']}: {row['workload']}: {row['kernel']}: {'; '.join(found)}"


def listed(archs: Sequence[str], filters: Sequence[str], file: str | None) -> int:
    """Prints the rows as they come, and writes them."""
    rows = []
    for arch in archs:
        for row in listing(arch, filters):
            print(described(row), flush=True)
            rows.append(row)
    if file is not None:
        about = {"about": "compiled, not run: no GPU was there; times are predicted", "nvrtc": ".".join(map(str, nvrtc.version()))}
        facts = {arch: as_dict(facts_of(arch)) for arch in archs}
        keeping.write(file, {**about, "facts": facts, "rows": rows})
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the listing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--arch", default="sm_90,sm_80")
    parser.add_argument("--filter", action="append", default=[])
    options = parser.parse_args(arguments)
    return listed(options.arch.split(","), options.filter, options.file)


if __name__ == "__main__":
    raise SystemExit(main())
