"""A scatter whose sends are sorted by blocks of elements first (the primitive `partition`): three passes, of which two run over the points.

    counts[c, b] = how many sends of chunk c go to block b          all places are computed and checked here
    counts[c, b] = where they begin, starts[b] = where those of block b do
    keys[at], values[at] = key, value;  at = counts[c, b]++         in parallel over c
    S[v] = start;  S[keys[at]] += values[at] for at of block b      in parallel over b

Where there may be more sends than room for them, `starts` tells: then the passes after the first do nothing, and plain loops run instead.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorexpr import dtypes
from tensorexpr.codegen.lowering.arithmetic import ONE, ZERO, add, floordiv, mul
from tensorexpr.codegen.lowering.scope import Scope
from tensorexpr.codegen.lowering.sorting import flat, unflattened
from tensorexpr.codegen.lowering.tasks import Names
from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, If, Stmt, Store
from tensorexpr.codegen.schedule.state import Partition
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
    last, width = const(blocks), const(plan.width)
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

    def received(key: Expr, value: Expr) -> Block:
        buffer, at = sends.element(unflattened(key, sends.type.shape))
        return (Store(buffer, at, sends.combine(Access(buffer, at, sends.kept), value)),)

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
    low, high = mul(b, width), apply("minimum", size, mul(add(b, ONE), width))
    kept = Access(keys, (t,), key_type)
    key = kept if key_type is dtypes.int64 else Cast(dtypes.int64, kept)
    owned: Block = (
        For(v.name, low, high, begun(v)),
        For(t.name, begin, end, received(key, Access(values, (t,), sends.kept))),
    )
    block: Block = (
        For(c.name, ZERO, chunks, (For(b.name, ZERO, last, (Store(counts, (c, b), ZERO),)),)),
        *sends.loops(counted, True),
        Store(starts, (ZERO,), ZERO),
        For(b.name, ZERO, last, (Store(starts, end.indices, begin), For(c.name, ZERO, chunks, sums))),
        *_under(fits, sends.loops(moved, False)),
        For(b.name, ZERO, last, owned if fits is None else (If(fits, owned),), sends.kind),
    )
    if fits is None:
        return block

    def ordered(inner: Scope) -> Block:
        buffer, at = sends.element(sends.place(inner))
        return (Store(buffer, at, sends.combine(Access(buffer, at, sends.kept), sends.value(inner))),)

    plain = (For(v.name, ZERO, size, begun(v)), *map(_serial, sends.loops(ordered, False)))
    return (*block, If(apply("gt", total, const(plan.room)), plain))


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
