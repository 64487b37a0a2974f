"""Terms of a sum that are equal under conditions which exclude each other: one term under one condition.

``where(i < j, e, 0) + where(i > j, e, 0)`` is ``where(i != j, e, 0)``. Reads that are affine by cases are turned around by them; cases in
which an element receives the same are not worth telling apart. Only in derived formulas: terms may be added in another order.

Terms at single places of an index are equal where each is one formula of the index at its place:

    where(p == 0, x[i, 0] - y[j, 0], 0) + where(p == 1, x[i, 1] - y[j, 1], 0)   -->   where(p == 0 or p == 1, x[i, p] - y[j, p], 0)

That is what a sum over coordinates gives that was written out. The same formula stands for a choice of one for each place (`passes.cases`).
"""

from __future__ import annotations

from itertools import product

from tensorexpr.integers import Affine
from tensorexpr.ir import Access, Apply, Const, Expr, Index, Size, apply, const
from tensorexpr.regions import affine_of, expression_of
from tensorexpr.simplify.facts.conditions import disjuncts
from tensorexpr.simplify.facts.context import Context
from tensorexpr.simplify.rules.common import reads_nothing
from tensorexpr.traversal import bound_names, children, free_names, map_children, signed_terms, walk

MOST_PLACES = 16
"""The places of an axis along which terms may be written out."""
Term = tuple[int, Expr]
"""A sign, and what is added or subtracted."""


def with_joint_pieces(expr: Apply, context: Context) -> Expr:
    """where(c, e, 0) + a + where(d, e, 0) -> where(c or d, e, 0) + a, where c and d exclude each other; the same object where there is none

    Both sides are settled by themselves already, so that only pairs with one term on either side are looked at.
    """
    added = list(signed_terms(expr.args[1], -1 if expr.op.name == "sub" else 1))
    if not any(_is_piece(term) for _, term in added):
        return expr
    terms = list(signed_terms(expr.args[0], 1))
    left: list[Term] = []
    for sign, term in added:
        found = ((k, _joined(other, term, context)) for k, (own, other) in enumerate(terms) if own == sign)
        at, joined = next(((k, one) for k, one in found if one is not None), (0, None))
        if joined is None:
            left.append((sign, term))
        else:
            terms[at] = sign, joined
    if len(left) == len(added):
        return expr
    result = terms[0][1]
    for sign, term in (*terms[1:], *left):
        result = apply("add" if sign > 0 else "sub", result, term)
    return result


def _is_piece(term: Expr) -> bool:
    if not isinstance(term, Apply) or term.op.name != "where":
        return False
    condition, _, otherwise = term.args
    return isinstance(otherwise, Const) and otherwise.value == 0 and reads_nothing(condition)


def _joined(first: Expr, second: Expr, context: Context) -> Expr | None:
    """Two terms as one, None where they are not equal under their conditions or these do not exclude each other."""
    if not _is_piece(first) or not _is_piece(second):
        return None
    assert isinstance(first, Apply) and isinstance(second, Apply)
    value = first.args[1] if first.args[1:] == second.args[1:] else _one_formula(first, second, context)
    if value is None:
        return None
    pairs = product(disjuncts(first.args[0]), disjuncts(second.args[0]))
    if not all(context.assuming(pair).is_empty() for pair in pairs):
        return None
    return apply("where", apply("or", first.args[0], second.args[0]), value, first.args[2])


def _one_formula(first: Apply, second: Apply, context: Context) -> Expr | None:
    """The formula of an index that two values are, each at the places of the index that its condition names; None where there is none."""
    ours, theirs = _places(first.args[0], context), _places(second.args[0], context)
    if ours is None or theirs is None or ours[0] != theirs[0] or not ours[1] or not theirs[1] or not set(ours[1]).isdisjoint(theirs[1]):
        return None
    value = one_formula(first.args[1], second.args[1], ours[0], ours[1], theirs[1])
    return None if value is None or ours[0] in bound_names(value) else value


def _places(condition: Expr, context: Context) -> tuple[str, list[int]] | None:
    """The one index that a condition is about, and the few numbers for which it holds; None where it is about more."""
    names = free_names(condition)
    if len(names) != 1:
        return None
    low, high = context.range(context.arithmetic.form(Index(names[0])))
    if low is None or high is None or high - low >= MOST_PLACES:
        return None
    at = [apply("eq", Index(names[0]), const(place)) for place in range(low, high + 1)]
    return names[0], [low + k for k, is_there in enumerate(at) if not context.assuming([condition, is_there]).is_empty()]


def one_formula(a: Expr, b: Expr, name: str, ours: list[int], theirs: list[int]) -> Expr | None:
    """One expression that is `a` where the index is at `ours`, and `b` where it is at `theirs`: they differ in subscripts alone."""
    if a == b:
        return a
    if type(a) is not type(b) or len(children(a)) != len(children(b)) or not children(a):
        return None
    inside = _subscript if isinstance(a, Access) else one_formula
    found = [inside(x, y, name, ours, theirs) for x, y in zip(children(a), children(b), strict=True)]
    parts = [part for part in found if part is not None]
    if len(parts) < len(found):
        return None
    rest, others = iter(parts), iter(parts)
    made = map_children(a, lambda child: next(rest))
    return made if made == map_children(b, lambda child: next(others)) else None


def _subscript(a: Expr, b: Expr, name: str, ours: list[int], theirs: list[int]) -> Expr | None:
    """The same of subscripts: affine forms that rise with the index."""
    if a == b:
        return a
    one, other = affine_of(a), affine_of(b)
    if one is None or other is None:
        return None
    if len(ours) == len(theirs) == 1:
        step, rest = divmod((other - one).constant, theirs[0] - ours[0])
        if rest or step < 1 or not (other - one).is_constant:
            return None
        one = one + step * (Affine.of(name) - ours[0])
    elif len(ours) == 1:
        one, other, theirs = other, one, ours
    if any(one.substitute({name: Affine.of(place)}) != other.substitute({name: Affine.of(place)}) for place in theirs):
        return None
    return expression_of(one, (n.name for e in (a, b) for n in walk(e) if isinstance(n, Size)))
