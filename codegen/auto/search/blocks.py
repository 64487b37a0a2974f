"""Groups on a GPU: rows and the sums over rows in one pass, a block of threads for a block of rows.

    for i_o in parallel(range(0, n // 64)):                     a block of threads
        parts: local(f32[8, 4, 256])                            in registers, a few elements of each thread
        for i_i in range(0, 64):
            mean, dx: of one row                                sums of a row by all threads; the row in registers
            parts[o, p, t] = parts[o, p, t] + h[i, j] * x[i, j]
        dw_parts[i_o, :] = parts
    dw = sum of dw_parts                                        a thread for each column

The groups are those of a CPU that take sums apart (`joining`, `passes`); there are two to four blocks for a multiprocessor. Loops along
a row become `o, p, t`: the last runs over the threads of a block, each of which has a few neighbors (`p`) at once, and accumulators are
divided alike, so that each thread has its own. This is one family; all other programs are left to the planners. Which of both is taken,
says the model of cost with the facts of the GPU: most of what there is to gain are passes over memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorexpr.codegen.auto.candidate import Candidate
from tensorexpr.codegen.auto.cost import Model
from tensorexpr.codegen.auto.machine import shipped
from tensorexpr.codegen.auto.reading import summary_of
from tensorexpr.codegen.auto.search.groups import Group, extent_of, part_of
from tensorexpr.codegen.auto.search.joining import groups_of
from tensorexpr.codegen.auto.search.passes import in_passes
from tensorexpr.codegen.auto.search.searching import assembled, begun
from tensorexpr.codegen.auto.tiles.survey import DATA, SUM, Survey
from tensorexpr.codegen.lowering.context.arithmetic import constant, sub
from tensorexpr.codegen.nest import For, LoopNest
from tensorexpr.codegen.nest.walks import elements_read, stores_in
from tensorexpr.codegen.rewrites.names import fresh
from tensorexpr.codegen.rewrites.paths import walk_kernel
from tensorexpr.codegen.target import Gpu
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Index, Program
from tensorexpr.traversal import free_names

ROUNDS, MOST_ROUNDS = 2, 4
"""Blocks for each multiprocessor: one is resident where rows and accumulators take most registers; of short rows some work while others
wait for a sum."""
LEAST_ROWS = 4
"""Rows of a block from which on its sums are worth a pass of their own."""
LEAST_LANES, MOST_LANES = 32, 256
"""Threads along a row."""
PACK = 16
"""Bytes that a thread accesses at once."""
MOST_HELD = 32
"""Elements of an accumulator that a thread has in registers."""
AHEAD = 32
"""Parts that a thread reads before it waits for the first."""
MARGIN = 1.3
"""How much faster than the planners' a nest has to be by the model."""


class Unfit(Exception):
    """A group has another form than rows and sums over them."""


def faster_on_gpu(program: Program, planned: LoopNest, target: Gpu) -> Candidate | None:
    """The nest in which rows and sums over rows are one pass, where the model says that it is clearly faster than the planners'; else
    None."""
    made = one_pass(program, target)
    if made is None:
        return None
    facts = shipped(target)
    ours, theirs = (float(Model(summary_of(nest), facts).times(None, target.cores)[0]) for nest in (made.nest, planned))
    return made if ours * MARGIN <= theirs else None


def one_pass(program: Program, target: Gpu) -> Candidate | None:
    """The nest of a simplified program in which rows and sums over rows are one pass; None where it is, or has, something else."""
    start = begun(program)
    groups = groups_of(start.nest, siblings=True, sums=True)
    if any(group.axis is None for group in groups) or all(len(group.members) < 2 for group in groups):
        return None
    try:
        return assembled(start, groups, lambda group, taken: _made(Candidate(part_of(start.nest, group, taken)), group, target))
    except (ScheduleError, Unfit):
        return None


def _made(part: Candidate, group: Group, target: Gpu) -> Candidate:
    """A group in blocks of threads. Raises `Unfit` where it has another form than rows and sums over them."""
    assert group.axis is not None
    made = next(in_passes(part, group, _rows(group, target)), None)
    if made is None:
        raise Unfit
    made = _in_threads(made)
    for kernel in range(1, len(made.nest.kernels)):
        made = _summed(made, kernel)
    return made


