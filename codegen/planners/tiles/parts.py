"""Long reductions with few results, taken apart so that all cores have a part: losses, means, gradients of biases.

Iterations of data loops are what runs on all cores. Where these are fewer than a machine may have cores, and the reduction
is long, partial results give it more (`rfactor`): blocks of its outermost axis that is long enough, each a piece of
memory of its own; of an axis whose bounds depend on others blocks of all that they ever hold (`spans`). How many there are follows
from extents, not from the number of cores or threads: a result has the same bits for any of them. On a GPU a row has a block of
threads, and is taken apart where blocks are few and rows long (`planners.tiles.threads`).

Parts are also what keeps rounding errors small: a sum in one accumulator errs more with each of its points. Lanes are accumulators side
by side; what has none (places that are checked, combiners of users, short axes whose ends depend on others) has shorter parts, and these
again parts of their own where they are long.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt, prod

from tensorexpr.codegen.planners.tiles.loops import vector_axis
from tensorexpr.codegen.planners.tiles.threads import parts_of_rows
from tensorexpr.codegen.schedule.analysis.reductions import Group
from tensorexpr.codegen.schedule.analysis.state import Stage
from tensorexpr.codegen.schedule.analysis.strides import Reach, reaches
from tensorexpr.codegen.schedule.analysis.work import UNKNOWN_EXTENT, group_work, length, lengths
from tensorexpr.codegen.schedule.definitions.rfactor import span_in
from tensorexpr.codegen.schedule.legal.legality import is_ordered
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.dtypes import accumulator
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Const, Define, Expr, Index, Program, product
from tensorexpr.traversal import free_names, tensors_read

ENOUGH = 16
"""Independent pieces of work that a definition has without partial results where it is left alone."""
WIDE = 64
"""Neighboring results that count as one piece: they are computed together in lanes."""
MOST_PARTS = 256
LEAST_WORK = 1 << 15
"""Operations of one part."""
SERIAL = 1 << 9
"""Points of a part without lanes at least."""
LEAST_SERIAL = 1 << 13
"""Points of a result without lanes from which on it is taken apart."""
MOST_RESULTS = 1 << 14
"""Partial results of what has no lanes."""
FAR = 4
"""Parts below which a contraction is near enough as it is."""
SPARED = 12
"""How many times as large as its partial results the operands of a contraction are."""


def partial_results(s: Planned) -> None:
    """Takes apart the reductions of every definition that has too few results for their length."""
    _Taker(s).take()


class _Taker:
    """Takes the reductions of a program apart; knows which definitions hold parts, and the shapes of all."""

    def __init__(self, s: Planned) -> None:
        self.s = s
        self.made: set[str] = set()
        self.program: Program | None = None
        self.known: dict[str, tuple[Expr, ...]] = {}

    @property
    def shapes(self) -> dict[str, tuple[Expr, ...]]:
        program = self.s.state.program
        if self.program is not program:
            self.program, self.known = program, {name: type_.shape for name, type_ in program.types.items()}
        return self.known

    def take(self) -> None:
        """Every definition, as often as it has reductions; and what parts themselves sum, where they are long and have no lanes: one axis
        may have too few points for as many parts as are wanted."""
        for definition in self.s.state.program.definitions:
            if isinstance(definition, Define) and definition.name in self.s.state.table:
                for _ in self.s.state.stage(definition.name).parts.groups:
                    todo = parts = list(self.taken_apart(definition.name))
                    if not parts:
                        break
                    while todo:
                        self.made.update(todo)
                        todo = [deeper for part in todo for deeper in self.taken_apart(part)]

    def taken_apart(self, name: str) -> tuple[str, ...]:
        """Takes the longest reduction of a definition apart where that pays; the names of its parts, none where it does not.

        Sums of parts stay whole: their number is open where an extent is, and would be taken apart again and again.
        """
        s, stage = self.s, self.s.state.stage(name)
        known = lengths(stage.parts)
        top = [g for g in stage.parts.groups if g.scope is None and not _read(g) <= self.made]
        found = [(group_work(stage.parts, g, known) * _results(g, known), g) for g in top]
        for work, group in sorted(found, key=lambda item: -item[0]):
            before = s.state
            for axis, block in self.blocks(stage, group, work, known).items():
                try:
                    return s[name].rfactor(axis if block < 2 else s[name].split(axis, block)[0])
                except ScheduleError:
                    s.state = before
        return ()

    def blocks(self, stage: Stage, group: Group, work: int, known: Mapping[str, int]) -> dict[str, int]:
        """The axes along which a reduction may be taken apart, best first, with how many points of each a part has."""
        s, again = self.s, stage.name in self.made
        spans = {a: found for a in group.indices if (found := span_in(stage, group, a)) is not None}
        open_ended = [a for a, found in spans.items() if not isinstance(found.start, Const) or not isinstance(found.stop, Const)]
        points = prod(known[a] for a in group.indices)
        if not spans or (not open_ended and work < 2 * LEAST_WORK and points < LEAST_SERIAL):
            return {}
        lanes, results = vector_axis(s, stage.name, self.shapes), _results(group, known)
        few = _pieces(stage, group, lanes, known) < ENOUGH
        # One accumulator for all points of a result is slow, and errs more with each of them: shorter parts stand for the lanes it has not.
        serial = lanes not in group.indices and results < (MOST_PARTS if again else ENOUGH) and not s.target.is_gpu
        if again and not serial:
            return {}
        if open_ended:
            # As many parts as it turns out to be long: blocks of the least work.
            by_work = {a: LEAST_WORK * known[a] // max(1, work) for a in open_ended if few}
            return {a: min(block, SERIAL * known[a] // points) if serial else block for a, block in by_work.items()}
        parts = 0
        if serial and points >= LEAST_SERIAL:
            most = MOST_RESULTS // results
            if is_ordered(group):  # the final reduction is one accumulator as well: about as many parts as a part has points
                most = min(most, max(MOST_PARTS, isqrt(points)))
            parts = min(most, points // SERIAL)
        if work >= 2 * LEAST_WORK and not again:
            rows = parts_of_rows(stage, group, self.shapes) if s.target.is_gpu else None
            near = MOST_PARTS if few and not s.target.is_gpu else _near(s, group, self.shapes, known)
            parts = max(parts, rows or 0, min(MOST_PARTS, work // LEAST_WORK, near))
        axes = sorted(spans, key=lambda a: 2 * known[a] < parts)
        return {a: even_block(known[a], parts) for a in axes} if parts > 1 else {}


def _read(group: Group) -> set[str]:
    """The tensors that a reduction reads."""
    return {name for m in group.members for v in m.values for name in tensors_read(v)} or {""}


def even_block(extent: int, parts: int) -> int:
    """The length of the parts, one that divides the extent where there is one near by: then none is shorter than others."""
    block = -(-extent // parts)
    return next((b for b in range(block, 2 * block) if extent % b == 0), block)


def _near(s: Planned, group: Group, shapes: dict[str, tuple[Expr, ...]], known: Mapping[str, int]) -> int:
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


def _pieces(stage: Stage, group: Group, lanes: str | None, known: Mapping[str, int]) -> int:
    """The iterations of data loops that can run side by side, about; enough where an extent is open."""
    if any(a.index in group.depends and stage.extent(a.index) is None and length(a) == UNKNOWN_EXTENT for a in stage.parts.axes):
        return ENOUGH
    data = [a.index for a in stage.parts.axes if a.index in group.depends]
    return prod(-(-known[n] // WIDE) if n == lanes else known[n] for n in data)
