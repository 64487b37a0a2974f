"""One question: may two accesses touch one element, where their iterations stand to each other in a given order?

The loops around both, and those that a rewrite is about to run as one, are tied: the iteration of the first access is that of the second
(`=`), before it (`<`), behind it (`>`), another one (`!=`), or any (`*`). The indices of the second access get names of their own, where
they are not equal; so does what it reads of buffers that are written in between. Tests in order, the first that settles it:

    private    the buffer is made anew in each iteration of a loop that is not `=`
    ranges     in one dimension the difference of the indices is never 0: its interval leaves 0 out, or the common divisor of its
               coefficients divides it not. `i' = i + distance`, so a coefficient beyond the reach of all others settles it here.
    sets       the integer set of all pairs is empty, or has a point (`facts.questions`)

Data in an index is a name of its own: equal for equal arguments while nothing writes it.

Banerjee, Loop Transformations for Restructuring Compilers (1993); Pugh, The Omega test (1991).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from tensorexpr.codegen.facts.places import Loop, Touch
from tensorexpr.codegen.facts.scope import Fact, Interval, Scope, mentioned_in
from tensorexpr.integers import Affine
from tensorexpr.ir import Access, Apply, Const, Expr, Index, apply, const, product
from tensorexpr.records import record, replace
from tensorexpr.regions import Opaque, affine_of, split_modulos
from tensorexpr.traversal import bottom_up

SAME, BEFORE, AFTER, APART, ANY = "=", "<", ">", "!=", "*"
_COMPARED = {SAME: "eq", BEFORE: "lt", AFTER: "gt", APART: "ne"}
_THERE, _DISTANCE = "'", " distance"


@record
class Tie:
    """How an iteration of a loop around the first access stands to one, `shift` later, of a loop around the second, which may be the same
    loop."""

    first: Loop
    order: str
    second: Loop
    shift: int = 0

    @property
    def is_same(self) -> bool:
        """Whether both accesses are in one iteration of one loop."""
        return self.first is self.second and self.order == SAME and not self.shift


@record(eq=False)
class Pair:
    """Two accesses of one buffer, how their iterations are tied, and the buffers that may hold something else at the second one."""

    first: Touch
    second: Touch
    ties: tuple[Tie, ...]
    changed: frozenset[str]

    @property
    def renamed(self) -> dict[str, str]:
        """The indices of loops around the second access that are not those around the first, with their names."""
        same = {tie.second.statement.index for tie in self.ties if tie.is_same}
        return {loop.statement.index: loop.statement.index + _THERE for loop in self.second.loops if loop.statement.index not in same}

    def is_private(self) -> bool:
        """Whether the buffer is another one in the other iteration."""
        outside = self.first.loops[: self.first.home.depth]
        return any(tie.first is tie.second and tie.order in (BEFORE, AFTER, APART) and tie.first in outside for tie in self.ties)

    def places(self) -> tuple[tuple[Expr, ...], tuple[Expr, ...]] | None:
        """The indices of both, as many; None where one is a row-major position in an open shape."""
        left: tuple[Expr, ...] | None = self.first.indices
        right: tuple[Expr, ...] | None = self.second.indices
        if len(self.first.indices) != len(self.second.indices):
            left, right = (flat(touch.indices, touch.home.buffer.shape) for touch in (self.first, self.second))
        return None if left is None or right is None else self._joined(left, right)

    def _joined(self, left: tuple[Expr, ...], right: tuple[Expr, ...]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        """The indices, with quotient and remainder by one open divisor as what they are of: equal where both are."""
        for low, rest in enumerate(zip(left, right, strict=True)):
            one, other = map(_remainder, rest)
            if one is None or other is None or one[1] != other[1] or not self._is_divisor(one[1]):
                continue
            for high, whole in enumerate(zip(left, right, strict=True)):
                if whole == tuple(apply("floordiv", *parts) for parts in (one, other)):
                    keep = [at for at in range(len(left)) if at not in (low, high)]
                    return self._joined((one[0], *(left[at] for at in keep)), (other[0], *(right[at] for at in keep)))
        return left, right

    def _is_divisor(self, divisor: Expr) -> bool:
        """Whether an integer is positive and the same for both."""
        names, reads = mentioned_in(divisor)
        return names.isdisjoint(self.renamed) and not reads and self.first.scope.interval(divisor)[0] > 0

    def are_apart_by_ranges(self, sizes: Collection[str]) -> bool:
        """Whether the indices differ in some dimension, as the ranges of all names say."""
        places = self.places()
        return places is not None and _Difference(self, sizes).is_never_zero(*places)

    def meeting(self) -> tuple[tuple[Expr, ...], Scope] | None:
        """The conditions under which both touch one element, and what is known where both run; None as `places`."""
        places = self.places()
        if places is None:
            return None
        names, changed = self.renamed, self.changed
        conditions = [apply(_COMPARED[tie.order], *self._indices(tie)) for tie in self.ties if tie.order in _COMPARED and not tie.is_same]
        conditions += [apply("eq", a, renamed(b, names, changed)) for a, b in zip(*places, strict=True)]
        one, other = self.first.scope, self.second.scope
        facts = tuple(dict.fromkeys((*one.facts, *(renamed_fact(fact, names, changed) for fact in other.facts))))
        known = dict(one.known)
        for key, found in other.known.items():
            there = names.get(key, key) if isinstance(key, str) else renamed(key, names, changed)
            before = known.get(there, found)
            known[there] = max(found[0], before[0]), min(found[1], before[1])
        return tuple(conditions), Scope(facts, known, one.held, one.forgotten | other.forgotten)

    def _indices(self, tie: Tie) -> tuple[Expr, Expr]:
        own = tie.second.statement.index
        there = Index(self.renamed.get(own, own))
        return Index(tie.first.statement.index), apply("add", there, const(tie.shift)) if tie.shift else there


class _Difference:
    """Indices of the second access less those of the first, over indices, distances and sizes."""

    def __init__(self, pair: Pair, sizes: Collection[str]) -> None:
        self.pair, self.sizes = pair, sizes
        self.opaque = Opaque()
        self.box: dict[str, tuple[int | None, int | None]] = {}
        self.there: dict[str, Affine] = {old: Affine.of(new) for old, new in pair.renamed.items()}
        for tie in pair.ties:
            if tie.first is tie.second and tie.order in (BEFORE, AFTER) and not tie.shift:
                self._distance(tie)

    def _distance(self, tie: Tie) -> None:
        name = tie.first.statement.index
        (low, high), (least, most) = self.pair.first.scope.range_of(name), self.pair.second.scope.range_of(name)
        reach = most - low if tie.order == BEFORE else high - least
        self.box[name + _DISTANCE] = 1, None if math.isinf(reach) or math.isnan(reach) else max(int(reach), 1)
        distance = Affine.of(name + _DISTANCE)
        self.there[name] = Affine.of(name) + (distance if tie.order == BEFORE else -distance)

    def is_never_zero(self, left: tuple[Expr, ...], right: tuple[Expr, ...]) -> bool:
        """Whether one dimension tells the two apart."""
        return any(self._differs(a, b) for a, b in zip(left, right, strict=True))

    def _differs(self, left: Expr, right: Expr) -> bool:
        one, other = affine_of(left, self.opaque), affine_of(right, self.opaque)
        assert one is not None and other is not None
        difference = self._moved(other) - one
        if difference.is_constant:
            return difference.constant != 0
        if all(isinstance(atom, str) for atom in difference.atoms()) and difference.constant % math.gcd(*(f for _, f in difference.terms)):
            return True
        modulos: list[tuple[Affine, int, int]] = []
        if difference.has_division():
            difference, modulos = split_modulos(difference)
        for name in difference.names():
            self._range_of(name)
        low, high = difference.interval(self.box)
        below = sum(min(0, count * (divisor - 1)) for _, divisor, count in modulos)
        above = sum(max(0, count * (divisor - 1)) for _, divisor, count in modulos)
        return (low is not None and low + below > 0) or (high is not None and high + above < 0)

    def _moved(self, form: Affine) -> Affine:
        """A form of the second access in the names of both."""
        hidden = self.opaque.expressions
        values: dict[str, Affine] = {}
        for name in form.names():
            if name in self.there:
                values[name] = self.there[name]
            elif name in hidden:
                names, reads = mentioned_in(hidden[name])
                if not names.isdisjoint(self.pair.renamed) or not reads.isdisjoint(self.pair.changed):
                    values[name] = Affine.of(name + _THERE)
        return form.substitute(values) if values else form

    def _range_of(self, name: str) -> None:
        if name in self.box:
            return
        scope = self.pair.second.scope if name.endswith(_THERE) else self.pair.first.scope
        own, hidden = name.removesuffix(_THERE), self.opaque.expressions
        found: Interval
        if own in hidden:
            found = scope.interval(hidden[own])
        elif own in self.sizes:
            found = 0, math.inf
        else:
            found = scope.range_of(own)
        self.box[name] = None if math.isinf(found[0]) else int(found[0]), None if math.isinf(found[1]) else int(found[1])


def common(first: Touch, second: Touch) -> int:
    """How many loops are around both."""
    count = 0
    for a, b in zip(first.loops, second.loops):
        if a is not b:
            break
        count += 1
    return count


def _remainder(index: Expr) -> tuple[Expr, Expr] | None:
    """What an index is the remainder of, and the open divisor."""
    if isinstance(index, Apply) and index.op.name == "mod" and not isinstance(index.args[1], Const):
        return index.args[0], index.args[1]
    return None


def flat(indices: tuple[Expr, ...], shape: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
    """Indices as one position; None where the shape is open."""
    if len(indices) == 1:
        return indices
    if not all(isinstance(extent, Const) for extent in shape):
        return None
    found: Expr = const(0)
    for at, index in enumerate(indices):
        term = apply("mul", index, product(shape[at + 1 :]))
        found = apply("add", found, term) if at else term
    return (found,)


def renamed(expr: Expr, names: Mapping[str, str], written: frozenset[str]) -> Expr:
    """An expression in another iteration: its indices by their names there, and what it reads of what is written in between."""

    def visit(node: Expr) -> Expr:
        if isinstance(node, Index) and node.name in names:
            return Index(names[node.name])
        if isinstance(node, Access) and node.tensor in written:
            return replace(node, tensor=node.tensor + _THERE)
        return node

    return bottom_up(expr, visit)


def renamed_fact(fact: Fact, names: Mapping[str, str], written: frozenset[str]) -> Fact:
    """What is known in another iteration; the fact itself where it is the same there."""
    if fact.names.isdisjoint(names) and fact.reads.isdisjoint(written):
        return fact
    if fact.axis is not None:
        axis = fact.axis
        return Fact.of_loop(names.get(axis.index, axis.index), renamed(axis.start, names, written), renamed(axis.stop, names, written))
    assert fact.condition is not None
    return Fact.of_condition(renamed(fact.condition, names, written))
