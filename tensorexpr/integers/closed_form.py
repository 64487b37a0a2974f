"""The number of points of a domain as a formula of its sizes.

Variables are summed away one after the other, as Pugh does it ("Counting solutions to Presburger formulas", PLDI 1994): a
variable between one lower and one upper bound is a sum of powers, which has a closed form (Faulhaber); where it has several
bounds, the cases in which each is the tightest are disjoint domains. Groups of variables that no constraint links are
counted alone and multiply. A floor division over the variables is one more variable, which the others determine; where
the bound of a variable is a quotient, the variables in it are split into their residue classes, so that floor divisions
are left over sizes alone. The last variable of a group is bounded by sizes only, and the tightest of its bounds is a minimum
or maximum in the formula: no case distinction is needed for an empty range. What is implied by the other constraints
(exactly, on the integers) is dropped before each step; this decides how short the formula is.

The number of steps is limited, so a formula is found quickly or not at all.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import reduce
from math import gcd, lcm

from tensorexpr.integers.counting.polynomial import Extreme, Polynomial, extreme
from tensorexpr.integers.forms.affine import Affine, FloorDiv
from tensorexpr.integers.forms.constraint import Constraint, ge
from tensorexpr.integers.sets.domain import Domain
from tensorexpr.integers.solving.effort import DomainTooComplex

MOST_STEPS = 200
"""Variables that are summed away, in all cases together."""
MOST_CLASSES = 36
"""Residue classes that one step may make."""
MOST_VALUES = 8
"""Values of a variable that are gone through one by one where a sum would need more than one case."""
MOST_WIDENED = 8


class _NoFormulaError(Exception):
    """No closed form within the limits, or the number is infinite."""


def closed_form(domain: Domain, known: Sequence[Constraint] = ()) -> Polynomial | None:
    """The number of points as a formula of the sizes, valid where `known` (constraints on sizes) holds; None where none is found.

    >>> triangle = Domain(["i", "j"], [ge("i", 0), ge("j", "i"), ge("n", Affine.of("j") + 1)], ["n"])
    >>> closed_form(triangle, [ge("n", 0)]).evaluate({"n": 10})
    55
    """
    if domain.is_empty():
        return Polynomial()
    try:
        return tidied(_Counter(domain, known).count())
    except (_NoFormulaError, DomainTooComplex):
        return None


class _Counter:
    def __init__(self, domain: Domain, known: Sequence[Constraint]) -> None:
        self.sizes = domain.sizes
        self.known = Domain((), known, domain.sizes)
        self.steps = 0
        self.variables = list(domain.dims)
        self.divisions: dict[FloorDiv, str] = {}
        self.extra: list[Constraint] = []
        self.constraints = [Constraint(self.without_divisions(one.expr), one.kind) for one in domain.constraints] + self.extra

    def without_divisions(self, expr: Affine) -> Affine:
        """Floor divisions over variables replaced by variables of their own."""
        terms: dict[str | FloorDiv, int] = {}
        for atom, factor in expr.terms:
            if isinstance(atom, FloorDiv) and not set(atom.numerator.names()).isdisjoint(self.variables):
                if atom not in self.divisions:
                    above = self.without_divisions(atom.numerator)
                    name = f"{len(self.divisions)}//"
                    rest = above - Affine.of(name) * atom.denominator
                    self.extra += [ge(rest, 0), ge(atom.denominator - 1, rest)]
                    self.divisions[atom] = name
                    self.variables.append(name)
                atom = self.divisions[atom]
            terms[atom] = terms.get(atom, 0) + factor
        return Affine(terms, expr.constant)

    def count(self) -> Polynomial:
        """The number of points."""
        return self.points(tuple(self.variables), self.constraints)

    # -- sets ----------------------------------------------------------------------------------------------------------

    def domain(self, variables: Sequence[str], constraints: Sequence[Constraint]) -> Domain:
        """The points, where what is known of the sizes holds."""
        return Domain(variables, [*constraints, *self.known.constraints], self.sizes)

    def tightened(self, variables: Sequence[str], constraints: Sequence[Constraint]) -> list[Constraint] | None:
        """The constraints without those that the others and what is known imply; None where there is no point."""
        kept = list(self.domain(variables, constraints).constraints)
        if self.domain(variables, kept).is_empty():
            return None
        # Those with large factors first: the simple ones are the ones to keep.
        for one in sorted(kept, key=lambda c: (-max((abs(f) for _, f in c.expr.terms), default=0), -len(c.expr.terms), c.sort_key())):
            if not one.is_equality:
                others = [other for other in kept if other is not one]
                if self.domain(variables, others).implies(one):
                    kept = others
        return [one for one in kept if not set(one.names()).isdisjoint(variables) or not self.known.implies(one)]

    # -- sums ----------------------------------------------------------------------------------------------------------

    def points(self, variables: tuple[str, ...], constraints: Sequence[Constraint]) -> Polynomial:
        """The number of points: a product over groups of variables that no constraint links."""
        kept = self.tightened(variables, constraints)
        if kept is None:
            return Polynomial()
        variables, kept = self.without_equalities(variables, kept)
        result = Polynomial.of(1)
        rest = list(kept)
        for group in _groups(variables, kept):
            own = [one for one in rest if not set(one.names()).isdisjoint(group)]
            rest = [one for one in rest if one not in own]
            result = result * self.summed(group, own, Polynomial.of(1))
        for one in rest:  # on sizes alone: 1 where it holds, else 0
            result = result * Polynomial.of(one)
        return result

    def without_equalities(self, variables: tuple[str, ...], constraints: list[Constraint]) -> tuple[tuple[str, ...], list[Constraint]]:
        """Equalities used up: each gives the value of a variable."""
        while True:
            found = next(
                ((one, name) for one in constraints if one.is_equality for name in variables if abs(one.expr.coefficient(name)) == 1), None
            )
            if found is None:
                if any(one.is_equality and not set(one.names()).isdisjoint(variables) for one in constraints):
                    raise _NoFormulaError
                return variables, constraints
            equality, name = found
            factor = equality.expr.coefficient(name)
            value = (equality.expr - Affine({name: factor})) * -factor
            variables = tuple(other for other in variables if other != name)
            constraints = [one.substitute({name: value}) for one in constraints if one is not equality]
            kept = self.tightened(variables, constraints)
            constraints = [Constraint(-1, ">=")] if kept is None else kept

    def summed(self, variables: tuple[str, ...], constraints: Sequence[Constraint], summand: Polynomial) -> Polynomial:
        """The sum of a polynomial over the points."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise _NoFormulaError
        kept = self.tightened(variables, constraints)
        if kept is None:
            return Polynomial()
        guard = Polynomial.of(1)
        for one in kept:
            if set(one.names()).isdisjoint(variables):
                guard = guard * Polynomial.of(one)
            elif one.is_equality:
                return guard * self.at_equality(variables, kept, summand)
        kept = [one for one in kept if not set(one.names()).isdisjoint(variables)]
        if not variables:
            return guard * summand
        if len(variables) == 1:
            return guard * self.last(variables[0], kept, summand)
        name = min(variables, key=lambda v: self.effort(v, variables, kept))
        classes, cases, _ = self.effort(name, variables, kept)
        narrow = _narrow(variables, kept) if classes > 1 or cases > 1 else None
        if narrow is not None:
            return guard * self.by_values(*narrow, variables, kept, summand)
        if classes > 1:
            return guard * self.by_classes(name, variables, kept, summand)
        return guard * self.by_bounds(name, variables, kept, summand)

    def by_values(
        self, name: str, values: list[Affine], variables: tuple[str, ...], constraints: Sequence[Constraint], summand: Polynomial
    ) -> Polynomial:
        """The sum over the few values that one variable can have for each of the others."""
        rest = tuple(other for other in variables if other != name)
        result = Polynomial()
        for value in values:
            case = [one.substitute({name: value}) for one in constraints]
            result = result + self.summed(rest, case, summand.substitute(name, Polynomial.of(value)))
        return result

    def at_equality(self, variables: tuple[str, ...], constraints: list[Constraint], summand: Polynomial) -> Polynomial:
        """The sum where a case has made two bounds meet: the variable they bound has one value."""
        for one in constraints:
            for name in variables if one.is_equality else ():
                factor = one.expr.coefficient(name)
                if abs(factor) == 1:
                    value = (one.expr - Affine({name: factor})) * -factor
                    rest = [other.substitute({name: value}) for other in constraints if other is not one]
                    return self.summed(tuple(v for v in variables if v != name), rest, summand.substitute(name, Polynomial.of(value)))
        raise _NoFormulaError

    @staticmethod
    def effort(name: str, variables: tuple[str, ...], constraints: Sequence[Constraint]) -> tuple[int, int, int]:
        """Residue classes and cases that summing a variable away would make, and the sum of its factors."""
        classes, below, above, factors = 1, 0, 0, 0
        for others in _classes(name, variables, constraints).values():
            classes *= others
        for one in constraints:
            factor = one.expr.coefficient(name)
            below, above, factors = below + (factor > 0), above + (factor < 0), factors + abs(factor)
        return classes, below * above, factors

    def by_classes(self, name: str, variables: tuple[str, ...], constraints: Sequence[Constraint], summand: Polynomial) -> Polynomial:
        """The sum over the residue classes of the other variables in which all bounds of one are whole."""
        classes = _classes(name, variables, constraints)
        if reduce(lambda a, b: a * b, classes.values()) > MOST_CLASSES:
            raise _NoFormulaError
        result = Polynomial()
        for residues in itertools.product(*(range(modulus) for modulus in classes.values())):
            values = {other: Affine({other: modulus}, r) for (other, modulus), r in zip(classes.items(), residues, strict=True)}
            inner = summand
            for other, value in values.items():
                inner = inner.substitute(other, Polynomial.of(value))
            own = self.tightened(variables, [one.substitute(values) for one in constraints])
            if own is not None:
                result = result + self.by_bounds(name, variables, own, inner)
        return result

    def by_bounds(self, name: str, variables: tuple[str, ...], constraints: Sequence[Constraint], summand: Polynomial) -> Polynomial:
        """The sum over one variable, for each pair of a lower and an upper bound where these are the tightest."""
        if any(one.is_equality for one in constraints):
            return self.summed(variables, constraints, summand)
        starts, stops, others = _bounds(name, constraints)
        rest = tuple(other for other in variables if other != name)
        result = Polynomial()
        for (i, start), (j, stop) in itertools.product(enumerate(starts), enumerate(stops)):
            case = list(others)
            case += [ge(start, other + (1 if k < i else 0)) for k, other in enumerate(starts) if k != i]
            case += [ge(other - (1 if k < j else 0), stop) for k, other in enumerate(stops) if k != j]
            if not self.domain(rest, case).implies(ge(stop, start)):  # an empty sum is 0 by itself
                case.append(ge(stop, start + 1))
            result = result + self.summed(rest, case, summand.summed(name, Polynomial.of(start), Polynomial.of(stop)))
        return result

    def last(self, name: str, constraints: Sequence[Constraint], summand: Polynomial) -> Polynomial:
        """The sum over a variable that sizes alone bound."""
        starts, stops, _ = _bounds(name, constraints)
        starts, stops = self.greatest(starts), [-stop for stop in self.greatest([-stop for stop in stops])]
        if len(starts) == len(stops) == 1:
            return self.interval(name, starts[0], stops[0], summand)
        start = extreme("max", starts)
        if all(self.known.implies(ge(upper, lower)) for lower in starts for upper in stops):
            return summand.summed(name, start, extreme("min", stops))
        if len(stops) == 1:  # never less than the start
            return summand.summed(name, start, extreme("max", self.greatest([*stops, *starts])))
        return summand.summed(name, start, extreme("max", [Extreme("min", tuple(stops)), *starts]))

    def interval(self, name: str, start: Affine, stop: Affine, summand: Polynomial) -> Polynomial:
        """The sum over one interval. Where it may be empty by more than none, it is widened by points at which the summand is zero."""
        for _ in range(MOST_WIDENED):
            if self.known.implies(ge(stop, start)):
                return summand.summed(name, Polynomial.of(start), Polynomial.of(stop))
            if not summand.substitute(name, Polynomial.of(start - 1)).terms:
                start = start - 1
            elif not summand.substitute(name, Polynomial.of(stop)).terms:
                stop = stop + 1
            else:
                break
        if name not in summand.names():
            return summand * extreme("max", [stop - start, Affine.of(0)])
        return summand.summed(name, Polynomial.of(start), extreme("max", [stop, start]))

    def greatest(self, items: Sequence[Affine]) -> list[Affine]:
        """Of expressions of sizes those that may be the greatest."""
        kept = list(dict.fromkeys(items))
        for one in list(kept):
            if any(other is not one and self.known.implies(ge(other, one)) for other in kept):
                kept.remove(one)
        return kept


