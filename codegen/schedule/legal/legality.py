"""What makes a list of loops legal: `check_stage` refuses one that would change the result, and says why.

A reduction's bounds and guards must be known where it runs; what must happen in order (argmax, a user's combiner, a
scatter's contributions) keeps its order; lanes of a vectorized reduction are combined at the end, so its combiner must
commute; accumulators of a tile need a constant number of places. Sums and products may be reassociated: that is stated.
"""

from __future__ import annotations

from tensorexpr.codegen.nest import GRID, IN_WARP, LANES, THREADS
from tensorexpr.codegen.schedule.analysis.independence import free_axes, may_collide
from tensorexpr.codegen.schedule.analysis.reductions import Group, Member
from tensorexpr.codegen.schedule.analysis.state import Fuse, Split, Stage, State, all_uses, definition_named
from tensorexpr.codegen.schedule.analysis.windows import has_hull, window
from tensorexpr.codegen.schedule.legal.binding import check_bound, check_shifted
from tensorexpr.dtypes import accumulator
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Axis, Const, Expr, Index, Scatter, apply, const
from tensorexpr.text import print_expr
from tensorexpr.traversal import free_names, substitute

MOST_LANES = 256
MOST_COPIES = 64
COPIED = 8
"""Iterations up to which an unrolled loop around reductions is copied out while lowering, so that bounds are simple in each copy."""
LARGEST_TILE = 1 << 15
"""Bytes of the accumulators of one reduction over the points of the loops inside it."""
LARGEST_BLOCK = 1 << 17
"""The same on a GPU, where they are the registers of all threads of a block."""
REST = ("peel", "stride")
"""Tails of which a rest, or some places, run fewer blocks."""
COMMUTATIVE = ("sum", "prod", "max", "min", "all", "any")


def refuse(stage: Stage, message: str, loop: str | None = None, hint: str | None = None) -> ScheduleError:
    """The error of an illegal primitive, with the list of loops it would have led to."""
    return ScheduleError(message, term=f"{stage.name}: {', '.join(stage.order)}", at=loop, hint=hint)


def check_stage(state: State, stage: Stage) -> Stage:
    """Gives the stage back; raises `ScheduleError` with the reason where its loops would not compute the definition."""
    position = {loop: i for i, loop in enumerate(stage.order)}
    for relation in stage.relations:
        if isinstance(relation, Split):
            _check_split(stage, relation, position)
            _check_shifted_blocks(stage, relation, position)
    for group in stage.parts.groups:
        _check_group(stage, group, position, state.target.is_gpu)
    _check_scatter(state, stage)
    for loop, kind in stage.kinds:
        if kind == "parallel":
            _check_parallel(state, stage, loop)
        if kind in ("vectorize", "unroll"):
            _check_copies(stage, loop, kind)
        if kind in ("parallel", "vectorize") and state.target.is_gpu:
            check_shifted(stage, loop, "run in parallel on a GPU" if kind == "parallel" else "vectorize on a GPU", refuse)
        elif kind in ("parallel", "vectorize"):
            _check_written_out(stage, loop, "run in parallel" if kind == "parallel" else "vectorize")
        if kind in (*GRID, *THREADS, IN_WARP):
            check_bound(state, stage, loop, kind, refuse)
        if kind in LANES:
            _check_vector(state, stage, loop, kind)
    return stage


def is_ordered(group: Group) -> bool:
    """Whether a reduction must meet its points in order: the first winner, or a combiner that is not known to commute."""
    return any(not m.combiner.is_builtin or m.combiner.name not in COMMUTATIVE for m in group.members)


def divides(stage: Stage, split: Split) -> bool:
    """Whether the extent (of a loop over blocks with their rest) is certainly a multiple of the factor."""
    extent = stage.extent(split.parent)
    return extent is not None and extent % split.factor == 0


def _divides_alike(stage: Stage, split: Split) -> bool:
    """Whether the extent is a multiple of the factor in every form in which the loop runs."""
    return divides(stage, split) and _is_one_long(stage, split.parent)


def _is_one_long(stage: Stage, loop: str) -> bool:
    """Whether a loop is as long in every form in which it runs: there are fewer whole blocks than blocks where a rest is peeled, and fewer
    blocks for some places than for others where these are loops of their own."""
    relation = stage.parents().get(loop)
    if relation is None:
        return True
    if isinstance(relation, Fuse):
        return _is_one_long(stage, relation.outer) and _is_one_long(stage, relation.inner)
    return relation.tail in ("shift", "guard") or _divides_alike(stage, relation)


