"""Neighbors in one thread: where threads go through a few neighboring elements one after the other, each takes its own at once.

    for j in unroll(range(0, 4)):                         for lane in vectorize(range(0, 256)):
        for lane in vectorize(range(0, 256)):       -->       for j in vectorize(range(0, 4)):
            c[lane * 4 + j] = c_sum[j, lane]                      c[lane * 4 + j] = c_sum[j, lane]

A schedule has lanes innermost; but what a thread has of a row of an array lies side by side in memory, and goes there, or comes from
there, as one access of up to sixteen bytes (see `packs`). Loops are exchanged where some access is such a pack and no thread reads
what another writes: local elements are those of its own lane, arrays are read or written, not both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from tensorexpr.codegen.cuda.thread.packs import is_pack
from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, If, Stmt, Store
from tensorexpr.codegen.nest.walks import with_blocks
from tensorexpr.ir import Access, Const, Expr, Index, integer
from tensorexpr.records import replace
from tensorexpr.traversal import free_names, walk

LENGTHS = (2, 4, 8, 16)
"""Elements of a pack."""
HELD = 32
"""Elements of a local array that a thread has, up to which packs of more than two are looked for: their registers are four in a row,
which the assembler finds room for among more of them only by using further ones (173 in place of 128 in a convolution of 64
accumulators, whose stores are few beside its products). Two in a row are what `mma` leaves."""
LEAST_LANES = 32
"""Lanes from which on a loop is run by the threads of a block."""


def with_neighbors(block: Block, buffers: Mapping[str, Buffer], multiples: Mapping[Expr, int]) -> Block:
    """The statements, with loops over neighbors inside of those over lanes where they are packs, some extents being `multiples`."""
    found: list[Stmt] = []
    for s in block:
        match s:
            case For():
                made = _exchanged(s, buffers, multiples)
                found.append(replace(s, body=with_neighbors(s.body, buffers, multiples)) if made is None else made)
            case Alloc():
                found.append(replace(s, body=with_neighbors(s.body, {**buffers, s.buffer.name: s.buffer}, multiples)))
            case _:
                found.append(with_blocks(s, lambda body: with_neighbors(body, buffers, multiples)))
    return tuple(found)


def _exchanged(s: For, buffers: Mapping[str, Buffer], multiples: Mapping[Expr, int]) -> For | None:
    """A loop over neighbors around one over lanes the other way round; None where that is not to be, or gains nothing."""
    lanes = s.body[0] if len(s.body) == 1 else None
    if s.kind != "unroll" or not isinstance(lanes, For) or lanes.kind != "vectorize" or not (_is_from_zero(s) and _is_from_zero(lanes)):
        return None
    length = integer(s.stop)
    if length not in LENGTHS or integer(lanes.stop) < LEAST_LANES:
        return None
    conditions, stores = _stores(lanes.body)
    if stores is None or any(s.index in free_names(c) for c in conditions):
        return None
    accesses = [*((t.buffer, t.indices) for t in stores), *((a.tensor, a.indices) for a in _reads(stores))]
    if not any(is_pack(name, indices, s.index, length, buffers, multiples) for name, indices in accesses):
        return None
    written, read = {t.buffer for t in stores}, {a.tensor for a in _reads(stores)}
    for name, indices in accesses:
        if length > 2 and buffers[name].memory == "local" and prod(map(integer, buffers[name].shape[:-1])) > HELD:
            return None
        if name in written and buffers[name].memory == "local" and not _is_of_lane(indices, lanes.index):
            return None
        if name in written & read and buffers[name].memory != "local":
            return None
    body: Block = (replace(s, kind="vectorize", body=stores),)
    for condition in reversed(conditions):
        body = (If(condition, body),)
    return replace(lanes, body=body)


def _is_from_zero(loop: For) -> bool:
    return isinstance(loop.start, Const) and loop.start.value == 0 and isinstance(loop.stop, Const)


def _stores(body: Block) -> tuple[list[Expr], tuple[Store, ...] | None]:
    """The stores that statements are, under which conditions; None where there is something else."""
    conditions: list[Expr] = []
    while len(body) == 1 and isinstance(body[0], If) and not body[0].otherwise:
        conditions.append(body[0].condition)
        body = body[0].then
    stores = tuple(t for t in body if isinstance(t, Store))
    return conditions, stores if len(stores) == len(body) else None


def _reads(stores: tuple[Store, ...]) -> Iterator[Access]:
    for store in stores:
        for expr in (store.value, *store.indices):
            yield from (n for n in walk(expr) if isinstance(n, Access))


def _is_of_lane(indices: tuple[Expr, ...], lane: str) -> bool:
    return bool(indices) and isinstance(indices[-1], Index) and indices[-1].name == lane
