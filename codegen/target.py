"""The machine that a schedule is made for: the few facts from which loops, tiles and vectors are chosen.

A `Target` says nothing about instructions (the emitters know those); it is a value, so schedules for another machine can be
made and tested anywhere.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tensorexpr import dtypes
from tensorexpr.dtypes import DType
from tensorexpr.records import record, replace

SHARE = 8 << 20
"""Bytes of the last cache per core, at most."""


VECTORS = ("amx", "asimd", "avx", "sve")
"""How the names of the features begin that are instructions on vectors and tiles."""


SHARED = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}
"""KiB of shared memory of a block by compute capability; others have what the first of their generation has."""


class Dot(NamedTuple):
    """An instruction that adds, in each lane, so many `products` of narrow numbers to a sum of 32 bits: the types of the sum, of the factor
    that all lanes share and of the one that each has for itself; and the feature of a CPU that has it."""

    total: DType
    shared: DType
    own: DType
    products: int
    feature: str


DOTS = (
    Dot(dtypes.int32, dtypes.uint8, dtypes.int8, 4, "avx512_vnni"),
    Dot(dtypes.int32, dtypes.int8, dtypes.int8, 4, "avx512_vnni"),
    Dot(dtypes.int32, dtypes.int16, dtypes.int16, 2, "avx512_vnni"),
    Dot(dtypes.float32, dtypes.bfloat16, dtypes.bfloat16, 2, "avx512_bf16"),
)


@record
class Target:
    """A CPU, or a GPU (`kind`): width of its vectors in bits, number of vector registers, cores, and sizes of its caches in bytes."""

    name: str
    vector_bits: int = 128
    registers: int = 16
    cores: int = 1
    l1_bytes: int = 32 << 10
    l2_bytes: int = 512 << 10
    l3_bytes: int = 8 << 20
    kind: str = "cpu"
    features: tuple[str, ...] = ()
    multiplies: int = 2
    """Whole vectors of multiplications with addition that a core starts in one cycle."""

    @property
    def is_gpu(self) -> bool:
        """Whether it runs blocks of threads instead of a few cores."""
        return self.kind != "cpu"

    @property
    def last_level(self) -> int:
        """Bytes of the last cache that a function can count on: a large one has many cores, and others work on them."""
        return min(self.l3_bytes, self.cores * SHARE)

    def with_features(self, *features: str) -> Target:
        """The machine with further instructions, by the names that the operating system gives them."""
        return replace(self, features=tuple(sorted({*self.features, *features})))

    @property
    def with_two_cores(self) -> Target:
        """The same machine with two cores: what choices are made for that change the order of sums, as results may not depend on how many
        cores a process has; loops of it are shared out all the same."""
        return self if self.cores == 2 else replace(self, cores=2)

    def lanes(self, dtype: DType) -> int:
        """Elements of `dtype` in one vector."""
        return max(1, self.vector_bits // (8 * dtype.itemsize))


@record
class Gpu(Target):
    """A GPU: `cores` are its multiprocessors. A loop over lanes is run by the threads of a block, `threads` by default; a block may ask for
    `shared_bytes` of memory, and a thread has up to 255 registers of 32 bits. `arch` is what its code is compiled for;
    with `precision` "tf32", not "float32", sums of products may round their factors of float32 for tensor cores. Lines of tensors whose
    length is not known count as multiples of `lines` elements."""

    kind: str = "gpu"
    threads: int = 256
    shared_bytes: int = 227 << 10
    arch: str = "sm_90"
    precision: str = "float32"
    lines: int = 1

    def lanes(self, dtype: DType) -> int:
        """Threads of a block, whatever they work on."""
        return self.threads

    @property
    def tensor_cores(self) -> bool:
        """Whether it has the products of matrices that we emit, of 16-bit floats, float64 and TF32 (PTX ISA, `mma`: sm_80 and later)."""
        return _capability(self.arch) >= 80

    @property
    def warpgroups(self) -> bool:
        """Whether it has products of matrices of four warps together (PTX ISA, `wgmma`: sm_90a alone, and none that came later)."""
        return self.arch == "sm_90a"

    def running(self, *archs: str) -> Gpu:
        """The same for code that runs on each of some architectures: for the least of them, with no more shared memory than any has. What
        is for one device alone, such as "sm_90a", is for that alone."""
        shared = min([_shared_bytes(a) for a in archs], default=self.shared_bytes)
        least = min(archs, key=_capability, default=self.arch)
        return replace(self, shared_bytes=shared, arch=least if len(set(archs)) < 2 else least.rstrip("af"))


def code_for(capability: str) -> str:
    """What code for one device is compiled for, by its compute capability, such as "90": also for instructions that no other has."""
    return f"sm_{capability}{'a' if capability == '90' else ''}"


def _capability(arch: str) -> int:
    return int(arch.removeprefix("sm_").rstrip("af"))


def _shared_bytes(arch: str) -> int:
    """What a block may ask for on an architecture such as "sm_90" (CUDA C++ Programming Guide, technical specifications per compute
    capability); of one that is not known, as much as all have."""
    number = _capability(arch)
    return SHARED.get(number, SHARED[number // 10 * 10] if number // 10 * 10 in SHARED else min(SHARED.values())) << 10


H200 = Gpu("cuda", 32, 255, 132, 192 << 10, 50 << 20, 50 << 20)
"""What schedules are made for where no GPU is asked: the streaming multiprocessors and caches of an H200."""


@cache
def host_target() -> Target:
    """The CPU of this process, from what the operating system says of it; 128-bit vectors where it says nothing."""
    features = _cpu_flags()
    if {"avx512f", "avx512bw", "avx512vl"} <= features:
        bits, registers = 512, 32
    elif "avx2" in features:
        bits, registers = 256, 16
    else:
        bits, registers = 128, 32 if "asimd" in features else 16
    sizes = _cache_sizes()
    default = Target("cpu")
    return Target(
        "cpu",
        bits,
        registers,
        available_cores(),
        sizes.get(1, default.l1_bytes),
        sizes.get(2, default.l2_bytes),
        sizes.get(3, default.l3_bytes),
        features=tuple(sorted(f for f in features if f.startswith(VECTORS))),
        multiplies=_multiplies(bits),
    )


def _multiplies(bits: int, path: Path = Path("/proc/cpuinfo")) -> int:
    """Vectors of so many bits that are multiplied in one cycle: two, but for those of 512 bits on AMD's family 25 (Zen 4), which has two
    units of 256 bits and makes one vector of both."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 2
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in reversed(lines))}
    return 1 if bits == 512 and facts.get("vendor_id") == "AuthenticAMD" and facts.get("cpu family") == "25" else 2


def available_cores() -> int:
    """The cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _cpu_flags(path: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return frozenset()
    line = next((item for item in lines if item.lower().startswith(("flags", "features"))), ":")
    return frozenset(line.split(":", 1)[1].split())


def _cache_sizes(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> dict[int, int]:
    """Bytes of the data caches by level."""
    sizes: dict[int, int] = {}
    for entry in sorted(folder.glob("index*")):
        try:
            kind, level, size = ((entry / name).read_text().strip() for name in ("type", "level", "size"))
            unit = {"K": 1 << 10, "M": 1 << 20}.get(size[-1:], 1)
            if kind != "Instruction":
                sizes[int(level)] = int(size.rstrip("KM")) * unit
        except (OSError, ValueError):
            continue
    return sizes
