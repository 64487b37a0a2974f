"""What is known of GPUs: some thirty facts of each, shipped by architecture, measured ones in a file per GPU.

`facts_of("sm_90", "NVIDIA H200")` takes the file `gpus/nvidia-h200.json` beside this module, where somebody has put what
`benchmarks/gpu.sh` measured there, over the shipped facts of the architecture. A warp is 32 threads; rates are of one multiprocessor in a
cycle, and a warp's instruction counts as one. Shipped figures are of the CUDA C++ Programming Guide (throughput of arithmetic
instructions, technical specifications per compute capability) and of data sheets of the GPU that is named; bandwidths of memory are nine
tenths of the data sheet's, which is what copies reach.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from tensorexpr.records import record, replace

FOLDER = Path(__file__).with_name("gpus")
KINDS = ("bf16", "f16", "tf32", "f64")
"""Operands of tensor cores, by the suffix of PTX."""
WHOLE = "wgmma "
"""Stands before those of products of four warps, which are as fast as tensor cores are."""


@record
class GpuFacts:
    """A GPU, for schedules and for the model of a kernel's time."""

    name: str
    source: str
    """Where the figures come from."""
    arch: str
    cores: int
    """Multiprocessors."""
    clock: float
    """Cycles in a nanosecond."""
    l2_bytes: int
    l2: float
    """Bytes from the second cache in a nanosecond, for all multiprocessors together."""
    memory: float
    """Bytes to and from memory in a nanosecond, as a copy moves them."""
    warps: int
    """Warps that a multiprocessor holds."""
    blocks: int
    """Blocks that it holds."""
    shared_bytes: int
    """Shared memory of all of them together."""
    l1_bytes: int
    """The same with the first cache, which has the rest."""
    registers: int = 65536
    issue: float = 4.0
    """Instructions that its schedulers issue."""
    fp32: float = 4.0
    fp64: float = 2.0
    integer: float = 2.0
    special: float = 0.5
    """Roots, exponentials, reciprocals."""
    convert: float = 2.0
    """Conversions between types of numbers, of up to 32 bits."""
    shuffle: float = 1.0
    wavefront: float = 1.0
    """Accesses to shared memory or to the first cache, of 128 bytes each."""
    tensor: tuple[float, ...] = (4096.0, 4096.0, 2048.0, 256.0)
    """Operations (two to a multiplication with addition) of tensor cores for each of `KINDS`: what the data sheet says."""
    mma: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0)
    """The share of each that `mma.sync` reaches."""
    add_latency: float = 4.0
    """Cycles from operands to the result of an addition; those of the others likewise."""
    fp64_latency: float = 8.0
    special_latency: float = 20.0
    mma_latency: float = 33.0
    shared_latency: float = 29.0
    l2_latency: float = 270.0
    memory_latency: float = 650.0
    barrier: float = 20.0
    launch: float = 2500.0
    """Nanoseconds from the end of a kernel to the beginning of the next on a stream."""

    def tensor_rate(self, kind: str) -> float:
        """Operations of tensor cores in a cycle for a kind of operands: by `mma.sync`, or by `wgmma` for one that begins with `WHOLE`."""
        if kind.startswith(WHOLE):
            return self.tensor[KINDS.index(kind.removeprefix(WHOLE))]
        return self.tensor[KINDS.index(kind)] * self.mma[KINDS.index(kind)]


