"""Pairwise terms in the default schedule: which definitions are never stored, and the loops of what computes them again.

A pair term is a definition far larger than all that it reads (besides its own elements of matrices that are there anyway)
and all that is made of it: a distance, a kernel or a weight for every pair of points. Storing one costs memory, and about a
nanosecond per element and reader; a few dozen operations in vector lanes cost less. So it is computed again by each of its
readers (`recompute`), where

* a point costs at most `MOST_WORK` operations, those of other terms that it is made of included;
* it is no long product of open extents that several read: scores of an attention are stored, one of a batch for each core
  (`nest.batches`);
* the readers are definitions whose loops run over its elements about once, besides short data axes (coordinates,
  channels), whose accumulators share the value: where it is a sum and an operand of a product, as many as registers.

A definition with reductions inside its reduction then gets lanes along a data axis that the inner values depend on, the
outer reduction around them, short inner reductions copied out, so that what depends on the lanes alone is loaded once, and
the short data axes innermost, each with an accumulator in registers. Where there is no such axis, or a stored matrix of pairs
would be read across its rows, the lanes are points of the outer reduction, shared by a few rows of the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from tensorexpr.codegen.planners.tiles.loops import GATHER
from tensorexpr.codegen.schedule.analysis.reductions import Group, Parts
from tensorexpr.codegen.schedule.analysis.state import State, is_inside, program_facts
from tensorexpr.codegen.schedule.analysis.strides import Reach, reach, reaches
from tensorexpr.codegen.schedule.analysis.work import UNKNOWN_EXTENT, group_work, is_contraction, length, lengths, total_work
from tensorexpr.codegen.schedule.definitions.recompute import repeated_values
from tensorexpr.codegen.schedule.legal.legality import runs_in_lanes
from tensorexpr.codegen.schedule.schedule import Planned, StageHandle
from tensorexpr.dtypes import accumulator
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Axis, Const, Define, Expr, Index, Program, Reduce, Scan
from tensorexpr.records import record, replace
from tensorexpr.regions import affine_of
from tensorexpr.simplify.facts.indices import factors_of
from tensorexpr.traversal import free_names, read_occurrences, reads, walk

MOST_WORK = 128
"""Operations per element up to which computing a pair term again is cheaper than storing and loading it."""
FAR_LARGER = 4
"""How many times larger a pair term is than what it reads together, and than each reader."""
LONG_PRODUCT = 16
"""Terms of the sum of an element from which on that is so."""
LEAST_BYTES = 1 << 14
"""Smaller definitions are kept: they stay in the first cache."""
MOST_OWN = 2
"""Stored tensors of which a term may read its own element: each is loaded again by every reader."""
MOST_TOGETHER = 64
"""Points of the data axes of a reader that share one value: each has an accumulator, up to `MOST_IN_REGISTERS` in a register."""
MOST_IN_REGISTERS = 16
LONGEST_COPIED, MOST_COPIED = 64, 32
"""Reductions inside others are copied out up to this length, and beside rows while there are no more copies of what all lanes have in
common than registers: LLVM loads all of them in front of the blocks of lanes, and stores what it has no register for."""
SHARED_REGISTERS = 24
"""Registers for accumulators, values and what is loaded once; the others hold constants and what is on its way."""
MOST_VECTORS = 2
MOST_ROWS = 4
NEAR = 8
"""Up to this distance, elements that are not consecutive share cache lines."""
FAR_GATHER = 2 * GATHER
WORKING = 4
"""Registers of one vector of values on their way through the inner reductions."""


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
        if cost > MOST_WORK or (len(facts.readers[name]) > 1 and _is_long_product(state, definition)):
            continue
        readers = [facts.definitions[reader] for reader in facts.readers[name]]
        if all(isinstance(reader, Define) and _reads_once(reader, definition, _together(reader, definition, bare)) for reader in readers):
            work[name] = cost
            read_in[name] = tuple(dict.fromkeys((*stored, *(n for r in own for n in read_in.get(r, ())))))
    return tuple(read_in)


def _bytes(shape: tuple[Expr, ...], itemsize: int) -> int:
    return itemsize * prod(int(extent.value) if isinstance(extent, Const) else UNKNOWN_EXTENT for extent in shape)


def _is_long_product(state: State, definition: Define) -> bool:
    """Whether a term of open extents is a product whose tiles take far less than sums in the lanes of each of several readers; of known
    ones blocks of rows keep it near (`rows.kept_near`)."""
    if all(isinstance(extent, Const) for extent in definition.results[0][1].shape) or not is_contraction(state, definition.name):
        return False
    parts = state.stage(definition.name).parts
    known = lengths(parts)
    return any(prod(known[a.index] for a in group.axes) >= LONG_PRODUCT for group in parts.groups)


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
    read = ((access.tensor, axes) for access, axes, _ in read_occurrences(definition.value, ()))
    inner = sum(known[name] * prod(map(length, axes)) for name, axes in read if name in known)
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


def _together(reader: Define, term: Define, bare: bool) -> int:
    """How many points of the data axes of a reader may share a value of a term. One that is a sum and multiplied in another is an operand
    of a product, whose tiles pay for storing it where accumulators are more than registers."""
    sums = [n for n in walk(reader.value) if isinstance(n, Reduce)] if any(isinstance(n, Reduce) for n in walk(term.value)) else []
    operands = {f.tensor for n in sums for value in n.values for f in factors_of(value) if isinstance(f, Access)}
    return MOST_TOGETHER if bare and term.name not in operands else MOST_IN_REGISTERS


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


def is_nested(parts: Parts) -> bool:
    """Whether a definition has reductions inside its largest reduction."""
    main = _main(parts)
    return main is not None and any(is_inside(parts, g.number, main.number) for g in parts.groups)


def _main(parts: Parts) -> Group | None:
    known = lengths(parts)

    def work(group: Group) -> int:
        inner = (g for g in parts.groups if is_inside(parts, g.number, group.number))
        return sum(group_work(parts, g, known) * prod(known[n] for n in g.depends if n in group.indices) for g in (group, *inner))

    return max((g for g in parts.groups if g.scope is None), key=work, default=None)


def plan_nested(schedule: Planned, name: str, shapes: Mapping[str, tuple[Expr, ...]]) -> bool:
    """Gives a definition with reductions inside its reduction its loops, as the module says; False where that is illegal."""
    if not is_nested(schedule.state.stage(name).parts):
        return False
    planner = _Nested(schedule, name, shapes)
    for choice in schedule.decisions.ranked(f"{name}: lanes and rows", planner.choices(), others=planner.other_choices):
        before = schedule.state
        try:
            planner.apply(schedule[name], choice)
            return True
        except ScheduleError:
            schedule.state = before
    return False


@record
class Choice:
    """An axis to run in lanes, how many vectors of them, and the rows of another axis that share what is loaded."""

    axis: str
    vectors: int
    row: str | None = None
    rows: int = 1

    def __str__(self) -> str:
        lanes = f"{self.vectors} vectors of {self.axis}"
        return lanes if self.row is None else f"{self.rows} {self.row}, {lanes}"


class _Nested:
    """Looks at the loops of one definition whose largest reduction has others inside."""

    def __init__(self, schedule: Planned, name: str, shapes: Mapping[str, tuple[Expr, ...]]) -> None:
        self.stage = schedule.state.stage(name)
        self.parts = parts = self.stage.parts
        self.target = schedule.target
        self.lengths = lengths(parts)
        main = _main(parts)
        assert main is not None
        self.main = main
        self.inner = [g for g in parts.groups if is_inside(parts, g.number, main.number)]
        exprs = (*parts.values, *(v for g in parts.groups for m in g.members for v in m.values))
        self.reads = reaches(exprs, shapes)
        self.store = reach(Access(name, tuple(Index(a.index) for a in parts.axes), parts.values[0].dtype), shapes[name])
        self.lanes = self.target.lanes(accumulator(main.members[0].values[0].dtype))
        unproved = {n for access, axis in parts.unproved for n in free_names(access.indices[axis])}
        self.deep = {n for g in self.inner for n in g.depends}
        self.data = [a for a in parts.axes if self.lengths[a.index] > 1 and a.index not in unproved]
        self.together = [a.index for a in self.data if a.index in main.depends and a.index not in self.deep]
        if prod(self.lengths[n] for n in self.together) > MOST_TOGETHER:
            self.together = []

    def choices(self) -> list[Choice]:
        """What to try, best first: lanes along a data axis that the inner values depend on, or along an axis of the reduction."""
        found = [(self._cost(c), at, c) for at, c in enumerate(self._candidates())]
        best = [c for _, _, c in sorted(found)]
        return [n for c in best[:2] for n in dict.fromkeys((c, replace(c, vectors=1)))]

    def other_choices(self) -> list[Choice]:
        """Further ones, for those who measure."""
        found = [replace(c, rows=n) for c in self._candidates() for n in range(1, MOST_ROWS + 1) if c.row is not None or n == 1]
        found = [replace(c, vectors=n) for c in found for n in range(1, 2 * MOST_VECTORS + 1)]
        return sorted(found, key=self._cost)

    def _candidates(self) -> Iterator[Choice]:
        data = [a.index for a in self.data if a.index in self.deep]
        for axis in data:
            yield Choice(axis, self._vectors(axis, 1))
        if not runs_in_lanes(self.main):
            return
        row = max(data, key=lambda n: self.lengths[n], default=None)
        points = prod(self.lengths[n] for n in self.together)
        rows = 1 if row is None else max(1, min(MOST_ROWS, MOST_IN_REGISTERS // points, self.lengths[row]))
        for a in self.main.axes:
            if self.lengths[a.index] > self.lanes:
                yield Choice(a.index, self._vectors(a.index, rows), row, rows)

    def _vectors(self, axis: str, rows: int) -> int:
        most = SHARED_REGISTERS // (self._shared(axis, rows) + WORKING * rows)
        return max(1, min(MOST_VECTORS, most, -(-self.lengths[axis] // self.lanes)))

    def _cost(self, choice: Choice) -> float:
        """Loads per point, and how many lanes are computed per lane that counts."""
        cost = 1.0
        for r in self.reads:
            stride = abs(r.stride(choice.axis))
            if not stride or self._is_settled(r, choice.axis):
                continue
            copies = prod(self.lengths[i] for g in self.inner for i in g.indices if r.stride(i))
            shared = choice.rows if choice.row is not None and not r.stride(choice.row) else 1
            cost += copies / shared * (1.0 if stride == 1 else GATHER if stride <= NEAR else FAR_GATHER)
        blocks = -(-self.lengths[choice.axis] // self.lanes)
        return cost * blocks * self.lanes / max(1, self.lengths[choice.axis])

    def _is_settled(self, r: Reach, axis: str) -> bool:
        """Whether what is loaded stays the same in all iterations inside a block of lanes along an axis, so that it is loaded once."""
        inner = [i for g in self.inner for i in g.indices if r.stride(i)]
        others = [n for n in self.main.indices if n != axis]
        alone = axis in self.main.indices and not others
        return not alone and not any(r.stride(n) for n in others) and all(self.lengths[i] <= LONGEST_COPIED for i in inner)

    def _shared(self, axis: str, rows: int) -> int:
        """Registers per vector that live through the outer reduction: accumulators, and what is loaded once."""
        points = prod(self.lengths[n] for n in self.together)
        loaded: dict[str, int] = {}
        for r in self.reads:
            if r.stride(axis) and self._is_settled(r, axis):
                copies = prod(self.lengths[n] for n in (*self.together, *(i for g in self.inner for i in g.indices)) if r.stride(n))
                loaded[r.access.tensor] = max(loaded.get(r.access.tensor, 0), copies)
        return (points if points <= MOST_IN_REGISTERS else 1) * rows * len(self.main.members) + sum(loaded.values())

    def apply(self, handle: StageHandle, choice: Choice) -> None:
        """Lanes innermost, around them the axes that share a value, copied out, and short inner reductions where they stand."""
        stage = handle._stage
        is_data = stage.group_of(choice.axis) is None
        extent, lanes = stage.extent(choice.axis), choice.vectors * self.lanes
        outer, within = choice.axis, choice.axis
        if extent != lanes or not is_data:
            tail = "peel" if not is_data else "shift" if extent is None or extent >= lanes else "guard"
            outer, within = handle.split(choice.axis, lanes, tail)
        last = [*self.together, within]
        copied = [n for n in self.together if prod(self.lengths[t] for t in self.together) <= MOST_IN_REGISTERS]
        if choice.row is not None and choice.rows > 1:
            rows = choice.row
            if handle._stage.extent(rows) != choice.rows:
                _, rows = handle.split(rows, choice.rows, "shift")
            last, copied = [rows, *last], [rows, *copied]
        rest = [x for x in handle.loops if x not in last]
        if not is_data:  # blocks of lanes outside of the other loops of their reduction
            at = min(rest.index(x) for x in rest if x in self.main.indices or x == outer)
            rest.remove(outer)
            rest.insert(at, outer)
        handle.reorder(*rest, *last)
        for group in self.inner:
            for index in group.indices:
                longest = LONGEST_COPIED if choice.rows == 1 else MOST_COPIED // choice.rows
                if 1 < self.lengths[index] <= longest and handle._stage.extent(index) is not None:
                    handle.unroll(index)
        for index in copied:
            handle.unroll(index)
        handle.vectorize(within)
