"""What the model of cost knows of a machine: some thirty facts, each with its unit, and where they come from.

Times are nanoseconds of one thread unless said. A *register* is a whole vector of `vector_bits`; throughputs are of instructions that do
not wait for each other. Facts are measured on first use, in seconds, by small kernels of our own (`measure`), and kept in the folder of
compiled code, by machine; where they cannot be, or are not wanted (TENSOREXPR_MEASURE=0), the shipped ones count: those of the nearest
machine by width of vectors, with this machine's caches and cores. Shipped figures are measured where that is said, else from the
manufacturers' manuals and Fog's instruction tables (2022), at the clock that is named.
"""

from __future__ import annotations

from tensorexpr.codegen.auto import gpus
from tensorexpr.codegen.auto.gpus import GpuFacts
from tensorexpr.codegen.target import Gpu, Target
from tensorexpr.records import record, replace


@record
class Facts:
    """A CPU, for the model of cost."""

    name: str
    source: str
    """Where the figures come from."""
    vector_bits: int
    """Bits of a register."""
    auto_bits: int
    """Bits of the vectors that LLVM makes of scalar loops: it prefers half of 512 where these lower the clock."""
    unit_bits: int
    """Bits that an arithmetic unit does at once: a part of a register of no more takes that part of a whole one's time, at least this."""
    registers: int
    """Vector registers."""
    instruction: float
    """An instruction of any kind, by what is decoded and retired side by side."""
    arithmetic: float
    """An addition, multiplication, comparison or selection of one register."""
    latency: float
    """From the operands of a multiplication with addition to its result."""
    add_latency: float
    """From the operands of an addition of single numbers to its result."""
    forward: float
    """From a store to a load of the same element."""
    divide: float
    """A division or square root of one register of float32; of float64 twice that."""
    divide_one: float
    """A division or square root of a single number."""
    divide_integer: float
    """A division of 64-bit integers."""
    shuffle: float
    """A permutation of one register."""
    load: float
    """A register from the first cache."""
    across: float
    """A register from the first cache that two lines have a part of."""
    store: float
    """A register to the first cache."""
    gather: float
    """An element of a gather from the first cache."""
    scatter: float
    """An element of a scatter to the first cache."""
    iteration: float
    """The branch back of a loop."""
    mispredicted: float
    """A branch that goes the other way than was predicted."""
    window: int
    """Instructions that are under way at once: so far ahead chains overlap."""
    caches: tuple[int, ...]
    """Bytes of each level that a thread can count on."""
    lines: tuple[float, ...]
    """A line read from beyond each level, one after the other: from the second cache, the third, memory."""
    jumps: tuple[float, ...]
    """A line from beyond each level at a place that no one foresaw, many under way at once."""
    writes: tuple[float, ...]
    """A line that is stored to and must be had first and be written back: into the second cache, the third, memory."""
    swaps: tuple[float, float]
    """A line that is read, and one that is stored to, where all fall on one place of the first cache: as often may it change hands."""
    stream: float
    """A line stored past the caches."""
    line_all: float
    """A line from memory where all cores ask at once."""
    page: float
    """First touch of a page of 4 KiB that the system must clear."""
    fork: float
    """Handing a loop to the other threads and waiting for them."""
    call: float
    """Calling a compiled function: its entry, without Python."""
    cores: int