_GUIDE = "CUDA C++ Programming Guide and data sheet of {}; latencies of microbenchmarks in the literature; not measured here"
A100 = GpuFacts(
    "A100", _GUIDE.format("the A100 SXM of 40 GB"), "sm_80", cores=108, clock=1.41, l2_bytes=40 << 20, l2=3500.0, memory=1400.0,
    warps=64, blocks=32, shared_bytes=164 << 10, l1_bytes=192 << 10, fp32=2.0, fp64=1.0, tensor=(2048.0, 2048.0, 1024.0, 128.0),
    mma_latency=33.0, shared_latency=23.0, l2_latency=200.0, memory_latency=470.0,
)  # fmt: skip
L40S = GpuFacts(
    "L40S", _GUIDE.format("the L40S"), "sm_89", cores=142, clock=2.52, l2_bytes=96 << 20, l2=4500.0, memory=780.0,
    warps=48, blocks=24, shared_bytes=100 << 10, l1_bytes=128 << 10, fp64=1 / 16, tensor=(1024.0, 1024.0, 512.0, 4.0), memory_latency=700.0,
    fp64_latency=40.0,
)  # fmt: skip
H200 = GpuFacts(
    "H200", _GUIDE.format("the H200 SXM") + "; mma.sync at 0.62 of wgmma (Luo et al. 2024)", "sm_90", cores=132, clock=1.75,
    l2_bytes=50 << 20, l2=5500.0, memory=4300.0, warps=64, blocks=32, shared_bytes=228 << 10, l1_bytes=256 << 10,
    mma=(0.62, 0.62, 0.62, 1.0),
)  # fmt: skip
B200 = GpuFacts(
    "B200", _GUIDE.format("the B200") + "; mma.sync as fast as on Hopper, which nobody has said", "sm_100", cores=148, clock=1.85,
    l2_bytes=126 << 20, l2=9000.0, memory=7200.0, warps=64, blocks=32, shared_bytes=228 << 10, l1_bytes=256 << 10,
    tensor=(8192.0, 8192.0, 4096.0, 128.0), mma=(0.31, 0.31, 0.31, 1.0), memory_latency=750.0,
)  # fmt: skip
RTX_5090 = GpuFacts(
    "RTX 5090", _GUIDE.format("the GeForce RTX 5090"), "sm_120", cores=170, clock=2.41, l2_bytes=96 << 20, l2=6000.0, memory=1610.0,
    warps=48, blocks=24, shared_bytes=100 << 10, l1_bytes=128 << 10, fp64=1 / 16, integer=4.0, tensor=(512.0, 512.0, 256.0, 4.0),
    fp64_latency=40.0, memory_latency=750.0,
)  # fmt: skip
SHIPPED = (A100, L40S, H200, B200, RTX_5090)
_LIKE = {"sm_75": A100, "sm_86": L40S, "sm_87": L40S, "sm_88": L40S, "sm_103": B200, "sm_110": B200, "sm_121": RTX_5090}
"""Architectures without facts of their own, and the nearest that have."""


def shipped(arch: str) -> GpuFacts:
    """The shipped facts for an architecture such as "sm_90"; of one that is not known, those of the newest that is older."""
    plain = arch.rstrip("af")
    known = {facts.arch: facts for facts in SHIPPED} | _LIKE
    if plain in known:
        return known[plain]
    older = [facts for facts in SHIPPED if _number(facts.arch) <= _number(plain)]
    return older[-1] if older else A100


def _number(arch: str) -> int:
    return int("".join(filter(str.isdigit, arch)))


def file_name(name: str) -> str:
    """The file of what was measured on a GPU of this name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + ".json"


def facts_of(arch: str, name: str | None = None) -> GpuFacts:
    """The facts of a GPU by its architecture and, where it is known, the driver's name for it: measured ones over shipped ones."""
    found = shipped(arch)
    kept = _measured(file_name(name)) if name else {}
    return with_measured(found, {"name": name, **kept}) if kept else found


@cache
def _measured(file: str) -> dict[str, Any]:
    path = FOLDER / file
    return dict(json.loads(path.read_text())) if path.is_file() else {}


def with_measured(facts: GpuFacts, measured: dict[str, Any]) -> GpuFacts:
    """Facts with those of a file over them; what the file has beside facts (when, versions) is for readers."""
    known = {key: tuple(value) if isinstance(value, list) else value for key, value in measured.items() if key in GpuFacts.__annotations__}
    return replace(facts, **known)
