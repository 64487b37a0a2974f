"""What goes past the caches, and what is asked for ahead of its use: the last words on a nest, whoever made it.

Outputs that are more than the last cache holds are written past it, where they come fast enough for memory to be what is waited for: their
lines would only push out others. Rows that an iteration goes over several times are near from the second time on, and memory has nothing to
do then, so the first one asks for those of the next iteration. Where much is computed on what goes by once, loads are asked for some lines
ahead. Rows that indices lead to lie anywhere, so the processor does not see them come: they are asked for as well. The model of cost does
not see what hides behind arithmetic; what stands here follows from sizes alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tensorexpr.codegen.auto.candidate import Candidate
from tensorexpr.codegen.auto.moves import move_of
from tensorexpr.codegen.auto.search.groups import extent_of
from tensorexpr.codegen.auto.search.unread import without_unread
from tensorexpr.codegen.auto.tiles.borders import with_clear_middles
from tensorexpr.codegen.auto.tiles.grids import with_grids
from tensorexpr.codegen.auto.tiles.scans import with_scans
from tensorexpr.codegen.auto.tiles.steps import with_steps
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.lowering.context.arithmetic import constant
from tensorexpr.codegen.lowering.stage.joining import side_by_side
from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, Kernel, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import buffers_written, elements_read, expressions_of, inside, stores_in
from tensorexpr.codegen.schedule import Planned
from tensorexpr.codegen.schedule.analysis.work import UNKNOWN_EXTENT, length
from tensorexpr.codegen.target import Gpu
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Apply, Axis, Expr, Index
from tensorexpr.records import record, replace
from tensorexpr.traversal import free_names, tensors_read, walk

LEAST_SHARE = 4
"""Parts of the last cache that a buffer has to exceed one of before it counts as one that comes from memory or goes there."""
LINE = 64
LEAST_ROW = 512
"""Bytes of a row from which on it is asked for ahead: within shorter ones the processor sees what comes by itself."""
MOST_STREAMED = 32
"""Cost of operations per byte of a result up to which it is memory that it waits for."""
LEAST_FETCHED = 2
"""Cost of operations per byte of a result from which on loads of a stream come late by themselves."""
AHEAD = 4096
"""Bytes that a stream is asked for ahead."""
MOST_AHEAD = 16
"""Rows that are asked for ahead through indices."""
MOST_COPIED = 8
"""Vectors of such a row up to which they are copied out, so that the place of a later row is worked out once for all of them."""
SHORT_SEGMENTS = 8
"""Iterations of a loop between data up to which it mostly ends before the processor has asked for its rows by itself."""


@record(eq=False, slots=False)
class _Memory:
    """What a nest touches: its buffers, bytes of each parameter, those of all that it surely goes through, the sizes of caches."""

    buffers: dict[str, Buffer]
    sizes: dict[str, int]
    moved: int
    read: frozenset[str]
    writes: tuple[str, ...]
    caches: tuple[int, ...]
    known: dict[int, frozenset[str]]
    """The buffers that a statement reads, by its identity."""

    @staticmethod
    def of(nest: LoopNest, caches: tuple[int, ...]) -> _Memory:
        buffers = {b.name: b for b in (*nest.parameters, *nest.workspace)}
        sizes = {b.name: _bytes(b) for b in nest.parameters}
        reads = [a for kernel in nest.kernels for a in elements_read(kernel.body)]
        surely = {a.tensor for a in reads if not any(map(_is_data, a.indices))}
        moved = sum(size for name, size in sizes.items() if name in surely or name in nest.writes)
        return _Memory(buffers, sizes, moved, frozenset(a.tensor for a in reads), nest.writes, caches, {})

    def is_far(self, name: str) -> bool:
        """Whether a parameter comes from memory or goes there."""
        return LEAST_SHARE * self.sizes.get(name, 0) > self.caches[-1]

    def reads(self, s: Stmt) -> frozenset[str]:
        """The buffers that a statement reads, what is inside of it included."""
        found = self.known.get(id(s))
        if found is None:
            own = {name for e in expressions_of(s) for name in tensors_read(e)}
            found = self.known[id(s)] = frozenset(own).union(*map(self.reads, inside(s)))
        return found

    def length(self, loop: For) -> int:
        """Iterations of a loop; of one between two entries of a table, which all of that is counted by, in the mean."""
        tables = {n.tensor for e in (loop.start, loop.stop) if isinstance(n := e, Access)}
        table = self.buffers.get(tables.pop()) if len(tables) == 1 else None
        entries = constant(table.shape[-1]) if table is not None and len(table.shape) == 1 else None
        counted = constant(table.within[1]) if table is not None and table.within is not None else None
        if entries and counted is not None:
            return max(1, counted // max(1, entries - 1))
        found = length(Axis(loop.index, loop.start, loop.stop))
        return extent_of(loop) if found == UNKNOWN_EXTENT else found


@record(eq=False)
class _Place:
    """A store with the loops around it."""

    loops: tuple[For, ...]
    statement: Store

    def cost(self, memory: _Memory) -> float:
        """Cost of the operations of all its executions."""
        own = sum(n.op.cost for e in expressions_of(self.statement) for n in walk(e) if isinstance(n, Apply) and n.dtype.is_float)
        return prod(float(memory.length(s)) for s in self.loops) * own


def lowered(planned: Planned) -> LoopNest:
    """The nest that planners made, with the last words on it; of a GPU, threads for what they left without."""
    target = planned.target
    nest = with_clear_middles(lower(planned), target)
    if isinstance(target, Gpu):
        return without_unread(with_grids(with_scans(nest, target), target))
    if planned.state.sweeps:
        nest = with_steps(nest, planned.state.sweeps, target)
    caches = target.l1_bytes, target.l2_bytes, target.last_level
    if _is_near(nest, caches):
        return nest
    memory = _Memory.of(nest, caches)
    parts = [_of_kernel(Candidate(replace(nest, kernels=(kernel,))), kernel, memory).nest for kernel in nest.kernels]
    streams, ahead = {n for part in parts for n in part.streams}, {n: rows for part in reversed(parts) for n, rows in part.ahead}
    return replace(
        nest,
        kernels=tuple(part.kernels[0] for part in parts),
        streams=tuple(n for n in memory.buffers if n in streams),
        ahead=tuple((n, ahead[n]) for n in memory.buffers if n in ahead),
    )


def in_and_out(made: Candidate, caches: tuple[int, ...]) -> Candidate:
    """The candidate with results that go past the caches, and inputs that are asked for ahead."""
    if _is_near(made.nest, caches):
        return made
    memory = _Memory.of(made.nest, caches)
    for kernel in made.nest.kernels:
        made = _of_kernel(made, kernel, memory)
    return made


def _is_near(nest: LoopNest, caches: tuple[int, ...]) -> bool:
    """Whether the caches hold all that a nest touches."""
    return max(map(_bytes, nest.parameters), default=0) <= min(caches[1], caches[-1] // LEAST_SHARE)


def _of_kernel(made: Candidate, kernel: Kernel, memory: _Memory) -> Candidate:
    stores = list(_stores(kernel.body, ()))
    kept = memory.buffers.keys() - memory.sizes.keys()  # what leads to results by way of these has been waited for before
    cost = sum(one.cost(memory) for one in stores if one.statement.buffer not in kept)
    out = [n for n in memory.writes if memory.is_far(n) and any(one.statement.buffer == n for one in stores)]
    written = sum(memory.sizes[name] for name in out)
    if out and cost <= MOST_STREAMED * written and 2 * memory.moved > 3 * memory.caches[-1]:
        for name in out:
            own = [one for one in stores if one.statement.buffer == name]
            if name not in memory.read and not any(_is_in_parts(memory.buffers[name], one) for one in own):
                made = _tried(made, "stream", name)
    inputs = [b for b in memory.buffers.values() if b.name not in memory.writes and memory.is_far(b.name)]
    rows = _rows(kernel.body, inputs, memory)
    if rows and 2 * sum(size for _, size in rows.values()) <= memory.caches[0]:
        for name, (loop, _) in rows.items():
            made = _tried(made, "prefetch", name, loop, 1)
    if cost >= LEAST_FETCHED * max(1, written):
        for buffer in (b for b in inputs if b.name not in rows):
            made = _once(made, kernel.body, buffer, memory)
    return _through_indices(made, kernel.body, memory)


def _rows(body: Block, inputs: list[Buffer], memory: _Memory) -> dict[str, tuple[str, int]]:
    """The loops whose iterations go over rows of an input several times, with the bytes from one row to the next."""
    rows: dict[str, tuple[str, int]] = {}
    for buffer in inputs:
        for loops, passes in _passes(body, buffer.name, (), memory):
            step = _step(buffer, loops[-1], loops[-1].body)
            if passes > 1 and step is not None and step * buffer.dtype.itemsize >= LEAST_ROW:
                rows[buffer.name] = loops[-1].index, step * buffer.dtype.itemsize
    return rows


def _once(made: Candidate, body: Block, buffer: Buffer, memory: _Memory) -> Candidate:
    """The candidate with an input that goes by once, side by side, asked for ahead: by the first of the statements there. What others read
    comes while that one computes, and what is asked for between them keeps apart what they have in common."""
    inner = [loops for loops, passes in _passes(body, buffer.name, (), memory) if passes == 1 and loops[-1].kind == "vectorize"]
    if len(inner) != 1 or len(inner[0]) < 2 or _step(buffer, inner[0][-1], inner[0][-1].body) != 1:
        return made
    outer, first = inner[0][-2], next(stores_in(inner[0][-1].body), None)
    if first is None or buffer.name not in memory.reads(first):
        return made
    step = _step(buffer, outer, outer.body)
    moved = any(s.buffer in memory.writes and any(outer.index in free_names(e) for e in s.indices) for s in stores_in(outer.body))
    return _tried(made, "prefetch", buffer.name, outer.index, max(1, AHEAD // (step * buffer.dtype.itemsize))) if step and moved else made


def _through_indices(made: Candidate, body: Block, memory: _Memory) -> Candidate:
    """The candidate with rows asked for ahead that lie where indices say."""
    for loops in _lanes(body, ()):
        *_, around, lanes = loops
        for access in dict.fromkeys(elements_read(lanes.body)):
            found = _led(access, loops, memory)
            if found is None:
                continue
            before, (lead, loop, row) = made, found
            made = _tried(made, "prefetch", lead, loop, max(1, min(MOST_AHEAD, AHEAD // row)))
            few = around.kind == "serial" and extent_of(around) <= MOST_COPIED and len(around.body) == 1
            if made is not before and few and around.index in free_names(access.indices[-1]):
                made = _tried(made, "unroll", around.index)
    return made


def _led(access: Access, loops: tuple[For, ...], memory: _Memory) -> tuple[str, str, int] | None:
    """The indices that say which row of an input lanes read, the loop along them, and the bytes of a row; None where rows are near."""
    lead, last = (access.indices[0], access.indices[-1]) if len(access.indices) > 1 else (None, None)
    size = memory.sizes.get(access.tensor, 0)
    if not isinstance(lead, Access) or last is None or size <= memory.caches[1] or access.tensor in memory.writes:
        return None
    loop = next((s for s in loops if lead.indices == (Index(s.index),)), None)
    row = size // (constant(memory.buffers[access.tensor].shape[0]) or 1)
    if loop is None or row < LEAST_ROW or move_of(last, {}).steps.get(loops[-1].index) != 1:
        return None
    if _is_data(loop.stop) and memory.length(loop) > SHORT_SEGMENTS:
        return None
    return lead.tensor, loop.index, row


def _tried(made: Candidate, word: str, *arguments: object) -> Candidate:
    try:
        return made.then(word, *arguments)
    except ScheduleError:
        return made


def _bytes(buffer: Buffer) -> int:
    """Bytes of a buffer, 0 where its extents are open."""
    extents = [constant(e) for e in buffer.shape]
    return 0 if any(e is None for e in extents) else buffer.dtype.itemsize * prod(e or 0 for e in extents)


def _is_data(e: Expr) -> bool:
    return bool(tensors_read(e))


def _stores(block: Block, loops: tuple[For, ...]) -> Iterator[_Place]:
    for s in block:
        if isinstance(s, Store):
            yield _Place(loops, s)
        yield from _stores(inside(s), (*loops, s) if isinstance(s, For) else loops)


def _lanes(block: Block, around: tuple[For, ...]) -> Iterator[tuple[For, ...]]:
    """The loops over lanes in other loops, each with those around it."""
    for s in block:
        if isinstance(s, For) and s.kind == "vectorize" and around:
            yield (*around, s)
        else:
            yield from _lanes(inside(s), (*around, s) if isinstance(s, For) else around)


def _passes(block: Block, buffer: str, around: tuple[For, ...], memory: _Memory) -> Iterator[tuple[tuple[For, ...], int]]:
    """The loops that read a buffer, each with those around it, and how often its iterations go over it."""
    for s in block:
        if buffer in memory.reads(s):
            inner = (*around, s) if isinstance(s, For) else around
            passes = _readers(s.body, buffer, memory) if isinstance(s, For) else 0
            if passes:
                yield inner, passes
            yield from _passes(inside(s), buffer, inner, memory)


def _readers(block: Block, buffer: str, memory: _Memory) -> int:
    """How many loops of a block read a buffer one after the other, for different results: pieces of one loop have the same ones. What is
    not in loops of its own is one more."""
    made: list[frozenset[str]] = []
    own = False
    todo = list(block)
    while todo:
        s = todo.pop()
        if buffer not in memory.reads(s):
            continue
        if isinstance(s, Alloc):
            todo += s.body
        elif isinstance(s, For):
            results = buffers_written((s,))
            same = [found for found in made if not found.isdisjoint(results)]
            made = [*(found for found in made if found not in same), results.union(*same)]
        else:
            own = True
    return len(made) + own


def _step(buffer: Buffer, loop: For, block: Block) -> int | None:
    """The elements that what is read of a buffer moves with one iteration of a loop, where that is one number."""
    read = [a for a in elements_read(block) if a.tensor == buffer.name and not any(map(_is_data, a.indices))]
    found = {_stride(buffer, a.indices, loop.index) for a in read}
    (step,) = found if len(found) == 1 else (None,)
    return int(step) if step is not None and step == step and step > 0 else None


def _stride(buffer: Buffer, indices: tuple[Expr, ...], loop: str) -> float:
    if len(indices) != len(buffer.shape):
        return float("nan")
    total, row = 0.0, 1.0
    for index, extent in zip(reversed(indices), reversed(buffer.shape), strict=True):
        move = move_of(index, {})
        if loop in move.random or (move.steps.get(loop) and loop in move.uneven):
            return float("nan")
        total += move.steps.get(loop, 0.0) * row
        row *= float(constant(extent) or 1)
    return total


def _is_in_parts(buffer: Buffer, one: _Place) -> bool:
    """Whether lines are written in parts, for which they wait in the caches: lanes lie across them or leave elements out, or rows side by
    side begin within a vector."""
    indices, size = one.statement.indices, buffer.dtype.itemsize
    lanes = [s for s in one.loops if s.kind == "vectorize" and any(s.index in free_names(e) for e in indices)]
    if not lanes or not indices:
        return False
    if len(lanes) > 1 or lanes[0].index not in free_names(indices[-1]):
        return not _is_copied_out(buffer, one)
    if _has_gaps(one, lanes[0]):
        return True
    rows = any(s.kind == "unroll" and any(s.index in free_names(e) for e in indices[:-1]) for s in one.loops)
    return rows and (constant(buffer.shape[-1]) or 1) * size % min(LINE, size * extent_of(lanes[0])) != 0


def _has_gaps(one: _Place, lanes: For) -> bool:
    """Whether neither copies inside of the lanes nor statements beside a store fill what its lanes leave out."""
    last = one.statement.indices[-1]
    apart = move_of(last, {}).steps.get(lanes.index, 0.0)
    inside = one.loops[one.loops.index(lanes) + 1 :]
    copies = any(s.kind == "unroll" and extent_of(s) == apart and move_of(last, {}).steps.get(s.index) == 1 for s in inside)
    return apart > 1 and not copies and not any(len(own) == apart for own in _neighbours(one))


def _neighbours(one: _Place) -> Iterator[tuple[Store, ...]]:
    """Stores of neighbouring elements with a store among them, as they stand in the innermost loop around it."""
    body = one.loops[-1].body
    return (own for n in range(len(body)) if one.statement in (own := side_by_side(body[n:])))


def _is_copied_out(buffer: Buffer, one: _Place) -> bool:
    """Whether a store is a copy of a tile of whole lines, which is turned around in registers."""
    along = [s for s in one.loops if s.kind == "unroll" and s.index in free_names(one.statement.indices[-1])]
    return isinstance(one.statement.value, Access) and any(extent_of(s) * buffer.dtype.itemsize % LINE == 0 for s in along)
