"""Long reductions with few results, taken apart so that all cores have a part: losses, means, gradients of biases.

Iterations of data loops are what runs on all cores. Where these are fewer than a machine may have cores, and the reduction
is long, partial results give it more (`rfactor`): blocks of its outermost axis that is long enough, each a piece of
memory of its own. How many there are follows from extents, not from the number of cores or threads: a result has the same
bits for any of them. On a GPU a row has a block of threads, and is taken apart where blocks are few and rows long (`auto_gpu_rows`).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tensorexpr.codegen.schedule.auto_gpu_rows import parts_of_rows
from tensorexpr.codegen.schedule.auto_loops import vector_axis
from tensorexpr.codegen.schedule.reductions import Group
from tensorexpr.codegen.schedule.schedule import Schedule
from tensorexpr.codegen.schedule.state import Stage
from tensorexpr.codegen.schedule.strides import Reach, reaches
from tensorexpr.codegen.schedule.work import UNKNOWN_EXTENT, group_work, length, lengths
from tensorexpr.dtypes import accumulator
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Const, Define, Expr, Index, product
from tensorexpr.traversal import free_names, walk

ENOUGH = 16
"""Independent pieces of work that a definition has without partial results where it is left alone."""
WIDE = 64
"""Neighboring results that count as one piece: they are computed together in lanes."""
MOST_PARTS = 256
LEAST_WORK = 1 << 15
"""Operations of one part."""
FAR = 4
"""Parts below which a contraction is near enough as it is."""
SPARED = 12
"""How many times as large as its partial results the operands of a contraction are."""


def partial_results(s: Schedule) -> None:
    """Takes apart the reductions of every definition that has too few results for their length."""
    program = s.state.program
    shapes: dict[str, tuple[Expr, ...]] = {}
    made: set[str] = set()
    for definition in program.definitions:
        if isinstance(definition, Define) and definition.name in s.state.table:
            for _ in s.state.stage(definition.name).parts.groups:
                if not shapes or s.state.program is not program:
                    program = s.state.program
                    shapes = {name: type_.shape for name, type_ in program.types.items()}
                if not _taken_apart(s, definition.name, shapes, made):
                    break


def _taken_apart(s: Schedule, name: str, shapes: dict[str, tuple[Expr, ...]], made: set[str]) -> bool:
    """Takes the longest reduction of a definition apart where that pays; says whether it did, and adds the parts to those `made`.

    Sums of parts stay whole: their number is open where an extent is, and would be taken apart again and again.
    """
    stage = s.state.stage(name)
    known = lengths(stage.parts)
    top = [g for g in stage.parts.groups if g.scope is None and not _read(g) <= made]
    found = [(group_work(stage.parts, g, known) * _results(g, known), g) for g in top]
    for work, group in sorted(found, key=lambda item: -item[0]):
        open_ended = [a for a in group.indices if stage.extent(a) is None and length(stage.axis(a)) == UNKNOWN_EXTENT]
        if not open_ended and work < 2 * LEAST_WORK:
            continue
        rows = parts_of_rows(stage, group, shapes) if s.target.is_gpu and not open_ended else None
        few = _pieces(s, stage, group, shapes, known) < ENOUGH
        if open_ended:
            # As many parts as it turns out to be long: blocks of the least work.
            blocks = {a: LEAST_WORK * known[a] // max(1, work) for a in open_ended if few}
        else:
            near = MOST_PARTS if few and not s.target.is_gpu else _near(s, group, shapes, known)
            parts = max(rows or 0, min(MOST_PARTS, work // LEAST_WORK, near))
            axes = sorted(group.indices, key=lambda a: 2 * known[a] < parts)
            blocks = {a: even_block(known[a], parts) for a in axes if parts > 1}
        before = s.state
        for axis, block in blocks.items():
            try:
                made.update(s[name].rfactor(axis if block < 2 else s[name].split(axis, block)[0]))
            except ScheduleError:
                s.state = before
            else:
                return True
    return False


def _read(group: Group) -> set[str]:
    """The tensors that a reduction reads."""
    return {n.tensor for m in group.members for v in m.values for n in walk(v) if isinstance(n, Access)} or {""}


def even_block(extent: int, parts: int) -> int:
    """The length of the parts, one that divides the extent where there is one near by: then none is shorter than others."""
    block = -(-extent // parts)
    return next((b for b in range(block, 2 * block) if extent % b == 0), block)


def _near(s: Schedule, group: Group, shapes: dict[str, tuple[Expr, ...]], known: Mapping[str, int]) -> int:
    """The parts of a contraction in which what is read stays near for all results; 0 where these are too many to keep for each part."""
    values = tuple(v for m in group.members for v in m.values)
    reached = reaches(values, shapes)
    results = {n for n in group.depends if n in known}
    if any({*results, *group.indices} <= set(r.strides) for r in reached):
        return 0  # what asks for another element at every point is read once, in whatever order: a row of a norm
    read = 0
    for r in reached:
        visited, whole = prod(known[n] for n in r.strides if n in known), product(shapes[r.access.tensor])
        read += r.access.dtype.itemsize * (min(visited, int(whole.value)) if isinstance(whole, Const) else visited)
    kept = max(1, sum(accumulator(v.dtype).itemsize for v in values) * _results(group, known))
    # Each element of a batch has operands of its own, which are near while it is worked on.
    batch = prod(known[n] for n in results if all(_leads(r, n) for r in reached))
    read, kept = read // batch, max(1, kept // batch)
    parts = min(read // (s.target.l2_bytes // 2), read // (SPARED * kept))
    return parts if parts >= FAR else 0


def _leads(r: Reach, index: str) -> bool:
    """Whether an index goes from one large piece of a tensor to the next: it is the first of the access, alone."""
    return bool(r.access.indices) and r.access.indices[0] == Index(index) and not any(index in free_names(i) for i in r.access.indices[1:])


def _results(group: Group, known: Mapping[str, int]) -> int:
    return prod(known[n] for n in group.depends if n in known)


def _pieces(s: Schedule, stage: Stage, group: Group, shapes: dict[str, tuple[Expr, ...]], known: Mapping[str, int]) -> int:
    """The iterations of data loops that can run side by side, about; enough where an extent is open."""
    if any(a.index in group.depends and stage.extent(a.index) is None and length(a) == UNKNOWN_EXTENT for a in stage.parts.axes):
        return ENOUGH
    lanes = vector_axis(s, stage.name, shapes)
    data = [a.index for a in stage.parts.axes if a.index in group.depends]
    return prod(-(-known[n] // WIDE) if n == lanes else known[n] for n in data)
