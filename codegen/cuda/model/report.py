"""The predicted time of all launches of a function, and why, as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from tensorexpr.codegen.auto.cost import spell
from tensorexpr.codegen.auto.gpus import GpuFacts
from tensorexpr.codegen.cuda.emitter.source import Source
from tensorexpr.codegen.cuda.launch.run import launches
from tensorexpr.codegen.cuda.model.lanes import Access
from tensorexpr.codegen.cuda.model.prediction import Prediction, predict_launch
from tensorexpr.codegen.cuda.model.text import kernels_of
from tensorexpr.codegen.cuda.nvidia.nvrtc import Compiled
from tensorexpr.codegen.nest import Buffer, LoopNest
from tensorexpr.interpret import extent_value

OPEN = 1024
"""An open size that nobody says."""
MOST_LAUNCHES = 256
"""Different launches that are looked at; a loop of the host has more of them than that only where each is like the one before."""
_WASTE = 1.05
"""Times the least number of sectors or accesses from which a place is named."""


def predictions(
    source: Source, compiled: Compiled, nest: LoopNest, facts: GpuFacts, sizes: Mapping[str, int] | None = None
) -> list[Prediction]:
    """The launches of a function in order; those of a kernel on equal grids are one, as often as they come."""
    scalars = {name: OPEN for name in nest.sizes} | dict(sizes or {})
    bytes_ = {b.name: bytes_of(b, scalars) for b in (*nest.parameters, *nest.workspace)}
    bytes_ |= {c.name: float(c.data.nbytes) for c in nest.constants}
    kernels = kernels_of(compiled.ptx)
    known: dict[tuple[object, ...], Prediction] = {}
    found = []
    for launch, grid, values in launches(source.plan, scalars):
        key = (launch.kernel, grid)
        if key not in known:
            if len(known) >= MOST_LAUNCHES:
                break
            resources = compiled.resources[launch.kernel]
            known[key] = predict_launch(kernels[launch.kernel], launch, grid, values, bytes_, resources, facts)
        found.append(known[key])
    return found


def bytes_of(buffer: Buffer, sizes: Mapping[str, int]) -> float:
    """What a buffer takes at given sizes."""
    return float(prod(extent_value(e, sizes) for e in buffer.shape) * buffer.dtype.itemsize)


def explained(found: Sequence[Prediction], facts: GpuFacts) -> str:
    """Every kernel with what it takes, and all together."""
    parts = []
    seen: dict[int, int] = {}
    for one in found:
        seen[id(one)] = seen.get(id(one), 0) + 1
    for one in {id(one): one for one in found}.values():
        parts.append("\n".join(_kernel(one, seen[id(one)], facts)))
    time = sum(one.nanoseconds for one in found)
    gaps = facts.launch * max(0, len(found) - 1)
    memory, least = sum(one.memory_bytes for one in found), sum(one.least_bytes for one in found)
    parts.append(
        f"predicted for {facts.name} ({facts.arch}), not measured: {spell(time)} in {_count(len(found), 'launch', 'launches')}"
        + (f", and up to {spell(gaps)} between them" if gaps else "")
        + f"; {_size(memory)} of memory, {_size(least)} of them touched at all\nfacts: {facts.source}"
    )
    return "\n\n".join(parts)


def _kernel(one: Prediction, count: int, facts: GpuFacts) -> Iterable[str]:
    grid = " x ".join(map(str, one.grid))
    times = f", {count} times" if count > 1 else ""
    yield f"{one.kernel}: {spell(one.nanoseconds)}{times}, bound by {one.bound}, {one.share(facts):.0%} of the limit"
    yield (
        f"  {grid} blocks of {one.threads} threads, {one.registers} registers, {_size(one.shared)} shared: {one.resident.blocks} on a "
        f"multiprocessor at once (by {one.resident.by}), {one.waves:.2f} waves"
    )
    used = sorted(((t, name) for name, t in one.times.items() if t >= 0.02 * one.nanoseconds), reverse=True)
    yield "  " + ", ".join(f"{name} {spell(t)}" for t, name in used)
    yield (
        f"  {one.operations / 1e9:.3g} Gflop, {one.counts['issue'] / 1e6:.3g} M instructions of warps, {_size(one.l2_bytes)} from L2, "
        f"{_size(one.memory_bytes)} of memory, {_size(one.least_bytes)} touched"
    )
    for text in _wasted(one.accesses):
        yield f"  {text}"
    if one.spills:
        yield f"  {one.spills} bytes of spills in each thread"
    if one.by_data:
        yield "  depends on data: as if every index that is read were 0"


def _wasted(accesses: Sequence[Access]) -> Iterable[str]:
    """Places of shared memory that are asked more often than once, and of memory that are read in more sectors than they fill."""
    groups: dict[tuple[str, str, str, int], list[Access]] = {}
    for access in accesses:
        what = "writes" if access.instruction.opcode.startswith(("st.", "cp.")) and access.space != "copied" else "reads"
        groups.setdefault((access.space, access.place, what, access.size), []).append(access)
    for (space, place, what, size), some in groups.items():
        units, least, requests = (sum(getattr(a, name) for a in some) for name in ("units", "least", "requests"))
        if not least or units < _WASTE * least:
            continue
        if space == "shared":
            yield f"bank conflicts: {what} of {size} bytes of {place}: {units / least:.2f} times as long"
        elif space in ("global", "copied"):
            yield f"scattered: {what} of {size} bytes of {place}: {units / requests:.1f} sectors a warp, {least / requests:.1f} would do"


def _count(n: int, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"


def _size(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"
