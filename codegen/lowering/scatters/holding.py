"""Scatters that hold the element they add to: what is sent to one place again and again does not wait for memory.

    key = ids[i];  same = part * n + key == last
    old = S[part, |key - 1| where same else key]
    held = (held where same else old) + v[i];  last = part * n + key
    S[part, key] = held

An addition to memory waits for the one before where that went to the same place, three times as long as one to a register. What was
added to last is in a register still; memory is not asked for it then, but for its neighbor, which nobody waits for. No step is taken or
left by a branch, which reads at random would mispredict, so all of them take the same time whatever the data. Every sum is stored, and
additions keep their order: not a bit of the result changes.

It pays where results leave the nearest caches: a send then takes as long as its access, and the steps around it run beside it. Where
results are small, parts have several that take turns instead (see `schedule.rfactor`).
"""

from __future__ import annotations

from collections.abc import Callable

from tensorexpr import dtypes
from tensorexpr.codegen.lowering.context.arithmetic import ONE, constant
from tensorexpr.codegen.lowering.context.tasks import Names
from tensorexpr.codegen.lowering.scatters.sorting import flat
from tensorexpr.codegen.nest import LANES, Alloc, Block, Buffer, For, Stmt, Store
from tensorexpr.codegen.schedule.analysis.state import Stage
from tensorexpr.dtypes import DType
from tensorexpr.ir import Access, Cast, Const, Expr, Index, Scatter, apply, const
from tensorexpr.records import record, replace

HELD_BYTES = 1 << 20
"""Bytes of the result of a part from which on its elements are held."""


def is_held(scatter: Scatter, stage: Stage) -> bool:
    """Whether a scatter adds one element at a time to a large result, at a place that data alone gives, what takes no reduction to compute.

    Parts of it may have results of their own; not in turns, which do not wait anyway.
    """
    if not scatter.indices or stage.owners or stage.parts.groups or any(stage.kind(loop) in LANES for loop in stage.order):
        return False
    *leading, place = scatter.indices
    extent = constant(scatter.type.shape[-1])
    if not all(isinstance(index, Index) for index in leading) or not isinstance(place, (Access, Cast)) or extent is None:
        return False
    return extent > 1 and extent * scatter.type.dtype.itemsize >= HELD_BYTES


@record
class Holding:
    """The registers of a scatter into a result of some shape: the element that it last added to, and the position of that."""

    shape: tuple[Expr, ...]
    held: Buffer
    last: Buffer
    key: Buffer
    old: Buffer

    @classmethod
    def made(cls, shape: tuple[Expr, ...], kept: DType, names: Names) -> Holding:
        words = (("held", kept), ("last", dtypes.int64), ("key", dtypes.int64), ("old", kept))
        return cls(shape, *(Buffer(names.fresh(word), dtype, (), "local") for word, dtype in words))

    def sent(self, buffer: str, at: tuple[Expr, ...], combined: Callable[[Expr], Expr]) -> Block:
        """One send to an element, which becomes `combined` of what it is."""
        held, last, key, old = (Access(b.name, (), b.dtype) for b in (self.held, self.last, self.key, self.old))
        *leading, place = at
        position = flat((*leading[len(at) - len(self.shape) :], key), self.shape)
        same = apply("eq", position, last)
        elsewhere = apply("where", same, apply("abs", apply("sub", key, ONE)), key)
        body: Block = (
            Store(self.key.name, (), place if place.dtype is dtypes.int64 else Cast(dtypes.int64, place)),
            Store(self.old.name, (), Access(buffer, (*leading, elsewhere), self.old.dtype)),
            Store(self.held.name, (), combined(apply("where", same, held, old))),
            Store(self.last.name, (), position),
            Store(buffer, (*leading, key), held),
        )
        return (Alloc(self.key, (Alloc(self.old, body),)),)

    def around(self, block: Block) -> Block:
        """The loops of a scatter with its registers around them, inside of those that run in parallel."""
        return tuple(map(self._statement, block))

    def _statement(self, s: Stmt) -> Stmt:
        if isinstance(s, For) and s.kind == "parallel":
            return replace(s, body=self.around(s.body))
        begun = (
            Store(self.last.name, (), const(-1)),
            Store(self.held.name, (), Const(self.held.dtype.numpy.type(0), self.held.dtype)),
        )
        return Alloc(self.held, (Alloc(self.last, (*begun, s)),))
