"""The primitive `slide`: of a window that moves with a loop, an iteration computes what the one before did not.

What is computed in a loop (`compute_at`) at a window of its rows is computed again where the windows of iterations overlap. Where each
begins a little behind the one before, the rows that they share can stay: they stand in a ring as long as a window, row r at place r mod
its length, and an iteration writes its new rows over those that no later one reads (in Halide: `store_at` outside of `compute_at`, folded).

    for i: { P of rows i to i + 2; work }   -->   P of rows 0 and 1; for i: { P of row i + 2; work on rows i to i + 2 }

The ring lives around the loop: where loops outside of it run in parallel, each of their iterations fills its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from tensorexpr.codegen.schedule.legality import divides, refuse, stays_inside
from tensorexpr.codegen.schedule.placement import Part, parts_of
from tensorexpr.codegen.schedule.state import SERIAL, Fuse, Split, Stage, State, definition_named, program_facts
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Apply, Const, Define, Expr, Index
from tensorexpr.records import record, replace
from tensorexpr.traversal import free_names

Change = tuple[int, int]
"""By how much a value changes from one iteration to the next, at least and at most."""
STAYS: Change = (0, 0)


@record
class Ring:
    """The axis of a definition of which the last `length` rows are kept."""

    axis: int
    length: int


def slide(state: State, name: str) -> State:
    """rewrite: i: {P of a window; C} --> P of the first rows; i: {P of the new rows; C}: P is computed once where windows overlap.

    P is computed in a serial loop of C (`compute_at`) at a window that each iteration moves on by less than its length. Its rows are kept
    in a ring around the loop. What P reads of others computed in the same loop slides, too.
    """
    stage = state.stage(name)
    if stage.place is None:
        raise refuse(stage, f"expected a definition computed in a loop of another to slide, got {name}", hint="compute_at first")
    if state.target.is_gpu:
        raise refuse(stage, f"expected a CPU as the target for {name} to slide, got a GPU")
    host = state.stage(stage.place.stage)
    slides = dict.fromkeys((*host.slides, (stage.place.loop, name)))
    changed = state.with_stage(replace(host, slides=tuple(slides)))
    check_slides(changed, host.name)
    return changed


def without_slides(state: State, name: str) -> State:
    """The state in which a definition no longer slides."""
    for stage in state.stages:
        kept = tuple(s for s in stage.slides if s[1] != name)
        if len(kept) < len(stage.slides):
            state = state.with_stage(replace(stage, slides=kept))
    return state


def check_slides(state: State, host: str) -> None:
    """Raises `ScheduleError` where something slides in the loops of a stage that cannot."""
    for found in _slides(state, host).values():
        if isinstance(found, ScheduleError):
            raise found


def rings_in(state: State, host: str) -> dict[tuple[str, str], Ring]:
    """What slides in the loops of a stage, by loop and name."""
    return {at: found for at, found in _slides(state, host).items() if isinstance(found, Ring)}


def _slides(state: State, host: str) -> dict[tuple[str, str], Ring | ScheduleError]:
    """The ring of each definition that is to slide, in program order, or why it has none."""
    consumer = state.stage(host)
    found: dict[tuple[str, str], Ring | ScheduleError] = {}
    for stage in state.placed_in(host) if consumer.slides else ():
        at = (stage.site.loop, stage.name)
        if at in consumer.slides:
            beside = [n for n in program_facts(state.program).producers[stage.name] if (s := state.table.get(n)) and s.place == stage.place]
            other = next((n for n in beside if not isinstance(found.get((at[0], n)), Ring)), None)
            found[at] = _ring(state, consumer, stage, other)
    return found


def _ring(state: State, consumer: Stage, stage: Stage, other: str | None) -> Ring | ScheduleError:
    """The ring of a definition; `other` is what it reads that is computed in the same loop and has none."""
    loop, name = stage.site.loop, stage.name
    part = parts_of(state, consumer.name)[name]

    def refuse(message: str, hint: str | None = None) -> ScheduleError:
        return ScheduleError(message, term=f"{name} in loop {loop} of {consumer.name}", hint=hint)

    if loop not in consumer.order or consumer.kind(loop) != SERIAL:
        found = f"marked {consumer.kind(loop)}" if loop in consumer.order else "split or fused"
        return refuse(f"expected a serial loop for {name} to slide in, got {loop}, {found}")
    if any(pipelined == loop for pipelined, _ in consumer.ahead):
        return refuse(f"expected a loop that is not pipelined for {name} to slide in, got {loop}")
    for relation in consumer.relations:
        if isinstance(relation, Split) and loop in consumer.leaves(relation.parent) and not _runs_whole(consumer, relation):
            return refuse(f"expected a loop that runs in whole blocks for {name} to slide in, got {loop} of a split of {relation.parent}")
    if not part.is_local:
        return refuse(f"expected values that are kept for one iteration to slide, got {name}, which is kept whole")
    if other is not None:
        return refuse(f"expected what {name} reads in the same loop to slide before it, got {other}", f"s[{other!r}].slide() first")
    changes = {axis: _change(p, consumer, loop) for axis, p in enumerate(part.points) if p is not None}
    moves = {axis: change for axis, change in changes.items() if change != STAYS}
    if not moves:
        return refuse(f"expected a window of {name} that moves with {loop}, got one that stays", "compute_at a loop further out")
    axis, change = next(iter(moves.items()))
    length = part.lengths[axis]
    if len(moves) > 1 or length is None or change is None or change[0] < 0 or change[1] >= length:
        found = _why(stage, part, moves)
        return refuse(f"expected one window of {name} that each iteration moves on by less than its length, got {found}")
    made = definition_named(state.program, name)
    assert isinstance(made, Define)
    rows = stage.loops_of(made.axes[axis].index)
    for group in stage.parts.groups:
        first = min(stage.order.index(x) for a in group.indices for x in stage.loops_of(a))
        if any(stage.order.index(x) > first for x in rows):
            return refuse(f"expected the rows of {name} outside of the reduction over {group.indices[0]} to slide, got {rows[-1]}")
    return Ring(axis, length)


def _runs_whole(stage: Stage, split: Split) -> bool:
    """Whether the first iteration of the loops of a split stands in its extent, in any form that it runs in, and so do all others."""
    return stays_inside(stage, split) and (split.tail != "stride" or divides(stage, split))


def _why(stage: Stage, part: Part, moves: Mapping[int, Change | None]) -> str:
    names = [stage.parts.axes[axis].index for axis in moves]
    if len(moves) > 1:
        return f"{len(moves)} axes that move: {', '.join(names)}"
    ((axis, change),) = moves.items()
    if change is None:
        return f"one along {names[0]} that moves unevenly"
    low, high = change
    return f"{part.lengths[axis] or 1} along {names[0]}, moved by {low if low == high else f'{low} to {high}'}"


def _change(expr: Expr, stage: Stage, loop: str) -> Change | None:
    """By how much an expression over the axes of a stage changes with each iteration of a loop; None where nothing is known."""
    match expr:
        case Const():
            return STAYS
        case Index():
            return _change_of(expr.name, stage, loop) if expr.name in {a.index for a in stage.parts.axes} else STAYS
        case Apply():
            changes = [_change(a, stage, loop) for a in expr.args]
            known = [c for c in changes if c is not None]
            if len(known) < len(changes):
                return None
            if all(c == STAYS for c in known):
                return STAYS
            return _combined(expr, known)
    return STAYS if not free_names(expr) else None


def _combined(expr: Apply, known: list[Change]) -> Change | None:
    match expr.op.name:
        case "add":
            return known[0][0] + known[1][0], known[0][1] + known[1][1]
        case "sub":
            return known[0][0] - known[1][1], known[0][1] - known[1][0]
        case "minimum" | "maximum":
            return min(low for low, _ in known), max(high for _, high in known)
        case "mul":
            for factor, (low, high) in zip(expr.args, reversed(known), strict=True):
                if isinstance(factor, Const):
                    ends = (int(factor.value) * low, int(factor.value) * high)
                    return min(ends), max(ends)
        case "floordiv" if isinstance(expr.args[1], Const) and int(expr.args[1].value) > 0:
            (low, high), by = known[0], int(expr.args[1].value)
            return low // by, -(-high // by)
    return None


def _change_of(name: str, stage: Stage, loop: str) -> Change | None:
    """The same for an axis, or a loop since split."""
    if name == loop:
        return 1, 1
    if loop not in stage.leaves(name):
        return STAYS
    for relation in stage.relations:
        if isinstance(relation, Fuse) and name in (relation.outer, relation.inner):
            return None
        if isinstance(relation, Split) and relation.parent == name:
            outer, inner = _change_of(relation.outer, stage, loop), _change_of(relation.inner, stage, loop)
            if outer is None or inner is None:
                return None
            low = 0 if relation.tail == "shift" else outer[0] * relation.factor  # the last block begins further in front
            return low + inner[0], outer[1] * relation.factor + inner[1]
    return None
