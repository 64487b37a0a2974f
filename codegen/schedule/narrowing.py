"""Affine conditions of a reduction as bounds of its axes, so that loops visit only the points at which they hold.

`for k in range(n) if 2*k <= i` becomes `for k in range(min(n, i//2 + 1))`: each condition bounds the innermost axis that
it mentions; floor divisions round the right way, so the points are exactly the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from tensorexpr.integers import Affine, DomainTooComplex
from tensorexpr.ir import Axis, Const, Expr, apply, const
from tensorexpr.regions import constraints_of, domain_of, expression_of
from tensorexpr.traversal import size_names


def narrow(axes: tuple[Axis, ...], conditions: tuple[Expr, ...], around: tuple[Axis, ...]) -> tuple[tuple[Axis, ...], tuple[Expr, ...]]:
    """The axes with every affine condition on them as a bound, and the conditions that are left.

    Ensures: the same points in the same order. `around` are the loops outside; a condition that they and the axes
    already imply is dropped.
    """
    left: list[Expr] = []
    bounded = {a.index: a for a in axes}
    for condition in conditions:
        constraints, exact = constraints_of(condition)
        sizes = size_names(condition)
        found = [(c, _innermost(c.expr, axes)) for c in constraints]
        if not exact or any(axis is None for _, axis in found):
            left.append(condition)
            continue
        known = domain_of((*around, *bounded.values())).domain
        for constraint, axis in found:
            try:
                redundant = set(constraint.expr.names()) <= set(known.names) and known.implies(constraint)
            except DomainTooComplex:
                redundant = False
            if not redundant and axis is not None:
                bounded[axis.index] = _bound(bounded[axis.index], constraint.expr, constraint.is_equality, sizes)
    return tuple(bounded[a.index] for a in axes), tuple(left)


def _innermost(form: Affine, axes: tuple[Axis, ...]) -> Axis | None:
    """The last axis that the form mentions; None where it stands inside a floor division, or is none of the axes."""
    for axis in reversed(axes):
        if axis.index in form.names():
            inside = any(axis.index in Affine.of(atom).names() for atom in form.atoms() if not isinstance(atom, str))
            return None if inside else axis
    return None


def _bound(axis: Axis, form: Affine, equality: bool, sizes: Iterable[str]) -> Axis:
    """The axis where ``form >= 0`` (or ``== 0``) holds; the form is linear in its index."""
    factor = form.coefficient(axis.index)
    rest = form - Affine.of(axis.index) * factor
    start, stop = axis.start, axis.stop
    if factor > 0 or equality:
        lower = -(rest // factor) if factor > 0 else -((-rest) // -factor)
        start = _join("maximum", start, expression_of(lower, sizes))
    if factor < 0 or equality:
        upper = rest // -factor if factor < 0 else (-rest) // factor
        stop = _join("minimum", stop, expression_of(upper + 1, sizes))
    return Axis(axis.index, start, stop)


def _join(op: str, a: Expr, b: Expr) -> Expr:
    if a == b:
        return a
    if isinstance(a, Const) and isinstance(b, Const):
        return const((max if op == "maximum" else min)(int(a.value), int(b.value)))
    return apply(op, a, b)
