"""Nothing is read that nothing has written, and every element of every result is written.

A read is covered by a store where some iteration of the store, that runs before it, writes the element read. Before it are the stores
that stand in front, in the same iteration of the loops around both, and all stores of earlier iterations of a loop around both that runs
serially, as long as the buffer lives. For each such store the iteration is solved for (`iterations`). So what a store covers are
conditions on the indices of the read; the read's points are cut by them, store by store, until nothing is left; where dimensions and
conditions can be gone through one by one, no set is made for it (`spans`). A witness is checked, never trusted. At a point that is left,
all iterations of the stores are gone through where they are few: an element that none of them writes refutes it.

Results are read once more behind the end, at every element.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tensorexpr.bounds.enumeration import NotEnumerable, each_of, enumerate_points, evaluate_on
from tensorexpr.codegen.dependence.pairs import common, flat, renamed
from tensorexpr.codegen.facts.places import Home, Loop, Touch
from tensorexpr.codegen.facts.questions import (
    BY_FORMS,
    BY_RANGES,
    FEW_POINTS,
    POINTS_PER_STEP,
    STEPS_PER_SET,
    Answer,
    Questions,
    few_points,
)
from tensorexpr.codegen.facts.scope import Scope, mentioned
from tensorexpr.codegen.nest import Alloc, LoopNest
from tensorexpr.codegen.nest_proofs.iterations import solutions
from tensorexpr.codegen.nest_proofs.races import AT_ONCE
from tensorexpr.codegen.nest_proofs.spans import Filling, Store
from tensorexpr.integers import Affine, Constraint, Domain, ge, lt, take
from tensorexpr.ir import Access, Axis, Const, Expr, Index, Size, apply, const, integer
from tensorexpr.records import replace
from tensorexpr.regions import Case, affine_of, expression_of
from tensorexpr.text import print_expr
from tensorexpr.traversal import bottom_up, walk

MOST_PIECES = 24
MOST_STORES = 40
MOST_WITNESSES = 24
"""Iterations of stores that are tried for one read; for all reads of a nest `IN_ALL` times as many."""
IN_ALL = 5
MOST_ALTERNATIVES = 8
MOST_POINTS = 3
"""Points of what is left at which all iterations of the stores are gone through."""
_SOLVED = "~"


class Written:
    """The stores of a nest by buffer, in order, and the reads that need them."""

    def __init__(self, nest: LoopNest, questions: Questions, effort: int) -> None:
        self.nest, self.questions, self.effort = nest, questions, effort
        self.tried = 0
        self._numbers: dict[int, int] = {}
        self.stores: dict[Home, list[Touch]] = {}
        self.reads: list[Touch] = []
        self._at: dict[tuple[Home, tuple[Expr, ...]], list[Touch]] = {}
        self._order: list[tuple[int, str]] = []

    def seen(self, touch: Touch) -> None:
        """Keeps a touch of a buffer that does not have its elements from the start."""
        home = touch.home
        if touch.write:
            self.stores.setdefault(home, []).append(touch)
            self._at.setdefault((home, touch.indices), []).append(touch)
            self._order.append((touch.number, home.buffer.name))
        elif home.buffer.memory in ("workspace", "local") or home.buffer.name in self.nest.writes:
            self.reads.append(touch)

    def answers(self) -> Iterator[tuple[Touch, Answer]]:
        """What is decided of each read."""
        for touch in self.reads:
            yield touch, self.covered(touch)

    def covered(self, read: Touch, effort: int | None = None) -> Answer:
        """Whether what is read at a place has been written; with no `effort` the sets are not asked where some store may have done it."""
        effort = self.effort if effort is None else effort
        return self.covered_by_forms(read, effort) or self.covered_by_sets(read, effort)

    def covered_by_sets(self, read: Touch, effort: int) -> Answer:
        """Whether what is read at a place has been written, where forms have not shown it."""
        stores = self._stores_of(read)
        if stores and not effort:
            return Answer(None, "undecided")
        key = (read.home, read.indices, read.scope.facts, tuple(stores))
        return self.questions.once(key, lambda: self._by_sets(read, stores, effort))

    def covered_by_forms(self, read: Touch, effort: int) -> Answer | None:
        """That what is read has been written, where ranges or, with some `effort`, affine forms say so."""
        if any(_same(s, read) for s in self._before(read, self._at.get((read.home, read.indices), ()))):
            return BY_RANGES
        before = list(self._before(read, self.stores.get(read.home, ())))[::-1]
        if _in_boxes(read, before):
            return BY_RANGES
        if effort and self.questions.shown(lambda: self._is_filled(read, before)):
            return BY_FORMS
        return None

    def _before(self, read: Touch, stores: Sequence[Touch]) -> Iterator[Touch]:
        """Those of some stores that stand in front of a read, the last first; others may not run, for a condition was forgotten."""
        for store in reversed(stores):
            if store.number < read.number and store.scope.runs_where(read.scope):
                yield store

    def _stores_of(self, read: Touch) -> list[Touch]:
        """The stores that may have written what is read."""
        return [s for s in self.stores.get(read.home, ()) if s.number < read.number or common(s, read) > read.home.depth]

    def _is_filled(self, read: Touch, stores: Sequence[Touch]) -> bool:
        """Whether stores in front of a read fill it as intervals say; what conditions read must be then what it is at the read."""
        if any(low > high for low, high in map(read.scope.interval, read.indices)):
            return True
        before = []
        for store in stores[-MOST_STORES:]:
            own = store.loops[common(store, read) :]
            before.append(Store(store, own, (own[0].writes if own else frozenset()) | self._between(store, read)))
        return Filling(self.nest.sizes, self.questions.names.opaque, self.questions.forms).is_filled(read, before)

    def _between(self, store: Touch, read: Touch) -> frozenset[str]:
        """The buffers that are written from a store up to a read."""
        order = self._order
        return frozenset(name for _, name in order[bisect_left(order, (store.number, "")) : bisect_left(order, (read.number, ""))])

    # ------------------------------------------------------------------------------------------------------------- by sets

    def _by_sets(self, read: Touch, stores: Sequence[Touch], effort: int) -> Answer:
        questions = self.questions
        if self._at_all_elements(read, stores):
            return Answer(True, "points")
        conditions = [f.condition for s in stores[-MOST_STORES:] for f in s.scope.facts if f.condition is not None and not f.sure]
        facts = questions.relevant(read.scope, (*read.indices, *dict.fromkeys(conditions)))
        places = tuple(itertools.islice(questions.cases_of_all(read.indices), MOST_PIECES))
        left = [questions.narrowed(d, case, read.scope) for d in questions.regions(facts, read.scope) for case in places]
        left = [d for d in left if not d.is_empty()]
        near = sorted((s for s in stores if s.scope.runs_where(read.scope)), key=lambda s: (s.number >= read.number, -s.number))[
            :MOST_STORES
        ]
        for number, found in enumerate(w for store in near for w in self._witnesses(read, store)):
            if not left:
                return Answer(True, "sets")
            if number >= MOST_WITNESSES * effort or len(left) > MOST_PIECES:
                return Answer(None, "undecided")
            left = _cut(left, found, self.nest.sizes)
        if not left:
            return Answer(True, "sets")
        return self._refuted(read, stores, left)

    def _at_all_elements(self, read: Touch, stores: Sequence[Touch]) -> bool:
        """Whether stores in loops of numbers write every element of a result that has few."""
        shape = read.shape
        if read.loops or len(stores) > MOST_STORES or not all(isinstance(extent, Const) for extent in shape):
            return False
        extents = [integer(extent) for extent in shape]
        if math.prod(extents) > FEW_POINTS:
            return False
        written = np.zeros(extents, bool)
        for store in stores:
            if not store.scope.runs_where(read.scope) or any(fact.reads and not fact.sure for fact in store.scope.facts):
                continue
            try:
                points = few_points(store.scope.facts)
                at = [each_of(index, points.values, points.count) for index in store.indices]
            except NotEnumerable:
                continue
            if not points.count:
                continue
            if len(at) != len(extents) or any((a < 0).any() or (a >= n).any() for a, n in zip(at, extents, strict=True)):
                return False
            written[tuple(at)] = True
        return bool(written.all())

    def _refuted(self, read: Touch, stores: Sequence[Touch], left: list[Domain]) -> Answer:
        """A point at which no iteration of any store writes what is read: all of them are gone through there."""
        for domain in left[:MOST_POINTS] if read.scope.whole else ():
            point = self.questions.point(domain, read.scope, ())
            if point is not None and not any(self._may_write(store, read, dict(point)) for store in stores):
                return Answer(False, "refuted", point)
        return Answer(None, "undecided")

    def _may_write(self, store: Touch, read: Touch, at: dict[str, int]) -> bool:
        """Whether some iteration of a store may write the element that is read at a point; conditions that read data may hold."""
        sizes = {name: const(at.get(name, 1)) for name in self.nest.sizes}

        def there(expr: Expr) -> Expr:
            return bottom_up(expr, lambda e: sizes[e.name] if isinstance(e, Size) else e)

        axes = [Axis(f.axis.index, there(f.axis.start), there(f.axis.stop)) for f in store.scope.facts if f.axis is not None]
        guards = [there(f.condition) for f in store.scope.facts if f.condition is not None and not (f.reads or f.sure)]
        values, targets = list(map(there, store.indices)), list(read.indices)
        if len(values) != len(targets):
            one, other = (flat(tuple(map(there, i)), tuple(map(there, store.home.buffer.shape))) for i in (values, targets))
            if one is None or other is None:
                return True
            values, targets = list(one), list(other)
        try:
            wanted = [evaluate_on(there(index), {name: np.int64(value) for name, value in at.items()}) for index in targets]
            meets = (apply("eq", index, const(int(value))) for index, value in zip(values, wanted, strict=True))
            points = enumerate_points(tuple(axes), (*guards, *meets), early=True)
            take(points.visited // POINTS_PER_STEP)
        except NotEnumerable:
            return True
        return points.count > 0

    def _witnesses(self, read: Touch, store: Touch) -> Iterator[list[Constraint]]:
        """Conditions under each of which a store has written what is read."""
        shared = common(store, read)
        if store.number < read.number:
            yield from self._solved(read, store, store.loops[shared:], None)
        for at in range(shared - 1, read.home.depth - 1, -1):
            loop = store.loops[at]
            if loop.statement.kind not in AT_ONCE:
                yield from self._solved(read, store, store.loops[at:], loop)

    def _solved(self, read: Touch, store: Touch, own: tuple[Loop, ...], carried: Loop | None) -> Iterator[list[Constraint]]:
        self.tried += 1
        if self.tried > IN_ALL * MOST_WITNESSES * max(self.effort, 1):
            return
        targets, values = read.indices, store.indices
        if len(targets) != len(values):
            shape = read.home.buffer.shape
            both = flat(targets, shape), flat(values, shape)
            if both[0] is None or both[1] is None:
                return
            targets, values = both[0], both[1]
        names = {loop.statement.index: loop.statement.index + _SOLVED for loop in own}
        places = [renamed(value, names, frozenset()) for value in values]
        if any(not set(names.values()).isdisjoint(mentioned((n,))[0]) for v in places for n in walk(v) if isinstance(n, Access)):
            return  # where it writes depends on data
        for left in self.questions.cases_of_all(places):
            for right in self.questions.cases_of_all(targets):
                equations = [a.value - b.value for a, b in zip(left, right, strict=True)]
                for solution in solutions(equations, own, names, carried):
                    found = [one for case in right for one in case.constraints]
                    found += [one.substitute(solution) for case in left for one in case.constraints]
                    found += [Constraint(e.substitute(solution), "==") for e in equations]
                    if carried is not None:
                        found.append(lt(solution[names[carried.statement.index]], carried.statement.index))
                    take(STEPS_PER_SET)
                    for facts in self._facts(read, store, own, names, solution):
                        take(STEPS_PER_SET)
                        whole = [one for one in (*found, *facts) if not one.is_true]
                        if not any(one.is_false for one in whole):
                            yield whole

    def _facts(
        self, read: Touch, store: Touch, own: tuple[Loop, ...], names: dict[str, str], solution: dict[str, Affine]
    ) -> Iterator[list[Constraint]]:
        """What holds where the store runs, at the iteration that was solved for, as alternatives; none where they are many."""
        each: list[list[Case]] = []
        there = {name: solution[other] for name, other in names.items()}
        places = {name: self._expression(form) for name, form in there.items()}
        changed = self._changed(read, store, own)
        held = set(read.scope.facts)
        for fact in store.scope.facts:
            if fact.sure or (fact in held and fact.names.isdisjoint(names) and fact.reads.isdisjoint(changed)):
                continue
            for condition, cases in zip(self.questions.conditions(fact), self.questions.parts(fact), strict=True):
                if fact.reads or any(n.startswith("?") for case in cases for one in case.constraints for n in one.names()):
                    each.append(
                        self.questions.cases(
                            self._there(condition, places, {name: self._version(name, store, own) for name in changed & fact.reads})
                        )
                    )
                else:
                    each.append([replace(case, constraints=tuple(one.substitute(there) for one in case.constraints)) for case in cases])
        if math.prod(map(len, each)) <= MOST_ALTERNATIVES and all(case.exact for cases in each for case in cases):
            for chosen in itertools.product(*each):
                yield [one for case in chosen for one in case.constraints]

    def _changed(self, read: Touch, store: Touch, own: tuple[Loop, ...]) -> frozenset[str]:
        """The buffers that may hold something else when the element is read, or in another iteration."""
        if own:
            return frozenset(home.buffer.name for home in self.stores)
        return self._between(store, read)

    def _version(self, name: str, store: Touch, own: tuple[Loop, ...]) -> str:
        """What tells the contents of a buffer where a store runs from those at other places: the last statement before it that writes the
        buffer, and the outermost of the loops around that does: behind it the buffer holds what its last iteration left."""
        writes = (t.number for home, found in self.stores.items() if home.buffer.name == name for t in found if t.number < store.number)
        loop = next((loop for loop in own if name in loop.writes), None)
        within = "" if loop is None else f" in {self._numbers.setdefault(id(loop), len(self._numbers))}"
        return f"{max(writes, default=0)}{within}"

    def _there(self, condition: Expr, places: dict[str, Expr], changed: Mapping[str, str]) -> Expr:
        """A condition at the iteration that was solved for; what is read of buffers that change gets its name and that of the version."""
        if not changed and set(mentioned((condition,))[0]).isdisjoint(places):
            return condition
        at = ", ".join(f"{name}={print_expr(place)}" for name, place in places.items()) if changed else ""

        def visit(node: Expr) -> Expr:
            if isinstance(node, Index) and node.name in places:
                return places[node.name]
            if isinstance(node, Access) and node.tensor in changed:
                return replace(node, tensor=f"{node.tensor} {changed[node.tensor]} at {at}")
            return node

        return bottom_up(condition, visit)

    def _expression(self, form: Affine) -> Expr:
        return expression_of(form, self.nest.sizes, self.questions.opaque)

    # ------------------------------------------------------------------------------------------------------------- results

    def results(self, homes: Mapping[str, Home], start: Scope) -> list[Touch]:
        """Every element of every result, as a read behind the end."""
        return [self._end(homes[name], start) for name in self.nest.writes]

    def _end(self, home: Home, start: Scope) -> Touch:
        scope, indices = start, []
        for axis, extent in enumerate(home.buffer.shape):
            index = Index(f"axis {axis}")
            scope = scope.loop(index.name, const(0), extent)
            indices.append(index)
        stores = self.stores.get(home, ())
        statement = stores[-1].statement if stores else Alloc(home.buffer, ())
        return Touch(home, tuple(indices), False, (), scope, statement, 1 + max((s.number for s in stores), default=0), 0)


def _same(store: Touch, read: Touch) -> bool:
    """Whether a store writes the same element in loops that are written alike."""
    if store.indices != read.indices:
        return False
    own = store.loops[common(store, read) :]
    if own:
        around = {(loop.statement.index, loop.statement.start, loop.statement.stop) for loop in read.loops}
        if any((loop.statement.index, loop.statement.start, loop.statement.stop) not in around for loop in own):
            return False
    conditions = [fact.condition for fact in store.scope.facts if fact.condition is not None and not fact.sure]
    return not conditions or read.scope.conditions.issuperset(conditions)


def _in_boxes(read: Touch, stores: Sequence[Touch]) -> bool:
    """Whether one store, under no condition of its own, fills a box of numbers in which the read stays."""
    return any(_fills(store, read) for store in reversed(stores[-MOST_STORES:]))


def _fills(store: Touch, read: Touch) -> bool:
    if len(store.indices) != len(read.indices):
        return False
    for value, target in zip(store.indices, read.indices):
        if type(value) is Const and type(target) is Const and value.value != target.value:
            return False
    held = read.scope.facts
    if any(fact.axis is None and not fact.sure and fact not in held for fact in store.scope.facts):
        return False
    own = {loop.statement.index: loop.statement for loop in store.loops[common(store, read) :]}
    spans: dict[str, tuple[int, int]] = {}
    for name, loop in own.items():
        if not (isinstance(loop.start, Const) and isinstance(loop.stop, Const)) or loop.stop.value <= loop.start.value:
            return False
        spans[name] = int(loop.start.value), int(loop.stop.value) - 1
    used: set[str] = set()
    for value, target in zip(store.indices, read.indices, strict=True):
        form = affine_of(value)
        if form is None:
            return False
        terms = [(atom, factor) for atom, factor in form.terms if isinstance(atom, str) and atom in own]
        outer = Affine([(atom, factor) for atom, factor in form.terms if (atom, factor) not in terms])
        if any(name in own for name in outer.names()) or any(name in used for name, _ in terms):
            return False
        used |= {str(name) for name, _ in terms}
        low = high = form.constant
        reach = 0
        for name, factor in sorted(terms, key=lambda term: abs(term[1])):
            first, last = spans[str(name)]
            if abs(factor) > reach + 1:
                return False
            reach += abs(factor) * (last - first)
            low, high = low + min(factor * first, factor * last), high + max(factor * first, factor * last)
        if outer.terms:
            inner = affine_of(target)
            if inner is None:
                return False
            rest = inner - outer
            box = {n: _whole(read.scope.range_of(n)) for n in rest.names()}
            least, greatest = rest.interval(box)
        else:
            least, greatest = _whole(read.scope.interval(target))
        if least is None or greatest is None or least < low or greatest > high:
            return False
    return True


def _whole(found: tuple[float, float]) -> tuple[int | None, int | None]:
    low, high = found
    return (None if low == float("-inf") else int(low)), (None if high == float("inf") else int(high))


def _cut(domains: list[Domain], conditions: Sequence[Constraint], sizes: Sequence[str]) -> list[Domain]:
    """The points at which not all conditions hold, in disjoint sets; a size that only these name is none below 0."""
    left = []
    for domain in domains:
        rest = domain
        for one in conditions:
            take(STEPS_PER_SET)
            new = [name for name in one.names() if name not in rest.dims]
            if new:
                rest = Domain((*rest.dims, *new), (*rest.constraints, *(ge(name, 0) for name in new if name in sizes)))
            elif rest.implies(one):
                continue
            for opposite in one.negate():
                beyond = rest.constrain(opposite)
                if not beyond.is_empty():
                    left.append(beyond)
            rest = rest.constrain(one)
            if rest.is_empty():
                break
    return left
