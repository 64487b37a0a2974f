"""Sums over the rows and over the columns of the same pairs: one pass over the pairs for both.

The gradients of what compares every point with every other one are sums over the others: for each row over the columns, and for each
column over the rows. Each by itself computes the costly values of all pairs (an exponential of a distance) again. In one pass the sums of
rows stay in registers, those of a block of columns in the first cache, a vector of rows for each:

    A[i] = sum(f(i, j) for j);  B[j] = sum(g(i, j) for i)
    -->  for part of the rows: for block of columns: for i: for j in block: { A[i] += f(i, j); B_parts[part, j] += g(i, j) }
         B[j] = sum(B_parts[part, j] for part)

`rfactor` makes the parts; what has the same loops and values is one pass when it is lowered (`lowering/kernels/merging`). Sums over rows
are kept by blocks of columns as well where a definition has further sums, or where blocks do not divide the columns. Blocks and parts are
all as long: the last one begins where it fits. How many parts there are follows from extents alone, so do bits; they are far fewer than the
rows, so they are small beside the pairs, and adding them up costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from tensorexpr.codegen.planners.tiles.parts import LEAST_WORK
from tensorexpr.codegen.schedule.analysis.reductions import Group, Parts
from tensorexpr.codegen.schedule.analysis.state import program_facts
from tensorexpr.codegen.schedule.analysis.strides import reaches
from tensorexpr.codegen.schedule.analysis.work import lengths, operations, total_work
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
"""Operations of a pair beyond which computing them once is worth more than keeping the sums of columns in the first cache; for each of
these sums, where those over rows are kept by blocks, too (N-body forces, with 21 for three sums, are slower so)."""


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
    order: int = 0
    beside: int = 0
    """Which of the sums in its loop it is, and how many others there are."""
    apart: bool = False
    """Whether its definition has further sums: then it is kept by blocks and parts."""

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
        free = [x for x in found if x.name == host.name or not _depend(s, x.name, host.name)]
        same = [host, *(x for x in free if x.extents == host.extents and x.values & host.values)]
        across = [x for x in free if x.extents == host.extents[::-1] and x.turned & host.values]
        for rows, columns in ((same, across), (across, same)) if across else ():
            made = _in_one_pass(s, rows, columns)
            if made:
                planned.update(made)
                found = [x for x in found if x not in same and x not in across]
                break
    return planned


def _depend(s: Planned, one: str, other: str) -> bool:
    """Whether the later one of two definitions needs the other, itself or through others."""
    facts = program_facts(s.state.program)
    first, last = sorted((one, other), key=lambda n: facts.numbers[n])
    todo = [last]
    seen: set[str] = set()
    while todo:
        read = {n for n in facts.producers.get(todo.pop(), ()) if facts.numbers.get(n, -1) >= facts.numbers[first]} - seen
        if first in read:
            return True
        seen |= read
        todo += read
    return False


def _sums(s: Planned, definition: Define, shapes: Mapping[str, tuple[Expr, ...]]) -> Iterator[Sum]:
    """The sums that a definition is made of, if each is one over pairs."""
    name = definition.name
    if name not in s.state.table or not _is_plain(s, name):
        return
    parts = s.state.stage(name).parts
    top = {g.axes[0].index: g for g in parts.groups if g.scope is None and _is_plain_sum(g)}
    if not all(g.scope is not None or _is_plain_sum(g) for g in parts.groups) or not all(
        _is_whole(a) for g in parts.groups for a in g.axes
    ):
        return
    nodes = list(dict.fromkeys(_outermost(definition.value)))
    loops = [
        next((g.axes[0] for g in (*(top[a.index] for a in n.axes if a.index in top), *top.values()) if _alike(g, n)), None) for n in nodes
    ]
    found = [None if loop is None else _over_pairs(s, definition, node, loop, shapes) for node, loop in zip(nodes, loops, strict=True)]
    for at, one in enumerate(found):
        if one is not None and None not in found:
            yield replace(one, order=loops[:at].count(loops[at]), beside=loops.count(loops[at]) - 1, apart=len(found) > 1)


def _outermost(node: Expr) -> Iterator[Reduce]:
    """The reductions of an expression that are in no other."""
    if isinstance(node, Reduce):
        yield node
    else:
        for child in children(node):
            yield from _outermost(child)


def _alike(group: Group, node: Reduce) -> bool:
    """Whether a reduction may stand in the loop of a group."""
    return len(node.axes) == 1 and (group.axes[0].start, group.axes[0].stop) == (node.axes[0].start, node.axes[0].stop)


def _over_pairs(s: Planned, definition: Define, node: Reduce, loop: Axis, shapes: Mapping[str, tuple[Expr, ...]]) -> Sum | None:
    """A reduction over a loop, as a sum over pairs of what is worth computing once; None where it is none."""
    parts, over = s.state.stage(definition.name).parts, node.axes[0].index
    known = lengths(parts)
    axes = {a.index: a for a in parts.axes if known[a.index] > 1 and _is_whole(a)}
    values: dict[str, list[Expr]] = {}
    for value in _worthy(node, False):
        used = {n for n in free_names(value) if n in axes or n == over}
        if over in used and len(used) == 2:
            (own,) = used - {over}
            values.setdefault(own, []).append(value)
    if len(values) != 1:
        return None
    ((index, found),) = values.items()
    reads = reaches((*parts.values, *(v for g in parts.groups for m in g.members for v in m.values)), shapes)
    if any(r.stride(index) and r.stride(loop.index) for r in reads) or _held(parts, axes[index]) > MOST_HELD:
        return None  # a matrix of pairs is read along its rows; and what finds no register is read again for each pair
    straight, turned = (frozenset(_canonical(e, {index: Index(a), over: Index(b)}) for e in found) for a, b in (("a", "b"), ("b", "a")))
    return Sum(definition.name, axes[index], loop, straight, turned)


def _is_plain(s: Planned, name: str) -> bool:
    stage = s.state.table.get(name)
    if stage is None or stage.place is not None or stage.relations or stage.scan is not None or stage.parts.unproved:
        return False
    return not s.state.placed_in(name)


def _is_plain_sum(group: Group) -> bool:
    """Whether a group is sums over a single axis, of all of its points, in any order."""
    return len(group.axes) == 1 and not (group.guard or group.where or is_ordered(group))


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
    length, block = _parts(extent, lanes, ROWS * wide), _block(others, min(BLOCKS[1], NEAREST // (wide * s.target.vector_bits // 8)))
    work = sum(total_work(s.state.stage(name).parts) for name in dict.fromkeys(each.name for each in (*rows, *columns)))
    names = list(dict.fromkeys(each.name for each in (*rows, *columns)))
    shared = {e for each in rows for e in each.values} & {e for each in columns for e in each.turned}
    cheap = any(each.apart for each in rows) and max(map(operations, shared)) <= WORTH * wide
    if cheap or length < ROWS * wide or block < BLOCKS[0] or work < PARTS[0] * LEAST_WORK:
        return []
    if not s.decisions.wanted(f"{names[0]}: one pass with {', '.join(names[1:]) or 'itself'}"):
        return []
    before = s.state
    if any((each.name, each.over) == (other.name, other.over) for each in rows for other in columns):
        block = length  # one loop, cut once
    blocked = others % block != 0 or any(each.apart for each in rows)
    taken: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {}

    def apart(each: Sum, count: int) -> tuple[str, str, str] | None:
        """The partial sums over so many points each: their definition, its loop over the parts, and the one inside; None where sums of the
        definition are equal."""
        key = each.name, each.over.index
        if key not in taken:
            part, _ = s[each.name].split(each.over.index, count)
            taken[key] = part, s[each.name].rfactor(part, even=True)
        part, names = taken[key]
        if len(names) != each.beside + 1:
            return None
        (group,) = (g for g in s.state.stage(names[each.order]).parts.groups if g.scope is None)
        return names[each.order], part, group.axes[0].index

    def loops_of(each: Sum, row: bool) -> _Loops | None:
        if row and not blocked:
            return _Loops(each.name, each.own.index, each.over.index)
        found = apart(each, block if row else length)
        if found is None:
            return None
        name, part, inner = found
        return _Loops(name, each.own.index, inner, blocks=part) if row else _Loops(name, inner, each.own.index, part=part)

    try:
        all_loops = [loops_of(each, True) for each in rows] + [loops_of(each, False) for each in columns]
        made = [loops for loops in all_loops if loops is not None]
        if len(made) < len(all_loops):
            s.state = before
            return []
        for loops in made:
            _cut(s, loops, length, lanes, block)
    except ScheduleError:
        s.state = before
        return []
    return [loops.name for loops in made]


@record
class _Loops:
    """The loops of a sum: over rows and columns, or over `parts` of the rows or `blocks` of the columns and inside one."""

    name: str
    rows: str
    columns: str
    part: str | None = None
    blocks: str | None = None


def _parts(extent: int, lanes: int, least: int) -> int:
    """The rows of a part: whole vectors, cut so that the last part is as full as can be."""
    lengths = [-(-extent // (count * lanes)) * lanes for count in range(PARTS[0], PARTS[1] + 1)]
    able = [n for n in lengths if n >= least]
    return min(able, key=lambda n: -(-extent // n) * n, default=0)


def _block(extent: int, most: int) -> int:
    """The columns of a block, at most so many: as many in all of them where that is half of the most."""
    return next((b for b in range(most, most // 2, -1) if extent % b == 0), -(-extent // -(-extent // most)))


def _sums_of(s: Planned, each: Sum) -> int:
    """How many sums there are for each point of the own axis."""
    parts = s.state.stage(each.name).parts
    known = lengths(parts)
    return prod(known[a.index] for a in parts.axes if a.index != each.own.index)


def _cut(s: Planned, loops: _Loops, length: int, lanes: int, block: int) -> None:
    """The loops of one sum: a part of the rows, blocks of columns, rows, columns, what is computed for a pair, and lanes of rows."""
    name, handle = loops.name, s[loops.name]
    part, rows = (loops.part, loops.rows) if loops.part is not None else handle.split(loops.rows, length, "shift")
    tail = "peel" if loops.part is None else "shift"  # blocks of a sum over columns that is kept whole divide them
    blocks, inner = (loops.blocks, loops.columns) if loops.blocks is not None else handle.split(loops.columns, block, tail)
    outer, vector = handle.split(rows, lanes)
    stage = s.state.stage(name)
    inside = [x for g in stage.parts.groups if g.scope is not None for x in g.indices]
    rest = [x for x in stage.order if x not in (part, outer, vector, blocks, inner, *inside)]
    handle.reorder(part, blocks, outer, inner, *(x for x in stage.order if x in inside), *rest, vector)
    for loop in (*inside, *rest):
        if stage.extent(loop) != 1:
            handle.unroll(loop)
    handle.vectorize(vector)
