"""Contractions of what is computed row by row: blocks of rows at a time, so that what lies between never leaves the caches.

A mean of values under a softmax of scores, say, is a contraction of weights that other contractions, row maxima and exponentials
lead to: each row of the result needs the same row of all of them, and none is asked for elsewhere. Written whole, what lies
between goes through memory again and again. So the rows run in blocks, and in each block everything that leads there is computed
for its rows alone (`compute_at` in the outer loop of a split), in the order of the program, with the tiles that contractions
have anyway:

    for batch: copies of operands
        for block of rows: scores of the block; its maxima; its weights; its sums; its part of the result

A block has as many rows as a part of the second level holds of what lies between. It pays where what lies between is large, and not
much is done with each byte of it, and where what each block reads again, the other operands, stays in the second level. Where rows are open
in number and length, so that all of them may be any amount of memory, they run in blocks too, the rest in a shorter one.
"""

from __future__ import annotations

import heapq
from collections.abc import Set
from math import prod

from tensorexpr.codegen.planners.tiles.contraction import plan_contraction
from tensorexpr.codegen.planners.tiles.loops import plan
from tensorexpr.codegen.schedule.analysis.state import accesses_of, definition_named, program_facts
from tensorexpr.codegen.schedule.analysis.work import ENOUGH_ROWS, bytes_of, has_reduction, is_contraction, length, total_work
from tensorexpr.codegen.schedule.legal.placement import SCRATCH_LIMIT
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Axis, Const, Define, Definition, Expr, Index, integer
from tensorexpr.records import record
from tensorexpr.traversal import free_names, tensors_read

MOST_MEMBERS = 32
"""Definitions of one chain: what leads to more of them does not stay near anyway."""
MOST_BEHIND = 8
"""Definitions of a chain that ends behind the last contraction: what is done with its rows, in a few steps."""
LEAST_ROWS, MOST_ROWS = 16, 64
"""Rows of a block: with fewer, tiles are wasted; with more, what lies between only takes more memory."""
OTHER_ROWS = (32, 128, 256)
SHARE = 3
"""What lies between may take one of so many parts of the second level."""
AGAIN = 4
"""Bytes read again for each byte in between that is not written whole: that would go there and back, and its readers and writers
read their other operands again for each of their tiles, too."""
MOST_WORK = 512
"""Operations per byte of what lies between up to which it matters that it goes through memory."""


@record
class Chain:
    """Definitions that lead to rows of `root`: `members` in program order; the axes of the root outside of its rows, and that of the rows.

    `kept` are the members that are read elsewhere, too: each element of them is made once, in the tensor itself. `refused` lead there,
    but are not taken along."""

    root: str
    members: tuple[str, ...]
    batch: tuple[str, ...]
    row: str
    kept: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()


def plan_rows(s: Planned, shapes: dict[str, tuple[Expr, ...]], batched: bool = True) -> set[str]:
    """Computes chains of definitions in blocks of rows of the contraction that they lead to; the names of those whose loops are made. What
    is read elsewhere, too, and near over one batch stays out of blocks, unless what lies between is not `batched`."""
    planned: set[str] = set()
    for definition in reversed(s.state.program.definitions):
        chains = _chains(s, definition)
        if batched and any(are_near(s, chain.kept) for chain in chains if chain.kept):
            continue
        paying = [(chain, rows) for chain in chains for rows in _rows(s, chain) if _pays(s, chain, rows)]
        if not chains or not s.decisions.wanted(f"{chains[0].root}: in blocks of rows", bool(paying)):
            continue
        chain, most = paying[0] if paying else (chains[0], LEAST_ROWS)
        rows = s.decisions.choose(f"{chain.root}: rows of a block", [most], others=lambda: OTHER_ROWS)
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


def are_near(s: Planned, names: Set[str]) -> bool:
    """Whether definitions go over one batch, of which an element of all of them is small: kernels over it are one (`nest.batches`), and
    what several rows of results need is near there."""
    types = s.state.program.types
    counts = {types[name].shape[:1] for name in names}
    count = counts.pop() if len(counts) == 1 else ()
    if not count or not isinstance(count[0], Const) or integer(count[0]) < ENOUGH_ROWS:
        return False
    return sum(bytes_of(types[name]) for name in names) <= integer(count[0]) * SCRATCH_LIMIT


