"""Contractions of what is computed row by row: blocks of rows at a time, so that what lies between never leaves the caches.

A mean of values under a softmax of scores, say, is a contraction of weights that other contractions, row maxima and exponentials
lead to: each row of the result needs the same row of all of them, and none is asked for elsewhere. Written whole, what lies
between goes through memory again and again. So the rows run in blocks, and in each block everything that leads there is computed
for its rows alone (`compute_at` in the outer loop of a split), in the order of the program, with the tiles that contractions
have anyway:

    for batch: copies of operands
        for block of rows: scores of the block; its maxima; its weights; its sums; its part of the result

A block has as many rows as a part of the second level holds of what lies between. It pays where what lies between is large, and not
much is done with each byte of it, and where what each block reads again, the other operands, stays in the second level.
"""

from __future__ import annotations

import heapq
from math import prod

from tensorexpr.codegen.schedule.auto_contraction import plan_contraction
from tensorexpr.codegen.schedule.schedule import Schedule
from tensorexpr.codegen.schedule.state import accesses_of, definition_named, program_facts
from tensorexpr.codegen.schedule.work import ENOUGH_ROWS, has_reduction, is_contraction, length, total_work
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Axis, Const, Define, Definition, Expr, Index, integer
from tensorexpr.records import record
from tensorexpr.traversal import free_names

MOST_MEMBERS = 32
"""Definitions of one chain: what leads to more of them does not stay near anyway."""
LEAST_ROWS, MOST_ROWS = 16, 64
"""Rows of a block: with fewer, tiles are wasted; with more, what lies between only takes more memory."""
OTHER_ROWS = (32, 128, 256)
SHARE = 3
"""What lies between may take one of so many parts of the second level."""
MOST_WORK = 512
"""Operations per byte of what lies between up to which it matters that it goes through memory."""


@record
class Chain:
    """Definitions that lead to rows of `root`: `members` in program order; the axes before that of the rows, and its own."""

    root: str
    members: tuple[str, ...]
    batch: tuple[str, ...]
    row: str


def plan_rows(s: Schedule, shapes: dict[str, tuple[Expr, ...]]) -> set[str]:
    """Computes chains of definitions in blocks of rows of the contraction that they lead to; the names of those whose loops are made."""
    planned: set[str] = set()
    for definition in reversed(s.state.program.definitions):
        chain = _chain(s, definition)
        if chain is None:
            continue
        rows = _rows(s, chain)
        if not s.decisions.wanted(f"{chain.root}: in blocks of rows", rows is not None and _pays(s, chain, rows)):
            continue
        rows = s.decisions.choose(f"{chain.root}: rows of a block", [rows or LEAST_ROWS], others=lambda: OTHER_ROWS)
        before, known = s.state, dict(shapes)
        try:
            made = _apply(s, chain, rows, shapes)
        except ScheduleError:
            made = None
        if made is None:
            s.state = before
            shapes.clear()
            shapes.update(known)
        else:
            planned |= made
    return planned


def _chain(s: Schedule, root: Definition) -> Chain | None:
    """What leads to the rows of a contraction alone, where it is computed from other reductions of its rows."""
    state, program = s.state, s.state.program
    if not isinstance(root, Define) or root.name not in state.table or not is_contraction(state, root.name):
        return None
    if state.stage(root.name).place is not None or any(not isinstance(a.stop, Const) for a in root.axes):
        return None
    members = _members(s, root)
    if not any(has_reduction(_define(s, m).value) for m in members):
        return None
    depth = len(root.axes)
    for name in (root.name, *members):
        reader = _define(s, name)
        for access in accesses_of(program, name):
            if access.tensor in members:
                depth = min(depth, _common(reader, _define(s, access.tensor), access))
    names = [a.index for a in root.axes]
    return None if depth == 0 else Chain(root.name, members, tuple(names[: depth - 1]), names[depth - 1])


def _members(s: Schedule, root: Define) -> tuple[str, ...]:
    """The definitions that nothing but the root and these themselves reads."""
    state, program = s.state, s.state.program
    facts = program_facts(program)
    found = {root.name}
    # Later definitions first, so that all readers of one are known before it is looked at.
    todo = [-facts.numbers[n] for n in facts.producers[root.name] if n in facts.numbers]
    heapq.heapify(todo)
    while todo and len(found) <= MOST_MEMBERS:
        definition = program.definitions[-heapq.heappop(todo)]
        name = definition.results[0][0]
        if not isinstance(definition, Define) or name in found or name not in state.table or name in program.outputs:
            continue
        stage = state.stage(name)
        plain = stage.place is None and not state.placed_in(name) and not stage.parts.unproved
        constant = bool(definition.axes) and all(isinstance(a.stop, Const) for a in definition.axes)
        if plain and constant and set(facts.readers.get(name, ())) <= found:
            found.add(name)
            for n in facts.producers[name]:
                if n in facts.numbers:
                    heapq.heappush(todo, -facts.numbers[n])
    return tuple(sorted(found - {root.name}, key=lambda n: facts.numbers[n]))


