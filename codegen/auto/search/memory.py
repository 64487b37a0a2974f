"""What goes past the caches, and what is asked for ahead of its use: the last words on a nest.

Outputs that are more than the last cache holds are written past it, where they come fast enough for memory to be what is waited for: their
lines would only push out others. Rows that an iteration goes over several times are near from the second time on, and memory has nothing to
do then, so the first one asks for those of the next iteration. Where much is computed on what goes by once, loads are asked for some lines
ahead. The model of cost does not see what hides behind arithmetic; what stands here follows from sizes alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tensorexpr.codegen.auto.candidate import Candidate
from tensorexpr.codegen.auto.machine import Facts
from tensorexpr.codegen.auto.moves import move_of
from tensorexpr.codegen.auto.search.groups import extent_of
from tensorexpr.codegen.lowering.arithmetic import constant
from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, If, Store
from tensorexpr.codegen.rewrites.expressions import elements_read, expressions_of, stores_in
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Apply, Expr
from tensorexpr.records import record
from tensorexpr.traversal import free_names, walk

LEAST_SHARE = 4
"""Parts of the last cache that a buffer has to exceed one of before it counts as one that comes from memory or goes there."""
LINE = 64
LEAST_ROW = 512
"""Bytes of a row from which on it is asked for ahead: within shorter ones the processor sees what comes by itself."""
MOST_STREAMED = 32
"""Operations per byte of a result up to which it is memory that it waits for."""
LEAST_FETCHED = 2
"""Operations per byte of a result from which on loads of a stream come late by themselves."""
AHEAD = 4096
"""Bytes that a stream is asked for ahead."""


@record(eq=False)
class _Stored:
    """A store with the loops around it, and how many operations its value has."""

    loops: tuple[For, ...]
    statement: Store

    @property
    def operations(self) -> float:
        """Operations of all its executions."""
        own = sum(1 for e in expressions_of(self.statement) for n in walk(e) if isinstance(n, Apply) and n.dtype.is_float)
        return prod(float(extent_of(s)) for s in self.loops) * own


def in_and_out(made: Candidate, facts: Facts) -> Candidate:
    """The candidate with results that go past the caches, and inputs that are asked for ahead."""
    nest, last = made.nest, facts.caches[-1]
    sizes = {b.name: _bytes(b) for b in nest.parameters}
    if sum(sizes.values()) <= last:
        return made
    buffers = {b.name: b for b in nest.parameters if LEAST_SHARE * sizes[b.name] > last}
    for kernel in nest.kernels:
        stores = list(_stores(kernel.body, ()))
        operations = sum(one.operations for one in stores)
        out = {one.statement.buffer for one in stores if one.statement.buffer in buffers}
        written = sum(sizes[name] for name in out)
        if out and operations <= MOST_STREAMED * written and 2 * sum(sizes.values()) > 3 * last:
            for name in sorted(out):
                if all(_is_by_lines(buffers[name], one) for one in stores if one.statement.buffer == name):
                    made = _tried(made, "stream", name)
        made = _ahead(made, kernel.body, buffers, facts, operations >= LEAST_FETCHED * max(1, written))
    return made


def _ahead(made: Candidate, body: Block, buffers: dict[str, Buffer], facts: Facts, slow: bool) -> Candidate:
    """The candidate with rows that iterations of a loop go over several times asked for ahead, and what goes by once where it is `slow`."""
    inputs = [b for b in buffers.values() if b.name not in made.nest.writes]
    rows: dict[str, tuple[str, int]] = {}
    for buffer in inputs:
        for loops, passes in _passes(body, buffer.name, ()):
            step = _step(buffer, loops[-1], loops[-1].body)
            size = buffer.dtype.itemsize
            if passes > 1 and step is not None and step * size >= LEAST_ROW:
                rows[buffer.name] = loops[-1].index, step * size
    if rows and 2 * sum(size for _, size in rows.values()) <= facts.caches[0]:
        for name, (loop, _) in rows.items():
            made = _tried(made, "prefetch", name, loop, 1)
    for buffer in inputs if slow else ():
        inner = [loops for loops, passes in _passes(body, buffer.name, ()) if passes == 1 and loops[-1].kind == "vectorize"]
        if buffer.name in rows or len(inner) != 1 or len(inner[0]) < 2 or _step(buffer, inner[0][-1], inner[0][-1].body) != 1:
            continue
        step = _step(buffer, inner[0][-2], inner[0][-2].body)
        moved = any(s.buffer in made.nest.writes and _names(s, inner[0][-2].index) for s in stores_in(inner[0][-2].body))
        if step and moved:
            made = _tried(made, "prefetch", buffer.name, inner[0][-2].index, max(1, AHEAD // (step * buffer.dtype.itemsize)))
    return made


def _names(s: Store, loop: str) -> bool:
    return any(loop in free_names(e) for e in s.indices)


def _tried(made: Candidate, word: str, *arguments: object) -> Candidate:
    try:
        return made.then(word, *arguments)
    except ScheduleError:
        return made


def _bytes(buffer: Buffer) -> int:
    """Bytes of a buffer, 0 where its extents are open."""
    extents = [constant(e) for e in buffer.shape]
    return 0 if any(e is None for e in extents) else buffer.dtype.itemsize * prod(e or 0 for e in extents)


def _stores(block: Block, loops: tuple[For, ...]) -> Iterator[_Stored]:
    for s in block:
        match s:
            case For():
                yield from _stores(s.body, (*loops, s))
            case If():
                yield from _stores((*s.then, *s.otherwise), loops)
            case Alloc():
                yield from _stores(s.body, loops)
            case Store():
                yield _Stored(loops, s)


def _passes(block: Block, buffer: str, around: tuple[For, ...]) -> Iterator[tuple[tuple[For, ...], int]]:
    """The loops that read a buffer, each with those around it, and how many statements inside go over it one after the other."""
    for s in block:
        match s:
            case For():
                passes = _readers(s.body, buffer)
                if passes:
                    yield (*around, s), passes
                yield from _passes(s.body, buffer, (*around, s))
            case If():
                yield from _passes((*s.then, *s.otherwise), buffer, around)
            case Alloc():
                yield from _passes(s.body, buffer, around)


def _readers(block: Block, buffer: str) -> int:
    """How many statements of a block read a buffer one after the other; what is not in loops of its own is one."""
    loops, own = 0, False
    todo = list(block)
    while todo:
        s = todo.pop()
        if isinstance(s, Alloc):
            todo += s.body
        elif any(a.tensor == buffer for a in elements_read((s,))):
            loops, own = (loops + 1, own) if isinstance(s, For) else (loops, True)
    return loops + own


def _step(buffer: Buffer, loop: For, block: Block) -> int | None:
    """The elements that what is read of a buffer moves with one iteration of a loop, where that is one number."""
    found = {_stride(buffer, a.indices, loop.index) for a in elements_read(block) if a.tensor == buffer.name}
    (step,) = found if len(found) == 1 else (None,)
    return int(step) if step is not None and step == step and step > 0 else None


def _stride(buffer: Buffer, indices: tuple[Expr, ...], loop: str) -> float:
    if len(indices) != len(buffer.shape) or any(isinstance(n, Access) for e in indices for n in walk(e)):
        return float("nan")
    total, row = 0.0, 1.0
    for index, extent in zip(reversed(indices), reversed(buffer.shape), strict=True):
        move = move_of(index, {})
        if loop in move.random or (move.steps.get(loop) and loop in move.uneven):
            return float("nan")
        total += move.steps.get(loop, 0.0) * row
        row *= float(constant(extent) or 1)
    return total


def _is_by_lines(buffer: Buffer, one: _Stored) -> bool:
    """Whether a store fills whole lines: lanes lie side by side, and rows that are copied out begin with a line."""
    lanes = [s for s in one.loops if s.kind == "vectorize"]
    if len(lanes) != 1 or _stride(buffer, one.statement.indices, lanes[0].index) != 1:
        return False
    size = buffer.dtype.itemsize
    copies = [s for s in one.loops if s.kind == "unroll" and _stride(buffer, one.statement.indices, s.index)]
    width = constant(buffer.shape[-1]) or 1
    return extent_of(lanes[0]) * size % LINE == 0 and (not copies or width * size % LINE == 0)
