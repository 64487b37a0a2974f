"""How numbers of points are written: factored by sympy, as Python arithmetic.

sympy is loaded here and nowhere else, when a formula is written for the first time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensorexpr.integers.counting.polynomial import Atom, Extreme, Polynomial
from tensorexpr.integers.forms.affine import Affine, FloorDiv
from tensorexpr.integers.forms.constraint import Constraint


def text(value: Polynomial, names: Mapping[str, str] | None = None) -> str:
    """A formula as Python writes it, in factors: `n*(n + 1)/2`, `3*((h - 1)//2)`. `names` gives other texts for names.

    >>> text(Polynomial.of("n").power_sum_below(2))
    'n*(n - 1)*(2*n - 1)/6'
    """
    import sympy  # noqa: PLC0415

    symbols = {atom: sympy.Symbol(_written(atom, names or {}), integer=True) for atom in value.atoms()}
    total = sympy.Integer(0)
    for monomial, factor in value.terms.items():
        total += sympy.Mul(sympy.Rational(factor.numerator, factor.denominator), *(symbols[atom] ** power for atom, power in monomial))
    written = str(sympy.factor(total))
    return written[1:-1] if written in map(str, symbols.values()) and written.startswith("(") else written


def to_sympy(value: Polynomial) -> Any:
    """A formula as a sympy expression of integer symbols, with `floor`, `Min` and `Max`."""
    import sympy  # noqa: PLC0415

    def atom_of(atom: Atom) -> Any:
        if isinstance(atom, str):
            return sympy.Symbol(atom, integer=True, nonnegative=True)
        if isinstance(atom, FloorDiv):
            return sympy.floor(affine_of(atom.numerator) / atom.denominator)
        if isinstance(atom, Constraint):
            holds = sympy.Eq(affine_of(atom.expr), 0) if atom.is_equality else sympy.Ge(affine_of(atom.expr), 0)
            return sympy.Piecewise((1, holds), (0, True))
        return (sympy.Min if atom.kind == "min" else sympy.Max)(*map(item_of, atom.items))

    def affine_of(expr: Affine) -> Any:
        return sympy.Add(*(factor * atom_of(atom) for atom, factor in expr.terms), expr.constant)

    def item_of(item: Affine | Extreme) -> Any:
        return affine_of(item) if isinstance(item, Affine) else atom_of(item)

    total = sympy.Integer(0)
    for monomial, factor in value.terms.items():
        total += sympy.Mul(sympy.Rational(factor.numerator, factor.denominator), *(atom_of(atom) ** power for atom, power in monomial))
    return sympy.factor(total)


def _written(atom: Atom, names: Mapping[str, str]) -> str:
    if isinstance(atom, str):
        return names.get(atom, atom)
    if isinstance(atom, Constraint):
        return f"({atom.substitute({name: names[name] for name in atom.names() if name in names})})"
    if isinstance(atom, Extreme):
        return f"{atom.kind}({', '.join(_item(item, names) for item in atom.items)})"
    return f"({_item(Affine.of(atom), names)})"


def _item(item: Affine | Extreme, names: Mapping[str, str]) -> str:
    if isinstance(item, Extreme):
        return _written(item, names)
    return str(item.rename({name: names[name] for name in item.names() if name in names}))
