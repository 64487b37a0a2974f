"""What the assembler makes of the GPU benchmark's kernels, where there is no GPU to time them on: registers, spills, shared memory, the
time that the static model gives them (`codegen.cuda.model`) with the share of what the GPU could do, and, where cuobjdump is found, counts
of the machine's instructions that tell how a kernel works, of all of it and of its main loop: the one that multiplies most.

    python -m tensorexpr bench cuda-resources [--filter gemm] [--json FILE]
    python -m tensorexpr.benchmarks.gpu.resources FILE.json [--arch sm_90,sm_80]

Times are predicted from what was compiled and from facts of the GPU; nothing ran.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.benchmarks import keeping
from tensorexpr.codegen.auto.gpus import facts_of
from tensorexpr.codegen.cuda.model.report import predictions
from tensorexpr.codegen.cuda.nvidia import nvrtc
from tensorexpr.codegen.gpu_code import GpuCode
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.target import H200
from tensorexpr.errors import TargetError
from tensorexpr.records import as_dict, replace
from tensorexpr.simplify import simplify

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


OPEN = 4096
"""What an extent is taken to be that is known only when a kernel runs."""


def _gemm(n: int, dtype: str) -> tuple[list[te.Tensor], list[te.Tensor]]:
    return _product(n, n, n, dtype)


def _product(m: Any, inner: Any, n: Any, dtype: str) -> tuple[list[te.Tensor], list[te.Tensor]]:
    a, b = te.placeholder((m, inner), dtype, name="a"), te.placeholder((inner, n), dtype, name="b")
    return [te.compute((m, n), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], inner), name="c")], [a, b]


def _with_gradient(
    make: Callable[..., te.Tensor], *shapes: tuple[int, ...], dtype: str = "float32"
) -> tuple[list[te.Tensor], list[te.Tensor]]:
    inputs = [te.placeholder(shape, dtype, name=f"x{k}") for k, shape in enumerate(shapes)]
    y = make(*inputs)
    head = te.placeholder(y.shape, dtype, name="head")
    return [y, *te.gradient(y, inputs, head)], [*inputs, head]


def _embedding() -> tuple[list[te.Tensor], list[te.Tensor]]:
    table, ids = te.placeholder((50000, 256), name="table"), te.placeholder((1 << 18,), "int64", name="ids")
    head = te.placeholder((1 << 18, 256), name="head")
    y = te.compute((1 << 18, 256), lambda i, d: table[ids[i], d], name="y")
    return list(te.gradient(y, [table], head)), [table, ids, head]


WORKLOADS = {
    "gemm 4096 float32": lambda: _gemm(4096, "float32"),
    "gemm 4096 bfloat16": lambda: _gemm(4096, "bfloat16"),
    "gemm 4096 float16": lambda: _gemm(4096, "float16"),
    "gemm 4096 tf32": lambda: _gemm(4096, "float32"),
    "gemm 2048 float64": lambda: _gemm(2048, "float64"),
    "gemm 4095x4001x4101 float32": lambda: _product(4095, 4001, 4101, "float32"),
    "gemm 4096x4100x4096 bfloat16": lambda: _product(4096, 4100, 4096, "bfloat16"),
    "gemm open float32": lambda: _product(te.dim("m"), te.dim("k"), te.dim("n"), "float32"),
    "gemm open bfloat16": lambda: _product(te.dim("m"), te.dim("k"), te.dim("n"), "bfloat16"),
    "softmax 16384x8192 and gradient": lambda: _with_gradient(kernels.softmax, (16384, 8192)),
    "conv 3x3 32x256x56x56 and gradients": lambda: _with_gradient(kernels.conv2d, (32, 256, 58, 58), (256, 256, 3, 3)),
    "conv 3x3 of stride 2, padded, and gradients": lambda: _with_gradient(
        lambda x, w: kernels.conv2d(x, w, stride=2, padding=1), (32, 256, 56, 56), (256, 256, 3, 3)
    ),
    "conv 3x3 bfloat16, padded, and gradients": lambda: _with_gradient(
        lambda x, w: kernels.conv2d(x, w, padding=1), (32, 256, 64, 64), (256, 256, 3, 3), dtype="bfloat16"
    ),
    "max-pool 2x2 and gradient": lambda: _with_gradient(lambda x: kernels.max_pool2d(x, kernel_size=2), (32, 64, 112, 112)),
    "embedding gradient": _embedding,
}


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


def listing(arch: str, filters: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """A row for every kernel of every workload."""
    facts = facts_of(arch)
    for name, make in WORKLOADS.items():
        if filters and not any(part in name for part in filters):
            continue
        outputs, inputs = make()
        program = simplify(te.program_of(outputs, inputs))
        target = replace(H200.running(arch), precision="tf32" if "tf32" in name else "float32")
        code = GpuCode.of_schedule(autoschedule(program, target))
        made = code.compiled(arch)
        text = _listings(made)
        for one in predictions(code.source, made, code.nest, facts, dict.fromkeys(code.nest.sizes, OPEN)):
            row: dict[str, Any] = {"arch": arch, "workload": name, "kernel": one.kernel, "grid": one.grid, "threads": one.threads}
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


def _listings(made: nvrtc.Compiled) -> dict[str, str]:
    """The machine code of each kernel; none where there is no program that prints it."""
    try:
        parts = re.split(r"\n\s*Function : (\w+)\n", made.sass())
    except TargetError:
        return {}
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def described(row: dict[str, Any]) -> str:
    """A row as a line."""
    predicted = row["predicted"]
    found = [
        f"predicted {predicted['us']:.4g} us by {predicted['bound']}, {predicted['share of peak']:.0%} of peak",
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
