"""Accumulators of one tile among many, kept in a buffer of their own while a reduction goes on.

    for i:                                       t[z, k] = acc[p, z, k]
        if p + i < 16:                           for i:
            for z: for k:                 -->        if p + i < 16:
                acc[p, z, k] += ...                      for z: for k: t[z, k] += ...
                                                 acc[p, z, k] = t[z, k]

Where tiles wait for each other, their accumulators are an array with the tile as an index. LLVM keeps the elements of such a place in
registers along a loop without branches; under a condition it stores them each time. Those of `t` have constant places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tensorexpr.codegen.lowering.context.arithmetic import constant
from tensorexpr.codegen.lowering.kernels.merging import accesses
from tensorexpr.codegen.lowering.kernels.zeros import nested
from tensorexpr.codegen.nest import LANES, Alloc, Block, Buffer, Check, For, If, Stmt, Store
from tensorexpr.codegen.nest.walks import statements
from tensorexpr.ir import Access, Const, Expr, Index
from tensorexpr.records import replace
from tensorexpr.traversal import bottom_up, free_names, walk

Buffers = dict[str, Buffer]


def with_tiles(block: Block, fresh: Callable[[str], str], local: Buffers | None = None) -> Block:
    """The statements with the accumulators that a serial loop changes under conditions in buffers of their own there."""
    return tuple(made for s in block for made in _statement(s, fresh, local or {}))


def _statement(s: Stmt, fresh: Callable[[str], str], local: Buffers) -> Block:
    match s:
        case For():
            buffers = [b for b in local.values() if len(b.shape) > 1] if s.kind == "serial" else []
            stores = list(_stores(s.body, {}, False)) if buffers else []
            for buffer in buffers:
                places = [p for p in stores if p[0] == buffer.name]
                if any(under for _, _, _, under in places):
                    made = _apart(s, buffer, places, fresh)
                    if made is not None:
                        return (made,)
            return (replace(s, body=with_tiles(s.body, fresh, local)),)
        case Alloc():
            known = {**local, s.buffer.name: s.buffer} if s.buffer.memory == "local" else local
            return (replace(s, body=with_tiles(s.body, fresh, known)),)
        case If():
            return (replace(s, then=with_tiles(s.then, fresh, local), otherwise=with_tiles(s.otherwise, fresh, local)),)
    return (s,)


Place = tuple[str, tuple[Expr, ...], dict[str, For], bool]
"""A store: buffer, indices, the loops around, and whether it stands under a condition."""


def _stores(block: Block, loops: dict[str, For], under: bool) -> Iterator[Place]:
    """The stores in a block."""
    for s in block:
        match s:
            case Store():
                yield s.buffer, s.indices, loops, under
            case For():
                yield from _stores(s.body, {**loops, s.index: s}, under)
            case Alloc():
                yield from _stores(s.body, loops, under)
            case If():
                yield from _stores((*s.then, *s.otherwise), loops, True)


def _apart(loop: For, buffer: Buffer, places: list[Place], fresh: Callable[[str], str]) -> Stmt | None:
    """A loop with one tile of a buffer in a buffer of its own; None where it is not one tile that loops without a test go through whole."""
    start, stop = constant(loop.start), constant(loop.stop)
    if start is not None and stop is not None and stop - start < 2:
        return None
    _, indices, loops, _ = places[0]
    count = next((k for k, e in enumerate(reversed(indices)) if not _goes_through(e, buffer.shape[-1 - k], loops)), len(indices))
    front, last = indices[: len(indices) - count], indices[len(indices) - count :]
    fixed = not any(isinstance(n, Access) for e in front for n in walk(e)) and not {n for e in front for n in free_names(e)} & _bound(loop)
    if not fixed or not last or all(isinstance(e, Const) for e in front):
        return None
    touched = {a.indices for a in accesses((loop,)) if a.tensor == buffer.name} | {i for _, i, _, _ in places}
    if any(i[: len(front)] != front for i in touched):
        return None
    around = [loops[e.name] for e in last if isinstance(e, Index)]
    tile = Buffer(fresh(buffer.name), buffer.dtype, buffer.shape[len(front) :], "local")
    here, there = Access(buffer.name, indices, buffer.dtype), Access(tile.name, last, buffer.dtype)
    taken, given = Store(tile.name, last, here), Store(buffer.name, indices, there)
    return Alloc(tile, (nested(around, taken), _at_local(loop, buffer.name, tile.name, len(front)), nested(around, given)))


def _goes_through(index: Expr, extent: Expr, loops: dict[str, For]) -> bool:
    """Whether an index is that of a loop, copied out or in lanes, through all of an axis."""
    loop = loops.get(index.name) if isinstance(index, Index) else None
    return loop is not None and loop.kind in ("unroll", *LANES) and constant(loop.start) == 0 and loop.stop == extent


def _bound(loop: For) -> set[str]:
    return {s.index for s in statements((loop,)) if isinstance(s, For)}


def _at_local(s: Stmt, name: str, local: str, dropped: int) -> Stmt:
    """A statement that reads and writes the local buffer in place of another one, with so many indices dropped from the front."""

    def visit(node: Expr) -> Expr:
        return replace(node, tensor=local, indices=node.indices[dropped:]) if isinstance(node, Access) and node.tensor == name else node

    def seen(e: Expr) -> Expr:
        return bottom_up(e, visit)

    match s:
        case Store():
            if s.buffer == name:
                return Store(local, tuple(map(seen, s.indices[dropped:])), seen(s.value))
            return replace(s, indices=tuple(map(seen, s.indices)), value=seen(s.value))
        case For():
            return replace(s, start=seen(s.start), stop=seen(s.stop), body=tuple(_at_local(x, name, local, dropped) for x in s.body))
        case Alloc():
            return replace(s, body=tuple(_at_local(x, name, local, dropped) for x in s.body))
        case If():
            then, otherwise = (tuple(_at_local(x, name, local, dropped) for x in part) for part in (s.then, s.otherwise))
            return replace(s, condition=seen(s.condition), then=then, otherwise=otherwise)
        case Check():
            return replace(s, index=seen(s.index), extent=seen(s.extent))
    return s
