"""The default schedule, from an analysis of the program alone: no measuring, no list of kernels.

First pairwise terms are computed again by all that reads them (`planners.programs.pairs`), and definitions are written into their reader
where nothing is computed twice by it. Then those that share the outer loops of their reader are computed in them, so that a
row of a softmax or a norm stays near. Then every definition gets vectors and tiles (`planners.tiles.loops`), and last the outermost
loops run on all cores where there is enough to do.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from contextlib import suppress
from math import prod

from tensorexpr.algebra import sent_apart, turned_operands
from tensorexpr.codegen.planners.gpu.grid import plan_gpu
from tensorexpr.codegen.planners.programs.again import plan_again
from tensorexpr.codegen.planners.programs.crossed import crossed_sums
from tensorexpr.codegen.planners.programs.pairs import pair_terms, plan_nested, sharing
from tensorexpr.codegen.planners.programs.rows import kept_near, plan_rows
from tensorexpr.codegen.planners.steps.scatters import plan_scatter, take_scatters_apart
from tensorexpr.codegen.planners.steps.skewing import skew_scans
from tensorexpr.codegen.planners.steps.sweeps import sweep_scans
from tensorexpr.codegen.planners.tiles.contraction import plan_contraction
from tensorexpr.codegen.planners.tiles.dots import plan_dots
from tensorexpr.codegen.planners.tiles.loops import WIDEST_LANES, plan
from tensorexpr.codegen.planners.tiles.parts import partial_results
from tensorexpr.codegen.planners.tiles.staging import stage_operands
from tensorexpr.codegen.schedule.analysis.state import State, accesses_of, definition_named, program_facts
from tensorexpr.codegen.schedule.analysis.strides import reach
from tensorexpr.codegen.schedule.analysis.work import (
    CHUNKS_PER_CORE,
    ENOUGH_ROWS,
    PARALLEL_WORK,
    bytes_of,
    has_reduction,
    is_contraction,
    length,
    total_work,
)
from tensorexpr.codegen.schedule.decisions import Decisions
from tensorexpr.codegen.schedule.legal.together import side_by_side
from tensorexpr.codegen.schedule.schedule import Planned, schedule
from tensorexpr.codegen.target import Gpu, Target
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Const, Define, Definition, Expr, Index, Program, Reduce, Scan, Scatter
from tensorexpr.simplify.passes.amounts import elements
from tensorexpr.simplify.passes.inline import cheap_names, without_lost_checks
from tensorexpr.traversal import children, read_occurrences, reads, tensors_read, walk

MOST_LOOKED_AT = 200
"""Definitions of a program up to which all pairs of them are looked at for common rows."""
MOST_SHARED = 32
"""Definitions computed in the loops of one other: beyond it their rows do not stay near anyway, and each nests a level deeper."""
MOST_WORK = 64
"""Operations per byte of what a definition touches up to which it matters that its results are near when they are read."""
NOWHERE = "no loop"
LONG_SUM = 1 << 20
"""Points of sums down columns from which each is kernels of a GPU of its own: blocks that take a column each read eight times as much."""
SHORT = 2
"""Vectors of a CPU in a row below which rows are short."""
LoopOf = Callable[[Planned, dict[str, Define], Define, str], str | None]


def autoschedule(program: Program, target: Target | None = None, decisions: Decisions | None = None) -> Planned:
    """The schedule that `build` uses by default; with `decisions`, one beside it."""
    s = schedule(program, target)
    if decisions is not None:
        s.decisions = decisions
    for name in sharing(s.state):
        if s.decisions.wanted(f"{name}: share"):
            s[name].share()
    planned = _in_rows(s)
    partial_results(s)
    sweep_scans(s)
    shapes = shapes_of(s.state.program)
    points = _share_loops(s, _points_loop)
    _share_loops(s, _rows_loop)
    if isinstance(s.target, Gpu):
        plan_gpu(s, shapes, points)
        _parallelize_together(s)
        return s
    planned |= points
    for name in s.stages:
        if name not in planned and isinstance(definition_named(s.state.program, name), Define):
            known = set(s.stages)
            if plan_dots(s, name) or plan_contraction(s, name, shapes):
                planned |= {name, *s.stages} - known | {name}
            else:
                stage_operands(s, name, shapes)
    for name in s.stages:
        definition = definition_named(s.state.program, name)
        if isinstance(definition, Define):
            if name not in planned and not plan_nested(s, name, shapes):
                plan(s, name, shapes)
        elif isinstance(definition, Scatter):
            plan_scatter(s, definition, shapes)
    skew_scans(s)
    for name in s.stages:
        _parallelize(s, name)
    _parallelize_together(s)
    return s


def _in_rows(s: Planned) -> set[str]:
    """Pairwise terms computed again, definitions written into their readers, and what leads to rows in blocks of them; gives the
    definitions whose loops are made. A term is not computed again where blocks of rows keep it near; where they do not, it is."""
    terms = [name for name in pair_terms(s.state) if s.decisions.wanted(f"{name}: recompute")]
    near = set() if isinstance(s.target, Gpu) else kept_near(s) & set(terms)
    before = s.state
    while True:
        again = without_lost_checks(s.state.program, [name for name in terms if name not in near])
        if again:
            s.recompute(*again)
        _inline(s)
        if not isinstance(s.target, Gpu):
            take_scatters_apart(s)
        planned = crossed_sums(s, shapes_of(s.state.program))
        if not isinstance(s.target, Gpu):
            shapes = shapes_of(s.state.program)
            planned |= plan_again(s, shapes)
            planned |= plan_rows(s, shapes)
        if all(s.state.stage(name).place is not None for name in near if name in s.state.table):
            return planned
        s.state, near = before, set()


def shapes_of(program: Program) -> dict[str, tuple[Expr, ...]]:
    """The shape of every tensor, those inside scans included."""
    shapes = {name: type_.shape for name, type_ in program.types.items()}
    todo: list[Definition] = list(program.definitions)
    while todo:
        definition = todo.pop()
        if isinstance(definition, Scan):
            todo.extend(definition.body)
            shapes.update((name, type_.shape) for name, type_ in definition.states)
            shapes.update((name, type_.shape) for d in definition.body for name, type_ in d.results)
    return shapes


# --------------------------------------------------------------------------------------------------------- inlining


def _inline(s: Planned) -> None:
    program = s.state.program
    parts = {d.name for d in program.definitions if isinstance(d, Define) and _is_part(d, program)}
    apart = parts | sent_apart(program) | turned_operands(program)
    chosen = [n for n in cheap_names(program) if n not in apart and not s.state.stage(n).parts.unproved]
    chosen += [n for n in _epilogues(program, s.state) if n not in chosen]
    chosen = without_lost_checks(program, [n for n in chosen if s.decisions.wanted(f"{n}: inline")])
    if chosen:
        s.inline(*chosen)


def _is_part(d: Define, program: Program) -> bool:
    """Whether a definition is a part of a tensor, which is not read through another name: it was made for products (`layouts.slices`)."""
    return isinstance(d.value, Access) and elements(d.results[0][1].shape) < elements(program.types[d.value.tensor].shape)


def _epilogues(program: Program, state: State) -> list[str]:
    """Definitions with reductions that one other definition reads, element by element: it becomes what is done with the result. Of several
    contractions that one definition reads the last one goes there: a tile is one contraction's."""
    facts = program_facts(program)
    chosen: list[str] = []
    tiles: dict[str, str] = {}
    for definition in program.definitions:
        if not isinstance(definition, Define) or definition.name in program.outputs or not has_reduction(definition.value):
            continue
        if state.stage(definition.name).parts.unproved:
            continue
        found = [facts.definitions[name] for name in facts.readers.get(definition.name, ())]
        if len(found) != 1 or not isinstance(found[0], Define) or not _reads_elementwise(found[0], definition):
            continue
        if not is_contraction(state, definition.name):
            chosen.append(definition.name)
        elif _reads_always(found[0], definition) and not is_contraction(state, found[0].name):  # a sum in a branch has no tile
            tiles[found[0].name] = definition.name
    return [*chosen, *tiles.values()]


