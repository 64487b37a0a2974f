"""Definitions that run over the same batch, one element of it at a time: what lies between them stays in the caches.

The gradient of an attention, say: scores, weights and their adjoints are matrices for each head, written by one contraction and read
by several, and no head asks for what is of another. Each definition by itself goes through memory from end to end. In the loop over
heads of the last of them, all of them are computed for one head (`compute_at`), outputs among them where they belong, and what lies
between in workspace of the head alone:

    for head: copies of operands; scores; weights; ...; the adjoint of weights; gradients of queries, keys and values

It pays where what lies between is large, but that of one element of the batch fits the caches, the batch has elements for all cores,
and not much is done with each byte.
"""

from __future__ import annotations

from tensorexpr.codegen.planners.tiles.contraction import plan_contraction
from tensorexpr.codegen.schedule.analysis.state import accesses_of, program_facts
from tensorexpr.codegen.schedule.analysis.work import ENOUGH_ROWS, bytes_of, is_contraction, length, total_work
from tensorexpr.codegen.schedule.legal.placement import SCRATCH_LIMIT
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Const, Define, Definition, Expr, Index

MOST_WORK = 512
"""Operations per byte of what lies between up to which it matters that it goes through memory."""
MOST_MEMBERS = 64
"""Definitions up to which they are taken together: each has workspace of its own."""
LEAST_CONTRACTIONS = 3
"""Contractions from which on they are taken together: fewer are chains of rows, or no more than one reader each."""


def plan_batches(s: Planned, shapes: dict[str, tuple[Expr, ...]]) -> set[str]:
    """Computes definitions over one batch in the loop over it of the last of them; the names of those whose loops are made."""
    planned: set[str] = set()
    for host in reversed(s.state.program.definitions):
        if not isinstance(host, Define) or not _is_free(s, host) or not is_contraction(s.state, host.name):
            continue
        members = _members(s, host)
        if not members or not s.decisions.wanted(f"{host.name}: the batch together", _pays(s, host, members)):
            continue
        before, known = s.state, dict(shapes)
        try:
            made = _apply(s, host, members, shapes)
        except ScheduleError:
            made = None
        if made is None:
            s.state = before
            shapes.clear()
            shapes.update(known)
        else:
            planned |= made
    return planned


def batched(s: Planned) -> set[str]:
    """The definitions that are computed in the loop over their batch, an element of it at a time."""
    found: set[str] = set()
    for host in reversed(s.state.program.definitions):
        if isinstance(host, Define) and host.name not in found and _is_free(s, host) and is_contraction(s.state, host.name):
            members = _members(s, host)
            if members and _pays(s, host, members):
                found |= {host.name, *members}
    return found


def _is_free(s: Planned, definition: Definition) -> bool:
    """Whether a definition has loops of its own, of constant extents, and nothing in it is checked as it runs."""
    name = definition.results[0][0]
    if not isinstance(definition, Define) or name not in s.state.table or len(definition.axes) < 2:
        return False
    stage = s.state.stage(name)
    if stage.place is not None or stage.scan is not None or stage.sweep is not None or s.state.placed_in(name) or stage.parts.unproved:
        return False
    return all(isinstance(a.stop, Const) for a in definition.axes)


def _members(s: Planned, host: Define) -> tuple[str, ...]:
    """The definitions before the host that read or are read by it, and so on, each at its own element of the batch alone."""
    program = s.state.program
    facts = program_facts(program)
    extent, last = host.axes[0].stop, facts.numbers[host.name]

    def is_able(name: str) -> bool:
        made = facts.definitions[name]
        return facts.numbers[name] < last and isinstance(made, Define) and _is_free(s, made) and made.axes[0].stop == extent

    found, todo = {host.name}, [host.name]
    while todo:
        name = todo.pop()
        for other in dict.fromkeys((*facts.producers.get(name, ()), *facts.readers.get(name, ()))):
            if other in facts.numbers and other not in found and is_able(other):
                found.add(other)
                todo.append(other)
        if len(found) > MOST_MEMBERS:
            return ()
    # Whoever is read otherwise by one of them, or by one before the host that is not, is none; and so on.
    while True:
        wrong = {a.tensor for n in found for a in accesses_of(program, n) if a.tensor in found and not _at_own(facts.definitions[n], a)} | {
            n for n in found if any(r not in found and facts.numbers[r] < facts.numbers[host.name] for r in facts.readers.get(n, ()))
        }
        if not wrong - {host.name}:
            break
        found -= wrong - {host.name}
    return tuple(sorted(found - {host.name}, key=lambda n: facts.numbers[n]))


def _at_own(reader: Definition, access: Access) -> bool:
    """Whether a definition reads there at its own element of the batch."""
    first = access.indices[0] if access.indices else None
    return isinstance(reader, Define) and isinstance(first, Index) and first.name == reader.axes[0].index


def _pays(s: Planned, host: Define, members: tuple[str, ...]) -> bool:
    count = length(host.axes[0])
    contractions = sum(is_contraction(s.state, n) for n in (host.name, *members))
    between = sum(_bytes(s, n) for n in members if n not in s.state.program.outputs)
    work = sum(total_work(s.state.stage(n).parts) for n in (host.name, *members))
    large = s.target.l2_bytes < between <= count * SCRATCH_LIMIT
    return large and count >= ENOUGH_ROWS and contractions >= LEAST_CONTRACTIONS and work <= MOST_WORK * between


def _apply(s: Planned, host: Define, members: tuple[str, ...], shapes: dict[str, tuple[Expr, ...]]) -> set[str] | None:
    """The loops of the host and of contractions among the members: the names of those that have theirs, or None where they cannot be."""
    batch, following = host.axes[0].index, host.axes[1]
    known, planned = set(s.stages), {host.name}
    if not plan_contraction(s, host.name, shapes, (following.index, length(following)), (batch,)):
        return None
    for name in reversed([n for n in s.stages if n in members or n not in known]):
        s[name].compute_at(host.name, batch)
    planned |= {n for n in s.stages if n not in known}
    for name in members:
        before = set(s.stages)
        if is_contraction(s.state, name) and plan_contraction(s, name, shapes):
            planned.add(name)
            for copy in (n for n in s.stages if n not in before):
                s[copy].compute_at(host.name, batch)
                planned.add(copy)
    return planned


def _bytes(s: Planned, name: str) -> int:
    return bytes_of(s.state.program.types[name])
