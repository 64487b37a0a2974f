"""Proofs about products and quotients of indices and symbolic sizes: `x[f // m, f % m]` for f < n*m, `y[i*m + j]`.

Every integer becomes a polynomial in indices, sizes and names for quotients. What is known is a list of polynomials that
are not negative: the loops, the guards, and of a quotient q = e // d, with d at least 1, that q*d <= e < q*d + d. To prove
that a polynomial is not negative its opposite is added; the list is multiplied by names that are not negative where that
gives monomials that occur already; and each monomial is then taken for a variable of its own. If the linear system has no
rational solution, there is no counterexample. The method never claims what is false, and may fail to prove what is true.

Source: D. Handelman, Representing polynomials by positive linear functions on compact convex polyhedra (1988).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from tensorexpr import dtypes
from tensorexpr.integers.solving.simplex import Polyhedron
from tensorexpr.ir import Apply, Axis, Cast, Const, Expr, Index, Size, apply, conjuncts

Monomial = tuple[str, ...]
Poly = dict[Monomial, int]
"""Coefficients by monomial; a monomial is its names, sorted, and `()` the constant one."""

MAX_FACTS = 160
MAX_DEGREE = 4


def plus(a: Poly, b: Poly, factor: int = 1) -> Poly:
    """a + factor * b."""
    result = dict(a)
    for monomial, coefficient in b.items():
        result[monomial] = result.get(monomial, 0) + factor * coefficient
    return {monomial: coefficient for monomial, coefficient in result.items() if coefficient}


def times(a: Poly, b: Poly) -> Poly:
    """a * b."""
    result: Poly = {}
    for first, x in a.items():
        for second, y in b.items():
            monomial = tuple(sorted(first + second))
            result[monomial] = result.get(monomial, 0) + x * y
    return {monomial: coefficient for monomial, coefficient in result.items() if coefficient}


def exact_quotient(a: Poly, b: Poly) -> Poly | None:
    """The polynomial c with a = b * c, None where there is none."""
    lead = max(b, key=_order, default=None)
    quotient: Poly = {}
    while a:
        top = max(a, key=_order)
        others = _without(top, lead) if lead is not None else None
        if lead is None or others is None or a[top] % b[lead]:
            return None
        term = {others: a[top] // b[lead]}
        quotient = plus(quotient, term)
        a = plus(a, times(term, b), -1)
    return quotient


def _order(monomial: Monomial) -> tuple[int, Monomial]:
    """By degree, then by names: products keep it, and nothing descends forever."""
    return len(monomial), monomial


def _without(monomial: Monomial, factor: Monomial) -> Monomial | None:
    left = list(monomial)
    for name in factor:
        if name not in left:
            return None
        left.remove(name)
    return tuple(left)


def named(name: str) -> Poly:
    """One name."""
    return {(name,): 1}


def number(value: int) -> Poly:
    """A constant."""
    return {(): value} if value else {}


class Polynomials:
    """What is known about indices and sizes under some loops and guards; asks about expressions over them.

    `interval` bounds what is no polynomial.
    """

    def __init__(self, axes: tuple[Axis, ...], guards: tuple[Expr, ...], interval: Callable[[Expr], tuple[float, float]]) -> None:
        self._interval = interval
        self._names: dict[Expr, str] = {}
        self._facts: list[Poly] = []
        self._signs: dict[str, None] = {}  # names that are not negative
        self._answers: dict[tuple[tuple[Monomial, int], ...], bool] = {}
        self._answered = (0, 0)  # the numbers of facts and signs that they are about
        for axis in axes:
            name = named(axis.index)
            start, stop = self.poly(axis.start), self.poly(axis.stop)
            self._facts += [plus(name, start, -1), plus(plus(stop, name, -1), number(-1))]
            if not start or (set(start) == {()} and start[()] >= 0):
                self._signs.setdefault(axis.index)
        for guard in guards:
            for part in conjuncts(guard):
                self._facts += self._comparison(part)

    def within(self, index: Expr, extent: Expr) -> bool:
        """Whether 0 <= index < extent is proved."""
        value, limit = self.poly(index), self.poly(extent)
        return self.proves(value) and self.proves(plus(plus(limit, value, -1), number(-1)))

    def holds(self, condition: Expr) -> bool:
        """Whether a comparison is proved."""
        facts = self._comparison(condition)
        return bool(facts) and all(self.proves(fact) for fact in facts)

    def _comparison(self, condition: Expr) -> list[Poly]:
        if not isinstance(condition, Apply) or condition.args[0].dtype is not dtypes.int64:
            return []
        name = condition.op.name
        if name not in ("lt", "le", "gt", "ge", "eq"):
            return []
        left, right = (self.poly(arg) for arg in condition.args)
        if name == "eq":
            return [plus(left, right, -1), plus(right, left, -1)]
        low, high = (left, right) if name in ("lt", "le") else (right, left)
        return [plus(plus(high, low, -1), number(-1 if name in ("lt", "gt") else 0))]

    # -------------------------------------------------------------------------------------------------- polynomials

    def poly(self, expr: Expr) -> Poly:
        """The polynomial of an integer expression; what has none gets a name, with what is known of it."""
        match expr:
            case Const():
                return number(int(expr.value))
            case Index():
                return named(expr.name)
            case Size():
                self._signs.setdefault(expr.name)
                return named(expr.name)
            case Cast() if expr.dtype is dtypes.int64 and expr.arg.dtype is dtypes.int64:
                return self.poly(expr.arg)
            case Apply() if expr.dtype is dtypes.int64 and expr.op.name in ("add", "sub", "mul"):
                left, right = (self.poly(arg) for arg in expr.args)
                if expr.op.name == "mul":
                    product = times(left, right)
                    return product if all(len(monomial) <= MAX_DEGREE for monomial in product) else self._named(expr)
                return plus(left, right, 1 if expr.op.name == "add" else -1)
            case Apply() if expr.dtype is dtypes.int64 and expr.op.name == "neg":
                return plus({}, self.poly(expr.args[0]), -1)
            case Apply() if expr.dtype is dtypes.int64 and expr.op.name in ("floordiv", "mod"):
                return self._quotient(expr)
        return self._named(expr)

    def _quotient(self, expr: Apply) -> Poly:
        numerator, divisor = (self.poly(arg) for arg in expr.args)
        if not self.proves(plus(divisor, number(-1))):  # a zero divisor gives 0, which is no quotient
            return self._named(expr)
        key = apply("floordiv", *expr.args)
        known = key in self._names
        quotient = named(self._name(key))
        rest = plus(numerator, times(quotient, divisor), -1)
        if not known:
            self._facts += [rest, plus(plus(divisor, rest, -1), number(-1))]
            if self.proves(numerator):
                self._facts.append(quotient)
                self._signs.setdefault(self._names[key])
        return rest if expr.op.name == "mod" else quotient

    def _named(self, expr: Expr) -> Poly:
        known = expr in self._names
        value = named(self._name(expr))
        if known:
            return value
        low, high = self._interval(expr)
        if not math.isinf(low):
            self._facts.append(plus(value, number(-int(low))))
        if not math.isinf(high):
            self._facts.append(plus(number(int(high)), value, -1))
        if isinstance(expr, Apply) and expr.dtype is dtypes.int64 and expr.op.name in ("minimum", "maximum"):
            sides = [self.poly(arg) for arg in expr.args]
            sign = 1 if expr.op.name == "minimum" else -1
            self._facts += [plus(plus({}, side, sign), value, -sign) for side in sides]
            if expr.op.name == "minimum" and low < 0 and all(self.proves(side) for side in sides):
                self._facts.append(value)
                low = 0
        if low >= 0:
            self._signs.setdefault(self._names[expr])
        return value

    def _name(self, expr: Expr) -> str:
        return self._names.setdefault(expr, f"?{len(self._names)}")

    # ------------------------------------------------------------------------------------------------------- proofs

    def assume(self, fact: Poly, sign: str | None = None) -> None:
        """Adds that `fact` is not negative; `sign` is a name that is known not to be."""
        if fact and fact not in self._facts:
            self._facts.append(fact)
        if sign is not None:
            self._signs.setdefault(sign)

    def proves(self, goal: Poly) -> bool:
        """Whether `goal` is provably not negative."""
        if not goal or (set(goal) == {()} and goal[()] > 0):
            return True
        if all(name in self._signs for monomial in goal for name in monomial):
            if all(coefficient > 0 for coefficient in goal.values()):
                return True
            if goal.get((), 0) < 0 and all(coefficient < 0 for coefficient in goal.values()):
                return False
        state = len(self._facts), len(self._signs)
        if state != self._answered:
            self._answers, self._answered = {}, state
        key = tuple(sorted(goal.items()))
        if key not in self._answers:
            self._answers[key] = self._proves(goal)
        return self._answers[key]

    def _proves(self, goal: Poly) -> bool:
        facts: list[Poly] = [*self._facts, plus(number(-1), goal, -1), *map(named, self._signs)]
        wanted = {monomial for fact in facts for monomial in fact if len(monomial) > 1}
        seen = {tuple(sorted(fact.items())) for fact in facts}
        for fact in self._products(facts, wanted):
            key = tuple(sorted(fact.items()))
            if key not in seen:
                seen.add(key)
                facts.append(fact)
            if len(facts) >= MAX_FACTS:
                break
        columns = {monomial: at for at, monomial in enumerate(sorted({m for fact in facts for m in fact if m}), start=1)}
        rows = []
        for fact in facts:
            row = [0] * (len(columns) + 1)
            for monomial, coefficient in fact.items():
                row[columns[monomial] if monomial else 0] = coefficient
            rows.append(row)
        return not Polyhedron(rows, len(columns)).feasible

    def _products(self, facts: list[Poly], wanted: set[Monomial]) -> Iterator[Poly]:
        """The facts times names that are not negative, where a monomial comes out that occurs already."""
        factors = {part for monomial in wanted for part in _divisors(monomial) if all(name in self._signs for name in part)}
        for factor in sorted(factors, key=lambda part: (len(part), part)):
            for fact in facts:
                if any(monomial and tuple(sorted(monomial + factor)) in wanted for monomial in fact):
                    yield times(fact, {factor: 1})


def _divisors(monomial: Monomial) -> Iterator[Monomial]:
    """The proper divisors of a monomial other than 1."""
    for mask in range(1, (1 << len(monomial)) - 1):
        yield tuple(name for at, name in enumerate(monomial) if mask >> at & 1)
