"""Reads at places that depend on data, turned around by sorting: all that meets at an element stands in one segment.

    Y[t, d] reads W[ids[t], d]        offsets, order = segments[extent](ids[t] for t in range(n))
                                      W_bar[v, d] = sum(Y_bar[order[k], d] for k in range(offsets[v], offsets[v + 1]))

An index that is not affine makes its variables *sorted*, and those that another index mixes with them. One of these that is
an index by itself over a whole axis (`X[b, ids[b, t]]`) is known at each element: it numbers plans of their own, the batch.
The other sorted variables are boxed (`boxes`) and the plan lists their points by the position of all indices that depend on
them; conditions on them stay in the plan. Sorted variables that nothing links have plans of their own (`A[i[a], j[b]]`). A
point is read back from its number with quotients and remainders. Indices and variables that have nothing to do with the
sorted ones are turned around as always (`inversion`), for a fixed point of these. So the work is one sort and one visit per
read, however the indices collide.

Where all data is known at each element nothing is sorted (`fixed`). None is the answer where the sorted variables have no box
that is known before the program runs, or one that could be larger than what is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensorexpr.autodiff.data.digits import in_rows
from tensorexpr.autodiff.data.fixed import Invert, fixed_gathers, pinned_axes
from tensorexpr.autodiff.invert.inversion import Gather
from tensorexpr.autodiff.local.boxes import Box, boxes_of, reads, unboxed
from tensorexpr.autodiff.local.contributions import Contribution
from tensorexpr.autodiff.local.workspace import Workspace, all_of, shifted
from tensorexpr.bounds import PROVED, check_access, implied
from tensorexpr.ir import Access, Axis, Expr, Index, Segments, apply, const, product
from tensorexpr.language.core.renaming import renamed
from tensorexpr.records import record, replace
from tensorexpr.regions import Opaque, cases_of, domain_of
from tensorexpr.traversal import bottom_up, free_names, fresh_name, read_occurrences, substitute

ELEMENT = "@"
"""Before the number of an axis: its index at the element that is read, in values of contributions."""


def sorted_gathers(
    contribution: Contribution, target: tuple[Axis, ...], workspace: Workspace, invert: Invert, every: bool = False
) -> tuple[Gather, ...] | None:
    """The gathers at the elements `target` of what reads there, through a plan that the workspace has or gets.

    With `every` all indices count as depending on data. None where no box is known.
    """
    elements = {f"{ELEMENT}{at}": Index(axis.index) for at, axis in enumerate(target)}
    rows = None if every else in_rows(contribution, target, workspace.steps, workspace.reserved)
    by_rows = None if rows is None else sorted_gathers(rows.contribution, rows.target, workspace, invert)
    if rows is not None and by_rows is not None:
        return tuple(replace(found, values=found.values | elements) for found in map(rows.told, by_rows))
    names = _apart(contribution, target, workspace)
    c = _renamed(contribution, names)
    gathers = None if every else fixed_gathers(c, target, workspace.steps, workspace.reserved, invert)
    if gathers is None:
        gathers = _by_plans(c, target, {new: old for old, new in names.items()}, workspace, invert, every)
    if gathers is None:
        return None
    own = {names.get(axis.index, axis.index): axis.index for axis in contribution.axes}
    return tuple(replace(g, values={own[name]: value for name, value in g.values.items()} | elements) for g in gathers)


def _by_plans(
    c: Contribution, target: tuple[Axis, ...], names: dict[str, str], workspace: Workspace, invert: Invert, every: bool
) -> tuple[Gather, ...] | None:
    parts = _Parts.of(c, target, every)
    keys = [c.access.indices[at] for at in parts.keys]
    boxes = boxes_of([axis.index for axis in parts.sorted], parts.known, c.axes, keys, workspace)
    if boxes is None:
        return None
    here, rest = _conditions(parts, boxes, c, workspace)
    groups = _groups(parts, boxes, here, c)
    certain = (len(groups) == 1 or not here) and _is_read_everywhere(parts, boxes, c, rest)
    plans = [_plan(group, parts, boxes, c, certain, names, workspace) for group in groups]
    found = [plan for plan, _ in plans if plan is not None]
    if len(found) < len(plans):
        return None
    tested = [one for group, (_, covers) in zip(groups, plans, strict=True) if not covers for one in group.conditions]
    return _through(list(zip(groups, found, strict=True)), parts, boxes, c, (*tested, *rest), workspace, invert)


def _apart(c: Contribution, target: tuple[Axis, ...], workspace: Workspace) -> dict[str, str]:
    """New names for the axes that are called as those of the element are."""
    clash = {axis.index for axis in target}
    taken = {*clash, *workspace.reserved, *(axis.index for axis in c.axes)}
    return {axis.index: fresh_name(axis.index, taken) for axis in c.axes if axis.index in clash}


def _renamed(c: Contribution, names: dict[str, str]) -> Contribution:
    moved: dict[str, Expr] = {old: Index(new) for old, new in names.items()}
    access = replace(c.access, indices=tuple(substitute(index, moved) for index in c.access.indices))
    axes = tuple(Axis(names.get(a.index, a.index), substitute(a.start, moved), substitute(a.stop, moved)) for a in c.axes)
    return replace(c, access=access, axes=axes, guards=tuple(substitute(guard, moved) for guard in c.guards))


# --------------------------------------------------------------------------------------------------- which is which


@record
class _Parts:
    """A read taken apart: the numbers of the indices that are `keys`, and of those to be inverted (`others`); the axes
    that are `sorted`, in the order in which the keys mention them, those that are `free`, and those of the `batch`, each
    with the axis of the target that it equals."""

    target: tuple[Axis, ...]
    keys: tuple[int, ...]
    others: tuple[int, ...]
    sorted: tuple[Axis, ...]
    free: tuple[Axis, ...]
    batch: tuple[tuple[Axis, Axis], ...]

    @classmethod
    def of(cls, c: Contribution, target: tuple[Axis, ...], every: bool) -> _Parts:
        own = {axis.index: axis for axis in c.axes}
        indices = c.access.indices
        mentioned = [[name for name in free_names(index) if name in own] for index in indices]
        hard = [at for at, index in enumerate(indices) if every or not _is_affine(index)]
        hard = hard or list(range(len(indices)))
        chosen = dict.fromkeys(name for at in hard for name in mentioned[at])
        while True:
            mixed = [names for names in mentioned if set(names) & chosen.keys() and not set(names) <= chosen.keys()]
            if not mixed:
                break
            chosen |= dict.fromkeys(name for names in mixed for name in names)
        batch = {} if every else {name: axis for name, axis in pinned_axes(c, target).items() if name in chosen}
        pinned = {axis.index for axis in batch.values()}
        left = [name for name in chosen if name not in batch]
        keys = [at for at, names in enumerate(mentioned) if target[at].index not in pinned and (at in hard or set(names) & set(left))]
        others = [at for at in range(len(indices)) if at not in keys and target[at].index not in pinned]
        order = dict.fromkeys(name for at in keys for name in mentioned[at] if name in left)
        return cls(
            target,
            tuple(keys),
            tuple(others),
            tuple(own[name] for name in (*order, *(name for name in left if name not in order))),
            tuple(axis for axis in c.axes if axis.index not in chosen),
            tuple((own[name], axis) for name, axis in batch.items()),
        )

    @property
    def known(self) -> set[str]:
        """The names of the axes whose values a plan knows."""
        return {axis.index for axis in self.sorted} | {axis.index for axis, _ in self.batch}

    @property
    def at_target(self) -> dict[str, Expr]:
        """The axes of the batch as indices of the element."""
        return {axis.index: Index(element.index) for axis, element in self.batch}


def _is_affine(index: Expr) -> bool:
    """Whether an index is affine, perhaps by cases."""
    opaque = Opaque()
    cases_of(index, opaque)
    return not opaque.names


@record
class _Group:
    """Keys that share sorted axes, directly or not: they have a plan of their own, for each point of the axes of the batch that
    they depend on, which leaves out what fails `conditions`."""

    keys: tuple[int, ...]
    sorted: tuple[Axis, ...]
    conditions: tuple[Expr, ...]
    batch: tuple[tuple[Axis, Axis], ...]


def _groups(parts: _Parts, boxes: dict[str, Box], here: tuple[Expr, ...], c: Contribution) -> list[_Group]:
    """The sorted axes, those together that a key, a condition or a box links."""
    names = {axis.index: axis.index for axis in parts.sorted}

    def link(exprs: Iterable[Expr]) -> str | None:
        """Joins the axes in some expressions; gives the name that stands for all of them."""
        linked = [name for e in exprs for name in free_names(e) if name in names]
        merged = {names[name] for name in linked}
        for name, group in names.items():
            if group in merged:
                names[name] = names[linked[0]]
        return names[linked[0]] if linked else None

    for axis in c.axes:
        if axis.index in boxes:
            link((Index(axis.index), axis.start, axis.stop))
    for expr in (*(c.access.indices[at] for at in parts.keys), *here):
        link((expr,))
    found = []
    for at, group in enumerate(dict.fromkeys(names.values()) or (None,)):
        keys = tuple(k for k in parts.keys if link((c.access.indices[k],)) in ((group, None) if at == 0 else (group,)))
        conditions = tuple(one for one in here if link((one,)) in ((group, None) if at == 0 else (group,)))
        axes = tuple(axis for axis in parts.sorted if names[axis.index] == group)
        involved = (*(c.access.indices[k] for k in keys), *conditions, *(boxes[axis.index].value for axis in axes))
        used = {name for e in involved for name in free_names(e)}
        found.append(_Group(keys, axes, conditions, tuple(pair for pair in parts.batch if pair[0].index in used)))
    return found


def _conditions(parts: _Parts, boxes: dict[str, Box], c: Contribution, workspace: Workspace) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The conditions on a point that the plan knows, and those on others besides (over the axes as they are)."""
    known = parts.known | {axis.index for axis in workspace.steps}
    limits = [condition for axis in c.axes if axis.index in boxes for condition in boxes[axis.index].conditions]
    here: list[Expr] = []
    rest: list[Expr] = []
    for condition in (*limits, *c.guards):
        (here if set(free_names(condition)) <= known else rest).append(condition)
    return tuple(here), tuple(rest)