def _reads_always(reader: Define, source: Define) -> bool:
    """Whether a definition reads another whatever the data are."""
    guards = [guards for access, _, guards in read_occurrences(reader.value, ()) if access.tensor == source.name]
    return any(not any(map(tensors_read, found)) for found in guards)


def _reads_elementwise(reader: Define, source: Define) -> bool:
    """Whether the reader asks for each element of the source once, outside of reductions, always at the same indices."""
    inside = {a.tensor for n in walk(reader.value) if isinstance(n, Reduce) for a in walk(n) if isinstance(a, Access)}
    if source.name in inside:
        return False
    places = {access.indices for access, _, _ in read_occurrences(reader.value, ()) if access.tensor == source.name}
    if len(places) != 1:
        return False
    (indices,) = places
    names = [i.name for i in indices if isinstance(i, Index)]
    extents = {a.index: a.stop for a in reader.axes}
    return (
        len(names) == len(indices)
        and sorted(names) == sorted(extents)
        and all(extents[n] == a.stop for n, a in zip(names, source.axes, strict=True))
    )


# ------------------------------------------------------------------------------------------------- sharing of loops


def _share_loops(s: Planned, loop_of: LoopOf) -> set[str]:
    """Computes definitions in a loop of their reader, which `loop_of` gives, where neither is a contraction, which needs tiles. Gives the
    names of both."""
    found: set[str] = set()
    program = s.state.program
    table = {d.name: d for d in program.definitions if isinstance(d, Define) and d.name in s.state.table}
    fixed = _scan_reads(program)
    number = {name: k for k, d in enumerate(program.definitions) for name, _ in d.results}
    for reader in reversed(program.definitions):
        if (
            not isinstance(reader, Define)
            or reader.name not in table
            or s.state.stage(reader.name).place is not None
            or is_contraction(s.state, reader.name)
        ):
            continue
        # Later definitions first, so that all readers of one are placed before it is looked at.
        todo = [-number[n] for n in reads(reader) if n in table]
        heapq.heapify(todo)
        seen: set[str] = set()
        shared = 0
        for guest in _guests(s, table, reader) if loop_of is _rows_loop else ():
            before = s.state
            if _share(s, table, reader, guest, loop_of) and _is_near(s, table, reader, guest):
                shared += 1
                seen.add(guest)
                for n in reads(table[guest]):
                    if n in table:
                        heapq.heappush(todo, -number[n])
            else:
                s.state = before
        while todo and shared < MOST_SHARED:
            name = program.definitions[-heapq.heappop(todo)].results[0][0]
            if name in seen or name in fixed:
                continue
            seen.add(name)
            if s.state.stage(name).place is None and not is_contraction(s.state, name) and _share(s, table, reader, name, loop_of):
                shared += 1
                found |= {name, reader.name}
                for n in reads(table[name]):
                    if n in table:
                        heapq.heappush(todo, -number[n])
    return found


