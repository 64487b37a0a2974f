"""Where the axes of a local buffer go: those along which lanes go last, so that lanes are registers and not gathers.

    s: local(f32[16, 4])                                       s: local(f32[4, 16])
    for j in unroll(range(0, 4)):                     -->      for j in unroll(range(0, 4)):
        for i in vectorize(range(0, 16)):                          for i in vectorize(range(0, 16)):
            s[i, j] = ...                                              s[j, i] = ...

Nothing but the nest sees a local buffer, so its layout is free. What counts is the accesses inside of the most loops: where lanes are
added up behind a sum, they may go along another axis. The axes stay as they are where lanes go along several of them there, or with
another step than 1, where an element is said by its position alone, and where an instruction takes the buffer as it lies. So do those of
numbers of 8 and 16 bits: instructions add up the products of two or four of them that lie side by side in each lane.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorexpr.codegen.nest import LANES, Alloc, Block, For, Store
from tensorexpr.codegen.nest.walks import elements_read, expressions_of, inside, map_accesses, stores_in
from tensorexpr.integers import Affine
from tensorexpr.ir import Access, Expr
from tensorexpr.records import replace
from tensorexpr.regions import Opaque, affine_of
from tensorexpr.traversal import free_names, walk

WIDE = 4
"""Bytes of an element from which on no instruction takes several in one lane."""


def lanes_last(s: Alloc) -> Alloc:
    """The buffer, which is not itself in lanes, with the axis last along which lanes go, and all accesses to it alike."""
    rank, name = len(s.buffer.shape), s.buffer.name
    if rank < 2 or s.buffer.dtype.itemsize < WIDE:
        return s
    found: dict[int, set[int]] = {}
    for depth, axis in _axes(s.body, name, None, 0):
        found.setdefault(depth, set()).add(axis)
    axes = found[max(found)] if found else set()
    if len(axes) != 1 or not axes.isdisjoint({_NONE, rank - 1}) or any(len(a.indices) != rank for a in _elements(s.body, name)):
        return s
    order = [*(axis for axis in range(rank) if axis not in axes), *axes]

    def moved(access: Access) -> Access:
        return replace(access, indices=tuple(access.indices[axis] for axis in order)) if access.tensor == name else access

    buffer = replace(s.buffer, shape=tuple(s.buffer.shape[axis] for axis in order))
    return replace(s, buffer=buffer, body=map_accesses(s.body, moved))


def _elements(block: Block, name: str) -> Iterator[Access | Store]:
    yield from (a for a in elements_read(block) if a.tensor == name)
    yield from (s for s in stores_in(block) if s.buffer == name)


_NONE, _DEEPEST = -1, 1 << 30


def _axes(block: Block, name: str, lanes: str | None, depth: int) -> Iterator[tuple[int, int]]:
    """The axes of a buffer along which lanes go, for each access in them, with the number of loops around it that are no lanes; -1 where an
    access is not so, and at the greatest depth where an instruction makes it."""
    for s in block:
        if isinstance(s, For) and s.call is not None and any(a.tensor == name for a in s.call.operands):
            yield _DEEPEST, _NONE
        for e in expressions_of(s):
            for a in walk(e) if lanes is not None else ():
                if isinstance(a, Access) and a.tensor == name:
                    yield from ((depth, axis) for axis in _along(a.indices, lanes or ""))
        match s:
            case For() if s.kind in LANES:
                yield from _axes(s.body, name, lanes or s.index, depth)
            case For():
                yield from _axes(s.body, name, lanes, depth + 1)
            case Store() if s.buffer == name and lanes is not None:
                yield from ((depth, axis) for axis in _along(s.indices, lanes))
            case _:
                yield from _axes(inside(s), name, lanes, depth)


def _along(indices: tuple[Expr, ...], lanes: str) -> Iterator[int]:
    moving = [axis for axis, e in enumerate(indices) if lanes in free_names(e)]
    for axis in moving:
        opaque = Opaque()
        form = affine_of(indices[axis], opaque)
        rest = None if form is None else form - Affine.of(lanes)
        even = rest is not None and lanes not in rest.names() and not any(lanes in free_names(e) for e in opaque.expressions.values())
        yield axis if even and len(moving) == 1 else _NONE