# -------------------------------------------------------------------------------------------------------------- plans


def _plan(
    group: _Group, parts: _Parts, boxes: dict[str, Box], c: Contribution, certain: bool, names: dict[str, str], workspace: Workspace
) -> tuple[Segments | None, bool]:
    """The plan of a group, made unless the workspace knows it, and whether it leaves out the points at which the conditions fail.

    None where making it could fail. `certain` says whether each of its points is read; `names` are those to give to its axes.
    """
    batch = tuple(Axis(axis.index, const(0), axis.stop) for axis, _ in group.batch)
    axes = tuple(Axis(axis.index, const(0), boxes[axis.index].extent) for axis in group.sorted)
    around = (*workspace.steps, *batch, *axes)
    boxed = unboxed(boxes)
    indices = [c.access.indices[at] for at in group.keys]
    keys = tuple(substitute(index, boxed) for index in indices)
    extents = tuple(parts.target[at].stop for at in group.keys)
    moved = [substitute(one, boxed) for one in group.conditions]
    where = [one for one in moved if not implied(one, around)]
    plain = renamed(Segments(("", ""), extents, batch, axes, keys, location=c.access.location), {}, names)
    assert isinstance(plain, Segments)
    given = _like(plain, workspace.given_plans)
    if given is not None:
        return given, not where
    if not certain:
        # Perhaps the read never happens at some of the points: what is out of bounds there is nobody's error.
        for key, extent in zip(keys, extents, strict=True):
            inside = (apply("ge", key, const(0)), apply("lt", key, extent))
            where += [one for one in inside if not implied(one, around, tuple(where))]
    if not _is_safe([*group.conditions, *indices], [*moved, *keys], c, (*batch, *axes), workspace):
        return None, True
    back: dict[str, Expr] = {new: Index(old) for new, old in names.items()}
    plan = replace(plain, where=all_of([substitute(one, back) for one in where]))
    known = _like(plan, workspace.plans)
    if known is None:
        known = replace(plan, names=(workspace.new_name(c.access.tensor, "_offsets"), workspace.new_name(c.access.tensor, "_order")))
        workspace.add(known)
    return known, True