def tidied(value: Polynomial) -> Polynomial:
    """min(a, b) + max(a, b) is a + b: the formula with fewer terms."""
    extremes = [atom for atom in value.atoms() if isinstance(atom, Extreme) and len(atom.items) == 2]
    for one in extremes:
        a, b = one.items
        if isinstance(a, Affine) and isinstance(b, Affine):
            opposite = Polynomial.of(a + b) - extreme("min" if one.kind == "max" else "max", one.items)
            other = value.substitute(one, opposite)
            if len(other.terms) < len(value.terms):
                value = other
    return value


def _groups(variables: tuple[str, ...], constraints: Sequence[Constraint]) -> list[tuple[str, ...]]:
    """Variables grouped so that no constraint links two groups."""
    groups: list[set[str]] = [{name} for name in variables]
    for one in constraints:
        own = set(one.names())
        linked = [group for group in groups if group & own]
        if len(linked) > 1:
            groups = [group for group in groups if not group & own] + [set().union(*linked)]
    ordered = [tuple(name for name in variables if name in group) for group in groups]
    return sorted(ordered, key=lambda group: variables.index(group[0]))


def _narrow(variables: tuple[str, ...], constraints: Sequence[Constraint]) -> tuple[str, list[Affine]] | None:
    """A variable and the few values between two parallel bounds, as `-1 <= p - 2*o <= 1` leaves to p; the narrowest there is."""
    found: tuple[int, str, list[Affine]] | None = None
    for one, other in itertools.combinations(constraints, 2):
        total = one.expr + other.expr
        if one.is_equality or other.is_equality or total.terms or total.constant >= MOST_VALUES:
            continue
        for name in variables:
            factor = one.expr.coefficient(name)
            if abs(factor) == 1 and (found is None or total.constant < found[0]):
                rest = (one.expr - Affine({name: factor})) * -factor
                found = total.constant, name, [rest + factor * value for value in range(total.constant + 1)]
    return None if found is None else found[1:]


def _classes(name: str, variables: tuple[str, ...], constraints: Sequence[Constraint]) -> dict[str, int]:
    """The moduli by which other variables are split, so that the bounds of one are affine in them."""
    moduli: dict[str, int] = {}
    for one in constraints:
        factor = abs(one.expr.coefficient(name))
        if factor > 1:
            for other in variables:
                own = one.expr.coefficient(other)
                if other != name and own % factor:
                    moduli[other] = lcm(moduli.get(other, 1), factor // gcd(factor, own))
    return moduli


def _bounds(name: str, constraints: Sequence[Constraint]) -> tuple[list[Affine], list[Affine], list[Constraint]]:
    """start <= name < stop for all starts and stops, and the constraints without the name."""
    starts, stops, others = [], [], []
    for one in constraints:
        factor = one.expr.coefficient(name)
        rest = one.expr - Affine({name: factor})
        if factor == 0:
            others.append(one)
        elif one.is_equality:
            raise _NoFormulaError
        elif factor > 0:
            starts.append(-(rest // factor))
        else:
            stops.append(rest // -factor + 1)
    if not starts or not stops:
        raise _NoFormulaError
    return starts, stops, others
