"""Lines that the steps of a sum ask for far apart: they are asked for some steps ahead.

A step of a contraction multiplies vectors with single elements that lie side by side. Where those of the next step are half a page away or
more (a matrix read across its rows, the planes of an image), nothing sees them come: the processor's prefetching ends with the page, and
lines at equal distances fall on one place of the first level, so they are not there from the tile before, either. One instruction in a
step of many products asks for them so many steps ahead that they are there in time, and so few that they are not pushed out again; one
for each line of vectors, where these do not fall on a few places alone. It is a hint, which may lie outside of the tensor; values do not
change.
"""

from __future__ import annotations

from contextlib import ExitStack
from math import gcd, prod
from typing import TYPE_CHECKING

from tensorexpr.codegen.llvm.text.values import Value, literal
from tensorexpr.codegen.nest import Block, For, Store
from tensorexpr.ir import Access, Apply, Const, Expr
from tensorexpr.regions import affine_of
from tensorexpr.traversal import free_names, walk

if TYPE_CHECKING:
    from tensorexpr.codegen.llvm.emitter.statements import Statements

STEPS = 16
"""How many steps ahead lines are asked for."""
APART = 2048
"""Bytes between what two steps read from which on nothing else fetches it."""
LINE = 64
MOST, MOST_LANES = 2 * LINE, 4 * LINE
"""Bytes that a step reads side by side, at most, one at a time or in vectors."""
PAGE, PLACES = 4096, 4
"""Places of the first level that the vectors of steps fall on, at least: on fewer, those asked for push each other out."""
LEAST_STEPS, LEAST_PRODUCTS = 4 * STEPS, 64
"""Steps of a loop, and elements added to in each, from which on an instruction more in each does not show."""


def fetched(emitter: Statements, s: For, index: Value) -> None:
    """Asks for what later steps of a loop read, if it is such a sum; `index` is where it is now."""
    if not isinstance(s.start, Const) or not isinstance(s.stop, Const) or int(s.stop.value) - int(s.start.value) < LEAST_STEPS:
        return
    found = _tile(s.body)
    if found is None or emitter.lanes > 1 or emitter.mask is not None:
        return
    store, loops = found
    if prod(_count(x) for x in loops) < LEAST_PRODUCTS or emitter.buffers[store.buffer].memory != "local":
        return
    # An index that is data may not be there to be read: conditions in the value count for reads, not for hints.
    reads = dict.fromkeys(
        n for n in walk(store.value) if isinstance(n, Access) and n.tensor != store.buffer and not any(map(emitter.reads, n.indices))
    )
    apart = [(read, span) for read in reads if (span := _span(emitter, s, read, loops)) is not None]
    if len({read.tensor for read, _ in apart}) < len(apart):
        return
    for read, span in apart:
        b, binding = emitter.b, emitter.buffers[read.tensor]
        with ExitStack() as inside:
            inside.enter_context(emitter.bound(s.index, b.add(index, STEPS)))
            for x in loops:
                assert isinstance(x.start, Const)
                inside.enter_context(emitter.bound(x.index, literal(int(x.start.value), "i64")))
            offset = emitter.offset(binding, read.indices)
            pointer = b.emit(f"getelementptr {binding.element}, ptr {binding.pointer}, i64 {offset.text}", "ptr").text
        b.module.declarations["llvm.prefetch.p0"] = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
        for line in range(0, max(span, 1), LINE):
            place = b.emit(f"getelementptr i8, ptr {pointer}, i64 {line}", "ptr").text if line else pointer
            b.line(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 3, i32 1)")


def _tile(body: Block) -> tuple[Store, list[For]] | None:
    """The one store inside of unrolled loops and those over lanes, all of constant length, and these."""
    loops: list[For] = []
    while len(body) == 1 and isinstance(body[0], For):
        loop = body[0]
        if loop.kind not in ("unroll", "vectorize") or not isinstance(loop.start, Const) or not isinstance(loop.stop, Const):
            return None
        loops.append(loop)
        body = loop.body
    return (body[0], loops) if len(body) == 1 and isinstance(body[0], Store) and loops else None


def _count(s: For) -> int:
    assert isinstance(s.start, Const) and isinstance(s.stop, Const)
    return int(s.stop.value) - int(s.start.value)


def _span(emitter: Statements, s: For, read: Access, loops: list[For]) -> int | None:
    """The bytes side by side that each step of a loop reads, far from those of the next step; None where they are not."""
    binding = emitter.buffers[read.tensor]
    strides = [int(v.const) for v in binding.strides if v.const is not None]
    if binding.memory == "local" or not len(strides) == len(binding.strides) == len(read.indices):
        return None
    step, *sides = (_along(x.index, read, strides) for x in (s, *loops))
    if step is None or abs(step) * binding.dtype.itemsize < APART:
        return None
    spans = [abs(k) * (_count(x) - 1) for k, x in zip(sides, loops, strict=True) if k is not None]
    span = sum(spans) * binding.dtype.itemsize
    if len(spans) < len(loops):
        return None
    if any(k and x.kind == "vectorize" for k, x in zip(sides, loops, strict=True)):
        most = MOST_LANES if PAGE // gcd(abs(step) * binding.dtype.itemsize, PAGE) >= PLACES else 0
    else:
        most = MOST
    return span if span < most else None


def _along(index: str, read: Access, strides: list[int]) -> int | None:
    """How many elements a read gets further with each step of an index; None where steps differ."""
    steps = [_coefficient(e, index) for e in read.indices]
    known = [k * stride for k, stride in zip(steps, strides, strict=True) if k is not None]
    return sum(known) if len(known) == len(steps) else None


def _coefficient(e: Expr, index: str) -> int | None:
    """How far an expression gets with each step of an index; None where steps differ."""
    if index not in free_names(e):
        return 0
    if isinstance(e, Apply) and e.op.name in ("add", "sub"):
        left, right = (_coefficient(x, index) for x in e.args)
        return None if left is None or right is None else left + right if e.op.name == "add" else left - right
    form = affine_of(e)
    return None if form is None else form.coefficient(index)