def runs_in_lanes(group: Group) -> bool:
    """Whether lanes may take every so many points each: the combiner commutes, or the number of a point settles who was first."""
    if not is_ordered(group):
        return True
    rectangular = not any(set(group.indices) & {n for e in (a.start, a.stop) for n in free_names(e)} for a in group.axes)
    return rectangular and all(m.combiner.is_builtin for m in group.members)


def runs_whole(stage: Stage, split: Split) -> bool:
    """Whether a split certainly runs in one form, all blocks alike."""
    if divides(stage, split) or split.tail == "guard":
        return True
    extent = stage.extent(split.parent)
    return split.tail == "shift" and extent is not None and extent >= split.factor


def _check_split(stage: Stage, split: Split, position: dict[str, int]) -> None:
    if runs_whole(stage, split):
        return
    outer, inner = stage.loops_of(split.outer), stage.loops_of(split.inner)
    if split.tail == "stride":
        if outer and inner and max(position[x] for x in inner) > min(position[x] for x in outer):
            raise refuse(
                stage,
                f"expected {split.inner} outside of {split.outer}, got it inside",
                split.parent,
                f"{split.parent} is no known multiple of {split.factor} long: how long {split.outer} runs depends on {split.inner}",
            )
        return
    if outer and inner and max(position[x] for x in outer) > min(position[x] for x in inner):
        raise refuse(
            stage,
            f"expected {split.outer} outside of {split.inner}, got it inside",
            split.parent,
            f"the extent of {split.parent} is no known multiple of {split.factor}: how long {split.inner} runs depends on {split.outer}",
        )


def _check_group(stage: Stage, group: Group, position: dict[str, int], is_gpu: bool) -> None:
    mine = _loops_of(stage, group)
    first = min(position[x] for x in mine)
    for used in all_uses(stage.parts, group):
        for loop in (x for axis in stage.parts.group(used).indices for x in stage.loops_of(axis)):
            if position[loop] > first and used not in _inside(stage, group):
                raise refuse(stage, f"expected the reduction over {loop} before the one over {mine[0]}, which uses it, got it after", loop)
    for number, axis in enumerate(group.axes):
        for name in dict.fromkeys(n for e in (axis.start, axis.stop) for n in free_names(e)):
            for loop in stage.loops_of(name):
                if any(position[loop] > position[own] for own in stage.loops_of(axis.index)) and not _may_relax(stage, group, number, name):
                    raise refuse(
                        stage,
                        f"expected {loop} outside of {axis.index}, whose bounds depend on it, got it inside",
                        axis.index,
                        f"{axis.index} runs from {print_expr(axis.start)} to {print_expr(axis.stop)}",
                    )
    outside = {None, group.scope}
    tile = [x for x in stage.order[first:] if _group_number(stage, x) in outside and set(stage.axes_of(x)) & set(group.depends)]
    _check_tile(stage, group, tile, LARGEST_BLOCK if is_gpu else LARGEST_TILE)
    _check_enclosing(stage, group, first, mine[0])
    if is_ordered(group) and mine != sorted(mine, key=lambda x: position[x]):
        names = "/".join(m.combiner.name for m in group.members)
        raise refuse(stage, f"expected the loops of {names} in the order {', '.join(mine)}: it depends on the order of its points", mine[0])


def _check_enclosing(stage: Stage, group: Group, first: int, own: str) -> None:
    """Loops of the reduction around a group that stand inside it are its tile, in blocks of that reduction: it has begun by then,
    with the outer loop of the same axis."""
    enclosing = None if group.scope is None else stage.parts.group(group.scope)
    if enclosing is None:
        return
    for name in (n for n in group.depends if n in enclosing.indices):
        loops = stage.loops_of(name)
        for loop in loops:
            if stage.order.index(loop) > first and (len(loops) < 2 or stage.order.index(loops[0]) > first or loop != loops[-1]):
                raise refuse(
                    stage,
                    f"expected {loop} outside of the reduction over {own}, which depends on it, got it inside",
                    loop,
                    "split it: its inner loop may stand inside",
                )


def _group_number(stage: Stage, loop: str) -> int | None:
    group = stage.group_of(loop)
    return None if group is None else group.number


