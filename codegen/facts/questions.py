"""Questions about integers at a place of a nest, put to ranges first, then to integer sets.

A set is made of the facts that matter for a question: those that share an index, a size or an opaque value with it, directly or through
others. Each question is asked once for equal terms and facts. Steps are counted, never timed: those of the solver, and so many for each
form that is compared and each set that is made. A question that takes more than `STEPS` is undecided, and so are all further ones of a nest
that has taken its share: `MOST_STEPS`, and in a build no more than compiling its statements allows (`steps_for`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from tensorexpr import dtypes
from tensorexpr.bounds.enumeration import NotEnumerable, Points, each_of, enumerate_points, evaluate_on
from tensorexpr.bounds.nonlinear import Polynomials
from tensorexpr.codegen.facts.forms import Forms, Names
from tensorexpr.codegen.facts.scope import Checked, Fact, Scope, mentioned
from tensorexpr.codegen.nest import Check
from tensorexpr.integers import Affine, Constraint, Domain, DomainTooComplex, at_most, ge, le, lt, take
from tensorexpr.ir import Access, Apply, Axis, Cast, Const, Expr, Index, Size, apply, const
from tensorexpr.records import record
from tensorexpr.regions import MAX_CASES, Case, Opaque, affine_of, cases_of, cases_where
from tensorexpr.traversal import bottom_up, tensors_read, walk

STEPS = 20_000
MOST_STEPS = 400_000
LEAST_STEPS = 3000
STEPS_PER_STATEMENT = 50
"""A statement takes about a millisecond to compile, a program without any ten; a step takes a microsecond and a half."""
STEPS_PER_QUESTION = 100
STEPS_PER_SET = 30
STEPS_BY_PRODUCTS = 1000
MOST_SAMPLES = 6
FEW_POINTS = 2048
"""Points of loops that are gone through before any set is made."""
POINTS_PER_STEP = 20

_LOGIC = ("and", "or", "invert", "where", "eq", "ne", "xor")
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")

Point = tuple[tuple[str, int], ...]
Claim = tuple[int, Expr]
Told = TypeVar("Told")


@record
class Answer:
    """Whether something holds at a place: `holds` (None: undecided), how that was decided, and where not, a point."""

    holds: bool | None
    how: str
    at: Point = ()


BY_RANGES, BY_FORMS = Answer(True, "ranges"), Answer(True, "forms")


def steps_for(statements: int) -> int:
    """Steps for all questions about so many statements, where they must take no longer than a small part of what compiling them does."""
    return min(LEAST_STEPS + STEPS_PER_STATEMENT * statements, MOST_STEPS)


class Questions:
    """Asks about one nest. `sizes` are its open sizes, `claims` says of buffers of integers between which two values every element is;
    `most` is how many steps may be taken, `effort` times; `opaque` names what is not affine, the same for all questions. Behind the
    `checks` nothing runs where one of them fails."""

    def __init__(self, sizes: Sequence[str], claims: Mapping[str, Claim], effort: int = 1, most: int = MOST_STEPS) -> None:
        self.most = most
        self.sizes = sizes
        self.claims = claims
        self.effort = effort
        self.checks: list[Checked] = []
        self.opaque = Opaque()
        self.names = Names()
        self.steps = 0
        self.asked = 0
        self._answers: dict[tuple[object, ...], Answer] = {}
        self._parts: dict[Fact, list[list[Case]]] = {}
        self._regions: dict[tuple[Fact, ...], list[Domain]] = {}
        self._flags: dict[Expr, str] = {}
        self._forms: dict[Scope, Forms] = {}
        self._inside: dict[tuple[Expr, Expr], list[frozenset[Fact]]] = {}
        """By index and extent what is known where forms have shown that it is inside: it is, too, where more is known."""

    # ------------------------------------------------------------------------------------------------------- what is asked

    def inside(self, index: Expr, extent: Expr, scope: Scope) -> Answer:
        """Whether 0 <= index < extent."""
        found = self.inside_by_forms(index, extent, scope)
        return found or self.inside_by_sets(index, extent, scope)

    def inside_by_sets(self, index: Expr, extent: Expr, scope: Scope) -> Answer:
        """Whether 0 <= index < extent, put to the sets."""
        facts = self.relevant(scope, (index, extent))
        key = "inside", index, extent, facts
        if key not in self._answers:
            self._answers[key] = self._counted(lambda: self._by_sets(index, extent, facts, scope))
        return self._answers[key]

    def inside_by_forms(self, index: Expr, extent: Expr, scope: Scope) -> Answer | None:
        """That 0 <= index < extent, where ranges or affine forms say so."""
        if type(index) is Const and type(extent) is Const and 0 <= index.value < extent.value:
            return BY_RANGES
        low, high = scope.interval(index)
        if (low >= 0 and high < scope.interval(extent)[0]) or low > high:
            return BY_RANGES
        if (
            isinstance(index, Index)
            and low >= 0
            and any(f.axis is not None and f.axis.index == index.name and f.axis.stop == extent for f in scope.facts)
        ):
            return BY_RANGES
        places = self._inside.setdefault((index, extent), [])
        known = scope.forgotten.union(scope.facts)
        if any(place <= known for place in places):
            return BY_FORMS
        if not self.shown(lambda: self.forms(scope).inside(index, extent)):
            return None
        places.append(known)
        return BY_FORMS

    def forms(self, scope: Scope) -> Forms:
        """The affine forms at a place, kept, for it is mostly asked about several times."""
        found = self._forms.get(scope)
        if found is None:
            found = self._forms[scope] = Forms(scope, self.sizes, self.names)
        return found

    def between(self, low: int, value: Expr, high: Expr, scope: Scope) -> Answer:
        """Whether low <= value <= high."""
        return self.inside(_less(value, low), apply("sub", apply("add", high, const(1)), const(low)), scope)

    def never(self, conditions: Sequence[Expr], scope: Scope, refute: bool = True) -> Answer:
        """Whether some conditions never hold at once at a place; without `refute` no point is looked for at which they do."""
        return self._counted(lambda: self._never(conditions, scope, refute))

    def once(self, key: tuple[object, ...], ask: Callable[[], Answer]) -> Answer:
        """The answer to something else that is asked here, once for equal keys."""
        found = self._answers.get(key)
        if found is None:
            found = self._answers[key] = self._counted(ask)
        return found

    def cases_of_all(self, exprs: Sequence[Expr]) -> Iterator[tuple[Case, ...]]:
        """The cases of several integers at once; none where there are many."""
        each = [cases_of(expr, self.opaque) for expr in exprs]
        if math.prod(map(len, each)) <= MAX_CASES:
            yield from itertools.product(*each)

    def cases(self, condition: Expr) -> list[Case]:
        """The cases of a condition."""
        return cases_where(self.affine(condition), self.opaque)

    def shown(self, ask: Callable[[], bool]) -> bool:
        """Whether forms show something; not where that takes more steps than are left."""
        return self._limited(ask, self._left_steps(), False)

    def _counted(self, ask: Callable[[], Answer]) -> Answer:
        """An answer, or none where it takes more steps than are allowed."""
        self.asked += 1
        self.steps += STEPS_PER_QUESTION
        return self._limited(ask, min(STEPS * self.effort, self._left_steps()), Answer(None, "undecided"))

    def _left_steps(self) -> int:
        return self.most * self.effort - self.steps

    def _limited(self, ask: Callable[[], Told], limit: int, otherwise: Told) -> Told:
        if limit <= 0:
            return otherwise
        try:
            with at_most(limit) as effort:
                try:
                    return ask()
                finally:
                    self.steps += effort.steps
        except DomainTooComplex:
            return otherwise

    def _never(self, conditions: Sequence[Expr], scope: Scope, refute: bool) -> Answer:
        cases = sorted((cases_where(self.affine(part), self.opaque) for part in conditions), key=len)
        if not self._left(self._loops_of(scope, conditions), cases, scope, simple=True):
            return Answer(True, "sets")
        facts = self.relevant(scope, conditions)
        found = self._left(facts, cases, scope)
        if not found:
            return Answer(True, "sets")
        if not refute or not scope.whole:
            return Answer(None, "undecided")
        if facts != scope.facts:  # a point is one of all loops around
            found = self._left(scope.facts, cases, scope)
            if not found:
                return Answer(True, "sets")
        for domain in found[:MOST_SAMPLES]:
            point = self.point(domain, scope, conditions)
            if point is not None:
                return Answer(False, "refuted", point)
        return Answer(None, "undecided")

    def _left(self, facts: tuple[Fact, ...], wanted: Sequence[list[Case]], scope: Scope, simple: bool = False) -> list[Domain]:
        """The sets that are left of the points at which facts and cases hold; with `simple` facts with several cases are left out."""
        found = [self._simple(facts, scope)] if simple else self.regions(facts, scope)
        for cases in wanted:
            found = [self.narrowed(one, (case,), scope) for one in found for case in cases]
            if len(found) > 1:
                found = [one for one in found if not one.is_empty()]
        return [one for one in found if not one.is_empty()]

    def _loops_of(self, scope: Scope, terms: Sequence[Expr]) -> tuple[Fact, ...]:
        """The loops over the indices in some terms, and over those in their bounds."""
        names = set(mentioned(terms)[0])
        taken: list[Fact] = []
        for fact in reversed(scope.facts):
            if fact.axis is not None and fact.axis.index in names:
                taken.append(fact)
                names |= fact.names
        return tuple(reversed(taken))

    def _by_sets(self, index: Expr, extent: Expr, facts: tuple[Fact, ...], scope: Scope) -> Answer:
        few = self._loops_of(scope, (index, extent))
        if self.at_all_points(index, extent, facts):
            return Answer(True, "points")
        if self._within(index, extent, [self._simple(few, scope)], scope):
            return Answer(True, "sets")
        near = self._about(facts, few, (index, extent))
        if self._within(index, extent, [self._simple(near, scope)], scope) or self._within(
            index, extent, self.regions(facts, scope), scope
        ):
            return Answer(True, "sets")
        if self._by_products(index, extent, facts, scope):
            return Answer(True, "products")
        return self._refuted(index, extent, scope)

    def at_all_points(self, index: Expr, extent: Expr, facts: tuple[Fact, ...]) -> bool:
        """Whether 0 <= index < extent at all points of loops that have few."""
        if any(name in self.sizes for f in facts for name in f.names) or any(mentioned((index, extent))[1]):
            return False
        try:
            points = few_points(facts)
            found, limit = (each_of(expr, points.values, points.count) for expr in (index, extent))
        except NotEnumerable:
            return False
        return not points.count or bool((found >= 0).all() and (found < limit).all())

    def _within(self, index: Expr, extent: Expr, regions: Sequence[Domain], scope: Scope) -> bool:
        """Whether 0 <= index < extent at all points of some sets."""
        for value in cases_of(index, self.opaque):
            for limit in cases_of(extent, self.opaque):
                for domain in regions:
                    narrowed = self.narrowed(domain, (value, limit), scope)
                    if not (narrowed.implies(ge(value.value, 0)) and narrowed.implies(lt(value.value, limit.value))):
                        return False
        return True

    def _simple(self, facts: tuple[Fact, ...], scope: Scope) -> Domain:
        """A set that contains the points at which facts hold: those with several cases are left out."""
        parts = (cases[0].constraints for fact in facts for cases in self.parts(fact) if len(cases) == 1)
        return self._domain([one for part in parts for one in part], scope)

    def _about(self, facts: tuple[Fact, ...], loops: tuple[Fact, ...], terms: Sequence[Expr]) -> tuple[Fact, ...]:
        """The facts about nothing but some loops and terms."""
        names, reads = mentioned(terms)
        names |= {name for fact in loops for name in fact.names}
        reads |= {name for fact in loops for name in fact.reads}
        return tuple(fact for fact in facts if fact.names <= names and fact.reads <= reads)

    def _by_products(self, index: Expr, extent: Expr, facts: tuple[Fact, ...], scope: Scope) -> bool:
        """By products of names, where some occur."""
        exprs = (index, extent, *(e for f in facts for e in _exprs(f)))
        if not any(isinstance(n, Apply) and n.op.name in ("mul", "floordiv", "mod") and self._is_open(n) for e in exprs for n in walk(e)):
            return False
        take(STEPS_BY_PRODUCTS)
        axes = tuple(f.axis for f in facts if f.axis is not None)
        guards = tuple(f.condition for f in facts if f.condition is not None)
        return Polynomials(axes, guards, scope.interval).within(index, extent)

    def _is_open(self, product: Apply) -> bool:
        return product.dtype.is_integer and product in self.opaque.names

    def _refuted(self, index: Expr, extent: Expr, scope: Scope) -> Answer:
        """A point where all facts hold and the index is outside, as their own terms say when they are evaluated there."""
        if not scope.whole:
            return Answer(None, "undecided")
        tried = 0
        for value in cases_of(index, self.opaque):
            for limit in cases_of(extent, self.opaque):
                for domain in self.regions(scope.facts, scope):
                    narrowed = self.narrowed(domain, (value, limit), scope)
                    for left in (lt(value.value, 0), ge(value.value, limit.value)):
                        violated = narrowed.constrain(left)
                        if violated.is_empty():
                            continue
                        tried += 1
                        point = self._point(violated, scope, index, extent) if tried <= MOST_SAMPLES else None
                        if point is not None:
                            return Answer(False, "refuted", point)
        return Answer(None, "undecided")

    def _point(self, violated: Domain, scope: Scope, index: Expr, extent: Expr) -> Point | None:
        outside = apply("or", apply("lt", index, const(0)), apply("ge", index, extent))
        return self.point(violated, scope, (outside,))

    def point(self, domain: Domain, scope: Scope, conditions: Sequence[Expr]) -> Point | None:
        """A point of a set at which all facts and some conditions hold, as their own terms say when they are evaluated there, and for
        the sizes of which no check is certain to fail."""
        names = sorted(domain.dims, key=lambda n: self._order(n, scope))
        found = Domain(names, domain.constraints).sample()
        if found is None or not all(dtypes.int64.least <= value <= dtypes.int64.greatest for value in found.values()):
            return None
        values = {name: np.int64(v) for name, v in found.items()}
        try:
            if not all(evaluate_on(c, values) for c in (*(c for f in scope.facts for c in self.conditions(f)), *conditions)):
                return None
        except NotEnumerable:
            return None
        if any(self._fails(check, place, found) for check, place in self.checks):
            return None
        return tuple((name, int(found[name])) for name in names)

    def _fails(self, check: Check, place: Scope, at: Mapping[str, int]) -> bool:
        """Whether a check, or one before it, is certain to fail in some iteration of the loops around it, for sizes as at a point."""
        facts = [f for f in place.facts if not f.sure]  # where those do not hold, a check before it has failed
        exprs = (check.index, check.extent, *(e for f in facts for e in _exprs(f)))
        if any(map(tensors_read, exprs)):
            return False
        sizes = {name: const(at.get(name, 1)) for name in self.sizes}

        def there(expr: Expr) -> Expr:
            return bottom_up(expr, lambda e: sizes[e.name] if isinstance(e, Size) else e)

        axes = [Axis(f.axis.index, there(f.axis.start), there(f.axis.stop)) for f in facts if f.axis is not None]
        guards = [there(f.condition) for f in facts if f.condition is not None]
        index, extent = there(check.index), there(check.extent)
        outside = apply("or", apply("lt", index, const(0)), apply("ge", index, extent))
        try:
            return enumerate_points(tuple(axes), (*guards, outside)).count > 0
        except NotEnumerable:
            return False

    def _order(self, name: str, scope: Scope) -> tuple[int, int]:
        if name in self.sizes:
            return 0, self.sizes.index(name)
        loops = [f.axis.index for f in scope.facts if f.axis is not None]
        return (1, loops.index(name)) if name in loops else (2, 0)

    # ------------------------------------------------------------------------------------------------------------- sets

    def relevant(self, scope: Scope, terms: Iterable[Expr]) -> tuple[Fact, ...]:
        """The facts that share names with some terms, directly or through others."""
        names, reads = map(set, mentioned(terms))
        left, taken = list(scope.facts), set()
        changed = True
        while changed:
            changed = False
            rest = []
            for fact in left:
                if fact.names.isdisjoint(names) and fact.reads.isdisjoint(reads):
                    rest.append(fact)
                    continue
                names |= fact.names
                reads |= fact.reads
                taken.add(fact)
                changed = True
            left = rest
        return tuple(f for f in scope.facts if f in taken)

    def regions(self, facts: tuple[Fact, ...], scope: Scope) -> list[Domain]:
        """Disjoint sets that contain the points at which the facts hold."""
        found = self._regions.get(facts)
        if found is None:
            found = self._regions[facts] = self._made(facts, scope)
        return found

    def _made(self, facts: tuple[Fact, ...], scope: Scope) -> list[Domain]:
        found = [self._simple(facts, scope)]
        for cases in (cases for fact in facts for cases in self.parts(fact) if len(cases) != 1):
            if len(found) * len(cases) <= MAX_CASES:
                found = [self.narrowed(domain, (case,), scope) for domain in found for case in cases]
                found = [domain for domain in found if not domain.is_empty()]
        return found

    def parts(self, fact: Fact) -> list[list[Case]]:
        """A fact as conjunction of alternatives."""
        found = self._parts.get(fact)
        if found is None:
            found = self._parts[fact] = [cases_where(self.affine(c), self.opaque) for c in self.conditions(fact)]
        return found

    def affine(self, condition: Expr) -> Expr:
        """A condition whose parts that compare no integers are names, 1 where they hold: equal parts agree."""
        if not isinstance(condition, Apply | Access | Cast) or not condition.dtype.is_bool:
            return condition
        if isinstance(condition, Apply):
            if condition.op.name in _LOGIC and all(a.dtype.is_bool for a in condition.args):
                return apply(condition.op.name, *map(self.affine, condition.args))
            if condition.op.name in _COMPARISONS and condition.args[0].dtype.is_integer:
                return condition
        name = self._flags.setdefault(condition, f"?where {len(self._flags)}")
        return apply("ge", Index(name), const(1))

    def conditions(self, fact: Fact) -> tuple[Expr, ...]:
        """A fact as conditions."""
        if fact.axis is None:
            assert fact.condition is not None
            return (fact.condition,)
        at = Index(fact.axis.index)
        return apply("ge", at, fact.axis.start), apply("lt", at, fact.axis.stop)

    def _domain(self, constraints: Iterable[Constraint], scope: Scope) -> Domain:
        return self.narrowed(Domain(()), (Case(tuple(constraints)),), scope)

    def narrowed(self, domain: Domain, cases: Iterable[Case], scope: Scope) -> Domain:
        """The points in all cases, with what is known of each new name: sizes are not negative, opaque values have their ranges."""
        take(STEPS_PER_SET)
        constraints = [one for case in cases for one in case.constraints]
        new: dict[str, None] = {}
        for one in constraints:
            new.update(dict.fromkeys(one.names()))
        for case in cases:
            new.update(dict.fromkeys(case.value.names()))
        for name in domain.dims:
            new.pop(name, None)
        if not constraints and not new:
            return domain
        hidden = self.opaque.expressions if any(n.startswith("?") for n in new) else {}
        for name in new:
            if name in hidden:
                low, high = scope.interval(hidden[name])
            elif name in self.sizes:
                low, high = 0, math.inf
            else:
                low, high = scope.range_of(name)
            if not math.isinf(low):
                constraints.append(ge(name, int(low)))
            if not math.isinf(high):
                constraints.append(lt(name, int(high) + 1))
            elif name in hidden and (most := self._most(hidden[name])) is not None:
                constraints.append(le(name, most))
        dims = dict.fromkeys((*domain.dims, *new, *(n for one in constraints for n in one.names())))
        extra = [ge(n, 0) for n in dims if n in self.sizes and n not in domain.dims and n not in new]
        return Domain(tuple(dims), (*domain.constraints, *constraints, *extra))

    def _most(self, value: Expr) -> Affine | None:
        """The greatest value of an element of a buffer, as claimed."""
        while isinstance(value, Cast):
            value = value.arg
        claim = self.claims.get(value.tensor.rstrip("'")) if isinstance(value, Access) else None
        return None if claim is None else affine_of(claim[1])


def few_points(facts: Iterable[Fact]) -> Points:
    """The points of loops and conditions of numbers alone, where they are few; what reads data may hold. Raises `NotEnumerable`."""
    axes, guards = [], []
    for fact in facts:
        if fact.axis is not None:
            axes.append(fact.axis)
        elif fact.condition is not None and not fact.reads:
            guards.append(fact.condition)
    points = enumerate_points(tuple(axes), tuple(guards), early=True, most=FEW_POINTS)
    take(STEPS_PER_SET + points.visited // POINTS_PER_STEP)
    return points


def _less(value: Expr, low: int) -> Expr:
    return value if low == 0 else apply("sub", value, const(low))


def _exprs(fact: Fact) -> tuple[Expr, ...]:
    if fact.axis is not None:
        return fact.axis.start, fact.axis.stop
    assert fact.condition is not None
    return (fact.condition,)
