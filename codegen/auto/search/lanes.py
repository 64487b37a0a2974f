"""Lanes, registers and cores of a kernel: for each statement the loop that runs in lanes, and what that takes.

Lanes go along the loop whose neighbouring iterations touch neighbouring elements: a loop of results, which goes inside of the sums that it
is around, or the loop of a sum, which is taken apart (`rfactor`). Borders are cut off (`partition`), short inner loops copied out, and the
outermost loop runs over cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isnan

from tensorexpr.codegen.auto.candidate import Candidate
from tensorexpr.codegen.auto.machine import Facts
from tensorexpr.codegen.auto.moves import move_of
from tensorexpr.codegen.auto.search.groups import extent_of
from tensorexpr.codegen.lowering.arithmetic import constant
from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, LoopNest, Stmt, Store
from tensorexpr.codegen.rewrites.expressions import elements_read
from tensorexpr.codegen.rewrites.names import fresh
from tensorexpr.codegen.rewrites.paths import inside, walk_block, walk_nest
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access
from tensorexpr.records import record

MOST_COPIED = 32
"""Iterations of short inner loops that are copied out together."""
REGISTERS = 4
"""Registers that a block of lanes fills: so many sums run side by side, which hides how long an addition takes."""
LONGEST = 8
"""Registers of lanes up to which a loop is not split."""
LEAST_DEALT = 64
"""Iterations of the outermost loop from which on all cores have as good as equal parts."""


@record
class Band:
    """One statement in the shared loop: its loops of results, outermost first, and those of each of its sums with what these update."""

    results: tuple[For, ...]
    sums: tuple[tuple[tuple[For, ...], tuple[str, ...]], ...]
    body: Block


def finished(made: Candidate, facts: Facts, at: str | None) -> Candidate:
    """The candidate with each statement of the loop `at` (of the kernels, without) in lanes, and its outermost loop over cores."""
    for names in [_names(s) for s in _statements(made.nest, at)]:
        s = next((x for x in _statements(made.nest, at) if names & _names(x)), None)
        if s is not None:
            made = _in_lanes(made, _band(s), facts)
    return _on_cores(made.then("simplify"))


def _names(s: Stmt) -> frozenset[str]:
    return frozenset(x.index for _, x in walk_block((s,)) if isinstance(x, For))


def _statements(nest: LoopNest, at: str | None) -> list[Stmt]:
    """The statements with loops in the copies of a loop, or in the kernels, local buffers looked through."""
    blocks = [x.body for _, x in walk_nest(nest) if isinstance(x, For) and x.index == at] if at else [k.body for k in nest.kernels]
    return [s for block in blocks for s in _flat(block) if _names(s)]


def _flat(block: Block) -> Iterator[Stmt]:
    for s in block:
        if isinstance(s, Alloc):
            yield from _flat(s.body)
        else:
            yield s


def _band(s: Stmt) -> Band:
    """The loops of a statement."""
    results: list[For] = []
    block: Block = (s,)
    while len(inner := list(_flat(block))) == 1 and isinstance(inner[0], For) and not _updated(inner[0]):
        results.append(inner[0])
        block = inner[0].body
    sums: list[tuple[tuple[For, ...], tuple[str, ...]]] = []
    for one in _flat(block):
        chain: list[For] = []
        inside_: Block = (one,)
        while len(inside_) == 1 and isinstance(inside_[0], For):
            chain.append(inside_[0])
            inside_ = inside_[0].body
        if chain:
            sums.append((tuple(chain), _updated(chain[-1])))
    return Band(tuple(results), tuple(sums), block)


def _updated(loop: For) -> tuple[str, ...]:
    """What all iterations of a loop update, if that is all that is stored in it."""
    found: dict[str, None] = {}
    for _, s in walk_block(loop.body):
        if isinstance(s, Store):
            same = any(a.tensor == s.buffer and a.indices == s.indices for a in elements_read((s,)))
            if not same or any(loop.index in move_of(index, {}).steps for index in s.indices):
                return ()
            found.setdefault(s.buffer)
        elif not isinstance(s, For):
            return ()
    return tuple(found)


# --------------------------------------------------------------------------------------------------------- lanes


def _in_lanes(made: Candidate, band: Band, facts: Facts) -> Candidate:
    """The candidate with one statement in lanes, where that is legal."""
    shapes = _buffers(made.nest)
    widest = max((b.dtype.itemsize for name, b in shapes.items() if name in _touched(band.body)), default=4)
    width = max(1, facts.vector_bits // 8 // widest)
    tried = [(_score(loop, band.body, shapes, width, facts), loop, None) for loop in band.results]
    best = min(tried, key=lambda x: x[0], default=None)
    if not band.sums:
        return _results_in_lanes(made, band, best[1], width) if best is not None else made
    along = [
        min((_score(loop, chain[-1].body, shapes, width, facts), n) for n, loop in enumerate(chain)) if updated else None
        for chain, updated in band.sums
    ]
    if best is not None and all(one is None or best[0] <= one[0] for one in along):
        return _results_in_lanes(made, band, best[1], width)
    for (chain, updated), one in zip(band.sums, along, strict=True):
        if one is not None:
            made = _sum_in_lanes(made, chain, chain[one[1]], updated, width)
    return made


def _results_in_lanes(made: Candidate, band: Band, loop: For, width: int) -> Candidate:
    """A loop of results in lanes, inside of all others."""
    before, lanes, outer = made, loop.index, None
    try:
        if extent_of(loop) > LONGEST * width:
            outer, lanes = fresh(made.nest, f"{loop.index}_o", f"{loop.index}_i")
            made = _split(made, loop.index, REGISTERS * width, outer, lanes)
        others = [x.index for x in band.results if x is not loop]
        order = [x.index for x in band.results]
        if order[-1] != loop.index:
            made = made.then("reorder", *(name for name in order[order.index(loop.index) + 1 :]), lanes)
        for chain, _ in band.sums:
            made = made.then("reorder", *(x.index for x in chain), lanes)
        made = _borders(made, [*others, *([outer] if outer else [])])
        made = made.then("vectorize", lanes)
    except ScheduleError:
        return before
    return _copied(made, band)


def _split(made: Candidate, loop: str, factor: int, outer: str, inner: str) -> Candidate:
    """A loop in blocks, the last one moved back where that is legal and nothing is computed that is not."""
    for tail in ("shift", "peel"):
        try:
            return made.then("split", loop, factor, tail, (outer, inner))
        except ScheduleError:
            continue
    raise AssertionError(tail)


def _borders(made: Candidate, loops: Sequence[str]) -> Candidate:
    """The candidate with what is tested near the ends of some loops cut off."""
    for name in loops:
        try:
            cut = made.then("partition", name)
        except ScheduleError:
            continue
        made = cut
    return made


def _copied(made: Candidate, band: Band) -> Candidate:
    """The candidate with short loops of sums copied out, from the innermost one on."""
    for chain, _ in band.sums:
        copies = 1
        for loop in reversed(chain):
            length = constant(loop.stop) if constant(loop.start) is not None else None
            copies *= length - (constant(loop.start) or 0) if length is not None else MOST_COPIED + 1
            if copies > MOST_COPIED:
                break
            try:
                made = made.then("unroll", loop.index)
            except ScheduleError:
                break
    return made


def _sum_in_lanes(made: Candidate, chain: Sequence[For], loop: For, updated: Sequence[str], width: int) -> Candidate:
    """A loop of a sum in lanes: as many sums as lanes, combined behind the loops."""
    before, lanes = made, loop.index
    try:
        if chain[-1] is not loop:
            made = made.then("reorder", *(x.index for x in chain if x is not loop), loop.index)
        if extent_of(loop) > REGISTERS * width:
            outer, lanes = fresh(made.nest, f"{loop.index}_o", f"{loop.index}_i")
            made = made.then("split", loop.index, REGISTERS * width, "peel", (outer, lanes))
        known = {s.index for _, s in walk_nest(made.nest) if isinstance(s, For)}
        for name in updated:
            made = made.then("rfactor", name, lanes)
        made = made.then("vectorize", lanes)
    except ScheduleError:
        return before
    for name in dict.fromkeys(s.index for _, s in walk_nest(made.nest) if isinstance(s, For) and s.index not in known):
        try:
            made = made.then("vectorize", name)
        except ScheduleError:
            continue
    return made


def _buffers(nest: LoopNest) -> dict[str, Buffer]:
    found = {b.name: b for b in (*nest.parameters, *nest.workspace)}
    for _, s in walk_nest(nest):
        if isinstance(s, Alloc):
            found[s.buffer.name] = s.buffer
    return found


def _touched(block: Block) -> set[str]:
    return {a.tensor for a in elements_read(block)} | {s.buffer for _, s in walk_block(block) if isinstance(s, Store)}


def _score(loop: For, block: Block, buffers: dict[str, Buffer], width: int, facts: Facts) -> float:
    """Nanoseconds of one iteration's accesses, roughly, where a loop runs in lanes."""
    total, lanes = 0.0, max(1, min(width, extent_of(loop)))
    known: dict = {}
    accesses = [(a, facts.load, facts.gather) for a in elements_read(block)]
    accesses += [(Access(s.buffer, s.indices, s.value.dtype), facts.store, facts.scatter) for _, s in walk_block(block) if isinstance(s, Store)]
    for access, whole, element in accesses:
        stride, row, even = 0.0, 1.0, True
        buffer = buffers.get(access.tensor)
        for index, extent in zip(reversed(access.indices), reversed(buffer.shape if buffer else ()), strict=False):
            move = move_of(index, known)
            stride += move.steps.get(loop.index, 0.0) * row
            even = even and loop.index not in move.random and loop.index not in move.uneven
            row *= constant(extent) or 64
        if not even or isnan(stride) or abs(stride) not in (0.0, 1.0):
            total += max(element, whole)
        else:
            total += whole / lanes
    return total + facts.arithmetic / lanes


# --------------------------------------------------------------------------------------------------------- cores


def _on_cores(made: Candidate) -> Candidate:
    """The candidate with the outermost loop of each kernel over cores, joined with those right inside while it is short."""
    for number in range(len(made.nest.kernels)):
        for s in list(_flat(made.nest.kernels[number].body)):
            if isinstance(s, For) and s.kind == "serial":
                made = _dealt(made, s)
    return made


def _dealt(made: Candidate, loop: For) -> Candidate:
    name, extent = loop.index, extent_of(loop)
    while extent < LEAST_DEALT and len(inside(loop)) == 1 and isinstance(loop.body[0], For) and loop.body[0].kind == "serial":
        inner = loop.body[0]
        (both,) = fresh(made.nest, f"{name}_{inner.index}")
        try:
            made = made.then("fuse", name, inner.index, both)
        except ScheduleError:
            break
        name = both
        found = next((s for _, s in walk_nest(made.nest) if isinstance(s, For) and s.index == both), None)
        if found is None:
            return made
        loop, extent = found, extent_of(found)
    try:
        return made.then("parallel", name)
    except ScheduleError:
        return made