def kept_near(s: Planned) -> set[str]:
    """What leads to rows in chains that contain contractions: in their blocks it is near, however often it is read."""
    found: set[str] = set()
    for definition in s.state.program.definitions:
        chain = next((c for c in _chains(s, definition) if any(_pays(s, c, rows) for rows in _rows(s, c))), None)
        if chain is not None and any(is_contraction(s.state, name) for name in chain.members):
            found.update(chain.members)
    return found


def _chains(s: Planned, root: Definition) -> list[Chain]:
    """What leads to the rows of a contraction alone, where it is computed from other reductions of its rows; by the axis that is taken for
    its rows. First that along which most of what is read elsewhere repeats, so that each block reads it again; of such axes one with
    rows for a block, the last of those in front, then the longest."""
    state = s.state
    if not isinstance(root, Define) or root.name not in state.table:
        return []
    if state.stage(root.name).place is not None or not all(map(has_known_range, root.axes)):
        return []
    found = []
    least = 1 if is_contraction(state, root.name) else LEAST_ROWS
    for place, axis in enumerate(root.axes):
        if length(axis) < least:
            continue
        chain = _chain(s, root, axis)
        if chain is not None:
            whole = length(axis)
            found.append((-_again(s, chain), -min(whole, LEAST_ROWS), -_is_last(s, chain, place), -whole, chain))
    return [chain for *_, chain in sorted(found, key=lambda f: f[:4])]


def _chain(s: Planned, root: Define, row: Axis) -> Chain | None:
    """The chain that leads to the rows of a contraction along one of its axes; None where no reduction does."""
    refused: set[str] = set()
    while True:
        found = _members(s, root, row, refused)
        batch = tuple(a.index for a in root.axes if a is not row and all(a.index in own for own in found.values()))
        kept = {n for n in found if n != root.name and _is_kept(s, n, set(found))}
        wrong = {n for n in kept if not {row.index, *batch} <= set(found[n]) or not _is_later(s, n, root.name, set(found))}
        if not wrong:
            break
        refused |= wrong
    members = tuple(sorted(found.keys() - {root.name}, key=lambda n: program_facts(s.state.program).numbers[n]))
    reduced = {m for m in members if has_reduction(define_of(s, m).value)}
    if not reduced or (not is_contraction(s.state, root.name) and not _sums_products(s, root, reduced)):
        return None
    return Chain(root.name, members, batch, row.index, frozenset(kept), frozenset(refused))


def _sums_products(s: Planned, root: Define, reduced: set[str]) -> bool:
    """Whether what leads to rows makes products first, and reductions of them then: what each product becomes alone is stored with it."""
    products = {m for m in reduced if is_contraction(s.state, m)}
    return bool(products) and (has_reduction(root.value) or len(reduced) > len(products))


def members_along(s: Planned, name: str, axis: int) -> set[str]:
    """What leads to the rows of a contraction along one of its axes, wherever else it is read."""
    root = define_of(s, name)
    return set(_members(s, root, root.axes[axis], set())) - {name}


def _is_kept(s: Planned, name: str, found: set[str]) -> bool:
    facts = program_facts(s.state.program)
    return name in s.state.program.outputs or not set(facts.readers.get(name, ())) <= found


def _is_later(s: Planned, name: str, root: str, found: set[str]) -> bool:
    """Whether all that reads a definition outside of a chain comes after the chain."""
    facts = program_facts(s.state.program)
    return all(facts.numbers[r] > facts.numbers[root] for r in facts.readers.get(name, ()) if r not in found)


def _members(s: Planned, root: Define, row: Axis, refused: Set[str]) -> dict[str, dict[str, int]]:
    """The root and the definitions that lead to it at its own rows, each with where it has axes of the root."""
    state, program = s.state, s.state.program
    facts = program_facts(program)
    found = {root.name: {a.index: place for place, a in enumerate(root.axes)}}
    extents = {a.index: a.stop for a in root.axes}
    # Later definitions first, so that all readers of one are known before it is looked at.
    most = MOST_MEMBERS if is_contraction(state, root.name) else MOST_BEHIND
    todo = [-facts.numbers[n] for n in facts.producers[root.name] if n in facts.numbers]
    heapq.heapify(todo)
    while todo and len(found) <= most:
        definition = program.definitions[-heapq.heappop(todo)]
        name = definition.results[0][0]
        if not isinstance(definition, Define) or name in found or name in refused or name not in state.table:
            continue
        stage = state.stage(name)
        plain = stage.place is None and not state.placed_in(name) and not stage.parts.unproved
        if not plain or not definition.axes or not all(map(has_known_range, definition.axes)):
            continue
        own = _shared(s, definition, found, extents)
        if row.index in own:
            found[name] = own
            for n in facts.producers[name]:
                if n in facts.numbers:
                    heapq.heappush(todo, -facts.numbers[n])
    return found


