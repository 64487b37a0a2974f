"""The time of a kernel, predicted: what its blocks take of each unit against what a GPU has.

A kernel ends when the slowest of these has: a unit of the multiprocessor that has most blocks; the longest warp, one wave of resident
blocks after the other, where each basic block takes its longest chain of results that wait for each other; the second cache; memory.
Blocks are three of the grid, at places that no period of it meets. The first cache keeps what a block touches twice where the
resident blocks' bytes fit in, and small tensors that all blocks read, where there is room beside those; memory is read once where what
blocks share fits in the second cache, else as often as square groups of the blocks that run at once need it. What a block has stored itself
before comes from the second cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, sqrt
from time import process_time

import numpy as np

from tensorexpr.codegen.auto.gpus import KINDS, WHOLE, GpuFacts
from tensorexpr.codegen.cuda.emitter.source import Launch
from tensorexpr.codegen.cuda.model.instructions import PIPES, Use, latency_of, use_of
from tensorexpr.codegen.cuda.model.lanes import Access, Block, Run, space_and_size
from tensorexpr.codegen.cuda.model.text import Instruction, Kernel
from tensorexpr.codegen.cuda.model.traffic import SECTOR
from tensorexpr.codegen.cuda.nvidia.nvrtc import Resources

PLACES = (0.236, 0.618, 0.854)
"""Where blocks are along the grid that stand for all, by the golden section: rows of a triangle, say, come again after so many blocks."""
PATIENCE = 4.0
"""Seconds of one block beyond which the others are taken to be like it."""
_ROUNDS = 6
"""Times that a loop of one basic block is put behind itself, to see what a round takes."""
_SHARED_STEP, _WARP = 1024, 32


@dataclass(frozen=True)
class Limits:
    """How many blocks a multiprocessor holds at once, and what allows no more."""

    blocks: int
    by: str


@dataclass(frozen=True)
class Prediction:
    """What a launch is likely to take."""

    kernel: str
    grid: tuple[int, int, int]
    threads: int
    registers: int
    shared: int
    resident: Limits
    waves: float
    """Rounds of as many blocks as the GPU holds at once."""
    nanoseconds: float
    bound: str
    """What takes that long."""
    times: dict[str, float]
    """Nanoseconds that each unit needs."""
    counts: dict[str, float]
    """Warps' instructions by pipe, of all blocks; of tensor cores operations by kind."""
    operations: float
    l2_bytes: float
    memory_bytes: float
    least_bytes: float
    """Bytes of memory that are touched at all."""
    peak: float
    """The operations a nanosecond that the units used have."""
    accesses: tuple[Access, ...]
    """What one block touches."""
    by_data: bool
    spills: int = 0

    def share(self, facts: GpuFacts) -> float:
        """The share of what the GPU could do: operations at the rate of the units used, or bytes touched at the rate of copies."""
        arithmetic = self.operations / self.peak if self.peak else 0.0
        return min(1.0, max(arithmetic, self.least_bytes / facts.memory) / max(self.nanoseconds, 1e-9))


def predict_launch(
    kernel: Kernel,
    launch: Launch,
    grid: tuple[int, int, int],
    scalars: Sequence[int],
    sizes: Mapping[str, float],
    resources: Resources,
    facts: GpuFacts,
) -> Prediction:
    """The time of a launch: `sizes` are the bytes of its buffers by name."""
    blocks = grid[0] * grid[1] * grid[2]
    threads = launch.threads[0] * launch.threads[1] * launch.threads[2]
    runs, weights = _runs(kernel, launch, grid, scalars)
    first = runs[0]
    resident = limits_of(threads, resources.registers, resources.shared + launch.shared, facts)
    counts, operations, kinds = _counted(kernel, runs, weights, blocks)
    shared = _wavefronts(runs, weights, blocks)
    l2, memory, least = _bytes(runs, weights, blocks, resident.blocks, resources.shared + launch.shared, sizes, facts)
    most = ceil(blocks / facts.cores) / blocks if blocks else 0.0  # the share of the multiprocessor that has most blocks
    rates = {name: getattr(facts, name) for name in PIPES if name != "tensor"}
    times = {name: counts[name] * most / rates[name] / facts.clock for name in rates}
    times["tensor cores"] = sum(n * most / (facts.tensor_rate(kind)) for kind, n in kinds.items()) / facts.clock
    times["L1 and shared memory"] = shared * most / facts.wavefront / facts.clock
    chain = sum(w * _chain(kernel, run.longest, facts) for run, w in zip(runs, weights, strict=True))
    times["latency"] = chain * ceil(blocks / (resident.blocks * facts.cores)) / facts.clock
    times["L2"] = l2 / facts.l2
    times["memory"] = memory / facts.memory
    bound = max(times, key=lambda name: times[name])
    return Prediction(
        kernel.name, grid, threads, resources.registers, resources.shared + launch.shared, resident,
        blocks / (resident.blocks * facts.cores), times[bound], bound, times, {**counts, **kinds}, operations, l2, memory, least,
        _peak(counts, kinds, facts), tuple(first.accesses.values()), any(r.by_data for r in runs),
        resources.spill_loads + resources.spill_stores,
    )  # fmt: skip


