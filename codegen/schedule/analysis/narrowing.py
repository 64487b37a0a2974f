"""Affine conditions of a reduction as bounds of its axes, so that loops visit only the points at which they hold.

`for k in range(n) if 2*k <= i` becomes `for k in range(min(n, i//2 + 1))`: each condition bounds the innermost axis that
it mentions; floor divisions round the right way, so the points are exactly the same.

Where a bound leaves out a few points only, it is the other way round: loops of constant length fill vectors, and
`for k in range(max(0, 1 - r), min(28, 29 - r))` with 0 <= r < 3 becomes `for k in range(28) if k >= 1 - r and k < 29 - r`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensorexpr.codegen.schedule.analysis.windows import compared
from tensorexpr.integers import Affine, DomainTooComplex
from tensorexpr.ir import Axis, Const, Expr, apply, const
from tensorexpr.regions import affine_of, alternatives, constraints_of, domain_of, expression_of
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


MOST_SPARED = 4
"""Bounds become conditions where they leave out less than one point of so many."""


def widened(axes: tuple[Axis, ...], around: tuple[Axis, ...]) -> tuple[tuple[Axis, ...], tuple[Expr, ...]]:
    """The axes with constant bounds where those are hardly wider, and what the others said as conditions.

    Ensures: the same points in the same order, under the conditions. `around` are the loops outside.
    """
    wide: list[Axis] = []
    conditions: list[Expr] = []
    for axis in axes:
        starts, stops = alternatives(axis.start, "maximum"), alternatives(axis.stop, "minimum")
        hull = None if _is_constant(axis) else _hull(starts, stops, (*around, *wide))
        if hull is None:
            wide.append(axis)
            continue
        low, high = map(const, hull)
        wide.append(Axis(axis.index, low, high))
        conditions += [compared("ge", axis.index, e) for e in starts if e != low]
        conditions += [compared("lt", axis.index, e) for e in stops if e != high]
    return tuple(wide), tuple(conditions)


def _is_constant(axis: Axis) -> bool:
    return isinstance(axis.start, Const) and isinstance(axis.stop, Const)


def _hull(starts: Sequence[Expr], stops: Sequence[Expr], around: tuple[Axis, ...]) -> tuple[int, int] | None:
    """The least start and greatest stop, where the loops never have much fewer points than that; None otherwise."""
    forms = [affine_of(e) for e in (*starts, *stops)]
    region = domain_of(around).domain
    known = [form for form in forms if form is not None and set(form.names()) <= set(region.names)]
    if len(known) < len(forms):
        return None
    low, high = known[: len(starts)], known[len(starts) :]
    try:
        least = [region.range(form)[0] for form in low]
        greatest = [region.range(form)[1] for form in high]
        widths = [region.range(b - a)[0] for a in low for b in high]
    except DomainTooComplex:
        return None
    first = max((n for n in least if n is not None), default=None)
    last = min((n for n in greatest if n is not None), default=None)
    if first is None or last is None or any(w is None or (last - first - w) * MOST_SPARED > last - first for w in widths):
        return None
    return first, last


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