def _check_tile(stage: Stage, group: Group, tile: list[str], limit: int) -> None:
    """Data loops inside a reduction have an accumulator per point: a constant number of them, of a size that fits a stack."""
    elements = 1
    for loop in tile:
        extent = stage.extent(loop)
        if extent is None:
            raise refuse(
                stage,
                f"expected a constant extent of {loop}, inside the reduction over {group.indices[0]}, got one known only when it runs",
                loop,
                "split it, or reorder the reduction inside of it",
            )
        elements *= extent
    most = max((_accumulated(m) for m in group.members), default=8) * elements
    if tile and most > limit:
        raise refuse(
            stage,
            f"expected accumulators of at most {limit} bytes for the loops inside a reduction, got {most}",
            ", ".join(tile),
            "split these loops, or reorder the reduction inside of them",
        )


def _accumulated(member: Member) -> int:
    """The bytes that a member keeps for each point: sums of short floats are long, a winner has a position beside its value."""
    if not member.combiner.is_builtin:
        return sum(e.dtype.itemsize for e in member.combiner.identity)
    dtype = member.values[0].dtype
    if member.combiner.name in ("argmax", "argmin"):
        return dtype.itemsize + 8
    return (accumulator(dtype) if member.combiner.name in ("sum", "prod") else dtype).itemsize


def _loops_of(stage: Stage, group: Group) -> list[str]:
    return list(dict.fromkeys(loop for axis in group.indices for loop in stage.leaves(axis)))


def _inside(stage: Stage, group: Group) -> set[int]:
    return {g.number for g in stage.parts.groups if g.scope == group.number}


def _may_relax(stage: Stage, group: Group, number: int, name: str) -> bool:
    """Whether a data loop may run inside a reduction whose bounds depend on it."""
    if all(a.index != name for a in stage.parts.axes) or any(m.combiner.name in ("argmax", "argmin") for m in group.members):
        return False
    own = group.axes[number].index
    if any(own in (*free_names(a.start), *free_names(a.stop)) for g in stage.parts.groups for a in g.axes):
        # As a window its value is known only where the data loop is, which is too late for loops that start or stop by it.
        return False
    if any(own in g.depends and _begins_before(stage, g, name) for g in stage.parts.groups if g.number != group.number):
        # What it reads is in bounds within the window alone, which is known only inside of it.
        return False
    data = frozenset(a.index for a in stage.parts.axes)
    first = min(stage.order.index(x) for x in stage.loops_of(group.axes[number].index))
    inner = frozenset(a for a in data if any(stage.order.index(x) > first for x in stage.loops_of(a)))
    if all(window(axis, inner) is not None for axis in _in_classes(stage, group.axes[number], first)):
        return True
    # Of a block that stands inside, and begins at what is known outside, the bounds are greatest and least at its ends. A loop of several
    # stands for these, a block of one does not.
    within, cut = set(stage.order[first:]), {r.parent for r in stage.relations if isinstance(r, Split)}
    fused = any(
        isinstance(r, Fuse) and r.fused in cut and set(stage.axes_of(r.fused)) & inner and within & set(stage.leaves(r.fused))
        for r in stage.relations
    )
    return len(group.axes) == 1 and not fused and has_hull(group.axes[number], inner)


def _begins_before(stage: Stage, group: Group, name: str) -> bool:
    """Whether a reduction begins outside of a loop over the axis `name`."""
    first = min(stage.order.index(x) for x in _loops_of(stage, group))
    return any(stage.order.index(x) > first for x in stage.loops_of(name))


def _in_classes(stage: Stage, axis: Axis, first: int) -> list[Axis]:
    """The axis as it is in each residue class whose loop stands before loop number `first`: the place in a block is known by then, as a
    number where that loop is copied out."""
    found = [axis]
    for split in stage.relations:
        if not isinstance(split, Split) or split.parent not in {*free_names(axis.start), *free_names(axis.stop)}:
            continue
        loops = stage.loops_of(split.inner)
        if not loops or any(stage.order.index(x) >= first for x in loops):
            continue
        if split.factor <= COPIED and stage.kind(split.inner) == "unroll":
            places: list[Expr] = [const(n) for n in range(split.factor)]
        elif split.tail in ("guard", "stride") or divides(stage, split):
            places = [Index(split.inner)]
        else:
            continue
        values = [apply("add", apply("mul", Index(split.parent), const(split.factor)), place) for place in places]
        found = [Axis(a.index, *(substitute(e, {split.parent: value}) for e in (a.start, a.stop))) for a in found for value in values]
    return found


