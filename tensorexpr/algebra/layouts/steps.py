"""What the steps of a scan reduce across its rows is turned around once, in front of the scan, and so are a few columns.

    for t in range(T):                                  r[k, j] = w[j, k]
        h[i, j] = sum(s[i, k] * w[j, k] for k)   -->    for t in range(T):
        ...                                                 h[i, j] = sum(s[i, k] * r[k, j] for k)

Recurrent cells read their weights as they lie in layers, an output a row. Lanes go along the last axis of a result, so each step would
gather them. A schedule copies operands of products outside of scans; what all steps read is no matter of a schedule of one of them.

Results of fewer columns than a vector has lanes have these along the reduction, where the other factor lies side by side:

    t[i, j] = sum(a[i, k] * b[k, j] for k), j < 3   -->   r[j, k] = b[k, j];  t[i, j] = sum(a[i, k] * r[j, k] for k)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from tensorexpr.algebra.layouts.slices import REUSED
from tensorexpr.ir import Access, Apply, Axis, Const, Define, Definition, Expr, Index, Program, Reduce, Scan, TensorType, const
from tensorexpr.records import replace
from tensorexpr.simplify.passes.amounts import amount, elements, points
from tensorexpr.traversal import bottom_up, expressions, free_names, fresh_name, walk, with_bodies

T = TypeVar("T")
COLUMNS = 256
"""Bits of a row of results from which on lanes along it are as good: half a vector."""
LONG = 64
"""Elements of a reduction from which on adding up its lanes costs little."""
NEAR = 1 << 24
"""Bytes of the other factor up to which a core has it near: from memory its rows, several at a time, come at half the speed or less."""


def with_operands_turned(program: Program) -> Program:
    """The program in which reductions of products and sums inside of scans, and those of a few columns, read along their lanes.

    Requires: a simplified program. Ensures: every value is kept bit for bit.
    """
    types = program.types
    taken = {*types, *program.sizes, *(n for d in with_bodies(program.definitions) for n, _ in d.results)}
    made: dict[tuple[str, int], str] = {}
    definitions: list[Definition] = []
    for d in program.definitions:
        if isinstance(d, Scan):
            wanted = _across(d, types, amount(d.length, {}) or 0.0)
        else:
            wanted = ((access.tensor, at) for access, at in _columns(d, types)) if isinstance(d, Define) else iter(())
        fresh: list[Define] = []
        for key in dict.fromkeys(wanted):
            if key not in made:
                name, at = key
                made[key] = fresh_name(f"{name}_turned", taken)
                fresh.append(_turned(made[key], name, types[name], at))
        definitions += fresh
        definitions.append(_reading(d, types, made) if made else d)
    return replace(program, definitions=tuple(definitions)) if made else program


def turned_operands(program: Program) -> frozenset[str]:
    """Definitions with the elements of a tensor in another order that scans and sums of a few columns alone read: they are not computed
    again in each step."""
    copies = {d.name for d in program.definitions if isinstance(d, Define) and _is_turned(d, program.types)}
    for d in program.definitions if copies else ():
        if not isinstance(d, Scan):
            along = {access.tensor for access, _, _ in _products(d)} if isinstance(d, Define) else set()
            copies -= {e.tensor for root in expressions(d) for e in walk(root) if isinstance(e, Access)} - along
    return frozenset(copies)


def _is_turned(d: Define, types: Mapping[str, TensorType]) -> bool:
    if not isinstance(d.value, Access) or len(d.axes) < 2:
        return False
    names = [i.name for i in d.value.indices if isinstance(i, Index)]
    extents = {a.index: a.stop for a in d.axes if a.start == const(0)}
    whole = [extents.get(n) for n in names] == list(types[d.value.tensor].shape)
    return whole and sorted(names) == sorted(a.index for a in d.axes) and names != [a.index for a in d.axes]


def _across(scan: Scan, types: Mapping[str, TensorType], steps: float) -> Iterator[tuple[str, int]]:
    """The tensors from outside that reductions in a scan read across their rows, each with the axis that lanes go along."""
    for d in scan.body:
        if isinstance(d, Scan):
            yield from _across(d, types, steps * (amount(d.length, {}) or 0.0))
        elif isinstance(d, Define):
            for access, at, often in _reads(d, types):
                if often * steps >= REUSED * elements(types[access.tensor].shape):
                    yield access.tensor, at


def _reads(d: Define, types: Mapping[str, TensorType]) -> Iterator[tuple[Access, int, float]]:
    """Factors and terms whose rows a reduction goes along, while another axis of theirs is the last of the definition: with that axis and
    the points of the reduction."""
    lanes = d.axes[-1].index if d.axes else ""
    for e in walk(d.value):
        value = e.values[0] if isinstance(e, Reduce) and len(e.values) == 1 else None
        if isinstance(e, Reduce) and isinstance(value, Apply) and value.op.name in ("mul", "add", "sub"):
            for access in value.args:
                if isinstance(access, Access) and access.tensor in types and len(access.indices) > 1:
                    at = _place(access, lanes, {a.index for a in e.axes})
                    if at is not None:
                        yield access, at, points((*d.axes, *e.axes))


def _columns(d: Define, types: Mapping[str, TensorType]) -> Iterator[tuple[Access, int]]:
    """Factors of which a sum reads a few columns often enough, each with the axis that the sum goes along."""
    for access, other, e in _products(d):
        at = len(access.indices) - 2  # pictures of few columns have more points side by side: their rows follow each other
        if at < 0 or access.indices[at:] != (Index(e.index), Index(d.axes[-1].index)) or access.tensor not in types:
            continue
        size = elements(types[access.tensor].shape)
        often = points(d.axes) * (amount(e.stop, {}) or 0.0) >= REUSED * size > 0
        near = other.tensor in types and elements(types[other.tensor].shape) * other.dtype.itemsize <= NEAR
        if often and near and sum(e.index in free_names(i) for i in access.indices) == 1:
            yield access, at


def _products(d: Define) -> Iterator[tuple[Access, Access, Axis]]:
    """The factors that depend on the column in long sums of products for fewer columns than there are lanes, the other factor of which lies
    along the sum: with that one, and the axis."""
    column = d.axes[-1] if d.axes else None
    if column is None or not isinstance(column.stop, Const) or not 1 < int(column.stop.value) * max(32, d.value.dtype.bits) < COLUMNS:
        return
    for e in walk(d.value):
        value = e.values[0] if isinstance(e, Reduce) and len(e.values) == 1 else None
        if not isinstance(e, Reduce) or not isinstance(value, Apply) or value.op.name != "mul":
            continue
        for own, other in (value.args, value.args[::-1]):
            if isinstance(own, Access) and isinstance(other, Access) and column.index not in free_names(other):
                for axis in e.axes:
                    if other.indices and other.indices[-1] == Index(axis.index) and (amount(axis.stop, {}) or 0.0) >= LONG:
                        yield own, other, axis


def _place(access: Access, lanes: str, reduced: set[str]) -> int | None:
    """The axis of which an index, or one some places from it, is the subscript, where a reduction goes along the last axis."""
    last = access.indices[-1]
    found = [at for at, i in enumerate(access.indices) if lanes in free_names(i)]
    if len(found) != 1 or not isinstance(last, Index) or last.name not in reduced or found[0] == len(access.indices) - 1:
        return None
    return found[0] if _from(access.indices[found[0]]) == Index(lanes) else None


def _from(e: Expr) -> Expr:
    """The index that an expression is some places from."""
    while isinstance(e, Apply) and e.op.name in ("add", "sub") and isinstance(e.args[1], Const):
        e = e.args[0]
    return e


def _turned(name: str, tensor: str, type_: TensorType, at: int) -> Define:
    axes = tuple(Axis(f"{name}_{k}", const(0), extent) for k, extent in enumerate(type_.shape))
    return Define(name, _moved(axes, at), Access(tensor, tuple(Index(a.index) for a in axes), type_.dtype))


def _moved(entries: tuple[T, ...], at: int) -> tuple[T, ...]:
    """Entries of axes with that of one as the last."""
    return (*entries[:at], *entries[at + 1 :], entries[at])


def _reading(d: Definition, types: Mapping[str, TensorType], made: Mapping[tuple[str, int], str]) -> Definition:
    """The scan, or the sums of a few columns, reading what was made."""
    if isinstance(d, Define):
        return _with_moves(d, dict(_columns(d, types)), made)
    if not isinstance(d, Scan):
        return d

    def changed(one: Definition) -> Definition:
        if isinstance(one, Scan):
            return replace(one, body=tuple(map(changed, one.body)))
        return _with_moves(one, {access: at for access, at, _ in _reads(one, types)}, made) if isinstance(one, Define) else one

    return changed(d)


def _with_moves(d: Define, moves: Mapping[Access, int], made: Mapping[tuple[str, int], str]) -> Define:
    """A definition in which these reads go to what was made of what they read."""
    known = {access: at for access, at in moves.items() if (access.tensor, at) in made}

    def put(e: Expr) -> Expr:
        if isinstance(e, Access) and e in known:
            return replace(e, tensor=made[e.tensor, known[e]], indices=_moved(e.indices, known[e]))
        return e

    return replace(d, value=bottom_up(d.value, put)) if known else d