def _rows(group: Group, target: Gpu) -> int:
    """Rows of a block: a length that leaves no shorter block where one is near."""
    assert group.axis is not None
    extent = constant(sub(group.axis.stop, group.axis.start))
    along = {name for found in group.along.values() for name in found.get(group.axis.index, ())}
    row = max((extent_of(s) for member in group.members for s in member.loops if s.index not in along), default=1)
    rounds = max(ROUNDS, min(MOST_ROUNDS, MOST_HELD * MOST_LANES // (2 * row)))
    least = -(-extent_of(group.axis) // (rounds * target.cores))
    if extent is None or least < LEAST_ROWS:
        raise Unfit
    return next((rows for rows in range(least, least + least // 4 + 1) if extent % rows == 0), least)


def _in_threads(made: Candidate) -> Candidate:
    """The candidate with the loops along rows of its first kernel, that of blocks of rows, over the threads of a block."""
    survey = Survey(made.nest, 0)
    lanes = [name for name, inner in survey.children.items() if not inner]
    length = survey.length(lanes[0])
    if length is None or any(survey.length(name) != length or survey.kind(name) not in (DATA, SUM) for name in lanes):
        raise Unfit
    pack = _pack(made.nest, lanes, length)
    width = min(MOST_LANES, 1 << max(0, -(-length // pack) - 1).bit_length())
    if width < LEAST_LANES:
        raise Unfit
    held = [b for b in survey.locals.values() if b.shape]
    if any(len(b.shape) != 1 or constant(b.shape[0]) != length for b in held) or -(-length // width) > MOST_HELD:
        raise Unfit
    names: list[tuple[str, tuple[str, ...], str]] = []
    for name in lanes:
        blocks, neighbor, groups, thread = fresh(made.nest, *(f"{name}_{x}" for x in "opgt"))
        if pack > 1:
            made = made.then("split", name, pack, "guard", (groups, neighbor))
        made = made.then("split", groups if pack > 1 else name, width, "guard", (blocks, thread))
        if pack > 1:
            made = made.then("reorder", blocks, neighbor, thread)
        names.append((name, (neighbor, blocks), thread))
    for b in held:
        made = made.then("divide", b.name, 0, *(((width, pack), (0, 2, 1)) if pack > 1 else ((width,),)))
    made = made.then("simplify")
    for name, copied, thread in names:
        made = _in_lanes(made, thread, survey.updated(name) if survey.kind(name) == SUM else ())
        for loop in copied:
            made = made.then("partition", loop).then("unroll", loop) if loop in _loops(made.nest, 0) else made
    return made.then("simplify")


def _in_lanes(made: Candidate, loop: str, sums: Sequence[str], kernel: int = 0) -> Candidate:
    """The candidate with a loop over threads, each of which has sums along it for itself before they are combined."""
    before = _loops(made.nest, kernel)
    for name in sums:
        made = made.then("rfactor", name, loop, *fresh(made.nest, f"{name}_lanes"))
    for name in (loop, *(x for x in _loops(made.nest, kernel) if x not in before)):
        made = made.then("vectorize", name)
    return made


def _summed(made: Candidate, kernel: int) -> Candidate:
    """The candidate with a kernel that adds up parts, a thread for each result, or, of a single one, over threads along the parts."""
    survey = Survey(made.nest, kernel)
    (first, *inner) = survey.roots[:1] + [x for x in survey.loops if x not in survey.roots]
    if survey.kind(first) == SUM:
        outer, thread = fresh(made.nest, f"{first}_o", f"{first}_t")
        made = made.then("split", first, MOST_LANES, "guard", (outer, thread)).then("simplify", *survey.written)
        return _in_lanes(made, thread, survey.updated(first), kernel)
    if survey.kind(first) != DATA or len(inner) != 1:
        raise Unfit
    rounds, ahead = fresh(made.nest, f"{inner[0]}_o", f"{inner[0]}_i")
    return made.then("split", inner[0], AHEAD, "peel", (rounds, ahead)).then("unroll", ahead).then("parallel", first)


def _loops(nest: LoopNest, kernel: int) -> list[str]:
    return list(dict.fromkeys(s.index for _, s in walk_kernel(nest, kernel) if isinstance(s, For)))


def _pack(nest: LoopNest, lanes: Sequence[str], length: int) -> int:
    """How many neighbors along a row a thread takes at once: sixteen bytes of the widest element, where all that goes along lies side by
    side and begins at multiples of so many; else one."""
    body = nest.kernels[0].body
    touched = [*elements_read(body), *(Access(s.buffer, s.indices, s.value.dtype) for s in stores_in(body))]
    along = [a for a in touched if any(name in free_names(i) for name in lanes for i in a.indices)]
    pack = PACK // max((a.dtype.itemsize for a in along), default=PACK)
    return pack if length % pack == 0 and all(_is_even(a, lanes) for a in along) else 1


def _is_even(access: Access, lanes: Sequence[str]) -> bool:
    """Whether the last index of an element alone goes along a row, by itself, in a buffer whose lines are rows."""
    last = access.indices[-1]
    return isinstance(last, Index) and last.name in lanes and all(name not in free_names(i) for name in lanes for i in access.indices[:-1])
