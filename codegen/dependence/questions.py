"""The answer to a pair: never, at a point, or perhaps; remembered by its system of conditions up to names.

A system is what decides a pair that ranges leave open: the conditions under which both touch one element, the loops and conditions around
both, ranges of names and of data, in names that are given in the order in which they occur. Equal systems of any nests are one question,
and its answer depends on nothing else: the steps of the solver are counted from zero for each.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache, reduce

from tensorexpr.bounds.enumeration import NotEnumerable, enumerate_points
from tensorexpr.codegen.dependence.pairs import Pair
from tensorexpr.codegen.facts.questions import FEW_POINTS, STEPS, Answer, Point, Questions
from tensorexpr.codegen.facts.scope import Interval, Scope
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.ir import Access, Axis, Expr, Index, Size, apply, const
from tensorexpr.records import record, replace
from tensorexpr.traversal import bottom_up, tensors_read, walk

SMALL = (1, 2, 3, 5, 8)
"""Values of open sizes at which a point is looked for among all iterations."""

MOST_EQUAL = 4
"""Pairs of elements of data that are said to be equal for equal arguments: each of them is a case more."""


@record
class Meeting:
    """Whether two accesses touch one element under their ties: never (`may` is False), perhaps, or for certain: at a point. `how` is the
    test that settled it."""

    may: bool
    is_certain: bool
    at: Point
    how: str


_PRIVATE, _RANGES = Meeting(False, False, (), "private"), Meeting(False, False, (), "ranges")
_UNKNOWN = Meeting(True, False, (), "undecided")


@record
class System:
    """Conditions and what is known, in names of their own. `facts` are loops and conditions (and whether these are `sure`), the outermost
    first; `whole`: they are all that decides whether both run."""

    conditions: tuple[Expr, ...]
    facts: tuple[tuple[Axis | None, Expr | None, bool], ...]
    ranges: tuple[tuple[str, Interval], ...]
    held: tuple[tuple[str, Interval], ...]
    claims: tuple[tuple[str, tuple[int, Expr]], ...]
    sizes: tuple[str, ...]
    whole: bool


def decide(pair: Pair, nest: LoopNest) -> Meeting:
    """The answer to a pair of a nest."""
    if pair.is_private():
        return _PRIVATE
    if pair.are_apart_by_ranges(nest.sizes):
        return _RANGES
    meeting = pair.meeting()
    if meeting is None:
        return _UNKNOWN
    names = _Names(nest)
    answer = _answer(names.system(*meeting))
    at = tuple((names.old[name], value) for name, value in answer.at if name in names.old)  # others stand for what is not affine
    return Meeting(answer.holds is not True, answer.holds is False, at, answer.how)


class _Names:
    """Gives names in the order in which they occur; `old` are the names of the nest."""

    def __init__(self, nest: LoopNest) -> None:
        self.old: dict[str, str] = {}
        self._new: dict[tuple[str, str], str] = {}
        self._claims = {b.name: b.within for b in (*nest.parameters, *nest.workspace) if b.within is not None}

    def system(self, conditions: tuple[Expr, ...], scope: Scope) -> System:
        """The system of some conditions at a place."""
        wanted = tuple(map(self._expr, conditions))
        facts = []
        for fact in scope.facts:
            axis = fact.axis and Axis(self._name("i", fact.axis.index), self._expr(fact.axis.start), self._expr(fact.axis.stop))
            facts.append((axis, fact.condition and self._expr(fact.condition), fact.sure))
        claims = []
        for name, (low, high) in self._claims.items():
            if ("b", name) in self._new:
                claims.append((self._new["b", name], (low, self._expr(high))))
        given = {kind: [(new, old) for (own, old), new in self._new.items() if own == kind] for kind in "inb"}
        return System(
            wanted,
            tuple(facts),
            tuple((new, scope.known[old]) for new, old in given["i"] if old in scope.known),
            tuple((new, scope.held[old]) for new, old in given["b"] if old in scope.held),
            tuple(claims),
            tuple(new for new, _ in given["n"]),
            scope.whole,
        )

    def _name(self, kind: str, old: str) -> str:
        found = self._new.get((kind, old))
        if found is None:
            found = self._new[kind, old] = f"{kind}{len(self._new)}"
            self.old[found] = old
        return found

    def _expr(self, expr: Expr) -> Expr:
        def visit(node: Expr) -> Expr:
            if type(node) is Index:
                return Index(self._name("i", node.name))
            if type(node) is Size:
                return Size(self._name("n", node.name))
            if type(node) is Access:
                own = node.tensor.rstrip("'")
                return replace(node, tensor=self._name("b", own) + node.tensor[len(own) :])
            return node

        return bottom_up(expr, visit)


@lru_cache(maxsize=1 << 12)
def _answer(system: System) -> Answer:
    """Whether the conditions never hold."""
    scope = Scope((), {}, dict(system.held))
    for axis, condition, sure in system.facts:
        if axis is not None:
            scope = scope.loop(axis.index, axis.start, axis.stop)
        elif condition is not None:
            scope = scope.where(condition, sure=sure)
    for name, (low, high) in system.ranges:
        before = scope.range_of(name)
        scope.known[name] = max(low, before[0]), min(high, before[1])
    questions = Questions(system.sizes, dict(system.claims), most=2 * STEPS)
    answer = questions.never(system.conditions, scope, refute=system.whole)
    if answer.holds is not None:
        return answer
    alike = _equal_for_equal_arguments(system)
    if alike and questions.never((*system.conditions, *alike), scope, refute=False).holds:
        return Answer(True, "data")
    return _at_small_sizes(system)


def _equal_for_equal_arguments(system: System) -> list[Expr]:
    """What holds of integers that are read from one buffer at two places: they are equal where the places are."""
    exprs = (*system.conditions, *(c for _, c, _ in system.facts if c is not None))
    read = dict.fromkeys(n for e in exprs for n in walk(e) if isinstance(n, Access) and n.dtype.is_integer)
    found: list[Expr] = []
    for one, other in itertools.combinations(read, 2):
        if one.tensor == other.tensor and one.indices and len(one.indices) == len(other.indices):
            parts: list[Expr] = [apply("ne", a, b) for a, b in zip(one.indices, other.indices, strict=True)]
            found.append(reduce(lambda a, b: apply("or", a, b), [*parts, apply("eq", one, other)]))
    return found if len(found) <= MOST_EQUAL else []


def _at_small_sizes(system: System) -> Answer:
    """A point among all iterations at small sizes; that there is none where no size is open."""
    undecided = Answer(None, "undecided")
    exprs = [*system.conditions, *(c for _, c, _ in system.facts if c is not None)]
    exprs += [e for axis, _, _ in system.facts if axis is not None for e in (axis.start, axis.stop)]
    if any(map(tensors_read, exprs)):
        return undecided
    for sizes in _sizes(system.sizes):
        point = _point(system, sizes)
        if point is None:
            return undecided
        if point:
            return Answer(False, "points", point) if system.whole else undecided
    return undecided if system.sizes else Answer(True, "points")


def _sizes(names: tuple[str, ...]) -> Iterator[dict[str, int]]:
    if len(names) <= 2:
        yield from (dict[str, int](zip(names, values, strict=True)) for values in itertools.product(SMALL, repeat=len(names)))
    else:
        yield from (dict.fromkeys(names, value) for value in SMALL)


def _point(system: System, sizes: dict[str, int]) -> Point | None:
    """The first point at which all holds; empty where there is none, None where there are too many points to go through."""

    def there(expr: Expr) -> Expr:
        return bottom_up(expr, lambda e: const(sizes[e.name]) if isinstance(e, Size) else e)

    axes = [Axis(axis.index, there(axis.start), there(axis.stop)) for axis, _, _ in system.facts if axis is not None]
    guards = [there(c) for c in (*system.conditions, *(c for _, c, _ in system.facts if c is not None))]
    try:
        points = enumerate_points(tuple(axes), tuple(guards), early=True, most=FEW_POINTS * 8)
    except NotEnumerable:
        return None
    if not points.count:
        return ()
    return (*sizes.items(), *((axis.index, int(points.values[axis.index][0])) for axis in axes))
