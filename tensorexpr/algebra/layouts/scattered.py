"""Scatters make tensors as they are read, and go along their rows.

    S = scatter({(j, k[i]): x[i, j] for j, i});   t[r, j] = S[j, r]   -->   t = scatter({(k[i], j): x[i, j] for i, j})

What turns a scatter around, and does nothing else, is that scatter with its subscripts in another order. An axis that is the last subscript
by itself is the innermost loop: points that differ in it reach different elements, each of which is reached in the same order as before.
"""

from __future__ import annotations

from collections import Counter

from tensorexpr.ir import Access, Axis, Define, Definition, Expr, Index, Program, Scatter, TensorType
from tensorexpr.records import replace
from tensorexpr.simplify.passes.definitions import with_definitions
from tensorexpr.traversal import free_names, reads


def with_scatters_turned(program: Program) -> Program:
    """The program with scatters in the order in which their only reader has their axes, and with loops along rows.

    Requires: nothing. Ensures: every value is kept bit for bit.
    """
    read = Counter(name for d in program.definitions for name in reads(d))
    alone = {d.name: d for d in program.definitions if isinstance(d, Scatter) and d.name not in program.outputs and read[d.name] == 1}
    turned: dict[str, Scatter] = {}  # by the name of what turns it
    for d in program.definitions:
        if isinstance(d, Define) and isinstance(d.value, Access) and d.value.tensor in alone:
            order = _order(d, alone[d.value.tensor].type.shape)
            if order is not None:
                turned[d.name] = _turned(alone[d.value.tensor], d.name, order)
                del alone[d.value.tensor]
    gone = {d.value.tensor for d in program.definitions if isinstance(d, Define) and d.name in turned and isinstance(d.value, Access)}
    kept = (turned.get(d.results[0][0], d) for d in program.definitions if d.results[0][0] not in gone)
    return with_definitions(program, map(_along_rows, kept))


def _order(copy: Define, shape: tuple[Expr, ...]) -> tuple[int, ...] | None:
    """For each axis of a copy the axis of the tensor that it is; None where it is no copy of all elements."""
    assert isinstance(copy.value, Access)
    names, found = [a.index for a in copy.axes], [e.name for e in copy.value.indices if isinstance(e, Index)]
    if len(found) != len(shape) or sorted(found) != sorted(names):
        return None
    order = tuple(found.index(name) for name in names)
    return order if tuple(shape[at] for at in order) == tuple(a.stop for a in copy.axes) else None


def _turned(d: Scatter, name: str, order: tuple[int, ...]) -> Scatter:
    shape = tuple(d.type.shape[at] for at in order)
    return replace(d, name=name, type=TensorType(shape, d.type.dtype), indices=tuple(d.indices[at] for at in order))


def _along_rows(d: Definition) -> Definition:
    """A scatter whose innermost loop is the axis that is its last subscript."""
    if not isinstance(d, Scatter) or not d.indices or not isinstance(d.indices[-1], Index) or len(d.axes) < 2:
        return d
    last = d.indices[-1].name
    inner = tuple(a for a in d.axes if a.index == last)
    if not inner or d.axes[-1] == inner[0] or any(last in _bounds(a) for a in d.axes) or _bounds(inner[0]):
        return d
    return replace(d, axes=(*(a for a in d.axes if a.index != last), *inner))


def _bounds(axis: Axis) -> set[str]:
    return {*free_names(axis.start), *free_names(axis.stop)}
