"""Polynomials with rational coefficients in integer-valued atoms: what numbers of points are made of.

An atom is a name, a floor division of names (`FloorDiv`), the least or greatest of several such expressions (`Extreme`), or a
constraint on them (1 where it holds, else 0), so a polynomial here is a piecewise quasi-polynomial of its names, in closed
form. Sums of powers are Faulhaber's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cache
from math import comb

from tensorexpr.integers.forms.affine import Affine, FloorDiv
from tensorexpr.integers.forms.constraint import Constraint
from tensorexpr.records import record


@record(slots=False)
class Extreme:
    """The least ("min") or the greatest ("max") of `items`, at least two; made by `extreme`."""

    kind: str
    items: tuple[Affine | Extreme, ...]

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The value at a point."""
        return (min if self.kind == "min" else max)(item.evaluate(values) for item in self.items)

    def shifted(self, amount: int) -> Extreme:
        """`amount` added to every item."""
        return Extreme(self.kind, tuple(item.shifted(amount) for item in self.items)) if amount else self

    def names(self) -> tuple[str, ...]:
        """All names, each once."""
        return tuple(dict.fromkeys(name for item in self.items for name in item.names()))

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(map(str, self.items))})"


Atom = str | FloorDiv | Extreme | Constraint
Monomial = tuple[tuple[Atom, int], ...]
"""Atoms with their powers, in order."""


def _key(atom: Atom) -> tuple[int, str]:
    return ((str, FloorDiv, Extreme, Constraint).index(type(atom)), str(atom))


