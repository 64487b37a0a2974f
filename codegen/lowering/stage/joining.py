"""Copies of a loop over residue classes whose results are neighbors: what all of them compute first, then their stores in one loop.

    acc0 = ...; for l in lanes: C[2 l] = acc0[l]; acc1 = ...; for l in lanes: C[2 l + 1] = acc1[l]
    -->  acc0 = ...; acc1 = ...; for l in lanes: { C[2 l] = acc0[l]; C[2 l + 1] = acc1[l] }

Each store by itself leaves gaps in memory; side by side they are whole vectors. What a definition computes never reads what it
stores, so its stores may wait.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, Store
from tensorexpr.codegen.nest.walks import touched_in
from tensorexpr.integers import Affine
from tensorexpr.regions import Opaque, affine_of
from tensorexpr.traversal import tensors_read

MOST_JOINED = 4
"""Copies that are joined: the accumulators of all of them are in registers at once."""


def joined(copies: Sequence[Block]) -> Block:
    """The statements of the copies one after the other, with the loops that store neighbors made one."""
    together = _together(copies) if 1 < len(copies) <= MOST_JOINED else None
    return tuple(s for copy in copies for s in copy) if together is None else together


def _together(copies: Sequence[Block]) -> Block | None:
    taken = [_taken_apart(copy) for copy in copies]
    before = tuple(s for _, statements, _ in taken for s in statements)
    buffers = [b for made, _, _ in taken for b in made]
    loops = [last for _, _, last in taken if last is not None]
    last = _joined_loops(loops, frozenset(touched_in(before))) if len(loops) == len(copies) else None
    if last is None or len({b.name for b in buffers}) != len(buffers):
        return None
    block: Block = (*before, last)
    for buffer in reversed(buffers):
        block = (Alloc(buffer, block),)
    return block


def _joined_loops(loops: Sequence[For], known: frozenset[str]) -> For | None:
    """Loops of equal bounds, down to lanes, as one, where they store neighbors, none of which they or `known` read."""
    first = loops[0]
    if any((x.index, x.start, x.stop, x.kind) != (first.index, first.start, first.stop, first.kind) for x in loops):
        return None
    if first.kind != "vectorize":
        inner = [x.body[0] for x in loops if len(x.body) == 1 and isinstance(x.body[0], For)]
        made = _joined_loops([x for x in inner if isinstance(x, For)], known) if len(inner) == len(loops) else None
        return None if made is None else For(first.index, first.start, first.stop, (made,), first.kind)
    stores: list[Store] = []
    for x in loops:
        for s in x.body:
            if not isinstance(s, Store) or s.buffer in known or _reads(s) or (stores and not follows(stores[-1], s)):
                return None
            stores.append(s)
    return For(first.index, first.start, first.stop, tuple(stores), first.kind)


def _reads(store: Store) -> bool:
    return any(store.buffer in tensors_read(e) for e in (*store.indices, store.value))


def _taken_apart(copy: Block) -> tuple[list[Buffer], Block, For | None]:
    """The local buffers around a copy, its statements, and the loop at the end, whose lanes are innermost."""
    buffers: list[Buffer] = []
    while len(copy) == 1 and isinstance(copy[0], Alloc):
        buffers.append(copy[0].buffer)
        copy = copy[0].body
    last = copy[-1] if copy else None
    if not isinstance(last, For) or last.kind == "parallel":
        return buffers, copy, None
    return buffers, copy[:-1], last


def follows(first: Store, second: Store) -> bool:
    """Whether the second store writes to the element behind that of the first."""
    if first.buffer != second.buffer or first.indices[:-1] != second.indices[:-1] or not first.indices:
        return False
    opaque = Opaque()
    low, high = affine_of(first.indices[-1], opaque), affine_of(second.indices[-1], opaque)
    return low is not None and high is not None and high - low == Affine.of(1)


def side_by_side(body: Block) -> tuple[Store, ...]:
    """The stores that a block begins with which write to elements one after the other, none of which they read."""
    found: list[Store] = []
    for s in body:
        if not isinstance(s, Store) or s.buffer in tensors_read(s.value):
            break
        if found and not follows(found[-1], s):
            break
        found.append(s)
    return tuple(found)
