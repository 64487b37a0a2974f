"""A scatter whose sends are sorted by blocks of elements first (the primitive `partition`): three passes, of which two run over the points.

    counts[c, b] = how many sends of chunk c go to block b          all places are computed and checked here
    counts[c, b] = where they begin, starts[b] = where those of block b do
    keys[at], values[at] = key, value;  at = counts[c, b]++         in parallel over c
    S[v] = start;  S[keys[at]] += values[at] for at of block b      in parallel over b

A block that receives more than `share` has several owners (see `shares`), which go through as many sends each. The first adds to the
result, every other one to a piece of memory of its own; these are added to the result in their order, in parallel over elements.

    (S if k == 0 else own[i])[keys[at]] += values[at]               in parallel over the shares i, number k of block b
    S[v] += own[i + 1][v];  S[v] += own[i + 2][v];  ...             in parallel over segments of v, one for each share of the block

Where there may be more sends than room for them, `starts` tells: then the passes after the first do nothing, and plain loops run instead.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorexpr import dtypes
from tensorexpr.codegen.lowering.context.arithmetic import ONE, ZERO, add, floordiv, mul
from tensorexpr.codegen.lowering.context.scope import Scope
from tensorexpr.codegen.lowering.context.tasks import Names
from tensorexpr.codegen.lowering.scatters.shares import Share, Shares
from tensorexpr.codegen.lowering.scatters.sorting import Place, flat, unflattened
from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, If, Stmt, Store
from tensorexpr.codegen.schedule.analysis.state import Partition
from tensorexpr.dtypes import DType
from tensorexpr.ir import Access, Cast, Const, Expr, Index, TensorType, apply, const, product
from tensorexpr.records import record, replace
from tensorexpr.traversal import fresh_name

Indices = tuple[Expr, ...]


@record
class Sends:
    """What a scatter sends: at each point `place` gives the indices of the element, `value` what it receives in the dtype `kept`, `chunk`
    the number of its chunk. `loops` runs statements at all points, with checks or without; `element` is where the result is kept, `combine`
    what it becomes when it receives something, `start` what it is before. `kind` is that of the loops over chunks and blocks."""

    name: str
    type: TensorType
    kept: DType
    place: Callable[[Scope], Indices]
    value: Callable[[Scope], Expr]
    chunk: Callable[[Scope], Expr]
    loops: Callable[[Callable[[Scope], Block], bool], Block]
    element: Callable[[Indices], tuple[str, Indices]]
    combine: Callable[[Expr, Expr], Expr]
    start: Expr
    kind: str


def partitioned(sends: Sends, plan: Partition, names: Names, taken: set[str]) -> Block:
    """The statements of the scatter; the buffers that they need are added to the workspace."""
    size = product(sends.type.shape)
    assert isinstance(size, Const)
    blocks = -(-int(size.value) // plan.width)
    key_type = dtypes.int32 if int(size.value) < 1 << 31 else dtypes.int64

    def made(word: str, dtype: DType, *shape: int) -> str:
        buffer = Buffer(names.fresh(f"{sends.name}_{word}"), dtype, tuple(map(const, shape)), "workspace")
        names.workspace.append(buffer)
        return buffer.name

    counts, starts = made("counts", dtypes.int64, plan.chunks, blocks), made("starts", dtypes.int64, blocks + 1)
    keys, values = made("keys", key_type, plan.room), made("values", sends.kept, plan.room)
    c, b, t, v = (Index(fresh_name(name, taken)) for name in ("c", "b", "t", "v"))
    last = const(blocks)
    total = Access(starts, (last,), dtypes.int64)
    fits = None if plan.fits else apply("le", total, const(plan.room))

    def cursor(inner: Scope) -> tuple[Expr, Access]:
        key = flat(sends.place(inner), sends.type.shape)
        return key, Access(counts, (sends.chunk(inner), floordiv(key, plan.width)), dtypes.int64)

    def counted(inner: Scope) -> Block:
        _, own = cursor(inner)
        return (Store(counts, own.indices, add(own, ONE)),)

    def moved(inner: Scope) -> Block:
        key, own = cursor(inner)
        kept = key if key_type is dtypes.int64 else Cast(key_type, key)
        at = Buffer(names.fresh(f"{sends.name}_at"), dtypes.int64, (), "local")  # read once: what is stored below could change it
        here = Access(at.name, (), dtypes.int64)
        body = (
            Store(at.name, (), own),
            Store(counts, own.indices, add(here, ONE)),
            Store(keys, (here,), kept),
            Store(values, (here,), sends.value(inner)),
        )
        return (Alloc(at, body),)

    def begun(key: Expr) -> Block:
        buffer, at = sends.element(unflattened(key, sends.type.shape))
        return (Store(buffer, at, sends.start),)

    here, end, begin = (
        Access(counts, (c, b), dtypes.int64),
        Access(starts, (add(b, ONE),), dtypes.int64),
        Access(starts, (b,), dtypes.int64),
    )
    sums: Block = (
        Store(starts, end.indices, apply("add", end, here)),
        Store(counts, here.indices, apply("sub", end, here)),
    )
    chunks = const(plan.chunks)
    owning = _Owning(sends, names, keys, values, key_type, plan.width, int(size.value))
    shares = None if plan.share is None else Shares.made(sends.name, blocks, plan.share, plan.room, starts, names)
    if shares is None:
        owned = owning.whole(b, begin, end, v, t)
        added: Block = (For(b.name, ZERO, last, owned if fits is None else (If(fits, owned),), sends.kind),)
    else:
        own = made("own", sends.kept, shares.spares, plan.width) if shares.spares else ""
        i = Index(fresh_name("i", taken))
        added = (
            *_under(fits, shares.cut(b, i)),
            *_under(fits, (shares.each(i, names, lambda share: owning.share(share, own, v, t), sends.kind),)),
        )
        if shares.spares:
            n = Index(fresh_name("n", taken))
            added += _under(fits, (shares.each(i, names, lambda share: owning.joined(share, own, n, v), sends.kind),))
    block: Block = (
        For(c.name, ZERO, chunks, (For(b.name, ZERO, last, (Store(counts, (c, b), ZERO),)),)),
        *sends.loops(counted, True),
        Store(starts, (ZERO,), ZERO),
        For(b.name, ZERO, last, (Store(starts, end.indices, begin), For(c.name, ZERO, chunks, sums))),
        *_under(fits, sends.loops(moved, False)),
        *added,
    )
    if fits is None:
        return block

    def ordered(inner: Scope) -> Block:
        buffer, at = sends.element(sends.place(inner))
        return (Store(buffer, at, sends.combine(Access(buffer, at, sends.kept), sends.value(inner))),)

    plain = (For(v.name, ZERO, size, begun(v)), *map(_serial, sends.loops(ordered, False)))
    return (*block, If(apply("gt", total, const(plan.room)), plain))


@record
class _Owning:
    """The last pass: what owners of blocks do with the sends that are sorted, `keys` of a dtype and `values`."""

    sends: Sends
    names: Names
    keys: str
    values: str
    key_type: DType
    width: int
    size: int

    def whole(self, block: Expr, begin: Expr, end: Expr, v: Index, t: Index) -> Block:
        """Sends of a block are added to the result, whose elements begin here."""
        low, high = mul(block, const(self.width)), apply("minimum", const(self.size), mul(add(block, ONE), const(self.width)))
        return (For(v.name, low, high, (Store(*self.element(v), self.sends.start),)), *self.received(self.element, begin, end, t))

    def share(self, share: Share, own: str, v: Index, t: Index) -> Block:
        """One share of a block: the first is added to the result, any other one to a piece of `own`."""
        first = self.whole(share.block, share.begin, share.end, v, t)
        if not own:
            return first

        def piece(key: Expr) -> Place:
            return own, (share.spare, apply("sub", key, mul(share.block, const(self.width))))

        begun = For(v.name, ZERO, const(self.width), (Store(own, (share.spare, v), self.sends.start),))
        further = (begun, *self.received(piece, share.begin, share.end, t))
        return (If(apply("eq", share.number, ZERO), first, further),)

    def joined(self, share: Share, own: str, n: Index, v: Index) -> Block:
        """What the shares of a block have of its own, added to the result in their order: one of as many segments of it as shares."""
        low = mul(share.block, const(self.width))
        length = apply("floordiv", apply("add", share.shares, const(self.width - 1)), share.shares)
        begin = apply("add", low, apply("mul", share.number, length))
        end = apply("minimum", apply("minimum", const(self.size), add(low, const(self.width))), apply("add", begin, length))
        piece = apply("add", apply("sub", share.spare, share.number), n)
        target = self.element(v)
        value = Access(own, (piece, apply("sub", v, low)), self.sends.kept)
        one = Store(*target, self.sends.combine(Access(*target, self.sends.kept), value))
        return (For(n.name, ONE, share.shares, (For(v.name, begin, end, (one,)),)),)

    def element(self, key: Expr) -> Place:
        return self.sends.element(unflattened(key, self.sends.type.shape))

    def received(self, place: Callable[[Expr], Place], begin: Expr, end: Expr, t: Index) -> Block:
        """Elements take in what is sent to them. One is held in a register for as long as the next send goes to it, too: adding to memory
        again and again what was just stored there takes several times as long."""
        kept = self.sends.kept
        held, last, key = (
            Buffer(self.names.fresh(word), dtype, (), "local")
            for word, dtype in (("held", kept), ("last", dtypes.int64), ("key", dtypes.int64))
        )
        element, before, now = (Access(buffer.name, (), buffer.dtype) for buffer in (held, last, key))

        def key_of(at: Expr) -> Expr:
            found = Access(self.keys, (at,), self.key_type)
            return found if self.key_type is dtypes.int64 else Cast(dtypes.int64, found)

        put = Store(*place(before), element)
        other: Block = (put, Store(last.name, (), now), Store(held.name, (), Access(*place(now), kept)))
        step: Block = (
            Store(key.name, (), key_of(t)),
            If(apply("ne", now, before), other),
            Store(held.name, (), self.sends.combine(element, Access(self.values, (t,), kept))),
        )
        body: Block = (
            Store(last.name, (), key_of(begin)),
            Store(held.name, (), Access(*place(before), kept)),
            For(t.name, begin, end, step),
            put,
        )
        for buffer in (key, last, held):
            body = (Alloc(buffer, body),)
        return (If(apply("lt", begin, end), body),)


def _under(condition: Expr | None, block: Block) -> Block:
    """The statements under a condition, parallel loops still outermost."""
    if condition is None:
        return block
    return tuple(_inside(condition, s) if isinstance(s, For) else If(condition, (s,)) for s in block)


def _inside(condition: Expr, loop: For) -> For:
    return replace(loop, body=(If(condition, loop.body),))


def _serial(statement: Stmt) -> Stmt:
    match statement:
        case For():
            kind = "serial" if statement.kind == "parallel" else statement.kind
            return replace(statement, kind=kind, body=tuple(map(_serial, statement.body)))
        case Alloc():
            return replace(statement, body=tuple(map(_serial, statement.body)))
        case If():
            return replace(statement, then=tuple(map(_serial, statement.then)), otherwise=tuple(map(_serial, statement.otherwise)))
    return statement
