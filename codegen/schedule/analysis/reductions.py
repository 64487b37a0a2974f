"""What a definition computes, taken apart: its data axes, the groups of reductions in it, and its values over their results.

A `Group` is a set of reductions that share one loop nest: equal axes and guard, none needs another's result. Reductions
are lifted out of the expression around them, which then names their results by parameters (`%0.1.0`: group, member,
component), and out of the loops of enclosing reductions that they do not depend on, where they are in bounds without
them. Equal reductions are computed once. What stands on the path to a reduction (`where` conditions) is the group's
guard: the group is evaluated only where one of its uses is. A further use under another guard widens it, and with it what it needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile

from tensorexpr import dtypes
from tensorexpr.bounds import PROVED, check_access
from tensorexpr.codegen.schedule.analysis.narrowing import narrow, widened
from tensorexpr.dtypes import DType
from tensorexpr.ir import (
    FALSE,
    TRUE,
    Access,
    Apply,
    Axis,
    Combiner,
    Define,
    Expr,
    Index,
    Param,
    Reduce,
    Scatter,
    Segments,
    apply,
    conjunction,
    conjuncts,
    const,
)
from tensorexpr.records import field, record, replace
from tensorexpr.simplify.facts.sort_ranges import Ranges, known_of
from tensorexpr.traversal import (
    bottom_up,
    free_names,
    has_points,
    map_children,
    map_expressions,
    negate,
    read_occurrences,
    rename_bound,
    substitute,
    walk,
)

PARAMETER = "%"
"""First letter of the parameters that stand for results of reductions."""


@record
class Member:
    """One reduction of a group: its combiner and the values it combines; result `c` is the parameter `name.c`."""

    name: str
    combiner: Combiner
    values: tuple[Expr, ...]

    def parameter(self, component: int, dtype: DType) -> Param:
        return Param(f"{self.name}.{component}", dtype)


@record
class Group:
    """Reductions over the same points: `axes`, the conditions `where` that are not bounds of them, the members.

    `scope` is the group in whose loops it stands (None: the definition's own data axes), `guard` the conditions of its
    evaluation there, each to be evaluated where those before it hold, `depends` the indices it needs bound, those of the
    results that it reads included, `uses` the groups of these.
    """

    number: int
    axes: tuple[Axis, ...]
    where: tuple[Expr, ...]
    members: tuple[Member, ...]
    scope: int | None
    guard: tuple[Expr, ...]
    depends: tuple[str, ...]
    uses: tuple[int, ...]

    @property
    def indices(self) -> tuple[str, ...]:
        return tuple(a.index for a in self.axes)


@record(weakrefs=True)
class Parts:
    """A definition taken apart: data `axes`, `groups` in an order in which each uses earlier ones, the root expressions
    (of a Define its value; of a Scatter its indices and its value; of Segments its keys), the guard on them, and the
    accesses to check."""

    axes: tuple[Axis, ...]
    groups: tuple[Group, ...]
    values: tuple[Expr, ...]
    where: tuple[Expr, ...]
    unproved: frozenset[tuple[Access, int]]
    owners: dict[str, Group] = field(init=False, default_factory=dict, compare=False, repr=False)
    """The group of each axis that is reduced."""

    def __post_init__(self) -> None:
        for group in self.groups:
            for axis in group.axes:
                self.owners.setdefault(axis.index, group)

    def group(self, number: int) -> Group:
        """The group with this number."""
        return next(g for g in self.groups if g.number == number)

    def group_of(self, index: str) -> Group | None:
        """The group that has an axis of this name."""
        return self.owners.get(index)


def group_number(parameter: str) -> int:
    """The group of a parameter `%group.member.component`."""
    return int(parameter[1:].split(".")[0])


def groups_used(*exprs: Expr) -> tuple[int, ...]:
    """Numbers of the groups whose results stand in the expressions, in order."""
    return tuple(
        dict.fromkeys(group_number(n.name) for e in exprs for n in walk(e) if isinstance(n, Param) and n.name.startswith(PARAMETER))
    )


# ------------------------------------------------------------------------------------------------------- taking apart


@record
class _Frame:
    """A loop nest around an expression: the group it will be (None: the data axes), axes, its guards, the path inside it.

    `path` are the conditions between these loops and the expression at hand: as written, and over parameters.
    """

    number: int | None
    axes: tuple[Axis, ...]
    where: tuple[Expr, ...] = ()
    path: tuple[tuple[Expr, Expr], ...] = ()


@record
class _Taken:
    """A reduction that was taken apart: its result, the number its loops had on the way, as written and as found."""

    result: Param
    number: int
    written: Reduce
    found: tuple[tuple[Expr, ...], ...]


class _NotShared(Exception):
    """What a reduction needs is not there for a further use."""


def take_apart(
    definition: Define | Scatter | Segments,
    shapes: Mapping[str, tuple[Expr, ...]],
    outer: tuple[Axis, ...] = (),
    ranges: Ranges | None = None,
) -> Parts:
    """The parts of a definition. `shapes` gives the shape of every tensor that it reads; `outer` are loops around all of it,
    `ranges` what is known of elements that it reads.

    Loops need names of their own, so reductions side by side that use one name get different ones (`k`, `k_1`, ...).
    """
    axes = definition.loops if isinstance(definition, Segments) else definition.axes
    taken = {a.index for a in (*outer, *axes)}
    definition = map_expressions(definition, lambda e: rename_bound(bottom_up(e, _with_axis), taken))  # type: ignore[assignment]  # the same kind of definition comes back
    taker = _Taker(shapes, outer, ranges or {})
    data = _Frame(None, axes)
    if isinstance(definition, Define):
        return taker.parts(axes, (taker.visit(definition.value, (data,)),), ())
    conditions = tuple(conjuncts(definition.where))
    where, data = taker.conditions(conditions, (data,))
    if isinstance(definition, Segments):
        places, shape = definition.keys, definition.extents
        values = tuple(taker.visit(e, (data,)) for e in places)
        target = Access(definition.name, values, dtypes.int64)
    else:
        places, shape = definition.indices, definition.type.shape
        values = tuple(taker.visit(e, (data,)) for e in (*places, definition.value))
        target = Access(definition.name, values[:-1], definition.value.dtype)
    for axis in taker.unproved_axes(places, shape, (*outer, *axes), conditions):
        taker.unproved[target, axis] = None
    return taker.parts(axes, values, where)


def _with_axis(expr: Expr) -> Expr:
    """A reduction over no axes, which has one point, as one over an axis of one: every reduction then has a loop."""
    if isinstance(expr, Reduce) and not expr.axes:
        return replace(expr, axes=(Axis("one", const(0), const(1)),))
    return expr


def fitted(expr: Reduce, around: tuple[Axis, ...]) -> Reduce:
    """A reduction with the bounds that its loops have inside of others, and the conditions left: what stands in them sees these."""
    if expr.combiner.name in ("argmax", "argmin"):  # their result counts the points that the guard leaves out
        return expr
    axes, where = narrow(expr.axes, tuple(conjuncts(expr.where)), around)
    axes, spared = widened(axes, around)
    conditions = (*spared, *where)
    return replace(expr, axes=axes, where=conjunction(conditions) if conditions else None)


class _Taker:
    """Lifts reductions out of the expressions of one definition."""

    def __init__(self, shapes: Mapping[str, tuple[Expr, ...]], outer: tuple[Axis, ...], ranges: Ranges) -> None:
        self.shapes = shapes
        self.outer = outer
        self.ranges = ranges
        self.groups: list[Group] = []
        self.known: dict[tuple[int | None, Expr], _Taken] = {}
        self.unproved: dict[tuple[Access, int], None] = {}
        self.count = 0
        self.again = False

    def parts(self, axes: tuple[Axis, ...], values: tuple[Expr, ...], where: tuple[Expr, ...]) -> Parts:
        """All that was found."""
        return Parts(axes, tuple(_closed_over_uses(self.groups)), values, where, frozenset(self.unproved))

    def unproved_axes(
        self, indices: tuple[Expr, ...], shape: tuple[Expr, ...], axes: tuple[Axis, ...], guards: tuple[Expr, ...]
    ) -> tuple[int, ...]:
        """The axes on which an access may leave a tensor of this shape, for all that the loops and guards around it say."""
        if self.ranges:
            bounds = [bound for axis in axes for bound in (axis.start, axis.stop)]
            guards = (*guards, *known_of((*bounds, *indices), self.ranges))
        return tuple(axis for axis, verdict in enumerate(check_access(indices, shape, axes, guards)) if verdict is not PROVED)

    def visit(self, expr: Expr, frames: tuple[_Frame, ...]) -> Expr:
        """The expression with results of reductions as parameters; groups, accesses to check are noted on the way."""
        match expr:
            case Reduce():
                return self.reduce(expr, frames)
            case Access():
                found = map_children(expr, lambda e: self.visit(e, frames))
                axes, guards = self.context(frames)
                for axis in self.unproved_axes(expr.indices, self.shapes[expr.tensor], axes, guards):
                    self.unproved[found, axis] = None  # type: ignore[index]  # an access with other indices is an access
                return found
            case Apply() if expr.op.name == "where":
                condition, taken, otherwise = expr.args
                parts, inner = self.conditions(tuple(conjuncts(condition)), frames)
                new = conjunction(parts)
                opposite = replace(frames[-1], path=(*frames[-1].path, (negate(condition), negate(new))))
                return apply("where", new, self.visit(taken, (*frames[:-1], inner)), self.visit(otherwise, (*frames[:-1], opposite)))
        return map_children(expr, lambda e: self.visit(e, frames))

    def conditions(self, conditions: tuple[Expr, ...], frames: tuple[_Frame, ...]) -> tuple[tuple[Expr, ...], _Frame]:
        """Conditions over parameters, and the innermost frame with them on its path."""
        new = tuple(self.visit(c, frames) for c in conditions)
        inner = replace(frames[-1], path=(*frames[-1].path, *zip(conditions, new, strict=True)))
        return new, inner

    def context(self, frames: tuple[_Frame, ...]) -> tuple[tuple[Axis, ...], tuple[Expr, ...]]:
        """All loops and all conditions (as written) around an expression."""
        axes = (*self.outer, *(a for f in frames for a in f.axes))
        return axes, tuple(g for f in frames for g in (*f.where, *(orig for orig, _ in f.path)))

    def reduce(self, expr: Reduce, frames: tuple[_Frame, ...]) -> Expr:
        frames, stuck = self.lifted(expr, frames)
        scope, guard = frames[-1].number, self.guard_of(expr, frames)
        key = (scope, canonical(replace(expr, component=0)))
        known = self.known.get(key)
        if known is not None and self.shared(known, frames):
            return Param(f"{known.result.name.rsplit('.', 1)[0]}.{expr.component}", expr.dtype)
        if self.again:
            raise _NotShared
        number, start = self.count, len(self.groups)
        self.count += 1
        expr = fitted(expr, (*self.outer, *(a for f in frames for a in f.axes)))
        bounds, where, values = found = self.inside(expr, number, frames)
        pairs = zip(expr.axes, bounds[::2], bounds[1::2], strict=True)
        bounded = tuple(Axis(axis.index, first, stop) for axis, first, stop in pairs)
        used = tuple(n for n in groups_used(*(e for a in bounded for e in (a.start, a.stop)), *where, *values, *guard))
        depends = dict.fromkeys((*free_names(expr), *(n for g in guard for n in free_names(g)), *stuck))
        depends |= dict.fromkeys(self.needed_loops(expr, frames, set(depends)))
        member = Member(f"{PARAMETER}{number}.0", expr.combiner, values)
        group = Group(number, bounded, where, (member,), scope, guard, tuple(depends), used)
        member = self.join(group, start)
        result = member.parameter(expr.component, expr.dtype)
        self.known[key] = _Taken(result, number, expr, found)
        return result

    def inside(self, expr: Reduce, number: int, frames: tuple[_Frame, ...]) -> tuple[tuple[Expr, ...], ...]:
        """Bounds, conditions and values of a reduction over parameters, its loops being those of group `number`."""
        bounds: list[Expr] = []
        for at, axis in enumerate(expr.axes):
            inner = (*frames, _Frame(number, tuple(expr.axes[:at])))
            bounds += [self.visit(axis.start, inner), self.visit(axis.stop, inner)]
        where, frame = self.conditions(tuple(conjuncts(expr.where)), (*frames, _Frame(number, expr.axes)))
        return tuple(bounds), where, tuple(self.visit(v, (*frames, frame)) for v in expr.values)

    def lifted(self, expr: Reduce, frames: tuple[_Frame, ...]) -> tuple[tuple[_Frame, ...], tuple[str, ...]]:
        """The frames in which a reduction is evaluated: outside of loops that it does not depend on, as far as it is
        certainly in bounds there. Also the indices that hold it back although it does not depend on them."""
        free = set(free_names(expr))
        while len(frames) > 1:
            frame, outer = frames[-1], frames[-2]
            names = {a.index for a in frame.axes}
            if names & free:
                return frames, ()
            outside = self.carried_out(frames, names)
            kept = len(outside[-1].path) - len(outer.path)
            if not self.is_safe(expr, outside, frame, kept == len(frame.path)):
                return frames, tuple(names)
            frames = outside
        return frames, ()

    def carried_out(self, frames: tuple[_Frame, ...], names: set[str]) -> tuple[_Frame, ...]:
        """The frames around the innermost one, with those of its conditions that can be tested there: they mention none of its indices and
        results, and what they read is there although the loops, which may have no iteration, and conditions left behind do not say so."""
        frame, outer = frames[-1], frames[-2]
        whole = not frame.where and all(has_points(a) for a in frame.axes)
        for written, found in frame.path:
            outside = (*frames[:-2], outer)
            apart = not names & set(free_names(written)) and not _mentions_inner(found, frame.number, self.groups)
            if apart and (whole or self.is_in_bounds(written, *self.context(outside))):
                outer = replace(outer, path=(*outer.path, (written, found)))
            else:
                whole = False
        return (*frames[:-2], outer)

    def is_safe(self, expr: Reduce, outside: tuple[_Frame, ...], frame: _Frame, all_kept: bool) -> bool:
        """Whether every access in `expr` is in bounds although the loops of `frame`, or conditions in it, no longer guard it."""
        if all_kept and not frame.where and all(has_points(a) for a in frame.axes):
            return True
        return self.is_in_bounds(expr, *self.context(outside))

    def is_in_bounds(self, expr: Expr, axes: tuple[Axis, ...], guards: tuple[Expr, ...]) -> bool:
        """Whether every access in an expression is certain to be in bounds under these loops and guards."""
        return not any(
            self.unproved_axes(read.access.indices, self.shapes[read.access.tensor], read.axes, read.guards)
            for read in read_occurrences(expr, axes, guards)
        )

    def needed_loops(self, expr: Reduce, frames: tuple[_Frame, ...], depends: set[str]) -> tuple[str, ...]:
        """Axes that a reduction does not depend on, but without a point of which its accesses may leave their tensors: data axes with
        bounds by others, and those of the reductions around that may be empty or have a condition. Whether there is a point is known
        inside of their loops alone."""
        data, *around = frames
        inner = [a.index for a in data.axes if free_names(a.start) or free_names(a.stop)]
        inner += [a.index for f in around for a in f.axes if f.where or not has_points(a)]
        inner = [name for name in inner if name not in depends]
        axes, guards = self.context(frames)
        without = tuple(a for a in axes if a.index not in inner), tuple(g for g in guards if not set(free_names(g)) & set(inner))
        return tuple(inner) if inner and not self.is_in_bounds(expr, *without) else ()

    def guard_of(self, expr: Reduce, frames: tuple[_Frame, ...]) -> tuple[Expr, ...]:
        """The conditions under which a reduction is evaluated in the innermost frame, where those of the frames around are not tested yet:
        a tile of points may share the loops. Without these where all that it reads is in bounds in any case."""
        own = tuple(new for _, new in frames[-1].path)
        outer = tuple(new for f in frames[:-1] for _, new in f.path)
        if not outer:
            return own
        axes = self.context(frames)[0]
        return own if self.is_in_bounds(expr, axes, tuple(orig for orig, _ in frames[-1].path)) else (*outer, *own)

    def shared(self, known: _Taken, frames: tuple[_Frame, ...]) -> bool:
        """Whether a reduction that was taken apart serves this use, too. Under another guard it is gone through again, as it was
        written: what it needs outside of its loops has to be there as well, and its accesses may leave their tensors now."""
        group, guard = self.numbered(known.result), self.guard_of(known.written, frames)
        covered = set(group.guard) <= set(guard)
        if covered and not self.again:
            return True
        if len(group.members) > 1:
            return False  # its other members would be computed there as well, and its axes may have other names
        groups, unproved, again = list(self.groups), dict(self.unproved), self.again
        self.again = True
        try:
            fits = self.inside(known.written, known.number, frames) == known.found and (covered or self.widen(group.number, guard))
        except _NotShared:
            fits = False
        self.again = again
        if not fits:
            self.groups, self.unproved = groups, unproved
        return fits

    def numbered(self, result: Param) -> Group:
        """The group of a result."""
        return next(g for g in self.groups if g.number == group_number(result.name))

    def widen(self, number: int, guard: tuple[Expr, ...]) -> bool:
        """Lets a group be evaluated under another guard as well; False where that would read what is computed after it.

        A condition on the group's own result was read where those before it hold, so these are the guard: they are the wider one."""
        at = next(i for i, g in enumerate(self.groups) if g.number == number)
        group = self.groups[at]
        guard = tuple(takewhile(lambda condition: number not in groups_used(condition), guard))
        if set(group.guard) <= set(guard):
            return True
        either = guard if set(guard) <= set(group.guard) else (apply("or", closed(group.guard), closed(guard)),)
        depends = dict.fromkeys((*group.depends, *(n for g in either for n in free_names(g))))
        uses = dict.fromkeys((*group.uses, *groups_used(*either)))
        order = {g.number: i for i, g in enumerate(self.groups)}
        if any(order[n] > at for n in uses):
            return False
        self.groups[at] = replace(group, guard=either, depends=tuple(depends), uses=tuple(uses))
        return True

    def join(self, group: Group, start: int) -> Member:
        """Adds a group, as a further member of one with the same loops where there is one that it does not need."""
        (member,) = group.members
        for at, other in enumerate(self.groups[:start]):
            if other.scope != group.scope or other.guard != group.guard or len(other.axes) != len(group.axes):
                continue
            if set(other.depends) != set(group.depends):
                continue  # together they would run in all loops that either depends on
            names = {a.index: Index(b.index) for a, b in zip(group.axes, other.axes, strict=True)}
            same_axes = all(
                (substitute(a.start, names), substitute(a.stop, names)) == (b.start, b.stop)
                for a, b in zip(group.axes, other.axes, strict=True)
            )
            if not same_axes or tuple(substitute(c, names) for c in group.where) != other.where:
                continue
            earlier = {g.number for g in self.groups[:at]}
            inner = {g.number for g in self.groups[start:]}
            if not all(n in earlier or n in inner for n in group.uses) or not self._stays(inner, earlier, group.number):
                continue
            joined = replace(
                member, name=f"{PARAMETER}{other.number}.{len(other.members)}", values=tuple(substitute(v, names) for v in member.values)
            )
            for position in range(start, len(self.groups)):
                self.groups[position] = _moved(self.groups[position], group.number, other.number, names)
            self.unproved |= {(substitute(access, names), axis): None for access, axis in self.unproved}  # type: ignore[misc]  # an access with other names is an access
            uses = tuple(dict.fromkeys((*other.uses, *group.uses)))
            children = self.groups[start:]
            del self.groups[start:]
            self.groups[at : at + 1] = [*children, replace(other, members=(*other.members, joined), uses=uses)]
            return joined
        self.groups.append(group)
        return member

    def _stays(self, inner: set[int], earlier: set[int], number: int) -> bool:
        """Whether the groups made on the way into group `number` all stand in its loops and need only earlier ones."""
        chosen = [g for g in self.groups if g.number in inner]
        return all((g.scope == number or g.scope in inner) and all(n in earlier or n in inner for n in g.uses) for g in chosen)


def _closed_over_uses(groups: list[Group]) -> list[Group]:
    """Groups that depend on what the results depend on that they read: under the guard of such a result there may be more indices than
    the reader itself has, which reads the element of these that is meant."""
    found: dict[int, Group] = {}
    for group in groups:
        used = (n for number in group.uses if number in found for n in found[number].depends)
        depends = dict.fromkeys((*group.depends, *(n for n in used if n not in group.indices)))
        found[group.number] = group if len(depends) == len(group.depends) else replace(group, depends=tuple(depends))
    return list(found.values())


def _mentions_inner(condition: Expr, number: int | None, groups: list[Group]) -> bool:
    """Whether a condition reads the result of a group that stands in the loops of group `number`."""
    scopes = {g.number: g.scope for g in groups}
    return any(scopes.get(used) == number for used in groups_used(condition))


def _moved(group: Group, old: int, new: int, names: Mapping[str, Expr]) -> Group:
    """A group whose enclosing group `old` became part of group `new`, with the names of its axes."""
    axes = tuple(Axis(a.index, substitute(a.start, names), substitute(a.stop, names)) for a in group.axes)
    members = tuple(replace(m, values=tuple(substitute(v, names) for v in m.values)) for m in group.members)
    renamed = {k: v.name for k, v in names.items() if isinstance(v, Index)}
    return replace(
        group,
        axes=axes,
        where=tuple(substitute(c, names) for c in group.where),
        members=members,
        scope=new if group.scope == old else group.scope,
        guard=tuple(substitute(c, names) for c in group.guard),
        depends=tuple(renamed.get(n, n) for n in group.depends),
    )


def closed(conditions: tuple[Expr, ...]) -> Expr:
    """All of the conditions as one; a condition that reads data is evaluated only where those before it hold."""
    result: Expr | None = None
    for condition in reversed(conditions):
        if result is None:
            result = condition
        elif any(isinstance(n, Access | Param) for n in walk(result)):
            result = apply("where", condition, result, FALSE)
        else:
            result = apply("and", condition, result)
    return TRUE if result is None else result


def canonical(expr: Expr) -> Expr:
    """The expression with the indices bound in it renamed by depth: equal for expressions that differ only in those names."""
    return _canonical(expr, {}, 0)


def _canonical(node: Expr, names: Mapping[str, Expr], depth: int) -> Expr:
    if isinstance(node, Index):
        return names.get(node.name, node)
    if not isinstance(node, Reduce):
        return map_children(node, lambda child: _canonical(child, names, depth))
    inner, axes = dict(names), []
    for axis in node.axes:
        start, stop = _canonical(axis.start, inner, depth), _canonical(axis.stop, inner, depth)
        inner[axis.index] = Index(f"#{depth}")
        axes.append(Axis(f"#{depth}", start, stop))
        depth += 1
    where = None if node.where is None else _canonical(node.where, inner, depth)
    return replace(node, axes=tuple(axes), where=where, values=tuple(_canonical(v, inner, depth) for v in node.values))
