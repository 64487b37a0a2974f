"""Pairwise terms in the default schedule: which definitions are never stored, and the loops of what computes them again.

A pair term is a definition far larger than all that it reads (besides its own elements of matrices that are there anyway)
and all that is made of it: a distance, a kernel or a weight for every pair of points. Storing one costs memory, and about a
nanosecond per element and reader; a few dozen operations in vector lanes cost less. So it is computed again by each of its
readers (`recompute`), where

* a point costs at most `MOST_WORK` operations, those of other terms that it is made of included;
* the readers are definitions whose loops run over its elements about once, besides short data axes (coordinates,
  channels), whose accumulators share the value.

A definition with reductions inside its reduction has the short data axes innermost, each with an accumulator in registers; its
other loops are left to the tiles of nests (`codegen.auto.tiles`).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tensorexpr.codegen.schedule.analysis.reductions import Group, Parts
from tensorexpr.codegen.schedule.analysis.state import State, is_inside, program_facts
from tensorexpr.codegen.schedule.analysis.work import UNKNOWN_EXTENT, group_work, length, lengths, total_work
from tensorexpr.codegen.schedule.definitions.recompute import repeated_values
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Axis, Const, Define, Expr, Program, Scan
from tensorexpr.regions import affine_of
from tensorexpr.traversal import free_names, read_occurrences, reads

MOST_WORK = 128
"""Operations per element up to which computing a pair term again is cheaper than storing and loading it."""
FAR_LARGER = 4
"""How many times larger a pair term is than what it reads together, and than each reader."""
LEAST_BYTES = 1 << 14
"""Smaller definitions are kept: they stay in the first cache."""
MOST_OWN = 2
"""Stored tensors of which a term may read its own element: each is loaded again by every reader."""
MOST_TOGETHER = 64
"""Points of the data axes of a reader that share one value: each has an accumulator, up to `MOST_IN_REGISTERS` in a register."""
MOST_IN_REGISTERS = 16


# -------------------------------------------------------------------------------------------------- what is not stored


def pair_terms(state: State) -> tuple[str, ...]:
    """The definitions of a program to compute again where they are read, in order."""
    program = state.program
    facts = program_facts(program)
    fixed = {*program.outputs, *(n for d in program.definitions if isinstance(d, Scan) for n in reads(d))}
    bytes_of = {name: _bytes(type_.shape, type_.dtype.itemsize) for name, type_ in program.types.items()}
    read_in: dict[str, tuple[str, ...]] = {}  # what a chosen term reads that is stored, besides elements of its own
    work: dict[str, int] = {}
    for definition in program.definitions:
        name = definition.results[0][0]
        if not isinstance(definition, Define) or name in fixed or bytes_of[name] < LEAST_BYTES or not facts.readers.get(name):
            continue
        own = _own_elements(definition)
        stored = tuple(dict.fromkeys(n for r in reads(definition) if r not in own for n in read_in.get(r, (r,))))
        if FAR_LARGER * sum(bytes_of[n] for n in stored) > bytes_of[name] or len(own - set(read_in)) > MOST_OWN:
            continue
        bare = own <= set(read_in)
        if state.stage(name).parts.unproved or not _is_reduced(name, program, facts.readers, bytes_of, bare):
            continue
        cost = _work_per_element(state, definition, work)
        if cost > MOST_WORK:
            continue
        readers = [facts.definitions[reader] for reader in facts.readers[name]]
        most = MOST_TOGETHER if bare else MOST_IN_REGISTERS
        if all(isinstance(reader, Define) and _reads_once(reader, definition, most) for reader in readers):
            work[name] = cost
            read_in[name] = tuple(dict.fromkeys((*stored, *(n for r in own for n in read_in.get(r, ())))))
    return tuple(read_in)


def _bytes(shape: tuple[Expr, ...], itemsize: int) -> int:
    return itemsize * prod(int(extent.value) if isinstance(extent, Const) else UNKNOWN_EXTENT for extent in shape)


def _own_elements(term: Define) -> set[str]:
    """The tensors of which a point of a term reads its own element alone: computing it again loads them in place of it."""
    axes = {a.index for a in term.axes if length(a) > 1}
    found: dict[str, bool] = {}
    for access, _, _ in read_occurrences(term.value, ()):
        found[access.tensor] = found.get(access.tensor, True) and axes <= set(_subscripts(access))
    return {name for name, holds in found.items() if holds}


def _subscripts(access: Access) -> tuple[str, ...]:
    """The indices that each choose the element along an axis, perhaps shifted or turned around; none where anything else does."""
    names: list[str] = []
    for index in access.indices:
        form = affine_of(index)
        if form is None or len(form.terms) > 1 or any(not isinstance(n, str) or abs(c) != 1 or n in names for n, c in form.terms):
            return ()
        names += [str(n) for n, _ in form.terms]
    return tuple(names)


def _work_per_element(state: State, definition: Define, known: Mapping[str, int]) -> int:
    points = max(1, prod(length(a) for a in definition.axes))
    inner = sum(known.get(access.tensor, 0) for access, _, _ in read_occurrences(definition.value, ()))
    return total_work(state.stage(definition.name).parts) // points + inner


def _is_reduced(name: str, program: Program, readers: Mapping[str, tuple[str, ...]], bytes_of: Mapping[str, int], bare: bool) -> bool:
    """Whether all that is made of a term ends in tensors far smaller.

    An output of its size may need a `bare` term (one without elements of its own in memory) as well, where it needs nothing else
    that is made of it: not a row that is divided by its sum.
    """
    facts = program_facts(program)
    todo, made, outputs = [name], {name}, []
    while todo:
        for reader in readers.get(todo.pop(), ()):
            if reader in made:
                continue
            made.add(reader)
            todo.append(reader)
            if reader in program.outputs and FAR_LARGER * bytes_of[reader] > bytes_of[name]:
                outputs.append(reader)
    return all(bare and made & set(facts.producers[output]) == {name} for output in outputs)


def _reads_once(reader: Define, term: Define, most: int) -> bool:
    """Whether the loops of a reader meet every element of a term about once, besides data axes of at most so many points."""
    elements = prod(length(a) for a in term.axes)
    data = {a.index for a in reader.axes}
    for access, axes, _ in read_occurrences(reader.value, reader.axes):
        if access.tensor != term.name:
            continue
        used = _subscripts(access)
        if not used:
            return False
        others = [length(a) for a in axes if a.index not in used and a.index in data]
        if prod(length(a) for a in axes if a.index in used) > 2 * elements or prod(others) > most:
            return False
    return True


def sharing(state: State) -> tuple[str, ...]:
    """The definitions inside whose reductions the same is computed again and again for each pair: for all of a short data axis,
    or for all that a pair term sums itself."""
    bytes_of = {name: _bytes(type_.shape, type_.dtype.itemsize) for name, type_ in state.program.types.items()}
    chosen = []
    for definition in state.program.definitions:
        if not isinstance(definition, Define) or state.stage(definition.name).parts.unproved:
            continue
        found = repeated_values(definition)
        if found and all(_is_pair_value(definition, value, reduced, bytes_of) for value, reduced in found):
            chosen.append(definition.name)
    return tuple(chosen)


def _is_pair_value(definition: Define, value: Expr, reduced: tuple[Axis, ...], bytes_of: Mapping[str, int]) -> bool:
    """Whether there are far more values, one for each point of the loops that one depends on, than elements that all are made of."""
    free = set(free_names(value))
    size = value.dtype.itemsize * prod(length(a) for a in (*definition.axes, *reduced) if a.index in free)
    axes = {a.index for a in (*definition.axes, *reduced) if a.index in free}
    own = {access.tensor for access, _, _ in read_occurrences(value, ()) if axes <= set(_subscripts(access))}
    read = {access.tensor for access, _, _ in read_occurrences(value, ())} - own
    return FAR_LARGER * sum(bytes_of[n] for n in read) <= size and prod(length(a) for a in definition.axes if a.index not in free) <= (
        MOST_IN_REGISTERS if own and not axes <= {a.index for a in definition.axes} else MOST_TOGETHER
    )


# --------------------------------------------------------------------------------------------------------------- loops


def _main(parts: Parts) -> Group | None:
    known = lengths(parts)

    def work(group: Group) -> int:
        inner = (g for g in parts.groups if is_inside(parts, g.number, group.number))
        return sum(group_work(parts, g, known) * prod(known[n] for n in g.depends if n in group.indices) for g in (group, *inner))

    return max((g for g in parts.groups if g.scope is None), key=work, default=None)


def leaves_plain(schedule: Planned, name: str) -> bool:
    """Whether a definition has reductions inside its reduction: rewrites choose its loops (`codegen.auto.tiles`). Axes whose points share a
    value go innermost, copied out."""
    parts = schedule.state.stage(name).parts
    main = _main(parts)
    inner = [g for g in parts.groups if main is not None and is_inside(parts, g.number, main.number)]
    if main is None or not inner:
        return False
    known, deep = lengths(parts), {n for g in inner for n in g.depends}
    together = [a.index for a in parts.axes if known[a.index] > 1 and a.index in main.depends and a.index not in deep]
    if prod(known[n] for n in together) <= MOST_TOGETHER:
        before, handle = schedule.state, schedule[name]
        try:
            handle.reorder(*(x for x in handle.loops if x not in together), *together)
            for index in together:
                handle.unroll(index)
        except ScheduleError:
            schedule.state = before
    return True