def _like(plan: Segments, known: Iterable[Segments]) -> Segments | None:
    """The first of some plans that sorts the same points by the same keys."""
    wanted = _canonical(plan)
    return next((other for other in known if _canonical(other) == wanted), None)


def _is_read_everywhere(parts: _Parts, boxes: dict[str, Box], c: Contribution, rest: tuple[Expr, ...]) -> bool:
    """Whether each point that the plan may hold is read, for some values of the free axes (which are not all empty)."""
    bounds = [bound for axis in parts.free for bound in (axis.start, axis.stop)]
    if not rest and not reads(bounds) and not any(map(free_names, bounds)):
        return True
    if any(box.value != Index(name) for name, box in boxes.items()):
        return False
    known = [Axis(a.index, const(0), boxes[a.index].extent) if a.index in boxes else a for a in c.axes if a.index in parts.known]
    region = domain_of(c.axes, rest)
    read = region.domain.project_out([axis.index for axis in parts.free]) if region.exact else None
    return read is not None and domain_of(known).domain.is_subset(read)


def _canonical(plan: Segments) -> Segments:
    """The plan under names that say nothing, equal for equal plans."""
    names = {axis.index: f"#{at}" for at, axis in enumerate(plan.loops)}
    found = renamed(plan, {}, names)
    assert isinstance(found, Segments)
    return replace(found, names=("", ""))


