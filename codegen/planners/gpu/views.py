"""How a contraction looks from a tile of two of its axes on a GPU: what its operands are along them, and where its bounds are tested.

Bounds of a reduction may depend on data axes, as those of a convolution's gradient do. What they say of the axes of the grid is the same
for all threads of a block, and stays the bound of a loop. Of the axes of the tile a window stays (see `windows`), and a condition on
each of its points: the loop stands around the steps, so that a thread tests once for each of its rows or columns.

Axes that go along with a side of the tile, as the rows of an image and the images of a batch do with the points of a row, may be one axis
with it (`joined`): the tile is then filled whatever the extents are. So may axes of a reduction that are taken in steps.

Axes that bounds or conditions divide are taken by residue classes (`residues`): the class is the outermost of the axes of the grid, so
all threads of a block have the same one, and its bounds, subscripts and conditions are those of that class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from math import prod

from tensorexpr.codegen.schedule.analysis.reductions import Group, Parts
from tensorexpr.codegen.schedule.analysis.residues import classes, in_class
from tensorexpr.codegen.schedule.analysis.state import Split, Stage
from tensorexpr.codegen.schedule.analysis.strides import Reach, reaches
from tensorexpr.codegen.schedule.analysis.windows import Window, has_hull, hull_conditions, window
from tensorexpr.codegen.schedule.analysis.work import lengths
from tensorexpr.codegen.schedule.legal.legality import is_ordered, runs_whole
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.integers import Constraint
from tensorexpr.ir import Access, Axis, Const, Expr, Index, apply, conjunction, const
from tensorexpr.records import record
from tensorexpr.regions import affine_of, constraints_of
from tensorexpr.traversal import free_names, substitute

Shapes = dict[str, tuple[Expr, ...]]
LEAST_STEPS = 16
"""Points of an axis from which on it is worth going along it in steps."""
LINE = 8
"""Elements of a line of memory, of four bytes."""
GROUPS = (1, 2, 4, 8, 16)
"""Rows of blocks of a grid that may go along together."""
OPEN = 2048
"""Points that an axis is taken to have whose extent is known only when it runs."""
LONG_SIDE = 128
"""Points of an axis beyond which a tile has no use for more."""
SIDE = 256
"""Points of the longest side of a tile: an axis that is a multiple of it is joined by no other."""


@record
class View:
    """A contraction as a tile along `row` and `column` sees it that goes along `step`: residue classes of its axes, points along each
    axis (of one class; of one that others are joined to, of all of them), blocks beside those of the tile, its operands, the axes that
    conditions depend on which leave out points of what it visits, whether these say no more than that an element of an operand is there,
    and the axes that are one with one of these, outermost first."""

    row: str
    column: str
    step: str
    counts: Mapping[str, int]
    lengths: Mapping[str, int]
    others: int
    operands: tuple[Reach, ...]
    tested: frozenset[str]
    filled: bool
    joined: Mapping[str, tuple[str, ...]]

    def side(self, axis: str) -> frozenset[str]:
        """An axis of the tile, or that of the steps, with those that are joined to it."""
        return frozenset((axis, *self.joined.get(axis, ())))

    def cached(self) -> Iterator[tuple[str, tuple[bool, ...]]]:
        """The operands that a tile reads again, each with which of its axes go along the tile."""
        tile = self.side(self.row) | self.side(self.column)
        for reach in self.operands:
            forms = [affine_of(i) for i in reach.access.indices]
            along = tuple(form is not None and bool(tile & set(form.names())) for form in forms)
            if any(along) and None not in forms:
                yield reach.access.tensor, along


def best_view(stage: Stage, shapes: Shapes, joins: bool = False) -> View | None:
    """The largest tile of two axes of which each has an operand that the other leaves where it is, with elements of operands side by
    side along it or along the steps; the later axis, along which results lie side by side, has the columns. With `joins` other axes may be
    one with these."""
    (group,) = stage.parts.groups
    if is_ordered(group):
        return None
    counts = classes(stage.parts)
    parts = in_class(stage.parts, counts)
    (group,) = parts.groups
    found = lengths(parts) | {a.index: OPEN for a in (*parts.axes, *group.axes) if _is_open(a)}
    if any(not _is_fixed(a) and not _is_open(a) for a in parts.axes) or min(found.values()) < 1:
        return None
    axes = [a.index for a in parts.axes if a.index in group.depends]
    best: tuple[tuple[float, int, int], View] | None = None
    for row, column in combinations(axes, 2):
        made = _view(parts, group, shapes, counts, found, row, column)
        if made is not None and joins:
            made = _joined(made, parts, group, shapes, axes) or made
        if made is not None:
            area = min(made.lengths[row], LONG_SIDE) * min(made.lengths[column], LONG_SIDE) * _side_by_side(made)
            rank = (area, axes.index(column), axes.index(row) if joins else 0)
            if best is None or rank > best[0]:
                best = (rank, made)
    return None if best is None else best[1]


def _joined(view: View, parts: Parts, group: Group, shapes: Shapes, axes: list[str]) -> View | None:
    """The view with axes of constant length joined to the sides of its tile and to its steps, innermost first and until these are
    multiples of the longest side of a tile, or of one; None where there are none, or where bounds would not be windows of the tile."""
    extents = {a.index: a for a in (*parts.axes, *group.axes)}
    lengths_ = dict(view.lengths)
    joined: dict[str, tuple[str, ...]] = {}
    for axis, other in ((view.column, view.row), (view.row, view.column)):
        for name in reversed([a for a in axes if a not in (view.row, view.column)]):
            reads = [r for r in view.operands if name in _names_of(r)]
            beside = reads and all(axis in _names_of(r) and other not in _names_of(r) for r in reads)
            if lengths_[axis] % SIDE and beside and not any(name in rest for rest in joined.values()):
                if not all(_is_fixed(extents[n]) for n in (axis, name)):
                    break
                joined[axis] = (name, *joined.get(axis, ()))
                lengths_[axis] *= view.lengths[name]
    step = extents[view.step]
    for found in reversed([a for a in group.axes if a.index != view.step]):
        if lengths_[view.step] % LEAST_STEPS and _is_fixed(step) and _is_fixed(found):
            joined[view.step] = (found.index, *joined.get(view.step, ()))
            lengths_[view.step] *= view.lengths[found.index]
    if not joined:
        return None
    return _view(parts, group, shapes, view.counts, lengths_, view.row, view.column, joined)


def _names_of(reach: Reach) -> set[str]:
    return {n for i in reach.access.indices for n in free_names(i)}


def _is_fixed(axis: Axis) -> bool:
    return isinstance(axis.start, Const) and isinstance(axis.stop, Const)


def _is_open(axis: Axis) -> bool:
    """Whether an axis ends where sizes say that are known when it runs."""
    return axis.start == const(0) and not isinstance(axis.stop, Const) and not free_names(axis.stop)


def _view(
    parts: Parts,
    group: Group,
    shapes: Shapes,
    counts: Mapping[str, int],
    found: Mapping[str, int],
    row: str,
    column: str,
    joined: Mapping[str, tuple[str, ...]] | None = None,
) -> View | None:
    joined = joined or {}
    tile = frozenset((row, column, *joined.get(row, ()), *joined.get(column, ())))
    moved: dict[str, Expr] = {}
    conditions = list(group.where)
    tested = {n for condition in group.where for n in free_names(condition)}
    for axis in group.axes:
        if not tile & {n for e in (axis.start, axis.stop) for n in free_names(e)}:
            continue
        seen = window(axis, tile)
        if seen is None:
            if len(group.axes) > 1 or not has_hull(axis, tile):
                return None
            seen = Window(axis, None, hull_conditions(axis, tile))
        conditions += seen.conditions
        tested |= {n for condition in seen.conditions for n in (*free_names(condition), *free_names(seen.offset or condition))}
        if seen.offset is not None:
            moved[axis.index] = apply("add", seen.offset, Index(axis.index))
    step = _step(group, shapes, found, tile)
    if step is None:
        return None
    values = tuple(substitute(v, moved) for m in group.members for v in m.values)
    operands = tuple(r for r in reaches(values, shapes) if set(r.strides) & set(group.indices))
    first = any(r.stride(row) and not r.stride(column) for r in operands)
    second = any(r.stride(column) and not r.stride(row) for r in operands)
    if not first or not second:
        return None
    others = prod(found[a.index] for a in parts.axes if a.index not in tile) * prod(counts.values())
    asked = constraints_of(substitute(conjunction(tuple(conditions)), moved)) if conditions else ((), True)
    filled = asked[1] and any(set(asked[0]) <= _inside(r.access, shapes[r.access.tensor]) for r in operands)
    return View(row, column, step, counts, found, others, operands, frozenset(tested), filled, joined)


def _inside(access: Access, shape: tuple[Expr, ...]) -> set[Constraint]:
    """What holds where an access is one of its tensor."""
    pairs = zip(access.indices, shape, strict=True)
    conditions = [c for i, n in pairs for c in (apply("ge", i, const(0)), apply("lt", i, n))]
    found, _ = constraints_of(conjunction(tuple(conditions)))
    return set(found)


def _step(group: Group, shapes: Shapes, found: Mapping[str, int], tile: frozenset[str]) -> str | None:
    """The axis of a reduction to take steps along: one with bounds that depend on no other, or alone and counted alike over a tile, long
    enough, along which elements lie side by side."""
    alone = len(group.axes) == 1 and ((seen := window(group.axes[0], tile)) is None or seen.offset is None)
    fixed = [a for a in group.axes if _is_fixed(a) or _is_open(a) or alone]
    if not fixed:
        return None
    read = reaches(tuple(v for m in group.members for v in m.values), shapes)

    def rank(axis: Axis) -> tuple[bool, int, int]:
        near = sum(abs(r.stride(axis.index)) == 1 for r in read)
        return found[axis.index] >= LEAST_STEPS, near, found[axis.index]

    return max(fixed, key=rank).index


def _side_by_side(view: View) -> float:
    """The part of a line of memory that is of use, over all operands: of one whose elements lie two apart, a half."""
    axes = (view.row, view.column, view.step)
    apart = [min((abs(r.stride(a)) for a in axes if r.stride(a)), default=LINE) for r in view.operands]
    return prod(1 / min(n, LINE) for n in apart)


# ----------------------------------------------------------------------------------------------------------------- loops


def by_classes(s: Planned, name: str, view: View) -> tuple[list[str], dict[str, str]]:
    """Takes axes by their residue classes. Gives the loops that are the grid so far (classes outermost, then all data axes but those of
    the tile), and the loop over the points of each axis."""
    handle, stage = s[name], s.state.stage(name)
    inner: list[str] = []
    points = {a.index: a.index for a in stage.parts.axes}
    for axis, count in view.counts.items():
        points[axis], place = handle.split(axis, count, "guard")
        inner.append(place)
    tile = view.side(view.row) | view.side(view.column)
    return [*inner, *(loop for axis, loop in points.items() if axis not in tile)], points


def joined_points(s: Planned, name: str, view: View, axis: str, points: Mapping[str, str]) -> str:
    """The loop over the points of an axis and of those that are joined to it."""
    loops = [points.get(other, other) for other in (*view.joined.get(axis, ()), axis)]
    handle = s[name]
    first, *further = loops
    if not further:
        return first
    rest = [x for x in handle.loops if x not in loops]
    at = handle.loops.index(first) - sum(handle.loops.index(x) < handle.loops.index(first) for x in further)
    handle.reorder(*rest[:at], *loops, *rest[at:])
    for loop in further:
        first = handle.fuse(first, loop)
    return first


def in_one_loop(s: Planned, name: str, around: list[str], steps: str) -> tuple[list[str], str]:
    """The loops of a reduction around its steps as one with these, so that tiles are filled ahead from one of their iterations to the next:
    those of constant length, where the last step is a whole one. Gives the loops that are left, and that over steps."""
    stage = s.state.stage(name)
    fixed = [x for x in around if stage.extent(x) is not None]
    if not fixed or stage.extent(steps) is None or not _is_whole(stage, steps):
        return around, steps
    left = [x for x in around if x not in fixed]
    handle = s[name]
    free = [x for x in handle.loops if x not in around and x != steps]
    data = [x for x in free if stage.group_of(x) is None]
    handle.reorder(*data, *left, *fixed, steps, *(x for x in free if x not in data))
    for loop in reversed(fixed):
        steps = handle.fuse(loop, steps)
    return left, steps


def _is_whole(stage: Stage, outer: str) -> bool:
    """Whether the loop over the blocks of a split runs in one form."""
    return all(runs_whole(stage, r) for r in stage.relations if isinstance(r, Split) and r.outer == outer)


def blocks_of(s: Planned, name: str, loop: str, length: int) -> tuple[list[str], str]:
    """The loop over blocks of so many points of a loop (none where there is one block), and that inside of a block."""
    if s.state.stage(name).extent(loop) == length:
        return [], loop
    outer, inner = s[name].split(loop, length, "guard")
    return [outer], inner


def steps_of(s: Planned, name: str, loop: str, length: int) -> tuple[str, str]:
    """The loop over steps of so many points of a reduction, and that inside of one; beyond the end tiles have zeros (`lowering.rests`)."""
    return s[name].split(loop, length, "guard")


def in_squares(
    s: Planned, name: str, view: View, rows: list[str], columns: list[str], tile: tuple[int, int, int], at_once: int
) -> list[str]:
    """The loops over blocks of a tile's rows and columns in the order of the grid: so many rows of blocks go along together that the
    blocks which run `at_once` read as little of the operands as may be, which then lies in the second cache for others of them. Only
    where tiles are whole: what conditions at the ends take to find their places costs more."""
    stage, axes = s.state.stage(name), (view.row, view.column, view.step)
    fixed = all(stage.extent(axis) is not None for axis in axes)
    whole = fixed and all(view.lengths[axis] % length == 0 for axis, length in zip(axes, tile, strict=True))
    if not (whole and rows and columns):
        return [*rows, *columns]
    down, across = view.lengths[view.row] // tile[0], view.lengths[view.column] // tile[1]

    def read(group: int) -> int:
        below = min(down, group * -(-at_once // (group * across)))
        return below * tile[0] + min(across, -(-at_once // group)) * tile[1]

    group = min((n for n in GROUPS if down % n == 0), key=read)
    if down * across <= at_once or group == 1:
        return [*rows, *columns]
    groups, inner = s[name].split(rows[0], group)
    return [groups, *columns, inner]


def as_grid(s: Planned, name: str, loops: list[str]) -> None:
    """The outermost loops as one, which is the grid."""
    if not loops:
        return
    grid = loops[0]
    for further in loops[1:]:
        grid = s[name].fuse(grid, further)
    s[name].parallel(grid)