def _guests(s: Planned, table: dict[str, Define], host: Define) -> list[str]:
    """Earlier definitions that run over the same rows as another and read some of what it reads there, row by row: in its loops
    the rows are still near, and what both need of a row is computed once."""
    facts = program_facts(s.state.program)
    if len(host.axes) < 2 or len(facts.definitions) > MOST_LOOKED_AT:
        return []
    rows = _rows(s, host)
    around = {host.name, *_upstream(table, host)}
    found = []
    for name, definition in table.items():
        if facts.numbers[name] >= facts.numbers[host.name] or name in around or not 0 < len(definition.axes) <= len(host.axes):
            continue
        if s.state.stage(name).place is not None or s.state.placed_in(name) or is_contraction(s.state, name):
            continue
        same = definition.axes[0].stop == host.axes[0].stop and rows & _rows(s, definition)
        if same and all(facts.numbers[r] > facts.numbers[host.name] for r in facts.readers.get(name, ()) if r not in around):
            found.append(name)
    return found


def _is_near(s: Planned, table: dict[str, Define], host: Define, guest: str) -> bool:
    """Whether a guest finds there what it reads: computed for its host, or rows that are large together and small one by one.

    Rows that stay near between two kernels need no host, and cores need rows enough of the outermost loop, which alone they share.
    """
    if any(n in table for n in reads(table[guest])):
        return True
    place = s.state.stage(guest).place
    if place is None or length(host.axes[0]) < _rows_enough(s.target):
        return False
    types = s.state.program.types
    both = sum(bytes_of(types[n]) for n in sorted(_rows(s, host) & _rows(s, table[guest])))
    axis = s.state.stage(host.name).axes_of(place.loop)[-1]
    outer = prod(length(a) for a in host.axes[: [a.index for a in host.axes].index(axis) + 1])
    return s.target.l2_bytes < both <= outer * s.target.l2_bytes // 4


