"""Quasi-affine expressions: integer combinations of names and of floor divisions by positive integers.

An `Affine` is a sum of ``int * atom`` plus an int; an atom is a name (`str`) or a `FloorDiv` of an `Affine` by a positive
int. Both are immutable, hashable and built in normal form, so that expressions equal by simple rules are equal objects:
terms are sorted, whole multiples leave a floor division (``(6*i + j)//3 = 2*i + j//3``), common factors cancel, nested
floors flatten where int64 has the numbers, and a division whose coefficients are all negative is turned around
(``-((-x)//3) = (x + 2)//3``). Modulo is not an atom: ``e % m`` *is* ``e - m*(e//m)``, and printing recognizes that form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from math import gcd, lcm
from typing import Any, SupportsIndex

from tensorexpr.errors import DefinitionError


class FloorDiv:
    """The atom ``numerator // denominator`` (rounding down), made by ``Affine // int`` only, in normal form."""

    __slots__ = ("_hash", "denominator", "key", "numerator")

    def __init__(self, numerator: Affine, denominator: int) -> None:
        self.numerator = numerator
        self.denominator = denominator
        self.key = (1, numerator.sort_key(), denominator)
        self._hash = hash((numerator, denominator))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, FloorDiv):
            return NotImplemented
        return self._hash == other._hash and self.denominator == other.denominator and self.numerator == other.numerator

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:  # made anew: hashes of names are those of one process
        return FloorDiv, (self.numerator, self.denominator)

    def __repr__(self) -> str:
        return f"FloorDiv({self.numerator!r}, {self.denominator})"

    def __str__(self) -> str:
        text = str(self.numerator)
        atomic = len(self.numerator.terms) == 1 and not self.numerator.constant and self.numerator.terms[0][1] == 1
        return f"{text}//{self.denominator}" if atomic and "%" not in text else f"({text})//{self.denominator}"


Atom = str | FloorDiv

_MOST, _MOST_NAME = 1 << 62, 1 << 47
"""Nested floors flatten where their numbers are at most the first, with names at most the second: forms become arithmetic of int64."""

Interval = tuple[int | None, int | None]
"""Least and greatest value; None where there is no bound."""


def _atom_key(atom: Atom) -> tuple[Any, ...]:
    return (0, atom) if isinstance(atom, str) else atom.key


def _term_key(term: tuple[Atom, int]) -> tuple[Any, ...]:
    return _atom_key(term[0])