def _shared(s: Planned, made: Define, found: dict[str, dict[str, int]], extents: dict[str, Expr]) -> dict[str, int]:
    """The axes of the root at whose own index all members read a definition, with the place of each among its axes."""
    shared: set[tuple[str, int]] | None = None
    for reader in program_facts(s.state.program).readers[made.name]:
        if reader not in found:
            continue
        axes = define_of(s, reader).axes
        names = {axes[place].index: axis for axis, place in found[reader].items()}
        for access in accesses_of(s.state.program, reader):
            if access.tensor == made.name:
                here = {
                    (names[i.name], place)
                    for place, (i, a) in enumerate(zip(access.indices, made.axes, strict=True))
                    if isinstance(i, Index) and i.name in names and extents[names[i.name]] == a.stop
                }
                shared = here if shared is None else shared & here
    return dict(sorted(shared or (), reverse=True))  # of several places of an axis the first


def _is_last(s: Planned, chain: Chain, place: int) -> bool:
    """Whether the axes of the batch are those before that of the rows, and no others."""
    names = [a.index for a in define_of(s, chain.root).axes]
    return set(names[:place]) == set(chain.batch)


def _rows(s: Planned, chain: Chain) -> list[int]:
    """Rows that a block may have: as many as are held of what lies between; as many as workspace has room for, where all of it comes from
    the next level, as it would without blocks, but less is read again. Blocks of one length where that is possible."""
    if is_open(_axis(s, chain.root, chain.row)):
        return [LEAST_ROWS]
    whole = length(_axis(s, chain.root, chain.row))
    each = [bytes_between(s, m) // (whole * prod(_lengths(s, chain))) for m in chain.members]
    found = []
    for held in (s.target.l2_bytes // SHARE // max(1, sum(each)), SCRATCH_LIMIT // max(1, *each)):
        if held >= min(LEAST_ROWS, whole):
            most = min(held, whole, MOST_ROWS)
            even = next((n for n in range(most, most // 2, -1) if whole % n == 0), None)
            found.append(-(-whole // -(-whole // most)) if even is None else even)
    return found


def _pays(s: Planned, chain: Chain, rows: int) -> bool:
    if is_open(_axis(s, chain.root, chain.row)):
        large = {m for m in chain.members if open_axes(s, m) > open_axes(s, chain.root)}
        if not large or not large.isdisjoint(chain.kept):  # what is stored whole may as well be made a batch at a time
            return False
        places = _members(s, _root(s, chain), _axis(s, chain.root, chain.row), chain.refused)
        at = {m: [places[m][axis] for axis in (chain.row, *chain.batch)] for m in chain.members}
        left = [sum(is_open(axis) for place, axis in enumerate(define_of(s, m).axes) if place not in at[m]) for m in chain.members]
        return max(left) <= 1  # what a block keeps grows with the length of a row, not with all rows of a batch
    between = sum(bytes_between(s, m) for m in chain.members if m not in chain.kept)
    work = sum(total_work(s.state.stage(n).parts) for n in (chain.root, *chain.members))
    if between <= s.target.l2_bytes or work > MOST_WORK * between:
        return False
    again = _again(s, chain)
    blocks = length(_axis(s, chain.root, chain.row)) // rows * prod(_lengths(s, chain))
    return again <= s.target.l2_bytes // 2 or again * blocks <= AGAIN * between


def _again(s: Planned, chain: Chain) -> int:
    """The bytes that each block of rows reads again of what is not computed in it."""
    types, again = s.state.program.types, 0
    places = _members(s, _root(s, chain), _axis(s, chain.root, chain.row), chain.refused)
    for name in (chain.root, *chain.members):
        axes = define_of(s, name).axes
        row = axes[places[name][chain.row]].index
        at = {row, *(axes[places[name][b]].index for b in chain.batch)}
        for access in {a.tensor: a for a in accesses_of(s.state.program, name) if a.tensor not in chain.members}.values():
            if not any(row in free_names(i) for i in access.indices):
                extents = types[access.tensor].shape
                again += types[access.tensor].dtype.itemsize * prod(
                    int(e.value) if isinstance(e, Const) and not (free_names(i) and set(free_names(i)) <= at) else 1
                    for e, i in zip(extents, access.indices, strict=True)
                )
    return again


def _apply(s: Planned, chain: Chain, rows: int, shapes: dict[str, tuple[Expr, ...]]) -> set[str] | None:
    """The loops of a chain; the names of the definitions whose loops are made, or None where they cannot be."""
    known = set(s.stages)
    handle, planned = s[chain.root], {chain.root}
    whole = length(_axis(s, chain.root, chain.row))
    if not plan_contraction(s, chain.root, shapes, (chain.row, rows), chain.batch, chain.members) and not _in_blocks(
        s, chain, rows, shapes
    ):
        return None
    in_rests = is_open(_axis(s, chain.root, chain.row))
    loops = list(handle.loops[: len(chain.batch) + (rows < whole or in_rests)])
    if not loops:
        return None
    # Blocks that share rows run one after the other where what they make is kept; a loop with a rest behind it is none with others.
    apart = len(loops) - 1 if in_rests or (chain.kept and whole % rows) else len(loops)
    while apart > 1 and (s.state.stage(chain.root).extent(loops[0]) or 0) < ENOUGH_ROWS:
        loops, apart = [handle.fuse(loops[0], loops[1]), *loops[2:]], apart - 1
    for name in reversed(chain.members):
        s[name].compute_at(chain.root, loops[-1])
    for name in chain.members:
        if is_contraction(s.state, name) and plan_contraction(s, name, shapes):
            planned.add(name)
    copies = [n for n in s.stages if n not in known]
    planned.update(copies)
    for name in copies if len(loops) > 1 else ():
        s.tried(s[name].compute_at, chain.root, loops[-2])
    return planned


def _in_blocks(s: Planned, chain: Chain, rows: int, shapes: dict[str, tuple[Expr, ...]]) -> bool:
    """Gives a root whose sums go over a band that moves with its rows, so that it has no panels, its usual tile, in blocks of rows."""
    handle, whole = s[chain.root], length(_axis(s, chain.root, chain.row))
    reduced = [a for group in handle._stage.parts.groups for a in group.axes]
    moving = any(chain.row in free_names(a.start) and chain.row in free_names(a.stop) for a in reduced)
    if not moving and is_contraction(s.state, chain.root):
        return False
    plan(s, chain.root, shapes)
    own = [loop for loop in handle.loops if handle._stage.axes_of(loop) == (chain.row,)]
    if not own or any(batch not in handle.loops for batch in chain.batch):
        return False
    outer: tuple[str, ...] = ()
    if rows < whole:
        extent = handle._stage.extent(own[0])
        if extent is None:
            return False
        outer = (handle.split(own[0], max(1, rows * extent // whole), "shift")[0],)
    first = (*chain.batch, *outer)
    handle.reorder(*first, *(loop for loop in handle.loops if loop not in first))
    return True


def _root(s: Planned, chain: Chain) -> Define:
    return define_of(s, chain.root)


def define_of(s: Planned, name: str) -> Define:
    """The definition of a name. Requires: it is one of elements."""
    found = definition_named(s.state.program, name)
    assert isinstance(found, Define)
    return found


def _axis(s: Planned, name: str, index: str) -> Axis:
    return next(a for a in define_of(s, name).axes if a.index == index)


def _lengths(s: Planned, chain: Chain) -> list[int]:
    return [length(_axis(s, chain.root, a)) for a in chain.batch]


def bytes_between(s: Planned, name: str) -> int:
    """The bytes of what a definition stores; of axes of open length about as many as are planned for."""
    return s.state.program.types[name].dtype.itemsize * prod(map(length, define_of(s, name).axes))


def is_open(axis: Axis) -> bool:
    """Whether the length of an axis is known at a call."""
    return not isinstance(axis.stop, Const)


def open_axes(s: Planned, name: str) -> int:
    """How many axes of open length a definition has: beside one of more of them, others are small."""
    return sum(map(is_open, define_of(s, name).axes))


def has_known_range(axis: Axis) -> bool:
    """Whether a number or sizes say how long an axis is, on a CPU."""
    return not free_names(axis.stop) and not tensors_read(axis.stop)
