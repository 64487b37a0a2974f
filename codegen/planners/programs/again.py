"""Large terms that contractions go through along different axes: each contraction computes them for itself, in blocks of its own rows.

The weights of an attention and their adjoints are as large as rows times columns. The gradient of the queries sums them over columns, in
blocks of rows (`planners.programs.rows`); those of keys and values sum them over rows, and need them in blocks of columns. Stored for
all, they go through memory once for each reader. Computed again (`clone`), from what has one number for each row (maxima, sums,
adjoints of these), none of them is ever stored:

    for block of rows:     scores, maxima, weights, sums, ..., gradient of the queries of the block
    for block of columns:  scores again, weights again, ..., gradient of the keys of the block

The chain that makes the most of what is small stays the first. All are made or none: where one of them cannot run in blocks, or what it
would compute again costs more than memory does, everything stays as it was. (Recomputation of attention: Dao et al. 2022.)
"""

from __future__ import annotations

from math import prod

from tensorexpr.codegen.nest.batches import MOST_EACH
from tensorexpr.codegen.planners.programs.rows import are_near, bytes_between, define_of, members_along, plan_rows
from tensorexpr.codegen.schedule.analysis.state import accesses_of, program_facts
from tensorexpr.codegen.schedule.analysis.work import arithmetic, has_reduction, length, lengths
from tensorexpr.codegen.schedule.legal.placement import part_of
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Const, Define, Expr, Index

FAR_LARGER = 4
"""How many times larger a term is than the result of each reduction that reads it."""
MOST_READERS = 8
"""Reductions that have their own terms, and that which has the first."""
MOST_AGAIN = 128
"""Operations computed again for each byte that is not stored, up to which that pays."""


def plan_again(s: Planned, shapes: dict[str, tuple[Expr, ...]]) -> set[str]:
    """Lets contractions that read large terms along other axes than the first of them compute these again, and plans all of them in blocks
    of rows; the names of those whose loops are made."""
    large = _large(s)
    readers = _readers(s, large)
    over_batch = _are_over_batch(s, readers, large)
    if len(readers) < 2 or (over_batch and are_near(s, large)):
        return set()
    home = max(readers, key=lambda name: len(_led(s, name) - large))
    led = _led(s, home)
    apart = {name: _cone(s, name, large) for name in readers if name != home and name not in led}
    if len(apart) >= MOST_READERS:
        return set()
    between = sum(bytes_between(s, n) for n in large)
    again = sum(_work(s, n) for cone in apart.values() for n in cone)
    if not apart or not s.decisions.wanted(f"{home}: large terms again", again <= MOST_AGAIN * between):
        return set()
    before, known = s.state, dict(shapes)
    try:
        for name, cone in apart.items():
            copies = s[name].clone(*cone)
            large |= set(copies)
            shapes.update((n, s.state.program.types[n].shape) for n in copies)
        made = plan_rows(s, shapes, over_batch and between <= MOST_EACH * prod(_first(s, large)))
        if all(s.state.stage(n).place is not None and part_of(s.state, n).is_local for n in large if n in s.state.table):
            return made
    except ScheduleError:
        pass
    s.state = before
    shapes.clear()
    shapes.update(known)
    return set()


def _large(s: Planned) -> set[str]:
    """Definitions between others that the caches do not hold."""
    found = set()
    for definition in s.state.program.definitions:
        if isinstance(definition, Define) and definition.name not in s.state.program.outputs and definition.name in s.state.table:
            stage = s.state.stage(definition.name)
            known = all(isinstance(a.stop, Const) for a in definition.axes) and not stage.parts.unproved and stage.place is None
            if known and bytes_between(s, definition.name) > s.target.l2_bytes:
                found.add(definition.name)
    # A term that is large beside what is made of it: the others are operands and results.
    facts = program_facts(s.state.program)
    return {n for n in found if any(_is_reader(s, r, n) for r in facts.readers.get(n, ())) or _leads_to(s, n, found)}


def _leads_to(s: Planned, name: str, found: set[str]) -> bool:
    sizes = [bytes_between(s, r) for r in program_facts(s.state.program).readers.get(name, ()) if r in found]
    return any(bytes_between(s, name) <= size <= FAR_LARGER * bytes_between(s, name) for size in sizes)


def _is_reader(s: Planned, reader: str, name: str) -> bool:
    """Whether a reduction makes little of a large term."""
    definition = program_facts(s.state.program).definitions[reader]
    if not isinstance(definition, Define) or reader not in s.state.table or any(not isinstance(a.stop, Const) for a in definition.axes):
        return False
    return bool(definition.axes) and FAR_LARGER * bytes_between(s, reader) <= bytes_between(s, name) and has_reduction(definition.value)


def _readers(s: Planned, large: set[str]) -> list[str]:
    """The reductions that make little of large terms, in order."""
    facts = program_facts(s.state.program)
    found = {r for n in large for r in facts.readers.get(n, ()) if r not in large and _is_reader(s, r, n)}
    return sorted(found, key=lambda n: facts.numbers[n])


def _are_over_batch(s: Planned, readers: list[str], large: set[str]) -> bool:
    """Whether each element of the first axis is apart from others: all that reads large terms does so at its own."""
    program = s.state.program
    return len(_first(s, large)) == 1 and all(
        access.indices[:1] == (Index(define_of(s, r).axes[0].index),)
        for r in readers
        for access in accesses_of(program, r)
        if access.tensor in large
    )


def _first(s: Planned, large: set[str]) -> set[int]:
    """The extents of the first axes of definitions."""
    return {length(define_of(s, n).axes[0]) for n in large}


def _led(s: Planned, name: str) -> set[str]:
    """What leads to the rows of a contraction, along the axis along which most does."""
    return max((members_along(s, name, axis) for axis in range(len(define_of(s, name).axes))), key=len)


def _cone(s: Planned, name: str, large: set[str]) -> list[str]:
    """The large terms that lead to a contraction through large terms alone."""
    facts = program_facts(s.state.program)
    todo, found = [name], set()
    while todo:
        for other in facts.producers.get(todo.pop(), ()):
            if other in large and other not in found:
                found.add(other)
                todo.append(other)
    return sorted(found, key=lambda n: facts.numbers[n])


def _work(s: Planned, name: str) -> int:
    """Operations on elements of a definition over all of its points: where they stand costs little beside them."""
    parts = s.state.stage(name).parts
    known = lengths(parts)
    total = prod(known[a.index] for a in parts.axes) * sum(map(arithmetic, parts.values))
    for group in parts.groups:
        points = prod(known[n] for n in (*group.depends, *group.indices) if n in known)
        total += points * sum(1 + arithmetic(v) for m in group.members for v in m.values)
    return total
