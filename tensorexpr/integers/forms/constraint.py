"""Constraints: an affine expression that is nonnegative, or zero.

A `Constraint` is kept in the tightest integer form: common factors of the coefficients are divided out, which rounds the
constant of an inequality down (``2*i >= 1`` is ``i >= 1``) and turns an equality with a remainder into one that never
holds. A congruence is an equality with a floor division: ``x % 3 == 0`` is ``x - 3*(x//3) == 0``.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Any

from tensorexpr.errors import DefinitionError
from tensorexpr.integers.forms.affine import Affine

AffineLike = Affine | int | str


class Constraint:
    """``expr >= 0`` or ``expr == 0``, immutable, in normal form.

    >>> str(Constraint(Affine({"i": 2}, -1), ">="))
    'i >= 1'
    >>> [str(c) for c in eq("i", "n").negate()]
    ['n < i', 'i < n']
    """

    __slots__ = ("_hash", "_key", "expr", "kind")

    _key: tuple[Any, ...]

    expr: Affine
    kind: str

    def __init__(self, expr: AffineLike, kind: str) -> None:
        if kind not in (">=", "=="):
            raise DefinitionError(f"expected a constraint of kind '>=' or '==', got {kind!r}")
        self.expr = _tightened(Affine.of(expr), kind)
        self.kind = kind
        self._hash = hash((self.expr, kind))

    @property
    def is_true(self) -> bool:
        """Holds everywhere, by its form."""
        return not self.expr.terms and (self.expr.constant == 0 or (self.kind == ">=" and self.expr.constant > 0))

    @property
    def is_false(self) -> bool:
        """Holds nowhere, by its form."""
        return not self.expr.terms and not self.is_true

    @property
    def is_equality(self) -> bool:
        """``expr == 0`` rather than ``expr >= 0``."""
        return self.kind == "=="

    def names(self) -> tuple[str, ...]:
        """All names in it, ordered."""
        return self.expr.names()

    def negate(self) -> tuple[Constraint, ...]:
        """The constraints of which exactly one holds where this one does not."""
        if self.kind == ">=":
            return (Constraint(-self.expr - 1, ">="),)
        return (Constraint(self.expr - 1, ">="), Constraint(-self.expr - 1, ">="))

    def holds(self, values: Mapping[str, int]) -> bool:
        """True at the point `values`."""
        value = self.expr.evaluate(values)
        return value >= 0 if self.kind == ">=" else value == 0

    def substitute(self, values: Mapping[str, AffineLike]) -> Constraint:
        """Every name replaced by its value."""
        expr = self.expr.substitute(values)
        return self if expr is self.expr else Constraint(expr, self.kind)

    def sort_key(self) -> tuple[Any, ...]:
        """A key that orders constraints the same way in every run: equalities first."""
        try:
            return self._key
        except AttributeError:
            self._key = (self.kind != "==", self.expr.sort_key())
            return self._key

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Constraint):
            return NotImplemented
        return self.kind == other.kind and self.expr == other.expr

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Constraint, (self.expr, self.kind)

    def __repr__(self) -> str:
        return f"Constraint({str(self)!r})"

    def __str__(self) -> str:
        text = _congruence_text(self)
        if text is not None:
            return text
        left, right = _sides(self.expr)
        if self.kind == "==":
            return f"{left} == {right}" if len(left.terms) == 1 or len(right.terms) != 1 else f"{right} == {left}"
        if not left.terms or not right.terms:
            return f"{left} >= {right}" if left.terms else f"{right} <= {left}"
        if left.constant == -1:
            return f"{right} < {left + 1}"
        if right.constant == 1:
            return f"{left} > {right - 1}"
        return f"{right} <= {left}" if len(right.terms) <= len(left.terms) else f"{left} >= {right}"


def _sides(expr: Affine) -> tuple[Affine, Affine]:
    """``left, right`` with positive coefficients only and ``left - right = expr``."""
    left = Affine([(atom, factor) for atom, factor in expr.terms if factor > 0])
    right = left - expr
    if not right.terms:
        return left, right
    return left - right.constant, right - right.constant


def _congruence_text(constraint: Constraint) -> str | None:
    """``e % m == r`` for ``e - m*(e//m) - r == 0``."""
    if constraint.kind != "==":
        return None
    for expr in (constraint.expr, -constraint.expr):
        divisions = [(atom, factor) for atom, factor in expr.terms if not isinstance(atom, str)]
        if len(divisions) != 1 or divisions[0][1] != -divisions[0][0].denominator:
            continue
        atom = divisions[0][0]
        rest = expr - (atom.numerator - Affine.of(atom) * atom.denominator)
        if rest.is_constant:
            return f"{Affine.of(atom.numerator) % atom.denominator} == {-rest.constant}"
    return None


def _tightened(expr: Affine, kind: str) -> Affine:
    if not expr.terms:
        if kind == "==" and expr.constant:
            return Affine.of(1)
        return expr
    common = 0
    for _, factor in expr.terms:
        common = gcd(common, factor)
        if common == 1:
            break
    if kind == "==":
        if expr.constant % common:
            return Affine.of(1)
        if expr.terms[0][1] < 0:
            common = -common
        if common == 1:
            return expr
        return Affine([(atom, factor // common) for atom, factor in expr.terms], expr.constant // common)
    if common == 1:
        return expr
    return Affine([(atom, factor // common) for atom, factor in expr.terms], expr.constant // common)


FALSE = Constraint(-1, ">=")


def ge(left: AffineLike, right: AffineLike) -> Constraint:
    """``left >= right``."""
    return Constraint(Affine.of(left) - right, ">=")


def gt(left: AffineLike, right: AffineLike) -> Constraint:
    """``left > right``."""
    return Constraint(Affine.of(left) - right - 1, ">=")


def le(left: AffineLike, right: AffineLike) -> Constraint:
    """``left <= right``."""
    return Constraint(Affine.of(right) - left, ">=")


def lt(left: AffineLike, right: AffineLike) -> Constraint:
    """``left < right``."""
    return Constraint(Affine.of(right) - left - 1, ">=")


def eq(left: AffineLike, right: AffineLike) -> Constraint:
    """``left == right``."""
    return Constraint(Affine.of(left) - right, "==")


def congruent(expr: AffineLike, modulus: int) -> Constraint:
    """`expr` is a multiple of `modulus`; one form for all expressions that are congruent or opposite.

    >>> str(congruent(Affine({"x": 4}, -1), 3)), str(congruent(Affine({"x": -1}, 1), 3))
    ('x % 3 == 1', 'x % 3 == 1')
    """

    def nearest(value: int) -> int:
        rest = value % modulus
        return rest - modulus if 2 * rest > modulus else rest

    value = Affine.of(expr)
    reduced = Affine([(atom, nearest(factor)) for atom, factor in value.terms], value.constant)
    if reduced.terms and reduced.terms[0][1] < 0:
        reduced = -reduced
    rest = -reduced.constant % modulus
    return Constraint((reduced - reduced.constant) % modulus - rest, "==")
