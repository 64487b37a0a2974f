"""Bounds of an axis for all points of the loops around it: the least of its starts and the greatest of its stops.

    for k in range(n):                     the span of i is range(n - 2): j is at most n - 2, and i less than that
        for j in range(k):
            for i in range(j): ...

A bound that is affine in the indices around, quotients that go one way along them included, is least and greatest at their ends; a
remainder by m is from 0 to m - 1. Each index takes its own span's ends, so a span may be wider than what the loops visit together, never
narrower. Bounds by data have no span.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tensorexpr.integers import Affine, FloorDiv
from tensorexpr.ir import Access, Apply, Axis, Const, Expr, Param, Reduce, apply, const
from tensorexpr.records import record
from tensorexpr.regions import affine_of, alternatives, expression_of, split_modulos
from tensorexpr.traversal import free_names, walk


@record
class _Ends:
    """The least and the greatest point of a loop, both of sizes alone; None where no affine form is known."""

    low: Affine | None
    high: Affine | None


def span(axis: Axis, around: Iterable[Axis]) -> Axis | None:
    """The axis with bounds of constants and sizes that hold all its points anywhere in the loops `around`, outermost first: it stops where
    it starts, or behind.

    None where they depend on data, or neither grow nor fall along an index.
    """
    if not any(free_names(e) for e in (axis.start, axis.stop)):
        return None if _reads((axis.start, axis.stop)) else axis
    ends: dict[str, _Ends] = {}
    for outer in around:
        low = _affine_end(_bound(outer.start, ends, greatest=False), "maximum")
        high = _affine_end(_bound(outer.stop, ends, greatest=True), "minimum")
        ends[outer.index] = _Ends(low, None if high is None else high - 1)
    start, stop = _bound(axis.start, ends, greatest=False), _bound(axis.stop, ends, greatest=True)
    return None if start is None or stop is None else Axis(axis.index, start, _chosen("maximum", [stop, start]))


def _reads(exprs: Iterable[Expr]) -> bool:
    return any(isinstance(n, Access | Param | Reduce) for e in exprs for n in walk(e))


def _affine_end(expr: Expr | None, op: str) -> Affine | None:
    """One affine form for an end of a loop: the tightest number among those that hold it, else the first of them."""
    forms = [affine_of(e) for e in (() if expr is None else alternatives(expr, op))]
    known = [form for form in forms if form is not None and not form.has_division()]
    numbers = [form for form in known if form.is_constant]
    if numbers:
        return (max if op == "maximum" else min)(numbers, key=lambda form: form.constant)
    return known[0] if known else None


def _bound(expr: Expr, ends: Mapping[str, _Ends], greatest: bool) -> Expr | None:
    """The least or the greatest value of a bound, over constants and sizes."""
    if _reads((expr,)):
        return None
    if isinstance(expr, Apply) and expr.op.name in ("minimum", "maximum"):
        found = [_bound(e, ends, greatest) for e in expr.args]
        known = [e for e in found if e is not None]
        # Of the least of several each is an upper bound, and so is each of the greatest of several a lower one.
        if len(known) < len(found) and (not known or (expr.op.name == "minimum") != greatest):
            return None
        return _chosen(expr.op.name, known)
    form = affine_of(expr)
    if form is None:
        return None
    form, remainders = split_modulos(form)
    for numerator, modulus, factor in remainders:
        if not any(name in numerator.names() for name in free_names(expr)):
            form += (numerator - numerator // modulus * modulus) * factor
        elif (factor > 0) == greatest:
            form = form.shifted(factor * (modulus - 1))
    for name in sorted(set(free_names(expr))):
        way = _direction(form, name)
        end = ends.get(name)
        if way is None or end is None:
            return None
        value = end.high if (way > 0) == greatest else end.low
        if value is None:
            return None
        form = form.substitute({name: value}) if way else form
    return expression_of(form, form.names())  # all of them are sizes by now


def _chosen(op: str, exprs: list[Expr]) -> Expr:
    """`op` of some expressions, the numbers among them as one."""
    numbers = [int(e.value) for e in exprs if isinstance(e, Const)]
    rest = list(dict.fromkeys(e for e in exprs if not isinstance(e, Const)))
    if numbers:
        rest.append(const((min if op == "minimum" else max)(numbers)))
    result = rest[0]
    for e in rest[1:]:
        result = apply(op, result, e)
    return result


def _direction(form: Affine, name: str) -> int | None:
    """Whether a form grows (1) or falls (-1) along an index, or stays (0); None where its terms go both ways."""
    ways = set()
    for atom, factor in form.terms:
        if isinstance(atom, FloorDiv):
            if atom.numerator.has_division():
                return None
            factor *= atom.numerator.coefficient(name)
        elif atom != name:
            continue
        if factor:
            ways.add(1 if factor > 0 else -1)
    return None if len(ways) > 1 else next(iter(ways), 0)