def _common(reader: Define, made: Define, access: Access) -> int:
    """How many leading axes of a definition another reads at its own indices, of the same extents."""
    depth = 0
    for index, theirs, own in zip(access.indices, made.axes, reader.axes, strict=False):
        if not isinstance(index, Index) or index.name != own.index or own.stop != theirs.stop:
            break
        depth += 1
    return depth


def _rows(s: Schedule, chain: Chain) -> int | None:
    """Rows of a block: as many as are held of what lies between, blocks of one length where that is possible."""
    each = sum(_bytes(s, m) // (length(_axis(s, chain.root, chain.row)) * prod(_lengths(s, chain))) for m in chain.members)
    whole = length(_axis(s, chain.root, chain.row))
    held = s.target.l2_bytes // SHARE // max(1, each)
    if held < min(LEAST_ROWS, whole):
        return None
    most = min(held, whole, MOST_ROWS)
    even = next((n for n in range(most, most // 2, -1) if whole % n == 0), None)
    return -(-whole // -(-whole // most)) if even is None else even


def _pays(s: Schedule, chain: Chain, rows: int) -> bool:
    between = sum(_bytes(s, m) for m in chain.members)
    work = sum(total_work(s.state.stage(n).parts) for n in (chain.root, *chain.members))
    if between <= s.target.l2_bytes or work > MOST_WORK * between:
        return False
    again = 0
    types = s.state.program.types
    for name in (chain.root, *chain.members):
        reader = _define(s, name)
        at = {a.index for a in reader.axes[: len(chain.batch) + 1]}
        row = reader.axes[len(chain.batch)].index
        for access in {a.tensor: a for a in accesses_of(s.state.program, name) if a.tensor not in chain.members}.values():
            if not any(row in free_names(i) for i in access.indices):
                extents = types[access.tensor].shape
                again += types[access.tensor].dtype.itemsize * prod(
                    int(e.value) if isinstance(e, Const) else 1
                    for e, i in zip(extents, access.indices, strict=True)
                    if not (isinstance(i, Index) and i.name in at)
                )
    return again <= s.target.l2_bytes // 2


def _apply(s: Schedule, chain: Chain, rows: int, shapes: dict[str, tuple[Expr, ...]]) -> set[str] | None:
    """The loops of a chain; the names of the definitions whose loops are made, or None where they cannot be."""
    known = set(s.stages)
    handle, planned = s[chain.root], {chain.root}
    if not plan_contraction(s, chain.root, shapes, (chain.row, rows)):
        return None
    loops = list(handle.loops[: len(chain.batch) + (rows < length(_axis(s, chain.root, chain.row)))])
    if not loops:
        return None
    while len(loops) > 1 and (s.state.stage(chain.root).extent(loops[0]) or 0) < ENOUGH_ROWS:
        loops = [handle.fuse(loops[0], loops[1]), *loops[2:]]
    for name in reversed(chain.members):
        s[name].compute_at(chain.root, loops[-1])
    for name in chain.members:
        if is_contraction(s.state, name) and plan_contraction(s, name, shapes):
            planned.add(name)
    copies = [n for n in s.stages if n not in known]
    planned.update(copies)
    for name in copies if len(loops) > 1 else ():
        before = s.state
        try:
            s[name].compute_at(chain.root, loops[-2])
        except ScheduleError:
            s.state = before
    return planned


def _define(s: Schedule, name: str) -> Define:
    found = definition_named(s.state.program, name)
    assert isinstance(found, Define)
    return found


def _axis(s: Schedule, name: str, index: str) -> Axis:
    return next(a for a in _define(s, name).axes if a.index == index)


def _lengths(s: Schedule, chain: Chain) -> list[int]:
    return [length(_axis(s, chain.root, a)) for a in chain.batch]


def _bytes(s: Schedule, name: str) -> int:
    type_ = s.state.program.types[name]
    return type_.dtype.itemsize * prod(map(integer, type_.shape))
