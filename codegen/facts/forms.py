"""Bounds of integers as affine forms, which decide most of what ranges leave open: no set is made for it.

    0 <= minimum(8 * b, n - 8) + v < n  with 0 <= v < 8 <= n:   n - 8 + v  is a bound of it, and  n - 1 - (n - 8 + v) = 7 - v  not negative.

Of a minimum each operand is a bound from above, so is half of their sum (of reflected indices that is all there is to say), and the lesser
of them one from below; a maximum is the same turned around. A form that the ranges of its names do not decide is compared with each
condition that holds; then its indices are replaced by the bounds of their loops, the innermost first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable

from tensorexpr import dtypes
from tensorexpr.codegen.facts.scope import Fact, Interval, Scope
from tensorexpr.integers import Affine, FloorDiv, take
from tensorexpr.integers.forms.affine import Atom
from tensorexpr.ir import Apply, Axis, Const, Expr, Index, Size, apply, integer
from tensorexpr.records import cached_property, field, record
from tensorexpr.regions import Opaque, affine_of, split_modulos

STEPS = 30
"""What it takes to compare a form, in steps of the solver."""
MOST = 6
"""Bounds of an expression that are kept, and forms that one is made of."""

Bound = tuple[Affine, ...]
"""Forms of which one, the furthest, is a bound."""


@record(frozen=False)
class Names:
    """Names of what is not affine, and conditions that were read with them."""

    opaque: Opaque = field(default_factory=Opaque)
    differences: dict[Expr, tuple[Affine, frozenset[str]] | None] = field(default_factory=dict)
    halves: dict[tuple[Expr, Expr, bool], list[Bound]] = field(default_factory=dict)

    def difference(self, condition: Expr) -> tuple[Affine, frozenset[str]] | None:
        """A form that is not negative where a comparison of integers holds, and the names in it."""
        if condition not in self.differences:
            form = _difference(condition, self.opaque)
            self.differences[condition] = None if form is None else (form, frozenset(form.names()))
        return self.differences[condition]

    def half(self, first: Expr, second: Expr, above: bool) -> list[Bound]:
        """Bounds by half the sum of two integers."""
        key = first, second, above
        if key not in self.halves:
            self.halves[key] = _half(first, second, above)
        return self.halves[key]


class Forms:
    """Bounds at one place. `sizes` are the names that are open sizes, `names` those of what is not affine."""

    def __init__(self, scope: Scope, sizes: Collection[str], names: Names) -> None:
        self.scope, self.sizes, self.names = scope, sizes, names
        self.loops = tuple(fact for fact in reversed(scope.facts) if fact.axis is not None)
        self._box: dict[str, tuple[int | None, int | None]] = {}
        self._quotients: dict[FloorDiv, tuple[int | None, int | None]] = {}
        self._bounds: dict[tuple[Expr, bool], list[Bound]] = {}

    def inside(self, index: Expr, extent: Expr) -> bool:
        """Whether 0 <= index < extent follows."""
        if isinstance(index, Apply) and index.op.name == "floordiv" and affine_of(index) is None:
            whole, divisor = index.args  # 0 <= x // y < n where 0 <= x < n y
            ways: list[Expr] = [apply("mul", divisor, extent), *([] if type(extent) is Const else [apply("mul", extent, divisor)])]
            products = dict.fromkeys(ways)
            return self.scope.interval(divisor)[0] > 0 and any(self.inside(whole, limit) for limit in products)
        below = dict.fromkeys([*self.bounds(index, False), self.itself(index)])
        return self._one_is_natural(below) and self.is_less(index, extent)

    def _one_is_natural(self, bounds: Collection[Bound]) -> bool:
        """Whether the forms of one bound are never negative: by ranges alone, or else by all that is known."""
        for bound in bounds:
            for form in bound:
                if not self._is_above(form, None):
                    break
            else:
                return True
        return any(all(self.is_natural(form, self.loops) for form in bound) for bound in bounds)

    def is_less(self, left: Expr, right: Expr, by: int = 1) -> bool:
        """Whether left + by <= right follows."""
        if self.scope.interval(left)[1] + by <= self.scope.interval(right)[0]:
            return True
        below = dict.fromkeys([*self.bounds(right, False), self.itself(right)])
        above = dict.fromkeys([*self.bounds(left, True), self.itself(left)])
        return self._one_is_natural(
            dict.fromkeys(tuple(dict.fromkeys(a - b - by for a in low for b in high)) for high in above for low in below)
        )

    def itself(self, expr: Expr) -> Bound:
        """An integer by names for what is not affine in it: conditions may speak of these."""
        found = affine_of(expr, self.names.opaque)
        assert found is not None
        return (found,)

    def is_natural(self, form: Affine, loops: tuple[Fact, ...]) -> bool:
        """Whether a form is never negative; `loops` are those whose indices may be replaced, the innermost first."""
        take(STEPS)
        if self._is_above(form, None) or self._is_above_in_parts(form):
            return True
        if not form.terms:
            return False
        names = form.names()
        for held, own in self.conditions:
            if own.isdisjoint(names):
                continue
            if self._is_above(form, held):
                return True
            if held.has_division():
                left = form - held
                if self._is_above_in_parts(left) or (form.has_division() and not left.has_division() and self._is_above_in_loops(left)):
                    return True
        for at, fact in enumerate(loops):
            assert fact.axis is not None
            if fact.axis.index in names:
                found = self.without(form, fact.axis)
                return any(all(self.is_natural(other, loops[at + 1 :]) for other in bound) for bound in found)
        return False

    def _is_above_in_loops(self, form: Affine) -> bool:
        """Whether a form is not negative by the bounds of loops alone."""
        take(STEPS)
        inner = [fact for fact in self.loops if fact.axis is not None and fact.axis.index in form.names()]
        return any(all(self._is_above(one, None) for one in bound) for bound in self.least([(form,)], inner))

    def _is_above(self, form: Affine, held: Affine | None) -> bool:
        """Whether a form, or what it is more than another one, is not negative by the ranges of its names."""
        total, terms = form.constant, form.terms
        if held is not None:  # the difference, of which nothing but its least value is needed
            total -= held.constant
            factors = dict(terms)
            for atom, factor in held.terms:
                factors[atom] = factors.get(atom, 0) - factor
            terms = tuple(factors.items())
        for atom, factor in terms:
            if type(atom) is FloorDiv and factor and factor % atom.denominator == 0:  # a remainder perhaps
                return self.interval(form if held is None else form - held)[0] >= 0
        for atom, factor in terms:
            if factor:
                low, high = self._range_of(atom)
                end = low if factor > 0 else high
                if end is None:
                    return False
                total += factor * end
        return total >= 0

    def _is_above_in_parts(self, form: Affine) -> bool:
        """Whether a form with quotients is not negative: so many times it, that each is what it divides less a remainder, it is above -1.

        16 * ((n + 45) // 48) - n // 3  is, three times,  45 - (n + 45) % 48 + n % 3,  which is -2 or more.
        """
        whole = 1
        for atom, factor in form.terms:
            if isinstance(atom, FloorDiv):
                whole = math.lcm(whole, atom.denominator // math.gcd(atom.denominator, factor))
        if whole == 1:
            return False
        rest, least = Affine.of(form.constant * whole), 0
        for atom, factor in form.terms:
            if isinstance(atom, FloorDiv):
                count = factor * whole // atom.denominator
                rest += atom.numerator * count
                least -= max(count, 0) * (atom.denominator - 1)
            else:
                rest += Affine.of(atom) * (factor * whole)
        return self.interval(rest)[0] + least > -whole

    def _range_of(self, atom: Atom) -> tuple[int | None, int | None]:
        if isinstance(atom, str):
            found = self._box.get(atom)
            if found is None:
                low, high = self.scope.interval(self._hidden(atom) or (Size(atom) if atom in self.sizes else Index(atom)))
                found = self._box[atom] = None if math.isinf(low) else int(low), None if math.isinf(high) else int(high)
            return found
        found = self._quotients.get(atom)
        if found is None:
            for name in atom.numerator.names():
                self._range_of(name)
            least, most = atom.numerator.interval(self._box)
            by = atom.denominator
            found = self._quotients[atom] = None if least is None else least // by, None if most is None else most // by
        return found

    @cached_property
    def conditions(self) -> list[tuple[Affine, frozenset[str]]]:
        """Forms that are not negative, by the conditions that hold, with their names."""
        found = (self.names.difference(fact.condition) for fact in self.scope.facts if fact.condition is not None)
        held = [pair for pair in found if pair is not None]
        for form, names in list(held):  # e // 3 >= n // 3 is e - e % 3 >= 3 * (n // 3), of which e >= 3 * (n // 3) follows
            by = {atom.denominator for atom in form.atoms() if isinstance(atom, FloorDiv)}
            if len(by) == 1:
                held.append((form * by.pop(), names))
        return held

    def without(self, form: Affine, axis: Axis) -> list[Bound]:
        """Bounds from below of a form that do not mention a loop's index."""
        factor = form.coefficient(axis.index)
        rest = form - Affine.of(axis.index) * factor
        if axis.index in rest.names():
            return []
        if factor > 0:
            return [tuple(rest + end * factor for end in bound) for bound in self.bounds(axis.start, False)]
        return [tuple(rest + (end - 1) * factor for end in bound) for bound in self.bounds(axis.stop, True)]

    def least(self, bounds: Iterable[Bound], loops: Iterable[Fact]) -> list[Bound]:
        """Bounds from below that mention no index of some loops, which are replaced in this order, of such bounds."""
        found = list(bounds)
        for fact in loops:
            assert fact.axis is not None
            each = [[self.without(form, fact.axis) if fact.axis.index in form.names() else [(form,)] for form in bound] for bound in found]
            chosen = (parts for options in each if math.prod(map(len, options)) <= MOST for parts in itertools.product(*options))
            found = [tuple(dict.fromkeys(form for part in parts for form in part)) for parts in chosen][:MOST]
        return found

    def interval(self, form: Affine) -> Interval:
        """The values of a form, by the ranges of its names."""
        modulos: list[tuple[Affine, int, int]] = []
        if form.has_division():
            form, modulos = split_modulos(form)
        for name in form.names():
            self._range_of(name)
        least, most = form.interval(self._box)
        below = sum(min(0, count * (divisor - 1)) for _, divisor, count in modulos)
        above = sum(max(0, count * (divisor - 1)) for _, divisor, count in modulos)
        return -math.inf if least is None else least + below, math.inf if most is None else most + above

    def _hidden(self, name: str) -> Expr | None:
        return self.names.opaque.expressions.get(name) if name.startswith("?") else None

    def bounds(self, expr: Expr, above: bool) -> list[Bound]:
        """Bounds of an integer from above, or from below."""
        found = self._bounds.get((expr, above))
        if found is None:
            found = self._bounds[expr, above] = self._made(expr, above)
        return found

    def _made(self, expr: Expr, above: bool) -> list[Bound]:
        form = affine_of(expr)
        if form is not None:
            return [(form,)]
        found = self._of_operation(expr, above) if isinstance(expr, Apply) and expr.dtype is dtypes.int64 else []
        end = self.scope.interval(expr)[above]
        ends = [int(end)] if not math.isinf(end) else []
        ends += [bound[0].constant for bound in found if len(bound) == 1 and bound[0].is_constant]
        best = [(Affine.of(min(ends) if above else max(ends)),)] if ends else []  # of numbers the best says all
        rest = (bound for bound in found if len(bound) <= MOST and not (len(bound) == 1 and bound[0].is_constant))
        return list(dict.fromkeys([*best, *rest]))[:MOST]

    def _of_operation(self, expr: Apply, above: bool) -> list[Bound]:
        name, args = expr.op.name, expr.args
        if name == "neg":
            return [tuple(-form for form in bound) for bound in self.bounds(args[0], not above)]
        if name == "add":
            return _sums(self.bounds(args[0], above), self.bounds(args[1], above))
        if name == "sub":
            return _sums(self.bounds(args[0], above), [tuple(-form for form in bound) for bound in self.bounds(args[1], not above)])
        if name in ("mul", "floordiv") and isinstance(args[1], Const):
            factor = integer(args[1])
            if name == "mul":
                return [tuple(form * factor for form in bound) for bound in self.bounds(args[0], above == (factor >= 0))]
            return [tuple(form // factor for form in bound) for bound in self.bounds(args[0], above)] if factor > 0 else []
        if name == "mul":
            return [self.itself(expr)]
        if name == "mod" and (least := self.scope.interval(args[1])[0]) >= 0:  # a zero divisor gives 0
            ends = self.bounds(args[1], True) if above else [(Affine.of(int(least > 0)),)]
            return [*(tuple(form - int(least > 0) for form in bound) for bound in ends), self.itself(expr)]
        if name in ("minimum", "maximum", "where"):
            first, second = self.bounds(args[-2], above), self.bounds(args[-1], above)
            if name == ("minimum" if above else "maximum"):
                return [*self.names.half(args[0], args[1], above), *first, *second]
            return [tuple(dict.fromkeys((*a, *b))) for a in first for b in second]
        return []


def _sums(first: Iterable[Bound], second: Iterable[Bound]) -> list[Bound]:
    second = list(second)
    return [tuple(dict.fromkeys(a + b for a in one for b in other)) for one in first for other in second]


def _half(first: Expr, second: Expr, above: bool) -> list[Bound]:
    """Half the sum of two integers, where what is not affine in them cancels: the lesser is no more, the greater no less."""
    opaque = Opaque()
    one, other = affine_of(first, opaque), affine_of(second, opaque)
    if not opaque.names and (one is None or other is None or (one + other).terms):
        return []
    assert one is not None and other is not None
    total = one + other
    if any(name in opaque.names.values() for name in total.names()):
        return []
    return [(total // 2 if above else (total + 1) // 2,)]


def _difference(condition: Expr, opaque: Opaque) -> Affine | None:
    if not isinstance(condition, Apply) or condition.op.name not in ("lt", "le", "gt", "ge") or condition.args[0].dtype is not dtypes.int64:
        return None
    left, right = affine_of(condition.args[0], opaque), affine_of(condition.args[1], opaque)
    assert left is not None and right is not None
    more = right - left if condition.op.name in ("lt", "le") else left - right
    return more - 1 if condition.op.name in ("lt", "gt") else more