def _is_safe(before: Sequence[Expr], after: Sequence[Expr], c: Contribution, axes: tuple[Axis, ...], workspace: Workspace) -> bool:
    """Whether every read in some expressions, of which each is computed where those before it hold, is in bounds at the points of
    a plan if it was so where it stood."""
    steps = workspace.steps
    held: list[Expr] = []
    for old, new in zip(before, after, strict=True):
        there = read_occurrences(old, (*steps, *c.axes), tuple(g for g in c.guards if g != old))
        for (access, around, guards), (moved, inner, conditions) in zip(
            there, read_occurrences(new, (*steps, *axes), tuple(held)), strict=True
        ):
            shape = workspace.types[access.tensor].shape
            was, now = check_access(access.indices, shape, around, guards), check_access(moved.indices, shape, inner, conditions)
            if any(a is PROVED and b is not PROVED for a, b in zip(was, now, strict=True)):
                return False
        if new.dtype.is_bool:
            held.append(new)
    return True


# -------------------------------------------------------------------------------------------------------------- gathers


def _through(
    groups: Sequence[tuple[_Group, Segments]],
    parts: _Parts,
    boxes: dict[str, Box],
    c: Contribution,
    rest: tuple[Expr, ...],
    workspace: Workspace,
    invert: Invert,
) -> tuple[Gather, ...] | None:
    """The gathers at an element: over its segment of each plan, and over what is free for a fixed point of these."""
    taken = {*workspace.reserved, *(a.index for a in parts.target), *(a.index for a in c.axes)}
    runs: list[Axis] = []
    point: dict[str, Expr] = {}
    for group, plan in groups:
        (offsets, type_), (order, _) = plan.results
        k = fresh_name("k", taken)
        batch = tuple(Index(element.index) for _, element in group.batch)
        segment = position([Index(parts.target[at].index) for at in group.keys], plan.extents)
        run = Axis(k, Access(offsets, (*batch, segment), type_.dtype), Access(offsets, (*batch, shifted(segment, 1)), type_.dtype))
        digits = digits_of(Access(order, (*batch, Index(k)), type_.dtype), tuple(axis.stop for axis in plan.axes))
        point |= dict(zip((axis.index for axis in group.sorted), digits, strict=True))
        runs.append(run)
    values = {name: substitute(value, parts.at_target) for name, value in unboxed(boxes).items()}
    inner = _others(parts, c, rest, values, taken, invert)
    if inner is None:
        return None
    boxed = tuple(Axis(axis.index, const(0), boxes[axis.index].extent) for axis in parts.sorted)
    found = []
    for gather in inner:
        around = (*workspace.steps, *parts.target, *boxed, *gather.axes)
        meant = {name: substitute(value, point) for name, value in (gather.values | values).items()} | parts.at_target
        axes = tuple(Axis(a.index, substitute(a.start, point), substitute(a.stop, point)) for a in gather.axes)
        tests = [g for g in (*gather.outer, *gather.inner) if not implied(g, around)]
        outer = tuple(g for g in tests if g in gather.outer and not set(free_names(g)) & point.keys())
        inside = tuple(substitute(g, point) for g in tests if g not in outer)
        found.append(Gather(meant, (*runs, *axes), outer, inside, "segments"))
    return tuple(found)


