"""Constraints of integer sets as conditions that people read."""

from __future__ import annotations

from collections.abc import Callable

from tensorexpr.integers import Affine, Constraint, FloorDiv
from tensorexpr.ir import Expr, apply, const


def condition_of(constraint: Constraint, write: Callable[[Affine], Expr]) -> Expr:
    """A constraint as a condition: congruences as `e % m == r`, otherwise positive terms on the left."""
    expr = constraint.expr
    if constraint.is_equality:
        for sign in (1, -1):
            signed = expr * sign
            for atom, factor in signed.terms:
                if isinstance(atom, FloorDiv) and factor == -atom.denominator:
                    rest = signed - atom.numerator + Affine.of(atom) * atom.denominator
                    if rest.is_constant:
                        left = apply("mod", write(atom.numerator), const(atom.denominator))
                        return apply("eq", left, const(-rest.constant))
    high = Affine([(atom, factor) for atom, factor in expr.terms if factor > 0])
    low = high - expr
    if constraint.is_equality:
        return apply("eq", write(high), write(low)) if high.terms else apply("eq", write(low - low.constant), const(-low.constant))
    if not high.terms:
        return apply("lt", write(low - low.constant), const(1 - low.constant))
    return apply("gt", write(high), write(low - 1)) if low.constant == 1 and low.terms else apply("ge", write(high), write(low))
