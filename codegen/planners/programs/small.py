"""Products of small matrices, very many of them: each element of the batch is worked on while it is in registers.

Where a matrix is shorter than a few vectors, neither blocks nor panels help, and what costs is how elements come to the lanes:

    turned     an operand that lies across the lanes is copied with its last two axes exchanged (`stage`), for one element of the batch at
               a time; the copy is a square turned around in registers, where lanes that gather would load every element by itself
    together   definitions over one batch that read the same matrices (a product and its gradients) run in one loop over the batch
               (`compute_at`): each matrix comes from memory once

    for b: { C[b] = A[b] B[b];  T = transpose of B[b];  A_bar[b] = C_bar[b] T;  B_bar[b] = transpose of A[b] times C_bar[b] }
"""

from __future__ import annotations

from math import prod

from tensorexpr.codegen.planners.tiles.loops import MOST_ROWS, Planner, plan
from tensorexpr.codegen.schedule.analysis.state import accesses_of, program_facts
from tensorexpr.codegen.schedule.analysis.strides import reach
from tensorexpr.codegen.schedule.analysis.work import is_contraction, length
from tensorexpr.codegen.schedule.definitions.staging import Layout
from tensorexpr.codegen.schedule.legal.legality import is_ordered
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Axis, Const, Define, Definition, Expr, Index, integer
from tensorexpr.records import record
from tensorexpr.traversal import free_names

LEAST_BATCH = 64
"""Elements of a batch from which on its loop is worth having for itself."""
MOST_SIDE = 16
"""Rows and columns of matrices up to which they are small: one is turned around in registers. Where all are more than the rows of a tile
(`MOST_ROWS`), tiles of a contraction are better."""
SHARE = 4
"""Parts of the first cache of which one holds the matrices of a definition, for an element of the batch; it holds those of all of them."""
MOST_MEMBERS = 64
"""Definitions up to which they run in one loop."""
GAIN = 1.5
"""How much costlier the lanes must be that a definition has without a copy."""


@record
class Small:
    """A definition over a batch, the first `depth` of its axes, that works on small matrices of one element of it."""

    name: str
    depth: int
    batch: tuple[Expr, ...]
    """The extents of these axes."""
    sizes: dict[str, int]
    """The tensors that it reads and its own, with the bytes of one element of the batch."""


def plan_small(s: Planned, shapes: dict[str, tuple[Expr, ...]]) -> set[str]:
    """The loops of small products over a batch; the names of the definitions that have theirs. `shapes` gets those of copies."""
    found = {d.results[0][0]: small for d in s.state.program.definitions if (small := _small(s, d, shapes)) is not None}
    planned: set[str] = set()
    taken: set[str] = set()
    for host in reversed(list(found)):
        if host in taken:
            continue
        members = [n for n in _members(s, found, host) if n not in taken]
        if members and not s.decisions.wanted(f"{host}: small products together"):
            members = []
        before, known = s.state, dict(shapes)
        try:
            made = _apply(s, found, (*members, host), shapes)
        except ScheduleError:
            s.state = before
            shapes.clear()
            shapes.update(known)
        else:
            planned |= made
            taken |= {*members, host} & made
    return planned


def _small(s: Planned, definition: Definition, shapes: dict[str, tuple[Expr, ...]]) -> Small | None:
    """What a definition is as a small product over a batch, if it is one."""
    if not isinstance(definition, Define) or definition.name not in s.state.table:
        return None
    # What others read element by element, and has no tiles, is left to be computed in their loops.
    if program_facts(s.state.program).readers.get(definition.name) and not is_contraction(s.state, definition.name):
        return None
    stage = s.state.stage(definition.name)
    if stage.place is not None or stage.scan is not None or stage.sweep is not None or stage.relations:
        return None
    if s.state.placed_in(definition.name) or stage.parts.unproved or len(stage.parts.groups) != 1:
        return None
    (group,) = stage.parts.groups
    if is_ordered(group) or group.guard or group.where or not all(isinstance(e, Const) for a in group.axes for e in (a.start, a.stop)):
        return None
    accesses = accesses_of(s.state.program, definition.name)
    depth = min((_depth(definition.axes, a, shapes[a.tensor]) for a in accesses), default=0)
    if not 0 < depth < len(definition.axes) or prod(map(length, definition.axes[:depth])) < LEAST_BATCH:
        return None
    shape = shapes[definition.name]
    if not all(isinstance(e, Const) for e in shape[depth:]):
        return None
    sides = [integer(e) for e in shape[depth:]]
    if max(sides) > MOST_SIDE or min((n for n in sides if n > 1), default=0) > MOST_ROWS:
        return None
    sizes = {a.tensor: a.dtype.itemsize * prod(map(integer, shapes[a.tensor][depth:])) for a in accesses}
    sizes[definition.name] = definition.value.dtype.itemsize * prod(sides)
    if SHARE * sum(sizes.values()) > s.target.l1_bytes:
        return None
    return Small(definition.name, depth, shape[:depth], sizes)