def _others(
    parts: _Parts, c: Contribution, rest: tuple[Expr, ...], unboxed: dict[str, Expr], taken: set[str], invert: Invert
) -> tuple[Gather, ...] | None:
    """The other indices turned around for a fixed point of the sorted axes and the batch."""
    fixed = unboxed | parts.at_target
    own = {axis.index for axis in parts.free}
    return invert(
        [substitute(c.access.indices[at], fixed) for at in parts.others],
        [Axis(axis.index, substitute(axis.start, fixed), substitute(axis.stop, fixed)) for axis in parts.free],
        [substitute(g, fixed) for g in rest],
        [parts.target[at] for at in parts.others],
        tuple(sorted(taken - own)),
    )


def is_settled_by_data(gather: Gather) -> bool:
    """Whether data decides which elements have loops: a gather over the segments of a plan, or one that compares data with the
    element first. It visits each read once, but only the data tells where.
    """
    if gather.lowering != "segments":
        return False
    return reads(gather.outer) or (bool(gather.axes) and isinstance(gather.axes[0].start, Access))


def with_known_keys(contribution: Contribution) -> Contribution:
    """The contribution with the data-dependent indices by which it reads, where they stand in its value, as those of the element."""
    keys = {index: Index(f"{ELEMENT}{at}") for at, index in enumerate(contribution.access.indices) if not _is_affine(index)}
    if not keys:
        return contribution
    return replace(contribution, value=bottom_up(contribution.value, lambda node: keys.get(node, node)))


# ------------------------------------------------------------------------------------------------- positions and digits


def position(indices: Sequence[Expr], extents: Sequence[Expr]) -> Expr:
    """The row-major position of indices in a shape."""
    result: Expr | None = None
    for at, index in enumerate(indices):
        stride = product(tuple(extents[at + 1 :]))
        term = index if stride == const(1) else apply("mul", index, stride)
        result = term if result is None else apply("add", result, term)
    return const(0) if result is None else result


def digits_of(place: Expr, extents: Sequence[Expr]) -> list[Expr]:
    """The indices of a row-major position in a shape."""
    found = []
    for at, extent in enumerate(extents):
        stride = product(tuple(extents[at + 1 :]))
        digit = place if stride == const(1) else apply("floordiv", place, stride)
        found.append(digit if at == 0 else apply("mod", digit, extent))
    return found
