"""What the assembler makes of the GPU benchmark's kernels, where there is no GPU to time them on: registers, spills, shared memory, and
counts of the machine's instructions that tell how a kernel works, of all of it and of its main loop: the one that multiplies most.

    python -m tensorexpr.benchmarks.cuda_resources FILE.json [--arch sm_90,sm_80]

These are evidence of what was compiled, not of how fast it runs.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.codegen.cuda import nvrtc
from tensorexpr.codegen.gpu_code import GpuCode
from tensorexpr.codegen.schedule import autoschedule
from tensorexpr.codegen.target import H200
from tensorexpr.records import replace
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


def _gemm(n: int, dtype: str) -> tuple[list[te.Tensor], list[te.Tensor]]:
    a, b = te.placeholder((n, n), dtype, name="a"), te.placeholder((n, n), dtype, name="b")
    return [te.compute((n, n), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], n), name="c")], [a, b]


def _with_gradient(make, *shapes: tuple[int, ...], dtype: str = "float32") -> tuple[list[te.Tensor], list[te.Tensor]]:
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


def listing(arch: str) -> list[dict[str, Any]]:
    """A row for every kernel of every workload."""
    rows: list[dict[str, Any]] = []
    for name, make in WORKLOADS.items():
        outputs, inputs = make()
        program = simplify(te.program_of(outputs, inputs))
        target = replace(H200.running(arch), precision="tf32" if "tf32" in name else "float32")
        code = GpuCode.of_schedule(autoschedule(program, target))
        made = code.compiled(arch)
        parts = re.split(r"\n\s*Function : (\w+)\n", made.sass())
        text = dict(zip(parts[1::2], parts[2::2], strict=True))
        for launch in code.source.launches:
            counts = counts_of([word for _, _, word, _ in _INSTRUCTION.findall(text[launch.kernel])])
            resources = asdict(made.resources[launch.kernel])
            rows.append(
                {
                    "arch": arch,
                    "workload": name,
                    "kernel": launch.kernel,
                    "threads": launch.threads,
                    "asked": launch.shared,
                    **resources,
                    "instructions": counts,
                    "main loop": main_loop(text[launch.kernel]),
                }
            )
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the listing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--arch", default="sm_90,sm_80")
    options = parser.parse_args(arguments)
    rows = [row for arch in options.arch.split(",") for row in listing(arch)]
    document = {
        "about": "compiled, not run: no GPU was there",
        "nvrtc": ".".join(map(str, nvrtc.version())),
        "rows": rows,
    }
    options.file.write_text(json.dumps(document, indent=1) + "\n")
    for row in rows:
        counts, loop = (", ".join(f"{n} {what}" for what, n in row[key].items() if n) for key in ("instructions", "main loop"))
        shared = f"{row['shared']} bytes shared and {row['asked']} asked for"
        place = f"{row['arch']}: {row['workload']}: {row['kernel']}"
        print(f"{place}: {row['registers']} registers, {shared}; {counts}{'; main loop: ' if loop else ''}{loop}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
