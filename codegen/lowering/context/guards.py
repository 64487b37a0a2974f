"""Guards of a reduction that differ over its tile: one condition around the tile where some point of it counts, none inside.

A causal score is a sum that only the columns up to the row's own ask for. With rows and columns as a tile of accumulators,
the guard would be tested for each product. Where its accesses are in bounds without it, the sum may as well be computed for the
whole tile: what no one asks for is not used, be it data that says so (a mask, a length of each row). Tiles of which no point counts
are left out, where indices say so: sums that only the border of an image asks for cost nothing inside. The same holds for the points
of a last block beyond the extent of an axis, where operands are copied into blocks that are filled up.

In bounds means at every point that runs: over all blocks of an axis of which an iteration of another definition asks for one, and, of a
tensor of which a block is kept, within that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tensorexpr.bounds import PROVED, check_access
from tensorexpr.codegen.lowering.context import accumulators
from tensorexpr.codegen.lowering.context.arithmetic import ZERO, add, constant, floordiv, mul, reads_data, sub, substituted
from tensorexpr.codegen.lowering.context.scope import Scope
from tensorexpr.codegen.schedule.analysis.reductions import Group, Parts
from tensorexpr.codegen.schedule.analysis.state import Fuse, Split, Stage
from tensorexpr.ir import Access, Apply, Axis, Expr, Index, apply, conjunction, const
from tensorexpr.records import record
from tensorexpr.regions import affine_of
from tensorexpr.traversal import free_names, read_occurrences, size_names

_SLACK = {"lt": -1, "le": 0}
Shape = Callable[[str], tuple[Expr, ...]]


@record
class Kept:
    """A tensor of which a block is kept where the loops of a stage run: the axes along which it is one, and the axes of the stage that
    it is computed in whole blocks of, with the points beyond their extents."""

    along: tuple[int, ...]
    blocks: frozenset[str]


def around_tile(condition: Expr, stage: Stage, scope: Scope, tile: tuple[str, ...]) -> Expr | None:
    """A condition over open loops that holds where `condition` does at some point of the tile; None where that cannot be said.

    Requires: a comparison of affine sides, each index of which is known once the loops of the tile are. These run from 0
    to a constant extent; the greatest value of a difference is where each index is greatest or least. Of loops that run as one, as the
    threads of a block do, each is a loop of the tile.
    """
    if isinstance(condition, Apply) and condition.op.name == "eq":
        sides = [around_tile(apply(name, *condition.args), stage, scope, tile) for name in ("le", "ge")]
        return None if None in sides else conjunction([side for side in sides if side is not None])
    if not (isinstance(condition, Apply) and condition.op.name in ("lt", "le", "gt", "ge")):
        return None
    left, right = condition.args if condition.op.name in _SLACK else reversed(condition.args)
    small, large = affine_of(left), affine_of(right)
    if small is None or large is None or small.has_division() or large.has_division():
        return None
    parents = stage.parents()
    tile = tuple(part for loop in tile for part in stage.fused_in(loop))
    if any(isinstance(parents.get(x), Fuse) for loop in tile for x in stage.ancestry(loop)):
        return None  # parts of a block of a fused loop do not grow with it
    parts = {x for loop in tile for x in stage.ancestry(loop)}
    for split in stage.relations:
        # In which form the blocks of a split run is decided further inside; in all of them its axis goes to its end, as in this one.
        if isinstance(split, Split) and split.outer in parts and split.outer not in scope.variants:
            scope = scope.with_variant(split, "shift")
    last: dict[str, Expr] = {}
    for loop in tile:
        extent = scope.extent(loop)
        count = stage.extent(loop) if extent is None else constant(extent)
        if count is None:
            return None
        last[loop] = const(count - 1)
    least, greatest = scope.with_values(**dict.fromkeys(tile, ZERO)), scope.with_values(**last)
    if not all(greatest.index(n) is not None for n in (*free_names(left), *free_names(right))):
        return None
    difference = large - small
    values: dict[str, Expr] = {}
    for name in difference.names():
        if name in size_names(condition):
            continue
        found = (greatest if difference.coefficient(name) > 0 else least).index(name)
        if found is None:
            return None
        values[name] = found

    def side(expr: Expr, name_of: Callable[[str], Expr]) -> Expr:
        return substituted(expr, name_of, lambda p: p, lambda a: a)

    def value(name: str) -> Expr:
        return values[name] if name in values else Index(name)

    if set(free_names(left)) & set(free_names(right)) or not {*free_names(left), *free_names(right)} <= set(values):
        return None
    return apply("lt" if condition.op.name in ("lt", "gt") else "le", side(left, value), side(right, value))


def beyond_extents(
    group: Group, stage: Stage, scope: Scope, tile: tuple[str, ...], shape: Shape, kept: Mapping[str, Kept]
) -> frozenset[str]:
    """The guarded splits of data axes (by their outer loops) whose points beyond the extent a reduction may compute in its tile:
    all that it reads there is in bounds, and in the blocks that are `kept` of tensors."""
    found: dict[str, Split] = {}
    for made in stage.relations:
        if isinstance(made, Split) and scope.variants.get(made.outer) == "guard" and {made.outer, made.inner} & set(tile):
            found[made.parent] = made
    axes = []
    for axis in stage.parts.axes:
        split, whole = found.get(axis.index), scope.bounded(axis)
        stop = None if split is None or axis.start != ZERO else _last(scope.axes[axis.index], whole.stop, split.factor)
        if stop is not None:
            axes.append(Axis(axis.index, ZERO, stop))
        else:
            axes.append(whole)
            found.pop(axis.index, None)
    splits = [split for parent, split in found.items() if any(a.index == parent for a in axes)]
    beyond = frozenset(split.parent for split in splits)

    def is_there(access: Access, inner: Iterable[Axis]) -> bool:
        block = kept.get(access.tensor)
        return block is None or not any(_depends_on(access.indices[along], inner) & beyond - block.blocks for along in block.along)

    if any(map(reads_data, group.guard)):
        return frozenset()
    if not splits or not may_run_without(group, stage.parts, tuple(axes), scope, shape, is_there):
        return frozenset()
    return frozenset(split.outer for split in splits)


def _last(axis: Axis, whole: Expr, factor: int) -> Expr | None:
    """Where the last block of an axis ends that is filled up to a multiple of `factor`: of the whole, which ends at `whole`, or of the
    piece that runs here, which may begin elsewhere; None where that is open, unless the piece is the whole."""
    stop, length, end = constant(whole), constant(sub(axis.stop, axis.start)), constant(axis.stop)
    if stop is None:
        return mul(floordiv(add(whole, const(factor - 1)), factor), const(factor)) if (axis.start, axis.stop) == (ZERO, whole) else None
    missing = factor - 1 if length is None else -length % factor
    return const(stop + missing if end is None else max(-(-stop // factor) * factor, end + missing))


def _depends_on(index: Expr, axes: Iterable[Axis]) -> set[str]:
    """The names that an index depends on, by itself or by where axes begin and end; the axes innermost last."""
    names = set(free_names(index))
    for axis in reversed(tuple(axes)):
        if axis.index in names:
            names.update((*free_names(axis.start), *free_names(axis.stop)))
    return names


def may_run_without(
    group: Group,
    parts: Parts,
    data: tuple[Axis, ...],
    scope: Scope,
    shape: Shape,
    is_there: Callable[[Access, Iterable[Axis]], bool] = lambda access, axes: True,
) -> bool:
    """Whether a reduction may be computed where its guard does not hold, at all points of the axes `data`: nothing in it stands in other
    loops or must be checked, and all that it reads is in bounds, and is there."""
    if group.uses or any(g.scope == group.number for g in parts.groups) or any(accumulators.is_winner(m) for m in group.members):
        return False
    if any(map(reads_data, (*group.where, *(e for a in group.axes for e in (a.start, a.stop))))):
        return False
    axes, around = group.axes, group
    needed = set(group.depends)
    while around.scope is not None:
        # Bounds may depend on the loops that it stands in; whether their points count is tested with its guard, or later. It runs outside
        # of those that it does not depend on, so also where these have no point.
        around = parts.group(around.scope)
        for axis in reversed(around.axes):
            if axis.index in needed:
                axes = (scope.bounded(axis), *axes)
                needed.update((*free_names(axes[0].start), *free_names(axes[0].stop)))
    axes = (*data, *axes)
    for member in group.members:
        for value in member.values:
            for access, inner, guards in read_occurrences(value, axes, group.where):
                if any(v is not PROVED for v in check_access(access.indices, shape(access.tensor), inner, guards)):
                    return False
                if not is_there(access, inner):
                    return False
    return True