SAPPHIRE_RAPIDS = Facts(
    "AVX-512 server", "measured on an Intel Xeon of the fourth generation in 2026",
    vector_bits=512, auto_bits=256, unit_bits=512, registers=32, instruction=0.044, arithmetic=0.14, latency=1.1,
    add_latency=0.57, forward=1.1,
    divide=2.6, divide_one=0.75, divide_integer=2.5, shuffle=0.25, load=0.13, across=0.28, store=0.24, gather=0.1, scatter=0.24,
    iteration=0.21, mispredicted=6.2, window=512, caches=(48 << 10, 2 << 20, 128 << 20), lines=(0.43, 2.2, 3.7), jumps=(0.55, 2.3, 5.5),
    writes=(1.1, 2.2, 5.7), swaps=(2.8, 5.6), stream=2.5,
    line_all=3.4, page=25.0, fork=920.0, call=20.0, cores=1,
)  # fmt: skip
ZEN_4 = replace(
    SAPPHIRE_RAPIDS, name="Zen 4 and 5", source="Fog's instruction tables and AMD's optimization guide (57647), at 4.5 GHz",
    auto_bits=512, unit_bits=256, instruction=0.037, arithmetic=0.22, latency=0.89, add_latency=0.67, forward=1.6,
    divide=2.4, divide_one=0.8, window=320,
    shuffle=0.22, load=0.22, across=0.44, store=0.44, gather=0.55, scatter=1.1, iteration=0.22, mispredicted=3.5,
    lines=(0.45, 1.4, 3.2), jumps=(0.6, 2.0, 6.0), writes=(0.9, 2.2, 5.0), swaps=(2.8, 5.6), stream=2.5, line_all=1.0,
)  # fmt: skip
AVX2 = replace(
    SAPPHIRE_RAPIDS, name="AVX2", source="Fog's instruction tables for Haswell to Alder Lake and Zen 3, at 4.0 GHz",
    vector_bits=256, auto_bits=256, unit_bits=256, registers=16, instruction=0.0625, arithmetic=0.125, latency=1.0, add_latency=1.0,
    forward=1.2,
    divide=1.25, divide_one=0.9, shuffle=0.25, load=0.125, across=0.25, store=0.25, gather=0.25, scatter=0.5, iteration=0.25,
    mispredicted=4.2, window=224, lines=(0.5, 1.6, 4.0), jumps=(0.7, 2.5, 8.0), writes=(0.9, 2.5, 7.0),
    swaps=(2.8, 5.6), stream=3.5, line_all=2.5,
)  # fmt: skip
NEON = replace(
    SAPPHIRE_RAPIDS, name="128 bits", source="optimization guides of Neoverse V1 and N2; Johnson's measurements of Apple's M1; at 3.0 GHz",
    vector_bits=128, auto_bits=128, unit_bits=128, registers=32, instruction=0.042, arithmetic=0.083, latency=1.33, add_latency=0.9,
    forward=1.6,
    divide=1.0, divide_one=0.5, shuffle=0.1, load=0.11, across=0.17, store=0.17, gather=0.2, scatter=0.25, iteration=0.33,
    mispredicted=4.0, window=400, lines=(0.7, 1.4, 2.0), jumps=(1.0, 2.5, 5.0), writes=(1.0, 2.0, 3.0),
    swaps=(2.8, 5.6), stream=2.0, line_all=0.6,
)  # fmt: skip
FACTS = (SAPPHIRE_RAPIDS, AVX2, NEON)


def of_gpu(gpu: GpuFacts) -> Facts:
    """The facts of one multiprocessor of a GPU: a register is that of a warp, 32 numbers, and handing a loop out is launching a kernel. It
    has a share of the second cache's and the memory's bandwidth; accesses wait for nothing else, as other warps run meanwhile."""
    cycle = 1.0 / gpu.clock
    second, memory = (64.0 * gpu.cores / rate for rate in (gpu.l2, gpu.memory))
    levels = (second, memory, memory)
    return Facts(
        gpu.name, gpu.source,
        vector_bits=1024, auto_bits=1024, unit_bits=1024, registers=255, instruction=cycle / gpu.issue, arithmetic=cycle / gpu.fp32,
        latency=cycle * gpu.add_latency, add_latency=cycle * gpu.add_latency, forward=cycle * gpu.shared_latency,
        divide=cycle * 4, divide_one=cycle * 2, divide_integer=cycle * 20 / gpu.integer, shuffle=cycle / gpu.shuffle,
        load=cycle / gpu.wavefront, across=1.5 * cycle / gpu.wavefront, store=cycle / gpu.wavefront, gather=cycle / 4, scatter=cycle / 4,
        iteration=2 * cycle / gpu.issue, mispredicted=0.0, window=1 << 16, caches=(gpu.l1_bytes, gpu.l2_bytes, gpu.l2_bytes),
        lines=levels, jumps=levels, writes=levels, swaps=(second, second),
        stream=memory, line_all=64.0 / gpu.memory, page=0.0, fork=gpu.launch, call=2000.0,
        cores=gpu.cores,
    )  # fmt: skip


def shipped(target: Target) -> Facts:
    """The facts of the shipped machine that is nearest to a target, with the target's caches, registers and cores."""
    caches = (target.l1_bytes, target.l2_bytes, target.last_level)
    if isinstance(target, Gpu):
        return replace(of_gpu(gpus.shipped(target.arch)), caches=caches, cores=target.cores)
    nearest = min(FACTS, key=lambda facts: abs(facts.vector_bits - target.vector_bits))
    if target.vector_bits == ZEN_4.vector_bits and target.multiplies == 1:
        nearest = ZEN_4  # by its two units of 256 bits
    unit = min(nearest.unit_bits, target.vector_bits)
    return replace(nearest, vector_bits=target.vector_bits, unit_bits=unit, registers=target.registers, caches=caches, cores=target.cores)