def limits_of(threads: int, registers: int, shared: int, facts: GpuFacts) -> Limits:
    """The blocks that fit: registers come by 256 for a warp, shared memory with a KiB of the system's for each block."""
    warps = -(-threads // _WARP)
    each = -(-registers * _WARP // 256) * 256
    found = {
        "warps": facts.warps // warps,
        "blocks": facts.blocks,
        "registers": facts.registers // (each * warps) if registers else facts.blocks,
        "shared memory": facts.shared_bytes // (shared + _SHARED_STEP),
    }
    by = min(found, key=lambda name: found[name])
    return Limits(max(1, found[by]), by)


def _runs(kernel: Kernel, launch: Launch, grid: tuple[int, int, int], scalars: Sequence[int]) -> tuple[list[Run], list[float]]:
    """One block, then two more where that is soon done, with their weights."""
    x, y, z = grid
    numbers = [int(x * y * z * place) for place in PLACES]
    places = list(dict.fromkeys((n % x, n // x % y, n // (x * y)) for n in numbers))
    runs: list[Run] = []
    for place in places:
        began = process_time()
        runs.append(Block(kernel, launch.buffers, scalars, launch.threads, grid, place).run())
        if process_time() - began > PATIENCE:
            break
    return runs, [1 / len(runs)] * len(runs)


def _counted(
    kernel: Kernel, runs: Sequence[Run], weights: Sequence[float], blocks: int
) -> tuple[dict[str, float], float, dict[str, float]]:
    counts: dict[str, float] = dict.fromkeys((name for name in PIPES if name != "tensor"), 0.0)
    kinds: dict[str, float] = {}
    operations = 0.0
    for number, block in enumerate(kernel.blocks):
        times = blocks * sum(w * run.executed[number] for run, w in zip(runs, weights, strict=True))
        for use in (use_of(kernel.opcode(i)) for i in block) if times else ():
            operations += times * use.operations
            for pipe, n in use.counts:
                if pipe == "tensor":
                    kinds[use.kind] = kinds.get(use.kind, 0.0) + times * n
                else:
                    counts[pipe] += times * n
    return counts, operations, kinds


def _wavefronts(runs: Sequence[Run], weights: Sequence[float], blocks: int) -> float:
    """Accesses of shared memory and of the first cache, which are one memory."""
    total = 0.0
    for run, w in zip(runs, weights, strict=True):
        total += w * sum(access.lines for access in run.accesses.values())
    return blocks * total


def _bytes(
    runs: Sequence[Run], weights: Sequence[float], blocks: int, resident: int, shared: int, sizes: Mapping[str, float], facts: GpuFacts
) -> tuple[float, float, float]:
    """Bytes from the second cache, bytes of memory, and bytes that are touched at all."""
    asked: dict[tuple[str, bool], float] = {}
    reads: dict[str, float] = {}  # by a block through the first cache, each sector once
    past: set[str] = set()  # copied past that cache
    back: dict[tuple[str, bool], float] = {}  # the share that a block has stored itself
    room = max(0, facts.l1_bytes - resident * shared) / resident
    for run, w in zip(runs, weights, strict=True):
        touched: dict[tuple[str, bool], list[Access]] = {}
        for access in run.accesses.values():
            if access.space in ("global", "copied") and access.place:
                touched.setdefault((access.place, access.stores), []).append(access)
        for key, accesses in touched.items():
            own = (
                SECTOR * len(np.unique(np.concatenate([s for a in accesses for s in a.touched]))) if any(a.touched for a in accesses) else 0
            )
            every = SECTOR * sum(a.units for a in accesses)
            asked[key] = asked.get(key, 0.0) + w * (own if own <= room else every)
            back[key] = back.get(key, 0.0) + w * (0.0 if key[1] or not own else _stored_before(run, key[0]) / own)
            if any(a.space == "copied" for a in accesses):
                past.add(key[0])
            elif not key[1]:
                reads[key[0]] = reads.get(key[0], 0.0) + w * own
    l2 = memory = least = 0.0
    total = {key: blocks * n for key, n in asked.items()}
    kept = _kept(
        reads, {name for name in reads if name not in past and (name, True) not in total}, total, room * resident, resident, sizes, facts
    )
    again = {name for (name, _), n in total.items() if n > sizes.get(name, n)}
    fits = sum(sizes[name] for name in again) <= facts.l2_bytes
    together = sqrt(max(1, min(blocks, resident * facts.cores)))
    near = resident * facts.cores * sum(n for (_, stores), n in asked.items() if stores) <= facts.l2_bytes
    for key, n in total.items():
        name = key[0]
        whole = min(n, sizes.get(name, n))
        if name in kept:
            n = min(n, facts.cores * whole)
        reuse = n / whole if whole else 1.0
        l2, least = l2 + n, least + whole
        fresh = whole * (1 - back[key]) if near else whole
        memory += fresh if fits or name in kept else fresh * max(1.0, reuse / min(reuse, together))
    return l2, memory, least


def _stored_before(run: Run, name: str) -> float:
    """The bytes of a buffer that a block reads behind its own stores of them, and not before: these come from the second cache."""
    stored, read, fresh = (np.empty(0, np.int64) for _ in range(3))
    for access in run.accesses.values():  # in the order in which they are made first
        if access.place == name and access.space in ("global", "copied") and access.touched:
            sectors = np.unique(np.concatenate(access.touched))
            if access.stores:
                stored = np.union1d(stored, sectors)
            else:
                read, fresh = np.union1d(read, sectors), np.union1d(fresh, np.setdiff1d(sectors, stored))
    return float(SECTOR * (len(read) - len(fresh)))


def _kept(
    reads: Mapping[str, float],
    candidates: set[str],
    total: Mapping[tuple[str, bool], float],
    room: float,
    resident: int,
    sizes: Mapping[str, float],
    facts: GpuFacts,
) -> set[str]:
    """Tensors of which a multiprocessor's blocks read more than there is, and which stay in its first cache from one block to the next: the
    smallest of them, as long as there is room beside what the blocks that are there at once read of all others."""
    small = sorted((sizes[name], name) for name in candidates if total[name, False] > facts.cores * sizes.get(name, float("inf")))
    for count in range(len(small), 0, -1):
        kept = {name for _, name in small[:count]}
        beside = sum(n for name, n in reads.items() if name not in kept)
        if sum(size for size, _ in small[:count]) + resident * beside <= room:
            return kept
    return set()


def _peak(counts: Mapping[str, float], kinds: Mapping[str, float], facts: GpuFacts) -> float:
    """Operations in a nanosecond of the units that do most of them."""
    if kinds:
        kind = max(kinds, key=lambda k: kinds[k])
        return facts.tensor[KINDS.index(kind.removeprefix(WHOLE))] * facts.cores * facts.clock
    rate = facts.fp32 if counts["fp32"] >= counts["fp64"] else facts.fp64
    return 2.0 * _WARP * rate * facts.cores * facts.clock


# ----------------------------------------------------------------------------------------------------------- latency


def _chain(kernel: Kernel, executed: Sequence[float], facts: GpuFacts) -> float:
    """Cycles of one warp that waits for nothing but its own results."""
    total = 0.0
    for number, block in enumerate(kernel.blocks):
        if executed[number]:
            alone = executed[number] < 2 or not _comes_back(kernel, number)
            total += executed[number] * (_rounds(block, 1, facts)[0] if alone else _round(block, facts))
    return total


def _comes_back(kernel: Kernel, number: int) -> bool:
    block = kernel.blocks[number]
    return bool(block) and block[-1].words[0] == "bra" and kernel.labels.get(block[-1].operands[-1]) == number


def _round(block: Sequence[Instruction], facts: GpuFacts) -> float:
    ends = _rounds(block, _ROUNDS, facts)
    steps = [b - a for a, b in pairwise(ends)]
    return sum(steps[1:]) / len(steps[1:])


def _rounds(block: Sequence[Instruction], count: int, facts: GpuFacts) -> list[float]:
    """When each of some rounds of a basic block is done, if instructions start as soon as what they need is there, no more than one a
    cycle, in any order within a round (the assembler finds a good one) but none before all of the round before have started. A barrier
    waits for what was read of shared memory; what waits for copies waits for all groups but the last few."""
    ready: dict[str, float] = {}
    groups: list[float] = []
    floor = issued = pending = shared = 0.0
    ends = []
    for _ in range(count):
        latest = floor
        for i in block:
            use, name = use_of(i.opcode), i.words[0]
            start = max([floor, *(ready.get(r, 0.0) for r in i.read)])
            issued += _issue(use)
            latest = max(latest, start)
            end = start + latency_of(use, facts)
            space, _ = space_and_size(i)
            if name == "cp":
                if i.words[2] == "commit_group":
                    groups.append(pending)
                elif i.words[2].startswith("wait"):
                    left = int(i.operands[0]) if i.operands and i.operands[0].isdigit() else 0
                    floor = max([floor, *groups[: len(groups) - left]])
                else:
                    pending = max(pending, start + facts.memory_latency)
            elif name == "bar":
                floor = max(floor, shared, issued) + facts.barrier
            elif name in ("ld", "ldmatrix", "atom") and space:
                end = start + (facts.shared_latency if space in ("shared", "local") else facts.memory_latency)
                shared = max(shared, end) if space == "shared" else shared
            for register in i.written:
                ready[register] = end
        ends.append(max([floor, issued, *ready.values()]))
        floor = max(floor, latest)
    return ends


def _issue(use: Use) -> float:
    return dict(use.counts).get("issue", 0.0)
