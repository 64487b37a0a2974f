"""Definitions that go element by element over arrays of one shape: one loop over all elements, in which all of them are computed.

Where every access asks for the element at hand, what the axes are does not matter: a tensor is one row of all its elements, however
short its last axis is. Definitions of one shape that read each other there are computed together, an element (a vector of them) at a
time, so that each array is read once and written once: the moments of a variable and its new value, say. On a CPU long rows have
loops of their own, one after the other for each definition (`auto._share_loops`): fewer arrays at a time are gone through, which was
measured to be a tenth faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tensorexpr.codegen.schedule.analysis.state import Stage, definition_named, program_facts
from tensorexpr.codegen.schedule.analysis.work import has_reduction
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.codegen.target import Gpu
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Const, Define, Expr, Index, Scan, TensorType, integer
from tensorexpr.traversal import children, reads

VECTORS = 4
"""Vectors of a CPU in one vectorized loop, so that their latencies overlap."""
MOST_STREAMS = 16
"""Arrays that one loop goes through: beyond it their pages and cache lines drive each other out."""
SHORT = 2
"""Vectors of a CPU in a row below which rows are short."""


def share_elementwise(s: Planned) -> frozenset[str]:
    """Computes definitions in the one loop of the last of them that reads them there; gives the names of those that have their loops."""
    program = s.state.program
    types = program.types
    table = {d.name: d for d in program.definitions if isinstance(d, Define) and d.name in s.state.table and _is_elementwise(d, types)}
    fixed = {n for d in program.definitions if isinstance(d, Scan) for n in reads(d)}
    planned: dict[str, None] = {}
    for host in reversed(table.values()):
        if s.state.stage(host.name).place is not None or host.name in planned or not _has_short_rows(s, host):
            continue
        before = s.state
        shared = [n for n in _together(s, table, host, fixed) if s.decisions.wanted(f"{n}: an element at a time in {host.name}")]
        try:
            loop = one_loop(s, host.name)
            shared = [n for n in shared if _placed(s, n, host.name, loop)]
        except ScheduleError:
            shared = []
        if shared:
            planned.update(dict.fromkeys((host.name, *shared)))
        else:
            s.state = before
    return frozenset(planned)


def _has_short_rows(s: Planned, definition: Define) -> bool:
    lanes = s.target.lanes(definition.value.dtype)
    return isinstance(s.target, Gpu) or len(definition.axes) == 1 or integer(definition.axes[-1].stop) < SHORT * lanes


def _is_elementwise(definition: Define, types: Mapping[str, TensorType]) -> bool:
    """Whether all that a definition reads is the element at hand of tensors of its own shape, or the one element of a scalar, and its axes
    matter for nothing else."""
    own, shape = tuple(Index(a.index) for a in definition.axes), _shape(definition)
    if not own or has_reduction(definition.value) or not all(isinstance(e, Const) for e in shape):
        return False

    def fits(e: Expr) -> bool:
        match e:
            case Index():
                return False
            case Access():
                return not e.indices or (e.indices == own and types[e.tensor].shape == shape)
        return all(map(fits, children(e)))

    return fits(definition.value)


def _shape(definition: Define) -> tuple[Expr, ...]:
    return tuple(a.stop for a in definition.axes)


def elements(definition: Define) -> int:
    """How many elements a definition of constant shape has."""
    return prod(integer(e) for e in _shape(definition))


def one_loop(s: Planned, name: str) -> str:
    """rewrite: [i, j] --> [i_j_o, i_j_i: vectorize], or [i_j]: one loop over all elements, in vectors where they fill one; gives the
    innermost loop. On a GPU the loops stay: the search makes threads of them."""
    handle = s[name]
    if isinstance(s.target, Gpu):
        return handle.loops[-1]
    loop, *rest = handle.loops
    for inner in rest:
        loop = handle.fuse(loop, inner)
    lanes, count = _lanes(s, s.state.stage(name)), s.state.stage(name).extent(loop) or 0
    if lanes == 1 or count < lanes:
        return loop
    _, lane = handle.split(loop, lanes, "shift")
    handle.vectorize(lane)
    return lane


def _lanes(s: Planned, stage: Stage) -> int:
    """Elements in one vectorized loop."""
    definition = definition_named(s.state.program, stage.name)
    assert isinstance(definition, Define)
    count = elements(definition)
    vector = s.target.lanes(definition.value.dtype)
    return next((n * vector for n in range(VECTORS, 0, -1) if n * vector <= count), 1)


def _together(s: Planned, table: dict[str, Define], host: Define, fixed: set[str]) -> list[str]:
    """What the host reads of its own shape and has no loops yet, itself or in what it reads: readers before what they read."""
    facts = program_facts(s.state.program)
    found: dict[str, None] = {}
    streams = dict.fromkeys(n for n in (host.name, *reads(host)) if _is_long(s, n))
    todo = [host.name]
    while todo:
        for name in reads(table[todo.pop()]):
            source = table.get(name)
            if source is None or name in found or name in fixed or _shape(source) != _shape(host):
                continue
            if s.state.stage(name).place is not None or any(
                facts.numbers[r] < facts.numbers[host.name] and r not in found and r != host.name for r in facts.readers.get(name, ())
            ):
                continue
            more = dict.fromkeys(n for n in (name, *reads(source)) if _is_long(s, n))
            if len({**streams, **more}) <= MOST_STREAMS:
                streams.update(more)
                found[name] = None
                todo.append(name)
    return sorted(found, key=lambda n: -facts.numbers[n])


def _is_long(s: Planned, name: str) -> bool:
    return bool(s.state.program.types[name].shape)


def _placed(s: Planned, name: str, host: str, loop: str) -> bool:
    """Whether a definition could be computed in a loop of its host."""
    before = s.state
    try:
        s[name].compute_at(host, loop)
    except ScheduleError:
        s.state = before
        return False
    return True