def _upstream(table: dict[str, Define], host: Define) -> set[str]:
    """Definitions that a definition reads, and those that these read."""
    todo, found = [n for n in reads(host) if n in table], set()
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += [n for n in reads(table[name]) if n in table]
    return found


def _rows(s: Planned, definition: Define) -> set[str]:
    """The large tensors that a definition, or what it reads at the same rows, reads at its own first axis."""
    definitions = program_facts(s.state.program).definitions
    names, found = [definition.name], set()
    seen: set[str] = set()
    while names and len(seen) < MOST_SHARED:
        name = names.pop()
        other = definitions.get(name)
        if name in seen or not isinstance(other, Define) or not other.axes:
            continue
        seen.add(name)
        for access in accesses_of(s.state.program, name):
            first = access.indices[0] if access.indices else None
            if isinstance(first, Index) and first.name == other.axes[0].index:
                if len(access.indices) > 1 and access.tensor not in definitions:
                    found.add(access.tensor)
                names.append(access.tensor)
    return found


def _scan_reads(program: Program) -> set[str]:
    return {n for d in program.definitions if isinstance(d, Scan) for n in reads(d)}


def _share(s: Planned, table: dict[str, Define], reader: Define, name: str, loop_of: LoopOf) -> bool:
    """Computes a definition in the loops of a reader where that is worth it; says whether it is so now."""
    before = s.state
    with suppress(ScheduleError):
        loop = loop_of(s, table, reader, name)
        if loop is not None:
            s[name].compute_at(reader.name, loop)
            return True
    s.state = before
    return False


def _rows_loop(s: Planned, table: dict[str, Define], reader: Define, name: str) -> str | None:
    """The innermost of the outer loops of a reader in which a definition that runs over the same leading axes is worth computing."""
    source = table[name]
    stage = s.state.stage(reader.name)
    depth = 0
    group = [reader.name, *(m.name for m in s.state.placed_in(reader.name))]
    asking = [(table[other], a) for other in group for a in accesses_of(s.state.program, other) if a.tensor == name]
    outer: tuple[str, ...] = ()
    loops: list[str] = []
    while depth < min(len(source.axes), len(reader.axes)):
        axis = reader.axes[depth]
        own = stage.loops_of(axis.index)
        outer += own
        alone = all(stage.axes_of(x) == (axis.index,) and stage.kind(x) == "serial" for x in own)
        if source.axes[depth].stop != axis.stop or stage.order[: len(outer)] != outer or not alone:
            break
        if not all(_leading_axis(other, access, depth) for other, access in asking):
            break
        depth += 1
        loops.append(outer[-1])
    if depth == 0 or not _worth_sharing(s, reader, depth) or _is_costly(s, source):
        return None
    alone = depth == len(source.axes) and (depth < len(reader.axes) or len(reader.axes) == 1)  # an element at a time
    each = depth == len(source.axes) if s.target.is_gpu else alone
    if each and (_is_down_columns(s, source) or _is_down_columns(s, reader)):
        return None
    placed = {m.place.loop for m in s.state.placed_in(reader.name) if m.place is not None}
    # On a GPU the innermost loop is then a block's, whose threads run along the rows that are there, or a thread's own.
    rows = s.target.is_gpu and (loops[-1] in placed or bool(stage.parts.groups))
    if depth == len(reader.axes) and len(source.axes) == depth and len(reader.axes) > 1 and not rows:
        loops.pop()  # the innermost loop stays free for vectors
        if s.target.is_gpu and not _worth_sharing(s, reader, len(loops)):
            return None
    loop = s.decisions.choose(f"{name}: computed in {reader.name} at", loops[-1:], others=lambda: (*reversed(loops), NOWHERE))
    return None if loop == NOWHERE else loop


