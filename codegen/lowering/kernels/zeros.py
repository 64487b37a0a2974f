"""Products with zero, summed once for all rows that they are added to.

    for c: for j in unroll: for z in unroll: for k in vectorize:      t[k] = -0.0
        acc[z, k] = acc[z, k] + 0.0 * w[c, j, k]                -->   for c: for j in unroll: for k in vectorize:
                                                                          t[k] = t[k] + 0.0 * w[c, j, k]
                                                                      for z in unroll: for k in vectorize: acc[z, k] = acc[z, k] + t[k]

Beyond a border a convolution multiplies its weights by zero, with all places of a tile in the same way. What comes out is zero, with one
sign or the other, or NaN where a weight is infinite or NaN; such values have the same sum in any order, so each result keeps its bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

from tensorexpr.codegen.lowering.context.arithmetic import constant
from tensorexpr.codegen.nest import LANES, Alloc, Block, Buffer, For, If, Stmt, Store
from tensorexpr.ir import Access, Apply, Const, Expr, Index, apply, const
from tensorexpr.records import replace
from tensorexpr.traversal import free_names, tensors_read

FEWEST = 4
"""Iterations around the rows from which on a sum of its own is worth its beginning and its end."""


def with_zeros_once(block: Block, fresh: Callable[[str], str]) -> Block:
    """The statements with sums of products with zero taken out of the loops over rows."""
    return tuple(made for s in block for made in _statement(s, fresh))


def _statement(s: Stmt, fresh: Callable[[str], str]) -> Block:
    match s:
        case For():
            apart = _apart(s, fresh) if s.kind == "serial" else None
            return (replace(s, body=with_zeros_once(s.body, fresh)),) if apart is None else (apart,)
        case Alloc():
            return (replace(s, body=with_zeros_once(s.body, fresh)),)
        case If():
            return (replace(s, then=with_zeros_once(s.then, fresh), otherwise=with_zeros_once(s.otherwise, fresh)),)
    return (s,)


def _apart(s: For, fresh: Callable[[str], str]) -> Stmt | None:
    """The loops with the sum in a buffer of its own; None where there is no such sum, or no rows share it."""
    loops = list(_chain(s))
    (inside,) = loops[-1].body if len(loops[-1].body) == 1 else (None,)
    lengths = {x.index: _length(x) for x in loops}
    if not isinstance(inside, Store) or None in lengths.values() or any(x.kind not in ("serial", "unroll", *LANES) for x in loops):
        return None
    here = Access(inside.buffer, inside.indices, inside.value.dtype)
    value = inside.value
    if not isinstance(value, Apply) or value.op.name != "add" or not value.dtype.is_float or here not in value.args:
        return None
    added = value.args[1 - value.args.index(here)]
    if not _is_zero(added) or inside.buffer in tensors_read(added):
        return None
    stored, needed = {n for e in inside.indices for n in free_names(e)}, set(free_names(added))
    rows = [x for x in loops if x.index in stored - needed]
    kept = [x for x in loops if x.index in stored & needed]
    again = [x for x in loops if x.index not in stored]
    times = prod(lengths[x.index] or 0 for x in again)
    if not kept or prod(lengths[x.index] or 0 for x in rows) < 2 or times < FEWEST:
        return None
    sums = Buffer(fresh(f"{inside.buffer}_zeros"), value.dtype, tuple(const(lengths[x.index] or 0) for x in kept), "local")
    at = tuple(apply("sub", Index(x.index), x.start) if constant(x.start) else Index(x.index) for x in kept)
    sum_ = Access(sums.name, at, value.dtype)
    begun = Store(sums.name, at, Const(-0.0, value.dtype))
    made = Store(sums.name, at, apply("add", sum_, added))
    given = Store(inside.buffer, inside.indices, apply("add", here, sum_))
    parts = ((kept, begun), ([x for x in loops if x not in rows], made), ([x for x in loops if x not in again], given))
    return Alloc(sums, tuple(nested(around, statement) for around, statement in parts))


def _chain(s: Stmt) -> Iterator[For]:
    """Loops that have nothing but each other inside, from the outermost."""
    while isinstance(s, For):
        yield s
        if len(s.body) != 1:
            return
        s = s.body[0]


def nested(loops: list[For], body: Stmt) -> Stmt:
    """A statement in loops, of which the first is the outermost."""
    for loop in reversed(loops):
        body = replace(loop, body=(body,))
    return body


def _length(loop: For) -> int | None:
    start, stop = constant(loop.start), constant(loop.stop)
    return None if start is None or stop is None or stop <= start else stop - start


def _is_zero(expr: Expr) -> bool:
    """Whether a value is zero, of either sign, or NaN."""
    if isinstance(expr, Const):
        return bool(expr.value == 0)
    return isinstance(expr, Apply) and expr.op.name == "mul" and any(map(_is_zero, expr.args))