class Affine:
    """An immutable sum of ``int * atom`` plus a constant, in normal form.

    >>> i, j = Affine.of("i"), Affine.of("j")
    >>> str((6 * i + j) // 3), str((7 * i + j) % 7), str(-(-i // 3))
    ('2*i + j//3', 'j % 7', '(i + 2)//3')
    >>> (i // 4 + 3) // 2 == (i + 12) // 8
    True
    """

    __slots__ = ("_hash", "_names", "constant", "terms")

    _names: tuple[str, ...]
    terms: tuple[tuple[Atom, int], ...]
    constant: int

    def __init__(self, terms: Mapping[str, int] | Mapping[Atom, int] | Iterable[tuple[Atom, int]] = (), constant: int = 0) -> None:
        merged: dict[Any, int] = {}
        pairs: Any = terms if type(terms) is list or type(terms) is tuple else terms.items() if isinstance(terms, Mapping) else terms
        for atom, coefficient in pairs:
            merged[atom] = merged.get(atom, 0) + coefficient
        self._set(merged, constant)

    def _set(self, merged: dict[Atom, int], constant: int) -> None:
        if 0 in merged.values():
            merged = {atom: factor for atom, factor in merged.items() if factor}
        if len(merged) > 1:
            kept = list(merged.items())
            try:
                kept.sort()  # names alone: in their own order, which is that of the keys
            except TypeError:
                kept.sort(key=_term_key)
            self.terms = tuple(kept)
        else:
            self.terms = tuple(merged.items())
        self.constant = constant
        self._hash = hash((self.terms, constant))

    @classmethod
    def _make(cls, merged: dict[Atom, int], constant: int) -> Affine:
        made = cls.__new__(cls)
        made._set(merged, constant)
        return made

    @classmethod
    def of(cls, value: int | str | Affine | FloorDiv) -> Affine:
        """The expression meant by an int, a name, an atom or an expression."""
        if type(value) is Affine:
            return value
        if type(value) is str:
            return _name(value)
        if type(value) is int:
            return _number(value)
        if isinstance(value, str | FloorDiv):
            return cls._make({value: 1}, 0)
        if isinstance(value, SupportsIndex) and not isinstance(value, bool):  # NumPy integers become exact Python ints
            return cls._make({}, value.__index__())
        raise DefinitionError(f"expected an int, a name or an affine expression, got {value!r}")

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def is_constant(self) -> bool:
        """True when no atom occurs."""
        return not self.terms

    def coefficient(self, atom: Atom) -> int:
        """The factor of `atom` at the top level (0 when it does not occur there)."""
        for own, factor in self.terms:
            if own == atom:
                return factor
        return 0

    def atoms(self) -> tuple[Atom, ...]:
        """The atoms of the sum, in its order."""
        return tuple(atom for atom, _ in self.terms)

    def names(self) -> tuple[str, ...]:
        """All names, those inside floor divisions included, each once, in order of first occurrence.

        >>> ((Affine.of("x") + "k") // 2 - "a").names()
        ('a', 'k', 'x')
        """
        try:
            return self._names
        except AttributeError:
            alone = [atom for atom, _ in self.terms if isinstance(atom, str)]
            self._names = tuple(alone if len(alone) == len(self.terms) else dict.fromkeys(self._walk_names()))
            return self._names

    def _walk_names(self) -> Iterator[str]:
        for atom, _ in self.terms:
            if isinstance(atom, str):
                yield atom
            else:
                yield from atom.numerator._walk_names()

    def has_division(self) -> bool:
        """True when a floor division occurs."""
        return any([type(atom) is FloorDiv for atom, _ in self.terms])

    def sort_key(self) -> tuple[Any, ...]:
        """A key that orders expressions the same way in every run."""
        return (tuple((_atom_key(atom), factor) for atom, factor in self.terms), self.constant)

    # -- arithmetic --------------------------------------------------------------------------------------------------

    def __add__(self, other: int | str | Affine) -> Affine:
        other = Affine.of(other)
        if not other.terms:
            return self.shifted(other.constant)
        merged = dict(self.terms)
        for atom, factor in other.terms:
            merged[atom] = merged.get(atom, 0) + factor
        return Affine._make(merged, self.constant + other.constant)

    __radd__ = __add__

    def shifted(self, amount: int) -> Affine:
        """``self + amount``."""
        if not amount:
            return self
        made = Affine.__new__(Affine)
        made.terms = self.terms
        made.constant = self.constant + amount
        made._hash = hash((made.terms, made.constant))
        return made

    def __neg__(self) -> Affine:
        return self * -1

    def __sub__(self, other: int | str | Affine) -> Affine:
        other = Affine.of(other)
        if not other.terms:
            return self.shifted(-other.constant)
        merged = dict(self.terms)
        for atom, factor in other.terms:
            merged[atom] = merged.get(atom, 0) - factor
        return Affine._make(merged, self.constant - other.constant)

    def __rsub__(self, other: int | str | Affine) -> Affine:
        return Affine.of(other) + (-self)

    def __mul__(self, factor: int) -> Affine:
        if isinstance(factor, Affine) and factor.is_constant:
            factor = factor.constant
        if not isinstance(factor, int):
            raise DefinitionError(f"expected an integer factor of {self}, got {factor}", hint="products of names are not affine")
        if factor == 1:
            return self
        if factor == 0:
            return Affine._make({}, 0)
        made = Affine.__new__(Affine)
        made.terms = tuple((atom, value * factor) for atom, value in self.terms)
        made.constant = self.constant * factor
        made._hash = hash((made.terms, made.constant))
        return made

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> Affine:
        if isinstance(divisor, Affine) and divisor.is_constant:
            divisor = divisor.constant
        if not isinstance(divisor, int) or divisor == 0:
            raise DefinitionError(f"expected a nonzero integer divisor of {self}, got {divisor}")
        return _floor_divide(self, divisor) if divisor > 0 else _floor_divide(-self, -divisor)

    def __mod__(self, modulus: int) -> Affine:
        return self - (self // modulus) * modulus

    # -- rewriting ---------------------------------------------------------------------------------------------------

    def substitute(self, values: Mapping[str, Affine | int | str]) -> Affine:
        """Every name replaced by its value, all at the same time.

        >>> str((Affine.of("x") // 7).substitute({"x": 7 * Affine.of("i") + 3}))
        'i'
        """
        if values.keys().isdisjoint(self.names()):
            return self
        merged: dict[Atom, int] = {}
        constant = self.constant
        for atom, factor in self.terms:
            if isinstance(atom, str):
                if atom not in values:
                    merged[atom] = merged.get(atom, 0) + factor
                    continue
                value = Affine.of(values[atom])
            else:
                value = atom.numerator.substitute(values) // atom.denominator
            constant += factor * value.constant
            for inner, coefficient in value.terms:
                merged[inner] = merged.get(inner, 0) + factor * coefficient
        return Affine._make(merged, constant)

    def rename(self, names: Mapping[str, str]) -> Affine:
        """Names replaced by names."""
        return self.substitute(names)

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The integer value at a point.

        >>> (Affine.of("i") * 2 - 1).evaluate({"i": 5})
        9
        """
        total = self.constant
        for atom, factor in self.terms:
            if isinstance(atom, str):
                if atom not in values:
                    raise DefinitionError(f"expected a value for {atom!r}, got values for {', '.join(values) or 'no name'}", term=self)
                total += factor * values[atom]
            else:
                total += factor * (atom.numerator.evaluate(values) // atom.denominator)
        return total

    def interval(self, box: Mapping[str, Interval]) -> Interval:
        """Bounds of the value from bounds of the names, None where there is none: quick, never too narrow.

        >>> (Affine.of("i") * 2 - Affine.of("j") // 4).interval({"i": (0, 9), "j": (0, 7)})
        (-1, 18)
        """
        low: int | None = self.constant
        high: int | None = self.constant
        for atom, factor in self.terms:
            if isinstance(atom, FloorDiv):
                bottom, top = atom.numerator.interval(box)
                bottom = None if bottom is None else bottom // atom.denominator
                top = None if top is None else top // atom.denominator
            else:
                bottom, top = box.get(atom, (None, None))
            if factor < 0:
                bottom, top = top, bottom
            low = None if low is None or bottom is None else low + factor * bottom
            high = None if high is None or top is None else high + factor * top
        return low, high

    def within(self, box: Mapping[str, Interval]) -> Affine:
        """The expression with floor divisions replaced by what they are where names lie in their bounds; itself where none is.

        >>> i, j = Affine.of("i"), Affine.of("j")
        >>> [str(e.within({"j": (0, 7)})) for e in ((8 * i + j) // 8, (8 * i + j) // 32, j % 8, j // 4)]
        ['i', 'i//4', 'j', 'j//4']
        """
        found = self
        for atom, factor in self.terms:
            if isinstance(atom, FloorDiv):
                quotient = _quotient_within(atom, box)
                if quotient is not None:
                    found = found + (quotient - Affine.of(atom)) * factor
        return found

    # -- identity and text -------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Affine):
            return NotImplemented
        return self._hash == other._hash and self.constant == other.constant and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Affine, (self.terms, self.constant)

    def __repr__(self) -> str:
        return f"Affine({str(self)!r})"

    def __str__(self) -> str:
        pieces, constant = _printed_pieces(self)
        if constant or not pieces:
            pieces.append(("", constant))
        if pieces[0][1] < 0:  # a sum reads better when it begins with something positive
            first = next((at for at, piece in enumerate(pieces) if piece[1] > 0), 0)
            pieces.insert(0, pieces.pop(first))
        text = ""
        for body, factor in pieces:
            size = abs(factor)
            divided = "//" in body or "%" in body
            if divided and (size != 1 or (factor < 0 and not text)):  # -(x//2) is not -x//2, which is (-x)//2
                body = f"({body})"
            shown = str(size) if not body else body if size == 1 else f"{size}*{body}"
            sign = "-" if factor < 0 else "+"
            text = f"{text} {sign} {shown}" if text else ("-" if factor < 0 else "") + shown
        return text


@lru_cache(maxsize=1 << 12)
def _name(name: str) -> Affine:
    return Affine._make({name: 1}, 0)


@lru_cache(maxsize=1 << 10)
def _number(value: int) -> Affine:
    return Affine._make({}, value)


def _printed_pieces(expression: Affine) -> tuple[list[tuple[str, int]], int]:
    """The summands as (text, factor) and the constant, with ``e - m*(e//m)`` gathered into ``e % m``."""
    factors = dict(expression.terms)
    constant = expression.constant
    mods: list[tuple[str, int]] = []
    for atom, factor in expression.terms:
        if isinstance(atom, str) or factor % atom.denominator:
            continue
        count = -factor // atom.denominator
        inner = atom.numerator
        needed = [(own, count * value) for own, value in inner.terms]
        if all(factors.get(own, 0) * value > 0 and abs(factors[own]) >= abs(value) for own, value in needed):
            for own, value in needed:
                factors[own] -= value
            del factors[atom]
            constant -= count * inner.constant
            simple = len(inner.terms) == 1 and not inner.constant and inner.terms[0][1] == 1
            text = str(inner)
            mods.append((f"{text} % {atom.denominator}" if simple and "//" not in text else f"({text}) % {atom.denominator}", count))
    return [(str(atom), factor) for atom, factor in factors.items() if factor] + mods, constant


def _floor_divide(expression: Affine, divisor: int) -> Affine:
    """``expression // divisor`` for a positive divisor, in normal form."""
    if divisor == 1:
        return expression
    outer: dict[Atom, int] = {}
    inner: dict[Atom, int] = {}
    for atom, factor in expression.terms:
        whole = factor // divisor if factor >= 0 else -(-factor // divisor)  # toward zero: (x - k)//2 stays as written
        if whole:
            outer[atom] = whole
        if factor != whole * divisor:
            inner[atom] = factor - whole * divisor
    quotient, constant = divmod(expression.constant, divisor)
    if not inner:
        return Affine._make(outer, quotient)
    common = gcd(divisor, *inner.values())
    if common > 1:
        inner = {atom: factor // common for atom, factor in inner.items()}
        constant //= common
        divisor //= common
    sign = 1
    if all(factor < 0 for factor in inner.values()):  # floor(-e/d) = -ceil(e/d) = -floor((e + d - 1)/d)
        inner = {atom: -factor for atom, factor in inner.items()}
        constant = divisor - 1 - constant
        sign = -1
    nested = [atom for atom in inner if isinstance(atom, FloorDiv)]
    if len(nested) == 1 and inner[nested[0]] == 1 and _flattens(nested[0], inner, constant, divisor):
        atom = nested[0]  # (e//a + f)//d = (e + a*f)//(a*d) for an integer f
        del inner[atom]
        flat = Affine._make(inner, constant) * atom.denominator + atom.numerator
        rest = _floor_divide(flat, divisor * atom.denominator) * sign
    else:
        rest = Affine._make({FloorDiv(Affine._make(inner, constant), divisor): sign}, 0)
    return Affine._make(outer, quotient) + rest


def _flattens(atom: FloorDiv, inner: Mapping[Atom, int], constant: int, divisor: int) -> bool:
    """Whether int64 has the numbers of a flattened floor division: its literals, and what is beside the nested one times its divisor."""
    beside = sum(abs(factor) for other, factor in inner.items() if other is not atom)
    return atom.denominator * max(divisor, abs(constant), beside * _MOST_NAME) <= _MOST


def _quotient_within(atom: FloorDiv, box: Mapping[str, Interval]) -> Affine | None:
    """What a floor division is within bounds, where that is simpler: without what never reaches a multiple of the divisor."""
    numerator, divisor = atom.numerator.within(box), atom.denominator
    common = {divisor: None, **{gcd(factor, divisor): None for _, factor in numerator.terms}}
    for step in sorted(common, reverse=True):
        rest = Affine([(a, f) for a, f in numerator.terms if f % step], numerator.constant)
        low, high = rest.interval(box)
        if rest.terms and low is not None and high is not None and low // step == high // step:
            return ((numerator - rest) // step + low // step) // (divisor // step)
    return None if numerator is atom.numerator else numerator // divisor


def period_of(atom: Atom, name: str) -> int:
    """Along every so many values of a name an atom grows evenly: 1 for a name, 3 for `i // 3`."""
    if isinstance(atom, str) or name not in atom.numerator.names():
        return 1
    inner = lcm(*(period_of(part, name) for part in atom.numerator.atoms()))
    growth = sum(factor * _growth(part, name, inner) for part, factor in atom.numerator.terms)
    return inner * (atom.denominator // gcd(atom.denominator, growth))


def _growth(atom: Atom, name: str, step: int) -> int:
    """How much an atom grows with a name that grows by a step along which it grows evenly."""
    if isinstance(atom, str):
        return step if atom == name else 0
    return sum(factor * _growth(part, name, step) for part, factor in atom.numerator.terms) // atom.denominator
