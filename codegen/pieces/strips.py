"""Programs over pairs of rows and columns whose numbers are open, in strips of rows: memory is that of a strip, not of all pairs.

The gradient of an attention sums scores, weights and their adjoints over columns (for the queries) and over rows (for keys and values).
Stored, they are as large as rows times columns, which may be any amount of memory where both are open. Yet each row needs no other one, but
for sums over all of them, which are what those over strips add up to:

    for each element of the batch:                        for each element of the batch:
        scores, weights, adjoints of all rows                 k_bar = 0
        q_bar of all rows                           -->       for strip of 64 rows:
        k_bar = sum of all rows                                   scores, weights, adjoints of the strip
                                                                  q_bar of the strip
                                                                  k_bar += sum of the strip

So a program of some rows is scheduled, whose number is a size of its own (`rows`), and its nest runs for one strip after the other, the
last of which is shorter. No loop is there twice for that, and nothing is computed twice. A sum over a strip is made aside and added as a
whole: blocks of a nest may write an element twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

from tensorexpr.codegen.lowering.context.arithmetic import add, constant, floordiv, minimum, mul, sub
from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import (
    buffers_written,
    expressions_in,
    loops_in,
    map_accesses,
    map_expressions,
    map_statements,
    stores_in,
    touched_in,
)
from tensorexpr.codegen.pieces.rows import Rows
from tensorexpr.ir import Access, Expr, Index, Size, apply, const
from tensorexpr.records import record, replace
from tensorexpr.traversal import free_names, fresh_name, replaced, size_names

ROWS = 64
"""Rows of a strip: enough for tiles, and so few that what lies between is near where rows are long."""
LANES = 16
"""Elements of a row of sums that are added at once."""


def in_strips(rows: Rows, nest: LoopNest) -> LoopNest | None:
    """The nest of a whole program from that for some of its rows, with strips in its loops over a batch; None where there are none."""
    if len(nest.kernels) != 1 or nest.checks or nest.atomics or any(b.within is not None for b in nest.workspace):
        return None
    (kernel,) = nest.kernels
    own, around, body = {rows.rows, rows.first}, list[For](), kernel.body
    while len(body) == 1 and isinstance(loop := body[0], For) and own.isdisjoint(size_names(loop.stop)):
        around.append(loop)
        body = loop.body
    if len(around) < 2 or around[0].kind != "parallel" or constant(around[0].stop) is None:
        return None
    names = {
        *rows.whole.types,
        *rows.whole.sizes,
        *nest.sizes,
        *(b.name for b in nest.workspace),
        *(s.index for s in loops_in(kernel.body)),
    }
    before, inside = _apart(rows, nest, body)
    sums = [_sum(rows, name, around, inside, names) for name in sorted(rows.sums)]
    strip, types = fresh_name("strip", names), rows.whole.types
    start = mul(Index(strip), const(ROWS))
    sizes: dict[Expr, Expr] = {Size(rows.rows): minimum(sub(rows.count, start), const(ROWS)), Size(rows.first): start}
    parts = {s.name: s for s in sums if s is not None}
    if len(parts) < len(rows.sums):
        return None
    kept = {b.name for b in nest.workspace}

    def placed(access: Access) -> Access:
        if access.tensor in parts:
            return parts[access.tensor].part(dict(enumerate(access.indices)))
        if access.tensor not in rows.tensors or access.tensor in kept:
            return access
        name, k = rows.tensors[access.tensor]
        return replace(access, tensor=name, indices=(*access.indices[:k], add(access.indices[k], start), *access.indices[k + 1 :]))

    least: dict[Expr, Expr] = {Size(rows.rows): const(ROWS)}

    def roomy(buffer: Buffer) -> Buffer:
        return replace(buffer, shape=tuple(replaced(e, least) for e in buffer.shape))

    def declared(s: Stmt) -> Block | None:
        return (replace(s, buffer=roomy(s.buffer), body=map_statements(s.body, declared)),) if isinstance(s, Alloc) else None

    inside = map_accesses(map_expressions(map_statements(inside, declared), lambda e: replaced(e, sizes)), placed)
    zeros = [s for each in parts.values() for s in each.cleared(names)]
    added = [s for each in parts.values() for s in each.added(names)]
    many = floordiv(add(rows.count, const(ROWS - 1)), ROWS)
    made: Block = (*before, *zeros, For(strip, const(0), many, (*inside, *added)))
    for loop in reversed(around):
        made = (replace(loop, body=made),)
    return replace(
        nest,
        parameters=tuple(
            Buffer(n, types[n].dtype, types[n].shape, "parameter") for n in (*(i.name for i in rows.whole.inputs), *rows.whole.outputs)
        ),
        workspace=(*map(roomy, nest.workspace), *(each.buffer for each in parts.values())),
        kernels=(replace(kernel, body=made),),
        sizes=rows.whole.sizes,
        streams=(),
        ahead=(),
    )


def _sizes(*block: Stmt) -> set[str]:
    return {name for e in expressions_in(block) for name in size_names(e)}


def _apart(rows: Rows, nest: LoopNest, body: Block) -> tuple[Block, Block]:
    """Statements that are the same for all strips, copies of operands, and others."""
    own = {rows.rows, rows.first}
    of_strips = {*rows.tensors, *rows.sums, *(b.name for b in nest.workspace if any(not own.isdisjoint(size_names(e)) for e in b.shape))}
    before, inside = list[Stmt](), list[Stmt]()
    for s in body:
        elsewhere = {name for other in body if other is not s for name in buffers_written((other,))}
        same = own.isdisjoint(_sizes(s)) and set(touched_in((s,))).isdisjoint(of_strips | elsewhere)
        (before if same else inside).append(s)
    return tuple(before), tuple(inside)


@record
class _Sum:
    """A sum over rows: the `indices` of its elements in one iteration of the loops around, those along `axes` aside; the buffer for its
    part of a strip, which has one of them for each slot."""

    name: str
    indices: tuple[Expr, ...]
    axes: tuple[int, ...]
    buffer: Buffer
    slot: str
    shape: tuple[Expr, ...]

    def element(self, at: Mapping[int, Expr]) -> Access:
        return Access(self.name, tuple(at.get(k, e) for k, e in enumerate(self.indices)), self.buffer.dtype)

    def part(self, at: Mapping[int, Expr]) -> Access:
        return Access(self.buffer.name, (Index(self.slot), *(at[k] for k in self.axes)), self.buffer.dtype)

    def cleared(self, taken: set[str]) -> Block:
        return self._loops(taken, lambda at: const(0, self.buffer.dtype))

    def added(self, taken: set[str]) -> Block:
        return self._loops(taken, lambda at: apply("add", self.element(at), self.part(at)))

    def _loops(self, taken: set[str], value: Callable[[Mapping[int, Expr]], Expr]) -> Block:
        """Stores a value to each element, in lanes where their number divides the last axis."""
        at: dict[int, Expr] = {}
        loops: list[tuple[str, Expr, str]] = []
        for axis in self.axes:
            name, length = fresh_name("e", taken), constant(self.shape[axis])
            if axis == self.axes[-1] and length is not None and length % LANES == 0:
                lane = fresh_name("e", taken)
                loops += [(name, const(length // LANES), "serial"), (lane, const(LANES), "vectorize")]
                at[axis] = add(mul(Index(name), const(LANES)), Index(lane))
            else:
                loops.append((name, self.shape[axis], "serial"))
                at[axis] = Index(name)
        to = self.element(at)
        body: Block = (Store(to.tensor, to.indices, value(at)),)
        return reduce(lambda inner, loop: (For(loop[0], const(0), loop[1], inner, loop[2]),), reversed(loops), body)


def _sum(rows: Rows, name: str, around: list[For], body: Block, taken: set[str]) -> _Sum | None:
    """A sum over rows, as statements store it; None where they do not have elements of their own in each iteration of loops around."""
    found, batch, type_ = {s.indices for s in stores_in(body) if s.buffer == name}, {loop.index for loop in around}, rows.whole.types[name]
    first = next(iter(found), ())
    axes = tuple(k for k in range(len(first)) if len({i[k] for i in found}) > 1 or not set(free_names(first[k])) <= batch)
    if not found or len(axes) == len(type_.shape):
        return None
    buffer = Buffer(fresh_name(f"{name}_part", taken), type_.dtype, (around[0].stop, *(type_.shape[k] for k in axes)), "workspace")
    return _Sum(name, first, axes, buffer, around[0].index, type_.shape)
