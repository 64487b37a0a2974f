"""Accumulations under a condition, as a choice between what was and what comes: operands are then read whatever the condition says.

    if (s >= q - 55 && s < q + 1) {                         const float t0 = sum[c][q] + head_tile[k][q] * w_tile[k][c];
      sum[c][q] = sum[c][q] + head_tile[k][q] * w_tile[k][c];    -->    sum[c][q] = s >= q - 55 && s < q + 1 ? t0 : sum[c][q];
    }

A read under a condition is made by itself: the assembler does not join it with its neighbors to one of sixteen bytes, nor keep it for
the next point that asks for the same. Where all that is read is local and within its buffer at all points, it may be read in any case; the
product is the same instruction, under a predicate.
"""

from __future__ import annotations

from tensorexpr.codegen.nest import If, Stmt, Store
from tensorexpr.ir import Access, Expr, conjunction
from tensorexpr.traversal import tensors_read, walk


def under_condition(s: If) -> tuple[Expr, Store, list[Access]] | None:
    """The condition that an update of one element stands under, the update, and what it reads; None where statements are something else
    or the condition reads, too."""
    conditions: list[Expr] = []
    body: tuple[Stmt, ...] = (s,)
    while len(body) == 1 and isinstance(body[0], If) and not body[0].otherwise:
        conditions.append(body[0].condition)
        body = body[0].then
    store = body[0] if len(body) == 1 else None
    if not isinstance(store, Store) or not store.value.dtype.is_float:
        return None
    condition = conjunction(tuple(conditions))
    if any(map(tensors_read, (condition, *store.indices))):
        return None
    read = [n for n in walk(store.value) if isinstance(n, Access)]
    own = Access(store.buffer, store.indices, store.value.dtype)
    return (condition, store, read) if own in read and len(read) > 1 else None