def _check_scatter(state: State, stage: Stage) -> None:
    definition = definition_named(state.program, stage.name)
    if not isinstance(definition, Scatter):
        return
    free = free_axes(definition, state.target) | set(stage.owners)
    held = [loop for loop in stage.order if stage.group_of(loop) is None and not set(stage.axes_of(loop)) <= free]
    wanted = list(dict.fromkeys(x for axis in definition.axes for x in stage.leaves(axis.index) if x in held))
    if held != wanted:
        raise refuse(
            stage,
            f"expected the loops {', '.join(wanted)} in this order, got {', '.join(held)}: contributions to one element combine in order",
        )
    place = {loop: number for number, loop in enumerate(stage.order)}
    for axis in definition.axes:
        needed = {n for e in (axis.start, axis.stop) for n in free_names(e) if any(n == other.index for other in definition.axes)}
        first = min((place[x] for x in stage.leaves(axis.index) if x in place), default=0)
        late = next((x for n in sorted(needed) for x in stage.leaves(n) if place.get(x, -1) > first), None)
        if late is not None:
            raise refuse(stage, f"expected {late} outside of {axis.index}, got it inside", late, f"where {axis.index} ends depends on it")


def _check_parallel(state: State, stage: Stage, loop: str) -> None:
    if stage.group_of(loop) is not None:
        raise refuse(
            stage,
            f"expected a data loop to run in parallel, got {loop} of a reduction",
            loop,
            "rfactor it: its parts are a data loop",
        )
    if stage.place is not None:
        raise refuse(stage, f"expected a definition with loops of its own to run in parallel, got one inside {stage.place.stage}", loop)
    before = [x for x in stage.order[: stage.order.index(loop)] if stage.group_of(x) is None]
    if before:
        raise refuse(
            stage, f"expected the outermost data loop to run in parallel, got {loop} inside {before[0]}", loop, "fuse them, or reorder"
        )
    for group in stage.parts.groups:
        if set(stage.axes_of(loop)) & set(group.depends) and any(
            stage.order.index(x) < stage.order.index(loop) for x in _loops_of(stage, group)
        ):
            raise refuse(
                stage, f"expected a loop outside of the reduction over {group.indices[0]} to run in parallel, got {loop} inside", loop
            )
    definition = definition_named(state.program, stage.name)
    if may_collide(definition, stage.axes_of(loop), state.target, stage.owners):
        raise refuse(stage, f"expected iterations that touch different elements to run in parallel, got {loop}: two may touch one", loop)


def _check_written_out(stage: Stage, loop: str, how: str) -> None:
    found = written_out_inside(stage, loop)
    if found is not None:
        inner, parent = found
        raise refuse(
            stage,
            f"expected iterations that touch different elements to {how}, got {loop} around the blocks of {inner}, which overlap",
            loop,
            f"reorder {inner} outside of {loop}, or split {parent} with tail 'guard' or 'peel'",
        )


def _check_shifted_blocks(stage: Stage, split: Split, position: dict[str, int]) -> None:
    """A sum that goes on around blocks has an accumulator for each place in them. Shifted blocks of whole blocks take the places of the
    rest beside these, whose sums go on at the same time."""
    if split.tail != "shift" or _divides_alike(stage, split):
        return
    came_from = stage.ancestry(split.parent)
    for whole in stage.relations:
        if not isinstance(whole, Split) or whole.outer not in came_from or whole.tail not in REST or _divides_alike(stage, whole):
            continue
        inside = min(position[x] for x in (*stage.leaves(whole.outer), *stage.leaves(whole.inner)))
        around = next((x for x in stage.order[:inside] if stage.group_of(x) is not None), None)
        if around is not None:
            blocks = f"the blocks of {split.parent}, which overlap"
            raise refuse(
                stage,
                f"expected the rest of {whole.parent} in a loop of its own, got {around} around it and {blocks}",
                split.parent,
                f"split {split.parent} with tail 'guard' or 'peel', or reorder {around} inside",
            )