def _depth(axes: tuple[Axis, ...], access: Access, shape: tuple[Expr, ...]) -> int:
    """How many leading axes of a definition an access reads at its own element; none where another index or an extent depends on one."""
    depth = 0
    while depth < min(len(axes), len(shape)) and access.indices[depth] == Index(axes[depth].index) and shape[depth] == axes[depth].stop:
        depth += 1
    rest = {n for i in access.indices[depth:] for n in free_names(i)}
    depth = next((k for k in range(depth) if axes[k].index in rest), depth)
    return depth if all(isinstance(e, Const) for e in shape[depth:]) else 0


def _members(s: Planned, found: dict[str, Small], host: str) -> list[str]:
    """Small products before a host that go over the same batch and read what it, or another one of them, reads or makes."""
    facts, last = program_facts(s.state.program), found[host]
    names, sizes = {host}, dict(last.sizes)
    while len(names) <= MOST_MEMBERS:
        more = {
            n
            for n, small in found.items()
            if n not in names
            and facts.numbers[n] < facts.numbers[host]
            and (small.depth, small.batch) == (last.depth, last.batch)
            and sizes.keys() & small.sizes.keys()
        }
        # Whoever is read in between, by one that is not among them, has to be there before.
        while wrong := {
            n for n in more for r in facts.readers.get(n, ()) if r not in names | more and facts.numbers[r] < facts.numbers[host]
        }:
            more -= wrong
        if not more:
            return sorted(names - {host}, key=lambda n: facts.numbers[n])
        names |= more
        sizes.update(size for n in more for size in found[n].sizes.items())
        if sum(sizes.values()) > s.target.l1_bytes:
            break
    return []


def _apply(s: Planned, found: dict[str, Small], names: tuple[str, ...], shapes: dict[str, tuple[Expr, ...]]) -> set[str]:
    """Turns operands around and makes the loops of definitions, in that of the last over the batch; the names, none where neither helps."""
    host, known = names[-1], set(s.stages)
    for name in names:
        _turn(s, found[name], shapes)
    copies = {n for n in s.stages if n not in known}
    if len(names) == 1 and not copies:
        return set()
    batch = s[host].loops[0]
    for other in s[host].loops[1 : found[host].depth]:
        batch = s[host].fuse(batch, other)
    for name in reversed([n for n in s.stages if n in copies or n in names[:-1]]):
        s[name].compute_at(host, batch)
    for name in names:
        plan(s, name, shapes)
    return {*names, *copies}


def _turn(s: Planned, small: Small, shapes: dict[str, tuple[Expr, ...]]) -> None:
    """Copies an operand that lies across the best lanes with these lanes side by side, where the definition has none as good without."""
    stage = s.state.stage(small.name)
    plain = Planner(s, small.name, shapes, {})
    if not any(abs(r.stride(axis)) > 1 for axis in plain.vectors[:1] for r in (*plain.reads, plain.store)):
        return
    best: tuple[float, tuple[str, Layout] | None] = (plain.cost / GAIN, None)
    for axis in stage.parts.axes[small.depth :]:
        found = _across(s, small, axis.index, shapes)
        if found is None or abs(plain.store.stride(axis.index)) != 1:
            continue
        tensor, order = found
        before = s.state
        try:
            copy = s[small.name].stage(tensor, order)
        except ScheduleError:
            continue
        planner = Planner(s, small.name, {**shapes, copy: s.state.program.types[copy].shape}, {})
        s.state = before
        if planner.vectors and planner.vectors[0] == axis.index and planner.cost < best[0]:
            best = (planner.cost, found)
    if best[1] is None or not s.decisions.wanted(f"{small.name}: {best[1][0]} turned"):
        return
    tensor, order = best[1]
    copy = s[small.name].stage(tensor, order)
    shapes[copy] = s.state.program.types[copy].shape
    handle = s[copy]
    *outer, row, blocks, lane = handle.loops
    handle.reorder(*outer, blocks, row, lane)
    handle.unroll(row)
    handle.vectorize(lane)


def _across(s: Planned, small: Small, index: str, shapes: dict[str, tuple[Expr, ...]]) -> tuple[str, Layout] | None:
    """The one tensor that is read across lanes along an axis, and the layout in which they lie side by side, filled up to a vector."""
    across = {a for a in accesses_of(s.state.program, small.name) if abs(reach(a, shapes[a.tensor]).stride(index)) > 1}
    if len({a.tensor for a in across}) != 1:
        return None
    tensor = next(iter(across)).tensor
    shape = shapes[tensor]
    last = len(shape) - 1
    places = {k for a in across for k, e in enumerate(a.indices) if index in free_names(e)}
    if len(places) != 1 or any(a.indices[k] != Index(index) for a in across for k in places):
        return None
    (place,) = places
    if place in (last, *range(small.depth)) or max(integer(shape[place]), integer(shape[last])) > MOST_SIDE:
        return None
    return tensor, (*(k for k in range(last) if k != place), last, (place, 1 << (integer(shape[place]) - 1).bit_length()))
