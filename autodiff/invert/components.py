"""A read taken apart: groups of its loops and of the axes of its tensor that have nothing to do with each other.

`x[n, c, 2*i + r, 2*j + s]` is four independent questions: which n, which c, which (i, r), which (j, s). Indices, bounds of
loops and guards connect the names that they mention. Each component is turned around alone, so that borders of rows and of
columns are pieces of one axis each instead of their products, and what many reads have in common is solved once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from math import prod

from tensorexpr.autodiff.invert.inversion import Gather, invert
from tensorexpr.autodiff.invert.pieces import Piece, narrowed, split
from tensorexpr.integers import Domain, DomainTooComplex, at_most
from tensorexpr.ir import Axis, Const, Expr, Index, apply, const
from tensorexpr.records import field, record, replace
from tensorexpr.regions import affine_of, constraints_of, expression_of
from tensorexpr.simplify import simplify_expr
from tensorexpr.traversal import free_names, fresh_name, size_names, substitute, tensors_read, walk

TIERS = ("substitute", "reshape", "lattice", "residues", "pieces")
"""How reads are turned around, from the simplest; a read is named after the hardest of its components."""
MOST_TERMS = 128
"""A read that would become more gathers than these is sorted."""
MOST_STEPS = 30_000
"""Steps of the solver for one component, about a fifth of a second and nine times what any kernel of the library needs; a
read that would take more is sorted. Steps are counted, not timed (`integers.effort`): the same read always gives the same code."""


MOST_STEPS_BY_VALUES = 80_000
"""Steps for one component that is taken value by value of a loop, which is several smaller questions."""
MOST_VALUES = 8
"""Iterations of a loop that may become a piece each, where a read would be sorted else."""
MOST_TRIES = 2
"""Loops of which this is tried."""
MOST_CASES = 32
"""Pieces that a read may have then."""


@record(slots=False)
class Component:
    """Reads at `indices` (of the axes `target` of the tensor) for all points of `axes` where `guards` hold."""

    indices: tuple[Expr, ...]
    axes: tuple[Axis, ...]
    guards: tuple[Expr, ...]
    target: tuple[Axis, ...]


def components(
    indices: Sequence[Expr], axes: Sequence[Axis], guards: Sequence[Expr], target: Sequence[Axis]
) -> tuple[tuple[Component, ...], tuple[Expr, ...]]:
    """The components of a read, those of the tensor's axes first, and the guards that depend on data alone.

    Every axis of the loops and of the tensor is in one component.
    """
    own = {axis.index: at for at, axis in enumerate(axes)}
    group = list(range(len(axes) + len(target)))

    def find(at: int) -> int:
        while group[at] != at:
            at = group[at]
        return at

    def connect(members: Sequence[int]) -> None:
        for other in members[1:]:
            group[find(other)] = find(members[0])

    def mentioned(*exprs: Expr) -> list[int]:
        return [own[name] for name in dict.fromkeys(name for e in exprs for name in free_names(e)) if name in own]

    for at, axis in enumerate(axes):
        connect([at, *mentioned(axis.start, axis.stop)])
    for at, index in enumerate(indices):
        connect([len(axes) + at, *mentioned(index)])
    bound: list[tuple[Expr, list[int]]] = []
    loose: list[Expr] = []
    for guard in guards:
        members = mentioned(guard)
        if tensors_read(guard) and not constraints_of(guard)[0]:
            loose.append(guard)
        else:
            connect(members)
            bound.append((guard, members))
    order = dict.fromkeys(find(at) for at in (*range(len(axes), len(group)), *range(len(axes))))
    found = []
    for root in order:
        inside = [at for at in range(len(group)) if find(at) == root]
        reads = tuple(indices[at - len(axes)] for at in inside if at >= len(axes))
        loops = tuple(axes[at] for at in inside if at < len(axes))
        elements = tuple(target[at - len(axes)] for at in inside if at >= len(axes))
        found.append(Component(reads, loops, tuple(g for g, members in bound if members and find(members[0]) == root), elements))
    return _with_constant([guard for guard, members in bound if not members], found), tuple(loose)


def _with_constant(guards: Sequence[Expr], found: list[Component]) -> tuple[Component, ...]:
    """The components with conditions on sizes alone: each where its sizes occur, a component of their own for the rest."""
    rest: list[Expr] = []
    for guard in guards:
        sizes = set(size_names(guard))
        for at, part in enumerate(found):
            exprs = (*part.indices, *(e for axis in (*part.axes, *part.target) for e in (axis.start, axis.stop)))
            if any(not sizes.isdisjoint(size_names(e)) for e in exprs):
                found[at] = replace(part, guards=(*part.guards, guard))
                break
        else:
            rest.append(guard)
    return (*([Component((), (), tuple(rest), ())] if rest else []), *found)


@record(eq=False, slots=False)
class Inverse:
    """A read with `axes` of elements `target` turned around: for each of its `parts` the disjoint pieces (`layers`), and the
    conditions on data to be tested inside (`loose`).

    Its points are one piece of every layer, in every combination; none where a layer is empty.
    """

    axes: tuple[Axis, ...]
    target: tuple[Axis, ...]
    parts: tuple[Component, ...]
    layers: tuple[tuple[Gather, ...], ...]
    loose: tuple[Expr, ...]
    _joined: dict[tuple[Gather, ...], Gather] = field(default_factory=dict)

    @property
    def lowering(self) -> str:
        """How the read is turned around: the name of the hardest part."""
        if not all(self.layers):
            return "substitute"
        return max((gather.lowering for layer in self.layers for gather in layer), key=TIERS.index, default="substitute")

    @property
    def gathers(self) -> tuple[Gather, ...]:
        """All combinations of pieces; together they visit each point once."""
        return tuple(self.joined(chosen) for chosen in product(*self.layers))

    def joined(self, chosen: tuple[Gather, ...]) -> Gather:
        """One gather for one of each part: all of their loops, in the order of `axes` as far as their bounds allow."""
        found = self._joined.get(chosen)
        if found is None:
            found = self._joined[chosen] = self._join(chosen)
        return found

    def _join(self, chosen: tuple[Gather, ...]) -> Gather:
        position = {axis.index: at for at, axis in enumerate(self.axes)}
        taken = {axis.index for axis in self.target}
        values: dict[str, Expr] = {}
        outer: dict[Expr, None] = {}
        inner: list[Expr] = []
        loops: list[tuple[bool, int, Axis]] = []
        for piece in chosen:
            gather = kept_apart(piece, taken)
            values |= gather.values
            outer.update(dict.fromkeys(gather.outer))
            inner += gather.inner
            mentions = {name: set(free_names(value)) for name, value in gather.values.items()}
            last = -1
            for loop in gather.axes:
                taken.add(loop.index)
                last = max(last, min((position[name] for name, names in mentions.items() if loop.index in names), default=len(self.axes)))
                loops.append((not _is_partial(piece), last, loop))
        loops.sort(key=lambda item: item[:2])
        inner += [substitute(guard, values) for guard in self.loose]
        return Gather(values, tuple(loop for *_, loop in loops), tuple(outer), tuple(inner), self.lowering)


@lru_cache(maxsize=1 << 12)
def _is_partial(gather: Gather) -> bool:
    """Whether a piece, such as one at a border, has loops that are empty at some elements: loops around them would go round in vain."""
    points = gather.points
    if points is None or gather.lowering != "pieces" or not gather.axes:
        return False
    whole = Domain(points.free, [*points.known, *points.constraints], points.sizes)
    try:
        with at_most(MOST_STEPS):
            return bool(whole.hull_without(points.free).gist(Domain((), points.known, points.sizes)).constraints)
    except DomainTooComplex:
        return False


@lru_cache(maxsize=1 << 12)
def invert_read(
    indices: tuple[Expr, ...], axes: tuple[Axis, ...], guards: tuple[Expr, ...], target: tuple[Axis, ...], reserved: tuple[str, ...] = ()
) -> Inverse | None:
    """The inverse of the read at `indices` of the elements `target` for all points of `axes` where `guards` hold.

    None where it has none in closed form or too many pieces; no new index has a name in `reserved`.
    """
    conditions = narrowed(axes, guards)
    if conditions is None:
        return Inverse(axes, target, (Component(indices, axes, guards, target),), ((),), ())
    parts, loose = components(indices, axes, conditions, target)
    names = [axis.index for axis in (*axes, *target)]
    layers = []
    for part in parts:
        own = {axis.index for axis in (*part.axes, *part.target)}
        pieces = _pieces(part, (*reserved, *(name for name in names if name not in own)))
        if pieces is None:
            return None
        layers.append(pieces)
    return Inverse(axes, target, parts, tuple(layers), loose) if prod(map(len, layers)) <= MOST_TERMS else None


@lru_cache(maxsize=1 << 12)
def _pieces(part: Component, reserved: tuple[str, ...]) -> tuple[Gather, ...] | None:
    """The gathers of one component, None where it cannot be turned around; what sizes wind around is taken apart where it has to be, and
    what takes the solver too long value by value of a short loop."""
    try:
        with at_most(MOST_STEPS):
            found = _inverted(part, split(part.indices, part.axes, part.guards), reserved)
            if found is None:
                found = _inverted(part, split(part.indices, part.axes, part.guards, part.target), reserved)
            return found
    except DomainTooComplex:
        return _by_values(part, reserved)


def _by_values(part: Component, reserved: tuple[str, ...]) -> tuple[Gather, ...] | None:
    """The gathers for each value of one loop: at a number, quotients and remainders of it are numbers.

    The loops of a few iterations are tried, those that occur most often first; one that is an index by itself is known anyway.
    """
    uses = [n.name for e in (*part.indices, *part.guards) for n in walk(e) if isinstance(n, Index)]
    short = [a for a in part.axes if a.index in uses and Index(a.index) not in map(_without_shift, part.indices)]
    short = [a for a in short if isinstance(a.start, Const) and isinstance(a.stop, Const)]
    short = [a for a in short if int(a.stop.value) - int(a.start.value) <= MOST_VALUES]  # type: ignore[attr-defined]  # the line before kept literals
    for axis in sorted(short, key=lambda a: -uses.count(a.index))[:MOST_TRIES]:
        try:
            with at_most(MOST_STEPS_BY_VALUES):
                found = _at_values(part, axis, reserved)
                if found is not None and len(found) <= MOST_CASES:
                    return found
        except DomainTooComplex:
            continue
    return None


def _without_shift(index: Expr) -> Expr:
    form = affine_of(index)
    return index if form is None else expression_of(form - form.constant, form.names())


def _at_values(part: Component, axis: Axis, reserved: tuple[str, ...]) -> tuple[Gather, ...] | None:
    found: list[Gather] = []
    assert isinstance(axis.start, Const) and isinstance(axis.stop, Const)
    for value in range(int(axis.start.value), int(axis.stop.value)):
        at: dict[str, Expr] = {axis.index: const(value)}
        axes = tuple(a if a is axis else Axis(a.index, substitute(a.start, at), substitute(a.stop, at)) for a in part.axes)
        indices, known = (tuple(simplify_expr(substitute(e, at), axes) for e in exprs) for exprs in (part.indices, part.guards))
        guards = (apply("eq", Index(axis.index), const(value)), *known)
        gathers = _inverted(Component(indices, axes, guards, part.target), split(indices, axes, guards), reserved)
        if gathers is None:
            return None
        found += [replace(g, lowering="pieces") for g in gathers]
    return tuple(found)


def _inverted(part: Component, pieces: Sequence[Piece] | None, reserved: tuple[str, ...]) -> tuple[Gather, ...] | None:
    if pieces is None:
        return None
    found: list[Gather] = []
    for indices, guards in pieces:
        gathers = invert(indices, part.axes, guards, part.target, None if len(pieces) == 1 else "pieces", reserved)
        if gathers is None:
            return None
        found += gathers
    return tuple(found)


def kept_apart(gather: Gather, taken: set[str]) -> Gather:
    """The gather with no loop called as one in `taken`."""
    if taken.isdisjoint(axis.index for axis in gather.axes):
        return gather
    used = taken | {axis.index for axis in gather.axes}
    new = {axis.index: Index(fresh_name(axis.index, used)) for axis in gather.axes if axis.index in taken}
    loops = tuple(
        Axis(new[axis.index].name if axis.index in new else axis.index, substitute(axis.start, new), substitute(axis.stop, new))
        for axis in gather.axes
    )
    values = {name: substitute(value, new) for name, value in gather.values.items()}
    return Gather(values, loops, gather.outer, tuple(substitute(guard, new) for guard in gather.inner), gather.lowering)
