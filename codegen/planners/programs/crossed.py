"""Sums over the rows and over the columns of the same pairs: one pass over the pairs for both.

The gradients of what compares every point with every other one are sums over the others: for each row over the columns, and for each
column over the rows. Each by itself computes the costly values of all pairs (an exponential of a distance) again. In one pass the sums of
rows stay in registers, those of a block of columns in the first cache, a vector of rows for each:

    A[i] = sum(f(i, j) for j);  B[j] = sum(g(i, j) for i)
    -->  for part of the rows: for block of columns: for i: for j in block: { A[i] += f(i, j); B_parts[part, j] += g(i, j) }
         B[j] = sum(B_parts[part, j] for part)

`rfactor` makes the parts, `compute_with` the one pass. How many parts there are follows from extents alone, so do bits; they are far fewer
than the rows, so they are small beside the pairs, and adding them up costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from tensorexpr.codegen.planners.programs.passes import is_plain
from tensorexpr.codegen.planners.tiles.parts import LEAST_WORK
from tensorexpr.codegen.schedule.analysis.reductions import Group, Parts
from tensorexpr.codegen.schedule.analysis.strides import reaches
from tensorexpr.codegen.schedule.analysis.work import lengths, operations, total_work
from tensorexpr.codegen.schedule.legal.alongside import depends_on
from tensorexpr.codegen.schedule.legal.legality import is_ordered
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.dtypes import accumulator
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Apply, Axis, Const, Define, Expr, Index, Reduce
from tensorexpr.records import record, replace
from tensorexpr.traversal import children, free_names, map_children

PARTS = (16, 32)
"""The number of parts: of the numbers from the first to the second, the least that cuts rows into whole vectors."""
ROWS = 32
"""Rows of a part at least, for each sum over them: then parts are small beside the pairs, and vectors are rarely added up."""
MOST_HELD = 12
"""Registers of a row at most: its sums, and what is read of it."""
NEAREST = 32 << 10
"""Bytes of the sums of a block of columns, each a vector, which the first cache holds."""
BLOCKS = (16, 256)
"""Columns of a block at least and at most."""
WORTH = 8
"""Operations of a pair beyond which computing them once is worth more than keeping the sums of columns in the first cache."""


@record
class Sum:
    """A sum at each point of one axis over all points of another, of what is computed of the pairs."""

    name: str
    own: Axis
    over: Axis
    values: frozenset[Expr]
    """What is worth computing once for a pair, by the names of axes: its own `a`, the other `b`."""
    turned: frozenset[Expr]
    """The same with the axes called the other way."""

    @property
    def extents(self) -> tuple[int, int]:
        return _length(self.own), _length(self.over)


def crossed_sums(s: Planned, shapes: Mapping[str, tuple[Expr, ...]]) -> set[str]:
    """Runs sums over the rows and over the columns of the same pairs in one pass; the definitions that have their loops by that."""
    if s.target.is_gpu:
        return set()
    found = [made for d in s.state.program.definitions if isinstance(d, Define) for made in _sums(s, d, shapes)]
    planned: set[str] = set()
    while found:
        host = found.pop(0)
        free = [x for x in found if not depends_on(s.state, x.name, host.name) and not depends_on(s.state, host.name, x.name)]
        same = [host, *(x for x in free if x.extents == host.extents and x.values & host.values)]
        across = [x for x in free if x.extents == host.extents[::-1] and x.turned & host.values]
        for rows, columns in ((same, across), (across, same)) if across else ():
            made = _in_one_pass(s, rows, columns)
            if made:
                planned.update(made)
                found = [x for x in found if x not in same and x not in across]
                break
    return planned


def _sums(s: Planned, definition: Define, shapes: Mapping[str, tuple[Expr, ...]]) -> Iterator[Sum]:
    """The sum that a definition is, if it is one over pairs."""
    name = definition.name
    if name not in s.state.table or not is_plain(s, name):
        return
    parts = s.state.stage(name).parts
    top = [g for g in parts.groups if g.scope is None]
    if len(top) != 1 or not _is_plain_sum(top[0]) or not all(_is_whole(a) for g in parts.groups for a in g.axes):
        return
    (over,) = top[0].axes
    known = lengths(parts)
    axes = {a.index: a for a in parts.axes if known[a.index] > 1 and _is_whole(a)}
    values: dict[str, list[Expr]] = {}
    for value in _worthy(definition.value, False):
        used = {n for n in free_names(value) if n in axes or n == over.index}
        if over.index in used and len(used) == 2:
            (own,) = used - {over.index}
            values.setdefault(own, []).append(value)
    if len(values) != 1:
        return
    ((index, found),) = values.items()
    reads = reaches((*parts.values, *(v for g in parts.groups for m in g.members for v in m.values)), shapes)
    if any(r.stride(index) and r.stride(over.index) for r in reads) or _held(parts, axes[index]) > MOST_HELD:
        return  # a matrix of pairs is read along its rows; and what finds no register is read again for each pair
    named = [frozenset(_canonical(e, {index: Index(a), over.index: Index(b)}) for e in found) for a, b in (("a", "b"), ("b", "a"))]
    yield Sum(name, axes[index], over, *named)


def _is_plain_sum(group: Group) -> bool:
    """Whether a group is one sum over a single axis, of all of its points, in any order."""
    return len(group.axes) == 1 and len(group.members) == 1 and not (group.guard or group.where or is_ordered(group))


def _is_whole(axis: Axis) -> bool:
    return isinstance(axis.start, Const) and isinstance(axis.stop, Const) and int(axis.start.value) == 0


def _length(axis: Axis) -> int:
    assert isinstance(axis.stop, Const)
    return int(axis.stop.value)


def _held(parts: Parts, own: Axis) -> int:
    """Registers of a point of the own axis, about: its sums, and what the reductions inside read of it."""
    known = lengths(parts)
    inside = (prod(known[i] for i in g.indices) for g in parts.groups if g.scope is not None)
    return prod(known[a.index] for a in parts.axes if a.index != own.index) + sum(n for n in inside if n > 1)


def _worthy(node: Expr, inside: bool) -> Iterator[Expr]:
    """What is worth computing once, inside the reductions of an expression."""
    if inside and isinstance(node, Apply) and node.dtype.is_float and operations(node) > WORTH:
        yield node
    for child in children(node):
        yield from _worthy(child, inside or isinstance(node, Reduce))


def _canonical(node: Expr, names: Mapping[str, Expr], depth: int = 0) -> Expr:
    """A value with other names for indices, those of reductions inside by how deep they are."""
    if isinstance(node, Index):
        return names.get(node.name, node)
    if isinstance(node, Reduce):
        bound = {a.index: Index(f"{depth} {k}") for k, a in enumerate(node.axes)}
        axes = tuple(Axis(bound[a.index].name, a.start, a.stop) for a in node.axes)
        return map_children(replace(node, axes=axes), lambda child: _canonical(child, {**names, **bound}, depth + 1))
    return map_children(node, lambda child: _canonical(child, names, depth))


def _in_one_pass(s: Planned, rows: list[Sum], columns: list[Sum]) -> list[str]:
    """Gives sums their loops: those over rows by parts of these, and all cut alike; none where the extents have no such cuts."""
    lanes = min(s.target.lanes(accumulator(v.dtype)) for each in (*rows, *columns) for v in s.state.stage(each.name).parts.values)
    wide = sum(_sums_of(s, each) for each in columns)
    extent, others = rows[0].extents
    parts = next((p for p in range(PARTS[0], PARTS[1] + 1) if extent % (p * lanes) == 0 and extent // p >= ROWS * wide), None)
    widest = min(BLOCKS[1], NEAREST // (wide * s.target.vector_bits // 8))
    block = next((b for b in range(widest, BLOCKS[0] - 1, -1) if others % b == 0), None)
    work = sum(total_work(s.state.stage(each.name).parts) for each in (*rows, *columns))
    names = [each.name for each in (*rows, *columns)]
    if parts is None or block is None or work < PARTS[0] * LEAST_WORK:
        return []
    if not s.decisions.wanted(f"{names[0]}: one pass with {', '.join(names[1:])}"):
        return []
    before, made = s.state, []
    try:
        for each in rows:
            part, inner = s[each.name].split(each.own.index, extent // parts)
            _cut(s, each.name, part, inner, each.over.index, lanes, block)
            made.append(each.name)
        for each in columns:
            part, inner = s[each.name].split(each.over.index, extent // parts)
            (name,) = s[each.name].rfactor(part)
            _cut(s, name, part, inner, each.own.index, lanes, block)
            made.append(name)
        for name in made[1:]:
            s[name].compute_with(made[0])
    except ScheduleError:
        s.state = before
        return []
    return made


def _sums_of(s: Planned, each: Sum) -> int:
    """How many sums there are for each point of the own axis."""
    parts = s.state.stage(each.name).parts
    known = lengths(parts)
    return prod(known[a.index] for a in parts.axes if a.index != each.own.index)


def _cut(s: Planned, name: str, part: str, rows: str, columns: str, lanes: int, block: int) -> None:
    """The loops of one sum: a part of the rows, blocks of columns, rows, columns, what is computed for a pair, and lanes of rows."""
    handle = s[name]
    outer, vector = handle.split(rows, lanes)
    blocks, inner = handle.split(columns, block)
    stage = s.state.stage(name)
    inside = [x for g in stage.parts.groups if g.scope is not None for x in g.indices]
    rest = [x for x in stage.order if x not in (part, outer, vector, blocks, inner, *inside)]
    handle.reorder(part, blocks, outer, inner, *(x for x in stage.order if x in inside), *rest, vector)
    for loop in (*inside, *rest):
        if stage.extent(loop) != 1:
            handle.unroll(loop)
    handle.vectorize(vector)
