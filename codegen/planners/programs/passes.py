"""Sums over what another definition goes through as well: one pass over it for both.

The gradient of a scale or a bias is a sum over all rows of what the gradient of the input is made of, element by element. Each by itself
reads the same arrays from memory again, and computes the same of them. So the sums are taken apart by blocks of rows (`rfactor`), the
other definition runs in the same blocks, and both in the same loops (`compute_with`):

    for block: { S_parts[block] = 0; for row in block: { y[row] = f(x[row]); S_parts[block] += g(x[row]) } };  S = sum of S_parts

How many blocks there are follows from extents, not from the number of cores.

Reductions whose loops came out alike, and which compute the same costly value at each point (the exponential of a distance, for a result
and for gradients by it), run in the same loops as well: the value is computed once.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tensorexpr.codegen.planners.programs.flat import is_elementwise
from tensorexpr.codegen.planners.tiles.parts import LEAST_WORK, MOST_PARTS, even_block
from tensorexpr.codegen.schedule.analysis.state import Stage, accesses_of, definition_named, program_facts
from tensorexpr.codegen.schedule.analysis.work import bytes_of, is_contraction, lengths, total_work
from tensorexpr.codegen.schedule.definitions.recompute import DEAR
from tensorexpr.codegen.schedule.legal.alongside import depends_on
from tensorexpr.codegen.schedule.legal.legality import is_ordered
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.dtypes import accumulator
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Apply, Axis, Define, Expr, Index, Reduce
from tensorexpr.records import record, replace
from tensorexpr.traversal import children, map_children

SPARED = 64
"""How many times as large as the partial results what is read is."""
LEAST_PARTS = 16
VECTORS = 4
"""Vectors in one vectorized loop over elements: what all definitions there make of them is in registers."""


@record
class Pass:
    """A definition, and the partial sums that run in its loops: blocks of so many of its rows."""

    host: str
    others: tuple[str, ...]
    block: int


def one_pass(s: Planned) -> tuple[Pass, ...]:
    """Takes sums apart by the blocks that another definition runs in; what is to run in its loops."""
    if s.target.is_gpu:
        return ()
    found: dict[str, list[str]] = {}
    for definition in s.state.program.definitions:
        name = definition.results[0][0]
        if isinstance(definition, Define) and name in s.state.table:
            host = next((h for h in _hosts(s, definition)), None)
            if host is not None:
                found.setdefault(host, []).append(name)
    return tuple(made for host, sums in found.items() if (made := _apart(s, host, sums)) is not None)


def _apart(s: Planned, host: str, sums: list[str]) -> Pass | None:
    """The sums taken apart by blocks of the rows of their host, which are split so, too."""
    rows = s.state.stage(host).order[0]
    extent = s.state.stage(host).extent(rows)
    assert extent is not None
    read = sum(bytes_of(s.state.program.types[n]) for n in _rows_of(s, host))
    kept = sum(_kept(s, n) for n in sums)
    work = sum(total_work(s.state.stage(n).parts) for n in (host, *sums))
    parts = min(MOST_PARTS, extent, work // LEAST_WORK, read // (SPARED * kept))
    if parts < LEAST_PARTS:
        return None
    block = even_block(extent, parts)
    if extent % block or not s.decisions.wanted(f"{host}: one pass with {', '.join(sums)}"):
        return None
    before = s.state
    try:
        made = [part for n in sums for part in s[n].rfactor(s[n].split(_reduced(s, n), block)[0])]
        s[host].split(rows, block)
    except ScheduleError:
        s.state = before
        return None
    beside = _beside(s, host)
    for name in beside:
        s[name].split(s.state.stage(name).order[0], block)
    return Pass(host, (*made, *beside), block)


def _beside(s: Planned, host: str) -> list[str]:
    """Definitions over the same elements as the host, that read nothing large but what it reads, or what that is made of."""
    facts, types = program_facts(s.state.program), s.state.program.types
    made = facts.definitions[host]
    around, todo = {host}, [host]
    while todo:
        for name in facts.producers.get(todo.pop(), ()):
            if name not in around:
                around.add(name)
                todo.append(name)
    found = []
    for name, other in facts.definitions.items():
        if not isinstance(other, Define) or not isinstance(made, Define) or name in around or not is_plain(s, name):
            continue
        if [a.stop for a in other.axes] != [a.stop for a in made.axes] or not is_elementwise(other, types) or len(other.axes) > 1:
            continue
        large = {n for n in facts.producers[name] if bytes_of(types[n]) > s.target.l2_bytes}
        if large and large <= around and not depends_on(s.state, name, host) and not depends_on(s.state, host, name):
            found.append(name)
    return found


def _reduced(s: Planned, name: str) -> str:
    """The outermost axis of the only reduction of a definition."""
    (group,) = s.state.stage(name).parts.groups
    return group.indices[0]


def _kept(s: Planned, name: str) -> int:
    """Bytes of the results of a sum for one block."""
    stage = s.state.stage(name)
    known = lengths(stage.parts)
    (group,) = stage.parts.groups
    return sum(accumulator(v.dtype).itemsize for m in group.members for v in m.values) * prod(known[a.index] for a in stage.parts.axes)


def _hosts(s: Planned, definition: Define) -> list[str]:
    """The definitions that a sum could run with, those that most of what it reads is read by first, of equal ones the last."""
    stage = s.state.stage(definition.name)
    if not is_plain(s, definition.name) or len(stage.parts.groups) != 1 or is_contraction(s.state, definition.name):
        return []
    (group,) = stage.parts.groups
    extent = stage.extent(group.indices[0])
    if group.guard or group.where or is_ordered(group) or extent is None:
        return []
    rows = _rows_of(s, definition.name, group.indices[0])
    found: list[tuple[int, int, str]] = []
    for number, other in enumerate(s.state.program.definitions):
        name = other.results[0][0]
        if name == definition.name or not isinstance(other, Define) or not other.axes or not is_plain(s, name):
            continue
        if s.state.stage(name).extent(other.axes[0].index) != extent or is_contraction(s.state, name):
            continue
        shared = sum(bytes_of(s.state.program.types[n]) for n in sorted(rows & _rows_of(s, name)))
        if shared > s.target.l2_bytes and not depends_on(s.state, name, definition.name) and not depends_on(s.state, definition.name, name):
            found.append((-shared, -number, name))
    return [name for _, _, name in sorted(found)]


def is_plain(s: Planned, name: str) -> bool:
    stage = s.state.table.get(name)
    if (
        stage is None
        or stage.place is not None
        or stage.relations
        or stage.scan is not None
        or stage.parts.unproved
        or stage.sweep is not None
    ):
        return False
    return not s.state.placed_in(name) and isinstance(definition_named(s.state.program, name), Define)


def _rows_of(s: Planned, name: str, index: str | None = None) -> set[str]:
    """The tensors that a definition reads at rows of their first axis: those that `index` runs over, or its own first axis."""
    definition = definition_named(s.state.program, name)
    assert isinstance(definition, Define)
    index = definition.axes[0].index if index is None else index
    return {a.tensor for a in accesses_of(s.state.program, name) if _is_row(a, index)}


def _is_row(access: Access, index: str) -> bool:
    first = access.indices[0] if access.indices else None
    return isinstance(first, Index) and first.name == index


def plan_passes(s: Planned, passes: tuple[Pass, ...]) -> set[str]:
    """The loops of sums over single elements and of what they run with, which are not rows of anything: those that are made."""
    planned: set[str] = set()
    for each in passes:
        members = (each.host, *each.others)
        definitions = [definition_named(s.state.program, n) for n in members]
        if any(isinstance(d, Define) and len(d.axes) != 1 for d in definitions):
            continue
        lanes = VECTORS * min(s.target.lanes(accumulator(v.dtype)) for n in members for v in s.state.stage(n).parts.values)
        before = s.state
        try:
            for name in members:
                if each.block > lanes:
                    _, inner = s[name].split(s[name].loops[-1], lanes)
                    s[name].vectorize(inner)
        except ScheduleError:
            s.state = before
        else:
            planned.update((*members, *_placed_inside(s, each.host)))
    return planned


def _placed_inside(s: Planned, host: str) -> list[str]:
    """What a definition reads of its own elements, itself or in what it reads, computed there an element (a vector of them) at a time."""
    facts, types = program_facts(s.state.program), s.state.program.types
    todo, found = list(facts.producers[host]), []
    while todo:
        name = todo.pop()
        made = facts.definitions.get(name)
        if name in found or not isinstance(made, Define) or not is_plain(s, name) or not is_elementwise(made, types):
            continue
        before = s.state
        try:
            s[name].compute_at(host, s[host].loops[-1])
        except ScheduleError:
            s.state = before
        else:
            found.append(name)
            todo += facts.producers[name]
    return found


def join_passes(s: Planned, passes: tuple[Pass, ...]) -> None:
    """Runs sums in the loops of what they run with."""
    for each in passes:
        for name in each.others:
            _joined(s, name, each.host)


def join_alike(s: Planned) -> None:
    """Runs reductions whose loops are alike in the same ones, where they compute the same costly values of what they go through."""
    if s.target.is_gpu:
        return
    hosts: list[tuple[str, frozenset[Expr]]] = []
    for definition in s.state.program.definitions:
        name = definition.results[0][0]
        stage = s.state.table.get(name)
        if (
            not isinstance(definition, Define)
            or stage is None
            or stage.place is not None
            or stage.scan is not None
            or stage.joins is not None
        ):
            continue
        if not stage.parts.groups or stage.parts.unproved or any(other.joins == name for other in s.state.stages):
            continue
        values = _dear_values(stage, definition)
        host = next((n for n, theirs in hosts if values & theirs and s.decisions.wanted(f"{name}: with {n}") and _joined(s, name, n)), None)
        if host is None and values:
            hosts.append((name, values))


def _joined(s: Planned, name: str, host: str) -> bool:
    before = s.state
    try:
        s[name].compute_with(host)
    except ScheduleError:
        s.state = before
        return False
    return True


def _dear_values(stage: Stage, definition: Define) -> frozenset[Expr]:
    """The costly values inside the reductions of a definition, with the places of loops for indices: equal ones are computed at the same
    iterations of loops that are alike."""
    lanes = [stage.extent(loop) for loop in stage.order if stage.kind(loop) == "vectorize"]
    axes = (*stage.parts.axes, *(a for g in stage.parts.groups if g.scope is None for a in g.axes))
    places = {a.index: Index(f"{stage.order.index(stage.loops_of(a.index)[0])} {stage.extent(a.index)} {lanes}") for a in axes}
    found: set[Expr] = set()

    def canonical(node: Expr, names: Mapping[str, Expr], depth: int) -> Expr:
        if isinstance(node, Index):
            return names.get(node.name, node)
        if isinstance(node, Reduce):
            bound = {a.index: Index(f"bound {depth} {k}") for k, a in enumerate(node.axes)}
            inner = {**names, **bound}
            made = replace(node, axes=tuple(Axis(bound[a.index].name, a.start, a.stop) for a in node.axes))
            return map_children(made, lambda child: canonical(child, inner, depth + 1))
        return map_children(node, lambda child: canonical(child, names, depth))

    def visit(node: Expr, inside: bool) -> None:
        if inside and isinstance(node, Apply) and node.dtype.is_float and node.op.cost >= DEAR:
            found.add(canonical(node, places, 0))
        for child in children(node):
            visit(child, inside or isinstance(node, Reduce))

    visit(definition.value, False)
    return frozenset(found)