def written_out_inside(stage: Stage, loop: str) -> tuple[str, str] | None:
    """An unrolled loop inside of another over blocks that overlap, with what they are blocks of, if iterations of the other would write
    an element from two of them.

    Blocks write equal values where they overlap, all by one statement. But around a reduction an unrolled loop is written out, a statement
    for each block, and iterations that run at once have no order."""
    at = stage.order.index(loop)
    for split in stage.relations:
        if isinstance(split, Split) and split.tail == "shift" and not divides(stage, split) and split.parent in stage.ancestry(loop):
            for inner in stage.leaves(split.outer):
                if inner in stage.order[at + 1 :] and _is_written_out(stage, inner) and _share_apart(stage, split, loop, inner):
                    return inner, split.parent
    return None


def _is_written_out(stage: Stage, loop: str) -> bool:
    """Whether an unrolled loop is copied out while lowering, as reductions start inside of it."""
    extent, at = stage.extent(loop), stage.order.index(loop)
    started = {_group_number(stage, x) for x in stage.order[:at]}
    inside = any(number not in started for number in (_group_number(stage, x) for x in stage.order[at + 1 :]) if number is not None)
    return stage.kind(loop) == "unroll" and extent is not None and 1 < extent <= COPIED and inside


def _share_apart(stage: Stage, split: Split, *loops: str) -> bool:
    """Whether the last two blocks of a split share an element in different iterations of each of some loops."""
    extent, count = stage.extent(split.parent), stage.extent(split.outer)
    if extent is None or count is None:
        return True
    moved = extent - (count - 1) * split.factor
    shared = [((count - 2, k + moved), (count - 1, k)) for k in range(split.factor - moved if count > 1 else 0)]

    def iteration(loop: str, block: int, place: int) -> int:
        over_blocks = split.outer in stage.ancestry(loop)
        return _iteration(stage, split.outer, loop, block) if over_blocks else _iteration(stage, split.inner, loop, place)

    return any(all(iteration(x, *one) != iteration(x, *other) for x in loops) for one, other in shared)


def _iteration(stage: Stage, whole: str, loop: str, number: int) -> int:
    """In which iteration of a loop iteration `number` of what it was split from stands; where it was fused, that itself."""
    while whole != loop:
        split = next((r for r in stage.relations if isinstance(r, Split) and r.parent == whole), None)
        if split is None:
            return number
        is_outer = split.outer in stage.ancestry(loop)
        whole, number = (split.outer, number // split.factor) if is_outer else (split.inner, number % split.factor)
    return number


def _check_copies(stage: Stage, loop: str, kind: str) -> None:
    extent, most = stage.extent(loop), MOST_LANES if kind == "vectorize" else MOST_COPIES
    if extent is None and kind == "unroll":
        extent = _extent_of_window(stage, loop)
    if extent is None or extent > most:
        found = "an extent known only when it runs" if extent is None else str(extent)
        raise refuse(stage, f"expected a constant extent of at most {most} to {kind} {loop}, got {found}", loop, "split it first")


def _extent_of_window(stage: Stage, loop: str) -> int | None:
    """The constant number of iterations of a loop of a reduction whose bounds depend on data loops inside of it, if it is one."""
    group = stage.group_of(loop)
    axis = next((a for a in group.axes if a.index == loop), None) if group is not None else None
    if axis is None:
        return None
    first = stage.order.index(loop)
    inner = frozenset(a for x in stage.order[first + 1 :] if stage.group_of(x) is None for a in stage.axes_of(x))
    most = 0
    for found in (window(a, inner) for a in _in_classes(stage, axis, first)):
        if found is None or not isinstance(found.axis.start, Const) or not isinstance(found.axis.stop, Const):
            return None
        most = max(most, int(found.axis.stop.value) - int(found.axis.start.value))
    return most


def _check_vector(state: State, stage: Stage, loop: str, kind: str) -> None:
    how = "vectorize" if kind == "vectorize" else f"bind to {kind}"
    group = stage.group_of(loop)
    if group is not None:
        if not runs_in_lanes(group):
            names = "/".join(m.combiner.name for m in group.members)
            raise refuse(stage, f"expected a reduction that commutes to {how} {loop}, got {names}", loop)
        mine = [x for x in stage.order if stage.reduces(x, group)]
        if mine[-1] != loop:
            raise refuse(stage, f"expected the innermost loop of the reduction to {how}, got {loop} outside of {mine[-1]}", loop)
        return
    definition = definition_named(state.program, stage.name)
    if may_collide(definition, stage.axes_of(loop), state.target, stage.owners):
        raise refuse(stage, f"expected iterations that touch different elements to {how}, got {loop}: two may touch one", loop)