class Polynomial:
    """An immutable sum of rational multiples of monomials.

    >>> n = Polynomial.of(Affine.of("n"))
    >>> total = (n * n - n) * Fraction(1, 2)
    >>> total.evaluate({"n": 5}), total == Polynomial.of("n").power_sum_below(1)
    (10, True)
    """

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[Monomial, Fraction] | None = None) -> None:
        kept = {monomial: factor for monomial, factor in (terms or {}).items() if factor}
        self.terms: dict[Monomial, Fraction] = dict(sorted(kept.items(), key=lambda item: [(_key(atom), p) for atom, p in item[0]]))

    @classmethod
    def of(cls, value: int | str | Fraction | Affine | Extreme | Constraint | Polynomial) -> Polynomial:
        """The polynomial that is a number, an atom or an affine expression."""
        match value:
            case Polynomial():
                return value
            case Affine():
                known: dict[Monomial, Fraction] = {((atom, 1),): Fraction(factor) for atom, factor in value.terms}
                known[()] = Fraction(value.constant)
                return cls(known)
            case str() | Extreme() | Constraint():
                return cls({((value, 1),): Fraction(1)})
        return cls({(): Fraction(value)})

    @property
    def constant(self) -> Fraction | None:
        """The value of a polynomial without atoms, None for any other."""
        return None if any(self.terms) else self.terms.get((), Fraction(0))

    def atoms(self) -> tuple[Atom, ...]:
        """The atoms, each once."""
        return tuple(dict.fromkeys(atom for monomial in self.terms for atom, _ in monomial))

    def names(self) -> tuple[str, ...]:
        """All names, those inside of atoms included."""
        return tuple(dict.fromkeys(name for atom in self.atoms() for name in names_in(atom)))

    def __add__(self, other: Polynomial) -> Polynomial:
        terms = dict(self.terms)
        for monomial, factor in other.terms.items():
            terms[monomial] = terms.get(monomial, Fraction(0)) + factor
        return Polynomial(terms)

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + other * -1

    def __mul__(self, other: Polynomial | int | Fraction) -> Polynomial:
        if not isinstance(other, Polynomial):
            return Polynomial({monomial: factor * other for monomial, factor in self.terms.items()})
        terms: dict[Monomial, Fraction] = {}
        for left, a in self.terms.items():
            for right, b in other.terms.items():
                powers = dict(left)
                for atom, power in right:
                    powers[atom] = powers.get(atom, 0) + power
                monomial = tuple(sorted(powers.items(), key=lambda item: _key(item[0])))
                terms[monomial] = terms.get(monomial, Fraction(0)) + a * b
        return Polynomial(terms)

    def __pow__(self, exponent: int) -> Polynomial:
        result = Polynomial.of(1)
        for _ in range(exponent):
            result = result * self
        return result

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(tuple(self.terms.items()))

    def coefficients(self, name: Atom) -> list[Polynomial]:
        """The polynomials that stand before the powers 0, 1, ... of an atom."""
        found: dict[int, dict[Monomial, Fraction]] = {}
        for monomial, factor in self.terms.items():
            power = dict(monomial).get(name, 0)
            found.setdefault(power, {})[tuple(item for item in monomial if item[0] != name)] = factor
        return [Polynomial(found.get(power)) for power in range(max(found, default=0) + 1)]

    def substitute(self, name: Atom, value: Polynomial) -> Polynomial:
        """An atom (not where it stands inside another) replaced by a polynomial."""
        result = Polynomial()
        for power, coefficient in enumerate(self.coefficients(name)):
            result = result + coefficient * value**power
        return result

    def power_sum_below(self, power: int) -> Polynomial:
        """The sum of x^power over 0 <= x < self (by Faulhaber; with F(n) - F(n - 1) = (n - 1)^power it holds for all integers)."""
        return _faulhaber(power).substitute("n", self)

    def summed(self, name: str, start: Polynomial, stop: Polynomial) -> Polynomial:
        """The sum over start <= name < stop, where stop is at least start."""
        result = Polynomial()
        for power, coefficient in enumerate(self.coefficients(name)):
            result = result + coefficient * (stop.power_sum_below(power) - start.power_sum_below(power))
        return result

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The value at a point, which is an integer."""
        total = Fraction(0)
        for monomial, factor in self.terms.items():
            for atom, power in monomial:
                factor *= _value(atom, values) ** power
            total += factor
        assert total.denominator == 1, "a number of points is whole"
        return int(total)

    def __repr__(self) -> str:
        return f"Polynomial({self.terms})"


def extreme(kind: str, items: Iterable[Affine | Extreme]) -> Polynomial:
    """The least or greatest of expressions as a polynomial: a constant that all have in common stands in front of it.

    >>> least = extreme("min", [Affine.of("n") - 1, Affine.of("m") - 1])
    >>> print(*least.atoms(), least.evaluate({"n": 4, "m": 6}))
    min(m, n) 3
    """
    found: dict[Affine | Extreme, None] = {}
    for item in items:
        found |= dict.fromkeys(item.items) if isinstance(item, Extreme) and item.kind == kind else {item: None}
    if len(found) == 1:
        return Polynomial.of(next(iter(found)))
    constants = [item.constant for item in found if isinstance(item, Affine) and not item.terms]
    offsets = [item.constant for item in found if isinstance(item, Affine)]
    amount = constants[0] if constants else min(offsets, default=0)
    shifted = sorted((item.shifted(-amount) for item in found), key=lambda item: (isinstance(item, Affine) and not item.terms, str(item)))
    return Polynomial.of(Extreme(kind, tuple(shifted))) + Polynomial.of(amount)


def names_in(atom: Atom) -> tuple[str, ...]:
    """The names that an atom is made of."""
    return (atom,) if isinstance(atom, str) else atom.numerator.names() if isinstance(atom, FloorDiv) else atom.names()


def _value(atom: Atom, values: Mapping[str, int]) -> int:
    match atom:
        case Extreme():
            return atom.evaluate(values)
        case Constraint():
            return int(atom.holds(values))
    return Affine.of(atom).evaluate(values)


@cache
def _faulhaber(power: int) -> Polynomial:
    """The sum of x^power over 0 <= x < n as a polynomial in n, from (n^(p+1) = sum of its differences) and the lower powers."""
    n = Polynomial.of("n")
    result = n ** (power + 1)
    for lower in range(power):
        result = result - _faulhaber(lower) * comb(power + 1, lower)
    return result * Fraction(1, power + 1)