def _points_loop(s: Planned, table: dict[str, Define], reader: Define, name: str) -> str | None:
    """rewrite: [i, j] --> [i_j_o, i_j_i: vectorize]. The innermost loop of a reader that goes element by element through arrays of one
    shape, as what it reads does: both are computed a few vectors at a time, so that each array is read and written once. Long rows of a CPU
    have loops of their own: fewer arrays at a time are gone through, which was measured to be a tenth faster."""
    shape, vector = [a.stop for a in reader.axes], s.target.lanes(reader.value.dtype)
    columns = not s.target.is_gpu
    if shape != [a.stop for a in table[name].axes] or not all(_is_of_points(d, s.state.program, columns) for d in (reader, table[name])):
        return None
    handle = s[reader.name]
    if s.target.is_gpu or _has_lanes(s, reader.name):
        return handle.loops[-1]
    if len(shape) > 1 and length(reader.axes[-1]) >= SHORT * vector:
        return None
    loop, *rest = handle.loops
    for inner in rest:
        loop = handle.fuse(loop, inner)
    lanes = min(WIDEST_LANES, prod(map(length, reader.axes)) // vector) * vector
    if lanes > 1:
        _, loop = handle.split(loop, lanes, "shift")
        handle.vectorize(loop)
    return loop


def _is_of_points(definition: Define, program: Program, columns: bool) -> bool:
    """Whether a definition reads scalars and its own element of tensors of its shape alone, with `columns` also of columns of tensors."""
    own, shape = tuple(Index(a.index) for a in definition.axes), definition.results[0][1].shape

    def fits(e: Expr) -> bool:
        if isinstance(e, Access):
            along = [(at, extent) for at, extent in zip(e.indices, program.types[e.tensor].shape, strict=True) if not isinstance(at, Const)]
            return not along or (along == list(zip(own, shape, strict=True)) and (columns or len(e.indices) == len(along)))
        return not isinstance(e, Index | Reduce) and all(map(fits, children(e)))

    return bool(own) and fits(definition.value)


def _has_lanes(s: Planned, name: str) -> bool:
    """Whether a definition has lanes."""
    stage = s.state.stage(name)
    return any(stage.kind(x) == "vectorize" for x in stage.order)


def _is_down_columns(s: Planned, source: Define) -> bool:
    """Whether sums that are taken one by one go along rows that lie apart, where lanes beside each other could take them side by side: a
    vector times a matrix. Of a GPU only those beside which its launches are short."""
    if not has_reduction(source.value):
        return False
    if s.target.is_gpu:
        longest = max(prod(map(length, n.axes)) for n in walk(source.value) if isinstance(n, Reduce))
        if prod(map(length, source.axes)) * longest < LONG_SUM:
            return False
    summed = {a.index for n in walk(source.value) if isinstance(n, Reduce) for a in n.axes}
    shapes = s.state.program.types
    reads_ = [reach(a, shapes[a.tensor].shape) for a in accesses_of(s.state.program, source.name)]
    moving = [r for r in reads_ if any(r.stride(a) for a in summed)]
    beside = [r for r in moving if abs(r.stride(source.axes[-1].index)) == 1]
    return bool(beside) and all(abs(r.stride(a)) != 1 for r in beside for a in summed)


def _leading_axis(reader: Define, access: Access, depth: int) -> bool:
    """Whether a read in a definition asks for the element of its own axis number `depth` there."""
    index = access.indices[depth]
    return isinstance(index, Index) and depth < len(reader.axes) and index.name == reader.axes[depth].index


def _rows_enough(target: Target) -> int:
    """Rows from which a loop over them alone has work for all. Of a CPU the same for any number of cores: what is computed in whose
    loops decides the order of sums, and results must not depend on how many cores a process may use."""
    return 2 * target.cores if isinstance(target, Gpu) else ENOUGH_ROWS


def _is_costly(s: Planned, source: Define) -> bool:
    """Whether so much is computed per byte that a definition touches that it does not matter whether it is near."""
    types, stage = s.state.program.types, s.state.stage(source.name)
    touched = sum(bytes_of(types[n]) for n in dict.fromkeys((source.name, *reads(source))))
    return (
        not s.target.is_gpu
        and has_reduction(source.value)
        and len(stage.parts.axes) > 1
        and total_work(stage.parts) > MOST_WORK * touched > 0
    )


def _worth_sharing(s: Planned, reader: Define, depth: int) -> bool:
    outer = 1
    for axis in reader.axes[:depth]:
        outer *= length(axis)
    return outer >= _rows_enough(s.target) or total_work(s.state.stage(reader.name).parts) < PARALLEL_WORK


# ---------------------------------------------------------------------------------------------------------- parallel


def _parallelize(s: Planned, name: str) -> None:
    stage = s.state.stage(name)
    if stage.place is not None or s.target.cores < 2:
        return
    members = s.state.placed_in(name)
    free = [x for x in stage.order if stage.group_of(x) is None and stage.kind(x) == "serial"]
    work = sum(total_work(m.parts) for m in (stage, *members))
    # Of a loop whose length is open the machine code knows at each call whether other cores are worth waking.
    if not s.decisions.wanted(f"{name}: parallel", work >= PARALLEL_WORK or (bool(free) and stage.extent(free[0]) is None)) or not free:
        return
    alone = isinstance(definition_named(s.state.program, name), Define | Scan) and not members

    def together() -> None:
        s[name].parallel(_fused_outer(s, name, free) if alone else free[0])

    if not s.tried(together):
        s.tried(s[name].parallel, free[0])


def _parallelize_together(s: Planned) -> None:
    """Runs what becomes one region in parallel where there is enough to do in all of it, or on a GPU; on one core as well: loops that are
    equal are one function then."""
    for group in side_by_side(s.state):
        work = sum(total_work(m.parts) for name in group for m in (s.state.stage(name), *s.state.placed_in(name)))
        for name in group if s.target.is_gpu or work >= PARALLEL_WORK else ():
            loops = s[name].loops
            if loops and s.state.stage(name).kind(loops[0]) == "serial":
                s.tried(s[name].parallel, loops[0])


def _fused_outer(s: Planned, name: str, free: list[str]) -> str:
    """The outermost loop, together with those inside it while its iterations are too few for all cores."""
    loop, rest = free[0], free[1:]
    while rest:
        stage = s.state.stage(name)
        extent = stage.extent(loop)
        at = stage.order.index(loop)
        if stage.order[at + 1 : at + 2] != (rest[0],):
            return loop
        few = extent is not None and extent < CHUNKS_PER_CORE * s.target.cores
        if not s.decisions.wanted(f"{name}: {loop} and {rest[0]} as one", few):
            return loop
        before = s.state
        try:
            loop = s[name].fuse(loop, rest[0])
        except ScheduleError:
            s.state = before
            return loop
        rest = rest[1:]
    return loop
