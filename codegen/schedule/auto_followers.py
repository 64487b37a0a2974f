"""What is made of the elements of a sum alone runs in the loops of the sum, so that the sum is not stored.

    T[i] = sum(f(i, k) for k);  B[i] = h[i] / T[i]  -->  for i: { t = sum(f(i, k) for k); B[i] = h[i] / t }

A sum that one definition alone reads is written into it. Where several do, each at its own element (a result, and a gradient that many
neighbors read), all of them run in the same loops (`compute_with`): what only they read is kept as one element there.
"""

from __future__ import annotations

from tensorexpr.codegen.schedule.auto_flat import is_elementwise
from tensorexpr.codegen.schedule.auto_memory import bytes_of
from tensorexpr.codegen.schedule.auto_passes import is_plain
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.codegen.schedule.state import Split, accesses_of, program_facts
from tensorexpr.codegen.schedule.work import has_reduction, is_contraction
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Define, Index


def sum_followed(s: Planned, name: str) -> str | None:
    """The sum of whose elements a definition makes something, in whose loops it may run."""
    facts, types = program_facts(s.state.program), s.state.program.types
    made = facts.definitions[name]
    if s.target.is_gpu or not isinstance(made, Define) or not is_plain(s, name) or not is_elementwise(made, types):
        return None
    return next((n for n in facts.producers.get(name, ()) if _is_for_elements(s, n)), None)


def follow(s: Planned, name: str) -> str | None:
    """Gives a definition the loops over elements of the sum that it follows; that sum."""
    source = sum_followed(s, name)
    if source is None or not s.decisions.wanted(f"{name}: follows {source}"):
        return None
    definitions, before = program_facts(s.state.program).definitions, s.state
    made, total = definitions[name], definitions[source]
    assert isinstance(made, Define) and isinstance(total, Define), "elements of definitions"
    try:
        alike = _like(s, made, total)
    except ScheduleError:
        alike = False
    if not alike:
        s.state = before
    return source if alike else None


def _is_for_elements(s: Planned, name: str) -> bool:
    """Whether a definition is a large sum with loops of its own, which others read at their own element alone."""
    program = s.state.program
    facts, stage = program_facts(program), s.state.table.get(name)
    total = facts.definitions.get(name)
    if stage is None or stage.place is not None or not isinstance(total, Define) or not has_reduction(total.value):
        return False
    if (
        name in program.outputs
        or bytes_of(program.types[name]) <= s.target.l2_bytes
        or is_contraction(s.state, name)
        or s.state.placed_in(name)
    ):
        return False
    readers = [facts.definitions[reader] for reader in facts.readers[name]]
    return len(readers) > 1 and all(isinstance(r, Define) and _reads_own(s, r, total) for r in readers)


def _reads_own(s: Planned, reader: Define, total: Define) -> bool:
    places = {a.indices for a in accesses_of(s.state.program, reader.name) if a.tensor == total.name}
    own = tuple(Index(axis.index) for axis in reader.axes)
    return places == {own} and [a.stop for a in reader.axes] == [a.stop for a in total.axes]


def _like(s: Planned, made: Define, total: Define) -> bool:
    """Cuts, orders and marks the loops of a definition as those of another over the same elements are, if that can be."""
    theirs, handle = s.state.stage(total.name), s[made.name]
    names = {axis.index: own.index for axis, own in zip(theirs.parts.axes, s.state.stage(made.name).parts.axes, strict=True)}
    for relation in theirs.relations:
        if isinstance(relation, Split) and relation.parent in names:
            names[relation.outer], names[relation.inner] = handle.split(names[relation.parent], relation.factor, relation.tail)
    loops = [loop for loop in theirs.order if loop in names]
    if {names[loop] for loop in loops} != set(handle.loops):
        return False
    handle.reorder(*(names[loop] for loop in loops))
    for loop in loops:
        if theirs.kind(loop) == "vectorize":
            handle.vectorize(names[loop])
        elif theirs.kind(loop) == "unroll":
            handle.unroll(names[loop])
    return True


def join_followers(s: Planned, followers: dict[str, str]) -> None:
    """Runs definitions in the loops of the sums that they follow, or in those that these have come to run in."""
    for name, source in followers.items():
        before = s.state
        try:
            s[name].compute_with(s.state.stage(source).joins or source)
        except ScheduleError:
            s.state = before
