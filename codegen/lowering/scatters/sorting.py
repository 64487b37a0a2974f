"""A sort plan as loops: a counting sort, in time that does not depend on how keys collide.

    offsets[:] = 0
    for point: keys[position] = key;  offsets[key + 2] += 1       (of all keys but the last)
    for v:     offsets[v] += offsets[v - 1]                       now offsets[v + 1] is where key v begins
    for p:     order[offsets[keys[p] + 1]] = p;  offsets[keys[p] + 1] += 1
                                                                  now offsets[v + 1] is where key v ends

Keys are computed and checked once and kept, so what is sorted is what was checked. Points without a key hold -1.

Many points are sorted on all cores, in two steps: first by blocks of `width` keys, of which there are few enough for every chunk of
points to count them by itself, then each block of keys by itself, as above.

    for c in parallel: count the keys of chunk c by block;   starts[block + 1] = where the block ends
                       counts[c, block] = where what chunk c has of it begins
    for c in parallel: points and keys of chunk c to their places
    for block in parallel: counting sort of its points, which are still in order

The result is the same for any number of chunks: there is only one order that is sorted and stable. Time depends on neither keys nor
collisions, and each step but the sums of `starts` runs on all cores.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorexpr import dtypes
from tensorexpr.codegen.lowering.context.arithmetic import ONE, ZERO, add, constant, mul, sub
from tensorexpr.codegen.nest import Block, For, If, Store
from tensorexpr.ir import Access, Axis, Const, Expr, Index, apply, const, product
from tensorexpr.records import record
from tensorexpr.traversal import fresh_name

NO_KEY = const(-1)
MANY_POINTS = 1 << 15
"""Points from which on all cores sort."""
MOST_BLOCKS = 1 << 10
"""Blocks of keys: as many places as can be written to in turns without leaving the nearest caches."""

Place = tuple[str, tuple[Expr, ...]]
"""An element of a buffer."""


@record
class Sorting:
    """The buffers of one plan: each gives, for the indices of the batch and a position, the element."""

    batch: tuple[Axis, ...]
    keys: Callable[[tuple[Expr, ...]], Place]
    offsets: Callable[[tuple[Expr, ...]], Place]
    order: Callable[[tuple[Expr, ...]], Place]
    extent: Expr
    points: Expr
    partial: bool
    """Whether some points have no key."""

    def counted(self, batch: tuple[Expr, ...], position: Expr, key: Expr) -> Block:
        """Keeps the key of a point and counts it, for the key that comes after."""
        place = self.keys((*batch, position))
        kept = _read(place)
        target = self.offsets((*batch, add(kept, const(2))))
        count = Store(*target, apply("add", _read(target), ONE))
        return (Store(*place, key), If(apply("lt", kept, sub(self.extent, ONE)), (count,)))

    def kept(self, batch: tuple[Expr, ...], position: Expr, key: Expr) -> Block:
        """Keeps the key of a point."""
        return (Store(*self.keys((*batch, position)), key),)

    def sorted_in_blocks(self, taken: set[str], blocks: Blocks) -> Block:
        """The points in order, sorted by blocks of keys first; keys are kept by then. There is no batch."""
        c, b, p, t, v = (Index(fresh_name(name, taken)) for name in ("c", "b", "p", "t", "v"))
        counts, starts = Access(blocks.counts, (c, b), dtypes.int64), blocks.starts
        points, extent, width = self.points, self.extent, const(blocks.width)
        chunk = const(-(-int(points.value) // blocks.chunks)) if isinstance(points, Const) else points
        mine = (mul(c, chunk), apply("minimum", points, mul(add(c, ONE), chunk)))
        key = _read(self.keys((p,)))
        own = Access(blocks.counts, (c, _block_of(key, blocks.width)), dtypes.int64)
        end, last = Access(starts, (add(b, ONE),), dtypes.int64), const(blocks.count)

        def chunks(body: Block, *before: For) -> For:
            body = (If(apply("ge", key, ZERO), body),) if self.partial else body
            return For(c.name, ZERO, const(blocks.chunks), (*before, For(p.name, *mine, body)), "parallel")

        place = blocks.order if blocks.width > 1 else self.order((ZERO,))[0]
        moved: Block = (Store(place, (own,), p), Store(blocks.counts, own.indices, apply("add", own, ONE)))
        if blocks.width > 1:
            moved = (Store(blocks.keys, (own,), key), *moved)
        begun: Block = (
            Store(starts, end.indices, apply("add", end, counts)),
            Store(blocks.counts, counts.indices, apply("sub", end, counts)),
        )
        block: Block = (
            chunks(
                (Store(blocks.counts, own.indices, apply("add", own, ONE)),), For(b.name, ZERO, last, (Store(blocks.counts, (c, b), ZERO),))
            ),
            Store(starts, (ZERO,), ZERO),
            For(
                b.name,
                ZERO,
                last,
                (Store(starts, end.indices, Access(starts, (b,), dtypes.int64)), For(c.name, ZERO, const(blocks.chunks), begun)),
            ),
            chunks(moved),
            Store(*self.offsets((ZERO,)), ZERO),
        )
        if blocks.width == 1:
            block = (*block, For(b.name, ZERO, last, (Store(*self.offsets((add(b, ONE),)), end),)))
        else:
            low, high = mul(b, width), apply("minimum", extent, mul(add(b, ONE), width))
            run = (Access(starts, (b,), dtypes.int64), end)
            known, point = Access(blocks.keys, (t,), dtypes.int64), Access(blocks.order, (t,), dtypes.int64)
            after, here, cursor = self.offsets((add(known, const(2)),)), self.offsets((add(v, ONE),)), self.offsets((add(known, ONE),))
            inner: Block = (
                For(v.name, low, high, (Store(*here, ZERO),)),
                Store(*self.offsets((add(low, ONE),)), run[0]),
                For(t.name, *run, (If(apply("lt", add(known, ONE), high), (Store(*after, apply("add", _read(after), ONE)),)),)),
                For(v.name, add(low, ONE), high, (Store(*here, apply("add", _read(here), _read(self.offsets((v,))))),)),
                For(t.name, *run, (Store(*self.order((_read(cursor),)), point), Store(*cursor, apply("add", _read(cursor), ONE)))),
            )
            block = (*block, For(b.name, ZERO, last, inner, "parallel"))
        if self.partial:
            rest = Store(*self.order((p,)), ZERO)
            block = (*block, For(p.name, Access(starts, (last,), dtypes.int64), points, (rest,)))
        return block

    def sorted(self, taken: set[str]) -> Block:
        """The sums of the counts, the points in order, zeros behind them; no index is in `taken`."""
        names = tuple(fresh_name(axis.index, taken) for axis in self.batch)
        batch = tuple(map(Index, names))
        v, p = Index(fresh_name("v", taken)), Index(fresh_name("p", taken))
        here, before = self.offsets((*batch, v)), self.offsets((*batch, sub(v, ONE)))
        summed = Store(*here, apply("add", _read(here), _read(before)))
        key = _read(self.keys((*batch, p)))
        end = self.offsets((*batch, add(key, ONE)))
        placed: Block = (Store(*self.order((*batch, _read(end))), p), Store(*end, apply("add", _read(end), ONE)))
        if self.partial:
            placed = (If(apply("ge", key, ZERO), placed),)
        block: Block = (
            For(v.name, const(2), add(self.extent, ONE), (summed,)),
            For(p.name, ZERO, self.points, placed),
        )
        if self.partial:
            rest = Store(*self.order((*batch, p)), ZERO)
            block = (*block, For(p.name, _read(self.offsets((*batch, self.extent))), self.points, (rest,)))
        for name, axis in zip(reversed(names), reversed(self.batch), strict=True):
            block = (For(name, ZERO, axis.stop, block),)
        return block


@record
class Blocks:
    """A sort by blocks of keys first: `count` blocks of `width` keys, by `chunks` of points. Its buffers: `counts` of each chunk and block,
    `starts` of the blocks, the points in `order` of blocks and their `keys` (unused for a width of 1)."""

    count: int
    width: int
    chunks: int
    counts: str
    starts: str
    order: str
    keys: str


def width_of(points: int, extent: int, chunks: int, near: int) -> int | None:
    """How many keys a block has, a power of two; None where one core sorts as fast as several would.

    One key where all chunks may count every key and have far fewer counts than points. Else blocks pay, for which every point is
    moved once more, where the offsets do not fit in `near` bytes of cache: then one core would wait for memory at every point.
    """
    if points < MANY_POINTS or chunks < 2:
        return None
    if 2 * chunks * extent <= points:
        return 1
    if extent * dtypes.int64.itemsize <= near:
        return None
    width = 1
    while width * MOST_BLOCKS < extent:
        width *= 2
    return width


def _block_of(key: Expr, width: int) -> Expr:
    return key if width == 1 else apply("floordiv", key, const(width))


def flat(indices: tuple[Expr, ...], extents: tuple[Expr, ...]) -> Expr:
    """The row-major position of indices in a shape."""
    result: Expr = ZERO
    for at, index in enumerate(indices):
        result = add(result, _times(index, product(extents[at + 1 :])))
    return result


def unflattened(position: Expr, extents: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The indices of a row-major position in a shape."""
    found: list[Expr] = []
    for at, extent in enumerate(extents):
        stride = product(extents[at + 1 :])
        index = position if stride == ONE else apply("floordiv", position, stride)
        found.append(index if at == 0 else apply("mod", index, extent))
    return tuple(found)


def _times(index: Expr, stride: Expr) -> Expr:
    return mul(index, stride) if constant(stride) is not None else apply("mul", index, stride)


def _read(place: Place) -> Expr:
    return Access(*place, dtypes.int64)
