"""Random rewrites of where values are kept."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import TypeVar

from tensorexpr.codegen.nest import Alloc, Block, For, If, LoopNest, Store
from tensorexpr.codegen.nest.walks import expressions_of, inside
from tensorexpr.codegen.rewrites.data.contract import contract
from tensorexpr.codegen.rewrites.data.fuse_at import fuse_at
from tensorexpr.codegen.rewrites.data.hoist import hoist
from tensorexpr.codegen.rewrites.data.inline import inline
from tensorexpr.codegen.rewrites.data.keep import keep
from tensorexpr.codegen.rewrites.data.merge import merge, merge_kernels
from tensorexpr.codegen.rewrites.data.narrow import TYPES, narrow
from tensorexpr.codegen.rewrites.data.pipeline import pipeline
from tensorexpr.codegen.rewrites.data.rfactor import rfactor
from tensorexpr.codegen.rewrites.data.slide import slide
from tensorexpr.codegen.rewrites.data.stage import stage
from tensorexpr.codegen.rewrites.kernels import divide, in_memory, move_kernel, pack, prefetch, separate, side_by_side, stream
from tensorexpr.codegen.rewrites.paths import around, statement, walk_nest
from tensorexpr.codegen.rewrites.sends import own, sort
from tensorexpr.codegen.rewrites.touched.winners import winner_of
from tensorexpr.dtypes import int64
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Apply, Cast, Expr
from tensorexpr.traversal import free_names, walk
from tests.codegen.rewrites.law import Move

Item = TypeVar("Item")


def _any(rng: random.Random, items: Sequence[Item]) -> Item | None:
    return rng.choice(items) if items else None


def buffers(nest: LoopNest) -> list[str]:
    """The buffers that a nest computes."""
    return list(dict.fromkeys(s.buffer for _, s in walk_nest(nest) if isinstance(s, Store)))


def loops(nest: LoopNest) -> list[str]:
    """The names of the loops of a nest."""
    return list(dict.fromkeys(s.index for _, s in walk_nest(nest) if isinstance(s, For)))


def read(nest: LoopNest) -> list[tuple[str, str]]:
    """Buffers that a nest computes with the loops that read them."""
    written = set(buffers(nest))
    found: dict[tuple[str, str], None] = {}
    for path, _ in walk_nest(nest):
        s = statement(nest, path)
        for name in dict.fromkeys(n.tensor for e in expressions_of(s) for n in walk(e) if isinstance(n, Access) and n.tensor in written):
            found.update(dict.fromkeys((name, loop.index) for loop in around(nest, path).loops))
    return list(found)


def inlined(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    pair = _any(rng, read(nest))
    return None if pair is None else inline(nest, pair[0])


def fused_at(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    pair = _any(rng, read(nest))
    return None if pair is None else fuse_at(nest, *pair)


def merged(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    names = loops(nest)
    if len(names) < 2:
        return None
    if rng.random() < 0.3 and len(nest.kernels) > 1:
        return merge_kernels(nest, rng.randrange(len(nest.kernels) - 1))
    blocks = [b for _, s in walk_nest(nest) for b in (inside(s),)] + [kernel.body for kernel in nest.kernels]
    pairs = []
    for block in blocks:
        pairs += list(itertools.pairwise(_loops_of(block)))
    pair = _any(rng, pairs)
    return None if pair is None else merge(nest, *pair)


def _loops_of(block: Block) -> list[str]:
    """The loops of a block, those in declarations of local buffers as well."""
    inner = [[s.index] if isinstance(s, For) else _loops_of(s.body) if isinstance(s, Alloc) else [] for s in block]
    return [name for names in inner for name in names]


def hoisted(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    found: dict[tuple[str, Expr], None] = {}
    for path, s in walk_nest(nest):
        if isinstance(s, Store):
            terms = [n for n in walk(s.value) if isinstance(n, Apply | Access | Cast)]
            for loop in around(nest, path).loops:
                found.update(dict.fromkeys((loop.index, n) for n in terms if loop.index not in free_names(n)))
    pair = _any(rng, list(found))
    return None if pair is None else hoist(nest, *pair)


def kept(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    found: dict[tuple[str, Expr], None] = {}
    for path, s in walk_nest(nest):
        if isinstance(s, Store):
            terms = [n for n in walk(s.value) if isinstance(n, Apply | Access | Cast)]
            found.update(dict.fromkeys((loop.index, n) for n in terms for loop in around(nest, path).loops))
    pairs = list(found)
    for pair in rng.sample(pairs, min(4, len(pairs))):
        try:
            return keep(nest, *pair)
        except ScheduleError:
            continue
    return None


def rfactored(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    found: dict[tuple[str, str], None] = {}
    for path, s in walk_nest(nest):
        if isinstance(s, Store) and any(isinstance(n, Access) and n.tensor == s.buffer for n in walk(s.value)):
            found.update(dict.fromkeys((s.buffer, loop.index) for loop in around(nest, path).loops))
        if isinstance(s, If) and (winner := winner_of(s)) is not None:
            found.update(dict.fromkeys((name, loop.index) for name in winner.buffers for loop in around(nest, path).loops))
    pair = _any(rng, list(found))
    return None if pair is None else rfactor(nest, *pair, None, rng.choice(("local", "local", "workspace")))


def owned(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    found: dict[tuple[str, str], int] = {}
    for path, s in walk_nest(nest):
        if isinstance(s, Store):
            found.update({(s.buffer, loop.index): len(s.indices) for loop in around(nest, path).loops})
    pair = _any(rng, list(found))
    if pair is None:
        return None
    return rng.choice((own, sort))(nest, *pair, rng.randint(1, 5), rng.randrange(max(1, found[pair])))


def contracted(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    pair = _any(rng, read(nest))
    return None if pair is None else contract(nest, *pair)


def staged(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    found: dict[tuple[str, str], int] = {}
    for path, s in walk_nest(nest):
        accesses = [n for e in expressions_of(s) for n in walk(e) if isinstance(n, Access)]
        accesses += [Access(s.buffer, s.indices, s.value.dtype)] if isinstance(s, Store) else []
        found.update({(a.tensor, loop.index): len(a.indices) for a in accesses for loop in around(nest, path).loops})
    pair = _any(rng, list(found))
    if pair is None:
        return None
    order = rng.sample(range(found[pair]), found[pair])
    return stage(nest, *pair, order, rng.choice((None, None, 2, 3)), rng.choice(("local", "local", "workspace")))


def slid(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    pair = _any(rng, read(nest))
    return None if pair is None else slide(nest, *pair)


def pipelined(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    names = loops(nest)
    return pipeline(nest, rng.choice(names), buffers(nest), rng.randint(2, 3)) if names else None


def narrowed(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    stored = {s.buffer: s.value.dtype for _, s in walk_nest(nest) if isinstance(s, Store)}
    name = _any(rng, [name for name, t in stored.items() if (t is int64 or t.name in TYPES) and name not in nest.writes])
    if name is None:
        return None
    return narrow(nest, name, rng.choice(list(TYPES)) if stored[name] is int64 else stored[name].name)


def packed(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    found = {}
    for _, s in walk_nest(nest):
        if isinstance(s, Store):
            accesses = [n for e in expressions_of(s) for n in walk(e) if isinstance(n, Access)]
            found.update({(a.tensor, s.buffer): len(a.indices) for a in accesses if a.tensor != s.buffer})
    pair = _any(rng, list(found))
    if pair is None:
        return None
    order = rng.sample(range(found[pair]), found[pair])
    return pack(nest, *pair, [(axis, rng.randint(1, 5)) if rng.random() < 0.4 else axis for axis in order])


def separated(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    found: dict[tuple[str, str], None] = {}
    for path, s in walk_nest(nest):
        if isinstance(s, Store) and any(isinstance(n, Access) and n.tensor == s.buffer for n in walk(s.value)):
            found.update(dict.fromkeys((s.buffer, loop.index) for loop in around(nest, path).loops))
    pair = _any(rng, list(found))
    return None if pair is None else separate(nest, *pair)


def kernel_moved(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    count = len(nest.kernels)
    if count < 2:
        return None
    first, second = rng.sample(range(count), 2)
    return rng.choice((move_kernel, side_by_side))(nest, first, second)


def prefetched(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    found = [(n.tensor, loop.index) for path, s in walk_nest(nest) for loop in around(nest, path).loops
             for e in expressions_of(s) for n in walk(e) if isinstance(n, Access)]  # fmt: skip
    pair = _any(rng, found)
    return None if pair is None else prefetch(nest, *pair, rng.randint(1, 3))


def streamed(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    return stream(nest, rng.choice(nest.writes)) if nest.writes else None


def kept_in_memory(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    return in_memory(nest, rng.choice((0, 8, 32)), rng.choice((1, 3)))


def divided(nest: LoopNest, rng: random.Random) -> LoopNest | None:
    own = {s.buffer.name: s.buffer for _, s in walk_nest(nest) if isinstance(s, Alloc)} | {b.name: b for b in nest.workspace}
    name = _any(rng, [name for name, buffer in own.items() if buffer.shape])
    if name is None:
        return None
    lengths = [rng.randint(1, 4) for _ in range(rng.randint(1, 2))]
    order = rng.sample(range(len(lengths) + 1), len(lengths) + 1)
    return divide(nest, name, rng.randrange(len(own[name].shape)), lengths, order)


ALL: list[Move] = [
    inlined, fused_at, merged, hoisted, kept, rfactored, rfactored, owned, contracted, staged,
    slid, narrowed, pipelined, packed, separated, kernel_moved, prefetched, streamed, kept_in_memory, divided,
]  # fmt: skip
