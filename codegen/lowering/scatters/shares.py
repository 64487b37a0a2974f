"""Blocks of what was sorted, in shares: entries starts[b] up to starts[b + 1] are those of block b, at most `most` of them are one share.

    for b: firsts[b + 1] = firsts[b] + shares of b;  blocks[i] = b for each share i of block b
    for i in parallel: share i - firsts[blocks[i]] of block blocks[i]

So nobody has more than `most` entries to go through, however much a block holds. Where blocks are cut follows from how many entries they
hold, never from threads or cores. A block that holds no more is one share, also an empty one. In the loop, shares that follow each
other stand apart: those of a large block are not all in one of the pool's chunks.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorexpr import dtypes
from tensorexpr.codegen.lowering.context.arithmetic import ONE, ZERO, add, floordiv, mul
from tensorexpr.codegen.lowering.context.tasks import Names
from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, If, Store
from tensorexpr.ir import Access, Expr, Index, apply, const
from tensorexpr.records import record

STRANDS = 16
"""How many shares that follow each other stand far apart in the loop."""


@record
class Share:
    """One share: `number` of the `shares` of `block`, with entries `begin` up to `end`; `spare` counts the shares before it that are not
    the first of their block."""

    block: Expr
    number: Expr
    shares: Expr
    begin: Expr
    end: Expr
    spare: Expr


@record
class Shares:
    """The shares of `count` blocks that hold `total` entries at most, and where it is kept which there are."""

    count: int
    most: int
    total: int
    starts: str
    firsts: str
    blocks: str

    @classmethod
    def made(cls, stem: str, count: int, most: int, total: int, starts: str, names: Names) -> Shares:
        """The shares of blocks that begin at `starts`, with buffers of their own in the workspace."""
        found = cls(count, most, total, starts, names.fresh(f"{stem}_firsts"), names.fresh(f"{stem}_blocks"))
        for name, length in ((found.firsts, count + 1), (found.blocks, count + found.spares)):
            names.workspace.append(Buffer(name, dtypes.int64, (const(length),), "workspace"))
        return found

    @property
    def spares(self) -> int:
        """The most shares that are not the first of their block."""
        return self.total // self.most

    def cut(self, b: Index, i: Index) -> Block:
        """Finds out which shares there are."""
        begin, end = (Access(self.starts, (at,), dtypes.int64) for at in (b, add(b, ONE)))
        here, after = (Access(self.firsts, (at,), dtypes.int64) for at in (b, add(b, ONE)))
        entries = apply("add", apply("sub", end, begin), const(self.most - 1))
        shares = apply("maximum", ONE, apply("floordiv", entries, const(self.most)))
        each: Block = (
            Store(self.firsts, after.indices, apply("add", here, shares)),
            For(i.name, here, after, (Store(self.blocks, (i,), b),)),
        )
        return (Store(self.firsts, (ZERO,), ZERO), For(b.name, ZERO, const(self.count), each))

    def each(self, i: Index, names: Names, body: Callable[[Share], Block], kind: str) -> For:
        """`body` of every share."""
        rows = -(-(self.count + self.spares) // STRANDS)
        at = add(mul(apply("mod", i, const(STRANDS)), const(rows)), floordiv(i, STRANDS))
        held = [Buffer(names.fresh(stem), dtypes.int64, (), "local") for stem in ("share", "block", "number", "begin", "end")]
        share, block, number, begin, end = (Access(buffer.name, (), dtypes.int64) for buffer in held)

        def read(buffer: str, index: Expr) -> Access:
            return Access(buffer, (index,), dtypes.int64)

        shares = apply("sub", read(self.firsts, add(block, ONE)), read(self.firsts, block))
        last = apply("minimum", read(self.starts, add(block, ONE)), add(begin, const(self.most)))
        inside: Block = (
            Store(block.tensor, (), read(self.blocks, share)),
            Store(number.tensor, (), apply("sub", share, read(self.firsts, block))),
            Store(begin.tensor, (), apply("add", read(self.starts, block), mul(number, const(self.most)))),
            Store(end.tensor, (), last),
            *body(Share(block, number, shares, begin, end, apply("sub", share, add(block, ONE)))),
        )
        some = apply("lt", share, read(self.firsts, const(self.count)))
        nested: Block = (Store(share.tensor, (), at), If(some, inside))
        for buffer in reversed(held):
            nested = (Alloc(buffer, nested),)
        return For(i.name, ZERO, const(STRANDS * rows), nested, kind)
